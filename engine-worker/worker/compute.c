#include "compute_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Beyond this the I/O thread has stopped reading: everything is parked, and tokens of the moment are given up (the I/O
 * thread sees the gap and ends the request at what it has). */
#define OUTBOX_MAX 65536
#define STATUS_US  20000
#define MAX_TOP    128

/* ---- outbox ---- */

struct vt_err *compute_copy_err(const struct vt_err *err)
{
    struct vt_err *e = err != NULL ? malloc(sizeof *e) : NULL;
    if (e != NULL)
        *e = *err;
    return e;
}

void compute_push(struct compute *c, const struct event *ev)
{
    struct outbox *o = &c->out;
    pthread_mutex_lock(&c->lock);
    bool full = o->n >= OUTBOX_MAX && ev->type == EV_TOKEN;
    if (!full && o->n == o->cap) {
        size_t cap = o->cap > 0 ? o->cap * 2 : 256;
        struct event *p = realloc(o->ev, cap * sizeof *p);
        if (p != NULL) {
            o->ev = p;
            o->cap = cap;
        }
    }
    if (full || o->n == o->cap) {
        c->choked = true;
        pthread_mutex_unlock(&c->lock);
        free(ev->err);
        free(ev->top);
        free(ev->vec);
        return;
    }
    o->ev[o->n++] = *ev;
    pthread_mutex_unlock(&c->lock);
    c->signal = true;
}

