#include "cu_priv.cuh"

/* Attention of many rows at once, on f16 tensor cores. A block takes 64 query vectors that share a KV head: rows of one run and
 * heads of one group; each of its four warps holds 16 of them, with scores and output in registers, and walks over the keys.
 * Dao, "FlashAttention-2", arXiv:2307.08691. */

#define VECTORS 64
#define TILE    64 /* keys at a time; a page holds whole tiles */
#define THREADS 128

static_assert(BE_PAGE % TILE == 0, "a tile of keys lies in one page");

struct flash {
    struct be_attn a;
    int heads; /* of a group that go together: a power of two that divides the group */
    int n_runs;
};

/* c += a b: 16 x 16 times 16 x 8. */
static __device__ __forceinline__ void mma_f16(float *c, const uint32_t *a, uint32_t b0, uint32_t b1)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/* Four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_matrices(uint32_t *to, const __half *from)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(from);
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(at));
}

static __device__ __forceinline__ uint32_t pack(float x, float y)
{
    __half2 h = __floats2half2_rn(x, y);
    return *(const uint32_t *)&h;
}

/* The rows of a block: row0 .. row0 + n - 1 of a run. n 0: there is nothing left. */
struct rows_here {
    struct be_attn_run run;
    int64_t row0;
    int n;
};

static __device__ struct rows_here find_rows(const struct be_attn_run *runs, int n_runs, int each)
{
    int64_t tile = blockIdx.x;
    for (int i = 0; i < n_runs; i++) {
        int64_t tiles = (runs[i].n_rows + each - 1) / each;
        if (tile < tiles) {
            int64_t left = runs[i].n_rows - tile * each;
            return {runs[i], runs[i].row0 + tile * each, (int)(left < each ? left : each)};
        }
        tile -= tiles;
    }
    return {{}, 0, 0};
}

/* D halves of each of n rows; the rest of TILE rows are zeros. */
template <int D> static __device__ __forceinline__ void load_tile(__half *to, const uint16_t *from, int n)
{
    for (int i = threadIdx.x; i < TILE * (D / 8); i += THREADS) {
        int r = i / (D / 8), k = i % (D / 8) * 8;
        uint4 v = {0, 0, 0, 0};
        if (r < n)
            v = *(const uint4 *)(from + (int64_t)r * D + k);
        *(uint4 *)(to + r * (D + 8) + k) = v;
    }
}

/* Scores of a warp's 16 vectors with the keys of a tile. */
template <int D>
static __device__ __forceinline__ void scores(float s[TILE / 8][4], const __half *q, const __half *keys)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < TILE / 8; j++)
        s[j][0] = s[j][1] = s[j][2] = s[j][3] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t a[4];
        load_matrices<false>(a, q + (lane % 16) * (D + 8) + k + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < TILE / 8; j++) {
            const __half *key = keys + (j * 8 + lane / 4) * (D + 8) + k + lane % 4 * 2;
            mma_f16(s[j], a, *(const uint32_t *)key, *(const uint32_t *)(key + 8));
        }
    }
}

/* Adds weights times values. */
template <int D>
static __device__ __forceinline__ void add_values(float o[D / 8][4], const float p[TILE / 8][4],
                                                  const __half *values)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < TILE / 16; k++) {
        uint32_t a[4] = {pack(p[2 * k][0], p[2 * k][1]), pack(p[2 * k][2], p[2 * k][3]),
                         pack(p[2 * k + 1][0], p[2 * k + 1][1]), pack(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int j = 0; j < D / 16; j++) {
            uint32_t b[4];
            load_matrices<true>(b, values + (k * 16 + lane % 16) * (D + 8) + j * 16 + lane / 16 * 8);
            mma_f16(o[2 * j], a, b[0], b[1]);
            mma_f16(o[2 * j + 1], a, b[2], b[3]);
        }
    }
}

