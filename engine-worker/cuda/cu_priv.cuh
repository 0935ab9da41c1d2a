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

#define CU_GRAPHS 64

/* What a batch with a key does; the least recently used one makes room for a new key. */
struct cu_graph {
    uint64_t key, used;
    cudaGraphExec_t exec; /* NULL: seen once, and recorded the next time */
};

struct cu {
    int device, sm, multiprocessors;
    cudaStream_t stream, reads; /* reads: be_fetch's */
    cudaError_t failed;         /* the first error; nothing is queued after it */
    const char *where;
    int64_t max_rows, max_in; /* of be_reserve */
    /* activations of the present matmul: codes [T][n_in], scales and scaled sums of 16 [T][n_in / 32], [T][n_in / 16] */
    int8_t *xq;
    float *xd, *xs;
    __half *xh; /* [T][n_in rounded up to 128]: the same as f16, each row divided by xn[t], a power of two */
    float *xn;  /* [T] */
    /* Whose codes xq, xd and xs hold: coded_T rows of coded_n values at `coded`; NULL: nobody's. */
    const float *coded;
    int64_t coded_T, coded_n;
    float *partial; /* attention: results of one share of the keys */
    size_t partial_floats;
    struct cu_graph graphs[CU_GRAPHS];
    uint64_t stamp;
    bool recording;
    int32_t *expert_tiles; /* [BE_EXPERTS_MAX + 1]: first tile of each expert's rows */
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
/* Whether there is something to do. Most operations write where the coded rows may be. */
static inline bool cu_ready(struct cu *c, int64_t work)
{
    c->coded = NULL;
    return c->failed == cudaSuccess && work > 0;
}

static inline unsigned cu_blocks(int64_t work, int64_t each)
{
    return (unsigned)((work + each - 1) / each);
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
void cu_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                 int64_t T);
void cu_get_rows(struct be *b, float *out, const struct be_weight *w, const uint32_t *ids, int64_t T);
void cu_copy_rows(struct be *b, float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t T,
                  int64_t n);
void cu_pick_rows(struct be *b, float *y, const float *x, const int32_t *rows, int64_t T, int64_t n);
void cu_rmsnorm(struct be *b, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps);
void cu_add(struct be *b, float *y, const float *x, int64_t T, int64_t n);
void cu_silu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n);
void cu_gelu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n);
void cu_add_bias(struct be *b, float *y, const float *bias, int64_t T, int64_t n);
void cu_scale(struct be *b, float *x, float by, int64_t T, int64_t n);
void cu_softcap(struct be *b, float *x, float cap, int64_t T, int64_t n);
void cu_row_gate(struct be *b, float *x, const float *g, int64_t T, int64_t n);
void cu_sigmoid_gate(struct be *b, float *x, const float *g, int64_t g_stride, int64_t T, int64_t n);
void cu_rope(struct be *b, float *x, int64_t T, int64_t row_stride, int n_head, int64_t head_stride,
             const struct be_rope *r, const int32_t *pos);
void cu_kv_write(struct be *b, const struct be_attn *a, const struct be_rows *rows, const float *k,
                 const float *v);
void cu_attention(struct be *b, float *out, const float *q, const struct be_attn *a,
                  const struct be_rows *rows);
void cu_delta_net(struct be *b, float *out, const struct be_delta *d, float *u, const float *z,
                  const float *bt, const float *at, const struct be_delta_run *runs, int n_runs, int64_t T);
void cu_moe_route(struct be *b, int32_t *ids, float *w, const float *logits, const struct be_route *r,
                  int64_t T);
void cu_moe_sort(struct be *b, int32_t *at, int64_t *first, const int32_t *ids, const struct be_route *r,
                 int64_t T);
void cu_moe_gather(struct be *b, float *y, const float *x, const int32_t *at, const struct be_route *r,
                   int64_t T, int64_t n);
void cu_moe_matmul(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                   const int64_t *first, const struct be_route *r, int64_t T);
void cu_moe_combine(struct be *b, float *out, const float *y, const float *w, const int32_t *at,
                    const struct be_route *r, int64_t T, int64_t n);
int cu_upload(struct be *b, struct be_weight *out, const struct be_weight *w, int n, struct vt_err *err);
size_t cu_weight_bytes(const struct be *b, const struct be_weight *w, int n);
/* Attention of many rows (flash.cu); false: not of this shape, or too few. */
bool cu_flash(struct cu *c, float *out, const float *q, const struct be_attn *a, const struct be_rows *rows);
bool cu_begin(struct be *b, uint64_t key);
void cu_end(struct be *b, uint64_t key);
void cu_graphs_free(struct cu *c);
int cu_sync(struct be *b, struct vt_err *err);
int cu_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err);
void cu_release(struct be *b, void *p, size_t bytes);

#endif
