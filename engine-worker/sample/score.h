/* Score: log-probabilities of one row of logits as they are, before bias, mask and samplers. Pure; any thread. */
#ifndef SCORE_H
#define SCORE_H

#include "sampler.h"

bool score_finite(const float *logits, uint32_t n_vocab);
/* log Σ exp x, summed in double: a row's probabilities are exp(x - this). */
double score_log_sum(const float *x, uint32_t n);
/* Logarithm of id's probability; top, [n_top], takes the best n_top <= n_vocab ids, best first, equals by id. */
float score_row(const float *logits, uint32_t n_vocab, uint32_t id, struct sampler_top *top, unsigned n_top);

#endif
