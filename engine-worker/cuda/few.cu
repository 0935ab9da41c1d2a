#include "halves.cuh"
#include "lumps.cuh"
#include "many.cuh"
#include "mma.cuh"

/* Few rows: what a step costs is reading the weights, once. A block takes 16 rows of W after another, its warps 256 values of them in
 * turn: a lump (lumps.cuh), opened right into the operands of the tensor cores. Each warp has a ring of lumps in shared memory that are
 * on their way in asynchronous copies: as many as what the memory brings while one of them takes to come. The first of them are asked
 * for before the kernel ahead has ended. Which token is in which column changes nothing for the others: columns without a token repeat
 * the last one, and nobody reads their results. */

static_assert(CU_FEW_ROWS == 4 * CU_FEW_TILE, "launch_type has a kernel for each");

#define ROWS       16
#define MOST_WARPS 8
#define AT_ONCE    2 /* blocks of the most warps on a multiprocessor */
#define STEP       8 /* pieces of a row that a warp takes at a time */
/* Sums that a warp makes side by side: a product waits long for the one before it. */
template <int TILES> constexpr int SUMS = TILES == 1 ? 4 : 2;
/* Results of the warps: two of them, so that one can be read while the next is written, where that is cheap. */
template <int TILES> constexpr int PARTS = TILES == 1 ? 2 : 1;
template <int TILES> struct part {
    float of[MOST_WARPS][TILES * CU_FEW_TILE][ROWS + 1];
};

/* The activations that a lane multiplies with: of the token in its column of each tile. (ONE: there is one token in all.) */
template <int TILES> struct column {
    const uint4 *at[TILES]; /* its first unit */
    uint32_t step;          /* from a unit to the next */
};

template <int TILES>
static __device__ __forceinline__ void find_columns(struct column<TILES> *c, const struct halves &x,
                                                    const struct span &s)
{
    c->step = x.T;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        int t = CU_FEW_TILE * tile + (int)(threadIdx.x % 32) / 4, last = s.t1 - s.t0 - 1;
        c->at[tile] = (const uint4 *)x.x + s.t0 + (t < last ? t : last);
    }
}

/* First unit of group g of piece u of lane i, where the lump begins with piece p; behind the row's end, where weights are zeros, any
 * unit. */
template <uint32_t TYPE> static __device__ __forceinline__ int unit_of(int p, int i, int u, int g, int units)
{
    int at = 4 * p + lump<TYPE>::LANE * i + lump<TYPE>::unit(u, g);
    return lump<TYPE>::WHOLE || at + 2 <= units ? at : 0;
}

/* One group of a lump: 16 values of each lane, of rows g and g + 8, times TILES * 8 tokens. fetch(half, tile): the activations. */
template <uint32_t TYPE, int TILES, typename Fetch>
static __device__ __forceinline__ void multiply_group(float (*sum)[TILES][4], const struct lump<TYPE> &o,
                                                      int u, int g, const __half2 *d, Fetch fetch)
{
    __half2 less[2] = {__hmul2(d[0], __float2half2_rn(-lump<TYPE>::zero(g))),
                       __hmul2(d[1], __float2half2_rn(-lump<TYPE>::zero(g)))};
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
            uint4 v = fetch(half, tile);
            constexpr int N = SUMS<TILES>;
            mma_f16(sum[half * (N / 2)][tile], a[0], v.x, v.y);
            mma_f16(sum[half * (N / 2) + N / 2 - 1][tile], a[1], v.z, v.w);
        }
    }
}

/* The minima of a lump, times the sums of its activations. */
template <uint32_t TYPE, int TILES, bool ONE>
static __device__ __forceinline__ void multiply_least(float (*sum)[TILES][4], const uint32_t (*least)[2],
                                                      const uint2 *sums, int lump_at)
{
    const uint32_t a[4] = {least[0][0], least[1][0], least[0][1], least[1][1]};
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
        uint2 b = ONE ? sums[lump_at * 4 + (int)(threadIdx.x % 4)]
                      : sums[(lump_at * TILES + tile) * 32 + (int)(threadIdx.x % 32)];
        mma_f16(sum[SUMS<TILES> - 1][tile], a, b.x, b.y);
    }
}

