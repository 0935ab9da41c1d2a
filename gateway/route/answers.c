/* What an engine says about its jobs. */
#include "job_frames.h"
#include "router_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void on_accepted(struct router *r, struct job *j, const struct vt_frame *f)
{
    if (j->state == JOB_STOPPING)
        return;
    j->state = JOB_RUNNING;
    j->seed = vt_frame_u64(f, VT_ACCEPTED_SEED, j->seed);
    j->on_slot = (uint32_t)vt_frame_u64(f, VT_ACCEPTED_SLOT, 0);
    j->queue_pos = (uint32_t)vt_frame_u64(f, VT_ACCEPTED_QUEUE_POS, 0);
    uint32_t reused = (uint32_t)vt_frame_u64(f, VT_ACCEPTED_REUSED, 0);
    if (j->told_accepted) {
        j->resume_reused = reused;
        return;
    }
    j->reused = reused;
    j->accepted_us = vt_mono(&r->clock);
    j->told_accepted = true;
    j->ops->accepted(j->arg);
}

static void on_refused(struct router *r, struct job *j, const struct vt_frame *f)
{
    struct vt_err err = {.code = (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_INTERNAL)};
    uint32_t ms = (uint32_t)vt_frame_u64(f, VT_KEY_RETRY_MS, 0);
    vt_frame_str(f, VT_KEY_TEXT, err.text, sizeof err.text);
    if (j->state == JOB_STOPPING) {
        job_finish(j, JOB_STOPPED, NULL);
        return;
    }
    switch (err.code) {
    case VT_E_DRAINING:
    case VT_E_LOADING:
    case VT_E_BOUNCING:
        /* Nothing ran: it waits for the engine's next state, or for the engine to change its mind. */
        job_wait_until(j, ms ? ms : 1000);
        j->turned_away = true;
        return;
    case VT_E_QUEUE_FULL:
        if (j->told_accepted) { /* it had its place once and does not lose it */
            job_wait_until(j, ms ? ms : 200);
            return;
        }
        break;
    default: break;
    }
    struct api_err e;
    api_from_err(&e, &err, ms);
    if (err.code == VT_E_WINDOW)
        api_fail_window(&e, "prompt", (int64_t)j->tr.n_prompt, router_window(r));
    job_fail(j, &e);
}

static void on_tokens(struct router *r, struct job *j, const struct job_tokens *t)
{
    if (j->state != JOB_RUNNING)
        return;
    size_t from = j->tr.n;
    int got = job_take_tokens(j, t);
    if (got < 0) {
        if (t->first > j->tr.n) { /* something was lost: ask again from where we are */
            vt_log(r->log, VT_LOG_WARNING, "request %s: tokens from %llu, expected %zu", j->label,
                   (unsigned long long)t->first, j->tr.n);
            job_send_attach(j, j->link);
            return;
        }
        struct api_err e;
        api_fail(&e, 500, NULL, "the engine sent tokens that do not make sense, or memory is out");
        router_send_cancel(r, j->link, j->handle, 3);
        job_fail(j, &e);
        return;
    }
    r->token_frames++;
    j->received += (uint64_t)got;
    if (j->tr.n == from)
        return;
    j->last_us = vt_mono(&r->clock);
    if (j->first_us == 0)
        j->first_us = j->last_us;
    blame_progress(j);
    j->ops->tokens(j->arg, from);
}

static void on_vector(struct router *r, struct job *j, const struct vt_frame *f)
{
    size_t bytes = 0;
    const uint64_t dim = vt_frame_u64(f, VT_VECTOR_DIM, 0);
    const uint8_t *values = vt_frame_bin(f, VT_VECTOR_VALUES, &bytes);
    if (j->state != JOB_RUNNING)
        return;
    j->last_us = vt_mono(&r->clock);
    if (j->pool > 0 && values && dim > 0 && bytes > 0 && bytes / 4 % dim == 0 && bytes % 4 == 0 &&
        j->ops->vectors(j->arg, vt_frame_u64(f, VT_VECTOR_INDEX, 0), bytes / 4 / dim, dim, values) == 0)
        return;
    struct api_err e;
    api_fail(&e, 500, NULL, "the engine sent vectors that do not make sense, or memory is out");
    router_send_cancel(r, j->link, j->handle, 3);
    job_fail(j, &e);
}

/* The engine let go of it and may live on: then it takes it back at once, or says until when it does not. */
static void on_parked(struct router *r, struct job *j)
{
    bool got_on = j->received > 0;
    /* A client that has read since the engine ran dry was credited already, and will not be heard of again. */
    bool slow = j->park_why == VT_PARK_SLOW_CLIENT && j->granted <= j->received && !j->credit_due;
    job_wait(j);
    if (j->state == JOB_PARKED && !r->rules.resume) {
        job_fail_interrupted(j, "gateway.resume is off");
        return;
    }
    j->client_slow = slow && j->state == JOB_PARKED;
    j->credit_due = false;
    if (!got_on)
        job_wait_until(j, 250); /* no endless game with an engine that lets go of everything */
    router_pump(r);
}

