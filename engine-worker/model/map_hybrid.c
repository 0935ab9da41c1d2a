#include "map.h"

#include <stdio.h>

struct sizes {
    struct be_delta delta; /* sizes only */
    int32_t interval;
};

static int read_sizes(struct map *p, struct sizes *s)
{
    struct be_delta *g = &s->delta;
    const char *arch = p->m->arch;
    int32_t inner;
    if (map_int(p, "full_attention_interval", 1, 1024, 4, &s->interval) < 0 ||
        map_int(p, "ssm.conv_kernel", 2, BE_CONV_MAX, -1, &g->conv_k) < 0 ||
        map_int(p, "ssm.state_size", 1, 4096, -1, &g->dk) < 0 ||
        map_int(p, "ssm.group_count", 1, 4096, -1, &g->n_k_head) < 0 ||
        map_int(p, "ssm.time_step_rank", 1, 4096, -1, &g->n_v_head) < 0 ||
        map_int(p, "ssm.inner_size", 1, 1 << 20, -1, &inner) < 0)
        return -1;
    if (inner % g->n_v_head != 0)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.ssm.inner_size is %d; a multiple of ssm.time_step_rank (%d) is needed", arch,
                       inner, g->n_v_head);
    if (g->n_v_head % g->n_k_head != 0)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.ssm.time_step_rank is %d; a multiple of ssm.group_count (%d) is needed", arch,
                       g->n_v_head, g->n_k_head);
    g->dv = inner / g->n_v_head;
    g->eps = p->m->eps;
    return 0;
}

static struct dim inner(const struct be_delta *g)
{
    return DIM((int64_t)g->n_v_head * g->dv, "ssm.inner_size");
}

static struct dim channels(const struct be_delta *g)
{
    return DIM(2LL * g->n_k_head * g->dk + inner(g).n,
               "2 * ssm.group_count * ssm.state_size + ssm.inner_size");
}

int map_project_split(struct map *p, struct delta_net *x, int i)
{
    const struct be_delta *g = &x->geo;
    struct dim width = DIM(p->m->n_embd, "embedding_length"), heads = DIM(g->n_v_head, "ssm.time_step_rank");
    if (map_matrix(p, &x->qkv, i, "attn_qkv.weight", width, channels(g)) < 0 ||
        map_matrix(p, &x->gate, i, "attn_gate.weight", width, inner(g)) < 0 ||
        map_matrix(p, &x->beta, i, "ssm_beta.weight", width, heads) < 0)
        return -1;
    return map_matrix(p, &x->alpha, i, "ssm_alpha.weight", width, heads);
}

static int map_delta(struct map *p, struct layer *l, int i, const struct map_hybrid *h, const struct sizes *s)
{
    struct delta_net *x = &l->delta;
    struct be_delta *g = &x->geo;
    l->mixer = MIX_DELTA;
    *g = s->delta;
    g->grouped = h->grouped;
    struct dim width = DIM(p->m->n_embd, "embedding_length"), heads = DIM(g->n_v_head, "ssm.time_step_rank");
    struct dim taps = DIM(g->conv_k, "ssm.conv_kernel");
    struct dim size = DIM(g->dv, "ssm.inner_size / ssm.time_step_rank");
    if (h->project(p, x, i) < 0 || map_matrix(p, &x->out, i, "ssm_out.weight", inner(g), width) < 0 ||
        map_table(p, &g->conv_w, i, "ssm_conv1d.weight", taps, channels(g)) < 0 ||
        map_vector(p, &g->dt_bias, i, "ssm_dt.bias", heads) < 0 ||
        map_vector(p, &g->a, i, "ssm_a", heads) < 0 ||
        map_vector(p, &g->norm_w, i, "ssm_norm.weight", size) < 0)
        return -1;
    x->geo.state_at = p->m->state_floats;
    p->m->state_floats += be_delta_state_floats(g);
    return 0;
}

/* Norms and feed-forward, the same for both kinds. */
static int map_rest(struct map *p, struct layer *l, int i, const struct map_hybrid *h)
{
    struct dim width = DIM(p->m->n_embd, "embedding_length");
    if (map_vector(p, &l->mixer_norm, i, "attn_norm.weight", width) < 0 ||
        map_vector(p, &l->ffn_norm, i, "post_attention_norm.weight", width) < 0)
        return -1;
    return h->ffn(p, &l->ffn, i);
}

