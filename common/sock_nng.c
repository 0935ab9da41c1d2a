#include "sock_nng.h"

#include <nng/nng.h>

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GREETING 8 /* 0 S P 0, protocol, 0 0: always one whole write */

int vt_nng_fail(struct vt_err *err, int code, const char *what, const char *path, int rv)
{
    return vt_fail(err, code, "%s %s: %s", what, path, nng_strerror(rv));
}

static bool is_greeting(const struct msghdr *m)
{
    return m->msg_iovlen == 1 && m->msg_iov[0].iov_len == GREETING &&
           memcmp(m->msg_iov[0].iov_base, "\0SP\0", 4) == 0;
}

/* In this file, so that a program that has a socket has this, too. */
__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
    ssize_t n = syscall(SYS_sendmsg, fd, m, flags);
    if (n < 0 && errno == EPIPE && is_greeting(m))
        errno = ECONNRESET;
    return n;
}
