#include "cu_priv.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cu_count(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    return n;
}

static int lost(struct vt_err *err, int device, cudaError_t e, const char *what)
{
    return vt_fail(err, e == cudaErrorMemoryAllocation ? VT_E_DEVICE_MEM : VT_E_DEVICE_LOST, "GPU %d: %s: %s",
                   device, what, cudaGetErrorString(e));
}

int cu_facts(struct cu_facts *out, int device, struct vt_err *err)
{
    struct cudaDeviceProp p;
    size_t free_bytes, total;
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e == cudaSuccess)
        e = cudaSetDevice(device);
    if (e == cudaSuccess)
        e = cudaMemGetInfo(&free_bytes, &total);
    if (e != cudaSuccess)
        return lost(err, device, e, "its properties");
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%.127s", p.name);
    const unsigned char *u = (const unsigned char *)p.uuid.bytes;
    int at = 0;
    for (int i = 0; i < 16; i++)
        at += snprintf(out->uuid + at, sizeof out->uuid - (size_t)at, "%02x%s", u[i],
                       i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
    out->sm = 10 * p.major + p.minor;
    out->multiprocessors = p.multiProcessorCount;
    out->free = free_bytes;
    out->total = total;
    return 0;
}

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

int cu_new(struct cu **out, int device, int64_t max_rows, int64_t max_in, struct vt_err *err)
{
    struct cu_facts facts;
    if (cu_facts(&facts, device, err) < 0)
        return -1;
    struct cu *c = (struct cu *)calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_E_NOMEM, "out of memory for GPU %d", device);
    c->device = device;
    c->sm = facts.sm;
    c->multiprocessors = facts.multiprocessors;
    c->max_rows = max_rows;
    c->max_in = up(max_in, 128);
    size_t values = (size_t)(max_rows * c->max_in);
    cudaError_t e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        lost(err, device, e, "a stream");
        free(c);
        return -1;
    }
    if (cu_alloc(c, (void **)&c->xq, values, err) < 0 ||
        cu_alloc(c, (void **)&c->xd, values / 32 * sizeof(float), err) < 0 ||
        cu_alloc(c, (void **)&c->xs, values / 16 * sizeof(float), err) < 0 ||
        cu_alloc(c, (void **)&c->xh, values * sizeof(__half), err) < 0 ||
        cu_alloc(c, (void **)&c->xn, (size_t)max_rows * sizeof(float), err) < 0) {
        cu_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void cu_free(struct cu *c)
{
    if (!c)
        return;
    cudaStreamSynchronize(c->stream);
    cudaFree(c->xq);
    cudaFree(c->xd);
    cudaFree(c->xs);
    cudaFree(c->xh);
    cudaFree(c->xn);
    cudaFree(c->partial);
    cudaStreamDestroy(c->stream);
    free(c);
}

int cu_alloc(struct cu *c, void **out, size_t bytes, struct vt_err *err)
{
    size_t free_bytes = 0, total = 0;
    *out = NULL;
    cudaError_t e = cudaMalloc(out, bytes > 0 ? bytes : 1);
    if (e == cudaSuccess)
        return 0;
    *out = NULL;
    cudaGetLastError();
    if (e != cudaErrorMemoryAllocation)
        return lost(err, c->device, e, "memory");
    cudaMemGetInfo(&free_bytes, &total);
    return vt_fail(err, VT_E_DEVICE_MEM, "GPU %d: %.1f MiB asked for, %.1f MiB of %.1f MiB are free",
                   c->device, (double)bytes / 1048576, (double)free_bytes / 1048576, (double)total / 1048576);
}

void cu_release(struct cu *c, void *p)
{
    if (p)
        cu_ok(c, cudaFree(p), "free");
}

/* Pageable memory: the call returns once the bytes are in the driver's own buffer. */
void cu_write(struct cu *c, void *dst, const void *host, size_t bytes)
{
    if (c->failed == cudaSuccess && bytes > 0)
        cu_ok(c, cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, c->stream), "write");
}

void cu_copy(struct cu *c, void *dst, const void *src, size_t bytes)
{
    if (c->failed == cudaSuccess && bytes > 0)
        cu_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, c->stream), "copy");
}

void cu_zero(struct cu *c, void *dst, size_t bytes)
{
    if (c->failed == cudaSuccess && bytes > 0)
        cu_ok(c, cudaMemsetAsync(dst, 0, bytes, c->stream), "zero");
}

int cu_sync(struct cu *c, struct vt_err *err)
{
    if (c->failed == cudaSuccess)
        cu_ok(c, cudaStreamSynchronize(c->stream), "wait");
    return c->failed == cudaSuccess ? 0 : lost(err, c->device, c->failed, c->where);
}

int cu_read(struct cu *c, void *host, const void *src, size_t bytes, struct vt_err *err)
{
    if (c->failed == cudaSuccess && bytes > 0)
        cu_ok(c, cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, c->stream), "read");
    return cu_sync(c, err);
}
