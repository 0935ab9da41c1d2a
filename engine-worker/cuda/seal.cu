#include "cu_priv.cuh"
#include "seal.h"

/* Seals of pages (backend/seal.h): sums over their words. */

/* *out += the sum of a block's share; *out was zeroed ahead of it. */
__global__ void seal(unsigned long long *out, const uint64_t *p, int64_t words, uint64_t salt)
{
    __shared__ unsigned long long sum;
    if (threadIdx.x == 0)
        sum = 0;
    __syncthreads();
    cu_wait();
    unsigned long long mine = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words;
         i += (int64_t)gridDim.x * blockDim.x)
        mine += seal_word(p[i], (uint64_t)i, salt);
    for (int o = 16; o > 0; o >>= 1)
        mine += __shfl_xor_sync(~0u, mine, o);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(out, sum);
}

void cu_seal(struct be *b, uint64_t *out, const void *p, size_t bytes, uint64_t salt)
{
    struct cu *c = cu_of(b);
    int64_t words = (int64_t)(bytes / sizeof(uint64_t));
    if (!cu_ready(c, words) || !cu_ok(c, cudaMemsetAsync(out, 0, sizeof *out, c->stream), "seal"))
        return;
    int64_t blocks = (words + 1023) / 1024, most = 4 * (int64_t)c->multiprocessors;
    cu_launch(c, "seal", seal, dim3((unsigned)(blocks < most ? blocks : most)), 512, 0,
              (unsigned long long *)out, (const uint64_t *)p, words, salt);
}
