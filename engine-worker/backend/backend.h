/* Backend: the operations of a forward pass on batches of rows. ref.c is the plain C specification; the
 * vector versions must equal it within the bounds that test_*.c beside the code states.
 *
 * Shapes: a batch is T rows of float32, row-major, contiguous ([T][n]). A weight {n_in, n_out} is n_out rows
 * of n_in values in the file's own block layout.
 *
 * The invariance law: a row's result never depends on the other rows of the batch, on T, on the chunking of a
 * prompt or on the number of threads. Every version of an operation sums in an order that depends only on the
 * row's own shape. (This is what makes "same greedy text alone and with seven neighbours" a property and not
 * a hope.)
 *
 * Ops are called from one thread and spread over the pool themselves. They do not allocate, except through
 * scratch that be_reserve sized. A GPU's backend has the same operations on memory of its own (ops.h); its sums are within the
 * bounds that its tests state, and of the law it keeps what cuda/cu.h says. */
#ifndef BACKEND_H
#define BACKEND_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- pool ---- */

struct be_pool;
/* n threads in all, the caller being one of them. Workers sleep between calls (no busy burn when idle). 0:
 * one per usable core. */
int be_pool_new(struct be_pool **out, int n, struct vt_err *err);
void be_pool_free(struct be_pool *p);
int be_pool_threads(const struct be_pool *p);
/* Runs fn(arg, i) for i in 0..n-1 over the pool and returns when all are done. */
void be_pool_run(struct be_pool *p, void (*fn)(void *arg, int64_t i), void *arg, int64_t n);

/* ---- backend ---- */

enum be_simd { BE_REF, BE_SSE2, BE_AVX, BE_AVX2, BE_AVX512 };

struct be; /* chosen instruction set, pool, scratch */

/* simd: BE_REF … BE_AVX512, or -1 for the best the CPU has. Asking for more than it has is VT_E_CONFIG. */
int be_new(struct be **out, struct be_pool *pool, int simd, struct vt_err *err);
void be_free(struct be *b);
enum be_simd be_simd_of(const struct be *b);
const char *be_simd_name(enum be_simd s); /* "avx2" */
const char *be_name(const struct be *b);  /* of its instruction set, or "cuda" */
/* Best level of this CPU. */
enum be_simd be_simd_best(void);

struct be_weight {
    uint32_t type;       /* enum ggml_type */
    int64_t n_in, n_out; /* values per row, rows */
    const void *data;    /* [n_out][row bytes] */
};
/* True when be_matmul can read the type on this processor. */
bool be_type_ok(uint32_t type);

/* Prepares scratch so that no later call with up to max_rows rows and rows of up to max_in values allocates.
 */
int be_reserve(struct be *b, int64_t max_rows, int64_t max_in, struct vt_err *err);

/* ---- memory ----
 *
 * All that an operation reads or writes lies in memory of the backend: of this process, or of the GPU. Operations and the
 * functions here take effect in the order of their calls. After a failure of the GPU they do nothing any more, and
 * be_read and be_sync tell it: then the process has to end. */

bool be_host(const struct be *b); /* the memory is that of this process */
/* Zeroed; pages cost nothing before they are touched, on this processor. VT_E_NOMEM, VT_E_DEVICE_MEM. */
int be_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err);
void be_release(struct be *b, void *p, size_t bytes); /* NULL is fine; bytes as allocated */
void be_write(struct be *b, void *dst, const void *src,
              size_t bytes); /* src is of this process and may change at once */
void be_copy(struct be *b, void *dst, const void *src, size_t bytes);
void be_zero(struct be *b, void *dst, size_t bytes);
/* dst is of this process. Waits for the operations before. */
int be_read(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err);
/* The same for what no queued operation writes: does not wait for those, and any thread may call it. */
int be_fetch(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err);
int be_sync(struct be *b, struct vt_err *err); /* waits for all that is queued */

