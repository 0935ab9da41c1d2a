#include "router_priv.h"

#include "hash.h"
#include "job_frames.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void router_init(struct router *r, const struct vt_clock *clock, struct vt_log *log,
                 const struct router_rules *rules)
{
    *r = (struct router){.clock = *clock, .log = log, .rules = *rules, .next_handle = 1};
}

/* ---- the life of a job ---- */

static void unlink_job(struct job *j)
{
    struct router *r = j->router;
    if (j->prev)
        j->prev->next = j->next;
    else
        r->first = j->next;
    if (j->next)
        j->next->prev = j->prev;
    else
        r->last = j->prev;
    j->prev = j->next = NULL;
    j->link = NULL;
    j->state = JOB_OVER;
}

static void finish(struct job *j, enum job_why why, const struct api_err *e)
{
    unlink_job(j);
    j->ended_us = vt_mono(&j->router->clock);
    j->ops->done(j->arg, why, e);
}

static void fail(struct job *j, const struct api_err *e)
{
    if (j->state == JOB_STOPPING) {
        finish(j, JOB_STOPPED, NULL);
        return;
    }
    finish(j, JOB_FAILED, e);
}

static void fail_interrupted(struct job *j, const char *why)
{
    struct api_err e;
    api_fail(&e, 503, NULL, "the request was interrupted by an engine restart and cannot be resumed: %s",
             why);
    e.retry_ms = router_retry_ms(j->router);
    j->router->interrupted_total++;
    fail(j, &e);
}

static void wait_again(struct job *j)
{
    j->link = NULL;
    j->held_us = vt_mono(&j->router->clock);
    j->state = j->told_accepted || j->tr.n > 0 ? JOB_PARKED : JOB_HELD;
}

static void wait_until(struct job *j, uint64_t ms)
{
    wait_again(j);
    j->retry_at = vt_mono(&j->router->clock) + VT_MS(ms);
}

/* Calls no ops. -1: the link did not take it. */
static int try_submit(struct job *j, struct engine *e, struct vt_err *err)
{
    struct router *r = j->router;
    bool again = j->told_accepted;
    j->handle = r->next_handle++;
    if (job_send_submit(j, e->link, err))
        return -1;
    j->link = e->link;
    j->link_id = e->link_id;
    snprintf(j->engine, sizeof j->engine, "%s", e->name);
    j->engine_gen = e->gen;
    j->granted = ROUTER_CREDIT;
    j->received = 0;
    j->retry_at = 0;
    j->turned_away = false;
    j->park_why = 0;
    j->state = JOB_SUBMITTED;
    if (again) {
        j->resumes++;
        r->resumed_total++;
        vt_log(r->log, VT_LOG_NOTICE, "request %s goes on with engine %s generation %llu after %zu tokens",
               j->label, e->name, (unsigned long long)e->gen, j->tr.n);
    }
    return 0;
}

static void submit(struct job *j, struct engine *e)
{
    struct vt_err err;
    struct api_err ae;
    if (try_submit(j, e, &err) == 0)
        return;
    if (err.code == VT_E_BUSY) {
        j->retry_at = vt_mono(&j->router->clock) + VT_MS(50);
        return;
    }
    api_from_err(&ae, &err, 0);
    fail(j, &ae);
}

static void attach(struct job *j, struct engine *e)
{
    j->handle = j->router->next_handle++;
    if (job_send_attach(j, e->link)) {
        j->retry_at = vt_mono(&j->router->clock) + VT_MS(50);
        return;
    }
    j->link = e->link;
    j->link_id = e->link_id;
    j->retry_at = 0;
    j->state = JOB_ATTACHING;
}

static struct job *next_to_run(struct router *r, uint64_t now)
{
    struct job *held = NULL;
    for (struct job *j = r->first; j; j = j->next) {
        if (j->client_slow || j->retry_at > now)
            continue;
        if (j->state == JOB_PARKED)
            return j;
        if (j->state == JOB_HELD && !held)
            held = j;
    }
    return held;
}

/* Gives waiting jobs to engines; those that have run before come first, for their clients have waited longest. */
static void pump(struct router *r)
{
    uint64_t now = vt_mono(&r->clock);
    const struct engine *e;
    struct job *j;
    while ((e = router_ready(r)) && (j = next_to_run(r, now))) {
        struct engine *same = j->engine[0] ? router_engine_named(r, j->engine) : NULL;
        /* Only the link had gone: the engine still runs it. */
        if (j->state == JOB_PARKED && same && engine_takes(same) && same->gen == j->engine_gen &&
            same->link_id != j->link_id) {
            j->attempts -= j->attempts > 0;
            attach(j, same);
        } else {
            submit(j, router_engine_named(r, e->name));
        }
    }
}

