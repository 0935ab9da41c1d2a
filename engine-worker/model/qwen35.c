/* qwen35: hybrid; gated delta net layers with a gated full-attention layer at every interval-th place; dense SwiGLU; one
 * optional MTP (draft) block behind the trunk, whose tensors are checked and left unused. */
#include "map.h"

#include <stdio.h>
#include <stdlib.h>

struct shape {
    struct be_attn attn;
    struct be_rope rope;
    struct be_delta delta; /* sizes only */
    int32_t interval, n_mtp, n_blocks;
};

static int map_full(struct map *p, struct layer *l, int i, const struct shape *s)
{
    const struct be_attn *geo = &s->attn;
    struct dim width = DIM(p->m->n_embd, "embedding_length");
    struct dim d = DIM(geo->d, "attention.key_length");
    struct dim q = DIM(2 * geo->n_head * geo->d, "2 * attention.head_count * attention.key_length");
    struct dim k = DIM(geo->n_kv_head * geo->d, "attention.head_count_kv * attention.key_length");
    struct dim v = DIM(geo->n_kv_head * geo->dv, "attention.head_count_kv * attention.value_length");
    struct dim o = DIM(geo->n_head * geo->dv, "attention.head_count * attention.value_length");
    struct attention *a = &l->attn;

    l->mixer = MIX_ATTENTION;
    a->geo = *geo;
    a->rope = s->rope;
    a->gated = true;
    if (map_matrix(p, &a->q, i, "attn_q.weight", width, q) < 0 ||
        map_matrix(p, &a->k, i, "attn_k.weight", width, k) < 0 ||
        map_matrix(p, &a->v, i, "attn_v.weight", width, v) < 0 ||
        map_matrix(p, &a->out, i, "attn_output.weight", o, width) < 0 ||
        map_vector(p, &a->q_norm, i, "attn_q_norm.weight", d) < 0)
        return -1;
    return map_vector(p, &a->k_norm, i, "attn_k_norm.weight", d);
}

static int map_delta(struct map *p, struct layer *l, int i, const struct shape *s)
{
    struct delta_net *x = &l->delta;
    struct be_delta *g = &x->geo;
    *g = s->delta;
    struct dim width = DIM(p->m->n_embd, "embedding_length");
    struct dim heads = DIM(g->n_v_head, "ssm.time_step_rank");
    struct dim taps = DIM(g->conv_k, "ssm.conv_kernel");
    struct dim inner = DIM((int64_t)g->n_v_head * g->dv, "ssm.inner_size");
    struct dim size = DIM(g->dv, "ssm.inner_size / ssm.time_step_rank");
    struct dim conv =
        DIM(2LL * g->n_k_head * g->dk + inner.n, "2 * ssm.group_count * ssm.state_size + ssm.inner_size");

    l->mixer = MIX_DELTA;
    if (map_matrix(p, &x->qkv, i, "attn_qkv.weight", width, conv) < 0 ||
        map_matrix(p, &x->gate, i, "attn_gate.weight", width, inner) < 0 ||
        map_matrix(p, &x->beta, i, "ssm_beta.weight", width, heads) < 0 ||
        map_matrix(p, &x->alpha, i, "ssm_alpha.weight", width, heads) < 0 ||
        map_matrix(p, &x->out, i, "ssm_out.weight", inner, width) < 0 ||
        map_table(p, &g->conv_w, i, "ssm_conv1d.weight", taps, conv) < 0 ||
        map_vector(p, &g->dt_bias, i, "ssm_dt.bias", heads) < 0 ||
        map_vector(p, &g->a, i, "ssm_a", heads) < 0)
        return -1;
    return map_vector(p, &g->norm_w, i, "ssm_norm.weight", size);
}

/* Norms and feed-forward, the same for both kinds. */
static int map_common(struct map *p, struct layer *l, int i)
{
    struct dim width = DIM(p->m->n_embd, "embedding_length");
    if (map_vector(p, &l->mixer_norm, i, "attn_norm.weight", width) < 0 ||
        map_vector(p, &l->ffn_norm, i, "post_attention_norm.weight", width) < 0)
        return -1;
    return map_swiglu(p, &l->ffn, i);
}

/* The draft block: a full-attention block and its own tensors. Some files keep the key and drop the block; then there is
 * none. */
