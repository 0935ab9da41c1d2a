#include "sock.h"

#include "sock_nng.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/transport/ipc/ipc.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_MAX_LEN 107 /* what the kernel takes less the NUL */
#define SEND_MS      2000
#define CLOSE_MS     500
#define REDIAL_MIN   50
#define REDIAL_MAX   1000

struct vt_sock {
    nng_socket s;
    /* Made once: the library makes one for every call otherwise, with locks and a random number. Those for receiving and
     * sending are never pending outside of a call, since their time is zero; `wait` is while nothing is there. */
    nng_aio *recv_aio, *send_aio, *wait;
    struct vt_sock_opts o;
    int recv_fd, event_fd;
    char path[PATH_MAX_LEN + 1];
    bool listener;
    bool waits;       /* `wait` was started, and what it brings has not been taken */
    atomic_bool came; /* it has brought something */
    /* Written by the library's threads under its socket lock, read by the owner: hence atomic, and nothing else. */
    atomic_uint events;
    atomic_int up_pipe; /* id of the one pipe that counts; 0: none */
    atomic_ullong peer; /* uid and pid of the newest peer */
};

static void wake(int fd)
{
    static const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) {
        /* Only a full counter fails, and then the descriptor is readable anyway. */
    }
}

static void awake(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR) {
    }
}

static void tell(struct vt_sock *s, unsigned event)
{
    atomic_fetch_or(&s->events, event);
    wake(s->event_fd);
}

static bool peer_ok(struct vt_sock *s, nng_pipe p)
{
    uint64_t uid = UINT32_MAX, pid = 0;
    bool known = nng_pipe_get_uint64(p, NNG_OPT_IPC_PEER_UID, &uid) == 0 &&
                 nng_pipe_get_uint64(p, NNG_OPT_IPC_PEER_PID, &pid) == 0;
    atomic_store(&s->peer, uid << 32 | (uint32_t)pid);
    if (!known)
        return s->o.peer_uid == (uid_t)-1 && s->o.peer_pid == 0;
    return (s->o.peer_uid == (uid_t)-1 || uid == s->o.peer_uid) &&
           (s->o.peer_pid == 0 || pid == (uint64_t)s->o.peer_pid);
}

/* Runs in a thread of the library that holds the socket's lock. A second peer of a PAIR socket shows up before it is
 * turned away and disappears after; only the pipe that came through counts. */
static void on_pipe(nng_pipe p, nng_pipe_ev ev, void *arg)
{
    struct vt_sock *s = arg;
    int id = nng_pipe_id(p), none = 0;
    if (ev == NNG_PIPE_EV_ADD_PRE) {
        if (peer_ok(s, p))
            return;
        nng_pipe_close(p);
        tell(s, VT_SOCK_REFUSED);
    } else if (ev == NNG_PIPE_EV_ADD_POST) {
        if (atomic_compare_exchange_strong(&s->up_pipe, &none, id))
            tell(s, VT_SOCK_UP);
    } else if (atomic_compare_exchange_strong(&s->up_pipe, &id, 0)) {
        tell(s, VT_SOCK_DOWN);
    }
}

static int set_options(struct vt_sock *s)
{
    int rv = nng_socket_set_size(s->s, NNG_OPT_RECVMAXSZ, s->o.max_frame);
    rv |= nng_socket_set_ms(s->s, NNG_OPT_RECVTIMEO, SEND_MS);
    rv |= nng_socket_set_ms(s->s, NNG_OPT_SENDTIMEO, SEND_MS);
    rv |= nng_socket_set_int(s->s, NNG_OPT_RECVBUF, s->o.queue);
    rv |= nng_socket_set_int(s->s, NNG_OPT_SENDBUF, s->o.queue);
    rv |= nng_socket_set_ms(s->s, NNG_OPT_RECONNMINT, REDIAL_MIN);
    rv |= nng_socket_set_ms(s->s, NNG_OPT_RECONNMAXT, REDIAL_MAX);
    rv |= nng_pipe_notify(s->s, NNG_PIPE_EV_ADD_PRE, on_pipe, s);
    rv |= nng_pipe_notify(s->s, NNG_PIPE_EV_ADD_POST, on_pipe, s);
    rv |= nng_pipe_notify(s->s, NNG_PIPE_EV_REM_POST, on_pipe, s);
    return rv;
}

/* Runs in a thread of the library. */
static void on_came(void *arg)
{
    struct vt_sock *s = arg;
    atomic_store(&s->came, true);
    wake(s->recv_fd);
}

static int make_aios(struct vt_sock *s)
{
    int rv = nng_aio_alloc(&s->recv_aio, NULL, NULL);
    if (rv == 0)
        rv = nng_aio_alloc(&s->send_aio, NULL, NULL);
    if (rv == 0)
        rv = nng_aio_alloc(&s->wait, on_came, s);
    if (rv != 0)
        return rv;
    nng_aio_set_timeout(s->wait, NNG_DURATION_INFINITE);
    nng_aio_set_timeout(s->recv_aio, NNG_DURATION_ZERO);
    nng_aio_set_timeout(s->send_aio, NNG_DURATION_ZERO);
    return 0;
}

