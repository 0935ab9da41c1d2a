#include "attn.cuh"

#include <string.h>

/* Attention over pages of few rows, in two steps: every block takes one query row, one KV head, some of its query heads and a
 * share of the row's keys, and leaves a largest score, a sum of weights and an output that is not divided yet; then the shares
 * are merged. Where one share is enough its block leaves the result itself. Flash-decoding: Dao et al. 2023; the online softmax
 * is that of Milakov and Gimelshein, arXiv:1805.02867. */

#define THREADS     128
#define WARPS       (THREADS / 32)
#define MOST_SHARES 128 /* of a row */

/* A block for each KV head of each row. */
__global__ void kv_write(struct be_attn a, const struct be_attn_run *runs, const int32_t *row_run,
                         const float *k, const float *v)
{
    cu_wait();
    int64_t t = blockIdx.x, h = blockIdx.y, head = t * a.n_kv_head + h;
    const struct be_attn_run r = runs[row_run[t]];
    int32_t pos = r.pos0 + (int32_t)(t - r.row0);
    uint8_t *page = r.pages[pos / BE_PAGE];
    uint16_t *kp = (uint16_t *)(page + a.k_at) + (h * BE_PAGE + pos % BE_PAGE) * a.d;
    uint16_t *vp = (uint16_t *)(page + a.v_at) + (h * BE_PAGE + pos % BE_PAGE) * a.dv;
    for (int i = threadIdx.x; i < a.d; i += blockDim.x)
        kp[i] = __half_as_ushort(__float2half_rn(k[head * a.d + i]));
    for (int i = threadIdx.x; i < a.dv; i += blockDim.x)
        vp[i] = __half_as_ushort(__float2half_rn(v[head * a.dv + i]));
}

void cu_kv_write(struct be *b, const struct be_attn *a, const struct be_rows *rows, const float *k,
                 const float *v)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, rows->T))
        return;
    cu_launch(c, "kv_write", kv_write, dim3((unsigned)rows->T, (unsigned)a->n_kv_head), 128, 0, *a,
              rows->runs, rows->row_run, k, v);
}

/* ---- shares ---- */

bool cu_shares(struct cu *c, struct shares *s, int64_t vectors, int n, int dv)
{
    size_t states = ((size_t)(vectors * n) + 1) / 2 * 4, need = states + (size_t)(vectors * n) * (size_t)dv;
    if (need > c->partial_floats) {
        size_t room = (size_t)1 << 20;
        while (room < need)
            room *= 2;
        cu_ok(c, cudaStreamSynchronize(c->stream), "attention");
        cu_graphs_free(c); /* what is recorded has the old address */
        memset(c->graphs, 0, sizeof c->graphs);
        cudaFree(c->partial);
        c->partial = NULL;
        c->partial_floats = 0;
        if (!cu_ok(c, cudaMalloc(&c->partial, room * sizeof(float)), "work space of attention"))
            return false;
        c->partial_floats = room;
    }
    *s = {(float2 *)c->partial, c->partial + states, n};
    return true;
}

/* A block for each vector. A warp takes every WARPS-th share, a lane four columns at a time. */
template <bool LEAVE>
__global__ void __launch_bounds__(THREADS) merge(float *out, struct shares s, int dv, struct halves left)
{
    __shared__ float4 part[WARPS][BE_ATTN_MAX_D / 4];
    cu_wait();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float2 *state = s.state + (int64_t)blockIdx.x * s.n;
    const float *from = s.out + (int64_t)blockIdx.x * s.n * dv;
    float top = -INFINITY, total = 0;
    for (int i = lane; i < s.n; i += 32)
        top = fmaxf(top, state[i].x);
    top = cu_warp_max(top);
    for (int i = lane; i < s.n; i += 32) {
        float2 here = state[i];
        total += here.y == 0 ? 0 : here.y * share_weight(here.x, top); /* a share may be empty */
    }
    total = cu_warp_sum(total);
    for (int col = lane * 4; col < dv; col += 128) {
        float4 v = {0, 0, 0, 0};
#pragma unroll 8
        for (int i = warp; i < s.n; i += WARPS) { /* no branch, so that many loads are on their way */
            float2 here = state[i];
            float4 x = *(const float4 *)(from + (int64_t)i * dv + col);
            float w = here.y == 0 ? 0 : share_weight(here.x, top);
            v.x += w == 0 ? 0 : w * x.x; /* what an empty share has not written may be anything */
            v.y += w == 0 ? 0 : w * x.y;
            v.z += w == 0 ? 0 : w * x.z;
            v.w += w == 0 ? 0 : w * x.w;
        }
        part[warp][col / 4] = v;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < dv; i += THREADS) {
        float v = 0;
        for (int w = 0; w < WARPS; w++)
            v += ((const float *)part[w])[i];
        v = __fdividef(v, total);
        out[(int64_t)blockIdx.x * dv + i] = v;
        if constexpr (LEAVE)
            leave_half(left, (int64_t)blockIdx.x * dv + i, v);
    }
}

