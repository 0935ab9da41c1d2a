#include "candidate.h"

#include "device.h"
#include "gate.h"
#include "payload.h"
#include "profiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool candidate_keeps(enum vt_config_key k)
{
    return k != VT_CFG_ENGINE_PROGRAM &&
           (vt_config_in(k, "engine") || vt_config_in(k, "model") || vt_config_in(k, "external") ||
            vt_config_in(k, "gateway") || vt_config_in(k, "profile"));
}

static int layers(struct candidate *c, const struct options *o, struct vt_err *err)
{
    *c = (struct candidate){.cfg = vt_config_new()};
    if (c->cfg == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    return options_layers(o, c->cfg, err);
}

int candidate_of_profile(struct candidate *c, const struct options *o, const char *name, struct vt_err *err)
{
    char origin[128];
    snprintf(origin, sizeof origin, "applied profile %.64s", name);
    if (layers(c, o, err) < 0 || vt_config_set(c->cfg, VT_L_RECORD, "profile.name", name, origin, err) < 0 ||
        options_profile(c->cfg, err) < 0) {
        candidate_clear(c);
        return -1;
    }
    return 0;
}

static int take_config(struct candidate *c, const char *tag, const json_t *config, struct vt_err *err)
{
    char origin[128];
    const char *key;
    json_t *v;
    snprintf(origin, sizeof origin, "blessed record %.90s", tag);
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
    {
        struct vt_err ignored;
        if (vt_config_find(key, &ignored) < 0)
            return vt_fail(err, VT_E_CONFIG, "%s: this build has no key %s; bless again with it", origin,
                           key);
        if (!json_is_string(v) ||
            vt_config_set(c->cfg, VT_L_RECORD, key, json_string_value(v), origin, err) < 0)
            return json_is_string(v) ? -1 : vt_fail(err, VT_E_CONFIG, "%s: %s is no text", origin, key);
    }
    return vt_config_check(c->cfg, err);
}

/* The record is complete: the profile's file, which may have changed since, is not read. */
int candidate_of_record(struct candidate *c, const struct options *o, const char *tag, json_t *record,
                        struct vt_err *err)
{
    if (layers(c, o, err) < 0 || take_config(c, tag, json_object_get(record, "config"), err) < 0) {
        candidate_clear(c);
        return -1;
    }
    snprintf(c->tag, sizeof c->tag, "%s", tag);
    c->record = json_incref(record);
    return 0;
}

void candidate_clear(struct candidate *c)
{
    vt_config_free(c->cfg);
    json_decref(c->record);
    *c = (struct candidate){0};
}

static const char *text(const struct vt_config *cfg, int k, char *buf, size_t size)
{
    return vt_config_text(cfg, (enum vt_config_key)k, buf, size);
}

static bool differs(const struct vt_config *a, const struct vt_config *b, int k)
{
    char x[4096], y[4096];
    return strcmp(text(a, k, x, sizeof x), text(b, k, y, sizeof y)) != 0;
}

/* What is fixed for the life of this vitriold. */
static int fixed_keys(const struct sup *s, const struct candidate *c, struct vt_err *err)
{
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        enum vt_config_key key = (enum vt_config_key)k;
        bool moves = candidate_keeps(key) || key == VT_CFG_LOG_LEVEL ||
                     (vt_config_in(key, "http") && key != VT_CFG_HTTP_LISTEN);
        if (!moves && differs(s->cfg, c->cfg, k))
            return vt_fail(
                err, VT_E_CONFIG,
                "%s: %s takes effect with a restart of vitriold only; restart it with that profile",
                vt_config_origin(c->cfg, key), vt_config_name(key));
    }
    return 0;
}

static int same_payload(const struct sup *probe, const struct candidate *c, struct vt_err *err)
{
    const json_t *m = json_object_get(c->record, "model");
    const char *want = json_string_value(json_object_get(m, "identity"));
    uint64_t bytes;
    char have[13];
    if (want == NULL)
        return 0;
    if (payload_of(probe, have, &bytes, err) < 0)
        return -1;
    json_int_t blessed = json_integer_value(json_object_get(m, "bytes"));
    if ((uint64_t)blessed != bytes)
        return vt_fail(err, VT_E_PAYLOAD, "model %s has %llu bytes, the blessed one had %lld", probe->model,
                       (unsigned long long)bytes, (long long)blessed);
    if (strcmp(want, have) != 0)
        return vt_fail(err, VT_E_PAYLOAD, "model %s is another one than was blessed (%s, not %s)",
                       probe->model, have, want);
    return 0;
}

static int own_gates(struct sup *s, struct sup *probe, const struct candidate *c, struct vt_err *err)
{
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    probe->cfg = c->cfg;
    probe->dir = s->dir;
    probe->profiles = s->profiles;
    /* What the running generation holds comes back with its end. */
    probe->mem_credit = engine != NULL ? engine->rss_anon : 0;
    if (gate_find_model(probe, err) < 0)
        return -1;
    /* Size before shape: a file that is cut short is told as that, whatever its index says. */
    enum payload_state p = payload_check(s, c->cfg, probe->model, err);
    if (p == PAYLOAD_WORKING && c->gated)
        return 1;
    if (p == PAYLOAD_BAD || (!sup_external(c->cfg) && gate_engine(probe, err) < 0) ||
        same_payload(probe, c, err) < 0 ||
        (!c->force &&
         (profiles_may_launch(s, c->cfg, err) < 0 || profiles_may_draft(s, c->cfg, probe->model, err) < 0)))
        return -1;
    int fits = device_fits(s, probe, err);
    return fits != 0 ? fits : p == PAYLOAD_WORKING;
}

int candidate_gate(struct sup *s, const struct candidate *c, struct vt_err *err)
{
    if (fixed_keys(s, c, err) < 0)
        return -1;
    struct sup *probe = calloc(1, sizeof *probe);
    int rc = probe != NULL ? own_gates(s, probe, c, err) : vt_fail(err, VT_E_NOMEM, "out of memory");
    free(probe);
    return rc;
}

bool candidate_moves_gateway(struct sup *s, const struct candidate *c)
{
    struct sup *probe = calloc(1, sizeof *probe);
    const struct child *gw = sup_role(s, ROLE_GATEWAY);
    struct vt_err ignored;
    char file[13];
    bool moves = false;
    if (probe == NULL)
        return true;
    probe->cfg = c->cfg;
    moves = gate_find_model(probe, &ignored) < 0 || strcmp(probe->model, s->model) != 0;
    payload_file(probe->model, file); /* the path may be the same, and the file another one */
    moves = moves || (gw != NULL && strcmp(file, gw->launch.model_file) != 0 && !sup_external(c->cfg));
    free(probe);
    for (int k = 0; k < VT_CFG_COUNT && !moves; k++) {
        enum vt_config_key key = (enum vt_config_key)k;
        moves = (vt_config_in(key, "gateway") || vt_config_in(key, "http") || vt_config_in(key, "external") ||
                 key == VT_CFG_ENGINE_KIND) &&
                differs(s->cfg, c->cfg, k);
    }
    return moves;
}
