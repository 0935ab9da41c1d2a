#include "pass.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int address(struct sockaddr_un *a, const char *path, struct vt_err *err)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path, sizeof a->sun_path, "%s", path);
    return n > 0 && (size_t)n < sizeof a->sun_path
               ? 0
               : vt_fail(err, VT_E_CONFIG, "%s: a socket's path has at most %zu bytes", path,
                         sizeof a->sun_path - 1);
}

static int packet_socket(struct vt_err *err)
{
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return s >= 0 ? s : vt_fail_errno(err, VT_E_OS, "socket");
}

int vt_pass_listen(const char *path, struct vt_err *err)
{
    struct sockaddr_un a;
    int s = address(&a, path, err) < 0 ? -1 : packet_socket(err);
    if (s < 0)
        return -1;
    unlink(path);
    if (bind(s, (const struct sockaddr *)&a, sizeof a) == 0 && listen(s, 4) == 0)
        return s;
    vt_fail_errno(err, VT_E_OS, "%s", path);
    close(s);
    return -1;
}

int vt_pass_accept(int listener)
{
    struct ucred who;
    socklen_t n = sizeof who;
    int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (s < 0)
        return -1;
    if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && (who.uid == geteuid() || who.uid == 0))
        return s;
    close(s);
    return -1;
}

int vt_pass_dial(const char *path, struct vt_err *err)
{
    struct sockaddr_un a;
    int s = address(&a, path, err) < 0 ? -1 : packet_socket(err);
    if (s < 0)
        return -1;
    if (connect(s, (const struct sockaddr *)&a, sizeof a) == 0)
        return s;
    vt_fail_errno(err, VT_E_UNAVAILABLE, "%s", path);
    close(s);
    return -1;
}

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(VT_PASS_FDS * sizeof(int))];
};

int vt_pass_send(int sock, const uint8_t *buf, size_t len, const int *fds, unsigned n_fds, struct vt_err *err)
{
    union control c;
    struct iovec v = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    if (len == 0 || len > VT_PASS_BYTES || n_fds > VT_PASS_FDS)
        return vt_fail(err, VT_E_TOO_LARGE, "a packet of %zu bytes and %u descriptors", len, n_fds);
    memset(&c, 0, sizeof c);
    if (n_fds > 0) {
        m.msg_control = c.bytes;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(h), fds, n_fds * sizeof(int));
    }
    ssize_t n;
    while ((n = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR) {
    }
    if (n >= 0)
        return 0;
    return vt_fail_errno(err, errno == EAGAIN || errno == ETOOMANYREFS ? VT_E_BUSY : VT_E_UNAVAILABLE,
                         "packet");
}

/* The kernel has opened whatever came, also what is more than expected. */
static unsigned take_fds(struct msghdr *m, int *fds)
{
    unsigned n = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h != NULL; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        unsigned here = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (unsigned i = 0; i < here; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
            if (n < VT_PASS_FDS)
                fds[n++] = fd;
            else
                close(fd);
        }
    }
    return n;
}

int vt_pass_recv(int sock, int wait_ms, uint8_t *buf, size_t *len, int *fds, unsigned *n_fds)
{
    union control c;
    struct iovec v = {.iov_base = buf, .iov_len = VT_PASS_BYTES};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    struct pollfd p = {.fd = sock, .events = POLLIN};
    *len = 0;
    *n_fds = 0;
    int ready = 1;
    while (wait_ms > 0 && (ready = poll(&p, 1, wait_ms)) < 0 && errno == EINTR) {
    }
    if (ready <= 0)
        return 0;
    ssize_t n;
    while ((n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
    }
    if (n < 0)
        return errno == EAGAIN ? 0 : -1;
    *n_fds = take_fds(&m, fds);
    if (n == 0 || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        vt_pass_close(fds, *n_fds);
        *n_fds = 0;
        return -1;
    }
    *len = (size_t)n;
    return 1;
}

void vt_pass_close(int *fds, unsigned n_fds)
{
    for (unsigned i = 0; i < n_fds; i++)
        close(fds[i]);
}
