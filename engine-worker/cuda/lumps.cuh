/* Lumps: 256 values of 16 rows of a weight, as a warp of few.cu copies them into shared memory, and how they become operands of the
 * tensor cores. Lane 4 g + i takes two pieces u of 32 values (blocks.cuh) of rows g and g + 8, cut so that it needs few scales.
 *
 * A code c is made a half by setting it into the mantissa of 1024: one instruction. d * c is then fma(1024 + c, d, -1024 d),
 * which rounds once. Minima are not added to it: the lump has one more operand, of minima, which is multiplied with the sums of the
 * activations that they belong to (few.cu).
 *
 *   BYTES   of a lump
 *   aim     where a lane's copies come from, of the first 16 rows of a weight; behind the last row there is memory (cu_weight_bytes)
 *   fill    has the warp copy a lump: `from` pieces lie before it, `rest` of the row from it on; `more` bytes are added to every address
 *   take    what a lane needs of it; the lump of the first row is block `block` of the weight, whose rows have `blocks`
 *   unit    first unit (halves.cuh) of group g of lane 0's piece u, from the lump's first on
 *   WHOLE   rows are whole lumps
 *   LANE    units from lane i's to lane i + 1's
 *   scales  d of group g of piece u of row r, times HALF_SCALE; and row r's minima, as the two words of an operand
 *   word    codes 0 and 2, then 1 and 3, of word k (of four) of that group, as 1024 + code * UNIT */
#ifndef LUMPS_CUH
#define LUMPS_CUH

#include "blocks.cuh"
#include "halves.cuh"
#include "mma.cuh"

static __device__ __forceinline__ uint32_t word_of(const uint4 &v, int k)
{
    return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w;
}
/* MASK picks two codes of v, 16 bits apart. One instruction, which the compiler makes two of. */
template <uint32_t MASK> static __device__ __forceinline__ uint32_t codes_of(uint32_t v)
{
#ifdef __CUDA_ARCH__
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "n"(MASK), "n"(0x64006400));
    return r;
#else
    return (v & MASK) | 0x64006400u;
#endif
}

/* An f16 in both halves, times HALF_SCALE. */
static __device__ __forceinline__ __half2 scale_of(uint32_t d)
{
    return __hmul2(as_half2(d * 0x10001u), __float2half2_rn(HALF_SCALE));
}

/* CHUNKS times 16 bytes of each of 16 rows of a plane: a lane's copies, neighbours to neighbours. Odd rows have their chunks exchanged
 * by the bits of TURN, so that lanes that read two rows at once meet no bank twice. */
template <int CHUNKS, int TURN> struct chunks {
    static constexpr int N = (16 * CHUNKS + 31) / 32,
                         PIECE = 2 * CHUNKS;       /* copies of a lane; bytes of a piece */
    static constexpr bool EVEN = 32 % CHUNKS == 0; /* each is as far from the one before as the next */
    static_assert(TURN == 0 || EVEN, "a lane's rows are all odd or all even");
    const uint8_t *at[EVEN ? 1 : N];
    uint32_t hop;

    static __device__ __forceinline__ bool is(int j)
    {
        return 16 * CHUNKS % 32 == 0 || j < N - 1 || threadIdx.x % 32 < 16 * CHUNKS % 32;
    }
    __device__ __forceinline__ void aim(const uint8_t *plane, int64_t pitch)
    {
#pragma unroll
        for (int j = 0; j < (EVEN ? 1 : N); j++) {
            int c = (int)(threadIdx.x % 32) + 32 * j;
            at[j] = plane + c / CHUNKS * pitch + 16 * (c % CHUNKS);
        }
        hop = (uint32_t)pitch * (32 / CHUNKS);
    }
    /* real: false: zeros instead. */
    __device__ __forceinline__ void fill(uint4 *to, uint32_t from, int64_t more, bool real = true) const
    {
        int lane = threadIdx.x % 32;
        to += TURN ? lane ^ (lane / CHUNKS % 2 ? TURN : 0) : lane;
#pragma unroll
        for (int j = 0; j < N; j++)
            if (is(j))
                copy16(to + 32 * j, at[EVEN ? 0 : j] + (uint64_t)from * PIECE + more + (EVEN ? j * hop : 0),
                       real);
    }
    /* Whether a lane's copies begin before the end of a row of which `rest` pieces are left. */
    static __device__ __forceinline__ bool within(int rest)
    {
        return (int)(threadIdx.x % 32 % CHUNKS) * 8 < rest * CHUNKS;
    }
};

