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

int map_layer_flag(struct map *p, const char *key, int layer, bool *found, bool *out)
{
    char full[128];
    full_key(p, key, full, sizeof full);
    enum gguf_type elem;
    uint64_t n;
    uint32_t v;
    struct vt_err ignored;
    *found = gguf_arr(p->f, full, &elem, &n, &ignored) == 0;
    if (!*found)
        return 0;
    if (n < (uint64_t)p->m->n_layer)
        return vt_fail(p->err, VT_E_PAYLOAD, "key %s has %llu values; one a layer (%d) is needed", full,
                       (unsigned long long)n, p->m->n_layer);
    if (gguf_arr_u32(p->f, full, (uint64_t)layer, &v, p->err) != 0)
        return -1;
    *out = v != 0;
    return 0;
}

bool map_is(struct map *p, const char *key, const char *text)
{
    char full[128];
    const char *s;
    size_t len;
    struct vt_err ignored;
    full_key(p, key, full, sizeof full);
    return gguf_str(p->f, full, &s, &len, &ignored) == 0 && len == strlen(text) && memcmp(s, text, len) == 0;
}

/* ---- tensors ---- */

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

static const char *shape_text(const uint64_t *ne, uint32_t n, char *out, size_t size)
{
    int at = snprintf(out, size, "{%llu", (unsigned long long)ne[0]);
    for (uint32_t d = 1; d < n && at < (int)size; d++)
        at += snprintf(out + at, size - (size_t)at, ", %llu", (unsigned long long)ne[d]);
    if (at < (int)size - 1)
        snprintf(out + at, size - (size_t)at, "}");
    return out;
}

/* " (embedding_length, feed_forward_length)" */
static const char *source_text(const struct dim *dims, uint32_t n, char *out, size_t size)
{
    int at = snprintf(out, size, " (%s", dims[0].from);
    for (uint32_t d = 1; d < n && at < (int)size; d++)
        at += snprintf(out + at, size - (size_t)at, ", %s", dims[d].from);
    if (at < (int)size - 1)
        snprintf(out + at, size - (size_t)at, ")");
    return out;
}

/* Finds a tensor and compares its shape; n 1 to 3. */
static const struct gguf_tensor *find(struct map *p, int layer, const char *name, const struct dim *dims,
                                      uint32_t n)
{
    char full[128], shape[100], needed[100], from[300];
    uint64_t ne[4] = {1, 1, 1, 1};
    for (uint32_t d = 0; d < n; d++)
        ne[d] = (uint64_t)dims[d].n;
    shape_text(ne, n, needed, sizeof needed);
    source_text(dims, n, from, sizeof from);
    tensor_name(layer, name, full, sizeof full);
    const struct gguf_tensor *t = gguf_tensor(p->f, full);
    if (!t) {
        vt_fail(p->err, VT_E_PAYLOAD, "tensor %s is missing; %s needs it as %s%s", full, p->m->arch, needed,
                from);
        return NULL;
    }
    p->used[t - gguf_tensor_at(p->f, 0)] = true;
    if (memcmp(t->ne, ne, sizeof ne) == 0)
        return t;
    shape_text(t->ne, t->n_dims, shape, sizeof shape);
    vt_fail(p->err, VT_E_PAYLOAD, "tensor %s has shape %s; %s is needed%s", full, shape, needed, from);
    return NULL;
}

static int check_type(struct map *p, const struct gguf_tensor *t)
{
    if (be_type_ok(t->type))
        return 0;
    return vt_fail(
        p->err, VT_E_PAYLOAD,
        "tensor %s has type %s, which is no type for weights; a quantized type, F32, F16 or BF16 is needed",
        t->name, ggml_type_name(t->type));
}

int map_matrix(struct map *p, struct be_weight *w, int layer, const char *name, struct dim in, struct dim out)
{
    struct dim dims[2] = {in, out};
    const struct gguf_tensor *t = find(p, layer, name, dims, 2);
    if (!t || check_type(p, t) < 0)
        return -1;
    *w = (struct be_weight){.type = t->type, .n_in = in.n, .n_out = out.n, .data = t->data};
    return 0;
}

int map_matrices(struct map *p, struct be_weight **w, int layer, const char *name, struct dim in,
                 struct dim out, struct dim n)
{
    struct dim dims[3] = {in, out, n};
    const struct gguf_tensor *t = find(p, layer, name, dims, 3);
    if (!t || check_type(p, t) < 0 || !(*w = map_alloc(p, (size_t)n.n * sizeof **w)))
        return -1;
    uint64_t bytes = ggml_row_bytes(t->type, (uint64_t)in.n) * (uint64_t)out.n;
    for (int64_t e = 0; e < n.n; e++)
        (*w)[e] = (struct be_weight){.type = t->type,
                                     .n_in = in.n,
                                     .n_out = out.n,
                                     .data = t->data ? t->data + (uint64_t)e * bytes : NULL};
    return 0;
}

