/* Candidates: the tokens that are still in the running, with their logits. Steps of the sampler's chain change logits or
 * shorten the list; what is common to them is here. */
#ifndef CANDS_H
#define CANDS_H

#include "constraint.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cand {
    float logit;
    uint32_t id;
};

struct cands {
    uint32_t n_vocab;
    struct cand *c; /* [n_vocab], owned */
    float *probs;   /* [n_vocab], owned: of c[0..n), valid after cands_softmax until the next change */
    uint32_t n;     /* at least 1 once compact */
    bool whole;     /* c[i].id == i for all of the vocabulary; banned ones are still in it, at -inf */
    bool sorted;    /* best first */
};

int cands_init(struct cands *s, uint32_t n_vocab); /* -1: out of memory */
void cands_fini(struct cands *s);

void cands_load(struct cands *s, const float *logits);
/* Leaves what the mask allows and nothing has banned. The list must be whole. */
void cands_mask(struct cands *s, const struct token_mask *m);
/* Leaves out what is banned (-inf). false: nothing is left. */
bool cands_compact(struct cands *s);

/* Larger logit first, smaller id on ties, so that every step is deterministic. */
static inline bool cand_before(const struct cand *a, const struct cand *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}
/* Brings the k best to the front, best first. */
void cands_sort(struct cands *s, uint32_t k);
/* Sorts all of them if they are not. */
void cands_sort_all(struct cands *s);
/* Keeps the first n of the sorted list. */
void cands_cut(struct cands *s, uint32_t n);
float cands_largest(const struct cands *s);
uint32_t cands_best(const struct cands *s); /* index of the best */
void cands_softmax(struct cands *s);

/* Calls change(arg, candidate, count) for each candidate whose id has counts[id] > 0, among ids[0..n); clears those counts. */
void cands_for_counted(struct cands *s, uint32_t *counts, const uint32_t *ids, size_t n,
                       void (*change)(const void *arg, struct cand *c, uint32_t count), const void *arg);

#endif
