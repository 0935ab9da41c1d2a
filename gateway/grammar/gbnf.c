/* GBNF: the grammar notation that users of llama.cpp know.
 *
 *     name ::= alternatives      # comment
 * A sequence holds "literals", [classes], ., names and (groups), each with ? * + {m} {m,} {m,n} or {,n} behind it. A rule ends
 * with its line; lines go on inside of parentheses and behind | and ::=. */
#include "builder.h"

#include "chars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 256 * 1024,
    MAX_NAMES = 8192,
    MAX_NESTING = 128,
    MAX_COUNT = 1000000,
};

struct name {
    const char *s;
    size_t n;
    uint32_t hash, rule, end; /* end: the state where it ends */
    bool defined;
    const char *at; /* first use */
};

struct gbnf {
    struct grammar *g;
    const char *text, *p, *end;
    struct name *names;
    uint32_t n_names;
    unsigned nesting;
};

static bool bad_at(struct gbnf *b, const char *at, const char *what)
{
    unsigned line = 1, column = 1;
    for (const char *p = b->text; p < at; p++) {
        line += *p == '\n';
        column = *p == '\n' ? 1 : column + 1;
    }
    build_fail(b->g, "grammar line %u, column %u: %s", line, column, what);
    return false;
}

static bool bad(struct gbnf *b, const char *what)
{
    return bad_at(b, b->p, what);
}

static bool at(const struct gbnf *b, char c)
{
    return b->p < b->end && *b->p == c;
}

/* White space and comments; new lines only when they mean nothing here. */
static void skip(struct gbnf *b, bool lines)
{
    while (b->p < b->end) {
        if (*b->p == '#') {
            while (b->p < b->end && *b->p != '\n' && *b->p != '\r')
                b->p++;
        } else if (*b->p == ' ' || *b->p == '\t' || (lines && (*b->p == '\n' || *b->p == '\r'))) {
            b->p++;
        } else {
            break;
        }
    }
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* ---- names ---- */

static uint32_t hash(const char *s, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

static struct name *name_of(struct gbnf *b, const char *s, size_t n)
{
    uint32_t h = hash(s, n);
    for (uint32_t i = 0; i < b->n_names; i++) {
        struct name *x = &b->names[i];
        if (x->hash == h && x->n == n && memcmp(x->s, s, n) == 0)
            return x;
    }
    if (b->n_names == MAX_NAMES) {
        bad_at(b, s, "too many rules; the limit is 8192");
        return NULL;
    }
    char label[64];
    uint32_t from = build_state(b->g), to = build_state(b->g);
    snprintf(label, sizeof label, "%.*s", n < 60 ? (int)n : 60, s);
    struct name *x = &b->names[b->n_names++];
    *x = (struct name){
        .s = s, .n = n, .hash = h, .rule = build_rule(b->g, from, to, label), .end = to, .at = s};
    return x;
}

static struct name *take_name(struct gbnf *b)
{
    const char *s = b->p;
    while (b->p < b->end && is_word(*b->p))
        b->p++;
    if (b->p == s) {
        bad(b, "the name of a rule is expected");
        return NULL;
    }
    return name_of(b, s, (size_t)(b->p - s));
}

/* ---- characters ---- */

static bool hex(struct gbnf *b, unsigned digits, uint32_t *cp)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < digits; i++) {
        char c = b->p < b->end ? *b->p : 0;
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return bad(b, "\\x needs 2 hexadecimal digits, \\u 4 and \\U 8");
        v = v << 4 | (uint32_t)d;
        b->p++;
    }
    if (v > CHARS_LAST || (v >= 0xD800 && v <= 0xDFFF))
        return bad(b, "this is not the number of a character");
    *cp = v;
    return true;
}

static bool character(struct gbnf *b, uint32_t *cp)
{
    if (b->p >= b->end)
        return bad(b, "the grammar ends inside of a literal or a character class");
    if (*b->p != '\\') {
        size_t n = chars_decode(b->p, (size_t)(b->end - b->p), cp);
        b->p += n;
        return n > 0 || bad(b, "this is not UTF-8");
    }
    b->p++;
    char c = b->p < b->end ? *b->p++ : 0;
    switch (c) {
    case 'n': *cp = '\n'; return true;
    case 'r': *cp = '\r'; return true;
    case 't': *cp = '\t'; return true;
    case 'x': return hex(b, 2, cp);
    case 'u': return hex(b, 4, cp);
    case 'U': return hex(b, 8, cp);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '^':
    case '-': *cp = (uint8_t)c; return true;
    default:
        b->p -= c != 0;
        return bad(b, "unknown escape; \\n \\r \\t \\x \\u \\U \\\\ \\\" \\[ \\] \\^ \\- are known");
    }
}

