/* gemma3: groups of layers of which the last sees everything and the others a window, with a rope each; norms before and
 * behind both parts of a block; GeGLU; scaled embedding. */
#include "map.h"

#include <math.h>

struct shape {
    struct map_attn full, windowed;
    int32_t period;
};

/* The largest model divides the scores by the root of its width per head; no key says so. */
#define BLOCKS_27B 62

static int read_shape(struct map *p, struct shape *s)
{
    float base, swa_base;
    struct model *m = p->m;
    s->full = (struct map_attn){.head_norms = true};
    if (map_attention_keys(p, &s->full) < 0 ||
        map_float(p, "rope.freq_base", 1.0f, 1e12f, 10000.0f, &base) < 0 ||
        map_float(p, "rope.freq_base_swa", 1.0f, 1e12f, 10000.0f, &swa_base) < 0 ||
        map_float(p, "attn_logit_softcapping", 0, 1e6f, 0, &s->full.geo.softcap) < 0)
        return -1;
    struct be_attn *g = &s->full.geo;
    if (m->n_layer == BLOCKS_27B &&
        map_float(p, "attention.scale", 1e-6f, 1e6f, 1.0f / sqrtf((float)m->n_embd / (float)g->n_head),
                  &g->scale) < 0)
        return -1;
    s->windowed = s->full;
    if (map_int(p, "attention.sliding_window", 1, 1 << 24, -1, &s->windowed.geo.window) < 0)
        return -1;
    return map_rope_plain(p, &s->windowed.rope, s->full.rope.n_rot, swa_base, false);
}

/* The pattern is a period, a flag a layer, or not told. */
static int is_windowed(struct map *p, struct shape *s, int i, bool *windowed)
{
    bool found;
    if (map_layer_flag(p, "attention.sliding_window_pattern", i, &found, windowed) < 0)
        return -1;
    if (found)
        return 0;
    if (map_int(p, "attention.sliding_window_pattern", 1, 1024, 6, &s->period) < 0)
        return -1;
    *windowed = i % s->period < s->period - 1;
    return 0;
}

static int map_block(struct map *p, struct layer *l, int i, const struct map_attn *a)
{
    struct dim width = DIM(p->m->n_embd, "embedding_length");
    if (map_vector(p, &l->mixer_norm, i, "attn_norm.weight", width) < 0 || map_attention(p, l, i, a) < 0 ||
        map_vector(p, &l->post_mixer_norm, i, "post_attention_norm.weight", width) < 0 ||
        map_vector(p, &l->ffn_norm, i, "ffn_norm.weight", width) < 0 ||
        map_vector(p, &l->post_ffn_norm, i, "post_ffw_norm.weight", width) < 0)
        return -1;
    return map_ffn_dense(p, &l->ffn, i, ACT_GELU, false);
}

int map_gemma3(struct map *p)
{
    struct model *m = p->m;
    struct shape s;
    if (map_trunk(p, false) < 0 || read_shape(p, &s) < 0 ||
        map_float(p, "final_logit_softcapping", 0, 1e6f, 0, &m->softcap) < 0)
        return -1;
    m->embd_scale = sqrtf((float)m->n_embd);
    for (int i = 0; i < m->n_layer; i++) {
        bool windowed;
        if (is_windowed(p, &s, i, &windowed) < 0 ||
            map_block(p, &m->layers[i], i, windowed ? &s.windowed : &s.full) < 0)
            return -1;
    }
    return 0;
}