static int check_mtp(struct map *p, const struct shape *s, int i)
{
    struct layer block = {0};
    struct be_weight w;
    const float *v;
    struct dim width = DIM(p->m->n_embd, "embedding_length"),
               vocab = DIM(p->m->n_vocab, "rows of token_embd");
    struct dim twice = DIM(2LL * p->m->n_embd, "2 * embedding_length");
    if (!map_has(p, i, "attn_norm.weight") && !map_has(p, i, "nextn.eh_proj.weight"))
        return 0;
    if (map_full(p, &block, i, s) < 0 || map_common(p, &block, i) < 0 ||
        map_matrix(p, &w, i, "nextn.eh_proj.weight", twice, width) < 0 ||
        map_vector(p, &v, i, "nextn.enorm.weight", width) < 0 ||
        map_vector(p, &v, i, "nextn.hnorm.weight", width) < 0)
        return -1;
    if (map_has(p, i, "nextn.shared_head_norm.weight") &&
        map_vector(p, &v, i, "nextn.shared_head_norm.weight", width) < 0)
        return -1;
    if (map_has(p, i, "nextn.embed_tokens.weight") &&
        map_matrix(p, &w, i, "nextn.embed_tokens.weight", width, vocab) < 0)
        return -1;
    if (map_has(p, i, "nextn.shared_head_head.weight") &&
        map_matrix(p, &w, i, "nextn.shared_head_head.weight", width, vocab) < 0)
        return -1;
    p->m->n_mtp++;
    return 0;
}

static int map_sizes(struct map *p, struct shape *s)
{
    struct model *m = p->m;
    struct be_delta *g = &s->delta;
    int32_t inner;
    if (map_int(p, "block_count", 1, 1024, -1, &s->n_blocks) < 0 ||
        map_int(p, "nextn_predict_layers", 0, s->n_blocks - 1, 0, &s->n_mtp) < 0 || map_trunk(p) < 0 ||
        map_attention(p, &s->attn, &s->rope) < 0 ||
        map_int(p, "full_attention_interval", 1, 1024, 4, &s->interval) < 0 ||
        map_int(p, "ssm.conv_kernel", 2, 64, -1, &g->conv_k) < 0 ||
        map_int(p, "ssm.state_size", 1, 4096, -1, &g->dk) < 0 ||
        map_int(p, "ssm.group_count", 1, 4096, -1, &g->n_k_head) < 0 ||
        map_int(p, "ssm.time_step_rank", 1, 4096, -1, &g->n_v_head) < 0 ||
        map_int(p, "ssm.inner_size", 1, 1 << 20, -1, &inner) < 0)
        return -1;
    m->n_layer = s->n_blocks - s->n_mtp;
    if (s->attn.d != s->attn.dv)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.attention.value_length is %d; attention.key_length (%d) is needed, since "
                       "the gate has that size",
                       m->arch, s->attn.dv, s->attn.d);
    if (inner % g->n_v_head != 0)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.ssm.inner_size is %d; a multiple of ssm.time_step_rank (%d) is needed", m->arch,
                       inner, g->n_v_head);
    if (g->n_v_head % g->n_k_head != 0)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.ssm.time_step_rank is %d; a multiple of ssm.group_count (%d) is needed", m->arch,
                       g->n_v_head, g->n_k_head);
    g->dv = inner / g->n_v_head;
    g->grouped = false;
    g->eps = m->eps;
    return 0;
}

/* An explicit list of recurrent layers wins over the interval. */
static int is_delta(struct map *p, const struct shape *s, int i, bool *delta)
{
    char key[128];
    enum gguf_type elem;
    uint64_t n;
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", p->m->arch);
    int rc = gguf_arr(p->f, key, &elem, &n, p->err);
    if (rc < 0)
        return -1;
    *delta = (i + 1) % s->interval != 0;
    if (rc > 0)
        return 0;
    uint32_t v;
    if (n < (uint64_t)p->m->n_layer)
        return vt_fail(p->err, VT_E_PAYLOAD, "key %s has %llu values; one a layer (%d) is needed", key,
                       (unsigned long long)n, p->m->n_layer);
    if (gguf_arr_u32(p->f, key, (uint64_t)i, &v, p->err) != 0)
        return -1;
    *delta = v != 0;
    return 0;
}

int map_qwen35(struct map *p)
{
    struct model *m = p->m;
    struct shape s = {0};
    if (map_sizes(p, &s) < 0)
        return -1;
    if (!map_has(p, 0, "attn_norm.weight") && map_has(p, m->n_layer, "nextn.eh_proj.weight"))
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "the file holds a draft (MTP) block only; name the model's own file");
    if (map_layers(p) < 0)
        return -1;
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layers[i];
        bool delta;
        if (is_delta(p, &s, i, &delta) < 0 || (delta ? map_delta(p, l, i, &s) : map_full(p, l, i, &s)) < 0 ||
            map_common(p, l, i) < 0)
            return -1;
        if (delta) {
            l->delta.state_at = m->state_floats;
            m->state_floats += be_delta_state_floats(&l->delta.geo);
        } else {
            l->attn.index = m->n_attn++;
        }
    }
    for (int i = m->n_layer; i < s.n_blocks; i++)
        if (check_mtp(p, &s, i) < 0)
            return -1;
    return 0;
}