/* The activations of a lump where there is one tile: they are asked for before the lump is waited for, but where registers are short. */
struct ready {
    uint4 v[2][2][2]; /* [piece][group][half] */
};
template <uint32_t TYPE, bool ONE>
static __device__ __forceinline__ void fetch_all(struct ready *r, const struct column<1> &c, int p, int units)
{
    uint32_t step = ONE ? 1 : c.step;
    int i = threadIdx.x % 4;
    const uint4 *lane = c.at[0] + (uint64_t)((uint32_t)(4 * p + lump<TYPE>::LANE * i) * step);
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
        for (int g = 0; g < 2; g++) {
            const uint4 *at = lane + (uint32_t)lump<TYPE>::unit(u, g) * step;
            if (!lump<TYPE>::WHOLE && unit_of<TYPE>(p, i, u, g, units) == 0)
                at = c.at[0];
            r->v[u][g][0] = *at;
            r->v[u][g][1] = at[step];
        }
}

/* Sums of the activations, once for all rows: of one token [lump][4], as lanes i want them. Four neighbours sum one group each. */
template <uint32_t TYPE>
static __device__ __forceinline__ void sum_up_one(uint2 *to, const struct halves &x, int t, int units)
{
    int all = ((int)x.n + 255) / 256 * 16;
    for (int k0 = 0; k0 < all; k0 += (int)blockDim.x) {
        int k = k0 + (int)threadIdx.x, part = k % 4, i = k / 4 % 4;
        if (k - (int)threadIdx.x % 32 >= all)
            break;
        int at = k < all ? unit_of<TYPE>(k / 16 * STEP, i, part / 2, part % 2, units) : 0;
        const uint4 *from = (const uint4 *)x.x + (int64_t)at * x.T + t;
        float own = sum_of(from[0]) + sum_of(from[x.T]), sums[2][2] = {{own}};
        sums[0][1] = __shfl_xor_sync(~0u, own, 1);
        sums[1][0] = __shfl_xor_sync(~0u, own, 2);
        sums[1][1] = __shfl_xor_sync(~0u, own, 3);
        if (part == 0 && k < all)
            to[k / 4] = lump<TYPE>::sums(sums);
    }
}

template <int TILES>
static __device__ __forceinline__ void put(float (*part)[ROWS + 1], float (*sum)[4], int T)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int t = tile * CU_FEW_TILE + lane % 4 * 2 + k;
            if (t >= T)
                continue;
            part[t][lane / 4] = sum[tile][k];
            part[t][lane / 4 + 8] = sum[tile][k + 2];
        }
}

/* Sum over the warps, in their order. */
template <int TILES>
static __device__ __forceinline__ float total(const struct part<TILES> &part, int t, int r)
{
    float s = 0;
#pragma unroll
    for (int j = 0; j < MOST_WARPS; j++)
        if (j < (int)blockDim.x / 32)
            s += part.of[j][t][r];
    return s;
}

/* The way of a warp through the weights: its pieces of a group of 16 rows, then those of the block's next group. Of gated weights each
 * group of the gate is followed by that of up, whose planes are `up` bytes behind. */
struct path {
    int first, step, pieces, groups;
    int64_t up;    /* 0: not gated */
    uint32_t row0; /* of the expert */
};

/* A warp's ring: lumps on their way or there, in the order in which they are taken. What is asked for next: */
template <uint32_t TYPE> struct ring {
    uint4 *slots;
    int depth, at;
    int group, p, i; /* group of rows, of all weights of the launch; piece; weight that `source` is of */
    bool second;     /* up's */
    uint32_t from;   /* pieces before it */
    typename lump<TYPE>::source source;
};

