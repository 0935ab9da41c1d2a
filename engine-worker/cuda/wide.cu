#include "many.cuh"
#include "mma.cuh"
#include "opened.cuh"
#include "warpgroup.cuh"

/* Many rows on GPUs whose warpgroups multiply out of shared memory by themselves (sm_90a). A block computes N rows of x times
 * 128 M rows of W, 64 values of the inner dimension at a time: two warpgroups, each 64 M rows of W. While the tensor cores have a
 * step and the one before it, the threads open the next step's weights into shared memory; those of the step after that are on their
 * way to registers, activations to shared memory. */

#define THREADS 256
#define UNITS   8 /* units of eight values in a step */

/* Blocks of N rows of x, 128 M of W, with a ring of STAGES steps. */
template <int M, int N> struct shape {
    static constexpr int ROWS = 128 * M;
    static constexpr int STRIDE = ROWS + 2; /* units: two threads' units of a row lie in different banks */
    static constexpr int STEP = UNITS * (STRIDE + N);
    static constexpr int BLOCKS = M * N <= 128 ? 2 : 1; /* on a multiprocessor */
    static constexpr int STAGES = BLOCKS == 2 ? 3 : 4;
    static constexpr int AHEAD = STAGES - 2; /* steps that x is asked for ahead */
    static constexpr int BYTES = STAGES * STEP * (int)sizeof(uint4);
};

/* A thread opens one of the two pieces of every 128th row. */
template <uint32_t TYPE, bool QUANT, int M>
static __device__ __forceinline__ void fetch_w(struct opened<TYPE, QUANT> *o, const struct cu_weight &w,
                                               int64_t row0, int64_t end, int step)
{
#pragma unroll
    for (int k = 0; k < M; k++) {
        int64_t row = row0 + threadIdx.x / 2 + 128 * k;
        o[k].fetch(w, row < end ? row : end - 1, 2 * step + threadIdx.x % 2, row < end);
    }
}

template <uint32_t TYPE, bool QUANT, int M, int STRIDE>
static __device__ __forceinline__ void put_w(uint4 *tile, const struct opened<TYPE, QUANT> *o)
{
#pragma unroll
    for (int k = 0; k < M; k++)
#pragma unroll
        for (int g = 0; g < 2; g++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                tile[(2 * (threadIdx.x % 2 + 2 * g) + half) * STRIDE + threadIdx.x / 2 + 128 * k] =
                    o[k].unit(g, half);
}

/* from: the thread's row of x, which is there when `in`. What is not is zeros, and its address is not read. */
template <uint32_t TYPE, int N>
static __device__ __forceinline__ void fetch_x(uint4 *tile, const uint4 *from, uint32_t T, bool in, int step,
                                               int units)
{
    int first = (int)threadIdx.x / N;
    tile += threadIdx.x;
#pragma unroll
    for (int k = 0; k < UNITS * N / THREADS; k++) {
        int u = first + k * (THREADS / N), at = 2 * group_at<TYPE>(step, u / 2) + u % 2;
        copy16(tile + k * THREADS, from + (uint32_t)at * T, in && at < units);
    }
}

/* A lane's sums of 64 rows of W. */
template <int N>
static __device__ __forceinline__ void store(float *y, int64_t n_out, const float *acc, const struct span &s,
                                             int64_t row)
{
    int t = s.t0 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int64_t at = t + 8 * j + k % 2, col = row + k / 2 * 8;
            if (at < s.t1 && col < n_out)
                y[at * n_out + col] = acc[4 * j + k];
        }
}

