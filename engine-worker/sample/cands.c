#include "cands.h"

#include <math.h>
#include <stdlib.h>

int cands_init(struct cands *s, uint32_t n_vocab)
{
    *s = (struct cands){.n_vocab = n_vocab};
    s->c = malloc(n_vocab * sizeof *s->c);
    s->probs = malloc(n_vocab * sizeof *s->probs);
    if (s->c && s->probs)
        return 0;
    cands_fini(s);
    return -1;
}

void cands_fini(struct cands *s)
{
    free(s->c);
    free(s->probs);
    *s = (struct cands){0};
}

void cands_load(struct cands *s, const float *logits)
{
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->c[i] = (struct cand){logits[i], i};
    s->n = s->n_vocab;
    s->whole = s->loose = true;
    s->sorted = s->rest = s->unsure = false;
}

static int by_id(const void *a, const void *b)
{
    const struct cand *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* In the order of ids, as the whole vocabulary is: sums over the list then come out the same. */
void cands_load_best(struct cands *s, const uint32_t *ids, const float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        s->c[i] = (struct cand){logits[i], ids[i]};
    s->fence = s->c[n - 1];
    qsort(s->c, n, sizeof *s->c, by_id);
    s->n = n;
    s->loose = true;
    s->rest = n < s->n_vocab;
    s->whole = !s->rest;
    s->sorted = s->unsure = false;
}

struct cand *cands_find(struct cands *s, uint32_t id)
{
    const struct cand key = {.id = id};
    return s->whole ? &s->c[id] : bsearch(&key, s->c, s->n, sizeof *s->c, by_id);
}

bool cands_need_rest(struct cands *s)
{
    s->unsure = s->unsure || s->rest;
    return s->rest;
}

static void keep(struct cands *s, uint32_t *n, uint32_t id)
{
    if (s->c[id].logit > -INFINITY)
        s->c[(*n)++] = s->c[id];
}

/* When all that the mask allows is known, the others do not matter. */
static void mask_best(struct cands *s, const struct token_mask *m)
{
    uint32_t n = 0, allowed = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (token_mask_has(m, s->c[i].id)) {
            allowed++;
            if (s->c[i].logit > -INFINITY)
                s->c[n++] = s->c[i];
        }
    s->n = n;
    s->rest = allowed < m->n;
    s->loose = m->bits && m->n >= s->n_vocab / 2; /* as below */
}

/* A mask that allows little leaves a short list; one that allows most bans the others in their places. */
void cands_mask(struct cands *s, const struct token_mask *m)
{
    uint32_t n = 0;
    if (s->rest) {
        mask_best(s, m);
        return;
    }
    if (!m->bits) {
        for (uint32_t i = 0; i < m->n; i++) /* ascending: none is overwritten before it is read */
            keep(s, &n, m->ids[i]);
    } else if (m->n < s->n_vocab / 2) {
        for (uint32_t w = 0; w < (s->n_vocab + 63) / 64; w++)
            for (uint64_t b = m->bits[w]; b; b &= b - 1)
                keep(s, &n, w * 64 + (uint32_t)__builtin_ctzll(b));
    } else {
        for (uint32_t w = 0; w < (s->n_vocab + 63) / 64; w++)
            for (uint64_t b = ~m->bits[w]; b; b &= b - 1) {
                uint32_t id = w * 64 + (uint32_t)__builtin_ctzll(b);
                if (id < s->n_vocab)
                    s->c[id].logit = -INFINITY;
            }
        return;
    }
    s->n = n;
    s->whole = s->loose = false;
}

bool cands_compact(struct cands *s)
{
    if (!s->loose)
        return s->n > 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->c[i].logit > -INFINITY)
            s->c[n++] = s->c[i];
    s->n = n;
    s->whole = s->loose = false;
    return n > 0;
}

static int compare(const void *a, const void *b)
{
    const struct cand *x = a, *y = b;
    return cand_before(x, y) ? -1 : cand_before(y, x) ? 1 : 0;
}

/* Min-heap of the k best seen: its top is the worst of them. */
static void sift_down(struct cand *h, uint32_t n, uint32_t i)
{
    for (;;) {
        uint32_t worst = i, l = 2 * i + 1, r = l + 1;
        if (l < n && cand_before(&h[worst], &h[l]))
            worst = l;
        if (r < n && cand_before(&h[worst], &h[r]))
            worst = r;
        if (worst == i)
            return;
        struct cand t = h[i];
        h[i] = h[worst];
        h[worst] = t;
        i = worst;
    }
}

void cands_sort(struct cands *s, uint32_t k)
{
    struct cand *c = s->c;
    if (s->sorted)
        return;
    if (k >= s->n) {
        qsort(c, s->n, sizeof *c, compare);
        s->sorted = true;
        s->whole = false;
        return;
    }
    for (uint32_t i = k / 2; i-- > 0;)
        sift_down(c, k, i);
    for (uint32_t i = k; k > 0 && i < s->n; i++)
        if (cand_before(&c[i], &c[0])) {
            struct cand t = c[0];
            c[0] = c[i];
            c[i] = t;
            sift_down(c, k, 0);
        }
    qsort(c, k, sizeof *c, compare);
    s->whole = false;
}

void cands_sort_all(struct cands *s)
{
    cands_sort(s, s->n);
}

void cands_cut(struct cands *s, uint32_t n)
{
    if (s->rest && (n == 0 || cand_before(&s->fence, &s->c[n - 1])))
        s->unsure = true;
    s->rest = false;
    s->n = n;
    s->sorted = true;
}

float cands_largest(const struct cands *s)
{
    float max = s->c[0].logit;
    if (s->sorted)
        return max;
    for (uint32_t i = 1; i < s->n; i++)
        max = s->c[i].logit > max ? s->c[i].logit : max;
    return max;
}

uint32_t cands_best(const struct cands *s)
{
    uint32_t b = 0;
    for (uint32_t i = 1; i < s->n; i++)
        if (cand_before(&s->c[i], &s->c[b]))
            b = i;
    return b;
}

void cands_softmax(struct cands *s)
{
    float max = cands_largest(s);
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->probs[i] = expf(s->c[i].logit - max);
        sum += (double)s->probs[i];
    }
    for (uint32_t i = 0; i < s->n; i++)
        s->probs[i] = (float)((double)s->probs[i] / sum);
}

void cands_for_counted(struct cands *s, uint32_t *counts, const uint32_t *ids, size_t n,
                       void (*change)(const void *arg, struct cand *c, uint32_t count), const void *arg)
{
    if (s->whole) {
        for (size_t i = 0; i < n; i++) {
            uint32_t id = ids[i];
            if (counts[id] > 0)
                change(arg, &s->c[id], counts[id]);
            counts[id] = 0;
        }
    } else {
        for (uint32_t i = 0; i < s->n; i++)
            if (counts[s->c[i].id] > 0)
                change(arg, &s->c[i], counts[s->c[i].id]);
        for (size_t i = 0; i < n; i++)
            counts[ids[i]] = 0;
    }
    s->sorted = false;
}
