#include "blocks.cuh"

#include <mma.h>

/* ---- activations ---- */

/* One warp for every 32 values: int8 codes, their scale, and scale times the sum of each 16. Rounding as on the CPU. */
__global__ void quant_rows(int8_t *q, float *d, float *s, const float *x, int64_t n32)
{
    int64_t b = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (b >= n32)
        return;
    float v = x[b * 32 + lane], max = cu_warp_max(fabsf(v));
    float scale = max / 127, inv = max > 0 ? 127 / max : 0;
    int code = __float2int_rn(v * inv), sum = code;
    for (int o = 8; o > 0; o >>= 1)
        sum += __shfl_xor_sync(~0u, sum, o);
    q[b * 32 + lane] = (int8_t)code;
    if (lane == 0)
        d[b] = scale;
    if (lane % 16 == 0)
        s[b * 2 + lane / 16] = scale * (float)sum;
}

/* Rows as f16, divided by a power of two that brings the largest value to at most 512: no product overflows. */
__global__ void half_rows(__half *h, float *norm, const float *x, int64_t n, int64_t stride)
{
    __shared__ float most[33];
    const float *row = x + (int64_t)blockIdx.x * n;
    float max = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        max = fmaxf(max, fabsf(row[i]));
    max = cu_warp_max(max);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = max;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < (int)blockDim.x / 32; i++)
            max = fmaxf(max, most[i]);
        most[32] = max > 512 ? exp2f(ceilf(log2f(max / 512))) : 1;
        norm[blockIdx.x] = most[32];
    }
    __syncthreads();
    float by = 1 / most[32];
    for (int64_t i = threadIdx.x; i < stride; i += blockDim.x)
        h[(int64_t)blockIdx.x * stride + i] = __float2half_rn(i < n ? row[i] * by : 0);
}

/* ---- few rows: a warp per row of W, lanes take pieces in turn ---- */

