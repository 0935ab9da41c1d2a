#include "many.cuh"
#include "mma.cuh"
#include "opened.cuh"

/* Many rows: tensor cores. A block computes 128 rows of x times 128 rows of W, each of its warps 64 times WARP_R, 64 values of the
 * inner dimension at a time. Weights are opened into shared memory; while one step is multiplied the next one's activations
 * are on their way there, and its weights in registers. */

#define TILE    128 /* rows of x; rows of W */
#define UNITS   8   /* units of eight values in a step */
#define WARP_R  32  /* rows of W that a warp multiplies */
#define THREADS (64 * (TILE / WARP_R))
#define PIECES  (2 * TILE / THREADS) /* that a thread opens in a step */
#define STAGE   (TILE * UNITS)       /* units of one operand of a step */

/* Rows of eight units, which change places from row to row so that the units of a column lie in different banks. */
static __device__ __forceinline__ uint4 *unit_at(uint4 *tile, int row, int unit)
{
    return tile + row * UNITS + (unit ^ (row & 7));
}
/* A thread opens one of the two pieces of every THREADS / 2 th row of the tile. */
template <uint32_t TYPE, bool QUANT>
static __device__ __forceinline__ void fetch_w(struct opened<TYPE, QUANT> *o, const struct cu_weight &w,
                                               int64_t row0, int64_t end, int step)
{
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        int64_t row = row0 + threadIdx.x / 2 + THREADS / 2 * k;
        o[k].fetch(w, row < end ? row : end - 1, 2 * step + threadIdx.x % 2, row < end);
    }
}

