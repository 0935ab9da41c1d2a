#include "map.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void full_key(const struct map *p, const char *key, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", p->m->arch, key);
}

static int missing_key(struct map *p, const char *full)
{
    return vt_fail(p->err, VT_E_PAYLOAD, "key %s is missing; the architecture %s needs it", full, p->m->arch);
}

static int check_range(struct map *p, const char *full, int64_t v, int64_t lo, int64_t hi)
{
    if (v >= lo && v <= hi)
        return 0;
    return vt_fail(p->err, VT_E_PAYLOAD, "key %s is %lld; %lld to %lld is possible", full, (long long)v,
                   (long long)lo, (long long)hi);
}

int map_int(struct map *p, const char *key, int64_t lo, int64_t hi, int64_t dflt, int32_t *out)
{
    char full[128];
    full_key(p, key, full, sizeof full);
    uint32_t v;
    int rc = gguf_u32(p->f, full, &v, p->err);
    if (rc < 0)
        return -1;
    if (rc > 0) {
        if (dflt < 0)
            return missing_key(p, full);
        *out = (int32_t)dflt;
        return 0;
    }
    if (check_range(p, full, v, lo, hi) < 0)
        return -1;
    *out = (int32_t)v;
    return 0;
}

int map_int_layers(struct map *p, const char *key, int64_t lo, int64_t hi, int64_t dflt, int32_t *out)
{
    char full[128];
    full_key(p, key, full, sizeof full);
    enum gguf_type elem;
    uint64_t n;
    struct vt_err ignored;
    if (gguf_arr(p->f, full, &elem, &n, &ignored) != 0)
        return map_int(p, key, lo, hi, dflt, out);
    if (n == 0)
        return vt_fail(p->err, VT_E_PAYLOAD, "key %s is an empty array", full);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t v;
        if (gguf_arr_u32(p->f, full, i, &v, p->err) != 0)
            return -1;
        if (check_range(p, full, v, lo, hi) < 0)
            return -1;
        if (i > 0 && (int32_t)v != *out)
            return vt_fail(p->err, VT_E_PAYLOAD,
                           "key %s differs between layers (%d and %u); %s needs one value", full, *out, v,
                           p->m->arch);
        *out = (int32_t)v;
    }
    return 0;
}

int map_float(struct map *p, const char *key, float lo, float hi, float dflt, float *out)
{
    char full[128];
    full_key(p, key, full, sizeof full);
    float v;
    int rc = gguf_f32(p->f, full, &v, p->err);
    if (rc < 0)
        return -1;
    if (rc > 0) {
        if (isnan(dflt))
            return missing_key(p, full);
        *out = dflt;
        return 0;
    }
    if (!(v >= lo && v <= hi))
        return vt_fail(p->err, VT_E_PAYLOAD, "key %s is %g; %g to %g is possible", full, (double)v,
                       (double)lo, (double)hi);
    *out = v;
    return 0;
}

static void tensor_name(int layer, const char *name, char *out, size_t size)
{
    if (layer < 0)
        snprintf(out, size, "%s", name);
    else
        snprintf(out, size, "blk.%d.%s", layer, name);
}

bool map_has(struct map *p, int layer, const char *name)
{
    char full[128];
    tensor_name(layer, name, full, sizeof full);
    return gguf_tensor(p->f, full) != NULL;
}

static const char *shape_text(const struct gguf_tensor *t, char *out, size_t size)
{
    int at = snprintf(out, size, "{%llu", (unsigned long long)t->ne[0]);
    for (uint32_t d = 1; d < t->n_dims && at < (int)size; d++)
        at += snprintf(out + at, size - (size_t)at, ", %llu", (unsigned long long)t->ne[d]);
    if (at < (int)size - 1)
        snprintf(out + at, size - (size_t)at, "}");
    return out;
}

