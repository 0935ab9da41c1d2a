#include "regex.h"

#include "chars.h"

#include <string.h>

enum { MAX_TEXT = 8192, MAX_NESTING = 64, MAX_COUNT = 1000000 };

struct regex {
    struct grammar *g;
    const char *text, *p, *end, *where;
    unsigned nesting;
    uint32_t any; /* rule: one character, whichever */
};

static bool bad(struct regex *r, const char *what)
{
    build_fail(r->g, "%s: character %zu of the pattern: %s", r->where, (size_t)(r->p - r->text) + 1, what);
    return false;
}

static bool at(const struct regex *r, char c)
{
    return r->p < r->end && *r->p == c;
}

/* ---- characters ---- */

static void add_kind(struct chars *c, char kind)
{
    struct chars k = {0};
    switch (kind | 0x20) {
    case 'd': chars_add(&k, '0', '9'); break;
    case 'w':
        chars_add(&k, '0', '9');
        chars_add(&k, 'A', 'Z');
        chars_add(&k, '_', '_');
        chars_add(&k, 'a', 'z');
        break;
    default:
        chars_add(&k, '\t', '\r');
        chars_add(&k, ' ', ' ');
        chars_add(&k, 0xA0, 0xA0);
        chars_add(&k, 0x1680, 0x1680);
        chars_add(&k, 0x2000, 0x200A);
        chars_add(&k, 0x2028, 0x2029);
        chars_add(&k, 0x202F, 0x202F);
        chars_add(&k, 0x205F, 0x205F);
        chars_add(&k, 0x3000, 0x3000);
        chars_add(&k, 0xFEFF, 0xFEFF);
    }
    if (!(kind & 0x20))
        chars_invert(&k);
    chars_add_all(c, &k);
    chars_fini(&k);
}

static bool hex(struct regex *r, unsigned min, unsigned max, uint32_t *cp)
{
    uint32_t v = 0;
    unsigned n = 0;
    for (; n < max && r->p < r->end; n++, r->p++) {
        char c = *r->p;
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            break;
        v = v << 4 | (uint32_t)d;
    }
    *cp = v;
    if (n < min || v > CHARS_LAST)
        return bad(r, "\\x needs 2 hexadecimal digits and \\u 4, or up to 6 in braces");
    return true;
}

static bool unicode(struct regex *r, uint32_t *cp)
{
    if (!at(r, '{'))
        return hex(r, 4, 4, cp);
    r->p++;
    if (!hex(r, 1, 6, cp))
        return false;
    if (!at(r, '}'))
        return bad(r, "\\u{ without }");
    r->p++;
    return true;
}

/* Behind a backslash. *single: one character, in *cp; else a kind, added to c. */
static bool escape(struct regex *r, struct chars *c, bool in_class, bool *single, uint32_t *cp)
{
    char k = r->p < r->end ? *r->p : 0;
    *single = true;
    if (k && strchr("dDwWsS", k)) {
        r->p++;
        *single = false;
        add_kind(c, k);
        return true;
    }
    static const char letters[] = "nrtfv", means[] = "\n\r\t\f\v";
    const char *l = k ? strchr(letters, k) : NULL;
    if (l || k == '0' || (in_class && k == 'b')) {
        *cp = l ? (uint32_t)means[l - letters] : k == 'b' ? 8 : 0;
        r->p++;
        if (k == '0' && r->p < r->end && *r->p >= '0' && *r->p <= '9')
            return bad(r, "octal escapes are not supported");
        return true;
    }
    if (k == 'x' || k == 'u') {
        r->p++;
        return k == 'x' ? hex(r, 2, 2, cp) : unicode(r, cp);
    }
    if (k >= '1' && k <= '9')
        return bad(r, "back references are not supported: they are not regular");
    if (k == 'b' || k == 'B')
        return bad(r, "word borders (\\b) are not supported");
    if (k == 'p' || k == 'P')
        return bad(r, "Unicode properties (\\p) are not supported");
    if (k == 0 || (k >= 'a' && k <= 'z') || (k >= 'A' && k <= 'Z'))
        return bad(r, "this escape is not supported");
    size_t n = chars_decode(r->p, (size_t)(r->end - r->p), cp);
    r->p += n;
    return n > 0 || bad(r, "this is not UTF-8");
}

