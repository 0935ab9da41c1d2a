#include "sampler.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct cand {
    float logit;
    uint32_t id;
};

struct sampler {
    uint32_t n_vocab;
    struct cand *cands; /* [n_vocab] */
    uint32_t n;         /* candidates left; the best are in front once sorted */
    bool sorted;
    uint32_t *counts; /* [n_vocab] occurrences among the last items; zero between picks */
    float *probs;     /* [n_vocab] of the candidates */
};

static int bad(struct vt_err *err, const char *name, double v, const char *need)
{
    return vt_fail(err, VT_E_PARAM, "%s is %g; %s is needed", name, v, need);
}

int sampler_check(const struct sampler_params *p, uint32_t n_vocab, struct vt_err *err)
{
    if (!isfinite(p->temperature))
        return bad(err, "temperature", (double)p->temperature, "a finite number");
    if (!isfinite(p->top_p))
        return bad(err, "top_p", (double)p->top_p, "a finite number");
    if (!isfinite(p->min_p))
        return bad(err, "min_p", (double)p->min_p, "a finite number");
    if (!isfinite(p->repeat_penalty) || p->repeat_penalty <= 0)
        return bad(err, "repeat_penalty", (double)p->repeat_penalty, "a finite number above 0");
    if (!isfinite(p->presence_penalty))
        return bad(err, "presence_penalty", (double)p->presence_penalty, "a finite number");
    if (!isfinite(p->frequency_penalty))
        return bad(err, "frequency_penalty", (double)p->frequency_penalty, "a finite number");
    if (p->repeat_last_n < -1)
        return bad(err, "repeat_last_n", p->repeat_last_n, "-1 or more");
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias_ids[i] >= n_vocab)
            return vt_fail(err, VT_E_PARAM, "logit_bias names token %u; the vocabulary has %u",
                           p->bias_ids[i], n_vocab);
        if (isnan(p->bias[i]) || p->bias[i] == INFINITY)
            return vt_fail(err, VT_E_PARAM, "logit_bias of token %u is not a finite number", p->bias_ids[i]);
    }
    return 0;
}

int sampler_new(struct sampler **out, uint32_t n_vocab, struct vt_err *err)
{
    struct sampler *s = calloc(1, sizeof *s);
    if (s) {
        s->n_vocab = n_vocab;
        s->cands = malloc(n_vocab * sizeof *s->cands);
        s->counts = calloc(n_vocab, sizeof *s->counts);
        s->probs = malloc(n_vocab * sizeof *s->probs);
    }
    if (!s || !s->cands || !s->counts || !s->probs) {
        sampler_free(s);
        return vt_fail(err, VT_E_NOMEM, "out of memory for a sampler of %u tokens", n_vocab);
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->cands);
    free(s->counts);
    free(s->probs);
    free(s);
}

/* ---- order: larger logit first, smaller id on ties, so that every step is deterministic ---- */

static inline bool before(const struct cand *a, const struct cand *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static int compare(const void *a, const void *b)
{
    const struct cand *x = a, *y = b;
    return before(x, y) ? -1 : before(y, x) ? 1 : 0;
}

/* Min-heap of the k best seen: its top is the worst of them. */
static void sift_down(struct cand *h, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t worst = i, l = 2 * i + 1, r = l + 1;
        if (l < n && before(&h[worst], &h[l]))
            worst = l;
        if (r < n && before(&h[worst], &h[r]))
            worst = r;
        if (worst == i)
            return;
        struct cand t = h[i];
        h[i] = h[worst];
        h[worst] = t;
        i = worst;
    }
}

/* Brings the k best of c[0..n) to the front, best first. */
static void partial_sort(struct cand *c, uint32_t n, uint32_t k)
{
    if (k >= n) {
        qsort(c, n, sizeof *c, compare);
        return;
    }
    for (uint32_t i = k / 2; i-- > 0;)
        sift_down(c, k, i);
    for (uint32_t i = k; i < n; i++)
        if (before(&c[i], &c[0])) {
            struct cand t = c[0];
            c[0] = c[i];
            c[i] = t;
            sift_down(c, k, 0);
        }
    qsort(c, k, sizeof *c, compare);
}

/* ---- steps ---- */

static void load(struct sampler *s, const float *logits)
{
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->cands[i] = (struct cand){logits[i], i};
    s->n = s->n_vocab;
    s->sorted = false;
}

static void apply_bias(struct sampler *s, const struct sampler_params *p)
{
    for (size_t i = 0; i < p->n_bias; i++)
        s->cands[p->bias_ids[i]].logit += p->bias[i];
}

static void penalize(struct cand *c, uint32_t count, const struct sampler_params *p)
{
    c->logit = c->logit <= 0 ? c->logit * p->repeat_penalty : c->logit / p->repeat_penalty;
    c->logit -= (float)count * p->frequency_penalty + p->presence_penalty;
}