/* Goes to the ring's group, which may be another weight's. */
template <uint32_t TYPE>
static __device__ __forceinline__ void go_to(struct ring<TYPE> *r, const struct many &m,
                                             const struct path &way)
{
    int i = weight_of(m, r->group);
    uint32_t row = (uint32_t)(r->group - m.first[i]) * ROWS;
    if (i != r->i)
        lump<TYPE>::aim(&r->source, m.w[i]);
    r->i = i;
    r->p = way.first;
    r->from = (way.row0 * (uint32_t)m.w[i].n_out + row) * (uint32_t)way.pieces + (uint32_t)way.first;
}

template <uint32_t TYPE> static __device__ __forceinline__ uint4 *slot_of(const struct ring<TYPE> &r)
{
    return r.slots + r.at * (lump<TYPE>::BYTES / 16);
}

/* Asks for the next lump in the present slot and goes on to the slot behind it. */
template <uint32_t TYPE>
static __device__ __forceinline__ void ask(struct ring<TYPE> *r, const struct many &m, const struct path &way)
{
    if (r->group < way.groups) {
        lump<TYPE>::fill(slot_of<TYPE>(*r), r->source, r->from, way.pieces - r->p, r->second ? way.up : 0);
        r->p += way.step;
        r->from += (uint32_t)way.step;
        if (r->p >= way.pieces) {
            r->second = way.up != 0 && !r->second;
            if (r->second) {
                r->from -= (uint32_t)(r->p - way.first);
                r->p = way.first;
            } else {
                r->group += (int)gridDim.x;
                if (r->group < way.groups)
                    go_to<TYPE>(r, m, way);
            }
        }
    }
    copies_commit(); /* also of nothing: the groups are counted */
    r->at = r->at + 1 == r->depth ? 0 : r->at + 1;
}

/* Until the oldest of the ring's lumps is there. Few depths, so that this is quickly told. */
static __device__ __forceinline__ void arrived(int depth)
{
    if (depth == 6)
        copies_wait<5>();
    else if (depth == 4)
        copies_wait<3>();
    else
        copies_wait<1>();
    __syncwarp();
}

/* What every warp of a block knows. */
template <int TILES> struct work {
    struct path way;
    struct span s;
    struct column<TILES> columns;
    const uint2 *sums;
    int units;
};

/* Of several: [lump][tile][lane], a warp those of its own lumps. */
template <uint32_t TYPE, int TILES>
static __device__ __forceinline__ void sum_up(uint2 *to, const struct work<TILES> &k)
{
    for (int p = k.way.first; p < k.way.pieces; p += k.way.step)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            float sums[2][2];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int at = unit_of<TYPE>(p, threadIdx.x % 4, j / 2, j % 2, k.units);
                const uint4 *from = k.columns.at[tile] + (uint64_t)((uint32_t)at * k.columns.step);
                sums[j / 2][j % 2] = sum_of(from[0]) + sum_of(from[k.columns.step]);
            }
            to[(p / STEP * TILES + tile) * 32 + threadIdx.x % 32] = lump<TYPE>::sums(sums);
        }
}

