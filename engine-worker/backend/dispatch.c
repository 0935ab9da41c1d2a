#include "internal.h"

#include <stdlib.h>

/* The names of backend.h, for whatever the backend is. */

void be_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                 int64_t T)
{
    b->ops->matmul_n(b, y, w, n, x, T);
}

void be_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                     const struct be_weight *up, bool gelu, const float *x, int64_t T)
{
    b->ops->matmul_gated(b, g, u, gate, up, gelu, x, T);
}

void be_norm_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n,
                      const struct be_normed *in, int64_t T)
{
    b->ops->norm_matmul_n(b, y, w, n, in, T);
}

void be_norm_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                          const struct be_weight *up, bool gelu, const struct be_normed *in, int64_t T)
{
    b->ops->norm_matmul_gated(b, g, u, gate, up, gelu, in, T);
}

void be_matmul_add(struct be *b, float *x, const struct be_weight *w, const float *in, float *room, int64_t T,
                   const float **rest)
{
    b->ops->matmul_add(b, x, w, in, room, T, rest);
}

void be_get_rows(struct be *b, float *out, const struct be_weight *w, const uint32_t *ids, int64_t T)
{
    b->ops->get_rows(b, out, w, ids, T);
}

void be_copy_rows(struct be *b, float *y, int64_t y_stride, const float *x, int64_t x_stride, int64_t T,
                  int64_t n)
{
    b->ops->copy_rows(b, y, y_stride, x, x_stride, T, n);
}

void be_pick_rows(struct be *b, float *y, const float *x, const int32_t *rows, int64_t T, int64_t n)
{
    b->ops->pick_rows(b, y, x, rows, T, n);
}

void be_best(struct be *b, uint32_t *ids, float *values, void *room, const float *x, int64_t T, int64_t n)
{
    b->ops->best(b, ids, values, room, x, T, n);
}

void be_rmsnorm(struct be *b, float *y, const float *x, const float *w, int64_t T, int64_t n, float eps)
{
    b->ops->rmsnorm(b, y, x, w, T, n, eps);
}

void be_add_rmsnorm(struct be *b, float *y, float *x, const float *add, const float *w, int64_t T, int64_t n,
                    float eps)
{
    b->ops->add_rmsnorm(b, y, x, add, w, T, n, eps);
}

void be_add(struct be *b, float *y, const float *x, int64_t T, int64_t n)
{
    b->ops->add(b, y, x, T, n);
}

void be_silu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n)
{
    b->ops->silu_mul(b, g, u, T, n);
}

void be_gelu_mul(struct be *b, float *g, const float *u, int64_t T, int64_t n)
{
    b->ops->gelu_mul(b, g, u, T, n);
}

void be_add_bias(struct be *b, float *y, const float *bias, int64_t T, int64_t n)
{
    b->ops->add_bias(b, y, bias, T, n);
}

void be_scale(struct be *b, float *x, float by, int64_t T, int64_t n)
{
    b->ops->scale(b, x, by, T, n);
}

void be_softcap(struct be *b, float *x, float cap, int64_t T, int64_t n)
{
    b->ops->softcap(b, x, cap, T, n);
}

void be_row_gate(struct be *b, float *x, const float *g, int64_t T, int64_t n)
{
    b->ops->row_gate(b, x, g, T, n);
}

void be_sigmoid_gate(struct be *b, float *x, const float *g, int64_t g_stride, int64_t T, int64_t n)
{
    b->ops->sigmoid_gate(b, x, g, g_stride, T, n);
}

void be_rope(struct be *b, float *x, int64_t T, int64_t row_stride, int n_head, int64_t head_stride,
             const struct be_rope *r, const int32_t *pos)
{
    b->ops->rope(b, x, T, row_stride, n_head, head_stride, r, pos);
}

void be_kv_write(struct be *b, const struct be_attn *a, const struct be_rows *rows, const float *k,
                 const float *v)
{
    b->ops->kv_write(b, a, rows, k, v);
}

void be_attn_inputs(struct be *b, float *q, const struct be_qkv *in, const struct be_attn *a,
                    const struct be_rows *rows)
{
    b->ops->attn_inputs(b, q, in, a, rows);
}

void be_attention(struct be *b, float *out, const float *q, const struct be_attn *a,
                  const struct be_rows *rows)
{
    b->ops->attention(b, out, q, a, rows);
}

void be_delta_net(struct be *b, float *out, const struct be_delta *d, float *u, const float *z,
                  const float *bt, const float *at, const struct be_delta_run *runs, int n_runs, int64_t T)
{
    b->ops->delta_net(b, out, d, u, z, bt, at, runs, n_runs, T);
}

void be_moe_route(struct be *b, int32_t *ids, float *w, const float *logits, const struct be_route *r,
                  int64_t T)
{
    b->ops->moe_route(b, ids, w, logits, r, T);
}

void be_moe_sort(struct be *b, int32_t *at, int64_t *first, const int32_t *ids, const struct be_route *r,
                 int64_t T)
{
    b->ops->moe_sort(b, at, first, ids, r, T);
}

void be_moe_gather(struct be *b, float *y, const float *x, const int32_t *at, const struct be_route *r,
                   int64_t T, int64_t n)
{
    b->ops->moe_gather(b, y, x, at, r, T, n);
}

