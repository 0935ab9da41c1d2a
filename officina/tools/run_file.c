#include "tools/change.h"
#include "tools/secrets.h"
#include "tools/tools_priv.h"
#include "tools/walk.h"
#include "tools/wild.h"

#include "util/json.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fcntl.h>
#include <stdio.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_LINES = 400,
    READ_BYTES = 16 << 10,
    GREP_HITS = 200,
    GLOB_NAMES = 200,
    LINE_SHOWN = 400,
    GREP_FILE = 8 << 20
};

static void fault(struct reading *k, const char *text)
{
    text_puts(&k->result, text);
    k->outcome = TOOL_FAILED;
}

static const char *next_line(const char *p, const char *end)
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    return nl ? nl + 1 : end;
}

/* A line as the model sees it: without its end, secrets redacted, at most LINE_SHOWN bytes when cut. secret: of a file that
 * holds credentials. */
static void show_line(struct text *out, const char *s, size_t n, bool cut, bool secret, bool *in_key)
{
    while (n && (s[n - 1] == '\n' || s[n - 1] == '\r'))
        n--;
    size_t most = cut ? LINE_SHOWN : READ_BYTES, k = n;
    if (k > most)
        for (k = most; k && ((unsigned char)s[k] & 0xc0) == 0x80;)
            k--;
    if (secret)
        secrets_redact_line(s, k, out, in_key);
    else
        secrets_redact(s, k, out, in_key);
    if (k < n)
        text_printf(out, " […%zu bytes more]", n - k);
    text_puts(out, "\n");
}

/* By its name or, behind a link, by the name of what is read. */
static bool holds_secrets(const struct reading *k, const char *rel)
{
    char *real = root_real(&k->t->root, rel, NULL);
    bool yes = secrets_path(rel) || (real && secrets_path(real));
    free(real);
    return yes;
}

void run_read(struct reading *k)
{
    struct vt_err err;
    char *rel = root_relative(&k->t->root, js_str(k->args, "path"), &err);
    long first = (long)js_int(k->args, "start", 1), want = (long)js_int(k->args, "lines", READ_LINES),
         line = 1;
    bool in_key = false, secret = rel && holds_secrets(k, rel);
    bool raw = js_bool(k->args, "raw", false); /* the model cannot say so: it is not in the schema */
    if (!rel || root_read(&k->t->root, rel, &k->content, NULL, &err) < 0) {
        fault(k, err.text);
        free(rel);
        return;
    }
    k->path = rel;
    const char *p = text_str(&k->content), *end = p + k->content.len;
    long total = (long)change_lines(p, k->content.len);
    if (change_is_binary(p, k->content.len)) {
        text_printf(&k->result, "%s is a binary file of %zu bytes", rel, k->content.len);
        k->outcome = TOOL_FAILED;
        return;
    }
    first = first < 1 ? 1 : first;
    want = want < 1 ? 1 : want > READ_LINES ? READ_LINES : want;
    if (!total || first > total) {
        text_printf(&k->result, total ? "the file has %ld lines" : "the file is empty", total);
        k->outcome = total ? TOOL_FAILED : TOOL_OK;
        return;
    }
    for (; p < end && line < first; line++)
        p = next_line(p, end);
    in_key = secrets_in_key(text_str(&k->content), (size_t)(p - text_str(&k->content)));
    for (; p < end && k->count < want && k->result.len < READ_BYTES; k->count++, line++) {
        const char *next = next_line(p, end);
        if (!raw)
            text_printf(&k->result, "%6ld\t", line);
        show_line(&k->result, p, (size_t)(next - p), false, secret, &in_key);
        p = next;
    }
    k->first = first;
    k->count = raw ? 0 : k->count; /* put into the user's words: not shown as lines */
    if (first > 1 || line <= total)
        text_printf(&k->result, "[lines %ld–%ld of %ld; %ld remain]\n", first, line - 1, total,
                    total - line + 1);
    struct text g = {0};
    text_printf(&g, "%s  %ld–%ld", rel, first, line - 1);
    k->gist = text_take(&g);
}

