#include "ext/template.h"

#include "util/text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct fill {
    const char *arguments;
    char **words;
    size_t n_words;
    struct template_part *parts;
    size_t n, cap, calls;
    struct vt_err *err;
};

char **template_words(const char *s)
{
    char **v = NULL;
    size_t n = 0, cap = 0;
    while (*s) {
        s += strspn(s, " \t,");
        bool quoted = *s == '"';
        size_t k = quoted ? strcspn(s + 1, "\"") : strcspn(s, " \t,");
        if (!*s)
            break;
        v = mem_room(v, n, &cap, sizeof *v);
        v[n++] = mem_dupn(s + quoted, k);
        s += k + quoted;
        s += quoted && *s == '"';
    }
    v = mem_room(v, n, &cap, sizeof *v);
    v[n] = NULL;
    return v;
}

void template_free(struct template_part *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(parts[i].text);
    free(parts);
}

static void add(struct fill *f, enum template_kind kind, struct text *t)
{
    if (kind != TEMPLATE_TEXT || t->len) {
        f->parts = mem_room(f->parts, f->n, &f->cap, sizeof *f->parts);
        f->parts[f->n++] = (struct template_part){kind, mem_dup(text_str(t))};
    }
    text_clear(t);
}

/* ---- arguments ---- */

/* Length of $1 … $9 or $ARGUMENTS at s, 0: none stands there. word: its index, or -1 for all. */
static size_t argument_at(const char *s, int *word)
{
    *word = -1;
    if (strncmp(s, "$ARGUMENTS", 10) == 0)
        return 10;
    if (s[0] != '$' || s[1] < '1' || s[1] > '9')
        return 0;
    *word = s[1] - '1';
    return 2;
}

static const char *value(const struct fill *f, int word)
{
    return word < 0 ? f->arguments : (size_t)word < f->n_words ? f->words[word] : "";
}

static void put_quoted(struct text *out, const char *s)
{
    text_puts(out, "'");
    for (; *s; s++)
        if (*s == '\'')
            text_puts(out, "'\\''");
        else
            text_add(out, s, 1);
    text_puts(out, "'");
}

/* Characters that mean nothing to a shell wherever they stand. */
static bool plain(const char *s)
{
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("_./:=@+-", *s))
            return false;
    return true;
}

enum place { BARE, IN_DOUBLE, IN_SINGLE };

static int put_argument(struct fill *f, struct text *out, int word, enum place place, bool nested)
{
    const char *v = value(f, word);
    for (const char *p = v; *p; p++)
        if (iscntrl((unsigned char)*p))
            return vt_fail(f->err, VT_E_USAGE,
                           "an argument with a line break or another control character cannot stand in a "
                           "shell line (!{…})");
    if (plain(v)) {
        text_puts(out, *v || word < 0 || (size_t)word >= f->n_words || place != BARE || nested ? v : "''");
    } else if (nested) {
        return vt_fail(f->err, VT_E_USAGE,
                       "the argument %.60s cannot be quoted where the command uses it: inside $(…), `…` or "
                       "a here-document only letters, digits and _./:=@+- may stand",
                       v);
    } else if (place == IN_DOUBLE) {
        for (; *v; v++) {
            if (strchr("\"\\$`", *v))
                text_puts(out, "\\");
            text_add(out, v, 1);
        }
    } else if (word < 0) {
        for (size_t i = 0; i < f->n_words; i++) {
            text_puts(out, i ? " " : "");
            put_quoted(out, f->words[i]);
        }
    } else {
        put_quoted(out, v);
    }
    return 0;
}

/* ---- !{…} and @{…} ---- */

/* The end of what began behind {: the brace that closes it, quotes and inner braces left over. NULL: none. */
static const char *closing(const char *s)
{
    int depth = 0;
    for (char quote = 0; *s; s++) {
        if (*s == '\\' && quote != '\'' && s[1])
            s++;
        else if (quote)
            quote = *s == quote ? 0 : quote;
        else if (*s == '\'' || *s == '"')
            quote = *s;
        else if (*s == '{')
            depth++;
        else if (*s == '}' && depth-- == 0)
            return s;
    }
    return NULL;
}

