#include "coded.cuh"
#include "halves.cuh"
#include "many.cuh"
#include "mma.cuh"

/* Few rows times a coded weight (coded.cuh): the way of few.cu, for all types in one kernel. A block takes 16 rows of W after another,
 * its warps lumps of 256 values of them in turn, out of a ring in shared memory that asynchronous copies fill. In a lump lane 4 g + i
 * opens pieces i and i + 4 of rows g and g + 8 as int8 codes, one after the other: its code is there once, whatever the type. */

#define ROWS       16
#define MOST_WARPS 8
#define AT_ONCE    2 /* blocks of the most warps on a multiprocessor */
#define MOST_DEPTH 4
#define STEP       8 /* pieces of a lump */
#define SUMS       2 /* that a warp makes side by side: a product waits long for the one before it */

/* ---- a lump in shared memory: its 16 rows' shares of plane 0, then those of planes 1 and 2 ---- */

/* Whether shares of plane k may begin and end within a word. */
static __host__ __device__ __forceinline__ constexpr bool within_words(uint32_t type, int k)
{
    return k == 2 && plane_of(type, k) < 32;
}
/* Bytes that a lump has for a row's share of plane k: those of all words that it touches. */
static __host__ __device__ __forceinline__ constexpr int share_of(uint32_t type, int k)
{
    return plane_of(type, k) + (plane_of(type, k) > 0 && within_words(type, k) ? 4 : 0);
}
static inline __host__ __device__ int lump_bytes(uint32_t type)
{
    return ROWS * (share_of(type, 0) + share_of(type, 1) + share_of(type, 2));
}

/* Where a group of 16 rows lies. */
struct rows16 {
    int i, last;  /* weight; the last row that there is */
    int64_t row0; /* among those of all parts */
};
static __device__ __forceinline__ struct rows16 rows_of(const struct many &m, int group, int e)
{
    int i = weight_of(m, group);
    int64_t row = (int64_t)(group - m.first[i]) * ROWS, rest = m.w[i].n_out - 1 - row;
    return {i, rest < ROWS - 1 ? (int)rest : ROWS - 1, e * m.w[i].n_out + row};
}

/* Has the warp copy the shares of plane k, a row for two lanes. What is behind the row's end is zeros in plane 0 and anything in the
 * others; rows behind the last are copies of it. */
static __device__ __forceinline__ void fill_share(uint4 *to, const struct cu_weight &w, int k,
                                                  const struct rows16 &rows, int p0)
{
    int r = threadIdx.x % 32 / 2, each = plane_of(w.type, k), size = share_of(w.type, k);
    int64_t row = rows.row0 + (r < rows.last ? r : rows.last), pieces = w.n_in / 32,
            end = (row + 1) * pieces * each / 8, at = (row * pieces + p0) * each / 8;
    if (k == 0) {
        for (int c = threadIdx.x % 2; c < size / 16; c += 2)
            copy16(to + r * (size / 16) + c, w.plane[k] + at + 16 * c, at + 16 * c < end);
        return;
    }
    at = at / 4 * 4;
    for (int c = threadIdx.x % 2; c < size / 4; c += 2)
        if (at + 4 * c < end)
            copy4((uint32_t *)to + r * (size / 4) + c, w.plane[k] + at + 4 * c);
}

static __device__ __forceinline__ void fill(uint4 *to, const struct cu_weight &w, const struct rows16 &rows,
                                            int p0)
{
    for (int k = 0; k < 3; k++) {
        if (plane_of(w.type, k))
            fill_share(to, w, k, rows, p0);
        to += share_of(w.type, k); /* times 16 rows */
    }
}

/* The block of a row in a lump. */
struct in_lump {
    const uint8_t *lump, *points;
    int r;         /* row of the lump */
    int64_t first; /* piece of the weight that begins the block */

    template <uint32_t TYPE> __device__ __forceinline__ struct block256 of() const
    {
        constexpr int AT1 = ROWS * share_of(TYPE, 0), AT2 = AT1 + ROWS * share_of(TYPE, 1);
        int within = within_words(TYPE, 2) ? (int)(first * plane_of(TYPE, 2) / 8 & 3) : 0;
        return {{lump + r * share_of(TYPE, 0), lump + AT1 + r * share_of(TYPE, 1),
                 lump + AT2 + r * share_of(TYPE, 2) + within, points}};
    }
};

/* A lane's piece of its two rows. */
struct opened {
    uint32_t c[2][8];   /* codes and 128 */
    __half2 d[2], m[2]; /* of both groups, times HALF_SCALE */
};

