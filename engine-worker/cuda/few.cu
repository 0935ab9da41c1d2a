#include "halves.cuh"
#include "many.cuh"
#include "mma.cuh"

/* Few rows: what a step costs is reading the weights, once. A block takes 16 rows of W, its warps take 256 values of them in turn;
 * lane 4 g + i holds piece i of every four of rows g and g + 8, in 16-byte loads, and opens it right into the operands of the
 * tensor cores. Which token is in which column changes nothing for the others. */

static_assert(CU_FEW_ROWS == 4 * CU_FEW_TILE, "launch_type has a kernel for each");

#define ROWS       16
#define MOST_WARPS 8
#define STEP       8 /* pieces of a row that a warp takes at a time */

/* One word of four codes of a group as weights: values 0 and 2, then 1 and 3. */
template <uint32_t TYPE>
static __device__ __forceinline__ void open_word(uint32_t *to, int word, __half2 d, __half2 m)
{
    constexpr uint32_t flip = TYPE == GT_Q8_0 ? 0x80808080u : 0;
    const __half2 zero = __float2half2_rn(TYPE == GT_Q8_0 ? 1152.0f : 1024.0f); /* 1024 + code is a half */
    uint32_t w = (uint32_t)word ^ flip, even = __byte_perm(w, 0x64646464u, 0x4240),
             odd = __byte_perm(w, 0x64646464u, 0x4341);
    __half2 a = __hfma2(__hsub2(*(const __half2 *)&even, zero), d, m);
    __half2 b = __hfma2(__hsub2(*(const __half2 *)&odd, zero), d, m);
    to[0] = *(const uint32_t *)&a;
    to[1] = *(const uint32_t *)&b;
}

/* 2 * 16 values of rows g and g + 8 times TILES * CU_FEW_TILE tokens. */
template <uint32_t TYPE, int TILES>
static __device__ __forceinline__ void multiply(float (*sum)[4], const struct piece *o,
                                                const struct halves &x, const struct span &s)
{
    int token = s.t0 + (threadIdx.x % 32) / 4;
#pragma unroll
    for (int g = 0; g < 2; g++) {
        const __half *unit = x.x + ((int64_t)(o[0].at[g] / 8) * x.T + token) * 8;
        __half2 d[2], m[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            d[r] = __float2half2_rn(o[r].d[g] * HALF_SCALE);
            m[r] = __float2half2_rn(o[r].m[g] * HALF_SCALE);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t a[2][4]; /* of its two words */
#pragma unroll
            for (int w = 0; w < 2; w++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    uint32_t v[2];
                    open_word<TYPE>(v, o[r].c[4 * g + 2 * half + w], d[r], m[r]);
                    a[w][r] = v[0];
                    a[w][2 + r] = v[1];
                }
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                uint4 v = make_uint4(0, 0, 0, 0);
                if (token + CU_FEW_TILE * tile < s.t1)
                    v = *(const uint4 *)(unit + ((int64_t)half * x.T + CU_FEW_TILE * tile) * 8);
                mma_f16(sum[tile], a[0], v.x, v.y);
                mma_f16(sum[tile], a[1], v.z, v.w);
            }
        }
    }
}

/* Pieces p0 + i and p0 + 4 + i of rows g and g + 8. */
template <uint32_t TYPE>
static __device__ __forceinline__ void load(struct piece (*o)[2], const struct cu_weight &w,
                                            const int64_t *row, int p0)
{
    int last = (int)w.n_in / 32 - 1;
#pragma unroll
    for (int u = 0; u < 2; u++) {
        int p = p0 + 4 * u + threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            load_piece<TYPE>(w, row[r], p < last ? p : last, o[u][r]);
            if (p > last)
                o[u][r].d[0] = o[u][r].d[1] = o[u][r].m[0] = o[u][r].m[1] = 0;
        }
    }
}

/* Sums of a warp over the 16 rows from row0 of the planes on. begin: o holds what the warp takes first. */
template <uint32_t TYPE, int TILES>
static __device__ __forceinline__ void inner(float (*sum)[4], struct piece (*o)[2], const struct cu_weight &w,
                                             const int64_t *row, const struct halves &x, const struct span &s)
{
    int pieces = (int)w.n_in / 32, p0 = threadIdx.x / 32 * STEP;
    while (p0 < pieces) {
        multiply<TYPE, TILES>(sum, o[0], x, s);
        multiply<TYPE, TILES>(sum, o[1], x, s);
        p0 += blockDim.x / 32 * STEP;
        if (p0 < pieces)
            load<TYPE>(o, w, row, p0);
    }
}

static __device__ __forceinline__ void rows_of(int64_t *row, const struct cu_weight &w, int64_t row0, int e)
{
    int64_t g = threadIdx.x % 32 / 4, last = w.n_out - 1;
#pragma unroll
    for (int r = 0; r < 2; r++)
        row[r] = e * w.n_out + (row0 + g + 8 * r < last ? row0 + g + 8 * r : last);
}

template <int TILES> static __device__ __forceinline__ void put(float (*part)[ROWS + 1], float (*sum)[4])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            part[tile * CU_FEW_TILE + lane % 4 * 2 + k % 2][lane / 4 + k / 2 * 8] = sum[tile][k];
}

/* Sum over the warps, in their order. */
template <int TILES>
static __device__ __forceinline__ float total(const float (*part)[TILES * CU_FEW_TILE][ROWS + 1], int t,
                                              int r)
{
    float s = 0;
    for (int j = 0; j < (int)blockDim.x / 32; j++)
        s += part[j][t][r];
    return s;
}

