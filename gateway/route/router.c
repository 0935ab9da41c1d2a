#include "router_priv.h"

#include "hash.h"
#include "job_frames.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JUDGE_US      VT_MS(500)
#define BLAME_WAIT_US VT_SEC(10) /* a verdict may be late on a busy machine */

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

void job_finish(struct job *j, enum job_why why, const struct api_err *e)
{
    unlink_job(j);
    j->ended_us = vt_mono(&j->router->clock);
    j->ops->done(j->arg, why, e);
}

void job_fail(struct job *j, const struct api_err *e)
{
    if (j->state == JOB_STOPPING) {
        job_finish(j, JOB_STOPPED, NULL);
        return;
    }
    job_finish(j, JOB_FAILED, e);
}

void job_fail_interrupted(struct job *j, const char *why)
{
    struct api_err e;
    api_fail(&e, 503, NULL, "the request was interrupted by an engine restart and cannot be resumed: %s",
             why);
    e.retry_ms = router_retry_ms(j->router);
    j->router->interrupted_total++;
    job_fail(j, &e);
}

void job_wait(struct job *j)
{
    j->link = NULL;
    j->held_us = vt_mono(&j->router->clock);
    j->state = j->told_accepted || j->tr.n > 0 ? JOB_PARKED : JOB_HELD;
}

void job_wait_until(struct job *j, uint64_t ms)
{
    job_wait(j);
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

void job_submit(struct job *j, struct engine *e)
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
    job_fail(j, &ae);
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

/* Only the link had gone: the engine still runs it. */
static struct engine *still_on(struct router *r, const struct job *j)
{
    struct engine *same = j->engine[0] ? router_engine_named(r, j->engine) : NULL;
    bool runs = j->state == JOB_PARKED && same && engine_takes(same) && same->gen == j->engine_gen &&
                same->link_id != j->link_id;
    return runs ? same : NULL;
}

static struct job *next_to_run(struct router *r, uint64_t now)
{
    struct job *held = NULL;
    const struct job *turn = blame_turn(r);
    for (struct job *j = r->first; j; j = j->next) {
        if (j->client_slow || j->retry_at > now || (j->unjudged && !still_on(r, j)) || (turn && turn != j))
            continue;
        if (j->state == JOB_PARKED)
            return j;
        if (j->state == JOB_HELD && !held)
            held = j;
    }
    return held;
}

/* Gives waiting jobs to engines; those that have run before come first, for their clients have waited longest. */
void router_pump(struct router *r)
{
    uint64_t now = vt_mono(&r->clock);
    const struct engine *e;
    struct job *j;
    while ((e = router_ready(r)) && (j = next_to_run(r, now))) {
        struct engine *same = still_on(r, j);
        if (same) {
            j->unjudged = false;
            j->attempts -= j->attempts > 0;
            attach(j, same);
        } else {
            job_submit(j, router_engine_named(r, e->name));
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
    router_pump(r);
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
    blame_name(j);
    const struct engine *e = router_ready(r);
    if (!e || blame_turn(r)) {
        r->held_total++;
        return;
    }
    /* A job that cannot be sent at all is told so by the next tick, outside of this call. */
    struct vt_err err;
    try_submit(j, router_engine_named(r, e->name), &err);
}

void router_send_cancel(struct router *r, struct vt_link *l, uint64_t handle, uint8_t why)
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
        router_send_cancel(j->router, l, j->handle, 1);
}

void job_stop(struct job *j)
{
    if (j->state == JOB_RUNNING || j->state == JOB_SUBMITTED) {
        j->state = JOB_STOPPING;
        router_send_cancel(j->router, j->link, j->handle, 4);
    } else if (j->state == JOB_PARKED || j->state == JOB_HELD || j->state == JOB_ATTACHING) {
        if (j->link)
            router_send_cancel(j->router, j->link, j->handle, 4);
        job_finish(j, JOB_STOPPED, NULL);
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
        if (j->retry_at == 0 && !blame_turn(j->router) && (e = router_ready(j->router)) &&
            e->link_id == j->link_id)
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
        job_fail(j, e);
    }
    router_asks_fail(r, NULL, e);
}

/* ---- interruption ---- */

static void interrupted(struct job *j)
{
    if (j->state == JOB_STOPPING) {
        job_finish(j, JOB_STOPPED, NULL);
        return;
    }
    bool in_batch = j->state == JOB_RUNNING;
    job_wait(j);
    if (j->state == JOB_HELD)
        return;
    j->attempts += in_batch;
    j->unjudged = true;
}

/* An interrupted job, when it is known what interrupted it. */
static void judge(struct job *j)
{
    const struct router *r = j->router;
    j->unjudged = false;
    if (!r->rules.resume)
        job_fail_interrupted(j, "gateway.resume is off");
    else if (j->attempts >= r->rules.resume_attempts)
        job_fail_interrupted(j, "it was interrupted too often");
    else if (j->held_us - j->created_us > VT_SEC(r->rules.resume_max_age_s))
        job_fail_interrupted(j, "it is too old");
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

/* link 0: of any. Interrupted before that time. */
static struct job *first_unjudged(struct router *r, uint32_t link, uint64_t before)
{
    for (struct job *j = r->first; j; j = j->next)
        if (j->unjudged && (link == 0 || j->link_id == link) && j->held_us < before)
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
    blame_link_down(r, l);
    while ((j = first_on(r, l)))
        interrupted(j);
    struct api_err why;
    router_unavailable(r, &why);
    router_asks_fail(r, l, &why);
    router_pump(r);
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
    /* The process is gone, although its link has not said so yet. */
    for (unsigned i = 0; i < r->n_links; i++)
        if (vt_link_id(r->links[i]) == link) {
            router_link_down(r, r->links[i]);
            break;
        }
    blame_verdict(r, link, (unsigned)vt_frame_u64(f, VT_INTERRUPTED_CLASS, 0));
    struct job *j;
    while ((j = first_unjudged(r, link, UINT64_MAX)))
        judge(j);
    if (resume)
        return;
    while ((j = first_of_link_id(r, link)))
        job_fail_interrupted(j, "the engine's state does not allow it");
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
            job_fail(j, &e);
        else
            job_fail_interrupted(j, e.message);
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
    struct job *j;
    while ((j = first_unjudged(r, 0, now - JUDGE_US))) /* only its link had gone, or nobody says why */
        judge(j);
    blame_forget(r, now > BLAME_WAIT_US ? now - BLAME_WAIT_US : 0);
    if (r->routed)
        fail_hopeless(r); /* a draining engine may have turned one away since */
    router_pump(r);
    for (j = r->first; j; j = j->next)
        if (j->state == JOB_RUNNING && j->credit_due)
            send_credit(j);
    while ((j = first_overdue(r, now))) {
        if (j->state == JOB_HELD) {
            struct api_err e;
            router_unavailable(r, &e);
            job_fail(j, &e);
        } else {
            job_fail_interrupted(j, "the engine did not come back in time");
        }
    }
    router_asks_tick(r, now);
}
