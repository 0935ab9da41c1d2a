#include "internal.h"

/* What a device does in one go is here one operation after another: on this processor a pass over a row costs little. */

void cpu_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                      const struct be_weight *up, bool gelu, const float *x, int64_t T)
{
    const struct be_weight *w[] = {gate, up};
    float *y[] = {g, u};
    cpu_matmul_n(b, y, w, 2, x, T);
    if (gelu)
        cpu_gelu_mul(b, g, u, T, gate->n_out);
    else
        cpu_silu_mul(b, g, u, T, gate->n_out);
}

void cpu_add_rmsnorm(struct be *b, float *y, float *x, const float *add, const float *w, int64_t T, int64_t n,
                     float eps)
{
    cpu_add(b, x, add, T, n);
    cpu_rmsnorm(b, y, x, w, T, n, eps);
}

static void norm_to_room(struct be *b, const struct be_normed *in, int64_t T, int64_t n)
{
    if (in->add != NULL)
        cpu_add_rmsnorm(b, in->room, in->x, in->add, in->w, T, n, in->eps);
    else
        cpu_rmsnorm(b, in->room, in->x, in->w, T, n, in->eps);
}

void cpu_norm_matmul_n(struct be *b, float *const *y, const struct be_weight *const *w, int n,
                       const struct be_normed *in, int64_t T)
{
    norm_to_room(b, in, T, w[0]->n_in);
    cpu_matmul_n(b, y, w, n, in->room, T);
}

void cpu_norm_matmul_gated(struct be *b, float *g, float *u, const struct be_weight *gate,
                           const struct be_weight *up, bool gelu, const struct be_normed *in, int64_t T)
{
    norm_to_room(b, in, T, gate->n_in);
    cpu_matmul_gated(b, g, u, gate, up, gelu, in->room, T);
}

/* The norm that comes next adds in the pass that it makes anyway. */
void cpu_matmul_add(struct be *b, float *x, const struct be_weight *w, const float *in, float *room,
                    int64_t T, const float **rest)
{
    (void)x;
    cpu_matmul_n(b, &room, &w, 1, in, T);
    *rest = room;
}

void cpu_attn_inputs(struct be *b, float *q, const struct be_qkv *in, const struct be_attn *a,
                     const struct be_rows *rows)
{
    int64_t T = rows->T, n_q = (int64_t)a->n_head * a->d, n_k = (int64_t)a->n_kv_head * a->d;
    if (in->k_bias)
        cpu_add_bias(b, in->k, in->k_bias, T, n_k);
    if (in->v_bias)
        cpu_add_bias(b, in->v, in->v_bias, T, (int64_t)a->n_kv_head * a->dv);
    if (in->q_bias)
        cpu_add_bias(b, in->q, in->q_bias, T, in->q_stride * a->n_head);
    if (q != in->q)
        cpu_copy_rows(b, q, a->d, in->q, in->q_stride, T * a->n_head, a->d);
    if (in->q_norm)
        cpu_rmsnorm(b, q, q, in->q_norm, T * a->n_head, a->d, in->eps);
    if (in->k_norm)
        cpu_rmsnorm(b, in->k, in->k, in->k_norm, T * a->n_kv_head, a->d, in->eps);
    cpu_rope(b, q, T, n_q, a->n_head, a->d, in->rope, rows->pos);
    cpu_rope(b, in->k, T, n_k, a->n_kv_head, a->d, in->rope, rows->pos);
    cpu_kv_write(b, a, rows, in->k, in->v);
}

void be_shared_expert(struct be *b, float *out, const struct be_experts *e,
                      const struct be_experts_room *room, const float *x, int64_t T)
{
    int64_t n = e->shared_down->n_out;
    be_matmul(b, room->logits, e->shared_by, x, T);
    be_matmul_gated(b, room->shared_a, room->shared_b, e->shared_gate, e->shared_up, e->gelu, x, T);
    be_matmul(b, room->shared_y, e->shared_down, room->shared_a, T);
    be_row_gate(b, room->shared_y, room->logits, T, n);
    be_add(b, out, room->shared_y, T, n);
}

void be_experts_parts(struct be *b, float *out, const struct be_experts *e,
                      const struct be_experts_room *room, const float *x, int64_t T)
{
    const struct be_route *r = &e->route;
    int64_t n = e->router->n_in, pairs = T * r->n_used, inner = e->gate->n_out;
    const struct be_weight *in[] = {e->gate, e->up}, *back[] = {e->down};
    float *wide[] = {room->a, room->b};
    be_matmul(b, room->logits, e->router, x, T);
    be_moe_route(b, room->ids, room->w, room->logits, r, T);
    be_moe_sort(b, room->at, room->first, room->ids, r, T);
    be_moe_gather(b, room->x, x, room->at, r, T, n);
    be_moe_matmul(b, wide, in, 2, room->x, room->first, r, T);
    if (e->gelu)
        be_gelu_mul(b, room->a, room->b, pairs, inner);
    else
        be_silu_mul(b, room->a, room->b, pairs, inner);
    be_moe_matmul(b, &room->x, back, 1, room->a, room->first, r, T);
    be_moe_combine(b, out, room->x, room->w, room->at, r, T, n);
    if (e->shared_by)
        be_shared_expert(b, out, e, room, x, T);
}

void cpu_experts(struct be *b, float *out, const struct be_experts *e, const struct be_experts_room *room,
                 const float *x, int64_t T)
{
    be_experts_parts(b, out, e, room, x, T);
}
