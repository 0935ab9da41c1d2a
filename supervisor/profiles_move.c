/* The move to another configuration: verify, switch, prove, keep; or back. */
#include "profiles_priv.h"

#include "child.h"
#include "device.h"
#include "events.h"
#include "gate.h"
#include "ops.h"
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_US  VT_MS(100)
#define PROVE_US VT_SEC(60)
#define LIMIT_US VT_SEC(4 * 3600)

static const char *const verbs[] = {"apply", "probe", "rollback"};

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct sup *s = arg;
    profiles_tick(s);
    if (s->profiles->move.stage == MOVE_NONE)
        return 0;
    sd_event_source_set_time_relative(src, STEP_US);
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

int move_open(struct sup *s, struct vt_err *err)
{
    struct profiles *p = s->profiles;
    if (sd_event_add_time_relative(s->ev, &p->timer, CLOCK_MONOTONIC, STEP_US, 1000, on_timer, s) < 0 ||
        sd_event_source_set_enabled(p->timer, SD_EVENT_OFF) < 0)
        return vt_fail(err, VT_E_OS, "timer for profiles");
    return 0;
}

static void clear(struct move *m)
{
    candidate_clear(&m->next);
    vt_config_free(m->before);
    json_decref(m->record);
    *m = (struct move){0};
}

void move_close(struct sup *s)
{
    sd_event_source_disable_unref(s->profiles->timer);
    clear(&s->profiles->move);
}

/* ---- to the other one ---- */

static void leave(struct sup *s, struct child *c)
{
    uint32_t ms = (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_DRAIN_S) * 1000u;
    restart_reset(&c->restart);
    if (c->pid != 0)
        child_leave(c, ms, true, 3);
    else
        child_reset(c);
}

static void go(struct sup *s, bool gateway_too)
{
    struct child *engine = sup_role(s, ROLE_ENGINE), *gw = sup_role(s, ROLE_GATEWAY);
    struct vt_err err;
    if (gate_find_model(s, &err) < 0)
        vt_log(s->log, VT_LOG_ERR, "%s", err.text);
    if (gateway_too && gw != NULL)
        leave(s, gw);
    leave(s, engine);
    routes_changed(s);
}

/* From here on what ran before is being left. */
static void switch_over(struct sup *s)
{
    struct move *m = &s->profiles->move;
    struct child *engine = sup_role(s, ROLE_ENGINE);
    const struct child *gw = sup_role(s, ROLE_GATEWAY);
    m->gateway_too = m->act != MOVE_PROBE && candidate_moves_gateway(s, &m->next);
    m->engine_gen = engine->gen;
    m->gateway_gen = gw != NULL ? gw->gen : 0;
    m->record = json_incref(m->next.record);
    snprintf(m->tag, sizeof m->tag, "%s", m->next.tag);
    snprintf(m->from, sizeof m->from, "%s", vt_config_str(s->cfg, VT_CFG_PROFILE_NAME));
    m->before = s->cfg;
    s->cfg = m->next.cfg;
    m->next.cfg = NULL;
    m->forced = s->force_shape = m->next.force;
    candidate_clear(&m->next);
    m->stage = MOVE_SWITCHING;
    engine->unrouted = true;
    go(s, m->gateway_too);
}

static void swap_back(struct sup *s)
{
    struct move *m = &s->profiles->move;
    struct child *engine = sup_role(s, ROLE_ENGINE);
    vt_config_free(s->cfg);
    s->cfg = m->before;
    m->before = NULL;
    s->force_shape = false;
    engine->unrouted = false;
    go(s, m->gateway_too);
}

static void end_move(struct sup *s, int code, const char *text)
{
    struct move *m = &s->profiles->move;
    sup_role(s, ROLE_ENGINE)->op = 0;
    ops_end(s, m->op, code, text);
    clear(m);
}

static void fail_move(struct sup *s, int code, const char *why)
{
    struct move *m = &s->profiles->move;
    char text[256];
    if (m->stage > MOVE_VERIFYING) {
        snprintf(text, sizeof text, "%.180s; profile %.40s runs again", why, m->from);
        swap_back(s);
    } else {
        snprintf(text, sizeof text, "%.240s", why);
    }
    end_move(s, code, text);
}

/* ---- proving ---- */

