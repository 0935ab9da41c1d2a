#include "codes.h"
#include "grids.h"
#include "internal.h"

#include <string.h>

static float f16(const uint8_t *b)
{
    return be_f16_to_f32(be_le16(b));
}

static void one_scale(struct be_codes *o, float d)
{
    for (int i = 0; i < 16; i++)
        o->d[i] = d;
}

static void plain_scales(struct be_codes *o, float d)
{
    o->d[0] = d;
    for (int k = 0; k < 16; k++)
        o->scale[k] = 1;
}

/* ---- blocks of 32 and a few odd sizes ---- */

static void nibbles(const uint8_t *qs, int8_t *c, int bias)
{
    for (int j = 0; j < 16; j++) {
        c[j] = (int8_t)((qs[j] & 15) - bias);
        c[j + 16] = (int8_t)((qs[j] >> 4) - bias);
    }
}

static void unpack_q4_0(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    nibbles(b + 2, o->c, 8);
}

static void unpack_q4_1(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    o->m = f16(b + 2);
    nibbles(b + 4, o->c, 0);
}

/* The fifth bits of 32 codes are one word. */
static void fifth_bits(const uint8_t *qh, int8_t *c, int bias)
{
    for (int j = 0; j < 32; j++)
        c[j] = (int8_t)((c[j] | (qh[j / 8] >> (j % 8) & 1) << 4) - bias);
}

static void unpack_q5_0(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    nibbles(b + 6, o->c, 0);
    fifth_bits(b + 2, o->c, 16);
}

static void unpack_q5_1(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    o->m = f16(b + 2);
    nibbles(b + 8, o->c, 0);
    fifth_bits(b + 4, o->c, 0);
}

static void unpack_q8_0(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    memcpy(o->c, b + 2, 32);
}

/* The second half is d times the sum of the codes, which only a dot product needs. */
static void unpack_q8_1(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    memcpy(o->c, b + 4, 32);
}

const int8_t be_iq4_codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int8_t be_fp4_codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void unpack_iq4_nl(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    for (int j = 0; j < 16; j++) {
        o->c[j] = be_iq4_codes[b[2 + j] & 15];
        o->c[j + 16] = be_iq4_codes[b[2 + j] >> 4];
    }
}

/* 2^(e-128), down to the subnormals. */
float be_e8m0_half(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    if (e == 255)
        bits = 0x7fc00000;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void unpack_mxfp4(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, be_e8m0_half(b[0]));
    for (int j = 0; j < 16; j++) {
        o->c[j] = be_fp4_codes[b[1 + j] & 15];
        o->c[j + 16] = be_fp4_codes[b[1 + j] >> 4];
    }
}

/* Four bits of exponent, bias 7, three of mantissa; the sign bit has no meaning. The format's readers take its NaN for 0. */
float be_ue4m3_half(uint8_t e)
{
    int exp = e >> 3 & 15, man = e & 7;
    if ((e & 127) == 127)
        return 0;
    return exp == 0 ? (float)man * 0x1p-10f : (float)((8 + man) << exp) * 0x1p-11f;
}

static void unpack_nvfp4(const uint8_t *b, struct be_codes *o)
{
    for (int s = 0; s < 4; s++) {
        o->d[s] = be_ue4m3_half(b[s]);
        for (int j = 0; j < 8; j++) {
            o->c[16 * s + j] = be_fp4_codes[b[4 + 8 * s + j] & 15];
            o->c[16 * s + j + 8] = be_fp4_codes[b[4 + 8 * s + j] >> 4];
        }
    }
}

static void unpack_q1_0(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    for (int j = 0; j < 128; j++)
        o->c[j] = b[2 + j / 8] >> (j % 8) & 1 ? 1 : -1;
}

static void unpack_q2_0(const uint8_t *b, struct be_codes *o)
{
    one_scale(o, f16(b));
    for (int j = 0; j < 64; j++)
        o->c[j] = (int8_t)((b[2 + j / 4] >> (2 * (j % 4)) & 3) - 1);
}

