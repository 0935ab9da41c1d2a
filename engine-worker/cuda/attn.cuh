/* What the attention kernels share: products on the f16 tensor cores with an online softmax between them, rows of keys and
 * values on their way into shared memory, and the results of shares of the keys.
 *
 * A warp holds 16 query vectors. In every fragment g = lane / 4 and c = lane % 4: of a product's 16 x 8 result [0], [1] are
 * row g, columns 2c and 2c + 1, and [2], [3] the same of row g + 8; of a left operand (16 x 16) [0] is row g, columns 2c and
 * 2c + 1, [1] the same of row g + 8, [2] and [3] those 8 columns on; of a right one (16 x 8) the first half is rows 2c and
 * 2c + 1 of column g, the second those 8 rows on. So two neighbouring results are, once packed, a left operand.
 *
 * Rows in shared memory are D + 8 halves apart, an odd number of 16 bytes: eight rows of a matrix lie in different banks. */
#ifndef ATTN_CUH
#define ATTN_CUH

#include "halves.cuh"
#include "mma.cuh"

#define LOG2E 1.4426950408889634f

static __device__ __forceinline__ float exp2_fast(float x)
{
#ifdef CU_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

static __device__ __forceinline__ uint32_t pack(float x, float y)
{
    __half2 h = __floats2half2_rn(x, y);
    return *(const uint32_t *)&h;
}

/* N rows of D halves by LANES threads; all but n from low on become zeros, since what lies there may be anything. */
template <int D, int N, int LANES>
static __device__ __forceinline__ void fetch_rows(__half *to, const uint16_t *from, int lane, int low, int n)
{
    constexpr int ROW = D / 8, ALL = N * ROW;
#pragma unroll
    for (int j = 0; j < (ALL + LANES - 1) / LANES; j++) {
        int i = j * LANES + lane;
        /* where rows begin at the same lanes each time, all addresses are one and a constant */
        int r = LANES % ROW == 0 ? lane / ROW + j * (LANES / ROW) : i / ROW;
        int at = LANES % ROW == 0 ? lane % ROW : i % ROW;
        if (ALL % LANES == 0 || i < ALL)
            copy16(to + r * (D + 8) + at * 8, from + i * 8, (unsigned)(r - low) < (unsigned)n);
    }
}

/* Vectors as left operands in shared memory, scaled: to[(D / 16) * 32] words of a lane each, of steps from, from + by, … Of this
 * lane g: its vector g, g8: g + 8; NULL: there is none. */
template <int D>
static __device__ __forceinline__ void store_queries(uint4 *to, const float *g, const float *g8, float scale,
                                                     int from, int by)
{
    int lane = threadIdx.x % 32, at = lane % 4 * 2;
    auto two = [&](const float *row, int k) {
        float2 v = row ? *(const float2 *)(row + k + at) : make_float2(0, 0);
        return pack(v.x * scale, v.y * scale);
    };
    for (int k = from; k < D / 16; k += by)
        to[k * 32 + lane] =
            make_uint4(two(g, k * 16), two(g8, k * 16), two(g, k * 16 + 8), two(g8, k * 16 + 8));
}

/* Products of M times 16 vectors with 8 * NT keys. */
template <int D, int M, int NT>
static __device__ __forceinline__ void scores(float (&s)[M][NT][4], const uint4 *q, const __half *keys)
{
    int lane = threadIdx.x % 32;
    const __half *from = keys + (lane / 16 * 8 + lane % 8) * (D + 8) + lane / 8 % 2 * 8;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < NT; j++)
            s[m][j][0] = s[m][j][1] = s[m][j][2] = s[m][j][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint4 a[M];
#pragma unroll
        for (int m = 0; m < M; m++)
            a[m] = q[(m * (D / 16) + k) * 32 + lane];
#pragma unroll
        for (int j = 0; j < NT; j += 2) {
            uint32_t b[4]; /* keys 0-7 of 16: channels 0-7, 8-15; keys 8-15: the same */
            load_matrices<false>(b, from + j * 8 * (D + 8) + k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                const uint32_t left[4] = {a[m].x, a[m].y, a[m].z, a[m].w};
                mma_f16(s[m][j], left, b[0], b[1]);
                mma_f16(s[m][j + 1], left, b[2], b[3]);
            }
        }
    }
}

