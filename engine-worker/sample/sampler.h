/* Sampler: from one row of logits to one token.
 *
 * Order and meaning as in llama-server: logit bias; penalties over the last repeat_last_n items (prompt included); top-k;
 * top-p; min-p; temperature; then a draw. Temperature <= 0 takes the largest logit after bias and penalties. The draw is
 * a pure function of the logits, the parameters, the seed and the position: the sampler has no state. Log-probabilities
 * are those of the untouched logits (before bias). One sampler belongs to one thread at a time. */
#ifndef SAMPLER_H
#define SAMPLER_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sampler_params {
    float temperature;                                         /* <= 0: greedy */
    int32_t top_k;                                             /* <= 0: all */
    float top_p;                                               /* >= 1: all */
    float min_p;                                               /* <= 0: all */
    int32_t min_keep;                                          /* top-p and min-p leave at least so many */
    float repeat_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0: none */
    int32_t repeat_last_n;                                     /* -1: all items; 0: none */
    uint64_t seed;
    uint32_t *bias_ids; /* owned by whoever owns the parameters */
    float *bias;        /* -inf bans a token */
    size_t n_bias;
};

/* Checks ranges: finite numbers, positive repeat penalty, bias ids below n_vocab. VT_E_PARAM names the parameter. */
int sampler_check(const struct sampler_params *p, uint32_t n_vocab, struct vt_err *err);

struct sampler;
int sampler_new(struct sampler **out, uint32_t n_vocab, struct vt_err *err);
void sampler_free(struct sampler *s);

struct sampler_top {
    uint32_t id;
    float logprob;
};

enum sampler_rc {
    SAMPLER_OK,
    SAMPLER_NOT_FINITE /* a logit is not a number or infinite */,
    SAMPLER_NOTHING /* all are banned */
};

/* Chooses a token. items: everything before it (prompt and output), for the penalties. position: of the token in the
 * output. logprob (may be NULL) and top[0..n_top) are filled from the untouched logits, best first, when wanted.
 * logits are left as they are. */
enum sampler_rc sampler_pick(struct sampler *s, const struct sampler_params *p, const float *logits,
                             const uint32_t *items, size_t n_items, uint64_t position, uint32_t *id,
                             float *logprob, struct sampler_top *top, unsigned n_top);

#endif
