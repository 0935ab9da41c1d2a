/* DRY, "don't repeat yourself": lowers the logit of every token that would continue a stretch of the context which the end
 * of the context repeats already, by multiplier * base ^ (length - allowed length). A repetition does not reach across a
 * sequence breaker. Idea: p-e-w, text-generation-webui pull request 5677. */
#ifndef DRY_H
#define DRY_H

#include "cands.h"
#include "sampler.h"

struct dry {
    uint32_t *match; /* [cap], owned: scratch */
    size_t cap;
};
void dry_fini(struct dry *d);

/* counts: [n_vocab] of zeros, and zeros again afterwards. -1: out of memory, nothing changed. */
int dry_apply(struct dry *d, struct cands *s, uint32_t *counts, const struct sampler_ask *a);

#endif
