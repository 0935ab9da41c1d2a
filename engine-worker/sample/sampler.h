/* Sampler: from one row of logits to one token.
 *
 * The mask of a grammar, logit bias and the request's bans come first; then the steps of the chain in the order asked for (sampling.h), each with
 * the meaning it has in llama-server; then a draw. Temperature <= 0 leaves only the largest logit at its place in the chain.
 * Mirostat takes the place of the truncations; adaptive-p takes the place of the plain draw. The draw is a pure function of
 * the logits, the parameters, the state, the seed and the position; only mirostat and adaptive-p have a state, one number,
 * which the caller keeps and hands in. Log-probabilities are those of the untouched logits (before bias), or with
 * post_probs those of the candidates that the draw saw.
 *
 * Papers: locally typical sampling, Meister et al. 2022 (arXiv:2202.00666); mirostat, Basu et al. 2020 (arXiv:2007.14966);
 * top-n-sigma, Tang et al. 2024 (arXiv:2411.07641); min-p, Nguyen et al. 2024 (arXiv:2407.01082).
 * Mostly the best of a row decide alone. A pick from them is that from the whole row, bit for bit, or says that it needs the row: what
 * is not known can then come before none of what was taken, since bias, penalties and masks have only lowered it.
 *
 * One sampler belongs to one thread at a time. */
#ifndef SAMPLER_H
#define SAMPLER_H

#include "constraint.h"
#include "err.h"
#include "sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Checks ranges: finite numbers, positive repeat penalty, bias ids below n_vocab. VT_E_PARAM names the parameter. */
int sampler_check(const struct vt_sampling *p, uint32_t n_vocab, struct vt_err *err);

/* Whether the parameters need a state, and the state before the first token. */
bool sampler_stateful(const struct vt_sampling *p);
double sampler_state(const struct vt_sampling *p);

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
    SAMPLER_NOTHING, /* all are banned */
    SAMPLER_NOMEM,
    SAMPLER_ROW /* the best do not tell: ask again with all logits; got is as it was */
};

/* Bytes of a token, for the sequence breakers of DRY; borrowed, NULL when there is no such id. */
typedef const uint8_t *sampler_bytes(const void *arg, uint32_t id, size_t *len);

struct sampler_ask {
    const struct vt_sampling *p;
    const float *logits; /* [n_vocab], left as they are; NULL: the best of them, as follows */
    const uint32_t
        *best; /* [n_best] ids, largest logit first, lower id on ties; if a logit of the row is not finite,
                              the first is such a one */
    const float *best_logits;
    uint32_t n_best;
    const uint32_t *items; /* [n_items]: everything before this token, prompt and output */
    size_t n_items;
    const struct token_mask *mask; /* NULL: every token may come */
    uint64_t position;             /* of the token in the output */
    sampler_bytes *bytes;          /* NULL: no sequence breakers */
    const void *bytes_arg;
    bool logprob;   /* want it */
    unsigned n_top; /* alternatives wanted, at most as many as `top` holds and the vocabulary has */
};

struct sampler_got {
    uint32_t id;
    float logprob;           /* when asked for */
    unsigned n_top;          /* filled; fewer than asked for when post_probs leaves fewer candidates */
    struct sampler_top *top; /* the caller's room, [ask's n_top]; best first */
    double state;            /* in: the state so far; out: with this token; untouched without a state */
};

/* Chooses a token. */
enum sampler_rc sampler_pick(struct sampler *s, const struct sampler_ask *a, struct sampler_got *g);

#endif
