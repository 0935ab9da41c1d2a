#include "lexer.h"

#include "points.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct lexer *l, struct vt_err *err, const char *what)
{
    return vt_fail(err, VT_E_PARAM, "template line %u, column %u: %s", l->line,
                   (unsigned)(l->at - l->line_start + 1), what);
}

int lexer_init(struct lexer *l, struct arena *a, const char *text, size_t n, struct vt_err *err)
{
    const size_t bad = utf8_valid(text, n);
    if (bad < n)
        return vt_fail(err, VT_E_PARAM, "the template is not UTF-8 at byte %zu", bad);
    char *s = arena_alloc(a, n + 1);
    if (!s)
        return vt_fail(err, VT_E_NOMEM, "no memory for a template of %zu bytes", n);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\r')
            s[k++] = text[i];
        else if (i + 1 == n || text[i + 1] != '\n')
            s[k++] = '\n';
    }
    if (k && s[k - 1] == '\n')
        k--;
    s[k] = 0;
    *l = (struct lexer){.arena = a, .s = s, .n = k, .line = 1, .line_begins = true};
    return 0;
}

/* Moves on to `to`, counting lines. */
static void advance(struct lexer *l, size_t to)
{
    for (const char *p; l->at < to && (p = memchr(l->s + l->at, '\n', to - l->at)); l->at = l->line_start) {
        l->line++;
        l->line_start = (size_t)(p - l->s) + 1;
    }
    if (to > 0 && to > l->at)
        l->at = to;
    l->line_begins = l->at > 0 && l->s[l->at - 1] == '\n';
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    return at + space_run(l->s + at, l->n - at);
}

static bool starts(const struct lexer *l, size_t at, const char *text)
{
    const size_t n = strlen(text);
    return l->n - at >= n && memcmp(l->s + at, text, n) == 0;
}

/* End of "-%}" with the white space behind it, "+%}", or "%}" with one newline; 0 when none is at `at`. */
static size_t tag_end(const struct lexer *l, size_t at, const char *closer, bool trims)
{
    const size_t sign = at < l->n && (l->s[at] == '-' || l->s[at] == '+');
    if (!starts(l, at + sign, closer))
        return 0;
    const size_t end = at + sign + 2;
    if (sign)
        return l->s[at] == '-' ? skip_space(l, end) : trims ? end : 0;
    return trims && end < l->n && l->s[end] == '\n' ? end + 1 : end;
}

/* The data [from, to) before a tag whose sign is `sign`, without what the tag strips. */
static size_t strip_before(const struct lexer *l, size_t from, size_t to, char sign, bool lstrips)
{
    if (sign == '-')
        return from + space_end(l->s + from, to - from);
    if (sign == '+' || !lstrips)
        return to;
    size_t line = to;
    while (line > from && l->s[line - 1] != '\n')
        line--;
    if (line == from && !l->line_begins)
        return to;
    return space_run(l->s + line, to - line) == to - line ? line : to;
}

/* "{%- raw -%}" at `at`: its end, or 0. */
static size_t raw_tag(const struct lexer *l, size_t at, const char *word, bool trims)
{
    size_t i = at + 2;
    if (i < l->n && (l->s[i] == '-' || l->s[i] == '+'))
        i++;
    i = skip_space(l, i);
    if (!starts(l, i, word))
        return 0;
    i = skip_space(l, i + strlen(word));
    if (starts(l, i, "-%}"))
        return skip_space(l, i + 3);
    if (starts(l, i, "+%}") && trims)
        return i + 3;
    if (!starts(l, i, "%}"))
        return 0;
    return trims && i + 2 < l->n && l->s[i + 2] == '\n' ? i + 3 : i + 2;
}

static char sign_at(const struct lexer *l, size_t at)
{
    return at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
}

static void data_token(const struct lexer *l, struct token *t, size_t from, size_t to)
{
    *t = (struct token){.kind = T_DATA,
                        .line = l->line,
                        .column = (uint32_t)(from - l->line_start + 1),
                        .p = l->s + from,
                        .n = to - from};
}

/* The text of {% raw %}; l->at is behind the opening tag. */
static int lex_raw(struct lexer *l, struct token *t, struct vt_err *err)
{
    const size_t from = l->at;
    for (size_t i = from; i < l->n; i++) {
        const char *p = memchr(l->s + i, '{', l->n - i);
        if (!p)
            break;
        i = (size_t)(p - l->s);
        if (!starts(l, i, "{%"))
            continue;
        const size_t end = raw_tag(l, i, "endraw", true);
        if (!end)
            continue;
        data_token(l, t, from, strip_before(l, from, i, sign_at(l, i + 2), true));
        advance(l, end);
        return 1;
    }
    return fail(l, err, "{% raw %} without {% endraw %}");
}

static int lex_comment(struct lexer *l, size_t at, struct vt_err *err)
{
    size_t i = at + 2;
    if (sign_at(l, i) && !starts(l, i, "-#}") && !starts(l, i, "+#}"))
        i++;
    for (; i < l->n; i++) {
        const char *p = memchr(l->s + i, '#', l->n - i);
        if (!p)
            break;
        i = (size_t)(p - l->s);
        if (!starts(l, i, "#}"))
            continue;
        const size_t sign = i > at + 2 && sign_at(l, i - 1);
        advance(l, tag_end(l, i - sign, "#}", true));
        return 0;
    }
    return fail(l, err, "{# without #}");
}

