/* Halves: activations as f16, in the order in which the tensor cores take them. The matmuls of quantized weights read nothing else.
 *
 * A unit is eight neighbours of a row, 16 bytes, its two fours stored as 0 2 1 3: a word of four codes comes apart into bytes 0 and 2,
 * and 1 and 3 (blocks.cuh), and the order of an inner product is free as long as both sides have the same one. Units lie as
 * [n / 8][T]: those of eight or more tokens at the same place are neighbours.
 *
 * Values are divided by 16 and weights are multiplied by it, so that what models have in their activations (a million at most) and
 * scales of very small weights both lie well inside f16. What is beyond becomes infinite, and is seen in the result.
 *
 * Whoever writes rows can leave their halves, too; struct cu then knows (left) and the matmul need not make them. */
#ifndef HALVES_CUH
#define HALVES_CUH

#include "cu_priv.cuh"

#define HALF_SCALE 16.0f

static __device__ __forceinline__ __half2 as_half2(uint32_t v)
{
    return *(const __half2 *)&v;
}
static __device__ __forceinline__ uint32_t bits_of(__half2 v)
{
    return *(const uint32_t *)&v;
}

/* Sum of a unit. */
static __device__ __forceinline__ float sum_of(const uint4 &v)
{
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    float s = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float2 f = __half22float2(as_half2(w[k]));
        s += f.x + f.y;
    }
    return s;
}

struct halves {
    __half *x; /* [n rounded up to 16, / 8][T][8] */
    uint32_t T, n;
};

static inline struct halves cu_halves(const struct cu *c, int64_t T, int64_t n)
{
    return {c->xh, (uint32_t)T, (uint32_t)n};
}

/* Where value e of row t lies. */
static __device__ __forceinline__ int64_t half_at(const struct halves &h, uint32_t t, uint32_t e)
{
    uint32_t in = (e & 4) | (e & 1) << 1 | (e >> 1 & 1);
    return ((int64_t)(e / 8) * h.T + t) * 8 + in;
}

/* v: value `at` of all rows. */
static __device__ __forceinline__ void leave_half(const struct halves &h, int64_t at, float v)
{
    uint32_t t = (uint32_t)at / h.n, e = (uint32_t)at - t * h.n;
    h.x[half_at(h, t, e)] = __float2half_rn(v * (1 / HALF_SCALE));
}

/* What the launch for a single row reads instead of its halves: the row before its norm. */
struct raw_row {
    const float *x, *gain; /* [n]; x: NULL: there are halves */
    const float *squares;  /* of x, in n_squares parts */
    int n_squares;
    float eps;
};

/* What the norm multiplies the row with: a thread's share of the squares, to be asked for early, and what a block makes of them. */
static __device__ __forceinline__ float share_of_squares(const struct raw_row &r)
{
    float sum = 0;
    for (int i = threadIdx.x; i < r.n_squares; i += blockDim.x)
        sum += r.squares[i];
    return sum;
}
static __device__ __forceinline__ float norm_by(const struct raw_row &r, float share, uint32_t n)
{
    return rsqrtf(cu_block_sum(share) / (float)n + r.eps);
}

/* 16 neighbours of a row and of what its norm multiplies them with, 16-byte aligned, multiplied. */
static __device__ __forceinline__ void load16(float *v, const float *x, const float *gain)
{
#pragma unroll
    for (int k = 0; k < 4; k++) {
        float4 a = ((const float4 *)x)[k], g = __ldg((const float4 *)gain + k);
        v[4 * k] = a.x * g.x;
        v[4 * k + 1] = a.y * g.y;
        v[4 * k + 2] = a.z * g.z;
        v[4 * k + 3] = a.w * g.w;
    }
}

/* Whether rows of n values can leave their halves. */
static inline bool cu_can_leave(const struct cu *c, int64_t T, int64_t n)
{
    return c->tensor_cores && n % 16 == 0 && n <= c->max_in && T <= c->max_rows;
}

static inline void cu_left(struct cu *c, const float *x, int64_t T, int64_t n)
{
    c->left = x;
    c->left_T = T;
    c->left_n = n;
}

/* The activations as halves, unless who wrote them has left them; left: c->left, before the present operation. */
void cu_prepare(struct cu *c, const float *left, const float *x, int64_t T, int64_t n);

#endif
