/* Plans: what an engine would take of a GPU, and, for a configuration that is to run next, whether it will be there. */
#include "device_priv.h"

#include "gate.h"
#include "spec_law.h"

#include <stdio.h>
#include <string.h>

uint64_t device_bytes(const json_t *o, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(o, key));
    return v > 0 ? (uint64_t)v : 0;
}

void device_read_plan(struct vt_plan *out, const json_t *plan)
{
    *out =
        (struct vt_plan){device_bytes(plan, "weights"), device_bytes(plan, "kv"), device_bytes(plan, "work"),
                         device_bytes(plan, "code"), device_bytes(plan, "reserve")};
}

/* Before any engine has run there "auto" means the first one. */
static const char *gpu_of(const struct sup *s)
{
    const char *n = device_name(s);
    return strncmp(n, "gpu:", 4) == 0 ? n : "gpu:0";
}

static const char *gpu_of_next(const struct sup *next)
{
    return device_named(next) ? vt_config_str(next->cfg, VT_CFG_ENGINE_DEVICE) : "gpu:0";
}

int device_ask_plan(struct sup *s, const struct sup *of, uint32_t window, struct vt_err *err)
{
    static const enum vt_config_key shape[] = {VT_CFG_ENGINE_SLOTS, VT_CFG_ENGINE_CTX_TOKENS,
                                               VT_CFG_ENGINE_UBATCH_TOKENS, VT_CFG_ENGINE_REC_SNAPSHOTS,
                                               VT_CFG_ENGINE_VRAM_FLOOR_MIB};
    char n[6][16];
    const char *argv[10] = {"read", of == s ? gpu_of(s) : gpu_of_next(of), of->model};
    for (int i = 0; i < 5; i++) {
        long long v = shape[i] == VT_CFG_ENGINE_CTX_TOKENS ? (long long)window
                                                           : (long long)vt_config_int(of->cfg, shape[i]);
        snprintf(n[i], sizeof n[i], "%lld", v);
        argv[3 + i] = n[i];
    }
    snprintf(n[5], sizeof n[5], "%u", spec_law_n(of->cfg));
    argv[8] = n[5];
    return probe_start(s->device->probe, argv, err);
}

uint64_t device_rungs_give(const struct sup *of, const struct vt_plan *plan, uint32_t window)
{
    uint32_t last = device_window_at(of, (unsigned)vt_config_int(of->cfg, VT_CFG_ENGINE_VRAM_RUNGS));
    return window > last ? plan->kv / window * (window - last) : 0;
}

void device_next_heard(struct sup *s, const json_t *answer, int status, const char *why)
{
    struct device_next *n = &s->device->next;
    const json_t *plan = json_object_get(answer, "plan");
    n->asked = false;
    n->heard = n->cfg != NULL;
    n->status = status;
    n->planned = plan != NULL;
    device_read_plan(&n->plan, plan);
    n->free = device_bytes(answer, "free");
    n->total = device_bytes(answer, "total");
    snprintf(n->why, sizeof n->why, "%s", why);
}

void device_forget_next(struct sup *s)
{
    if (s->device == NULL)
        return;
    s->device->next.cfg = NULL;
    s->device->next.heard = false;
}

/* What the running engine and its vault have of that GPU: it comes back with their end. */
static uint64_t held_on(struct sup *s, const char *gpu)
{
    const struct device *d = s->device;
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    bool there = engine != NULL && engine->pid != 0 && strcmp(device_name(s), gpu) == 0;
    return (there ? d->vram.work : 0) + (there || d->vram.held ? d->vram.shared : 0);
}

/* The probe looked, and what it saw says that the engine will not run there. Its own want of memory says nothing, for the
 * engine that runs has it. */
static int judge_refusal(const struct device_next *n, const char *gpu, struct vt_err *err)
{
    int code = n->status == VT_EX_NOINPUT       ? VT_E_NO_INPUT
               : n->status == VT_EX_PAYLOAD     ? VT_E_PAYLOAD
               : n->status == VT_EX_DEVICE_LOST ? VT_E_DEVICE_LOST
               : n->status == VT_EX_CONFIG      ? VT_E_CONFIG
               : n->status == VT_EX_INTERNAL    ? VT_E_CAPABILITY /* a tensor's type that it cannot read */
                                                : 0;
    return code != 0 ? vt_fail(err, code, "%s: %.200s", gpu, n->why) : 0;
}

static int judge_next(struct sup *s, const struct sup *next, struct vt_err *err)
{
    const struct device_next *n = &s->device->next;
    const char *gpu = gpu_of_next(next);
    uint64_t free_bytes = n->free + held_on(s, gpu);
    if (free_bytes > n->total)
        free_bytes = n->total; /* one of the two readings is older than the other */
    if (!n->planned) {
        vt_log(s->log, VT_LOG_NOTICE, "%s was not asked whether the plan fits: %s", gpu, n->why);
        return device_named(next) ? judge_refusal(n, gpu, err) : gate_processor(next, err);
    }
    if (vt_plan_fits(&n->plan, gpu, free_bytes, n->total, VT_E_DEVICE_MEM, err) == 0)
        return 0;
    if (!device_named(next))
        return gate_processor(next, err);
    uint32_t window = (uint32_t)vt_config_int(next->cfg, VT_CFG_ENGINE_CTX_TOKENS);
    return vt_plan_sum(&n->plan) - free_bytes <= device_rungs_give(next, &n->plan, window) ? 0 : -1;
}

int device_fits(struct sup *s, const struct sup *next, struct vt_err *err)
{
    struct device *d = s->device;
    struct vt_err why;
    if (d == NULL || !device_concerns(next))
        return 0;
    if (d->next.cfg == next->cfg && d->next.heard) {
        int rc = judge_next(s, next, err);
        device_forget_next(s);
        return rc;
    }
    if (probe_pid(d->probe) > 0)
        return 1; /* this question, or one that has to be answered before */
    d->next = (struct device_next){.cfg = next->cfg, .asked = true};
    uint32_t window = (uint32_t)vt_config_int(next->cfg, VT_CFG_ENGINE_CTX_TOKENS);
    if (device_ask_plan(s, next, window, &why) < 0)
        device_next_heard(s, NULL, -1, why.text);
    return 1;
}
