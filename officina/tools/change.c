#include "tools/change.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The text with LF line ends, and for each of its bytes (and its end) where it begins in the original. */
struct folded {
    char *s;
    size_t *at, n;
};

static struct folded fold(const char *in, size_t len)
{
    struct folded f = {mem_new(len + 1), mem_new((len + 1) * sizeof(size_t)), 0};
    for (size_t i = 0; i < len; i++) {
        f.at[f.n] = i;
        if (in[i] == '\r' && i + 1 < len && in[i + 1] == '\n')
            i++;
        f.s[f.n++] = in[i];
    }
    f.at[f.n] = len;
    return f;
}

static void folded_free(struct folded *f)
{
    free(f->s);
    free(f->at);
}

bool change_is_binary(const char *s, size_t n)
{
    return memchr(s, 0, n < 8192 ? n : 8192) != NULL;
}

size_t change_lines(const char *s, size_t n)
{
    size_t lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += s[i] == '\n';
    return lines + (n && s[n - 1] != '\n');
}

static bool crlf_at(const char *in, size_t at, size_t len)
{
    return at + 1 < len && in[at] == '\r' && in[at + 1] == '\n';
}

/* Form of the newline at or before folded byte i, else of the first one behind: true = CRLF. */
static bool form_near(const struct folded *f, const char *in, size_t len, size_t i)
{
    for (size_t k = i; k-- > 0;)
        if (f->s[k] == '\n')
            return crlf_at(in, f->at[k], len);
    for (size_t k = i; k < f->n; k++)
        if (f->s[k] == '\n')
            return crlf_at(in, f->at[k], len);
    return false;
}

/* Puts new (LF form) in the place of folded bytes [a, b). */
static void put(struct text *out, const struct folded *f, const char *in, size_t len, size_t a, size_t b,
                const char *new, size_t n)
{
    size_t src = a;
    bool form = form_near(f, in, len, a);
    for (size_t i = 0; i < n; i++) {
        if (new[i] != '\n') {
            text_add(out, new + i, 1);
            continue;
        }
        while (src < b && f->s[src] != '\n')
            src++;
        if (src < b)
            form = crlf_at(in, f->at[src++], len);
        text_puts(out, form ? "\r\n" : "\n");
    }
}

static size_t line_of(const struct folded *f, size_t at)
{
    return change_lines(f->s, at) + (at == 0 || f->s[at - 1] == '\n');
}

static int not_once(const struct folded *f, const char *old, size_t n, int times, struct vt_err *err)
{
    if (!times)
        return vt_fail(err, VT_E_PARAM, "the old text is not in the file; read it again and copy it exactly");
    struct text where = {0};
    int shown = 0;
    for (size_t i = 0; i + n <= f->n && shown < 8; i++)
        if (memcmp(f->s + i, old, n) == 0) {
            text_printf(&where, "%s%zu", shown++ ? ", " : "", line_of(f, i));
            i += n - 1;
        }
    vt_fail(err, VT_E_PARAM, "the old text occurs %d times (lines %s%s); give more of it, or set all", times,
            text_str(&where), times > shown ? ", …" : "");
    text_free(&where);
    return -1;
}

static int by_text(const struct change_spec *c, const struct folded *f, const char *in, size_t len,
                   struct text *out, int *times, struct vt_err *err)
{
    struct folded old = fold(c->old, strlen(c->old)), new = fold(c->new, strlen(c->new));
    size_t pre = 0, post = 0, from = 0;
    int rc = -1, count = 0;
    for (size_t i = 0; old.n && i + old.n <= f->n; i++)
        if (memcmp(f->s + i, old.s, old.n) == 0) {
            count++;
            i += c->all ? old.n - 1 : 0; /* places that overlap are two places */
        }
    if (!old.n)
        vt_fail(err, VT_E_PARAM, "the old text is empty; use write for a new file, or start and end");
    else if (old.n == new.n && memcmp(old.s, new.s, old.n) == 0)
        vt_fail(err, VT_E_PARAM, "the old and the new text are the same");
    else if (!count || (count > 1 && !c->all))
        not_once(f, old.s, old.n, count, err);
    else
        rc = 0;
    size_t most = old.n < new.n ? old.n : new.n;
    while (pre < most && old.s[pre] == new.s[pre])
        pre++;
    while (post < most - pre && old.s[old.n - 1 - post] == new.s[new.n - 1 - post])
        post++;
    for (size_t i = 0; rc == 0 && i + old.n <= f->n; i++) {
        if (memcmp(f->s + i, old.s, old.n) != 0)
            continue;
        size_t a = i + pre, b = i + old.n - post;
        text_add(out, in + from, f->at[a] - from);
        put(out, f, in, len, a, b, new.s + pre, new.n - pre - post);
        from = f->at[b];
        i += old.n - 1;
    }
    if (rc == 0)
        text_add(out, in + from, len - from);
    *times = count;
    folded_free(&old);
    folded_free(&new);
    return rc;
}

