#include "blame.h"

#include "router_priv.h"

#include <stdio.h>
#include <string.h>

/* Exit classes (INTERRUPTED) that are an engine's own end: a signal that it made itself, a hang, a device error, an exit that
 * nobody ordered. */
static bool own_fault(unsigned class)
{
    enum { DEVICE_OOM_RUN = 7, DEVICE_LOST = 8, HUNG = 9, SIGNAL = 11, UNEXPECTED_EXIT = 13 };
    return class == DEVICE_OOM_RUN || class == DEVICE_LOST || class == HUNG || class == SIGNAL ||
           class == UNEXPECTED_EXIT;
}

void blame_name(struct job *j)
{
    vt_sha256(j->tr.prompt, (j->tr.n_prompt - j->tr.n_forced) * sizeof *j->tr.prompt, j->sha);
}

static struct blame_entry *find(const struct blame *b, const uint8_t sha[VT_SHA256_LEN])
{
    for (unsigned i = 0; i < b->n; i++)
        if (memcmp(b->entry[i].sha, sha, VT_SHA256_LEN) == 0)
            return (struct blame_entry *)(uintptr_t)&b->entry[i];
    return NULL;
}

static bool fresh(const struct router *r, const struct blame_entry *e)
{
    uint64_t now = vt_wall(&r->clock);
    return now < e->last_us || now - e->last_us <= BLAME_US;
}

/* The place of a new one: a free one, else that of the oldest that is not quarantined, else of the oldest. */
static struct blame_entry *place(struct blame *b)
{
    struct blame_entry *old = &b->entry[0];
    if (b->n < BLAME_SUSPECTS)
        return &b->entry[b->n++];
    for (unsigned i = 1; i < b->n; i++) {
        struct blame_entry *e = &b->entry[i];
        if (e->quarantined < old->quarantined ||
            (e->quarantined == old->quarantined && e->last_us < old->last_us))
            old = e;
    }
    return old;
}

static void refuse(const struct job *j, struct api_err *e)
{
    char hex[2 * VT_SHA256_LEN + 1];
    vt_hex(j->sha, sizeof j->sha, hex);
    api_fail(e, 400, "prompt",
             "this request is quarantined: twice an engine crashed while it worked on this prompt alone "
             "(hash %.16s); "
             "change the prompt, or let an operator clear it (vitriolctl suspects clear %.16s)",
             hex, hex);
}

int blame_check(const struct router *r, const struct job *j, struct api_err *e)
{
    struct job named = {.tr = j->tr};
    blame_name(&named);
    const struct blame_entry *b = find(&r->blame, named.sha);
    if (!b || !b->quarantined || !fresh(r, b))
        return 0;
    refuse(&named, e);
    return -1;
}

void blame_link_down(struct router *r, const struct vt_link *l)
{
    struct blame *b = &r->blame;
    for (const struct job *j = r->first; j; j = j->next) {
        bool in_flight = j->state == JOB_SUBMITTED || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
        if (j->link != l || !in_flight || b->n_batch == BLAME_BATCH)
            continue;
        b->batch[b->n_batch].link = j->link_id;
        b->batch[b->n_batch].cleared = j->cleared;
        b->batch[b->n_batch].at_us = vt_mono(&r->clock);
        memcpy(b->batch[b->n_batch].sha, j->sha, VT_SHA256_LEN);
        snprintf(b->batch[b->n_batch++].label, sizeof b->batch[0].label, "%s", j->label ? j->label : "");
    }
}

static void drop_batch(struct blame *b, uint32_t link)
{
    unsigned left = 0;
    for (unsigned i = 0; i < b->n_batch; i++)
        if (b->batch[i].link != link)
            b->batch[left++] = b->batch[i];
    b->n_batch = left;
}

void blame_forget(struct router *r, uint64_t before)
{
    struct blame *b = &r->blame;
    unsigned left = 0;
    for (unsigned i = 0; i < b->n_batch; i++)
        if (b->batch[i].at_us >= before)
            b->batch[left++] = b->batch[i];
    b->n_batch = left;
}

static void accuse(struct router *r, unsigned at, unsigned class, unsigned in_flight, bool alone)
{
    struct blame *b = &r->blame;
    struct blame_entry *e = find(b, b->batch[at].sha);
    if (!e || !fresh(r, e)) {
        e = e ? e : place(b);
        *e = (struct blame_entry){.crashes = 0};
        memcpy(e->sha, b->batch[at].sha, VT_SHA256_LEN);
    }
    bool before = e->crashes > 0;
    e->crashes++;
    e->last_us = vt_wall(&r->clock);
    e->quarantined = e->quarantined || (alone && before);
    vt_log(r->log, VT_LOG_WARNING, "request %s was in flight at a crash, with %u others: %s",
           b->batch[at].label, in_flight - 1, e->quarantined ? "it is quarantined" : "a suspect");
    if (b->tell)
        b->tell(b->tell_arg, e, class, in_flight, b->batch[at].label);
}

