#include "mem_read.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define V1_NO_LIMIT (1ull << 60) /* version 1 writes a huge number where there is none */

/* ---- small files ---- */

/* Calls row for each "name<mark>number" line of a file; false when it cannot be opened. */
typedef void (*row_fn)(void *arg, const char *name, uint64_t value);

static bool each_row(const char *path, char mark, row_fn row, void *arg)
{
    char line[512];
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;
    while (fgets(line, sizeof line, f) != NULL) {
        char *at = strchr(line, mark), *end;
        if (at == NULL)
            continue;
        *at++ = '\0';
        while (isblank((unsigned char)*at))
            at++;
        unsigned long long v = isdigit((unsigned char)*at) ? strtoull(at, &end, 10) : 0;
        if (isdigit((unsigned char)*at) && (*end == '\0' || isspace((unsigned char)*end)))
            row(arg, line, v);
    }
    fclose(f);
    return true;
}

/* A file that holds one number, or the word "max". */
static bool one_number(const char *dir, const char *name, uint64_t *out)
{
    char path[PATH_MAX], text[64], *end;
    snprintf(path, sizeof path, "%.2000s/%.64s", dir, name);
    FILE *f = fopen(path, "re");
    bool ok = f != NULL && fgets(text, sizeof text, f) != NULL;
    if (f != NULL)
        fclose(f);
    if (ok && strncmp(text, "max", 3) == 0) {
        *out = MEM_NO_LIMIT;
        return true;
    }
    if (!ok || !isdigit((unsigned char)text[0]))
        return false;
    *out = strtoull(text, &end, 10);
    return *end == '\0' || *end == '\n';
}

struct want {
    const char *name;
    uint64_t *out;
    bool found;
};

static void take_row(void *arg, const char *name, uint64_t value)
{
    for (struct want *w = arg; w->name != NULL; w++) {
        if (!w->found && strcmp(w->name, name) == 0) {
            *w->out = value;
            w->found = true;
        }
    }
}

/* ---- meminfo, vmstat, status ---- */

static bool read_meminfo(struct mem_sample *s, const char *proc_root)
{
    char path[PATH_MAX];
    struct want w[] = {{"MemTotal", &s->total, false},
                       {"MemAvailable", &s->available, false},
                       {"SwapTotal", &s->swap_total, false},
                       {NULL, NULL, false}};
    snprintf(path, sizeof path, "%.2000s/meminfo", proc_root);
    if (!each_row(path, ':', take_row, w) || !w[0].found || !w[1].found)
        return false;
    if (s->total > UINT64_MAX / 1024 || s->available == 0 || s->available > s->total)
        return false;
    s->total *= 1024;
    s->available *= 1024;
    s->swap_total *= 1024;
    return true;
}

uint64_t mem_read_available(const char *proc_root)
{
    struct mem_sample s = {0};
    return read_meminfo(&s, proc_root) ? s.available : 0;
}

static void read_vm(struct mem_vm *v, const char *proc_root)
{
    char path[PATH_MAX];
    struct want w[] = {{"pswpin", &v->swap_in, false},
                       {"workingset_refault_file", &v->refault_file, false},
                       {NULL, NULL, false}};
    snprintf(path, sizeof path, "%.2000s/vmstat", proc_root);
    v->valid = each_row(path, ' ', take_row, w) && w[0].found;
}

bool mem_read_foot(struct mem_foot *f, const char *proc_root, pid_t pid)
{
    char path[PATH_MAX];
    *f = (struct mem_foot){0};
    struct want w[] = {{"RssAnon", &f->rss_anon, false},   {"RssFile", &f->rss_file, false},
                       {"RssShmem", &f->rss_shmem, false}, {"VmSwap", &f->swap, false},
                       {"VmLck", &f->locked, false},       {NULL, NULL, false}};
    snprintf(path, sizeof path, "%.2000s/%d/status", proc_root, (int)pid);
    f->valid = pid > 0 && each_row(path, ':', take_row, w) && w[0].found && w[1].found;
    for (struct want *p = w; p->name != NULL; p++)
        *p->out *= 1024;
    return f->valid;
}

