#include "spawn.h"

#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXEC_MS 5000

/* Steps between fork and exec, for the message when one fails. */
enum step { STEP_PARENT = 1, STEP_USER, STEP_DEATH_SIGNAL, STEP_DESCRIPTORS, STEP_EXEC };

static const char *const step_names[] = {
    "?", "the supervisor ended meanwhile", "change of user", "parent-death signal", "descriptors", "exec"};

struct failure {
    int step, error;
};

int spawn_open(const char *path, struct vt_err *err)
{
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "%s", path);
    if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0) {
        vt_fail_errno(err, VT_E_PERM, "%s cannot be executed", path);
        close(fd);
        return -1;
    }
    return fd;
}

static void die(int report, enum step step)
{
    struct failure f = {step, errno};
    ssize_t n = write(report, &f, sizeof f);
    (void)n; /* nobody is left to tell */
    _exit(127);
}

static void default_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int s = 1; s < _NSIG; s++)
        sigaction(s, &dfl, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Moves a descriptor above the range that is about to be filled. */
static int lift(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 4 + SPAWN_EXTRA_MAX + 4);
}

static int place(int from, int to)
{
    return dup2(from, to) == to ? 0 : -1; /* dup2 clears close-on-exec, for from was lifted and so differs */
}

static void run_child(const struct spawn_req *r, int report, pid_t parent)
{
    /* Refused, it stays where it is: its group holds it, and the end of its leaf is told by nobody. */
    if (r->leaf_fd > 0 && write(r->leaf_fd, "0", 1) != 1)
        errno = 0;
    setpgid(0, 0);
    default_signals();
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    /* The kernel's own calls: the library's would wait for the parent's threads, which do not exist here. */
    if (r->change_user &&
        (syscall(SYS_setgroups, 1, &r->gid) < 0 || syscall(SYS_setresgid, r->gid, r->gid, r->gid) < 0 ||
         syscall(SYS_setresuid, r->uid, r->uid, r->uid) < 0))
        die(report, STEP_USER);
    /* After the change of user, which would clear it. */
    if (prctl(PR_SET_PDEATHSIG, r->death_signal) < 0)
        die(report, STEP_DEATH_SIGNAL);
    errno = 0;
    if (getppid() != parent)
        die(report, STEP_PARENT);
    int extra[SPAWN_EXTRA_MAX];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int rep = lift(report), exe = lift(r->exe_fd), lg = lift(r->log_fd), nonce = lift(r->nonce_fd),
        nul = lift(null);
    bool ok = null >= 0 && rep >= 0 && exe >= 0 && lg >= 0 && nonce >= 0 && nul >= 0;
    for (int i = 0; i < r->n_extra; i++) {
        extra[i] = lift(r->extra[i]);
        ok = ok && extra[i] >= 0;
    }
    ok = ok && place(nul, 0) == 0 && place(lg, 1) == 0 && place(lg, 2) == 0 && place(nonce, 3) == 0;
    for (int i = 0; i < r->n_extra && ok; i++)
        ok = place(extra[i], 4 + i) == 0;
    if (!ok)
        die(rep >= 0 ? rep : report, STEP_DESCRIPTORS);
    /* Whatever vitriold or a library opened without close-on-exec stays here. */
    syscall(SYS_close_range, (unsigned)(4 + r->n_extra), ~0u, 4u /* CLOSE_RANGE_CLOEXEC */);
    syscall(SYS_execveat, exe, "", r->argv, r->envp, 0x1000 /* AT_EMPTY_PATH */);
    die(rep, STEP_EXEC);
}

/* clone3 gives the pidfd without a race; where a filter forbids it, fork does, since we alone reap our children. */
static pid_t fork_pidfd(int *pidfd)
{
    struct clone_args a = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)pidfd, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &a, sizeof a);
    if (pid >= 0 || (errno != ENOSYS && errno != EPERM))
        return (pid_t)pid;
    pid_t p = fork();
    if (p > 0)
        *pidfd = (int)syscall(SYS_pidfd_open, p, 0);
    return p;
}

/* The report pipe is closed by a successful exec (0), or carries what failed; -1: neither in time. */
static ssize_t wait_exec(int fd, struct failure *f)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int rc;
    while ((rc = poll(&p, 1, EXEC_MS)) < 0 && errno == EINTR) {
    }
    return rc > 0 ? read(fd, f, sizeof *f) : -1;
}