static bool in_batch(const struct blame *b, uint32_t link, const uint8_t sha[VT_SHA256_LEN])
{
    for (unsigned i = 0; i < b->n_batch; i++)
        if (b->batch[i].link == link && !b->batch[i].cleared &&
            memcmp(b->batch[i].sha, sha, VT_SHA256_LEN) == 0)
            return true;
    return false;
}

/* What is left of the batch is tried one by one. */
static void isolate(struct router *r, uint32_t link)
{
    struct job *next;
    for (struct job *j = r->first; j; j = next) {
        next = j->next;
        const struct blame_entry *e = find(&r->blame, j->sha);
        if (!e || !in_batch(&r->blame, link, j->sha))
            continue;
        if (e->quarantined) {
            struct api_err why;
            refuse(j, &why);
            job_fail(j, &why);
            next = r->first; /* ending one may end others of the same client */
            continue;
        }
        j->suspect = true;
        j->suspect_at = j->tr.n;
    }
}

/* A prompt that was in flight more than once is one suspect. */
static bool is_accused(const struct blame *b, unsigned at, uint32_t link)
{
    if (b->batch[at].link != link || b->batch[at].cleared)
        return false;
    for (unsigned i = 0; i < at; i++)
        if (b->batch[i].link == link && !b->batch[i].cleared &&
            memcmp(b->batch[i].sha, b->batch[at].sha, VT_SHA256_LEN) == 0)
            return false;
    return true;
}

void blame_verdict(struct router *r, uint32_t link, unsigned class)
{
    struct blame *b = &r->blame;
    unsigned in_flight = 0, uncleared = 0;
    for (unsigned i = 0; i < b->n_batch; i++) {
        in_flight += b->batch[i].link == link;
        uncleared += is_accused(b, i, link);
    }
    if (own_fault(class) && uncleared > 0) {
        b->crashes++;
        for (unsigned i = 0; i < b->n_batch; i++)
            if (is_accused(b, i, link))
                accuse(r, i, class, in_flight, uncleared == 1);
        for (struct job *j = r->first; j; j = j->next)
            if (j->link_id == link && j->cleared && j->unjudged)
                j->attempts -= j->attempts > 0; /* somebody else's crash */
        isolate(r, link);
    }
    drop_batch(b, link);
}

const struct job *blame_turn(const struct router *r)
{
    const struct job *first = NULL;
    for (const struct job *j = r->first; j; j = j->next) {
        if (!j->suspect || j->client_slow)
            continue;
        if (j->state == JOB_SUBMITTED || j->state == JOB_RUNNING || j->state == JOB_ATTACHING)
            return j; /* it is being tried */
        first = first ? first : j;
    }
    return first;
}

void blame_progress(struct job *j)
{
    if (!j->suspect || j->tr.n < j->suspect_at + BLAME_CLEAR)
        return;
    j->suspect = false;
    j->cleared = true;
    vt_log(j->router->log, VT_LOG_NOTICE, "request %s is past the place of the crash: it is not to blame",
           j->label);
}

void blame_known(struct router *r, const struct vt_frame *f)
{
    const msgpack_object_array *list = vt_frame_array(f, VT_SUSPECTS_LIST);
    struct blame *b = &r->blame;
    b->n = 0;
    for (unsigned i = 0; list && i < list->size && b->n < BLAME_SUSPECTS; i++) {
        const msgpack_object_array *row = vt_array_array(list, i);
        const msgpack_object *sha = row && row->size >= 4 ? &row->ptr[0] : NULL;
        if (!sha || sha->type != MSGPACK_OBJECT_BIN || sha->via.bin.size != VT_SHA256_LEN)
            continue;
        struct blame_entry *e = &b->entry[b->n++];
        *e = (struct blame_entry){.crashes = (unsigned)vt_array_u64(row, 1, 0),
                                  .quarantined = vt_array_u64(row, 2, 0) != 0,
                                  .last_us = vt_array_u64(row, 3, 0)};
        memcpy(e->sha, sha->via.bin.ptr, VT_SHA256_LEN);
    }
}