/* Whether the result's rows leave their halves. */
static bool leaves(const struct cu *c, const struct be_attn *a, int64_t T)
{
    return cu_can_leave(c, T, (int64_t)a->n_head * a->dv);
}

void cu_merge(struct cu *c, float *out, const struct shares *s, const struct be_attn *a, int64_t T)
{
    dim3 vectors((unsigned)(T * a->n_head));
    if (!leaves(c, a, T)) {
        cu_launch(c, "merge", merge<false>, vectors, THREADS, 0, out, *s, a->dv,
                  cu_halves(c, T, (int64_t)a->n_head * a->dv));
        return;
    }
    cu_launch(c, "merge", merge<true>, vectors, THREADS, 0, out, *s, a->dv,
              cu_halves(c, T, (int64_t)a->n_head * a->dv));
    cu_left(c, out, T, (int64_t)a->n_head * a->dv);
}

/* How many shares the keys of a row make when a share is of at least one chunk and there are to be `want` blocks in all. */
static int count_shares(const struct be_attn *a, int32_t max_pos, int chunk, int64_t blocks, int64_t want)
{
    int64_t chunks = max_pos / chunk + 1;
    if (a->window > 0 && chunks > a->window / chunk + 2)
        chunks = a->window / chunk + 2;
    int64_t n = blocks >= want ? 1 : want / blocks;
    n = n > chunks ? chunks : n;
    n = n > MOST_SHARES ? MOST_SHARES : n;
    int64_t each = (chunks + n - 1) / n;
    return (int)((chunks + each - 1) / each);
}

/* The keys that row t sees, and the chunks of them that are share blockIdx.z of n. */
struct keys_here {
    const uint8_t *const *pages;
    int32_t first, pos;
    int32_t fresh; /* the first key that this step writes */
    int32_t chunk, n_chunks;
};

static __device__ __forceinline__ struct keys_here
find_keys(const struct be_attn &a, int chunk, int n, const struct be_attn_run *runs, const int32_t *row_run)
{
    int64_t t = blockIdx.x;
    const struct be_attn_run r = runs[row_run[t]];
    struct keys_here k;
    k.pages = r.pages;
    k.fresh = r.pos0;
    k.pos = r.pos0 + (int32_t)(t - r.row0);
    k.first = a.window > 0 && k.pos >= a.window ? k.pos - a.window + 1 : 0;
    int32_t chunk0 = k.first / chunk, last = k.pos / chunk, each = (last - chunk0) / n + 1;
    k.chunk = chunk0 + (int32_t)blockIdx.z * each;
    k.n_chunks = last + 1 - k.chunk < each ? last + 1 - k.chunk : each;
    return k;
}

/* ---- on tensor cores ---- */

#define VECTORS    16           /* query heads of a block */
#define WARP_KEYS  16           /* that a warp takes at a time, with its own softmax */
#define CHUNK      (WARPS * 16) /* keys of a block at a time; a page holds whole chunks */
#define MOST_SLOTS 4

static_assert(BE_PAGE % CHUNK == 0, "a chunk of keys lies in one page");

struct decoding {
    struct be_attn a;
    int tiles; /* blocks that share the heads of a KV head */
    int slots; /* chunks that shared memory has room for; all but one are on their way */
    bool leave;
};

