#include "orphans.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_LEFT 64
#define GRACE_MS 5000

static bool has_env(const char *env, size_t len, const char *entry)
{
    size_t n = strlen(entry);
    for (const char *p = env; p < env + len;) {
        size_t m = strnlen(p, (size_t)(env + len - p));
        if (m == n && memcmp(p, entry, n) == 0)
            return true;
        p += m + 1;
    }
    return false;
}

/* A left-over carries our run directory, and an instance that is not ours. */
static bool is_left_over(const char *proc_root, const char *pid, const char *run_dir, const char *instance)
{
    char path[300];
    char env[32768];
    char want_dir[200], own[64];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s/environ", proc_root, pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool mine = fstat(fd, &st) == 0 && (st.st_uid == geteuid() || geteuid() == 0);
    ssize_t n = mine ? read(fd, env, sizeof env) : 0;
    close(fd);
    if (n <= 0)
        return false;
    snprintf(want_dir, sizeof want_dir, "VITRIOL_RUN_DIR=%s", run_dir);
    snprintf(own, sizeof own, "VITRIOL_INSTANCE=%s", instance);
    return has_env(env, (size_t)n, want_dir) && !has_env(env, (size_t)n, own) &&
           memmem(env, (size_t)n, "VITRIOL_CHILD=", 14) != NULL;
}

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void send_kill(int pidfd)
{
    syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Waits until all are gone or the time is over; returns how many remain. */
static int wait_gone(struct pollfd *p, int n, int ms)
{
    int64_t end = now_ms() + ms;
    int left = n;
    while (left > 0) {
        int64_t rest = end - now_ms();
        if (rest <= 0 || (poll(p, (nfds_t)n, (int)rest) < 0 && errno != EINTR))
            break;
        left = 0;
        for (int i = 0; i < n; i++) {
            if (p[i].revents != 0) {
                close(p[i].fd);
                p[i].fd = -1;
            }
            left += p[i].fd >= 0;
        }
    }
    return left;
}

static void keep(struct orphans *o, const char *proc_root, pid_t pid, int pidfd)
{
    char path[300], env[32768];
    snprintf(path, sizeof path, "%s/%d/environ", proc_root, (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, env, sizeof env - 1) : 0;
    if (fd >= 0)
        close(fd);
    env[n > 0 ? n : 0] = '\0';
    const char *at = n > 0 ? memmem(env, (size_t)n, "VITRIOL_CHILD=", 14) : NULL;
    if (at == NULL || o->n == ORPHANS_LEFT) {
        close(pidfd);
        return;
    }
    o->left[o->n].pidfd = pidfd;
    o->left[o->n].pid = pid;
    snprintf(o->left[o->n].child, sizeof o->left[0].child, "%s", at + 14);
    o->n++;
}

pid_t orphans_left(struct orphans *o, const char *child)
{
    pid_t found = 0;
    for (unsigned i = 0; i < o->n;) {
        struct pollfd p = {.fd = o->left[i].pidfd, .events = POLLIN};
        if (poll(&p, 1, 0) > 0) {
            close(p.fd);
            o->left[i] = o->left[--o->n];
            continue;
        }
        if (strcmp(o->left[i].child, child) == 0)
            found = o->left[i].pid;
        i++;
    }
    return found;
}

void orphans_close(struct orphans *o)
{
    while (o->n > 0)
        close(o->left[--o->n].pidfd);
}

int orphans_sweep(struct orphans *o, const char *proc_root, const char *run_dir, const char *instance,
                  struct vt_log *log)
{
    struct pollfd left[MAX_LEFT];
    pid_t pid[MAX_LEFT];
    int n = 0;
    *o = (struct orphans){0};
    DIR *dir = opendir(proc_root);
    if (dir == NULL)
        return 0;
    struct dirent *e;
    while ((e = readdir(dir)) != NULL && n < MAX_LEFT) {
        if (!isdigit((unsigned char)e->d_name[0]) || !is_left_over(proc_root, e->d_name, run_dir, instance))
            continue;
        int fd = open_pidfd((pid_t)atoi(e->d_name));
        /* Looked at again through the descriptor's life: the number may have changed hands between. */
        if (fd >= 0 && is_left_over(proc_root, e->d_name, run_dir, instance)) {
            vt_log(log, VT_LOG_WARNING,
                   "pid %s is left over from a vitriold that died in %s; it gets %d s to end", e->d_name,
                   run_dir, GRACE_MS / 1000);
            pid[n] = (pid_t)atoi(e->d_name);
            left[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
        } else if (fd >= 0) {
            close(fd);
        }
    }
    closedir(dir);
    if (n > 0 && wait_gone(left, n, GRACE_MS) > 0) {
        for (int i = 0; i < n; i++) {
            if (left[i].fd >= 0)
                send_kill(left[i].fd);
        }
        wait_gone(left, n, 2000);
    }
    for (int i = 0; i < n; i++) {
        if (left[i].fd >= 0)
            keep(o, proc_root, pid[i], left[i].fd);
    }
    return n;
}

static bool is_known(pid_t pid, const pid_t *known, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (known[i] == pid)
            return true;
    }
    return false;
}

int orphans_adopted(const pid_t *known, unsigned n_known)
{
    /* The kernel keeps the list of a thread's children; only the main thread forks, and adopted ones go to it too. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return 0;
    int alive = 0;
    int pid;
    while (fscanf(f, "%d", &pid) == 1) {
        if (is_known(pid, known, n_known))
            continue;
        if (waitpid(pid, NULL, WNOHANG) == pid)
            continue;
        int fd = open_pidfd(pid);
        if (fd < 0)
            continue;
        send_kill(fd);
        close(fd);
        alive++;
    }
    fclose(f);
    return alive;
}
