#include "chars.h"

#include <stdio.h>
#include <stdlib.h>

void chars_fini(struct chars *c)
{
    free(c->r);
    *c = (struct chars){0};
}

void chars_add(struct chars *c, uint32_t lo, uint32_t hi)
{
    if (c->n == c->cap) {
        uint32_t cap = c->cap ? 2 * c->cap : 8;
        struct char_range *p = realloc(c->r, cap * sizeof *p);
        if (!p) {
            c->failed = true;
            return;
        }
        c->r = p;
        c->cap = cap;
    }
    c->r[c->n++] = (struct char_range){lo, hi};
}

void chars_add_all(struct chars *c, const struct chars *more)
{
    for (uint32_t i = 0; i < more->n; i++)
        chars_add(c, more->r[i].lo, more->r[i].hi);
    c->failed |= more->failed;
}

static int compare(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void chars_sort(struct chars *c)
{
    uint32_t n = 0;
    if (c->n > 1)
        qsort(c->r, c->n, sizeof *c->r, compare);
    for (uint32_t i = 0; i < c->n; i++) {
        if (n > 0 && c->r[i].lo <= c->r[n - 1].hi + 1) {
            if (c->r[i].hi > c->r[n - 1].hi)
                c->r[n - 1].hi = c->r[i].hi;
        } else {
            c->r[n++] = c->r[i];
        }
    }
    c->n = n;
}

void chars_invert(struct chars *c)
{
    struct chars out = {.failed = c->failed};
    uint32_t next = 0;
    chars_sort(c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->r[i].lo > next)
            chars_add(&out, next, c->r[i].lo - 1);
        next = c->r[i].hi + 1;
    }
    if (next <= CHARS_LAST)
        chars_add(&out, next, CHARS_LAST);
    chars_fini(c);
    *c = out;
}

/* ---- UTF-8 ---- */

struct target {
    struct grammar *g;
    uint32_t from, to;
    uint32_t
        tail[4]; /* states from which so many continuation bytes of any value lead to `to`; 0: not made */
};

static uint32_t tail(struct target *t, unsigned n)
{
    if (n == 0)
        return t->to;
    if (t->tail[n] == 0) {
        uint32_t next = tail(t, n - 1), s = build_state(t->g);
        t->tail[n] = s;
        build_bytes(t->g, s, next, 0x80, 0xBF);
    }
    return t->tail[n];
}

/* Sequences of n bytes between lo and hi, which begin alike in all bytes but the ranges that this finds: a range is cut where
 * its later bytes are not full. */
static void sequences(struct target *t, uint32_t from, const uint8_t *lo, const uint8_t *hi, unsigned n)
{
    if (n == 1) {
        build_bytes(t->g, from, t->to, lo[0], hi[0]);
        return;
    }
    if (lo[0] == hi[0]) {
        uint32_t s = build_state(t->g);
        build_bytes(t->g, from, s, lo[0], lo[0]);
        sequences(t, s, lo + 1, hi + 1, n - 1);
        return;
    }
    static const uint8_t least[3] = {0x80, 0x80, 0x80}, most[3] = {0xBF, 0xBF, 0xBF};
    bool lo_full = true, hi_full = true;
    for (unsigned i = 1; i < n; i++) {
        lo_full &= lo[i] == 0x80;
        hi_full &= hi[i] == 0xBF;
    }
    uint8_t first = lo[0], last = hi[0];
    if (!lo_full) {
        uint32_t s = build_state(t->g);
        build_bytes(t->g, from, s, first, first);
        sequences(t, s, lo + 1, most, n - 1);
        first++;
    }
    if (!hi_full) {
        uint32_t s = build_state(t->g);
        build_bytes(t->g, from, s, last, last);
        sequences(t, s, least, hi + 1, n - 1);
        last--;
    }
    if (first <= last)
        build_bytes(t->g, from, tail(t, n - 1), first, last);
}

