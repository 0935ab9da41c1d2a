#include "merge.h"

#include <stdlib.h>

/* A candidate is key and position in one number, so that order is one comparison. Four children a node: half the levels
 * of a binary heap. */
struct heap {
    uint64_t *v;
    size_t n;
};

static void heap_push(struct heap *h, uint64_t x)
{
    size_t i = h->n++;
    while (i > 0 && h->v[(i - 1) / 4] > x) {
        h->v[i] = h->v[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    h->v[i] = x;
}

static uint64_t heap_pop(struct heap *h)
{
    const uint64_t top = h->v[0], x = h->v[--h->n];
    size_t i = 0;
    for (;;) {
        const size_t first = i * 4 + 1;
        if (first >= h->n)
            break;
        size_t best = first;
        for (size_t c = first + 1; c < first + 4 && c < h->n; c++)
            if (h->v[c] < h->v[best])
                best = c;
        if (h->v[best] >= x)
            break;
        h->v[i] = h->v[best];
        i = best;
    }
    h->v[i] = x;
    return top;
}

static void offer(const struct merge_rules *r, struct heap *h, uint32_t i, uint32_t j)
{
    uint32_t key;
    if (r->key(r->ctx, i, j, &key))
        heap_push(h, (uint64_t)key << 32 | i);
}

int merge_run(const struct merge_rules *r, uint32_t n, uint32_t *next, struct vt_err *err)
{
    for (uint32_t i = 0; i < n; i++)
        next[i] = i + 1 < n ? i + 1 : MERGE_END;
    if (n < 2)
        return 0;
    /* n - 1 candidates at first; each join takes one out and offers at most two */
    struct heap h = {malloc((size_t)n * 2 * sizeof(uint64_t)), 0};
    uint32_t *prev = malloc((size_t)n * sizeof *prev);
    if (!h.v || !prev) {
        free(h.v);
        free(prev);
        return vt_fail(err, VT_E_NOMEM, "no memory to merge %u symbols", n);
    }
    for (uint32_t i = 0; i < n; i++)
        prev[i] = i - 1;
    for (uint32_t i = 0; i + 1 < n; i++)
        offer(r, &h, i, i + 1);
    while (h.n > 0) {
        const uint64_t top = heap_pop(&h);
        const uint32_t i = (uint32_t)top, j = next[i];
        uint32_t key;
        /* stale when i was swallowed (prev marks that) or its pair has changed since */
        if (prev[i] == i || j == MERGE_END || !r->key(r->ctx, i, j, &key) || key != (uint32_t)(top >> 32))
            continue;
        r->join(r->ctx, i, j);
        next[i] = next[j];
        prev[j] = j;
        if (next[i] != MERGE_END) {
            prev[next[i]] = i;
            offer(r, &h, i, next[i]);
        }
        if (i > 0)
            offer(r, &h, prev[i], i);
    }
    free(h.v);
    free(prev);
    return 0;
}
