#include "profiles_priv.h"

#include "events.h"
#include "payload.h"
#include "record.h"
#include "routes.h"
#include "spec_law.h"

#include "build_id.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what runs first ---- */

static const char *field(const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));
    return v != NULL ? v : "";
}

/* The applied profile or record, unless somebody named another one for this start. */
static int choose(struct candidate *c, const struct options *o, const json_t *active, const json_t *blessed,
                  struct vt_err *err)
{
    const char *tag = field(active, "tag"), *name = field(active, "profile");
    json_t *record = tag[0] != '\0' ? json_object_get(blessed, tag) : NULL;
    if (vt_config_layer_of(c->cfg, VT_CFG_PROFILE_NAME) >= VT_L_ENV || (record == NULL && name[0] == '\0'))
        return options_profile(c->cfg, err);
    candidate_clear(c);
    int rc =
        record != NULL ? candidate_of_record(c, o, tag, record, err) : candidate_of_profile(c, o, name, err);
    return rc < 0 ? vt_fail_prefix(err, "applied last, says records/active.json of the state directory "
                                        "(--set profile.name=NAME starts another one)")
                  : 0;
}

struct vt_config *profiles_first(const struct options *o, struct vt_err *err)
{
    struct candidate c = {.cfg = vt_config_new()};
    struct rundir dir;
    struct vt_err ignored;
    json_t *active = NULL, *blessed = NULL;
    if (c.cfg == NULL) {
        vt_fail(err, VT_E_NOMEM, "out of memory");
        return NULL;
    }
    int rc = options_layers(o, c.cfg, err);
    if (rc == 0 && rundir_resolve(&dir, c.cfg, &ignored) == 0) {
        active = record_load(dir.state, "active", NULL);
        blessed = record_load(dir.state, "blessed", NULL);
    }
    if (rc == 0)
        rc = choose(&c, o, active, blessed, err);
    json_decref(active);
    json_decref(blessed);
    struct vt_config *cfg = c.cfg;
    c.cfg = NULL;
    json_decref(c.record);
    if (rc == 0)
        return cfg;
    vt_config_free(cfg);
    return NULL;
}

/* ---- records ---- */

static const char *const names[] = {"blessed", "forbidden", "measures", "verdicts", "active"};

json_t **profiles_slot(struct profiles *p, const char *name)
{
    json_t **slot[] = {&p->blessed, &p->forbidden, &p->measures, &p->verdicts, &p->active};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0)
            return slot[i];
    }
    return NULL;
}