static void poke(struct compute *c)
{
    static const uint64_t one = 1;
    c->signal = false;
    while (write(c->fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* ---- events of the core ---- */

static void on_accepted(void *arg, uint64_t handle, uint32_t slot, uint32_t reused, uint32_t queue_pos,
                        uint64_t seed)
{
    compute_push(
        arg,
        &(struct event){
            .type = EV_ACCEPTED, .handle = handle, .slot = slot, .n = reused, .a = queue_pos, .pos = seed});
}

static void on_refused(void *arg, uint64_t handle, const struct vt_err *why, uint32_t retry_ms)
{
    compute_push(arg, &(struct event){
                          .type = EV_REFUSED, .handle = handle, .n = retry_ms, .err = compute_copy_err(why)});
}

static void on_prefill(void *arg, uint64_t handle, uint32_t done, uint32_t total, uint32_t reused)
{
    struct compute *c = arg;
    c->prompt_done |= done >= total;
    compute_push(c,
                 &(struct event){.type = EV_PREFILL, .handle = handle, .n = done, .a = total, .b = reused});
}

static void on_token(void *arg, uint64_t handle, const struct eng_token *t)
{
    struct event ev = {.type = EV_TOKEN,
                       .handle = handle,
                       .pos = t->pos,
                       .n = t->id,
                       .logprob = t->logprob,
                       .state = t->state};
    if (t->top != NULL && t->n_top > 0) {
        ev.n_top = (uint8_t)(t->n_top < MAX_TOP ? t->n_top : MAX_TOP);
        ev.top = malloc(ev.n_top * sizeof *t->top);
        if (ev.top != NULL)
            memcpy(ev.top, t->top, ev.n_top * sizeof *t->top);
        else
            ev.n_top = 0;
    }
    compute_push(arg, &ev);
}

static void on_vectors(void *arg, uint64_t handle, uint32_t first, uint32_t n, uint32_t dim, const float *v)
{
    size_t bytes = (size_t)n * dim * sizeof *v;
    struct event ev = {
        .type = EV_VECTORS, .handle = handle, .n = n, .a = first, .b = dim, .vec = malloc(bytes)};
    if (ev.vec != NULL)
        memcpy(ev.vec, v, bytes);
    compute_push(arg, &ev);
}

static void on_done(void *arg, uint64_t handle, enum eng_done why, uint64_t emitted,
                    const struct eng_usage *usage, const struct vt_err *err)
{
    struct compute *c = arg;
    struct event ev = {.type = EV_DONE, .handle = handle, .kind = (uint8_t)why, .pos = emitted};
    if (usage != NULL)
        ev.usage = *usage;
    if (why == ENG_ERROR) {
        ev.err = compute_copy_err(err);
        int code = err != NULL ? err->code : VT_E_INTERNAL;
        c->not_finite |= code == VT_E_NOT_FINITE;
        if (code == VT_E_DEVICE_LOST || code == VT_E_DEVICE_MEM) {
            /* The process ends, and its requests go on in the next one: none of them is told an end here. */
            if (c->broken == NULL)
                c->broken = ev.err;
            else
                free(ev.err);
            return;
        }
    }
    compute_push(c, &ev);
}

static void on_dirty(void *arg, uint32_t slot, bool turn_end)
{
    struct compute *c = arg;
    if (c->n_dirty < MAX_DIRTY) {
        c->dirty[c->n_dirty].slot = slot;
        c->dirty[c->n_dirty++].turn_end = turn_end;
    }
}

static const struct eng_events events = {.accepted = on_accepted,
                                         .refused = on_refused,
                                         .prefill = on_prefill,
                                         .token = on_token,
                                         .vectors = on_vectors,
                                         .done = on_done,
                                         .dirty = on_dirty};

static void on_progress(void *arg, unsigned phase, uint64_t done, uint64_t total)
{
    struct compute *c = arg;
    pthread_mutex_lock(&c->lock);
    c->phase = phase;
    c->done = done;
    c->total = total;
    c->progress_new = true;
    pthread_mutex_unlock(&c->lock);
    atomic_fetch_add(&c->load_step, 1);
    atomic_store(&c->load_stamp, vt_mono(c->o.clock));
    poke(c);
}

/* The core says that a slot changed; whether a prompt has just been evaluated is known from the same step's prefill. */
static void tell_dirty(struct compute *c)
{
    for (unsigned i = 0; i < c->n_dirty; i++) {
        uint8_t kind = c->dirty[i].turn_end ? DIRTY_TURN : c->prompt_done ? DIRTY_PROMPT : DIRTY_PAGE;
        compute_push(c, &(struct event){.type = EV_DIRTY, .slot = c->dirty[i].slot, .kind = kind});
    }
    c->n_dirty = 0;
    c->prompt_done = false;
}

/* ---- the loop ---- */

static bool run_inbox(struct compute *c)
{
    pthread_mutex_lock(&c->lock);
    struct cmd *m = c->inbox;
    c->inbox = NULL;
    c->inbox_tail = &c->inbox;
    pthread_mutex_unlock(&c->lock);
    bool any = m != NULL;
    while (m != NULL) {
        struct cmd *next = m->next;
        compute_run_cmd(c, m);
        compute_cmd_free(m);
        m = next;
    }
    return any;
}

static void publish_status(struct compute *c, bool idle)
{
    struct eng *e = atomic_load(&c->eng);
    struct compute_status s = {.idle = idle};
    c->o.ops->counters(e, &s.counters);
    s.n_slots = c->o.ops->slots(e, s.slot, 256);
    pthread_mutex_lock(&c->lock);
    c->status = s;
    pthread_mutex_unlock(&c->lock);
    c->status_at = vt_mono(c->o.clock);
}

/* Numbers that are not finite may be one sequence's doing or the device's: one token through the reserved sequence tells. */
static void after_faults(struct compute *c)
{
    struct vt_err err;
    if (c->not_finite) {
        c->not_finite = false;
        if (c->o.ops->canary(atomic_load(&c->eng), &err) < 0 && c->broken == NULL) {
            err.code = VT_E_INTERNAL;
            c->broken = compute_copy_err(&err);
        }
    }
    if (c->broken != NULL) {
        compute_push(c, &(struct event){.type = EV_BROKEN, .err = c->broken});
        c->broken = NULL;
    }
    pthread_mutex_lock(&c->lock);
    bool choked = c->choked;
    c->choked = false;
    pthread_mutex_unlock(&c->lock);
    if (choked)
        c->o.ops->park_all(atomic_load(&c->eng));
}

/* Waits for a command, or until the canary of an idle engine is due. */
static void wait_for_work(struct compute *c)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t idle = vt_mono(c->o.clock) - c->busy_at;
    uint64_t left = c->o.canary_us > idle ? c->o.canary_us - idle : 1000;
    until.tv_sec += (time_t)(left / 1000000);
    until.tv_nsec += (long)(left % 1000000) * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&c->lock);
    while (c->inbox == NULL && !c->quit) {
        int rc = c->o.canary_us > 0 ? pthread_cond_timedwait(&c->wake, &c->lock, &until)
                                    : pthread_cond_wait(&c->wake, &c->lock);
        if (rc == ETIMEDOUT)
            break;
    }
    pthread_mutex_unlock(&c->lock);
}

static void idle_canary(struct compute *c)
{
    struct vt_err err;
    if (c->o.canary_us == 0 || vt_mono(c->o.clock) - c->busy_at < c->o.canary_us)
        return;
    if (c->o.ops->canary(atomic_load(&c->eng), &err) < 0 && c->broken == NULL)
        c->broken = compute_copy_err(&err);
    c->busy_at = vt_mono(c->o.clock);
}

static bool must_quit(struct compute *c)
{
    pthread_mutex_lock(&c->lock);
    bool q = c->quit;
    pthread_mutex_unlock(&c->lock);
    return q;
}

static void serve(struct compute *c)
{
    bool was_busy = true;
    c->busy_at = vt_mono(c->o.clock);
    while (!must_quit(c)) {
        bool cmds = run_inbox(c);
        bool busy = c->o.ops->step(atomic_load(&c->eng));
        tell_dirty(c);
        if (busy)
            c->busy_at = vt_mono(c->o.clock);
        else
            idle_canary(c);
        after_faults(c);
        if (cmds || busy != was_busy || vt_mono(c->o.clock) - c->status_at > STATUS_US)
            publish_status(c, !busy);
        was_busy = busy;
        if (c->signal)
            poke(c);
        if (!busy)
            wait_for_work(c);
    }
}

static void *run(void *arg)
{
    struct compute *c = arg;
    struct vt_err err;
    struct eng *e = NULL;
    atomic_store(&c->load_stamp, vt_mono(c->o.clock));
    if (c->o.ops->load(&e, &c->o.cfg, &events, c, &err) < 0) {
        compute_push(c, &(struct event){.type = EV_FAILED, .err = compute_copy_err(&err)});
        poke(c);
    } else {
        atomic_store(&c->eng, e);
        publish_status(c, true);
        compute_push(c, &(struct event){.type = EV_LOADED});
        poke(c);
        serve(c);
    }
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_cond_broadcast(&c->wake);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the other side ---- */

int compute_start(struct compute **out, const struct compute_opts *o, struct vt_err *err)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    struct compute *c = calloc(1, sizeof *c);
    pthread_condattr_t attr;
    sigset_t all, before;
    *out = NULL;
    if (c == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the compute thread");
    c->o = *o;
    c->o.cfg.progress = on_progress;
    c->o.cfg.progress_arg = c;
    c->inbox_tail = &c->inbox;
    c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &attr);
    pthread_condattr_destroy(&attr);
    /* Signals belong to the event loop of the main thread, except those that a thread brings on itself. */
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = c->fd < 0 ? EMFILE : pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        if (c->fd >= 0)
            close(c->fd);
        free(c);
        return vt_fail(err, VT_E_OS, "compute thread: %s", strerror(rc));
    }
    *out = c;
    return 0;
}

