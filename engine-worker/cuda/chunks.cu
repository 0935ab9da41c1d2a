#include "delta.cuh"
#include "mma.cuh"

/* The gated delta rule by chunks of 64 rows (Yang et al., arXiv:2412.06464, section 3.3; the representation of products of Householder
 * matrices is that of Bischof and Van Loan). With S the state before the chunk, g_t the product of its gates up to row t, and
 * D_ti = g_t / g_i, what row t adds to the state is k_t u_t', where
 *
 *   (I + A) U = diag(beta) (V - diag(g) K S),   A_ti = beta_t D_ti k_t.k_i for i < t
 *   O = diag(g) Q S + M U,                      M_ti = D_ti q_t.k_i for i <= t
 *   S' = g_64 S + sum_i D_64,i k_i u_i'
 *
 * All chunks find W = (I + A)^-1 diag(beta) and M at once; then each sequence goes from chunk to chunk. Products go through tensor cores
 * in three parts (mma.cuh), which loses nothing against float32. Ratios D are made of products of gates: none is above 1, and
 * strong gates end in 0. */

#define CHUNK  64
#define DK     128
#define COLS   32          /* of a state, for a block */
#define STRIDE (CHUNK + 4) /* of A in shared memory */
#define ACROSS (COLS + 2)  /* of a state: then the tensor cores' columns lie in different banks */
#define TILE   16          /* rows of a warp */

static __device__ __forceinline__ float4 four_at(const float *p)
{
    return *(const float4 *)p;
}

/* 16 rows of A, 16 STEPS columns, as a warp's tensor cores take them. The order inside a sum is free, so a lane takes neighbours. */
template <int STEPS> struct left {
    float v[STEPS][2][4];
};

/* a(row, k): four values of a row from k on. */
template <int STEPS, typename A> static __device__ __forceinline__ struct left<STEPS> load(A a) {
    struct left<STEPS> l;
    int lane = threadIdx.x % 32, g = lane / 4, i = lane % 4;
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        float4 x = a(g, 16 * s + 4 * i), y = a(g + 8, 16 * s + 4 * i);
        const float v[2][4] = {{x.x, y.x, x.y, y.y}, {x.z, y.z, x.w, y.w}};
#pragma unroll
        for (int j = 0; j < 8; j++)
            l.v[s][j / 4][j % 4] = v[j / 4][j % 4];
    }
    return l;
}

/* c += A B, in N tiles of 8 columns, of which the first `tiles` are wanted. b(k, col): two values of a column of B from k on. */
template <int N, int STEPS, typename B>
static __device__ __forceinline__ void multiply(float c[N][4], const struct left<STEPS> &l, int tiles, B b)
{
    int lane = threadIdx.x % 32, g = lane / 4, i = lane % 4;
#pragma unroll
    for (int s = 0; s < 2 * STEPS; s++) {
        uint32_t big[4], small[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            struct mma_split v = mma_split(l.v[s / 2][s % 2][j]);
            big[j] = v.big;
            small[j] = v.small;
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (n >= tiles)
                break;
            float2 right = b(16 * (s / 2) + 4 * i + s % 2 * 2, 8 * n + g);
            struct mma_split x = mma_split(right.x), y = mma_split(right.y);
            mma_tf32(c[n], small, x.big, y.big);
            mma_tf32(c[n], big, x.small, y.small);
            mma_tf32(c[n], big, x.big, y.big);
        }
    }
}

/* Calls f(row, col, value) for each result that the lane has; row of the warp's tile, value to be changed. */
template <int N, typename F> static __device__ __forceinline__ void each_result(float c[N][4], F f)
{
    int lane = threadIdx.x % 32, g = lane / 4, i = lane % 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            f(g + k / 2 * 8, 8 * n + 2 * i + k % 2, c[n][k]);
}

struct chunks {
    const float *u, *bt, *at;
    struct be_delta d;
    int64_t cd;
    const struct be_delta_run *runs;
    int n_runs;
    float *w, *m; /* [T][n_v_head][CHUNK] */
    float *out;
};

/* Row `row` of the chunk's W or M from k on; zeros behind its n rows. */
static __device__ __forceinline__ float4 row_of(const struct chunks &c, const float *from, int64_t row0,
                                                int n, int h, int row, int k)
{
    return row < n ? four_at(from + ((row0 + row) * c.d.n_v_head + h) * CHUNK + k) : make_float4(0, 0, 0, 0);
}

/* Which rows chunk `index` of all long runs has; false: there are not so many. */
static __device__ bool find_chunk(const struct chunks &c, int64_t index, int64_t *row0, int *n)
{
    for (int i = 0; i < c.n_runs; i++) {
        int64_t rows = c.runs[i].n_rows, has = rows > CU_DELTA_SERIAL ? (rows + CHUNK - 1) / CHUNK : 0;
        if (index < has) {
            *row0 = c.runs[i].row0 + CHUNK * index;
            *n = (int)min(rows - CHUNK * index, (int64_t)CHUNK);
            return true;
        }
        index -= has;
    }
    return false;
}

