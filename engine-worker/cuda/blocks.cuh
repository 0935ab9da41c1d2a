/* Weights on the device: what the planes of a type hold, and how a thread reads a piece.
 *
 * A piece is 32 weights of a row in two groups of 16, each group with a scale and a minimum: value = d * code + m. The codes
 * of a group belong to 16 activations in a row. Pieces are cut so that one thread needs few 16-byte loads.
 *
 *   type   plane 0                      1             2                        3
 *   Q8_0   codes [n_in]                               d f16 [n_in / 32]
 *   Q4_0   nibbles [n_in / 2]                         d f16 [n_in / 32]
 *   Q4_K   the file's blocks
 *   Q5_K   the file's blocks
 *   Q6_K   low nibbles [n_in / 2]       high [n/4]    scales i8 [n_in / 16]    d f16 [n_in / 256]
 *   F16, BF16, F32: the file's rows
 *
 * All other types that the CPU reads are coded (coded.cuh). */
#ifndef BLOCKS_CUH
#define BLOCKS_CUH

#include "cu_priv.cuh"

/* A weight's planes. Where it has n parts, n_out is one part's rows, and the planes hold those of all. */
struct cu_weight {
    uint32_t type;
    int64_t n_in, n_out;
    const uint8_t *plane[4];
};
struct cu_weight cu_planes(const struct be_weight *w, int n);

/* Stands for all types of coded.cuh where a kernel is chosen. */
#define CU_CODED ~0u

/* Bytes of 256 values of a row in plane k < 4; of no type that is known here: 0 in all. */
static __host__ __device__ __forceinline__ constexpr int plane_of(uint32_t type, int k)
{
#define CU_PLANES(a, b, c, d) (k == 0 ? a : k == 1 ? b : k == 2 ? c : d)
    switch (type) {
    case GT_F32: return CU_PLANES(1024, 0, 0, 0);
    case GT_F16:
    case GT_BF16: return CU_PLANES(512, 0, 0, 0);
    case GT_Q8_0:
    case GT_Q8_1: return CU_PLANES(256, 0, 16, 0);
    case GT_Q4_0:
    case GT_IQ4_NL: return CU_PLANES(128, 0, 16, 0);
    case GT_Q4_1: return CU_PLANES(128, 0, 32, 0);
    case GT_Q5_0: return CU_PLANES(128, 32, 16, 0);
    case GT_Q5_1: return CU_PLANES(128, 32, 32, 0);
    case GT_MXFP4: return CU_PLANES(128, 0, 8, 0);
    case GT_NVFP4: return CU_PLANES(128, 0, 16, 0);
    case GT_Q1_0: return CU_PLANES(32, 0, 4, 0);
    case GT_Q2_0: return CU_PLANES(64, 0, 8, 0);
    case GT_Q2_K: return CU_PLANES(80, 4, 0, 0);
    case GT_Q3_K:
    case GT_IQ3_S: return CU_PLANES(112, 0, 0, 0);
    case GT_Q4_K: return CU_PLANES(144, 0, 0, 0);
    case GT_Q5_K: return CU_PLANES(176, 0, 0, 0);
    case GT_Q6_K: return CU_PLANES(128, 64, 16, 2);
    case GT_Q8_K: return CU_PLANES(256, 4, 0, 0);
    case GT_IQ4_XS: return CU_PLANES(128, 8, 0, 0);
    case GT_IQ3_XXS: return CU_PLANES(96, 4, 0, 0);
    case GT_IQ2_XXS:
    case GT_TQ2_0: return CU_PLANES(64, 4, 0, 0);
    case GT_IQ2_XS: return CU_PLANES(64, 12, 0, 0);
    case GT_IQ2_S: return CU_PLANES(80, 4, 0, 0);
    case GT_IQ1_S: return CU_PLANES(48, 4, 0, 0);
    case GT_IQ1_M:
    case GT_TQ1_0: return CU_PLANES(48, 8, 0, 0);
    default: return 0;
    }
#undef CU_PLANES
}

struct piece {
    int c[8];         /* int8 codes, four to a word: group 0 then group 1 */
    float d[2], m[2]; /* of the groups */
    int at[2];        /* first value of each group within the row */
};

static __device__ __forceinline__ float f16_at(const uint8_t *p)
{
    return __half2float(*(const __half *)p);
}

