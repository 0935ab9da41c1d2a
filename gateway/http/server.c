#include "server.h"

#include "clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OUT_KEEP = 16384, NOTSENT_LOWAT = 65536, SMALL_BODY = 1 << 20 };

enum req_state { R_HEAD, R_BODY, R_HANDED, R_REPLY, R_STREAM };

struct http_req {
    struct http_server *s;
    struct MHD_Connection *c;
    const char *method, *path;
    enum req_state state;
    struct buf body;
    size_t discarded;
    bool too_large, early, queued, suspended, ended, broken, oom;
    int tag;
    unsigned status;
    struct MHD_Response *resp;
    struct buf out;
    size_t out_at;
    uint64_t last_write;
    struct http_claim claim;
    bool claimed;
    sd_event_source *watch;
    struct {
        char *name, *value;
    } head[8];
    unsigned n_head;
    struct http_req *prev, *next;
};

struct http_daemon {
    struct http_server *s;
    struct MHD_Daemon *d;
    sd_event_source *io;
    bool quiet;
};

struct http_server {
    sd_event *ev;
    struct http_daemon *daemons;
    int n_daemons;
    sd_event_source *kick, *timer;
    struct http_limits lim;
    const struct http_ops *ops;
    void *arg;
    struct vt_log *log;
    struct vt_clock clock;
    struct http_req *reqs;
};

/* ---- running the library ---- */

static int run_all(struct http_server *s)
{
    uint64_t soonest = UINT64_MAX;
    for (int i = 0; i < s->n_daemons; i++) {
        MHD_UNSIGNED_LONG_LONG ms;
        MHD_run(s->daemons[i].d);
        if (MHD_get_timeout(s->daemons[i].d, &ms) == MHD_YES && ms < soonest)
            soonest = ms;
    }
    if (soonest == 0) /* work is left that no descriptor will announce */
        return sd_event_source_set_enabled(s->kick, SD_EVENT_ONESHOT);
    if (soonest == UINT64_MAX)
        return sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
    sd_event_source_set_time_relative(s->timer, soonest * 1000);
    return sd_event_source_set_enabled(s->timer, SD_EVENT_ONESHOT);
}

static int on_io(sd_event_source *src, int fd, uint32_t ev, void *arg)
{
    return run_all(((struct http_daemon *)arg)->s);
}

static int on_kick(sd_event_source *src, void *arg)
{
    return run_all(arg);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    return run_all(arg);
}

static void wake(struct http_req *r)
{
    if (!r->suspended)
        return;
    r->suspended = false;
    MHD_resume_connection(r->c);
    sd_event_source_set_enabled(r->s->kick, SD_EVENT_ONESHOT);
}

static void sleep_req(struct http_req *r)
{
    if (r->suspended)
        return;
    r->suspended = true;
    MHD_suspend_connection(r->c);
}

/* ---- the life of a request ---- */

static struct http_req *req_new(struct http_server *s, struct MHD_Connection *c, const char *method,
                                const char *path)
{
    struct http_req *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->s = s;
    r->c = c;
    r->method = method;
    r->path = path;
    r->next = s->reqs;
    if (s->reqs)
        s->reqs->prev = r;
    s->reqs = r;
    return r;
}

static void req_free(struct http_req *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        r->s->reqs = r->next;
    if (r->next)
        r->next->prev = r->prev;
    if (r->resp)
        MHD_destroy_response(r->resp);
    sd_event_source_disable_unref(r->watch);
    for (unsigned i = 0; i < r->n_head; i++) {
        free(r->head[i].name);
        free(r->head[i].value);
    }
    buf_fini(&r->body);
    buf_fini(&r->out);
    free(r);
}

static void tell_gone(struct http_req *r)
{
    if (!r->claimed)
        return;
    r->claimed = false;
    if (r->claim.gone)
        r->claim.gone(r->claim.arg);
}

/* The peer has closed its side, or the connection is reset: nobody reads an answer any more. */
static int on_hangup(sd_event_source *src, int fd, uint32_t ev, void *arg)
{
    struct http_req *r = arg;
    sd_event_source_set_enabled(src, SD_EVENT_OFF);
    if (r->ended && !(ev & (EPOLLHUP | EPOLLERR)))
        return 0; /* all is written; let it drain */
    tell_gone(r);
    http_abort(r);
    return 0;
}