static int shell_part(struct fill *f, const char *s, const char *end, struct text *out)
{
    enum place place = BARE;
    bool nested = false;
    while (s < end) {
        int word;
        size_t k = place != IN_SINGLE ? argument_at(s, &word) : 0; /* as for the shell itself */
        if (k && s + k <= end) {
            if (put_argument(f, out, word, place, nested) < 0)
                return -1;
            s += k;
            continue;
        }
        size_t take = *s == '\\' && place != IN_SINGLE && s + 1 < end ? 2 : 1;
        if (place == BARE && *s == '#' && (out->len == 0 || strchr(" \t\n;&|(", out->s[out->len - 1])))
            nested = true; /* quotes of a comment are none */
        if (take == 1 && place != IN_SINGLE)
            nested = nested || *s == '`' || strncmp(s, "$(", 2) == 0 || strncmp(s, "${", 2) == 0 ||
                     strncmp(s, "$'", 2) == 0 || strncmp(s, "<<", 2) == 0;
        if (take == 1 && *s == '"' && place != IN_SINGLE)
            place = place == IN_DOUBLE ? BARE : IN_DOUBLE;
        else if (*s == '\'' && take == 1 && place != IN_DOUBLE)
            place = place == IN_SINGLE ? BARE : IN_SINGLE;
        text_add(out, s, take);
        s += take;
    }
    return 0;
}

static int file_part(struct fill *f, const char *s, const char *end, struct text *out)
{
    while (s < end) {
        int word;
        size_t k = argument_at(s, &word);
        if (k)
            text_puts(out, value(f, word));
        else
            text_add(out, s, 1);
        s += k ? k : 1;
    }
    return 0;
}

/* At !{ or @{. Fills *end with what stands behind it. */
static int call_part(struct fill *f, const char *s, const char **end)
{
    struct text t = {0};
    bool shell = *s == '!';
    const char *from = s + 2, *to = shell ? closing(from) : strchr(from, '}');
    if (!to)
        return vt_fail(f->err, VT_E_CONFIG, "the command's %.40s… is not closed by a }", s);
    if (++f->calls > TEMPLATE_CALLS)
        return vt_fail(f->err, VT_E_CONFIG, "the command has more than %d !{…} and @{…}", TEMPLATE_CALLS);
    int rc = shell ? shell_part(f, from, to, &t) : file_part(f, from, to, &t);
    if (rc == 0 && text_str(&t)[strspn(text_str(&t), " \t\n")] == '\0')
        rc = vt_fail(f->err, VT_E_USAGE, "%.40s of the command is empty: it needs an argument", s);
    if (rc == 0)
        add(f, shell ? TEMPLATE_SHELL : TEMPLATE_FILE, &t);
    text_free(&t);
    *end = to + 1;
    return rc;
}

static int body(struct fill *f, const char *s, struct text *t)
{
    while (*s) {
        int word;
        size_t k = argument_at(s, &word);
        if (k) {
            text_puts(t, value(f, word));
            s += k;
        } else if (*s == '\\' && (s[1] == '!' || s[1] == '@') && s[2] == '{') {
            text_add(t, s + 1, 2);
            s += 3;
        } else if ((*s == '!' || *s == '@') && s[1] == '{') {
            add(f, TEMPLATE_TEXT, t);
            if (call_part(f, s, &s) < 0)
                return -1;
        } else {
            text_add(t, s++, 1);
        }
    }
    add(f, TEMPLATE_TEXT, t);
    return 0;
}

int template_fill(const char *from, const char *arguments, struct template_part **parts, size_t *n,
                  struct vt_err *err)
{
    struct fill f = {.arguments = arguments, .words = template_words(arguments), .err = err};
    struct text t = {0};
    while (f.words[f.n_words])
        f.n_words++;
    int rc = body(&f, from, &t);
    for (size_t i = 0; i < f.n_words; i++)
        free(f.words[i]);
    free(f.words);
    text_free(&t);
    *parts = f.parts;
    *n = f.n;
    return rc;
}