/* The library starts its threads with the first socket. They must never run a signal handler of the program. */
static int open_pair(nng_socket *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rv = nng_pair0_open(s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rv;
}

static void release(struct vt_sock *s)
{
    if (s->event_fd >= 0)
        close(s->event_fd);
    if (s->recv_fd >= 0)
        close(s->recv_fd);
    free(s);
}

/* Nothing is there: the descriptor is quiet until something is. The library has such a descriptor, too, but loses two of this
 * process's with every socket that was asked for it. */
static void wait_for_more(struct vt_sock *s)
{
    awake(s->recv_fd);
    atomic_store(&s->came, false);
    s->waits = true;
    nng_recv_aio(s->s, s->wait);
}

static int make(struct vt_sock **out, const char *path, const struct vt_sock_opts *o, struct vt_err *err)
{
    *out = NULL;
    if (path[0] != '/' || strlen(path) > PATH_MAX_LEN)
        return vt_fail(err, VT_E_CONFIG, "socket path %s: must be absolute and at most %d bytes long", path,
                       PATH_MAX_LEN);
    struct vt_sock *s = calloc(1, sizeof *s);
    if (s == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the socket %s", path);
    s->o = *o;
    snprintf(s->path, sizeof s->path, "%s", path);
    s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->recv_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->event_fd < 0 || s->recv_fd < 0) {
        vt_fail_errno(err, VT_E_OS, "event descriptors for the socket %s", path);
        release(s);
        return -1;
    }
    int rv = open_pair(&s->s);
    if (rv != 0) {
        release(s);
        return vt_nng_fail(err, VT_E_OS, "open socket", path, rv);
    }
    rv = make_aios(s);
    if (rv != 0) {
        vt_sock_close(s);
        return vt_nng_fail(err, VT_E_NOMEM, "open socket", path, rv);
    }
    if (set_options(s) != 0) {
        vt_sock_close(s);
        return vt_fail(err, VT_E_OS, "socket %s: an option of the library is not what it was", path);
    }
    wait_for_more(s);
    *out = s;
    return 0;
}

int vt_sock_listen(struct vt_sock **out, const char *path, const struct vt_sock_opts *o, struct vt_err *err)
{
    struct stat st;
    char url[PATH_MAX_LEN + 8];
    if (make(out, path, o, err) < 0)
        return -1;
    /* Binding over anything makes the library knock on it, and remove it where nobody answers. */
    if (lstat(path, &st) == 0 || errno != ENOENT) {
        vt_sock_close(*out);
        *out = NULL;
        return vt_fail(err, VT_E_BUSY, "socket %s: something of that name is there already", path);
    }
    snprintf(url, sizeof url, "ipc://%s", path);
    mode_t before = umask(0177);
    int rv = nng_listen((*out)->s, url, NULL, 0);
    umask(before);
    if (rv != 0) {
        vt_sock_close(*out);
        *out = NULL;
        return vt_nng_fail(err, VT_E_UNAVAILABLE, "listen on", path, rv);
    }
    (*out)->listener = true;
    return 0;
}

int vt_sock_dial(struct vt_sock **out, const char *path, const struct vt_sock_opts *o, struct vt_err *err)
{
    char url[PATH_MAX_LEN + 8];
    if (make(out, path, o, err) < 0)
        return -1;
    snprintf(url, sizeof url, "ipc://%s", path);
    int rv = nng_dial((*out)->s, url, NULL, NNG_FLAG_NONBLOCK);
    if (rv != 0) {
        vt_sock_close(*out);
        *out = NULL;
        return vt_nng_fail(err, VT_E_UNAVAILABLE, "dial", path, rv);
    }
    return 0;
}

static void shut(struct vt_sock *s)
{
    nng_close(s->s);
    nng_aio_free(s->recv_aio);
    nng_aio_free(s->send_aio);
    if (s->waits) {
        nng_aio_wait(s->wait);
        if (nng_aio_result(s->wait) == 0)
            nng_msg_free(nng_aio_get_msg(s->wait)); /* came, and was not taken */
    }
    nng_aio_free(s->wait);
    if (s->listener)
        unlink(s->path);
    release(s);
}

static void *shut_aside(void *arg)
{
    shut(arg);
    return NULL;
}

/* NNG 1.5.2 may wait for ever in a close: its one thread that takes connections apart waits for an operation that is lost
 * (with frames unread: 2 of 160 runs), and from then on every close of the process does. The connections themselves are down
 * by then, so what is left behind after CLOSE_MS is a thread and a socket, and not a caller that hangs. */
void vt_sock_close(struct vt_sock *s)
{
    pthread_t thread;
    sigset_t all, before;
    struct timespec until;
    if (s == NULL)
        return;
    /* Taking the callbacks away waits for one that runs, so that none can touch s afterwards. */
    nng_pipe_notify(s->s, NNG_PIPE_EV_ADD_PRE, NULL, NULL);
    nng_pipe_notify(s->s, NNG_PIPE_EV_ADD_POST, NULL, NULL);
    nng_pipe_notify(s->s, NNG_PIPE_EV_REM_POST, NULL, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rv = pthread_create(&thread, NULL, shut_aside, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rv != 0) {
        shut(s);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CLOSE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) != 0)
        pthread_detach(thread);
}

int vt_sock_recv_fd(const struct vt_sock *s)
{
    return s->recv_fd;
}

int vt_sock_event_fd(const struct vt_sock *s)
{
    return s->event_fd;
}

unsigned vt_sock_events(struct vt_sock *s, pid_t *peer_pid, uid_t *peer_uid)
{
    awake(s->event_fd);
    unsigned events = atomic_exchange(&s->events, 0);
    unsigned long long peer = atomic_load(&s->peer);
    if (peer_pid != NULL)
        *peer_pid = (pid_t)(uint32_t)peer;
    if (peer_uid != NULL)
        *peer_uid = (uid_t)(peer >> 32);
    return events;
}

/* 1: *m is a message; 0: nothing there, and the descriptor will tell; -1: the socket is broken. The first of several is what
 * `wait` has brought, the others are taken without going through the library's threads. */
static int next_message(struct vt_sock *s, nng_msg **m)
{
    nng_aio *from = s->recv_aio;
    if (s->waits && !atomic_load(&s->came))
        return 0;
    if (s->waits)
        from = s->wait;
    else
        nng_recv_aio(s->s, from);
    nng_aio_wait(from);
    int rv = nng_aio_result(from);
    if (rv == 0) {
        s->waits = false;
        *m = nng_aio_get_msg(from);
        return 1;
    }
    if (rv != NNG_EAGAIN && rv != NNG_ENOMEM && rv != NNG_ETIMEDOUT)
        return -1;
    wait_for_more(s);
    return 0;
}

int vt_sock_recv(struct vt_sock *s, uint8_t **buf, size_t *len)
{
    nng_msg *m;
    *buf = NULL;
    *len = 0;
    int rc = next_message(s, &m);
    if (rc <= 0)
        return rc;
    /* The frame outlives the message under an address of its own, so that it can be freed by that alone. */
    uint8_t *copy = nng_alloc(nng_msg_len(m) > 0 ? nng_msg_len(m) : 1);
    if (copy != NULL) {
        *len = nng_msg_len(m);
        memcpy(copy, nng_msg_body(m), *len);
        *buf = copy;
    }
    nng_msg_free(m);
    return copy != NULL ? 1 : -1;
}

void vt_sock_msg_free(uint8_t *buf, size_t len)
{
    nng_free(buf, len);
}

int vt_sock_drain(struct vt_sock *s, int max, vt_sock_take take, void *arg)
{
    bool more = true;
    for (int i = 0; i < max && more; i++) {
        uint8_t *buf;
        size_t len;
        int rc = vt_sock_recv(s, &buf, &len);
        if (rc <= 0)
            return rc;
        more = take(arg, buf, len);
        vt_sock_msg_free(buf, len);
    }
    return 0;
}

int vt_sock_send(struct vt_sock *s, const void *buf, size_t len, struct vt_err *err)
{
    nng_msg *m;
    /* The receiver would drop the whole link without a word to us. */
    if (len > s->o.max_frame)
        return vt_fail(err, VT_E_TOO_LARGE, "frame of %zu bytes, the limit of %s is %zu", len, s->path,
                       s->o.max_frame);
    if (nng_msg_alloc(&m, 0) != 0 || nng_msg_append(m, buf, len) != 0)
        return vt_fail(err, VT_E_NOMEM, "no memory for a frame of %zu bytes", len);
    nng_aio_set_msg(s->send_aio, m);
    nng_send_aio(s->s, s->send_aio);
    nng_aio_wait(s->send_aio);
    int rv = nng_aio_result(s->send_aio);
    if (rv == 0)
        return 0;
    nng_msg_free(m);
    if (rv == NNG_EAGAIN || rv == NNG_ETIMEDOUT)
        return vt_fail(err, VT_E_BUSY, "the queue of %s is full", s->path);
    return vt_nng_fail(err, VT_E_IO, "send to", s->path, rv);
}

int vt_sock_check_library(struct vt_err *err)
{
    int major = 0, minor = 0, patch = 0;
    sscanf(nng_version(), "%d.%d.%d", &major, &minor, &patch);
    if (major != 1 || minor < 5 || (minor == 5 && patch < 2))
        return vt_fail(err, VT_E_CONFIG, "libnng is version %s; 1.5.2 or a later 1.x is needed",
                       nng_version());
    return 0;
}
