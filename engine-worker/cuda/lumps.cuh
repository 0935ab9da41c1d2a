/* Lumps: what a lane of few.cu holds of 256 values of two rows of a weight, as it comes from memory, and how it becomes operands
 * of the tensor cores. Lane i of four has two pieces u of 32 values (blocks.cuh) of each row, cut so that it needs few scales.
 *
 * A code c is made a half by setting it into the mantissa of 1024: one instruction. d * c is then fma(1024 + c, d, -1024 d),
 * which rounds once. Minima are not added to it, they are multiplied by themselves with the sums of the activations: an
 * operand whose values are all m.
 *
 *   load    values from piece p0 on of the rows `row`
 *   at      first value of group g of piece u
 *   scales  d and m of group g of piece u of row r, times HALF_SCALE
 *   word    codes 0 and 2, then 1 and 3, of word k (of four) of that group, as 1024 + code * UNIT */
#ifndef LUMPS_CUH
#define LUMPS_CUH

#include "blocks.cuh"
#include "halves.cuh"

static __device__ __forceinline__ uint32_t word_of(const uint4 &v, int k)
{
    return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w;
}
/* mask picks two codes of v, 16 bits apart. */
static __device__ __forceinline__ uint32_t codes_of(uint32_t v, uint32_t mask)
{
    return (v & mask) | 0x64006400u;
}

/* An f16 in both halves, times HALF_SCALE. */
static __device__ __forceinline__ __half2 scale_of(uint32_t d)
{
    return __hmul2(as_half2(d * 0x10001u), __float2half2_rn(HALF_SCALE));
}

template <uint32_t TYPE> struct lump;

/* Scales and minima of Q4_K and Q5_K: of sub-blocks 2 i and 2 i + 1 of the block that begins with `head`, as halves. */
static __device__ __forceinline__ void k_pair(const uint4 &head, int i, __half2 *d, __half2 *m)
{
    int sh = 16 * (i & 1);
    uint32_t a = head.y >> sh, b = head.z >> sh, lo = head.w >> sh;
    uint32_t sc = i < 2 ? a & 0x3f3f : (lo & 0x0f0f) | (a >> 2 & 0x3030);
    uint32_t mn = i < 2 ? b & 0x3f3f : (lo >> 4 & 0x0f0f) | (b >> 2 & 0x3030);
    __half2 one = __float2half2_rn(1024), dm = __hmul2(as_half2(head.x), __float2half2_rn(HALF_SCALE));
    *d = __hmul2(__hsub2(as_half2(__byte_perm(sc, 0x64646464u, 0x4140)), one), __low2half2(dm));
    *m = __hmul2(__hsub2(one, as_half2(__byte_perm(mn, 0x64646464u, 0x4140))), __high2half2(dm));
}

template <> struct lump<GT_Q4_K> {
    uint4 head[2], q[2][2];

    __device__ __forceinline__ void load(const struct cu_weight &w, const int64_t *row, int p0)
    {
        int i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint8_t *b = w.plane[0] + (row[r] * (w.n_in / 256) + p0 / 8) * 144;
            head[r] = __ldg((const uint4 *)b);
            q[r][0] = __ldg((const uint4 *)(b + 16 + 32 * i));
            q[r][1] = __ldg((const uint4 *)(b + 32 + 32 * i));
        }
    }
    static __device__ __forceinline__ int at(int p0, int u, int g)
    {
        return 32 * p0 + 64 * (threadIdx.x % 4) + 16 * u + 32 * g;
    }
    __device__ __forceinline__ void scales(int r, __half2 d[2][2], __half2 m[2][2]) const
    {
        __half2 both, least;
        k_pair(head[r], threadIdx.x % 4, &both, &least);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            d[u][0] = __low2half2(both);
            d[u][1] = __hmul2(__high2half2(both), __float2half2_rn(1 / 16.0f));
            m[u][0] = __low2half2(least);
            m[u][1] = __high2half2(least);
        }
    }
    static constexpr bool LEAST = true;
    static __device__ __forceinline__ constexpr float zero(int)
    {
        return 1024;
    }
    __device__ __forceinline__ void word(int r, int u, int g, int k, uint32_t *even, uint32_t *odd) const
    {
        uint32_t v = word_of(q[r][u], k),
                 mask = g ? 0x00f000f0u : 0x000f000fu; /* those of group 1 are 16 times as large */
        *even = codes_of(v, mask);
        *odd = codes_of(v >> 8, mask);
    }
};

