/* qwen3next: as qwen35moe, but the value heads of one key head are neighbours, and beta and alpha (in old files q, k, v and
 * the gate, too) come mixed, key head by key head. Rows are put in order when the file is loaded. */
#include "map.h"

/* A run of rows to take: n rows from `from` on. */
static int32_t *rows(int32_t *at, int32_t from, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        *at++ = from + i;
    return at;
}

/* Per key head: beta of its value heads, then their alpha. */
static int split_ba(struct map *p, struct delta_net *x, int layer)
{
    const struct be_delta *g = &x->geo;
    struct be_weight ba;
    int32_t r = g->n_v_head / g->n_k_head, beta[4096], alpha[4096], *b = beta, *a = alpha;
    if (map_matrix(p, &ba, layer, "ssm_ba.weight", DIM(p->m->n_embd, "embedding_length"),
                   DIM(2LL * g->n_v_head, "2 * ssm.time_step_rank")) < 0)
        return -1;
    for (int32_t k = 0; k < g->n_k_head; k++) {
        b = rows(b, 2 * r * k, r);
        a = rows(a, 2 * r * k + r, r);
    }
    x->beta = x->alpha = ba;
    if (map_reorder(p, &x->beta, beta, g->n_v_head) < 0)
        return -1;
    return map_reorder(p, &x->alpha, alpha, g->n_v_head);
}

/* Per key head: q, k, v of its value heads, then their gates. */
static int split_in(struct map *p, struct delta_net *x, int layer)
{
    const struct be_delta *g = &x->geo;
    struct be_weight in;
    int32_t nk = g->n_k_head, vw = g->n_v_head / nk * g->dv, kd = nk * g->dk, vd = nk * vw,
            part = 2 * g->dk + 2 * vw;
    if (map_matrix(p, &in, layer, "ssm_in.weight", DIM(p->m->n_embd, "embedding_length"),
                   DIM(2LL * kd + 2LL * vd, "2 * ssm.group_count * ssm.state_size + 2 * ssm.inner_size")) < 0)
        return -1;
    int32_t *order = map_alloc(p, (size_t)(2 * kd + 2 * vd) * sizeof *order);
    if (!order)
        return -1;
    int32_t *q = order, *k = q + kd, *v = k + kd, *z = v + vd;
    for (int32_t h = 0; h < nk; h++) {
        q = rows(q, h * part, g->dk);
        k = rows(k, h * part + g->dk, g->dk);
        v = rows(v, h * part + 2 * g->dk, vw);
        z = rows(z, h * part + 2 * g->dk + vw, vw);
    }
    x->qkv = x->gate = in;
    if (map_reorder(p, &x->qkv, order, 2 * kd + vd) < 0)
        return -1;
    return map_reorder(p, &x->gate, order + 2 * kd + vd, vd);
}

static int project(struct map *p, struct delta_net *x, int layer)
{
    const struct be_delta *g = &x->geo;
    struct dim width = DIM(p->m->n_embd, "embedding_length"),
               inner = DIM((int64_t)g->n_v_head * g->dv, "ssm.inner_size");
    struct dim channels =
        DIM(2LL * g->n_k_head * g->dk + inner.n, "2 * ssm.group_count * ssm.state_size + ssm.inner_size");
    if (split_ba(p, x, layer) < 0)
        return -1;
    if (map_has(p, layer, "ssm_in.weight"))
        return split_in(p, x, layer);
    if (map_matrix(p, &x->qkv, layer, "attn_qkv.weight", width, channels) < 0)
        return -1;
    return map_matrix(p, &x->gate, layer, "attn_gate.weight", width, inner);
}

int map_qwen3next(struct map *p)
{
    return map_hybrid(p, &(struct map_hybrid){.grouped = true, .project = project, .ffn = map_ffn_shared});
}
