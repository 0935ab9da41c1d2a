#include "attn.cuh"

/* Attention of many rows at once. A block takes query vectors that share a KV head: rows of one run and heads of one group; each of
 * its warps holds 16 of them, with scores and output in registers, and walks over the keys, the next tile being on its way
 * while one is worked on. Dao, "FlashAttention-2", arXiv:2307.08691. Where there are few blocks, several share the keys of
 * their vectors. */

#define LARGE_WARPS 8
#define SMALL_WARPS 4
#define SHARE_KEYS  512 /* at least, in a share */
/* Keys at a time; a page holds whole tiles. */
#define TILE_KEYS(d) ((d) <= 128 ? 64 : 32)

static_assert(BE_PAGE % TILE_KEYS(64) == 0, "a tile of keys lies in one page");

struct flash {
    struct be_attn a;
    int heads; /* of a group that go together: a power of two that divides the group */
    int n_runs;
};

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

template <int D, int W>
__global__ void __launch_bounds__(32 * W, W == SMALL_WARPS ? 2 : 1)
    flash(float *out, struct shares to, const float *q, struct flash f, const struct be_attn_run *runs)
{
    constexpr int TILE = TILE_KEYS(D), SLOT = 2 * TILE * (D + 8), NT = TILE / 8;
    extern __shared__ __align__(16) unsigned char shared[];
    cu_wait();
    const struct be_attn &a = f.a;
    int group = a.n_head / a.n_kv_head, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int head0 = blockIdx.y * f.heads, kv = head0 / group, share = blockIdx.z;
    const struct rows_here here = find_rows(runs, f.n_runs, 16 * W / f.heads);
    if (here.n == 0)
        return;
    /* vector v: row v / heads, head v % heads */
    int32_t pos0 = here.run.pos0 + (int32_t)(here.row0 - here.run.row0), last = pos0 + here.n - 1;
    int32_t first = a.window > 0 && pos0 >= a.window ? pos0 - a.window + 1 : 0;
    int32_t low[2], high[2];
    int64_t vector[2]; /* of the batch; -1: there is none */
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int v = warp * 16 + lane / 4 + 8 * h, row = v / f.heads;
        high[h] = pos0 + row;
        low[h] = a.window > 0 ? high[h] - a.window + 1 : 0;
        vector[h] = row < here.n ? (here.row0 + row) * a.n_head + head0 + v % f.heads : -1;
    }
    /* of the warp's vectors: the rows of the first and the last */
    int32_t high0 = pos0 + warp * 16 / f.heads, high1 = pos0 + (warp * 16 + 15) / f.heads;
    int32_t low1 = a.window > 0 ? high1 - a.window + 1 : 0;
    int32_t tile = first / TILE, each = (last / TILE - tile) / to.n + 1;
    tile += share * each;
    int32_t n_tiles = last / TILE + 1 - tile < each ? last / TILE + 1 - tile : each;
    auto fetch = [&](int i) {
        int32_t key = (tile + i) * TILE;
        const uint8_t *page = here.run.pages[key / BE_PAGE];
        int64_t in_page = ((int64_t)kv * BE_PAGE + key % BE_PAGE) * D;
        __half *keys = (__half *)shared + i % 2 * SLOT;
        int low_row = first - key, high_row = last + 1 - key;
        fetch_rows<D, TILE, 32 * W>(keys, (const uint16_t *)(page + a.k_at) + in_page, threadIdx.x, low_row,
                                    high_row);
        fetch_rows<D, TILE, 32 * W>(keys + SLOT / 2, (const uint16_t *)(page + a.v_at) + in_page, threadIdx.x,
                                    low_row, high_row);
    };
    if (n_tiles > 0)
        fetch(0);
    copies_commit();
    uint32_t qa[D / 16][4];
    load_queries<D>(qa, vector[0] < 0 ? NULL : q + vector[0] * D, vector[1] < 0 ? NULL : q + vector[1] * D,
                    a.scale);
    float o[D / 8][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int i = 0; i < n_tiles; i++) {
        int32_t key0 = (tile + i) * TILE;
        copies_wait<0>();
        __syncthreads(); /* this tile is there, and nobody works on the one before it any more */
        if (i + 1 < n_tiles)
            fetch(i + 1);
        copies_commit();
        if (high0 > last || key0 > high1)
            continue; /* for this warp there is nothing to do */
        const __half *keys = (const __half *)shared + i % 2 * SLOT;
        float s[NT][4];
        scores<D, NT>(s, qa, keys);
        if (a.softcap > 0)
            cap_scores(s, a.softcap);
        if (key0 + TILE - 1 > high0 || key0 < low1)
            mask_scores(s, key0, low, high);
        online_softmax(s, o, max, sum);
        add_values<D, NT>(o, s, keys + SLOT / 2);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] = vector_sum(sum[h]);
        if (vector[h] < 0)
            continue;
        int64_t at = vector[h] * to.n + share;
        float *row = to.n > 1 ? to.out + at * D : out + vector[h] * D;
        float by = to.n > 1 ? 1 : 1 / sum[h];
        if (to.n > 1 && lane % 4 == 0)
            to.state[at] = make_float2(max[h], sum[h]);
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *(float2 *)(row + j * 8 + lane % 4 * 2) = make_float2(o[j][2 * h] * by, o[j][2 * h + 1] * by);
    }
}