template <> struct lump<GT_Q5_K> {
    uint4 head[2], q[2][2], h[2][2];

    __device__ __forceinline__ void load(const struct cu_weight &w, const int64_t *row, int p0)
    {
        int i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint8_t *b = w.plane[0] + (row[r] * (w.n_in / 256) + p0 / 8) * 176;
            head[r] = __ldg((const uint4 *)b);
#pragma unroll
            for (int u = 0; u < 2; u++) {
                h[r][u] = __ldg((const uint4 *)(b + 16 + 16 * u));
                q[r][u] = __ldg((const uint4 *)(b + 48 + 32 * i + 16 * u));
            }
        }
    }
    static __device__ __forceinline__ int at(int p0, int u, int g)
    {
        return lump<GT_Q4_K>::at(p0, u, g);
    }
    __device__ __forceinline__ void scales(int r, __half2 d[2][2], __half2 m[2][2]) const
    {
        __half2 both, least;
        k_pair(head[r], threadIdx.x % 4, &both, &least);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            d[u][0] = __low2half2(both);
            d[u][1] = __high2half2(both);
            m[u][0] = __low2half2(least);
            m[u][1] = __high2half2(least);
        }
    }
    static constexpr bool LEAST = true;
    static __device__ __forceinline__ constexpr float zero(int)
    {
        return 1024;
    }
    __device__ __forceinline__ void word(int r, int u, int g, int k, uint32_t *even, uint32_t *odd) const
    {
        uint32_t high = word_of(h[r][u], k) >> (2 * (threadIdx.x % 4) + g) << 4;
        uint32_t v = (word_of(q[r][u], k) >> (4 * g) & 0x0f0f0f0fu) | (high & 0x10101010u);
        *even = codes_of(v, 0x00ff00ffu);
        *odd = codes_of(v >> 8, 0x00ff00ffu);
    }
};

template <> struct lump<GT_Q6_K> {
    uint4 q[2][2], h[2][2], s[2];
    uint32_t d[2];

    __device__ __forceinline__ void load(const struct cu_weight &w, const int64_t *row, int p0)
    {
        int i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int64_t b = row[r] * (w.n_in / 256) + p0 / 8;
#pragma unroll
            for (int u = 0; u < 2; u++) {
                q[r][u] = __ldg((const uint4 *)(w.plane[0] + b * 128 + 64 * u + 16 * i));
                h[r][u] = __ldg((const uint4 *)(w.plane[1] + b * 64 + 32 * u + 16 * (i % 2)));
            }
            s[r] = __ldg((const uint4 *)(w.plane[2] + b * 16));
            d[r] = __ldg((const uint16_t *)(w.plane[3] + 2 * b));
        }
    }
    static __device__ __forceinline__ int at(int p0, int u, int g)
    {
        return 32 * p0 + 128 * u + 16 * (threadIdx.x % 4) + 64 * g;
    }
    __device__ __forceinline__ void scales(int r, __half2 by[2][2], __half2 m[2][2]) const
    {
        uint32_t pick = 0x4040 | (threadIdx.x % 4) * 0x0101;
        __half2 all = scale_of(d[r]);
#pragma unroll
        for (int u = 0; u < 2; u++)
#pragma unroll
            for (int g = 0; g < 2; g++) { /* byte i of word 2 u + g, which is signed */
                uint32_t v = word_of(s[r], 2 * u + g) ^ 0x80808080u;
                __half2 c = __hsub2(as_half2(__byte_perm(v, 0x64646464u, pick)), __float2half2_rn(1152));
                by[u][g] = __hmul2(c, all);
                m[u][g] = __hmul2(by[u][g], __float2half2_rn(-32));
            }
    }
    static constexpr bool LEAST = true;
    static __device__ __forceinline__ constexpr float zero(int)
    {
        return 1024;
    }
    __device__ __forceinline__ void word(int r, int u, int g, int k, uint32_t *even, uint32_t *odd) const
    {
        int pair = threadIdx.x % 4 / 2 * 2; /* where the high bits of group 0 are */
        uint32_t low = word_of(q[r][u], k) >> (4 * g), high = word_of(h[r][u], k);
        high = g ? high >> pair : high << (4 - pair);
        uint32_t v = (low & 0x0f0f0f0fu) | (high & 0xf0f0f0f0u);
        *even = codes_of(v, 0x003f003fu);
        *odd = codes_of(v >> 8, 0x003f003fu);
    }
};