/* One step through the text between tags: 1 a token is in *t, 0 go on, -1 failed. */
static int lex_data(struct lexer *l, struct token *t, struct vt_err *err)
{
    const size_t from = l->at;
    size_t i = from;
    for (;; i++) {
        const char *p = i < l->n ? memchr(l->s + i, '{', l->n - i) : NULL;
        i = p ? (size_t)(p - l->s) : l->n;
        if (!p || (i + 1 < l->n && (l->s[i + 1] == '{' || l->s[i + 1] == '%' || l->s[i + 1] == '#')))
            break;
    }
    if (i >= l->n) {
        data_token(l, t, from, l->n);
        advance(l, l->n);
        if (!t->n)
            t->kind = T_END;
        return 1;
    }
    const char what = l->s[i + 1], sign = sign_at(l, i + 2);
    const size_t to = strip_before(l, from, i, sign, what != '{');
    data_token(l, t, from, to);
    advance(l, i);
    if (what == '#') {
        if (lex_comment(l, i, err))
            return -1;
    } else {
        const size_t raw = what == '%' ? raw_tag(l, i, "raw", false) : 0;
        if (raw) {
            struct token text;
            advance(l, raw);
            if (lex_raw(l, &text, err) < 0)
                return -1;
            if (!t->n) {
                *t = text;
            } else {
                l->after_data = text;
                l->has_after_data = true;
            }
            return t->n > 0 || l->has_after_data;
        }
        l->after_data = (struct token){.kind = what == '{' ? T_PRINT_BEGIN : T_BLOCK_BEGIN,
                                       .line = l->line,
                                       .column = (uint32_t)(i - l->line_start + 1)};
        l->has_after_data = true;
        l->state = what == '{' ? LEX_PRINT : LEX_BLOCK;
        l->brackets = 0;
        advance(l, i + 2 + (sign != 0));
    }
    return t->n > 0;
}

static unsigned hex_digit(char c)
{
    return c >= '0' && c <= '9'                 ? (unsigned)(c - '0')
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a') + 10
                                                : 99;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: the code point, and *at behind it; 0x110000 when it is malformed. */
static uint32_t hex_escape(const char *s, size_t n, size_t *at, size_t digits)
{
    uint32_t v = 0;
    if (n - *at < digits)
        return 0x110000;
    for (size_t i = 0; i < digits; i++) {
        const unsigned d = hex_digit(s[*at + i]);
        if (d > 15 || v > 0x10FFFF)
            return 0x110000;
        v = v << 4 | d;
    }
    *at += digits;
    return v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF) ? 0x110000 : v;
}

static int unescape(const char *s, size_t n, char *out)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\') {
            out[k++] = s[i++];
            continue;
        }
        const char c = s[i + 1]; /* the lexer saw that there is one */
        const char *simple = c ? strchr(from, c) : NULL;
        i += 2;
        if (simple) {
            out[k++] = to[simple - from];
        } else if (c == '\n') {
            /* a line that goes on */
        } else if (c == 'x' || c == 'u' || c == 'U') {
            const uint32_t cp = hex_escape(s, n, &i, c == 'x' ? 2 : c == 'u' ? 4 : 8);
            if (cp >= 0x110000)
                return -1;
            k += point_put(cp, out + k);
        } else if (c >= '0' && c <= '7') {
            uint32_t v = (uint32_t)(c - '0');
            for (int d = 0; d < 2 && i < n && s[i] >= '0' && s[i] <= '7'; d++)
                v = v << 3 | (uint32_t)(s[i++] - '0');
            k += point_put(v, out + k);
        } else {
            out[k++] = '\\';
            out[k++] = c;
        }
    }
    return (int)k;
}