static void on_done(struct router *r, struct job *j, const struct vt_frame *f)
{
    const msgpack_object_map *u = vt_frame_map(f, VT_DONE_USAGE);
    uint64_t reason = vt_frame_u64(f, VT_DONE_REASON, 4);
    if (u) {
        j->queue_us = vt_map_u64(u, VT_USAGE_QUEUE_US, 0);
        j->prefill_us = vt_map_u64(u, VT_USAGE_PREFILL_US, 0);
        j->decode_us = vt_map_u64(u, VT_USAGE_DECODE_US, 0);
        j->drafted = (uint32_t)vt_map_u64(u, VT_USAGE_DRAFTED, 0);
        j->draft_accepted = (uint32_t)vt_map_u64(u, VT_USAGE_ACCEPTED, 0);
    }
    if (j->state == JOB_STOPPING) {
        job_finish(j, JOB_STOPPED, NULL);
        return;
    }
    struct vt_err err = {.code = (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_INTERNAL)};
    vt_frame_str(f, VT_KEY_TEXT, err.text, sizeof err.text);
    struct api_err e;
    switch (reason) {
    case 0:
    case 1: job_finish(j, JOB_EOS, NULL); return;
    case 2: job_finish(j, JOB_LENGTH, NULL); return;
    case 5: on_parked(r, j); return;
    case 3: err.code = VT_E_INTERRUPTED_FINAL; break;
    default: break;
    }
    if (err.code == VT_E_INTERRUPTED && r->rules.resume) {
        job_wait_until(j, 1000);
        return;
    }
    api_from_err(&e, &err, (uint32_t)vt_frame_u64(f, VT_KEY_RETRY_MS, 0));
    if (reason == 3 && !err.text[0])
        snprintf(e.message, sizeof e.message, "the engine ended the request");
    job_fail(j, &e);
}

static void on_attached(struct router *r, struct job *j, const struct vt_frame *f)
{
    if (vt_frame_u64(f, VT_ATTACHED_FOUND, 0)) {
        if (j->state == JOB_ATTACHING) {
            j->state = JOB_RUNNING;
            j->granted = ROUTER_CREDIT; /* the engine counts afresh on a new link */
            j->received = 0;
        }
        return;
    }
    struct engine *e = router_engine_of(r, j->link);
    job_wait(j);
    if (e && engine_takes(e))
        job_submit(j, e);
}

static struct job *job_of(struct router *r, const struct vt_link *l, uint64_t handle)
{
    for (struct job *j = r->first; j; j = j->next)
        if (j->link == l && j->handle == handle)
            return j;
    return NULL;
}

/* Every row finds its job anew: taking one may end others. */
static void on_step(struct router *r, const struct vt_link *l, const struct vt_frame *f)
{
    const msgpack_object_array *rows = vt_frame_array(f, VT_STEP_TOKENS);
    for (unsigned i = 0; rows && i < rows->size; i++) {
        const msgpack_object_array *row = vt_array_array(rows, i);
        struct job *j = row ? job_of(r, l, vt_array_u64(row, 0, 0)) : NULL;
        struct job_tokens t = {.state = NAN};
        if (!j)
            continue;
        t.first = vt_array_u64(row, 1, 0);
        t.ids = vt_array_bin(row, 2, &t.bytes);
        on_tokens(r, j, &t);
    }
}

void router_frame(struct router *r, struct vt_link *l, const struct vt_frame *f)
{
    struct job_tokens t;
    if (f->type == VT_F_STEP) {
        on_step(r, l, f);
        return;
    }
    if (f->type == VT_F_SLOTS || f->type == VT_F_SLOT_OP_DONE) {
        router_asks_frame(r, l, f);
        return;
    }
    struct job *j = job_of(r, l, f->id);
    if (!j)
        return; /* of a client that has left */
    switch (f->type) {
    case VT_F_ACCEPTED: on_accepted(r, j, f); break;
    case VT_F_REFUSED: on_refused(r, j, f); break;
    case VT_F_TOKENS:
        job_tokens_of(&t, f);
        on_tokens(r, j, &t);
        break;
    case VT_F_VECTOR: on_vector(r, j, f); break;
    case VT_F_DONE: on_done(r, j, f); break;
    case VT_F_ATTACHED: on_attached(r, j, f); break;
    case VT_F_PREFILL:
        if (j->state == JOB_RUNNING && j->ops->progress)
            j->ops->progress(j->arg, (uint32_t)vt_frame_u64(f, VT_PREFILL_DONE, 0),
                             (uint32_t)vt_frame_u64(f, VT_PREFILL_TOTAL, 0));
        break;
    case VT_F_PARKED: j->park_why = (unsigned)vt_frame_u64(f, VT_PARKED_WHY, 0); break; /* its DONE follows */
    default: break;
    }
}
