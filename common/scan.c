#include "frame.h"

#include <math.h>
#include <string.h>

#define MAX_DEPTH 6
#define MAX_ELEMS 4096
#define MAX_TOTAL 65536

/* One open container. */
struct level {
    uint32_t left; /* objects still to come; a map's pairs count twice */
    bool map, want_key, str_keys, first;
    uint64_t last_uint;
    const uint8_t *last_str;
    size_t last_len;
};

struct scan {
    const uint8_t *start, *at, *end;
    struct level level[MAX_DEPTH + 1]; /* level[1] is the frame's array */
    unsigned depth;
    uint32_t total;
    uint8_t type;
    bool floats; /* the body value being read may hold them */
    struct vt_err *err;
};

static int bad(struct scan *s, const char *what)
{
    return vt_fail(s->err, VT_E_BAD_FRAME, "bad frame: %s at byte %zu", what, (size_t)(s->at - s->start));
}

static uint64_t big_endian(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

/* Reads n length or value bytes after the header byte; -1 when they are not there or a shorter form existed.
 */
static int read_number(struct scan *s, unsigned n, uint64_t least, uint64_t *out)
{
    if ((size_t)(s->end - s->at) < 1 + (size_t)n)
        return bad(s, "cut off");
    *out = big_endian(s->at + 1, n);
    if (*out < least)
        return bad(s, "not the shortest form");
    s->at += 1 + n;
    return 0;
}

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF; and no NUL, since C strings are made of
 * it. */
static size_t utf8_char(const uint8_t *p, size_t n)
{
    uint8_t c = p[0];
    if (c < 0x80)
        return c != 0;
    unsigned more = c >= 0xc2 && c <= 0xdf ? 1 : (c & 0xf0) == 0xe0 ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 0;
    if (more == 0 || n < 1 + (size_t)more)
        return 0;
    uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    uint8_t high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < low || p[1] > high)
        return 0;
    for (unsigned i = 2; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return 1 + (size_t)more;
}

size_t vt_utf8_good(const uint8_t *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        size_t c = utf8_char(p + at, n - at);
        if (c == 0)
            break;
        at += c;
    }
    return at;
}

static int push(struct scan *s, uint64_t count, bool map)
{
    if (count > MAX_ELEMS)
        return bad(s, "container too large");
    uint64_t objects = map ? count * 2 : count;
    if (objects > (size_t)(s->end - s->at))
        return bad(s, "container larger than what is left");
    if (s->depth == MAX_DEPTH)
        return bad(s, "nested too deep");
    s->total += (uint32_t)objects;
    if (s->total > MAX_TOTAL)
        return bad(s, "too many elements");
    s->depth++;
    s->level[s->depth] =
        (struct level){.left = (uint32_t)objects, .map = map, .want_key = map, .first = true};
    return 0;
}

/* Key of an open map: kind, order and, in the body, range. */
static int key_uint(struct scan *s, uint64_t v)
{
    struct level *l = &s->level[s->depth];
    if (!l->first && l->str_keys)
        return bad(s, "mixed keys");
    if (!l->first && v <= l->last_uint)
        return bad(s, "keys not ascending");
    if (s->depth == 2) {
        if (v < 1 || v > 127)
            return bad(s, "key out of range");
        s->floats = vt_frame_key_floats(s->type, (unsigned)v);
    }
    l->first = false;
    l->last_uint = v;
    return 0;
}

static int key_str(struct scan *s, const uint8_t *p, size_t n)
{
    struct level *l = &s->level[s->depth];
    if (s->depth == 2 || (!l->first && !l->str_keys))
        return bad(s, "key of the wrong kind");
    if (!l->first) {
        size_t common = n < l->last_len ? n : l->last_len;
        int c = memcmp(l->last_str, p, common);
        if (c > 0 || (c == 0 && l->last_len >= n))
            return bad(s, "keys not ascending");
    }
    l->first = false;
    l->str_keys = true;
    l->last_str = p;
    l->last_len = n;
    return 0;
}

/* An object at the frame's own level: the envelope's five places. */
static int envelope(struct scan *s, unsigned place, uint8_t head, uint64_t v, bool is_uint)
{
    if (place == 4)
        return (head & 0xf0) == 0x80 || head == 0xde || head == 0xdf ? 0 : bad(s, "body is not a map");
    if (!is_uint)
        return bad(s, "envelope field is not a number");
    if (place == 0 && v != VT_WIRE_VERSION)
        return vt_fail(s->err, VT_E_VERSION, "frame of wire version %llu, this is %d", (unsigned long long)v,
                       VT_WIRE_VERSION);
    if (place == 1) {
        if (v < 1 || v > 0x7f)
            return bad(s, "type out of range");
        s->type = (uint8_t)v;
    }
    if ((place == 2 && v > INT64_MAX) || (place == 3 && v > UINT32_MAX))
        return bad(s, "envelope field out of range");
    return 0;
}

/* Takes one value's place in its container. Called before the value opens a container of its own. */
static int place_value(struct scan *s, uint8_t head, uint64_t v, bool is_uint)
{
    struct level *l = &s->level[s->depth];
    if (l->map && l->want_key)
        return is_uint ? key_uint(s, v) : bad(s, "key of the wrong kind");
    if (s->depth == 1)
        return envelope(s, 5 - l->left, head, v, is_uint);
    return 0;
}

