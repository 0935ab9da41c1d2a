#include "cu_priv.cuh"

/* Mixture of experts: the choice, the order, and the moving of rows; the experts' matmuls are in matmul.cu. */

#define TILE_ROWS 128 /* rows of x in a tile of matmul.cu */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* A warp for each row. The best is taken out n_used times; on ties the lower number, NaN last. */
__global__ void route(int32_t *ids, float *w, const float *logits, struct be_route r)
{
    cu_wait();
    __shared__ float score[BE_EXPERTS_MAX];
    const float *l = logits + (int64_t)blockIdx.x * r.n_expert;
    int lane = threadIdx.x;
    float max = -INFINITY, sum = 0;
    ids += (int64_t)blockIdx.x * r.n_used;
    w += (int64_t)blockIdx.x * r.n_used;
    for (int e = lane; e < r.n_expert; e += 32)
        max = fmaxf(max, l[e]);
    max = cu_warp_max(max);
    for (int e = lane; e < r.n_expert; e += 32)
        sum += expf(l[e] - max);
    sum = cu_warp_sum(sum);
    for (int e = lane; e < r.n_expert; e += 32) {
        float s = l[e];
        if (r.bias)
            s = (r.sigmoid ? sigmoid(s) : expf(s - max) / sum) + r.bias[e];
        score[e] = isnan(s) ? -INFINITY : s;
    }
    __syncwarp();
    float total = 0;
    for (int j = 0; j < r.n_used; j++) {
        float best = -INFINITY;
        int at = r.n_expert;
        for (int e = lane; e < r.n_expert; e += 32)
            if (!isnan(score[e]) && (at == r.n_expert || score[e] > best)) { /* NaN: taken */
                best = score[e];
                at = e;
            }
        for (int o = 16; o > 0; o >>= 1) {
            float other = __shfl_xor_sync(~0u, best, o);
            int other_at = __shfl_xor_sync(~0u, at, o);
            if (other_at < r.n_expert &&
                (at == r.n_expert || other > best || (other == best && other_at < at))) {
                best = other;
                at = other_at;
            }
        }
        float v = r.sigmoid ? sigmoid(l[at]) : expf(l[at] - max);
        total += v;
        if (lane == 0) {
            ids[j] = at;
            w[j] = v;
            score[at] = NAN;
        }
        __syncwarp();
    }
    if (r.normalize || !r.sigmoid)
        for (int j = lane; j < r.n_used; j += 32)
            w[j] /= r.normalize ? total : sum;
    for (int j = lane; j < r.n_used; j += 32)
        w[j] *= r.scale;
}

void cu_moe_route(struct be *b, int32_t *ids, float *w, const float *logits, const struct be_route *r,
                  int64_t T)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "route", route, dim3((unsigned)T), 32, 0, ids, w, logits, *r);
}

/* One block counts, sums and places. */
__global__ void __launch_bounds__(BE_EXPERTS_MAX)
    sort(int32_t *at, int64_t *first, int32_t *tiles, const int32_t *ids, int n_expert, int64_t n)
{
    cu_wait();
    __shared__ int count[BE_EXPERTS_MAX], rows[BE_EXPERTS_MAX + 1], cuts[BE_EXPERTS_MAX + 1];
    int e = threadIdx.x;
    count[e] = 0;
    __syncthreads();
    for (int64_t p = e; p < n; p += blockDim.x)
        atomicAdd(&count[ids[p]], 1);
    __syncthreads();
    if (e == 0) {
        rows[0] = cuts[0] = 0;
        for (int i = 0; i < n_expert; i++) {
            rows[i + 1] = rows[i] + count[i];
            cuts[i + 1] = cuts[i] + (count[i] + TILE_ROWS - 1) / TILE_ROWS;
        }
    }
    __syncthreads();
    for (int i = e; i <= n_expert; i += blockDim.x) {
        first[i] = rows[i];
        tiles[i] = cuts[i];
    }
    count[e] = e < n_expert ? rows[e] : 0;
    __syncthreads();
    for (int64_t p = e; p < n; p += blockDim.x)
        at[p] = atomicAdd(&count[ids[p]], 1);
}

void cu_moe_sort(struct be *b, int32_t *at, int64_t *first, const int32_t *ids, const struct be_route *r,
                 int64_t T)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "sort", sort, dim3(1), BE_EXPERTS_MAX, 0, at, first, c->expert_tiles, ids, r->n_expert,
              T * r->n_used);
}

__global__ void gather(float *y, const float *x, const int32_t *at, int n_used, int64_t n)
{
    cu_wait();
    const float *from = x + (int64_t)(blockIdx.x / n_used) * n;
    float *to = y + at[blockIdx.x] * n;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        to[i] = from[i];
}

void cu_moe_gather(struct be *b, float *y, const float *x, const int32_t *at, const struct be_route *r,
                   int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "gather", gather, dim3((unsigned)(T * r->n_used)), 128, 0, y, x, at, r->n_used, n);
}

__global__ void combine(float *out, const float *y, const float *w, const int32_t *at, int n_used, int64_t n)
{
    cu_wait();
    int64_t pair = (int64_t)blockIdx.y * n_used, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    if (i >= n)
        return;
    for (int j = 0; j < n_used; j++)
        sum += w[pair + j] * y[at[pair + j] * n + i];
    out[blockIdx.y * n + i] = sum;
}

void cu_moe_combine(struct be *b, float *out, const float *y, const float *w, const int32_t *at,
                    const struct be_route *r, int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "combine", combine, dim3(cu_blocks(n, 256), (unsigned)T), 256, 0, out, y, w, at, r->n_used,
              n);
}