/* Something has changed: whoever waits for its time tries at once. */
static void unblock(struct router *r)
{
    for (struct job *j = r->first; j; j = j->next) {
        j->turned_away = false;
        j->retry_at = 0;
    }
    pump(r);
}

void router_start(struct router *r, struct job *j)
{
    j->router = r;
    vt_random(j->rid, sizeof j->rid);
    j->created_us = j->held_us = vt_mono(&r->clock);
    j->seed = j->sampling.seed;
    j->sampler_state = NAN;
    j->state = JOB_HELD;
    j->prev = r->last;
    j->next = NULL;
    if (r->last)
        r->last->next = j;
    else
        r->first = j;
    r->last = j;
    const struct engine *e = router_ready(r);
    if (!e) {
        r->held_total++;
        return;
    }
    /* A job that cannot be sent at all is told so by the next tick, outside of this call. */
    struct vt_err err;
    try_submit(j, router_engine_named(r, e->name), &err);
}

static void send_cancel(struct router *r, struct vt_link *l, uint64_t handle, uint8_t why)
{
    if (job_send_cancel(l, handle, why) == 0)
        return;
    if (r->n_cancels == sizeof r->cancels / sizeof r->cancels[0]) {
        struct vt_err e;
        vt_fail(&e, VT_E_LIMIT, "too many cancels wait for the link");
        vt_link_fail(l, &e);
        return;
    }
    r->cancels[r->n_cancels].link = l;
    r->cancels[r->n_cancels].handle = handle;
    r->cancels[r->n_cancels++].why = why;
}

void job_cancel(struct job *j)
{
    if (j->state == JOB_OVER || !j->router)
        return;
    struct vt_link *l = j->link;
    bool on_engine = l && j->state != JOB_STOPPING;
    unlink_job(j);
    if (on_engine)
        send_cancel(j->router, l, j->handle, 1);
}

void job_stop(struct job *j)
{
    if (j->state == JOB_RUNNING || j->state == JOB_SUBMITTED) {
        j->state = JOB_STOPPING;
        send_cancel(j->router, j->link, j->handle, 4);
    } else if (j->state == JOB_PARKED || j->state == JOB_HELD || j->state == JOB_ATTACHING) {
        if (j->link)
            send_cancel(j->router, j->link, j->handle, 4);
        finish(j, JOB_STOPPED, NULL);
    }
}

static void send_credit(struct job *j)
{
    uint64_t target = j->received + ROUTER_CREDIT;
    if (target < j->granted + (ROUTER_CREDIT - ROUTER_LOW_WATER)) {
        j->credit_due = false;
        return;
    }
    j->credit_due = job_send_credit(j->link, j->handle, (uint32_t)(target - j->granted)) != 0;
    if (!j->credit_due)
        j->granted = target;
}

void job_drained(struct job *j)
{
    const struct engine *e;
    struct vt_err err;
    if (j->state == JOB_RUNNING && j->link) {
        send_credit(j);
    } else if (j->state == JOB_PARKED && j->client_slow) {
        j->client_slow = false;
        /* The caller may be inside the HTTP library, where no ops are called; what fails here is for the next tick. */
        if (j->retry_at == 0 && (e = router_ready(j->router)) && e->link_id == j->link_id)
            try_submit(j, router_engine_named(j->router, e->name), &err);
    }
}

void router_fail_all(struct router *r, const struct api_err *e)
{
    r->closed = true;
    while (r->first) {
        struct job *j = r->first;
        if (j->link)
            job_send_cancel(j->link, j->handle, 3);
        fail(j, e);
    }
    router_asks_fail(r, NULL, e);
}

/* ---- interruption ---- */

static void interrupted(struct job *j)
{
    struct router *r = j->router;
    if (j->state == JOB_STOPPING) {
        finish(j, JOB_STOPPED, NULL);
        return;
    }
    bool in_batch = j->state == JOB_RUNNING;
    wait_again(j);
    if (j->state == JOB_HELD)
        return;
    j->attempts += in_batch;
    if (!r->rules.resume)
        fail_interrupted(j, "gateway.resume is off");
    else if (j->attempts >= r->rules.resume_attempts)
        fail_interrupted(j, "it was interrupted too often");
    else if (j->held_us - j->created_us > VT_SEC(r->rules.resume_max_age_s))
        fail_interrupted(j, "it is too old");
}

