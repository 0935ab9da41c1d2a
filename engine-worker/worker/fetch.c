#include "checkpoint_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool checkpoint_may_fetch(const struct checkpoint *c)
{
    bool in_the_way = c->load.state != LOAD_IDLE && !c->load.prefix; /* a slot file may take long */
    return c->link != NULL && c->o.prefix_wait_us > 0 && !c->silent && !in_the_way && c->n_fetch < FETCH_MAX;
}

bool checkpoint_fetch(struct checkpoint *c, uint64_t handle, const struct eng_request *q, uint32_t resident)
{
    uint32_t n = (uint32_t)((q->n_ids + q->n_emitted - 1) / ENG_PAGE * ENG_PAGE);
    uint32_t *ids = checkpoint_may_fetch(c) && n > 0 ? malloc(n * sizeof *ids) : NULL;
    if (ids == NULL)
        return false;
    size_t from_prompt = q->n_ids < n ? q->n_ids : n;
    memcpy(ids, q->ids, from_prompt * sizeof *ids);
    if (from_prompt < n)
        memcpy(ids + from_prompt, q->emitted, (n - from_prompt) * sizeof *ids);
    struct fetch *f = &c->fetch[c->n_fetch++];
    *f = (struct fetch){.handle = handle, .ids = ids, .n_ids = n, .resident = resident};
    f->deadline = vt_mono(c->o.clock) + c->o.prefix_wait_us;
    snprintf(f->tenant, sizeof f->tenant, "%s", q->tenant);
    c->stats.fetches++;
    c->kick = true;
    return true;
}

/* The i-th leaves the queue; its ids are the caller's. */
static struct fetch take(struct checkpoint *c, unsigned i)
{
    struct fetch f = c->fetch[i];
    memmove(c->fetch + i, c->fetch + i + 1, (--c->n_fetch - i) * sizeof f);
    return f;
}

void fetch_told(struct checkpoint *c, uint64_t handle)
{
    if (c->o.fetched != NULL)
        c->o.fetched(c->o.arg, handle);
}

void fetch_arrived(struct checkpoint *c, uint64_t handle, uint32_t from, uint32_t to)
{
    c->arrived[c->next_arrived++ % FETCH_MAX] = (struct arrived){.handle = handle, .from = from, .to = to};
}

bool fetch_used(struct checkpoint *c, uint64_t handle, size_t n_ids, uint32_t reused)
{
    for (unsigned i = 0; i < FETCH_MAX; i++) {
        struct arrived a = c->arrived[i];
        if (a.to == 0 || a.handle != handle)
            continue;
        c->arrived[i].to = 0;
        /* Both counted from where the store's blocks begin, for what was here before owes it nothing. */
        return worth_followed(&c->worth, a.to - a.from, a.to - a.from, n_ids - a.from,
                              reused > a.from ? reused - a.from : 0, ENG_PAGE);
    }
    return true;
}

static void go_without(struct checkpoint *c, unsigned i)
{
    struct fetch f = take(c, i);
    free(f.ids);
    fetch_told(c, f.handle);
}

void checkpoint_fetch_cancel(struct checkpoint *c, uint64_t handle)
{
    if (c->load.state != LOAD_IDLE && c->load.prefix && c->load.handle == handle) {
        load_forget(c);
        return;
    }
    for (unsigned i = 0; i < c->n_fetch; i++) {
        if (c->fetch[i].handle != handle)
            continue;
        free(take(c, i).ids);
        return;
    }
}

void fetch_start(struct checkpoint *c)
{
    if (c->load.state != LOAD_IDLE || c->n_fetch == 0)
        return;
    struct fetch f = take(c, 0);
    load_prefix(c, &f);
}

void fetch_late(struct checkpoint *c)
{
    c->stats.fetches_late++;
    if (c->silent || vt_mono(c->o.clock) - c->heard < c->o.prefix_wait_us / 2)
        return;
    c->silent = true;
    vt_log(
        c->o.log, VT_LOG_WARNING,
        "the store did not answer within store.prefix_wait_ms: it is not asked for prompts until it speaks");
}

void fetch_tick(struct checkpoint *c)
{
    uint64_t now = vt_mono(c->o.clock);
    for (unsigned i = 0; i < c->n_fetch;) {
        if (now < c->fetch[i].deadline && !c->silent) {
            i++;
            continue;
        }
        fetch_late(c);
        go_without(c, i);
    }
}

void fetch_end_all(struct checkpoint *c)
{
    while (c->n_fetch > 0)
        go_without(c, 0);
}
