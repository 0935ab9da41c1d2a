/* Weights as halves for tiles of shared memory: 64 values of a row are a step, two pieces (blocks.cuh), four groups of 16, eight units
 * (halves.cuh). Group g of the step's piece e lies at e + 2 g; the activations come in the order that this makes of them. */
#ifndef OPENED_CUH
#define OPENED_CUH

#include "coded.cuh"
#include "halves.cuh"

/* Which group of a row's 16 values lies at place q of step s. */
template <uint32_t TYPE> static __device__ __forceinline__ int group_at(int s, int q)
{
    if constexpr (TYPE == GT_Q6_K) /* its pieces' groups are 64 apart */
        return 8 * (s / 2) + 2 * (s % 2) + q % 2 + 4 * (q / 2);
    else if constexpr (TYPE == GT_Q4_K || TYPE == GT_Q5_K) /* 32 apart */
        return 4 * s + q;
    else
        return 4 * s + 2 * (q % 2) + q / 2;
}

/* 32 weights as halves, and how they come to be. */
template <uint32_t TYPE, bool QUANT> struct opened;

template <uint32_t TYPE> struct opened<TYPE, true> {
    struct piece o;

    /* Piece p of a row; zeros when it is not in the tile, or behind the row's end. */
    __device__ __forceinline__ void fetch(const struct cu_weight &w, int64_t row, int p, bool in)
    {
        int last = (int)w.n_in / 32 - 1;
        load_piece<TYPE>(w, row, p < last ? p : last, o);
        if (!in || p > last)
            o.d[0] = o.d[1] = o.m[0] = o.m[1] = 0;
    }
    __device__ __forceinline__ uint4 unit(int g, int half) const
    {
        constexpr bool is_signed = TYPE == GT_Q8_0 || TYPE == CU_CODED;
        constexpr uint32_t flip = is_signed ? 0x80808080u : 0;
        const __half2 zero = __float2half2_rn(is_signed ? 1152.0f : 1024.0f); /* 1024 + code is a half */
        __half2 d = __float2half2_rn(o.d[g] * HALF_SCALE), m = __float2half2_rn(o.m[g] * HALF_SCALE);
        uint32_t v[4];
#pragma unroll
        for (int w = 0; w < 2; w++) {
            uint32_t word = (uint32_t)o.c[4 * g + 2 * half + w] ^ flip;
            v[2 * w] =
                bits_of(__hfma2(__hsub2(as_half2(__byte_perm(word, 0x64646464u, 0x4240)), zero), d, m));
            v[2 * w + 1] =
                bits_of(__hfma2(__hsub2(as_half2(__byte_perm(word, 0x64646464u, 0x4341)), zero), d, m));
        }
        return make_uint4(v[0], v[1], v[2], v[3]);
    }
};

/* Eight values from `at` on, which is a multiple of eight; at is counted from the first row. */
template <uint32_t TYPE>
static __device__ __forceinline__ void load_eight(float *f, const struct cu_weight &w, int64_t at)
{
    uint32_t v[8];
    if constexpr (TYPE == GT_F32) {
        load_words(v, w.plane[0] + 4 * at);
        load_words(v + 4, w.plane[0] + 4 * at + 16);
    } else {
        load_words(v, w.plane[0] + 2 * at);
    }
#pragma unroll
    for (int k = 0; k < 8; k++)
        if constexpr (TYPE == GT_F32)
            f[k] = __uint_as_float(v[k]);
        else if constexpr (TYPE == GT_BF16)
            f[k] = __uint_as_float(k % 2 ? v[k / 2] & 0xffff0000u : v[k / 2] << 16);
        else
            f[k] = k % 2 ? __half22float2(as_half2(v[k / 2])).y : __half22float2(as_half2(v[k / 2])).x;
}

template <uint32_t TYPE> struct opened<TYPE, false> {
    uint4 v[4];

    __device__ __forceinline__ void fetch(const struct cu_weight &w, int64_t row, int p, bool in)
    {
        bool whole = w.n_in % 8 == 0;
#pragma unroll
        for (int u = 0; u < 4; u++) {
            float f[8] = {};
            int64_t at = 32 * (int64_t)p + 8 * u, from = row * w.n_in + at;
            if (in && whole && at < w.n_in)
                load_eight<TYPE>(f, w, from);
            else if (in)
#pragma unroll
                for (int k = 0; k < 8; k++)
                    f[k] = at + k < w.n_in ? load_float<TYPE>(w, from + k) : 0;
#pragma unroll
            for (int k = 0; k < 8; k++)
                f[k] *= HALF_SCALE;
            __half2 h[4] = {__floats2half2_rn(f[0], f[2]), __floats2half2_rn(f[1], f[3]),
                            __floats2half2_rn(f[4], f[6]), __floats2half2_rn(f[5], f[7])};
            v[u] = *(const uint4 *)h;
        }
    }
    __device__ __forceinline__ uint4 unit(int g, int half) const
    {
        return v[2 * g + half];
    }
};

#endif
