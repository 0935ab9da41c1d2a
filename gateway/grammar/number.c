#include "number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 19, FRACTION = 20 };

/* Digits of the same number of places between lo and hi. The classic construction: as long as the digits so far equal those of
 * a bound, the bound limits the next one. */
static void between(struct grammar *g, uint32_t from, uint32_t to, const char *lo, const char *hi)
{
    size_t n = strlen(lo);
    uint32_t at[4]; /* by: still equal to lo (1), to hi (2) */
    bool here[4] = {false, false, false, true};
    at[3] = from;
    for (size_t i = 0; i < n; i++) {
        uint32_t next[4];
        bool there[4] = {false};
        for (unsigned k = 0; k < 4; k++)
            next[k] = i + 1 == n ? to : 0;
        for (unsigned k = 0; k < 4; k++) {
            if (!here[k])
                continue;
            for (char d = k & 1 ? lo[i] : '0'; d <= (k & 2 ? hi[i] : '9'); d++) {
                unsigned to_k = ((k & 1) && d == lo[i] ? 1u : 0u) | ((k & 2) && d == hi[i] ? 2u : 0u);
                if (!there[to_k] && i + 1 < n)
                    next[to_k] = build_state(g);
                there[to_k] = true;
                build_bytes(g, at[k], next[to_k], (uint8_t)d, (uint8_t)d);
            }
        }
        memcpy(at, next, sizeof at);
        memcpy(here, there, sizeof here);
    }
}

/* lo..hi, hi UINT64_MAX: as many digits as an integer may have. */
static void natural(struct grammar *g, uint32_t from, uint32_t to, uint64_t lo, uint64_t hi)
{
    char a[24], b[24];
    bool open = hi == UINT64_MAX;
    int len_lo = snprintf(a, sizeof a, "%llu", (unsigned long long)lo);
    int len_hi = open ? DIGITS + 1 : snprintf(b, sizeof b, "%llu", (unsigned long long)hi);
    if (len_lo == len_hi) {
        between(g, from, to, a, b);
        return;
    }
    memset(b, '9', (size_t)len_lo);
    b[len_lo] = '\0';
    between(g, from, to, a, b);
    if (!open) {
        snprintf(b, sizeof b, "%llu", (unsigned long long)hi);
        memset(a, '0', (size_t)len_hi);
        a[0] = '1';
        a[len_hi] = '\0';
        between(g, from, to, a, b);
    }
    if (len_hi - len_lo > 1) { /* the lengths between */
        uint32_t first = build_state(g);
        build_bytes(g, from, first, '1', '9');
        build_repeat(g, first, to, build_json(g, RULE_DIGIT), (uint32_t)len_lo, (uint32_t)len_hi - 2);
    }
}

enum { SAME, LESS, GREATER, ORDERS };

/* How digits compare with those of a bound, one more digit on. What is longer than the bound is not compared. */
static unsigned order(unsigned so_far, const char *bound, int at, char d)
{
    if (!bound || at >= (int)strlen(bound) || so_far != SAME)
        return bound && at < (int)strlen(bound) ? so_far : SAME;
    return d == bound[at] ? SAME : d < bound[at] ? LESS : GREATER;
}

/* Multiples of n in lo..hi, lo >= 1; a state for each remainder of the digits so far, and how they compare with those of the
 * bounds. hi NULL: as many digits as an integer may have. */
static void multiples(struct grammar *g, uint32_t from, uint32_t to, const char *lo, const char *hi,
                      uint32_t n)
{
    const int len_lo = (int)strlen(lo), len_hi = hi ? (int)strlen(hi) : DIGITS;
    const size_t width = (size_t)n * ORDERS * ORDERS;
    uint32_t *row = calloc(2 * width, sizeof *row), *next = row + width; /* state + 1 */
    if (!row) {
        build_fail(g, "out of memory");
        return;
    }
    row[0] = from + 1;
    for (int j = 0; j < len_hi && !build_failed(g); j++) {
        memset(next, 0, width * sizeof *next);
        for (size_t k = 0; k < width; k++) {
            for (char d = j > 0 ? '0' : '1'; row[k] && d <= '9'; d++) {
                const unsigned a = order(k / ORDERS % ORDERS, lo, j, d), b = order(k % ORDERS, hi, j, d);
                const uint32_t left = (uint32_t)((k / (ORDERS * ORDERS) * 10 + (size_t)(d - '0')) % n);
                uint32_t *there = &next[((size_t)left * ORDERS + a) * ORDERS + b];
                if (!*there)
                    *there = build_state(g) + 1;
                build_bytes(g, row[k] - 1, *there - 1, (uint8_t)d, (uint8_t)d);
            }
        }
        for (size_t k = 0; k < ORDERS * ORDERS; k++) /* nothing is left over */
            if (next[k] && j + 1 >= len_lo && (j + 1 > len_lo || k / ORDERS != LESS) &&
                (j + 1 < len_hi || k % ORDERS != GREATER))
                build_empty(g, next[k] - 1, to);
        memcpy(row, next, width * sizeof *row);
    }
    free(row);
}