/* Adds weights times the values of 8 * NT keys. */
template <int D, int M, int NT>
static __device__ __forceinline__ void add_values(float (&o)[M][D / 8][4], const float (&p)[M][NT][4],
                                                  const __half *values)
{
    int lane = threadIdx.x % 32;
    const __half *from = values + lane % 16 * (D + 8) + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < NT; k += 2) {
        uint32_t a[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = pack(p[m][k + i / 2][i % 2 * 2], p[m][k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            uint32_t b[4]; /* columns 0-7 of 16: keys 0-7, 8-15; columns 8-15: the same */
            load_matrices<true>(b, from + k * 8 * (D + 8) + j * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_f16(o[m][2 * j], a[m], b[0], b[1]);
                mma_f16(o[m][2 * j + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* cap * tanh(x / cap), to about 1e-7 of cap. */
template <int NT> static __device__ __forceinline__ void cap_scores(float (&s)[NT][4], float cap)
{
    float by = 2 * LOG2E / cap;
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            s[j][k] = cap - __fdividef(2 * cap, exp2_fast(s[j][k] * by) + 1);
}

/* Keys outside low[h]..high[h] get no weight from vector g + 8 h. */
template <int NT>
static __device__ __forceinline__ void mask_scores(float (&s)[NT][4], int32_t key0, const int32_t (&low)[2],
                                                   const int32_t (&high)[2])
{
    int32_t at = key0 + (int32_t)(threadIdx.x % 4) * 2;
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int32_t key = at + j * 8 + k % 2;
            if (key < low[k / 2] || key > high[k / 2])
                s[j][k] = -INFINITY;
        }
}

/* Scores to weights. Of vectors g and g + 8: the largest score, the lane's part of the sum of weights, and the output, which is
 * brought to the new scale. */
template <int NT, int NO>
static __device__ __forceinline__ void online_softmax(float (&s)[NT][4], float (&o)[NO][4], float (&max)[2],
                                                      float (&sum)[2])
{
    float old[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = max[h], add = 0;
#pragma unroll
        for (int j = 0; j < NT; j++)
            top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float from = top == -INFINITY ? 0 : top * LOG2E; /* nothing seen so far: all weights are 0 */
        float less = exp2_fast((max[h] - top) * LOG2E);
        old[h] = max[h] == top ? 1 : less;
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int k = 2 * h; k < 2 * h + 2; k++)
                add += s[j][k] = exp2_fast(s[j][k] * LOG2E - from);
        max[h] = top;
        sum[h] = sum[h] * old[h] + add;
    }
    if (!__any_sync(~0u, old[0] != 1 || old[1] != 1)) /* as nearly always, far into the keys */
        return;
#pragma unroll
    for (int j = 0; j < NO; j++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            o[j][k] *= old[k / 2];
}

/* Sum of what the four lanes of a vector hold. */
static __device__ __forceinline__ float vector_sum(float v)
{
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

/* What remains of a share when results with the largest score `max` are brought to `top`. */
static __device__ __forceinline__ float share_weight(float max, float top)
{
    float less = exp2_fast((max - top) * LOG2E);
    return max == -INFINITY ? 0 : max == top ? 1 : less;
}

/* Results of shares of the keys, for vector t * n_head + head and share i at (vector * n + i): the largest score and the sum of
 * weights; dv outputs, not yet divided, which a share without keys (sum 0) does not write. */
struct shares {
    float2 *state;
    float *out;
    int n;
};

/* Room for n shares of so many vectors; false: an error. */
bool cu_shares(struct cu *c, struct shares *s, int64_t vectors, int n, int dv);
/* Brings the shares of T rows together. */
void cu_merge(struct cu *c, float *out, const struct shares *s, const struct be_attn *a, int64_t T);

#endif