static int map_draft(struct map *p, struct draft *d, int i, const struct map_attn *a,
                     const struct map_hybrid *h)
{
    struct model *m = p->m;
    struct dim width = DIM(m->n_embd, "embedding_length"), vocab = DIM(m->n_vocab, "rows of token_embd");
    struct dim twice = DIM(2LL * m->n_embd, "2 * embedding_length");
    if (map_attention(p, &d->block, i, a) < 0 || map_rest(p, &d->block, i, h) < 0 ||
        map_matrix(p, &d->proj, i, "nextn.eh_proj.weight", twice, width) < 0 ||
        map_vector(p, &d->embd_norm, i, "nextn.enorm.weight", width) < 0 ||
        map_vector(p, &d->hidden_norm, i, "nextn.hnorm.weight", width) < 0)
        return -1;
    d->out_norm = m->out_norm;
    d->embd = m->embd;
    d->head = m->head;
    if (map_vector_opt(p, &d->out_norm, i, "nextn.shared_head_norm.weight", width) < 0)
        return -1;
    if (map_has(p, i, "nextn.embed_tokens.weight") &&
        map_matrix(p, &d->embd, i, "nextn.embed_tokens.weight", width, vocab) < 0)
        return -1;
    if (map_has(p, i, "nextn.shared_head_head.weight"))
        return map_matrix(p, &d->head, i, "nextn.shared_head_head.weight", width, vocab);
    return 0;
}

/* Some files keep the key and drop the blocks; then there are none. */
static int map_drafts(struct map *p, const struct map_attn *a, const struct map_hybrid *h)
{
    struct model *m = p->m;
    int32_t named = m->n_drafts;
    m->n_drafts = 0;
    for (int i = 0; i < named; i++) {
        int at = m->n_layer + i;
        if (!map_has(p, at, "attn_norm.weight") && !map_has(p, at, "nextn.eh_proj.weight"))
            continue;
        if (map_draft(p, &m->drafts[m->n_drafts], at, a, h) < 0)
            return -1;
        m->n_drafts++;
    }
    return 0;
}

/* Of the four streams of positions (text, height, width, extra) a text has the first three alike and the fourth 0. Pairs
 * that the sections leave to the fourth are not turned; all released models leave none. */
static int map_sections(struct map *p, struct be_rope *r)
{
    char key[128];
    enum gguf_type elem;
    uint64_t n;
    uint32_t sec[3];
    snprintf(key, sizeof key, "%s.rope.dimension_sections", p->m->arch);
    int rc = gguf_arr(p->f, key, &elem, &n, p->err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (n < 3)
        return vt_fail(p->err, VT_E_PAYLOAD, "key %s has %llu values; 3 or 4 are needed", key,
                       (unsigned long long)n);
    float *freq = map_alloc(p, (size_t)r->n_rot / 2 * sizeof *freq);
    for (int s = 0; s < 3; s++)
        if (!freq || gguf_arr_u32(p->f, key, (uint64_t)s, &sec[s], p->err) != 0)
            return -1;
    for (int i = 0; i < r->n_rot / 2; i++)
        freq[i] = (uint64_t)i < 3 * (uint64_t)sec[i % 3] ? r->freq[i] : 0;
    r->freq = freq;
    return 0;
}

static int is_delta(struct map *p, int32_t interval, int i, bool *delta)
{
    bool found;
    *delta = (i + 1) % interval != 0;
    return map_layer_flag(p, "attention.recurrent_layers", i, &found, delta); /* wins when it is there */
}

int map_hybrid(struct map *p, const struct map_hybrid *h)
{
    struct model *m = p->m;
    struct sizes s = {0};
    struct map_attn a = {.gated = true, .head_norms = true};
    if (map_trunk(p, true) < 0 || read_sizes(p, &s) < 0 || map_attention_keys(p, &a) < 0 ||
        map_sections(p, &a.rope) < 0)
        return -1;
    if (!map_has(p, 0, "attn_norm.weight") && map_has(p, m->n_layer, "nextn.eh_proj.weight"))
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "the file holds a draft (MTP) block only; name the model's own file");
    for (int i = 0; i < m->n_layer; i++) {
        struct layer *l = &m->layers[i];
        bool delta;
        if (is_delta(p, s.interval, i, &delta) < 0 ||
            (delta ? map_delta(p, l, i, h, &s) : map_attention(p, l, i, &a)) < 0 || map_rest(p, l, i, h) < 0)
            return -1;
    }
    return map_drafts(p, &a, h);
}