/* ---- blocks of 256: K ---- */

/* Value i of four packed two-bit planes: bytes of 32 values, halves of 128. */
static int two_bits(const uint8_t *qs, int i)
{
    return qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
}

static void unpack_q2_k(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b + 80);
    o->m = f16(b + 82);
    for (int k = 0; k < 16; k++) {
        o->scale[k] = b[k] & 15;
        o->min[k] = b[k] >> 4;
    }
    for (int i = 0; i < 256; i++)
        o->c[i] = (int8_t)two_bits(b + 16, i);
}

static void unpack_q3_k(const uint8_t *b, struct be_codes *o)
{
    const uint8_t *hmask = b, *qs = b + 32, *s = b + 96;
    o->d[0] = f16(b + 108);
    for (int k = 0; k < 16; k++) {
        int lo = k < 8 ? s[k] & 15 : s[k - 8] >> 4, hi = s[8 + k % 4] >> (2 * (k / 4)) & 3;
        o->scale[k] = (int16_t)((lo | hi << 4) - 32);
    }
    for (int i = 0; i < 256; i++)
        o->c[i] = (int8_t)(two_bits(qs, i) - (hmask[i % 32] >> (i / 32) & 1 ? 0 : 4));
}

/* Q4_K and Q5_K; high: the fifth bits, or NULL. */
static void unpack_k45(const uint8_t *b, const uint8_t *high, const uint8_t *qs, struct be_codes *o)
{
    o->d[0] = f16(b);
    o->m = f16(b + 2);
    for (int k = 0; k < 8; k++) {
        uint8_t a, m;
        be_k4_scale(b + 4, k, &a, &m);
        o->scale[2 * k] = o->scale[2 * k + 1] = a;
        o->min[2 * k] = o->min[2 * k + 1] = m;
        for (int j = 0; j < 32; j++) {
            int q = qs[32 * (k / 2) + j] >> (4 * (k % 2)) & 15;
            o->c[32 * k + j] = (int8_t)(q | (high != NULL ? (high[j] >> k & 1) << 4 : 0));
        }
    }
}

static void unpack_q4_k(const uint8_t *b, struct be_codes *o)
{
    unpack_k45(b, NULL, b + 16, o);
}

static void unpack_q5_k(const uint8_t *b, struct be_codes *o)
{
    unpack_k45(b, b + 16, b + 48, o);
}

static void unpack_q6_k(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b + 208);
    for (int k = 0; k < 16; k++)
        o->scale[k] = (int8_t)b[192 + k];
    for (int i = 0; i < 256; i++) {
        int h = i / 128, g = i % 128 / 32, l = i % 32;
        int lo = b[64 * h + 32 * (g % 2) + l] >> (4 * (g / 2)) & 15, hi = b[128 + 32 * h + l] >> (2 * g) & 3;
        o->c[i] = (int8_t)((lo | hi << 4) - 32);
    }
}

static void unpack_q8_k(const uint8_t *b, struct be_codes *o)
{
    float d;
    memcpy(&d, b, sizeof d);
    plain_scales(o, d);
    memcpy(o->c, b + 4, 256);
}

static void unpack_iq4_xs(const uint8_t *b, struct be_codes *o)
{
    unsigned high = be_le16(b + 2);
    o->d[0] = f16(b);
    for (int k = 0; k < 8; k++) {
        int ls = (b[4 + k / 2] >> (4 * (k % 2)) & 15) | (int)(high >> (2 * k) & 3) << 4;
        o->scale[2 * k] = o->scale[2 * k + 1] = (int16_t)(ls - 32);
        for (int l = 0; l < 32; l++)
            o->c[32 * k + l] = be_iq4_codes[b[8 + 16 * k + l % 16] >> (4 * (l / 16)) & 15];
    }
}

/* ---- grids ----
 *
 * d is divided by 8 (4 for IQ3_XXS) where the format has scales of odd halves or eighths added to values: a power of two, so
 * exact. */