int spawn(const struct spawn_req *r, pid_t *pid, int *pidfd, struct vt_err *err)
{
    int report[2];
    pid_t self = getpid();
    if (pipe2(report, O_CLOEXEC) < 0)
        return vt_fail_errno(err, VT_E_OS, "pipe");
    sigset_t all, old;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old); /* no handler of ours may run in the child */
    *pidfd = -1;
    pid_t p = fork_pidfd(pidfd);
    if (p == 0) {
        run_child(r, report[1], self);
        _exit(127);
    }
    int saved = errno;
    sigprocmask(SIG_SETMASK, &old, NULL);
    close(report[1]);
    if (p < 0) {
        close(report[0]);
        errno = saved;
        return vt_fail_errno(err, VT_E_OS, "fork");
    }
    struct failure f;
    ssize_t n = wait_exec(report[0], &f);
    close(report[0]);
    if (n == 0 && *pidfd >= 0) {
        *pid = p;
        return 0;
    }
    kill(p, SIGKILL);
    while (waitpid(p, NULL, 0) < 0 && errno == EINTR) {
    }
    if (*pidfd >= 0)
        close(*pidfd);
    *pidfd = -1;
    if (n != (ssize_t)sizeof f || f.step < STEP_PARENT || f.step > STEP_EXEC)
        return vt_fail(err, VT_E_OS, "%s: the new process did not start in time, or cannot be watched",
                       r->argv[0]);
    errno = f.error;
    if (f.error == 0)
        return vt_fail(err, VT_E_OS, "%s: %s", r->argv[0], step_names[f.step]);
    return vt_fail_errno(err, f.error == EACCES || f.error == EPERM ? VT_E_PERM : VT_E_OS, "%s: %s",
                         r->argv[0], step_names[f.step]);
}

/* ---- environment ---- */

static const char *const allowed[] = {
    "HOME",         "LANG",         "LC_ALL",        "PATH", "TMPDIR", "TZ",
#if defined(__SANITIZE_ADDRESS__)
    "ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS",
#endif
};

static int add(struct spawn_env *e, const char *name, const char *value)
{
    if (asprintf(&e->envp[e->n], "%s=%s", name, value) < 0) {
        e->envp[e->n] = NULL;
        return -1;
    }
    e->n++;
    return 0;
}

int spawn_env_make(struct spawn_env *e, char **from, const char *instance, const char *run_dir,
                   const char *child, uint32_t gen)
{
    size_t n_allowed = sizeof allowed / sizeof allowed[0];
    char number[16];
    snprintf(number, sizeof number, "%u", gen);
    e->n = 0;
    e->envp = calloc(n_allowed + 8, sizeof *e->envp);
    if (e->envp == NULL)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < n_allowed; i++) {
        size_t len = strlen(allowed[i]);
        for (char **p = from; p != NULL && *p != NULL; p++) {
            if (strncmp(*p, allowed[i], len) == 0 && (*p)[len] == '=') {
                rc |= add(e, allowed[i], *p + len + 1);
                break;
            }
        }
    }
    rc |= add(e, "VITRIOL_CHILD", child);
    rc |= add(e, "VITRIOL_GEN", number);
    rc |= add(e, "VITRIOL_INSTANCE", instance);
    rc |= add(e, "VITRIOL_RUN_DIR", run_dir);
    if (rc < 0)
        spawn_env_free(e);
    return rc;
}

void spawn_env_free(struct spawn_env *e)
{
    for (unsigned i = 0; i < e->n; i++)
        free(e->envp[i]);
    free(e->envp);
    *e = (struct spawn_env){0};
}

void spawn_env_hash(const struct spawn_env *e, char out[5])
{
    uint8_t digest[VT_SHA256_LEN];
    char hex[2 * VT_SHA256_LEN + 1];
    struct vt_sha256 *h = vt_sha256_new();
    if (h == NULL) {
        memcpy(out, "????", 5);
        return;
    }
    for (unsigned i = 0; i < e->n; i++) {
        /* Templates print local time. No locale is set, and nothing is looked up in PATH or HOME by a child. */
        if (strncmp(e->envp[i], "TZ=", 3) == 0)
            vt_sha256_add(h, e->envp[i], strlen(e->envp[i]) + 1);
    }
    vt_sha256_end(h, digest);
    vt_sha256_free(h);
    vt_hex(digest, sizeof digest, hex);
    memcpy(out, hex, 4);
    out[4] = '\0';
}
