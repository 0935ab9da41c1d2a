#include "internal.h"

#include <math.h>

/* ---- pulse ---- */

/* Idle means that nothing can go on: what waits for credit, or behind what does, is not work in flight, or a client that
 * does not read would look like a hang. */
void pulse_set(struct eng *e, enum eng_op op)
{
    uint32_t n = op == ENG_OP_IDLE ? 0 : e->n_queued;
    for (uint32_t i = 0; op != ENG_OP_IDLE && i < e->n_slots; i++)
        n += e->slots[i].req != NULL;
    atomic_store_explicit(&e->pulse_op, (uint8_t)op, memory_order_relaxed);
    atomic_store_explicit(&e->pulse_in_flight, n, memory_order_relaxed);
    atomic_store_explicit(&e->pulse_stamp, vt_mono(&e->clock), memory_order_relaxed);
}

void pulse_bump(struct eng *e)
{
    atomic_fetch_add_explicit(&e->pulse_step, 1, memory_order_relaxed);
    atomic_store_explicit(&e->pulse_stamp, vt_mono(&e->clock), memory_order_relaxed);
}

/* ---- proof of life ---- */

static int prove(struct eng *e, const struct fw_batch *b, int64_t rows, const char *what, struct vt_err *err)
{
    if (fw_forward(e->fw, b, NULL, err) < 0)
        return vt_fail_prefix(err, "%s", what);
    for (int64_t i = 0; i < rows; i++) {
        struct fw_best best = fw_best(e->fw, i);
        if (!isfinite(best.logits[0]))
            return vt_fail(err, VT_E_NOT_FINITE,
                           "%s: logit %u of row %lld is not finite; the model file is damaged or "
                           "this machine computes wrongly",
                           what, best.ids[0], (long long)i);
    }
    return 0;
}

static uint32_t some_id(const struct eng *e, uint32_t i)
{
    return (i * 37u + 11u) % (uint32_t)e->model->n_vocab;
}

int engine_canary(struct eng *e, struct vt_err *err)
{
    pulse_set(e, ENG_OP_CANARY);
    if (e->canary.state)
        be_zero(e->be, e->canary.state, e->model->state_floats * sizeof *e->canary.state);
    struct fw_run run = {
        .n_rows = 1, .pages = e->canary.pages, .wpages = e->canary.wpages, .state = e->canary.state};
    uint32_t id = some_id(e, 1);
    uint8_t want = 1;
    struct fw_batch b = {.n_rows = 1, .ids = &id, .want = &want, .runs = &run, .n_runs = 1};
    if (prove(e, &b, 1, "canary", err) < 0)
        return -1;
    uint32_t got = fw_best(e->fw, 0).ids[0];
    if (e->canary_known && got != e->canary_expect)
        return vt_fail(err, VT_E_INTERNAL, "canary: the same token gave %u before and %u now",
                       e->canary_expect, got);
    e->canary_expect = got;
    e->canary_known = true;
    pulse_bump(e);
    pulse_set(e, ENG_OP_IDLE);
    return 0;
}

/* One row for every slot in one batch, each with a state of its own. They share the canary's first page at positions of
 * their own, which is as good as pages of their own for this purpose and takes none from restored prefixes. */
static int test_decodes(struct eng *e, struct vt_err *err)
{
    uint32_t n = e->n_slots < BE_PAGE ? e->n_slots : BE_PAGE;
    size_t floats = e->model->state_floats;
    void *memory;
    if (be_alloc(e->be, &memory, n * floats * sizeof(float), err) < 0)
        return vt_fail_prefix(err, "self-test");
    for (uint32_t i = 0; i < n; i++) {
        e->ids[i] = some_id(e, i);
        e->want[i] = 1;
        e->runs[i] = (struct fw_run){.row0 = i,
                                     .n_rows = 1,
                                     .pos0 = (int32_t)i,
                                     .pages = e->canary.pages,
                                     .wpages = e->canary.wpages,
                                     .state = floats ? (float *)memory + i * floats : NULL};
    }
    struct fw_batch b = {.n_rows = n, .ids = e->ids, .want = e->want, .runs = e->runs, .n_runs = (int)n};
    int rc = prove(e, &b, n, "self-test (one token in every slot)", err);
    be_release(e->be, memory, n * floats * sizeof(float));
    return rc;
}

static int test_ubatch(struct eng *e, struct vt_err *err)
{
    if (e->canary.state)
        be_zero(e->be, e->canary.state, e->model->state_floats * sizeof *e->canary.state);
    for (uint32_t i = 0; i < e->ubatch; i++) {
        e->ids[i] = some_id(e, i);
        e->want[i] = i + 1 == e->ubatch;
    }
    struct fw_run run = {
        .n_rows = e->ubatch, .pages = e->canary.pages, .wpages = e->canary.wpages, .state = e->canary.state};
    struct fw_batch b = {.n_rows = e->ubatch, .ids = e->ids, .want = e->want, .runs = &run, .n_runs = 1};
    return prove(e, &b, 1, "self-test (largest batch)", err);
}

int engine_selftest(struct eng *e, struct vt_err *err)
{
    pulse_set(e, ENG_OP_CANARY);
    if (test_decodes(e, err) < 0)
        return -1;
    pulse_bump(e);
    if (test_ubatch(e, err) < 0)
        return -1;
    pulse_bump(e);
    return engine_canary(e, err);
}
