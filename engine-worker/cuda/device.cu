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

int cu_facts(struct gpu_facts *out, int device, struct vt_err *err)
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

int cu_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    struct cu *c = cu_of(b);
    size_t free_bytes = 0, total = 0;
    *out = NULL;
    if (bytes == 0)
        return 0;
    cudaError_t e = cudaMalloc(out, bytes);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(*out, 0, bytes, c->stream);
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

void cu_release(struct be *b, void *p, size_t)
{
    if (p)
        cu_ok(cu_of(b), cudaFree(p), "free");
}

/* Pageable memory: the call returns once the bytes are in the driver's own buffer. */
static void cu_write(struct be *b, void *dst, const void *src, size_t bytes)
{
    struct cu *c = cu_of(b);
    if (cu_ready(c, (int64_t)bytes))
        cu_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, c->stream), "write");
}

static void cu_copy(struct be *b, void *dst, const void *src, size_t bytes)
{
    struct cu *c = cu_of(b);
    if (cu_ready(c, (int64_t)bytes))
        cu_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, c->stream), "copy");
}

static void cu_zero(struct be *b, void *dst, size_t bytes)
{
    struct cu *c = cu_of(b);
    if (cu_ready(c, (int64_t)bytes))
        cu_ok(c, cudaMemsetAsync(dst, 0, bytes, c->stream), "zero");
}

int cu_sync(struct be *b, struct vt_err *err)
{
    struct cu *c = cu_of(b);
    if (c->failed == cudaSuccess)
        cu_ok(c, cudaStreamSynchronize(c->stream), "wait");
    return c->failed == cudaSuccess ? 0 : lost(err, c->device, c->failed, c->where);
}

static int cu_read(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err)
{
    struct cu *c = cu_of(b);
    if (cu_ready(c, (int64_t)bytes))
        cu_ok(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, c->stream), "read");
    return cu_sync(b, err);
}

static int cu_fetch(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err)
{
    const struct cu *c = cu_of(b);
    cudaError_t e = cudaSetDevice(c->device);
    if (e == cudaSuccess && bytes > 0)
        e = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, c->reads);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(c->reads);
    return e == cudaSuccess ? 0 : lost(err, c->device, e, "fetch");
}

static int cu_alloc_host(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    cudaError_t e = cudaMallocHost(out, bytes);
    if (e == cudaSuccess) {
        memset(*out, 0, bytes);
        return 0;
    }
    *out = NULL;
    cudaGetLastError();
    return vt_fail(err, VT_E_NOMEM, "GPU %d: %.1f MiB of pinned memory: %s", cu_of(b)->device,
                   (double)bytes / 1048576, cudaGetErrorString(e));
}

static void cu_release_host(struct be *b, void *p)
{
    cu_ok(cu_of(b), cudaFreeHost(p), "free");
}

/* Other threads begin on device 0, and a call there would make a context on it. */
static void cu_pin(struct be *b, void *p, size_t bytes)
{
    if (cudaSetDevice(cu_of(b)->device) != cudaSuccess ||
        cudaHostRegister(p, bytes, cudaHostRegisterPortable) != cudaSuccess)
        cudaGetLastError(); /* pageable memory is slower, and that is all */
}

static void cu_unpin(struct be *b, void *p)
{
    if (cudaSetDevice(cu_of(b)->device) != cudaSuccess || cudaHostUnregister(p) != cudaSuccess)
        cudaGetLastError();
}

/* ---- the backend ---- */

static void free_scratch(struct be *b)
{
    struct cu *c = cu_of(b);
    void *all[] = {c->xq, c->xd, c->xs, c->xh, c->xg};
    for (void *p : all)
        cu_release(b, p, 0);
    c->xq = NULL;
    c->xd = c->xs = NULL;
    c->xh = c->xg = NULL;
    c->left = NULL;
    c->max_rows = c->max_in = 0;
}