struct grep {
    struct reading *k;
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    const char *glob;
    const char *named; /* the path that was asked for */
    long context, max, hits, files, heavy;
};

static void grep_hit(struct grep *g, const char *rel, const char *text, size_t len, const char *hit,
                     long line)
{
    const char *end = text + len, *from = hit, *p;
    bool in_key, secret = holds_secrets(g->k, rel);
    long at = line;
    for (long i = 0; i < g->context && from > text; i++, at--) {
        from--;
        while (from > text && from[-1] != '\n')
            from--;
    }
    in_key = secrets_in_key(text, (size_t)(from - text));
    for (p = from; p < end && at <= line + g->context; at++) {
        const char *next = next_line(p, end);
        text_printf(&g->k->result, at == line ? "%s:%ld:" : "%s-%ld-", rel, at);
        show_line(&g->k->result, p, (size_t)(next - p), true, secret, &in_key);
        p = next;
    }
    if (g->context)
        text_puts(&g->k->result, "--\n");
}

static bool glob_fits(const char *glob, const char *rel)
{
    const char *base = strrchr(rel, '/');
    return !glob || wild_path(glob, rel) || (!strchr(glob, '/') && wild_path(glob, base ? base + 1 : rel));
}

static int grep_file(void *arg, const char *rel, const struct stat *st)
{
    struct grep *g = arg;
    struct text t = {0};
    if (!S_ISREG(st->st_mode) || st->st_size > GREP_FILE || !glob_fits(g->glob, rel))
        return 0;
    if (secrets_path(rel) &&
        strcmp(rel, g->named) != 0) /* found on the way; named, it was asked for by that name */
        return 0;
    if (root_read(&g->k->t->root, rel, &t, NULL, NULL) == 0 && !change_is_binary(text_str(&t), t.len)) {
        const char *s = text_str(&t), *p = s, *end = s + t.len;
        long line = 1, before = g->hits;
        for (; p < end && g->hits < g->max && !atomic_load(&g->k->stop); line++) {
            const char *next = next_line(p, end);
            size_t n = (size_t)(next - p) - (next[-1] == '\n');
            int rc = pcre2_match(g->code, (PCRE2_SPTR)p, n, 0, 0, g->data, g->limits);
            if (rc >= 0) {
                grep_hit(g, rel, s, t.len, p, line);
                g->hits++;
            } else if (rc != PCRE2_ERROR_NOMATCH) {
                g->heavy++;
            }
            p = next;
        }
        g->files += g->hits > before;
    }
    text_free(&t);
    return g->hits >= g->max;
}

static void grep_tree(struct grep *g, const char *rel)
{
    g->named = rel;
    struct stat st;
    struct vt_err err;
    int fd = root_openat(&g->k->t->root, rel, O_PATH, &err);
    if (fd < 0 || fstat(fd, &st) < 0) {
        fault(g->k, err.text);
        return;
    }
    close(fd);
    int rc = S_ISDIR(st.st_mode) ? walk(&g->k->t->root, rel, grep_file, NULL, g, &g->k->stop)
                                 : grep_file(g, rel, &st);
    if (!g->hits)
        text_puts(&g->k->result, "no hits\n");
    else if (g->hits >= g->max)
        text_printf(&g->k->result, "[the first %ld hits; there may be more]\n", g->hits);
    if (g->heavy)
        text_printf(&g->k->result, "[%ld lines were given up: the pattern backtracks too much]\n", g->heavy);
    if (rc < 0)
        text_puts(&g->k->result, "[the search ended after 200,000 files; give a path]\n");
}

