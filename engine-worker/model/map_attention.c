/* Attention layers: geometry, rope with its scaling (linear; YaRN: Peng et al., arXiv:2309.00071), tensors. */
#include "map.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- rope ---- */

/* How the angle of pair i is changed: theta_i * (scale * (1 - ramp_i) + ramp_i). */
struct scaling {
    double scale;     /* 1 / factor */
    double ext;       /* share of the ramp; 0: none, plain linear scaling */
    double low, high; /* pairs between which the ramp falls from 1 to 0 */
    float mscale;
};

/* Pair at which a wave turns r times within n_orig positions. */
static double pair_of(double r, double n_orig, double n_rot, double base)
{
    return n_rot * log(n_orig / (2 * M_PI * r)) / (2 * log(base));
}

static int read_yarn(struct map *p, struct scaling *s, double factor, int32_t n_rot, float base)
{
    float ext, fast, slow, attn, log_mul;
    int32_t n_orig;
    if (map_int(p, "rope.scaling.original_context_length", 1, 1 << 30, p->m->n_ctx_train, &n_orig) < 0 ||
        map_float(p, "rope.scaling.yarn_ext_factor", 0, 1, 1, &ext) < 0 ||
        map_float(p, "rope.scaling.yarn_attn_factor", 1e-3f, 1e3f, 1, &attn) < 0 ||
        map_float(p, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, 32, &fast) < 0 ||
        map_float(p, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, 1, &slow) < 0 ||
        map_float(p, "rope.scaling.yarn_log_multiplier", 0, 0, 0, &log_mul) < 0)
        return -1;
    s->ext = ext;
    s->low = fmax(0, floor(pair_of(fast, n_orig, n_rot, base)));
    s->high = fmin(n_rot - 1, ceil(pair_of(slow, n_orig, n_rot, base)));
    s->mscale *= attn;
    if (ext > 0)
        s->mscale *= (float)(1 + 0.1 * log(factor));
    return 0;
}

static int read_scaling(struct map *p, struct scaling *s, int32_t n_rot, float base)
{
    float factor, old, attn;
    bool yarn = map_is(p, "rope.scaling.type", "yarn"), none = map_is(p, "rope.scaling.type", "none");
    char key[128];
    const char *text;
    size_t len;
    snprintf(key, sizeof key, "%s.rope.scaling.type", p->m->arch);
    int rc = gguf_str(p->f, key, &text, &len, p->err);
    if (rc < 0)
        return -1;
    if (rc == 0 && !yarn && !none && !map_is(p, "rope.scaling.type", "linear"))
        return vt_fail(p->err, VT_E_PAYLOAD, "key %s is \"%.*s\"; none, linear and yarn are supported", key,
                       (int)(len > 32 ? 32 : len), text);
    if (map_float(p, "rope.scale_linear", 1e-3f, 1e6f, 1.0f, &old) < 0 ||
        map_float(p, "rope.scaling.factor", 0, 1e6f, old, &factor) < 0 ||
        map_float(p, "rope.scaling.attn_factor", 1e-3f, 1e3f, 1.0f, &attn) < 0)
        return -1;
    if (none || factor == 0) /* some converters write 0 for "not scaled" */
        factor = 1;
    *s = (struct scaling){.scale = 1 / (double)factor, .mscale = attn};
    return yarn ? read_yarn(p, s, (double)factor, n_rot, base) : 0;
}

static double angle(const struct scaling *s, double theta, int i)
{
    double at = (i - s->low) / fmax(0.001, s->high - s->low);
    double ramp = s->ext * (1 - fmin(1, fmax(0, at)));
    return theta * (s->scale * (1 - ramp) + ramp);
}

static int make_rope(struct map *p, struct be_rope *r, int32_t n_rot, float base, bool interleaved,
                     const struct scaling *s)
{
    float *freq = map_alloc(p, (size_t)n_rot / 2 * sizeof *freq);
    if (!freq)
        return -1;
    for (int i = 0; i < n_rot / 2; i++)
        freq[i] = (float)angle(s, pow((double)base, -2.0 * i / n_rot), i);
    *r = (struct be_rope){.n_rot = n_rot, .interleaved = interleaved, .freq = freq, .mscale = s->mscale};
    return 0;
}

int map_rope_plain(struct map *p, struct be_rope *r, int32_t n_rot, float base, bool interleaved)
{
    return make_rope(p, r, n_rot, base, interleaved, &(struct scaling){.scale = 1, .mscale = 1});
}

/* Divisors of the angles (llama 3); the scaling by ramps is the same for all of them, so it may come first. */
static int divide_angles(struct map *p, struct be_rope *r)
{
    const float *by;
    float *freq;
    if (!map_has(p, -1, "rope_freqs.weight"))
        return 0;
    if (map_vector(p, &by, -1, "rope_freqs.weight", DIM(r->n_rot / 2, "rope.dimension_count / 2")) < 0 ||
        !(freq = map_alloc(p, (size_t)r->n_rot / 2 * sizeof *freq)))
        return -1;
    for (int i = 0; i < r->n_rot / 2; i++) {
        if (!(by[i] > 0))
            return vt_fail(p->err, VT_E_PAYLOAD,
                           "tensor rope_freqs.weight: value %d is %g; a number above 0 is needed", i,
                           (double)by[i]);
        freq[i] = (float)((double)r->freq[i] / (double)by[i]);
    }
    r->freq = freq;
    return 0;
}

