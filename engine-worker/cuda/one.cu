#include "many.cuh"
#include "twins.cuh"

/* One row times a weight of 4 to 6 bits. Opening weights into operands of the tensor cores (few.cu) takes an instruction for each, more
 * than memory leaves time for when one row is all there is. Here they stay codes: each block makes int8 codes of the row, with a scale
 * for every 32 values, as the CPU does, and multiplies four at a time. A warp has two rows of W, or one of gate and one of up; a lane 64
 * values of each at a time, its loads on their way before the kernel ahead has ended. */

#define WARPS   8
#define AT_ONCE 2 /* blocks on a multiprocessor */

/* The two rows of a warp's turn: rows 2 r and 2 r + 1 of a weight, or row r of gate and of up. */
struct two_rows {
    int i[2];       /* weights */
    int64_t row[2]; /* the second is the first where there is none */
    bool second;
};

template <bool GATED>
static __device__ __forceinline__ struct two_rows rows_of(const struct many &m, int pair, int e)
{
    struct two_rows r;
    if constexpr (GATED) {
        r.i[0] = 0;
        r.i[1] = 1;
        r.row[0] = r.row[1] = pair;
        r.second = true;
    } else {
        int i = weight_of(m, pair), row = 2 * (pair - m.first[i]);
        r.i[0] = r.i[1] = i;
        r.second = row + 1 < m.w[i].n_out;
        r.row[0] = e * m.w[i].n_out + row;
        r.row[1] = r.row[0] + (r.second ? 1 : 0);
    }
    return r;
}

/* The share of a launch that blocks of one type have: pairs pair .. pairs - 1, block after block. */
struct turns {
    int block, blocks, pair, pairs;
};

template <uint32_t TYPE, bool GATED>
static __device__ __forceinline__ void multiply(const struct many &m, const struct halves &x,
                                                const struct spans &all, const struct halves &left, bool gelu,
                                                const struct raw_row &raw, const struct turns &mine)
{
    CU_SHARED(int4, room, 16);
    int twins = (int)(x.n / TWIN), lane = threadIdx.x % 32, step = mine.blocks * WARPS, pairs = mine.pairs;
    struct row_codes codes = codes_in(room, x.n);
    int pair = mine.pair + mine.block * WARPS + (int)threadIdx.x / 32;
    struct twin<TYPE> o[2];
    struct span s = {0, 1, 0};
    /* A lane's twin v of a pair, and the one behind it. */
    struct at {
        int pair, v;
    };
    auto after = [&](const struct at &a) {
        return a.v + 32 < twins ? at{a.pair, a.v + 32} : at{a.pair + step, lane};
    };
    auto load = [&](const struct at &a) {
        if (a.pair >= pairs || a.v >= twins)
            return;
        struct two_rows r = rows_of<GATED>(m, a.pair, s.e);
        o[0].load(m.w[r.i[0]], r.row[0], a.v);
        o[1].load(m.w[r.i[1]], r.row[1], a.v);
    };
    if (!all.first)
        load({pair, lane});
    cu_wait();
    if (all.first) {
        s = span_of(all, blockIdx.y, CU_FEW_TILE);
        if (s.t0 >= s.t1)
            return;
        load({pair, lane});
    }
    float all_squares = raw.x ? share_of_squares(raw) : 0, squares = 0;
    encode<TYPE>(codes, x, s.t0, raw);
    float by = raw.x ? norm_by(raw, all_squares, x.n) : 1;
    for (; pair < pairs; pair += step) {
        struct two_rows r = rows_of<GATED>(m, pair, s.e);
        float sum[2] = {}, old = 0;
        if (!GATED && m.squares && lane < (r.second ? 2 : 1))
            old = m.y[0][2 * pair + lane];
        for (int v = lane; v < twins; v += 32) {
            struct twin<TYPE> now[2] = {
                o[0], o[1]
            };
            load(after({pair, v}));
            sum[0] += dot_twin<TYPE>(now[0], codes, v);
            sum[1] += dot_twin<TYPE>(now[1], codes, v);
        }
        sum[0] = cu_warp_sum(sum[0]);
        sum[1] = cu_warp_sum(sum[1]);
        if constexpr (GATED) {
            float v = activate(sum[0] * by, gelu) * (sum[1] * by);
            if (lane == 0) {
                m.y[0][pair] = v;
                left.x[half_at(left, 0, (uint32_t)pair)] = __float2half_rn(v * (1 / HALF_SCALE));
            }
        } else if (lane < (r.second ? 2 : 1)) {
            int i = r.i[0], row = 2 * (pair - m.first[i]) + lane;
            float v = old + (lane ? sum[1] : sum[0]) * by;
            m.y[i][(int64_t)s.t0 * m.w[i].n_out + row] = v;
            squares += v * v;
        }
    }
    if (GATED || !m.squares)
        return;
    squares = cu_block_sum(squares);
    if (threadIdx.x == 0)
        m.squares[mine.block] = squares;
}

