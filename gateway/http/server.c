#include "server_priv.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOTSENT_LOWAT = 65536, SMALL_BODY = 1 << 20, POOL = 131072 };

/* ---- running the library ---- */

static int run_all(struct http_server *s)
{
    uint64_t soonest = UINT64_MAX;
    guard_look(s);
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

void http_wake(struct http_req *r)
{
    if (!r->suspended)
        return;
    r->suspended = false;
    MHD_resume_connection(r->c);
    sd_event_source_set_enabled(r->s->kick,
                                SD_EVENT_ONESHOT); /* no descriptor of the library's announces it */
}

void http_sleep(struct http_req *r)
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
    const union MHD_ConnectionInfo *ci = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    r->s = s;
    r->c = c;
    r->conn = ci ? ci->socket_context : NULL;
    if (r->conn) {
        r->conn->req = r;
        r->target = r->conn->target;
        r->conn->target = NULL;
        r->conn->begun++;
    }
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
    if (r->conn)
        r->conn->req = NULL;
    for (unsigned i = 0; i < r->n_head; i++) {
        free(r->head[i].name);
        free(r->head[i].value);
    }
    buf_fini(&r->body);
    buf_fini(&r->out);
    free(r->target);
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

void http_arm(struct http_conn *n, uint64_t after_us)
{
    sd_event_source_set_time_relative(n->timer, after_us);
    sd_event_source_set_enabled(n->timer, SD_EVENT_ONESHOT);
}

/* Nobody reads an answer that is still to be made. One that is made is let out. */
static int on_hung(sd_event_source *src, uint64_t usec, void *arg)
{
    struct http_conn *n = arg;
    struct http_req *r = n->req;
    if (n->refused)
        shutdown(n->fd, SHUT_RDWR);
    else if (r && r->claimed && !r->ended) {
        tell_gone(r);
        http_abort(r);
    } else if (!r || !r->resp) {
        shutdown(n->fd, SHUT_RDWR); /* it waits for the rest of a request: make the library see */
    } else {
        http_arm(n, HTTP_GRACE_US);
    }
    return 0;
}

static int on_hangup(sd_event_source *src, int fd, uint32_t ev, void *arg)
{
    struct http_conn *n = arg;
    sd_event_source_set_enabled(src, SD_EVENT_OFF);
    n->hung = true;
    /* What came before the end may be a whole request: it has its chance. */
    return n->req && n->req->claimed ? on_hung(NULL, 0, n) : (http_arm(n, HTTP_GRACE_US), 0);
}

static void conn_free(struct http_conn *n)
{
    if (n->req)
        n->req->conn = NULL;
    sd_event_source_disable_unref(n->io);
    sd_event_source_disable_unref(n->timer);
    framing_fini(&n->framing);
    free(n->target);
    free(n);
}

static struct http_conn *conn_new(struct http_server *s, int fd)
{
    struct http_conn *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->s = s;
    n->fd = fd;
    if (sd_event_add_io(s->ev, &n->io, fd, EPOLLRDHUP, on_hangup, n) < 0 ||
        sd_event_add_time_relative(s->ev, &n->timer, CLOCK_MONOTONIC, 0, 1000, on_hung, n) < 0 ||
        guard_watch(n)) {
        conn_free(n);
        return NULL;
    }
    sd_event_source_set_enabled(n->timer, SD_EVENT_OFF);
    return n;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **cls, enum MHD_RequestTerminationCode toe)
{
    struct http_req *r = *cls;
    if (!r)
        return;
    struct http_conn *n = r->conn;
    *cls = NULL;
    tell_gone(r);
    req_free(r);
    if (n && guard_due(n) && !n->framing.in_body)
        guard_refuse(n);
}

/* The library is about to decode it. */
static void *on_target(void *arg, const char *target, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *ci = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_conn *n = ci ? ci->socket_context : NULL;
    if (n) {
        free(n->target);
        n->target = strdup(target);
    }
    return NULL;
}

static void on_connection(void *arg, struct MHD_Connection *c, void **cls,
                          enum MHD_ConnectionNotificationCode toe)
{
    const union MHD_ConnectionInfo *ci = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (toe == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*cls)
            conn_free(*cls);
        *cls = NULL;
        return;
    }
    if (!ci)
        return;
    *cls = conn_new(arg, ci->connect_fd);
    /* What a client does not read stays with us, where it is counted, instead of in the kernel's send queue. */
    int lowat = NOTSENT_LOWAT;
    setsockopt(ci->connect_fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
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
    if (r->conn && r->conn->framing.in_body && guard_due(r->conn))
        guard_refuse(r->conn);
    /* two lengths: the guard would have said it, if it could */
    if (r->broken || (cl && http_get_header(r, "Transfer-Encoding")))
        return MHD_NO;
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
        http_sleep(r);
        return MHD_YES;
    }
    return r->queued ? MHD_YES : queue(r);
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
                            on_connection, s, MHD_OPTION_URI_LOG_CALLBACK, on_target, s,
                            MHD_OPTION_CONNECTION_TIMEOUT, s->lim.timeout_s, MHD_OPTION_CONNECTION_LIMIT,
                            s->lim.max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL,
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
    if (guard_init(s)) {
        http_free(s);
        return vt_fail(err, VT_E_OS, "http: cannot watch connections: %s", strerror(errno));
    }
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
    guard_fini(s);
    free(s->daemons);
    free(s);
}