/* Scales of two bytes, one for each piece: 16 bytes that may lie across others'. */
struct scales16 {
    chunks<1, 0> whole;
    const uint16_t *all;
    uint32_t pieces;

    __device__ __forceinline__ void aim(const struct cu_weight &w)
    {
        pieces = (uint32_t)(w.n_in / 32);
        all = (const uint16_t *)w.plane[2];
        whole.aim(w.plane[2], 2 * (int64_t)pieces);
    }
    __device__ __forceinline__ void fill(uint4 *to, uint32_t from, int rest, int64_t more) const
    {
        if (pieces % 8 == 0) {
            whole.fill(to, from, more);
            return;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int c = (int)(threadIdx.x % 32) + 32 * j, p = c % 8;
            const uint16_t *row = all + more / 2 + (uint64_t)from + (uint64_t)(c / 8) * pieces;
            ((uint16_t *)to)[c] = p < rest ? __ldg(row + p) : (uint16_t)0;
        }
    }
};

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
    static constexpr int BYTES = 16 * 144;
    static constexpr bool WHOLE = true;
    uint4 head[2], q[2][2];

    struct source {
        chunks<9, 0> all;
    };
    static __device__ __forceinline__ void aim(struct source *s, const struct cu_weight &w)
    {
        s->all.aim(w.plane[0], w.n_in / 256 * 144);
    }
    static __device__ __forceinline__ void fill(uint4 *to, const struct source &s, uint32_t from, int,
                                                int64_t more)
    {
        s.all.fill(to, from, more);
    }
    __device__ __forceinline__ void take(const uint4 *from, uint32_t, uint32_t)
    {
        int g = threadIdx.x % 32 / 4, i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint4 *b = from + (g + 8 * r) * 9;
            head[r] = b[0];
            q[r][0] = b[1 + 2 * i];
            q[r][1] = b[2 + 2 * i];
        }
    }
    static constexpr int LANE = 8;
    static __device__ __forceinline__ constexpr int unit(int u, int g)
    {
        return 2 * u + 4 * g;
    }
    __device__ __forceinline__ void scales(int r, __half2 d[2][2], uint32_t *least) const
    {
        __half2 both, m;
        k_pair(head[r], threadIdx.x % 4, &both, &m);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            d[u][0] = __low2half2(both);
            d[u][1] = __hmul2(__high2half2(both), __float2half2_rn(1 / 16.0f));
        }
        least[0] = least[1] = bits_of(m); /* once for each half of the sums */
    }
    /* Sums of sub-blocks 2 i and 2 i + 1, and what of them a half does not hold. */
    static __device__ __forceinline__ uint2 sums(const float s[2][2])
    {
        float even = s[0][0] + s[1][0], odd = s[0][1] + s[1][1];
        __half2 most = __floats2half2_rn(even, odd);
        float2 has = __half22float2(most);
        return make_uint2(bits_of(most), bits_of(__floats2half2_rn(even - has.x, odd - has.y)));
    }
    static constexpr bool LEAST = true;
    static __device__ __forceinline__ constexpr float zero(int)
    {
        return 1024;
    }
    __device__ __forceinline__ void word(int r, int u, int g, int k, uint32_t *even, uint32_t *odd) const
    {
        uint32_t v = word_of(q[r][u], k); /* codes of group 1 are 16 times as large */
        *even = g ? codes_of<0x00f000f0>(v) : codes_of<0x000f000f>(v);
        *odd = g ? codes_of<0x00f000f0>(v >> 8) : codes_of<0x000f000f>(v >> 8);
    }
};