/* A block finds W and M of one chunk of one head. Warps 0 to 3 multiply keys by keys, 4 to 7 queries by keys. */
__global__ void __launch_bounds__(256) chunk_matrices(const __grid_constant__ struct chunks c)
{
    __shared__ float A[CHUNK][STRIDE], D[CHUNK][CHUNK], alpha[CHUNK], beta[CHUNK];
    int64_t row0;
    int n, h = blockIdx.y, t = threadIdx.x, warp = t / 32, first = warp % 4 * TILE;
    cu_wait();
    if (!find_chunk(c, blockIdx.x, &row0, &n))
        return;
    if (t < CHUNK) {
        alpha[t] = t < n ? delta_alpha(c.d, c.at, row0 + t, h) : 1;
        beta[t] = t < n ? delta_beta(c.d, c.bt, row0 + t, h) : 0;
    }
    __syncthreads();
    if (t < CHUNK) {
        float by = 1;
        D[t][t] = 1;
        for (int s = t + 1; s < CHUNK; s++)
            D[s][t] = by *= alpha[s];
    }
    bool queries = warp >= 4;
    const float *q = c.u + row0 * c.cd + delta_key_head(c.d, h) * DK, *k = q + c.d.n_k_head * DK;
    const float *left_rows = (queries ? q : k) + first * c.cd;
    float sums[CHUNK / 8][4] = {};
    auto rows = load<DK / 16>([&](int row, int at) {
        return first + row < n ? four_at(left_rows + row * c.cd + at) : make_float4(0, 0, 0, 0);
    });
    multiply<CHUNK / 8>(sums, rows, first / 8 + 2, [&](int at, int col) {
        return col < n ? *(const float2 *)(k + col * c.cd + at) : make_float2(0, 0);
    });
    __syncthreads();
    each_result<CHUNK / 8>(sums, [&](int r, int col, float &v) {
        int row = first + r;
        if (!queries)
            A[row][col] = col < row ? beta[row] * D[row][col] * v : 0;
        else if (row < n)
            c.m[((row0 + row) * c.d.n_v_head + h) * CHUNK + col] = col <= row ? D[row][col] * v : 0;
    });
    __syncthreads();
    /* Forward substitution: four threads have a column of the inverse, 16 rows each. */
    int col = t / 4, part = t % 4;
    float own[TILE] = {};
    for (int block = 0; block < CHUNK / TILE; block++)
#pragma unroll
        for (int r = 0; r < TILE; r++) {
            int row = TILE * block + r;
            float sum = 0;
#pragma unroll
            for (int i = 0; i < TILE; i++)
                sum += A[row][TILE * part + i] * own[i];
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (part == block)
                own[r] = (row == col ? 1 : 0) - sum;
        }
#pragma unroll
    for (int r = 0; r < TILE; r++)
        if (TILE * part + r < n)
            c.w[((row0 + TILE * part + r) * c.d.n_v_head + h) * CHUNK + col] = own[r] * beta[col];
}

/* Products of gates by one warp: upto[t] of rows 0 to t, after[t] of those behind t. A lane has two rows. */
static __device__ void gate_products(const struct chunks &c, int64_t row0, int n, int h, float *upto,
                                     float *after)
{
    int lane = threadIdx.x % 32, t = 2 * lane;
    float a = t < n ? delta_alpha(c.d, c.at, row0 + t, h) : 1,
          b = t + 1 < n ? delta_alpha(c.d, c.at, row0 + t + 1, h) : 1;
    float before = a * b, behind = a * b;
    for (int by = 1; by < 32; by *= 2) {
        float x = __shfl_sync(~0u, before, lane - by), y = __shfl_sync(~0u, behind, lane + by);
        before *= lane >= by ? x : 1;
        behind *= lane + by < 32 ? y : 1;
    }
    float x = __shfl_sync(~0u, before, lane - 1), y = __shfl_sync(~0u, behind, lane + 1);
    x = lane > 0 ? x : 1;
    y = lane < 31 ? y : 1;
    upto[t] = x * a;
    upto[t + 1] = x * a * b;
    after[t] = y * b;
    after[t + 1] = y;
}

/* A block takes COLS columns of one head's state through all chunks of a run; each of its four warps has 16 rows of the chunk, and 32 of
 * the state. */