/* The loop is one so that the code is there once: what it makes moves up. */
static __device__ __forceinline__ void open(struct opened *to, const uint4 *lump, const struct cu_weight &w,
                                            int64_t row0, int p0, int u)
{
    int g = threadIdx.x % 32 / 4, j = 4 * u + threadIdx.x % 4, pieces = (int)w.n_in / 32;
    float by = p0 + j < pieces ? HALF_SCALE : 0;
#pragma unroll 1
    for (int r = 0; r < 2; r++) {
        struct piece o;
        struct in_lump at = {(const uint8_t *)lump, w.plane[3], g + 8 * r, (row0 + g + 8 * r) * pieces + p0};
#pragma unroll
        for (int k = 0; k < 8; k++)
            to->c[0][k] = to->c[1][k];
        to->d[0] = to->d[1];
        to->m[0] = to->m[1];
        open_coded(w.type, at, j, o);
#pragma unroll
        for (int k = 0; k < 8; k++)
            to->c[1][k] = (uint32_t)o.c[k];
        to->d[1] = by > 0 ? __floats2half2_rn(o.d[0] * by, o.d[1] * by) : as_half2(0);
        to->m[1] = by > 0 ? __floats2half2_rn(o.m[0] * by, o.m[1] * by) : as_half2(0);
    }
}

/* ---- products ---- */

/* First unit of 16 values of a lane's piece u of the lump that begins with piece p0; behind the row's end, where weights are zeros, of
 * some others. */
static __device__ __forceinline__ const __half *unit_of(const struct halves &x, int p0, int u, int g,
                                                        int token)
{
    int at = 32 * (p0 + 4 * u + (int)(threadIdx.x % 4)) + 16 * g;
    return x.x + ((int64_t)(at < (int)x.n ? at / 8 : 0) * x.T + token) * 8;
}

/* 16 values of each lane times TILES * 8 tokens. fetch(half, tile): the activations. */
template <int TILES, typename Fetch>
static __device__ __forceinline__ void multiply_group(float (*sum)[TILES][4], const struct opened &o, int g,
                                                      Fetch fetch)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t a[2][4]; /* of its two words */
#pragma unroll
        for (int w = 0; w < 2; w++)
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int odd = 0; odd < 2; odd++) { /* 1024 + code is a half */
                    uint32_t v =
                        __byte_perm(o.c[r][4 * g + 2 * half + w], 0x64646464u, odd ? 0x4341 : 0x4240);
                    __half2 d = g ? __high2half2(o.d[r]) : __low2half2(o.d[r]);
                    a[w][r + 2 * odd] = bits_of(__hmul2(__hsub2(as_half2(v), __float2half2_rn(1152)), d));
                }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            uint4 v = fetch(half, tile);
            mma_f16(sum[0][tile], a[0], v.x, v.y);
            mma_f16(sum[1][tile], a[1], v.z, v.w);
        }
    }
}

/* The activations of a lane's piece. Those of one tile are asked for before the weights are opened: there are registers for them. */
template <int TILES> struct inputs {
    const __half *unit[2]; /* of each group */
    uint32_t T;
    int token, t1;
    uint4 ahead[2][2];

    __device__ __forceinline__ uint4 at(int g, int half, int tile) const
    {
        if (token + CU_FEW_TILE * tile >= t1)
            return make_uint4(0, 0, 0, 0);
        return *(const uint4 *)(unit[g] + ((int64_t)half * T + CU_FEW_TILE * tile) * 8);
    }
    __device__ __forceinline__ void ask()
    {
#pragma unroll
        for (int k = 0; k < 4 && TILES == 1; k++)
            ahead[k / 2][k % 2] = at(k / 2, k % 2, 0);
    }
    __device__ __forceinline__ uint4 take(int g, int half, int tile) const
    {
        return TILES == 1 ? ahead[g][half] : at(g, half, tile);
    }
};

