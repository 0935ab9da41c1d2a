#include "ends.h"
#include "random.h"

#include <math.h>

uint32_t end_draw(struct cands *s, const struct vt_sampling *p, uint64_t position)
{
    double u = random_at(p->seed, position, RANDOM_DRAW), sum = 0;
    uint32_t last = 0;
    cands_softmax(s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->probs[i] > 0)
            last = i;
        sum += (double)s->probs[i];
        if (u < sum)
            return i;
    }
    return last; /* the sum stayed a rounding error below 1 */
}

/* Version 1: the exponent of Zipf's law is estimated from the best hundred, and gives the k for which a draw among the k
 * best has the expected surprise mu. */
static uint32_t zipf_k(const struct cands *s, double mu)
{
    enum { BEST = 100 };
    double tb = 0, tt = 0;
    for (uint32_t i = 0; i + 1 < s->n && i + 1 < BEST; i++) {
        if (s->probs[i + 1] <= 0)
            break;
        double t = log((double)(i + 2) / (double)(i + 1));
        tb += t * log((double)s->probs[i] / (double)s->probs[i + 1]);
        tt += t * t;
    }
    if (tt <= 0 || tb <= 0)
        return s->n;
    double z = tb / tt, e = z - 1;
    double k = fabs(e) < 1e-9 ? exp2(mu) / log((double)s->n_vocab)
                              : pow(e * exp2(mu) / (1 - pow((double)s->n_vocab, -e)), 1 / z);
    return !(k > 1) ? 1 : k >= s->n ? s->n : (uint32_t)k;
}

uint32_t end_mirostat(struct cands *s, const struct vt_sampling *p, uint64_t position, double *state)
{
    cands_sort_all(s);
    cands_softmax(s);
    if (p->mirostat == 1) {
        cands_cut(s, zipf_k(s, *state));
    } else {
        uint32_t n = 1;
        while (n < s->n && -log2((double)s->probs[n]) <= *state)
            n++;
        cands_cut(s, n);
    }
    uint32_t i = end_draw(s, p, position);
    *state -= p->mirostat_eta * (-log2((double)s->probs[i]) - p->mirostat_tau);
    return i;
}

/* Logits are remade from the distance between a probability and the target: a parabola near it, straight lines far off.
 * The target leans against what was chosen lately. Constants as in llama.cpp's documentation of adaptive-p. */
uint32_t end_adaptive_p(struct cands *s, const struct vt_sampling *p, uint64_t position, double *state)
{
    const double peak = 5, sharpness = 10, width = 0.3;
    double weight = 1 / (1 - p->adaptive_decay);
    double target = 2 * p->adaptive_target - *state / weight;
    target = target < 0 ? 0 : target > 1 ? 1 : target;
    cands_softmax(s);
    for (uint32_t i = 0; i < s->n; i++) {
        double d = fabs((double)s->probs[i] - target) / width;
        s->c[i].logit = (float)(peak - sharpness * d * d / (1 + d));
    }
    s->sorted = false;
    /* The draw is made here, since the state wants the chosen one's probability before the change. */
    float max = cands_largest(s);
    double u = random_at(p->seed, position, RANDOM_DRAW), sum = 0, total = 0;
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < s->n; i++)
        total += exp((double)(s->c[i].logit - max));
    for (uint32_t i = 0; i < s->n; i++) {
        chosen = i;
        sum += exp((double)(s->c[i].logit - max)) / total;
        if (u < sum)
            break;
    }
    *state = (double)s->probs[chosen] + p->adaptive_decay * *state;
    cands_softmax(s);
    return chosen;
}