/* Ending one job may end others of the same client: loops that end jobs look for the next one afresh each time. */
static struct job *first_on(struct router *r, const struct vt_link *l)
{
    for (struct job *j = r->first; j; j = j->next)
        if (j->link == l)
            return j;
    return NULL;
}

static struct job *first_of_link_id(struct router *r, uint32_t link)
{
    for (struct job *j = r->first; j; j = j->next)
        if (j->link_id == link && j->state != JOB_HELD)
            return j;
    return NULL;
}

static struct job *first_waiting(struct router *r)
{
    for (struct job *j = r->first; j; j = j->next)
        if (j->state == JOB_HELD || j->state == JOB_PARKED)
            return j;
    return NULL;
}

void router_link_up(struct router *r, struct vt_link *l)
{
    if (r->n_links == ROUTER_MAX_ENGINES) {
        struct vt_err e;
        vt_fail(&e, VT_E_LIMIT, "more than %d engine links", ROUTER_MAX_ENGINES);
        vt_link_fail(l, &e);
        return;
    }
    r->links[r->n_links++] = l;
    router_match_links(r);
    unblock(r);
}

void router_link_down(struct router *r, struct vt_link *l)
{
    for (unsigned i = 0; i < r->n_links; i++) {
        if (r->links[i] == l) {
            r->links[i] = r->links[--r->n_links];
            break;
        }
    }
    unsigned k = 0;
    for (unsigned i = 0; i < r->n_cancels; i++)
        if (r->cancels[i].link != l)
            r->cancels[k++] = r->cancels[i];
    r->n_cancels = k;
    struct engine *e = router_engine_of(r, l);
    if (e)
        e->link = NULL;
    struct job *j;
    while ((j = first_on(r, l)))
        interrupted(j);
    struct api_err why;
    router_unavailable(r, &why);
    router_asks_fail(r, l, &why);
    pump(r);
}

void router_interrupted(struct router *r, const struct vt_frame *f)
{
    uint32_t link = (uint32_t)vt_frame_u64(f, VT_INTERRUPTED_LINK, 0);
    bool resume = vt_frame_u64(f, VT_INTERRUPTED_RESUME, 0) != 0;
    uint64_t ms = vt_frame_u64(f, VT_INTERRUPTED_RETRY_MS, 0);
    for (unsigned i = 0; i < r->n_engines; i++) {
        if (r->engines[i].link_id != link)
            continue;
        r->engines[i].retry_ms = ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
        r->engines[i].retry_from = vt_mono(&r->clock);
    }
    if (resume)
        return;
    struct job *j;
    while ((j = first_of_link_id(r, link)))
        fail_interrupted(j, "the engine's state does not allow it");
}

void router_hold(struct router *r, const struct vt_frame *f)
{
    r->hold = vt_frame_u64(f, VT_HOLD_ON, 0) != 0;
    if (!r->hold)
        unblock(r);
}

/* Whoever waits for something that will not come is told. */
static void fail_hopeless(struct router *r)
{
    for (unsigned i = 0; i < r->n_engines; i++)
        if (engine_comes_back(&r->engines[i]))
            return;
    struct api_err e;
    router_unavailable(r, &e);
    struct job *j;
    while ((j = first_waiting(r))) {
        if (j->state == JOB_HELD)
            fail(j, &e);
        else
            fail_interrupted(j, e.message);
    }
}

void router_routes(struct router *r, const struct vt_frame *f)
{
    const msgpack_object_array *list = vt_frame_array(f, VT_ROUTES_LIST);
    r->n_engines = 0;
    r->routed = true;
    r->stopping = vt_frame_u64(f, VT_ROUTES_STOPPING, 0) != 0;
    for (unsigned i = 0; list && i < list->size && r->n_engines < ROUTER_MAX_ENGINES; i++) {
        const msgpack_object_array *row = vt_array_array(list, i);
        if (row)
            router_parse_route(r, row, &r->engines[r->n_engines++]);
    }
    router_match_links(r);
    fail_hopeless(r);
    unblock(r);
}