/* Memory that outlives this process when it has to: it lives, with what is in it, as long as somebody has it mapped or holds
 * its descriptor. Zeroed. *fd is the caller's. VT_E_CAPABILITY: this device has no such memory; also as be_alloc. */
int be_share(struct be *b, void **out, size_t bytes, int *fd, struct vt_err *err);
/* Maps what another process has made with the same bytes; the descriptor stays the caller's. VT_E_DEVICE_MEM: it is not that. */
int be_share_open(struct be *b, void **out, size_t bytes, int fd, struct vt_err *err);
void be_unshare(struct be *b, void *p, size_t bytes); /* NULL is fine */
/* *out (of the backend) becomes seal_of (seal.h) of bytes, a multiple of 8, behind what was called before. */
void be_seal(struct be *b, uint64_t *out, const void *p, size_t bytes, uint64_t salt);

/* Memory of this process that be_read fills fastest, zeroed; of a device's backend only. */
int be_alloc_host(struct be *b, void **out, size_t bytes, struct vt_err *err);
void be_release_host(struct be *b, void *p);

/* Memory of this process that somebody else has made, as fast for be_fetch as be_alloc_host's from now on, until be_unpin, which
 * comes before it is unmapped. A hint: without it everything works. Any thread. */
void be_pin(struct be *b, void *p, size_t bytes);
void be_unpin(struct be *b, void *p);

/* Batches of the same kind do the same operations on the same addresses: only what lies there differs. A backend may record
 * what is called between be_begin and be_end and do it again at once. key is 0 for a batch that is like no other; equal keys
 * promise the same calls. be_begin: true when it has been done already, and nothing is to be called but be_end. */
bool be_begin(struct be *b, uint64_t key);
void be_end(struct be *b, uint64_t key);

/* Of a device's backend only: a weight of n parts of one shape (w[0..n-1], of this process), as it wants it; its memory is be_release's, with
 * the bytes that be_weight_bytes tells. VT_E_CAPABILITY: a type that this backend cannot read. */
int be_upload(struct be *b, struct be_weight *out, const struct be_weight *w, int n, struct vt_err *err);
/* The same into memory of the caller, at a multiple of 256 bytes. */
int be_upload_to(struct be *b, struct be_weight *out, void *memory, const struct be_weight *w, int n,
                 struct vt_err *err);
size_t be_weight_bytes(const struct be *b, const struct be_weight *w, int n);
int be_readable(const struct be *b, const struct be_weight *w, struct vt_err *err); /* VT_E_CAPABILITY */

/* ---- rows ---- */

/* y[T][n_out] = x[T][n_in] · Wᵀ. y must not overlap x. */
void be_matmul(struct be *b, float *y, const struct be_weight *w, const float *x, int64_t T);
/* Several weights over the same x (q, k, v; gate, up): one pass, x is prepared once. */
void be_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                 int64_t T);

/* g = act(x gateᵀ) * (x upᵀ), act being gelu (tanh form) or silu; u: room for [T][n_out], what it holds then is unspecified. */
void be_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                     const struct be_weight *up, bool gelu, const float *x, int64_t T);

/* A norm whose result nobody needs but the matmul behind it: x += add (NULL: nothing), then rmsnorm of x (below). */
struct be_normed {
    float *x;         /* [T][n] */
    const float *add; /* [T][n], may be room */
    const float *w;   /* [n] */
    float eps;
    float *room; /* [T][n]; what it holds then is unspecified */
};
/* be_matmul_n and be_matmul_gated of that norm; n is the weights' n_in. */
void be_norm_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n,
                      const struct be_normed *in, int64_t T);
void be_norm_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                          const struct be_weight *up, bool gelu, const struct be_normed *in, int64_t T);
/* x[T][n_out] += in · Wᵀ; or room = in · Wᵀ, which is still to be added. *rest says which: NULL, or room. */
void be_matmul_add(struct be *b, float *x, const struct be_weight *w, const float *in, float *room, int64_t T,
                   const float **rest);

