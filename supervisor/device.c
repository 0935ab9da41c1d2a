#include "device_priv.h"

#include "events.h"
#include "gate.h"
#include "ops.h"
#include "payload.h"
#include "record.h"

#include "series.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALERT_US    VT_SEC(600) /* between two alerts about the same shortage */
#define LADDER_KEYS 256

static struct vram_limits limits(const struct sup *s)
{
    return (struct vram_limits){.return_us = VT_SEC(vt_config_int(s->cfg, VT_CFG_ENGINE_VRAM_RETURN_S)),
                                .proof_us = VT_MS(vt_config_int(s->cfg, VT_CFG_SUPERVISOR_PROBE_RETRY_MS)),
                                .floor = (uint64_t)vt_config_int(s->cfg, VT_CFG_ENGINE_VRAM_FLOOR_MIB) * MIB};
}

bool device_named(const struct sup *s)
{
    return strncmp(vt_config_str(s->cfg, VT_CFG_ENGINE_DEVICE), "gpu:", 4) == 0;
}

bool device_concerns(const struct sup *s)
{
    return !sup_external(s->cfg) && gate_gpu(s);
}

const char *device_name(const struct sup *s)
{
    const struct device *d = s->device;
    return d != NULL && d->cfg == s->cfg && d->name[0] != '\0' ? d->name
                                                               : vt_config_str(s->cfg, VT_CFG_ENGINE_DEVICE);
}

static const char *shown(const struct sup *s)
{
    const char *n = device_name(s);
    return strncmp(n, "gpu:", 4) == 0 ? n : "gpu:0";
}

/* ---- ladder ---- */

static uint32_t ctx(const struct sup *s)
{
    return (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_CTX_TOKENS);
}

static uint32_t slots(const struct sup *s)
{
    return (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_SLOTS);
}

uint32_t device_window_at(const struct sup *s, unsigned rung)
{
    return ladder_window(ctx(s), slots(s), (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_VRAM_RUNG_TOKENS),
                         rung);
}

uint32_t device_window(const struct sup *s)
{
    const struct device *d = s->device;
    return d != NULL && d->cfg == s->cfg && device_concerns(s) ? device_window_at(s, d->ladder.rung) : ctx(s);
}

/* What was learned holds for one profile, model, shape and GPU. */
static void name_key(struct sup *s)
{
    struct device *d = s->device;
    char identity[13] = "-";
    uint64_t bytes;
    payload_identity(s->model, identity, &bytes, NULL);
    snprintf(d->key, sizeof d->key, "%s %s %ux%u %s", vt_config_str(s->cfg, VT_CFG_PROFILE_NAME), identity,
             slots(s), ctx(s), d->uuid);
    json_int_t rung = json_integer_value(json_object_get(d->rungs, d->key));
    d->ladder.rung = rung > 0 && rung <= 64 ? (unsigned)rung : 0;
    if (d->ladder.rung > 0)
        event_text(s, EVENT_VRAM, sup_role(s, ROLE_ENGINE), VT_LOG_WARNING,
                   "vram_ladder: rung %u was learned before: windows of %u instead of %u tokens",
                   d->ladder.rung, device_window_at(s, d->ladder.rung), ctx(s));
}

static void keep_rung(struct sup *s)
{
    struct device *d = s->device;
    struct vt_err err;
    if (json_object_size(d->rungs) >= LADDER_KEYS)
        json_object_clear(d->rungs);
    if (d->ladder.rung > 0)
        json_object_set_new(d->rungs, d->key, json_integer(d->ladder.rung));
    else
        json_object_del(d->rungs, d->key);
    if (record_save(s->dir.state, "ladder", d->rungs, &err) < 0)
        vt_log(s->log, VT_LOG_WARNING, "the ladder's rung is not kept: %s", err.text);
}