/* sums: those of the activations of each of the lump's groups, for each tile and lane: minima are multiplied with them. */
template <int TILES>
static __device__ __forceinline__ void
multiply(float (*sum)[TILES][4], const uint4 *lump, const struct cu_weight &w, int64_t row0, int p0,
         const uint2 *sums, const struct halves &x, const struct span &s)
{
    int token = s.t0 + (threadIdx.x % 32) / 4;
#pragma unroll 1
    for (int u = 0; u < 2; u++) {
        struct opened o = {};
        struct inputs<TILES> in = {
            {unit_of(x, p0, u, 0, token), unit_of(x, p0, u, 1, token)}, x.T, token, s.t1
        };
        in.ask();
        open(&o, lump, w, row0, p0, u);
        uint32_t m0 = bits_of(o.m[0]), m1 = bits_of(o.m[1]);
        const uint32_t a[4] = {u ? 0 : m0, u ? 0 : m1, u ? m0 : 0, u ? m1 : 0};
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            uint2 b = sums[32 * tile + threadIdx.x % 32];
            mma_f16(sum[SUMS - 1][tile], a, b.x, b.y);
        }
#pragma unroll
        for (int g = 0; g < 2; g++)
            multiply_group<TILES>(sum, o, g, [&](int half, int tile) { return in.take(g, half, tile); });
    }
}

/* Sums of the activations of a warp's lump, once for all rows. */
template <int TILES>
static __device__ __forceinline__ void sum_up(uint2 *to, int p0, const struct halves &x, const struct span &s)
{
    int token = s.t0 + (threadIdx.x % 32) / 4;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++, token += CU_FEW_TILE) {
        float sums[4] = {};
        for (int k = 0; k < 4 && token < s.t1; k++) {
            const __half *unit = unit_of(x, p0, k / 2, k % 2, token);
            sums[k] = sum_of(*(const uint4 *)unit) + sum_of(*(const uint4 *)(unit + (int64_t)x.T * 8));
        }
        to[32 * tile + threadIdx.x % 32] = make_uint2(bits_of(__floats2half2_rn(sums[0], sums[1])),
                                                      bits_of(__floats2half2_rn(sums[2], sums[3])));
    }
}

/* ---- the ring of a warp ---- */

/* Its pieces of a group of 16 rows, then those of the block's next group. */
struct path {
    int first, step, pieces, groups;
};

/* Lumps on their way or there, in the order in which they are taken. */
struct ring {
    uint4 *slots;
    int size, depth, at; /* size: of a slot, in 16 bytes */
    int group, p;        /* what is asked for next; path.groups or more: nothing */
};

static __device__ __forceinline__ uint4 *slot_of(const struct ring &r)
{
    return r.slots + r.at * r.size;
}

/* Asks for the next lump in the present slot and goes on to the slot behind it. */
static __device__ __forceinline__ void ask(struct ring *r, const struct many &m, const struct path &way,
                                           int e)
{
    if (r->group < way.groups) {
        struct rows16 rows = rows_of(m, r->group, e);
        fill(slot_of(*r), m.w[rows.i], rows, r->p);
        r->p += way.step;
        if (r->p >= way.pieces) {
            r->p = way.first;
            r->group += gridDim.x;
        }
    }
    copies_commit(); /* also of nothing: the groups are counted */
    r->at = r->at + 1 == r->depth ? 0 : r->at + 1;
}

/* Until the oldest of the ring's lumps is there. */
static __device__ __forceinline__ void arrived(int depth)
{
    switch (depth) {
    case 1: copies_wait<0>(); break;
    case 2: copies_wait<1>(); break;
    case 3: copies_wait<2>(); break;
    default: copies_wait<MOST_DEPTH - 1>();
    }
    __syncwarp();
}

/* ---- the kernel ---- */

template <int TILES> struct part {
    float of[MOST_WARPS][TILES * CU_FEW_TILE][ROWS + 1];
};

/* A warp's sums over one group of rows. */
template <int TILES>
static __device__ __forceinline__ void inner(struct part<TILES> *part, struct ring *r, const struct many &m,
                                             int group, const struct path &way, const uint2 *sums,
                                             const struct halves &x, const struct span &s)
{
    struct rows16 rows = rows_of(m, group, s.e);
    float sum[SUMS][TILES][4] = {};
    for (int p = way.first; p < way.pieces; p += way.step) {
        arrived(r->depth);
        multiply<TILES>(sum, slot_of(*r), m.w[rows.i], rows.row0, p, sums + p / STEP * 32 * TILES, x, s);
        __syncwarp();
        ask(r, m, way, s.e);
    }
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            part->of[threadIdx.x / 32][tile * CU_FEW_TILE + lane % 4 * 2 + k % 2][lane / 4 + k / 2 * 8] =
                sum[0][tile][k] + sum[1][tile][k];
}

