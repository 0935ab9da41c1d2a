#include "utf8.h"

static const char replacement[] = "\xef\xbf\xbd";

/* Length of the valid sequence at p; 0: more bytes are needed; -1: p[0] starts nothing valid. */
static int sequence(const uint8_t *p, size_t n)
{
    uint8_t c = p[0];
    if (c < 0x80)
        return 1;
    unsigned need = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (need == 0)
        return -1;
    /* The second byte rules out overlong forms, surrogates and everything beyond U+10FFFF. */
    uint8_t lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    uint8_t hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    for (unsigned i = 1; i < need; i++) {
        if (i >= n)
            return 0;
        if (p[i] < lo || p[i] > hi)
            return -1;
        lo = 0x80;
        hi = 0xbf;
    }
    return (int)need;
}

static size_t run(const uint8_t *p, size_t n, struct buf *out)
{
    size_t at = 0;
    while (at < n) {
        int k = sequence(p + at, n - at);
        if (k == 0)
            break;
        if (k > 0) {
            buf_add(out, p + at, (size_t)k);
            at += (size_t)k;
        } else {
            buf_add(out, replacement, 3);
            at++;
        }
    }
    return at;
}

void utf8_feed(struct utf8_hold *h, const uint8_t *in, size_t n, struct buf *out)
{
    /* The tail is at most 3 bytes: move bytes over one by one until it is empty again, then take the rest as it lies. */
    size_t at = 0;
    while (h->n > 0 && at < n) {
        h->tail[h->n++] = in[at++];
        size_t used = run(h->tail, h->n, out);
        for (unsigned i = 0; i + used < h->n; i++)
            h->tail[i] = h->tail[i + used];
        h->n -= (unsigned)used;
    }
    if (at == n)
        return;
    at += run(in + at, n - at, out);
    while (at < n)
        h->tail[h->n++] = in[at++];
}

void utf8_flush(struct utf8_hold *h, struct buf *out)
{
    if (h->n > 0)
        buf_add(out, replacement, 3);
    h->n = 0;
}

bool utf8_whole(const void *p, size_t n)
{
    const uint8_t *s = p;
    for (size_t at = 0; at < n;) {
        int k = sequence(s + at, n - at);
        if (k <= 0)
            return false;
        at += (size_t)k;
    }
    return true;
}
