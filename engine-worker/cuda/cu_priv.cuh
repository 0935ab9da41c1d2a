/* What the files of the CUDA backend share. */
#ifndef CU_PRIV_CUH
#define CU_PRIV_CUH

extern "C" { /* headers of C code */
#include "backend.h"
#include "err.h"
#include "gguf.h"
#include "ops.h"
}
#include "cu.h"

#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* Shared memory whose size the launch names. */
#ifdef CU_EMULATED
#define CU_SHARED(type, name, align) type *name = (type *)emu_shared()
#else
#define CU_SHARED(type, name, align)                                                                         \
    extern __shared__ __align__(align)                                                                       \
    type name[]
#endif

#define CU_GRAPHS   64
#define CU_SQUARES  4096
#define CU_FEW_TILE 8   /* rows in a tile of few.cu */
#define CU_TILE     128 /* and of tiles.cu */

/* What a batch with a key does; the least recently used one makes room for a new key. */
struct cu_graph {
    uint64_t key, used;
    cudaGraphExec_t exec; /* NULL: seen once, and recorded the next time */
};

struct cu {
    int device, sm, multiprocessors, shared_block,
        shared_all;             /* shared memory: most of a block, a multiprocessor's */
    cudaStream_t stream, reads; /* reads: be_fetch's */
    cudaError_t failed;         /* the first error; nothing is queued after it */
    const char *where;
    int64_t max_rows, max_in; /* of be_reserve */
    bool tensor_cores;
    /* Activations of the present matmul as halves (halves.cuh), and room for those of what it makes. GPUs without tensor cores have
     * codes instead, with a scale for each 32 and the scaled sum of each 16. */
    __half *xh, *xg;
    int8_t *xq;
    float *xd, *xs;
    /* Whose halves xh holds: left_T rows of left_n values at `left`; NULL: nobody's. */
    const float *left;
    int64_t left_T, left_n;
    /* Sums of the squares of the row at squares_of, which whoever made it has left; NULL: nobody. */
    float *squares; /* [CU_SQUARES] */
    const float *squares_of;
    int n_squares;
    float *partial; /* attention: results of one share of the keys */
    size_t partial_floats;
    struct cu_graph graphs[CU_GRAPHS];
    uint64_t stamp;
    bool recording;
    int32_t *expert_tiles
        [2]; /* [BE_EXPERTS_MAX + 1]: first tile of each expert's rows, in tiles of CU_FEW_TILE and of CU_TILE rows */
};

static inline struct cu *cu_of(const struct be *b)
{
    return (struct cu *)be_device(b);
}

/* Notes an error of the last launch or call. */
static inline bool cu_ok(struct cu *c, cudaError_t e, const char *where)
{
    if (c->failed == cudaSuccess && e != cudaSuccess) {
        c->failed = e;
        c->where = where;
    }
    return c->failed == cudaSuccess;
}
/* Launches a kernel behind what is queued. On GPUs that can, it may begin before the kernel ahead of it has ended: every
 * kernel calls cu_wait before it looks at what others write. */
template <typename... P, typename... A>
static inline void cu_launch(struct cu *c, const char *what, void (*kernel)(P...), dim3 grid, dim3 block,
                             size_t shared, A... args)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t cfg = {};
    if (c->failed != cudaSuccess)
        return;
    if (shared > 0) /* more than a kernel has without asking */
        cu_ok(c,
              cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)shared),
              what);
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cfg.gridDim = grid;
    cfg.blockDim = block;
    cfg.dynamicSmemBytes = shared;
    cfg.stream = c->stream;
    cfg.attrs = &early;
    cfg.numAttrs = c->sm >= 90 ? 1 : 0;
    cu_ok(c, cudaLaunchKernelEx(&cfg, kernel, static_cast<P>(args)...), what);
}

static __device__ __forceinline__ void cu_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* The same, but the next kernel may only begin then: it can read what the one before this one has written before it waits itself. */
static __device__ __forceinline__ void cu_wait_then_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/* Whether there is something to do. Most operations write where rows that left halves or squares may be. */
static inline bool cu_ready(struct cu *c, int64_t work)
{
    c->left = c->squares_of = NULL;
    return c->failed == cudaSuccess && work > 0;
}

static inline unsigned cu_blocks(int64_t work, int64_t each)
{
    return (unsigned)((work + each - 1) / each);
}

/* Blocks for so many turns of which `most` run at once, each with as many turns as the others. */
static inline unsigned cu_even(unsigned turns, unsigned most)
{
    unsigned rounds = most > 0 ? cu_blocks(turns, most) : turns;
    return cu_blocks(turns, rounds);
}

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

/* The operations, by the names of backend.h. */
#define CU_DECLARE(name, args) void cu_##name args;
BE_COMPUTE(CU_DECLARE)
#undef CU_DECLARE
int cu_upload(struct be *b, struct be_weight *out, void *memory, const struct be_weight *w, int n,
              struct vt_err *err);
size_t cu_weight_bytes(const struct be *b, const struct be_weight *w, int n);
/* Attention of many rows (flash.cu); false: not of this shape, or too few. */
bool cu_flash(struct cu *c, float *out, const float *q, const struct be_attn *a, const struct be_rows *rows);
bool cu_begin(struct be *b, uint64_t key);
void cu_end(struct be *b, uint64_t key);
void cu_graphs_free(struct cu *c);
int cu_sync(struct be *b, struct vt_err *err);
int cu_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err);
void cu_release(struct be *b, void *p, size_t bytes);
/* shared.cu */
int cu_share(struct be *b, void **out, size_t bytes, int *fd, struct vt_err *err);
int cu_share_open(struct be *b, void **out, size_t bytes, int fd, struct vt_err *err);
void cu_unshare(struct be *b, void *p, size_t bytes);
void cu_seal(struct be *b, uint64_t *out, const void *p, size_t bytes, uint64_t salt);

#endif