int profiles_open(struct sup *s, const struct options *o, struct vt_err *err)
{
    struct profiles *p = s->profiles = calloc(1, sizeof *p);
    if (p == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    p->options = o;
    snprintf(p->devices, sizeof p->devices, "none");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        json_t **slot = profiles_slot(p, names[i]);
        *slot = record_load(s->dir.state, names[i], s->log);
        if (*slot == NULL)
            return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    s->force_shape = json_is_true(json_object_get(p->active, "forced"));
    return move_open(s, err);
}

void profiles_close(struct sup *s)
{
    if (s->profiles == NULL)
        return;
    move_close(s);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        json_decref(*profiles_slot(s->profiles, names[i]));
    free(s->profiles);
    s->profiles = NULL;
}

int profiles_save(struct sup *s, const char *name, struct vt_err *err)
{
    return record_save(s->dir.state, name, *profiles_slot(s->profiles, name), err);
}

const json_t *profiles_record(const struct sup *s, const char *name)
{
    json_t **slot = s->profiles != NULL ? profiles_slot(s->profiles, name) : NULL;
    return slot != NULL ? *slot : NULL;
}

const char *profiles_rolled_back_from(const struct sup *s)
{
    const struct profiles *p = s->profiles;
    if (p == NULL)
        return "";
    if (p->move.stage != MOVE_NONE)
        return p->move.act == MOVE_ROLLBACK ? p->move.from : "";
    return field(p->active, "rolled_back_from");
}

static json_int_t now_us(const struct sup *s)
{
    return (json_int_t)vt_wall(&s->clock);
}

/* ---- blessing ---- */

static json_t *kv_json(const struct kv *k)
{
    json_t *o = json_object();
    for (unsigned i = 0; o != NULL && i < k->n; i++)
        json_object_set_new(o, k->key[i], json_string(k->value[i]));
    return o;
}

json_t *profiles_contract(struct sup *s, const struct child *engine)
{
    const struct child *gw = sup_role(s, ROLE_GATEWAY);
    json_t *o = gw != NULL ? kv_json(&gw->launch.facts) : json_object();
    json_object_set_new(o, "modalities", json_integer((json_int_t)engine->launch.modalities));
    json_object_set_new(o, "window", json_integer((json_int_t)engine->launch.window));
    json_object_set_new(o, "slots", json_integer((json_int_t)engine->launch.slots));
    return o;
}

static json_t *config_json(const struct sup *s)
{
    json_t *o = json_object();
    for (int k = 0; o != NULL && k < VT_CFG_COUNT; k++) {
        char text[4096];
        enum vt_config_key key = (enum vt_config_key)k;
        if (!candidate_keeps(key))
            continue;
        const char *v = key == VT_CFG_MODEL_PATH ? s->model : vt_config_text(s->cfg, key, text, sizeof text);
        json_object_set_new(o, vt_config_name(key), json_string(v));
    }
    return o;
}

static json_t *measured_json(const struct profiles *p, const struct kv *shape)
{
    char key[SHAPE_KEY];
    shape_key(shape, key);
    json_t *v = json_object_get(json_object_get(p->measures, key), "values");
    return v != NULL ? json_deep_copy(v) : json_object();
}

static void tag_of(const struct sup *s, const struct child *engine, const char *given, char *out, size_t size)
{
    if (given[0] != '\0')
        snprintf(out, size, "%s", given);
    else
        snprintf(out, size, "%s@%.4s", vt_config_str(s->cfg, VT_CFG_PROFILE_NAME), engine->launch.fp);
}

static int may_bless(struct sup *s, const struct child *engine, const char *tag, struct vt_err *err)
{
    if (s->profiles->move.stage != MOVE_NONE)
        return vt_fail(err, VT_E_BUSY, "another profile is on its way (operation %llu)",
                       (unsigned long long)s->profiles->move.op);
    if (engine == NULL || engine->state != VT_CHILD_READY || engine->launch.fp[0] == '\0')
        return vt_fail(err, VT_E_NO_ENGINE, "only what runs and is ready can be blessed; the engine is %s",
                       engine != NULL ? child_state_name((unsigned)engine->state) : "not there");
    if (strlen(tag) > 90 || strchr(tag, '/') != NULL)
        return vt_fail(err, VT_E_PARAM, "a tag has at most 90 bytes and no /");
    if (strcmp(tag, "entries") == 0) /* in other records the name of their list */
        return vt_fail(err, VT_E_PARAM, "the tag entries is taken: choose another one");
    return 0;
}

int profiles_bless(struct sup *s, const char *tag, const char *note, char *out, size_t size,
                   struct vt_err *err)
{
    struct profiles *p = s->profiles;
    struct child *engine = sup_role(s, ROLE_ENGINE);
    struct kv shape = {0};
    char identity[13];
    uint64_t bytes;
    if (may_bless(s, engine, tag, err) < 0 || payload_of(s, identity, &bytes, err) < 0)
        return -1;
    tag_of(s, engine, tag, out, size);
    profiles_shape(s, s->cfg, identity, &shape);
    json_t *r =
        json_pack("{s:I, s:s, s:o, s:o, s:s, s:o, s:o, s:{s:I, s:s, s:s}, s:s, s:s}", "at_us", now_us(s),
                  "build", VT_BUILD_ID, "config", config_json(s), "contract", profiles_contract(s, engine),
                  "fp", engine->launch.fp, "map", kv_json(&engine->launch.map), "measured",
                  measured_json(p, &shape), "model", "bytes", (json_int_t)bytes, "identity", identity, "path",
                  s->model, "note", note, "profile", vt_config_str(s->cfg, VT_CFG_PROFILE_NAME));
    json_object_set_new(r, "pair", spec_law_pair(&shape, p->measures));
    kv_clear(&shape);
    json_t *before = json_incref(json_object_get(p->blessed, out));
    if (r == NULL || json_object_set_new(p->blessed, out, r) < 0) {
        json_decref(before);
        return vt_fail(err, VT_E_PARAM, "the note or the tag is not UTF-8");
    }
    if (profiles_save(s, "blessed", err) < 0) {
        if (before == NULL || json_object_set_new(p->blessed, out, before) < 0)
            json_object_del(p->blessed, out);
        return -1;
    }
    json_decref(before);
    event_text(s, EVENT_PROFILE, engine, VT_LOG_NOTICE, "blessed as %s, fingerprint %s", out,
               engine->launch.fp);
    return 0;
}

static json_t *newest(const struct profiles *p, const char *profile, const char *not_fp, const char **tag)
{
    const char *key;
    json_t *v, *best = NULL;
    json_object_foreach(p->blessed, key, v)
    {
        if ((profile != NULL && strcmp(field(v, "profile"), profile) != 0) ||
            (not_fp != NULL && strcmp(field(v, "fp"), not_fp) == 0))
            continue;
        if (best == NULL || json_integer_value(json_object_get(v, "at_us")) >
                                json_integer_value(json_object_get(best, "at_us"))) {
            best = v;
            *tag = key;
        }
    }
    return best;
}

json_t *profiles_newest_other(const struct profiles *p, const char *fp, const char **tag)
{
    return newest(p, NULL, fp, tag);
}

void profiles_bdiff(const struct sup *s, const struct kv *map, char *bdiff, size_t size, const char **tag)
{
    struct kv was = {0};
    const char *key;
    json_t *v;
    *tag = "none";
    snprintf(bdiff, size, "none");
    json_t *r = s->profiles != NULL
                    ? newest(s->profiles, vt_config_str(s->cfg, VT_CFG_PROFILE_NAME), NULL, tag)
                    : NULL;
    if (r == NULL)
        return;
    json_object_foreach(json_object_get(r, "map"), key, v)
    {
        if (json_is_string(v))
            kv_set(&was, key, json_string_value(v));
    }
    fingerprint_diff(&was, map, bdiff, size);
    kv_clear(&was);
}

/* ---- forbidden shapes, verdicts ---- */

static void today(const struct sup *s, char out[16])
{
    time_t t = (time_t)(vt_wall(&s->clock) / 1000000u);
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, 16, "%Y-%m-%d", &tm);
}

