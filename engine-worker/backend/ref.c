#include "internal.h"

#include <math.h>
#include <string.h>

/* Sums of floats keep 16 running sums, value i going to sum i % 16, that are folded by halves at the end: the
 * order that vectors of 4, 8 and 16 lanes can all keep. */
static float fold16(float *s)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}

static float sum_squares(const float *x, int64_t n)
{
    float s[16] = {0};
    for (int64_t i = 0; i < n; i++)
        s[i % 16] += x[i] * x[i];
    return fold16(s);
}

/* Codes of n values with the scale that makes the largest 127. Very small rows are zero: 127/amax would
 * overflow. */
static float quantize(const float *x, int n, int8_t *q)
{
    float amax = 0;
    bool finite = true;
    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        amax = a > amax ? a : amax;
        finite = finite && a <= 3.402823466e+38f;
    }
    if (!finite || amax < 1e-30f) {
        memset(q, 0, (size_t)n);
        return finite ? 0.0f : NAN;
    }
    float id = 127.0f / amax;
    for (int i = 0; i < n; i++)
        q[i] = (int8_t)lrintf(x[i] * id);
    return amax / 127.0f;
}

static int16_t sum_codes(const int8_t *q, int n)
{
    int s = 0;
    for (int i = 0; i < n; i++)
        s += q[i];
    return (int16_t)s;
}

static void quant_q32(const float *x, int64_t n, int8_t *q, float *d, int16_t *s32)
{
    for (int64_t i = 0; i < n; i += 32) {
        d[i / 32] = quantize(x + i, 32, q + i);
        s32[i / 32] = sum_codes(q + i, 32);
    }
}

static void quant_q256(const float *x, int64_t n, int8_t *q, float *d, int16_t *s16, int16_t *s32)
{
    for (int64_t i = 0; i < n; i += 256)
        d[i / 256] = quantize(x + i, 256, q + i);
    for (int64_t i = 0; i < n; i += 16)
        s16[i / 16] = sum_codes(q + i, 16);
    for (int64_t i = 0; i < n; i += 32)
        s32[i / 32] = sum_codes(q + i, 32);
}

static void rmsnorm(float *y, const float *x, const float *w, int64_t n, float eps)
{
    float scale = 1.0f / sqrtf(sum_squares(x, n) / (float)n + eps);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

static void add(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float silu(float x)
{
    return x * sigmoid(x);
}

static void silu_mul(float *g, const float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        g[i] = silu(g[i]) * u[i];
}

static void gelu_mul(float *g, const float *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float x = g[i], t = 0.79788456f * (x + 0.044715f * x * x * x);
        g[i] = x * sigmoid(2 * t) * u[i]; /* (1 + tanh t) / 2 without the cancellation at t < 0 */
    }
}

static void softcap(float *x, int64_t n, float cap)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

static void sigmoid_gate(float *x, const float *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= sigmoid(g[i]);
}

static void to_f16(uint16_t *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = be_f32_to_f16(x[i]);
}

/* One channel at a time: the last taps-1 inputs, the oldest first, then the new one. */
static void conv(float *u, int64_t n_rows, int64_t stride, int64_t n, const float *w, int taps, float *hist,
                 int64_t hist_stride)
{
    for (int64_t c = 0; c < n; c++) {
        float win[BE_CONV_MAX];
        for (int k = 0; k < taps - 1; k++)
            win[k] = hist[k * hist_stride + c];
        for (int64_t t = 0; t < n_rows; t++) {
            float sum = 0;
            win[taps - 1] = u[t * stride + c];
            for (int k = 0; k < taps; k++)
                sum += w[c * taps + k] * win[k];
            u[t * stride + c] = silu(sum);
            memmove(win, win + 1, (size_t)(taps - 1) * sizeof *win);
        }
        for (int k = 0; k < taps - 1; k++)
            hist[k * hist_stride + c] = win[k];
    }
}

static void l2norm(float *x, int64_t n, float scale)
{
    scale /= sqrtf(sum_squares(x, n) + 1e-6f);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* S ← αS + k (β (v − αSᵀk))ᵀ, o = Sᵀq; even and odd rows of S are summed apart, which halves the chain of
 * additions. */
static void delta_step(const struct be_delta_piece *p, int64_t t)
{
    const float *q = p->q + t * p->u_stride, *k = p->k + t * p->u_stride, *v = p->v + t * p->u_stride;
    float alpha, beta;
    be_delta_gates(p, t, &alpha, &beta);
    for (int c = 0; c < p->n_cols; c++) {
        float sk[2] = {0, 0}, sq[2] = {0, 0};
        for (int i = 0; i < p->dk; i++)
            sk[i % 2] += k[i] * p->s[i * p->s_stride + c];
        float r = beta * (v[c] - alpha * (sk[0] + sk[1]));
        for (int i = 0; i < p->dk; i++) {
            float *s = &p->s[i * p->s_stride + c];
            *s = alpha * *s + k[i] * r;
            sq[i % 2] += q[i] * *s;
        }
        p->o[t * p->o_stride + c] = sq[0] + sq[1];
    }
}

static void delta(const struct be_delta_piece *p)
{
    for (int64_t t = 0; t < p->n_rows; t++)
        delta_step(p, t);
}

static void gated_norm(float *o, const float *z, const float *w, int64_t n, float eps)
{
    rmsnorm(o, o, w, n, eps);
    for (int64_t i = 0; i < n; i++)
        o[i] *= silu(z[i]);
}

const struct be_kernels be_kernels_ref = {
    .simd = BE_REF,
    .quant_q32 = quant_q32,
    .quant_q256 = quant_q256,
    .mm = {[BE_MM_F32] = be_ref_mm_f32,
           [BE_MM_F16] = be_ref_mm_f16,
           [BE_MM_BF16] = be_ref_mm_bf16,
#define CODED_TYPE(t) [BE_MM_##t] = be_ref_mm_coded,
           BE_CODED_TYPES(CODED_TYPE)},
    .rmsnorm = rmsnorm,
    .add = add,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .sigmoid_gate = sigmoid_gate,
    .softcap = softcap,
    .to_f16 = to_f16,
    .attn = be_ref_attn,
    .conv = conv,
    .l2norm = l2norm,
    .delta = delta,
    .gated_norm = gated_norm,
};
