/* What the files of the CUDA backend share. */
#ifndef CU_PRIV_CUH
#define CU_PRIV_CUH

extern "C" { /* headers of C code */
#include "backend.h"
#include "err.h"
#include "gguf.h"
}
#include "cu.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

struct cu {
    int device, sm, multiprocessors;
    cudaStream_t stream;
    cudaError_t failed; /* the first error; nothing is queued after it */
    const char *where;
    int64_t max_rows, max_in;
    /* activations of the present matmul: codes [T][n_in], scales and scaled sums of 16 [T][n_in / 32], [T][n_in / 16] */
    int8_t *xq;
    float *xd, *xs;
    __half *xh; /* [T][n_in rounded up to 128]: the same as f16, each row divided by xn[t], a power of two */
    float *xn;  /* [T] */
    float *partial; /* attention: results of one share of the keys */
    size_t partial_floats;
};

#define CU_WARP 32

/* Notes an error of the last launch or call. */
static inline bool cu_ok(struct cu *c, cudaError_t e, const char *where)
{
    if (c->failed == cudaSuccess && e != cudaSuccess) {
        c->failed = e;
        c->where = where;
    }
    return c->failed == cudaSuccess;
}
#define CU_LAUNCHED(c, where) cu_ok(c, cudaGetLastError(), where)

static __device__ __forceinline__ float cu_warp_sum(float v)
{
    for (int o = 16; o > 0; o >>= 1)
        v += __shfl_xor_sync(~0u, v, o);
    return v;
}

static __device__ __forceinline__ float cu_warp_max(float v)
{
    for (int o = 16; o > 0; o >>= 1)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, o));
    return v;
}

/* Sum over a block of at most 1024 threads; every thread gets it. */
static __device__ inline float cu_block_sum(float v)
{
    __shared__ float part[33];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    v = cu_warp_sum(v);
    if (lane == 0)
        part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        float s = lane < warps ? part[lane] : 0;
        s = cu_warp_sum(s);
        if (lane == 0)
            part[32] = s;
    }
    __syncthreads();
    v = part[32];
    __syncthreads();
    return v;
}

#endif
