#include "job_frames.h"
#include "router_priv.h"

enum {
    ASK_TIMEOUT_US = 15000000,
    N_ASKS = sizeof((struct router *)0)->asks / sizeof((struct router *)0)->asks[0]
};

static void finish(struct router *r, unsigned i, const struct vt_frame *f, const struct api_err *e)
{
    struct router_ask a = r->asks[i].ask;
    r->asks[i].link = NULL;
    a.done(a.arg, f, e);
}

void router_asks_frame(struct router *r, const struct vt_link *l, const struct vt_frame *f)
{
    for (unsigned i = 0; i < N_ASKS; i++) {
        if (r->asks[i].link == l && r->asks[i].id == f->id) {
            finish(r, i, f, NULL);
            return;
        }
    }
}

void router_asks_fail(struct router *r, const struct vt_link *l, const struct api_err *e)
{
    for (unsigned i = 0; i < N_ASKS; i++)
        if (r->asks[i].link && (!l || r->asks[i].link == l))
            finish(r, i, NULL, e);
}

void router_asks_tick(struct router *r, uint64_t now)
{
    struct api_err e;
    api_fail(&e, 503, NULL, "the engine does not answer");
    for (unsigned i = 0; i < N_ASKS; i++)
        if (r->asks[i].link && r->asks[i].deadline <= now)
            finish(r, i, NULL, &e);
}

static int ask(struct router *r, const struct router_ask *a, struct api_err *e, struct vt_link **link,
               uint64_t *id)
{
    const struct engine *en = router_ready(r);
    if (!en)
        return router_unavailable(r, e);
    for (unsigned i = 0; i < N_ASKS; i++) {
        if (r->asks[i].link)
            continue;
        r->asks[i].link = *link = en->link;
        r->asks[i].id = *id = r->next_handle++;
        r->asks[i].deadline = vt_mono(&r->clock) + ASK_TIMEOUT_US;
        r->asks[i].ask = *a;
        return 0;
    }
    return api_fail(e, 503, NULL, "too many questions wait for the engine");
}

static int sent(struct router *r, int result, uint64_t id, struct api_err *e)
{
    if (result == 0)
        return 0;
    for (unsigned i = 0; i < N_ASKS; i++)
        if (r->asks[i].link && r->asks[i].id == id)
            r->asks[i].link = NULL;
    return api_fail(e, 503, NULL, "the engine's queue is full");
}

int router_slots(struct router *r, const struct router_ask *a, struct api_err *e)
{
    struct vt_link *l;
    uint64_t id;
    return ask(r, a, e, &l, &id) ? -1 : sent(r, job_send_slots_ask(l, id), id, e);
}

int router_slot_op(struct router *r, uint32_t slot, unsigned verb, const char *name,
                   const struct router_ask *a, struct api_err *e)
{
    struct vt_link *l;
    uint64_t id;
    return ask(r, a, e, &l, &id) ? -1 : sent(r, job_send_slot_op(l, id, slot, verb, name), id, e);
}

void router_forget(struct router *r, const void *arg)
{
    for (unsigned i = 0; i < N_ASKS; i++)
        if (r->asks[i].link && r->asks[i].ask.arg == arg)
            r->asks[i].link = NULL;
}