/* n magnitudes, byte j of `point` being the j-th; bit j of `signs`: negative. */
static void signed_point(int8_t *c, uint64_t point, unsigned signs, int n)
{
    for (int j = 0; j < n; j++) {
        int v = (int)(point >> (8 * j) & 255);
        c[j] = (int8_t)(signs >> j & 1 ? -v : v);
    }
}

/* Seven signs are stored; the eighth makes the number of negatives even. */
static unsigned even_signs(unsigned s)
{
    s &= 127;
    return s | (unsigned)__builtin_parity(s) << 7;
}

static void unpack_iq2_xxs(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b) * 0.125f;
    for (int k = 0; k < 8; k++) {
        const uint8_t *g = b + 2 + 8 * k;
        uint32_t a = (uint32_t)be_le16(g + 4) | (uint32_t)be_le16(g + 6) << 16;
        o->scale[2 * k] = o->scale[2 * k + 1] = (int16_t)(2 * (a >> 28) + 1);
        for (int l = 0; l < 4; l++)
            signed_point(o->c + 32 * k + 8 * l, be_grid_iq2xxs[g[l]], even_signs(a >> (7 * l)), 8);
    }
}

/* Scales of every 16 in nibbles, as odd numbers. */
static void odd_scales(const uint8_t *s, int16_t *scale)
{
    for (int k = 0; k < 16; k++)
        scale[k] = (int16_t)(2 * (s[k / 2] >> (4 * (k % 2)) & 15) + 1);
}

static void unpack_iq2_xs(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b) * 0.125f;
    odd_scales(b + 66, o->scale);
    for (int g = 0; g < 32; g++) {
        unsigned w = be_le16(b + 2 + 2 * g);
        signed_point(o->c + 8 * g, be_grid_iq2xs[w & 511], even_signs(w >> 9), 8);
    }
}

static void unpack_iq2_s(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b) * 0.125f;
    odd_scales(b + 74, o->scale);
    for (int g = 0; g < 32; g++) {
        int i = b[2 + g] | (b[66 + g / 4] >> (2 * (g % 4)) & 3) << 8;
        signed_point(o->c + 8 * g, be_grid_iq2s[i], b[34 + g], 8);
    }
}

static void unpack_iq3_xxs(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b) * 0.25f;
    for (int k = 0; k < 8; k++) {
        const uint8_t *t = b + 66 + 4 * k;
        uint32_t a = (uint32_t)be_le16(t) | (uint32_t)be_le16(t + 2) << 16;
        o->scale[2 * k] = o->scale[2 * k + 1] = (int16_t)(2 * (a >> 28) + 1);
        for (int l = 0; l < 8; l++)
            signed_point(o->c + 32 * k + 4 * l, be_grid_iq3xxs[b[2 + 8 * k + l]],
                         even_signs(a >> (7 * (l / 2))) >> (4 * (l % 2)), 4);
    }
}

static void unpack_iq3_s(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b);
    for (int k = 0; k < 8; k++) {
        o->scale[2 * k] = o->scale[2 * k + 1] = (int16_t)(2 * (b[106 + k / 2] >> (4 * (k % 2)) & 15) + 1);
        for (int l = 0; l < 8; l++) {
            int i = b[2 + 8 * k + l] | (b[66 + k] >> l & 1) << 8;
            signed_point(o->c + 32 * k + 4 * l, be_grid_iq3s[i], b[74 + 4 * k + l / 2] >> (4 * (l % 2)), 4);
        }
    }
}

/* Eight times the grid's value and the shift of an eighth. */
static void shifted_point(int8_t *c, uint64_t point, bool down)
{
    for (int j = 0; j < 8; j++)
        c[j] = (int8_t)((int)(point >> (8 * j) & 255) - (down ? 11 : 9));
}

