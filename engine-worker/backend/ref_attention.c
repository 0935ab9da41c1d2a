#include "internal.h"

#include <math.h>
#include <string.h>

/* Attention, page by page: scores of the page's visible keys, their maximum, weights and weighted values are
 * formed from this page alone and then merged into what came before. The order depends on key positions only,
 * so neither the tile nor the chunk that a row came in can change a bit. */

static float dot_f16(const float *q, const uint16_t *k, int n)
{
    float s[16] = {0};
    for (int i = 0; i < n; i++)
        s[i % 16] += q[i] * be_f16_to_f32(k[i]);
    for (int w = 8; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            s[i] += s[i + w];
    return s[0];
}

/* Running result of one query: maximum, sum of weights and unnormalized output. */
struct acc {
    float max, sum;
    float o[BE_ATTN_MAX_D];
};

static void merge(struct acc *a, float max, float sum, const float *o, int dv)
{
    float top = max > a->max ? max : a->max;
    float old = expf(a->max - top), new = expf(max - top);
    a->sum = a->sum * old + sum * new;
    for (int i = 0; i < dv; i++)
        a->o[i] = a->o[i] * old + o[i] * new;
    a->max = top;
}

/* Keys from..to-1 of one page. */
static void one_page(const struct be_attn *a, struct acc *acc, const float *q, const uint16_t *k,
                     const uint16_t *v, int from, int to)
{
    float p[BE_PAGE], o[BE_ATTN_MAX_D] = {0}, max = -INFINITY, s[16] = {0};
    for (int i = from; i < to; i++) {
        p[i] = a->scale * dot_f16(q, k + (int64_t)i * a->d, a->d);
        if (a->softcap > 0)
            p[i] = a->softcap * tanhf(p[i] / a->softcap);
        max = p[i] > max ? p[i] : max;
    }
    for (int i = from; i < to; i++) {
        p[i] = expf(p[i] - max);
        s[i % 16] += p[i];
        for (int c = 0; c < a->dv; c++)
            o[c] += p[i] * be_f16_to_f32(v[(int64_t)i * a->dv + c]);
    }
    for (int w = 8; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            s[i] += s[i + w];
    merge(acc, max, s[0], o, a->dv);
}

static void one_query(const struct be_attn_tile *t, const float *q, int32_t pos, float *out)
{
    const struct be_attn *a = t->a;
    struct acc acc = {.max = -INFINITY};
    int32_t first = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    for (int32_t page = first / BE_PAGE; page <= pos / BE_PAGE; page++) {
        int32_t base = page * BE_PAGE;
        int from = first > base ? first - base : 0, to = pos + 1 - base < BE_PAGE ? pos + 1 - base : BE_PAGE;
        one_page(a, &acc, q, be_page_k(a, t->pages[page], t->kv_head),
                 be_page_v(a, t->pages[page], t->kv_head), from, to);
    }
    for (int i = 0; i < a->dv; i++)
        out[i] = acc.o[i] / acc.sum;
}

void be_ref_attn(const struct be_attn_tile *t)
{
    for (int r = 0; r < t->n_rows; r++)
        for (int g = 0; g < t->group; g++)
            one_query(t, t->q + r * t->q_stride + (int64_t)g * t->a->d, t->pos0 + r,
                      t->out + r * t->out_stride + (int64_t)g * t->a->dv);
}