__global__ void __launch_bounds__(128, 1) chunk_states(const __grid_constant__ struct chunks c)
{
    __shared__ float S[DK][ACROSS], R[CHUNK][ACROSS], upto[CHUNK], after[CHUNK];
    int h = blockIdx.y, warp = threadIdx.x / 32, first = warp * TILE, col0 = blockIdx.x * COLS;
    cu_wait();
    const struct be_delta_run run = c.runs[blockIdx.z];
    if (run.n_rows <= CU_DELTA_SERIAL)
        return;
    const struct be_delta &d = c.d;
    float *state = run.state + d.state_at + (d.conv_k - 1) * c.cd + (int64_t)h * DK * d.dv + col0;
    for (int i = threadIdx.x; i < DK * COLS; i += 128)
        S[i / COLS][i % COLS] = state[(int64_t)(i / COLS) * d.dv + i % COLS];
    auto of_state = [&](int k, int col) { return make_float2(S[k][col], S[k + 1][col]); };
    auto of_rows = [&](int k, int col) { return make_float2(R[k][col], R[k + 1][col]); };
    for (int64_t at = 0; at < run.n_rows; at += CHUNK) {
        int64_t row0 = run.row0 + at;
        int n = (int)min(run.n_rows - at, (int64_t)CHUNK);
        const float *q = c.u + row0 * c.cd + delta_key_head(d, h) * DK, *k = q + d.n_k_head * DK,
                    *value = c.u + row0 * c.cd + 2 * d.n_k_head * DK + (int64_t)h * d.dv + col0;
        /* Whatever is multiplied from the left is asked for as early as there are registers for it. */
        auto vectors = [&](const float *from) {
            return load<DK / 16>([&](int row, int i) {
                return first + row < n ? four_at(from + (first + row) * c.cd + i) : make_float4(0, 0, 0, 0);
            });
        };
        auto matrix = [&](const float *from) {
            return load<CHUNK / 16>(
                [&](int row, int i) { return row_of(c, from, row0, n, h, first + row, i); });
        };
        /* Keys, transposed: those values of all rows that belong to 16 rows of the state. */
        auto keys_of = [&](int tile) {
            return load<CHUNK / 16>([&](int row, int i) {
                auto key = [&](int t) { return t < n ? k[t * c.cd + 2 * first + TILE * tile + row] : 0; };
                return make_float4(key(i), key(i + 1), key(i + 2), key(i + 3));
            });
        };
        auto queries = vectors(q), keys = vectors(k);
        float x[COLS / 8][4] = {}, o[COLS / 8][4] = {}, add[COLS / 8][4] = {}, values[COLS / 8][4] = {};
        each_result<COLS / 8>(values, [&](int r, int col, float &v) {
            v = first + r < n ? value[(first + r) * c.cd + col] : 0;
        });
        if (warp == 0)
            gate_products(c, row0, n, h, upto, after);
        __syncthreads();
        multiply<COLS / 8>(x, keys, COLS / 8, of_state);
        auto w = matrix(c.w), m = matrix(c.m);
        each_result<COLS / 8>(x, [&](int r, int, float &seen) { seen *= upto[first + r]; });
#pragma unroll
        for (int i = 0; i < COLS / 2; i++)
            values[i / 4][i % 4] -= x[i / 4][i % 4];
        each_result<COLS / 8>(values, [&](int r, int col, float &v) { R[first + r][col] = v; });
        multiply<COLS / 8>(o, queries, COLS / 8, of_state);
        each_result<COLS / 8>(o, [&](int r, int, float &v) { v *= upto[first + r]; });
        decltype(w) across[2] = {keys_of(0), keys_of(1)};
        __syncthreads();
        multiply<COLS / 8>(add, w, COLS / 8, of_rows);
        __syncthreads();
        each_result<COLS / 8>(add, [&](int r, int col, float &v) { R[first + r][col] = v; });
        __syncthreads();
        multiply<COLS / 8>(o, m, COLS / 8, of_rows);
        each_result<COLS / 8>(o, [&](int r, int col, float &v) {
            if (first + r < n)
                c.out[((row0 + first + r) * d.n_v_head + h) * d.dv + col0 + col] = v;
        });
        auto faded = [&](int t, int col) {
            float2 v = of_rows(t, col);
            return make_float2(v.x * after[t], v.y * after[t + 1]);
        };
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
            float s[COLS / 8][4] = {};
            multiply<COLS / 8>(s, across[tile], COLS / 8, faded);
            each_result<COLS / 8>(s, [&](int r, int col, float &v) {
                float *at = &S[2 * first + TILE * tile + r][col];
                *at = upto[CHUNK - 1] * *at + v;
            });
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < DK * COLS; i += 128)
        state[(int64_t)(i / COLS) * d.dv + i % COLS] = S[i / COLS][i % COLS];
}

/* W and M lie where the activations of matmuls do otherwise: those have room for a row of the output, n_v_head * dv halves. */
bool cu_delta_chunks(struct cu *c, float *out, const float *u, const float *bt, const float *at,
                     const struct be_delta *d, const struct be_delta_run *runs, int n_runs, int64_t T)
{
    bool room = 2 * CHUNK * (int64_t)d->n_v_head <= c->max_in && T <= c->max_rows;
    if (c->sm < 80 || !c->tensor_cores || d->dk != DK || d->dv % COLS != 0 || T - n_runs < CU_DELTA_SERIAL ||
        !room)
        return false;
    const struct chunks all = {
        u, bt, at, *d, delta_channels(*d), runs, n_runs, (float *)c->xh, (float *)c->xg, out};
    unsigned heads = (unsigned)d->n_v_head;
    cu_launch(c, "chunk_matrices", chunk_matrices, dim3((unsigned)(T / CHUNK + n_runs), heads), 256, 0, all);
    cu_launch(c, "chunk_states", chunk_states, dim3((unsigned)(d->dv / COLS), heads, (unsigned)n_runs), 128,
              0, all);
    return true;
}
