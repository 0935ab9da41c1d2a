#include "halves.cuh"
#include "lumps.cuh"
#include "many.cuh"
#include "mma.cuh"

/* Few rows: what a step costs is reading the weights, once. A block takes 16 rows of W after another, its warps 256 values of them in
 * turn; lane 4 g + i holds a lump (lumps.cuh) of rows g and g + 8 and opens it right into the operands of the tensor cores. Which token
 * is in which column changes nothing for the others. */

static_assert(CU_FEW_ROWS == 4 * CU_FEW_TILE, "launch_type has a kernel for each");

#define ROWS       16
#define MOST_WARPS 8
#define BLOCKS     2 /* of the most warps that run on a multiprocessor at once */
#define STEP       8 /* pieces of a row that a warp takes at a time */
/* Sums that a warp makes side by side: a product waits long for the one before it. */
template <int TILES> constexpr int SUMS = TILES == 1 ? 4 : 2;

/* One group of a lump: 16 values of each lane, of rows g and g + 8, times TILES * 8 tokens. */
template <uint32_t TYPE, int TILES>
static __device__ __forceinline__ void
multiply_group(float (*sum)[TILES][4], const struct lump<TYPE> &o, int u, int g, const __half2 *d,
               const __half2 *m, const __half *unit, const struct halves &x, int token, int t1)
{
    __half2 less[2];
    uint32_t least[4];
    if constexpr (lump<TYPE>::LEAST) {
        less[0] = __hmul2(d[0], __float2half2_rn(-lump<TYPE>::zero(g)));
        less[1] = __hmul2(d[1], __float2half2_rn(-lump<TYPE>::zero(g)));
        least[0] = least[2] = bits_of(m[0]);
        least[1] = least[3] = bits_of(m[1]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t a[2][4]; /* of its two words */
#pragma unroll
        for (int w = 0; w < 2; w++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                uint32_t v[2];
                o.word(r, u, g, 2 * half + w, &v[0], &v[1]);
#pragma unroll
                for (int k = 0; k < 2; k++)
                    if constexpr (lump<TYPE>::LEAST)
                        a[w][r + 2 * k] = bits_of(__hfma2(as_half2(v[k]), d[r], less[r]));
                    else
                        a[w][r + 2 * k] = bits_of(
                            __hmul2(__hsub2(as_half2(v[k]), __float2half2_rn(lump<TYPE>::zero(g))), d[r]));
            }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (token + CU_FEW_TILE * tile < t1)
                v = *(const uint4 *)(unit + ((int64_t)half * x.T + CU_FEW_TILE * tile) * 8);
            constexpr int N = SUMS<TILES>;
            mma_f16(sum[0][tile], a[0], v.x, v.y);
            mma_f16(sum[N / 2 - 1][tile], a[1], v.z, v.w);
            if constexpr (lump<TYPE>::LEAST) {
                mma_f16(sum[N / 2][tile], least, v.x, v.y);
                mma_f16(sum[N - 1][tile], least, v.z, v.w);
            }
        }
    }
}

