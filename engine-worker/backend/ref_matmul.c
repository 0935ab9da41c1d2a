#include "internal.h"

#include <string.h>

/* Matmul in plain C. Quantized types: integers within a block, then one multiply-add per block in the order
 * of the blocks; every other kernel does the same float operations, so its results are the same bits. Float
 * types: 16 running sums. */

/* ---- float weights ---- */

#define PART 256 /* values of a row that are unpacked at a time */

/* s[i % 16] += w[i] * x[i]; a part begins at a multiple of 16. */
static void dot_part(float *s, const float *w, const float *x, int64_t n)
{
    for (; n >= 16; n -= 16, w += 16, x += 16)
        for (int i = 0; i < 16; i++)
            s[i] += w[i] * x[i];
    for (int64_t i = 0; i < n; i++)
        s[i] += w[i] * x[i];
}

static float fold16(float *s)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            s[i] += s[i + n];
    return s[0];
}

static void unpack_f32(uint32_t type, float *dst, const uint8_t *w, int64_t n)
{
    memcpy(dst, w, (size_t)n * 4);
}

static void unpack_f16(uint32_t type, float *dst, const uint8_t *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = be_f16_to_f32(be_le16(w + 2 * i));
}

static void unpack_bf16(uint32_t type, float *dst, const uint8_t *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = be_bf16_to_f32(be_le16(w + 2 * i));
}

static void unpack_row(uint32_t type, float *dst, const uint8_t *w, int64_t n)
{
    be_dequant(type, w, dst, n);
}

/* A row is unpacked once for TOKENS tokens. */
#define TOKENS 16

static void float_row(const struct be_mm *m, int64_t row, int64_t t0, int64_t t1,
                      void (*unpack)(uint32_t, float *, const uint8_t *, int64_t))
{
    float w[PART], s[TOKENS][16] = {{0}};
    for (int64_t i = 0; i < m->n_in; i += PART) {
        int64_t n = m->n_in - i < PART ? m->n_in - i : PART;
        unpack(m->type, w, m->w + (size_t)row * m->row_bytes + ggml_row_bytes(m->type, (uint64_t)i), n);
        for (int64_t t = t0; t < t1; t++)
            dot_part(s[t - t0], w, m->x.f + t * m->x.f_stride + i, n);
    }
    for (int64_t t = t0; t < t1; t++)
        m->y[t * m->n_out + row] = fold16(s[t - t0]);
}

static void float_rows(const struct be_mm *m, int64_t r0, int64_t r1,
                       void (*unpack)(uint32_t, float *, const uint8_t *, int64_t))
{
    for (int64_t row = r0; row < r1; row++)
        for (int64_t t = 0; t < m->T; t += TOKENS)
            float_row(m, row, t, t + TOKENS < m->T ? t + TOKENS : m->T, unpack);
}

void be_ref_mm_f32(const struct be_mm *m, int64_t r0, int64_t r1)
{
    float_rows(m, r0, r1, unpack_f32);
}

void be_ref_mm_f16(const struct be_mm *m, int64_t r0, int64_t r1)
{
    float_rows(m, r0, r1, unpack_f16);
}

void be_ref_mm_bf16(const struct be_mm *m, int64_t r0, int64_t r1)
{
    float_rows(m, r0, r1, unpack_bf16);
}

void be_ref_mm_row(const struct be_mm *m, int64_t r0, int64_t r1)
{
    float_rows(m, r0, r1, unpack_row);
}

/* ---- quantized weights ---- */

static int dot_codes(const int8_t *w, const int8_t *x, int n)
{
    int s = 0;
    for (int i = 0; i < n; i++)
        s += w[i] * x[i];
    return s;
}

typedef float dot_fn(const uint8_t *w, const struct be_x *x, int64_t t, int64_t n);

static float dot_q8_0(const uint8_t *w, const struct be_x *x, int64_t t, int64_t n)
{
    const int8_t *q = x->q + t * x->q_stride;
    const float *d = x->d + t * x->d_stride;
    float acc = 0;
    for (int64_t b = 0; b < n / 32; b++, w += 34)
        acc += be_f16_to_f32(be_le16(w)) * d[b] * (float)dot_codes((const int8_t *)w + 2, q + 32 * b, 32);
    return acc;
}

