/* Memory: what was said and shown, found again by words or by number. */
#include "store/store_priv.h"
#include "util/file.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SNIPPETS   5
#define LINES_MOST 400
#define BYTES_MOST 16384
#define OUTPUT_MAX (64u * 1024u * 1024u)

/* The user's words as a query that cannot be wrong: each word quoted. */
static char *query_of(const char *words, const char *join)
{
    struct text t = {0};
    while (*words != '\0') {
        size_t n = strcspn(words, " \t\n\"");
        if (n != 0) {
            text_printf(&t, "%s\"%.*s\"", t.len != 0 ? join : "", (int)n, words);
        }
        words += n;
        words += strspn(words, " \t\n\"");
    }
    return text_take(&t);
}

static int search(struct store *s, int64_t project, const char *query, struct text *out)
{
    int found = 0;
    sqlite3_stmt *st = sql_prepare(
        s, NULL,
        "SELECT memory.ref, memory.session, memory.title, snippet(memory, 1, '', '', ' … ', 64), "
        "session.title "
        "FROM memory JOIN session ON session.id = memory.session WHERE memory MATCH ? AND project = ? "
        "ORDER BY bm25(memory) LIMIT ?",
        "sii", query, project, (int64_t)SNIPPETS);
    while (st != NULL && sqlite3_step(st) == SQLITE_ROW) {
        const char *title = (const char *)sqlite3_column_text(st, 2);
        text_printf(out, "[%s of %s] %s\n%s\n\n", (const char *)sqlite3_column_text(st, 0),
                    (const char *)sqlite3_column_text(st, 1), title != NULL ? title : "",
                    (const char *)sqlite3_column_text(st, 3));
        found++;
    }
    sqlite3_finalize(st);
    return found;
}

static void lines_of(struct text *out, const char *s, size_t n, int64_t start, int64_t lines)
{
    int64_t at = 1, total = 0;
    size_t begin = out->len;
    for (size_t i = 0; i < n; i++)
        total += s[i] == '\n';
    total += n != 0 && s[n - 1] != '\n';
    const char *end = s + n;
    while (s < end && at < start + lines) {
        const char *nl = memchr(s, '\n', (size_t)(end - s));
        size_t len = nl != NULL ? (size_t)(nl - s) : (size_t)(end - s);
        if (at >= start) {
            if (out->len - begin + len > BYTES_MOST)
                break;
            char *good = utf8_mend(s, len);
            text_printf(out, "%s\n", good);
            free(good);
        }
        s += len + 1;
        at++;
    }
    if (at <= total)
        text_printf(out, "[… lines %lld–%lld of %lld follow]", (long long)at, (long long)total,
                    (long long)total);
}

/* "m-0123" of this conversation, or "o-31" of the stored outputs. */
static int by_id(struct store *s, const char *session, const char *id, int64_t start, int64_t lines,
                 const char *outputs, struct text *out)
{
    char *end;
    long long number = strlen(id) > 2 && id[1] == '-' ? strtoll(id + 2, &end, 10) : -1;
    if (number <= 0 || *end != '\0' || (id[0] != 'm' && id[0] != 'o')) {
        text_printf(out, "\"%.40s\" is no id; ids look like m-0123 or o-31", id);
        return -1;
    }
    struct text t = {0};
    if (id[0] == 'o') {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/o-%lld", outputs, number);
        if (file_read(path, OUTPUT_MAX + 65536, &t, NULL) < 0) {
            text_printf(out, "there is no stored output o-%lld (any more: old ones are removed)", number);
            text_free(&t);
            return -1;
        }
    } else {
        char *body =
            sql_str(s, "SELECT body FROM item WHERE id = ?", "i", ROW(session_num(s, session), number));
        if (body == NULL) {
            text_printf(out, "there is no m-%04lld in this conversation", number);
            return -1;
        }
        text_set(&t, body);
        free(body);
    }
    lines_of(out, text_str(&t), t.len, start, lines);
    text_free(&t);
    return 0;
}

int store_recall(struct store *s, int64_t project, const char *session, const char *args, const char *outputs,
                 struct text *out)
{
    json_t *o = js_parse(args, strlen(args), NULL, 0);
    const char *query = js_str(o, "query"), *id = js_str(o, "id");
    int64_t start = js_int(o, "start", 1), lines = js_int(o, "lines", LINES_MOST);
    int rc = 0;
    if (id != NULL) {
        rc = by_id(s, session, id, start > 0 ? start : 1,
                   lines > 0 && lines < LINES_MOST ? lines : LINES_MOST, outputs, out);
    } else if (query != NULL) {
        char *all = query_of(query, " "), *any = query_of(query, " OR ");
        if (all[0] != '\0' && search(s, project, all, out) == 0)
            search(s, project, any, out);
        if (out->len == 0)
            text_puts(out, "nothing found");
        free(all);
        free(any);
    } else {
        text_puts(out, "give a query or an id");
        rc = -1;
    }
    json_decref(o);
    return rc;
}