/* Sums of a warp over one group of rows, whose first lump has `block` blocks before it. */
template <uint32_t TYPE, int TILES, bool ONE>
static __device__ __forceinline__ void inner(float (*out)[4], struct ring<TYPE> *r, const struct many &m,
                                             const struct work<TILES> &k, uint32_t block)
{
    float sum[SUMS<TILES>][TILES][4] = {};
    const struct path &way = k.way;
    for (int p = way.first; p < way.pieces; p += way.step) {
        struct lump<TYPE> o;
        struct ready x;
        if constexpr (TILES == 1 && !lump<TYPE>::LEAST)
            fetch_all<TYPE, ONE>(&x, k.columns, p, k.units);
        arrived(r->depth);
        o.take(slot_of<TYPE>(*r), block + (uint32_t)p / STEP, (uint32_t)way.pieces / STEP);
        __syncwarp();
        ask<TYPE>(r, m, way);
        if constexpr (TILES == 1 && lump<TYPE>::LEAST)
            fetch_all<TYPE, ONE>(&x, k.columns, p, k.units);
        __half2 d[2][2][2]; /* [row][piece][group] */
        uint32_t least[2][2] = {};
        o.scales(0, d[0], least[0]);
        o.scales(1, d[1], least[1]);
        if constexpr (lump<TYPE>::LEAST)
            multiply_least<TYPE, TILES, ONE>(sum, least, k.sums, p / STEP);
#pragma unroll
        for (int u = 0; u < 2; u++)
#pragma unroll
            for (int g = 0; g < 2; g++) {
                __half2 dg[2] = {d[0][u][g], d[1][u][g]};
                uint32_t at =
                    TILES == 1 ? 0
                               : (uint32_t)unit_of<TYPE>(p, threadIdx.x % 4, u, g, k.units) * k.columns.step;
                multiply_group<TYPE, TILES>(sum, o, u, g, dg, [&](int half, int tile) {
                    if constexpr (TILES == 1)
                        return x.v[u][g][half];
                    else
                        return k.columns.at[tile][(uint64_t)at + (half ? k.columns.step : 0)];
                });
            }
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            out[tile][i] = sum[0][tile][i];
#pragma unroll
            for (int j = 1; j < SUMS<TILES>; j++)
                out[tile][i] += sum[j][tile][i];
        }
}

/* What a block has in shared memory: sums of the activations (where a type has minima), rings. */
template <uint32_t TYPE, int TILES, bool ONE> static inline __host__ __device__ int sums_bytes(int n_in)
{
    return lump<TYPE>::LEAST ? (n_in + 255) / 256 * (ONE ? 4 : 32 * TILES) * (int)sizeof(uint2) : 0;
}

/* Everything before the first row: rings are filled, activations summed. Returns false when there is nothing to do. */
template <uint32_t TYPE, int TILES, bool ONE>
static __device__ __forceinline__ bool begin(struct ring<TYPE> *r, struct work<TILES> *k, uint4 *room,
                                             int depth, const struct many &m, const struct halves &x,
                                             const struct spans &all, int64_t up)
{
    int warp = threadIdx.x / 32, n = (int)x.n;
    k->way = {warp * STEP, (int)blockDim.x / 32 * STEP, (n + 31) / 32, up ? m.first[1] : m.first[m.n], up, 0};
    k->units = (n + 15) / 16 * 2;
    k->sums = (const uint2 *)room;
    r->slots = room + sums_bytes<TYPE, TILES, ONE>(n) / 16 + warp * depth * (lump<TYPE>::BYTES / 16);
    r->depth = depth;
    r->at = 0;
    r->i = -1;
    r->second = false;
    r->group = k->way.first < k->way.pieces ? (int)blockIdx.x : k->way.groups;
    if (!all.first) { /* what is read first is on its way before the kernel ahead has ended */
        if (r->group < k->way.groups)
            go_to<TYPE>(r, m, k->way);
        for (int i = 0; i < depth; i++)
            ask<TYPE>(r, m, k->way);
    }
    cu_wait();
    k->s = span_of(all, blockIdx.y, TILES * CU_FEW_TILE);
    if (k->s.t0 >= k->s.t1) {
        copies_wait<0>();
        return false;
    }
    if (all.first) {
        k->way.row0 = (uint32_t)k->s.e;
        if (r->group < k->way.groups)
            go_to<TYPE>(r, m, k->way);
        for (int i = 0; i < depth; i++)
            ask<TYPE>(r, m, k->way);
    }
    find_columns<TILES>(&k->columns, x, k->s);
    if constexpr (lump<TYPE>::LEAST) {
        if constexpr (ONE) {
            sum_up_one<TYPE>((uint2 *)room, x, k->s.t0, k->units);
            __syncthreads();
        } else {
            sum_up<TYPE, TILES>((uint2 *)room, *k);
            __syncwarp();
        }
    }
    return true;
}