/* out[T][n_in] = rows ids[T] of w, dequantized exactly. */
void be_get_rows(struct be *b, float *out, const struct be_weight *w, const uint32_t *ids, int64_t T);
/* The same for one row; on this processor only. */
void be_get_row(struct be *b, float *out, const struct be_weight *w, int64_t row);
/* Dequantizes n values of a type; the reference for all others. */
void be_dequant(uint32_t type, const void *src, float *dst, int64_t n);

/* y[t][y_stride], its first n values, = x[t][x_stride]. */
void be_copy_rows(struct be *b, float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t T,
                  int64_t n);
/* y[t][n] = x[rows[t]][n]; rows [T] in the backend's memory. */
void be_pick_rows(struct be *b, float *y, const float *x, const int32_t *rows, int64_t T, int64_t n);

#define BE_BEST         64   /* values of a row that be_best finds */
#define BE_BEST_SEGMENT 4096 /* values among which a device finds them at once */
/* The largest of each row x[t][n], BE_BEST of them or n: values [T][BE_BEST], the largest first, and their places in the row, ids
 * [T][BE_BEST]; of equal ones those with lower ids. If a value of the row is not finite, the first is such a one and the others are
 * anything. room: be_best_room(n) floats for each row, at a multiple of 8 bytes. */
void be_best(struct be *b, uint32_t *ids, float *values, void *room, const float *x, int64_t T, int64_t n);
size_t be_best_room(int64_t n);

/* y = x / sqrt(mean(x²) + eps) * w, per row; y may be x. w: [n]. */
void be_rmsnorm(struct be *b, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps);
/* x += add, then y = rmsnorm of x; y may be add. */
void be_add_rmsnorm(struct be *b, float *y, float *x, const float *add, const float *w, int64_t T, int64_t n,
                    float eps);
/* y[T][n] += x[T][n] */
void be_add(struct be *b, float *y, const float *x, int64_t T, int64_t n);
/* g = silu(g) * u, elementwise. */
void be_silu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n);
/* g = gelu(g) * u with the tanh form of gelu, elementwise. */
void be_gelu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n);
/* y[T][n] += bias[n] */
void be_add_bias(struct be *b, float *y, const float *bias, int64_t T, int64_t n);
/* x[T][n] *= by */
void be_scale(struct be *b, float *x, float by, int64_t T, int64_t n);
/* x = cap * tanh(x / cap), elementwise; cap > 0. */
void be_softcap(struct be *b, float *x, float cap, int64_t T, int64_t n);
/* x[T][n] *= sigmoid(g[T]), one gate a row. */
void be_row_gate(struct be *b, float *x, const float *g, int64_t T, int64_t n);
/* x = x * sigmoid(g), elementwise; g has row stride g_stride, x is contiguous. */
void be_sigmoid_gate(struct be *b, float *x, const float *g, int64_t g_stride, int64_t T, int64_t n);

struct be_rope {
    int n_rot;         /* rotated channels, the first of each head */
    bool interleaved;  /* NORM pairs (2i, 2i+1); else NEOX pairs (i, i + n_rot/2) */
    const float *freq; /* [n_rot/2] angle per position, all scaling applied */
    float mscale;      /* multiplies cos and sin; 1 without YaRN */
};
/* In place on x[T][row_stride], n_head heads of head_dim at head stride head_stride; pos[T]. */
void be_rope(struct be *b, float *x, int64_t T, int64_t row_stride, int n_head, int64_t head_stride,
             const struct be_rope *r, const int32_t *pos);

/* ---- attention over pages ---- */

#define BE_PAGE           256 /* tokens in a page */
#define BE_ATTN_MAX_D     512 /* largest head */
#define BE_ATTN_GROUP_MAX 32  /* most query heads of one KV head */

