#include "shield.h"

#include "task.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIDS_MAX 65536

/* Parents of all processes, to know who descends from whom. */
struct family {
    struct {
        pid_t pid, ppid;
    } * of;
    unsigned n, cap;
};

int shield_open(struct shield *s, const char *dir, const char *proc_root, bool write, struct vt_err *err)
{
    snprintf(s->proc_root, sizeof s->proc_root, "%s", proc_root);
    return journal_open(&s->journal, dir, proc_root, write, err);
}

void shield_close(struct shield *s)
{
    journal_close(&s->journal);
}

/* ---- who is who ---- */

static pid_t parent_of(const struct family *f, pid_t pid)
{
    for (unsigned i = 0; i < f->n; i++) {
        if (f->of[i].pid == pid)
            return f->of[i].ppid;
    }
    return 0;
}

/* a is b, or an ancestor of it. The table may be of different moments, so the way up is bounded. */
static bool leads_to(const struct family *f, pid_t a, pid_t b)
{
    for (unsigned i = 0; b > 1 && i < 256; i++) {
        if (a == b)
            return true;
        b = parent_of(f, b);
    }
    return false;
}

static bool add(struct family *f, pid_t pid, pid_t ppid)
{
    if (f->n == f->cap) {
        unsigned cap = f->cap == 0 ? 512 : 2 * f->cap;
        void *more = cap <= PIDS_MAX ? realloc(f->of, cap * sizeof f->of[0]) : NULL;
        if (more == NULL)
            return false;
        f->of = more;
        f->cap = cap;
    }
    f->of[f->n].pid = pid;
    f->of[f->n++].ppid = ppid;
    return true;
}

static bool list(const struct shield *s, struct family *f)
{
    DIR *d = opendir(s->proc_root);
    struct dirent *e;
    struct task t;
    bool ok = d != NULL;
    while (ok && (e = readdir(d)) != NULL) {
        pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)atoi(e->d_name) : 0;
        int dir = pid > 0 ? task_open(s->proc_root, pid) : -1;
        if (dir < 0)
            continue;
        bool seen = task_read(&t, dir, pid, false);
        close(dir);
        ok = add(f, pid, seen ? t.ppid : 0);
    }
    if (d != NULL)
        closedir(d);
    return ok;
}

/* ---- marking ---- */

static uint64_t ticks_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 100 + (uint64_t)t.tv_nsec / 10000000; /* the unit of /proc's start times */
}

/* It was born with a marked parent's value: it gets back what that parent had. */
static const struct mark *heir(const struct shield *s, const struct task *t)
{
    for (unsigned i = 0; i < s->journal.n; i++) {
        const struct mark *m = &s->journal.mark[i];
        if (m->pid == t->ppid && m->now == t->adj && m->at <= t->start)
            return m;
    }
    return NULL;
}

static int mark_one(struct shield *s, int dir, const struct task *t, struct vt_err *err)
{
    struct mark m = {t->pid, t->start, t->adj, s->rules.floor, ticks_now()};
    if (journal_find(&s->journal, t->pid, t->start) != NULL)
        return 0; /* somebody lowered it again: that is respected */
    if (journal_add(&s->journal, &m, err) < 0)
        return -1;
    if (task_set_adj(dir, s->rules.floor) < 0)
        s->failed++;
    return 0;
}

static int look(struct shield *s, const struct family *f, pid_t pid, bool mark, struct task *t,
                enum verdict *v, struct vt_err *err)
{
    int dir = task_open(s->proc_root, pid), rc = 0;
    *v = KEEP_UNREADABLE;
    if (dir < 0)
        return 0;
    if (task_read(t, dir, pid, true)) {
        bool related = s->rules.own > 0 && (leads_to(f, pid, s->rules.own) || leads_to(f, s->rules.own, pid));
        *v = rules_judge(&s->rules, t, related);
        s->oomd = s->oomd || strcmp(t->comm, "systemd-oomd") == 0;
        const struct mark *parent = t->uid == s->rules.uid ? heir(s, t) : NULL;
        if (parent != NULL && journal_find(&s->journal, t->pid, t->start) == NULL) {
            struct mark m = {t->pid, t->start, parent->was, t->adj, ticks_now()};
            rc = journal_add(&s->journal, &m, err);
        }
        if (rc == 0 && *v == MAY_MARK && mark)
            rc = mark_one(s, dir, t, err);
    }
    close(dir);
    return rc;
}

static bool lives(void *arg, const struct mark *m)
{
    const struct shield *s = arg;
    uint64_t start;
    int dir = task_open(s->proc_root, m->pid);
    bool same = dir >= 0 && task_start(dir, &start) && start == m->start;
    if (dir >= 0)
        close(dir);
    return same;
}

int shield_scan(struct shield *s, bool mark, void (*each)(void *arg, const struct task *t, enum verdict v),
                void *arg, struct vt_err *err)
{
    struct family f = {0};
    struct task t = {0};
    enum verdict v;
    int rc = 0;
    memset(s->by, 0, sizeof s->by);
    s->failed = 0;
    journal_keep(&s->journal, lives, s);
    if (!list(s, &f)) {
        free(f.of);
        return vt_fail(err, VT_E_OS, "the processes cannot be listed");
    }
    for (unsigned i = 0; i < f.n && rc == 0; i++) {
        rc = look(s, &f, f.of[i].pid, mark && !s->scope_cgroup, &t, &v, err);
        s->by[v]++;
        if (each != NULL && v != KEEP_UNREADABLE)
            each(arg, &t, v);
    }
    free(f.of);
    return rc;
}

/* ---- taking back ---- */

static bool restore(void *arg, const struct mark *m)
{
    struct shield *s = arg;
    int adj, dir = task_open(s->proc_root, m->pid);
    uint64_t start;
    if (dir < 0)
        return false;
    if (task_start(dir, &start) && start == m->start && task_adj(dir, &adj) && adj == m->now) {
        if (task_set_adj(dir, m->was) == 0)
            s->restored++;
        else
            s->not_restored++; /* raised with privilege meanwhile: below that nobody gets without */
    }
    close(dir);
    return false;
}

void shield_undo(struct shield *s)
{
    struct vt_err err;
    /* Heirs that no scan has seen yet are found first. */
    if (s->journal.n > 0)
        shield_scan(s, false, NULL, NULL, &err);
    s->restored = s->not_restored = 0;
    journal_keep(&s->journal, restore, s);
}

unsigned shield_marked(const struct shield *s)
{
    return s->journal.n;
}

void shield_report(const struct shield *s, FILE *out)
{
    fprintf(out, "%s\n",
            s->scope_cgroup ? "standing down: the engine's cgroup has a memory limit, and the kernel chooses "
                              "inside it (scope=cgroup)"
                            : "active (scope=host)");
    fprintf(out, "marked now     %u\n", shield_marked(s));
    for (unsigned v = KEEP_INIT; v < VERDICTS; v++)
        fprintf(out, "%-21s %u\n", verdict_name((enum verdict)v), s->by[v]);
    fprintf(out, "refused by the kernel %u\nrestored              %u\nnot restorable        %u\n", s->failed,
            s->restored, s->not_restored);
    if (s->oomd)
        fprintf(out, "systemd-oomd runs here: it kills by cgroup and pressure and does not ask for scores\n");
}
