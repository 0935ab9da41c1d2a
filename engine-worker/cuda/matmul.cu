#include "blocks.cuh"
#include "codes.cuh"

#include <mma.h>

/* ---- activations ---- */

/* One warp for every 32 values. */
__global__ void quant_rows(struct codes codes, const float *x, int64_t n32)
{
    cu_wait();
    int64_t b = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, at = b * 32 + threadIdx.x % 32;
    if (b < n32)
        leave_codes(codes, at, x[at]);
}

/* Rows as f16, divided by a power of two that brings the largest value to at most 512: no product overflows. */
__global__ void half_rows(__half *h, float *norm, const float *x, int64_t n, int64_t stride)
{
    cu_wait();
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

#define TOGETHER 4 /* weights of one type that a launch may take: q, k and v; gate and up */

struct many {
    struct cu_weight w[TOGETHER];
    float *y[TOGETHER];
    int first[TOGETHER + 1]; /* block that begins each weight */
};

/* The weight of a block, and its row of it. */
static __device__ __forceinline__ int weight_of(const struct many &m, int64_t *row)
{
    int i = 0, block = blockIdx.x;
    while (i + 1 < TOGETHER && block >= m.first[i + 1])
        i++;
    *row = (int64_t)(block - m.first[i]) * (blockDim.x / 32) + threadIdx.x / 32;
    return i;
}

template <uint32_t TYPE, int T>
static __device__ __forceinline__ void dot_quant(float *sum, const struct cu_weight &w, int64_t row,
                                                 const int8_t *xq, const float *xd, const float *xs)
{
    int n = (int)w.n_in, pieces = n / 32;
#pragma unroll 2
    for (int p = threadIdx.x % 32; p < pieces; p += 32) {
        struct piece<4> o;
        load_piece<TYPE>(w, row, p, 0, o);
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
}

template <uint32_t TYPE, int T>
static __device__ __forceinline__ void dot_float(float *sum, const struct cu_weight &w, int64_t row,
                                                 const float *x)
{
    for (int64_t i = threadIdx.x % 32; i < w.n_in; i += 32) {
        float v = load_float<TYPE>(w, row * w.n_in + i);
#pragma unroll
        for (int t = 0; t < T; t++)
            sum[t] += v * __ldg(x + t * w.n_in + i);
    }
}

/* Activations in both forms. */
struct acts {
    const float *x;
    struct codes codes;
};

template <uint32_t TYPE, bool QUANT, int T>
static __device__ __forceinline__ void dots(float *y, int64_t n_out, const struct cu_weight &w, int64_t row,
                                            int64_t y_row, const struct acts &a)
{
    float sum[T] = {};
    if constexpr (QUANT)
        dot_quant<TYPE, T>(sum, w, row, a.codes.q, a.codes.d, a.codes.s);
    else
        dot_float<TYPE, T>(sum, w, row, a.x);
#pragma unroll
    for (int t = 0; t < T; t++) {
        float s = cu_warp_sum(sum[t]);
        if (threadIdx.x % 32 == 0)
            y[t * n_out + y_row] = s;
    }
}

/* Calls a row of weights into the cache: nobody writes it, so that it may be asked for before the kernel ahead has ended. */
template <uint32_t TYPE>
static __device__ __forceinline__ void prefetch_row(const struct cu_weight &w, int64_t row)
{
    constexpr int bytes = TYPE == GT_F32    ? 1024
                          : TYPE == GT_F16  ? 512
                          : TYPE == GT_BF16 ? 512
                          : TYPE == GT_Q8_0 ? 256
                          : TYPE == GT_Q4_K ? 144
                          : TYPE == GT_Q5_K ? 176
                                            : 128; /* of 256 values in the first plane */
    int64_t n = w.n_in * bytes / 256;
    const uint8_t *p = w.plane[0] + row * n;
    for (int64_t at = threadIdx.x % 32 * 128; at < n; at += 32 * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(p + at));
}

template <uint32_t TYPE, bool QUANT, int T>
__global__ void __launch_bounds__(128) gemv(struct many m, struct acts a)
{
    int64_t row;
    int i = weight_of(m, &row);
    const struct cu_weight &w = m.w[i];
    if (row < w.n_out)
        prefetch_row<TYPE>(w, row);
    cu_wait();
    if (row < w.n_out)
        dots<TYPE, QUANT, T>(m.y[i], w.n_out, w, row, row, a);
}

/* The same for experts, a block for each row of x: blockIdx.y in the order of the experts. */
template <uint32_t TYPE, bool QUANT>
__global__ void __launch_bounds__(128)
    gemv_experts(struct many m, struct acts a, const int64_t *first, int n_expert)
{
    cu_wait();
    int64_t row, pair = blockIdx.y;
    int i = weight_of(m, &row), lo = 0, hi = n_expert;
    const struct cu_weight &w = m.w[i];
    while (hi - lo > 1) { /* first[lo] <= pair < first[hi] */
        int mid = (lo + hi) / 2;
        if (first[mid] <= pair)
            lo = mid;
        else
            hi = mid;
    }
    if (row >= w.n_out)
        return;
    a.x += pair * w.n_in;
    a.codes.q += pair * w.n_in;
    a.codes.d += pair * (w.n_in / 32);
    a.codes.s += pair * (w.n_in / 16);
    dots<TYPE, QUANT, 1>(m.y[i] + pair * w.n_out, w.n_out, w, lo * w.n_out + row, row, a);
}

/* ---- some rows: int8 tensor cores. A block takes 16 rows of W, its warps take the pieces in turn; eight tokens a product. ---- */

#define MMA_WARPS 8
#define MMA_ROWS  16

/* 16 rows times 16 values times 8 tokens. Lane 4 g + i has values 4 i … 4 i + 3 of rows g (a0) and g + 8 (a1) and of token g (b);
 * it gets tokens 2 i and 2 i + 1 of row g, then of row g + 8. */
static __device__ __forceinline__ void mma_codes(int *c, int a0, int a1, int b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
#endif
}

/* Adds one group of one piece for the tokens of a tile. */
template <uint32_t TYPE>
static __device__ __forceinline__ void add_group(float *sum, const struct piece<1> *o, int g,
                                                 const struct codes &x, int64_t n, int tile, int T)
{
    int lane = threadIdx.x % 32, at = o[0].at[g], dot[4] = {};
    int mine = tile * 8 + lane / 4, t0 = tile * 8 + lane % 4 * 2, t1 = t0 + 1;
    mine = mine < T ? mine : T - 1; /* those behind the last are computed and thrown away */
    t0 = t0 < T ? t0 : T - 1;
    t1 = t1 < T ? t1 : T - 1;
    mma_codes(dot, o[0].c[g], o[1].c[g], *(const int *)(x.q + mine * n + at + lane % 4 * 4));
    float d0 = x.d[t0 * (n / 32) + at / 32], d1 = x.d[t1 * (n / 32) + at / 32];
    sum[0] += o[0].d[g] * d0 * (float)dot[0];
    sum[1] += o[0].d[g] * d1 * (float)dot[1];
    sum[2] += o[1].d[g] * d0 * (float)dot[2];
    sum[3] += o[1].d[g] * d1 * (float)dot[3];
    if (TYPE != GT_Q8_0) {
        float s0 = x.s[t0 * (n / 16) + at / 16], s1 = x.s[t1 * (n / 16) + at / 16];
        sum[0] += o[0].m[g] * s0;
        sum[1] += o[0].m[g] * s1;
        sum[2] += o[1].m[g] * s0;
        sum[3] += o[1].m[g] * s1;
    }
}

/* TILES: of eight tokens. */
template <uint32_t TYPE, int TILES>
__global__ void __launch_bounds__(32 * MMA_WARPS) skinny_gemm(struct many m, struct codes x, int T)
{
    __shared__ float part[MMA_WARPS][TILES * 8][MMA_ROWS + 1];
    int i = 0, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    while (i + 1 < TOGETHER && (int)blockIdx.x >= m.first[i + 1])
        i++;
    const struct cu_weight &w = m.w[i];
    int64_t row0 = (int64_t)((int)blockIdx.x - m.first[i]) * MMA_ROWS, n = w.n_in;
    int64_t r0 = row0 + lane / 4, r1 = r0 + 8;
    r0 = r0 < w.n_out ? r0 : w.n_out - 1;
    r1 = r1 < w.n_out ? r1 : w.n_out - 1;
    float sum[TILES][4] = {};
    cu_wait();
#pragma unroll 2
    for (int p = warp; p < n / 32; p += MMA_WARPS) {
        struct piece<1> o[2];
        load_piece<TYPE>(w, r0, p, lane % 4, o[0]);
        load_piece<TYPE>(w, r1, p, lane % 4, o[1]);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            add_group<TYPE>(sum[tile], o, 0, x, n, tile, T);
            add_group<TYPE>(sum[tile], o, 1, x, n, tile, T);
        }
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            part[warp][tile * 8 + lane % 4 * 2 + k % 2][lane / 4 + k / 2 * 8] = sum[tile][k];
    __syncthreads();
    for (int k = threadIdx.x; k < TILES * 8 * MMA_ROWS; k += blockDim.x) {
        int t = k / MMA_ROWS, r = k % MMA_ROWS;
        float s = 0;
        for (int j = 0; j < MMA_WARPS; j++)
            s += part[j][t][r];
        if (t < T && row0 + r < w.n_out)
            m.y[i][t * w.n_out + row0 + r] = s;
    }
}

/* ---- many rows: tensor cores. A block computes 64 rows of W times 128 tokens, 128 values of the inner dimension at a time.
 * While they are multiplied, the next ones are on their way in registers. ---- */

#define TILE_W       64
#define TILE_T       128
#define TILE_K       128
#define TILE_S       (TILE_K + 8) /* row in shared memory; the 8 keep columns off each other's banks */
#define TILE_THREADS 256
#define TILE_CHUNKS  (TILE_T * (TILE_K / 8) / TILE_THREADS) /* 16-byte loads of x that a thread does */

static_assert(TILE_W * (TILE_K / 32) == TILE_THREADS, "each thread opens one piece");

/* The piece of a thread; zeros where the weight ends. row0: of the planes; end: behind the last row of this weight. */
template <uint32_t TYPE>
static __device__ __forceinline__ void fetch_piece(struct piece<4> &o, const struct cu_weight &w,
                                                   int64_t row0, int64_t end, int k0)
{
    int64_t row = row0 + threadIdx.x / (TILE_K / 32);
    int p = k0 / 32 + threadIdx.x % (TILE_K / 32), last = (int)w.n_in / 32 - 1;
    load_piece<TYPE>(w, row < end ? row : end - 1, p < last ? p : last, 0, o);
    if (row >= end || p > last) {
        o.d[0] = o.d[1] = o.m[0] = o.m[1] = 0;
        if (p > last)
            halves_of_32(o.at, p); /* only types whose pieces lie like that end there */
    }
}

static __device__ __forceinline__ void put_piece(__half *tile, const struct piece<4> &o, int k0)
{
    __half *to = tile + threadIdx.x / (TILE_K / 32) * TILE_S - k0;
#pragma unroll
    for (int g = 0; g < 2; g++) {
        __half2 h[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int word = o.c[4 * g + i / 2] >> 16 * (i % 2);
            h[i] = __floats2half2_rn(o.d[g] * (float)(int8_t)word + o.m[g],
                                     o.d[g] * (float)(int8_t)(word >> 8) + o.m[g]);
        }
        *(uint4 *)(to + o.at[g]) = *(const uint4 *)h;
        *(uint4 *)(to + o.at[g] + 8) = *(const uint4 *)(h + 4);
    }
}

template <uint32_t TYPE>
static __device__ void fill_float(__half *tile, const struct cu_weight &w, int64_t row0, int64_t end, int k0)
{
    for (int i = threadIdx.x; i < TILE_W * TILE_K; i += blockDim.x) {
        int r = i / TILE_K, k = i % TILE_K;
        bool in = row0 + r < end && k0 + k < w.n_in;
        tile[r * TILE_S + k] = __float2half_rn(in ? load_float<TYPE>(w, (row0 + r) * w.n_in + k0 + k) : 0);
    }
}

static __device__ __forceinline__ void fetch_x(uint4 *v, const __half *x, int64_t stride, int rows)
{
#pragma unroll
    for (int i = 0; i < TILE_CHUNKS; i++) {
        int at = threadIdx.x + i * TILE_THREADS, t = at / (TILE_K / 8), k = at % (TILE_K / 8) * 8;
        v[i] = make_uint4(0, 0, 0, 0);
        if (t < rows)
            v[i] = *(const uint4 *)(x + t * stride + k);
    }
}

static __device__ __forceinline__ void put_x(__half *tile, const uint4 *v)
{
#pragma unroll
    for (int i = 0; i < TILE_CHUNKS; i++) {
        int at = threadIdx.x + i * TILE_THREADS, t = at / (TILE_K / 8), k = at % (TILE_K / 8) * 8;
        *(uint4 *)(tile + t * TILE_S + k) = v[i];
    }
}

/* Rows t0 .. t1 - 1 of x against expert e of the weight. */
struct span {
    int t0, t1, e;
};

/* Which rows a block takes. Experts' rows are cut into tiles of their own: tiles[e] is the first of expert e. */
static __device__ __forceinline__ struct span span_of(int T, const int64_t *first, const int32_t *tiles,
                                                      int n_expert)
{
    int tile = blockIdx.y, lo = 0, hi = n_expert;
    if (!first)
        return {tile * TILE_T, T, 0};
    if (tile >= tiles[n_expert])
        return {0, 0, 0};
    while (hi - lo > 1) { /* tiles[lo] <= tile < tiles[hi] */
        int mid = (lo + hi) / 2;
        if (tiles[mid] <= tile)
            lo = mid;
        else
            hi = mid;
    }
    return {(int)first[lo] + (tile - tiles[lo]) * TILE_T, (int)first[lo + 1], lo};
}

template <uint32_t TYPE, bool QUANT>
__global__ void __launch_bounds__(TILE_THREADS)
    tile_matmul(float *y, struct cu_weight w, const __half *xh, const float *norm, int64_t stride, int T,
                const int64_t *first, const int32_t *tiles, int n_expert)
{
    using namespace nvcuda;
    extern __shared__ __align__(32) unsigned char shared[];
    __half *tw = (__half *)shared, *tx = tw + TILE_W * TILE_S;
    float *out = (float *)shared; /* once the products are done: [TILE_T][TILE_W] */
    cu_wait();
    const struct span s = span_of(T, first, tiles, n_expert);
    if (s.t0 >= s.t1)
        return;
    int64_t col0 = (int64_t)blockIdx.x * TILE_W, row0 = s.e * w.n_out + col0, end = (s.e + 1) * w.n_out;
    int warp = threadIdx.x / 32, wr = warp % 2 * 32, wt = warp / 2 * 32;
    const __half *x = xh + s.t0 * stride;
    struct piece<4> o;
    uint4 v[TILE_CHUNKS];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2][2];
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            wmma::fill_fragment(acc[i][j], 0.0f);
    if constexpr (QUANT)
        fetch_piece<TYPE>(o, w, row0, end, 0);
    fetch_x(v, x, stride, s.t1 - s.t0);
    for (int k0 = 0; k0 < w.n_in; k0 += TILE_K) {
        if constexpr (QUANT)
            put_piece(tw, o, k0);
        else
            fill_float<TYPE>(tw, w, row0, end, k0);
        put_x(tx, v);
        __syncthreads();
        if (k0 + TILE_K < w.n_in) {
            if constexpr (QUANT)
                fetch_piece<TYPE>(o, w, row0, end, k0 + TILE_K);
            fetch_x(v, x + k0 + TILE_K, stride, s.t1 - s.t0);
        }
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
        int t = s.t0 + i / TILE_W, r = i % TILE_W;
        if (t < s.t1 && col0 + r < w.n_out)
            y[t * w.n_out + col0 + r] = out[i] * norm[t];
    }
}

/* ---- which of them ---- */

static bool is_float(uint32_t type)
{
    return type == GT_F32 || type == GT_F16 || type == GT_BF16;
}

/* Rows of x, or with `first` those of n_expert experts. */
struct call {
    const float *x;
    int64_t n_in, T;
    const int64_t *first;
    int n_expert;
    enum { GEMV, SKINNY, TILED } way;
};

/* Few tokens: every warp a row. Some: int8 tensor cores, where there are any. */
static void choose(const struct cu *c, struct call *k, int64_t T, bool quant)
{
    bool int8_mma = quant && !k->first && c->sm >= 80;
    if (T <= (int8_mma ? CU_LANE_ROWS : CU_VEC_ROWS))
        k->way = call::GEMV;
    else
        k->way = int8_mma && T <= CU_CODED_ROWS ? call::SKINNY : call::TILED;
}

template <uint32_t TYPE, bool QUANT>
static void launch_gemv(struct cu *c, const struct call *k, const struct many *m, unsigned blocks)
{
    struct acts a = {k->x, cu_codes(c)};
    if (k->first) {
        cu_launch(c, "gemv_experts", gemv_experts<TYPE, QUANT>, dim3(blocks, (unsigned)k->T), 128, 0, *m, a,
                  k->first, k->n_expert);
        return;
    }
    switch (k->T) {
    case 1: cu_launch(c, "gemv", gemv<TYPE, QUANT, 1>, dim3(blocks), 128, 0, *m, a); break;
    case 2: cu_launch(c, "gemv", gemv<TYPE, QUANT, 2>, dim3(blocks), 128, 0, *m, a); break;
    case 3: cu_launch(c, "gemv", gemv<TYPE, QUANT, 3>, dim3(blocks), 128, 0, *m, a); break;
    case 4: cu_launch(c, "gemv", gemv<TYPE, QUANT, 4>, dim3(blocks), 128, 0, *m, a); break;
    case 5: cu_launch(c, "gemv", gemv<TYPE, QUANT, 5>, dim3(blocks), 128, 0, *m, a); break;
    case 6: cu_launch(c, "gemv", gemv<TYPE, QUANT, 6>, dim3(blocks), 128, 0, *m, a); break;
    case 7: cu_launch(c, "gemv", gemv<TYPE, QUANT, 7>, dim3(blocks), 128, 0, *m, a); break;
    default: cu_launch(c, "gemv", gemv<TYPE, QUANT, 8>, dim3(blocks), 128, 0, *m, a); break;
    }
}

static int64_t half_stride(int64_t n_in)
{
    return (n_in + TILE_K - 1) / TILE_K * TILE_K;
}

template <uint32_t TYPE, bool QUANT>
static void launch_tiles(struct cu *c, const struct call *k, const struct cu_weight *w, float *y)
{
    const int shared = (TILE_W + TILE_T) * TILE_S * (int)sizeof(__half);
    int64_t tiles = (k->T + TILE_T - 1) / TILE_T + (k->first ? k->n_expert : 0); /* of experts: at most */
    dim3 grid(cu_blocks(w->n_out, TILE_W), (unsigned)tiles);
    auto kernel = tile_matmul<TYPE, QUANT>;
    cu_ok(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "shared memory");
    cu_launch(c, "tile_matmul", kernel, grid, TILE_THREADS, shared, y, *w, c->xh, c->xn, half_stride(k->n_in),
              (int)k->T, k->first, c->expert_tiles, k->n_expert);
}

template <uint32_t TYPE>
static void launch_skinny(struct cu *c, const struct call *k, const struct many *m, unsigned blocks)
{
    int T = (int)k->T;
    if (T <= 8)
        cu_launch(c, "skinny_gemm", skinny_gemm<TYPE, 1>, dim3(blocks), 32 * MMA_WARPS, 0, *m, cu_codes(c),
                  T);
    else if (T <= 16)
        cu_launch(c, "skinny_gemm", skinny_gemm<TYPE, 2>, dim3(blocks), 32 * MMA_WARPS, 0, *m, cu_codes(c),
                  T);
    else
        cu_launch(c, "skinny_gemm", skinny_gemm<TYPE, 4>, dim3(blocks), 32 * MMA_WARPS, 0, *m, cu_codes(c),
                  T);
}

/* First blocks of n weights, whose blocks take `rows` rows. Returns how many there are in all. */
static unsigned share_out(struct many *m, int n, int rows)
{
    for (int i = 0; i < TOGETHER; i++)
        m->first[i + 1] = m->first[i] + (i < n ? (int)cu_blocks(m->w[i].n_out, rows) : 0);
    return (unsigned)m->first[n];
}

/* n weights of one type. */
template <uint32_t TYPE, bool QUANT>
static void launch(struct cu *c, const struct call *k, struct many *m, int n)
{
    if (k->way == call::GEMV) {
        launch_gemv<TYPE, QUANT>(c, k, m, share_out(m, n, 4));
        return;
    }
    if constexpr (QUANT)
        if (k->way == call::SKINNY) {
            launch_skinny<TYPE>(c, k, m, share_out(m, n, MMA_ROWS));
            return;
        }
    for (int i = 0; i < n; i++)
        launch_tiles<TYPE, QUANT>(c, k, &m->w[i], m->y[i]);
}

static void launch_type(struct cu *c, const struct call *k, struct many *m, int n)
{
    switch (m->w[0].type) {
#define QUANT_CASE(t)                                                                                        \
    case t:                                                                                                  \
        launch<t, true>(c, k, m, n);                                                                         \
        break;
#define FLOAT_CASE(t)                                                                                        \
    case t: launch<t, false>(c, k, m, n); break;
        CU_QUANT_TYPES(QUANT_CASE)
        CU_FLOAT_TYPES(FLOAT_CASE)
    }
}

/* The activations in the form that the weights read. */
static void prepare(struct cu *c, const struct call *k, const float *coded, bool quant)
{
    if (k->way == call::TILED) {
        cu_launch(c, "half_rows", half_rows, dim3((unsigned)k->T), 256, 0, c->xh, c->xn, k->x, k->n_in,
                  half_stride(k->n_in));
        c->coded = coded; /* they are still those */
        return;
    }
    if (!quant)
        return;
    if (coded != k->x || c->coded_n != k->n_in || c->coded_T < k->T)
        cu_launch(c, "quant_rows", quant_rows, dim3(cu_blocks(k->T * k->n_in / 32, 8)), 256, 0, cu_codes(c),
                  k->x, k->T * k->n_in / 32);
    cu_coded(c, k->x, k->T, k->n_in);
}

/* One after another those that are read in the same way and are of the same type go together. */
static void matmul(struct cu *c, struct call *k, int64_t T, float *const *y, const struct be_weight *const *w,
                   int n, int parts)
{
    const float *coded = c->coded;
    if (!cu_ready(c, T))
        return;
    for (int i = 0, j; i < n; i = j) {
        bool quant = !is_float(w[i]->type);
        struct many m = {};
        for (j = i; j < n && j - i < TOGETHER && w[j]->type == w[i]->type; j++) {
            m.w[j - i] = cu_planes(w[j], parts);
            m.y[j - i] = y[j];
        }
        choose(c, k, T, quant);
        prepare(c, k, coded, quant);
        coded = c->coded;
        launch_type(c, k, &m, j - i);
    }
    for (int i = 0; i < n; i++)
        if (c->coded == y[i])
            c->coded = NULL;
}

void cu_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                 int64_t T)
{
    struct call k = {x, w[0]->n_in, T, NULL, 0, call::GEMV};
    matmul(cu_of(b), &k, T, y, w, n, 1);
}