/* Waits for the oldest of `slots` groups of copies. */
static __device__ __forceinline__ void wait_oldest(int slots)
{
    switch (slots) {
    case 1: copies_wait<0>(); break;
    case 2: copies_wait<1>(); break;
    case 3: copies_wait<2>(); break;
    default: copies_wait<3>(); break;
    }
}

/* Each warp has a ring of slots of its own and waits for nobody before the end, when the four results become one. */
template <int D, int DV>
__global__ void __launch_bounds__(THREADS)
    decode(float *out, struct shares to, const float *q, struct decoding s, const struct be_attn_run *runs,
           const int32_t *row_run, struct halves left)
{
    constexpr int SLOT = WARP_KEYS * (D + 8 + DV + 8), SUMS = DV + 8;
    static_assert(D >= DV, "the four outputs fit where one slot of each warp was");
    CU_SHARED(unsigned char, shared, 16);
    __shared__ float2 state[WARPS][VECTORS];
    const struct be_attn &a = s.a;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, group = a.n_head / a.n_kv_head;
    int kv = blockIdx.y / s.tiles, h0 = blockIdx.y % s.tiles * VECTORS, share = blockIdx.z;
    int heads = group - h0 < VECTORS ? group - h0 : VECTORS;
    int64_t vector = (int64_t)blockIdx.x * a.n_head + kv * group + h0;
    const struct keys_here here = find_keys(a, CHUNK, to.n, runs, row_run);
    if (here.n_chunks <= 0) {
        cu_wait();
        if (threadIdx.x < heads)
            to.state[(vector + threadIdx.x) * to.n + share] = make_float2(-INFINITY, 0);
        return;
    }
    uint4 *qs = (uint4 *)shared; /* [D / 16][32] */
    __half *ring = (__half *)(qs + D / 16 * 32) + warp * s.slots * SLOT;
    int32_t key0 = here.chunk * CHUNK + warp * WARP_KEYS;
    auto fetch = [&](int i, int slot) {
        int32_t key = key0 + i * CHUNK;
        const uint8_t *page = here.pages[key / BE_PAGE];
        int64_t row = (int64_t)kv * BE_PAGE + key % BE_PAGE;
        __half *keys = ring + slot * SLOT;
        int low = here.first - key, n = here.pos + 1 - here.first;
        fetch_rows<D, WARP_KEYS, 32>(keys, (const uint16_t *)(page + a.k_at) + row * D, lane, low, n);
        fetch_rows<DV, WARP_KEYS, 32>(keys + WARP_KEYS * (D + 8),
                                      (const uint16_t *)(page + a.v_at) + row * DV, lane, low, n);
    };
    /* Tables and keys of earlier steps are nobody's to write now, so they need not wait. */
    bool waits = true;
    for (int i = 0; i < s.slots - 1; i++) {
        if (waits && (i >= here.n_chunks || key0 + i * CHUNK + WARP_KEYS > here.fresh)) {
            cu_wait();
            waits = false;
        }
        if (i < here.n_chunks)
            fetch(i, i);
        copies_commit();
    }
    if (waits)
        cu_wait();
    const float *q0 = q + (vector + g) * D;
    store_queries<D>(qs, g < heads ? q0 : NULL, g + 8 < heads ? q0 + 8 * D : NULL, a.scale, warp, WARPS);
    __syncthreads();
    const int32_t low[2] = {here.first, here.first}, high[2] = {here.pos, here.pos};
    float o[1][DV / 8][4] = {}, max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    int slot = 0, last = s.slots - 1; /* of this chunk, and of the one just before it in the ring */
    for (int i = 0; i < here.n_chunks; i++) {
        if (i + s.slots - 1 < here.n_chunks)
            fetch(i + s.slots - 1, last);
        copies_commit();
        wait_oldest(s.slots);
        __syncwarp();
        const __half *keys = ring + slot * SLOT;
        float x[1][2][4];
        scores<D, 1, 2>(x, qs, keys);
        if (a.softcap > 0)
            cap_scores(x[0], a.softcap);
        mask_scores(x[0], key0 + i * CHUNK, low, high);
        online_softmax(x[0], o[0], max, sum);
        add_values<DV, 1, 2>(o, x, keys + WARP_KEYS * (D + 8));
        __syncwarp();
        last = slot;
        slot = slot + 1 == s.slots ? 0 : slot + 1;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] = vector_sum(sum[h]);
        if (lane % 4 == 0)
            state[warp][g + 8 * h] = make_float2(max[h], sum[h]);
    }
    __syncthreads(); /* from here on the rings are the four outputs [WARPS][VECTORS][SUMS] */
    float *sums = (float *)shared;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int v = g + 8 * h;
        if (v >= heads)
            continue;
        float top = fmaxf(fmaxf(state[0][v].x, state[1][v].x), fmaxf(state[2][v].x, state[3][v].x));
        float by = share_weight(max[h], top);
