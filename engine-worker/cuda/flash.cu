#include "attn.cuh"

/* Attention of many rows at once. A block takes query vectors that share a KV head: rows of one run and heads of one group; each of
 * its warps holds 16 of them, with scores and output in registers, and walks over the keys, the next tile being on its way
 * while one is worked on. Dao, "FlashAttention-2", arXiv:2307.08691. Where there are few blocks, several share the keys of
 * their vectors. */

#define WARPS      4
#define THREADS    (32 * WARPS)
#define SHARE_KEYS 512 /* at least, in a share */
/* Keys in shared memory at a time, and those of them that a warp takes at a time, as its registers allow. */
#define TILE_KEYS(d)    ((d) <= 128 ? 64 : 32)
#define PART_KEYS(d, m) ((d) * (m) <= 128 ? 64 : 32)

static_assert(BE_PAGE % TILE_KEYS(64) == 0, "a tile of keys lies in one page");

struct flash {
    struct be_attn a;
    int log_heads; /* 1 << log_heads heads of a group go together */
    int n_runs;
};

/* Queries, and keys and values of two tiles. */
static constexpr int shared_bytes(int d, int m)
{
    return (16 * m * WARPS * d + 2 * 2 * TILE_KEYS(d) * (d + 8)) * (int)sizeof(__half);
}

/* The rows of a block: row0 .. row0 + n - 1 of a run. n 0: there is nothing left. */
struct rows_here {
    struct be_attn_run run;
    int64_t row0;
    int n;
};

/* The last rows of a run, which see the most keys, come first. */
static __device__ struct rows_here find_rows(const struct be_attn_run *runs, int n_runs, int each)
{
    int64_t tile = blockIdx.x;
    for (int i = 0; i < n_runs; i++) {
        int64_t tiles = (runs[i].n_rows + each - 1) / each;
        if (tile < tiles) {
            int64_t row0 = (tiles - 1 - tile) * each, left = runs[i].n_rows - row0;
            return {runs[i], runs[i].row0 + row0, (int)(left < each ? left : each)};
        }
        tile -= tiles;
    }
    return {{}, 0, 0};
}

/* M: a warp's vectors, in sixteens. */
template <int D, int M>
__global__ void __launch_bounds__(THREADS, 2)
    flash(float *out, struct shares to, const float *q, struct flash f, const struct be_attn_run *runs)
{
    constexpr int TILE = TILE_KEYS(D), SLOT = 2 * TILE * (D + 8), PART = PART_KEYS(D, M), OWN = 16 * M;
    CU_SHARED(unsigned char, shared, 16);
    cu_wait();
    const struct be_attn &a = f.a;
    int group = a.n_head / a.n_kv_head, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int head0 = blockIdx.y << f.log_heads, kv = head0 / group;
    const struct rows_here here = find_rows(runs, f.n_runs, WARPS * OWN >> f.log_heads);
    if (here.n == 0)
        return;
    int32_t pos0 = here.run.pos0 + (int32_t)(here.row0 - here.run.row0), last = pos0 + here.n - 1;
    int32_t first = a.window > 0 && pos0 >= a.window ? pos0 - a.window + 1 : 0;
    /* vector v of the block: row v >> log_heads, head: the rest; those of the warp are of rows row0 .. row1 */
    int v0 = warp * OWN + lane / 4, row0 = warp * OWN >> f.log_heads,
        row1 = (warp * OWN + OWN - 1) >> f.log_heads;
    int32_t tile = first / TILE, each = (last / TILE - tile) / to.n + 1;
    tile += (int32_t)blockIdx.z * each;
    int32_t n_tiles = last / TILE + 1 - tile < each ? last / TILE + 1 - tile : each;
    uint4 *qs = (uint4 *)shared + warp * M * (D / 16) * 32; /* [M][D / 16][32] */
    __half *slots = (__half *)((uint4 *)shared + WARPS * M * (D / 16) * 32);
    auto fetch = [&](int i) {
        int32_t key = (tile + i) * TILE;
        const uint8_t *page = here.run.pages[key / BE_PAGE];
        int64_t in_page = ((int64_t)kv * BE_PAGE + key % BE_PAGE) * D;
        __half *keys = slots + i % 2 * SLOT;
        int low = first - key, n = last + 1 - first;
        fetch_rows<D, TILE, THREADS>(keys, (const uint16_t *)(page + a.k_at) + in_page, threadIdx.x, low, n);
        fetch_rows<D, TILE, THREADS>(keys + SLOT / 2, (const uint16_t *)(page + a.v_at) + in_page,
                                     threadIdx.x, low, n);
    };
    if (n_tiles > 0)
        fetch(0);
    copies_commit();
    int32_t vector0 = (int32_t)here.row0 * a.n_head + head0, n_rows = here.n;
    /* of the batch; -1: there is none */
    auto vector = [&](int v) {
        int row = v >> f.log_heads;
        return row < n_rows ? vector0 + row * a.n_head + v - (row << f.log_heads) : -1;
    };
    auto query = [&](int v) { return vector(v) < 0 ? NULL : q + (int64_t)vector(v) * D; };
#pragma unroll
    for (int m = 0; m < M; m++)
        store_queries<D>(qs + m * (D / 16) * 32, query(v0 + 16 * m), query(v0 + 16 * m + 8), a.scale, 0, 1);
    float o[M][D / 8][4] = {}, max[M][2], sum[M][2] = {};
#pragma unroll
    for (int m = 0; m < M; m++)
        max[m][0] = max[m][1] = -INFINITY;
    for (int i = 0; i < n_tiles; i++) {
        int32_t key0 = (tile + i) * TILE;
        copies_wait<0>();
        __syncthreads(); /* this tile is there, and nobody works on the one before it any more */
        if (i + 1 < n_tiles)
            fetch(i + 1);
        copies_commit();
        if (row0 >= n_rows)
            continue; /* for this warp there is nothing to do */
        const __half *keys = slots + i % 2 * SLOT;
#pragma unroll 1
        for (; keys < slots + i % 2 * SLOT + TILE * (D + 8); keys += PART * (D + 8), key0 += PART) {
            float s[M][PART / 8][4];
            if (key0 > pos0 + row1)
                break;
            scores<D, M, PART / 8>(s, qs, keys);
            bool all = key0 + PART - 1 <= pos0 + row0 && (a.window == 0 || key0 > pos0 + row1 - a.window);
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (a.softcap > 0)
                    cap_scores(s[m], a.softcap);
                if (!all) {
                    int v = v0 + 16 * m;
                    const int32_t high[2] = {pos0 + (v >> f.log_heads), pos0 + ((v + 8) >> f.log_heads)};
                    const int32_t low[2] = {a.window > 0 ? high[0] - a.window + 1 : 0,
                                            a.window > 0 ? high[1] - a.window + 1 : 0};
                    mask_scores(s[m], key0, low, high);
                }
                online_softmax(s[m], o[m], max[m], sum[m]);
            }
            add_values<D, M, PART / 8>(o, s, keys + SLOT / 2);
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            sum[m][h] = vector_sum(sum[m][h]);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t v = vector(v0 + 16 * m + 8 * h), at = v * to.n + blockIdx.z;
            if (v < 0)
                continue;
            float *row = to.n > 1 ? to.out + at * D : out + v * D;
            float by = to.n > 1 ? 1 : __fdividef(1, sum[m][h]);
            if (to.n > 1 && lane % 4 == 0)
                to.state[at] = make_float2(max[m][h], sum[m][h]);
#pragma unroll
            for (int j = 0; j < D / 8; j++)
                *(float2 *)(row + j * 8 + lane % 4 * 2) =
                    make_float2(o[m][j][2 * h] * by, o[m][j][2 * h + 1] * by);
        }
}