static unsigned encode(uint32_t cp, uint8_t *b)
{
    if (cp < 0x80) {
        b[0] = (uint8_t)cp;
        return 1;
    }
    unsigned n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (unsigned i = n - 1; i > 0; i--, cp >>= 6)
        b[i] = (uint8_t)(0x80 | (cp & 0x3F));
    b[0] = (uint8_t)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | cp);
    return n;
}

static void one_length(struct target *t, uint32_t lo, uint32_t hi)
{
    uint8_t a[4], b[4];
    unsigned n = encode(lo, a);
    encode(hi, b);
    sequences(t, t->from, a, b, n);
}

static void utf8_range(struct target *t, uint32_t lo, uint32_t hi)
{
    static const struct char_range part[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, CHARS_LAST}};
    for (unsigned i = 0; i < 5; i++) {
        uint32_t a = lo > part[i].lo ? lo : part[i].lo, b = hi < part[i].hi ? hi : part[i].hi;
        if (a <= b)
            one_length(t, a, b);
    }
}

void chars_build(struct grammar *g, uint32_t from, uint32_t to, const struct chars *c)
{
    struct target t = {.g = g, .from = from, .to = to};
    if (c->failed)
        build_fail(g, "out of memory for a set of characters");
    for (uint32_t i = 0; i < c->n; i++)
        utf8_range(&t, c->r[i].lo, c->r[i].hi);
}

/* ---- JSON ---- */

static void hex_digit(struct grammar *g, uint32_t from, uint32_t to, unsigned d)
{
    build_bytes(g, from, to, (uint8_t) "0123456789abcdef"[d], (uint8_t) "0123456789abcdef"[d]);
    if (d > 9)
        build_bytes(g, from, to, (uint8_t) "0123456789ABCDEF"[d], (uint8_t) "0123456789ABCDEF"[d]);
}

static void escaped(struct grammar *g, uint32_t from, uint32_t to, uint32_t cp)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    uint32_t s = build_state(g);
    build_bytes(g, from, s, '\\', '\\');
    for (unsigned i = 0; i < 7; i++)
        if (cp == (uint8_t)plain[i]) {
            build_bytes(g, s, to, (uint8_t)letter[i], (uint8_t)letter[i]);
            return;
        }
    uint32_t high = build_word(g, s, "u00"), low = build_state(g);
    hex_digit(g, high, low, cp >> 4);
    hex_digit(g, low, to, cp & 15);
}

void chars_build_json(struct grammar *g, uint32_t from, uint32_t to, const struct chars *c)
{
    struct target t = {.g = g, .from = from, .to = to};
    if (c->failed)
        build_fail(g, "out of memory for a set of characters");
    for (uint32_t i = 0; i < c->n; i++) {
        static const struct char_range as_is[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, CHARS_LAST}};
        uint32_t lo = c->r[i].lo, hi = c->r[i].hi;
        for (uint32_t cp = lo; cp <= hi && cp <= 0x5C; cp++)
            if (cp < 0x20 || cp == '"' || cp == '\\')
                escaped(g, from, to, cp);
        for (unsigned k = 0; k < 3; k++) {
            uint32_t a = lo > as_is[k].lo ? lo : as_is[k].lo, b = hi < as_is[k].hi ? hi : as_is[k].hi;
            if (a <= b)
                utf8_range(&t, a, b);
        }
    }
}

size_t chars_decode(const char *text, size_t n, uint32_t *cp)
{
    const uint8_t *s = (const uint8_t *)text;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    unsigned len = s[0] >= 0xF0 && s[0] < 0xF8 ? 4 : s[0] >= 0xE0 ? 3 : s[0] >= 0xC0 ? 2 : 0;
    if (len == 0 || s[0] >= 0xF8 || len > n)
        return 0;
    uint32_t v = s[0] & (0xFFu >> (len + 1));
    for (unsigned i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        v = v << 6 | (s[i] & 0x3F);
    }
    if (v < least[len] || v > CHARS_LAST || (v >= 0xD800 && v <= 0xDFFF))
        return 0;
    *cp = v;
    return len;
}