static __device__ __forceinline__ void load_words(uint32_t *to, const uint8_t *p)
{
    uint4 v = __ldg((const uint4 *)p);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

/* Low nibbles are group 0, high ones group 1. */
static __device__ __forceinline__ void nibbles(const uint8_t *p, int *c)
{
    uint32_t v[4];
    load_words(v, p);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        c[i] = v[i] & 0x0f0f0f0f;
        c[4 + i] = v[i] >> 4 & 0x0f0f0f0f;
    }
}

static __device__ __forceinline__ void halves_of_32(int *at, int p)
{
    at[0] = 32 * p;
    at[1] = 32 * p + 16;
}

static __device__ __forceinline__ void piece_q8_0(const struct cu_weight &w, int64_t row, int p,
                                                  struct piece &o)
{
    const uint8_t *q = w.plane[0] + row * w.n_in + 32 * (int64_t)p;
    load_words((uint32_t *)o.c, q);
    load_words((uint32_t *)o.c + 4, q + 16);
    o.d[0] = o.d[1] = f16_at(w.plane[2] + 2 * (row * (w.n_in / 32) + p));
    o.m[0] = o.m[1] = 0;
    halves_of_32(o.at, p);
}

static __device__ __forceinline__ void piece_q4_0(const struct cu_weight &w, int64_t row, int p,
                                                  struct piece &o)
{
    nibbles(w.plane[0] + row * (w.n_in / 2) + 16 * (int64_t)p, o.c);
    o.d[0] = o.d[1] = f16_at(w.plane[2] + 2 * (row * (w.n_in / 32) + p));
    o.m[0] = o.m[1] = -8 * o.d[0];
    halves_of_32(o.at, p);
}

/* Scales and minima of sub-blocks 2g and 2g + 1 of a Q4_K or Q5_K block; s: its 12 bytes of them. */
static __device__ __forceinline__ void k_scales(const uint32_t *s, int g, float d, float dmin,
                                                struct piece &o)
{
    /* bytes 0..3 scales, 4..7 minima, 8..11 the low nibbles of the last four of both */
    int sh = 16 * (g & 1);
    uint32_t sc, mn;
    if (g < 2) {
        sc = s[0] >> sh & 0x3f3f;
        mn = s[1] >> sh & 0x3f3f;
    } else {
        uint32_t lo = s[2] >> sh, a = s[0] >> sh, b = s[1] >> sh;
        sc = (lo & 0x0f0f) | (a >> 2 & 0x3030);
        mn = (lo >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
    }
    o.d[0] = d * (float)(sc & 255);
    o.d[1] = d * (float)(sc >> 8 & 255);
    o.m[0] = -dmin * (float)(mn & 255);
    o.m[1] = -dmin * (float)(mn >> 8 & 255);
}

/* Scales of piece p, whose block begins with them. */
static __device__ __forceinline__ void k_head(const uint8_t *block, int p, struct piece &o)
{
    int j = p % 8, g = j / 2;
    uint4 head = __ldg((const uint4 *)block);
    float2 d = __half22float2(*(const __half2 *)&head.x);
    uint32_t s[3] = {head.y, head.z, head.w};
    k_scales(s, g, d.x, d.y, o);
    o.at[0] = 256 * (p / 8) + 64 * g + 16 * (j % 2);
    o.at[1] = o.at[0] + 32;
}

static __device__ __forceinline__ void piece_q4_k(const struct cu_weight &w, int64_t row, int p,
                                                  struct piece &o)
{
    const uint8_t *b = w.plane[0] + (row * (w.n_in / 256) + p / 8) * 144;
    k_head(b, p, o);
    nibbles(b + 16 + 16 * (p % 8), o.c);
}

static __device__ __forceinline__ void piece_q5_k(const struct cu_weight &w, int64_t row, int p,
                                                  struct piece &o)
{
    int j = p % 8, g = j / 2;
    const uint8_t *b = w.plane[0] + (row * (w.n_in / 256) + p / 8) * 176;
    uint32_t h[4];
    k_head(b, p, o);
    nibbles(b + 48 + 16 * j, o.c);
    load_words(h, b + 16 + 16 * (j % 2));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        o.c[i] |= (h[i] >> (2 * g) & 0x01010101) << 4;
        o.c[4 + i] |= (h[i] >> (2 * g + 1) & 0x01010101) << 4;
    }
}