/* Blocks of weight i before the first lump of a group, for all warps. */
static __device__ __forceinline__ uint32_t blocks_before(const struct many &m, const struct path &way, int i,
                                                         int group)
{
    return (way.row0 * (uint32_t)m.w[i].n_out + (uint32_t)(group - m.first[i]) * ROWS) *
           ((uint32_t)way.pieces / STEP);
}

template <uint32_t TYPE, int TILES, bool ONE>
__global__ void __launch_bounds__(32 * MOST_WARPS, AT_ONCE)
    few(const __grid_constant__ struct many m, const struct halves x,
        const __grid_constant__ struct spans all, int depth)
{
    CU_SHARED(uint4, room, 16);
    __shared__ struct part<TILES> parts[PARTS<TILES>];
    struct ring<TYPE> r;
    struct work<TILES> k;
    if (!begin<TYPE, TILES, ONE>(&r, &k, room, depth, m, x, all, 0))
        return;
    int turn = 0, T = k.s.t1 - k.s.t0;
    float squares = 0;
    for (int group = blockIdx.x; group < k.way.groups; group += gridDim.x) {
        float sum[TILES][4], old = 0;
        struct part<TILES> &part = parts[turn % PARTS<TILES>];
        int i = weight_of(m, group);
        if (ONE && m.squares && threadIdx.x < ROWS && group * ROWS + (int)threadIdx.x < m.w[0].n_out)
            old = m.y[0][group * ROWS + threadIdx.x];
        inner<TYPE, TILES, ONE>(sum, &r, m, k, blocks_before(m, k.way, i, group));
        put<TILES>(part.of[threadIdx.x / 32], sum, T);
        __syncthreads();
        int row0 = (group - m.first[i]) * ROWS, n_out = (int)m.w[i].n_out;
        float *y = m.y[i] + (int64_t)k.s.t0 * n_out + row0;
        for (int at = threadIdx.x; at < (ONE ? 1 : T) * ROWS; at += blockDim.x) {
            int t = at / ROWS, row = at % ROWS;
            if (row0 + row >= n_out)
                continue;
            float v = total<TILES>(part, t, row);
            if (ONE && m.squares) {
                v += old;
                squares += v * v;
            }
            y[(int64_t)t * n_out + row] = v;
        }
        turn++;
        if constexpr (PARTS<TILES> == 1)
            __syncthreads();
    }
    if (!ONE || !m.squares)
        return;
    squares = cu_block_sum(squares);
    if (threadIdx.x == 0)
        m.squares[blockIdx.x] = squares;
}

/* Both weights of a gated feed-forward part: y[0] = act(gate) * up, and its halves. */
template <uint32_t TYPE, int TILES, bool ONE>
__global__ void __launch_bounds__(32 * MOST_WARPS, AT_ONCE)
    few_gated(const __grid_constant__ struct many m, const struct halves x,
              const __grid_constant__ struct spans all, const struct halves left, bool use_gelu, int depth)
{
    CU_SHARED(uint4, room, 16);
    __shared__ struct part<TILES> parts[2];
    struct ring<TYPE> r;
    struct work<TILES> k;
    if (!begin<TYPE, TILES, ONE>(&r, &k, room, depth, m, x, all, m.w[1].plane[0] - m.w[0].plane[0]))
        return;
    int T = k.s.t1 - k.s.t0, n_out = (int)m.w[0].n_out;
    for (int group = blockIdx.x; group < k.way.groups; group += gridDim.x) {
        uint32_t block = blocks_before(m, k.way, 0, group);
#pragma unroll 1
        for (int which = 0; which < 2; which++) {
            float sum[TILES][4];
            inner<TYPE, TILES, ONE>(sum, &r, m, k, block);
            put<TILES>(parts[which].of[threadIdx.x / 32], sum, T);
        }
        __syncthreads();
        for (int at = threadIdx.x; at < (ONE ? 1 : T) * ROWS; at += blockDim.x) {
            int t = at / ROWS, row = group * ROWS + at % ROWS;
            if (row >= n_out)
                continue;
            float g = total<TILES>(parts[0], t, at % ROWS);
            float v = activate(g, use_gelu) * total<TILES>(parts[1], t, at % ROWS);
            m.y[0][(int64_t)(k.s.t0 + t) * n_out + row] = v;
            left.x[half_at(left, (uint32_t)(k.s.t0 + t), (uint32_t)row)] =
                __float2half_rn(v * (1 / HALF_SCALE));
        }
        __syncthreads();
    }
}

