#include "internal.h"

#include <stdlib.h>
#include <string.h>

void slot_changed(struct slot *s)
{
    s->epoch++;
}

/* ---- choice ---- */

/* An idle slot that holds more than a tenth of the prompt is the one with this conversation; otherwise the least recently
 * used idle slot. Vectors leave nothing behind, so they take the conversation of nobody where that is possible. */
struct slot *slot_choose(const struct eng *e, const struct request *r)
{
    if (r->want_slot >= 0) {
        struct slot *s = &e->slots[r->want_slot];
        return s->req ? NULL : s;
    }
    struct slot *similar = NULL, *oldest = NULL;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (s->req)
            continue;
        if (!oldest || s->used < oldest->used)
            oldest = s;
        if (r->pool != ENG_POOL_OFF)
            continue;
        uint32_t lcp = kv_seq_lcp(&s->seq, r->root, r->items, r->n_items);
        if (lcp > longest && lcp > SIMILARITY * r->n_items) {
            longest = lcp;
            similar = s;
        }
    }
    return similar ? similar : oldest;
}

static struct kv_reuse match(const struct eng *e, const struct slot *s, const struct request *r)
{
    const struct kv_seq *others[256];
    uint32_t n = 0;
    for (uint32_t i = 0; i < e->n_slots && n < 256; i++)
        if (&e->slots[i] != s)
            others[n++] = &e->slots[i].seq;
    /* The row in front of a forced id has to be computed for its logits. */
    return kv_seq_match(&s->seq, r->root, r->items, r->n_items - request_untold(r), others, n);
}

static void take_prefix(struct eng *e, struct slot *s, struct request *r)
{
    if (!r->reuse) {
        kv_seq_clear(&s->seq, r->root);
        return;
    }
    struct kv_reuse plan = match(e, s, r);
    r->n_reused = kv_seq_reuse(&s->seq, r->root, r->items, &plan);
}

/* While every slot is at work the first one stands for the one that will be free: what is found by name is the same. */
uint32_t engine_resident(const struct eng *e, const struct eng_request *q)
{
    struct request r = {.want_slot = q->slot < (int32_t)e->n_slots ? q->slot : 0,
                        .n_items = (uint32_t)(q->n_ids + q->n_emitted)};
    if (!q->reuse || r.n_items == 0)
        return 0;
    r.items = malloc(r.n_items * sizeof *r.items);
    if (!r.items)
        return 0;
    memcpy(r.items, q->ids, q->n_ids * sizeof *r.items);
    if (q->n_emitted > 0)
        memcpy(r.items + q->n_ids, q->emitted, q->n_emitted * sizeof *r.items);
    kv_root(q->tenant, r.root);
    const struct slot *s = slot_choose(e, &r);
    uint32_t n = match(e, s ? s : &e->slots[r.want_slot > 0 ? r.want_slot : 0], &r).n;
    free(r.items);
    return n;
}

void slot_place(struct eng *e, struct slot *s, struct request *r)
{
    r->placed_us = vt_mono(&e->clock);
    take_prefix(e, s, r);
    drafts_clear(s);
    s->seq.keep = (r->n_items - 1) / BE_PAGE * BE_PAGE;
    s->req = r;
    s->parked = false;
    s->used = ++e->stamp;
    memcpy(s->tenant, r->tenant, sizeof s->tenant);
    memcpy(s->rid, r->rid, sizeof s->rid);
    s->n_prompt = r->n_prompt + r->n_forced;
    s->n_reused = r->n_reused;
    s->n_decoded = request_made(r);
    s->n_drafted = s->n_accepted = 0;
    e->counters.prompt_reused += r->n_reused;
    slot_changed(s);
}

/* Those that wait get the slots that are idle now, in order; one that wants a busy slot does not hold up the others. */
void slot_place_queued(struct eng *e)
{
    struct request **at = &e->queue;
    while (*at) {
        struct slot *s = slot_choose(e, *at);
        if (!s) {
            at = &(*at)->next;
            continue;
        }
        struct request *r = *at;
        *at = r->next;
        r->next = NULL;
        e->n_queued--;
        slot_place(e, s, r);
        e->ev.prefill(e->ev_arg, r->handle, r->n_reused, r->n_items, r->n_reused);
    }
}

/* ---- ends ---- */

static void remember(struct eng *e, const struct request *r, uint32_t slot, enum eng_done why,
                     const struct eng_usage *usage, const struct vt_err *err)
{
    static const uint8_t none[16];
    if (why == ENG_PARKED || memcmp(r->rid, none, 16) == 0)
        return; /* a parked request is meant to be submitted again */
    struct finished *f = &e->done[e->done_at++ % RIDS];
    *f = (struct finished){.why = why,
                           .slot = slot,
                           .reused = r->n_reused,
                           .emitted = r->n_emitted,
                           .seed = r->sampling.seed,
                           .usage = *usage,
                           .has_err = err != NULL,
                           .used = true};
    memcpy(f->rid, r->rid, sizeof f->rid);
    if (err)
        f->err = *err;
}

