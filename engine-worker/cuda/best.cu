#include "cu_priv.cuh"

/* The largest values of rows, by a bitonic network (Batcher, "Sorting networks and their applications", AFIPS 1968): a warp holds
 * BE_BEST keys, two in each lane, sorts its share of the row and merges; so do the warps of a block, and what the
 * blocks found goes through the same kernel again. */

#define WARPS (BE_BEST_SEGMENT / (2 * BE_BEST))
static_assert(BE_BEST == 64 && WARPS == 32, "two keys for each lane, and a list for each warp of a block");

/* Orders as the values do, lower ids first among equals; 0 is nothing, and what is not finite comes before all. */
static __device__ __forceinline__ uint64_t key_of(float v, uint32_t id)
{
    uint32_t bits = __float_as_uint(v == 0 ? 0.0f : v), up = bits >> 31 ? ~bits : bits | 0x80000000u;
    if ((bits & 0x7f800000u) == 0x7f800000u)
        up = ~0u;
    return (uint64_t)up << 32 | (uint32_t)~id;
}

/* Keys 0 to 31 lie in v[0], the others in v[1]. Blocks of `size` keys are sorted in alternating directions, the first one
 * descending. */
static __device__ __forceinline__ void exchange(uint64_t v[2], int lane, int by, int size)
{
    if (by == 32) {
        uint64_t a = v[0], b = v[1];
        v[0] = a > b ? a : b;
        v[1] = a > b ? b : a;
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = 32 * r + lane;
        uint64_t other = __shfl_xor_sync(~0u, v[r], by);
        bool larger = ((i & by) == 0) == ((i & size) == 0);
        v[r] = (other > v[r]) == larger ? other : v[r];
    }
}

static __device__ __forceinline__ void sort(uint64_t v[2], int lane)
{
#pragma unroll
    for (int size = 2; size <= BE_BEST; size *= 2)
#pragma unroll
        for (int by = size / 2; by > 0; by /= 2)
            exchange(v, lane, by, size);
}

/* The best of v, which descends, and of another list, which ascends. */
static __device__ __forceinline__ void merge(uint64_t v[2], uint64_t low, uint64_t high, int lane)
{
    v[0] = v[0] > low ? v[0] : low;
    v[1] = v[1] > high ? v[1] : high;
#pragma unroll
    for (int by = BE_BEST / 2; by > 0; by /= 2)
        exchange(v, lane, by, BE_BEST);
}

struct search {
    const float *x; /* [T][n_x] */
    int64_t n_x;
    const uint64_t *keys; /* [T][n]; NULL: those of x itself */
    int64_t n;
    uint64_t *out; /* [T][segments][BE_BEST]; NULL: there is one segment, and its best are the result */
    uint32_t *ids;
    float *values;
};

static __device__ __forceinline__ uint64_t key_at(const struct search &s, int64_t t, int64_t i)
{
    return i >= s.n ? 0 : s.keys ? s.keys[t * s.n + i] : key_of(s.x[t * s.n_x + i], (uint32_t)i);
}

__global__ void __launch_bounds__(32 * WARPS) best_of(struct search s)
{
    __shared__ uint64_t lists[WARPS][BE_BEST];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t t = blockIdx.y, from = (int64_t)blockIdx.x * BE_BEST_SEGMENT + warp * 2 * BE_BEST + lane;
    cu_wait();
    uint64_t v[2] = {key_at(s, t, from), key_at(s, t, from + 32)},
             w[2] = {key_at(s, t, from + 64), key_at(s, t, from + 96)};
    sort(v, lane);
    sort(w, lane);
    merge(v, __shfl_sync(~0u, w[1], 31 - lane), __shfl_sync(~0u, w[0], 31 - lane), lane);
    for (int by = WARPS / 2; by > 0; by /= 2) {
        if (warp >= by && warp < 2 * by) {
            lists[warp][lane] = v[0];
            lists[warp][lane + 32] = v[1];
        }
        __syncthreads();
        if (warp < by)
            merge(v, lists[warp + by][63 - lane], lists[warp + by][31 - lane], lane);
    }
    if (warp > 0)
        return;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int i = 32 * r + lane;
        if (s.out) {
            s.out[(t * gridDim.x + blockIdx.x) * BE_BEST + i] = v[r];
        } else if (v[r] > 0) {
            uint32_t id = ~(uint32_t)v[r];
            s.ids[t * BE_BEST + i] = id;
            s.values[t * BE_BEST + i] = s.x[t * s.n_x + id];
        }
    }
}

void cu_best(struct be *b, uint32_t *ids, float *values, void *room, const float *x, int64_t T, int64_t n)
{
    struct cu *c = cu_of(b);
    struct search s = {x, n, NULL, n, (uint64_t *)room, ids, values};
    if (!cu_ready(c, T * n))
        return;
    for (bool more = true; more;) {
        unsigned segments = cu_blocks(s.n, BE_BEST_SEGMENT);
        more = segments > 1;
        if (!more)
            s.out = NULL;
        cu_launch(c, "best_of", best_of, dim3(segments, (unsigned)T), 32 * WARPS, 0, s);
        s.keys = s.out;
        s.n = (int64_t)segments * BE_BEST;
        s.out += T * s.n;
    }
}