static void natural_multiples(struct grammar *g, uint32_t from, uint32_t to, uint64_t lo, uint64_t hi,
                              uint32_t n)
{
    char a[24], b[24];
    if (lo == 0)
        build_bytes(g, from, to, '0', '0');
    snprintf(a, sizeof a, "%llu", (unsigned long long)(lo ? lo : 1));
    snprintf(b, sizeof b, "%llu", (unsigned long long)hi);
    if (hi > 0)
        multiples(g, from, to, a, hi == UINT64_MAX ? NULL : b, n);
}

static uint64_t magnitude(int64_t v)
{
    return v < 0 ? -(uint64_t)v : (uint64_t)v;
}

static void range(struct grammar *g, uint32_t from, uint32_t to, uint64_t lo, uint64_t hi, uint32_t n)
{
    if (n > 1)
        natural_multiples(g, from, to, lo, hi, n);
    else
        natural(g, from, to, lo, hi);
}

void number_integers(struct grammar *g, uint32_t from, uint32_t to, int64_t lo, int64_t hi, uint32_t n)
{
    if (hi >= 0)
        range(g, from, to, lo > 0 ? (uint64_t)lo : 0, hi == INT64_MAX ? UINT64_MAX : (uint64_t)hi, n);
    if (lo < 0) {
        uint32_t minus = build_state(g);
        build_bytes(g, from, minus, '-', '-');
        range(g, minus, to, hi < 0 ? magnitude(hi) : 1, lo == INT64_MIN ? UINT64_MAX : magnitude(lo), n);
    }
}

/* ---- fractions ---- */

struct bound {
    bool set, open;
    uint64_t whole;
    char frac[32]; /* digits, without zeros at the end */
};

static bool split(struct grammar *g, struct bound *b, struct number_bound n, const char *where)
{
    char text[64];
    *b = (struct bound){.set = n.set, .open = n.open};
    if (!n.set)
        return true;
    double v = fabs(n.v);
    if (v >= 1e15 || (v != 0 && v < 1e-9)) {
        build_fail(g, "%s: a bound of %g; bounds of numbers must be 0 or between 1e-9 and 1e15", where, n.v);
        return false;
    }
    for (int precision = 1; precision <= 27; precision++) {
        snprintf(text, sizeof text, "%.*f", precision, v);
        double back = 0;
        if (sscanf(text, "%lf", &back) == 1 && back == v)
            break;
    }
    char *point = strchr(text, '.');
    size_t len = strlen(point + 1);
    while (len > 0 && point[len] == '0')
        len--;
    memcpy(b->frac, point + 1, len);
    unsigned long long whole = 0;
    sscanf(text, "%llu", &whole);
    b->whole = whole;
    return true;
}

static bool zeros(const char *s, size_t from)
{
    return from >= strlen(s); /* there are none at its end */
}

static char digit(const char *s, size_t i)
{
    return i < strlen(s) ? s[i] : '0';
}

/* The digits so far equal all of a bound: more zeros change nothing, and above a lower bound anything may follow. */
static void behind_all(struct grammar *g, uint32_t from, uint32_t to, bool has_digits, bool above, bool equal)
{
    enum { MORE = 8 };
    uint32_t a = build_state(g), b = build_state(g), z, rest;
    build_bytes(g, a, b, '0', '0');
    uint32_t zero = build_rule(g, a, b, NULL);
    if (equal)
        build_repeat(g, from, to, zero, has_digits ? 0 : 1, MORE);
    if (!above)
        return;
    z = build_state(g);
    rest = build_state(g);
    build_repeat(g, from, z, zero, 0, MORE);
    build_bytes(g, z, rest, '1', '9');
    build_repeat(g, rest, to, build_json(g, RULE_DIGIT), 0, FRACTION);
}

