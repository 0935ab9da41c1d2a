#include "sock_ctl.h"

#include "clock.h"
#include "sock_nng.h"

#include <nng/nng.h>
#include <nng/protocol/pubsub0/pub.h>
#include <nng/protocol/pubsub0/sub.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SUB_QUEUE 128
#define PUB_QUEUE 128

static int make_url(char *url, size_t size, const char *path, struct vt_err *err)
{
    if (strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return vt_fail(err, VT_E_CONFIG,
                       "%s: a socket path has at most %zu bytes; choose a shorter run directory", path,
                       sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    snprintf(url, size, "ipc://%s", path);
    return 0;
}

/* Listening over anything that exists would knock on it, and remove it where nobody answers. */
static int listen_new(nng_socket s, nng_listener *l, const char *path, mode_t mode, struct vt_err *err)
{
    char url[160];
    struct stat st;
    if (make_url(url, sizeof url, path, err) < 0)
        return -1;
    if (lstat(path, &st) == 0)
        return vt_fail(err, VT_E_UNAVAILABLE, "%s exists already", path);
    mode_t old = umask(0777 & ~mode);
    int rv = nng_listen(s, url, l, 0);
    umask(old);
    return rv == 0 ? 0 : vt_nng_fail(err, VT_E_UNAVAILABLE, "listen on", path, rv);
}

static int listen_again(nng_socket s, nng_listener *l, const char *path, mode_t mode, struct vt_err *err)
{
    nng_listener_close(*l);
    if (unlink(path) < 0 && errno != ENOENT)
        return vt_fail_errno(err, VT_E_OS, "%s", path);
    return listen_new(s, l, path, mode, err);
}

static int limits(nng_socket s, int queue)
{
    int rv = nng_socket_set_size(s, NNG_OPT_RECVMAXSZ, VT_CTL_MAX_FRAME);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_RECONNMINT, 50);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_RECONNMAXT, 1000);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_SENDTIMEO, 2000);
    /* Not every protocol has queues of its own. */
    if (rv == 0 && queue > 0)
        nng_socket_set_int(s, NNG_OPT_SENDBUF, queue);
    return rv;
}

/* ---- ctl, server ---- */

enum ctx_state { CTX_RECEIVING, CTX_REQUEST, CTX_HANDLED, CTX_SENDING };

struct rep_ctx {
    struct vt_rep *rep;
    nng_ctx ctx;
    nng_aio *aio;
    nng_msg *msg;      /* the request, while state is REQUEST or HANDLED */
    _Atomic int state; /* handed between the library's threads and the loop */
};

struct vt_rep {
    nng_socket s;
    nng_listener l;
    int fd, n_ctx;
    mode_t mode;
    char path[108];
    struct rep_ctx c[VT_CTL_CONTEXTS];
};

static void wake(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* Runs on a thread of the library. */
static void on_aio(void *arg)
{
    struct rep_ctx *c = arg;
    int rv = nng_aio_result(c->aio);
    if (atomic_load(&c->state) == CTX_SENDING) {
        if (rv != 0)
            nng_msg_free(nng_aio_get_msg(c->aio));
        if (rv == NNG_ECLOSED)
            return;
        atomic_store(&c->state, CTX_RECEIVING);
        nng_ctx_recv(c->ctx, c->aio);
        return;
    }
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED)
        return;
    if (rv != 0) {
        nng_ctx_recv(c->ctx, c->aio);
        return;
    }
    c->msg = nng_aio_get_msg(c->aio);
    atomic_store(&c->state, CTX_REQUEST);
    wake(c->rep->fd);
}

static int open_contexts(struct vt_rep *r)
{
    for (int i = 0; i < VT_CTL_CONTEXTS; i++) {
        struct rep_ctx *c = &r->c[i];
        c->rep = r;
        int rv = nng_ctx_open(&c->ctx, r->s);
        if (rv != 0)
            return rv;
        rv = nng_aio_alloc(&c->aio, on_aio, c);
        if (rv != 0) {
            nng_ctx_close(c->ctx);
            return rv;
        }
        r->n_ctx = i + 1;
    }
    for (int i = 0; i < VT_CTL_CONTEXTS; i++)
        nng_ctx_recv(r->c[i].ctx, r->c[i].aio);
    return 0;
}

int vt_rep_listen(struct vt_rep **out, const char *path, mode_t mode, struct vt_err *err)
{
    struct vt_rep *r = calloc(1, sizeof *r);
    if (r == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    snprintf(r->path, sizeof r->path, "%s", path);
    r->mode = mode;
    r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->fd < 0) {
        free(r);
        return vt_fail_errno(err, VT_E_OS, "eventfd");
    }
    int rv = nng_rep0_open(&r->s);
    if (rv != 0) {
        close(r->fd);
        free(r);
        return vt_nng_fail(err, VT_E_OS, "socket for", path, rv);
    }
    rv = limits(r->s, 0);
    if (rv == 0)
        rv = open_contexts(r);
    if (rv != 0)
        vt_nng_fail(err, VT_E_OS, "socket for", path, rv);
    if (rv != 0 || listen_new(r->s, &r->l, path, mode, err) < 0) {
        r->path[0] = '\0'; /* not ours to unlink */
        vt_rep_close(r);
        return -1;
    }
    *out = r;
    return 0;
}

