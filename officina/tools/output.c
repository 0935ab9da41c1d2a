#include "tools/output.h"

#include "tools/secrets.h"
#include "util/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>

enum { MAX_FILE = 64 << 20, MAX_LINE = 64 << 10 };

struct output {
    struct text line;        /* of the program, not yet ended */
    struct text head, tail;  /* cleaned; the tail is cut to twice its limit now and then */
    struct text news;        /* since the last look */
    size_t limit, tail_from; /* tail_from: bytes of clean text before the tail's begin */
    size_t head_lines, tail_lines;
    size_t bytes, lines, file_bytes, dropped, bad, secrets;
    bool in_key, kept;
    int fd;
    int64_t number;
    char *path;
};

size_t output_limit(int64_t window)
{
    size_t most = 30000;
    /* a token is about four bytes of such text */
    if (window > 0 && (size_t)window * 4 * 8 / 100 < most)
        most = (size_t)window * 4 * 8 / 100;
    return most < 2000 ? 2000 : most;
}

struct kept {
    int64_t number;
    uint64_t bytes;
};

static int by_number(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

int64_t output_tidy(const char *dir, uint64_t bytes, size_t files, int64_t first)
{
    struct kept *v = NULL;
    size_t n = 0, cap = 0;
    uint64_t sum = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (strncmp(e->d_name, "o-", 2) != 0 || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        v = mem_room(v, n, &cap, sizeof *v);
        v[n++] = (struct kept){atoll(e->d_name + 2), (uint64_t)st.st_size};
        sum += (uint64_t)st.st_size;
    }
    if (n)
        qsort(v, n, sizeof *v, by_number);
    for (size_t i = 0; i < n && (sum > bytes || n - i > files) && v[i].number < first; i++) {
        char name[32];
        snprintf(name, sizeof name, "o-%lld", (long long)v[i].number);
        unlinkat(dirfd(d), name, 0);
        sum -= v[i].bytes;
    }
    int64_t best = n ? v[n - 1].number : 0;
    if (d)
        closedir(d);
    free(v);
    return best;
}

struct output *output_new(const char *dir, size_t limit, struct vt_err *err)
{
    if (file_own_dir(dir, err) < 0)
        return NULL;
    struct output *o = mem_new(sizeof *o);
    struct text t = {0};
    o->limit = limit;
    o->number = output_tidy(dir, UINT64_MAX, SIZE_MAX, 0);
    output_tidy(dir, OUTPUTS_BYTES, OUTPUTS_FILES, o->number - OUTPUTS_SPARED);
    do { /* another Officina may have taken the number */
        text_clear(&t);
        text_printf(&t, "%s/o-%lld", dir, (long long)++o->number);
        o->fd = open(text_str(&t), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (o->fd < 0 && errno == EEXIST);
    o->path = text_take(&t);
    if (o->fd >= 0)
        return o;
    vt_fail_errno(err, VT_E_IO, "the output cannot be stored in %s", dir);
    output_free(o);
    return NULL;
}

void output_free(struct output *o)
{
    if (!o)
        return;
    if (o->fd >= 0) {
        close(o->fd);
        if (!o->kept)
            unlink(o->path);
    }
    text_free(&o->line);
    text_free(&o->head);
    text_free(&o->tail);
    text_free(&o->news);
    free(o->path);
    free(o);
}

/* Length of the control sequence at s (ESC and what belongs to it). */
static size_t escape(const char *s, size_t n)
{
    size_t i = 1;
    if (i >= n)
        return n;
    if (s[i] == '[') {
        for (i++; i < n && !(s[i] >= 0x40 && s[i] <= 0x7e); i++)
            ;
        return i < n ? i + 1 : n;
    }
    if (strchr("]PX^_", s[i])) {
        for (i++; i < n && s[i] != '\a' && !(s[i] == '\033' && i + 1 < n && s[i + 1] == '\\'); i++)
            ;
        return i >= n ? n : s[i] == '\a' ? i + 1 : i + 2;
    }
    while (i < n && s[i] >= 0x20 && s[i] <= 0x2f)
        i++;
    return i < n ? i + 1 : n;
}

/* Without controls and bad bytes. */
static size_t plain(const char *s, size_t n, struct text *out)
{
    size_t bad = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        utf8proc_int32_t cp;
        if (c == 033) {
            i += escape(s + i, n - i);
        } else if (c == '\b') {
            while (out->len && ((unsigned char)out->s[out->len - 1] & 0xc0) == 0x80)
                out->len--;
            out->len -= out->len > 0;
            i++;
        } else if (c < 0x20 || c == 0x7f) {
            if (c == '\t')
                text_add(out, s + i, 1);
            i++;
        } else if (c < 0x80) {
            text_add(out, s + i++, 1);
        } else {
            utf8proc_ssize_t k =
                utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &cp);
            bool control = k > 0 && cp >= 0x80 && cp < 0xa0;
            if (k <= 0) {
                text_puts(out, "\xef\xbf\xbd");
                bad++;
            } else if (!control) {
                text_add(out, s + i, (size_t)k);
            }
            i += k > 0 ? (size_t)k : 1;
        }
    }
    if (out->s)
        out->s[out->len] = 0;
    return bad;
}

static void clean_line(const char *s, size_t n, struct text *out, bool *in_key, size_t *bad, size_t *secrets)
{
    struct text t = {0};
    if (n && s[n - 1] == '\r')
        n--;
    const char *cr = n ? memrchr(s, '\r', n) : NULL;
    if (cr) {
        n -= (size_t)(cr + 1 - s);
        s = cr + 1;
    }
    *bad += plain(s, n, &t);
    *secrets += (size_t)secrets_redact(text_str(&t), t.len, out, in_key);
    text_free(&t);
}

void output_clean(const char *s, size_t n, struct text *out)
{
    bool in_key = false;
    size_t bad = 0, secrets = 0;
    for (size_t i = 0; i < n;) {
        const char *nl = memchr(s + i, '\n', n - i);
        size_t k = nl ? (size_t)(nl - s) - i : n - i;
        clean_line(s + i, k, out, &in_key, &bad, &secrets);
        if (nl)
            text_puts(out, "\n");
        i += k + 1;
    }
}

static void keep(struct output *o, const char *s, size_t n)
{
    size_t head = o->limit * 2 / 5, tail = o->limit - head;
    if (o->file_bytes + n <= MAX_FILE) {
        if (write(o->fd, s, n) == (ssize_t)n)
            o->file_bytes += n;
        else
            o->dropped += n;
    } else {
        o->dropped += n;
    }
    o->bytes += n;
    o->lines++;
    if (!o->tail.len && !o->tail_from && o->head.len + n <= head) {
        text_add(&o->head, s, n);
        o->head_lines++;
    } else {
        text_add(&o->tail, s, n);
        o->tail_lines++;
    }
    text_add(&o->news, s, n);
    if (o->news.len > 4 * o->limit)
        text_replace(&o->news, 0, o->news.len - 2 * o->limit, "", 0);
    if (o->tail.len <= 2 * tail)
        return;
    size_t cut = 0;
    while (o->tail.len - cut > tail) {
        const char *nl = memchr(o->tail.s + cut, '\n', o->tail.len - cut);
        if (!nl || nl + 1 == o->tail.s + o->tail.len) { /* of one long line the end */
            cut = o->tail.len - tail;
            while (cut < o->tail.len && ((unsigned char)o->tail.s[cut] & 0xc0) == 0x80)
                cut++;
            break;
        }
        cut = (size_t)(nl - o->tail.s) + 1;
        o->tail_lines--;
    }
    text_replace(&o->tail, 0, cut, "", 0);
    o->tail_from += cut;
}

static void end_line(struct output *o, bool newline)
{
    struct text t = {0};
    clean_line(text_str(&o->line), o->line.len, &t, &o->in_key, &o->bad, &o->secrets);
    bool hidden = o->in_key && !t.len;
    if (newline)
        text_puts(&t, "\n");
    if (t.len && !hidden)
        keep(o, t.s, t.len);
    text_free(&t);
    text_clear(&o->line);
}

void output_add(struct output *o, const char *bytes, size_t n)
{
    while (n) {
        const char *nl = memchr(bytes, '\n', n);
        size_t k = nl ? (size_t)(nl - bytes) : n;
        text_add(&o->line, bytes, k);
        bytes += k + (nl != NULL);
        n -= k + (nl != NULL);
        if (nl) {
            end_line(o, true);
        } else if (o->line.len > MAX_LINE) {
            const char *cr = memrchr(o->line.s, '\r', o->line.len);
            if (cr) /* a progress line: only its newest state is of use */
                text_replace(&o->line, 0, (size_t)(cr - o->line.s) + 1, "", 0);
            else
                end_line(o, true);
        }
    }
}

int64_t output_lines(const struct output *o)
{
    return (int64_t)o->lines;
}

int64_t output_result(struct output *o, struct text *out)
{
    if (o->line.len)
        end_line(o, false);
    size_t tail = o->limit - o->limit * 2 / 5, cut = 0, gone = 0;
    while (o->tail.len - cut > tail) {
        const char *nl = memchr(o->tail.s + cut, '\n', o->tail.len - cut);
        size_t next =
            nl && nl + 1 < o->tail.s + o->tail.len ? (size_t)(nl - o->tail.s) + 1 : o->tail.len - tail;
        while (next < o->tail.len && ((unsigned char)o->tail.s[next] & 0xc0) == 0x80)
            next++;
        cut = next;
        gone++;
    }
    size_t left = o->lines - o->head_lines - o->tail_lines + gone;
    bool whole = !cut && !o->tail_from;
    text_add(out, text_str(&o->head), o->head.len);
    if (!whole) {
        text_printf(out, "[… %zu lines left out; recall id o-%lld, lines %zu–%zu …]\n", left,
                    (long long)o->number, o->head_lines + 1, o->head_lines + left);
        o->kept = true;
    }
    text_add(out, text_str(&o->tail) + cut, o->tail.len - cut);
    if (o->dropped)
        text_printf(out, "\n[%zu bytes were not stored: more than 64 MiB]", o->dropped);
    if (o->bad)
        text_printf(out, "\n[%zu bytes that are no UTF-8 were replaced]", o->bad);
    if (o->secrets)
        text_printf(out, "\n[%zu secrets were redacted]", o->secrets);
    return whole ? 0 : o->number;
}

void output_news(struct output *o, struct text *out)
{
    size_t cut = o->news.len > o->limit ? o->news.len - o->limit : 0;
    const char *nl = cut ? memchr(o->news.s + cut, '\n', o->news.len - cut) : NULL;
    if (nl)
        cut = (size_t)(nl - o->news.s) + 1;
    if (cut)
        text_puts(out, "[… earlier output left out …]\n");
    text_add(out, text_str(&o->news) + cut, o->news.len - cut);
    text_clear(&o->news);
}
