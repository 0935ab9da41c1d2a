#include "gate.h"
#include "spec_law.h"

#include "mem_read.h"
#include "payload.h"
#include "profiles.h"

#include "gguf.h"
#include "model.h"
#include "sizing.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of the host's memory for an engine on a GPU: buffers and stacks. The file's pages go as they come. */
#define STAGING (64ull << 20)

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

static int plan(const struct sup *s, const struct model *m, struct vt_plan *need, struct vt_err *err)
{
    struct sizing size = {
        .slots = (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_SLOTS),
        .ctx_tokens = (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_CTX_TOKENS),
        .ubatch = (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_UBATCH_TOKENS),
        .rec_snapshots = (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_REC_SNAPSHOTS),
        .drafts = sizing_drafts((uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_SLOTS), spec_law_n(s->cfg)),
    };
    return sizing_plan(need, m, NULL, &size, err);
}

int gate_engine_need(const struct sup *s, struct vt_plan *need, struct vt_err *err)
{
    struct gguf_file *f;
    struct model *m = NULL;
    struct stat st;
    if (s->model[0] == '\0')
        return vt_fail(err, VT_E_NO_INPUT, "no model is known");
    if (stat(s->model, &st) < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "model %s", s->model);
    if (!S_ISREG(st.st_mode))
        return vt_fail(err, VT_E_PAYLOAD, "model %s is not a file", s->model);
    if (gguf_open(&f, s->model, false, err) < 0)
        return -1;
    int rc = model_shapes(&m, f, s->model, err);
    if (rc == 0)
        rc = plan(s, m, need, err);
    model_free(m);
    gguf_close(f);
    if (rc == 0)
        measured(s, need);
    return rc;
}

static int of_host(const struct sup *s, const struct vt_plan *need, struct vt_err *err)
{
    uint64_t free_now = mem_read_available(vt_config_str(s->cfg, VT_CFG_PATHS_PROC_ROOT));
    return gate_memory(need, free_now > 0 ? free_now + s->mem_credit : 0, err);
}

int gate_host_need(const struct sup *s, struct vt_plan *need, struct vt_err *err)
{
    if (gate_engine_need(s, need, err) < 0)
        return -1;
    if (gate_gpu(s))
        *need = (struct vt_plan){.work = STAGING};
    return 0;
}

int gate_engine(const struct sup *s, struct vt_err *err)
{
    struct vt_plan need;
    return gate_host_need(s, &need, err) < 0 ? -1 : of_host(s, &need, err);
}

int gate_processor(const struct sup *s, struct vt_err *err)
{
    struct vt_plan need;
    return gate_engine_need(s, &need, err) < 0 ? -1 : of_host(s, &need, err);
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
