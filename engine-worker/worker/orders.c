#include "worker_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- answers ---- */

static void order_done(struct worker *w, uint64_t id, unsigned verb, const struct vt_err *err,
                       const struct checkpoint_result *r)
{
    bool ok = err == NULL || err->code == 0;
    struct vt_enc *e = vt_child_begin(w->child, VT_F_ORDER_DONE, id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, verb);
    vt_enc_u64(e, VT_ORDER_DONE_OK, ok);
    if (r != NULL) {
        const struct {
            const char *name;
            uint64_t v;
        } row[] = {{"bytes", r->bytes},     {"failed", r->failed}, {"saved", r->saved},
                   {"skipped", r->skipped}, {"tokens", r->tokens}, {"us", r->us}};
        vt_enc_map(e, VT_ORDER_DONE_RESULT, sizeof row / sizeof row[0]);
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
            vt_enc_put_str(e, row[i].name);
            vt_enc_put_u64(e, row[i].v);
        }
    }
    if (!ok)
        vt_enc_err(e, err);
    vt_child_send(w->child);
}

void orders_admission(struct worker *w)
{
    if (w->drain.verb != 0)
        requests_close(w->requests, VT_E_DRAINING, "the engine is ending its work", 2000);
    else if (w->quiesced)
        requests_close(w->requests, VT_E_BOUNCING, "the engine takes no work at the moment", 1000);
    else
        requests_close(w->requests, 0, NULL, 0);
    requests_shed(w->requests, w->level);
}

/* ---- drain, stop, park_all ---- */

static void start_drain(struct worker *w, const struct vt_frame *f, unsigned verb)
{
    uint64_t now = vt_mono(&w->clock), reason = vt_frame_u64(f, VT_ORDER_REASON, 0);
    uint64_t dflt =
        verb == VT_ORDER_DRAIN ? (uint64_t)vt_config_int(w->cfg, VT_CFG_ENGINE_DRAIN_S) * 1000 : 15000;
    uint64_t budget = VT_MS(vt_frame_u64(f, VT_ORDER_DEADLINE_MS, dflt));
    uint64_t saving = budget / 4 < VT_SEC(5) ? budget / 4 : VT_SEC(5); /* kept back for the export */
    if (w->drain.verb == VT_ORDER_STOP)
        return; /* it is on its way out already */
    w->drain = (struct drain){.verb = verb,
                              .id = f->id,
                              .deadline = now + budget,
                              .park_at = verb == VT_ORDER_DRAIN ? now + budget - saving : now,
                              .reason = reason == CKPT_BOUNCE ? CKPT_BOUNCE : CKPT_DRAIN};
    orders_admission(w);
}

static void drained(void *arg, const struct checkpoint_result *r)
{
    struct worker *w = arg;
    unsigned verb = w->drain.verb;
    /* A save that failed does not stop a stop: the checkpoint before it is whole. */
    order_done(w, w->drain.id, verb, NULL, r);
    vt_enc_u64(vt_child_begin(w->child, VT_F_BYE, 0), VT_BYE_REASON, verb);
    vt_child_send(w->child);
    worker_exit(w, VT_EX_OK);
}

static void park_now(struct worker *w)
{
    requests_hurry(w->requests);
    struct cmd *m = compute_cmd(CMD_PARK_ALL);
    if (m != NULL)
        compute_put(w->compute, m);
    w->drain.parked = true;
}

static void tick_drain(struct worker *w)
{
    struct drain *d = &w->drain;
    uint64_t now = vt_mono(&w->clock);
    bool late = now >= d->deadline;
    if (d->saving || w->state != W_READY)
        return;
    if (requests_running(w->requests) > 0 && !late) {
        if (!d->parked && now >= d->park_at)
            park_now(w);
        return;
    }
    if (requests_unsent(w->requests) > 0 && w->gateway != NULL && !late)
        return;
    if (d->verb == VT_ORDER_PARK_ALL) {
        order_done(w, d->id, d->verb, NULL, NULL);
        *d = (struct drain){0};
        orders_admission(w);
        return;
    }
    d->saving = true;
    checkpoint_save(w->checkpoint, -1, d->reason, late ? VT_SEC(1) : d->deadline - now + VT_SEC(1), drained,
                    w);
}

