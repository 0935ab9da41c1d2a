#include "steps.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>

void step_top_k(struct cands *s, const struct vt_sampling *p)
{
    if (p->top_k <= 0)
        return;
    if (p->top_k > (int64_t)s->n && cands_need_rest(s))
        return;
    uint32_t k = p->top_k < (int64_t)s->n ? (uint32_t)p->top_k : s->n;
    cands_sort(s, k);
    cands_cut(s, k);
}

void step_top_p(struct cands *s, const struct vt_sampling *p)
{
    double sum = 0;
    if (p->top_p >= 1 || cands_need_rest(s))
        return;
    cands_sort_all(s);
    cands_softmax(s);
    for (uint32_t i = 0; i < s->n; i++) {
        sum += (double)s->probs[i];
        if (sum >= p->top_p && (int64_t)i + 1 >= p->min_keep) {
            cands_cut(s, i + 1);
            return;
        }
    }
}

/* Keeps what is at least `least`, and at least min_keep: the next best make up the number. */
static void keep_from(struct cands *s, float least, int64_t min_keep)
{
    uint32_t kept = 0, n = 0;
    int64_t want = min_keep > 0 ? min_keep : 1;
    for (uint32_t i = 0; i < s->n; i++)
        kept += s->c[i].logit >= least;
    if ((kept < want || s->fence.logit >= least) && cands_need_rest(s))
        return;
    s->rest = false; /* none of them reaches the least */
    if (kept < want) {
        cands_sort_all(s);
        cands_cut(s, want < (int64_t)s->n ? (uint32_t)want : s->n);
        return;
    }
    for (uint32_t i = 0; i < s->n; i++)
        if (s->c[i].logit >= least)
            s->c[n++] = s->c[i];
    s->n = n;
}

void step_min_p(struct cands *s, const struct vt_sampling *p)
{
    if (p->min_p > 0)
        keep_from(s, cands_largest(s) + logf((float)p->min_p), p->min_keep);
}

void step_top_n_sigma(struct cands *s, const struct vt_sampling *p)
{
    double sum = 0, squares = 0;
    if (p->top_n_sigma <= 0 || cands_need_rest(s) || s->n < 2)
        return;
    for (uint32_t i = 0; i < s->n; i++)
        sum += (double)s->c[i].logit;
    double mean = sum / s->n;
    for (uint32_t i = 0; i < s->n; i++)
        squares += ((double)s->c[i].logit - mean) * ((double)s->c[i].logit - mean);
    keep_from(s, (float)((double)cands_largest(s) - p->top_n_sigma * sqrt(squares / s->n)), 1);
}

static double entropy(const struct cands *s)
{
    double h = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->probs[i] > 0)
            h -= (double)s->probs[i] * log((double)s->probs[i]);
    return h;
}

/* For typical: how far a candidate's surprise lies from the expected one. */
struct typical {
    float distance, prob;
    struct cand c;
};

static int nearer(const void *a, const void *b)
{
    const struct typical *x = a, *y = b;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return cand_before(&x->c, &y->c) ? -1 : 1;
}

int step_typical_p(struct cands *s, const struct vt_sampling *p)
{
    if (p->typical_p >= 1 || cands_need_rest(s) || s->n < 2)
        return 0;
    struct typical *t = malloc(s->n * sizeof *t);
    double sum = 0;
    uint32_t n = s->n;
    if (!t)
        return -1;
    cands_softmax(s);
    double h = entropy(s);
    for (uint32_t i = 0; i < s->n; i++)
        t[i] = (struct typical){(float)fabs(-log((double)s->probs[i]) - h), s->probs[i], s->c[i]};
    qsort(t, s->n, sizeof *t, nearer);
    for (uint32_t i = 0; i < s->n; i++) {
        sum += (double)t[i].prob;
        if (sum > p->typical_p && (int64_t)i + 1 >= p->min_keep) {
            n = i + 1;
            break;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        s->c[i] = t[i].c;
    s->n = n;
    s->sorted = false;
    free(t);
    return 0;
}

/* Now and then the likely ones are left out, all but the least likely of them. */
void step_xtc(struct cands *s, const struct vt_sampling *p, uint64_t position)
{
    uint32_t last = 0;
    if (p->xtc_probability <= 0 || p->xtc_threshold > 0.5 ||
        random_at(p->seed, position, RANDOM_XTC) >= p->xtc_probability || cands_need_rest(s) || s->n < 2)
        return;
    cands_sort_all(s);
    cands_softmax(s);
    while (last + 1 < s->n && (double)s->probs[last + 1] >= p->xtc_threshold)
        last++;
    if (last == 0 || (int64_t)(s->n - last) < p->min_keep)
        return;
    for (uint32_t i = last; i < s->n; i++)
        s->c[i - last] = s->c[i];
    s->n -= last;
}

static void scale(struct cands *s, double temperature)
{
    if (temperature <= 0) {
        s->c[0] = s->c[cands_best(s)];
        cands_cut(s, 1);
        return;
    }
    if (cands_need_rest(s))
        return;
    float max = cands_largest(s);
    for (uint32_t i = 0; i < s->n; i++) /* the difference first: no temperature can then overflow */
        s->c[i].logit = (float)((double)(s->c[i].logit - max) / temperature);
}

void step_temperature(struct cands *s, const struct vt_sampling *p)
{
    if (p->dynatemp_range <= 0 || (!s->rest && s->n < 2)) {
        scale(s, p->temperature);
        return;
    }
    if (cands_need_rest(s))
        return;
    double low = p->temperature - p->dynatemp_range, high = p->temperature + p->dynatemp_range;
    if (low < 0)
        low = 0;
    cands_softmax(s);
    scale(s, low + (high - low) * pow(entropy(s) / log((double)s->n), p->dynatemp_exponent));
}
