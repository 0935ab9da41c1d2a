#include "gate.h"

#include "mem_read.h"
#include "payload.h"
#include "profiles.h"

#include "gguf.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKSPACE                                                                                            \
    (64ull << 20) /* activations, tables and stacks of a small engine; larger ones are dwarfed by weights */

static int is_gguf(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 5 && strcmp(d->d_name + n - 5, ".gguf") == 0;
}

/* The embedded model: the first file of its folder. */
static int embedded(char *out, size_t size, struct vt_err *err)
{
    const char *dir = getenv("VITRIOL_MODELS");
    struct dirent **list;
    if (dir == NULL || dir[0] == '\0')
        dir = VT_DIR_DATA "/models";
    int n = scandir(dir, &list, is_gguf, alphasort);
    if (n <= 0)
        return vt_fail(
            err, VT_E_NO_INPUT,
            "no model: model.path is empty and %s holds no .gguf file; set model.path (--model FILE)", dir);
    snprintf(out, size, "%s/%s", dir, list[0]->d_name);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    return 0;
}

int gate_find_model(struct sup *s, struct vt_err *err)
{
    char given[PATH_MAX], path[PATH_MAX];
    const char *set = vt_config_str(s->cfg, VT_CFG_MODEL_PATH),
               *name = vt_config_str(s->cfg, VT_CFG_EXTERNAL_MODEL);
    if (sup_external(s->cfg)) { /* a file or not: its server knows */
        snprintf(s->model, sizeof s->model, "%.1000s", set);
        snprintf(s->model_name, sizeof s->model_name, "%s", name[0] != '\0' ? name : "external");
        return 0;
    }
    if (set[0] != '\0')
        snprintf(given, sizeof given, "%s", set);
    else if (embedded(given, sizeof given, err) < 0)
        return -1;
    if (realpath(given, path) == NULL) {
        snprintf(s->model, sizeof s->model, "%.1000s", given);
        return vt_fail_errno(err, VT_E_NO_INPUT, "model %s", given);
    }
    if (strlen(path) >= sizeof s->model)
        return vt_fail(err, VT_E_CONFIG, "model.path: the path is too long");
    memcpy(s->model, path, strlen(path) + 1);
    const char *base = strrchr(given, '/');
    base = base != NULL ? base + 1 : given;
    size_t n = strlen(base);
    if (n > 5 && strcmp(base + n - 5, ".gguf") == 0)
        n -= 5;
    snprintf(s->model_name, sizeof s->model_name, "%.*s", (int)n, base);
    return 0;
}

int gate_memory(const struct vt_plan *need, uint64_t available, struct vt_err *err)
{
    return available == 0 ? 0 : vt_plan_fits(need, "host memory", available, 0, VT_E_MEM_PRESSURE, err);
}

static uint32_t meta(const struct gguf_file *f, const char *arch, const char *name, uint32_t dflt)
{
    char key[128];
    uint32_t v = dflt;
    struct vt_err ignored;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    return gguf_u32(f, key, &v, &ignored) == 0 ? v : dflt;
}

/* f16 keys and values of the layers that have attention; recurrent layers keep a fixed state instead. */
static uint64_t kv_per_token(const struct gguf_file *f)
{
    const char *name;
    size_t len;
    char arch[64];
    struct vt_err ignored;
    if (gguf_str(f, "general.architecture", &name, &len, &ignored) != 0)
        return 0;
    snprintf(arch, sizeof arch, "%.*s", (int)len, name);
    uint32_t heads = meta(f, arch, "attention.head_count", 1);
    uint32_t layers = meta(f, arch, "block_count", 0);
    uint32_t interval = meta(f, arch, "full_attention_interval", 1);
    uint32_t kv_heads = meta(f, arch, "attention.head_count_kv", heads);
    uint32_t d =
        meta(f, arch, "attention.key_length", heads > 0 ? meta(f, arch, "embedding_length", 0) / heads : 0);
    return 2ull * 2 * kv_heads * d * ((layers + interval - 1) / (interval > 0 ? interval : 1));
}

/* What this very shape took before is better than any sum. */
static void measured(const struct sup *s, struct vt_plan *n)
{
    const struct {
        const char *name;
        uint64_t *at;
    } terms[] = {{"kv", &n->kv}, {"work", &n->work}};
    char identity[13];
    uint64_t bytes;
    double v;
    if (s->profiles == NULL || payload_identity(s->model, identity, &bytes, NULL) < 0)
        return;
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++) {
        if (profiles_measured(s, identity, terms[i].name, &v) && v >= 0 && v < 1e15)
            *terms[i].at = (uint64_t)v;
    }
}

int gate_engine_need(const struct sup *s, struct vt_plan *need, struct vt_err *err)
{
    struct gguf_file *f;
    struct stat st;
    if (s->model[0] == '\0')
        return vt_fail(err, VT_E_NO_INPUT, "no model is known");
    if (stat(s->model, &st) < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "model %s", s->model);
    if (!S_ISREG(st.st_mode))
        return vt_fail(err, VT_E_PAYLOAD, "model %s is not a file", s->model);
    if (gguf_open(&f, s->model, false, err) < 0)
        return -1;
    *need = (struct vt_plan){.work = WORKSPACE};
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++)
        need->weights += gguf_tensor_at(f, i)->bytes;
    need->kv = kv_per_token(f) * (uint64_t)vt_config_int(s->cfg, VT_CFG_ENGINE_SLOTS) *
               (uint64_t)vt_config_int(s->cfg, VT_CFG_ENGINE_CTX_TOKENS);
    gguf_close(f);
    measured(s, need);
    return 0;
}

int gate_engine(const struct sup *s, struct vt_err *err)
{
    struct vt_plan need;
    if (gate_engine_need(s, &need, err) < 0)
        return -1;
    /* What a GPU holds is judged where the GPU is asked (device.h); the file's pages go as they come. */
    if (strncmp(vt_config_str(s->cfg, VT_CFG_ENGINE_DEVICE), "gpu:", 4) == 0)
        need = (struct vt_plan){.work = WORKSPACE};
    uint64_t free_now = mem_read_available(vt_config_str(s->cfg, VT_CFG_PATHS_PROC_ROOT));
    return gate_memory(&need, free_now > 0 ? free_now + s->mem_credit : 0, err);
}

/* Of the driver, or of the one that a host lends to its guest. No GPU's library is opened here. */
static bool has_device(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

bool gate_gpu(const struct sup *s)
{
    const char *device = vt_config_str(s->cfg, VT_CFG_ENGINE_DEVICE);
    bool probe = vt_config_str(s->cfg, VT_CFG_SUPERVISOR_PROBE_PROGRAM)[0] != '\0';
    return strcmp(device, "cpu") != 0 && (probe || strncmp(device, "gpu:", 4) == 0 || has_device());
}

bool gate_vault(const struct sup *s)
{
    const char *want = vt_config_str(s->cfg, VT_CFG_ENGINE_VAULT),
               *device = vt_config_str(s->cfg, VT_CFG_ENGINE_DEVICE);
    return strcmp(want, "on") == 0 ||
           (strcmp(want, "auto") == 0 && strcmp(device, "cpu") != 0 && has_device());
}
