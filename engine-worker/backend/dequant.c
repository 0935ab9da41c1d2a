#include "internal.h"

#include <assert.h>
#include <string.h>

/* One function a type, one block a call: the layouts are the file format's, the formulas its definition. */

static float f16(const uint8_t *b)
{
    return be_f16_to_f32(be_le16(b));
}

static void dq_f32(const uint8_t *b, float *y)
{
    memcpy(y, b, 4);
}

static void dq_f16(const uint8_t *b, float *y)
{
    *y = f16(b);
}

static void dq_bf16(const uint8_t *b, float *y)
{
    *y = be_bf16_to_f32(be_le16(b));
}

static void dq_q4_0(const uint8_t *b, float *y)
{
    float d = f16(b);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)((b[2 + j] & 15) - 8);
        y[j + 16] = d * (float)((b[2 + j] >> 4) - 8);
    }
}

static void dq_q4_1(const uint8_t *b, float *y)
{
    float d = f16(b), m = f16(b + 2);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)(b[4 + j] & 15) + m;
        y[j + 16] = d * (float)(b[4 + j] >> 4) + m;
    }
}

/* Five-bit code j of 32: nibbles as in Q4_0, the fifth bits in one word. */
static int code5(const uint8_t *qs, const uint8_t *qh, int j)
{
    int nib = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
    return nib | (qh[j / 8] >> (j % 8) & 1) << 4;
}

static void dq_q5_0(const uint8_t *b, float *y)
{
    float d = f16(b);
    for (int j = 0; j < 32; j++)
        y[j] = d * (float)(code5(b + 6, b + 2, j) - 16);
}

static void dq_q5_1(const uint8_t *b, float *y)
{
    float d = f16(b), m = f16(b + 2);
    for (int j = 0; j < 32; j++)
        y[j] = d * (float)code5(b + 8, b + 4, j) + m;
}

static void dq_q8_0(const uint8_t *b, float *y)
{
    float d = f16(b);
    for (int j = 0; j < 32; j++)
        y[j] = d * (float)(int8_t)b[2 + j];
}

static void dq_q2_k(const uint8_t *b, float *y)
{
    const uint8_t *scales = b, *qs = b + 16;
    float d = f16(b + 80), dmin = f16(b + 82);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, r = i % 128, s = scales[i / 16];
        int q = qs[32 * h + r % 32] >> (2 * (r / 32)) & 3;
        y[i] = d * (float)((s & 15) * q) - dmin * (float)(s >> 4);
    }
}

static void dq_q3_k(const uint8_t *b, float *y)
{
    const uint8_t *hmask = b, *qs = b + 32, *scales = b + 96;
    float d = f16(b + 108);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, r = i % 128, k = i / 16;
        int lo = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
        int sc = (lo | (scales[8 + k % 4] >> (2 * (k / 4)) & 3) << 4) - 32;
        int q = (qs[32 * h + r % 32] >> (2 * (r / 32)) & 3) - (hmask[r % 32] >> (4 * h + r / 32) & 1 ? 0 : 4);
        y[i] = d * (float)(sc * q);
    }
}

static void dq_q4_k(const uint8_t *b, float *y)
{
    float d = f16(b), dmin = f16(b + 2);
    for (int k = 0; k < 8; k++) {
        uint8_t a, m;
        be_k4_scale(b + 4, k, &a, &m);
        for (int j = 0; j < 32; j++) {
            int q = b[16 + 32 * (k / 2) + j] >> (4 * (k % 2)) & 15;
            y[32 * k + j] = d * (float)a * (float)q - dmin * (float)m;
        }
    }
}

static void dq_q5_k(const uint8_t *b, float *y)
{
    float d = f16(b), dmin = f16(b + 2);
    for (int k = 0; k < 8; k++) {
        uint8_t a, m;
        be_k4_scale(b + 4, k, &a, &m);
        for (int j = 0; j < 32; j++) {
            int q = (b[48 + 32 * (k / 2) + j] >> (4 * (k % 2)) & 15) | (b[16 + j] >> k & 1) << 4;
            y[32 * k + j] = d * (float)a * (float)q - dmin * (float)m;
        }
    }
}

