#include "checkpoint_priv.h"

void fill_start(struct checkpoint *c)
{
    struct load *l = &c->load;
    struct filling *at = NULL;
    for (unsigned i = 0; i < NAMED_MAX && at == NULL; i++)
        at = c->filling[i].used ? NULL : &c->filling[i];
    if (at == NULL)
        return; /* its caller is told now; the slot has it all a little later */
    *at = (struct filling){.used = true,
                           .id = l->id,
                           .n_items = l->all_items,
                           .result = l->result,
                           .done = l->done,
                           .arg = l->arg,
                           .started = l->started};
    l->done = NULL;
}

static void over(struct checkpoint *c, struct filling *f)
{
    struct filling done = *f;
    f->used = false;
    done.result.us = vt_mono(c->o.clock) - done.started;
    if (done.done != NULL)
        done.done(done.arg, &done.result);
}

void fill_event(struct checkpoint *c, struct event *ev)
{
    struct filling *f = NULL;
    for (unsigned i = 0; i < NAMED_MAX && f == NULL; i++)
        f = c->filling[i].used && compute_fill_handle(c->filling[i].id) == ev->handle ? &c->filling[i] : NULL;
    if (f == NULL || (ev->type != EV_DONE && ev->type != EV_REFUSED))
        return;
    if (ev->type == EV_DONE && ev->kind == ENG_LENGTH)
        f->result.tokens = f->n_items;
    /* Otherwise it was parked or failed: what came as blocks is there all the same. */
    if (f->result.tokens == 0)
        vt_fail(&f->result.err, VT_E_UNAVAILABLE, "the slot's tokens could not be evaluated");
    over(c, f);
}

void fill_end_all(struct checkpoint *c, const struct vt_err *why)
{
    for (unsigned i = 0; i < NAMED_MAX; i++) {
        struct filling *f = &c->filling[i];
        if (!f->used)
            continue;
        f->result.err = *why;
        over(c, f);
    }
}
