#include "cu_priv.cuh"

#include <cuda.h>
#include <unistd.h>

/* Memory that a descriptor keeps alive: the driver's virtual memory management. A process that holds the descriptor needs
 * neither a context nor a library, and what it holds survives the death, the illegal access and the endless kernel of every
 * process that has it mapped. */

/* The driver's functions, found at run time: without a driver the module must still load. */
struct vmm {
    decltype(&cuMemCreate) create;
    decltype(&cuMemExportToShareableHandle) out;
    decltype(&cuMemImportFromShareableHandle) in;
    decltype(&cuMemRelease) release;
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemAddressFree) unreserve;
    decltype(&cuMemMap) map;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemSetAccess) access;
    decltype(&cuMemGetAllocationGranularity) granularity;
    decltype(&cuDeviceGetAttribute) attribute;
    decltype(&cuGetErrorString) text;
};

template <typename F> static bool look_up(F *f, const char *name)
{
    void *p = NULL;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 13000
    cudaError_t e = cudaGetDriverEntryPointByVersion(name, &p, 12000, cudaEnableDefault, &found);
#else
    cudaError_t e = cudaGetDriverEntryPoint(name, &p, cudaEnableDefault, &found);
#endif
    if (e != cudaSuccess)
        cudaGetLastError();
    *f = (F)p;
    return e == cudaSuccess && p != NULL;
}

static bool find(struct vmm *v)
{
    return look_up(&v->create, "cuMemCreate") && look_up(&v->out, "cuMemExportToShareableHandle") &&
           look_up(&v->in, "cuMemImportFromShareableHandle") && look_up(&v->release, "cuMemRelease") &&
           look_up(&v->reserve, "cuMemAddressReserve") && look_up(&v->unreserve, "cuMemAddressFree") &&
           look_up(&v->map, "cuMemMap") && look_up(&v->unmap, "cuMemUnmap") &&
           look_up(&v->access, "cuMemSetAccess") &&
           look_up(&v->granularity, "cuMemGetAllocationGranularity") &&
           look_up(&v->attribute, "cuDeviceGetAttribute") && look_up(&v->text, "cuGetErrorString");
}

static int refused(const struct vmm *v, const struct cu *c, CUresult e, const char *what, size_t bytes,
                   struct vt_err *err)
{
    const char *text = NULL;
    v->text(e, &text);
    return vt_fail(err, e == CUDA_ERROR_OUT_OF_MEMORY ? VT_E_DEVICE_MEM : VT_E_DEVICE_LOST,
                   "GPU %d: %s %.1f MiB of memory that outlives a process: %s", c->device, what,
                   (double)bytes / 1048576, text ? text : "?");
}

static int open_vmm(struct vmm *v, const struct cu *c, struct vt_err *err)
{
    int can = 0;
    if (find(v) &&
        v->attribute(&can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, c->device) ==
            CUDA_SUCCESS &&
        can)
        return 0;
    return vt_fail(err, VT_E_CAPABILITY, "GPU %d, or its driver, has no memory that outlives a process",
                   c->device);
}

static CUmemAllocationProp kind(const struct cu *c)
{
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = c->device;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return p;
}

static size_t rounded(const struct vmm *v, const struct cu *c, size_t bytes)
{
    CUmemAllocationProp p = kind(c);
    size_t g = 0;
    if (v->granularity(&g, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS || g == 0)
        g = 2u << 20;
    return (bytes + g - 1) / g * g;
}

static CUresult map_in(const struct vmm *v, const struct cu *c, void **out, size_t size,
                       CUmemGenericAllocationHandle h)
{
    CUdeviceptr at = 0;
    CUmemAccessDesc rw = {};
    rw.location = kind(c).location;
    rw.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult e = v->reserve(&at, size, 0, 0, 0);
    if (e != CUDA_SUCCESS)
        return e;
    e = v->map(at, size, 0, h, 0);
    if (e == CUDA_SUCCESS && (e = v->access(at, size, &rw, 1)) != CUDA_SUCCESS)
        v->unmap(at, size);
    if (e != CUDA_SUCCESS) {
        v->unreserve(at, size);
        return e;
    }
    *out = (void *)at;
    return e;
}

int cu_share(struct be *b, void **out, size_t bytes, int *fd, struct vt_err *err)
{
    struct cu *c = cu_of(b);
    struct vmm v;
    if (open_vmm(&v, c, err) < 0)
        return -1;
    size_t size = rounded(&v, c, bytes);
    CUmemAllocationProp p = kind(c);
    CUmemGenericAllocationHandle h;
    CUresult e = v.create(&h, size, &p, 0);
    if (e != CUDA_SUCCESS)
        return refused(&v, c, e, "making", bytes, err);
    e = v.out(fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (e == CUDA_SUCCESS && (e = map_in(&v, c, out, size, h)) != CUDA_SUCCESS) {
        close(*fd);
        *fd = -1;
    }
    v.release(h); /* the mapping and the descriptor keep it */
    if (e != CUDA_SUCCESS)
        return refused(&v, c, e, "mapping", bytes, err);
    cu_ok(c, cudaMemsetAsync(*out, 0, bytes, c->stream), "zero");
    return 0;
}

int cu_share_open(struct be *b, void **out, size_t bytes, int fd, struct vt_err *err)
{
    struct cu *c = cu_of(b);
    struct vmm v;
    CUmemGenericAllocationHandle h;
    if (open_vmm(&v, c, err) < 0)
        return -1;
    CUresult e = v.in(&h, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (e != CUDA_SUCCESS)
        return vt_fail(err, VT_E_DEVICE_MEM, "GPU %d: a descriptor is not of its memory", c->device);
    e = map_in(&v, c, out, rounded(&v, c, bytes), h);
    v.release(h);
    return e == CUDA_SUCCESS ? 0 : refused(&v, c, e, "mapping", bytes, err);
}

void cu_unshare(struct be *b, void *p, size_t bytes)
{
    struct cu *c = cu_of(b);
    struct vmm v;
    if (!find(&v))
        return;
    cudaStreamSynchronize(c->stream); /* unlike cudaFree, unmapping waits for nothing */
    cudaStreamSynchronize(c->reads);
    size_t size = rounded(&v, c, bytes);
    v.unmap((CUdeviceptr)p, size);
    v.unreserve((CUdeviceptr)p, size);
}
