#include "model.h"
#include "map.h"
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*map)(struct map *p);
} archs[] = {
    {"llama", map_llama},         {"qwen2", map_qwen2},         {"qwen3", map_qwen3},
    {"qwen3moe", map_qwen3moe},   {"qwen3next", map_qwen3next}, {"qwen35", map_qwen35},
    {"qwen35moe", map_qwen35moe}, {"gemma3", map_gemma3},
};

static void copy_text(char *out, size_t size, const char *s, size_t len)
{
    size_t n = len < size - 1 ? len : size - 1;
    memcpy(out, s, n);
    out[n] = 0;
}

static void set_name(struct model *m, const struct gguf_file *f, const char *path)
{
    const char *s;
    size_t len;
    struct vt_err ignored;
    if (gguf_str(f, "general.name", &s, &len, &ignored) == 0 && len > 0 && !memchr(s, 0, len)) {
        copy_text(m->name, sizeof m->name, s, len);
        return;
    }
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    copy_text(m->name, sizeof m->name, base, strlen(base));
}

static int read_arch(struct model *m, const struct gguf_file *f, struct vt_err *err)
{
    const char *s;
    size_t len;
    int rc = gguf_str(f, "general.type", &s, &len, err);
    if (rc < 0)
        return -1;
    if (rc == 0 && !(len == 5 && memcmp(s, "model", 5) == 0))
        return vt_fail(err, VT_E_PAYLOAD, "general.type is \"%.*s\"; a file of type \"model\" is needed",
                       (int)(len > 32 ? 32 : len), s);
    rc = gguf_str(f, "general.architecture", &s, &len, err);
    if (rc < 0)
        return -1;
    if (rc > 0)
        return vt_fail(err, VT_E_PAYLOAD, "key general.architecture is missing; this is not a model file");
    copy_text(m->arch, sizeof m->arch, s, len);
    return 0;
}

static int map_arch(struct map *p)
{
    struct model *m = p->m;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i].name, m->arch) == 0)
            return archs[i].map(p);
    char known[256] = "";
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", archs[i].name);
    }
    return vt_fail(p->err, VT_E_PAYLOAD, "architecture \"%s\" is not supported; this version runs %s",
                   m->arch, known);
}

/* Every layer learns where in a page its K and V are. */
static void place_kv(struct model *m)
{
    kv_lay_out(m->attn_geo, m->n_attn + m->n_drafts);
    kv_lay_out(m->window_geo, m->n_window);
    for (int i = 0; i < m->n_layer; i++) {
        struct attention *a = &m->layers[i].attn;
        if (m->layers[i].mixer == MIX_ATTENTION)
            a->geo = (a->geo.window > 0 ? m->window_geo : m->attn_geo)[a->index];
    }
    for (int i = 0; i < m->n_drafts; i++)
        m->drafts[i].block.attn.geo = m->attn_geo[m->drafts[i].block.attn.index];
}

/* Numbers the attention layers and gathers their geometry, those with a window apart from the others. */
static int lay_out_kv(struct map *p)
{
    struct model *m = p->m;
    m->attn_geo = map_alloc(p, (size_t)(m->n_layer + m->n_drafts) * sizeof *m->attn_geo);
    m->window_geo = map_alloc(p, (size_t)m->n_layer * sizeof *m->window_geo);
    if (!m->attn_geo || !m->window_geo)
        return -1;
    for (int i = 0; i < m->n_layer; i++) {
        struct attention *a = &m->layers[i].attn;
        if (m->layers[i].mixer != MIX_ATTENTION)
            continue;
        bool windowed = a->geo.window > 0;
        a->index = windowed ? m->n_window++ : m->n_attn++;
        (windowed ? m->window_geo : m->attn_geo)[a->index] = a->geo;
        if (a->geo.window > m->window)
            m->window = a->geo.window;
    }
    for (int i = 0; i < m->n_drafts; i++) {
        struct attention *a = &m->drafts[i].block.attn;
        a->index = m->n_attn + i;
        m->attn_geo[a->index] = a->geo;
    }
    place_kv(m);
    return 0;
}

static int map_file(struct map *p)
{
    p->used = calloc(gguf_n_tensors(p->f) + 1, sizeof *p->used);
    if (!p->used)
        return vt_fail(p->err, VT_E_NOMEM, "out of memory for the model");
    int rc = read_arch(p->m, p->f, p->err);
    if (rc == 0)
        rc = map_arch(p);
    if (rc == 0)
        rc = map_all_used(p);
    if (rc == 0)
        rc = lay_out_kv(p);
    free(p->used);
    return rc;
}

static int make(struct model **out, const struct gguf_file *f, const char *path, bool shapes,
                struct vt_err *err)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the model");
    m->file = f;
    struct map p = {.f = f, .m = m, .err = err, .shapes = shapes};
    if (map_file(&p) < 0) {
        model_free(m);
        return -1;
    }
    set_name(m, f, path);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f, i);
        m->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        m->bytes += t->bytes;
    }
    *out = m;
    return 0;
}

int model_load(struct model **out, const struct gguf_file *f, const char *path, struct vt_err *err)
{
    return make(out, f, path, false, err);
}

int model_shapes(struct model **out, const struct gguf_file *f, const char *path, struct vt_err *err)
{
    return make(out, f, path, true, err);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m);
}

static void widen(int64_t *max, const struct be_weight *w)
{
    if (w->n_in > *max)
        *max = w->n_in;
}

static void widen_layer(int64_t *max, const struct layer *l)
{
    widen(max, &l->ffn.down);
    if (l->ffn.experts)
        widen(max, &l->ffn.experts->down[0]);
    widen(max, l->mixer == MIX_ATTENTION ? &l->attn.out : &l->delta.out);
}

int64_t model_max_in(const struct model *m)
{
    int64_t max = m->n_embd;
    for (int32_t i = 0; i < m->n_layer; i++)
        widen_layer(&max, &m->layers[i]);
    for (int32_t i = 0; i < m->n_drafts; i++) {
        widen_layer(&max, &m->drafts[i].block);
        widen(&max, &m->drafts[i].proj);
    }
    return max;
}

static int used_by(const struct layer *l)
{
    return l->ffn.experts ? l->ffn.experts->route.n_used : 1;
}

int model_max_used(const struct model *m)
{
    int max = 1;
    for (int32_t i = 0; i < m->n_layer; i++)
        max = used_by(&m->layers[i]) > max ? used_by(&m->layers[i]) : max;
    for (int32_t i = 0; i < m->n_drafts; i++)
        max = used_by(&m->drafts[i].block) > max ? used_by(&m->drafts[i].block) : max;
    return max;
}
