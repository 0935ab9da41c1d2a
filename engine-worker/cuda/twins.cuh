/* Twins: weights of 4 to 6 bits that stay codes, times rows that became codes of 15 bits in two bytes. */
#ifndef TWINS_CUH
#define TWINS_CUH

#include "blocks.cuh"
#include "halves.cuh"

#define FINE 254
#define TWIN 64 /* values of a row that a lane takes at a time */

/* The row in shared memory. Chunk c of 16 codes of a twin lies so that lanes, which read the same chunk of neighbouring twins, meet no
 * bank twice. */
struct row_codes {
    int4 *q, *rest; /* [twins rounded up to 32][4]: value = scale (q + rest / FINE) */
    float2 *s;      /* of a chunk, or of the two chunks of a scale: the scale, and the sum of the values */
};

static __device__ __forceinline__ int place_of(int v, int c)
{
    return (v & ~31) * 4 + c * 32 + (v & 31);
}

/* What a lane needs of 64 values of a row; chunk(i): which 16 values of 256 are chunk i of 16, so that twin v has chunks 4 (v % 4) on. */
template <uint32_t TYPE> struct twin;

/* Twins of Q4_K and Q5_K are neighbours' values: chunks in their order are low 16, low 16, high 16, high 16. */
template <> struct twin<GT_Q4_K> {
    uint4 head, q[2];
    static __device__ __forceinline__ constexpr int chunk(int i)
    {
        return i;
    }
    __device__ __forceinline__ void load(const struct cu_weight &w, int64_t row, int v)
    {
        const uint4 *b = (const uint4 *)(w.plane[0] + (row * (w.n_in / 256) + v / 4) * 144);
        head = __ldg(b);
        q[0] = __ldg(b + 1 + 2 * (v % 4));
        q[1] = __ldg(b + 2 + 2 * (v % 4));
    }
    __device__ __forceinline__ void codes(int k, uint32_t *low, uint32_t *high, int) const
    {
        const uint32_t w[4] = {q[k].x, q[k].y, q[k].z, q[k].w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low[i] = w[i] & 0x0f0f0f0f;
            high[i] = w[i] >> 4 & 0x0f0f0f0f;
        }
    }
    /* Scales and minima of groups 0 (low) and 1. */
    __device__ __forceinline__ void scales(struct piece *o, int v) const
    {
        float2 d = __half22float2(*(const __half2 *)&head.x);
        const uint32_t s[3] = {head.y, head.z, head.w};
        k_scales(s, v % 4, d.x, d.y, *o);
    }
};

template <> struct twin<GT_Q5_K> {
    struct twin<GT_Q4_K> low4;
    uint4 h[2];
    static __device__ __forceinline__ constexpr int chunk(int i)
    {
        return i;
    }
    __device__ __forceinline__ void load(const struct cu_weight &w, int64_t row, int v)
    {
        const uint4 *b = (const uint4 *)(w.plane[0] + (row * (w.n_in / 256) + v / 4) * 176);
        low4.head = __ldg(b);
        h[0] = __ldg(b + 1);
        h[1] = __ldg(b + 2);
        low4.q[0] = __ldg(b + 3 + 2 * (v % 4));
        low4.q[1] = __ldg(b + 4 + 2 * (v % 4));
    }
    __device__ __forceinline__ void codes(int k, uint32_t *low, uint32_t *high, int v) const
    {
        const uint32_t w[4] = {h[k].x, h[k].y, h[k].z, h[k].w};
        int g = 2 * (v % 4);
        low4.codes(k, low, high, v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low[i] |= (w[i] >> g & 0x01010101) << 4;
            high[i] |= (w[i] >> (g + 1) & 0x01010101) << 4;
        }
    }
    __device__ __forceinline__ void scales(struct piece *o, int v) const
    {
        low4.scales(o, v);
    }
};