uint64_t mem_foot_private(const struct mem_foot *f)
{
    return f->rss_anon + f->rss_shmem + f->swap;
}

/* ---- pressure ---- */

bool mem_read_psi(struct mem_psi *p, const char *path)
{
    char line[256];
    bool some = false, full = false;
    double v;
    *p = (struct mem_psi){0};
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "some avg10=%lf", &v) == 1 && v >= 0 && v <= 100) {
            p->some10 = v;
            some = true;
        } else if (sscanf(line, "full avg10=%lf", &v) == 1 && v >= 0 && v <= 100) {
            p->full10 = v;
            full = true;
        }
    }
    if (f != NULL)
        fclose(f);
    p->valid = some && full;
    return p->valid;
}

/* ---- cgroups ---- */

/* The path of this process in a hierarchy: controllers "" for version 2, "memory" for version 1. */
static bool own_path(const char *proc_root, const char *controller, char *out, size_t size)
{
    char path[PATH_MAX], line[1024];
    bool found = false;
    snprintf(path, sizeof path, "%.2000s/self/cgroup", proc_root);
    FILE *f = fopen(path, "re");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *where = names != NULL ? strchr(names + 1, ':') : NULL;
        if (where == NULL)
            continue;
        *where++ = '\0';
        found = strcmp(names + 1, controller) == 0 && where[0] == '/' && strstr(where, "/..") == NULL;
        if (found)
            snprintf(out, size, "%s", strcmp(where, "/") == 0 ? "" : where);
    }
    if (f != NULL)
        fclose(f);
    return found;
}

struct level {
    uint64_t limit, used, reclaimable;
    bool valid;
};

static void level_v2(struct level *l, const char *dir)
{
    char path[PATH_MAX];
    struct want w[] = {{"inactive_file", &l->reclaimable, false}, {NULL, NULL, false}};
    uint64_t high = MEM_NO_LIMIT;
    l->valid = one_number(dir, "memory.max", &l->limit) && one_number(dir, "memory.current", &l->used);
    /* What is above memory.high is throttled to a crawl: for planning it is the limit. */
    if (one_number(dir, "memory.high", &high) && high < l->limit)
        l->limit = high;
    snprintf(path, sizeof path, "%.2000s/memory.stat", dir);
    each_row(path, ' ', take_row, w);
}

static void level_v1(struct level *l, const char *dir)
{
    char path[PATH_MAX];
    struct want w[] = {{"total_inactive_file", &l->reclaimable, false}, {NULL, NULL, false}};
    l->valid = one_number(dir, "memory.limit_in_bytes", &l->limit) &&
               one_number(dir, "memory.usage_in_bytes", &l->used);
    if (l->limit >= V1_NO_LIMIT)
        l->limit = MEM_NO_LIMIT;
    snprintf(path, sizeof path, "%.2000s/memory.stat", dir);
    each_row(path, ' ', take_row, w);
}

/* From the own directory up to the root of the hierarchy: the tightest limit and the least room. True when any of them
 * told anything. */
static bool walk_up(struct mem_cgroup *c, const char *root, const char *own)
{
    char dir[PATH_MAX];
    bool any = false;
    snprintf(dir, sizeof dir, "%.1000s%.1000s", root, own);
    for (size_t stop = strlen(root);;) {
        struct level l = {.limit = MEM_NO_LIMIT};
        if (c->kind == MEM_CGROUP_V2)
            level_v2(&l, dir);
        else
            level_v1(&l, dir);
        any = any || l.valid;
        if (l.valid && l.limit != MEM_NO_LIMIT) {
            uint64_t used = l.used > l.reclaimable ? l.used - l.reclaimable : 0;
            uint64_t room = l.limit > used ? l.limit - used : 0;
            c->limit = l.limit < c->limit ? l.limit : c->limit;
            c->room = room < c->room ? room : c->room;
        }
        if (strlen(dir) <= stop)
            return any;
        *strrchr(dir, '/') = '\0';
    }
}

