/* Integer vectors for quantized weights, and the quantization of activations. Integer sums are exact; the float operations per
 * block and their order are those of ref_matmul.c, so the results are the same bits. */
#ifndef BE_K_QUANT_H
#define BE_K_QUANT_H

#include "vec.h"

/* Rows of a panel = 32-bit lanes of an integer vector. */
#if defined(__AVX512BW__)
#define Q 16
#elif defined(__AVX2__)
#define Q 8
#else
#define Q 4
#endif

typedef int32_t qi __attribute__((vector_size(4 * Q)));
typedef int16_t qw __attribute__((vector_size(4 * Q)));
typedef int8_t qb __attribute__((vector_size(4 * Q)));
typedef float qf __attribute__((vector_size(4 * Q)));

/* x - 0 is x for every x, so this is a plain broadcast. */
ALWAYS qf q_setf(float f)
{
    return f - (qf){0};
}

/* Four bytes to every lane. */
ALWAYS qi q_bcast(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v - (qi){0};
}

/* Sums of two neighbouring products of unsigned and signed bytes; they fit 16 bits in every use here. */
ALWAYS qw q_mul8(qi u, qi s)
{
#if Q == 16
    return (qw)_mm512_maddubs_epi16((__m512i)u, (__m512i)s);
#elif Q == 8
    return (qw)_mm256_maddubs_epi16((__m256i)u, (__m256i)s);
#elif defined(__SSSE3__)
    return (qw)_mm_maddubs_epi16((__m128i)u, (__m128i)s);
#else
    qw even = ((qw)u & 0xff) * (((qw)s << 8) >> 8), odd = (qw)(((__v8hu)u) >> 8) * ((qw)s >> 8);
    return even + odd;
#endif
}

/* Sums of two neighbouring products of 16-bit numbers. */
ALWAYS qi q_mul16(qw a, qw b)
{
#if Q == 16
    return (qi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif Q == 8
    return (qi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return (qi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#endif
}

/* |a| as unsigned bytes, and b with the sign of a. */
ALWAYS qi q_abs(qi a)
{
#if Q == 16
    return (qi)_mm512_abs_epi8((__m512i)a);
#elif Q == 8
    return (qi)_mm256_abs_epi8((__m256i)a);
#else
    qb neg = (qb)a < 0;
    return (qi)(((qb)a ^ neg) - neg);
#endif
}

ALWAYS qi q_sign(qi b, qi a)
{
#if Q == 16
    return (qi)_mm512_mask_sub_epi8((__m512i)b, _mm512_movepi8_mask((__m512i)a), _mm512_setzero_si512(),
                                    (__m512i)b);
#elif Q == 8
    return (qi)_mm256_sign_epi8((__m256i)b, (__m256i)a);
#else
    qb neg = (qb)a < 0;
    return (qi)(((qb)b ^ neg) - neg);
#endif
}

/* To nearest even, as the conversion of C and of the vector unit; a panel's sums exceed 24 bits. */
ALWAYS qf q_float(qi v)
{
    return __builtin_convertvector(v, qf);
}

/* ---- activations ---- */

/* Codes of 16 values, to nearest even like lrintf. |x * id| is at most 127 and a bit: nothing saturates. 128-bit vectors, since
 * packing wider ones mixes their halves. */
ALWAYS __m128i code4(const float *x, __m128 id)
{
    return _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x), id));
}

ALWAYS void code16(const float *x, float id, int8_t *q)
{
    __m128 f = _mm_set1_ps(id);
    __m128i a = _mm_packs_epi32(code4(x, f), code4(x + 4, f)),
            b = _mm_packs_epi32(code4(x + 8, f), code4(x + 12, f));
    _mm_storeu_si128((__m128i *)q, _mm_packs_epi16(a, b));
}

ALWAYS float quantize(const float *x, int n, int8_t *q)
{
    vf top = {0};
    vi finite = (vi){0} - 1;
    for (int i = 0; i < n; i += W) {
        vf a = (vf)((vi)v_load(x + i) & 0x7fffffff);
        top = v_max(a, top);
        finite &= a <= v_set(3.402823466e+38f);
    }
    float amax = 0;
    bool all = true;
    for (int i = 0; i < W; i++) {
        amax = top[i] > amax ? top[i] : amax;
        all = all && finite[i] != 0;
    }
    if (!all || amax < 1e-30f) {
        memset(q, 0, (size_t)n);
        return all ? 0.0f : NAN;
    }
    float id = 127.0f / amax;
    for (int i = 0; i < n; i += 16)
        code16(x + i, id, q + i);
    return amax / 127.0f;
}

/* Bytes 128 too large have no sign, and sums of such are one instruction. */
ALWAYS int16_t sum16(const int8_t *q)
{
    __m128i u = _mm_xor_si128(_mm_loadu_si128((const __m128i *)q), _mm_set1_epi8(-128));
    __m128i s = _mm_sad_epu8(u, _mm_setzero_si128());
    return (int16_t)(_mm_cvtsi128_si32(s) + _mm_extract_epi16(s, 4) - 16 * 128);
}

static void quant_q32(const float *x, int64_t n, int8_t *q, float *d, int16_t *s32)
{
    for (int64_t i = 0; i < n; i += 32) {
        d[i / 32] = quantize(x + i, 32, q + i);
        s32[i / 32] = (int16_t)(sum16(q + i) + sum16(q + i + 16));
    }
}

static void quant_q256(const float *x, int64_t n, int8_t *q, float *d, int16_t *s16, int16_t *s32)
{
    for (int64_t i = 0; i < n; i += 256)
        d[i / 256] = quantize(x + i, 256, q + i);
    for (int64_t i = 0; i < n; i += 16)
        s16[i / 16] = sum16(q + i);
    for (int64_t i = 0; i < n / 32; i++)
        s32[i] = (int16_t)(s16[2 * i] + s16[2 * i + 1]);
}

#endif
