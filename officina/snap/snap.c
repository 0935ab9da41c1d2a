#include "snap/snap.h"

#include "snap/shadow.h"
#include "tools/change.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define IDLE_US 30000000 /* nothing to do for that long: the repository may be packed */

struct snap {
    struct snap_options o;
    struct shadow shadow; /* the worker's while it runs; its root only read */
    char *session;
    char **cover; /* NULL-terminated */
    size_t n_cover;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct order *queue;
    size_t open; /* ordered and not told yet; of the program's thread */
    int pipe[2];
    uint64_t idle_since;
    bool tidied;
};

/* ---- the worker ---- */

static void *worker(void *arg)
{
    struct snap *s = arg;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->queue)
            pthread_cond_wait(&s->more, &s->lock);
        struct order *o = s->queue;
        s->queue = o->next;
        pthread_mutex_unlock(&s->lock);
        if (o->kind == ORDER_END) {
            free(o);
            return NULL;
        }
        shadow_do(&s->shadow, o);
        while (write(s->pipe[1], &o, sizeof o) < 0 && errno == EINTR)
            ;
    }
}

/* ---- the program's thread ---- */

static void order_free(struct order *o)
{
    for (size_t i = 0; i < o->n; i++) {
        free((char *)o->turns[i].key);
        free((char *)o->turns[i].tree_user);
        free((char *)o->turns[i].tree_before);
        free((char *)o->turns[i].tree_after);
    }
    free(o->turns);
    for (size_t i = 0; o->cover && o->cover[i]; i++)
        free(o->cover[i]);
    free(o->cover);
    free(o->title);
    free(o->session);
    text_free(&o->name);
    text_free(&o->text);
    text_free(&o->touched);
    free(o);
}

static struct order *order(struct snap *s, enum order_kind kind, size_t turn, const struct snap_turn *turns,
                           size_t n)
{
    struct order *o = mem_new(sizeof *o);
    o->kind = kind;
    o->turn = turn;
    o->n = n;
    o->turns = mem_new((n + 1) * sizeof *o->turns);
    for (size_t i = 0; i < n; i++)
        o->turns[i] = (struct snap_turn){mem_dup(turns[i].key), mem_dup(turns[i].tree_user),
                                         mem_dup(turns[i].tree_before), mem_dup(turns[i].tree_after)};
    o->session = mem_dup(s->session);
    o->cover = mem_new((s->n_cover + 1) * sizeof *o->cover);
    for (size_t i = 0; i < s->n_cover; i++)
        o->cover[i] = mem_dup(s->cover[i]);
    return o;
}

static void give(struct snap *s, struct order *o)
{
    s->open++;
    pthread_mutex_lock(&s->lock);
    struct order **p = &s->queue;
    while (*p)
        p = &(*p)->next;
    *p = o;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

struct snap *snap_open(const struct snap_options *o, struct vt_err *err)
{
    struct snap *s = mem_new(sizeof *s);
    s->o = *o;
    s->pipe[0] = s->pipe[1] = -1;
    s->session = mem_dup(o->session ? o->session : "none");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    int rc = shadow_open(&s->shadow, o, err);
    if (rc == 0) {
        struct vt_err broken = {0};
        if (shadow_complete(&s->shadow, s->session, &broken) < 0) {
            struct text t = {0};
            text_printf(&t, "A rewind that was broken off could not be completed: %s", broken.text);
            s->o.sink(s->o.arg,
                      &(struct event){.kind = EV_NOTICE, .n = NOTICE_TROUBLE, .text = text_str(&t)});
            text_free(&t);
        }
    }
    if (rc == 0 && pipe2(s->pipe, O_CLOEXEC) < 0)
        rc = vt_fail_errno(err, VT_E_OS, "a pipe");
    if (rc == 0 && pthread_create(&s->thread, NULL, worker, s) != 0)
        rc = vt_fail(err, VT_E_OS, "no thread can be made for snapshots");
    s->running = rc == 0;
    if (rc == 0)
        return s;
    snap_close(s);
    return NULL;
}

static void drain(struct snap *s, bool tell)
{
    struct order *o;
    struct pollfd p = {s->pipe[0], POLLIN, 0};
    while (s->pipe[0] >= 0 && poll(&p, 1, 0) > 0 && read(s->pipe[0], &o, sizeof o) == sizeof o) {
        s->open--;
        o->e.name = o->name.len ? text_str(&o->name) : NULL;
        o->e.text = o->text.len ? text_str(&o->text) : NULL;
        o->e.len = o->text.len;
        if (tell && (o->kind != ORDER_TIDY || o->text.len))
            s->o.sink(s->o.arg, &o->e);
        else if (o->e.changes)
            change_free(o->e.changes, o->e.n_changes);
        struct event e = {.kind = EV_TOUCHED, .text = text_str(&o->touched), .len = o->touched.len};
        if (tell && o->touched.len)
            s->o.sink(s->o.arg, &e);
        order_free(o);
    }
}

void snap_close(struct snap *s)
{
    if (!s)
        return;
    if (s->running) {
        struct order *end = mem_new(sizeof *end), *waiting;
        end->kind = ORDER_END;
        pthread_mutex_lock(&s->lock);
        waiting = s->queue;
        s->queue = end;
        pthread_cond_signal(&s->more);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        for (struct order *next; waiting; waiting = next) {
            next = waiting->next;
            order_free(waiting);
        }
        drain(s, false);
    }
    for (int i = 0; i < 2; i++)
        if (s->pipe[i] >= 0)
            close(s->pipe[i]);
    for (size_t i = 0; i < s->n_cover; i++)
        free(s->cover[i]);
    free(s->cover);
    shadow_close(&s->shadow);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->more);
    free(s->session);
    free(s);
}