/* What stands behind the whole part when it equals that of lo (if set) and of hi (if set). */
static void fraction(struct grammar *g, uint32_t from, uint32_t to, const struct bound *lo,
                     const struct bound *hi)
{
    size_t n = strlen(lo->frac) > strlen(hi->frac) ? strlen(lo->frac) : strlen(hi->frac);
    uint32_t point = build_state(g), at[4];
    bool here[4] = {false};
    unsigned k0 = (lo->set ? 1u : 0u) | (hi->set ? 2u : 0u);
    bool low_ok = !lo->set || (zeros(lo->frac, 0) && !lo->open),
         high_ok = !hi->set || !zeros(hi->frac, 0) || !hi->open;
    if (low_ok && high_ok)
        build_empty(g, from, to); /* no fraction at all */
    build_bytes(g, from, point, '.', '.');
    at[k0] = point;
    here[k0] = true;
    for (size_t i = 0; i < n; i++) {
        uint32_t next[4] = {0};
        bool there[4] = {false};
        for (unsigned k = 1; k < 4; k++) {
            if (!here[k])
                continue;
            bool low_end = !(k & 1) || (zeros(lo->frac, i) && !lo->open);
            bool high_end = !(k & 2) || !zeros(hi->frac, i) || !hi->open;
            if (i > 0 && low_end && high_end) /* what is not written is zeros */
                build_empty(g, at[k], to);
            for (char d = k & 1 ? digit(lo->frac, i) : '0'; d <= (k & 2 ? digit(hi->frac, i) : '9'); d++) {
                unsigned to_k = ((k & 1) && d == digit(lo->frac, i) ? 1u : 0u) |
                                ((k & 2) && d == digit(hi->frac, i) ? 2u : 0u);
                if (!there[to_k])
                    next[to_k] = build_state(g);
                there[to_k] = true;
                build_bytes(g, at[k], next[to_k], (uint8_t)d, (uint8_t)d);
            }
        }
        if (there[0])
            build_repeat(g, next[0], to, build_json(g, RULE_DIGIT), 0, FRACTION);
        memcpy(at, next, sizeof at);
        memcpy(here, there, sizeof here);
    }
    for (unsigned k = 1; k < 4; k++)
        if (here[k])
            behind_all(g, at[k], to, n > 0, k == 1, !((k & 1) && lo->open) && !((k & 2) && hi->open));
}

static void any_fraction(struct grammar *g, uint32_t from, uint32_t to)
{
    uint32_t point = build_state(g);
    build_empty(g, from, to);
    build_bytes(g, from, point, '.', '.');
    build_repeat(g, point, to, build_json(g, RULE_DIGIT), 1, FRACTION);
}

static void one_whole(struct grammar *g, uint32_t from, uint32_t to, uint64_t whole, const struct bound *lo,
                      const struct bound *hi)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)whole);
    fraction(g, build_word(g, from, text), to, lo, hi);
}

/* Numbers without a sign. */
static void positive(struct grammar *g, uint32_t from, uint32_t to, const struct bound *lo,
                     const struct bound *hi)
{
    static const struct bound none = {0};
    if (hi->set && lo->whole == hi->whole) {
        one_whole(g, from, to, lo->whole, lo, hi);
        return;
    }
    one_whole(g, from, to, lo->whole, lo, &none);
    if (hi->set)
        one_whole(g, from, to, hi->whole, &none, hi);
    if (!hi->set || hi->whole - lo->whole > 1) {
        uint32_t w = build_state(g);
        natural(g, from, w, lo->whole + 1, hi->set ? hi->whole - 1 : UINT64_MAX);
        any_fraction(g, w, to);
    }
}

void number_decimals(struct grammar *g, uint32_t from, uint32_t to, struct number_bound lo,
                     struct number_bound hi, const char *where)
{
    struct bound a, b, zero = {.set = true};
    if (!split(g, &a, lo, where) || !split(g, &b, hi, where))
        return;
    bool lo_negative = !lo.set || lo.v < 0, hi_negative = hi.set && hi.v < 0;
    if (!hi_negative)
        positive(g, from, to, lo_negative ? &zero : &a, &b);
    if (lo_negative && !(lo.set && lo.v == 0)) {
        struct bound above_zero = {.set = true, .open = true};
        uint32_t minus = build_state(g);
        build_bytes(g, from, minus, '-', '-');
        positive(g, minus, to, hi_negative ? &b : &above_zero, &a);
    }
}