int vt_rep_fd(const struct vt_rep *r)
{
    return r->fd;
}

int vt_rep_next(struct vt_rep *r, struct vt_rep_call *call)
{
    for (int i = 0; i < r->n_ctx; i++) {
        struct rep_ctx *c = &r->c[i];
        if (atomic_load(&c->state) != CTX_REQUEST)
            continue;
        nng_pipe p = nng_msg_get_pipe(c->msg);
        uint64_t uid = (uint64_t)-1, gid = (uint64_t)-1, pid = 0;
        nng_pipe_get_uint64(p, NNG_OPT_IPC_PEER_UID, &uid);
        nng_pipe_get_uint64(p, NNG_OPT_IPC_PEER_GID, &gid);
        nng_pipe_get_uint64(p, NNG_OPT_IPC_PEER_PID, &pid);
        *call = (struct vt_rep_call){.ctx = (unsigned)i,
                                     .buf = nng_msg_body(c->msg),
                                     .len = nng_msg_len(c->msg),
                                     .uid = (uid_t)uid,
                                     .gid = (gid_t)gid,
                                     .pid = (pid_t)pid};
        atomic_store(&c->state, CTX_HANDLED);
        return 1;
    }
    uint64_t n;
    ssize_t got = read(r->fd, &n, sizeof n); /* emptied last, so that no wake-up between is lost */
    for (int i = 0; got > 0 && i < r->n_ctx; i++) {
        if (atomic_load(&r->c[i].state) == CTX_REQUEST) {
            wake(r->fd);
            break;
        }
    }
    return 0;
}

int vt_rep_reply(struct vt_rep *r, unsigned ctx, const void *buf, size_t len, struct vt_err *err)
{
    struct rep_ctx *c = &r->c[ctx];
    nng_msg *msg = NULL;
    int rv = len <= VT_CTL_MAX_FRAME ? nng_msg_alloc(&msg, 0) : NNG_EMSGSIZE;
    if (rv == 0)
        rv = nng_msg_append(msg, buf, len);
    nng_msg_free(c->msg);
    c->msg = NULL;
    if (rv != 0) {
        nng_msg_free(msg);
        /* Without a reply the asker times out; the context must hear the next one all the same. */
        atomic_store(&c->state, CTX_RECEIVING);
        nng_ctx_recv(c->ctx, c->aio);
        return vt_nng_fail(err, rv == NNG_EMSGSIZE ? VT_E_TOO_LARGE : VT_E_NOMEM, "reply on", r->path, rv);
    }
    nng_aio_set_msg(c->aio, msg);
    atomic_store(&c->state, CTX_SENDING);
    nng_ctx_send(c->ctx, c->aio);
    return 0;
}

int vt_rep_relisten(struct vt_rep *r, struct vt_err *err)
{
    return listen_again(r->s, &r->l, r->path, r->mode, err);
}

void vt_rep_close(struct vt_rep *r)
{
    if (r == NULL)
        return;
    nng_close(r->s);
    for (int i = 0; i < r->n_ctx; i++) {
        nng_aio_stop(r->c[i].aio);
        nng_aio_free(r->c[i].aio);
        if (r->c[i].msg != NULL)
            nng_msg_free(r->c[i].msg);
    }
    close(r->fd);
    if (r->path[0] != '\0')
        unlink(r->path);
    free(r);
}

/* ---- tele, server ---- */

struct vt_pub {
    nng_socket s;
    nng_listener l;
    mode_t mode;
    char path[108];
};

