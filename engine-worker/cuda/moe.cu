#include "choice.cuh"
#include "halves.cuh"

/* Mixture of experts: the choice, the order, and the moving of rows; the experts' matmuls are in matmul.cu, and
 * everything of few rows in experts.cu. */

/* A block for each row. */
__global__ void route(int32_t *ids, float *w, const float *logits, const __grid_constant__ struct be_route r)
{
    __shared__ struct scores scores;
    __shared__ struct choice c;
    cu_wait();
    read_scores(&scores, logits + (int64_t)blockIdx.x * r.n_expert, r);
    choose(&c, scores, r);
    for (int j = threadIdx.x; j < r.n_used; j += blockDim.x) {
        ids[(int64_t)blockIdx.x * r.n_used + j] = c.id[j];
        w[(int64_t)blockIdx.x * r.n_used + j] = c.w[j];
    }
}

void cu_moe_route(struct be *b, int32_t *ids, float *w, const float *logits, const struct be_route *r,
                  int64_t T)
{
    struct cu *c = cu_of(b);
    if (!cu_ready(c, T))
        return;
    cu_launch(c, "route", route, dim3((unsigned)T), 128, 0, ids, w, logits, *r);
}

/* Sums of all before and of oneself, over a block of BE_EXPERTS_MAX threads. */
static __device__ int running_sum(int v)
{
    __shared__ int of_warp[BE_EXPERTS_MAX / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int o = 1; o < 32; o *= 2) {
        int before = __shfl_up_sync(~0u, v, o);
        v += lane >= o ? before : 0;
    }
    __syncthreads(); /* those of the sum before have been read */
    if (lane == 31)
        of_warp[warp] = v;
    __syncthreads();
    for (int i = 0; i < warp; i++)
        v += of_warp[i];
    return v;
}

/* One block counts, sums and places. few, many: first tiles of the experts. */
__global__ void __launch_bounds__(BE_EXPERTS_MAX)
    sort(int32_t *at, int64_t *first, int32_t *few, int32_t *many, const int32_t *ids, int n_expert,
         int64_t n)
{
    cu_wait();
    __shared__ int count[BE_EXPERTS_MAX];
    int e = threadIdx.x;
    count[e] = 0;
    __syncthreads();
    for (int64_t p = e; p < n; p += blockDim.x)
        atomicAdd(&count[ids[p]], 1);
    __syncthreads();
    int mine = count[e], rows = running_sum(mine);
    int eights = running_sum((mine + CU_FEW_TILE - 1) / CU_FEW_TILE);
    int tiles = running_sum((mine + CU_TILE - 1) / CU_TILE);
    if (e < n_expert) {
        first[e + 1] = rows;
        few[e + 1] = eights;
        many[e + 1] = tiles;
    }
    if (e == 0)
        first[0] = few[0] = many[0] = 0;
    count[e] = rows - mine;
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
    cu_launch(c, "sort", sort, dim3(1), BE_EXPERTS_MAX, 0, at, first, c->expert_tiles[0], c->expert_tiles[1],
              ids, r->n_expert, T * r->n_used);
}

template <bool LEAVE>
__global__ void gather(float *y, const float *x, const int32_t *at, int n_used, int64_t n, struct halves left)
{
    cu_wait();
    const float *from = x + (int64_t)(blockIdx.x / n_used) * n;
    int64_t row = at[blockIdx.x];
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        y[row * n + i] = from[i];
        if constexpr (LEAVE)
            leave_half(left, row * n + i, from[i]);
    }
}

void cu_moe_gather(struct be *b, float *y, const float *x, const int32_t *at, const struct be_route *r,
                   int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    int64_t pairs = T * r->n_used;
    if (!cu_ready(c, T))
        return;
    bool leave = cu_can_leave(c, pairs, n);
    cu_launch(c, "gather", leave ? gather<true> : gather<false>, dim3((unsigned)pairs), 256, 0, y, x, at,
              r->n_used, n, cu_halves(c, pairs, n));
    if (leave)
        cu_left(c, y, pairs, n);
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
