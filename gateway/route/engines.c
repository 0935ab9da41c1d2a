#include "router_priv.h"

#include <string.h>

enum { DEFAULT_RETRY_MS = 2000, SHUTDOWN_RETRY_MS = 10000 };

struct engine *router_engine_of(struct router *r, const struct vt_link *l)
{
    for (unsigned i = 0; i < r->n_engines; i++)
        if (r->engines[i].link == l)
            return &r->engines[i];
    return NULL;
}

struct engine *router_engine_named(struct router *r, const char *name)
{
    for (unsigned i = 0; i < r->n_engines; i++)
        if (strcmp(r->engines[i].name, name) == 0)
            return &r->engines[i];
    return NULL;
}

bool engine_takes(const struct engine *e)
{
    return e->state == VT_CHILD_READY && e->link;
}

bool engine_comes_back(const struct engine *e)
{
    return e->wanted && e->state != VT_CHILD_DOWN && e->state != VT_CHILD_FAILED;
}

void router_match_links(struct router *r)
{
    for (unsigned i = 0; i < r->n_engines; i++) {
        struct engine *e = &r->engines[i];
        e->link = NULL;
        for (unsigned k = 0; k < r->n_links; k++)
            if (e->link_id != 0 && vt_link_id(r->links[k]) == e->link_id)
                e->link = r->links[k];
        if (e->state == VT_CHILD_READY) /* its link may come a moment later */
            r->ever_ready = true;
    }
}

static unsigned jobs_on(const struct router *r, const struct vt_link *l)
{
    unsigned n = 0;
    for (const struct job *j = r->first; j; j = j->next)
        n += j->link == l;
    return n;
}

const struct engine *router_ready(const struct router *r)
{
    const struct engine *best = NULL;
    unsigned best_load = 0;
    for (unsigned i = 0; i < r->n_engines; i++) {
        const struct engine *e = &r->engines[i];
        if (!engine_takes(e))
            continue;
        unsigned load = jobs_on(r, e->link);
        if (!best || load < best_load) {
            best = e;
            best_load = load;
        }
    }
    return best;
}

uint32_t router_window(const struct router *r)
{
    for (unsigned i = 0; i < r->n_engines; i++)
        if (r->engines[i].window > 0)
            return r->engines[i].window;
    return r->rules.window;
}

uint32_t router_n_slots(const struct router *r)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < r->n_engines; i++)
        n += r->engines[i].slots;
    return n ? n : r->rules.slots;
}

/* ---- what clients are told ---- */

uint32_t router_retry_ms(const struct router *r)
{
    uint32_t best = 0;
    uint64_t now = vt_mono(&r->clock);
    for (unsigned i = 0; i < r->n_engines; i++) {
        const struct engine *e = &r->engines[i];
        if (e->retry_ms == 0)
            continue;
        uint64_t gone = (now - e->retry_from) / 1000;
        uint32_t left = gone < e->retry_ms ? e->retry_ms - (uint32_t)gone : 1;
        if (best == 0 || left < best)
            best = left;
    }
    return best ? best : DEFAULT_RETRY_MS;
}

bool router_loading(const struct router *r)
{
    if (r->ever_ready || r->hold || r->stopping)
        return false;
    for (unsigned i = 0; i < r->n_engines; i++)
        if (!engine_comes_back(&r->engines[i]))
            return false;
    return true;
}

int router_unavailable(const struct router *r, struct api_err *e)
{
    bool back = r->n_engines == 0, draining = false;
    for (unsigned i = 0; i < r->n_engines; i++) {
        back |= engine_comes_back(&r->engines[i]);
        draining |= r->engines[i].state == VT_CHILD_DRAINING;
    }
    if (r->closed || r->stopping) {
        api_fail(e, 503, NULL, "the server is shutting down");
        e->retry_ms = SHUTDOWN_RETRY_MS;
        return -1;
    }
    if (router_loading(r))
        api_fail(e, 503, NULL, "Loading model");
    else if (back)
        api_fail(e, 503, NULL, "the engine is restarting");
    else if (draining)
        api_fail(e, 503, NULL, "the engine is shutting down");
    else
        api_fail(e, 503, NULL, "no engine is running");
    e->retry_ms = router_retry_ms(r);
    return -1;
}

/* A model that was ready before comes back, soon enough to wait for. */
static bool may_hold(const struct router *r)
{
    if (r->closed || r->stopping || r->rules.hold_s == 0 || (!r->hold && !r->ever_ready))
        return false;
    bool back = r->n_engines == 0;
    for (unsigned i = 0; i < r->n_engines; i++)
        back |= engine_comes_back(&r->engines[i]);
    return back && router_retry_ms(r) <= r->rules.hold_s * 1000u;
}

int router_admit(struct router *r, unsigned n, struct api_err *e)
{
    bool ready = router_ready(r) != NULL;
    if (r->closed || r->stopping || (!ready && !may_hold(r)))
        return router_unavailable(r, e);
    unsigned open = 0;
    for (const struct job *j = r->first; j; j = j->next)
        open += j->state != JOB_STOPPING;
    /* What slots hold does not wait; without an engine everything does. */
    uint32_t serving = ready ? router_n_slots(r) : 0;
    if (open + n > serving + r->rules.queue_max) {
        api_fail(e, 429, NULL, "the request queue is full");
        e->retry_ms = ready ? 1000 : router_retry_ms(r);
        return -1;
    }
    return 0;
}

unsigned router_open_jobs(const struct router *r, unsigned *held, uint64_t *oldest_us)
{
    unsigned n = 0;
    *held = 0;
    *oldest_us = 0;
    for (const struct job *j = r->first; j; j = j->next, n++) {
        bool waits = j->state == JOB_HELD || j->state == JOB_PARKED;
        *held += waits;
        if (*oldest_us == 0 && (waits || j->state == JOB_SUBMITTED))
            *oldest_us = j->created_us;
    }
    return n;
}

/* ---- the table ---- */

void router_parse_route(struct router *r, const msgpack_object_array *row, struct engine *e)
{
    *e = (struct engine){0};
    vt_array_str(row, 0, e->name, sizeof e->name);
    e->gen = vt_array_u64(row, 1, 0);
    e->link_id = (uint32_t)vt_array_u64(row, 2, 0);
    e->state = (unsigned)vt_array_u64(row, 3, VT_CHILD_DOWN);
    e->window = (uint32_t)vt_array_u64(row, 4, 0);
    e->slots = (uint32_t)vt_array_u64(row, 5, 0);
    e->modalities = (uint32_t)vt_array_u64(row, 6, 0);
    vt_array_str(row, 7, e->model, sizeof e->model);
    e->retry_ms = (uint32_t)vt_array_u64(row, 8, 0);
    vt_array_str(row, 9, e->fp, sizeof e->fp);
    e->permille = (uint32_t)vt_array_u64(row, 10, 0);
    e->wanted = vt_array_u64(row, 11, 1) != 0;
    e->depth.tokens = (uint32_t)vt_array_u64(row, 12, 0);
    e->depth.decode_milli = vt_array_u64(row, 13, 0);
    e->depth.prompt_milli = vt_array_u64(row, 14, 0);
    e->depth.at = (int64_t)vt_array_u64(row, 15, 0);
    vt_array_str(row, 16, e->profile, sizeof e->profile);
    e->retry_from = vt_mono(&r->clock);
}
