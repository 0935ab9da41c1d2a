#include "sandbox.h"

#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

static int add_rules(scmp_filter_ctx f)
{
    const struct scmp_arg_cmp other_family = {.arg = 0, .op = SCMP_CMP_NE, .datum_a = AF_UNIX, .datum_b = 0};
    int rc = seccomp_rule_add_array(f, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 1, &other_family);
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(execve), 0);
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(execveat), 0);
    return rc != 0 ? rc : seccomp_load(f);
}

int vt_sandbox_enter(struct vt_err *err)
{
    if (setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) < 0)
        return vt_fail_errno(err, VT_E_OS, "core size limit");
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    if (f == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the system call filter");
    int rc = add_rules(f);
    seccomp_release(f);
    return rc == 0 ? 0 : vt_fail(err, VT_E_OS, "system call filter: %s", strerror(-rc));
}
