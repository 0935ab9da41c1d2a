#include "codes.h"
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

/* ---- quantized weights ---- */

static int dot_codes(const int8_t *w, const int8_t *x, int n)
{
    int s = 0;
    for (int i = 0; i < n; i++)
        s += w[i] * x[i];
    return s;
}

/* 32 weights from value i of a row; c: their place in the block. */
static float dot_32(enum be_form form, const struct be_codes *w, int c, const struct be_x *x, int64_t t,
                    int64_t i)
{
    const int8_t *q = x->q + t * x->q_stride + i;
    float dx = x->d[t * x->d_stride + i / 32], d = w->d[c / 16];
    int lo = dot_codes(w->c + c, q, 16), hi = dot_codes(w->c + c + 16, q + 16, 16);
    if (form == BE_M32)
        return dx * (d * (float)(lo + hi) + w->m * (float)x->s32[t * x->s32_stride + i / 32]);
    if (form == BE_H32)
        return dx * (d * (float)lo + w->d[c / 16 + 1] * (float)hi);
    return d * dx * (float)(lo + hi);
}

static float dot_256(enum be_form form, const struct be_codes *w, const struct be_x *x, int64_t t, int64_t i)
{
    const int8_t *q = x->q + t * x->q_stride + i;
    const int16_t *s16 = x->s16 + t * x->s16_stride + i / 16;
    float dx = x->d[t * x->d_stride + i / 256];
    int sum = 0, min = 0;
    for (int k = 0; k < 16; k++) {
        sum += w->scale[k] * dot_codes(w->c + 16 * k, q + 16 * k, 16);
        min += form == BE_M256 ? w->min[k] * s16[k] : 0;
    }
    if (form == BE_M256)
        return dx * (w->d[0] * (float)sum - w->m * (float)min);
    return w->d[0] * dx * (float)sum;
}

static void coded_row(const struct be_mm *m, int64_t row, int64_t t0, int64_t t1)
{
    enum be_form form = be_type(m->type)->form;
    be_unpack_fn *unpack = be_unpack(m->type);
    const uint8_t *b = m->w + (size_t)row * m->row_bytes;
    float acc[TOKENS] = {0};
    int64_t block, bytes;
    ggml_block(m->type, &block, &bytes);
    for (int64_t i = 0; i < m->n_in; i += block, b += bytes) {
        struct be_codes w;
        unpack(b, &w);
        for (int64_t t = t0; t < t1 && block == 256; t++)
            acc[t - t0] += dot_256(form, &w, &m->x, t, i);
        for (int64_t t = t0; t < t1 && block < 256; t++)
            for (int c = 0; c < block; c += 32)
                acc[t - t0] += dot_32(form, &w, c, &m->x, t, i + c);
    }
    for (int64_t t = t0; t < t1; t++)
        m->y[t * m->n_out + row] = acc[t - t0];
}

void be_ref_mm_coded(const struct be_mm *m, int64_t r0, int64_t r1)
{
    for (int64_t row = r0; row < r1; row++)
        for (int64_t t = 0; t < m->T; t += TOKENS)
            coded_row(m, row, t, t + TOKENS < m->T ? t + TOKENS : m->T);
}