/* ---- the other verbs ---- */

struct export_order {
    struct worker *w;
    uint64_t id;
};

static void exported(void *arg, const struct checkpoint_result *r)
{
    struct export_order *o = arg;
    order_done(o->w, o->id, VT_ORDER_EXPORT, &r->err, r);
    free(o);
}

static void start_export(struct worker *w, const struct vt_frame *f)
{
    const msgpack_object_map *args = vt_frame_map(f, VT_ORDER_ARGS);
    struct export_order *o = malloc(sizeof *o);
    if (o == NULL)
        return;
    *o = (struct export_order){w, f->id};
    checkpoint_save(w->checkpoint, (int32_t)vt_map_i64(args, 1, -1), CKPT_EXPLICIT,
                    VT_MS(vt_frame_u64(f, VT_ORDER_DEADLINE_MS, 60000)), exported, o);
}

static void ignored_save(void *arg, const struct checkpoint_result *r)
{
    (void)arg;
    (void)r;
}

static void take_level(struct worker *w, const struct vt_frame *f)
{
    unsigned was = w->level;
    w->level = (unsigned)vt_map_u64(vt_frame_map(f, VT_ORDER_ARGS), 2, 0);
    if (w->level > was && w->state == W_READY)
        checkpoint_save(w->checkpoint, -1, CKPT_AUTOSAVE, VT_SEC(30), ignored_save, NULL);
    orders_admission(w);
    order_done(w, f->id, VT_ORDER_LEVEL, NULL, NULL);
}

static void start_canary(struct worker *w, const struct vt_frame *f)
{
    struct cmd *m = compute_cmd(CMD_CANARY);
    if (m == NULL)
        return;
    w->canary_asked = true;
    w->canary_id = f->id;
    compute_put(w->compute, m);
}

void orders_canary(struct worker *w, const struct event *ev)
{
    if (w->canary_asked)
        order_done(w, w->canary_id, VT_ORDER_CANARY, ev->err, NULL);
    w->canary_asked = false;
    if (ev->err != NULL)
        worker_fatal(w, ev->err);
}

/* An engine that is still loading has nothing to end: it goes at once. */
static bool too_early(struct worker *w, const struct vt_frame *f, unsigned verb)
{
    struct vt_err err;
    if (w->state == W_READY)
        return false;
    if (verb == VT_ORDER_STOP || verb == VT_ORDER_DRAIN) {
        w->drain = (struct drain){.verb = verb, .id = f->id};
        drained(w, &(struct checkpoint_result){0});
    } else if (verb != VT_ORDER_LEVEL) {
        vt_fail(&err, VT_E_LOADING, "the engine is loading");
        order_done(w, f->id, verb, &err, NULL);
    }
    return verb != VT_ORDER_LEVEL;
}

void orders_take(struct worker *w, const struct vt_frame *f)
{
    struct vt_err err;
    unsigned verb = (unsigned)vt_frame_u64(f, VT_ORDER_VERB, 0);
    if (w->faults.ignore_stop && (verb == VT_ORDER_STOP || verb == VT_ORDER_DRAIN))
        return;
    if (too_early(w, f, verb))
        return;
    switch (verb) {
    case VT_ORDER_DRAIN:
    case VT_ORDER_PARK_ALL:
    case VT_ORDER_STOP: start_drain(w, f, verb); break;
    case VT_ORDER_EXPORT: start_export(w, f); break;
    case VT_ORDER_QUIESCE:
    case VT_ORDER_CONTINUE:
        w->quiesced = verb == VT_ORDER_QUIESCE;
        orders_admission(w);
        order_done(w, f->id, verb, NULL, NULL);
        break;
    case VT_ORDER_LEVEL: take_level(w, f); break;
    case VT_ORDER_CANARY: start_canary(w, f); break;
    default:
        vt_fail(&err, VT_E_UNKNOWN, "order %u is unknown", verb);
        order_done(w, f->id, verb, &err, NULL);
        break;
    }
    orders_tick(w);
}

void orders_tick(struct worker *w)
{
    if (w->drain.verb != 0)
        tick_drain(w);
}