#pragma unroll
        for (int j = 0; j < DV / 8; j++)
            *(float2 *)(sums + (warp * VECTORS + v) * SUMS + j * 8 + lane % 4 * 2) =
                make_float2(o[0][j][2 * h] * by, o[0][j][2 * h + 1] * by);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < heads * DV; i += THREADS) {
        int v = i / DV, col = i % DV;
        float top = -INFINITY, total = 0, x = 0;
        for (int w = 0; w < WARPS; w++)
            top = fmaxf(top, state[w][v].x);
        for (int w = 0; w < WARPS; w++) {
            total += state[w][v].y * share_weight(state[w][v].x, top);
            x += sums[(w * VECTORS + v) * SUMS + col];
        }
        if (to.n > 1) {
            to.out[((vector + v) * to.n + share) * DV + col] = x;
            if (col == 0)
                to.state[(vector + v) * to.n + share] = make_float2(top, total);
            continue;
        }
        x = __fdividef(x, total);
        out[vector * DV + i] = x;
        if (s.leave)
            leave_half(left, vector * DV + i, x);
    }
}

/* Slots of shared memory: two blocks on a multiprocessor if each can have two slots. Shares: as many blocks as run at once. */
template <int D, int DV>
static bool decode_rows(struct cu *c, float *out, const float *q, const struct be_attn *a,
                        const struct be_rows *rows)
{
    constexpr int SLOT = CHUNK * (D + 8 + DV + 8) * (int)sizeof(__half),
                  QUERIES = 16 * D * (int)sizeof(__half),
                  FIXED = QUERIES + 2048; /* what a block takes besides */
    int most = 0, all = 0, blocks_each = 2, group = a->n_head / a->n_kv_head;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device);
    cudaDeviceGetAttribute(&all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, c->device);
    struct decoding s = {*a, (group + VECTORS - 1) / VECTORS, (all / 2 - FIXED) / SLOT, false};
    if (s.slots < 2) {
        blocks_each = 1;
        s.slots = (most - FIXED) / SLOT;
    }
    if (s.slots < 1)
        return false;
    s.slots = s.slots > MOST_SLOTS ? MOST_SLOTS : s.slots;
    int64_t T = rows->T, blocks = T * a->n_kv_head * s.tiles;
    /* up to a page of keys a second kernel costs more than it saves */
    int n = rows->max_pos < BE_PAGE
                ? 1
                : count_shares(a, rows->max_pos, CHUNK, blocks, (int64_t)blocks_each * c->multiprocessors);
    struct shares to = {NULL, NULL, 1};
    if (n > 1 && !cu_shares(c, &to, T * a->n_head, n, DV))
        return true;
    s.leave = n == 1 && leaves(c, a, T);
    dim3 grid((unsigned)T, (unsigned)(a->n_kv_head * s.tiles), (unsigned)n);
    cu_launch(c, "decode", decode<D, DV>, grid, THREADS, (size_t)(QUERIES + s.slots * SLOT), out, to, q, s,
              rows->runs, rows->row_run, cu_halves(c, T, (int64_t)a->n_head * a->dv));
    if (n > 1)
        cu_merge(c, out, &to, a, T);
    else if (s.leave)
        cu_left(c, out, T, (int64_t)a->n_head * DV);
    return true;
}

