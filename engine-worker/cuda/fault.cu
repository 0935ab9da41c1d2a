#include "fault.h"

#include <cuda_runtime.h>

/* A kernel of this process, on a stream of its own, in the context that the engine's module uses, too. */

__global__ void write_nowhere(int *p)
{
    *p = 1;
}

__global__ void spin(volatile int *never)
{
    while (*never == 0) {
    }
}

static void fill()
{
    void *p;
    for (size_t n = (size_t)1 << 34; n >= (1u << 20);)
        if (cudaMalloc(&p, n) != cudaSuccess)
            n /= 2;
    cudaGetLastError();
}

/* As many blocks as the device can hold, so that no other kernel finds a place. */
static void occupy()
{
    int *never;
    cudaStream_t s;
    if (cudaMalloc((void **)&never, sizeof *never) == cudaSuccess &&
        cudaMemset(never, 0, sizeof *never) == cudaSuccess &&
        cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess)
        spin<<<4096, 1024, 0, s>>>(never);
}

extern "C" void fault_inject(enum fault f)
{
    switch (f) {
    case FAULT_LOST: write_nowhere<<<1, 1>>>((int *)16); break;
    case FAULT_FULL: fill(); break;
    case FAULT_SPIN: occupy(); break;
    default: break;
    }
}

extern "C" const struct gpu_module *fault_module(void)
{
    return NULL;
}
