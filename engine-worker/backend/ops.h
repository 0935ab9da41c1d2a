/* Ops: the operations of backend.h as a table, one for this processor and one for each kind of device. Meanings, shapes and
 * rules are those of backend.h. */
#ifndef BE_OPS_H
#define BE_OPS_H

#include "backend.h"

/* What a backend computes, by the names of backend.h: OP(name, arguments). The table and each backend's functions come from
 * here, so that none can lack one. */
/* clang-format off */ /* it never settles on this list */
#define BE_COMPUTE(OP) \
    OP(matmul_n, (struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x, \
        int64_t T)) \
    OP(matmul_gated, (struct be *b, float *g, float *u, const struct be_weight *gate, \
        const struct be_weight *up, bool gelu, const float *x, int64_t T)) \
    OP(norm_matmul_n, (struct be *b, float *const *y, const struct be_weight *const *w, int n, \
        const struct be_normed *in, int64_t T)) \
    OP(norm_matmul_gated, (struct be *b, float *g, float *u, const struct be_weight *gate, \
        const struct be_weight *up, bool gelu, const struct be_normed *in, int64_t T)) \
    OP(matmul_add, (struct be *b, float *x, const struct be_weight *w, const float *in, float *room, \
        int64_t T, const float **rest)) \
    OP(get_rows, (struct be *b, float *out, const struct be_weight *w, const uint32_t *ids, int64_t T)) \
    OP(copy_rows, (struct be *b, float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t T, \
        int64_t n)) \
    OP(pick_rows, (struct be *b, float *y, const float *x, const int32_t *rows, int64_t T, int64_t n)) \
    OP(best, (struct be *b, uint32_t *ids, float *values, void *room, const float *x, int64_t T, int64_t n)) \
    OP(rmsnorm, (struct be *b, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps)) \
    OP(add_rmsnorm, (struct be *b, float *y, float *x, const float *add, const float *w, int64_t T, \
        int64_t n, float eps)) \
    OP(add, (struct be *b, float *y, const float *x, int64_t T, int64_t n)) \
    OP(silu_mul, (struct be *b, float *g, const float *u, int64_t T, int64_t n)) \
    OP(gelu_mul, (struct be *b, float *g, const float *u, int64_t T, int64_t n)) \
    OP(add_bias, (struct be *b, float *y, const float *bias, int64_t T, int64_t n)) \
    OP(scale, (struct be *b, float *x, float by, int64_t T, int64_t n)) \
    OP(softcap, (struct be *b, float *x, float cap, int64_t T, int64_t n)) \
    OP(row_gate, (struct be *b, float *x, const float *g, int64_t T, int64_t n)) \
    OP(sigmoid_gate, (struct be *b, float *x, const float *g, int64_t g_stride, int64_t T, int64_t n)) \
    OP(rope, (struct be *b, float *x, int64_t T, int64_t row_stride, int n_head, int64_t head_stride, \
        const struct be_rope *r, const int32_t *pos)) \
    OP(kv_write, (struct be *b, const struct be_attn *a, const struct be_rows *rows, const float *k, \
        const float *v)) \
    OP(attn_inputs, (struct be *b, float *q, const struct be_qkv *in, const struct be_attn *a, \
        const struct be_rows *rows)) \
    OP(attention, (struct be *b, float *out, const float *q, const struct be_attn *a, \
        const struct be_rows *rows)) \
    OP(delta_net, (struct be *b, float *out, const struct be_delta *d, float *u, const float *z, \
        const float *bt, const float *at, const struct be_delta_run *runs, int n_runs, int64_t T)) \
    OP(moe_route, (struct be *b, int32_t *ids, float *w, const float *logits, const struct be_route *r, \
        int64_t T)) \
    OP(moe_sort, (struct be *b, int32_t *at, int64_t *first, const int32_t *ids, \
        const struct be_route *r, int64_t T)) \
    OP(moe_gather, (struct be *b, float *y, const float *x, const int32_t *at, const struct be_route *r, \
        int64_t T, int64_t n)) \
    OP(moe_matmul, (struct be *b, float *const *y, const struct be_weight *const *w, int n, \
        const float *x, const int64_t *first, const struct be_route *r, int64_t T)) \
    OP(moe_combine, (struct be *b, float *out, const float *y, const float *w, const int32_t *at, \
        const struct be_route *r, int64_t T, int64_t n)) \
    OP(experts, (struct be *b, float *out, const struct be_experts *e, const struct be_experts_room *room, \
        const float *x, int64_t T))
/* clang-format on */

#define BE_FIELD(op, args) void(*op) args;

struct be_ops {
    const char *name; /* "cuda"; NULL: this processor */
    BE_COMPUTE(BE_FIELD)
    int (*reserve)(struct be *b, int64_t max_rows, int64_t max_in, struct vt_err *err);
    int (*alloc)(struct be *b, void **out, size_t bytes, struct vt_err *err);
    void (*release)(struct be *b, void *p, size_t bytes);
    void (*write)(struct be *b, void *dst, const void *src, size_t bytes);
    void (*copy)(struct be *b, void *dst, const void *src, size_t bytes);
    void (*zero)(struct be *b, void *dst, size_t bytes);
    int (*read)(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err);
    int (*fetch)(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err);
    int (*sync)(struct be *b, struct vt_err *err);
    int (*alloc_host)(struct be *b, void **out, size_t bytes, struct vt_err *err);
    void (*release_host)(struct be *b, void *p);
    void (*pin)(struct be *b, void *p, size_t bytes);
    void (*unpin)(struct be *b, void *p);
    bool (*begin)(struct be *b, uint64_t key);
    void (*end)(struct be *b, uint64_t key);
    int (*share)(struct be *b, void **out, size_t bytes, int *fd, struct vt_err *err);
    int (*share_open)(struct be *b, void **out, size_t bytes, int fd, struct vt_err *err);
    void (*unshare)(struct be *b, void *p, size_t bytes);
    void (*seal)(struct be *b, uint64_t *out, const void *p, size_t bytes, uint64_t salt);
    int (*upload)(struct be *b, struct be_weight *out, void *memory, const struct be_weight *w, int n,
                  struct vt_err *err);
    size_t (*weight_bytes)(const struct be *b, const struct be_weight *w, int n);
    void (*fini)(struct be *b); /* frees the device */
};

/* A backend for a device, which it then owns. */
int be_new_device(struct be **out, const struct be_ops *ops, void *device, struct vt_err *err);
void *be_device(const struct be *b);
/* be_experts out of the other operations; and what its shared expert adds, the gate's logits in room->logits. */
void be_experts_parts(struct be *b, float *out, const struct be_experts *e,
                      const struct be_experts_room *room, const float *x, int64_t T);
void be_shared_expert(struct be *b, float *out, const struct be_experts *e,
                      const struct be_experts_room *room, const float *x, int64_t T);

#endif