template <> struct lump<GT_Q5_K> {
    static constexpr int BYTES = 16 * 176;
    static constexpr bool WHOLE = true;
    uint4 head[2], q[2][2], h[2][2];

    struct source {
        chunks<11, 0> all;
    };
    static __device__ __forceinline__ void aim(struct source *s, const struct cu_weight &w)
    {
        s->all.aim(w.plane[0], w.n_in / 256 * 176);
    }
    static __device__ __forceinline__ void fill(uint4 *to, const struct source &s, uint32_t from, int,
                                                int64_t more)
    {
        s.all.fill(to, from, more);
    }
    __device__ __forceinline__ void take(const uint4 *from, uint32_t, uint32_t)
    {
        int g = threadIdx.x % 32 / 4, i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint4 *b = from + (g + 8 * r) * 11;
            head[r] = b[0];
#pragma unroll
            for (int u = 0; u < 2; u++) {
                h[r][u] = b[1 + u];
                q[r][u] = b[3 + 2 * i + u];
            }
        }
    }
    static constexpr int LANE = lump<GT_Q4_K>::LANE;
    static __device__ __forceinline__ constexpr int unit(int u, int g)
    {
        return lump<GT_Q4_K>::unit(u, g);
    }
    __device__ __forceinline__ void scales(int r, __half2 d[2][2], uint32_t *least) const
    {
        __half2 both, m;
        k_pair(head[r], threadIdx.x % 4, &both, &m);
#pragma unroll
        for (int u = 0; u < 2; u++) {
            d[u][0] = __low2half2(both);
            d[u][1] = __high2half2(both);
        }
        least[0] = least[1] = bits_of(m);
    }
    static __device__ __forceinline__ uint2 sums(const float s[2][2])
    {
        return lump<GT_Q4_K>::sums(s);
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
        *even = codes_of<0x00ff00ff>(v);
        *odd = codes_of<0x00ff00ff>(v >> 8);
    }
};

template <> struct lump<GT_Q6_K> {
    uint4 q[2][2], h[2][2], s[2];
    uint32_t d[2];

    static constexpr int BYTES = 16 * (128 + 64 + 16 + 4);
    static constexpr bool WHOLE = true;
    struct source {
        chunks<8, 4> low;
        chunks<4, 0> high;
        chunks<1, 0> scales;
        const uint8_t *d;
        uint32_t before; /* blocks between the first row and the lane's */
    };
    static __device__ __forceinline__ void aim(struct source *s, const struct cu_weight &w)
    {
        s->low.aim(w.plane[0], w.n_in / 2);
        s->high.aim(w.plane[1], w.n_in / 4);
        s->scales.aim(w.plane[2], w.n_in / 16);
        s->d = w.plane[3];
        s->before = (threadIdx.x % 32) * (uint32_t)(w.n_in / 256);
    }
    static __device__ __forceinline__ void fill(uint4 *to, const struct source &s, uint32_t from, int,
                                                int64_t more)
    {
        s.low.fill(to, from, more);
        s.high.fill(to + 128, from, more);
        s.scales.fill(to + 192, from, more);
        if (threadIdx.x % 32 < 16) /* two bytes, and two of a neighbour */
            copy4((uint32_t *)(to + 208) + threadIdx.x % 32,
                  s.d + more + (uint64_t)((from / 8 + s.before) / 2) * 4);
    }
    __device__ __forceinline__ void take(const uint4 *from, uint32_t block, uint32_t blocks)
    {
        int g = threadIdx.x % 32 / 4, i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int at = g + 8 * r;
            uint32_t odd = (block + (uint32_t)at * blocks) & 1;
#pragma unroll
            for (int u = 0; u < 2; u++) {
                q[r][u] = from[at * 8 + ((4 * u + i) ^ (g & 1 ? 4 : 0))];
                h[r][u] = from[128 + at * 4 + 2 * u + i % 2];
            }
            s[r] = from[192 + at];
            d[r] = ((const uint32_t *)(from + 208))[at] >> (16 * odd) & 0xffff;
        }
    }
    static constexpr int LANE = 2;
    static __device__ __forceinline__ constexpr int unit(int u, int g)
    {
        return 16 * u + 8 * g;
    }
    __device__ __forceinline__ void scales(int r, __half2 by[2][2], uint32_t *least) const
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
            }