/* The experts of a device's weight are one weight of n_expert parts, the first of the array. */
void cu_moe_matmul(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                   const int64_t *first, const struct be_route *r, int64_t T)
{
    struct call k = {x, w[0]->n_in, T * r->n_used, first, r->n_expert, call::GEMV};
    matmul(cu_of(b), &k, T, y, w, n, r->n_expert);
}

/* ---- rows of the embedding ---- */

template <uint32_t TYPE> __global__ void rows_quant(float *out, struct cu_weight w, const uint32_t *ids)
{
    cu_wait();
    for (int p = threadIdx.x; p < w.n_in / 32; p += blockDim.x) {
        struct piece<4> o;
        load_piece<TYPE>(w, ids[blockIdx.x], p, 0, o);
#pragma unroll
        for (int k = 0; k < 32; k++) {
            int code = (int)(int8_t)(o.c[k / 4] >> 8 * (k % 4)), g = k / 16;
            out[blockIdx.x * w.n_in + o.at[g] + k % 16] = o.d[g] * (float)code + o.m[g];
        }
    }
}

template <uint32_t TYPE> __global__ void rows_float(float *out, struct cu_weight w, const uint32_t *ids)
{
    cu_wait();
    for (int64_t i = threadIdx.x; i < w.n_in; i += blockDim.x)
        out[blockIdx.x * w.n_in + i] = load_float<TYPE>(w, ids[blockIdx.x] * w.n_in + i);
}

void cu_get_rows(struct be *b, float *out, const struct be_weight *w, const uint32_t *ids, int64_t T)
{
    struct cu *c = cu_of(b);
    struct cu_weight planes = cu_planes(w, 1);
    if (!cu_ready(c, T))
        return;
    switch (w->type) {
#define QUANT_ROWS(t)                                                                                        \
    case t:                                                                                                  \
        cu_launch(c, "rows_quant", rows_quant<t>, dim3((unsigned)T), 128, 0, out, planes, ids);              \
        break;
#define FLOAT_ROWS(t)                                                                                        \
    case t: cu_launch(c, "rows_float", rows_float<t>, dim3((unsigned)T), 128, 0, out, planes, ids); break;
        CU_QUANT_TYPES(QUANT_ROWS)
        CU_FLOAT_TYPES(FLOAT_ROWS)
    }
}