template <uint32_t TYPE, int TILES>
__global__ void __launch_bounds__(32 * MOST_WARPS, TILES == 1 ? 3 : 1)
    few(const __grid_constant__ struct many m, const struct halves x,
        const __grid_constant__ struct spans all)
{
    __shared__ float part[MOST_WARPS][TILES * CU_FEW_TILE][ROWS + 1];
    int i = weight_of(m, blockIdx.x);
    const struct cu_weight &w = m.w[i];
    int64_t row0 = (int64_t)((int)blockIdx.x - m.first[i]) * ROWS, row[2];
    struct piece o[2][2];
    struct span s;
    if (!all.first) { /* what is read first is on its way before the kernel ahead has ended */
        rows_of(row, w, row0, 0);
        load<TYPE>(o, w, row, threadIdx.x / 32 * STEP);
    }
    cu_wait();
    s = span_of(all, blockIdx.y, TILES * CU_FEW_TILE);
    if (s.t0 >= s.t1)
        return;
    if (all.first) {
        rows_of(row, w, row0, s.e);
        load<TYPE>(o, w, row, threadIdx.x / 32 * STEP);
    }
    float sum[TILES][4] = {};
    inner<TYPE, TILES>(sum, o, w, row, x, s);
    put<TILES>(part[threadIdx.x / 32], sum);
    __syncthreads();
    for (int k = threadIdx.x; k < TILES * CU_FEW_TILE * ROWS; k += blockDim.x) {
        int t = k / ROWS, r = k % ROWS;
        if (s.t0 + t < s.t1 && row0 + r < w.n_out)
            m.y[i][(s.t0 + t) * w.n_out + row0 + r] = total<TILES>(part, t, r);
    }
}

static __device__ __forceinline__ float silu(float v)
{
    return v / (1 + expf(-v));
}
static __device__ __forceinline__ float gelu(float v)
{
    return 0.5f * v * (1 + tanhf(0.79788456f * v * (1 + 0.044715f * v * v)));
}

/* Both weights of a gated feed-forward part: y[0] = act(gate) * up, and its halves. */
template <uint32_t TYPE, int TILES>
__global__ void __launch_bounds__(32 * MOST_WARPS, TILES == 1 ? 3 : 1)
    few_gated(const __grid_constant__ struct many m, const struct halves x,
              const __grid_constant__ struct spans all, const struct halves left, bool use_gelu)
{
    __shared__ float part[2][MOST_WARPS][TILES * CU_FEW_TILE][ROWS + 1];
    const struct cu_weight &gate = m.w[0], &up = m.w[1];
    int64_t row0 = (int64_t)blockIdx.x * ROWS, row[2];
    int p0 = threadIdx.x / 32 * STEP;
    struct piece o[2][2];
    rows_of(row, gate, row0, 0);
    load<TYPE>(o, gate, row, p0);
    cu_wait();
    const struct span s = span_of(all, 0, TILES * CU_FEW_TILE);
    float sum[TILES][4] = {};
    inner<TYPE, TILES>(sum, o, gate, row, x, s);
    put<TILES>(part[0][threadIdx.x / 32], sum);
    load<TYPE>(o, up, row, p0);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
        sum[tile][0] = sum[tile][1] = sum[tile][2] = sum[tile][3] = 0;
    inner<TYPE, TILES>(sum, o, up, row, x, s);
    put<TILES>(part[1][threadIdx.x / 32], sum);
    __syncthreads();
    for (int k = threadIdx.x; k < TILES * CU_FEW_TILE * ROWS; k += blockDim.x) {
        int t = k / ROWS, r = k % ROWS;
        if (s.t0 + t >= s.t1 || row0 + r >= gate.n_out)
            continue;
        float g = total<TILES>(part[0], t, r);
        float v = (use_gelu ? gelu(g) : silu(g)) * total<TILES>(part[1], t, r);
        m.y[0][t * gate.n_out + row0 + r] = v;
        left.x[half_at(left, (uint32_t)t, (uint32_t)(row0 + r))] = __float2half_rn(v * (1 / HALF_SCALE));
    }
}

/* ---- which of them ---- */

template <uint32_t TYPE, int TILES>
static void launch(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    int64_t n_in = m->w[0].n_in, n_out = m->w[0].n_out;
    struct halves x = cu_halves(c, s->T, n_in), left = {c->xg, (uint32_t)s->T, (uint32_t)n_out};
    /* Short rows leave nothing to do for more warps. The choice is the weight's, so that it is not a neighbour's. */
    unsigned threads = n_in <= 4 * STEP * 32 ? 128 : 32 * MOST_WARPS;
    if (act == GATE_NONE) {
        dim3 grid(share_out(m, ROWS), most_tiles(*s, TILES * CU_FEW_TILE));
        cu_launch(c, "few", few<TYPE, TILES>, grid, threads, 0, *m, x, *s);
    } else {
        cu_launch(c, "few_gated", few_gated<TYPE, TILES>, dim3(cu_blocks(n_out, ROWS)), threads, 0, *m, x, *s,
                  left, act == GATE_GELU);
    }
}

template <uint32_t TYPE>
static void launch_type(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    if (s->T <= CU_FEW_TILE || s->first)
        launch<TYPE, 1>(c, m, s, act);
    else if (s->T <= 2 * CU_FEW_TILE)
        launch<TYPE, 2>(c, m, s, act);
    else
        launch<TYPE, 4>(c, m, s, act);
}

void cu_few(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    switch (m->w[0].type) {
#define FEW_CASE(t)                                                                                          \
    case t: launch_type<t>(c, m, s, act); break;
        CU_QUANT_TYPES(FEW_CASE)
    }
}
