/* What one launch of a matmul takes, for each of the ways there are. */
#ifndef MANY_CUH
#define MANY_CUH

#include "blocks.cuh"
#include "halves.cuh"

#include <assert.h>

#define TOGETHER 4      /* weights of one type that a launch may take: q, k and v; gate and up */
#define GRID_Y   65535u /* blocks that a launch may have in y; more rows take more launches */

struct many {
    struct cu_weight w[TOGETHER];
    float *y[TOGETHER];
    int first[TOGETHER + 1]; /* block that begins each weight */
    int n;
    float *
        squares; /* the result of the only weight is added to what is there, and each block leaves its sum of squares here; NULL: not */
};

/* Rows of x: all of them, or those of each of n_expert experts, first[e] .. first[e + 1] - 1, cut into tiles of their own: tiles[e] is
 * the first of expert e. */
struct spans {
    int T;
    const int64_t *first;
    const int32_t *tiles;
    int n_expert;
    bool single; /* there is one row, or no expert has more */
};

/* First blocks of the weights, a block taking `rows` rows. Returns how many there are in all. */
static inline unsigned share_out(struct many *m, int rows)
{
    for (int i = 0; i < TOGETHER; i++)
        m->first[i + 1] = m->first[i] + (i < m->n ? (int)cu_blocks(m->w[i].n_out, rows) : 0);
    return (unsigned)m->first[m->n];
}

/* The weight that a block works on. */
static __device__ __forceinline__ int weight_of(const struct many &m, int block)
{
    int i = 0;
    while (i + 1 < TOGETHER && block >= m.first[i + 1])
        i++;
    return i;
}

/* Rows t0 .. t1 - 1 of x against expert e of the weight. */
struct span {
    int t0, t1, e;
};

/* The expert of row t. */
static __device__ __forceinline__ int expert_of(const struct spans &s, int t)
{
    int lo = 0, hi = s.n_expert;
    while (hi - lo > 1) { /* first[lo] <= t < first[hi] */
        int mid = (lo + hi) / 2;
        if (s.first[mid] <= t)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Rows of tile `tile`, which has `rows` rows at most. */
static __device__ __forceinline__ struct span span_of(const struct spans &s, int tile, int rows)
{
    int lo = 0, hi = s.n_expert;
    if (!s.first) {
        int t0 = tile * rows;
        return {t0, t0 + rows < s.T ? t0 + rows : s.T, 0};
    }
    if (tile >= s.tiles[s.n_expert])
        return {0, 0, 0};
    while (hi - lo > 1) { /* tiles[lo] <= tile < tiles[hi] */
        int mid = (lo + hi) / 2;
        if (s.tiles[mid] <= tile)
            lo = mid;
        else
            hi = mid;
    }
    int t0 = (int)s.first[lo] + (tile - s.tiles[lo]) * rows, end = (int)s.first[lo + 1];
    return {t0, t0 + rows < end ? t0 + rows : end, lo};
}

/* Tiles of experts at most, `rows` rows each. */
static inline unsigned most_tiles(const struct spans &s, int rows)
{
    int64_t cut = (s.T + rows - 1) / rows + (s.first ? s.n_expert : 0);
    return (unsigned)(cut < s.T ? cut : s.T);
}

/* Kernels in which a warp has a row of W, four to a block, for T rows of x; of experts' rows each is taken alone. */
#define OWN_ROWS 4
struct own_row {
    int i, t0, e; /* weight, first row of x, expert */
    int64_t row;  /* of that weight, may lie behind its end */
};

template <int T>
static __device__ __forceinline__ struct own_row own_row_of(const struct many &m, const struct spans &s,
                                                            int t0)
{
    struct own_row o;
    o.i = weight_of(m, blockIdx.x);
    o.row = (int64_t)((int)blockIdx.x - m.first[o.i]) * OWN_ROWS + threadIdx.x / 32;
    o.t0 = t0 + T * (int)blockIdx.y;
    o.e = s.first ? expert_of(s, o.t0) : 0;
    return o;
}

/* sum: each lane's share. */
template <int T>
static __device__ __forceinline__ void put_own_row(const struct many &m, const struct own_row &o,
                                                   const float *sum)
{
#pragma unroll
    for (int t = 0; t < T; t++) {
        float s = cu_warp_sum(sum[t]);
        if (threadIdx.x % 32 == 0)
            m.y[o.i][(o.t0 + t) * m.w[o.i].n_out + o.row] = s;
    }
}

/* Launches eight(grid, t0) for every eight rows and one(grid, t0) for those that are left, as many at once as a grid has. */
template <typename Eight, typename One>
static inline void launch_own_rows(struct many *m, const struct spans *s, Eight eight, One one)
{
    unsigned blocks = share_out(m, OWN_ROWS), eights = s->first ? 0 : (unsigned)s->T / 8, done = 8 * eights,
             rest = (unsigned)s->T - done;
    for (unsigned t = 0; t < eights; t += GRID_Y)
        eight(dim3(blocks, eights - t < GRID_Y ? eights - t : GRID_Y), (int)(8 * t));
    for (unsigned t = 0; t < rest; t += GRID_Y)
        one(dim3(blocks, rest - t < GRID_Y ? rest - t : GRID_Y), (int)(done + t));
}

/* How many sums of squares the launch leaves, one for each block. */
static inline void cu_leaves_squares(struct cu *c, const struct many &m, unsigned blocks)
{
    assert(!m.squares || blocks <= CU_SQUARES);
    c->n_squares = m.squares ? (int)blocks : 0;
}

/* What few rows do with the gate: in one place, so that one row and several agree. */
static __device__ __forceinline__ float activate(float g, bool gelu)
{
    return gelu ? 0.5f * g * (1 + tanhf(0.79788456f * g * (1 + 0.044715f * g * g))) : g / (1 + expf(-g));
}

/* y = x Wᵀ for m's weights, all of one quantized type (few, and coded_few for the types of coded.cuh: up to CU_FEW_ROWS rows of an
 * expert or of all; tiled: any type, any number; plain: for GPUs without tensor cores). x as halves, but for plain. act: of two
 * weights, y[0] = act(y[0]) * y[1] is made and its halves are left. */
enum gate_act { GATE_NONE, GATE_SILU, GATE_GELU };
void cu_few(struct cu *c, struct many *m, const struct spans *s, enum gate_act act);
/* Of a single row, where the type has kernels for it; false: it has none. */
bool cu_one(struct cu *c, struct many *m, const struct spans *s, enum gate_act act,
            const struct raw_row *raw);
/* Whether it has kernels for a type, or for some weights of one type and then some of the other in one launch, where all rows are one. */
bool cu_one_takes(const struct cu *c, uint32_t type, uint32_t other, int64_t n_in);
void cu_coded_few(struct cu *c, struct many *m, const struct spans *s);
void cu_tiled(struct cu *c, struct many *m, const struct spans *s);
/* As tiled, where warpgroups multiply (sm_90); false: elsewhere. */
bool cu_wide(struct cu *c, struct many *m, const struct spans *s);
void cu_plain(struct cu *c, struct many *m, const struct spans *s, const float *x);
#endif