static int append(struct sup *s, const char *record, json_t *entry, struct vt_err *err)
{
    json_t *all = *profiles_slot(s->profiles, record);
    json_t *list = json_object_get(all, "entries");
    if (list == NULL) {
        list = json_array();
        json_object_set_new(all, "entries", list);
    }
    if (entry == NULL || json_array_append_new(list, entry) < 0)
        return vt_fail(err, VT_E_PARAM, "the text is not UTF-8");
    if (profiles_save(s, record, err) == 0)
        return 0;
    json_array_remove(list, json_array_size(list) - 1);
    return -1;
}

int profiles_forbid(struct sup *s, const char *shape, const char *evidence, struct vt_err *err)
{
    char date[16];
    today(s, date);
    if (shape_matches(shape, s->cfg, err) < 0)
        return vt_fail_prefix(err, "shape");
    if (evidence[0] == '\0')
        return vt_fail(err, VT_E_PARAM,
                       "a shape is forbidden by its evidence: the line of the error, as --note");
    return append(s, "forbidden",
                  json_pack("{s:s, s:s, s:s, s:s}", "build", VT_BUILD_ID, "date", date, "evidence", evidence,
                            "shape", shape),
                  err);
}

int profiles_verdict(struct sup *s, const char *subject, const char *text, struct vt_err *err)
{
    char date[16];
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    today(s, date);
    if (subject[0] == '\0' || text[0] == '\0')
        return vt_fail(err, VT_E_PARAM,
                       "a verdict needs its subject and, as --note, what was measured and why");
    return append(s, "verdicts",
                  json_pack("{s:s, s:s, s:s, s:s, s:s}", "build", VT_BUILD_ID, "date", date, "fp",
                            engine != NULL ? engine->launch.fp : "", "subject", subject, "text", text),
                  err);
}