/* What nobody has taken: an export or an import that has begun holds pages. */
static void drop_events(struct compute *c)
{
    struct eng *e = atomic_load(&c->eng);
    for (size_t i = 0; i < c->out.n; i++) {
        struct event *ev = &c->out.ev[i];
        if (ev->type == EV_EXPORT && ev->ptr != NULL)
            c->o.ops->export_free(e, ev->ptr);
        if (ev->type == EV_IMPORT_BEGUN && ev->ptr != NULL)
            c->o.ops->import_free(e, ev->ptr);
        free(ev->err);
        free(ev->top);
        free(ev->vec);
    }
    c->out.n = 0;
}

bool compute_stop(struct compute *c, unsigned ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&c->lock);
    c->quit = true;
    pthread_cond_broadcast(&c->wake);
    while (!c->ended && pthread_cond_timedwait(&c->wake, &c->lock, &until) == 0) {
    }
    bool ended = c->ended;
    pthread_mutex_unlock(&c->lock);
    if (!ended)
        return false;
    pthread_join(c->thread, NULL);
    run_inbox(c); /* what was left refers to imports and exports that must go */
    drop_events(c);
    free(c->out.ev);
    free(c->taken.ev); /* what its events owned was taken over */
    if (atomic_load(&c->eng) != NULL)
        c->o.ops->free(atomic_load(&c->eng));
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->wake);
    close(c->fd);
    free(c);
    return true;
}

