#include "evidence.h"

#include "events.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define WITHIN_US VT_SEC(3)

struct out {
    char *text;
    size_t len;
};

static void add(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->text + o->len, EVIDENCE_MAX - o->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        o->len = o->len + (size_t)n < EVIDENCE_MAX ? o->len + (size_t)n : EVIDENCE_MAX - 1;
}

/* What of a small file of /proc can be read; bytes that are no text become question marks. */
static size_t slurp(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, buf, size - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        n = 0;
    for (ssize_t i = 0; i < n; i++) {
        if ((unsigned char)buf[i] >= 0x7f ||
            (iscntrl((unsigned char)buf[i]) && buf[i] != '\n' && buf[i] != '\t'))
            buf[i] = '?';
    }
    while (n > 0 && buf[n - 1] == '\n')
        n--;
    buf[n] = '\0';
    return (size_t)n;
}

static void add_file(struct out *o, const char *what, const char *path)
{
    char buf[2048];
    if (slurp(path, buf, sizeof buf) > 0)
        add(o, "%s: %s\n", what, buf);
}

static void add_memory(struct out *o, const char *dir)
{
    char path[PATH_MAX], line[256];
    snprintf(path, sizeof path, "%.1000s/status", dir);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "State", 5) == 0 || strncmp(line, "Vm", 2) == 0 || strncmp(line, "Rss", 3) == 0 ||
            strncmp(line, "Threads", 7) == 0)
            add(o, "  %s", line);
    }
    if (f != NULL)
        fclose(f);
}

static void add_tasks(struct out *o, const struct child *c, const char *dir, uint64_t until)
{
    static const char *const files[] = {"comm", "wchan", "syscall", "stack"};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.1000s/task", dir);
    DIR *d = opendir(path);
    struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL && sup_now(c->sup) < until && o->len < EVIDENCE_MAX / 2) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        add(o, "task %s state %c\n", e->d_name, evidence_proc_state(c->sup, (pid_t)atoi(e->d_name)));
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            snprintf(path, sizeof path, "%.1000s/task/%.32s/%s", dir, e->d_name, files[i]);
            add_file(o, files[i], path);
        }
    }
    if (d != NULL)
        closedir(d);
}

static void add_frames(struct out *o, const struct child *c)
{
    unsigned n = c->n_recent < sizeof c->recent ? c->n_recent : sizeof c->recent;
    add(o, "last frames:");
    for (unsigned i = c->n_recent - n; i != c->n_recent; i++)
        add(o, " %s", vt_frame_name(c->recent[i % sizeof c->recent]));
    add(o, "\nin flight %u, operation %u, waits for %u, step %llu, step age %llu ms\n", c->live.in_flight,
        c->live.op, c->live.wait, (unsigned long long)c->live.step,
        (unsigned long long)(live_step_age(&c->live, sup_now(c->sup)) / 1000));
}

char *evidence_capture(const struct child *c, const char *why)
{
    struct out o = {.text = malloc(EVIDENCE_MAX)};
    char dir[512];
    uint64_t until = sup_now(c->sup) + WITHIN_US;
    if (o.text == NULL)
        return NULL;
    o.text[0] = '\0';
    const char *root = vt_config_str(c->sup->cfg, VT_CFG_PATHS_PROC_ROOT);
    snprintf(dir, sizeof dir, "%s/%d", root, (int)c->pid);
    add(&o, "%s generation %u pid %d: %s\n", c->name, c->gen, (int)c->pid, why);
    add_frames(&o, c);
    if (c->pid > 0) {
        add_memory(&o, dir);
        add_tasks(&o, c, dir, until);
    }
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/pressure/memory", root);
    add_file(&o, "memory pressure", path);
    add(&o, "last lines:\n");
    o.len += childlog_tail(&c->log, CHILDLOG_LINES, o.text + o.len, EVIDENCE_MAX - o.len);
    return o.text;
}

/* ---- files ---- */

static int is_evidence(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 4 && strcmp(d->d_name + n - 4, ".txt") == 0;
}

/* Names begin with the time: the first ones are the oldest. One more has room after it. */
static void make_room(const char *dir)
{
    struct dirent **list;
    int n = scandir(dir, &list, is_evidence, alphasort);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%.1000s/%.255s", dir, list[i]->d_name);
        if (i <= n - EVIDENCE_FILES)
            unlink(path);
        free(list[i]);
    }
    if (n >= 0)
        free(list);
}

static int append(const char *path, const char *text, int flags)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0)
        return -1;
    size_t n = strlen(text);
    int rc = write(fd, text, n) == (ssize_t)n ? 0 : -1;
    return close(fd) < 0 ? -1 : rc;
}

void evidence_keep(struct child *c)
{
    struct sup *s = c->sup;
    char dir[sizeof s->dir.state + 16], stamp[32];
    time_t now = (time_t)(vt_wall(&s->clock) / 1000000u);
    struct tm tm;
    if (c->evidence == NULL)
        return;
    snprintf(dir, sizeof dir, "%s/evidence", s->dir.state);
    mkdir(dir, 0700);
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    snprintf(s->last_evidence, sizeof s->last_evidence, "%s/%s-%s-%u-%s.txt", dir, stamp, c->name, c->gen,
             exit_class_name(c->class));
    make_room(dir);
    if (append(s->last_evidence, c->evidence, O_CREAT) < 0) {
        unlink(s->last_evidence); /* a part of it tells nothing */
        vt_log(s->log, VT_LOG_WARNING, "%s: the evidence is not kept", s->last_evidence);
        s->last_evidence[0] = '\0';
        return;
    }
    event_text(s, EVENT_NOTE, c, VT_LOG_NOTICE, "evidence of its end: %.200s", s->last_evidence);
}

void evidence_add(struct sup *s, const char *line)
{
    if (s->last_evidence[0] != '\0')
        append(s->last_evidence, line, 0);
}

/* "memory.events" of version 2, "memory.oom_control" of version 1: a line "oom_kill N". */
static uint64_t oom_line(const char *path)
{
    char buf[2048];
    slurp(path, buf, sizeof buf);
    const char *p = strstr(buf, "oom_kill ");
    return p != NULL ? strtoull(p + strlen("oom_kill "), NULL, 10) : 0;
}

uint64_t evidence_oom_kills(const struct sup *s, pid_t pid)
{
    char path[PATH_MAX], line[1024];
    const char *root = vt_config_str(s->cfg, VT_CFG_PATHS_CGROUP_ROOT);
    uint64_t n = 0;
    snprintf(path, sizeof path, "%s/%d/cgroup", vt_config_str(s->cfg, VT_CFG_PATHS_PROC_ROOT), (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *where = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (where == NULL)
            continue;
        *where++ = '\0';
        controllers++;
        if (controllers[0] == '\0')
            snprintf(path, sizeof path, "%s%s/memory.events", root, where);
        else if (strcmp(controllers, "memory") == 0)
            snprintf(path, sizeof path, "%s/memory%s/memory.oom_control", root, where);
        else
            continue;
        uint64_t here = oom_line(path);
        n = here > n ? here : n;
    }
    if (f != NULL)
        fclose(f);
    return n;
}

char evidence_proc_state(const struct sup *s, pid_t pid)
{
    char path[PATH_MAX], buf[512];
    snprintf(path, sizeof path, "%s/%d/stat", vt_config_str(s->cfg, VT_CFG_PATHS_PROC_ROOT), (int)pid);
    slurp(path, buf, sizeof buf);
    const char *end = strrchr(buf, ')');
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}