/* ---- slot files ---- */

struct slot_op {
    struct worker *w;
    uint64_t id;
    uint32_t link; /* the answer goes to the link that asked, or nowhere */
    uint64_t started;
};

static void slot_op_done(struct worker *w, uint64_t id, uint32_t link, const struct checkpoint_result *r)
{
    if (w->gateway == NULL || vt_link_id(w->gateway) != link)
        return;
    struct vt_enc *e = vt_link_begin(w->gateway, VT_F_SLOT_OP_DONE, id);
    vt_enc_u64(e, VT_SLOT_OP_DONE_OK, r->err.code == 0);
    vt_enc_u64(e, VT_SLOT_OP_DONE_TOKENS, r->tokens);
    vt_enc_u64(e, VT_SLOT_OP_DONE_BYTES, r->bytes);
    vt_enc_u64(e, VT_SLOT_OP_DONE_US, r->us);
    if (r->err.code != 0)
        vt_enc_err(e, &r->err);
    vt_link_post(w->gateway, NULL);
}

static void file_done(void *arg, const struct checkpoint_result *r)
{
    struct slot_op *op = arg;
    slot_op_done(op->w, op->id, op->link, r);
    free(op);
}

static int check_slot_op(struct worker *w, uint64_t slot, uint64_t verb, const char *name, struct vt_err *err)
{
    if (slot >= compute_facts(w->compute)->slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %llu does not exist; there are %u", (unsigned long long)slot,
                       compute_facts(w->compute)->slots);
    if (verb < 1 || verb > 3)
        return vt_fail(err, VT_E_PARAM, "slot operation %llu is unknown", (unsigned long long)verb);
    if (verb != 3 && (name[0] == 0 || strlen(name) > 255))
        return vt_fail(err, VT_E_PARAM, "a name of 1 to 255 bytes is needed");
    return 0;
}

void slot_op_take(struct worker *w, const struct vt_frame *f)
{
    uint64_t slot = vt_frame_u64(f, VT_SLOT_OP_SLOT, 0), verb = vt_frame_u64(f, VT_SLOT_OP_VERB, 0);
    struct checkpoint_result r = {.failed = 1};
    char name[258], tenant[66]; /* one more than may be, so that too long is seen */
    vt_frame_str(f, VT_SLOT_OP_NAME, name, sizeof name);
    vt_frame_str(f, VT_SLOT_OP_TENANT, tenant, sizeof tenant);
    struct slot_op *op = malloc(sizeof *op);
    struct cmd *m = op != NULL && verb == 3 ? compute_cmd(CMD_ERASE) : NULL;
    if (op == NULL || (verb == 3 && m == NULL))
        vt_fail(&r.err, VT_E_NOMEM, "no memory for the slot operation");
    else if (strlen(tenant) > 64)
        vt_fail(&r.err, VT_E_PARAM, "the tenant's name is longer than 64 bytes");
    if (r.err.code != 0 || check_slot_op(w, slot, verb, name, &r.err) < 0) {
        slot_op_done(w, f->id, vt_link_id(w->gateway), &r);
        compute_cmd_free(m);
        free(op);
        return;
    }
    *op = (struct slot_op){w, f->id, vt_link_id(w->gateway), vt_mono(&w->clock)};
    if (verb == 1) {
        checkpoint_save_named(w->checkpoint, (uint32_t)slot, name, file_done, op);
    } else if (verb == 2) {
        checkpoint_load_named(w->checkpoint, (uint32_t)slot, tenant, name, file_done, op);
    } else {
        m->slot = (uint32_t)slot;
        m->tag = (uint64_t)(uintptr_t)op;
        compute_put(w->compute, m);
    }
}

void slot_op_erased(struct worker *w, const struct event *ev)
{
    struct slot_op *op = (struct slot_op *)(uintptr_t)ev->handle;
    struct checkpoint_result r = {.tokens = ev->n, .us = vt_mono(&w->clock) - op->started};
    if (ev->err != NULL)
        r.err = *ev->err;
    else
        checkpoint_erased(w->checkpoint, ev->slot);
    slot_op_done(w, op->id, op->link, &r);
    free(op);
}
