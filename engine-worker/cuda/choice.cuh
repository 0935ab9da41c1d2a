/* The choice of experts of a row, by a whole block: each thread counts how many are better than its own, so that nothing waits for a
 * best to be taken out. Cheap enough for every block that needs it to make it anew. */
#ifndef CHOICE_CUH
#define CHOICE_CUH

#include "cu_priv.cuh"

struct scores {
    __align__(16) float score[BE_EXPERTS_MAX]; /* what the choice goes by; NaN is the worst */
    float logit[BE_EXPERTS_MAX];
    float max, sum; /* of all logits; of exp(logit - max); where anybody asks */
};

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

static __device__ __forceinline__ bool sum_is_used(const struct be_route &r)
{
    return !r.sigmoid && (r.bias || !r.normalize);
}

/* Reads the logits of a row, which the kernel ahead of the last one may have written. */
static __device__ __forceinline__ void read_scores(struct scores *s, const float *logits,
                                                   const struct be_route &r)
{
    int padded = (r.n_expert + 3) / 4 * 4;
    for (int e = threadIdx.x; e < padded; e += blockDim.x) {
        float l = e < r.n_expert ? __ldcg(logits + e) : -INFINITY;
        s->logit[e] = l;
        s->score[e] = isnan(l) ? -INFINITY : l;
    }
    __syncthreads();
    if (threadIdx.x < 32 && (r.bias || sum_is_used(r))) {
        float max = -INFINITY, sum = 0;
        for (int e = threadIdx.x; e < r.n_expert; e += 32)
            max = fmaxf(max, s->logit[e]);
        max = cu_warp_max(max);
        for (int e = threadIdx.x; e < r.n_expert; e += 32)
            sum += expf(s->logit[e] - max);
        sum = cu_warp_sum(sum);
        for (int e = threadIdx.x; r.bias && e < r.n_expert; e += 32) {
            float l = s->logit[e], v = (r.sigmoid ? sigmoid(l) : expf(l - max) / sum) + r.bias[e];
            s->score[e] = isnan(v) ? -INFINITY : v;
        }
        s->max = max;
        s->sum = sum;
    }
    if (r.bias || sum_is_used(r))
        __syncthreads();
}

/* How many experts are better than e: on ties those with lower numbers. */
static __device__ __forceinline__ int rank_of(const struct scores &s, int n_expert, int e)
{
    float own = s.score[e];
    int better = 0;
    for (int i = 0; i < n_expert; i += 4) {
        float4 v = *(const float4 *)(s.score + i);
        better += v.x > own || (v.x == own && i < e);
        better += v.y > own || (v.y == own && i + 1 < e);
        better += v.z > own || (v.z == own && i + 2 < e);
        better += v.w > own || (v.w == own && i + 3 < e);
    }
    return better;
}

/* The experts of a row, the best first, and their weights, for all threads. */
struct choice {
    int id[BE_USED_MAX];
    float w[BE_USED_MAX];
};

static __device__ __forceinline__ void choose(struct choice *c, const struct scores &s,
                                              const struct be_route &r)
{
    for (int e = threadIdx.x; e < r.n_expert; e += blockDim.x) {
        int rank = rank_of(s, r.n_expert, e);
        if (rank < r.n_used)
            c->id[rank] = e;
    }
    __syncthreads();
    float max = r.bias ? s.max : s.logit[c->id[0]], total = 0;
    for (int j = 0; j < r.n_used; j++) {
        float l = s.logit[c->id[j]];
        total += r.sigmoid ? sigmoid(l) : expf(l - max);
    }
    float by = r.scale / (r.normalize ? total : r.sigmoid ? 1 : s.sum);
    for (int j = threadIdx.x; j < r.n_used; j += blockDim.x) {
        float l = s.logit[c->id[j]];
        c->w[j] = (r.sigmoid ? sigmoid(l) : expf(l - max)) * by;
    }
    __syncthreads();
}

#endif