static void apply_penalties(struct sampler *s, const struct sampler_params *p, const uint32_t *items,
                            size_t n)
{
    if (p->repeat_last_n == 0 ||
        (p->repeat_penalty == 1.0f && p->presence_penalty == 0.0f && p->frequency_penalty == 0.0f))
        return;
    if (p->repeat_last_n > 0 && n > (size_t)p->repeat_last_n) {
        items += n - (size_t)p->repeat_last_n;
        n = (size_t)p->repeat_last_n;
    }
    for (size_t i = 0; i < n; i++)
        s->counts[items[i]]++;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = items[i];
        if (s->counts[id] > 0) {
            penalize(&s->cands[id], s->counts[id], p);
            s->counts[id] = 0;
        }
    }
}

/* Tokens banned by a bias of -inf take no part. */
static void drop_banned(struct sampler *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->cands[i].logit > -INFINITY)
            s->cands[n++] = s->cands[i];
    s->n = n;
}

static void sort_front(struct sampler *s, uint32_t k)
{
    partial_sort(s->cands, s->n, k);
    s->sorted = k >= s->n;
}

static void top_k(struct sampler *s, const struct sampler_params *p)
{
    if (p->top_k <= 0)
        return;
    uint32_t k = (uint32_t)p->top_k < s->n ? (uint32_t)p->top_k : s->n;
    sort_front(s, k);
    s->n = k;
    s->sorted = true;
}

static float largest(const struct sampler *s)
{
    float max = s->cands[0].logit;
    for (uint32_t i = 1; i < s->n; i++)
        max = s->cands[i].logit > max ? s->cands[i].logit : max;
    return max;
}

/* Probabilities of the candidates. */
static void softmax(struct sampler *s)
{
    float max = largest(s);
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->probs[i] = expf(s->cands[i].logit - max);
        sum += (double)s->probs[i];
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->probs[i] = (float)((double)s->probs[i] / sum);
}

static void top_p(struct sampler *s, const struct sampler_params *p)
{
    if (p->top_p >= 1.0f)
        return;
    if (!s->sorted)
        sort_front(s, s->n);
    softmax(s);
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        sum += (double)s->probs[i];
        if (sum >= (double)p->top_p && (int64_t)i + 1 >= p->min_keep) {
            s->n = i + 1;
            return;
        }
    }
}

static void min_p(struct sampler *s, const struct sampler_params *p)
{
    if (p->min_p <= 0.0f)
        return;
    float max = largest(s);
    float least = max + logf(p->min_p);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n; i++)
        kept += s->cands[i].logit >= least;
    uint32_t want = p->min_keep > 0 ? (uint32_t)p->min_keep : 1;
    if (kept < want) { /* the next best make up the number */
        if (!s->sorted)
            sort_front(s, s->n);
        s->n = want < s->n ? want : s->n;
        return;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->cands[i].logit >= least)
            s->cands[n++] = s->cands[i];
    s->n = n;
}

static uint32_t best(const struct sampler *s)
{
    const struct cand *b = &s->cands[0];
    for (uint32_t i = 1; i < s->n; i++)
        if (before(&s->cands[i], b))
            b = &s->cands[i];
    return b->id;
}

static uint32_t draw(struct sampler *s, const struct sampler_params *p, uint64_t position)
{
    float max = largest(s);
    for (uint32_t i = 0; i < s->n; i++) /* the difference first: no temperature can then overflow */
        s->cands[i].logit = (s->cands[i].logit - max) / p->temperature;
    softmax(s);
    double u = random_at(p->seed, position), sum = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->probs[i] > 0)
            last = i;
        sum += (double)s->probs[i];
        if (u < sum)
            return s->cands[i].id;
    }
    return s->cands[last].id; /* the sum stayed a rounding error below 1 */
}

/* ---- log-probabilities of the untouched logits ---- */

static double log_sum_exp(const float *x, uint32_t n)
{
    float max = x[0];
    for (uint32_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

static void fill_top(struct sampler *s, const float *logits, double lse, struct sampler_top *top,
                     unsigned n_top)
{
    load(s, logits);
    partial_sort(s->cands, s->n, n_top);
    for (unsigned i = 0; i < n_top; i++)
        top[i] = (struct sampler_top){s->cands[i].id, (float)((double)s->cands[i].logit - lse)};
}

enum sampler_rc sampler_pick(struct sampler *s, const struct sampler_params *p, const float *logits,
                             const uint32_t *items, size_t n_items, uint64_t position, uint32_t *id,
                             float *logprob, struct sampler_top *top, unsigned n_top)
{
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (!isfinite(logits[i]))
            return SAMPLER_NOT_FINITE;
    load(s, logits);
    apply_bias(s, p);
    apply_penalties(s, p, items, n_items);
    drop_banned(s);
    if (s->n == 0)
        return SAMPLER_NOTHING;
    if (p->temperature <= 0) {
        *id = best(s);
    } else {
        top_k(s, p);
        top_p(s, p);
        min_p(s, p);
        *id = draw(s, p, position);
    }
    if (logprob || n_top > 0) {
        double lse = log_sum_exp(logits, s->n_vocab);
        if (logprob)
            *logprob = (float)((double)logits[*id] - lse);
        if (n_top > 0)
            fill_top(s, logits, lse, top, n_top < s->n_vocab ? n_top : s->n_vocab);
    }
    return SAMPLER_OK;
}