static uint32_t one_char(struct gbnf *b, uint32_t from, uint32_t cp)
{
    struct chars c = {0};
    uint32_t to = build_state(b->g);
    chars_add(&c, cp, cp);
    chars_build(b->g, from, to, &c);
    chars_fini(&c);
    return to;
}

static uint32_t literal(struct gbnf *b, uint32_t from)
{
    b->p++;
    while (!at(b, '"')) {
        uint32_t cp;
        if (!character(b, &cp) || build_failed(b->g))
            return from;
        from = one_char(b, from, cp);
    }
    b->p++;
    return from;
}

static bool range(struct gbnf *b, struct chars *c)
{
    uint32_t lo, hi;
    const char *s = b->p;
    if (!character(b, &lo))
        return false;
    hi = lo;
    if (at(b, '-') && b->p + 1 < b->end && b->p[1] != ']') {
        b->p++;
        if (!character(b, &hi))
            return false;
    }
    chars_add(c, lo, hi);
    return lo <= hi || bad_at(b, s, "a range of characters that ends before it begins");
}

static uint32_t class(struct gbnf *b, uint32_t from)
{
    struct chars c = {0};
    uint32_t to = build_state(b->g);
    b->p++;
    bool invert = at(b, '^'), ok = true;
    b->p += invert;
    while (ok && !at(b, ']'))
        ok = range(b, &c);
    b->p += ok;
    chars_sort(&c);
    if (invert)
        chars_invert(&c);
    if (ok)
        chars_build(b->g, from, to, &c);
    chars_fini(&c);
    return to;
}

static uint32_t any_char(struct gbnf *b, uint32_t from)
{
    struct chars c = {0};
    uint32_t to = build_state(b->g);
    b->p++;
    chars_add(&c, 0, CHARS_LAST);
    chars_build(b->g, from, to, &c);
    chars_fini(&c);
    return to;
}

/* ---- repetition ---- */

static bool count(struct gbnf *b, uint32_t *v)
{
    const char *s = b->p;
    uint64_t n = 0;
    while (b->p < b->end && *b->p >= '0' && *b->p <= '9' && n <= MAX_COUNT)
        n = n * 10 + (uint64_t)(*b->p++ - '0');
    if (n > MAX_COUNT)
        return bad_at(b, s, "a repetition of more than 1000000");
    *v = (uint32_t)n;
    return b->p > s;
}

/* {m} {m,} {m,n} {,n} */
static bool braces(struct gbnf *b, uint32_t *min, uint32_t *max)
{
    const char *s = b->p++;
    *min = 0;
    skip(b, true);
    bool lower = count(b, min), upper = false;
    skip(b, true);
    *max = *min;
    if (at(b, ',')) {
        b->p++;
        skip(b, true);
        upper = count(b, max);
        skip(b, true);
        if (!upper)
            *max = GRAMMAR_MANY;
    }
    if (build_failed(b->g))
        return false;
    if (!at(b, '}') || !(lower || upper))
        return bad_at(b, s, "a repetition is written {m}, {m,}, {m,n} or {,n}");
    b->p++;
    return *min <= *max || bad_at(b, s, "a repetition whose most is less than its least");
}

/* Makes the piece from..to what stands behind it asks for. */
static bool repeated(struct gbnf *b, uint32_t *from, uint32_t *to)
{
    uint32_t min, max;
    for (;;) {
        char c = b->p < b->end ? *b->p : 0;
        if (c == '?' || c == '*' || c == '+') {
            min = c == '+';
            max = c == '?' ? 1 : GRAMMAR_MANY;
            b->p++;
        } else if (c == '{') {
            if (!braces(b, &min, &max))
                return false;
        } else {
            return true;
        }
        uint32_t rule = build_rule(b->g, *from, *to, NULL);
        *from = build_state(b->g);
        *to = build_state(b->g);
        build_repeat(b->g, *from, *to, rule, min, max);
    }
}