template <uint32_t TYPE, int T>
__global__ void __launch_bounds__(128)
    vec_quant(float *y, struct cu_weight w, const int8_t *xq, const float *xd, const float *xs)
{
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32, n = (int)w.n_in, pieces = n / 32;
    if (row >= w.n_out)
        return;
    float sum[T] = {};
#pragma unroll 2
    for (int p = lane; p < pieces; p += 32) {
        struct piece o;
        load_piece<TYPE>(w, row, p, o);
#pragma unroll
        for (int t = 0; t < T; t++) {
#pragma unroll
            for (int g = 0; g < 2; g++) {
                int at = o.at[g];
                int4 x = __ldg((const int4 *)(xq + t * (int64_t)n + at));
                int dot = __dp4a(o.c[4 * g], x.x, 0);
                dot = __dp4a(o.c[4 * g + 1], x.y, dot);
                dot = __dp4a(o.c[4 * g + 2], x.z, dot);
                dot = __dp4a(o.c[4 * g + 3], x.w, dot);
                sum[t] += o.d[g] * __ldg(xd + t * (n / 32) + at / 32) * (float)dot;
                if (TYPE != GT_Q8_0)
                    sum[t] += o.m[g] * __ldg(xs + t * (n / 16) + at / 16);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < T; t++) {
        float s = cu_warp_sum(sum[t]);
        if (lane == 0)
            y[t * w.n_out + row] = s;
    }
}

template <uint32_t TYPE, int T>
__global__ void __launch_bounds__(128) vec_float(float *y, struct cu_weight w, const float *x)
{
    int64_t row = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= w.n_out)
        return;
    float sum[T] = {};
    for (int64_t i = lane; i < w.n_in; i += 32) {
        float v = load_float<TYPE>(w, row * w.n_in + i);
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[t] += v * __ldg(x + t * w.n_in + i);
    }
#pragma unroll
    for (int t = 0; t < T; t++) {
        float s = cu_warp_sum(sum[t]);
        if (lane == 0)
            y[t * w.n_out + row] = s;
    }
}

/* ---- many rows: tensor cores. A block computes 64 rows of W times 64 tokens, 128 values of the inner dimension at a time. */

#define TILE_W 64
#define TILE_T 64
#define TILE_K 128
#define TILE_S (TILE_K + 8) /* row in shared memory; the 8 keep columns off each other's banks */

template <uint32_t TYPE>
static __device__ void fill_quant(__half *tile, const struct cu_weight &w, int64_t row0, int k0)
{
    for (int i = threadIdx.x; i < TILE_W * (TILE_K / 32); i += blockDim.x) {
        int r = i / (TILE_K / 32), p = k0 / 32 + i % (TILE_K / 32);
        __half *to = tile + r * TILE_S;
        if (row0 + r >= w.n_out || 32 * p >= w.n_in) {
            for (int k = 0; k < 32; k++)
                to[32 * (i % (TILE_K / 32)) + k] = __float2half(0);
            continue;
        }
        struct piece o;
        load_piece<TYPE>(w, row0 + r, p, o);
#pragma unroll
        for (int k = 0; k < 32; k++) {
            int code = (int)(int8_t)(o.c[k / 4] >> 8 * (k % 4)), g = k / 16;
            to[o.at[g] - k0 + k % 16] = __float2half_rn(o.d[g] * (float)code + o.m[g]);
        }
    }
}

template <uint32_t TYPE>
static __device__ void fill_float(__half *tile, const struct cu_weight &w, int64_t row0, int k0)
{
    for (int i = threadIdx.x; i < TILE_W * TILE_K; i += blockDim.x) {
        int r = i / TILE_K, k = i % TILE_K;
        bool in = row0 + r < w.n_out && k0 + k < w.n_in;
        tile[r * TILE_S + k] = __float2half_rn(in ? load_float<TYPE>(w, (row0 + r) * w.n_in + k0 + k) : 0);
    }
}

template <uint32_t TYPE, bool QUANT>
__global__ void __launch_bounds__(128)
    tile_matmul(float *y, struct cu_weight w, const __half *xh, const float *norm, int64_t stride, int T)
{
    using namespace nvcuda;
    extern __shared__ __align__(32) unsigned char shared[];
    __half *tw = (__half *)shared, *tx = tw + TILE_W * TILE_S;
    float *out = (float *)shared; /* once the products are done: [TILE_T][TILE_W] */
    int64_t row0 = (int64_t)blockIdx.x * TILE_W;
    int t0 = blockIdx.y * TILE_T, warp = threadIdx.x / 32, wr = warp % 2 * 32, wt = warp / 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            wmma::fill_fragment(acc[i][j], 0.0f);
    for (int k0 = 0; k0 < w.n_in; k0 += TILE_K) {
        if (QUANT)
            fill_quant<QUANT ? TYPE : (uint32_t)GT_Q8_0>(tw, w, row0, k0);
        else
            fill_float<QUANT ? (uint32_t)GT_F32 : TYPE>(tw, w, row0, k0);
        for (int i = threadIdx.x; i < TILE_T * (TILE_K / 8); i += blockDim.x) {
            int t = i / (TILE_K / 8), k = i % (TILE_K / 8) * 8;
            uint4 v = {0, 0, 0, 0};
            if (t0 + t < T)
                v = *(const uint4 *)(xh + (t0 + t) * stride + k0 + k);
            *(uint4 *)(tx + t * TILE_S + k) = v;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_K; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b[2];
            for (int i = 0; i < 2; i++) {
                wmma::load_matrix_sync(a[i], tx + (wt + 16 * i) * TILE_S + k, TILE_S);
                wmma::load_matrix_sync(b[i], tw + (wr + 16 * i) * TILE_S + k, TILE_S);
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 2; j++)
                    wmma::mma_sync(acc[i][j], a[i], b[j], acc[i][j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            wmma::store_matrix_sync(out + (wt + 16 * i) * TILE_W + wr + 16 * j, acc[i][j], TILE_W,
                                    wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_T * TILE_W; i += blockDim.x) {
        int t = i / TILE_W, r = i % TILE_W;
        if (t0 + t < T && row0 + r < w.n_out)
            y[(t0 + t) * w.n_out + row0 + r] = out[i] * norm[t0 + t];
    }
}

/* ---- which of them ---- */

template <uint32_t TYPE, int T>
static void vec_at(struct cu *c, float *y, const struct cu_weight *w, const float *x)
{
    unsigned blocks = (unsigned)((w->n_out + 3) / 4);
    if constexpr (TYPE == GT_F32 || TYPE == GT_F16 || TYPE == GT_BF16)
        vec_float<TYPE, T><<<blocks, 128, 0, c->stream>>>(y, *w, x);
    else
        vec_quant<TYPE, T><<<blocks, 128, 0, c->stream>>>(y, *w, c->xq, c->xd, c->xs);
}

template <uint32_t TYPE>
static void vec(struct cu *c, float *y, const struct cu_weight *w, const float *x, int64_t T)
{
    switch (T) {
    case 1: vec_at<TYPE, 1>(c, y, w, x); break;
    case 2: vec_at<TYPE, 2>(c, y, w, x); break;
    case 3: vec_at<TYPE, 3>(c, y, w, x); break;
    case 4: vec_at<TYPE, 4>(c, y, w, x); break;
    case 5: vec_at<TYPE, 5>(c, y, w, x); break;
    case 6: vec_at<TYPE, 6>(c, y, w, x); break;
    case 7: vec_at<TYPE, 7>(c, y, w, x); break;
    default: vec_at<TYPE, 8>(c, y, w, x); break;
    }
}

template <uint32_t TYPE, bool QUANT>
static void tiles(struct cu *c, float *y, const struct cu_weight *w, int64_t T)
{
    const int shared = (TILE_W + TILE_T) * TILE_S * (int)sizeof(__half);
    dim3 grid((unsigned)((w->n_out + TILE_W - 1) / TILE_W), (unsigned)((T + TILE_T - 1) / TILE_T));
    int64_t stride = (w->n_in + TILE_K - 1) / TILE_K * TILE_K;
    tile_matmul<TYPE, QUANT><<<grid, 128, shared, c->stream>>>(y, *w, c->xh, c->xn, stride, (int)T);
}

void cu_matmul(struct cu *c, float *y, const struct cu_weight *w, const float *x, int64_t T)
{
    if (c->failed != cudaSuccess || T == 0)
        return;
    bool quant = w->type != GT_F32 && w->type != GT_F16 && w->type != GT_BF16, few = T <= CU_VEC_ROWS;
    if (few && quant)
        quant_rows<<<(unsigned)((T * w->n_in / 32 + 7) / 8), 256, 0, c->stream>>>(c->xq, c->xd, c->xs, x,
                                                                                  T * w->n_in / 32);
    if (!few)
        half_rows<<<(unsigned)T, 256, 0, c->stream>>>(c->xh, c->xn, x, w->n_in,
                                                      (w->n_in + TILE_K - 1) / TILE_K * TILE_K);
    switch (w->type) {
#define QUANT_CASE(t)                                                                                        \
    case t:                                                                                                  \
        if (few)                                                                                             \
            vec<t>(c, y, w, x, T);                                                                           \
        else                                                                                                 \
            tiles<t, true>(c, y, w, T);                                                                      \
        break;
#define FLOAT_CASE(t)                                                                                        \
    case t:                                                                                                  \
        if (few)                                                                                             \
            vec<t>(c, y, w, x, T);                                                                           \
        else                                                                                                 \
            tiles<t, false>(c, y, w, T);                                                                     \
        break;
        CU_QUANT_TYPES(QUANT_CASE)
        CU_FLOAT_TYPES(FLOAT_CASE)
    }
    CU_LAUNCHED(c, "a matmul");
}

/* ---- rows of the embedding ---- */

template <uint32_t TYPE> __global__ void rows_quant(float *out, struct cu_weight w, const uint32_t *ids)
{
    for (int p = threadIdx.x; p < w.n_in / 32; p += blockDim.x) {
        struct piece o;
        load_piece<TYPE>(w, ids[blockIdx.x], p, o);
#pragma unroll
        for (int k = 0; k < 32; k++) {
            int code = (int)(int8_t)(o.c[k / 4] >> 8 * (k % 4)), g = k / 16;
            out[blockIdx.x * w.n_in + o.at[g] + k % 16] = o.d[g] * (float)code + o.m[g];
        }
    }
}

template <uint32_t TYPE> __global__ void rows_float(float *out, struct cu_weight w, const uint32_t *ids)
{
    for (int64_t i = threadIdx.x; i < w.n_in; i += blockDim.x)
        out[blockIdx.x * w.n_in + i] = load_float<TYPE>(w, ids[blockIdx.x] * w.n_in + i);
}

void cu_get_rows(struct cu *c, float *out, const struct cu_weight *w, const uint32_t *ids, int64_t T)
{
    if (c->failed != cudaSuccess || T == 0)
        return;
    switch (w->type) {
#define QUANT_ROWS(t)                                                                                        \
    case t:                                                                                                  \
        rows_quant<t><<<(unsigned)T, 128, 0, c->stream>>>(out, *w, ids);                                     \
        break;
#define FLOAT_ROWS(t)                                                                                        \
    case t: rows_float<t><<<(unsigned)T, 128, 0, c->stream>>>(out, *w, ids); break;
        CU_QUANT_TYPES(QUANT_ROWS)
        CU_FLOAT_TYPES(FLOAT_ROWS)
    }
    CU_LAUNCHED(c, "embedding rows");
}