int vt_pub_listen(struct vt_pub **out, const char *path, mode_t mode, struct vt_err *err)
{
    struct vt_pub *p = calloc(1, sizeof *p);
    if (p == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    int rv = nng_pub0_open(&p->s);
    if (rv != 0) {
        free(p);
        return vt_nng_fail(err, VT_E_OS, "socket for", path, rv);
    }
    p->mode = mode;
    rv = limits(p->s, PUB_QUEUE);
    if (rv != 0)
        vt_nng_fail(err, VT_E_OS, "socket for", path, rv);
    if (rv != 0 || listen_new(p->s, &p->l, path, mode, err) < 0) {
        nng_close(p->s);
        free(p);
        return -1;
    }
    snprintf(p->path, sizeof p->path, "%s", path);
    *out = p;
    return 0;
}

int vt_pub_send(struct vt_pub *p, const void *buf, size_t len, struct vt_err *err)
{
    if (len > VT_CTL_MAX_FRAME)
        return vt_fail(err, VT_E_TOO_LARGE, "%s: %zu bytes are more than a frame holds", p->path, len);
    int rv = nng_send(p->s, (void *)(uintptr_t)buf, len, NNG_FLAG_NONBLOCK);
    return rv == 0 ? 0 : vt_nng_fail(err, VT_E_BUSY, "publish on", p->path, rv);
}

int vt_pub_relisten(struct vt_pub *p, struct vt_err *err)
{
    return listen_again(p->s, &p->l, p->path, p->mode, err);
}

void vt_pub_close(struct vt_pub *p)
{
    if (p == NULL)
        return;
    nng_close(p->s);
    unlink(p->path);
    free(p);
}

/* ---- clients ---- */

static int left_ms(const struct vt_clock *clock, uint64_t end)
{
    uint64_t now = vt_mono(clock);
    return now < end ? (int)((end - now) / 1000) + 1 : 1;
}

int vt_req_call(const char *path, const void *buf, size_t len, int timeout_ms, uint8_t **reply,
                size_t *reply_len, struct vt_err *err)
{
    char url[160];
    nng_socket s;
    if (make_url(url, sizeof url, path, err) < 0)
        return -1;
    if (access(path, F_OK) < 0)
        return vt_fail_errno(err, VT_E_UNAVAILABLE, "%s", path);
    struct vt_clock clock = vt_clock_real();
    uint64_t end = vt_mono(&clock) + VT_MS(timeout_ms);
    int rv = nng_req0_open(&s);
    if (rv != 0)
        return vt_nng_fail(err, VT_E_OS, "socket for", path, rv);
    rv = limits(s, 0);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_SENDTIMEO, timeout_ms);
    /* A dial that is waited for waits 10 s for the greeting of a peer that is stopped: the time limit is the send's. */
    if (rv == 0)
        rv = nng_dial(s, url, NULL, NNG_FLAG_NONBLOCK);
    if (rv == 0)
        rv = nng_send(s, (void *)(uintptr_t)buf, len, 0);
    if (rv == 0)
        rv = nng_socket_set_ms(s, NNG_OPT_RECVTIMEO, left_ms(&clock, end));
    if (rv == 0)
        rv = nng_recv(s, reply, reply_len, NNG_FLAG_ALLOC);
    nng_close(s);
    if (rv == 0)
        return 0;
    if (rv == NNG_ETIMEDOUT)
        return vt_fail(err, VT_E_DEADLINE, "%s: no answer within %d ms", path, timeout_ms);
    if (rv == NNG_EPERM)
        return vt_nng_fail(err, VT_E_PERM, "dial", path, rv);
    return vt_nng_fail(err, VT_E_UNAVAILABLE, "dial", path, rv);
}

void vt_req_free(uint8_t *reply, size_t len)
{
    nng_free(reply, len);
}

struct vt_sub {
    nng_socket s;
    char path[108];
};

int vt_sub_dial(struct vt_sub **out, const char *path, const void *topic, size_t topic_len,
                struct vt_err *err)
{
    char url[160];
    if (make_url(url, sizeof url, path, err) < 0)
        return -1;
    struct vt_sub *s = calloc(1, sizeof *s);
    if (s == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    snprintf(s->path, sizeof s->path, "%s", path);
    int rv = nng_sub0_open(&s->s);
    if (rv != 0) {
        free(s);
        return vt_nng_fail(err, VT_E_OS, "socket for", path, rv);
    }
    rv = limits(s->s, 0);
    if (rv == 0)
        rv = nng_socket_set_int(s->s, NNG_OPT_RECVBUF, SUB_QUEUE);
    if (rv == 0)
        rv = nng_socket_set(s->s, NNG_OPT_SUB_SUBSCRIBE, topic, topic_len);
    if (rv == 0)
        rv = nng_dial(s->s, url, NULL, 0);
    if (rv != 0) {
        vt_nng_fail(err, VT_E_UNAVAILABLE, "dial", path, rv);
        vt_sub_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

int vt_sub_recv(struct vt_sub *s, int timeout_ms, uint8_t **buf, size_t *len, struct vt_err *err)
{
    nng_socket_set_ms(s->s, NNG_OPT_RECVTIMEO, timeout_ms);
    int rv = nng_recv(s->s, buf, len, NNG_FLAG_ALLOC);
    if (rv == 0)
        return 1;
    return rv == NNG_ETIMEDOUT ? 0 : vt_nng_fail(err, VT_E_UNAVAILABLE, "receive from", s->path, rv);
}

void vt_sub_close(struct vt_sub *s)
{
    if (s == NULL)
        return;
    nng_close(s->s);
    free(s);
}