/* Every promise of the record that what runs does not keep; false: one was found. */
static bool keeps_contract(struct sup *s, const struct child *engine, char *why, size_t size)
{
    const struct move *m = &s->profiles->move;
    json_t *have = profiles_contract(s, engine), *want = json_object_get(m->record, "contract"), *v;
    const char *key;
    bool ok = true;
    json_object_foreach(want, key, v)
    {
        if (!ok || json_equal(v, json_object_get(have, key)))
            continue;
        ok = false;
        char *was = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        char *is = json_dumps(json_object_get(have, key), JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(why, size, "contract: %s is %.60s, blessed was %.60s", key, is != NULL ? is : "missing",
                 was != NULL ? was : "?");
        free(was);
        free(is);
    }
    json_decref(have);
    return ok;
}

static void keep_active(struct sup *s)
{
    struct profiles *p = s->profiles;
    const struct move *m = &p->move;
    struct vt_err err;
    json_t *a = json_pack("{s:s}", "profile", vt_config_str(s->cfg, VT_CFG_PROFILE_NAME));
    if (m->forced)
        json_object_set_new(a, "forced", json_true());
    if (m->act == MOVE_ROLLBACK) {
        json_object_set_new(a, "tag", json_string(m->tag));
        json_object_set_new(a, "rolled_back_from", json_string(m->from));
    }
    json_decref(p->active);
    p->active = a;
    if (profiles_save(s, "active", &err) < 0)
        vt_log(s->log, VT_LOG_ERR, "after a restart of vitriold another profile runs: %s", err.text);
}

static void finish_move(struct sup *s)
{
    struct move *m = &s->profiles->move;
    struct child *engine = sup_role(s, ROLE_ENGINE);
    char text[256];
    keep_active(s);
    engine->unrouted = false;
    snprintf(
        text, sizeof text, "%s%.90s runs, fingerprint %s", m->act == MOVE_ROLLBACK ? "record " : "profile ",
        m->act == MOVE_ROLLBACK ? m->tag : vt_config_str(s->cfg, VT_CFG_PROFILE_NAME), engine->launch.fp);
    event_text(s, EVENT_PROFILE, engine, VT_LOG_NOTICE, "%s", text);
    end_move(s, 0, text);
    routes_changed(s);
}

static void finish_probe(struct sup *s)
{
    struct move *m = &s->profiles->move;
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    const char *delta = kv_get(&engine->launch.facts, "plan_delta");
    char text[256];
    snprintf(text, sizeof text,
             "ready after %.1f s, %llu slots of %llu tokens, plan %s, fingerprint %s; %.40s runs again",
             (double)(engine->ready_at - engine->spawned_at) / 1e6, (unsigned long long)engine->launch.slots,
             (unsigned long long)engine->launch.window, delta != NULL ? delta : "unknown", engine->launch.fp,
             m->from);
    swap_back(s);
    end_move(s, 0, text);
}

static void prove(struct sup *s, struct child *engine)
{
    struct move *m = &s->profiles->move;
    const struct child *gw = sup_role(s, ROLE_GATEWAY);
    char why[200];
    if (sup_now(s) - m->proving_at > PROVE_US) {
        fail_move(s, VT_E_INTERNAL,
                  m->canary_ok ? "the gateway did not come back" : "the canary was not answered");
        return;
    }
    if (engine->state != VT_CHILD_READY || !m->canary_ok)
        return;
    if (m->act == MOVE_PROBE) {
        finish_probe(s);
        return;
    }
    if (m->gateway_too && (gw->state != VT_CHILD_READY || gw->gen == m->gateway_gen))
        return;
    if (m->record != NULL && !keeps_contract(s, engine, why, sizeof why))
        fail_move(s, VT_E_INTERNAL, why);
    else
        finish_move(s);
}

void profiles_canary(struct sup *s, const struct child *c, const struct vt_frame *f)
{
    struct move *m = s->profiles != NULL ? &s->profiles->move : NULL;
    if (m == NULL || m->stage != MOVE_PROVING || c->role != ROLE_ENGINE || c->gen == m->engine_gen)
        return;
    if (vt_frame_u64(f, VT_ORDER_DONE_OK, 0) != 0)
        m->canary_ok = true;
    else
        fail_move(s, VT_E_INTERNAL, "the canary was not answered well");
}

static void advance(struct sup *s, struct child *engine)
{
    struct move *m = &s->profiles->move;
    bool fresh = engine->gen != m->engine_gen;
    char why[200];
    if (m->stage == MOVE_SWITCHING && fresh && engine->state == VT_CHILD_READY) {
        m->stage = MOVE_PROVING;
        m->proving_at = sup_now(s);
        child_order(engine, VT_ORDER_CANARY, 0, 0, 0, -1);
    }
    /* Between two generations these states last no longer than one turn of the loop, unless something went wrong. */
    bool ended = engine->state == VT_CHILD_BACKOFF || engine->state == VT_CHILD_FAILED;
    bool refused = !fresh && ended && engine->class != CLASS_NONE;
    if (ended && (fresh || refused)) {
        snprintf(why, sizeof why, "it did not become ready: %s: %.150s", exit_class_name(engine->class),
                 engine->detail);
        fail_move(s, VT_E_INTERNAL, why);
    } else if (m->stage == MOVE_PROVING && fresh && engine->state != VT_CHILD_READY) {
        fail_move(s, VT_E_INTERNAL, "it ended while it was being proved");
    } else if (m->stage == MOVE_PROVING) {
        prove(s, engine);
    }
}

static void verify(struct sup *s)
{
    struct move *m = &s->profiles->move;
    struct vt_err err;
    int rc = candidate_gate(s, &m->next, &err);
    if (rc < 0)
        fail_move(s, err.code, err.text);
    else if (rc == 0)
        switch_over(s);
}

/* ---- beginning ---- */

static uint64_t begin(struct sup *s, enum move_act act, struct candidate *next, struct vt_err *err)
{
    struct move *m = &s->profiles->move;
    device_forget_next(s);
    int rc = candidate_gate(s, next, err);
    if (rc < 0) {
        candidate_clear(next);
        return 0;
    }
    next->gated = rc == 1;
    *m = (struct move){.act = act, .stage = MOVE_VERIFYING, .next = *next};
    m->op = ops_begin(s, verbs[act], sup_role(s, ROLE_ENGINE), LIMIT_US);
    sup_role(s, ROLE_ENGINE)->op = m->op;
    if (rc == 0)
        switch_over(s);
    sd_event_source_set_time_relative(s->profiles->timer, STEP_US);
    sd_event_source_set_enabled(s->profiles->timer, SD_EVENT_ONESHOT);
    return m->op;
}

static int idle(struct sup *s, struct vt_err *err)
{
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    if (s->stopping)
        return vt_fail(err, VT_E_DRAINING, "vitriold is stopping");
    if (engine == NULL)
        return vt_fail(err, VT_E_NO_ENGINE, "there is no engine");
    if (s->profiles->move.stage != MOVE_NONE || engine->op != 0)
        return vt_fail(err, VT_E_BUSY,
                       "engine0 is in the middle of an operation; vitriolctl status tells which");
    return 0;
}

static uint64_t of_profile(struct sup *s, enum move_act act, const char *name, bool force, struct vt_err *err)
{
    struct candidate c;
    if (idle(s, err) < 0 || candidate_of_profile(&c, s->profiles->options, name, err) < 0)
        return 0;
    c.force = force;
    return begin(s, act, &c, err);
}

uint64_t profiles_apply(struct sup *s, const char *name, bool force, struct vt_err *err)
{
    return of_profile(s, MOVE_APPLY, name, force, err);
}

uint64_t profiles_probe(struct sup *s, const char *name, bool force, struct vt_err *err)
{
    return of_profile(s, MOVE_PROBE, name, force, err);
}

uint64_t profiles_rollback(struct sup *s, const char *tag, bool force, struct vt_err *err)
{
    struct profiles *p = s->profiles;
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    struct candidate c;
    if (idle(s, err) < 0)
        return 0;
    /* What crashes has no line of its own any more: the last one that was made is it. */
    const char *fp = engine->launch.fp[0] != '\0' ? engine->launch.fp
                     : s->n_past > 0              ? s->past[(s->n_past - 1) % LAUNCH_PAST].fp
                                                  : "";
    json_t *r = tag[0] != '\0' ? json_object_get(p->blessed, tag) : profiles_newest_other(p, fp, &tag);
    if (r == NULL) {
        vt_fail(err, VT_E_NOT_FOUND,
                tag[0] != '\0' ? "nothing is blessed as %s; vitriolctl blessed lists"
                               : "nothing else%s is blessed",
                tag);
        return 0;
    }
    if (candidate_of_record(&c, p->options, tag, r, err) < 0)
        return 0;
    c.force = force;
    return begin(s, MOVE_ROLLBACK, &c, err);
}

/* ---- by itself ---- */

/* A crash loop has opened the breaker for the first time: what was good before runs instead. */
static void after_breaker(struct sup *s, struct child *engine)
{
    struct profiles *p = s->profiles;
    struct vt_err err;
    if (engine->state == VT_CHILD_READY && sup_now(s) - engine->ready_at > RESTART_STABLE_US)
        p->auto_tried = false;
    if (p->auto_tried || engine->state != VT_CHILD_FAILED || !engine->restart.open || engine->op != 0 ||
        s->stopping || strcmp(vt_config_str(s->cfg, VT_CFG_PROFILE_ROLLBACK), "auto") != 0)
        return;
    p->auto_tried = true;
    if (profiles_rollback(s, "", false, &err) == 0)
        event_text(s, EVENT_PROFILE, engine, VT_LOG_ERR, "the breaker is open and there is no way back: %s",
                   err.text);
    else
        event_text(s, EVENT_PROFILE, engine, VT_LOG_WARNING,
                   "the breaker is open: back to the blessed record");
}

void profiles_tick(struct sup *s)
{
    struct child *engine = sup_role(s, ROLE_ENGINE);
    struct move *m = s->profiles != NULL ? &s->profiles->move : NULL;
    if (m == NULL || engine == NULL)
        return;
    const struct op *op = ops_get(s, m->op);
    if (m->stage != MOVE_NONE && (s->stopping || op == NULL || op->state != OP_RUNNING)) {
        engine->unrouted = engine->unrouted && s->stopping;
        engine->op = engine->op == m->op ? 0 : engine->op;
        if (m->stage > MOVE_VERIFYING && !s->stopping)
            swap_back(s);
        clear(m);
    } else if (m->stage == MOVE_VERIFYING) {
        verify(s);
    } else if (m->stage != MOVE_NONE) {
        advance(s, engine);
    } else {
        after_breaker(s, engine);
    }
}