/* Sums over the warps, in their order. */
template <int TILES>
static __device__ __forceinline__ void put(const struct part<TILES> &part, const struct many &m, int group,
                                           const struct span &s)
{
    int i = weight_of(m, group);
    int64_t row0 = (int64_t)(group - m.first[i]) * ROWS, n_out = m.w[i].n_out;
    for (int k = threadIdx.x; k < TILES * CU_FEW_TILE * ROWS; k += blockDim.x) {
        int t = k / ROWS, row = k % ROWS;
        float y = 0;
        for (int j = 0; j < (int)blockDim.x / 32; j++)
            y += part.of[j][t][row];
        if (s.t0 + t < s.t1 && row0 + row < n_out)
            m.y[i][(s.t0 + t) * n_out + row0 + row] = y;
    }
}

static inline __host__ __device__ int sums_bytes(int n_in, int tiles)
{
    return (n_in + 255) / 256 * tiles * 32 * (int)sizeof(uint2);
}

/* In shared memory: sums of the activations, then the warps' rings. */
template <int TILES>
__global__ void __launch_bounds__(32 * MOST_WARPS, AT_ONCE)
    coded_few(const __grid_constant__ struct many m, const struct halves x,
              const __grid_constant__ struct spans all, int depth)
{
    CU_SHARED(uint4, room, 16);
    __shared__ struct part<TILES> part;
    int warp = threadIdx.x / 32, size = lump_bytes(m.w[0].type) / 16;
    struct path way = {warp * STEP, (int)blockDim.x / 32 * STEP, ((int)x.n + 31) / 32, m.first[m.n]};
    struct ring r = {room + sums_bytes((int)x.n, TILES) / 16 + warp * depth * size, size,     depth, 0,
                     way.first < way.pieces ? (int)blockIdx.x : way.groups,         way.first};
    if (!all.first) /* what is read first is on its way before the kernel ahead has ended */
        for (int k = 0; k < depth; k++)
            ask(&r, m, way, 0);
    cu_wait();
    const struct span s = span_of(all, blockIdx.y, TILES * CU_FEW_TILE);
    if (s.t0 >= s.t1) {
        copies_wait<0>();
        return;
    }
    for (int k = 0; all.first && k < depth; k++)
        ask(&r, m, way, s.e);
    uint2 *sums = (uint2 *)room;
    for (int p = way.first; p < way.pieces; p += way.step)
        sum_up<TILES>(sums + p / STEP * 32 * TILES, p, x, s);
    __syncwarp();
    for (int group = blockIdx.x; group < way.groups; group += gridDim.x) {
        inner<TILES>(&part, &r, m, group, way, sums, x, s);
        __syncthreads();
        put<TILES>(part, m, group, s);
        __syncthreads();
    }
}

/* false: rows are too long for the shared memory. */
template <int TILES> static bool launch(struct cu *c, struct many *m, const struct spans *s)
{
    int64_t n_in = m->w[0].n_in;
    /* Short rows leave nothing to do for more warps. The choice is the weight's, so that it is not a neighbour's. */
    unsigned warps = n_in <= 4 * STEP * 32 ? 4 : MOST_WARPS, groups = share_out(m, ROWS),
             tiles = most_tiles(*s, TILES * CU_FEW_TILE),
             at_once = AT_ONCE * MOST_WARPS / warps * (unsigned)c->multiprocessors;
    int own = sums_bytes((int)n_in, TILES), each = (int)warps * lump_bytes(m->w[0].type),
        fixed = (int)sizeof(struct part<TILES>) + 1024 + own,
        share = (c->shared_all / (int)(AT_ONCE * MOST_WARPS / warps) - fixed) / each,
        most = (c->shared_block - fixed) / each, depth = share > MOST_DEPTH ? MOST_DEPTH : share;
    if (depth < 1)
        depth = most < 1 ? 0 : 1;
    if (depth == 0)
        return false;
    int shared = own + depth * each;
    auto kernel = coded_few<TILES>;
    cu_launch(c, "coded_few", kernel, dim3(s->first ? groups : cu_even(groups, at_once), tiles), 32 * warps,
              (size_t)shared, *m, cu_halves(c, s->T, n_in), *s, depth);
    return true;
}

/* Two tiles at most: a lane has no registers for more. */
void cu_coded_few(struct cu *c, struct many *m, const struct spans *s)
{
    bool one = s->T <= CU_FEW_TILE || s->first;
    if ((one || !launch<2>(c, m, s)) && !launch<1>(c, m, s))
        cu_ok(c, cudaErrorInvalidValue, "a weight with rows too long for the shared memory");
}
