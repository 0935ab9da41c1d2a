#include "dry.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void dry_fini(struct dry *d)
{
    free(d->match);
    *d = (struct dry){0};
}

/* The bytes from item i on, up to `want` beyond the item's own. Returns how many; *own is the item's share. */
static size_t bytes_from(const struct sampler_ask *a, const uint32_t *items, size_t n, size_t i, uint8_t *buf,
                         size_t cap, size_t want, size_t *own)
{
    size_t len = 0;
    *own = 0;
    for (size_t k = i; k < n && (k == i || len < *own + want); k++) {
        size_t m;
        const uint8_t *b = a->bytes(a->bytes_arg, items[k], &m);
        if (!b)
            m = 0;
        if (m > cap - len)
            m = cap - len;
        if (m > 0)
            memcpy(buf + len, b, m);
        len += m;
        if (k == i)
            *own = len;
    }
    return len;
}

/* Whether one of the breakers begins in the first `own` of the len bytes; *end is where the one that reaches farthest ends. */
static bool begins_here(const struct vt_sampling *p, const uint8_t *buf, size_t len, size_t own, size_t *end)
{
    bool found = false;
    *end = 0;
    for (size_t at = 0; at < p->breakers_len; at += strlen(p->breakers + at) + 1) {
        size_t m = strlen(p->breakers + at);
        for (size_t i = 0; m > 0 && i < own && i + m <= len; i++)
            if (memcmp(buf + i, p->breakers + at, m) == 0) {
                found = true;
                *end = i + m > *end ? i + m : *end;
            }
    }
    return found;
}

static size_t longest_breaker(const struct vt_sampling *p)
{
    size_t max = 0;
    for (size_t at = 0; at < p->breakers_len; at += strlen(p->breakers + at) + 1)
        max = strlen(p->breakers + at) > max ? strlen(p->breakers + at) : max;
    return max;
}

/* Items after the last sequence breaker: no repetition is longer. Looks backwards, so that it mostly ends soon. */
static size_t since_breaker(const struct sampler_ask *a, const uint32_t *items, size_t n)
{
    uint8_t buf[2 * VT_BREAKERS_MAX];
    size_t longest = longest_breaker(a->p);
    if (!a->bytes || longest == 0)
        return n;
    for (size_t i = n; i-- > 0;) {
        size_t own, end, len = bytes_from(a, items, n, i, buf, sizeof buf, longest - 1, &own);
        if (!begins_here(a->p, buf, len, own, &end))
            continue;
        size_t last = i; /* the item in which the breaker ends */
        for (size_t have = own; have < end && last + 1 < n; have += own) {
            last++;
            bytes_from(a, items, n, last, buf, sizeof buf, 0, &own);
        }
        return n - 1 - last;
    }
    return n;
}

/* match[k] = length of the common suffix of items[0..n-k) and items[0..n), the Z function of the reversed list (Gusfield,
 * Algorithms on Strings, 1997); linear in n. */
static void suffix_matches(const uint32_t *items, size_t n, uint32_t *match)
{
    size_t left = 0,
           right = 0; /* the rightmost window [left, right) known to equal a prefix of the reversed list */
    match[0] = (uint32_t)n;
    for (size_t k = 1; k < n; k++) {
        size_t z = k < right ? (match[k - left] < right - k ? match[k - left] : right - k) : 0;
        while (k + z < n && items[n - 1 - z] == items[n - 1 - k - z])
            z++;
        match[k] = (uint32_t)z;
        if (k + z > right) {
            left = k;
            right = k + z;
        }
    }
}

static void lower(const void *arg, struct cand *c, uint32_t length)
{
    const struct vt_sampling *p = arg;
    double most = p->dry_base > 1 ? floor(log((double)FLT_MAX) / log(p->dry_base)) : HUGE_VAL;
    double e = (double)length - (double)p->dry_allowed_length;
    c->logit -= (float)fmin(p->dry_multiplier * pow(p->dry_base, e < most ? e : most), (double)FLT_MAX / 4);
}

int dry_apply(struct dry *d, struct cands *s, uint32_t *counts, const struct sampler_ask *a)
{
    const struct vt_sampling *p = a->p;
    const uint32_t *items = a->items;
    size_t n = a->n_items;
    if (p->dry_multiplier == 0 || p->dry_base < 1 || p->dry_penalty_last_n == 0 || n == 0)
        return 0;
    if (p->dry_penalty_last_n > 0 && n > (uint64_t)p->dry_penalty_last_n) {
        items += n - (size_t)p->dry_penalty_last_n;
        n = (size_t)p->dry_penalty_last_n;
    }
    if (p->dry_multiplier < 0)
        cands_need_rest(s); /* it may lift one that is not known */
    size_t limit = since_breaker(a, items, n);
    size_t allowed = p->dry_allowed_length > 1 ? (size_t)p->dry_allowed_length : 1;
    if (n <= allowed || limit < allowed)
        return 0;
    if (n > d->cap) {
        uint32_t *grown = realloc(d->match, n * sizeof *grown);
        if (!grown)
            return -1;
        d->match = grown;
        d->cap = n;
    }
    suffix_matches(items, n, d->match);
    for (size_t k = 1; k < n; k++) {
        size_t len = d->match[k] < limit ? d->match[k] : limit;
        uint32_t next = items[n - k]; /* what followed the stretch that ends k items before the end */
        if (len >= allowed && len > counts[next])
            counts[next] = (uint32_t)len;
    }
    cands_for_counted(s, counts, items, n, lower, p);
    return 0;
}
