/* Vectors of floats, as wide as the instruction set that this file is compiled for. Arithmetic is the compiler's own on vector
 * types; only what it has no operator for is an intrinsic. Nothing here fuses a multiply with an add unless VFMA says so. */
#ifndef BE_VEC_H
#define BE_VEC_H

#include "internal.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX__)
#define W 8
#else
#define W 4
#endif

/* Running sums are 16 lanes wide whatever the register is (the order of additions is the same everywhere). */
#define NV (16 / W)

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));

ALWAYS vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS void v_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

/* Keeps a value in a register here: compilers like to fold loads into each use, and to reorder integer sums, both of which
 * cost more registers or loads than there are. */
#if defined(__AVX512F__)
#define PIN(v) __asm__("" : "+v"(v))
#else
#define PIN(v) __asm__("" : "+x"(v))
#endif

/* Loops of a constant few rounds over register arrays: unrolled early, so that the arrays become registers. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

ALWAYS vf v_set(float f)
{
    return f - (vf){0}; /* x - 0 is x for every x: a plain broadcast */
}

#if defined(__AVX512F__)
#define VFMA(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#elif defined(__FMA__)
#define VFMA(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#else
#define VFMA(a, b, c) ((a) * (b) + (c))
#endif

/* The first n (< W) values, zeros behind them; nothing is read beyond. */
ALWAYS vf v_load_n(const float *p, int64_t n)
{
    vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}

ALWAYS void v_store_n(float *p, vf v, int64_t n)
{
    memcpy(p, &v, (size_t)n * sizeof *p);
}

ALWAYS vf v_select(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

ALWAYS vf v_max(vf a, vf b)
{
    return v_select(a > b, a, b);
}

ALWAYS vf v_half(const uint8_t *p)
{
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    vh h;
    memcpy(&h, p, sizeof h);
    vi w = __builtin_convertvector(h, vi), mag = w & 0x7fff;
    vf f = (vf)(mag << 13) * 0x1p112f; /* normals and subnormals; infinity and NaN get their exponent back */
    return (vf)((vi)f | ((mag > 0x7bff) & 0x7f800000) | (w & 0x8000) << 16);
#endif
}

ALWAYS vf v_bf16(const uint8_t *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vi) << 16);
}

/* Folds by halves: lane i takes lane i + n for n = 8, 4, 2, 1. */
ALWAYS float v_fold(const vf s[NV])
{
#if W == 16
    __m256 e = _mm256_add_ps(_mm512_castps512_ps256((__m512)s[0]), _mm512_extractf32x8_ps((__m512)s[0], 1));
    __m128 f = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
#elif W == 8
    __m256 e = (__m256)(s[0] + s[1]);
    __m128 f = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
#else
    __m128 f = (__m128)((s[0] + s[2]) + (s[1] + s[3]));
#endif
    f = _mm_add_ps(f, _mm_movehl_ps(f, f));
    return _mm_cvtss_f32(_mm_add_ss(f, _mm_shuffle_ps(f, f, 1)));
}

/* e^x to 2 units in the last place. Below -87.3 it stays at 1.2e-38, above 88.7 at 3.3e38; NaN stays NaN. */
ALWAYS vf v_exp(vf x)
{
    x = v_select(x < v_set(-87.3f), v_set(-87.3f), x);
    x = v_select(x > v_set(88.7f), v_set(88.7f), x);
    vf t = VFMA(x, v_set(1.44269504f), v_set(12582912.0f)); /* 1.5·2^23: the fraction is rounded away */
    vf n = t - v_set(12582912.0f);
    vf r = VFMA(n, v_set(-0.693145752f),
                x); /* ln 2 in two parts: the first has few bits, so that n times it is exact */
    r = VFMA(n, v_set(-1.42860677e-6f), r);
    vf p = v_set(1.0f / 5040);
    p = VFMA(p, r, v_set(1.0f / 720));
    p = VFMA(p, r, v_set(1.0f / 120));
    p = VFMA(p, r, v_set(1.0f / 24));
    p = VFMA(p, r, v_set(1.0f / 6));
    p = VFMA(p, r, v_set(0.5f));
    p = VFMA(p, r, v_set(1.0f));
    p = VFMA(p, r, v_set(1.0f));
    return (vf)((vi)p + (((vi)t - 0x4b400000) << 23));
}

ALWAYS vf v_sigmoid(vf x)
{
    return v_set(1.0f) / (v_set(1.0f) + v_exp(-x));
}

ALWAYS vf v_silu(vf x)
{
    return x / (v_set(1.0f) + v_exp(-x));
}

/* tanh for the soft caps: odd, exact enough near 0 for a cap (relative 1e-6 of the cap). */
ALWAYS vf v_tanh(vf x)
{
    return v_set(1.0f) - v_set(2.0f) / (v_set(1.0f) + v_exp(x + x));
}

#endif
