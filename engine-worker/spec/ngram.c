#include "ngram.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PLACES 32 /* that a look-up compares */

/* A place is the index of the last id of a run, plus 1; 0: none. */
struct ngram {
    uint32_t cap, mask, n; /* n: ids that are indexed */
    uint32_t *newest;      /* [mask + 1] by the run's hash */
    uint32_t *before;      /* [cap] of each place */
};

static uint32_t buckets(uint32_t cap)
{
    uint32_t n = 64;
    while (n < cap && n < 1u << 31)
        n *= 2;
    return n;
}

size_t ngram_bytes(uint32_t cap)
{
    return ((size_t)buckets(cap) + cap) * sizeof(uint32_t) + sizeof(struct ngram);
}

int ngram_new(struct ngram **out, uint32_t cap, struct vt_err *err)
{
    struct ngram *g = calloc(1, sizeof *g);
    if (g) {
        g->cap = cap;
        g->mask = buckets(cap) - 1;
        g->newest = calloc((size_t)g->mask + 1, sizeof *g->newest);
        g->before = calloc(cap ? cap : 1, sizeof *g->before);
    }
    if (!g || !g->newest || !g->before) {
        ngram_free(g);
        return vt_fail(err, VT_E_NOMEM, "out of memory for the draft index of a window of %u tokens", cap);
    }
    *out = g;
    return 0;
}

void ngram_free(struct ngram *g)
{
    if (!g)
        return;
    free(g->newest);
    free(g->before);
    free(g);
}

void ngram_clear(struct ngram *g)
{
    if (g->n > 0)
        memset(g->newest, 0, ((size_t)g->mask + 1) * sizeof *g->newest);
    g->n = 0;
}

/* Of the run that ends with items[i]. */
static uint32_t bucket(const struct ngram *g, const uint32_t *items, uint32_t i)
{
    uint64_t h = 0;
    for (uint32_t k = 0; k < NGRAM_LEAST; k++)
        h = (h ^ items[i - k]) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) & g->mask;
}

static void extend(struct ngram *g, const uint32_t *items, uint32_t n)
{
    for (uint32_t i = g->n; i < n; i++) {
        g->before[i] = 0;
        if (i + 1 < NGRAM_LEAST)
            continue;
        uint32_t *at = &g->newest[bucket(g, items, i)];
        g->before[i] = *at;
        *at = i + 1;
    }
    g->n = n;
}

/* Ids that agree, backwards from a and from b, a < b. */
static uint32_t agreement(const uint32_t *items, uint32_t a, uint32_t b)
{
    uint32_t n = 0;
    while (n <= a && n < NGRAM_LONG && items[a - n] == items[b - n])
        n++;
    return n;
}

uint32_t ngram_draft(struct ngram *g, const uint32_t *items, uint32_t n, uint32_t least, uint32_t most,
                     uint32_t *out)
{
    uint32_t best = 0, length = 0;
    assert(n <= g->cap && n >= g->n);
    extend(g, items, n);
    if (n <= NGRAM_LEAST)
        return 0;
    uint32_t place = g->before[n - 1];
    for (uint32_t i = 0; i < PLACES && place != 0 && length < NGRAM_LONG; i++, place = g->before[place - 1]) {
        uint32_t agrees = agreement(items, place - 1, n - 1);
        if (agrees > length) {
            length = agrees;
            best = place;
        }
    }
    if (length < least || length < NGRAM_LEAST)
        return 0;
    /* A place near the end runs into the draft itself: a text that repeats goes on repeating. */
    for (uint32_t i = 0; i < most; i++)
        out[i] = best + i < n ? items[best + i] : out[best + i - n];
    return most;
}