void run_grep(struct reading *k)
{
    struct vt_err err;
    const char *pattern = js_str(k->args, "pattern"), *path = js_str(k->args, "path");
    struct grep g = {.k = k, .glob = js_str(k->args, "glob"), .context = (long)js_int(k->args, "context", 0)};
    int number;
    PCRE2_SIZE where;
    g.max = (long)js_int(k->args, "max", GREP_HITS);
    g.max = g.max < 1 ? 1 : g.max > GREP_HITS ? GREP_HITS : g.max;
    g.context = g.context < 0 ? 0 : g.context > 10 ? 10 : g.context;
    char *rel = root_relative(&k->t->root, path ? path : ".", &err);
    if (!rel) {
        fault(k, err.text);
        return;
    }
    g.code = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &number,
                           &where, NULL);
    if (!g.code) {
        PCRE2_UCHAR words[160];
        pcre2_get_error_message(number, words, sizeof words);
        text_printf(&k->result, "the pattern is wrong at byte %zu: %s", (size_t)where, (char *)words);
        k->outcome = TOOL_FAILED;
    } else {
        g.data = pcre2_match_data_create_from_pattern(g.code, NULL);
        g.limits = pcre2_match_context_create(NULL);
        pcre2_set_match_limit(g.limits, 100000);
        pcre2_set_depth_limit(g.limits, 10000);
        grep_tree(&g, rel);
        pcre2_match_context_free(g.limits);
        pcre2_match_data_free(g.data);
        pcre2_code_free(g.code);
    }
    struct text gist = {0};
    text_printf(&gist, "\"%s\" %ld hits in %ld files", pattern, g.hits, g.files);
    k->gist = text_take(&gist);
    free(rel);
}

struct name {
    char *rel;
    struct timespec at;
};

struct glob {
    const char *pattern, *base;
    struct name *v;
    size_t n, cap;
};

static int glob_file(void *arg, const char *rel, const struct stat *st)
{
    struct glob *g = arg;
    size_t base = strcmp(g->base, ".") == 0 ? 0 : strlen(g->base) + 1;
    if (!wild_path(g->pattern, rel) && !wild_path(g->pattern, rel + base) &&
        (strchr(g->pattern, '/') || !glob_fits(g->pattern, rel)))
        return 0;
    g->v = mem_room(g->v, g->n, &g->cap, sizeof *g->v);
    g->v[g->n++] = (struct name){mem_dup(rel), st->st_mtim};
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    if (x->at.tv_sec != y->at.tv_sec)
        return x->at.tv_sec < y->at.tv_sec ? 1 : -1;
    if (x->at.tv_nsec != y->at.tv_nsec)
        return x->at.tv_nsec < y->at.tv_nsec ? 1 : -1;
    return strcmp(x->rel, y->rel);
}

void run_glob(struct reading *k)
{
    struct vt_err err;
    const char *path = js_str(k->args, "path");
    char *rel = root_relative(&k->t->root, path ? path : ".", &err);
    if (!rel) {
        fault(k, err.text);
        return;
    }
    struct glob g = {.pattern = js_str(k->args, "pattern"), .base = rel};
    int rc = walk(&k->t->root, rel, glob_file, NULL, &g, &k->stop);
    if (g.n)
        qsort(g.v, g.n, sizeof *g.v, newest_first);
    for (size_t i = 0; i < g.n; i++) {
        if (i < GLOB_NAMES)
            text_printf(&k->result, "%s\n", g.v[i].rel);
        free(g.v[i].rel);
    }
    free(g.v);
    if (!g.n)
        text_puts(&k->result, "no files\n");
    else if (g.n > GLOB_NAMES)
        text_printf(&k->result, "[%zu more]\n", g.n - GLOB_NAMES);
    if (rc < 0)
        text_puts(&k->result, "[the search ended after 200,000 files; give a path]\n");
    struct text gist = {0};
    text_printf(&gist, "%s  %zu files", g.pattern, g.n);
    k->gist = text_take(&gist);
    free(rel);
}

/* ---- write and edit ---- */

