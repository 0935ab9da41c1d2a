/* CUDA operations: the operations of backend.h on device memory, for one GPU and one stream.
 *
 * Pointers are device pointers unless a comment says host. Everything is queued on the stream in the order of the calls and
 * nothing waits, except cu_read and cu_sync. An error of any kind sticks: later calls do nothing and cu_sync tells it, since
 * after a CUDA error nothing on the device can be trusted and the process has to end. One thread.
 *
 * Arithmetic: up to CU_VEC_ROWS rows a matmul reads activations as int8 with a scale for every 32, as the CPU does, and sums
 * in an order that depends on the weight's shape alone. More rows go through the tensor cores with f16 operands and float32
 * sums. test_cuda.c states the bounds. */
#ifndef CU_H
#define CU_H

#include "backend.h"
#include "err.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CU_VEC_ROWS 8

struct cu; /* device, stream, scratch */

/* How many GPUs there are; 0 without a driver. */
int cu_count(void);
struct cu_facts {
    char name[128], uuid[40];
    int sm; /* 10 * major + minor */
    uint64_t free, total;
    int multiprocessors;
};
int cu_facts(struct cu_facts *out, int device, struct vt_err *err);

/* max_rows: of any call; max_in: values of the longest row that a matmul takes. VT_E_DEVICE_MEM, VT_E_DEVICE_LOST. */
int cu_new(struct cu **out, int device, int64_t max_rows, int64_t max_in, struct vt_err *err);
void cu_free(struct cu *c);

/* VT_E_DEVICE_MEM says how much was asked for and how much is free. */
int cu_alloc(struct cu *c, void **out, size_t bytes, struct vt_err *err);
void cu_release(struct cu *c, void *p);
void cu_write(struct cu *c, void *dst, const void *host,
              size_t bytes); /* host memory may change after the call */
void cu_copy(struct cu *c, void *dst, const void *src, size_t bytes);
void cu_zero(struct cu *c, void *dst, size_t bytes);
int cu_read(struct cu *c, void *host, const void *src, size_t bytes, struct vt_err *err); /* waits */
int cu_sync(struct cu *c, struct vt_err *err);                                            /* waits */

/* A weight on the device, its bytes rearranged into planes that 16-byte loads can read. */
struct cu_weight {
    uint32_t type;
    int64_t n_in, n_out;
    const uint8_t *plane[4]; /* blocks.cuh says what they hold */
    void *memory;            /* owned: cu_weight_free */
};
bool cu_type_ok(uint32_t type, int64_t n_in);
/* Uploads w (host). */
int cu_weight_new(struct cu *c, struct cu_weight *out, const struct be_weight *w, struct vt_err *err);
void cu_weight_free(struct cu *c, struct cu_weight *w);
/* Bytes on the device for a weight of this type and shape. */
size_t cu_weight_bytes(uint32_t type, int64_t n_in, int64_t n_out);

/* y[T][n_out] = x[T][n_in] · Wᵀ */
void cu_matmul(struct cu *c, float *y, const struct cu_weight *w, const float *x, int64_t T);
/* out[T][n_in] = rows ids[T] of w */
void cu_get_rows(struct cu *c, float *out, const struct cu_weight *w, const uint32_t *ids, int64_t T);

void cu_rmsnorm(struct cu *c, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps);
void cu_add(struct cu *c, float *y, const float *x, int64_t T, int64_t n);
void cu_add_bias(struct cu *c, float *y, const float *bias, int64_t T, int64_t n);
void cu_scale(struct cu *c, float *x, float by, int64_t T, int64_t n);
void cu_softcap(struct cu *c, float *x, float cap, int64_t T, int64_t n);
void cu_silu_mul(struct cu *c, float *g, const float *u, int64_t T, int64_t n);
void cu_gelu_mul(struct cu *c, float *g, const float *u, int64_t T, int64_t n);
void cu_row_gate(struct cu *c, float *x, const float *g, int64_t T, int64_t n);
void cu_sigmoid_gate(struct cu *c, float *x, const float *g, int64_t g_stride, int64_t T, int64_t n);
/* pos [T]; r->freq on the device. */
void cu_rope(struct cu *c, float *x, int64_t T, int64_t row_stride, int n_head, int64_t head_stride,
             const struct be_rope *r, const int32_t *pos);

/* A run as in backend.h; the array of runs and their page tables are on the device. */
struct cu_attn_run {
    int64_t row0, n_rows;
    int32_t pos0;
    uint16_t *const *k_pages;
    uint16_t *const *v_pages;
};
/* row_run [T]: which run a row belongs to. */
void cu_kv_write(struct cu *c, const struct be_attn *a, const struct cu_attn_run *runs,
                 const int32_t *row_run, const float *k, const float *v, int64_t T);
/* max_pos: the highest position of the batch; decides how the keys are shared out. */
void cu_attention(struct cu *c, float *out, const float *q, const struct be_attn *a,
                  const struct cu_attn_run *runs, const int32_t *row_run, int64_t T, int32_t max_pos);

struct cu_delta_run {
    int64_t row0, n_rows;
    float *state;
};
/* d's arrays and runs [n_runs] are on the device. u is overwritten. */
void cu_delta_net(struct cu *c, float *out, const struct be_delta *d, float *u, const float *z,
                  const float *bt, const float *at, const struct cu_delta_run *runs, int n_runs, int64_t T);

#ifdef __cplusplus
}
#endif
#endif