static void watch(struct http_req *r)
{
    const union MHD_ConnectionInfo *ci = MHD_get_connection_info(r->c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (r->watch || !ci)
        return;
    sd_event_add_io(r->s->ev, &r->watch, ci->connect_fd, EPOLLRDHUP, on_hangup, r);
}

static void on_completed(void *arg, struct MHD_Connection *c, void **cls, enum MHD_RequestTerminationCode toe)
{
    struct http_req *r = *cls;
    if (!r)
        return;
    *cls = NULL;
    tell_gone(r);
    req_free(r);
}

static void on_connection(void *arg, struct MHD_Connection *c, void **cls,
                          enum MHD_ConnectionNotificationCode toe)
{
    const union MHD_ConnectionInfo *ci = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (toe != MHD_CONNECTION_NOTIFY_STARTED || !ci)
        return;
    /* What a client does not read stays with us, where it is counted, instead of in the kernel's send queue. */
    int lowat = NOTSENT_LOWAT;
    setsockopt(ci->connect_fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
}

static void apply_headers(struct http_req *r)
{
    for (unsigned i = 0; i < r->n_head; i++)
        MHD_add_response_header(r->resp, r->head[i].name, r->head[i].value);
}

static enum MHD_Result queue(struct http_req *r)
{
    r->queued = true;
    return MHD_queue_response(r->c, r->status, r->resp);
}

static enum MHD_Result at_head(struct http_req *r)
{
    const char *cl = http_get_header(r, "Content-Length");
    unsigned long long len = cl ? strtoull(cl, NULL, 10) : 0;
    bool asks = http_get_header(r, "Expect") != NULL;
    r->state = R_BODY;
    if (len > r->s->lim.max_body)
        r->too_large = true;
    else
        r->s->ops->on_head(r->s->arg, r);
    if (!r->resp && !r->too_large)
        return MHD_YES;
    /* The answer is known, but a client that still sends would be reset before it reads it: take the body first, unless the
     * client waits for leave to send, or the body is out of all proportion. */
    if (asks || len > 4 * (unsigned long long)r->s->lim.max_body ||
        (r->resp && len > SMALL_BODY && !r->too_large)) {
        if (!r->resp)
            r->s->ops->on_request(r->s->arg, r);
        return r->resp ? queue(r) : MHD_NO;
    }
    return MHD_YES;
}

static enum MHD_Result take_body(struct http_req *r, const char *data, size_t *n)
{
    if (r->resp || r->too_large || r->body.n + *n > r->s->lim.max_body || r->body.failed) {
        if (!r->resp)
            r->too_large = true;
        buf_fini(&r->body);
        r->discarded += *n;
        if (r->discarded > 4 * r->s->lim.max_body)
            return MHD_NO;
    } else {
        buf_add(&r->body, data, *n);
    }
    *n = 0;
    return MHD_YES;
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *c, const char *url, const char *method,
                                 const char *version, const char *data, size_t *n, void **cls)
{
    struct http_server *s = arg;
    struct http_req *r = *cls;
    if (!r) {
        r = req_new(s, c, method, url);
        if (!r)
            return MHD_NO;
        *cls = r;
        return at_head(r);
    }
    if (*n > 0)
        return take_body(r, data, n);
    if (r->broken)
        return MHD_NO;
    if (r->state == R_BODY && !r->resp) {
        r->state = R_HANDED;
        s->ops->on_request(s->arg, r);
        if (r->broken)
            return MHD_NO;
    }
    if (!r->resp) {
        sleep_req(r);
        return MHD_YES;
    }
    return r->queued ? MHD_YES : queue(r);
}

static ssize_t on_read(void *arg, uint64_t pos, char *buf, size_t max)
{
    struct http_req *r = arg;
    if (r->broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t have = r->out.n - r->out_at;
    if (have == 0) {
        if (r->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        sleep_req(r);
        return 0;
    }
    size_t n = have < max ? have : max;
    memcpy(buf, r->out.p + r->out_at, n);
    r->out_at += n;
    if (r->out_at == r->out.n) {
        r->out_at = 0;
        buf_clear(&r->out);
        buf_trim(&r->out, OUT_KEEP);
        if (r->claimed && r->claim.drained)
            r->claim.drained(r->claim.arg);
    }
    return (ssize_t)n;
}

/* ---- answering ---- */

void http_set_header(struct http_req *r, const char *name, const char *value)
{
    if (r->n_head == sizeof r->head / sizeof r->head[0])
        return;
    char *n = strdup(name), *v = strdup(value);
    if (!n || !v) {
        free(n);
        free(v);
        return;
    }
    r->head[r->n_head].name = n;
    r->head[r->n_head++].value = v;
}

static void answer(struct http_req *r, unsigned status, const char *type, enum req_state state)
{
    if (type)
        MHD_add_response_header(r->resp, "Content-Type", type);
    apply_headers(r);
    r->status = status;
    r->state = state;
    r->s->ops->on_status(r->s->arg, r, status);
    http_free_body(r);
    wake(r);
}

void http_reply(struct http_req *r, unsigned status, const char *type, char *body, size_t len)
{
    if (r->resp || r->broken) {
        free(body);
        return;
    }
    r->claimed = false;
    r->resp =
        MHD_create_response_from_buffer(len, body, body ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!r->resp) {
        free(body);
        http_abort(r);
        return;
    }
    answer(r, status, type, R_REPLY);
}

void http_stream(struct http_req *r, const char *type)
{
    if (r->resp || r->broken)
        return;
    r->resp = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, OUT_KEEP, on_read, r, NULL);
    if (!r->resp) {
        http_abort(r);
        return;
    }
    http_set_header(r, "Cache-Control", "no-cache");
    http_set_header(r, "X-Accel-Buffering", "no");
    r->last_write = vt_mono(&r->s->clock);
    answer(r, MHD_HTTP_OK, type, R_STREAM);
}

void http_write(struct http_req *r, const void *p, size_t n)
{
    if (r->state != R_STREAM || r->ended || r->broken || n == 0)
        return;
    buf_add(&r->out, p, n);
    if (r->out.failed) {
        http_abort(r);
        return;
    }
    r->last_write = vt_mono(&r->s->clock);
    wake(r);
}

void http_end(struct http_req *r)
{
    r->claimed = false;
    r->ended = true;
    wake(r);
}

void http_abort(struct http_req *r)
{
    r->broken = true; /* whoever claimed it is told when the connection is closed */
    wake(r);
}

void http_claim(struct http_req *r, const struct http_claim *c)
{
    r->claim = *c;
    r->claimed = true;
    watch(r);
}

bool http_answered(const struct http_req *r)
{
    return r->resp != NULL || r->broken;
}

bool http_streaming(const struct http_req *r)
{
    return r->state == R_STREAM;
}

size_t http_pending(const struct http_req *r)
{
    return r->out.n - r->out_at;
}

uint64_t http_last_write(const struct http_req *r)
{
    return r->last_write;
}

/* ---- reading ---- */

const char *http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_path(const struct http_req *r)
{
    return r->path;
}

const char *http_get_header(const struct http_req *r, const char *name)
{
    return MHD_lookup_connection_value(r->c, MHD_HEADER_KIND, name);
}

const char *http_query(const struct http_req *r, const char *name)
{
    const char *v = NULL;
    size_t n = 0;
    if (MHD_lookup_connection_value_n(r->c, MHD_GET_ARGUMENT_KIND, name, strlen(name), &v, &n) != MHD_YES)
        return NULL;
    return v ? v : "";
}

const char *http_body(const struct http_req *r, size_t *len)
{
    if (r->too_large) {
        *len = SIZE_MAX;
        return NULL;
    }
    *len = r->body.n;
    return r->body.p;
}

void http_free_body(struct http_req *r)
{
    buf_fini(&r->body);
}

void http_set_tag(struct http_req *r, int tag)
{
    r->tag = tag;
}

int http_tag(const struct http_req *r)
{
    return r->tag;
}

/* ---- the server ---- */

static void on_log(void *arg, const char *fmt, va_list ap)
{
    struct http_server *s = arg;
    char line[256];
    vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    vt_log(s->log, VT_LOG_DEBUG, "http: %s", line);
}

static int start(struct http_server *s, struct http_daemon *d, int fd, struct vt_err *err)
{
    d->s = s;
    d->d = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                            on_access, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, s, MHD_OPTION_LISTEN_SOCKET, fd,
                            MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
                            on_connection, s, MHD_OPTION_CONNECTION_TIMEOUT, s->lim.timeout_s,
                            MHD_OPTION_CONNECTION_LIMIT, s->lim.max_connections,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32768,
                            MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (!d->d)
        return vt_fail(err, VT_E_OS, "http: cannot serve on descriptor %d: %s", fd, strerror(errno));
    const union MHD_DaemonInfo *di = MHD_get_daemon_info(d->d, MHD_DAEMON_INFO_EPOLL_FD);
    int r = di ? sd_event_add_io(s->ev, &d->io, di->epoll_fd, EPOLLIN, on_io, d) : -EINVAL;
    if (r < 0)
        return vt_fail(err, VT_E_OS, "http: cannot watch the server: %s", strerror(-r));
    return 0;
}

int http_new(struct http_server **out, sd_event *ev, const int *fds, int n_fds, const struct http_limits *lim,
             const struct http_ops *ops, void *arg, struct vt_log *log, struct vt_err *err)
{
    *out = NULL;
    struct http_server *s = calloc(1, sizeof *s);
    if (s)
        s->daemons = calloc((size_t)n_fds, sizeof *s->daemons);
    if (!s || !s->daemons) {
        free(s);
        return vt_fail(err, VT_E_NOMEM, "http: out of memory");
    }
    s->ev = ev;
    s->lim = *lim;
    s->ops = ops;
    s->arg = arg;
    s->log = log;
    s->clock = vt_clock_real();
    int r = sd_event_add_defer(ev, &s->kick, on_kick, s);
    if (r >= 0)
        r = sd_event_add_time_relative(ev, &s->timer, CLOCK_MONOTONIC, 0, 0, on_timer, s);
    if (r < 0) {
        http_free(s);
        return vt_fail(err, VT_E_OS, "http: cannot make event sources: %s", strerror(-r));
    }
    sd_event_source_set_enabled(s->timer, SD_EVENT_OFF);
    for (; s->n_daemons < n_fds; s->n_daemons++) {
        if (start(s, &s->daemons[s->n_daemons], fds[s->n_daemons], err)) {
            if (s->daemons[s->n_daemons].d)
                s->n_daemons++;
            http_free(s);
            return -1;
        }
    }
    *out = s;
    return 0;
}

void http_quiesce(struct http_server *s)
{
    for (int i = 0; i < s->n_daemons; i++) {
        if (s->daemons[i].quiet)
            continue;
        s->daemons[i].quiet = true;
        int fd = MHD_quiesce_daemon(s->daemons[i].d);
        if (fd >= 0)
            close(fd);
    }
}

unsigned http_open_requests(const struct http_server *s)
{
    unsigned n = 0;
    for (const struct http_req *r = s->reqs; r; r = r->next)
        n++;
    return n;
}

void http_each(struct http_server *s, void (*fn)(void *arg, struct http_req *r), void *arg)
{
    for (struct http_req *r = s->reqs, *next; r; r = next) {
        next = r->next;
        fn(arg, r);
    }
}

static void drop(void *arg, struct http_req *r)
{
    http_abort(r);
}

void http_free(struct http_server *s)
{
    if (!s)
        return;
    http_each(s, drop, NULL);
    http_quiesce(s);
    for (int i = 0; i < s->n_daemons; i++) {
        sd_event_source_disable_unref(s->daemons[i].io);
        if (s->daemons[i].d) {
            MHD_run(s->daemons[i].d); /* resumed connections must be back before the end */
            MHD_stop_daemon(s->daemons[i].d);
        }
    }
    sd_event_source_disable_unref(s->kick);
    sd_event_source_disable_unref(s->timer);
    free(s->daemons);
    free(s);
}