/* One layer's part of a page: K as f16 [n_kv_head][BE_PAGE][d] at byte k_at, V as f16 [n_kv_head][BE_PAGE][dv] at v_at. */
struct be_attn {
    int n_head, n_kv_head, d, dv;
    uint64_t k_at, v_at;
    float scale;
    int32_t window; /* sliding window in tokens, 0 = none */
    float softcap;  /* 0 = none */
};
/* One run of consecutive query rows of one sequence. */
struct be_attn_run {
    int64_t row0, n_rows;  /* rows of the batch */
    int32_t pos0;          /* position of the first row */
    uint8_t *const *pages; /* of this sequence, for all layers; those that no row sees need not be there */
};
/* Where the rows of a batch belong. The arrays are in the backend's memory; every row is of one run. */
struct be_rows {
    int64_t T;
    int n_runs;
    int32_t max_pos;        /* the highest position, or a higher one */
    const int32_t *pos;     /* [T] */
    const int32_t *row_run; /* [T] */
    const struct be_attn_run *runs;
};
/* Writes K and V rows (float) into their pages, as f16. k: [T][n_kv_head*d], v: [T][n_kv_head*dv]. */
void be_kv_write(struct be *b, const struct be_attn *a, const struct be_rows *rows, const float *k,
                 const float *v);
/* What projections made of a batch, and what becomes of it before attention. */
struct be_qkv {
    float *q, *k, *v; /* q [T][n_head] heads, q_stride apart; k, v as be_kv_write takes them */
    int64_t q_stride; /* a->d, or more where something else lies between the heads */
    const float *q_bias, *k_bias, *v_bias; /* of whole rows, those of q q_stride * n_head long; NULL: none */
    const float *q_norm, *k_norm;          /* [d] RMS norm of each head; NULL: none */
    float eps;                             /* of the norms */
    const struct be_rope *rope;
};
/* Bias, norm and rope of queries and keys; keys and values go to their pages. q: [T][n_head * d] for be_attention, may be in->q
 * where its heads are d apart. Afterwards in's arrays hold anything, but what lies between the heads of in->q, bias added. */
void be_attn_inputs(struct be *b, float *q, const struct be_qkv *in, const struct be_attn *a,
                    const struct be_rows *rows);
/* out[T][n_head*dv]; q: [T][n_head*d] (already roped). Causal: row at position p sees keys 0..p. */
void be_attention(struct be *b, float *out, const float *q, const struct be_attn *a,
                  const struct be_rows *rows);

/* ---- gated delta net (Yang et al., "Gated Delta Networks", arXiv:2412.06464) ---- */

#define BE_CONV_MAX 8 /* taps */

struct be_delta {
    int n_k_head, n_v_head, dk,
        dv;     /* value head j reads key head j % n_k_head, or j / (n_v/n_k) when grouped */
    int conv_k; /* taps */
    bool grouped;
    float eps;                /* of the gated norm */
    const float *conv_w;      /* [cd][conv_k], newest tap last; cd = 2*n_k*dk + n_v*dv */
    const float *dt_bias, *a; /* [n_v]; a is already -exp(A_log) */
    const float *norm_w;      /* [dv] */
    size_t state_at;          /* first float of this layer's state within a sequence's */
};
/* State of one layer of one sequence: conv [conv_k-1][cd] oldest first, then S [n_v][dk][dv]; float32. */
size_t be_delta_state_floats(const struct be_delta *d);
struct be_delta_run {
    int64_t row0, n_rows;
    float *state; /* of all layers; this one's be_delta_state_floats from state_at on are read and written */
};
/* u [T][cd] (pre-convolution), z [T][n_v*dv], bt [T][n_v], at [T][n_v] → out [T][n_v*dv], gated and normed,
 * ready for ssm_out. Serial in time per sequence on this processor, so that no cut of a prompt changes a bit; a GPU takes longer
 * runs by chunks, within a bound. u may be overwritten. */