void be_moe_matmul(struct be *b, float *const *y, const struct be_weight *const *w, int n, const float *x,
                   const int64_t *first, const struct be_route *r, int64_t T)
{
    b->ops->moe_matmul(b, y, w, n, x, first, r, T);
}

void be_moe_combine(struct be *b, float *out, const float *y, const float *w, const int32_t *at,
                    const struct be_route *r, int64_t T, int64_t n)
{
    b->ops->moe_combine(b, out, y, w, at, r, T, n);
}

int be_reserve(struct be *b, int64_t max_rows, int64_t max_in, struct vt_err *err)
{
    return b->ops->reserve(b, max_rows, max_in, err);
}

int be_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    return b->ops->alloc(b, out, bytes, err);
}

void be_release(struct be *b, void *p, size_t bytes)
{
    b->ops->release(b, p, bytes);
}

void be_write(struct be *b, void *dst, const void *src, size_t bytes)
{
    b->ops->write(b, dst, src, bytes);
}

void be_copy(struct be *b, void *dst, const void *src, size_t bytes)
{
    b->ops->copy(b, dst, src, bytes);
}

void be_zero(struct be *b, void *dst, size_t bytes)
{
    b->ops->zero(b, dst, bytes);
}

int be_read(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err)
{
    return b->ops->read(b, dst, src, bytes, err);
}

int be_fetch(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err)
{
    return b->ops->fetch(b, dst, src, bytes, err);
}

int be_sync(struct be *b, struct vt_err *err)
{
    return b->ops->sync(b, err);
}

int be_alloc_host(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    return b->ops->alloc_host(b, out, bytes, err);
}

void be_release_host(struct be *b, void *p)
{
    b->ops->release_host(b, p);
}

bool be_begin(struct be *b, uint64_t key)
{
    return b->ops->begin(b, key);
}

void be_end(struct be *b, uint64_t key)
{
    b->ops->end(b, key);
}

int be_upload(struct be *b, struct be_weight *out, const struct be_weight *w, int n, struct vt_err *err)
{
    void *memory = NULL;
    if (be_weight_bytes(b, w, n) > 0 && be_alloc(b, &memory, be_weight_bytes(b, w, n), err) < 0)
        return -1;
    if (be_upload_to(b, out, memory, w, n, err) == 0)
        return 0;
    be_release(b, memory, be_weight_bytes(b, w, n));
    return -1;
}

int be_readable(const struct be *b, const struct be_weight *w, struct vt_err *err)
{
    if (be_weight_bytes(b, w, 1) > 0)
        return 0;
    return vt_fail(err, VT_E_CAPABILITY, "weights of type %s with rows of %lld values do not run on the GPU",
                   ggml_type_name(w->type), (long long)w->n_in);
}

int be_upload_to(struct be *b, struct be_weight *out, void *memory, const struct be_weight *w, int n,
                 struct vt_err *err)
{
    *out = *w;
    out->data = NULL;
    if (be_readable(b, w, err) < 0)
        return -1;
    out->data = memory;
    return b->ops->upload(b, out, memory, w, n, err);
}

void be_pin(struct be *b, void *p, size_t bytes)
{
    if (b->ops->pin != NULL)
        b->ops->pin(b, p, bytes);
}

void be_unpin(struct be *b, void *p)
{
    if (b->ops->unpin != NULL)
        b->ops->unpin(b, p);
}

int be_share(struct be *b, void **out, size_t bytes, int *fd, struct vt_err *err)
{
    *out = NULL;
    *fd = -1;
    return b->ops->share(b, out, bytes, fd, err);
}

int be_share_open(struct be *b, void **out, size_t bytes, int fd, struct vt_err *err)
{
    *out = NULL;
    return b->ops->share_open(b, out, bytes, fd, err);
}

void be_unshare(struct be *b, void *p, size_t bytes)
{
    if (p != NULL)
        b->ops->unshare(b, p, bytes);
}

void be_seal(struct be *b, uint64_t *out, const void *p, size_t bytes, uint64_t salt)
{
    b->ops->seal(b, out, p, bytes, salt);
}

void be_matmul(struct be *b, float *y, const struct be_weight *w, const float *x, int64_t T)
{
    be_matmul_n(b, &y, &w, 1, x, T);
}

size_t be_weight_bytes(const struct be *b, const struct be_weight *w, int n)
{
    return b->ops->weight_bytes(b, w, n);
}

const char *be_name(const struct be *b)
{
    return b->ops->name != NULL ? b->ops->name : be_simd_name(be_simd_of(b));
}

bool be_host(const struct be *b)
{
    return b->device == NULL;
}

int be_new_device(struct be **out, const struct be_ops *ops, void *device, struct vt_err *err)
{
    struct be *b = calloc(1, sizeof *b);
    *out = b;
    if (b == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the backend %s", ops->name);
    b->ops = ops;
    b->device = device;
    return 0;
}

void *be_device(const struct be *b)
{
    return b->device;
}

void be_experts(struct be *b, float *out, const struct be_experts *e, const struct be_experts_room *room,
                const float *x, int64_t T)
{
    b->ops->experts(b, out, e, room, x, T);
}