template <uint32_t TYPE, int TILES>
static __device__ __forceinline__ void multiply(float (*sum)[TILES][4], const struct lump<TYPE> &o, int p0,
                                                const struct halves &x, const struct span &s)
{
    int token = s.t0 + (threadIdx.x % 32) / 4;
    __half2 d[2][2][2], m[2][2][2]; /* [row][piece][group] */
    o.scales(0, d[0], m[0]);
    o.scales(1, d[1], m[1]);
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
        for (int g = 0; g < 2; g++) {
            __half2 dg[2] = {d[0][u][g], d[1][u][g]}, mg[2] = {m[0][u][g], m[1][u][g]};
            int at = lump<TYPE>::at(p0, u, g);
            if (at >= (int)x.n) /* behind the row's end, where weights are zeros */
                at = 0;
            multiply_group<TYPE, TILES>(sum, o, u, g, dg, mg, x.x + ((int64_t)(at / 8) * x.T + token) * 8, x,
                                        token, s.t1);
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

/* Where a warp is: 16 rows of a weight, and the piece that comes next. */
struct place {
    int group; /* of rows, of all weights of the launch */
    int p;
};

template <uint32_t TYPE>
static __device__ __forceinline__ void load(struct lump<TYPE> &o, const struct many &m,
                                            const struct place &at, int e)
{
    int i = weight_of(m, at.group);
    int64_t row[2];
    rows_of(row, m.w[i], (int64_t)(at.group - m.first[i]) * ROWS, e);
    o.load(m.w[i], row, at.p);
}

/* Sums of a warp over one group of rows; o holds its first lump and then that of the group `next`, if there is one. */
template <uint32_t TYPE, int TILES>
static __device__ __forceinline__ void inner(float (*out)[4], struct lump<TYPE> &o, const struct many &m,
                                             int group, int next, int groups, int e, const struct halves &x,
                                             const struct span &s)
{
    int pieces = (int)x.n / 32, first = threadIdx.x / 32 * STEP, step = (int)blockDim.x / 32 * STEP;
    float sum[SUMS<TILES>][TILES][4] = {};
    for (int p = first; p < pieces; p += step) {
        struct place to = p + step < pieces ? place{group, p + step} : place{next, first};
        bool more = to.group < groups;
        multiply<TYPE, TILES>(sum, o, p, x, s);
        if (more)
            load<TYPE>(o, m, to, e);
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            out[tile][k] = sum[0][tile][k];
#pragma unroll
            for (int i = 1; i < SUMS<TILES>; i++)
                out[tile][k] += sum[i][tile][k];
        }
}

template <uint32_t TYPE, int TILES>
__global__ void __launch_bounds__(32 * MOST_WARPS, BLOCKS)
    few(const __grid_constant__ struct many m, const struct halves x,
        const __grid_constant__ struct spans all)
{
    __shared__ float part[MOST_WARPS][TILES * CU_FEW_TILE][ROWS + 1];
    struct place at = {(int)blockIdx.x, (int)threadIdx.x / 32 * STEP};
    int groups = m.first[m.n];
    bool works = at.p < (int)x.n / 32;
    struct lump<TYPE> o;
    if (!all.first && works) /* what is read first is on its way before the kernel ahead has ended */
        load<TYPE>(o, m, at, 0);
    cu_wait();
    const struct span s = span_of(all, blockIdx.y, TILES * CU_FEW_TILE);
    if (s.t0 >= s.t1)
        return;
    if (all.first && works)
        load<TYPE>(o, m, at, s.e);
    for (int group = at.group; group < groups; group += gridDim.x) {
        float sum[TILES][4];
        inner<TYPE, TILES>(sum, o, m, group, group + gridDim.x, groups, s.e, x, s);
        put<TILES>(part[threadIdx.x / 32], sum);
        __syncthreads();
        int i = weight_of(m, group);
        int64_t row0 = (int64_t)(group - m.first[i]) * ROWS, n_out = m.w[i].n_out;
        for (int k = threadIdx.x; k < TILES * CU_FEW_TILE * ROWS; k += blockDim.x) {
            int t = k / ROWS, r = k % ROWS;
            if (s.t0 + t < s.t1 && row0 + r < n_out)
                m.y[i][(s.t0 + t) * n_out + row0 + r] = total<TILES>(part, t, r);
        }
        __syncthreads();
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

/* Both weights of a gated feed-forward part: y[0] = act(gate) * up, and its halves. Groups of gate rows come before those of up. */
template <uint32_t TYPE, int TILES>
__global__ void __launch_bounds__(32 * MOST_WARPS, BLOCKS)
    few_gated(const __grid_constant__ struct many m, const struct halves x,
              const __grid_constant__ struct spans all, const struct halves left, bool use_gelu)
{
    __shared__ float part[2][MOST_WARPS][TILES * CU_FEW_TILE][ROWS + 1];
    struct place at = {(int)blockIdx.x, (int)threadIdx.x / 32 * STEP};
    int half = m.first[1], groups = m.first[2], n_out = (int)m.w[0].n_out;
    struct lump<TYPE> o;
    if (at.p < (int)x.n / 32)
        load<TYPE>(o, m, at, 0);
    cu_wait();
    const struct span s = span_of(all, 0, TILES * CU_FEW_TILE);
    for (int group = at.group; group < half; group += gridDim.x) {
        int next = group + gridDim.x < half ? group + gridDim.x : groups;
#pragma unroll 1
        for (int which = 0; which < 2; which++) {
            float sum[TILES][4];
            inner<TYPE, TILES>(sum, o, m, which ? half + group : group, which ? next : half + group, groups,
                               0, x, s);
            put<TILES>(part[which][threadIdx.x / 32], sum);
        }
        __syncthreads();
        for (int k = threadIdx.x; k < TILES * CU_FEW_TILE * ROWS; k += blockDim.x) {
            int t = k / ROWS, row = group * ROWS + k % ROWS;
            if (s.t0 + t >= s.t1 || row >= n_out)
                continue;
            float g = total<TILES>(part[0], t, k % ROWS);
            float v = (use_gelu ? gelu(g) : silu(g)) * total<TILES>(part[1], t, k % ROWS);
            m.y[0][(int64_t)t * n_out + row] = v;
            left.x[half_at(left, (uint32_t)t, (uint32_t)row)] = __float2half_rn(v * (1 / HALF_SCALE));
        }
        __syncthreads();
    }
}

/* ---- which of them ---- */

/* Blocks that run at once, each of them taking as many groups as the others. */
static unsigned even(const struct cu *c, unsigned groups, unsigned threads)
{
    unsigned at_once = BLOCKS * 32 * MOST_WARPS / threads * (unsigned)c->multiprocessors,
             rounds = (groups + at_once - 1) / at_once;
    return (groups + rounds - 1) / rounds;
}

template <uint32_t TYPE, int TILES>
static void launch(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    int64_t n_in = m->w[0].n_in, n_out = m->w[0].n_out;
    struct halves x = cu_halves(c, s->T, n_in), left = {c->xg, (uint32_t)s->T, (uint32_t)n_out};
    /* Short rows leave nothing to do for more warps. The choice is the weight's, so that it is not a neighbour's. */
    unsigned threads = n_in <= 4 * STEP * 32 ? 128 : 32 * MOST_WARPS, groups = share_out(m, ROWS);
    if (act == GATE_NONE) {
        dim3 grid(s->first ? groups : even(c, groups, threads), most_tiles(*s, TILES * CU_FEW_TILE));
        cu_launch(c, "few", few<TYPE, TILES>, grid, threads, 0, *m, x, *s);
    } else {
        cu_launch(c, "few_gated", few_gated<TYPE, TILES>, dim3(even(c, groups / 2, threads)), threads, 0, *m,
                  x, *s, left, act == GATE_GELU);
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
