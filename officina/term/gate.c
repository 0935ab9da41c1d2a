#include "term/gate.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

static const struct {
    uint32_t first, last;
    uint8_t width;
} ranges[] = {
#include "width_table.inc"
};

int gate_cp_width(uint32_t cp)
{
    size_t lo = 0, hi = sizeof ranges / sizeof ranges[0];
    if (cp >= 0x20 && cp < 0x7f)
        return 1;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > ranges[mid].last)
            lo = mid + 1;
        else if (cp < ranges[mid].first)
            hi = mid;
        else
            return ranges[mid].width;
    }
    return 1;
}

size_t gate_decode(const char *s, size_t n, uint32_t *cp)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &c);
    if (len <= 0) {
        *cp = 0xfffd;
        return 1;
    }
    *cp = (uint32_t)c;
    return (size_t)len;
}

size_t gate_encode(uint32_t cp, char out[4])
{
    if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        cp = 0xfffd;
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)out);
}

/* Bytes of the cluster at s: code points up to the next border. */
static size_t cluster_bytes(const char *s, size_t n)
{
    uint32_t cp, next;
    size_t len = gate_decode(s, n, &cp);
    utf8proc_int32_t state = 0;
    if (cp < 0x80 && len < n && (unsigned char)s[len] < 0x80) {
        if (cp == '\r' && s[len] == '\n')
            return 2;
        return len;
    }
    while (len < n) {
        size_t more = gate_decode(s + len, n - len, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state))
            break;
        len += more;
        cp = next;
    }
    return len;
}

/* Length of the escape sequence at s, which begins with ESC; what is unfinished counts to the end. */
static size_t escape_bytes(const char *s, size_t n)
{
    if (n < 2 || (unsigned char)s[1] < 0x20 || (unsigned char)s[1] > 0x7e)
        return 1;
    size_t i = 2;
    switch (s[1]) {
    case '[':
        while (i < n && (unsigned char)s[i] >= 0x20 && (unsigned char)s[i] < 0x40)
            i++;
        return i < n && (unsigned char)s[i] < 0x7f ? i + 1 : i;
    case ']':
    case 'P':
    case '_':
    case '^':
    case 'X':
        for (; i < n; i++) {
            if (s[i] == '\a')
                return i + 1;
            if (s[i] == '\x1b')
                return i + 1 < n && s[i + 1] == '\\' ? i + 2 : i;
            if (s[i] == '\n') /* a text that only looks like one must not swallow the rest of the page */
                return i;
        }
        return n;
    default:
        while (i < n && (unsigned char)s[i - 1] >= 0x20 && (unsigned char)s[i - 1] < 0x30)
            i++;
        return i;
    }
}

static bool is_hidden(uint32_t cp)
{
    if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
        return true;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    return p->category == UTF8PROC_CATEGORY_CF || p->category == UTF8PROC_CATEGORY_ZL ||
           p->category == UTF8PROC_CATEGORY_ZP || p->category == UTF8PROC_CATEGORY_CS ||
           (cp >= 0xfe00 && cp <= 0xfe0f) || (cp >= 0xe0100 && cp <= 0xe01ef) || cp == 0x034f ||
           cp == 0x115f || cp == 0x1160 || cp == 0x3164 || cp == 0xffa0;
}

static bool is_pictograph(uint32_t cp)
{
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
    return p->boundclass == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC;
}

static bool is_regional(uint32_t cp)
{
    return cp >= 0x1f1e6 && cp <= 0x1f1ff;
}

static bool is_skin_tone(uint32_t cp)
{
    return cp >= 0x1f3fb && cp <= 0x1f3ff;
}

static void add_piece(struct cluster *out, const char *bytes, size_t n, int width)
{
    if (out->n == GATE_PIECES)
        return;
    struct piece *p = &out->piece[out->n++];
    memcpy(p->bytes, bytes, n);
    p->n = (uint8_t)n;
    p->width = (uint8_t)width;
    out->width = (uint8_t)(out->width + width);
}

