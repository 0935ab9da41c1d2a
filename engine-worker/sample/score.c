#include "score.h"

#include <math.h>

bool score_finite(const float *logits, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n_vocab; i++)
        if (!isfinite(logits[i]))
            return false;
    return true;
}

double score_log_sum(const float *x, uint32_t n)
{
    float max = x[0];
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

/* top holds logits meanwhile, the best first. Ids come in their order: an equal one stays behind those before it. */
static void insert(struct sampler_top *top, unsigned *n, unsigned most, uint32_t id, float logit)
{
    unsigned at = *n < most ? (*n)++ : most - 1;
    for (; at > 0 && top[at - 1].logprob < logit; at--)
        top[at] = top[at - 1];
    top[at] = (struct sampler_top){id, logit};
}

float score_row(const float *logits, uint32_t n_vocab, uint32_t id, struct sampler_top *top, unsigned n_top)
{
    unsigned n = 0;
    for (uint32_t i = 0; n_top > 0 && i < n_vocab; i++)
        if (n < n_top || logits[i] > top[n_top - 1].logprob)
            insert(top, &n, n_top, i, logits[i]);
    double lse = score_log_sum(logits, n_vocab);
    for (unsigned i = 0; i < n; i++)
        top[i].logprob = (float)((double)top[i].logprob - lse);
    return (float)((double)logits[id] - lse);
}