/* One rung down; false: there is none. */
static bool descend(struct sup *s, const struct child *engine, const char *why)
{
    struct device *d = s->device;
    unsigned rungs = (unsigned)vt_config_int(s->cfg, VT_CFG_ENGINE_VRAM_RUNGS);
    if (!ladder_has(ctx(s), slots(s), (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_VRAM_RUNG_TOKENS),
                    d->ladder.rung, rungs)) {
        if (d->told_short == 0 || sup_now(s) - d->told_short > ALERT_US)
            event_text(s, EVENT_VRAM, engine, VT_LOG_ERR,
                       "vram_short: %s; the ladder has no further rung (%u of %u)", why, d->ladder.rung,
                       rungs);
        d->told_short = sup_now(s);
        return false;
    }
    d->ladder.rung++;
    d->planned = false;
    keep_rung(s);
    event_text(s, EVENT_VRAM, engine, VT_LOG_WARNING,
               "vram_ladder: rung %u: windows of %u instead of %u tokens: %s", d->ladder.rung,
               device_window_at(s, d->ladder.rung), ctx(s), why);
    return true;
}

/* ---- the probe ---- */

static void wake(struct sup *s)
{
    struct device *d = s->device;
    struct child *c = sup_role(s, ROLE_ENGINE);
    if (!d->waiting || c == NULL)
        return;
    d->waiting = false;
    if (c->state == VT_CHILD_DOWN || c->state == VT_CHILD_BACKOFF || c->state == VT_CHILD_FAILED) {
        sd_event_source_set_time(c->timer, sup_now(s));
        sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
    }
}

static void answered(struct sup *s, const json_t *a)
{
    struct device *d = s->device;
    const char *uuid = json_string_value(json_object_get(a, "uuid")),
               *holders = json_string_value(json_object_get(a, "holders"));
    const json_t *plan = json_object_get(a, "plan");
    uint64_t free_bytes = device_bytes(a, "free"), now = sup_now(s);
    d->total = device_bytes(a, "total");
    snprintf(d->holders, sizeof d->holders, "%s", holders != NULL ? holders : "");
    if (uuid != NULL && strcmp(uuid, d->uuid) != 0) {
        snprintf(d->uuid, sizeof d->uuid, "%s", uuid);
        d->key[0] = '\0';
    }
    d->planned = plan != NULL;
    device_read_plan(&d->plan, plan);
    if (!d->proving) {
        vram_read(&d->vram, free_bytes, now);
        return;
    }
    vram_proved(&d->vram, free_bytes, now);
    event_text(s, EVENT_VRAM, NULL, VT_LOG_NOTICE, "device_proved: %s allocates, copies and computes again",
               shown(s));
}

static void on_answer(struct sup *s, const json_t *answer, int status, const char *why)
{
    struct device *d = s->device;
    struct vram_limits l = limits(s);
    if (d->next.asked) {
        device_next_heard(s, answer, status, why);
    } else if (answer != NULL && device_bytes(answer, "total") > 0) {
        answered(s, answer);
    } else if (status == VT_EX_PAYLOAD || status == VT_EX_NOINPUT) {
        d->unknown = true; /* the model's fault, no GPU's */
    } else {
        vram_failed(&d->vram, &l, sup_now(s));
        d->unknown = !d->vram.lost;
        if (d->vram.lost)
            event_text(s, EVENT_VRAM, NULL, VT_LOG_ERR,
                       "device_lost: %s is not used; next proof in %llu s: %.150s", shown(s),
                       (unsigned long long)((d->vram.next_proof - sup_now(s) + 999999) / 1000000), why);
        else
            vt_log(s->log, VT_LOG_NOTICE, "%s cannot be read before the start: %s", shown(s), why);
        snprintf(d->text, sizeof d->text, "%s is lost: %.180s", shown(s), why);
    }
    wake(s);
}

/* A plan is wanted where nothing has shown yet that this shape fits. */
static int ask(struct sup *s, bool prove, struct vt_err *err)
{
    struct device *d = s->device;
    const char *argv[] = {prove ? "prove" : "read", shown(s), NULL};
    d->proving = prove;
    return !prove && d->name[0] == '\0' ? device_ask_plan(s, s, device_window(s), err)
                                        : probe_start(d->probe, argv, err);
}