static void unpack_iq1_s(const uint8_t *b, struct be_codes *o)
{
    o->d[0] = f16(b) * 0.125f;
    for (int k = 0; k < 8; k++) {
        unsigned h = be_le16(b + 34 + 2 * k);
        o->scale[2 * k] = o->scale[2 * k + 1] = (int16_t)(2 * (h >> 12 & 7) + 1);
        for (int l = 0; l < 4; l++)
            shifted_point(o->c + 32 * k + 8 * l, be_grid_iq1s[b[2 + 4 * k + l] | (h >> (3 * l) & 7) << 8],
                          h >> 15);
    }
}

static void unpack_iq1_m(const uint8_t *b, struct be_codes *o)
{
    const uint8_t *qh = b + 32, *s = b + 48;
    unsigned d = 0;
    for (int i = 0; i < 4; i++)
        d |= (unsigned)(be_le16(s + 2 * i) >> 12) << (4 * i);
    o->d[0] = be_f16_to_f32((uint16_t)d) * 0.125f;
    for (int k = 0; k < 16; k++)
        o->scale[k] = (int16_t)(2 * (be_le16(s + 2 * (k / 4)) >> (3 * (k % 4)) & 7) + 1);
    for (int g = 0; g < 32; g++) {
        unsigned n = qh[g / 2] >> (4 * (g % 2)) & 15;
        shifted_point(o->c + 8 * g, be_grid_iq1s[b[g] | (n & 7) << 8], n >> 3);
    }
}

/* ---- ternary ---- */

/* Digit n of the five base-3 digits of a byte, less one: the byte is a fraction of 256, rounded up. */
static int8_t trit(uint8_t b, int n)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    return (int8_t)(((uint8_t)(b * pow3[n]) * 3 >> 8) - 1);
}

static void unpack_tq1_0(const uint8_t *b, struct be_codes *o)
{
    plain_scales(o, f16(b + 52));
    for (int i = 0; i < 160; i++)
        o->c[i] = trit(b[i % 32], i / 32);
    for (int i = 0; i < 80; i++)
        o->c[160 + i] = trit(b[32 + i % 16], i / 16);
    for (int i = 0; i < 16; i++)
        o->c[240 + i] = trit(b[48 + i % 4], i / 4);
}

static void unpack_tq2_0(const uint8_t *b, struct be_codes *o)
{
    plain_scales(o, f16(b + 64));
    for (int i = 0; i < 256; i++)
        o->c[i] = (int8_t)(two_bits(b, i) - 1);
}

be_unpack_fn *be_unpack(uint32_t type)
{
    static be_unpack_fn *const fn[] = {
        [GT_Q4_0] = unpack_q4_0,       [GT_Q4_1] = unpack_q4_1,     [GT_Q5_0] = unpack_q5_0,
        [GT_Q5_1] = unpack_q5_1,       [GT_Q8_0] = unpack_q8_0,     [GT_Q8_1] = unpack_q8_1,
        [GT_Q2_K] = unpack_q2_k,       [GT_Q3_K] = unpack_q3_k,     [GT_Q4_K] = unpack_q4_k,
        [GT_Q5_K] = unpack_q5_k,       [GT_Q6_K] = unpack_q6_k,     [GT_Q8_K] = unpack_q8_k,
        [GT_IQ2_XXS] = unpack_iq2_xxs, [GT_IQ2_XS] = unpack_iq2_xs, [GT_IQ2_S] = unpack_iq2_s,
        [GT_IQ3_XXS] = unpack_iq3_xxs, [GT_IQ3_S] = unpack_iq3_s,   [GT_IQ1_S] = unpack_iq1_s,
        [GT_IQ1_M] = unpack_iq1_m,     [GT_IQ4_NL] = unpack_iq4_nl, [GT_IQ4_XS] = unpack_iq4_xs,
        [GT_TQ1_0] = unpack_tq1_0,     [GT_TQ2_0] = unpack_tq2_0,   [GT_MXFP4] = unpack_mxfp4,
        [GT_NVFP4] = unpack_nvfp4,     [GT_Q1_0] = unpack_q1_0,     [GT_Q2_0] = unpack_q2_0,
    };
    return type < sizeof fn / sizeof fn[0] ? fn[type] : NULL;
}