int profiles_may_launch(const struct sup *s, const struct vt_config *cfg, struct vt_err *err)
{
    enum shape_ban ban;
    char evidence[1024];
    const json_t *record = profiles_record(s, "forbidden");
    if (shape_banned(cfg, record, VT_BUILD_ID, &ban, evidence, sizeof evidence, err) < 0)
        return -1;
    if (ban == BAN_NOW)
        return vt_fail(err, VT_E_CONFIG, "forbidden shape: %.350s (--force tries it all the same)", evidence);
    if (ban == BAN_EXPIRED && s->log != NULL && s->profiles != NULL &&
        strcmp(evidence, s->profiles->expired) != 0) {
        snprintf(s->profiles->expired, sizeof s->profiles->expired, "%s", evidence);
        vt_log(s->log, VT_LOG_NOTICE, "%s; this is another build, so it is tried", evidence);
    }
    return 0;
}

int profiles_may_draft(const struct sup *s, const struct vt_config *cfg, const char *model,
                       struct vt_err *err)
{
    struct kv shape = {0};
    char identity[13];
    uint64_t bytes;
    if (s->profiles == NULL || sup_external(cfg) || spec_law_n(cfg) == 0 || s->profiles->options->unblessed)
        return 0;
    if (payload_identity(model, identity, &bytes, err) < 0)
        return -1;
    int rc = profiles_shape(s, cfg, identity, &shape);
    rc = rc < 0 ? vt_fail(err, VT_E_NOMEM, "out of memory")
                : spec_law_allows(s->profiles->blessed, &shape, s->profiles->launched, err);
    kv_clear(&shape);
    return rc;
}

/* ---- measurements ---- */

int profiles_shape(const struct sup *s, const struct vt_config *cfg, const char *payload, struct kv *out)
{
    const struct shape_in in = {
        .cfg = cfg, .payload = payload, .devices = s->profiles->devices, .build = VT_BUILD_ID};
    return shape_of(&in, out);
}

bool profiles_measured(const struct sup *s, const char *payload, const char *name, double *out)
{
    struct kv shape = {0};
    char key[SHAPE_KEY];
    if (s->profiles == NULL || profiles_shape(s, s->cfg, payload, &shape) < 0)
        return false;
    shape_key(&shape, key);
    kv_clear(&shape);
    return measure_get(s->profiles->measures, key, name, out);
}

/* One row of the plan: kept, and told when it is not what was planned. */
static void term(struct sup *s, struct child *c, const struct kv *shape, const char *name, double planned,
                 double measured)
{
    double tolerance = (double)vt_config_int(s->cfg, VT_CFG_ENGINE_PLAN_TOLERANCE_PCT);
    double delta = planned > 0 ? 100.0 * (measured - planned) / planned : 0;
    measure_put(s->profiles->measures, shape, name, planned, measured, now_us(s));
    vt_log(s->log, VT_LOG_INFO, "%s plan: %-8s planned %10.1f MiB, measured %10.1f MiB (%+.1f %%)", c->name,
           name, planned / 1048576.0, measured / 1048576.0, delta);
    if (fabs(delta) > tolerance)
        event_text(s, EVENT_PLAN, c, VT_LOG_WARNING,
                   "plan drift: %s measured %.1f MiB, planned %.1f MiB (%+.1f %%, %.0f %% are tolerated)",
                   name, measured / 1048576.0, planned / 1048576.0, delta, tolerance);
}

