/* Merging: joins neighbours of a row of symbols, the pair with the least key first (leftmost on ties), until no pair is
 * left. A linked list with a heap of candidates that are checked when they come up: n log n for every input. */
#ifndef TOKENIZER_MERGE_H
#define TOKENIZER_MERGE_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MERGE_END 0xFFFFFFFFu

struct merge_rules {
    /* Whether symbols i and j (neighbours, i left) may be joined, and with which key. */
    bool (*key)(void *ctx, uint32_t i, uint32_t j, uint32_t *key);
    /* Makes symbol i the join of i and j. */
    void (*join)(void *ctx, uint32_t i, uint32_t j);
    void *ctx;
};

/* next: n entries of room; on return next[i] leads from symbol 0 through those that are left, ending with MERGE_END. */
int merge_run(const struct merge_rules *r, uint32_t n, uint32_t *next, struct vt_err *err);

#endif