/* ---- which of them ---- */

/* Blocks of so many warps that run at once. */
static unsigned even(const struct cu *c, unsigned groups, unsigned warps)
{
    return cu_even(groups, AT_ONCE * MOST_WARPS / warps * (unsigned)c->multiprocessors);
}

/* How deep the rings of `warps` are where a block has its share of a multiprocessor's shared memory; 0: they have no room. */
template <uint32_t TYPE, int TILES, bool ONE>
static int depth_of(const struct cu *c, int64_t n_in, int warps, bool gated)
{
    int own = sums_bytes<TYPE, TILES, ONE>((int)n_in), each = warps * lump<TYPE>::BYTES,
        fixed = (gated ? 2 : PARTS<TILES>)*(int)sizeof(struct part<TILES>) + 1024,
        share = c->shared_all / (AT_ONCE * MOST_WARPS / warps) - fixed - own,
        most = c->shared_block - fixed - own;
    int depth = share / each;
    return depth >= 6 ? 6 : depth >= 4 ? 4 : most / each >= 2 ? 2 : 0;
}

template <uint32_t TYPE, int TILES, bool ONE = false>
static bool launch(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    int64_t n_in = m->w[0].n_in, n_out = m->w[0].n_out;
    struct halves x = cu_halves(c, s->T, n_in), left = {c->xg, (uint32_t)s->T, (uint32_t)n_out};
    bool gated = act != GATE_NONE;
    /* Short rows leave nothing to do for more warps. The choice is the weight's, so that it is not a neighbour's. */
    unsigned warps = n_in <= 4 * STEP * 32 ? 4 : MOST_WARPS, groups = share_out(m, ROWS),
             tiles = most_tiles(*s, TILES * CU_FEW_TILE);
    int depth = depth_of<TYPE, TILES, ONE>(c, n_in, (int)warps, gated);
    if (depth == 0)
        return false;
    int shared = sums_bytes<TYPE, TILES, ONE>((int)n_in) + (int)warps * depth * lump<TYPE>::BYTES;
    auto plain = few<TYPE, TILES, ONE>;
    auto both = few_gated<TYPE, TILES, ONE>;
    unsigned blocks = gated ? even(c, groups / 2, warps) : s->first ? groups : even(c, groups, warps);
    cu_leaves_squares(c, *m, blocks);
    if (gated)
        cu_launch(c, "few_gated", both, dim3(blocks, tiles), 32 * warps, (size_t)shared, *m, x, *s, left,
                  act == GATE_GELU, depth);
    else
        cu_launch(c, "few", plain, dim3(blocks, tiles), 32 * warps, (size_t)shared, *m, x, *s, depth);
    return true;
}

/* As many tokens at once as there are, or as there is room for. */
template <uint32_t TYPE>
static void launch_type(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    bool one = s->T <= CU_FEW_TILE || s->first, two = s->T <= 2 * CU_FEW_TILE;
    if (!one && !two && launch<TYPE, 4>(c, m, s, act))
        return;
    if (!one && launch<TYPE, 2>(c, m, s, act))
        return;
    bool done = s->T == 1 ? launch<TYPE, 1, true>(c, m, s, act) : launch<TYPE, 1>(c, m, s, act);
    if (!done)
        cu_ok(c, cudaErrorInvalidValue, "a weight with rows too long for the shared memory");
}

void cu_few(struct cu *c, struct many *m, const struct spans *s, enum gate_act act)
{
    switch (m->w[0].type) {
#define FEW_CASE(t)                                                                                          \
    case t: launch_type<t>(c, m, s, act); break;
        CU_QUANT_TYPES(FEW_CASE)
    }
}