template <int D, int M>
static void launch(struct cu *c, float *out, const float *q, const struct flash *f,
                   const struct be_rows *rows, int64_t blocks)
{
    const int each = 16 * M * WARPS >> f->log_heads;
    /* at most so many tiles of rows */
    dim3 grid((unsigned)(rows->T / each + rows->n_runs), (unsigned)(f->a.n_head >> f->log_heads));
    struct shares to = {NULL, NULL, 1};
    int64_t n = 2 * (int64_t)c->multiprocessors / blocks;
    int32_t seen = rows->max_pos + 1, in_window = f->a.window + (int32_t)rows->T;
    if (f->a.window > 0 && seen > in_window)
        seen = in_window;
    n = n > seen / SHARE_KEYS ? seen / SHARE_KEYS : n;
    grid.z = (unsigned)(n < 1 || M > 1 ? 1 : n);
    if (grid.z > 1 && !cu_shares(c, &to, rows->T * f->a.n_head, (int)grid.z, D))
        return;
    cu_launch(c, "flash", flash<D, M>, grid, THREADS, (size_t)shared_bytes(D, M), out, to, q, *f, rows->runs);
    if (to.n > 1)
        cu_merge(c, out, &to, &f->a, rows->T);
}

/* 32 vectors to a warp take half the reads of keys, of both kinds; 16 leave fewer multiprocessors idle. */
template <int D>
static void launch(struct cu *c, float *out, const float *q, const struct flash *f,
                   const struct be_rows *rows)
{
    auto blocks = [&](int m) {
        int64_t each = 16 * m * WARPS >> f->log_heads;
        return (rows->T + each - 1) / each * (f->a.n_head >> f->log_heads);
    };
    int most = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device);
    if constexpr (D <= 128) {
        int64_t n = blocks(2), sm = c->multiprocessors, waves = (n + sm - 1) / sm;
        if (10 * n >= 7 * waves * sm && shared_bytes(D, 2) <= most) {
            launch<D, 2>(c, out, q, f, rows, n);
            return;
        }
    }
    launch<D, 1>(c, out, q, f, rows, blocks(1));
}

bool cu_flash(struct cu *c, float *out, const float *q, const struct be_attn *a, const struct be_rows *rows)
{
    struct flash f = {*a, 0, rows->n_runs};
    int group = a->n_head / a->n_kv_head;
    if (c->sm < 80 || rows->T < CU_FLASH_ROWS || rows->T < 4 * (int64_t)rows->n_runs || a->d != a->dv)
        return false;
    while (f.log_heads < 4 && group % (2 << f.log_heads) == 0)
        f.log_heads++;
    switch (a->d) {
    case 64: launch<64>(c, out, q, &f, rows); return true;
    case 80: launch<80>(c, out, q, &f, rows); return true;
    case 96: launch<96>(c, out, q, &f, rows); return true;
    case 128: launch<128>(c, out, q, &f, rows); return true;
    case 256: launch<256>(c, out, q, &f, rows); return true;
    default: return false;
    }
}