/* ---- expressions ---- */

static bool alternatives(struct gbnf *b, uint32_t from, uint32_t to);

static bool one_item(struct gbnf *b, uint32_t from, uint32_t *to)
{
    char c = *b->p;
    if (c == '"') {
        *to = literal(b, from);
    } else if (c == '[') {
        *to = class(b, from);
    } else if (c == '.') {
        *to = any_char(b, from);
    } else if (c == '(') {
        const char *open = b->p++;
        if (++b->nesting > MAX_NESTING)
            return bad(b, "groups nested deeper than 128");
        *to = build_state(b->g);
        skip(b, true);
        if (!alternatives(b, from, *to))
            return false;
        b->nesting--;
        skip(b, true);
        if (!at(b, ')'))
            return bad_at(b, open, "this group is not closed");
        b->p++;
    } else {
        struct name *n = take_name(b);
        if (!n)
            return false;
        *to = build_then(b->g, from, n->rule);
    }
    return !build_failed(b->g);
}

static bool begins_item(const struct gbnf *b)
{
    return b->p < b->end && (*b->p == '"' || *b->p == '[' || *b->p == '.' || *b->p == '(' || is_word(*b->p));
}

/* Returns the state behind the sequence. Each item has a state of its own to begin with, for it may be entered again. */
static bool sequence(struct gbnf *b, uint32_t from, uint32_t *to)
{
    for (*to = from; begins_item(b);) {
        uint32_t start = build_state(b->g), end;
        if (!one_item(b, start, &end))
            return false;
        skip(b, b->nesting > 0);
        if (!repeated(b, &start, &end))
            return false;
        build_empty(b->g, *to, start);
        *to = end;
        skip(b, b->nesting > 0);
        if (build_failed(b->g))
            return false;
    }
    return true;
}

static bool alternatives(struct gbnf *b, uint32_t from, uint32_t to)
{
    for (;;) {
        uint32_t end;
        if (!sequence(b, from, &end))
            return false;
        build_empty(b->g, end, to);
        skip(b, b->nesting > 0);
        if (!at(b, '|'))
            return true;
        b->p++;
        skip(b, true);
    }
}

static bool rule(struct gbnf *b)
{
    const char *s = b->p;
    struct name *n = take_name(b);
    if (!n)
        return false;
    skip(b, false);
    if (b->end - b->p < 3 || memcmp(b->p, "::=", 3) != 0)
        return bad(b, "::= is expected behind the name of a rule");
    if (n->defined)
        return bad_at(b, s, "this rule is there twice");
    n->defined = true;
    b->p += 3;
    skip(b, true);
    if (!alternatives(b, b->g->rules[n->rule].start, n->end))
        return false;
    if (b->p < b->end && *b->p != '\n' && *b->p != '\r')
        return bad(b, "this belongs to no rule");
    return true;
}

static uint32_t root_of(struct gbnf *b)
{
    for (uint32_t i = 0; i < b->n_names; i++)
        if (!b->names[i].defined) {
            char text[128];
            int n = b->names[i].n < 64 ? (int)b->names[i].n : 64;
            snprintf(text, sizeof text, "the rule '%.*s' is used and not defined", n, b->names[i].s);
            bad_at(b, b->names[i].at, text);
            return 0;
        }
    for (uint32_t i = 0; i < b->n_names; i++)
        if (b->names[i].n == 4 && memcmp(b->names[i].s, "root", 4) == 0)
            return b->names[i].rule;
    return build_fail(b->g, "grammar: there is no rule 'root'");
}

uint32_t grammar_gbnf(struct grammar *g, const char *text, size_t n)
{
    struct gbnf b = {.g = g, .text = text, .p = text, .end = text + n};
    if (n > MAX_TEXT)
        return build_fail(g, "grammar: %zu bytes of text; the limit is %d", n, MAX_TEXT);
    b.names = malloc(MAX_NAMES * sizeof *b.names);
    if (!b.names)
        return build_fail(g, "out of memory for a grammar");
    uint32_t root = 0;
    bool ok = !build_failed(g);
    for (skip(&b, true); ok && b.p < b.end; skip(&b, true))
        ok = rule(&b);
    if (ok && !build_failed(g))
        root = root_of(&b);
    free(b.names);
    return root;
}