static void terms(struct sup *s, struct child *c, const struct kv *shape, const struct vt_frame *f)
{
    const msgpack_object_array *rows = vt_frame_array(f, VT_READY_PLAN);
    for (unsigned i = 0; rows != NULL && i < rows->size && i < 16; i++) {
        const msgpack_object_array *row = vt_array_array(rows, i);
        char name[32];
        if (row == NULL || row->size < 3)
            continue;
        vt_array_str(row, 0, name, sizeof name);
        term(s, c, shape, name, (double)vt_array_u64(row, 1, 0), (double)vt_array_u64(row, 2, 0));
    }
}

void profiles_launched(struct sup *s, struct child *c, const struct vt_frame *ready)
{
    struct profiles *p = s->profiles;
    struct kv shape = {0};
    struct vt_err err;
    char identity[13];
    uint64_t bytes;
    if (p == NULL || c->role != ROLE_ENGINE || payload_of(s, identity, &bytes, &err) < 0)
        return;
    const char *gpus = kv_get(&c->launch.facts, "gpus");
    snprintf(p->devices, sizeof p->devices, "%s", gpus != NULL ? gpus : "none");
    p->launched = true;
    if (profiles_shape(s, s->cfg, identity, &shape) == 0) {
        terms(s, c, &shape, ready);
        measure_put(p->measures, &shape, "start_s", -1, (double)(c->ready_at - c->spawned_at) / 1e6,
                    now_us(s));
        if (c->launch.kv_bytes_per_token > 0)
            measure_put(p->measures, &shape, "kv_bytes_per_token", -1, (double)c->launch.kv_bytes_per_token,
                        now_us(s));
        if (profiles_save(s, "measures", &err) < 0)
            vt_log(s->log, VT_LOG_WARNING, "measurements are not kept: %s", err.text);
        char key[SHAPE_KEY];
        shape_key(&shape, key);
        depth_get(p->measures, key, &c->launch.depth);
    }
    kv_clear(&shape);
}

int profiles_certify(struct sup *s, const char *fp, const struct shape_depth *d, struct vt_err *err)
{
    struct profiles *p = s->profiles;
    struct child *engine = sup_role(s, ROLE_ENGINE);
    struct kv shape = {0};
    char identity[13];
    uint64_t bytes;
    if (engine == NULL || engine->state != VT_CHILD_READY || strcmp(engine->launch.fp, fp) != 0)
        return vt_fail(err, VT_E_NO_ENGINE, "what was measured, fingerprint %.20s, does not run any more",
                       fp);
    if (d->tokens == 0 || d->tokens > engine->launch.window)
        return vt_fail(err, VT_E_PARAM, "a slot holds 1 to %llu tokens, not %llu",
                       (unsigned long long)engine->launch.window, (unsigned long long)d->tokens);
    if (payload_of(s, identity, &bytes, err) < 0)
        return -1;
    struct shape_depth now = *d;
    now.at_us = now_us(s);
    int rc = profiles_shape(s, s->cfg, identity, &shape);
    if (rc < 0 || depth_put(p->measures, &shape, &now) < 0)
        rc = vt_fail(err, VT_E_NOMEM, "out of memory");
    else if ((rc = profiles_save(s, "measures", err)) == 0)
        engine->launch.depth = now;
    kv_clear(&shape);
    if (rc < 0)
        return -1;
    event_text(s, EVENT_PROFILE, engine, VT_LOG_NOTICE,
               "certified %llu tokens deep: %.1f tokens a second there, fingerprint %s",
               (unsigned long long)now.tokens, (double)now.decode_milli / 1000, fp);
    routes_changed(s);
    return 0;
}