/* Folded offset of the beginning of a line; lines + 1 is the end. */
static size_t line_start(const struct folded *f, long line)
{
    size_t at = 0;
    for (long k = 1; k < line && at < f->n; k++) {
        const char *nl = memchr(f->s + at, '\n', f->n - at);
        at = nl ? (size_t)(nl - f->s) + 1 : f->n;
    }
    return at;
}

static int by_lines(const struct change_spec *c, const struct folded *f, const char *in, size_t len,
                    struct text *out, struct vt_err *err)
{
    long lines = (long)change_lines(f->s, f->n);
    if (c->start < 1 || c->end < c->start - 1 || c->end > lines || c->start > lines + 1)
        return vt_fail(err, VT_E_PARAM, "no lines %ld to %ld: the file has %ld", c->start, c->end, lines);
    size_t a = line_start(f, c->start), b = line_start(f, c->end + 1);
    struct folded new = fold(c->new, strlen(c->new));
    text_add(out, in, f->at[a]);
    bool form = form_near(f, in, len, a);
    if (a == f->n && a && f->s[a - 1] != '\n' && new.n)
        text_puts(out, form ? "\r\n" : "\n"); /* behind a last line without an end */
    put(out, f, in, len, a, b, new.s, new.n);
    /* what was whole lines stays whole lines */
    bool ended = (b > a && f->s[b - 1] == '\n') || (a == b && a < f->n);
    if (ended && new.n &&new.s[new.n - 1] != '\n')
        text_puts(out, b > a && crlf_at(in, f->at[b - 1], len) ? "\r\n"
                       : b > a                                 ? "\n"
                       : form                                  ? "\r\n"
                                                               : "\n");
    text_add(out, in + f->at[b], len - f->at[b]);
    folded_free(&new);
    return 0;
}

int change_apply(const struct change_spec *c, const char *in, size_t len, struct text *out, int *times,
                 struct vt_err *err)
{
    if (change_is_binary(in, len))
        return vt_fail(err, VT_E_PARAM, "this is a binary file; it cannot be edited as text");
    struct folded f = fold(in, len);
    *times = 1;
    int rc = c->old ? by_text(c, &f, in, len, out, times, err) : by_lines(c, &f, in, len, out, err);
    folded_free(&f);
    return rc;
}

struct line {
    const char *s;
    size_t n;
};

static struct line *split(const char *s, size_t n, size_t *count)
{
    size_t lines = change_lines(s, n), k = 0;
    struct line *l = mem_new((lines + 1) * sizeof *l);
    for (size_t i = 0; i < n; k++) {
        const char *nl = memchr(s + i, '\n', n - i);
        size_t len = nl ? (size_t)(nl - s) + 1 - i : n - i;
        l[k] = (struct line){s + i, len};
        i += len;
    }
    *count = lines;
    return l;
}

static bool same(const struct line *a, const struct line *b)
{
    return a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
}

/* Length of the longest common subsequence, with one row of memory. */
static size_t common(const struct line *a, size_t n, const struct line *b, size_t m)
{
    uint32_t *row = mem_new((m + 1) * sizeof *row), last, up;
    for (size_t i = 0; i < n; i++) {
        last = 0;
        for (size_t k = 0; k < m; k++) {
            up = row[k + 1];
            if (same(&a[i], &b[k]))
                row[k + 1] = last + 1;
            else if (row[k] > up)
                row[k + 1] = row[k];
            last = up;
        }
    }
    size_t best = row[m];
    free(row);
    return best;
}

void change_count(struct file_change *c)
{
    size_t n, m, pre = 0, post = 0, kept = 0;
    struct line *a = split(c->before ? c->before : "", c->before_len, &n);
    struct line *b = split(c->after ? c->after : "", c->after_len, &m);
    while (pre < n && pre < m && same(&a[pre], &b[pre]))
        pre++;
    while (post < n - pre && post < m - pre && same(&a[n - 1 - post], &b[m - 1 - post]))
        post++;
    n -= pre + post;
    m -= pre + post;
    if (n * m <= 4000000)
        kept = common(a + pre, n, b + pre, m);
    c->removed = (int)(n - kept);
    c->added = (int)(m - kept);
    free(a);
    free(b);
}

static char *copy(const char *s, size_t n)
{
    return s ? mem_dupn(s, n) : NULL;
}

static size_t count_crlf(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i + 1 < n; i++)
        k += s[i] == '\r' && s[i + 1] == '\n';
    return k;
}

struct file_change *change_new(const char *path, const char *before, size_t before_len, const char *after,
                               size_t after_len)
{
    struct file_change *c = mem_new(sizeof *c);
    c->path = mem_dup(path);
    c->before = copy(before, before_len);
    c->after = copy(after, after_len);
    c->before_len = before ? before_len : 0;
    c->after_len = after ? after_len : 0;
    change_count(c);
    if (before && after) {
        size_t x = count_crlf(before, before_len), y = count_crlf(after, after_len);
        if (x && !y)
            c->remark = mem_dup("line ends change from CRLF to LF");
        else if (!x && y && before_len)
            c->remark = mem_dup("line ends change from LF to CRLF");
    }
    return c;
}