static void tell_done(struct eng *e, struct request *r, uint32_t slot, enum eng_done why,
                      const struct vt_err *err)
{
    struct eng_usage usage;
    request_usage(e, r, &usage);
    remember(e, r, slot, why, &usage, err);
    e->ev.done(e->ev_arg, r->handle, why, r->n_emitted, &usage, err);
    request_free(r);
}

void request_finish(struct eng *e, struct request *r, enum eng_done why, const struct vt_err *err)
{
    tell_done(e, r, UINT32_MAX, why, err);
}

/* What was evaluated for vectors is no conversation: nobody goes on behind it, and nothing of it is saved. Pages that no later
 * request would take make room at once, instead of pushing others' out of the cache. */
static void clear(struct slot *s, enum eng_pool pool)
{
    uint8_t root[KV_NAME];
    memcpy(root, s->seq.names[0], KV_NAME);
    if (pool != ENG_POOL_LAST)
        kv_seq_poison(&s->seq);
    kv_seq_clear(&s->seq, root);
    s->used = 0;
    slot_changed(s);
}

void slot_finish(struct eng *e, struct slot *s, enum eng_done why, const struct vt_err *err)
{
    struct request *r = s->req;
    s->req = NULL;
    s->used = ++e->stamp;
    if (r->pool != ENG_POOL_OFF)
        clear(s, r->pool);
    s->parked = why == ENG_PARKED;
    s->n_decoded = request_made(r);
    s->n_drafted = r->n_drafted;
    s->n_accepted = r->n_accepted;
    tell_done(e, r, s->index, why, err);
    if (e->ev.dirty && s->seq.n > 0)
        e->ev.dirty(e->ev_arg, s->index, true);
}

/* ---- room ---- */

bool slot_evict_idle(struct eng *e, const struct slot *except)
{
    struct slot *victim = NULL;
    for (uint32_t i = 0; i < e->n_slots; i++) {
        struct slot *s = &e->slots[i];
        if (s != except && !s->req && s->seq.n_pages > 0 && (!victim || s->used < victim->used))
            victim = s;
    }
    if (!victim)
        return false;
    uint8_t root[KV_NAME];
    memcpy(root, victim->seq.names[0], KV_NAME);
    e->counters.kv_evicted_tokens +=
        victim->seq.n % BE_PAGE; /* whole pages stay cached until they are taken */
    kv_seq_clear(&victim->seq, root);
    slot_changed(victim);
    return true;
}

uint32_t slot_room(struct eng *e, struct slot *s, uint32_t want)
{
    uint32_t room = kv_seq_room(&s->seq, want);
    while (room < want && slot_evict_idle(e, s))
        room = kv_seq_room(&s->seq, want);
    return room;
}

/* ---- what people and tools ask ---- */

static uint8_t state_of(const struct slot *s)
{
    const struct request *r = s->req;
    if (!r)
        return s->parked ? 5 : 0;
    if (r->first_us == 0)
        return 2;
    return r->credit == 0 ? 4 : 3;
}

uint32_t engine_slots(const struct eng *e, struct eng_slot_info *out, uint32_t max)
{
    uint32_t n = e->n_slots < max ? e->n_slots : max;
    for (uint32_t i = 0; i < n; i++) {
        const struct slot *s = &e->slots[i];
        const struct request *r = s->req;
        out[i] = (struct eng_slot_info){
            .slot = i,
            .state = state_of(s),
            .n_tokens = s->seq.n,
            .n_prompt = s->n_prompt,
            .n_reused = s->n_reused,
            .n_decoded = r ? request_made(r) : s->n_decoded,
            .n_remain = r && r->max_new > r->n_emitted ? r->max_new - r->n_emitted - request_untold(r) : 0,
            .drafted = r ? r->n_drafted : s->n_drafted,
            .accepted = r ? r->n_accepted : s->n_accepted,
            .epoch = s->epoch,
        };
        memcpy(out[i].tenant, s->tenant, sizeof out[i].tenant);
        memcpy(out[i].rid, s->rid, sizeof out[i].rid);
    }
    return n;
}

int engine_erase(struct eng *e, uint32_t slot, uint32_t *n_erased, struct vt_err *err)
{
    if (slot >= e->n_slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %u does not exist; there are %u", slot, e->n_slots);
    struct slot *s = &e->slots[slot];
    if (s->req)
        return vt_fail(err, VT_E_BUSY, "slot %u is at work; try again when it is idle", slot);
    uint8_t root[KV_NAME];
    memcpy(root, s->seq.names[0], KV_NAME);
    *n_erased = s->seq.n;
    kv_seq_clear(&s->seq, root);
    slot_changed(s);
    return 0;
}
