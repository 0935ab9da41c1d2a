#include "scribe.h"

#include "body.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { INLINE_MAX = 32768 /* bytes of a body: a few milliseconds of work at most */ };

struct sheet {
    struct gateway *gw;
    struct http_req *http; /* NULL: the client has gone */
    const struct surface *surface;
    scribe_start start; /* instead of a surface */
    draft_fn fn;
    char *body;
    size_t n;
    struct draft d;
    struct api_err err;
    bool failed;
    char *reply; /* of d.reply, as text */
    struct sheet *next;
};

struct scribe {
    struct gateway *gw;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct sheet *todo, **todo_end, *done, **done_end; /* under lock */
    bool stop;                                         /* under lock */
    int event;
    sd_event_source *src;
};

static void sheet_free(struct sheet *s)
{
    draft_fini(&s->d);
    free(s->body);
    free(s->reply);
    free(s);
}

/* Any thread. */
static void work(struct sheet *s)
{
    json_t *body = body_parse(s->body, s->n, &s->err);
    free(s->body);
    s->body = NULL;
    s->d.body = body;
    s->failed = !body || s->fn(&s->d, &s->err);
    s->d.body = NULL;
    json_decref(body);
    if (!s->failed && s->d.reply) {
        s->reply = json_dumps(s->d.reply, JSON_COMPACT | JSON_REAL_PRECISION(10));
        json_decref(s->d.reply);
        s->d.reply = NULL;
        if (!s->reply)
            s->failed = api_fail(&s->err, 500, NULL, "out of memory");
    }
}

/* On the loop. */
static void hand_over(struct sheet *s)
{
    if (!s->http) {
        sheet_free(s);
        return;
    }
    if (s->failed) {
        api_error_reply(s->http, &s->err);
    } else if (s->reply) {
        api_reply_text(s->http, s->reply);
        s->reply = NULL;
    } else if (s->start) {
        s->start(s->gw, s->http, &s->d);
    } else {
        answer_start(s->gw, s->http, s->surface, &s->d.p, &s->d.o, s->d.prompts, s->d.n_prompts);
        free(s->d.prompts); /* the rest belongs to the answer now */
        s->d.prompts = NULL;
        s->d.n_prompts = 0;
        s->d.p = (struct params){0};
        s->d.o = (struct answer_opts){0};
    }
    sheet_free(s);
}

static void *run(void *arg)
{
    struct scribe *sc = arg;
    const uint64_t one = 1;
    pthread_mutex_lock(&sc->lock);
    while (!sc->stop) {
        struct sheet *s = sc->todo;
        if (!s) {
            pthread_cond_wait(&sc->more, &sc->lock);
            continue;
        }
        sc->todo = s->next;
        if (!sc->todo)
            sc->todo_end = &sc->todo;
        s->next = NULL;
        pthread_mutex_unlock(&sc->lock);
        work(s);
        pthread_mutex_lock(&sc->lock);
        *sc->done_end = s;
        sc->done_end = &s->next;
        ssize_t n = write(sc->event, &one, sizeof one);
        (void)n; /* full means that it is readable */
    }
    pthread_mutex_unlock(&sc->lock);
    return NULL;
}

static int on_done(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct scribe *sc = arg;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof count);
    (void)n;
    pthread_mutex_lock(&sc->lock);
    struct sheet *s = sc->done;
    sc->done = NULL;
    sc->done_end = &sc->done;
    pthread_mutex_unlock(&sc->lock);
    while (s) {
        struct sheet *next = s->next;
        hand_over(s);
        s = next;
    }
    return 0;
}

int scribe_new(struct scribe **out, struct gateway *gw, struct vt_err *err)
{
    struct scribe *sc = calloc(1, sizeof *sc);
    *out = NULL;
    if (!sc)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    sc->gw = gw;
    sc->todo_end = &sc->todo;
    sc->done_end = &sc->done;
    pthread_mutex_init(&sc->lock, NULL);
    pthread_cond_init(&sc->more, NULL);
    json_object_seed(0); /* before there are two threads to do it */
    sc->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = sc->event < 0 ? -errno : sd_event_add_io(gw->ev, &sc->src, sc->event, EPOLLIN, on_done, sc);
    if (r >= 0)
        r = -pthread_create(&sc->thread, NULL, run, sc);
    if (r < 0) {
        sd_event_source_disable_unref(sc->src);
        if (sc->event >= 0)
            close(sc->event);
        free(sc);
        return vt_fail(err, VT_E_OS, "cannot start a thread: %s", strerror(-r));
    }
    *out = sc;
    return 0;
}

static void free_list(struct sheet *s)
{
    while (s) {
        struct sheet *next = s->next;
        sheet_free(s);
        s = next;
    }
}

void scribe_free(struct scribe *sc)
{
    if (!sc)
        return;
    pthread_mutex_lock(&sc->lock);
    sc->stop = true;
    pthread_cond_signal(&sc->more);
    pthread_mutex_unlock(&sc->lock);
    pthread_join(sc->thread, NULL);
    free_list(sc->todo);
    free_list(sc->done);
    sd_event_source_disable_unref(sc->src);
    close(sc->event);
    pthread_cond_destroy(&sc->more);
    pthread_mutex_destroy(&sc->lock);
    free(sc);
}

static void on_gone(void *arg)
{
    struct sheet *s = arg;
    s->gw->stats.ended[END_CANCELLED]++;
    s->http = NULL; /* read by the loop alone */
}

static void take(struct gateway *gw, struct http_req *r, draft_fn fn, const struct surface *surface,
                 scribe_start start)
{
    struct sheet *s = calloc(1, sizeof *s);
    if (!s) {
        api_reply_json(r, 500, NULL);
        return;
    }
    s->gw = gw;
    s->http = r;
    s->surface = surface;
    s->start = start;
    s->fn = fn;
    s->body = http_take_body(r, &s->n);
    s->d.model = &gw->model;
    s->d.window = router_window(&gw->router);
    s->d.slots = router_n_slots(&gw->router);
    s->d.wall_us = vt_wall(&gw->clock);
    if (s->n <= INLINE_MAX) {
        work(s);
        hand_over(s);
        return;
    }
    const struct http_claim claim = {.gone = on_gone, .arg = s};
    struct scribe *sc = gw->scribe;
    http_claim(r, &claim);
    pthread_mutex_lock(&sc->lock);
    *sc->todo_end = s;
    sc->todo_end = &s->next;
    pthread_cond_signal(&sc->more);
    pthread_mutex_unlock(&sc->lock);
}

void scribe_take(struct gateway *gw, struct http_req *r, draft_fn fn, const struct surface *surface)
{
    take(gw, r, fn, surface, NULL);
}

void scribe_take_for(struct gateway *gw, struct http_req *r, draft_fn fn, scribe_start start)
{
    take(gw, r, fn, NULL, start);
}