/* False: not on this GPU, or not heads of this size. */
static bool on_tensor_cores(struct cu *c, float *out, const float *q, const struct be_attn *a,
                            const struct be_rows *rows)
{
    if (c->sm < 75)
        return false;
    if (a->d == 192 && a->dv == 128)
        return decode_rows<192, 128>(c, out, q, a, rows);
    if (a->d != a->dv)
        return false;
    switch (a->d) {
    case 64: return decode_rows<64, 64>(c, out, q, a, rows);
    case 80: return decode_rows<80, 80>(c, out, q, a, rows);
    case 96: return decode_rows<96, 96>(c, out, q, a, rows);
    case 128: return decode_rows<128, 128>(c, out, q, a, rows);
    case 192: return decode_rows<192, 192>(c, out, q, a, rows);
    case 256: return decode_rows<256, 256>(c, out, q, a, rows);
    default: return false;
    }
}

/* ---- heads of any size, any GPU ---- */

#define HEADS 8  /* query heads that a block serves */
#define KEYS  32 /* keys in shared memory at a time */

/* Copies rows low..high - 1 of KEYS, of `width` halves, into rows of `stride`; the others become zeros, since what lies there may
 * be anything. */
static __device__ void load_rows(__half *to, int stride, const uint16_t *from, int low, int high, int width)
{
    int chunks = width / 8;
    for (int i = threadIdx.x; i < KEYS * chunks; i += THREADS) {
        int r = i / chunks, k = i % chunks * 8;
        uint4 v = {0, 0, 0, 0};
        if (r >= low && r < high)
            v = *(const uint4 *)(from + (int64_t)r * width + k);
        *(uint4 *)(to + r * stride + k) = v;
    }
}

