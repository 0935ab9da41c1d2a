/* Feed-forward parts: dense, experts, experts beside a shared one. */
#include "map.h"

#include <math.h>
#include <stdio.h>

static struct dim width(struct map *p)
{
    return DIM(p->m->n_embd, "embedding_length");
}

static int map_three(struct map *p, struct ffn *ffn, int layer, const char *suffix, struct dim inner)
{
    char gate[48], up[48], down[48];
    snprintf(gate, sizeof gate, "ffn_gate%s.weight", suffix);
    snprintf(up, sizeof up, "ffn_up%s.weight", suffix);
    snprintf(down, sizeof down, "ffn_down%s.weight", suffix);
    if (map_matrix(p, &ffn->gate, layer, gate, width(p), inner) < 0 ||
        map_matrix(p, &ffn->up, layer, up, width(p), inner) < 0)
        return -1;
    return map_matrix(p, &ffn->down, layer, down, inner, width(p));
}

int map_ffn_dense(struct map *p, struct ffn *ffn, int layer, enum act act, bool biases)
{
    int32_t n;
    if (map_int_layers(p, "feed_forward_length", 1, 1 << 24, -1, &n) < 0)
        return -1;
    struct dim inner = DIM(n, "feed_forward_length");
    ffn->act = act;
    if (map_three(p, ffn, layer, "", inner) < 0)
        return -1;
    if (!biases)
        return 0;
    if (map_vector_opt(p, &ffn->gate_bias, layer, "ffn_gate.bias", inner) < 0 ||
        map_vector_opt(p, &ffn->up_bias, layer, "ffn_up.bias", inner) < 0)
        return -1;
    return map_vector_opt(p, &ffn->down_bias, layer, "ffn_down.bias", width(p));
}

/* ---- experts ---- */

static int read_route(struct map *p, struct be_route *r)
{
    int32_t gating;
    if (map_int(p, "expert_count", 1, BE_EXPERTS_MAX, -1, &r->n_expert) < 0 ||
        map_int(p, "expert_used_count", 1, r->n_expert < BE_USED_MAX ? r->n_expert : BE_USED_MAX, -1,
                &r->n_used) < 0 ||
        map_int(p, "expert_gating_func", 1, 1, 1, &gating) < 0 || /* softmax */
        map_float(p, "expert_weights_scale", 0, 1e6f, 1, &r->scale) < 0)
        return -1;
    if (r->scale == 0)
        r->scale = 1;
    r->normalize = true;
    return 0;
}

/* ffn_<part>.<e>.weight of every expert: files of the first months of mixtral. */
static int map_single(struct map *p, struct be_weight **w, int layer, const char *part, struct dim in,
                      struct dim out, int32_t n)
{
    char name[48];
    if (!(*w = map_alloc(p, (size_t)n * sizeof **w)))
        return -1;
    for (int32_t e = 0; e < n; e++) {
        snprintf(name, sizeof name, "ffn_%s.%d.weight", part, e);
        if (map_matrix(p, &(*w)[e], layer, name, in, out) < 0)
            return -1;
    }
    return 0;
}

/* Rows 0 … inner-1 of each expert are the gate, the rest is up. */
static int split_fused(struct map *p, struct be_weight *gate, struct be_weight **up, int64_t inner, int32_t n)
{
    if (!(*up = map_alloc(p, (size_t)n * sizeof **up)))
        return -1;
    for (int32_t e = 0; e < n; e++) {
        gate[e].n_out = inner;
        (*up)[e] = gate[e];
        if (gate[e].data) /* shapes alone have none */
            (*up)[e].data = (const uint8_t *)gate[e].data +
                            ggml_row_bytes(gate[e].type, (uint64_t)gate[e].n_in) * (uint64_t)inner;
    }
    return 0;
}

static int map_gate_up(struct map *p, struct be_weight **gate, struct be_weight **up, int layer,
                       struct dim inner, struct dim n)
{
    if (map_has(p, layer, "ffn_gate_up_exps.weight")) {
        struct dim both = DIM(2 * inner.n, "2 * expert_feed_forward_length");
        if (map_matrices(p, gate, layer, "ffn_gate_up_exps.weight", width(p), both, n) < 0)
            return -1;
        return split_fused(p, *gate, up, inner.n, (int32_t)n.n);
    }
    if (map_matrices(p, gate, layer, "ffn_gate_exps.weight", width(p), inner, n) < 0)
        return -1;
    return map_matrices(p, up, layer, "ffn_up_exps.weight", width(p), inner, n);
}

int map_ffn_experts(struct map *p, struct ffn *ffn, int layer)
{
    struct experts *x = map_alloc(p, sizeof *x);
    struct be_weight *gate, *up, *down;
    int32_t inner;
    if (!x || read_route(p, &x->route) < 0 ||
        map_int_layers(p, "feed_forward_length", 0, 1 << 24, 0, &inner) < 0 ||
        map_int(p, "expert_feed_forward_length", 1, 1 << 24, inner > 0 ? inner : -1, &inner) < 0)
        return -1;
    int32_t n = x->route.n_expert;
    struct dim wide = DIM(inner, "expert_feed_forward_length"), count = DIM(n, "expert_count");
    if (map_matrix(p, &x->router, layer, "ffn_gate_inp.weight", width(p), count) < 0)
        return -1;
    if (map_has(p, layer, "ffn_gate.0.weight")) {
        if (map_single(p, &gate, layer, "gate", width(p), wide, n) < 0 ||
            map_single(p, &up, layer, "up", width(p), wide, n) < 0 ||
            map_single(p, &down, layer, "down", wide, width(p), n) < 0)
            return -1;
    } else if (map_gate_up(p, &gate, &up, layer, wide, count) < 0 ||
               map_matrices(p, &down, layer, "ffn_down_exps.weight", wide, width(p), count) < 0) {
        return -1;
    }
    x->gate = gate;
    x->up = up;
    x->down = down;
    ffn->act = ACT_SILU;
    ffn->experts = x;
    return 0;
}

int map_ffn_shared(struct map *p, struct ffn *ffn, int layer)
{
    int32_t n;
    const float *gate;
    if (map_ffn_experts(p, ffn, layer) < 0 ||
        map_int(p, "expert_shared_feed_forward_length", 1, 1 << 24, ffn->experts->gate[0].n_out, &n) < 0 ||
        map_three(p, ffn, layer, "_shexp", DIM(n, "expert_shared_feed_forward_length")) < 0 ||
        map_vector(p, &gate, layer, "ffn_gate_inp_shexp.weight", width(p)) < 0)
        return -1;
    ffn->shared_gate = (struct be_weight){.type = GT_F32, .n_in = p->m->n_embd, .n_out = 1, .data = gate};
    return 0;
}