template <uint32_t TYPE, bool QUANT>
static __device__ __forceinline__ void put_w(uint4 *tile, const struct opened<TYPE, QUANT> &o, int k)
{
#pragma unroll
    for (int g = 0; g < 2; g++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *unit_at(tile, threadIdx.x / 2 + THREADS / 2 * k, 2 * (threadIdx.x % 2 + 2 * g) + half) =
                o.unit(g, half);
}

template <uint32_t TYPE>
static __device__ __forceinline__ void fetch_x(uint4 *tile, const struct halves &x, const struct span &s,
                                               int step, int units)
{
    int t = threadIdx.x % TILE;
    bool in = s.t0 + t < s.t1;
#pragma unroll
    for (int k = 0; k < UNITS * TILE / THREADS; k++) {
        int u = (int)threadIdx.x / TILE + k * (THREADS / TILE), at = 2 * group_at<TYPE>(step, u / 2) + u % 2;
        bool here = in && at < units;
        copy16(unit_at(tile, t, u), x.x + (here ? ((int64_t)at * x.T + s.t0 + t) * 8 : 0), here);
    }
    copies_commit();
}

/* Sixteen values of the inner dimension: the warp's 64 rows of x from t on times WARP_R rows of W from r on. */
static __device__ __forceinline__ void multiply(float (*acc)[WARP_R / 8][4], uint4 *tx, uint4 *tw, int t,
                                                int r, int k)
{
    int lane = threadIdx.x % 32;
    uint32_t a[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        load_matrices<false>(a[i], unit_at(tx, t + 16 * i + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int j = 0; j < WARP_R / 16; j++) {
        uint32_t b[4];
        load_matrices<false>(b, unit_at(tw, r + 16 * j + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            mma_f16(acc[i][2 * j], a[i], b[0], b[1]);
            mma_f16(acc[i][2 * j + 1], a[i], b[2], b[3]);
        }
    }
}

static __device__ __forceinline__ void store(float *y, int64_t n_out, const float *acc, const struct span &s,
                                             int t, int64_t col)
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        int row = t + 8 * k;
        if (row >= s.t1 || col >= n_out)
            continue;
        float *to = y + row * n_out + col;
        if (n_out % 2 == 0) {
            *(float2 *)to = make_float2(acc[2 * k], acc[2 * k + 1]);
            continue;
        }
        to[0] = acc[2 * k];
        if (col + 1 < n_out)
            to[1] = acc[2 * k + 1];
    }
}

template <uint32_t TYPE, bool QUANT>
__global__ void __launch_bounds__(THREADS, 2)
    tiled(const __grid_constant__ struct many m, const struct halves x,
          const __grid_constant__ struct spans all)
{
    CU_SHARED(uint4, shared, 128);
    uint4 *tx = shared, *tw = shared + 2 * STAGE; /* two steps of each */
    cu_wait();
    const struct span s = span_of(all, blockIdx.x, TILE);
    if (s.t0 >= s.t1)
        return;
    int i = weight_of(m, blockIdx.y), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct cu_weight &w = m.w[i];
    int64_t col0 = (int64_t)((int)blockIdx.y - m.first[i]) * TILE, row0 = s.e * w.n_out + col0,
            end = (s.e + 1) * w.n_out;
    int steps = ((int)w.n_in + 63) / 64, units = ((int)w.n_in + 15) / 16 * 2, t = warp % 2 * 64,
        r = warp / 2 * WARP_R;
    struct opened<TYPE, QUANT> o[PIECES];
    float acc[4][WARP_R / 8][4] = {};
    fetch_w<TYPE, QUANT>(o, w, row0, end, 0);
    fetch_x<TYPE>(tx, x, s, 0, units);
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        put_w<TYPE, QUANT>(tw, o[k], k);
    if (steps > 1)
        fetch_w<TYPE, QUANT>(o, w, row0, end, 1);
    for (int step = 0; step < steps; step++) {
        uint4 *ax = tx + step % 2 * STAGE, *aw = tw + step % 2 * STAGE;
        uint4 *bx = tx + (step + 1) % 2 * STAGE, *bw = tw + (step + 1) % 2 * STAGE;
        bool more = step + 1 < steps;
        copies_wait<0>();
        __syncthreads(); /* this step is in place, and nobody reads the one before it any more */
        if (more)
            fetch_x<TYPE>(bx, x, s, step + 1, units);
        multiply(acc, ax, aw, t, r, 0);
        if (more)
            put_w<TYPE, QUANT>(bw, o[0], 0);
        multiply(acc, ax, aw, t, r, 1);
        if (PIECES > 1 && more)
            put_w<TYPE, QUANT>(bw, o[PIECES - 1], PIECES - 1);
        multiply(acc, ax, aw, t, r, 2);
        if (step + 2 < steps)
            fetch_w<TYPE, QUANT>(o, w, row0, end, step + 2);
        multiply(acc, ax, aw, t, r, 3);
    }
#pragma unroll
    for (int a = 0; a < 4; a++)
#pragma unroll
        for (int b = 0; b < WARP_R / 8; b++)
            store(m.y[i], w.n_out, acc[a][b], s, s.t0 + t + 16 * a + lane / 4,
                  col0 + r + 8 * b + lane % 4 * 2);
}

template <uint32_t TYPE, bool QUANT> static void launch(struct cu *c, struct many *m, const struct spans *s)
{
    const int shared = 4 * STAGE * (int)sizeof(uint4);
    auto kernel = tiled<TYPE, QUANT>;
    unsigned blocks = share_out(m, TILE);
    cu_launch(c, "tiled", kernel, dim3(most_tiles(*s, TILE), blocks), THREADS, shared, *m,
              cu_halves(c, s->T, m->w[0].n_in), *s);
}

void cu_tiled(struct cu *c, struct many *m, const struct spans *s)
{
    switch (m->w[0].type) {
#define QUANT_CASE(t)                                                                                        \
    case t:                                                                                                  \
        launch<t, true>(c, m, s);                                                                            \
        break;
#define FLOAT_CASE(t)                                                                                        \
    case t: launch<t, false>(c, m, s); break;
        CU_QUANT_TYPES(QUANT_CASE)
        CU_FLOAT_TYPES(FLOAT_CASE)
    default: launch<CU_CODED, true>(c, m, s);
    }
}