/* ---- before a start ---- */

/* Another configuration: what is known of the GPU stays, what was decided about the engine there does not. */
static void follow_config(struct sup *s)
{
    struct device *d = s->device;
    if (d->cfg == s->cfg)
        return;
    d->cfg = s->cfg;
    d->name[0] = d->key[0] = '\0';
    d->planned = d->unknown = false;
    d->ladder = (struct ladder){0};
}

/* Where nothing has run yet. What "auto" does not find room for on the GPU comes to the processor. */
static int judge_plan(struct sup *s, const struct child *engine, struct vt_err *err)
{
    struct device *d = s->device;
    uint64_t free_bytes = d->vram.free + (d->vram.held ? d->vram.shared : 0);
    if (d->name[0] != '\0' || (device_named(s) && !d->planned))
        return 0;
    if (d->planned && vt_plan_fits(&d->plan, shown(s), free_bytes, d->total, VT_E_DEVICE_MEM, err) == 0)
        return 0;
    if (!device_named(s))
        return gate_processor(s, err);
    d->vram.fresh = false;
    if (vt_plan_sum(&d->plan) - free_bytes <= device_rungs_give(s, &d->plan, device_window(s)))
        descend(s, engine, "its plan does not fit"); /* else no rung would help */
    return -1;
}

static int go(struct sup *s, const struct child *engine, struct vt_err *err)
{
    struct device *d = s->device;
    d->text[0] = '\0';
    d->told_wait = 0;
    if (d->key[0] == '\0') {
        name_key(s);
        if (d->ladder.rung > 0 && d->planned) { /* of another window */
            d->planned = false;
        }
    }
    return judge_plan(s, engine, err);
}

static int wait_for_memory(struct sup *s, const struct child *engine)
{
    struct device *d = s->device;
    snprintf(d->text, sizeof d->text, "waits until the memory of %s is back: %llu of %llu MiB are free",
             shown(s), (unsigned long long)(d->vram.free / MIB),
             (unsigned long long)(vram_expected(&d->vram) / MIB));
    if (d->told_wait == 0)
        event_text(s, EVENT_VRAM, engine, VT_LOG_NOTICE, "%s", d->text);
    d->told_wait = sup_now(s);
    return 1;
}

static int not_returned(struct sup *s, const struct child *engine, struct vt_err *err)
{
    struct device *d = s->device;
    d->told_wait = 0;
    snprintf(d->text, sizeof d->text,
             "vram_not_returned: %llu of %llu MiB of %s are free %lld s after the engine's "
             "end%s%.100s",
             (unsigned long long)(d->vram.free / MIB), (unsigned long long)(vram_expected(&d->vram) / MIB),
             shown(s), (long long)vt_config_int(s->cfg, VT_CFG_ENGINE_VRAM_RETURN_S),
             d->holders[0] != '\0' ? "; it is open in " : "; no process that has it open can be seen",
             d->holders);
    event_text(s, EVENT_VRAM, engine, VT_LOG_ERR, "%s", d->text);
    return vt_fail(err, VT_E_BUSY, "%s", d->text);
}

static int ask_first(struct sup *s, const struct child *engine, bool prove, struct vt_err *err)
{
    struct device *d = s->device;
    if (d->unknown) {
        d->unknown = d->planned = false;
        return judge_plan(s, engine, err);
    }
    if (ask(s, prove, err) == 0) {
        d->waiting = true;
        return 1;
    }
    if (prove)
        return vt_fail(err, VT_E_DEVICE_LOST, "%s is lost and cannot be proved: %.150s", shown(s), err->text);
    vt_log(s->log, VT_LOG_NOTICE, "%s is not read before the start: %s", shown(s), err->text);
    d->planned = false;
    return judge_plan(s, engine, err);
}