/* ---- geometry ---- */

static int read_heads(struct map *p, struct be_attn *g)
{
    int32_t e = p->m->n_embd;
    if (map_int_layers(p, "attention.head_count", 1, 4096, -1, &g->n_head) < 0 ||
        map_int_layers(p, "attention.head_count_kv", 1, 4096, g->n_head, &g->n_kv_head) < 0)
        return -1;
    if (g->n_head % g->n_kv_head != 0)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.attention.head_count is %d; a multiple of attention.head_count_kv (%d) is needed",
                       p->m->arch, g->n_head, g->n_kv_head);
    if (g->n_head / g->n_kv_head > BE_ATTN_GROUP_MAX)
        return vt_fail(
            p->err, VT_E_PAYLOAD,
            "%s.attention.head_count is %d; at most %d times attention.head_count_kv (%d) is possible",
            p->m->arch, g->n_head, BE_ATTN_GROUP_MAX, g->n_kv_head);
    int64_t dflt = e % g->n_head == 0 && e / g->n_head >= 2 ? e / g->n_head : -1;
    if (map_int(p, "attention.key_length", 2, BE_ATTN_MAX_D, dflt, &g->d) < 0 ||
        map_int(p, "attention.value_length", 2, BE_ATTN_MAX_D, dflt, &g->dv) < 0)
        return -1;
    return map_float(p, "attention.scale", 1e-6f, 1e6f, 1.0f / sqrtf((float)g->d), &g->scale);
}

int map_attention_keys(struct map *p, struct map_attn *a)
{
    struct be_attn *g = &a->geo;
    struct scaling s;
    int32_t n_rot;
    float base;
    if (read_heads(p, g) < 0 || map_int(p, "rope.dimension_count", 2, g->d, g->d, &n_rot) < 0)
        return -1;
    if (g->d % 2 || n_rot % 2)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.attention.key_length is %d and rope.dimension_count %d; even numbers are needed",
                       p->m->arch, g->d, n_rot);
    if (a->gated && g->d != g->dv)
        return vt_fail(
            p->err, VT_E_PAYLOAD,
            "%s.attention.value_length is %d; attention.key_length (%d) is needed, since the gate has "
            "that size",
            p->m->arch, g->dv, g->d);
    if (map_float(p, "rope.freq_base", 1.0f, 1e12f, 10000.0f, &base) < 0 ||
        read_scaling(p, &s, n_rot, base) < 0 || make_rope(p, &a->rope, n_rot, base, a->interleaved, &s) < 0)
        return -1;
    return divide_angles(p, &a->rope);
}

/* ---- tensors ---- */

static int map_biases(struct map *p, struct attention *t, int i, const struct map_attn *a, struct dim q,
                      struct dim k, struct dim v)
{
    if (a->bias == BIAS_NONE)
        return 0;
    int (*vector)(struct map *, const float **, int, const char *, struct dim) =
        a->bias == BIAS_QKV ? map_vector : map_vector_opt;
    if (vector(p, &t->q_bias, i, "attn_q.bias", q) < 0 || vector(p, &t->k_bias, i, "attn_k.bias", k) < 0 ||
        vector(p, &t->v_bias, i, "attn_v.bias", v) < 0)
        return -1;
    return map_vector_opt(p, &t->out_bias, i, "attn_output.bias", DIM(p->m->n_embd, "embedding_length"));
}

int map_attention(struct map *p, struct layer *l, int i, const struct map_attn *a)
{
    const struct be_attn *g = &a->geo;
    struct attention *t = &l->attn;
    struct dim width = DIM(p->m->n_embd, "embedding_length"), d = DIM(g->d, "attention.key_length");
    struct dim q = a->gated ? DIM(2LL * g->n_head * g->d, "2 * attention.head_count * attention.key_length")
                            : DIM((int64_t)g->n_head * g->d, "attention.head_count * attention.key_length");
    struct dim k = DIM((int64_t)g->n_kv_head * g->d, "attention.head_count_kv * attention.key_length");
    struct dim v = DIM((int64_t)g->n_kv_head * g->dv, "attention.head_count_kv * attention.value_length");
    struct dim o = DIM((int64_t)g->n_head * g->dv, "attention.head_count * attention.value_length");

    l->mixer = MIX_ATTENTION;
    t->geo = *g;
    t->rope = a->rope;
    t->gated = a->gated;
    if (map_matrix(p, &t->q, i, "attn_q.weight", width, q) < 0 ||
        map_matrix(p, &t->k, i, "attn_k.weight", width, k) < 0 ||
        map_matrix(p, &t->v, i, "attn_v.weight", width, v) < 0 ||
        map_matrix(p, &t->out, i, "attn_output.weight", o, width) < 0 || map_biases(p, t, i, a, q, k, v) < 0)
        return -1;
    if (a->head_norms && (map_vector(p, &t->q_norm, i, "attn_q_norm.weight", d) < 0 ||
                          map_vector(p, &t->k_norm, i, "attn_k_norm.weight", d) < 0))
        return -1;
    return 0;
}
