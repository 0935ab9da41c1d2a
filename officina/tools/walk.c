#include "tools/walk.h"

#include "tools/wild.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rule {
    char *pattern; /* of a path relative to `base` */
    bool not, dir_only;
};

/* The ignore file of one folder; those above it through `up`. */
struct level {
    const struct level *up;
    size_t base; /* bytes of the folder's path with its slash */
    struct rule *rules;
    size_t n, cap;
};

struct walker {
    const struct root *r;
    walk_fn fn, ignored;
    void *arg;
    const atomic_int *stop;
    size_t seen;
};

static void add_rule(struct level *l, const char *s, size_t n)
{
    struct rule rule = {0};
    while (n && (s[n - 1] == '\r' || (s[n - 1] == ' ' && !(n > 1 && s[n - 2] == '\\'))))
        n--;
    if (!n || *s == '#')
        return;
    if (*s == '!') {
        rule.not = true;
        s++;
        n--;
    }
    if (n && s[n - 1] == '/') {
        rule.dir_only = true;
        n--;
    }
    if (!n)
        return;
    bool anchored = memchr(s, '/', n) != NULL;
    if (*s == '/') {
        s++;
        n--;
    }
    struct text t = {0};
    text_puts(&t, anchored ? "" : "**/");
    text_add(&t, s, n);
    rule.pattern = text_take(&t);
    l->rules = mem_room(l->rules, l->n, &l->cap, sizeof *l->rules);
    l->rules[l->n++] = rule;
}

static void read_rules(const struct root *r, struct level *l, const char *file)
{
    struct text t = {0};
    struct stat st;
    if (root_read(r, file, &t, &st, NULL) == 0 && t.len <= 1 << 20)
        for (const char *p = text_str(&t), *end = p + t.len; p < end;) {
            const char *nl = memchr(p, '\n', (size_t)(end - p));
            size_t n = (size_t)((nl ? nl : end) - p);
            add_rule(l, p, n);
            p += n + 1;
        }
    text_free(&t);
}

static void level_open(const struct root *r, struct level *l, const struct level *up, const char *dir)
{
    char name[4400];
    bool top = strcmp(dir, ".") == 0;
    *l = (struct level){.up = up, .base = top ? 0 : strlen(dir) + 1};
    snprintf(name, sizeof name, "%s%s.git/info/exclude", top ? "" : dir, top ? "" : "/");
    read_rules(r, l, name);
    snprintf(name, sizeof name, "%s%s.gitignore", top ? "" : dir, top ? "" : "/");
    read_rules(r, l, name);
}

static void level_close(struct level *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->rules[i].pattern);
    free(l->rules);
}

/* The innermost folder's last rule that matches decides. */
static bool is_ignored(const struct level *l, const char *rel, bool dir)
{
    for (; l; l = l->up)
        for (size_t i = l->n; i-- > 0;)
            if ((dir || !l->rules[i].dir_only) && wild_path(l->rules[i].pattern, rel + l->base))
                return !l->rules[i].not ;
    return false;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **names_of(int fd, size_t *n)
{
    char **list = NULL;
    size_t cap = 0;
    *n = 0;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return NULL;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || strcmp(e->d_name, ".git") == 0)
            continue;
        list = mem_room(list, *n, &cap, sizeof *list);
        list[(*n)++] = mem_dup(e->d_name);
    }
    closedir(d);
    if (*n)
        qsort(list, *n, sizeof *list, by_name);
    return list;
}

static int enter(struct walker *w, const struct level *up, const char *dir, int depth);

static int visit(struct walker *w, const struct level *l, const char *rel, int depth)
{
    struct stat st;
    if (w->stop && atomic_load(w->stop))
        return 1;
    if (++w->seen > WALK_MAX)
        return -1;
    if (fstatat(w->r->fd, rel, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    bool dir = S_ISDIR(st.st_mode);
    if (is_ignored(l, rel, dir)) {
        struct text name = {0};
        text_puts(&name, rel);
        text_puts(&name, dir ? "/" : "");
        int rc = w->ignored ? w->ignored(w->arg, text_str(&name), &st) : 0;
        text_free(&name);
        return rc;
    }
    if (dir)
        return depth < 100 ? enter(w, l, rel, depth + 1) : 0;
    return S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) ? w->fn(w->arg, rel, &st) : 0;
}

static int enter(struct walker *w, const struct level *up, const char *dir, int depth)
{
    struct level l;
    size_t n;
    int rc = 0, fd = root_openat(w->r, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, NULL);
    if (fd < 0)
        return 0;
    char **names = names_of(fd, &n);
    level_open(w->r, &l, up, dir);
    for (size_t i = 0; i < n; i++) {
        char rel[4400];
        int k = strcmp(dir, ".") == 0 ? snprintf(rel, sizeof rel, "%s", names[i])
                                      : snprintf(rel, sizeof rel, "%s/%s", dir, names[i]);
        if (rc == 0 && k < 4096)
            rc = visit(w, &l, rel, depth);
        free(names[i]);
    }
    free(names);
    level_close(&l);
    return rc;
}

/* Levels of the folders above `dir`, outermost first, so that a walk from within knows their rules. */
static size_t levels_above(const struct root *r, const char *dir, struct level *levels, size_t max)
{
    size_t n = 0;
    if (strcmp(dir, ".") == 0)
        return 0;
    bool added = dir[0] == '/'; /* the project's rules are not its */
    if (!added)
        level_open(r, &levels[n++], NULL, ".");
    for (const char *p = strchr(dir + added, '/'); p && n < max; p = strchr(p + 1, '/'), n++) {
        char *part = mem_dupn(dir, (size_t)(p - dir));
        level_open(r, &levels[n], n ? &levels[n - 1] : NULL, part);
        free(part);
    }
    return n;
}

int walk(const struct root *r, const char *from, walk_fn fn, walk_fn ignored, void *arg,
         const atomic_int *stop)
{
    struct walker w = {r, fn, ignored, arg, stop, 0};
    struct level above[64];
    size_t n = levels_above(r, from, above, 64);
    int rc = enter(&w, n ? &above[n - 1] : NULL, from, 0);
    while (n)
        level_close(&above[--n]);
    return rc;
}