int map_reorder(struct map *p, struct be_weight *w, const int32_t *rows, int64_t n)
{
    uint64_t bytes = ggml_row_bytes(w->type, (uint64_t)w->n_in);
    w->n_out = n;
    if (p->shapes)
        return 0;
    uint8_t *copy = map_alloc(p, (size_t)n * bytes);
    if (!copy)
        return -1;
    for (int64_t i = 0; i < n; i++)
        memcpy(copy + (uint64_t)i * bytes, (const uint8_t *)w->data + (uint64_t)rows[i] * bytes, bytes);
    w->data = copy;
    return 0;
}

/* Tables that some converters wrote of what is computed here, and factors of engines that compute with FP4 activations. */
static bool without_effect(const char *name)
{
    static const char *const ends[] = {".input_scale", ".attn_rot_embd.weight",
                                       ".attention.rotary_emb.inv_freq"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

int map_all_used(struct map *p)
{
    for (uint64_t i = 0; i < gguf_n_tensors(p->f); i++) {
        const char *name = gguf_tensor_at(p->f, i)->name;
        if (!p->used[i] && !without_effect(name))
            return vt_fail(
                p->err, VT_E_PAYLOAD,
                "tensor %s has no place in the architecture %s as its keys describe it; without it "
                "the result would be wrong",
                name, p->m->arch);
    }
    return 0;
}

void *map_alloc(struct map *p, size_t bytes)
{
    struct model *m = p->m;
    size_t size = (bytes + 63) / 64 * 64;
    void **owned = realloc(m->owned, (m->n_owned + 1) * sizeof *owned);
    if (owned)
        m->owned = owned;
    void *v = owned ? aligned_alloc(64, size) : NULL;
    if (!v) {
        vt_fail(p->err, VT_E_NOMEM, "out of memory for %zu bytes of the model's vectors", bytes);
        return NULL;
    }
    memset(v, 0, size);
    m->owned[m->n_owned++] = v;
    m->owned_bytes += bytes;
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
    *v = copy;
    if (p->shapes) {
        for (int64_t i = 0; i < n; i++)
            copy[i] = 1;
        return 0;
    }
    be_dequant(t->type, t->data, copy, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(copy[i]))
            return vt_fail(p->err, VT_E_PAYLOAD,
                           "tensor %s: value %lld is not a finite number; the file is damaged", t->name,
                           (long long)i);
    return 0;
}

int map_vector(struct map *p, const float **v, int layer, const char *name, struct dim n)
{
    const struct gguf_tensor *t = find(p, layer, name, &n, 1);
    return t ? copy_floats(p, v, t) : -1;
}

int map_vector_opt(struct map *p, const float **v, int layer, const char *name, struct dim n)
{
    return map_has(p, layer, name) ? map_vector(p, v, layer, name, n) : 0;
}

int map_table(struct map *p, const float **v, int layer, const char *name, struct dim a, struct dim b)
{
    struct dim dims[2] = {a, b};
    const struct gguf_tensor *t = find(p, layer, name, dims, 2);
    return t ? copy_floats(p, v, t) : -1;
}

int map_trunk(struct map *p, bool drafts)
{
    struct model *m = p->m;
    int32_t n_blocks;
    if (map_int(p, "block_count", 1, 1024, -1, &n_blocks) < 0 ||
        map_int(p, "nextn_predict_layers", 0, drafts ? n_blocks - 1 : 0, 0, &m->n_drafts) < 0 ||
        map_int(p, "embedding_length", 1, 1 << 20, -1, &m->n_embd) < 0 ||
        map_int(p, "context_length", 1, 1 << 30, -1, &m->n_ctx_train) < 0 ||
        map_float(p, "attention.layer_norm_rms_epsilon", 1e-12f, 0.1f, NAN, &m->eps) < 0)
        return -1;

    m->n_layer = n_blocks - m->n_drafts;
    m->embd_scale = 1.0f;
    m->layers = map_alloc(p, (size_t)m->n_layer * sizeof *m->layers);
    m->drafts = map_alloc(p, (size_t)(m->n_drafts + 1) * sizeof *m->drafts);
    if (!m->layers || !m->drafts)
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