/* A twin: 32 neighbours in a half of 128 values, and the 32 that are 64 behind them. */
template <> struct twin<GT_Q6_K> {
    uint4 q[2], h[2];
    uint32_t s; /* scales: of the first 32, then of the others */
    uint16_t d;
    static __device__ __forceinline__ constexpr int chunk(int i)
    {
        return i / 8 * 8 + (i / 4 % 2) * 2 + i / 2 % 2 * 4 + i % 2;
    }
    __device__ __forceinline__ void load(const struct cu_weight &w, int64_t row, int v)
    {
        int64_t b = row * (w.n_in / 256) + v / 4;
        const uint4 *low = (const uint4 *)(w.plane[0] + b * 128) + 2 * (v % 4);
        const uint4 *high = (const uint4 *)(w.plane[1] + b * 64) + v % 4 / 2 * 2;
        const uint16_t *scale = (const uint16_t *)(w.plane[2] + b * 16 + v % 4 / 2 * 8 + v % 2 * 2);
        q[0] = __ldg(low);
        q[1] = __ldg(low + 1);
        h[0] = __ldg(high);
        h[1] = __ldg(high + 1);
        s = __ldg(scale) | (uint32_t)__ldg(scale + 2) << 16;
        d = __ldg((const uint16_t *)w.plane[3] + b);
    }
    __device__ __forceinline__ void codes(int k, uint32_t *low, uint32_t *high, int v) const
    {
        const uint32_t w[4] = {q[k].x, q[k].y, q[k].z, q[k].w}, u[4] = {h[k].x, h[k].y, h[k].z, h[k].w};
        int g = v % 2 * 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            low[i] = (w[i] & 0x0f0f0f0f) | (u[i] >> g & 0x03030303) << 4;
            high[i] = (w[i] >> 4 & 0x0f0f0f0f) | (u[i] >> (g + 4) & 0x03030303) << 4;
        }
    }
};

static __device__ __forceinline__ int dot16(const uint32_t *c, const int4 &x, int sum)
{
    sum = __dp4a((int)c[0], x.x, sum);
    sum = __dp4a((int)c[1], x.y, sum);
    sum = __dp4a((int)c[2], x.z, sum);
    return __dp4a((int)c[3], x.w, sum);
}

struct dots {
    int q, rest;
};
static __device__ __forceinline__ void add_dot(struct dots *d, const uint32_t *c, const struct row_codes &x,
                                               int at)
{
    d->q = dot16(c, x.q[at], d->q);
    d->rest = dot16(c, x.rest[at], d->rest);
}
static __device__ __forceinline__ float value_of(const struct dots &d)
{
    return (float)d.q + (float)d.rest * (1.0f / FINE);
}

template <uint32_t TYPE>
static __device__ __forceinline__ float dot_twin(const struct twin<TYPE> &o, const struct row_codes &x, int v)
{
    uint32_t low[4], high[4];
    const float4 *s = (const float4 *)x.s; /* of two chunks */
    if constexpr (TYPE == GT_Q6_K) {       /* a scale for each chunk */
        float all = __half2float(__ushort_as_half(o.d)), sum = 0;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            o.codes(k, low, high, v);
            float2 a = x.s[place_of(v, k)], b = x.s[place_of(v, 2 + k)];
            float da = (float)(int8_t)(o.s >> 8 * k), db = (float)(int8_t)(o.s >> (16 + 8 * k));
            struct dots l = {}, h = {};
            add_dot(&l, low, x, place_of(v, k));
            add_dot(&h, high, x, place_of(v, 2 + k));
            sum += da * (a.x * value_of(l) - 32 * a.y) + db * (b.x * value_of(h) - 32 * b.y);
        }
        return all * sum;
    } else { /* one for two of them */
        struct piece p;
        struct dots a = {}, b = {};
        o.scales(&p, v);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            o.codes(k, low, high, v);
            add_dot(&a, low, x, place_of(v, k));
            add_dot(&b, high, x, place_of(v, 2 + k));
        }
        float4 both = s[v]; /* scale and sum of 32, twice */
        return p.d[0] * both.x * value_of(a) + p.m[0] * both.y + p.d[1] * both.z * value_of(b) +
               p.m[1] * both.w;
    }
}

/* Two units as 16 values; fours lie as 0 2 1 3. */
static __device__ __forceinline__ void open_units(float *v, const uint4 *u)
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const uint32_t word[4] = {u[k].x, u[k].y, u[k].z, u[k].w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 f = __half22float2(as_half2(word[j]));
            v[8 * k + j / 2 * 4 + j % 2] = f.x;
            v[8 * k + j / 2 * 4 + j % 2 + 2] = f.y;
        }
    }
}

/* The larger, NaN if one of them is. */
static __device__ __forceinline__ float max_nan(float a, float b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
#else
    return isnan(a) || isnan(b) ? NAN : fmaxf(a, b);
#endif
}