/* The code of a hidden character: one piece for each of its letters. */
static void add_code(struct cluster *out, uint32_t cp)
{
    char code[16];
    int n = cp < 0x100 ? snprintf(code, sizeof code, "\\x%02x", (unsigned)cp)
                       : snprintf(code, sizeof code, cp < 0x10000 ? "\\u%04x" : "\\U%06x", (unsigned)cp);
    out->symbol = 1;
    for (int i = 0; i < n; i++)
        add_piece(out, &code[i], 1, 1);
}

static void add_mark(struct cluster *out, const char *bytes, size_t n)
{
    if (!out->n) {
        add_piece(out, " ", 1, 1); /* a mark without a letter stands on a blank */
    }
    struct piece *p = &out->piece[out->n - 1];
    if ((size_t)p->n + n > GATE_BYTES)
        return;
    memcpy(p->bytes + p->n, bytes, n);
    p->n = (uint8_t)(p->n + n);
}

static void draw_cluster(const char *s, size_t n, enum gate_show show, struct cluster *out)
{
    bool picture = false;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        char enc[4];
        size_t len = gate_decode(s + i, n - i, &cp);
        size_t bytes = gate_encode(cp, enc);
        i += len;
        int width = gate_cp_width(cp);
        if (is_hidden(cp)) {
            if (show == GATE_EXACT)
                add_code(out, cp);
            else if (cp == 0x200d && picture)
                return;
        } else if (is_regional(cp)) {
            char letter = (char)('A' + (cp - 0x1f1e6));
            add_piece(out, &letter, 1, 1);
        } else if (is_skin_tone(cp) && out->n) {
            continue;
        } else if (width == 0) {
            if (!picture && cp != 0x20e3)
                add_mark(out, enc, bytes);
        } else {
            if (picture && show == GATE_RUNNING)
                continue;
            picture = is_pictograph(cp);
            add_piece(out, enc, bytes, width);
        }
    }
}

size_t gate_next(const char *s, size_t n, enum gate_show show, struct cluster *out)
{
    memset(out, 0, sizeof *out);
    unsigned char c = (unsigned char)s[0];
    if (c == '\n' || c == '\t')
        return 1;
    if (c >= 0x20 && c < 0x7f && (n == 1 || (unsigned char)s[1] < 0x80)) {
        add_piece(out, s, 1, 1);
        return 1;
    }
    if (c == '\x1b' && show == GATE_RUNNING)
        return escape_bytes(s, n);
    size_t len = cluster_bytes(s, n);
    if (c == '\r' && len == 2)
        len = 1; /* the newline is the caller's */
    draw_cluster(s, len, show, out);
    return len;
}

size_t gate_after(const char *s, size_t n, size_t at)
{
    return at < n ? at + cluster_bytes(s + at, n - at) : n;
}

size_t gate_before(const char *s, size_t n, size_t at)
{
    if (at == 0)
        return 0;
    /* Clusters are found forwards only; a line's start is a border, and so is every place between two ASCII bytes. */
    size_t from = at - 1;
    while (from > 0 && at - from < 4096 &&
           !((unsigned char)s[from] < 0x80 && (unsigned char)s[from - 1] < 0x80 && s[from - 1] != '\r'))
        from--;
    while (from > 0 && ((unsigned char)s[from] & 0xc0) == 0x80 && at - from < 4200)
        from--;
    for (;;) {
        size_t next = gate_after(s, n, from);
        if (next >= at)
            return from;
        from = next;
    }
}

size_t gate_width(const char *s, size_t n, enum gate_show show)
{
    size_t width = 0;
    struct cluster c;
    for (size_t i = 0; i < n; i += gate_next(s + i, n - i, show, &c), width += c.width)
        ;
    return width;
}

size_t gate_fit(const char *s, size_t n, enum gate_show show, size_t columns, size_t *used)
{
    size_t width = 0, i = 0;
    struct cluster c;
    while (i < n) {
        size_t len = gate_next(s + i, n - i, show, &c);
        if (width + c.width > columns)
            break;
        width += c.width;
        i += len;
    }
    if (used)
        *used = width;
    return i;
}
