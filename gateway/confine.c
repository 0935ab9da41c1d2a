#include "confine.h"

#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static const int plain[] = {
    SCMP_SYS(accept4),
    SCMP_SYS(alarm),
    SCMP_SYS(bind),
    SCMP_SYS(brk),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(clone),
    SCMP_SYS(clone3),
    SCMP_SYS(close),
    SCMP_SYS(connect),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(fcntl),
    SCMP_SYS(fstat),
    SCMP_SYS(futex),
    SCMP_SYS(getcpu),
    SCMP_SYS(getegid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getpeername),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getrusage),
    SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),
    SCMP_SYS(gettid),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(getuid),
    SCMP_SYS(lseek),
    SCMP_SYS(lstat),
    SCMP_SYS(madvise),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(nanosleep),
    SCMP_SYS(newfstatat),
    SCMP_SYS(openat),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pipe2),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(pread64),
    SCMP_SYS(prlimit64),
    SCMP_SYS(read),
    SCMP_SYS(readv),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recvmsg),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigtimedwait),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sendfile),
    SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(signalfd4),
    SCMP_SYS(socketpair),
    SCMP_SYS(stat),
    SCMP_SYS(statx),
    SCMP_SYS(sysinfo),
    SCMP_SYS(tgkill),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(uname),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(waitid),
    SCMP_SYS(write),
    SCMP_SYS(writev),
};

static struct scmp_arg_cmp arg(unsigned n, enum scmp_compare op, scmp_datum_t a, scmp_datum_t b)
{
    return (struct scmp_arg_cmp){.arg = n, .op = op, .datum_a = a, .datum_b = b};
}

static int allow(scmp_filter_ctx f, int call, struct scmp_arg_cmp when)
{
    return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, call, 1, &when);
}

static int add_rules(void *f)
{
    static const int prctls[] = {PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_SET_NAME, PR_GET_NAME};
    int r = 0;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0] && r == 0; i++)
        r = seccomp_rule_add(f, SCMP_ACT_ALLOW, plain[i], 0);
    for (size_t i = 0; i < sizeof prctls / sizeof prctls[0] && r == 0; i++)
        r = allow(f, SCMP_SYS(prctl), arg(0, SCMP_CMP_EQ, (scmp_datum_t)prctls[i], 0));
    if (r == 0)
        r = allow(f, SCMP_SYS(socket), arg(0, SCMP_CMP_EQ, AF_UNIX, 0));
    if (r == 0)
        r = allow(f, SCMP_SYS(mmap), arg(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (r == 0)
        r = allow(f, SCMP_SYS(mprotect), arg(2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}

/* Rather this process than the engine, rather another service than this. Without the right to say so it stays as it is. */
static void set_oom_score(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = write(fd, "-300", 4);
    (void)n;
    close(fd);
}

int confine_enter(struct vt_err *err)
{
    set_oom_score();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) /* also where no filter is loaded */
        return vt_fail_errno(err, VT_E_OS, "sandbox: no_new_privs");
    if (vt_sandbox_limit(RLIMIT_CORE, 0, err) || vt_sandbox_limit(RLIMIT_FSIZE, 0, err) ||
        vt_sandbox_limit(RLIMIT_MEMLOCK, 0, err) || vt_sandbox_limit(RLIMIT_NOFILE, 65536, err))
        return -1;
    if (SANITIZED) /* a sanitizer needs memory and calls that this would take away */
        return 0;
    return vt_sandbox_limit(RLIMIT_DATA, (rlim_t)1 << 30, err)
               ? -1
               : vt_sandbox_filter(SCMP_ACT_ERRNO(EPERM), add_rules, err);
}