static bool class_member(struct regex *r, struct chars *c, bool *single, uint32_t *cp)
{
    if (at(r, '\\')) {
        r->p++;
        return escape(r, c, true, single, cp);
    }
    size_t n = chars_decode(r->p, (size_t)(r->end - r->p), cp);
    r->p += n;
    *single = true;
    return n > 0 || bad(r, "this is not UTF-8");
}

static bool class_range(struct regex *r, struct chars *c)
{
    bool single, last_single;
    uint32_t lo = 0, hi = 0;
    if (!class_member(r, c, &single, &lo))
        return false;
    if (at(r, '-') && r->end - r->p > 1 && r->p[1] != ']') {
        r->p++;
        if (!class_member(r, c, &last_single, &hi))
            return false;
        if (!single || !last_single || lo > hi)
            return bad(r, "a range in a class that is none");
        chars_add(c, lo, hi);
    } else if (single) {
        chars_add(c, lo, lo);
    }
    return true;
}

static bool class(struct regex *r, struct chars *c)
{
    r->p++;
    bool invert = at(r, '^');
    r->p += invert;
    while (!at(r, ']')) {
        if (r->p >= r->end)
            return bad(r, "a class without ]");
        if (!class_range(r, c))
            return false;
    }
    r->p++;
    chars_sort(c);
    if (invert)
        chars_invert(c);
    return true;
}

static bool one_char(struct regex *r, struct chars *c)
{
    bool single = true;
    uint32_t cp = 0;
    if (at(r, '[')) {
        return class(r, c);
    } else if (at(r, '.')) {
        r->p++;
        chars_add(c, '\n', '\n');
        chars_add(c, '\r', '\r');
        chars_add(c, 0x2028, 0x2029);
        chars_invert(c);
        return true;
    } else if (at(r, '\\')) {
        r->p++;
        if (!escape(r, c, false, &single, &cp))
            return false;
    } else {
        if (strchr("*+?{", *r->p))
            return bad(r, "a quantifier with nothing before it");
        size_t n = chars_decode(r->p, (size_t)(r->end - r->p), &cp);
        if (n == 0)
            return bad(r, "this is not UTF-8");
        r->p += n;
    }
    if (single)
        chars_add(c, cp, cp);
    chars_sort(c);
    return true;
}

/* ---- quantifiers ---- */

static bool number(struct regex *r, uint32_t *v)
{
    const char *s = r->p;
    uint64_t n = 0;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9' && n <= MAX_COUNT)
        n = n * 10 + (uint64_t)(*r->p++ - '0');
    *v = (uint32_t)n;
    if (n > MAX_COUNT)
        bad(r, "a repetition of more than 1000000");
    return r->p > s && n <= MAX_COUNT;
}

/* True when there was one. */
static bool quantifier(struct regex *r, uint32_t *min, uint32_t *max)
{
    char c = r->p < r->end ? *r->p : 0;
    if (c == '?' || c == '*' || c == '+') {
        r->p++;
        *min = c == '+';
        *max = c == '?' ? 1 : GRAMMAR_MANY;
    } else if (c == '{') {
        r->p++;
        if (!number(r, min))
            return bad(r, "a repetition is written {m}, {m,} or {m,n}; a brace as such is written \\{");
        *max = *min;
        if (at(r, ',')) {
            r->p++;
            if (at(r, '}'))
                *max = GRAMMAR_MANY;
            else if (!number(r, max))
                return bad(r, "a repetition is written {m}, {m,} or {m,n}");
        }
        if (!at(r, '}') || *min > *max)
            return bad(r, "a repetition is written {m}, {m,} or {m,n}, the smaller number first");
        r->p++;
    } else {
        return false;
    }
    if (at(r, '?'))
        r->p++; /* lazy: the same texts */
    else if (at(r, '+') || at(r, '*') || at(r, '{'))
        return bad(r, "a quantifier behind a quantifier");
    return true;
}

/* ---- expressions ---- */

