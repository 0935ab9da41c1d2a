/* Row operations, the convolution and the recurrence of the gated delta net, as vectors. Values of a row are independent, so
 * a vector may hold any of them; the tail of a row goes through the same arithmetic in a padded vector. */
#ifndef BE_K_ROWS_H
#define BE_K_ROWS_H

#include "vec.h"

ALWAYS float sum_squares(const float *x, int64_t n)
{
    vf s[NV] = {{0}};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        UNROLL
    for (int v = 0; v < NV; v++) {
        vf a = v_load(x + i + v * W);
        s[v] = VFMA(a, a, s[v]);
    }
    if (i < n) {
        float b[16] = {0};
        memcpy(b, x + i, (size_t)(n - i) * sizeof *b);
        UNROLL
        for (int v = 0; v < NV; v++) {
            vf a = v_load(b + v * W);
            s[v] = VFMA(a, a, s[v]);
        }
    }
    return v_fold(s);
}

static void rmsnorm(float *y, const float *x, const float *w, int64_t n, float eps)
{
    vf scale = v_set(1.0f / sqrtf(sum_squares(x, n) / (float)n + eps));
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(y + i, v_load(x + i) * scale * v_load(w + i));
    if (i < n)
        v_store_n(y + i, v_load_n(x + i, n - i) * scale * v_load_n(w + i, n - i), n - i);
}

static void add(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void silu_mul(float *g, const float *u, int64_t n)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(g + i, v_silu(v_load(g + i)) * v_load(u + i));
    if (i < n)
        v_store_n(g + i, v_silu(v_load_n(g + i, n - i)) * v_load_n(u + i, n - i), n - i);
}

/* 0.5 x (1 + tanh t) with t = sqrt(2/pi) (x + 0.044715 x³) is x times the sigmoid of 2t, which does not cancel. */
ALWAYS vf v_gelu(vf x)
{
    return x * v_sigmoid(v_set(1.59576912f) * (x + v_set(0.044715f) * x * x * x));
}

static void gelu_mul(float *g, const float *u, int64_t n)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(g + i, v_gelu(v_load(g + i)) * v_load(u + i));
    if (i < n)
        v_store_n(g + i, v_gelu(v_load_n(g + i, n - i)) * v_load_n(u + i, n - i), n - i);
}

static void softcap(float *x, int64_t n, float cap)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(x + i, v_set(cap) * v_tanh(v_load(x + i) / v_set(cap)));
    if (i < n)
        v_store_n(x + i, v_set(cap) * v_tanh(v_load_n(x + i, n - i) / v_set(cap)), n - i);
}

static void sigmoid_gate(float *x, const float *g, int64_t n)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(x + i, v_sigmoid(v_load(g + i)) * v_load(x + i));
    if (i < n)
        v_store_n(x + i, v_sigmoid(v_load_n(g + i, n - i)) * v_load_n(x + i, n - i), n - i);
}

static void to_f16(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        y[i] = be_f32_to_f16(x[i]);
}