int compute_fd(const struct compute *c)
{
    return c->fd;
}

struct event *compute_take(struct compute *c, size_t *n)
{
    uint64_t count;
    while (read(c->fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
    c->taken.n = 0; /* their pointers were taken over by the caller */
    pthread_mutex_lock(&c->lock);
    struct outbox o = c->out;
    c->out = c->taken;
    c->taken = o;
    pthread_mutex_unlock(&c->lock);
    *n = c->taken.n;
    return c->taken.ev;
}

bool compute_progress(struct compute *c, unsigned *phase, uint64_t *done, uint64_t *total)
{
    pthread_mutex_lock(&c->lock);
    bool news = c->progress_new;
    c->progress_new = false;
    *phase = c->phase;
    *done = c->done;
    *total = c->total;
    pthread_mutex_unlock(&c->lock);
    return news;
}

struct cmd *compute_cmd(enum cmd_type type)
{
    struct cmd *m = calloc(1, sizeof *m);
    if (m != NULL)
        m->type = type;
    return m;
}

void compute_cmd_free(struct cmd *m)
{
    if (m == NULL)
        return;
    free(m->blob);
    free(m);
}

void compute_put(struct compute *c, struct cmd *m)
{
    pthread_mutex_lock(&c->lock);
    *c->inbox_tail = m;
    c->inbox_tail = &m->next;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

void compute_pulse(struct compute *c, struct eng_pulse *out)
{
    struct eng *e = atomic_load(&c->eng);
    if (e == NULL) {
        *out = (struct eng_pulse){
            .step = atomic_load(&c->load_step), .stamp_us = atomic_load(&c->load_stamp), .op = ENG_OP_LOAD};
        return;
    }
    c->o.ops->pulse(e, out);
    out->step += atomic_load(&c->load_step); /* never goes back when the load ends */
}

void compute_status(struct compute *c, struct compute_status *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->status;
    pthread_mutex_unlock(&c->lock);
}

const struct eng_facts *compute_facts(const struct compute *c)
{
    return c->o.ops->facts(atomic_load(&c->eng));
}

uint64_t compute_device_free(const struct compute *c)
{
    return c->o.ops->device_free != NULL ? c->o.ops->device_free(atomic_load(&c->eng)) : 0;
}

int compute_export_read(struct compute *c, struct eng_export *x, int kind, uint32_t index, uint64_t off,
                        void *dst, size_t len)
{
    return c->o.ops->export_read(atomic_load(&c->eng), x, kind, index, off, dst, len);
}

void compute_pin(struct compute *c, void *p, size_t bytes)
{
    if (c->o.ops->pin != NULL)
        c->o.ops->pin(atomic_load(&c->eng), p, bytes);
}

void compute_unpin(struct compute *c, void *p)
{
    if (c->o.ops->unpin != NULL)
        c->o.ops->unpin(atomic_load(&c->eng), p);
}