static int refuse(struct judged *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct judged *j, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    text_set(&j->reason, text);
    return -1;
}

static int prepare_write(struct tools *t, json_t *args, struct judged *j)
{
    const json_t *content = json_object_get(args, "content");
    long bad;
    text_add(&j->after, json_string_value(content), json_string_length(content));
    if (!j->exists)
        return 0;
    if (!js_bool(args, "replace", false))
        return refuse(j, "%s exists; edit it, or set replace to write it anew", j->path);
    if (j->before.len && !seen_has(t->seen, j->path, text_str(&j->before), j->before.len, 1, -1, &bad))
        return refuse(j,
                      "%s: line %ld was not read, or has changed since; read the file before you replace it",
                      j->path, bad);
    if (j->before.len == j->after.len && memcmp(text_str(&j->before), text_str(&j->after), j->after.len) == 0)
        return refuse(j, "%s has that content already", j->path);
    return 0;
}

static int prepare_edit(struct tools *t, json_t *args, struct judged *j)
{
    struct vt_err err;
    int times;
    long bad;
    struct change_spec c = {js_str(args, "old"), js_str(args, "new"), js_bool(args, "all", false),
                            (long)js_int(args, "start", 0), (long)js_int(args, "end", -1)};
    if (!j->exists)
        return refuse(j, "%s: no such file; write makes new ones", j->path);
    if (c.old && c.start)
        return refuse(j, "give old and new, or start, end and new, not both");
    if (!c.old && (!c.start || !json_object_get(args, "end")))
        return refuse(j, "give old, or start and end");
    if (!c.old && !seen_has(t->seen, j->path, text_str(&j->before), j->before.len, c.start,
                            c.end < c.start ? c.start - 1 : c.end, &bad))
        return refuse(
            j, "%s: line %ld was not read, or has changed since; read these lines before you edit by number",
            j->path, bad);
    if (change_apply(&c, text_str(&j->before), j->before.len, &j->after, &times, &err) < 0)
        return refuse(j, "%s: %s", j->path, err.text);
    return 0;
}

int file_prepare(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j)
{
    struct vt_err err;
    char *rel = root_relative(&t->root, js_str(args, "path"), &err);
    if (!rel)
        return refuse(j, "%s", err.text);
    j->path = root_real(&t->root, rel, &err);
    free(rel);
    if (!j->path)
        return refuse(j, "%s", err.text);
    int rc = root_read(&t->root, j->path, &j->before, NULL, &err);
    if (rc < 0 && err.code != VT_E_NOT_FOUND)
        return refuse(j, "%s", err.text);
    j->exists = rc == 0;
    if ((strcmp(c->name, "write") == 0 ? prepare_write : prepare_edit)(t, args, j) < 0)
        return -1;
    j->change = change_new(j->path, j->exists ? text_str(&j->before) : NULL, j->before.len,
                           text_str(&j->after), j->after.len);
    return 0;
}

void run_write(struct tools *t, const struct tool_call *c, struct judged *j)
{
    struct vt_err err;
    struct text result = {0};
    if (root_write(&t->root, j->path, text_str(&j->after), j->after.len, 0644, &err) < 0) {
        text_puts(&result, err.text);
        tools_done(t, c->id, TOOL_FAILED, &result);
        text_free(&result);
        return;
    }
    seen_changed(t->seen, j->path, text_str(&j->before), j->before.len, text_str(&j->after), j->after.len);
    text_printf(&result, "%s %s: +%d -%d lines\n", j->exists ? "changed" : "wrote", j->path, j->change->added,
                j->change->removed);
    struct event e = {.kind = EV_TOOL_DONE,
                      .id = c->id,
                      .n = TOOL_OK,
                      .text = text_str(&result),
                      .len = result.len,
                      .name = j->gist,
                      .changes = j->change,
                      .n_changes = 1};
    j->change = NULL;
    tools_emit(t, &e);
    text_free(&result);
}