static float dot_q4_0(const uint8_t *w, const struct be_x *x, int64_t t, int64_t n)
{
    const int8_t *q = x->q + t * x->q_stride;
    const float *d = x->d + t * x->d_stride;
    float acc = 0;
    for (int64_t b = 0; b < n / 32; b++, w += 18) {
        int8_t c[32];
        for (int j = 0; j < 16; j++) {
            c[j] = (int8_t)((w[2 + j] & 15) - 8);
            c[j + 16] = (int8_t)((w[2 + j] >> 4) - 8);
        }
        acc += be_f16_to_f32(be_le16(w)) * d[b] * (float)dot_codes(c, q + 32 * b, 32);
    }
    return acc;
}

/* Q4_K and Q5_K: scaled sums of the codes and of the minima, each exact. high: the fifth bits, or NULL. */
static float dot_k45(const uint8_t *w, const struct be_x *x, int64_t t, int64_t b, const uint8_t *qs,
                     const uint8_t *high)
{
    const int8_t *q = x->q + t * x->q_stride + 256 * b;
    const int16_t *s32 = x->s32 + t * x->s32_stride + 8 * b;
    int sum = 0, min = 0;
    for (int k = 0; k < 8; k++) {
        uint8_t a, m;
        int8_t c[32];
        be_k4_scale(w + 4, k, &a, &m);
        for (int j = 0; j < 32; j++)
            c[j] =
                (int8_t)((qs[32 * (k / 2) + j] >> (4 * (k % 2)) & 15) | (high ? (high[j] >> k & 1) << 4 : 0));
        sum += a * dot_codes(c, q + 32 * k, 32);
        min += m * s32[k];
    }
    float d = be_f16_to_f32(be_le16(w)), dmin = be_f16_to_f32(be_le16(w + 2));
    return x->d[t * x->d_stride + b] * (d * (float)sum - dmin * (float)min);
}

static float dot_q4_k(const uint8_t *w, const struct be_x *x, int64_t t, int64_t n)
{
    float acc = 0;
    for (int64_t b = 0; b < n / 256; b++, w += 144)
        acc += dot_k45(w, x, t, b, w + 16, NULL);
    return acc;
}

static float dot_q5_k(const uint8_t *w, const struct be_x *x, int64_t t, int64_t n)
{
    float acc = 0;
    for (int64_t b = 0; b < n / 256; b++, w += 176)
        acc += dot_k45(w, x, t, b, w + 48, w + 16);
    return acc;
}

static float dot_q6_k(const uint8_t *w, const struct be_x *x, int64_t t, int64_t n)
{
    float acc = 0;
    for (int64_t b = 0; b < n / 256; b++, w += 210) {
        const int8_t *q = x->q + t * x->q_stride + 256 * b, *scale = (const int8_t *)w + 192;
        int sum = 0;
        for (int k = 0; k < 16; k++) {
            int8_t c[16];
            for (int j = 0; j < 16; j++) {
                int i = 16 * k + j, h = i / 128, g = i % 128 / 32, l = i % 32;
                int lo = w[64 * h + 32 * (g % 2) + l] >> (4 * (g / 2)) & 15,
                    hi = w[128 + 32 * h + l] >> (2 * g) & 3;
                c[j] = (int8_t)((lo | hi << 4) - 32);
            }
            sum += scale[k] * dot_codes(c, q + 16 * k, 16);
        }
        acc += be_f16_to_f32(be_le16(w + 208)) * x->d[t * x->d_stride + b] * (float)sum;
    }
    return acc;
}

static void rows(const struct be_mm *m, int64_t r0, int64_t r1, dot_fn *dot)
{
    for (int64_t row = r0; row < r1; row++)
        for (int64_t t = 0; t < m->T; t++)
            m->y[t * m->n_out + row] = dot(m->w + (size_t)row * m->row_bytes, &m->x, t, m->n_in);
}

void be_ref_mm_q8_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    rows(m, r0, r1, dot_q8_0);
}

void be_ref_mm_q4_0(const struct be_mm *m, int64_t r0, int64_t r1)
{
    rows(m, r0, r1, dot_q4_0);
}

void be_ref_mm_q4_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    rows(m, r0, r1, dot_q4_k);
}

void be_ref_mm_q5_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    rows(m, r0, r1, dot_q5_k);
}

void be_ref_mm_q6_k(const struct be_mm *m, int64_t r0, int64_t r1)
{
    rows(m, r0, r1, dot_q6_k);
}
