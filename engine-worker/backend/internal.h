/* What the files of the backend share: the table of kernels of one instruction set and the shapes they work
 * on.
 *
 * Drivers (matmul.c, attention.c, …) cut an operation into pieces and spread them over the pool; kernels
 * compute one piece on one thread and know nothing of threads. ref*.c are the kernels in plain C, the
 * specification of all others. */
#ifndef BE_INTERNAL_H
#define BE_INTERNAL_H

#include "backend.h"
#include "codes.h"
#include "gguf.h"
#include "ops.h"

/* ---- matmul ---- */

/* How a weight type wants its activations. Quantized activations make the inner sums integers, which are
 * exact in any order: only the few float operations per block must keep an order, and they keep the same one
 * in every kernel. */
enum be_xform {
    BE_X_F32,  /* as they are */
    BE_X_Q32,  /* int8 with a scale for every 32 */
    BE_X_Q256, /* int8 with a scale for every 256, and sums of every 16 and every 32 codes */
    BE_X_N,
};

struct be_x {
    const float *f; /* [T][f_stride] */
    int64_t f_stride;
    const int8_t *q; /* [T][q_stride] */
    const float *d;  /* [T][d_stride]: value = d * q */
    const int16_t *s16, *s32;
    int64_t q_stride, d_stride, s16_stride, s32_stride;
};

/* Quantized weight types, each with its own kernel. */
/* clang-format off */ /* it never settles on this list */
#define BE_CODED_TYPES(T) \
    T(Q8_0) T(Q4_0) T(Q4_K) T(Q5_K) T(Q6_K) T(Q4_1) T(Q5_0) T(Q5_1) T(Q8_1) T(Q1_0) T(Q2_0) T(IQ4_NL) T(MXFP4) \
    T(NVFP4) T(Q2_K) T(Q3_K) T(Q8_K) T(IQ4_XS) T(IQ2_XXS) T(IQ2_XS) T(IQ2_S) T(IQ3_XXS) T(IQ3_S) T(IQ1_S) \
    T(IQ1_M) T(TQ1_0) T(TQ2_0)
/* clang-format on */

/* Which kernel reads a type. */
enum be_mm_kind {
    BE_MM_NONE, /* the backend does not know the type */
    BE_MM_F32,
    BE_MM_F16,
    BE_MM_BF16,
#define BE_MM_KIND(t) BE_MM_##t,
    BE_CODED_TYPES(BE_MM_KIND)
#undef BE_MM_KIND
        BE_MM_N,
};

struct be_mm {
    uint32_t type;
    const uint8_t *w;
    size_t row_bytes;
    int64_t n_in, n_out, T;
    struct be_x x;
    float *y; /* [T][n_out] */
};

/* Rows r0..r1-1 of W, all T tokens. */
typedef void be_mm_fn(const struct be_mm *m, int64_t r0, int64_t r1);

struct be_type {
    enum be_xform xform;
    enum be_form form;
    enum be_mm_kind kind;
};
const struct be_type *be_type(uint32_t type); /* NULL when unknown */

#define BE_ROW_STEP 16 /* pieces of a matmul begin at whole tiles of every kernel */

/* x[T][n_in] in each wanted form, into the backend's scratch. */
void be_mm_prepare(struct be *b, const float *x, int64_t T, int64_t n_in, const bool want[BE_X_N]);
/* What a kernel needs for T rows from row0 on of what was prepared; y [T][n_out]. */
struct be_mm be_mm_rows(const struct be *b, const struct be_weight *w, const float *x, int64_t row0,
                        int64_t T, float *y);

/* ---- attention ---- */

#define BE_ATTN_TILE BE_ATTN_GROUP_MAX /* query vectors of a tile: rows times heads that share a KV head */

/* Consecutive rows of one run, all query heads of one KV head. */
struct be_attn_tile {
    const struct be_attn *a;
    const float *q; /* first row, first head of the group */
    float *out;
    int64_t q_stride, out_stride; /* between rows */
    int n_rows, group;            /* group: query heads per KV head */
    int32_t pos0;                 /* of the first row */
    int kv_head;
    uint8_t *const *pages;
};

/* K and V rows of one head in a page. */
static inline uint16_t *be_page_k(const struct be_attn *a, const uint8_t *page, int kv_head)
{
    return (uint16_t *)(uintptr_t)(page + a->k_at) + (int64_t)kv_head * BE_PAGE * a->d;
}

static inline uint16_t *be_page_v(const struct be_attn *a, const uint8_t *page, int kv_head)
{
    return (uint16_t *)(uintptr_t)(page + a->v_at) + (int64_t)kv_head * BE_PAGE * a->dv;
}

/* ---- gated delta net ---- */

#define BE_DELTA_LANES 32 /* columns of S that one piece works on */