/* Finds a tensor and compares its shape; n_dims 1 or 2. */
static const struct gguf_tensor *find(struct map *p, int layer, const char *name, const struct dim *dims,
                                      uint32_t n_dims)
{
    char full[128], shape[100];
    tensor_name(layer, name, full, sizeof full);
    const struct gguf_tensor *t = gguf_tensor(p->f, full);
    struct dim a = dims[0], b = n_dims > 1 ? dims[1] : DIM(1, "");
    if (!t) {
        if (n_dims > 1)
            vt_fail(p->err, VT_E_PAYLOAD, "tensor %s is missing; %s needs it as {%lld, %lld} (%s, %s)", full,
                    p->m->arch, (long long)a.n, (long long)b.n, a.from, b.from);
        else
            vt_fail(p->err, VT_E_PAYLOAD, "tensor %s is missing; %s needs it as {%lld} (%s)", full,
                    p->m->arch, (long long)a.n, a.from);
        return NULL;
    }
    if (t->ne[0] == (uint64_t)a.n && t->ne[1] == (uint64_t)b.n && t->ne[2] == 1 && t->ne[3] == 1)
        return t;
    shape_text(t, shape, sizeof shape);
    if (n_dims > 1)
        vt_fail(p->err, VT_E_PAYLOAD, "tensor %s has shape %s; {%lld, %lld} is needed (%s, %s)", full, shape,
                (long long)a.n, (long long)b.n, a.from, b.from);
    else
        vt_fail(p->err, VT_E_PAYLOAD, "tensor %s has shape %s; {%lld} is needed (%s)", full, shape,
                (long long)a.n, a.from);
    return NULL;
}

int map_matrix(struct map *p, struct be_weight *w, int layer, const char *name, struct dim in, struct dim out)
{
    struct dim dims[2] = {in, out};
    const struct gguf_tensor *t = find(p, layer, name, dims, 2);
    if (!t)
        return -1;
    if (!be_type_ok(t->type))
        return vt_fail(p->err, VT_E_PAYLOAD, "tensor %s has type %s, which this version cannot compute with",
                       t->name, ggml_type_name(t->type));
    *w = (struct be_weight){.type = t->type, .n_in = in.n, .n_out = out.n, .data = t->data};
    return 0;
}

void *map_alloc(struct map *p, size_t bytes)
{
    struct model *m = p->m;
    void **owned = realloc(m->owned, (m->n_owned + 1) * sizeof *owned);
    if (owned)
        m->owned = owned;
    void *v = owned ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (!v) {
        vt_fail(p->err, VT_E_NOMEM, "out of memory for %zu bytes of the model's vectors", bytes);
        return NULL;
    }
    m->owned[m->n_owned++] = v;
    m->vector_bytes += bytes;
    return v;
}

static int copy_floats(struct map *p, const float **v, const struct gguf_tensor *t)
{
    if (t->type != GT_F32 && t->type != GT_F16 && t->type != GT_BF16)
        return vt_fail(p->err, VT_E_PAYLOAD, "tensor %s has type %s; F32, F16 or BF16 is needed", t->name,
                       ggml_type_name(t->type));
    int64_t n = (int64_t)(t->ne[0] * t->ne[1]);
    float *copy = map_alloc(p, (size_t)n * sizeof(float));
    if (!copy)
        return -1;
    be_dequant(t->type, t->data, copy, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(copy[i]))
            return vt_fail(p->err, VT_E_PAYLOAD,
                           "tensor %s: value %lld is not a finite number; the file is damaged", t->name,
                           (long long)i);
    *v = copy;
    return 0;
}

int map_vector(struct map *p, const float **v, int layer, const char *name, struct dim n)
{
    const struct gguf_tensor *t = find(p, layer, name, &n, 1);
    return t ? copy_floats(p, v, t) : -1;
}

int map_table(struct map *p, const float **v, int layer, const char *name, struct dim a, struct dim b)
{
    struct dim dims[2] = {a, b};
    const struct gguf_tensor *t = find(p, layer, name, dims, 2);
    return t ? copy_floats(p, v, t) : -1;
}

int map_trunk(struct map *p)
{
    struct model *m = p->m;
    if (map_int(p, "embedding_length", 1, 1 << 20, -1, &m->n_embd) < 0 ||
        map_int(p, "context_length", 1, 1 << 30, -1, &m->n_ctx_train) < 0 ||
        map_int_layers(p, "feed_forward_length", 1, 1 << 24, -1, &m->n_ff) < 0 ||
        map_float(p, "attention.layer_norm_rms_epsilon", 1e-12f, 0.1f, NAN, &m->eps) < 0)
        return -1;

    /* The vocabulary is as long as the embedding, which may be padded beyond what the key says. */
    int32_t named;
    const struct gguf_tensor *e = gguf_tensor(p->f, "token_embd.weight");
    if (!e)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "tensor token_embd.weight is missing; every architecture needs it");
    if (e->ne[1] < 1 || e->ne[1] > 1 << 24)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "tensor token_embd.weight has %llu rows; 1 to 16777216 are possible",
                       (unsigned long long)e->ne[1]);
    m->n_vocab = (int32_t)e->ne[1];
    if (map_int(p, "vocab_size", 1, m->n_vocab, m->n_vocab, &named) < 0)
        return -1;
    struct dim width = DIM(m->n_embd, "embedding_length"), vocab = DIM(m->n_vocab, "rows of token_embd");
    if (map_matrix(p, &m->embd, -1, "token_embd.weight", width, vocab) < 0 ||
        map_vector(p, &m->out_norm, -1, "output_norm.weight", width) < 0)
        return -1;
    m->head = m->embd;
    if (map_has(p, -1, "output.weight"))
        return map_matrix(p, &m->head, -1, "output.weight", width, vocab);
    return 0;
}

