#include "sandbox.h"

#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

int vt_sandbox_limit(int what, uint64_t n, struct vt_err *err)
{
    struct rlimit now;
    if (getrlimit(what, &now) == 0 && now.rlim_max != RLIM_INFINITY && now.rlim_max < n)
        n = now.rlim_max;
    const struct rlimit l = {n, n};
    return setrlimit(what, &l) ? vt_fail_errno(err, VT_E_OS, "sandbox: cannot set a resource limit") : 0;
}

int vt_sandbox_filter(uint32_t otherwise, int (*rules)(void *filter), struct vt_err *err)
{
    scmp_filter_ctx f = seccomp_init(otherwise);
    if (!f)
        return vt_fail(err, VT_E_NOMEM, "sandbox: out of memory");
    int r = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1); /* the log's thread may exist already */
    if (r == 0)
        r = rules(f);
    if (r == 0)
        r = seccomp_load(f);
    seccomp_release(f);
    return r ? vt_fail(err, VT_E_OS, "sandbox: the system call filter does not load: %s", strerror(-r)) : 0;
}

static int few_less(void *filter)
{
    const struct scmp_arg_cmp other_family = {.arg = 0, .op = SCMP_CMP_NE, .datum_a = AF_UNIX, .datum_b = 0};
    int r = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 1, &other_family);
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(execve), 0);
    if (r == 0)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(execveat), 0);
    return r;
}

int vt_sandbox_enter(struct vt_err *err)
{
    return vt_sandbox_limit(RLIMIT_CORE, 0, err) ? -1 : vt_sandbox_filter(SCMP_ACT_ALLOW, few_less, err);
}
