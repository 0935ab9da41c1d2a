/* Attention over pages as vectors; see ref_attention.c for the definition. Scores are dot products of 16 running sums; a page's
 * weighted values are summed key by key. A masked key has weight 0 and adds an exact zero, so a tile may cover rows that see
 * different keys. */
#ifndef BE_K_ATTN_H
#define BE_K_ATTN_H

#include "k_float.h"

#define KEYS        32 /* keys whose K or V is unpacked to floats at a time */
#define UNPACK_FROM 3  /* queries from which unpacking pays */

/* Running results of the tile's queries, and what one page gives. */
struct attn_work {
    _Alignas(64) float p[BE_ATTN_TILE][BE_PAGE]; /* scores, then weights */
    _Alignas(64) float o[BE_ATTN_TILE][BE_ATTN_MAX_D + 16], acc[BE_ATTN_TILE][BE_ATTN_MAX_D + 16];
    _Alignas(64) float rows[KEYS * BE_ATTN_MAX_D];
    float max[BE_ATTN_TILE], sum[BE_ATTN_TILE];
    _Alignas(64) float q[BE_ATTN_TILE * BE_ATTN_MAX_D]; /* [n][d] */
    int from[BE_ATTN_TILE], to[BE_ATTN_TILE];           /* visible keys of the page */
    int n;
};

static void unpack_halves(float *dst, const uint16_t *src, int64_t n)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(dst + i, v_half((const uint8_t *)(src + i)));
    for (; i < n; i++)
        dst[i] = be_f16_to_f32(src[i]);
}

/* Scores of keys k0..k1-1 (at most KEYS) for all queries. */
ALWAYS void score_keys(const struct be_attn_tile *t, struct attn_work *w, enum load kind, const uint8_t *keys,
                       size_t stride, int k0, int k1)
{
    _Alignas(64) float acc[KEYS][BE_ATTN_TILE * 16];
    int n = k1 - k0;
    for (int i = 0; i < n; i++)
        memset(acc[i], 0, (size_t)w->n * 16 * sizeof(float));
    dots_block(kind, n, w->n, keys, stride, w->q, t->a->d, t->a->d, acc[0], BE_ATTN_TILE * 16);
    for (int i = 0; i < n; i++)
        for (int q = 0; q < w->n; q++) {
            vf s[NV];
            memcpy(s, acc[i] + q * 16, sizeof s);
            w->p[q][k0 + i] = v_fold(s);
        }
}

static void score_page(const struct be_attn_tile *t, struct attn_work *w, const uint16_t *k, int from, int to)
{
    int d = t->a->d;
    for (int k0 = from; k0 < to; k0 += KEYS) {
        int k1 = k0 + KEYS < to ? k0 + KEYS : to;
        const uint16_t *keys = k + (int64_t)k0 * d;
        if (w->n >= UNPACK_FROM) {
            unpack_halves(w->rows, keys, (int64_t)(k1 - k0) * d);
            score_keys(t, w, LOAD_F32, (const uint8_t *)w->rows, (size_t)d * 4, k0, k1);
        } else {
            score_keys(t, w, LOAD_F16, (const uint8_t *)keys, (size_t)d * 2, k0, k1);
        }
    }
}

ALWAYS vi lane_index(int first)
{
    vi v;
    for (int i = 0; i < W; i++)
        v[i] = first + i;
    return v;
}

/* Scores of one query become weights; what it does not see becomes 0. Returns the page's maximum; *sum is of the weights. */
static float weigh(const struct be_attn *a, float *p, int from, int to, float *sum)
{
    int first = from / 16 * 16, end = (to + 15) / 16 * 16;
    vf top = v_set(-INFINITY), s[NV] = {{0}};
    for (int i = first; i < end; i += W) {
        vi at = lane_index(i), seen = (at >= from) & (at < to);
        vf x = v_set(a->scale) * v_load(p + i);
        if (a->softcap > 0)
            x = v_set(a->softcap) * v_tanh(x / v_set(a->softcap));
        x = v_select(seen, x, v_set(-INFINITY));
        v_store(p + i, x);
        top = v_max(x, top);
    }
    float max = top[0];
    for (int i = 1; i < W; i++)
        max = top[i] > max ? top[i] : max;
    for (int i = first; i < end; i += W) {
        vi at = lane_index(i), seen = (at >= from) & (at < to);
        vf x = (vf)((vi)v_exp(v_load(p + i) - v_set(max)) & seen);
        v_store(p + i, x);
        s[i / W % NV] += x;
    }
    *sum = v_fold(s);
    return max;
}

