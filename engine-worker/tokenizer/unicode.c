#include "unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

const uint16_t u_ascii_class[128] = {
    ['\t'] = U_SP,        ['\n'] = U_SP | U_NL, ['\v'] = U_SP,       ['\f'] = U_SP,
    ['\r'] = U_SP | U_NL, [' '] = U_SP,         ['!' ... '#'] = U_P, ['$'] = U_S,
    ['%' ... '*'] = U_P,  ['+'] = U_S,          [',' ... '/'] = U_P, ['0' ... '9'] = U_N,
    [':' ... ';'] = U_P,  ['<' ... '>'] = U_S,  ['?' ... '@'] = U_P, ['A' ... 'Z'] = U_LU,
    ['[' ... ']'] = U_P,  ['^'] = U_S,          ['_'] = U_P,         ['`'] = U_S,
    ['a' ... 'z'] = U_LL, ['{'] = U_P,          ['|'] = U_S,         ['}'] = U_P,
    ['~'] = U_S,
};

size_t u8_decode_long(const uint8_t *s, size_t n, uint32_t *cp)
{
    *cp = U8_BAD;
    size_t len;
    uint32_t v, least;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 1;
    if (s[0] < 0xE0)
        len = 2, v = s[0] & 0x1Fu, least = 0x80;
    else if (s[0] < 0xF0)
        len = 3, v = s[0] & 0x0Fu, least = 0x800;
    else
        len = 4, v = s[0] & 0x07u, least = 0x10000;
    if (n < len)
        return 1;
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 1;
        v = v << 6 | (s[i] & 0x3Fu);
    }
    if (v < least || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF))
        return 1;
    *cp = v;
    return len;
}

size_t u8_encode(uint32_t cp, uint8_t *out)
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (uint8_t)(0xC0 | cp >> 6);
        out[1] = (uint8_t)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xE0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (cp & 0x3F));
    return 4;
}

/* White_Space outside ASCII. It is not the same as category Z: U+0085 is a control. */
static bool wide_space(uint32_t cp)
{
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

unsigned u_class_wide(uint32_t cp)
{
    if (cp == U8_BAD)
        return U_S;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU: return U_LU;
    case UTF8PROC_CATEGORY_LL: return U_LL;
    case UTF8PROC_CATEGORY_LT: return U_LT;
    case UTF8PROC_CATEGORY_LM: return U_LM;
    case UTF8PROC_CATEGORY_LO: return U_LO;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return U_M;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return U_N;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return U_P;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return U_S;
    default: return wide_space(cp) ? U_SP : 0;
    }
}

/* Blocks without characters of class 0 that compose with the one before them (those are in scripts of India and South-East
 * Asia, and Hangul jamo). */
static bool plain_block(uint32_t cp)
{
    return cp < 0x900 || (cp >= 0x1E00 && cp < 0xD800) || (cp >= 0xE000 && cp < 0x10000) || cp >= 0x1F000;
}

/* A character that NFC keeps, whatever stands around it, and before which a text can be cut. */
static bool inert(uint32_t cp)
{
    if (cp < 0x300 || cp == U8_BAD)
        return true;
    if (!plain_block(cp) || utf8proc_get_property((utf8proc_int32_t)cp)->combining_class != 0)
        return false;
    utf8proc_int32_t to[4];
    int boundary = 0;
    return utf8proc_decompose_char((utf8proc_int32_t)cp, to, 4, UTF8PROC_COMPOSE | UTF8PROC_STABLE,
                                   &boundary) == 1 &&
           to[0] == (utf8proc_int32_t)cp;
}

/* Where the next character that is not inert begins, n when all are; *before is where the character before it begins (the
 * two may compose). */
static size_t next_change(const uint8_t *s, size_t n, size_t from, size_t *before)
{
    size_t last = from;
    for (size_t at = from; at < n;) {
        uint32_t cp;
        const size_t len = u8_decode(s + at, n - at, &cp);
        if (!inert(cp)) {
            *before = last;
            return at;
        }
        last = at;
        at += len;
    }
    *before = n;
    return n;
}

bool u_nfc_changes(const uint8_t *s, size_t n)
{
    size_t before;
    return next_change(s, n, 0, &before) < n;
}

/* Code points of one valid stretch, growing. */
struct points {
    utf8proc_int32_t *v;
    size_t n, cap;
};

static int points_room(struct points *p, size_t more, struct vt_err *err)
{
    if (p->cap - p->n >= more)
        return 0;
    size_t cap = p->cap * 2 + more + 64;
    utf8proc_int32_t *v = realloc(p->v, cap * sizeof *v);
    if (!v)
        return vt_fail(err, VT_E_NOMEM, "no memory to normalize a text of %zu characters", p->n);
    p->v = v;
    p->cap = cap;
    return 0;
}