/* One object is complete, or a container was opened: its place in the outer container is used. */
static void used(struct level *l)
{
    l->left--;
    if (l->map)
        l->want_key = !l->want_key;
}

static int scan_container(struct scan *s, uint8_t head)
{
    uint64_t n = 0;
    bool map = (head & 0xf0) == 0x80 || head == 0xde || head == 0xdf;
    if (place_value(s, head, 0, false) < 0)
        return -1;
    if (head < 0xa0) {
        n = head & 0x0f;
        s->at++;
    } else if (head == 0xdc || head == 0xde) {
        if (read_number(s, 2, 16, &n) < 0)
            return -1;
    } else if (read_number(s, 4, 65536, &n) < 0) {
        return -1;
    }
    used(&s->level[s->depth]);
    return push(s, n, map);
}

static int scan_bytes(struct scan *s, uint8_t head)
{
    uint64_t n = 0;
    bool str = (head & 0xe0) == 0xa0 || (head >= 0xd9 && head <= 0xdb);
    struct level *l = &s->level[s->depth];
    int rc = 0;
    if ((head & 0xe0) == 0xa0) {
        n = head & 0x1f;
        s->at++;
    } else if (head == 0xd9 || head == 0xc4) {
        rc = read_number(s, 1, str ? 32 : 0, &n);
    } else if (head == 0xda || head == 0xc5) {
        rc = read_number(s, 2, 256, &n);
    } else {
        rc = read_number(s, 4, 65536, &n);
    }
    if (rc < 0)
        return -1;
    if (n > (size_t)(s->end - s->at))
        return bad(s, "cut off");
    if (str && n > VT_FRAME_STR_MAX)
        return bad(s, "string too long");
    if (str && vt_utf8_good(s->at, n) != n)
        return bad(s, "string is not UTF-8");
    if (l->map && l->want_key)
        rc = str ? key_str(s, s->at, n) : bad(s, "key of the wrong kind");
    else if (s->depth == 1)
        rc = bad(s, "envelope field is not a number");
    if (rc < 0)
        return -1;
    s->at += n;
    used(l);
    return 0;
}

static int scan_uint(struct scan *s, uint8_t head)
{
    static const uint64_t least[] = {0x80, 0x100, 0x10000, 0x100000000};
    uint64_t v = head;
    if (head < 0x80)
        s->at++;
    else if (read_number(s, 1u << (head - 0xcc), least[head - 0xcc], &v) < 0)
        return -1;
    if (place_value(s, head, v, true) < 0)
        return -1;
    used(&s->level[s->depth]);
    return 0;
}

static int scan_negative(struct scan *s, uint8_t head)
{
    if (place_value(s, head, 0, false) < 0)
        return -1;
    if (head >= 0xe0) {
        s->at++;
    } else {
        static const int64_t most[] = {-33, -129, -32769, -2147483649LL};
        unsigned bytes = 1u << (head - 0xd0);
        uint64_t raw = 0;
        if (read_number(s, bytes, 0, &raw) < 0)
            return -1;
        int64_t v = (int64_t)(raw << (64 - 8 * bytes)) >> (64 - 8 * bytes);
        if (v > most[head - 0xd0])
            return bad(s, "not the shortest form");
    }
    used(&s->level[s->depth]);
    return 0;
}

static int scan_float(struct scan *s, uint8_t head)
{
    uint64_t raw = 0;
    double v;
    if (place_value(s, head, 0, false) < 0)
        return -1;
    if (!s->floats)
        return bad(s, "float where none may be");
    if (read_number(s, 8, 0, &raw) < 0)
        return -1;
    memcpy(&v, &raw, sizeof v);
    if (!isfinite(v))
        return bad(s, "float is not finite");
    used(&s->level[s->depth]);
    return 0;
}

static int scan_object(struct scan *s)
{
    if (s->at == s->end)
        return bad(s, "cut off");
    uint8_t head = *s->at;
    if (head < 0x80 || (head >= 0xcc && head <= 0xcf))
        return scan_uint(s, head);
    if (head < 0xa0 || head >= 0xe0 || (head >= 0xdc && head <= 0xdf))
        return head >= 0xe0 ? scan_negative(s, head) : scan_container(s, head);
    if (head < 0xc0 || (head >= 0xd9 && head <= 0xdb) || (head >= 0xc4 && head <= 0xc6))
        return scan_bytes(s, head);
    if (head >= 0xd0 && head <= 0xd3)
        return scan_negative(s, head);
    if (head == 0xcb)
        return scan_float(s, head);
    return bad(s, "kind of object that no frame has");
}

int vt_frame_scan(const uint8_t *buf, size_t len, size_t max, struct vt_err *err)
{
    struct scan s = {.start = buf, .at = buf, .end = buf + len, .err = err};
    if (len > max)
        return vt_fail(err, VT_E_TOO_LARGE, "frame of %zu bytes, the limit here is %zu", len, max);
    if (len < 6 || buf[0] != 0x95)
        return bad(&s, "not an array of five");
    s.at++;
    s.depth = 1;
    s.level[1] = (struct level){.left = 5, .first = true};
    while (s.depth > 0) {
        if (s.level[s.depth].left == 0) {
            s.depth--;
            continue;
        }
        if (scan_object(&s) < 0)
            return -1;
    }
    if (s.at != s.end)
        return bad(&s, "bytes after the end");
    return 0;
}