template <> struct lump<GT_Q8_0> {
    uint4 q[2][2][2];
    uint32_t d[2][2];

    __device__ __forceinline__ void load(const struct cu_weight &w, const int64_t *row, int p0)
    {
        int pieces = (int)w.n_in / 32;
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int u = 0; u < 2; u++) {
                int p = p0 + 4 * u + threadIdx.x % 4;
                int64_t b = row[r] * pieces + (p < pieces ? p : pieces - 1);
                q[r][u][0] = __ldg((const uint4 *)(w.plane[0] + b * 32));
                q[r][u][1] = __ldg((const uint4 *)(w.plane[0] + b * 32 + 16));
                d[r][u] = p < pieces ? __ldg((const uint16_t *)(w.plane[2] + 2 * b)) : 0;
            }
    }
    static __device__ __forceinline__ int at(int p0, int u, int g)
    {
        return 32 * (p0 + 4 * u + (int)(threadIdx.x % 4)) + 16 * g;
    }
    __device__ __forceinline__ void scales(int r, __half2 by[2][2], __half2 m[2][2]) const
    {
#pragma unroll
        for (int u = 0; u < 2; u++)
            by[u][0] = by[u][1] = scale_of(d[r][u]);
    }
    static constexpr bool LEAST = false;
    static __device__ __forceinline__ constexpr float zero(int)
    {
        return 1152;
    }
    __device__ __forceinline__ void word(int r, int u, int g, int k, uint32_t *even, uint32_t *odd) const
    {
        uint32_t v = word_of(q[r][u][g], k) ^ 0x80808080u;
        *even = __byte_perm(v, 0x64646464u, 0x4240);
        *odd = __byte_perm(v, 0x64646464u, 0x4341);
    }
};

template <> struct lump<GT_Q4_0> {
    uint4 q[2][2];
    uint32_t d[2][2];

    __device__ __forceinline__ void load(const struct cu_weight &w, const int64_t *row, int p0)
    {
        int pieces = (int)w.n_in / 32;
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int u = 0; u < 2; u++) {
                int p = p0 + 4 * u + threadIdx.x % 4;
                int64_t b = row[r] * pieces + (p < pieces ? p : pieces - 1);
                q[r][u] = __ldg((const uint4 *)(w.plane[0] + b * 16));
                d[r][u] = p < pieces ? __ldg((const uint16_t *)(w.plane[2] + 2 * b)) : 0;
            }
    }
    static __device__ __forceinline__ int at(int p0, int u, int g)
    {
        return lump<GT_Q8_0>::at(p0, u, g);
    }
    __device__ __forceinline__ void scales(int r, __half2 by[2][2], __half2 m[2][2]) const
    {
#pragma unroll
        for (int u = 0; u < 2; u++) {
            by[u][0] = scale_of(d[r][u]);
            by[u][1] = __hmul2(by[u][0], __float2half2_rn(1 / 16.0f));
        }
    }
    static constexpr bool LEAST = false;
    static __device__ __forceinline__ constexpr float zero(int g)
    {
        return g ? 1152 : 1032; /* 1024 + 8, which is 16 times as large in group 1 */
    }
    __device__ __forceinline__ void word(int r, int u, int g, int k, uint32_t *even, uint32_t *odd) const
    {
        uint32_t v = word_of(q[r][u], k), mask = g ? 0x00f000f0u : 0x000f000fu;
        *even = codes_of(v, mask);
        *odd = codes_of(v >> 8, mask);
    }
};

#endif