int device_gate(struct sup *s, struct child *engine, uint64_t *at, struct vt_err *err)
{
    struct device *d = s->device;
    struct vram_limits l = limits(s);
    *at = sup_now(s) + VT_MS(200);
    follow_config(s);
    if (!device_concerns(s))
        return 0;
    if (probe_pid(d->probe) > 0) {
        d->waiting = true;
        return 1;
    }
    enum vram_step step = vram_next(&d->vram, &l, sup_now(s), at);
    switch (step) {
    case VRAM_READ:
    case VRAM_PROVE: *at = sup_now(s) + VT_SEC(1); return ask_first(s, engine, step == VRAM_PROVE, err);
    case VRAM_WAIT: return wait_for_memory(s, engine);
    case VRAM_LOST: return vt_fail(err, VT_E_DEVICE_LOST, "%.250s", d->text);
    case VRAM_NOT_RETURNED: *at = 0; return not_returned(s, engine, err);
    case VRAM_TAKEN:
        event_text(
            s, EVENT_VRAM, engine, VT_LOG_WARNING,
            "%s has %llu MiB free, less than before; there is room for the engine all the same%s%.100s",
            shown(s), (unsigned long long)(d->vram.free / MIB),
            d->holders[0] != '\0' ? "; it is open in " : "", d->holders);
        break;
    case VRAM_GO: break;
    }
    *at = 0;
    return go(s, engine, err);
}

void device_prepare(struct sup *s)
{
    struct device *d = s->device;
    struct vram_limits l = limits(s);
    struct vt_err err;
    uint64_t at;
    if (d == NULL || !device_concerns(s) || d->vram.baseline == 0 || probe_pid(d->probe) > 0 || s->stopping)
        return;
    if (d->vram.lost ? sup_now(s) >= d->vram.next_proof : !d->vram.fresh)
        ask(s, vram_next(&d->vram, &l, sup_now(s), &at) == VRAM_PROVE, &err);
}

/* ---- what engines tell ---- */

static uint64_t measured(const struct vt_frame *ready, const char *term)
{
    const msgpack_object_array *rows = vt_frame_array(ready, VT_READY_PLAN);
    for (unsigned i = 0; rows != NULL && i < rows->size && i < 16; i++) {
        const msgpack_object_array *row = vt_array_array(rows, i);
        char name[32] = "";
        if (row != NULL && row->size >= 3 && strcmp(vt_array_str(row, 0, name, sizeof name), term) == 0)
            return vt_array_u64(row, 2, 0);
    }
    return 0;
}

void device_ready(struct sup *s, const struct child *engine, const struct vt_frame *ready)
{
    struct device *d = s->device;
    const char *device = kv_get(&engine->launch.facts, "device"),
               *uuid = kv_get(&engine->launch.facts, "gpus");
    const struct child *vault = sup_role(s, ROLE_VAULT);
    if (engine->role != ROLE_ENGINE || d == NULL || device == NULL || strncmp(device, "gpu:", 4) != 0)
        return;
    snprintf(d->name, sizeof d->name, "%s", device);
    if (d->uuid[0] == '\0' && uuid != NULL)
        snprintf(d->uuid, sizeof d->uuid, "%.39s", uuid);
    if (d->key[0] == '\0')
        name_key(s);
    vram_ready(&d->vram, measured(ready, "weights") + measured(ready, "kv"), measured(ready, "work"),
               vault != NULL && vault->state == VT_CHILD_READY);
    d->ladder.low_since = d->ladder.roomy_since = 0;
    if (d->ladder.rung > 0)
        snprintf(d->text, sizeof d->text,
                 "windows of %u instead of %u tokens: %s had too little memory (rung %u)", device_window(s),
                 ctx(s), d->name, d->ladder.rung);
}