static void dq_q6_k(const uint8_t *b, float *y)
{
    const uint8_t *ql = b, *qh = b + 128;
    const int8_t *scales = (const int8_t *)b + 192;
    float d = f16(b + 208);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, g = i % 128 / 32, l = i % 32;
        int lo = ql[64 * h + 32 * (g % 2) + l] >> (4 * (g / 2)) & 15;
        int hi = qh[32 * h + l] >> (2 * g) & 3;
        y[i] = d * (float)(scales[i / 16] * ((lo | hi << 4) - 32));
    }
}

/* The non-linear 4-bit codes of IQ4_NL and IQ4_XS. */
static const int8_t iq4_codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

static void dq_iq4_nl(const uint8_t *b, float *y)
{
    float d = f16(b);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)iq4_codes[b[2 + j] & 15];
        y[j + 16] = d * (float)iq4_codes[b[2 + j] >> 4];
    }
}

static void dq_iq4_xs(const uint8_t *b, float *y)
{
    float d = f16(b);
    unsigned high = be_le16(b + 2);
    for (int k = 0; k < 8; k++) {
        int ls = (b[4 + k / 2] >> (4 * (k % 2)) & 15) | (int)(high >> (2 * k) & 3) << 4;
        for (int l = 0; l < 32; l++)
            y[32 * k + l] =
                d * (float)(ls - 32) * (float)iq4_codes[b[8 + 16 * k + l % 16] >> (4 * (l / 16)) & 15];
    }
}

/* E2M1 times two. */
static const int8_t fp4_codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e-128): half of the E8M0 scale, since the codes are doubled. */
static float e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    if (e == 255)
        bits = 0x7fc00000;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void dq_mxfp4(const uint8_t *b, float *y)
{
    float d = e8m0_half(b[0]);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)fp4_codes[b[1 + j] & 15];
        y[j + 16] = d * (float)fp4_codes[b[1 + j] >> 4];
    }
}

static const struct be_type types[] = {
    [GT_F32] = {BE_X_F32, BE_MM_F32, dq_f32},       [GT_F16] = {BE_X_F32, BE_MM_F16, dq_f16},
    [GT_Q4_0] = {BE_X_Q32, BE_MM_Q4_0, dq_q4_0},    [GT_Q4_1] = {BE_X_F32, BE_MM_ROW, dq_q4_1},
    [GT_Q5_0] = {BE_X_F32, BE_MM_ROW, dq_q5_0},     [GT_Q5_1] = {BE_X_F32, BE_MM_ROW, dq_q5_1},
    [GT_Q8_0] = {BE_X_Q32, BE_MM_Q8_0, dq_q8_0},    [GT_Q2_K] = {BE_X_F32, BE_MM_ROW, dq_q2_k},
    [GT_Q3_K] = {BE_X_F32, BE_MM_ROW, dq_q3_k},     [GT_Q4_K] = {BE_X_Q256, BE_MM_Q4_K, dq_q4_k},
    [GT_Q5_K] = {BE_X_Q256, BE_MM_Q5_K, dq_q5_k},   [GT_Q6_K] = {BE_X_Q256, BE_MM_Q6_K, dq_q6_k},
    [GT_IQ4_NL] = {BE_X_F32, BE_MM_ROW, dq_iq4_nl}, [GT_IQ4_XS] = {BE_X_F32, BE_MM_ROW, dq_iq4_xs},
    [GT_BF16] = {BE_X_F32, BE_MM_BF16, dq_bf16},    [GT_MXFP4] = {BE_X_F32, BE_MM_ROW, dq_mxfp4},
};

const struct be_type *be_type(uint32_t type)
{
    if (type >= sizeof types / sizeof types[0] || types[type].dequant == NULL)
        return NULL;
    return &types[type];
}

bool be_type_ok(uint32_t type)
{
    return be_type(type) != NULL;
}

void be_dequant(uint32_t type, const void *src, float *dst, int64_t n)
{
    const struct be_type *t = be_type(type);
    int64_t block, bytes;
    assert(t != NULL);
    ggml_block(type, &block, &bytes);
    const uint8_t *b = src;
    for (int64_t i = 0; i < n; i += block, b += bytes)
        t->dequant(b, dst + i);
}
