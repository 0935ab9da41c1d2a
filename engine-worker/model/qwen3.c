/* qwen3: dense; per-head RMS norm of q and k before half-split rope; SwiGLU; no biases. */
#include "map.h"

static int map_layer(struct map *p, struct layer *l, int i, const struct be_attn *geo,
                     const struct be_rope *rope)
{
    struct dim width = DIM(p->m->n_embd, "embedding_length");
    struct dim d = DIM(geo->d, "attention.key_length");
    struct dim q = DIM(geo->n_head * geo->d, "attention.head_count * attention.key_length");
    struct dim k = DIM(geo->n_kv_head * geo->d, "attention.head_count_kv * attention.key_length");
    struct dim v = DIM(geo->n_kv_head * geo->dv, "attention.head_count_kv * attention.value_length");
    struct dim o = DIM(geo->n_head * geo->dv, "attention.head_count * attention.value_length");
    struct attention *a = &l->attn;

    l->mixer = MIX_ATTENTION;
    a->geo = *geo;
    a->rope = *rope;
    a->index = i;
    if (map_vector(p, &l->mixer_norm, i, "attn_norm.weight", width) < 0 ||
        map_matrix(p, &a->q, i, "attn_q.weight", width, q) < 0 ||
        map_matrix(p, &a->k, i, "attn_k.weight", width, k) < 0 ||
        map_matrix(p, &a->v, i, "attn_v.weight", width, v) < 0 ||
        map_matrix(p, &a->out, i, "attn_output.weight", o, width) < 0 ||
        map_vector(p, &a->q_norm, i, "attn_q_norm.weight", d) < 0 ||
        map_vector(p, &a->k_norm, i, "attn_k_norm.weight", d) < 0 ||
        map_vector(p, &l->ffn_norm, i, "ffn_norm.weight", width) < 0)
        return -1;
    return map_swiglu(p, &l->ffn, i);
}

int map_qwen3(struct map *p)
{
    struct model *m = p->m;
    struct be_attn geo;
    struct be_rope rope;
    if (map_int(p, "block_count", 1, 1024, -1, &m->n_layer) < 0 || map_trunk(p) < 0 ||
        map_attention(p, &geo, &rope) < 0 || map_layers(p) < 0)
        return -1;
    m->n_attn = m->n_layer;
    for (int i = 0; i < m->n_layer; i++)
        if (map_layer(p, &m->layers[i], i, &geo, &rope) < 0)
            return -1;
    return 0;
}