static __device__ __forceinline__ void piece_q6_k(const struct cu_weight &w, int64_t row, int p,
                                                  struct piece &o)
{
    int64_t b = row * (w.n_in / 256) + p / 8;
    int j = p % 8, half = j / 4, i = j % 4, g = i / 2; /* i: 16 bytes of the half's low nibbles */
    uint32_t h[4];
    nibbles(w.plane[0] + b * 128 + 16 * j, o.c);
    load_words(h, w.plane[1] + b * 64 + 32 * half + 16 * (i % 2));
#pragma unroll
    for (int k = 0; k < 4; k++) {
        o.c[k] |= (h[k] >> (2 * g) & 0x03030303) << 4;
        o.c[4 + k] |= (h[k] >> (2 * g + 4) & 0x03030303) << 4;
    }
    int in = 128 * half + 32 * g + 16 * (i % 2);
    float d = f16_at(w.plane[3] + 2 * b);
    const int8_t *s = (const int8_t *)w.plane[2] + b * 16 + in / 16;
    o.d[0] = d * (float)s[0];
    o.d[1] = d * (float)s[4];
    o.m[0] = -32 * o.d[0];
    o.m[1] = -32 * o.d[1];
    o.at[0] = 256 * (p / 8) + in;
    o.at[1] = o.at[0] + 64;
}

template <uint32_t TYPE>
static __device__ __forceinline__ void load_piece(const struct cu_weight &w, int64_t row, int p,
                                                  struct piece &o)
{
    if constexpr (TYPE == GT_Q8_0)
        piece_q8_0(w, row, p, o);
    else if constexpr (TYPE == GT_Q4_0)
        piece_q4_0(w, row, p, o);
    else if constexpr (TYPE == GT_Q4_K)
        piece_q4_k(w, row, p, o);
    else if constexpr (TYPE == GT_Q5_K)
        piece_q5_k(w, row, p, o);
    else
        piece_q6_k(w, row, p, o);
}

/* Value i of a row of a float type. */
template <uint32_t TYPE>
static __device__ __forceinline__ float load_float(const struct cu_weight &w, int64_t at);
template <> __device__ __forceinline__ float load_float<GT_F32>(const struct cu_weight &w, int64_t at)
{
    return ((const float *)w.plane[0])[at];
}
template <> __device__ __forceinline__ float load_float<GT_F16>(const struct cu_weight &w, int64_t at)
{
    return __half2float(((const __half *)w.plane[0])[at]);
}
template <> __device__ __forceinline__ float load_float<GT_BF16>(const struct cu_weight &w, int64_t at)
{
    return __uint_as_float((uint32_t)((const uint16_t *)w.plane[0])[at] << 16);
}

/* X(type) for the types with kernels of their own, quantized and float, and for those of coded.cuh. */
#define CU_QUANT_TYPES(X) X(GT_Q8_0) X(GT_Q4_0) X(GT_Q4_K) X(GT_Q5_K) X(GT_Q6_K)
#define CU_FLOAT_TYPES(X) X(GT_F32) X(GT_F16) X(GT_BF16)
#define CU_CODED_TYPES(X)                                                                                    \
    X(GT_Q4_1)                                                                                               \
    X(GT_Q5_0)                                                                                               \
    X(GT_Q5_1)                                                                                               \
    X(GT_Q8_1)                                                                                               \
    X(GT_Q1_0)                                                                                               \
    X(GT_Q2_0)                                                                                               \
    X(GT_IQ4_NL)                                                                                             \
    X(GT_MXFP4)                                                                                              \
    X(GT_NVFP4)                                                                                              \
    X(GT_Q2_K)                                                                                               \
    X(GT_Q3_K)                                                                                               \
    X(GT_Q8_K)                                                                                               \
    X(GT_IQ4_XS)                                                                                             \
    X(GT_IQ3_S)                                                                                              \
    X(GT_IQ3_XXS)                                                                                            \
    X(GT_IQ2_XXS)                                                                                            \
    X(GT_IQ2_XS)                                                                                             \
    X(GT_IQ2_S)                                                                                              \
    X(GT_IQ1_S)                                                                                              \
    X(GT_IQ1_M)                                                                                              \
    X(GT_TQ1_0)                                                                                              \
    X(GT_TQ2_0)

#endif