static bool exists(const char *dir, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.2000s/%.64s", dir, name);
    return access(path, R_OK) == 0;
}

/* vitriold may sit in the leaf "super" of its unit; pressure and events of the unit are those of the level above. */
static void unit_of(struct mem_cgroup *c, const char *root, const char *own)
{
    snprintf(c->path, sizeof c->path, "%.250s%.250s", root, own);
    size_t n = strlen(c->path);
    if (n > 6 && strcmp(c->path + n - 6, "/super") == 0)
        c->path[n - 6] = '\0';
}

static void events_v2(struct mem_cgroup *c)
{
    char path[PATH_MAX];
    struct want ev[] = {{"high", &c->ev_high, false}, {"max", &c->ev_max, false}, {NULL, NULL, false}};
    struct want st[] = {{"workingset_refault_file", &c->refault_file, false}, {NULL, NULL, false}};
    snprintf(path, sizeof path, "%.500s/memory.events", c->path);
    each_row(path, ' ', take_row, ev);
    snprintf(path, sizeof path, "%.500s/memory.stat", c->path);
    each_row(path, ' ', take_row, st);
    c->refault_valid = st[0].found;
}

void mem_read_cgroup(struct mem_cgroup *c, const char *proc_root, const char *cgroup_root)
{
    static const char *const v2_below[] = {"", "/unified"};
    char own[1024], root[1100];
    *c = (struct mem_cgroup){.limit = MEM_NO_LIMIT, .room = MEM_NO_LIMIT};
    for (int i = 0; i < 2 && own_path(proc_root, "", own, sizeof own); i++) {
        c->kind = MEM_CGROUP_V2;
        snprintf(root, sizeof root, "%.1000s%s", cgroup_root, v2_below[i]);
        if (exists(root, "cgroup.controllers") && walk_up(c, root, own)) {
            unit_of(c, root, own);
            events_v2(c);
            return;
        }
    }
    c->kind = MEM_CGROUP_V1;
    snprintf(root, sizeof root, "%.1000s/memory", cgroup_root);
    if (own_path(proc_root, "memory", own, sizeof own) && exists(root, "memory.limit_in_bytes")) {
        char dir[PATH_MAX];
        snprintf(dir, sizeof dir, "%.1000s%.1000s", root, own);
        /* In a container the hierarchy may be mounted from our own level on, and the path names what lies above. */
        if (!exists(dir, "memory.limit_in_bytes"))
            own[0] = '\0';
        if (walk_up(c, root, own)) {
            snprintf(c->path, sizeof c->path, "%.250s%.250s", root, own);
            one_number(c->path, "memory.failcnt", &c->ev_max);
            return;
        }
    }
    c->kind = MEM_CGROUP_NONE;
}

/* ---- all ---- */

bool mem_read(struct mem_sample *s, const char *proc_root, const char *cgroup_root)
{
    char path[PATH_MAX];
    *s = (struct mem_sample){0};
    s->valid = read_meminfo(s, proc_root);
    snprintf(path, sizeof path, "%.2000s/pressure/memory", proc_root);
    mem_read_psi(&s->host, path);
    read_vm(&s->vm, proc_root);
    mem_read_cgroup(&s->cgroup, proc_root, cgroup_root);
    if (s->cgroup.kind == MEM_CGROUP_V2) {
        snprintf(path, sizeof path, "%.500s/memory.pressure", s->cgroup.path);
        mem_read_psi(&s->own, path);
    }
    return s->valid;
}

uint64_t mem_available_eff(const struct mem_sample *s)
{
    uint64_t host = s->available > s->hot_mapped ? s->available - s->hot_mapped : 0;
    return s->cgroup.room < host ? s->cgroup.room : host;
}

uint64_t mem_base(const struct mem_sample *s)
{
    return s->cgroup.limit < s->total ? s->cgroup.limit : s->total;
}
