#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum in_kind { IN_UP, IN_DOWN, IN_FRAME, IN_STOP };

struct in {
    struct in *next;
    enum in_kind kind;
    uint32_t link;
    void *base;
    uint8_t *frame;
    size_t len;
};

struct mapping { /* a ring that the worker owns */
    struct mapping *next;
    uint32_t link;
    void *base;
    size_t bytes;
};

struct worker {
    struct serve_opts o;
    pthread_t thread;
    int fd;

    pthread_mutex_t lock; /* guards the four below and facts */
    pthread_cond_t wake;
    struct in *in, **in_tail;
    struct worker_out *out, **out_tail;
    struct store_facts facts;
    size_t waiting;

    _Atomic uint64_t steps, step_us, op, op_since_us, queued;
    _Atomic bool hurry; /* something waits: long checks give way */
    struct store_io io;

    /* the thread's own */
    struct serve *serve;
    struct mapping *maps;
    bool stop, ended;
    uint64_t facts_us;
};

/* ---- queues ---- */

static void wake_main(struct worker *w)
{
    uint64_t one = 1;
    while (write(w->fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void tell(struct worker *w, enum worker_news what, uint32_t link, const uint8_t *frame, size_t len,
                 const struct vt_err *err)
{
    struct worker_out *o = calloc(1, sizeof *o);
    uint8_t *copy = frame != NULL ? malloc(len) : NULL;
    if (o == NULL || (frame != NULL && copy == NULL))
        abort(); /* an answer that is lost would leave an engine waiting for ever */
    if (frame != NULL)
        memcpy(copy, frame, len);
    *o = (struct worker_out){.what = what, .link = link, .frame = copy, .len = len};
    if (err != NULL)
        o->err = *err;
    pthread_mutex_lock(&w->lock);
    *w->out_tail = o;
    w->out_tail = &o->next;
    pthread_mutex_unlock(&w->lock);
    wake_main(w);
}

static void on_event(void *arg, enum store_event ev, const char *text)
{
    struct vt_err said = {.code = (int)ev};
    snprintf(said.text, sizeof said.text, "%s", text);
    tell(arg, WORKER_EVENT, 0, NULL, 0, &said);
}

struct worker_out *worker_take(struct worker *w)
{
    uint64_t n;
    pthread_mutex_lock(&w->lock);
    struct worker_out *o = w->out;
    if (o != NULL) {
        w->out = o->next;
        if (w->out == NULL)
            w->out_tail = &w->out;
    } else {
        /* Drained under the lock: a wake-up after this belongs to news that is not in yet. */
        ssize_t rc = read(w->fd, &n, sizeof n);
        (void)rc;
    }
    pthread_mutex_unlock(&w->lock);
    return o;
}

void worker_out_free(struct worker_out *o)
{
    free(o->frame);
    free(o);
}

static void put(struct worker *w, struct in what)
{
    struct in *i = malloc(sizeof *i);
    if (i == NULL)
        abort();
    *i = what;
    i->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->in_tail = i;
    w->in_tail = &i->next;
    w->waiting++;
    atomic_store(&w->hurry, true);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void worker_link_up(struct worker *w, uint32_t link, void *base, size_t bytes)
{
    put(w, (struct in){.kind = IN_UP, .link = link, .base = base, .len = bytes});
}

void worker_link_down(struct worker *w, uint32_t link)
{
    put(w, (struct in){.kind = IN_DOWN, .link = link});
}

void worker_frame(struct worker *w, uint8_t *frame, size_t len)
{
    put(w, (struct in){.kind = IN_FRAME, .frame = frame, .len = len});
}

void worker_stop(struct worker *w)
{
    put(w, (struct in){.kind = IN_STOP});
}

/* ---- the thread ---- */

static void on_send(void *arg, uint32_t link, const uint8_t *frame, size_t len)
{
    tell(arg, WORKER_FRAME, link, frame, len, NULL);
}

static void on_fail(void *arg, uint32_t link, const struct vt_err *why)
{
    tell(arg, WORKER_FAIL, link, NULL, 0, why);
}

static void unmap(struct worker *w, uint32_t link)
{
    for (struct mapping **at = &w->maps; *at != NULL; at = &(*at)->next) {
        struct mapping *m = *at;
        if (m->link != link)
            continue;
        *at = m->next;
        munmap(m->base, m->bytes);
        free(m);
        return;
    }
}

static void take_up(struct worker *w, const struct in *i)
{
    if (i->base != NULL) {
        struct mapping *m = malloc(sizeof *m);
        if (m == NULL)
            abort();
        *m = (struct mapping){.next = w->maps, .link = i->link, .base = i->base, .bytes = i->len};
        w->maps = m;
    }
    serve_link_up(w->serve, i->link, i->base, i->len);
}

static void take_one(struct worker *w, struct in *i)
{
    switch (i->kind) {
    case IN_UP: take_up(w, i); break;
    case IN_DOWN:
        serve_link_down(w->serve, i->link);
        unmap(w, i->link);
        break;
    case IN_FRAME: serve_frame(w->serve, i->frame, i->len); break;
    case IN_STOP: w->stop = true; break;
    }
    free(i->frame);
    free(i);
}

static void take_all(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    struct in *list = w->in;
    w->in = NULL;
    w->in_tail = &w->in;
    w->waiting = 0;
    atomic_store(&w->hurry, false);
    pthread_mutex_unlock(&w->lock);
    while (list != NULL) {
        struct in *i = list;
        list = list->next;
        take_one(w, i);
    }
}

static void publish(struct worker *w, uint64_t now, bool now_at_once)
{
    struct store_facts f;
    unsigned op = serve_op(w->serve);
    atomic_store(&w->queued, serve_queued(w->serve));
    if (op != atomic_load(&w->op)) {
        atomic_store(&w->op_since_us, now);
        atomic_store(&w->op, op);
    }
    if (!now_at_once && now - w->facts_us < VT_SEC(1))
        return;
    w->facts_us = now;
    store_facts(serve_store(w->serve), &f);
    pthread_mutex_lock(&w->lock);
    w->facts = f;
    pthread_mutex_unlock(&w->lock);
}

static void wait_for_work(struct worker *w, uint64_t us)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    us = us < VT_SEC(1) ? us : VT_SEC(1); /* facts are a second old at most */
    t.tv_sec += (time_t)(us / 1000000);
    t.tv_nsec += (long)(us % 1000000) * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    pthread_mutex_lock(&w->lock);
    while (w->in == NULL && pthread_cond_timedwait(&w->wake, &w->lock, &t) == 0)
        ;
    pthread_mutex_unlock(&w->lock);
}

static void turn(struct worker *w)
{
    struct vt_err err;
    take_all(w);
    enum serve_did did = serve_step(w->serve, &err);
    if (did == SERVE_NOTHING && w->stop) {
        w->ended = true;
        return;
    }
    if (did == SERVE_NOTHING)
        did = serve_upkeep(w->serve, &err);
    uint64_t now = vt_mono(w->o.store.clock);
    if (did == SERVE_BROKEN) {
        tell(w, WORKER_BROKEN, 0, NULL, 0, &err);
        w->ended = true;
        return;
    }
    publish(w, now, false);
    if (did == SERVE_WORK) {
        atomic_fetch_add(&w->steps, 1);
        atomic_store(&w->step_us, now);
    } else {
        wait_for_work(w, serve_wait_us(w->serve));
    }
}

static void *run(void *arg)
{
    static const struct serve_ops ops = {on_send, on_fail};
    struct worker *w = arg;
    struct vt_err err;
    if (serve_new(&w->serve, &w->o, &ops, w, &err) < 0) {
        tell(w, WORKER_BROKEN, 0, NULL, 0, &err);
        return NULL;
    }
    publish(w, vt_mono(w->o.store.clock), true);
    tell(w, WORKER_OPENED, 0, NULL, 0, NULL);
    while (!w->ended)
        turn(w);
    serve_free(w->serve, w->stop);
    while (w->maps != NULL)
        unmap(w, w->maps->link);
    if (w->stop)
        tell(w, WORKER_STOPPED, 0, NULL, 0, NULL);
    return NULL;
}

/* ---- life ---- */

int worker_start(struct worker **out, const struct serve_opts *o, struct vt_err *err)
{
    pthread_condattr_t attr;
    *out = NULL;
    struct worker *w = calloc(1, sizeof *w);
    if (w == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the database thread");
    w->o = *o;
    w->o.store.io = &w->io;
    w->o.store.interrupt = &w->hurry;
    w->o.store.event = on_event;
    w->o.store.event_arg = w;
    w->in_tail = &w->in;
    w->out_tail = &w->out;
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (w->fd < 0 || pthread_create(&w->thread, NULL, run, w) != 0) {
        vt_fail(err, VT_E_OS, "the database thread could not be started");
        if (w->fd >= 0)
            close(w->fd);
        free(w);
        return -1;
    }
    *out = w;
    return 0;
}

int worker_fd(const struct worker *w)
{
    return w->fd;
}

void worker_pulse(struct worker *w, struct worker_pulse *out)
{
    *out = (struct worker_pulse){.steps = atomic_load(&w->steps),
                                 .step_us = atomic_load(&w->step_us),
                                 .op = atomic_load(&w->op),
                                 .op_since_us = atomic_load(&w->op_since_us)};
    pthread_mutex_lock(&w->lock);
    out->queued = w->waiting;
    pthread_mutex_unlock(&w->lock);
    out->queued += atomic_load(&w->queued);
    out->sync_since_us = atomic_load_explicit(&w->io.sync_since_us, memory_order_relaxed);
}

void worker_facts(struct worker *w, struct store_facts *out)
{
    pthread_mutex_lock(&w->lock);
    *out = w->facts;
    pthread_mutex_unlock(&w->lock);
}

const struct store_io *worker_io(const struct worker *w)
{
    return &w->io;
}