template <uint32_t TYPE, bool GATED>
__global__ void __launch_bounds__(32 * WARPS, AT_ONCE)
    one(const __grid_constant__ struct many m, const struct halves x,
        const __grid_constant__ struct spans all, const struct halves left, bool gelu,
        const __grid_constant__ struct raw_row raw)
{
    int pairs = GATED ? (int)m.w[0].n_out : m.first[m.n];
    multiply<TYPE, GATED>(m, x, all, left, gelu, raw, {(int)blockIdx.x, (int)gridDim.x, 0, pairs});
}

/* Weights of two types: the first blocks have those of the first. */
template <uint32_t TYPE, uint32_t OTHER>
__global__ void __launch_bounds__(32 * WARPS, AT_ONCE)
    one_of_two(const __grid_constant__ struct many m, const struct halves x,
               const __grid_constant__ struct raw_row raw, int blocks, int pairs)
{
    const struct spans all = {1, NULL, NULL, 0, true};
    int block = (int)blockIdx.x;
    if (block < blocks)
        multiply<TYPE, false>(m, x, all, x, false, raw, {block, blocks, 0, pairs});
    else
        multiply<OTHER, false>(m, x, all, x, false, raw,
                               {block - blocks, (int)gridDim.x - blocks, pairs, m.first[m.n]});
}

template <uint32_t TYPE>
static bool launch(struct cu *c, struct many *m, const struct spans *s, enum gate_act act,
                   const struct raw_row *raw)
{
    int64_t n_in = m->w[0].n_in, n_out = m->w[0].n_out;
    struct halves x = cu_halves(c, s->T, n_in), left = {c->xg, 1, (uint32_t)n_out};
    int shared = codes_bytes(n_in);
    bool gated = act != GATE_NONE;
    if (shared > c->shared_block)
        return false;
    unsigned pairs = gated ? (unsigned)n_out : share_out(m, 2), most = AT_ONCE * (unsigned)c->multiprocessors;
    dim3 grid(s->first ? cu_blocks(pairs, WARPS) : cu_even(cu_blocks(pairs, WARPS), most),
              most_tiles(*s, CU_FEW_TILE));
    auto kernel = gated ? one<TYPE, true> : one<TYPE, false>;
    cu_leaves_squares(c, *m, grid.x);
    cu_launch(c, gated ? "one_gated" : "one", kernel, grid, 32 * WARPS, (size_t)shared, *m, x, *s, left,
              act == GATE_GELU, *raw);
    return true;
}

/* n weights of the first type, then those of the other. */
template <uint32_t TYPE, uint32_t OTHER>
static void launch_two(struct cu *c, struct many *m, int n, const struct raw_row *raw)
{
    int64_t n_in = m->w[0].n_in;
    int shared = codes_bytes(n_in);
    unsigned all = share_out(m, 2), pairs = (unsigned)m->first[n],
             most = AT_ONCE * (unsigned)c->multiprocessors, own = most * pairs / all;
    unsigned blocks = cu_even(cu_blocks(pairs, WARPS), own),
             others = cu_even(cu_blocks(all - pairs, WARPS), most - own);
    auto kernel = one_of_two<TYPE, OTHER>;
    cu_launch(c, "one_of_two", kernel, blocks + others, 32 * WARPS, (size_t)shared, *m, cu_halves(c, 1, n_in),
              *raw, (int)blocks, (int)pairs);
}

bool cu_one_takes(const struct cu *c, uint32_t type, uint32_t other, int64_t n_in)
{
    bool low = type == GT_Q4_K || type == GT_Q5_K;
    return (low || type == GT_Q6_K) && (other == type || (low && other == GT_Q6_K)) &&
           codes_bytes(n_in) <= c->shared_block;
}

bool cu_one(struct cu *c, struct many *m, const struct spans *s, enum gate_act act, const struct raw_row *raw)
{
    uint32_t type = m->w[0].type;
    int same = 1;
    while (same < m->n && m->w[same].type == type)
        same++;
    if (same < m->n) {
        if (type == GT_Q4_K)
            launch_two<GT_Q4_K, GT_Q6_K>(c, m, same, raw);
        else
            launch_two<GT_Q5_K, GT_Q6_K>(c, m, same, raw);
        return true;
    }
    switch (type) {
    case GT_Q4_K: return launch<GT_Q4_K>(c, m, s, act, raw);
    case GT_Q5_K: return launch<GT_Q5_K>(c, m, s, act, raw);
    case GT_Q6_K: return launch<GT_Q6_K>(c, m, s, act, raw);
    default: return false;
    }
}
