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
    bool whole;     /* c[i].id == i for all of the vocabulary */
    bool loose;     /* banned ones are still in it, at -inf */
    bool sorted;    /* best first */
    /* There are others, whose logits are not known. None of them comes before `fence`; it did not when the list was loaded, and logits
     * have only fallen since. */
    bool rest;
    struct cand fence;
    bool unsure; /* something depended on the others */
};

int cands_init(struct cands *s, uint32_t n_vocab); /* -1: out of memory */
void cands_fini(struct cands *s);

void cands_load(struct cands *s, const float *logits);
/* The n best of the vocabulary, best first; all others are behind them. */
void cands_load_best(struct cands *s, const uint32_t *ids, const float *logits, uint32_t n);
/* The candidate of an id; NULL: it is not known. The list must be as it was loaded. */
struct cand *cands_find(struct cands *s, uint32_t id);
/* Leaves what the mask allows and nothing has banned. The list must be as it was loaded. */
void cands_mask(struct cands *s, const struct token_mask *m);
/* Whether others could matter to what looks at all candidates; then the list is unsure. */
bool cands_need_rest(struct cands *s);
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
/* Keeps the first n of the sorted list, without the others; unsure when one of these could be among the n. */
void cands_cut(struct cands *s, uint32_t n);
float cands_largest(const struct cands *s);
uint32_t cands_best(const struct cands *s); /* index of the best */
void cands_softmax(struct cands *s);

/* Calls change(arg, candidate, count) for each candidate whose id has counts[id] > 0, among ids[0..n); clears those counts. */
void cands_for_counted(struct cands *s, uint32_t *counts, const uint32_t *ids, size_t n,
                       void (*change)(const void *arg, struct cand *c, uint32_t count), const void *arg);

#endif