template <int D, int W>
static void launch(struct cu *c, float *out, const float *q, const struct flash *f,
                   const struct be_rows *rows)
{
    const int shared = 2 * 2 * TILE_KEYS(D) * (D + 8) * (int)sizeof(__half), each = 16 * W / f->heads;
    /* at most so many tiles of rows */
    dim3 grid((unsigned)(rows->T / each + rows->n_runs), (unsigned)(f->a.n_head / f->heads));
    struct shares to = {NULL, NULL, 1};
    if (W == SMALL_WARPS) {
        int64_t blocks = (rows->T + each - 1) / each * grid.y, n = 2 * (int64_t)c->multiprocessors / blocks;
        int32_t seen = rows->max_pos + 1, in_window = f->a.window + (int32_t)rows->T;
        if (f->a.window > 0 && seen > in_window)
            seen = in_window;
        n = n > seen / SHARE_KEYS ? seen / SHARE_KEYS : n;
        grid.z = (unsigned)(n < 1 ? 1 : n);
        if (n > 1 && !cu_shares(c, &to, rows->T * f->a.n_head, (int)n, D))
            return;
    }
    cu_ok(c, cudaFuncSetAttribute(flash<D, W>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "shared memory");
    cu_launch(c, "flash", flash<D, W>, grid, 32 * W, shared, out, to, q, *f, rows->runs);
    if (to.n > 1)
        cu_merge(c, out, &to, &f->a, rows->T);
}

/* Large blocks read keys half as often; small ones leave fewer multiprocessors idle. */
template <int D>
static void launch(struct cu *c, float *out, const float *q, const struct flash *f,
                   const struct be_rows *rows)
{
    int64_t each = 16 * LARGE_WARPS / f->heads, sm = c->multiprocessors;
    int64_t blocks = (rows->T + each - 1) / each * (f->a.n_head / f->heads), waves = (blocks + sm - 1) / sm;
    if (10 * blocks >= 7 * waves * sm)
        launch<D, LARGE_WARPS>(c, out, q, f, rows);
    else
        launch<D, SMALL_WARPS>(c, out, q, f, rows);
}

bool cu_flash(struct cu *c, float *out, const float *q, const struct be_attn *a, const struct be_rows *rows)
{
    struct flash f = {*a, 1, rows->n_runs};
    int group = a->n_head / a->n_kv_head;
    if (c->sm < 80 || rows->T < CU_FLASH_ROWS || rows->T < 4 * (int64_t)rows->n_runs || a->d != a->dv)
        return false;
    while (group % (2 * f.heads) == 0 && 2 * f.heads <= 16)
        f.heads *= 2;
    switch (a->d) {
    case 64: launch<64>(c, out, q, &f, rows); return true;
    case 80: launch<80>(c, out, q, &f, rows); return true;
    case 96: launch<96>(c, out, q, &f, rows); return true;
    case 128: launch<128>(c, out, q, &f, rows); return true;
    case 256: launch<256>(c, out, q, &f, rows); return true;
    default: return false;
    }
}
