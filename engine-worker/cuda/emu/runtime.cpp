#include "cuda_runtime.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

/* A device with few multiprocessors, so that blocks have more than one turn, and with little memory, so that it runs out. EMU_SM=90 in
 * the environment: it has what sm_90 has. */
#define MULTIPROCESSORS 4
#define SHARED_BLOCK    (is_hopper() ? 227 << 10 : 99 << 10)
#define SHARED_ALL      (SHARED_BLOCK + (1 << 10))
#define MEMORY          ((size_t)8 << 30)

static bool is_hopper()
{
    const char *sm = getenv("EMU_SM");
    return sm && !strcmp(sm, "90");
}

struct emu_graph {
    std::vector<emu_work> works;
};
struct emu_stream {
    emu_graph *recorded; /* NULL: nothing is recorded */
};

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess                 ? "no error"
           : e == cudaErrorInvalidValue     ? "invalid argument"
           : e == cudaErrorMemoryAllocation ? "out of memory"
                                            : "?";
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    if (device != 0)
        return cudaErrorInvalidValue;
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated");
    p->major = is_hopper() ? 9 : 8;
    p->multiProcessorCount = MULTIPROCESSORS;
    p->totalGlobalMem = MEMORY;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = MEMORY;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int)
{
    *out = what == cudaDevAttrMaxSharedMemoryPerBlockOptin ? SHARED_BLOCK : SHARED_ALL;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    *out = bytes < MEMORY ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t emu_do(cudaStream_t s, emu_work work)
{
    if (s != NULL && s->recorded != NULL)
        s->recorded->works.push_back(work);
    else
        work();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    *out = new emu_stream{};
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, int)
{
    s->recorded = new emu_graph;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
    *out = s->recorded;
    s->recorded = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long)
{
    *out = new emu_graph(*g);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t)
{
    for (emu_work &w : g->works)
        w();
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g)
{
    delete g;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}
