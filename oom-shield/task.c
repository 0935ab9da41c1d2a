#include "task.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t slurp(int dir, const char *name, char *buf, size_t size)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    buf[n > 0 ? n : 0] = '\0';
    return n;
}

int task_open(const char *proc_root, pid_t pid)
{
    char path[512];
    snprintf(path, sizeof path, "%.400s/%d", proc_root, (int)pid);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Behind the name, which may hold anything, parentheses and blanks too. */
static bool read_stat(struct task *t, int dir)
{
    char text[1024];
    unsigned flags;
    int ppid;
    unsigned long long start;
    if (slurp(dir, "stat", text, sizeof text) <= 0)
        return false;
    const char *name = strchr(text, '('), *end = strrchr(text, ')');
    if (name == NULL || end == NULL || end < name)
        return false;
    snprintf(t->comm, sizeof t->comm, "%.*s", (int)(end - name - 1), name + 1);
    if (sscanf(end, ") %*c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ppid,
               &flags, &start) != 3)
        return false;
    t->ppid = (pid_t)ppid;
    t->kernel = (flags & 0x00200000u) != 0; /* PF_KTHREAD */
    t->start = start;
    return true;
}

bool task_start(int dir, uint64_t *start)
{
    struct task t;
    bool ok = read_stat(&t, dir);
    *start = ok ? t.start : 0;
    return ok;
}

static bool read_status(struct task *t, int dir)
{
    char text[4096];
    unsigned long long kb;
    unsigned r, e, s;
    int tracer;
    bool uid = false;
    if (slurp(dir, "status", text, sizeof text) <= 0)
        return false;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (sscanf(line, "Uid: %u %u %u", &r, &e, &s) == 3) {
            t->uid = r;
            t->one_uid = r == e && e == s;
            uid = true;
        } else if (sscanf(line, "TracerPid: %d", &tracer) == 1) {
            t->tracer = (pid_t)tracer;
        } else if (sscanf(line, "VmRSS: %llu", &kb) == 1 || sscanf(line, "VmSwap: %llu", &kb) == 1) {
            t->bytes += kb * 1024;
        }
    }
    return uid;
}

bool task_adj(int dir, int *adj)
{
    char text[32], *end;
    if (slurp(dir, "oom_score_adj", text, sizeof text) <= 0)
        return false;
    *adj = (int)strtol(text, &end, 10);
    return end != text;
}

int task_set_adj(int dir, int adj)
{
    char text[16];
    int fd = openat(dir, "oom_score_adj", O_WRONLY | O_CLOEXEC | O_TRUNC);
    if (fd < 0)
        return -1;
    int n = snprintf(text, sizeof text, "%d\n", adj), rc = write(fd, text, (size_t)n) == n ? 0 : -1,
        why = errno;
    close(fd);
    errno = why;
    return rc;
}

static void read_exe(struct task *t, int dir)
{
    static const char deleted[] = " (deleted)";
    struct stat st;
    ssize_t n = readlinkat(dir, "exe", t->exe, sizeof t->exe - 1);
    t->exe[n > 0 ? n : 0] = '\0';
    if (n > (ssize_t)sizeof deleted && strcmp(t->exe + n - sizeof deleted + 1, deleted) == 0)
        t->exe[n - (ssize_t)sizeof deleted + 1] = '\0';
    if (fstatat(dir, "exe", &st, 0) == 0) {
        t->exe_dev = st.st_dev;
        t->exe_ino = st.st_ino;
    }
}

static void read_cgroup(struct task *t, int dir)
{
    char text[4096];
    slurp(dir, "cgroup", text, sizeof text);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        const char *named = strstr(line, ":name=systemd:");
        if (strncmp(line, "0::", 3) == 0 && line[4] != '\0')
            snprintf(t->cgroup, sizeof t->cgroup, "%s", line + 3);
        else if (named != NULL && t->cgroup[0] == '\0')
            snprintf(t->cgroup, sizeof t->cgroup, "%s", named + strlen(":name=systemd:"));
    }
}

static bool holds_fuse(int dir)
{
    char target[64];
    bool found = false;
    int fd = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    if (d == NULL && fd >= 0)
        close(fd);
    while (d != NULL && !found && (e = readdir(d)) != NULL) {
        ssize_t n = readlinkat(fd, e->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strcmp(target, "/dev/fuse") == 0;
    }
    if (d != NULL)
        closedir(d);
    return found;
}

bool task_read(struct task *t, int dir, pid_t pid, bool look_at_files)
{
    *t = (struct task){.pid = pid};
    if (!read_stat(t, dir) || !read_status(t, dir) || !task_adj(dir, &t->adj))
        return false;
    read_exe(t, dir);
    read_cgroup(t, dir);
    t->fuse = look_at_files && holds_fuse(dir);
    return true;
}