void device_ended(struct sup *s, const struct child *engine)
{
    struct device *d = s->device;
    if (engine->role != ROLE_ENGINE || d == NULL || !device_concerns(s))
        return;
    vram_ended(&d->vram, engine->class == CLASS_DEVICE_LOST);
    if (d->vram.lost) {
        snprintf(d->text, sizeof d->text, "%s is lost until it is proved: %.150s", shown(s), engine->detail);
        event_text(s, EVENT_VRAM, engine, VT_LOG_ERR, "device_lost: %s", d->text);
    }
    bool loading = engine->class == CLASS_DEVICE_OOM_LOAD;
    if ((loading || engine->class == CLASS_DEVICE_OOM_RUN) &&
        ladder_oom(&d->ladder, loading, sup_now(s)) == LADDER_DOWN)
        descend(s, engine,
                loading ? "the load ran out of device memory" : "it ran out of device memory twice");
}

void device_let_go(struct sup *s)
{
    if (s->device != NULL)
        vram_let_go(&s->device->vram);
}

static void ascend(struct sup *s, const struct child *engine, uint64_t free_bytes)
{
    struct device *d = s->device;
    d->ladder.rung--;
    keep_rung(s);
    event_text(
        s, EVENT_VRAM, engine, VT_LOG_NOTICE,
        "vram_ladder: back to rung %u, windows of %u tokens from the next start on: %llu MiB have been free",
        d->ladder.rung, device_window(s), (unsigned long long)(free_bytes / MIB));
}

void device_take(struct sup *s, struct child *engine, const struct vt_frame *f)
{
    struct device *d = s->device;
    struct vt_err err;
    char why[96];
    uint64_t free_bytes = (uint64_t)vt_map_f64(vt_frame_map(f, VT_T_ENGINE_GAUGES), VT_SERIES_VRAM_FREE, 0);
    if (d == NULL || engine->role != ROLE_ENGINE || free_bytes == 0 || engine->state != VT_CHILD_READY ||
        d->cfg != s->cfg || engine->op != 0)
        return;
    uint64_t rung_bytes =
        d->ladder.rung > 0
            ? engine->launch.kv_bytes_per_token * slots(s) *
                  (device_window_at(s, d->ladder.rung - 1) - device_window_at(s, d->ladder.rung))
            : 0;
    switch (ladder_take(&d->ladder, free_bytes, limits(s).floor, rung_bytes, sup_now(s))) {
    case LADDER_STAY: return;
    case LADDER_UP: ascend(s, engine, free_bytes); return;
    case LADDER_DOWN:
        snprintf(why, sizeof why, "%llu MiB are free, the floor is %llu",
                 (unsigned long long)(free_bytes / MIB), (unsigned long long)(limits(s).floor / MIB));
        if (descend(s, engine, why) && ops_bounce(s, engine, &err) == 0)
            vt_log(s->log, VT_LOG_WARNING, "the smaller windows wait for the next start: %s", err.text);
        return;
    }
}

/* ---- life ---- */

void device_reset(struct sup *s)
{
    struct device *d = s->device;
    if (d == NULL)
        return;
    d->vram.next_proof = 0;
    d->planned = false;
    if (d->ladder.rung == 0)
        return;
    d->ladder = (struct ladder){0};
    keep_rung(s);
    event_text(s, EVENT_VRAM, NULL, VT_LOG_NOTICE,
               "vram_ladder: forgotten by an operator; it counts from the next start on");
}

void device_look(const struct sup *s, struct device_view *v)
{
    const struct device *d = s->device;
    *v = (struct device_view){.text = ""};
    if (d == NULL)
        return;
    *v = (struct device_view){.lost = d->vram.lost,
                              .rung = d->ladder.rung,
                              .free = d->vram.free,
                              .text = d->text,
                              .probe = probe_pid(d->probe)};
}

int device_open(struct sup *s, struct vt_err *err)
{
    struct device *d = s->device = calloc(1, sizeof *d);
    if (d == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    d->cfg = s->cfg;
    d->rungs = record_load(s->dir.state, "ladder", s->log);
    if (d->rungs == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    return probe_open(&d->probe, s, on_answer, err);
}

void device_close(struct sup *s)
{
    if (s->device == NULL)
        return;
    probe_close(s->device->probe);
    json_decref(s->device->rungs);
    free(s->device);
    s->device = NULL;
}
