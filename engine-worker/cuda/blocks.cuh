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
 *   F16, BF16, F32: the file's rows */
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

struct piece {
    int c[8];         /* int8 codes, four to a word: group 0 then group 1 */
    float d[2], m[2]; /* of the groups */
    int at[2];        /* first value of each group within the row */
};

static __device__ __forceinline__ float f16_at(const uint8_t *p)
{
    return __half2float(*(const __half *)p);
}

static __device__ __forceinline__ void low_nibbles(const uint4 &v, int *c)
{
    c[0] = v.x & 0x0f0f0f0f;
    c[1] = v.y & 0x0f0f0f0f;
    c[2] = v.z & 0x0f0f0f0f;
    c[3] = v.w & 0x0f0f0f0f;
}

static __device__ __forceinline__ void high_nibbles(const uint4 &v, int *c)
{
    c[0] = v.x >> 4 & 0x0f0f0f0f;
    c[1] = v.y >> 4 & 0x0f0f0f0f;
    c[2] = v.z >> 4 & 0x0f0f0f0f;
    c[3] = v.w >> 4 & 0x0f0f0f0f;
}

template <uint32_t TYPE>
static __device__ __forceinline__ void load_piece(const struct cu_weight &w, int64_t row, int p,
                                                  struct piece &o);

template <>
__device__ __forceinline__ void load_piece<GT_Q8_0>(const struct cu_weight &w, int64_t row, int p,
                                                    struct piece &o)
{
    const uint4 *q = (const uint4 *)(w.plane[0] + row * w.n_in + 32 * (int64_t)p);
    uint4 a = __ldg(q), b = __ldg(q + 1);
    o.c[0] = a.x, o.c[1] = a.y, o.c[2] = a.z, o.c[3] = a.w;
    o.c[4] = b.x, o.c[5] = b.y, o.c[6] = b.z, o.c[7] = b.w;
    o.d[0] = o.d[1] = f16_at(w.plane[2] + 2 * (row * (w.n_in / 32) + p));
    o.m[0] = o.m[1] = 0;
    o.at[0] = 32 * p;
    o.at[1] = 32 * p + 16;
}

template <>
__device__ __forceinline__ void load_piece<GT_Q4_0>(const struct cu_weight &w, int64_t row, int p,
                                                    struct piece &o)
{
    uint4 q = __ldg((const uint4 *)(w.plane[0] + row * (w.n_in / 2) + 16 * (int64_t)p));
    low_nibbles(q, o.c);
    high_nibbles(q, o.c + 4);
    o.d[0] = o.d[1] = f16_at(w.plane[2] + 2 * (row * (w.n_in / 32) + p));
    o.m[0] = o.m[1] = -8 * o.d[0];
    o.at[0] = 32 * p;
    o.at[1] = 32 * p + 16;
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

template <>
__device__ __forceinline__ void load_piece<GT_Q4_K>(const struct cu_weight &w, int64_t row, int p,
                                                    struct piece &o)
{
    int j = p % 8, g = j / 2;
    const uint8_t *b = w.plane[0] + (row * (w.n_in / 256) + p / 8) * 144;
    uint4 head = __ldg((const uint4 *)b), q = __ldg((const uint4 *)(b + 16 + 16 * j));
    float2 d = __half22float2(*(const __half2 *)&head.x);
    uint32_t s[3] = {head.y, head.z, head.w};
    k_scales(s, g, d.x, d.y, o);
    low_nibbles(q, o.c);
    high_nibbles(q, o.c + 4);
    o.at[0] = 256 * (p / 8) + 64 * g + 16 * (j % 2);
    o.at[1] = o.at[0] + 32;
}

template <>
__device__ __forceinline__ void load_piece<GT_Q5_K>(const struct cu_weight &w, int64_t row, int p,
                                                    struct piece &o)
{
    int j = p % 8, g = j / 2;
    const uint8_t *b = w.plane[0] + (row * (w.n_in / 256) + p / 8) * 176;
    uint4 head = __ldg((const uint4 *)b), q = __ldg((const uint4 *)(b + 48 + 16 * j)),
          h = __ldg((const uint4 *)(b + 16 + 16 * (j % 2)));
    float2 d = __half22float2(*(const __half2 *)&head.x);
    uint32_t s[3] = {head.y, head.z, head.w}, hw[4] = {h.x, h.y, h.z, h.w};
    k_scales(s, g, d.x, d.y, o);
    low_nibbles(q, o.c);
    high_nibbles(q, o.c + 4);
    for (int i = 0; i < 4; i++) {
        o.c[i] |= (hw[i] >> (2 * g) & 0x01010101) << 4;
        o.c[i + 4] |= (hw[i] >> (2 * g + 1) & 0x01010101) << 4;
    }
    o.at[0] = 256 * (p / 8) + 64 * g + 16 * (j % 2);
    o.at[1] = o.at[0] + 32;
}

template <>
__device__ __forceinline__ void load_piece<GT_Q6_K>(const struct cu_weight &w, int64_t row, int p,
                                                    struct piece &o)
{
    int64_t b = row * (w.n_in / 256) + p / 8;
    int j = p % 8, h = j / 4, i = j % 4; /* half of the block; 16 bytes of its low nibbles */
    uint4 q = __ldg((const uint4 *)(w.plane[0] + b * 128 + 16 * j)),
          hv = __ldg((const uint4 *)(w.plane[1] + b * 64 + 32 * h + 16 * (i % 2)));
    uint32_t hw[4] = {hv.x, hv.y, hv.z, hv.w};
    low_nibbles(q, o.c);
    high_nibbles(q, o.c + 4);
    int g = i / 2;
    for (int k = 0; k < 4; k++) {
        o.c[k] |= (hw[k] >> (2 * g) & 0x03030303) << 4;
        o.c[k + 4] |= (hw[k] >> (2 * g + 4) & 0x03030303) << 4;
    }
    int in = 128 * h + 32 * g + 16 * (i % 2);
    float d = f16_at(w.plane[3] + 2 * b);
    const int8_t *s = (const int8_t *)w.plane[2] + b * 16 + in / 16;
    o.d[0] = d * (float)s[0];
    o.d[1] = d * (float)s[4];
    o.m[0] = -32 * o.d[0];
    o.m[1] = -32 * o.d[1];
    o.at[0] = 256 * (p / 8) + in;
    o.at[1] = o.at[0] + 64;
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

/* Calls F<TYPE>() for the type of w, for quantized and for float types. */
#define CU_QUANT_TYPES(X) X(GT_Q8_0) X(GT_Q4_0) X(GT_Q4_K) X(GT_Q5_K) X(GT_Q6_K)
#define CU_FLOAT_TYPES(X) X(GT_F32) X(GT_F16) X(GT_BF16)

#endif