/* Scores to weights, with the largest score and the sum of two rows kept; the output so far is brought to the new scale. */
template <int D>
static __device__ __forceinline__ void online_softmax(float s[TILE / 8][4], float o[D / 8][4], float max[2],
                                                      float sum[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) { /* row lane / 4, and 8 rows on */
        float top = max[h];
#pragma unroll
        for (int j = 0; j < TILE / 8; j++)
            top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float from = top == -INFINITY ? 0 : top; /* nothing seen so far: all weights are 0 */
        float old = expf(max[h] - from), add = 0;
#pragma unroll
        for (int j = 0; j < TILE / 8; j++)
#pragma unroll
            for (int k = 2 * h; k < 2 * h + 2; k++)
                add += s[j][k] = expf(s[j][k] - from);
        max[h] = top;
        sum[h] = sum[h] * old + add;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            o[j][2 * h] *= old;
            o[j][2 * h + 1] *= old;
        }
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS)
    flash(float *out, const float *q, struct flash f, const struct be_attn_run *runs)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __half *qs = (__half *)shared, *ks = qs + VECTORS * (D + 8), *vs = ks + TILE * (D + 8);
    const struct be_attn &a = f.a;
    int group = a.n_head / a.n_kv_head, each = VECTORS / f.heads, lane = threadIdx.x % 32,
        warp = threadIdx.x / 32;
    int head0 = blockIdx.y * f.heads, kv = head0 / group;
    cu_wait();
    const struct rows_here here = find_rows(runs, f.n_runs, each);
    if (here.n == 0)
        return;
    for (int i = threadIdx.x; i < VECTORS * D; i += THREADS) { /* vector v: row v / heads, head v % heads */
        int v = i / D, row = v / f.heads;
        float x =
            row < here.n ? q[((here.row0 + row) * a.n_head + head0 + v % f.heads) * D + i % D] * a.scale : 0;
        qs[v * (D + 8) + i % D] = __float2half_rn(x);
    }
    int32_t pos0 = here.run.pos0 + (int32_t)(here.row0 - here.run.row0), last = pos0 + here.n - 1;
    int32_t first = a.window > 0 && pos0 >= a.window ? pos0 - a.window + 1 : 0;
    int v0 = warp * 16 + lane / 4;
    int32_t at[2] = {pos0 + v0 / f.heads, pos0 + (v0 + 8) / f.heads};
    float o[D / 8][4] = {}, s[TILE / 8][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int32_t key0 = first / TILE * TILE; key0 <= last; key0 += TILE) {
        const uint8_t *page = here.run.pages[key0 / BE_PAGE];
        int64_t in_page = ((int64_t)kv * BE_PAGE + key0 % BE_PAGE) * D;
        __syncthreads();
        load_tile<D>(ks, (const uint16_t *)(page + a.k_at) + in_page, last + 1 - key0);
        load_tile<D>(vs, (const uint16_t *)(page + a.v_at) + in_page, last + 1 - key0);
        __syncthreads();
        scores<D>(s, qs + warp * 16 * (D + 8), ks);
#pragma unroll
        for (int j = 0; j < TILE / 8; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int32_t key = key0 + j * 8 + lane % 4 * 2 + k % 2, p = at[k / 2];
                bool seen = key <= p && (a.window == 0 || key > p - a.window);
                float x = a.softcap > 0 ? a.softcap * tanhf(s[j][k] / a.softcap) : s[j][k];
                s[j][k] = seen ? x : -INFINITY;
            }
        online_softmax<D>(s, o, max, sum);
        add_values<D>(o, s, vs);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        int v = v0 + 8 * h, row = v / f.heads;
        if (row >= here.n)
            continue;
        float *to = out + ((here.row0 + row) * a.n_head + head0 + v % f.heads) * D + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *(float2 *)(to + j * 8) = make_float2(o[j][2 * h] / sum[h], o[j][2 * h + 1] / sum[h]);
    }
}

template <int D>
static void launch(struct cu *c, float *out, const float *q, const struct flash *f,
                   const struct be_rows *rows)
{
    const int shared = (VECTORS + 2 * TILE) * (D + 8) * (int)sizeof(__half), each = VECTORS / f->heads;
    dim3 grid((unsigned)(rows->T / each + rows->n_runs),
              (unsigned)(f->a.n_head / f->heads)); /* at most so many tiles */
    cu_ok(c, cudaFuncSetAttribute(flash<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "shared memory");
    cu_launch(c, "flash", flash<D>, grid, THREADS, shared, out, q, *f, rows->runs);
}

bool cu_flash(struct cu *c, float *out, const float *q, const struct be_attn *a, const struct be_rows *rows)
{
    struct flash f = {*a, 1, rows->n_runs};
    int group = a->n_head / a->n_kv_head;
    if (c->sm < 80 || rows->T < CU_FLASH_ROWS || a->d != a->dv)
        return false;
    while (group % (2 * f.heads) == 0 && 2 * f.heads <= 16)
        f.heads *= 2;
    switch (a->d) {
    case 64: launch<64>(c, out, q, &f, rows); return true;
    case 128: launch<128>(c, out, q, &f, rows); return true;
    case 256: launch<256>(c, out, q, &f, rows); return true;
    default: return false;
    }
}