/* o[q][c..c+C*W) += Σ p[q][key] * v[key][c..] for N queries; keys in order. */
ALWAYS void add_values(enum load kind, const int N, const int C, struct attn_work *w, int q0,
                       const uint8_t *v, size_t stride, int c, int k0, int k1)
{
    vf s[4][8];
    UNROLL
    for (int q = 0; q < N; q++)
        UNROLL
    for (int j = 0; j < C; j++)
        s[q][j] = v_load(&w->o[q0 + q][c + j * W]);
    for (int k = k0; k < k1; k++)
        UNROLL
    for (int j = 0; j < C; j++) {
        vf x = load_w(kind, v + (size_t)(k - k0) * stride, c + j * W);
        UNROLL
        for (int q = 0; q < N; q++)
            s[q][j] = VFMA(v_set(w->p[q0 + q][k]), x, s[q][j]);
    }
    UNROLL
    for (int q = 0; q < N; q++)
        UNROLL
    for (int j = 0; j < C; j++)
        v_store(&w->o[q0 + q][c + j * W], s[q][j]);
}

/* The last channels when dv is no multiple of W. */
static void add_values_tail(struct attn_work *w, int dv, const uint16_t *v, int c, int k0, int k1)
{
    for (int q = 0; q < w->n; q++)
        for (int k = k0; k < k1; k++) {
            float x[W] = {0};
            for (int j = c; j < dv; j++)
                x[j - c] = be_f16_to_f32(v[(int64_t)(k - k0) * dv + j]);
            v_store(&w->o[q][c], VFMA(v_set(w->p[q][k]), v_load(x), v_load(&w->o[q][c])));
        }
}

/* Queries and vectors of a tile: sums, values and weights fit the registers. */
#if W == 16
#define PV_N 4
#define PV_C 4
#else
#define PV_N 3
#define PV_C 4
#endif
#define PV_C1 8

ALWAYS void value_keys(enum load kind, struct attn_work *w, int dv, const uint8_t *v, size_t stride, int k0,
                       int k1)
{
    int q = 0, full = dv / W * W;
    for (; q + PV_N <= w->n; q += PV_N) {
        int c = 0;
        for (; c + PV_C * W <= full; c += PV_C * W)
            add_values(kind, PV_N, PV_C, w, q, v, stride, c, k0, k1);
        for (; c < full; c += W)
            add_values(kind, PV_N, 1, w, q, v, stride, c, k0, k1);
    }
    for (; q < w->n; q++) {
        int c = 0;
        for (; c + PV_C1 * W <= full; c += PV_C1 * W)
            add_values(kind, 1, PV_C1, w, q, v, stride, c, k0, k1);
        for (; c < full; c += W)
            add_values(kind, 1, 1, w, q, v, stride, c, k0, k1);
    }
}

static void value_page(const struct be_attn_tile *t, struct attn_work *w, const uint16_t *v, int from, int to)
{
    int dv = t->a->dv;
    for (int k0 = from; k0 < to; k0 += KEYS) {
        int k1 = k0 + KEYS < to ? k0 + KEYS : to;
        const uint16_t *keys = v + (int64_t)k0 * dv;
        if (w->n >= UNPACK_FROM) {
            unpack_halves(w->rows, keys, (int64_t)(k1 - k0) * dv);
            value_keys(LOAD_F32, w, dv, (const uint8_t *)w->rows, (size_t)dv * 4, k0, k1);
        } else {
            value_keys(LOAD_F16, w, dv, (const uint8_t *)keys, (size_t)dv * 2, k0, k1);
        }
        if (dv % W != 0)
            add_values_tail(w, dv, keys, dv / W * W, k0, k1);
    }
}