static unsigned combining(utf8proc_int32_t cp)
{
    return (unsigned)utf8proc_get_property(cp)->combining_class;
}

static int by_class(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Canonical order of the non-starters [from, to). utf8proc's own ordering exchanges neighbours, which is quadratic on a
 * long run of marks; here long runs are sorted by (class, position). */
static int order_run(utf8proc_int32_t *v, size_t n, struct vt_err *err)
{
    if (n <= 24) {
        for (size_t i = 1; i < n; i++) {
            const utf8proc_int32_t x = v[i];
            const unsigned c = combining(x);
            size_t j = i;
            for (; j > 0 && combining(v[j - 1]) > c; j--)
                v[j] = v[j - 1];
            v[j] = x;
        }
        return 0;
    }
    /* class: 8 bits, position: 35 bits, code point: 21 bits */
    uint64_t *keys = malloc(n * sizeof *keys);
    if (!keys)
        return vt_fail(err, VT_E_NOMEM, "no memory to order %zu combining marks", n);
    for (size_t i = 0; i < n; i++)
        keys[i] = (uint64_t)combining(v[i]) << 56 | (uint64_t)i << 21 | (uint64_t)v[i];
    qsort(keys, n, sizeof *keys, by_class);
    for (size_t i = 0; i < n; i++)
        v[i] = (utf8proc_int32_t)(keys[i] & 0x1FFFFF);
    free(keys);
    return 0;
}

static int order(struct points *p, struct vt_err *err)
{
    for (size_t i = 0; i < p->n;) {
        if (p->v[i] < 0x300 || combining(p->v[i]) == 0) {
            i++;
            continue;
        }
        size_t j = i + 1;
        while (j < p->n && combining(p->v[j]) != 0)
            j++;
        if (j - i > 1 && order_run(p->v + i, j - i, err))
            return -1;
        i = j;
    }
    return 0;
}

/* Appends the NFC of the code points to out, which has room: NFC grows a character to at most 3 times its bytes. */
static int flush(struct points *p, uint8_t *out, size_t *at, struct vt_err *err)
{
    if (p->n == 0)
        return 0;
    if (order(p, err))
        return -1;
    const utf8proc_ssize_t n =
        utf8proc_normalize_utf32(p->v, (utf8proc_ssize_t)p->n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n < 0)
        return vt_fail(err, VT_E_INTERNAL, "normalization failed: %s", utf8proc_errmsg(n));
    for (utf8proc_ssize_t i = 0; i < n; i++)
        *at += u8_encode((uint32_t)p->v[i], out + *at);
    p->n = 0;
    return 0;
}

static int add_point(struct points *p, uint32_t cp, struct vt_err *err)
{
    if (points_room(p, 8, err))
        return -1;
    int boundary = 0;
    const utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)cp, p->v + p->n, 8,
                                                       UTF8PROC_COMPOSE | UTF8PROC_STABLE, &boundary);
    if (k < 0 || k > 8)
        return vt_fail(err, VT_E_INTERNAL, "U+%04X does not decompose", cp);
    p->n += (size_t)k;
    return 0;
}

/* Normalizes the stretch that begins at `from` and ends before the next inert character behind `change`. */
static int normalize_stretch(struct points *p, const uint8_t *s, size_t n, size_t from, size_t change,
                             size_t *end, uint8_t *out, size_t *at, struct vt_err *err)
{
    size_t i = from;
    while (i < n) {
        uint32_t cp;
        const size_t len = u8_decode(s + i, n - i, &cp);
        if (cp == U8_BAD && i < change) {
            /* the character before is no character: it composes with nothing */
            out[(*at)++] = s[i];
        } else {
            if (i > change && inert(cp))
                break;
            if (add_point(p, cp, err))
                return -1;
        }
        i += len;
    }
    *end = i;
    return flush(p, out, at, err);
}

int u_nfc(const uint8_t *s, size_t n, uint8_t **out, size_t *out_n, struct vt_err *err)
{
    *out = NULL;
    if (n > SIZE_MAX / 8)
        return vt_fail(err, VT_E_TOO_LARGE, "a text of %zu bytes is too long to normalize", n);
    uint8_t *buf = malloc(n * 3 + 4);
    if (!buf)
        return vt_fail(err, VT_E_NOMEM, "no memory to normalize %zu bytes", n);
    struct points p = {0};
    size_t at = 0, from = 0;
    int rc = 0;
    while (rc == 0 && from < n) {
        size_t before, end = n;
        const size_t change = next_change(s, n, from, &before);
        memcpy(buf + at, s + from, before - from);
        at += before - from;
        if (change < n)
            rc = normalize_stretch(&p, s, n, before, change, &end, buf, &at, err);
        from = end;
    }
    free(p.v);
    if (rc) {
        free(buf);
        return -1;
    }
    *out = buf;
    *out_n = at;
    return 0;
}