/* All rows of one run, one value head, n_cols columns of its state. */
struct be_delta_piece {
    const float *q, *k, *v; /* first row; already convolved and normalized */
    const float *bt, *at;   /* first row, this head */
    float *o;
    int64_t u_stride, g_stride, o_stride;
    int64_t n_rows;
    int dk, n_cols, s_stride;
    float dt_bias, a;
    float *s; /* [dk][s_stride], first column */
};

/* Decay exp(a softplus(at + dt_bias)) and step size sigmoid(bt) of row t. */
void be_delta_gates(const struct be_delta_piece *p, int64_t t, float *alpha, float *beta);

/* ---- the table ---- */

/* What a processor can run: ECX of CPUID leaf 1, EBX of leaf 7, and the register state that its kernel saves (XCR0). */
enum be_simd be_simd_of_cpu(uint32_t c1, uint32_t b7, uint32_t os);

struct be_kernels {
    enum be_simd simd;
    /* n is a multiple of 32 (256). Non-finite input makes d NaN, so that it is seen in the result. */
    void (*quant_q32)(const float *x, int64_t n, int8_t *q, float *d, int16_t *s32);
    void (*quant_q256)(const float *x, int64_t n, int8_t *q, float *d, int16_t *s16, int16_t *s32);
    be_mm_fn *mm[BE_MM_N];
    void (*rmsnorm)(float *y, const float *x, const float *w, int64_t n, float eps);
    void (*add)(float *y, const float *x, int64_t n);
    void (*silu_mul)(float *g, const float *u, int64_t n);
    void (*gelu_mul)(float *g, const float *u, int64_t n);
    void (*sigmoid_gate)(float *x, const float *g, int64_t n);
    void (*softcap)(float *x, int64_t n, float cap);
    void (*to_f16)(uint16_t *y, const float *x, int64_t n);
    void (*attn)(const struct be_attn_tile *t);
    /* u[n_rows][stride], n channels from the first: convolved over time in place, then silu. hist
     * [taps-1][hist_stride], oldest first; updated. */
    void (*conv)(float *u, int64_t n_rows, int64_t stride, int64_t n, const float *w, int taps, float *hist,
                 int64_t hist_stride);
    /* x = x / sqrt(sum(x²) + 1e-6) * scale */
    void (*l2norm)(float *x, int64_t n, float scale);
    void (*delta)(const struct be_delta_piece *p);
    /* o = rmsnorm(o; w) * silu(z) */
    void (*gated_norm)(float *o, const float *z, const float *w, int64_t n, float eps);
};

extern const struct be_kernels be_kernels_ref, be_kernels_sse2, be_kernels_avx, be_kernels_avx2,
    be_kernels_avx512;

/* Plain C kernels that other tables may reuse. */
be_mm_fn be_ref_mm_f32, be_ref_mm_f16, be_ref_mm_bf16, be_ref_mm_coded;
void be_ref_attn(const struct be_attn_tile *t);

/* The operations on this processor, by the names of backend.h. */
#define CPU_DECLARE(name, args) void cpu_##name args;
BE_COMPUTE(CPU_DECLARE)
#undef CPU_DECLARE
const struct be_ops *cpu_table(void);
int cpu_reserve(struct be *b, int64_t max_rows, int64_t max_in, struct vt_err *err);

struct be {
    const struct be_ops *ops;
    void *device; /* of ops; NULL: this processor, for which the rest is */

    const struct be_kernels *k;
    struct be_pool *pool;
    /* Activations of one matmul in each form; grown by be_reserve. */
    int64_t max_rows, max_in;
    int8_t *q[BE_X_N];
    float *d[BE_X_N];
    int16_t *s16[BE_X_N], *s32[BE_X_N];
};

/* Scratch for T rows of n values; aborts when there is no memory, which be_reserve would have said. */
void be_need(struct be *b, int64_t rows, int64_t n);

/* Pieces that are worth a thread each: 1 when the whole is too small to share. work: rough count of
 * nanoseconds. */
int64_t be_pieces(const struct be *b, int64_t most, int64_t work);

/* Scale and minimum of sub-block k of a Q4_K or Q5_K block: 6 bits each, packed in 12 bytes. */
static inline void be_k4_scale(const uint8_t *s, int k, uint8_t *scale, uint8_t *min)
{
    if (k < 4) {
        *scale = s[k] & 63;
        *min = s[k + 4] & 63;
    } else {
        *scale = (uint8_t)((s[k + 4] & 15) | (s[k - 4] >> 6) << 4);
        *min = (uint8_t)(s[k + 4] >> 4 | (s[k] >> 6) << 4);
    }
}

static inline uint16_t be_le16(const uint8_t *b)
{
    uint16_t v;
    __builtin_memcpy(&v, b, 2);
    return v;
}

static inline float be_bf16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {.u = (uint32_t)h << 16};
    return v.f;
}

#endif