static bool alternatives(struct regex *r, uint32_t from, uint32_t to);

static bool group(struct regex *r, uint32_t from, uint32_t *to)
{
    r->p++;
    if (at(r, '?')) {
        bool named =
            r->end - r->p > 2 && (r->p[1] == '<' || r->p[1] == 'P') && r->p[2] != '=' && r->p[2] != '!';
        if (r->end - r->p > 1 && r->p[1] == ':')
            r->p += 2;
        else if (named) {
            const char *close = memchr(r->p, '>', (size_t)(r->end - r->p));
            if (!close)
                return bad(r, "a group's name without >");
            r->p = close + 1;
        } else {
            return bad(r, "look-around and flags are not supported");
        }
    }
    if (++r->nesting > MAX_NESTING)
        return bad(r, "groups nested deeper than 64");
    *to = build_state(r->g);
    if (!alternatives(r, from, *to))
        return false;
    r->nesting--;
    if (!at(r, ')'))
        return bad(r, "a group without )");
    r->p++;
    return true;
}

static bool piece(struct regex *r, uint32_t from, uint32_t *to)
{
    if (at(r, '('))
        return group(r, from, to);
    if (at(r, '^') || at(r, '$'))
        return bad(r, "^ and $ are supported at the beginning and at the end of the whole pattern");
    struct chars c = {0};
    bool ok = one_char(r, &c);
    *to = build_state(r->g);
    if (ok)
        chars_build_json(r->g, from, *to, &c);
    chars_fini(&c);
    return ok;
}

static bool sequence(struct regex *r, uint32_t from, uint32_t *to)
{
    *to = from;
    while (r->p < r->end && *r->p != '|' && *r->p != ')') {
        uint32_t start = build_state(r->g), end = 0, min, max;
        if (r->nesting == 0 && *r->p == '$' && (r->p + 1 == r->end || r->p[1] == '|'))
            return true; /* the end of the alternative deals with it */
        if (!piece(r, start, &end))
            return false;
        if (quantifier(r, &min, &max)) {
            uint32_t rule = build_rule(r->g, start, end, NULL);
            start = build_state(r->g);
            end = build_state(r->g);
            build_repeat(r->g, start, end, rule, min, max);
        }
        build_empty(r->g, *to, start);
        *to = end;
        if (build_failed(r->g))
            return false;
    }
    return true;
}

static bool alternatives(struct regex *r, uint32_t from, uint32_t to)
{
    for (;;) {
        uint32_t end;
        if (!sequence(r, from, &end))
            return false;
        build_empty(r->g, end, to);
        if (!at(r, '|'))
            return true;
        r->p++;
    }
}

static uint32_t anything(struct regex *r, uint32_t from)
{
    uint32_t loop = build_state(r->g);
    build_empty(r->g, from, loop);
    build_call(r->g, loop, loop, r->any);
    return loop;
}

static void whole(struct regex *r, uint32_t from, uint32_t to)
{
    for (;;) {
        uint32_t start = build_state(r->g), end;
        build_empty(r->g, from, start);
        if (at(r, '^'))
            r->p++;
        else
            start = anything(r, start);
        if (!sequence(r, start, &end))
            return;
        if (at(r, '$'))
            r->p++;
        else
            end = anything(r, end);
        build_empty(r->g, end, to);
        if (r->p == r->end)
            return;
        if (!at(r, '|')) {
            bad(r, ") without (");
            return;
        }
        r->p++;
    }
}

void regex_build(struct grammar *g, uint32_t from, uint32_t to, const char *text, size_t n, const char *where)
{
    struct regex r = {.g = g, .text = text, .p = text, .end = text + n, .where = where};
    if (n > MAX_TEXT) {
        build_fail(g, "%s: a pattern of %zu bytes; the limit is %d", where, n, MAX_TEXT);
        return;
    }
    struct chars all = {0};
    uint32_t a = build_state(g), b = build_state(g);
    chars_add(&all, 0, CHARS_LAST);
    chars_build_json(g, a, b, &all);
    chars_fini(&all);
    r.any = build_rule(g, a, b, "any character");
    whole(&r, from, to);
}