static int cu_reserve(struct be *b, int64_t max_rows, int64_t max_in, struct vt_err *err)
{
    struct cu *c = cu_of(b);
    max_in = (max_in + 127) / 128 * 128;
    max_rows = max_rows > c->max_rows ? max_rows : c->max_rows;
    max_in = max_in > c->max_in ? max_in : c->max_in;
    if (max_rows == c->max_rows && max_in == c->max_in)
        return 0;
    if (cu_sync(b, err) < 0)
        return -1;
    free_scratch(b);
    size_t values = (size_t)(max_rows * max_in);
    int rc = c->tensor_cores ? cu_alloc(b, (void **)&c->xh, values * sizeof(__half), err)
                             : cu_alloc(b, (void **)&c->xq, values, err);
    if (rc == 0 && c->tensor_cores)
        rc = cu_alloc(b, (void **)&c->xg, values * sizeof(__half), err);
    else if (rc == 0 && (rc = cu_alloc(b, (void **)&c->xd, values / 32 * sizeof(float), err)) == 0)
        rc = cu_alloc(b, (void **)&c->xs, values / 16 * sizeof(float), err);
    if (rc < 0) {
        free_scratch(b);
        return vt_fail_prefix(err, "activations of %lld rows", (long long)max_rows);
    }
    c->max_rows = max_rows;
    c->max_in = max_in;
    return 0;
}

int cu_plain_only(struct be *b, struct vt_err *err)
{
    struct cu *c = cu_of(b);
    int64_t rows = c->max_rows, in = c->max_in;
    if (cu_sync(b, err) < 0)
        return -1;
    free_scratch(b);
    c->tensor_cores = false;
    return rows > 0 ? cu_reserve(b, rows, in, err) : 0;
}

static void cu_fini(struct be *b)
{
    struct cu *c = cu_of(b);
    if (c->stream)
        cudaStreamSynchronize(c->stream);
    cu_graphs_free(c);
    free_scratch(b);
    cudaFree(c->partial);
    cudaFree(c->squares);
    cudaFree(c->expert_tiles[0]);
    cudaFree(c->expert_tiles[1]);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    if (c->reads)
        cudaStreamDestroy(c->reads);
    free(c);
}

static struct be_ops table()
{
    struct be_ops o = {};
    o.name = "cuda";
#define CU_SET(name, args) o.name = cu_##name;
    BE_COMPUTE(CU_SET)
#undef CU_SET
    o.reserve = cu_reserve;
    o.alloc = cu_alloc;
    o.release = cu_release;
    o.write = cu_write;
    o.copy = cu_copy;
    o.zero = cu_zero;
    o.read = cu_read;
    o.fetch = cu_fetch;
    o.sync = cu_sync;
    o.alloc_host = cu_alloc_host;
    o.release_host = cu_release_host;
    o.pin = cu_pin;
    o.unpin = cu_unpin;
    o.begin = cu_begin;
    o.end = cu_end;
    o.share = cu_share;
    o.share_open = cu_share_open;
    o.unshare = cu_unshare;
    o.seal = cu_seal;
    o.upload = cu_upload;
    o.weight_bytes = cu_weight_bytes;
    o.fini = cu_fini;
    return o;
}

int cu_backend(struct be **out, int device, struct vt_err *err)
{
    static const struct be_ops ops = table();
    struct gpu_facts facts;
    *out = NULL;
    if (cu_facts(&facts, device, err) < 0)
        return -1;
    struct cu *c = (struct cu *)calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_E_NOMEM, "out of memory for GPU %d", device);
    c->device = device;
    c->sm = facts.sm;
    c->multiprocessors = facts.multiprocessors;
    c->tensor_cores = facts.sm >= 75;
    if (be_new_device(out, &ops, c, err) < 0) {
        free(c);
        return -1;
    }
    cudaError_t e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&c->shared_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&c->shared_all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&c->reads, cudaStreamNonBlocking);
    int rc = e == cudaSuccess ? 0 : lost(err, device, e, "a stream");
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = cu_alloc(*out, (void **)&c->expert_tiles[i], (BE_EXPERTS_MAX + 1) * sizeof(int32_t), err);
    if (rc == 0)
        rc = cu_alloc(*out, (void **)&c->squares, CU_SQUARES * sizeof *c->squares, err);
    if (rc < 0) {
        be_free(*out);
        *out = NULL;
    }
    return rc;
}