static int lex_string(struct lexer *l, struct token *t, struct vt_err *err)
{
    const char quote = l->s[l->at];
    const size_t from = l->at + 1;
    size_t i = from;
    bool escapes = false;
    while (i < l->n && l->s[i] != quote) {
        escapes |= l->s[i] == '\\';
        i += l->s[i] == '\\' ? 2 : 1;
    }
    if (i >= l->n)
        return fail(l, err, "a string has no end");
    t->kind = T_STRING;
    t->p = l->s + from;
    t->n = i - from;
    if (escapes) {
        char *out = arena_alloc(l->arena, t->n + 1);
        if (!out)
            return vt_fail(err, VT_E_NOMEM, "no memory for the template");
        const int n = unescape(t->p, t->n, out);
        if (n < 0)
            return fail(l, err, "a string has a malformed \\x, \\u or \\U escape");
        t->p = out;
        t->n = (size_t)n;
    }
    advance(l, i + 1);
    return 0;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them; copies the digits. */
static size_t digits(const struct lexer *l, size_t at, char *out, size_t *k, size_t room)
{
    while (at < l->n && (digit(l->s[at]) || (l->s[at] == '_' && at + 1 < l->n && digit(l->s[at + 1])))) {
        if (l->s[at] != '_' && *k < room)
            out[(*k)++] = l->s[at];
        at++;
    }
    return at;
}

static int lex_number(struct lexer *l, struct token *t, struct vt_err *err)
{
    char buf[400];
    size_t k = 0, at = l->at;
    if (l->s[at] == '0' && at + 1 < l->n && l->s[at + 1] && strchr("xXoObB", l->s[at + 1])) {
        const int base = (l->s[at + 1] | 32) == 'x' ? 16 : (l->s[at + 1] | 32) == 'o' ? 8 : 2;
        for (at += 2;
             at < l->n && (hex_digit(l->s[at]) < (unsigned)base || l->s[at] == '_') && k < sizeof buf - 1;
             at++)
            if (l->s[at] != '_')
                buf[k++] = l->s[at];
        buf[k] = 0;
        errno = 0;
        t->i = strtoll(buf, NULL, base);
        t->kind = T_INT;
        if (errno || k == 0)
            return fail(l, err, "a number is malformed or larger than 64 bits");
        advance(l, at);
        return 0;
    }
    at = digits(l, at, buf, &k, sizeof buf - 8);
    bool real = false;
    if (at + 1 < l->n && l->s[at] == '.' && digit(l->s[at + 1])) {
        buf[k++] = '.';
        at = digits(l, at + 1, buf, &k, sizeof buf - 4);
        real = true;
    }
    if (at + 1 < l->n && (l->s[at] | 32) == 'e') {
        const size_t sign = l->s[at + 1] == '+' || l->s[at + 1] == '-';
        if (at + 1 + sign < l->n && digit(l->s[at + 1 + sign])) {
            buf[k++] = 'e';
            if (sign && k < sizeof buf - 2)
                buf[k++] = l->s[at + 1];
            at = digits(l, at + 1 + sign, buf, &k, sizeof buf - 1);
            real = true;
        }
    }
    if (k >= sizeof buf - 8)
        return fail(l, err, "a number has too many digits");
    buf[k] = 0;
    errno = 0;
    t->kind = real ? T_FLOAT : T_INT;
    if (real)
        t->f = strtod(buf, NULL);
    else
        t->i = strtoll(buf, NULL, 10);
    if (!real && errno)
        return fail(l, err, "a number is larger than 64 bits");
    advance(l, at);
    return 0;
}

static bool name_char(char c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z' ? true : digit(c) || c == '_' || (unsigned char)c >= 0x80;
}

static int lex_op(struct lexer *l, struct token *t, struct vt_err *err)
{
    static const char pairs[] = "== != >= <= // ** ";
    const char c = l->s[l->at];
    t->kind = T_OP;
    if (l->at + 1 < l->n)
        for (const char *p = pairs; *p; p += 3)
            if (c == p[0] && l->s[l->at + 1] == p[1]) {
                t->op = OP2((unsigned)p[0], (unsigned)p[1]);
                advance(l, l->at + 2);
                return 0;
            }
    if (!c || !strchr("+-*/%~<>=()[]{}.,:|;", c))
        return fail(l, err, "unexpected character");
    if (c == '(' || c == '[' || c == '{')
        l->brackets++;
    else if ((c == ')' || c == ']' || c == '}') && l->brackets)
        l->brackets--;
    t->op = (unsigned char)c;
    advance(l, l->at + 1);
    return 0;
}

static int lex_tag(struct lexer *l, struct token *t, struct vt_err *err)
{
    if (!l->brackets) {
        const bool block = l->state == LEX_BLOCK;
        const size_t end = tag_end(l, l->at, block ? "%}" : "}}", block);
        if (end) {
            t->kind = block ? T_BLOCK_END : T_PRINT_END;
            l->state = LEX_DATA;
            advance(l, end);
            return 0;
        }
    }
    const char c = l->s[l->at];
    if (c == '"' || c == '\'')
        return lex_string(l, t, err);
    if (digit(c))
        return lex_number(l, t, err);
    if (!name_char(c))
        return lex_op(l, t, err);
    size_t end = l->at;
    while (end < l->n && name_char(l->s[end]))
        end++;
    t->kind = T_NAME;
    t->p = l->s + l->at;
    t->n = end - l->at;
    advance(l, end);
    return 0;
}

int lexer_next(struct lexer *l, struct token *t, struct vt_err *err)
{
    *t = (struct token){.kind = T_END};
    if (l->has_after_data) {
        l->has_after_data = false;
        *t = l->after_data;
        if (t->kind != T_DATA || t->n)
            return 0;
    }
    while (l->state == LEX_DATA) {
        const int rc = lex_data(l, t, err);
        if (rc)
            return rc < 0 ? -1 : 0;
        if (l->has_after_data)
            return lexer_next(l, t, err);
    }
    advance(l, skip_space(l, l->at));
    *t = (struct token){.kind = T_END, .line = l->line, .column = (uint32_t)(l->at - l->line_start + 1)};
    if (l->at >= l->n)
        return fail(l, err, "a tag has no end");
    return lex_tag(l, t, err);
}