/* ---- multiples of a fraction ---- */

struct grid {
    struct grammar *g;
    uint32_t m, per_unit; /* steps of a unit */
    unsigned places;
};

/* Behind the point: a..b steps, a state for each beginning of their digits. What is left out at the end is zeros. */
static void grid_digits(const struct grid *d, uint32_t point, uint32_t to, uint32_t a, uint32_t b)
{
    enum { MOST = 1000 };
    uint32_t *states = calloc(2 * MOST, sizeof *states), *next = states + MOST; /* by digits so far, + 1 */
    uint32_t unit = d->m * d->per_unit;
    if (!states) {
        build_fail(d->g, "out of memory");
        return;
    }
    states[0] = point + 1;
    for (unsigned place = 0, scale = unit; place < d->places && !build_failed(d->g); place++) {
        scale /= 10; /* of the digit at this place */
        memset(next, 0, MOST * sizeof *next);
        for (uint32_t j = a; j <= b; j++) {
            uint32_t digits = j * d->m / scale, *at = &next[digits];
            if (!*at) {
                *at = build_state(d->g) + 1;
                build_bytes(d->g, states[digits / 10] - 1, *at - 1, (uint8_t)('0' + digits % 10),
                            (uint8_t)('0' + digits % 10));
            }
            if (digits * scale == j * d->m)
                build_empty(d->g, *at - 1, to);
        }
        memcpy(states, next, MOST * sizeof *states);
    }
    free(states);
}

static void grid_fraction(const struct grid *d, uint32_t from, uint32_t to, uint32_t a, uint32_t b)
{
    uint32_t point = build_state(d->g);
    if (a == 0)
        build_empty(d->g, from, to);
    build_bytes(d->g, from, point, '.', '.');
    if (a == 0 && b + 1 == d->per_unit && d->m == 1)
        build_repeat(d->g, point, to, build_json(d->g, RULE_DIGIT), 1, d->places);
    else
        grid_digits(d, point, to, a, b);
}

static void grid_whole(const struct grid *d, uint32_t from, uint32_t to, uint64_t whole, uint32_t a,
                       uint32_t b)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)whole);
    grid_fraction(d, build_word(d->g, from, text), to, a, b);
}

/* Without a sign. hi UINT64_MAX: no bound. */
static void grid_range(const struct grid *d, uint32_t from, uint32_t to, uint64_t lo, uint64_t hi)
{
    const uint64_t first = lo / d->per_unit, last = hi == UINT64_MAX ? UINT64_MAX : hi / d->per_unit;
    const uint32_t a = (uint32_t)(lo % d->per_unit), b = (uint32_t)(hi % d->per_unit), all = d->per_unit - 1;
    grid_whole(d, from, to, first, a, first == last ? b : all);
    if (last != UINT64_MAX && last > first)
        grid_whole(d, from, to, last, 0, b);
    if (last > first + 1) {
        uint32_t w = build_state(d->g);
        natural(d->g, from, w, first + 1, last == UINT64_MAX ? last : last - 1);
        grid_fraction(d, w, to, 0, all);
    }
}

void number_steps(struct grammar *g, uint32_t from, uint32_t to, int64_t lo, int64_t hi, uint32_t m,
                  unsigned places)
{
    struct grid d = {.g = g, .m = m, .per_unit = 1, .places = places};
    for (unsigned i = 0; i < places; i++)
        d.per_unit *= 10;
    d.per_unit /= m;
    if (hi >= 0)
        grid_range(&d, from, to, lo > 0 ? (uint64_t)lo : 0, hi == INT64_MAX ? UINT64_MAX : (uint64_t)hi);
    if (lo < 0) {
        uint32_t minus = build_state(g);
        build_bytes(g, from, minus, '-', '-');
        grid_range(&d, minus, to, hi < 0 ? magnitude(hi) : 1, lo == INT64_MIN ? UINT64_MAX : magnitude(lo));
    }
}
