#include "model.h"
#include "map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*map)(struct map *p);
} archs[] = {
    {"qwen3", map_qwen3},
    {"qwen35", map_qwen35},
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
    char known[128] = "";
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", archs[i].name);
    }
    return vt_fail(p->err, VT_E_PAYLOAD, "architecture \"%s\" is not supported; this version runs %s",
                   m->arch, known);
}

int model_load(struct model **out, const struct gguf_file *f, const char *path, struct vt_err *err)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the model");
    m->file = f;
    struct map p = {.f = f, .m = m, .err = err};
    if (read_arch(m, f, err) < 0 || map_arch(&p) < 0) {
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

void model_free(struct model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m->owned);
    free(m->layers);
    free(m);
}

static void widen(int64_t *max, const struct be_weight *w)
{
    if (w->n_in > *max)
        *max = w->n_in;
}

int64_t model_max_in(const struct model *m)
{
    int64_t max = m->head.n_in;
    for (int32_t i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        widen(&max, &l->ffn.gate);
        widen(&max, &l->ffn.down);
        widen(&max, l->mixer == MIX_ATTENTION ? &l->attn.out : &l->delta.out);
    }
    return max;
}
