#include "tools/proc.h"

#include "tools/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { DRAIN_US = 200000, GRACE_US = 1000000 };

uint64_t proc_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- the nurse: everything here is async-signal-safe, for it follows a fork of a process with threads ---- */

static size_t put_number(char *to, unsigned n)
{
    char digits[12];
    size_t k = 0, len = 0;
    do
        digits[k++] = (char)('0' + n % 10);
    while (n /= 10);
    while (k)
        to[len++] = digits[--k];
    to[len] = 0;
    return len;
}

static ssize_t read_proc(pid_t pid, const char *tail, char *buf, size_t size)
{
    char path[96] = "/proc/";
    size_t n = 6 + put_number(path + 6, (unsigned)pid);
    if (strcmp(tail, "children") == 0) {
        memcpy(path + n, "/task/", 6);
        n += 6;
        n += put_number(path + n, (unsigned)pid);
        memcpy(path + n, "/children", 10);
    } else {
        memcpy(path + n, "/comm", 6);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t k = fd < 0 ? -1 : read(fd, buf, size - 1);
    if (fd >= 0)
        close(fd);
    buf[k > 0 ? k : 0] = 0;
    return k;
}

/* Sends sig to everything below pid; returns how many there were. bwrap is passed over by SIGTERM, since it
 * would take its children down without a word. */
static int signal_below(pid_t pid, int sig, int depth, int *programs)
{
    char list[4096], comm[32];
    int n = 0;
    if (depth > 32 || read_proc(pid, "children", list, sizeof list) <= 0)
        return 0;
    for (char *p = list; *p;) {
        pid_t child = 0;
        while (*p >= '0' && *p <= '9')
            child = child * 10 + (*p++ - '0');
        p += *p == ' ';
        if (child <= 1)
            break;
        bool wrapper = read_proc(child, "comm", comm, sizeof comm) > 0 && strncmp(comm, "bwrap\n", 6) == 0;
        n += 1 + signal_below(child, sig, depth + 1, programs);
        *programs += !wrapper; /* bwrap's own first process may outlive it by a moment */
        wrapper = wrapper && sig == SIGTERM;
        if (sig && !wrapper)
            kill(child, sig);
    }
    return n;
}

static int sweep(void)
{
    int left = 0;
    for (int round = 0; round < 100; round++) {
        int programs = 0, n = signal_below(getpid(), SIGKILL, 0, &programs);
        left = programs > left ? programs : left;
        pid_t pid;
        while ((pid = waitpid(-1, NULL, n ? 0 : WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return left;
    }
    return left;
}

static void limits(unsigned seconds)
{
    struct rlimit none = {0, 0},
                  cpu = {seconds ? seconds * 16 : RLIM_INFINITY, seconds ? seconds * 16 : RLIM_INFINITY};
    struct rlimit files = {4096, 4096}, size = {(rlim_t)8 << 30, (rlim_t)8 << 30}, data;
    data.rlim_cur = data.rlim_max = (rlim_t)sysconf(_SC_PHYS_PAGES) * (rlim_t)sysconf(_SC_PAGESIZE) / 4 * 3;
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_NOFILE, &files);
    setrlimit(RLIMIT_FSIZE, &size);
    setrlimit(RLIMIT_DATA, &data);
}

static void run_program(const struct proc_spec *s, char **argv, char **env, int ruleset)
{
    sigset_t none;
    sigemptyset(&none);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (!s->way.user)
        limits(s->seconds);
    if (box_enter(s->box, &s->way, ruleset) < 0)
        _exit(126);
    execvpe(argv[0], argv, env);
    _exit(127);
}

/* Closes what is not the program's: every descriptor from 3 but the filter's and the nurse's own. */
static void close_others(int keep1, int keep2, int keep3)
{
    for (int fd = 3; fd < 4096; fd++)
        if (fd != keep1 && fd != keep2 && fd != keep3)
            close(fd);
}

/* The filter as a file with an offset of its own: other sandboxes read it at the same time. */
static void own_offset(int filter)
{
    char path[64] = "/proc/self/fd/";
    if (filter < 0)
        return;
    put_number(path + 14, (unsigned)filter);
    int fd = open(path, O_RDONLY);
    if (fd >= 0 && fd != filter) {
        dup2(fd, filter);
        close(fd);
    }
}

static void nurse(const struct proc_spec *s, char **argv, char **env, int out, int report, int ruleset)
{
    int status = 0, now = 0, programs = 0, null = open("/dev/null", O_RDWR);
    sigset_t wait;
    sigemptyset(&wait);
    sigaddset(&wait, SIGTERM);
    sigaddset(&wait, SIGUSR1);
    sigaddset(&wait, SIGCHLD);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid();
    if (chdir(s->dir) < 0)
        _exit(126);
    dup2(s->in >= 0 ? s->in : null, 0);
    dup2(out, 1);
    dup2(s->err >= 0 ? s->err : out, 2);
    int filter = s->box ? s->box->filter : -1;
    close_others(report, filter, ruleset);
    own_offset(filter);
    pid_t pid = fork();
    if (pid == 0) {
        close(report);
        run_program(s, argv, env, ruleset);
    }
    close(0);
    close(1);
    close(2);
    for (bool over = pid < 0; !over;) { /* every signal is blocked and waits here */
        int sig = sigwaitinfo(&wait, NULL);
        if (sig == SIGTERM)
            signal_below(getpid(), SIGTERM, 0, &programs);
        if (sig == SIGUSR1) {
            status = SIGKILL;
            over = true;
        }
        for (pid_t k; sig == SIGCHLD && (k = waitpid(-1, &now, WNOHANG)) > 0;)
            if (k == pid) {
                status = now;
                over = true;
            }
    }
    int out2[2] = {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), sweep()};
    ssize_t n = write(report, out2, sizeof out2);
    _exit(n == sizeof out2 ? 0 : 1);
}

/* ---- our side ---- */

static bool named(char **names, const char *name)
{
    for (size_t i = 0; names && names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* The user's own lines get the whole environment; everything else an allow list and what is named. */
static char **clean_env(bool whole, char **names)
{
    static const char *const fixed[] = {
        "PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat",     "GIT_TERMINAL_PROMPT=0",          "NO_COLOR=1",
        "TERM=dumb", "EDITOR=false",  "GIT_EDITOR=false", "DEBIAN_FRONTEND=noninteractive", "TMPDIR=/tmp"};
    size_t n = 0, cap = 0;
    char **env = NULL;
    for (char **e = environ; *e; e++) {
        size_t k = strcspn(*e, "=");
        char name[128];
        if (k >= sizeof name)
            continue;
        memcpy(name, *e, k);
        name[k] = 0;
        if (!whole && !secrets_env(name) && !named(names, name))
            continue;
        env = mem_room(env, n, &cap, sizeof *env);
        env[n++] = mem_dup(*e);
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        env = mem_room(env, n, &cap, sizeof *env);
        env[n++] = mem_dup(fixed[i]);
    }
    env = mem_room(env, n, &cap, sizeof *env);
    env[n] = NULL;
    return env;
}

int proc_start(struct proc *p, const struct proc_spec *s, uint64_t now, struct vt_err *err)
{
    struct vt_err why = {0};
    int out[2], report[2], ruleset = s->box ? box_ruleset(s->box, &s->way, &why) : -1;
    memset(p, 0, sizeof *p);
    p->out = p->report = -1;
    if (why.code)
        return vt_fail(err, why.code, "%s", why.text);
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(report, O_CLOEXEC) < 0)
        return vt_fail_errno(err, VT_E_OS, "a pipe");
    char **argv = s->argv ? s->argv : box_argv(s->box, &s->way, s->command),
         **env = clean_env(s->way.user && !s->argv, s->env);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* none is lost between the fork and the nurse's waiting */
    pid_t pid = fork();
    if (pid == 0)
        nurse(s, argv, env, out[1], report[1], ruleset);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(out[1]);
    close(report[1]);
    if (ruleset >= 0)
        close(ruleset);
    if (!s->argv)
        box_argv_free(argv);
    box_argv_free(env);
    if (pid < 0) {
        close(out[0]);
        close(report[0]);
        return vt_fail_errno(err, VT_E_OS, "no process can be made");
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(report[0], F_SETFL, O_NONBLOCK);
    p->nurse = pid;
    p->out = out[0];
    p->report = report[0];
    p->deadline = s->seconds ? now + (uint64_t)s->seconds * 1000000 : 0;
    return 0;
}

void proc_end(struct proc *p, uint64_t now)
{
    if (!p->nurse || p->kill_at)
        return;
    kill(p->nurse, SIGTERM);
    p->kill_at = now + GRACE_US;
}

void proc_kill(struct proc *p)
{
    if (p->nurse)
        kill(p->nurse, SIGUSR1);
}

static void collect(struct proc *p, uint64_t now)
{
    int told[2];
    if (!p->nurse)
        return;
    ssize_t n = read(p->report, told, sizeof told);
    if (n < 0)
        return;
    waitpid(p->nurse, NULL, 0); /* it has said its last word, or is gone without one */
    close(p->report);
    p->report = -1;
    p->nurse = 0;
    p->status = n == sizeof told ? told[0] : 128 + SIGKILL;
    p->left = n == sizeof told ? told[1] : 0;
    p->drain_until = now + DRAIN_US;
}

bool proc_work(struct proc *p, uint64_t now)
{
    if (p->ended)
        return true;
    collect(p, now);
    if (p->nurse && p->deadline && now >= p->deadline && !p->kill_at) {
        p->timed_out = true;
        proc_end(p, now);
    }
    if (p->nurse && p->kill_at && now >= p->kill_at) {
        proc_kill(p);
        p->kill_at = now + GRACE_US;
    }
    if (!p->nurse && p->out >= 0 && now >= p->drain_until) {
        close(p->out);
        p->out = -1;
    }
    p->ended = !p->nurse && p->out < 0;
    return p->ended;
}

uint64_t proc_deadline(const struct proc *p)
{
    if (!p->nurse)
        return p->ended ? 0 : p->drain_until;
    return p->kill_at ? p->kill_at : p->deadline;
}

void proc_reap(struct proc *p)
{
    uint64_t until = proc_now() + 2000000;
    while (p->nurse && proc_now() < until) {
        collect(p, proc_now());
        if (p->nurse)
            usleep(5000);
    }
    if (p->report >= 0)
        close(p->report);
    p->report = -1;
    p->nurse = 0;
    if (p->out >= 0)
        close(p->out);
    p->out = -1;
    p->ended = true;
}