/* groups: blocks that share the heads of a KV head. CPT: output columns of a thread, dv / THREADS rounded up. */
template <int CPT>
__global__ void __launch_bounds__(THREADS)
    attend(struct shares to, const float *q, struct be_attn a, int groups, const struct be_attn_run *runs,
           const int32_t *row_run)
{
    cu_wait();
    CU_SHARED(unsigned char, shared, 16);
    int group = a.n_head / a.n_kv_head, sk = a.d + 8, sv = a.dv + 8;
    float *qs = (float *)shared;          /* [HEADS][d] */
    float *p = qs + HEADS * a.d;          /* [HEADS][KEYS] */
    float *old = p + HEADS * KEYS;        /* [HEADS] what the output so far is multiplied with */
    __half *ks = (__half *)(old + HEADS); /* [KEYS][sk] */
    __half *vs = ks + KEYS * sk;          /* [KEYS][sv] */
    int64_t t = blockIdx.x;
    int kv = blockIdx.y / groups, h0 = blockIdx.y % groups * HEADS, share = blockIdx.z;
    int heads = group - h0 < HEADS ? group - h0 : HEADS;
    int64_t vector = t * a.n_head + kv * group + h0;
    const struct keys_here here = find_keys(a, KEYS, to.n, runs, row_run);
    float out[HEADS][CPT], max = -INFINITY,
                           sum = 0; /* max and sum: of head `warp` and of head `warp + 4` in turn below */
    float max2 = -INFINITY, sum2 = 0;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < CPT; i++)
            out[h][i] = 0;
    for (int i = threadIdx.x; i < HEADS * a.d; i += THREADS)
        qs[i] = i < heads * a.d ? q[vector * a.d + i] * a.scale : 0;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i0 = 0; i0 < here.n_chunks; i0++) {
        int32_t key0 = (here.chunk + i0) * KEYS;
        const uint8_t *page = here.pages[key0 / BE_PAGE];
        int low = here.first - key0, high = here.pos + 1 - key0;
        const uint16_t *kp =
            (const uint16_t *)(page + a.k_at) + ((int64_t)kv * BE_PAGE + key0 % BE_PAGE) * a.d;
        const uint16_t *vp =
            (const uint16_t *)(page + a.v_at) + ((int64_t)kv * BE_PAGE + key0 % BE_PAGE) * a.dv;
        __syncthreads();
        load_rows(ks, sk, kp, low, high, a.d);
        load_rows(vs, sv, vp, low, high, a.dv);
        __syncthreads();
        /* scores: lane = key, a warp takes heads warp and warp + 4 */
        float d0 = 0, d1 = 0;
        for (int i = 0; i < a.d; i += 2) {
            float2 k = __half22float2(*(const __half2 *)(ks + lane * sk + i));
            float2 x = *(const float2 *)(qs + warp * a.d + i),
                   y = *(const float2 *)(qs + (warp + 4) * a.d + i);
            d0 += k.x * x.x + k.y * x.y;
            d1 += k.x * y.x + k.y * y.y;
        }
        bool seen = key0 + lane >= here.first && key0 + lane <= here.pos;
        if (a.softcap > 0) {
            d0 = a.softcap * tanhf(d0 / a.softcap);
            d1 = a.softcap * tanhf(d1 / a.softcap);
        }
        d0 = seen ? d0 : -INFINITY;
        d1 = seen ? d1 : -INFINITY;
        float top0 = fmaxf(max, cu_warp_max(d0)), top1 = fmaxf(max2, cu_warp_max(d1));
        float w0 = seen ? expf(d0 - top0) : 0, w1 = seen ? expf(d1 - top1) : 0;
        float o0 = expf(max - top0), o1 = expf(max2 - top1);
        sum = sum * o0 + cu_warp_sum(w0);
        sum2 = sum2 * o1 + cu_warp_sum(w1);
        max = top0;
        max2 = top1;
        p[warp * KEYS + lane] = w0;
        p[(warp + 4) * KEYS + lane] = w1;
        if (lane == 0) {
            old[warp] = o0;
            old[warp + 4] = o1;
        }
        __syncthreads();
#pragma unroll
        for (int h = 0; h < HEADS; h++)
#pragma unroll
            for (int i = 0; i < CPT; i++)
                out[h][i] *= old[h];
        for (int j = 0; j < KEYS; j++)
#pragma unroll
            for (int i = 0; i < CPT; i++) {
                int col = threadIdx.x + i * THREADS;
                float v = col < a.dv ? __half2float(vs[j * sv + col]) : 0;
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    out[h][i] += p[h * KEYS + j] * v;
            }
    }
    if (lane == 0) {
        if (warp < heads)
            to.state[(vector + warp) * to.n + share] = make_float2(max, sum);
        if (warp + 4 < heads)
            to.state[(vector + warp + 4) * to.n + share] = make_float2(max2, sum2);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int i = 0; i < CPT; i++) {
            int col = threadIdx.x + i * THREADS;
            if (h < heads && col < a.dv)
                to.out[((vector + h) * to.n + share) * a.dv + col] = out[h][i];
        }
}

template <int CPT>
static void attend_rows(struct cu *c, float *out, const float *q, const struct be_attn *a,
                        const struct be_rows *rows)
{
    int64_t T = rows->T;
    int groups = (a->n_head / a->n_kv_head + HEADS - 1) / HEADS;
    struct shares to;
    int n = count_shares(a, rows->max_pos, KEYS, T * a->n_kv_head * groups, 6 * (int64_t)c->multiprocessors);
    if (!cu_shares(c, &to, T * a->n_head, n, a->dv))
        return;
    size_t shared = sizeof(float) * (size_t)(HEADS * a->d + HEADS * KEYS + HEADS) +
                    sizeof(__half) * (size_t)(KEYS * (a->d + 8) + KEYS * (a->dv + 8));
    dim3 grid((unsigned)T, (unsigned)(a->n_kv_head * groups), (unsigned)n);
    cu_launch(c, "attend", attend<CPT>, grid, THREADS, shared, to, q, *a, groups, rows->runs, rows->row_run);
    cu_merge(c, out, &to, a, T);
}

void cu_attention(struct be *b, float *out, const float *q, const struct be_attn *a,
                  const struct be_rows *rows)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, rows->T) || cu_flash(c, out, q, a, rows) || on_tensor_cores(c, out, q, a, rows))
        return;
    if (a->dv <= THREADS)
        attend_rows<1>(c, out, q, a, rows);
    else if (a->dv <= 2 * THREADS)
        attend_rows<2>(c, out, q, a, rows);
    else
        attend_rows<4>(c, out, q, a, rows);
}
