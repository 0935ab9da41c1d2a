/* What the compute thread does with a command. */
#include "compute_priv.h"

#include <math.h>
#include <stdlib.h>

/* Does a block of this prompt lack here that a prompt of its length could have? */
static bool wants(struct compute *c, const struct eng_request *q, uint32_t *resident)
{
    struct eng *e = atomic_load(&c->eng);
    size_t n = q->n_ids + q->n_emitted;
    if (!q->reuse || n <= ENG_PAGE || n > c->o.ops->facts(e)->window)
        return false;
    *resident = c->o.ops->resident(e, q);
    return (n - 1) / ENG_PAGE * ENG_PAGE >= *resident + ENG_PAGE;
}

static void submit(struct compute *c, const struct cmd *m)
{
    struct event ev = {.type = EV_WANTS, .handle = m->submit.handle};
    if (m->look && wants(c, &m->submit, &ev.n))
        compute_push(c, &ev);
    else
        c->o.ops->submit(atomic_load(&c->eng), &m->submit);
}

static bool slot_idle(struct compute *c, uint32_t slot)
{
    struct eng_slot_info *s = calloc(slot + 1, sizeof *s);
    bool idle = s != NULL && c->o.ops->slots(atomic_load(&c->eng), s, slot + 1) == slot + 1 &&
                (s[slot].state == 0 || s[slot].state == 5);
    free(s);
    return idle;
}

/* Nobody comes between the import and this: both are one command. */
static bool fill(struct compute *c, const struct cmd *m, uint32_t have)
{
    if (m->blob == NULL || m->import.n_items <= have || m->import.n_items - have > m->import.fill)
        return false;
    struct eng_request q = {.handle = compute_fill_handle(m->tag),
                            .tenant = m->import.tenant,
                            .slot = (int32_t)m->slot,
                            .ids = m->blob,
                            .n_ids = m->import.n_items,
                            .reuse = true,
                            .state = NAN};
    vt_sampling_init(&q.sampling);
    c->o.ops->submit(atomic_load(&c->eng), &q);
    return true;
}

static void import_cmd(struct compute *c, struct cmd *m)
{
    const struct eng_ops *ops = c->o.ops;
    struct eng *e = atomic_load(&c->eng);
    struct event ev = {.handle = m->tag, .ptr = m->ptr};
    struct vt_err err;
    int rc = 0;
    if (m->type == CMD_IMPORT_BEGIN) {
        ev.type = EV_IMPORT_BEGUN;
        rc = ops->import_begin(e, m->slot, m->import.tenant, m->blob, m->import.n_items, m->import.n_blocks,
                               m->import.rec_pos, &ev.ptr, &ev.n, &err);
    } else if (m->type == CMD_IMPORT_WRITE) {
        ev.type = EV_IMPORT_WRITTEN;
        ev.n = m->n;
        rc = ops->import_write(e, m->ptr, m->import.kind, m->import.index, m->import.off, m->blob,
                               m->import.len, &err);
    } else if (m->type == CMD_IMPORT_PUBLISH) {
        ev.type = EV_IMPORT_DONE;
        if (m->ptr != NULL)
            rc = ops->import_publish(e, m->ptr, m->import.n_blocks, m->import.rec_ok, &ev.n, &err);
        else if (!slot_idle(c, m->slot))
            rc = vt_fail(&err, VT_E_BUSY, "slot %u is at work", m->slot);
        ops->import_free(e, m->ptr);
        ev.a = rc == 0 && fill(c, m, ev.n);
    } else {
        ops->import_free(e, m->ptr);
        return;
    }
    if (rc < 0)
        ev.err = compute_copy_err(&err);
    compute_push(c, &ev);
}

void compute_run_cmd(struct compute *c, struct cmd *m)
{
    const struct eng_ops *ops = c->o.ops;
    struct eng *e = atomic_load(&c->eng);
    struct event ev = {.handle = m->tag, .slot = m->slot};
    struct vt_err err;
    struct eng_export *x = NULL;
    int rc = 0;
    switch (m->type) {
    case CMD_SUBMIT: submit(c, m); return;
    case CMD_CANCEL: ops->cancel(e, m->handle); return;
    case CMD_CREDIT: ops->credit(e, m->handle, m->n); return;
    case CMD_PARK_ALL: ops->park_all(e); return;
    case CMD_EXPORT_FREE: ops->export_free(e, m->ptr); return;
    case CMD_SELFTEST:
        ev.type = EV_SELFTEST;
        rc = ops->selftest(e, &err);
        break;
    case CMD_CANARY:
        ev.type = EV_CANARY;
        rc = ops->canary(e, &err);
        break;
    case CMD_ERASE:
        ev.type = EV_ERASED;
        rc = ops->erase(e, m->slot, &ev.n, &err);
        break;
    case CMD_EXPORT:
        ev.type = EV_EXPORT;
        rc = ops->export_begin(e, m->slot, &x, &err);
        ev.ptr = x;
        break;
    default: import_cmd(c, m); return;
    }
    if (rc < 0)
        ev.err = compute_copy_err(&err);
    compute_push(c, &ev);
}
