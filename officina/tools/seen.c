#include "tools/seen.h"

#include "hash.h"
#include "util/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct file {
    char *path;
    uint64_t *lines; /* hash of line i + 1; 0: not shown */
    size_t n;
    bool changed; /* since seen_changes() */
};

struct seen {
    struct file *files;
    size_t n, cap;
};

struct seen *seen_new(void)
{
    return mem_new(sizeof(struct seen));
}

void seen_clear(struct seen *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->files[i].path);
        free(s->files[i].lines);
    }
    s->n = 0;
}

void seen_free(struct seen *s)
{
    if (!s)
        return;
    seen_clear(s);
    free(s->files);
    free(s);
}

static struct file *find(const struct seen *s, const char *path)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->files[i].path, path) == 0)
            return &s->files[i];
    return NULL;
}

static struct file *add(struct seen *s, const char *path)
{
    struct file *f = find(s, path);
    if (f)
        return f;
    s->files = mem_room(s->files, s->n, &s->cap, sizeof *s->files);
    f = &s->files[s->n++];
    *f = (struct file){.path = mem_dup(path)};
    return f;
}

void seen_put(struct seen *s, const char *path, const uint64_t *lines, size_t n)
{
    struct file *f = add(s, path);
    free(f->lines);
    f->lines = mem_new((n + 1) * sizeof *f->lines);
    if (n)
        memcpy(f->lines, lines, n * sizeof *f->lines);
    f->n = n;
}

void seen_changes(struct seen *s, seen_sink sink, void *arg)
{
    for (size_t i = 0; i < s->n; i++) {
        struct file *f = &s->files[i];
        if (f->changed)
            sink(arg, f->path, f->lines, f->n);
        f->changed = false;
    }
}

static uint64_t hash(const char *s, size_t n)
{
    uint8_t h[VT_XXH128_LEN];
    uint64_t v;
    vt_xxh128(s, n, h);
    memcpy(&v, h, sizeof v);
    return v ? v : 1;
}

/* Hashes of all lines; the caller frees. */
static uint64_t *hashes(const char *s, size_t len, size_t *n)
{
    uint64_t *out = NULL;
    size_t cap = 0;
    *n = 0;
    for (size_t i = 0; i < len;) {
        const char *nl = memchr(s + i, '\n', len - i);
        size_t k = nl ? (size_t)(nl - s) + 1 - i : len - i;
        out = mem_room(out, *n, &cap, sizeof *out);
        out[(*n)++] = hash(s + i, k);
        i += k;
    }
    return out;
}

void seen_show(struct seen *s, const char *path, const char *content, size_t len, long first, long count)
{
    struct file *f = add(s, path);
    size_t n;
    uint64_t *all = hashes(content, len, &n);
    if (f->n < n) {
        f->lines = mem_grow(f->lines, n * sizeof *f->lines);
        memset(f->lines + f->n, 0, (n - f->n) * sizeof *f->lines);
        f->n = n;
    }
    for (long i = first; i < first + count && i <= (long)n; i++)
        f->lines[i - 1] = all[i - 1];
    f->changed = true;
    free(all);
}

bool seen_has(const struct seen *s, const char *path, const char *content, size_t len, long first, long last,
              long *bad)
{
    const struct file *f = find(s, path);
    size_t n;
    uint64_t *all = hashes(content, len, &n);
    if (last < 0)
        last = (long)n;
    long i = first;
    while (i <= last && f && i <= (long)n && i <= (long)f->n && f->lines[i - 1] == all[i - 1])
        i++;
    free(all);
    *bad = i;
    return i > last;
}

void seen_changed(struct seen *s, const char *path, const char *before, size_t len, const char *after,
                  size_t alen)
{
    struct file *f = find(s, path);
    size_t n, m, pre = 0, post = 0;
    uint64_t *a = hashes(before, len, &n), *b = hashes(after, alen, &m);
    while (pre < n && pre < m && a[pre] == b[pre])
        pre++;
    while (post < n - pre && post < m - pre && a[n - 1 - post] == b[m - 1 - post])
        post++;
    for (size_t i = 0; i < m; i++) {
        size_t was = i < pre ? i : i >= m - post ? i + n - m : SIZE_MAX;
        if (was != SIZE_MAX && (!f || was >= f->n || f->lines[was] != a[was]))
            b[i] = 0; /* it was not known before, and was not written now */
    }
    f = add(s, path);
    free(f->lines);
    f->lines = b;
    f->n = m;
    f->changed = true;
    free(a);
}