static void merge(struct attn_work *w, int q, float max, float sum, int dv)
{
    float top = max > w->max[q] ? max : w->max[q];
    float old = expf(w->max[q] - top), new = expf(max - top);
    w->sum[q] = w->sum[q] * old + sum * new;
    for (int i = 0; i < (dv + W - 1) / W * W; i += W)
        v_store(&w->acc[q][i], v_load(&w->acc[q][i]) * v_set(old) + v_load(&w->o[q][i]) * v_set(new));
    w->max[q] = top;
}

/* Which keys of the page each query sees; the union goes to *from and *to. False when none sees any. */
static bool visible(const struct be_attn_tile *t, struct attn_work *w, int32_t page, int *from, int *to)
{
    int32_t base = page * BE_PAGE, window = t->a->window;
    *from = BE_PAGE;
    *to = 0;
    for (int r = 0; r < t->n_rows; r++) {
        int32_t pos = t->pos0 + r, first = window > 0 && pos >= window ? pos - window + 1 : 0;
        int a = first > base ? (int)(first - base) : 0,
            z = pos + 1 - base < BE_PAGE ? (int)(pos + 1 - base) : BE_PAGE;
        for (int g = 0; g < t->group; g++) {
            w->from[r * t->group + g] = a;
            w->to[r * t->group + g] = z;
        }
        if (a >= z)
            continue;
        *from = a < *from ? a : *from;
        *to = z > *to ? z : *to;
    }
    return *from < *to;
}

static void one_page(const struct be_attn_tile *t, struct attn_work *w, int32_t page)
{
    const struct be_attn *a = t->a;
    float max[BE_ATTN_TILE], sum[BE_ATTN_TILE];
    int from, to;
    if (!visible(t, w, page, &from, &to))
        return;
    score_page(t, w, be_page_k(a, t->pages[page], t->kv_head), from, to);
    for (int q = 0; q < w->n; q++) {
        memset(w->o[q], 0, (size_t)(a->dv + W) * sizeof(float));
        if (w->from[q] < w->to[q])
            max[q] = weigh(a, w->p[q], w->from[q], w->to[q], &sum[q]);
        /* Beyond the query's own keys but within the tile's: weight 0. */
        for (int i = from; i < to && (w->from[q] >= w->to[q] || i < w->from[q]); i++)
            w->p[q][i] = 0;
        for (int i = w->to[q] > from ? w->to[q] : from; i < to; i++)
            w->p[q][i] = 0;
    }
    value_page(t, w, be_page_v(a, t->pages[page], t->kv_head), from, to);
    for (int q = 0; q < w->n; q++)
        if (w->from[q] < w->to[q])
            merge(w, q, max[q], sum[q], a->dv);
}

static void attn(const struct be_attn_tile *t)
{
    struct attn_work w;
    int d = t->a->d, dv = t->a->dv, last = t->pos0 + t->n_rows - 1;
    w.n = t->n_rows * t->group;
    for (int q = 0; q < w.n; q++) {
        memcpy(w.q + (int64_t)q * d, t->q + q / t->group * t->q_stride + (int64_t)(q % t->group) * d,
               (size_t)d * sizeof *w.q);
        w.max[q] = -INFINITY;
        w.sum[q] = 0;
        memset(w.acc[q], 0, (size_t)(dv + W) * sizeof(float));
    }
    int32_t first = t->a->window > 0 && t->pos0 >= t->a->window ? t->pos0 - t->a->window + 1 : 0;
    for (int32_t page = first / BE_PAGE; page <= last / BE_PAGE; page++)
        one_page(t, &w, page);
    for (int q = 0; q < w.n; q++) {
        float *out = t->out + q / t->group * t->out_stride + (int64_t)(q % t->group) * dv;
        for (int i = 0; i < dv; i++)
            out[i] = w.acc[q][i] / w.sum[q];
    }
}

#endif