void snap_session(struct snap *s, const char *session)
{
    free(s->session);
    s->session = mem_dup(session ? session : "none");
}

void snap_cover(struct snap *s, const char *path)
{
    char *rel = root_relative(&s->shadow.root, path, NULL);
    char *real = rel ? root_real(&s->shadow.root, rel, NULL) : NULL;
    free(rel);
    for (size_t i = 0; real && i < s->n_cover; i++)
        if (strcmp(s->cover[i], real) == 0) {
            free(real);
            return;
        }
    if (!real)
        return;
    s->cover = mem_grow(s->cover, (s->n_cover + 2) * sizeof *s->cover);
    s->cover[s->n_cover++] = real;
    s->cover[s->n_cover] = NULL;
}

void snap_take(struct snap *s, size_t turn, enum snap_when when)
{
    struct order *o = order(s, ORDER_TAKE, turn, NULL, 0);
    o->when = when;
    give(s, o);
}

void snap_take_late(struct snap *s, size_t turn, const char *key, const char *before, uint64_t died)
{
    const struct snap_turn t = {key, NULL, before, NULL};
    if (!died)
        return;
    struct order *o = order(s, ORDER_TAKE, turn, &t, 1);
    o->when = SNAP_LATE;
    o->died = died;
    give(s, o);
}

void snap_plan(struct snap *s, size_t turn, const struct snap_turn *turns, size_t n)
{
    give(s, order(s, ORDER_PLAN, turn, turns, n));
}

void snap_restore(struct snap *s, size_t turn, const struct snap_turn *turns, size_t n, int64_t number)
{
    struct order *o = order(s, ORDER_RESTORE, turn, turns, n);
    o->number = number;
    give(s, o);
}

void snap_redo(struct snap *s, int64_t number)
{
    struct order *o = order(s, ORDER_REDO, 0, NULL, 0);
    o->number = number;
    give(s, o);
}

void snap_diff(struct snap *s, const char *title, const struct snap_turn *turns, size_t n)
{
    struct order *o = order(s, ORDER_DIFF, 0, turns, n);
    o->title = mem_dup(title);
    give(s, o);
}

void snap_look(struct snap *s)
{
    give(s, order(s, ORDER_LOOK, 0, NULL, 0));
}

size_t snap_poll(struct snap *s, struct pollfd *fds, size_t max)
{
    if (!max)
        return 0;
    fds[0] = (struct pollfd){s->pipe[0], POLLIN, 0};
    return 1;
}

int snap_busy(const struct snap *s)
{
    return s->open != 0;
}

void snap_tidy(struct snap *s)
{
    s->tidied = true;
    give(s, order(s, ORDER_TIDY, 0, NULL, 0));
}

static uint64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int snap_timeout(const struct snap *s)
{
    if (s->tidied || s->open || !s->idle_since)
        return -1;
    uint64_t now = clock_us(), at = s->idle_since + IDLE_US;
    return at <= now ? 0 : (int)((at - now + 999) / 1000);
}

void snap_work(struct snap *s, const struct pollfd *fds, size_t n)
{
    drain(s, true);
    if (s->tidied)
        return;
    uint64_t now = clock_us();
    if (s->open || !s->idle_since)
        s->idle_since = now;
    else if (now - s->idle_since >= IDLE_US)
        snap_tidy(s);
}
