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

template <uint32_t TYPE, bool GATED>
__global__ void __launch_bounds__(32 * WARPS, AT_ONCE)
    one(const __grid_constant__ struct many m, const struct halves x,
        const __grid_constant__ struct spans all, const struct halves left, bool gelu)
{
    CU_SHARED(int4, room, 16);
    int twins = (int)(x.n / TWIN), lane = threadIdx.x % 32, pairs = GATED ? (int)m.w[0].n_out : m.first[m.n];
    struct row_codes codes = {room, room + 4 * twins_of(x.n), (float2 *)(room + 8 * twins_of(x.n))};
    int pair = (int)(blockIdx.x * WARPS + threadIdx.x / 32), step = (int)gridDim.x * WARPS;
    struct twin<TYPE> o[2];
    struct span s = {0, 1, 0};
    auto load = [&](const struct two_rows &r, int v) {
        o[0].load(m.w[r.i[0]], r.row[0], v);
        o[1].load(m.w[r.i[1]], r.row[1], v);
    };
    if (!all.first && pair < pairs && lane < twins)
        load(rows_of<GATED>(m, pair, 0), lane);
    cu_wait();
    if (all.first) {
        s = span_of(all, blockIdx.y, CU_FEW_TILE);
        if (s.t0 >= s.t1)
            return;
        if (pair < pairs && lane < twins)
            load(rows_of<GATED>(m, pair, s.e), lane);
    }
    encode<TYPE>(codes, x, s.t0);
    for (; pair < pairs; pair += step) {
        struct two_rows r = rows_of<GATED>(m, pair, s.e);
        float sum[2] = {};
        for (int v = lane; v < twins; v += 32) {
            struct twin<TYPE> now[2] = {
                o[0], o[1]
            };
            if (v + 32 < twins)
                load(r, v + 32);
            else if (pair + step < pairs && lane < twins)
                load(rows_of<GATED>(m, pair + step, s.e), lane);
            sum[0] += dot_twin<TYPE>(now[0], codes, v);
            sum[1] += dot_twin<TYPE>(now[1], codes, v);
        }
        sum[0] = cu_warp_sum(sum[0]);
        sum[1] = cu_warp_sum(sum[1]);
        if constexpr (GATED) {
            float v = activate(sum[0], gelu) * sum[1];
            if (lane == 0) {
                m.y[0][pair] = v;
                left.x[half_at(left, 0, (uint32_t)pair)] = __float2half_rn(v * (1 / HALF_SCALE));
            }
        } else if (lane < (r.second ? 2 : 1)) {
            int i = r.i[0], row = 2 * (pair - m.first[i]) + lane;
            m.y[i][(int64_t)s.t0 * m.w[i].n_out + row] = lane ? sum[1] : sum[0];
        }
    }
}

template <uint32_t TYPE>
static bool launch(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    int64_t n_in = m->w[0].n_in, n_out = m->w[0].n_out;
    struct halves x = cu_halves(c, s->T, n_in), left = {c->xg, 1, (uint32_t)n_out};
    int shared = twins_of(n_in) * 4 * (int)(2 * sizeof(int4) + sizeof(float2));
    bool gated = act != GATE_NONE;
    if (shared > c->shared_block)
        return false;
    unsigned pairs = gated ? (unsigned)n_out : share_out(m, 2), most = AT_ONCE * (unsigned)c->multiprocessors,
             blocks = cu_blocks(pairs, WARPS), tiles = most_tiles(*s, CU_FEW_TILE);
    unsigned rounds = (blocks + most - 1) / most;
    dim3 grid(s->first ? blocks : (blocks + rounds - 1) / rounds, tiles);
    auto plain = one<TYPE, false>;
    auto both = one<TYPE, true>;
    cu_ok(c,
          cudaFuncSetAttribute(gated ? (const void *)both : (const void *)plain,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "shared memory");
    cu_launch(c, gated ? "one_gated" : "one", gated ? both : plain, grid, 32 * WARPS, (size_t)shared, *m, x,
              *s, left, act == GATE_GELU);
    return true;
}

bool cu_one(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    switch (m->w[0].type) {
    case GT_Q4_K: return launch<GT_Q4_K>(c, m, s, act);
    case GT_Q5_K: return launch<GT_Q5_K>(c, m, s, act);
    case GT_Q6_K: return launch<GT_Q6_K>(c, m, s, act);
    default: return false;
    }
}