/* ---- frames of a link ---- */

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
        finish(j, JOB_STOPPED, NULL);
        return;
    }
    switch (err.code) {
    case VT_E_DRAINING:
    case VT_E_LOADING:
    case VT_E_BOUNCING:
        /* Nothing ran: it waits for the engine's next state, or for the engine to change its mind. */
        wait_until(j, ms ? ms : 1000);
        j->turned_away = true;
        return;
    case VT_E_QUEUE_FULL:
        if (j->told_accepted) { /* it had its place once and does not lose it */
            wait_until(j, ms ? ms : 200);
            return;
        }
        break;
    default: break;
    }
    struct api_err e;
    api_from_err(&e, &err, ms);
    if (err.code == VT_E_WINDOW)
        api_fail_window(&e, "prompt", (int64_t)j->tr.n_prompt, router_window(r));
    fail(j, &e);
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
        send_cancel(r, j->link, j->handle, 3);
        fail(j, &e);
        return;
    }
    r->token_frames++;
    j->received += (uint64_t)got;
    if (j->tr.n == from)
        return;
    j->last_us = vt_mono(&r->clock);
    if (j->first_us == 0)
        j->first_us = j->last_us;
    j->ops->tokens(j->arg, from);
}

/* The engine let go of it and may live on: then it takes it back at once, or says until when it does not. */
static void on_parked(struct router *r, struct job *j)
{
    bool got_on = j->received > 0;
    /* A client that has read since the engine ran dry was credited already, and will not be heard of again. */
    bool slow = j->park_why == VT_PARK_SLOW_CLIENT && j->granted <= j->received && !j->credit_due;
    wait_again(j);
    if (j->state == JOB_PARKED && !r->rules.resume) {
        fail_interrupted(j, "gateway.resume is off");
        return;
    }
    j->client_slow = slow && j->state == JOB_PARKED;
    j->credit_due = false;
    if (!got_on)
        wait_until(j, 250); /* no endless game with an engine that lets go of everything */
    pump(r);
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
        finish(j, JOB_STOPPED, NULL);
        return;
    }
    struct vt_err err = {.code = (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_INTERNAL)};
    vt_frame_str(f, VT_KEY_TEXT, err.text, sizeof err.text);
    struct api_err e;
    switch (reason) {
    case 0:
    case 1: finish(j, JOB_EOS, NULL); return;
    case 2: finish(j, JOB_LENGTH, NULL); return;
    case 5: on_parked(r, j); return;
    case 3: err.code = VT_E_INTERRUPTED_FINAL; break;
    default: break;
    }
    if (err.code == VT_E_INTERRUPTED && r->rules.resume) {
        wait_until(j, 1000);
        return;
    }
    api_from_err(&e, &err, (uint32_t)vt_frame_u64(f, VT_KEY_RETRY_MS, 0));
    if (reason == 3 && !err.text[0])
        snprintf(e.message, sizeof e.message, "the engine ended the request");
    fail(j, &e);
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
    wait_again(j);
    if (e && engine_takes(e))
        submit(j, e);
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

/* ---- time ---- */

static struct job *first_overdue(struct router *r, uint64_t now)
{
    bool ready = router_ready(r) != NULL;
    for (struct job *j = r->first; j; j = j->next) {
        if (j->state == JOB_HELD && now - j->created_us > VT_SEC(r->rules.hold_s) &&
            (!ready || j->turned_away))
            return j;
        /* One that waits for its own client has the time that the connection has. */
        if (j->state == JOB_PARKED && !j->client_slow &&
            now - j->created_us > VT_SEC(r->rules.resume_max_age_s))
            return j;
    }
    return NULL;
}

void router_tick(struct router *r)
{
    uint64_t now = vt_mono(&r->clock);
    unsigned left = 0;
    for (unsigned i = 0; i < r->n_cancels; i++)
        if (job_send_cancel(r->cancels[i].link, r->cancels[i].handle, r->cancels[i].why))
            r->cancels[left++] = r->cancels[i];
    r->n_cancels = left;
    if (r->routed)
        fail_hopeless(r); /* a draining engine may have turned one away since */
    pump(r);
    for (struct job *j = r->first; j; j = j->next)
        if (j->state == JOB_RUNNING && j->credit_due)
            send_credit(j);
    struct job *j;
    while ((j = first_overdue(r, now))) {
        if (j->state == JOB_HELD) {
            struct api_err e;
            router_unavailable(r, &e);
            fail(j, &e);
        } else {
            fail_interrupted(j, "the engine did not come back in time");
        }
    }
    router_asks_tick(r, now);
}
