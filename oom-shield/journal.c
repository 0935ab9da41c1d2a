#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MARKS_MAX  65536
#define LOCK_TRIES 20
#define LOCK_PAUSE 100000000 /* ns */

static bool remember(struct journal *j, const struct mark *m)
{
    if (j->n == j->cap) {
        unsigned cap = j->cap == 0 ? 64 : 2 * j->cap;
        struct mark *more = cap <= MARKS_MAX ? realloc(j->mark, cap * sizeof *more) : NULL;
        if (more == NULL)
            return false;
        j->mark = more;
        j->cap = cap;
    }
    j->mark[j->n++] = *m;
    return true;
}

static void read_boot(struct journal *j, const char *proc_root)
{
    char path[512];
    snprintf(path, sizeof path, "%.400s/sys/kernel/random/boot_id", proc_root);
    FILE *f = fopen(path, "re");
    if (f == NULL || fgets(j->boot, sizeof j->boot, f) == NULL)
        snprintf(j->boot, sizeof j->boot, "unknown");
    j->boot[strcspn(j->boot, "\n")] = '\0';
    if (f != NULL)
        fclose(f);
}

static void read_all(struct journal *j)
{
    char line[256], boot[40], end;
    FILE *f = fopen(j->path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        struct mark m;
        int pid;
        unsigned long long start, at;
        if (sscanf(line, "%d %llu %d %d %llu %39s%c", &pid, &start, &m.was, &m.now, &at, boot, &end) != 7 ||
            end != '\n')
            continue; /* the last line of one that was killed while it wrote */
        m.pid = (pid_t)pid;
        m.start = start;
        m.at = at;
        if (pid > 1 && strcmp(boot, j->boot) == 0 && m.was >= -1000 && m.now <= 1000 && m.was < m.now)
            remember(j, &m);
    }
    if (f != NULL)
        fclose(f);
}

static int put(int fd, const struct journal *j, const struct mark *m)
{
    char line[160];
    int n = snprintf(line, sizeof line, "%d %llu %d %d %llu %s\n", (int)m->pid, (unsigned long long)m->start,
                     m->was, m->now, (unsigned long long)m->at, j->boot);
    off_t end = lseek(fd, 0, SEEK_END);
    ssize_t done = write(fd, line, (size_t)n);
    if (done == n)
        return 0;
    /* Half a line would spoil the next one, too. */
    int why = done < 0 ? errno : ENOSPC;
    if (done > 0 && end >= 0 && ftruncate(fd, end) < 0)
        why = errno;
    errno = why;
    return -1;
}

/* A folder that is not there holds no journal, either. */
static int lock_dir(struct journal *j, const char *dir, struct vt_err *err)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE};
    j->lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; j->lock >= 0; i++) {
        if (flock(j->lock, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR))
            break;
        if (i == LOCK_TRIES)
            return vt_fail(err, VT_E_BUSY, "%s: another vitriol-shield works with the journal in it", dir);
        nanosleep(&pause, NULL);
    }
    return 0;
}

int journal_open(struct journal *j, const char *dir, const char *proc_root, bool write, struct vt_err *err)
{
    *j = (struct journal){.fd = -1, .lock = -1, .fixed = !write};
    if (snprintf(j->path, sizeof j->path, "%s/shield.journal", dir) >= (int)sizeof j->path)
        return vt_fail(err, VT_E_CONFIG, "%s: the path is too long", dir);
    if (write && lock_dir(j, dir, err) < 0) {
        journal_close(j);
        return -1;
    }
    read_boot(j, proc_root);
    read_all(j);
    return 0;
}

void journal_close(struct journal *j)
{
    if (j->fd >= 0)
        close(j->fd);
    if (j->lock >= 0)
        close(j->lock);
    free(j->mark);
    *j = (struct journal){.fd = -1, .lock = -1};
}

int journal_add(struct journal *j, const struct mark *m, struct vt_err *err)
{
    if (j->fd < 0 && !j->fixed)
        j->fd = open(j->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (!j->fixed && (j->fd < 0 || put(j->fd, j, m) < 0))
        return vt_fail_errno(err, VT_E_OS, "%s", j->path);
    return remember(j, m) ? 0 : vt_fail(err, VT_E_NOMEM, "no memory for another mark");
}

const struct mark *journal_find(const struct journal *j, pid_t pid, uint64_t start)
{
    for (unsigned i = 0; i < j->n; i++) {
        if (j->mark[i].pid == pid && j->mark[i].start == start)
            return &j->mark[i];
    }
    return NULL;
}

void journal_keep(struct journal *j, bool (*keep)(void *arg, const struct mark *m), void *arg)
{
    char path[520];
    unsigned n = 0, had = j->n;
    for (unsigned i = 0; i < j->n; i++) {
        if (keep(arg, &j->mark[i]))
            j->mark[n++] = j->mark[i];
    }
    j->n = n;
    if (n == had || j->fixed)
        return;
    if (n == 0 && unlink(j->path) == 0) {
        if (j->fd >= 0)
            close(j->fd);
        j->fd = -1;
        return;
    }
    snprintf(path, sizeof path, "%s.new", j->path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0;
    for (unsigned i = 0; ok && i < n; i++)
        ok = put(fd, j, &j->mark[i]) == 0;
    if (ok && rename(path, j->path) == 0) {
        if (j->fd >= 0)
            close(j->fd);
        j->fd = fd;
        return;
    }
    /* The longer one is still there, and its entries that are over do no harm. */
    if (fd >= 0)
        close(fd);
    unlink(path);
}