void be_delta_net(struct be *b, float *out, const struct be_delta *d, float *u, const float *z,
                  const float *bt, const float *at, const struct be_delta_run *runs, int n_runs, int64_t T);

/* ---- mixture of experts (Shazeer et al., "Outrageously Large Neural Networks", arXiv:1701.06538) ----
 *
 * A row goes to its n_used best experts: T rows become T * n_used pairs (row, choice), pair t * n_used + j being the
 * j-th choice of row t. Pairs are sorted by expert, so that each expert's weights are read once a batch, whatever
 * the number of rows that chose it. */

#define BE_EXPERTS_MAX 1024
#define BE_USED_MAX    64

struct be_route {
    int n_expert, n_used;
    bool sigmoid;      /* probabilities: sigmoid of each logit; else softmax over all */
    const float *bias; /* [n_expert] added for the choice only; NULL: none */
    bool normalize;    /* weights of the chosen sum to 1 */
    float scale;       /* of the weights, after that */
};
/* ids, w [T][n_used]: the chosen experts, the best first (the lower number on ties), and their weights. */
void be_moe_route(struct be *b, int32_t *ids, float *w, const float *logits, const struct be_route *r,
                  int64_t T);
/* Sorts pairs by expert, stable: pair p lies at row at[p]; rows first[e] … first[e + 1] - 1 belong to expert e.
 * first: [BE_EXPERTS_MAX + 1]. */
void be_moe_sort(struct be *b, int32_t *at, int64_t *first, const int32_t *ids, const struct be_route *r,
                 int64_t T);
/* y[at[p]] = x[p / n_used]: every pair's own copy of its row, in sorted order. */
void be_moe_gather(struct be *b, float *y, const float *x, const int32_t *at, const struct be_route *r,
                   int64_t T, int64_t n);
/* For n (at most 2) weights of each expert: y[i][row] = x[row] · w[i][expert]ᵀ over sorted rows. All w[i][e] of one i
 * have one type and shape. x and y: [T * n_used] rows. */
void be_moe_matmul(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                   const int64_t *first, const struct be_route *r, int64_t T);
/* out[t] = Σ_j w[t][j] y[at[t * n_used + j]], best choice first. */
void be_moe_combine(struct be *b, float *out, const float *y, const float *w, const int32_t *at,
                    const struct be_route *r, int64_t T, int64_t n);

/* A feed-forward part of experts in one go. Arrays have one weight an expert; all of one array have one type and shape. */
struct be_experts {
    struct be_route route;
    bool gelu; /* else silu */
    const struct be_weight *router, *gate, *up, *down;
    /* The expert of every row: weighted by sigmoid of its gate; NULL: there is none. */
    const struct be_weight *shared_by, *shared_gate, *shared_up, *shared_down;
};
/* Room for T rows; what it holds then is unspecified. */
struct be_experts_room {
    float *logits;              /* [T][n_expert + 1] */
    float *x, *a, *b, *w;       /* [T * n_used][n], twice its inner size, 1 */
    float *shared_a, *shared_b; /* [T][inner size of the shared expert] */
    float *shared_y;            /* [T][n]; may be what be_experts reads */
    int32_t *ids, *at;          /* [T * n_used] */
    int64_t *first;             /* [BE_EXPERTS_MAX + 1] */
};
/* out[t] = Σ_j w[t][j] down_j(act(gate_j x[t]) * up_j x[t]) over the chosen experts of row t, and the shared one. x: [T][n]. */
void be_experts(struct be *b, float *out, const struct be_experts *e, const struct be_experts_room *room,
                const float *x, int64_t T);

/* Index of the largest of n values (first on ties) — greedy sampling. */
int64_t be_argmax(const float *x, int64_t n);

uint16_t be_f32_to_f16(float f); /* round to nearest even; out of range becomes infinity */
float be_f16_to_f32(uint16_t h);

#endif