template <uint32_t TYPE, bool QUANT, int M, int N>
__global__ void __launch_bounds__(THREADS, (shape<M, N>::BLOCKS))
    wide(const __grid_constant__ struct many m, const struct halves x,
         const __grid_constant__ struct spans all)
{
#ifdef WG_HERE
    typedef struct shape<M, N> S;
    CU_SHARED(uint4, shared, 128);
    cu_wait();
    const struct span s = span_of(all, blockIdx.x, N);
    if (s.t0 >= s.t1)
        return;
    int i = weight_of(m, blockIdx.y), group = threadIdx.x / 128;
    const struct cu_weight w = m.w[i];
    int64_t col0 = (int64_t)((int)blockIdx.y - m.first[i]) * S::ROWS, row0 = s.e * w.n_out + col0,
            end = (s.e + 1) * w.n_out;
    int steps = ((int)w.n_in + 63) / 64, units = ((int)w.n_in + 15) / 16 * 2;
    bool in = s.t0 + (int)threadIdx.x % N < s.t1;
    const uint4 *from = (const uint4 *)x.x + s.t0 + threadIdx.x % N;
    auto weights_of = [&](int step) { return shared + step % S::STAGES * S::STEP; };
    auto rows_of = [&](int step) { return weights_of(step) + UNITS * S::STRIDE; };
    struct opened<TYPE, QUANT> o[M];
    float acc[M][N / 2];
    fetch_w<TYPE, QUANT, M>(o, w, row0, end, 0);
    for (int step = 0; step < S::AHEAD; step++) {
        if (step < steps)
            fetch_x<TYPE, N>(rows_of(step), from, x.T, in, step, units);
        copies_commit();
    }
    put_w<TYPE, QUANT, M, S::STRIDE>(weights_of(0), o);
    if (steps > 1)
        fetch_w<TYPE, QUANT, M>(o, w, row0, end, 1);
    for (int step = 0; step < steps; step++) {
        copies_wait<S::AHEAD - 1>();
        wg_publish();
        __syncthreads(); /* this step is in place, and nobody multiplies the one before the last any more */
        const uint4 *left = weights_of(step) + 64 * M * group, *right = rows_of(step);
        wg_begin();
#pragma unroll
        for (int k = 0; k < UNITS; k += 2)
#pragma unroll
            for (int b = 0; b < M; b++)
                wg_multiply<N>(acc[b], step > 0 || k > 0, left + k * S::STRIDE + 64 * b, S::STRIDE,
                               right + k * N, N);
        wg_commit();
        if (step + S::AHEAD < steps)
            fetch_x<TYPE, N>(rows_of(step + S::AHEAD), from, x.T, in, step + S::AHEAD, units);
        copies_commit();
        if (step + 1 < steps)
            put_w<TYPE, QUANT, M, S::STRIDE>(weights_of(step + 1), o);
        if (step + 2 < steps)
            fetch_w<TYPE, QUANT, M>(o, w, row0, end, step + 2);
        wg_wait<1>();
    }
    wg_wait<0>();
#pragma unroll
    for (int b = 0; b < M; b++)
        store<N>(m.y[i], w.n_out, acc[b], s,
                 col0 + 64 * (M * group + b) + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4);
#endif
}

template <uint32_t TYPE, bool QUANT, int M, int N>
static void launch(struct cu *c, struct many *m, const struct spans *s)
{
    typedef struct shape<M, N> S;
    auto kernel = wide<TYPE, QUANT, M, N>;
    unsigned blocks = share_out(m, S::ROWS);
    cu_launch(c, "wide", kernel, dim3(most_tiles(*s, N), blocks), THREADS, (size_t)S::BYTES, *m,
              cu_halves(c, s->T, m->w[0].n_in), *s);
}

/* Multiply-adds, in blocks' worths of a step, that pass until the last of blocks of N by 128 M has ended. */
template <int M, int N> static int64_t takes(const struct cu *c, struct many *m, const struct spans *s)
{
    int64_t blocks = (int64_t)most_tiles(*s, N) * share_out(m, 128 * M), at_once = shape<M, N>::BLOCKS,
            slots = c->multiprocessors * at_once;
    return (blocks + slots - 1) / slots * at_once * M * N;
}

/* Larger blocks open each weight for more rows; smaller ones leave fewer multiprocessors idle. Rows of experts are cut for 128. */
template <uint32_t TYPE, bool QUANT> static void choose(struct cu *c, struct many *m, const struct spans *s)
{
    int64_t large = takes<1, 256>(c, m, s), middle = takes<1, 128>(c, m, s), small = takes<1, 64>(c, m, s);
    if (!s->first && 10 * large <= 11 * middle && 10 * large <= 13 * small)
        launch<TYPE, QUANT, 1, 256>(c, m, s);
    else if (s->first || 10 * middle <= 12 * small)
        launch<TYPE, QUANT, 1, 128>(c, m, s);
    else
        launch<TYPE, QUANT, 1, 64>(c, m, s);
}

bool cu_wide(struct cu *c, struct many *m, const struct spans *s)
{
#ifndef CU_SM90A
    return false;
#endif
    if (c->sm != 90 || c->shared_block < shape<1, 256>::BYTES)
        return false;
    switch (m->w[0].type) {
#define QUANT_CASE(t)                                                                                        \
    case t:                                                                                                  \
        choose<t, true>(c, m, s);                                                                            \
        break;
#define FLOAT_CASE(t)                                                                                        \
    case t: choose<t, false>(c, m, s); break;
        CU_QUANT_TYPES(QUANT_CASE)
        CU_FLOAT_TYPES(FLOAT_CASE)
    default: choose<CU_CODED, true>(c, m, s);
    }
    return true;
}