#pragma unroll
        for (int u = 0; u < 2; u++)
            least[u] = bits_of(__hmul2(__lows2half2(by[u][0], by[u][1]), __float2half2_rn(-32)));
    }
    /* Of the four groups that a lane has, in the order of least. */
    static __device__ __forceinline__ uint2 sums(const float s[2][2])
    {
        return make_uint2(bits_of(__floats2half2_rn(s[0][0], s[0][1])),
                          bits_of(__floats2half2_rn(s[1][0], s[1][1])));
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
        *even = codes_of<0x003f003f>(v);
        *odd = codes_of<0x003f003f>(v >> 8);
    }
};

template <> struct lump<GT_Q8_0> {
    uint4 q[2][2][2];
    uint32_t d[2][2];

    static constexpr int BYTES = 16 * (256 + 16);
    static constexpr bool WHOLE = false;
    struct source {
        chunks<16, 1> codes;
        struct scales16 scales;
    };
    static __device__ __forceinline__ void aim(struct source *s, const struct cu_weight &w)
    {
        s->codes.aim(w.plane[0], w.n_in);
        s->scales.aim(w);
    }
    static __device__ __forceinline__ void fill(uint4 *to, const struct source &s, uint32_t from, int rest,
                                                int64_t more)
    {
        s.codes.fill(to, from, more, s.codes.within(rest));
        s.scales.fill(to + 256, from, rest, more);
    }
    __device__ __forceinline__ void take(const uint4 *from, uint32_t, uint32_t)
    {
        int g = threadIdx.x % 32 / 4, i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int u = 0; u < 2; u++) {
                const uint4 *b = from + (g + 8 * r) * 16 + 2 * (4 * u + i);
                q[r][u][0] = b[g & 1];
                q[r][u][1] = b[1 - (g & 1)];
                d[r][u] = ((const uint16_t *)(from + 256 + g + 8 * r))[4 * u + i];
            }
    }
    static constexpr int LANE = 4;
    static __device__ __forceinline__ constexpr int unit(int u, int g)
    {
        return 16 * u + 2 * g;
    }
    __device__ __forceinline__ void scales(int r, __half2 by[2][2], uint32_t *) const
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

    static constexpr int BYTES = 16 * (128 + 16);
    static constexpr bool WHOLE = false;
    struct source {
        chunks<8, 4> codes;
        struct scales16 scales;
    };
    static __device__ __forceinline__ void aim(struct source *s, const struct cu_weight &w)
    {
        s->codes.aim(w.plane[0], w.n_in / 2);
        s->scales.aim(w);
    }
    static __device__ __forceinline__ void fill(uint4 *to, const struct source &s, uint32_t from, int rest,
                                                int64_t more)
    {
        s.codes.fill(to, from, more, s.codes.within(rest));
        s.scales.fill(to + 128, from, rest, more);
    }
    __device__ __forceinline__ void take(const uint4 *from, uint32_t, uint32_t)
    {
        int g = threadIdx.x % 32 / 4, i = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int u = 0; u < 2; u++) {
                q[r][u] = from[(g + 8 * r) * 8 + ((4 * u + i) ^ (g & 1 ? 4 : 0))];
                d[r][u] = ((const uint16_t *)(from + 128 + g + 8 * r))[4 * u + i];
            }
    }
    static constexpr int LANE = lump<GT_Q8_0>::LANE;
    static __device__ __forceinline__ constexpr int unit(int u, int g)
    {
        return lump<GT_Q8_0>::unit(u, g);
    }
    __device__ __forceinline__ void scales(int r, __half2 by[2][2], uint32_t *) const
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
        uint32_t v = word_of(q[r][u], k);
        *even = g ? codes_of<0x00f000f0>(v) : codes_of<0x000f000f>(v);
        *odd = g ? codes_of<0x00f000f0>(v >> 8) : codes_of<0x000f000f>(v >> 8);
    }
};

#endif