static void l2norm(float *x, int64_t n, float scale)
{
    scale /= sqrtf(sum_squares(x, n) + 1e-6f);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

static void gated_norm(float *o, const float *z, const float *w, int64_t n, float eps)
{
    vf scale = v_set(1.0f / sqrtf(sum_squares(o, n) / (float)n + eps));
    int64_t i = 0;
    for (; i + W <= n; i += W)
        v_store(o + i, v_load(o + i) * scale * v_load(w + i) * v_silu(v_load(z + i)));
    if (i < n)
        v_store_n(o + i,
                  v_load_n(o + i, n - i) * scale * v_load_n(w + i, n - i) * v_silu(v_load_n(z + i, n - i)),
                  n - i);
}

/* m channels of the convolution, m <= W: the window of inputs stays in registers over all rows. */
ALWAYS void conv_lanes(const int taps, float *u, int64_t n_rows, int64_t stride, int64_t m, const float *w,
                       float *hist, int64_t hist_stride)
{
    vf wt[BE_CONV_MAX], win[BE_CONV_MAX];
    for (int k = 0; k < taps; k++) {
        float b[W] = {0};
        for (int64_t c = 0; c < m; c++)
            b[c] = w[c * taps + k];
        wt[k] = v_load(b);
    }
    for (int k = 0; k < taps - 1; k++)
        win[k] = m == W ? v_load(hist + k * hist_stride) : v_load_n(hist + k * hist_stride, m);
    for (int64_t t = 0; t < n_rows; t++) {
        float *row = u + t * stride;
        win[taps - 1] = m == W ? v_load(row) : v_load_n(row, m);
        vf sum = {0};
        for (int k = 0; k < taps; k++)
            sum = VFMA(wt[k], win[k], sum);
        for (int k = 0; k < taps - 1; k++)
            win[k] = win[k + 1];
        if (m == W)
            v_store(row, v_silu(sum));
        else
            v_store_n(row, v_silu(sum), m);
    }
    for (int k = 0; k < taps - 1; k++)
        v_store_n(hist + k * hist_stride, win[k], m);
}

static void conv(float *u, int64_t n_rows, int64_t stride, int64_t n, const float *w, int taps, float *hist,
                 int64_t hist_stride)
{
    for (int64_t c = 0; c < n; c += W) {
        int64_t m = n - c < W ? n - c : W;
        if (taps == 4 && m == W)
            conv_lanes(4, u + c, n_rows, stride, W, w + c * taps, hist + c, hist_stride);
        else
            conv_lanes(taps, u + c, n_rows, stride, m, w + c * taps, hist + c, hist_stride);
    }
}

/* ---- the recurrence ---- */

#define COLS (BE_DELTA_LANES / W)

/* One token on BE_DELTA_LANES columns: a pass that reads S against k, and one that writes it and reads it against q. */
ALWAYS void delta_step(const struct be_delta_piece *p, int64_t t)
{
    const float *q = p->q + t * p->u_stride, *k = p->k + t * p->u_stride, *v = p->v + t * p->u_stride;
    vf even[COLS], odd[COLS], r[COLS];
    float alpha, beta;
    be_delta_gates(p, t, &alpha, &beta);
    UNROLL
    for (int c = 0; c < COLS; c++)
        even[c] = odd[c] = v_set(0);
    for (int i = 0; i + 2 <= p->dk; i += 2) {
        vf k0 = v_set(k[i]), k1 = v_set(k[i + 1]);
        const float *s = p->s + (int64_t)i * p->s_stride;
        UNROLL
        for (int c = 0; c < COLS; c++) {
            even[c] = VFMA(k0, v_load(s + c * W), even[c]);
            odd[c] = VFMA(k1, v_load(s + p->s_stride + c * W), odd[c]);
        }
    }
    UNROLL
    for (int c = 0; c < COLS; c++) {
        r[c] = v_set(beta) * (v_load(v + c * W) - v_set(alpha) * (even[c] + odd[c]));
        even[c] = odd[c] = v_set(0);
    }
    for (int i = 0; i + 2 <= p->dk; i += 2) {
        vf k0 = v_set(k[i]), k1 = v_set(k[i + 1]), q0 = v_set(q[i]), q1 = v_set(q[i + 1]), a = v_set(alpha);
        float *s = p->s + (int64_t)i * p->s_stride;
        UNROLL
        for (int c = 0; c < COLS; c++) {
            vf s0 = VFMA(k0, r[c], a * v_load(s + c * W)),
               s1 = VFMA(k1, r[c], a * v_load(s + p->s_stride + c * W));
            v_store(s + c * W, s0);
            v_store(s + p->s_stride + c * W, s1);
            even[c] = VFMA(q0, s0, even[c]);
            odd[c] = VFMA(q1, s1, odd[c]);
        }
    }
    UNROLL
    for (int c = 0; c < COLS; c++)
        v_store(p->o + t * p->o_stride + c * W, even[c] + odd[c]);
}

#define DELTA_COPY 256 /* largest head that is copied */
#define COPY_FROM  4   /* rows from which a copy of the columns pays */

ALWAYS void copy_columns(float *to, int64_t to_stride, const float *from, int64_t from_stride, int n)
{
    for (int i = 0; i < n; i++)
        for (int c = 0; c < BE_DELTA_LANES; c += W)
            v_store(to + i * to_stride + c, v_load(from + i * from_stride + c));
}

/* Odd shapes go to the plain C. That choice depends on the layer's shape alone, so a column is always computed one way. Rows of S
 * lie a power of two apart and fall on a few sets of the nearest cache; side by side they all fit it. */
static void delta(const struct be_delta_piece *p)
{
    _Alignas(64) float s[DELTA_COPY * BE_DELTA_LANES];
    struct be_delta_piece near = *p;
    bool copy = p->n_rows >= COPY_FROM && p->dk <= DELTA_COPY;
    if (p->n_cols != BE_DELTA_LANES || p->dk % 2 != 0) {
        be_kernels_ref.delta(p);
        return;
    }
    if (copy) {
        copy_columns(s, BE_DELTA_LANES, p->s, p->s_stride, p->dk);
        near.s = s;
        near.s_stride = BE_DELTA_LANES;
    }
    for (int64_t t = 0; t < p->n_rows; t++)
        delta_step(&near, t);
    if (copy)
        copy_columns(p->s, p->s_stride, s, BE_DELTA_LANES, p->dk);
}

#endif