/* Codes of four values, and of what they leave. Conversions to integers take eight times an addition, so that the sum with a large
 * float rounds: its low byte is the code. */
static __device__ __forceinline__ void encode4(uint32_t *word, uint32_t *fine, const float *v, float inv)
{
    constexpr float ROUND = 12582912; /* 1.5 * 2^23 */
    uint32_t code[4], rest[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float r = fmaf(v[j], inv, ROUND);
        code[j] = __float_as_uint(r);
        rest[j] = __float_as_uint(fmaf(fmaf(v[j], inv, ROUND - r), FINE, ROUND));
    }
    *word = __byte_perm(__byte_perm(code[0], code[1], 0x40), __byte_perm(code[2], code[3], 0x40), 0x5410);
    *fine = __byte_perm(__byte_perm(rest[0], rest[1], 0x40), __byte_perm(rest[2], rest[3], 0x40), 0x5410);
}

/* The row as codes; a thread has 16 values, its neighbour the 16 of the same scale. raw: values before the division of the norm. */
template <uint32_t TYPE>
static __device__ __forceinline__ void encode(const struct row_codes &to, const struct halves &x, int t,
                                              const struct raw_row &raw)
{
    int all = (int)x.n / 16;
    float unit = (raw.x ? 1.0f : HALF_SCALE) / 127;
    auto first = [&](int k) { /* chunk k of the twins is this one of the row */
                              return k < all ? k / 16 * 16 + twin<TYPE>::chunk(k % 16) : 0;
    };
    auto load = [&](uint4 *u, int k) {
        const uint4 *at = (const uint4 *)x.x + (int64_t)(2 * first(k)) * x.T + t;
        u[0] = at[0];
        u[1] = at[x.T];
    };
    uint4 next[2];
    if (!raw.x)
        load(next, (int)threadIdx.x);
    for (int k0 = 0; k0 < all; k0 += (int)blockDim.x) {
        int k = k0 + (int)threadIdx.x;
        if (k - (int)threadIdx.x % 32 >= all)
            break;
        bool real = k < all;
        float v[16], max = 0;
        if (raw.x) {
            load16(v, raw.x + 16 * first(k), raw.gain + 16 * first(k));
        } else {
            open_units(v, next);
            load(next, k + (int)blockDim.x);
        }
#pragma unroll
        for (int j = 0; j < 16; j++)
            max = max_nan(max, fabsf(v[j]));
        max = max_nan(max, __shfl_xor_sync(~0u, max, 1));
        float inv = max > 0 ? 127 / max : 0, scale = max < INFINITY ? max * unit : NAN;
        uint32_t word[4], fine[4];
        int sum = 0, rest = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            encode4(&word[j], &fine[j], v + 4 * j, inv);
            sum = __dp4a((int)word[j], 0x01010101, sum);
            rest = __dp4a((int)fine[j], 0x01010101, rest);
        }
        sum = sum * FINE + rest;
        int both = sum + __shfl_xor_sync(~0u, sum, 1);
        if (!real)
            continue;
        int v4 = k / 4, c = k % 4;
        to.q[place_of(v4, c)] = int4{(int)word[0], (int)word[1], (int)word[2], (int)word[3]};
        to.rest[place_of(v4, c)] = int4{(int)fine[0], (int)fine[1], (int)fine[2], (int)fine[3]};
        if constexpr (TYPE == GT_Q6_K)
            to.s[place_of(v4, c)] = make_float2(scale, scale / FINE * (float)sum);
        else if (c % 2 == 0)
            to.s[2 * v4 + c / 2] = make_float2(scale, scale / FINE * (float)both);
    }
    __syncthreads();
}

/* X(type) for those that have twins. */
#define CU_TWIN_TYPES(X) X(GT_Q4_K) X(GT_Q5_K) X(GT_Q6_K)

static inline __host__ __device__ int twins_of(int64_t n)
{
    return ((int)(n / TWIN) + 31) / 32 * 32;
}
/* Shared memory of a row's codes, and the codes in it. */
static inline __host__ __device__ int codes_bytes(int64_t n)
{
    return twins_of(n) * 4 * (int)(2 * sizeof(int4) + sizeof(float2));
}
static __device__ __forceinline__ struct row_codes codes_in(int4 *room, int64_t n)
{
    return {room, room + 4 * twins_of(n), (float2 *)(room + 8 * twins_of(n))};
}

#endif