int map_rope(struct map *p, struct be_rope *r, int32_t n_rot, float base)
{
    float *freq = map_alloc(p, (size_t)n_rot / 2 * sizeof(float));
    if (!freq)
        return -1;
    for (int i = 0; i < n_rot / 2; i++)
        freq[i] = (float)pow((double)base, -2.0 * i / n_rot);
    *r = (struct be_rope){.n_rot = n_rot, .interleaved = false, .freq = freq, .mscale = 1.0f};
    return 0;
}

int map_no_rope_scaling(struct map *p)
{
    char full[128];
    const char *s;
    size_t len;
    full_key(p, "rope.scaling.type", full, sizeof full);
    int rc = gguf_str(p->f, full, &s, &len, p->err);
    if (rc < 0)
        return -1;
    if (rc > 0 || (len == 4 && memcmp(s, "none", 4) == 0))
        return 0;
    float factor;
    if (map_float(p, "rope.scaling.factor", 1e-6f, 1e6f, 1.0f, &factor) < 0)
        return -1;
    if (len == 6 && memcmp(s, "linear", 6) == 0 && factor == 1.0f)
        return 0;
    return vt_fail(p->err, VT_E_PAYLOAD,
                   "key %s is \"%.*s\" with factor %g; %s is supported without rope scaling only", full,
                   (int)(len > 32 ? 32 : len), s, (double)factor, p->m->arch);
}

int map_swiglu(struct map *p, struct ffn *ffn, int layer)
{
    struct dim width = DIM(p->m->n_embd, "embedding_length"), ff = DIM(p->m->n_ff, "feed_forward_length");
    if (map_matrix(p, &ffn->gate, layer, "ffn_gate.weight", width, ff) < 0 ||
        map_matrix(p, &ffn->up, layer, "ffn_up.weight", width, ff) < 0)
        return -1;
    return map_matrix(p, &ffn->down, layer, "ffn_down.weight", ff, width);
}

int map_attention(struct map *p, struct be_attn *geo, struct be_rope *rope)
{
    int32_t heads, kv, d, dv, n_rot, e = p->m->n_embd;
    float base;
    if (map_int_layers(p, "attention.head_count", 1, 4096, -1, &heads) < 0 ||
        map_int_layers(p, "attention.head_count_kv", 1, 4096, heads, &kv) < 0)
        return -1;
    if (heads % kv != 0)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.attention.head_count is %d; a multiple of attention.head_count_kv (%d) "
                       "is needed",
                       p->m->arch, heads, kv);
    int64_t dflt = e % heads == 0 ? e / heads : -1;
    if (map_int(p, "attention.key_length", 2, 4096, dflt, &d) < 0 ||
        map_int(p, "attention.value_length", 2, 4096, dflt, &dv) < 0 ||
        map_int(p, "rope.dimension_count", 2, d, d, &n_rot) < 0)
        return -1;
    if (d % 2 || n_rot % 2)
        return vt_fail(p->err, VT_E_PAYLOAD,
                       "%s.attention.key_length is %d and rope.dimension_count %d; even numbers "
                       "are needed",
                       p->m->arch, d, n_rot);
    *geo = (struct be_attn){.n_head = heads, .n_kv_head = kv, .d = d, .dv = dv};
    if (map_float(p, "rope.freq_base", 1.0f, 1e12f, 10000.0f, &base) < 0 ||
        map_float(p, "attention.scale", 1e-6f, 1e6f, 1.0f / sqrtf((float)d), &geo->scale) < 0 ||
        map_no_rope_scaling(p) < 0)
        return -1;
    return map_rope(p, rope, n_rot, base);
}

int map_layers(struct map *p)
{
    struct model *m = p->m;
    m->layers = calloc((size_t)m->n_layer, sizeof *m->layers);
    if (!m->layers)
        return vt_fail(p->err, VT_E_NOMEM, "out of memory for %d layers", m->n_layer);
    return 0;
}
