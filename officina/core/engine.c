/* The engine's link: what it serves, whether it is there, how fast it is, and its checkpoints. Numbers come from its
 * answers; what it does not say is UNKNOWN. */
#include "core/core_priv.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENT_POLLS   3
#define CHECKPOINT_MIN 4096 /* tokens since the last one */

void engine_ask(struct model *m, const char *path, const char *body, struct effects *fx)
{
    effect_add(fx, FX_ASK, ++m->core->next_ask, path, body);
}

static bool is_vitriol(const struct model *m)
{
    return m->core->cpl.kind == KIND_VITRIOL;
}

static bool is_busy(const struct model *m)
{
    return m->core->phase != PH_IDLE;
}

static void go_live(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    enum link_state before = m->engine.link;
    m->engine.link = LINK_LIVE;
    m->engine.retry_at = 0;
    c->away_tries = c->silent_polls = 0;
    c->away_since = 0;
    if (before == LINK_AWAY || before == LINK_BOUNCING || before == LINK_LOADING) {
        if (!m->headless)
            notice(m, NOTICE_INFO,
                   c->phase == PH_STREAM ? "The engine is back; the answer goes on." : "The engine is back.");
        if (is_vitriol(m) && c->phase != PH_STREAM)
            engine_ask(m, "/props", NULL, fx);
    }
    if (c->checkpoint_wanted != NULL)
        engine_checkpoint(m, false, fx);
    turn_pump(m, fx);
}

void engine_heard(struct model *m)
{
    m->engine.last_seen = m->now;
}

void engine_lost(struct model *m, struct effects *fx)
{
    static const int waits[] = {1, 2, 4, 8, 15};
    struct core *c = m->core;
    int k = c->away_tries < 4 ? c->away_tries : 4;
    c->away_tries++;
    if (c->away_since == 0)
        c->away_since = m->now;
    if (m->engine.link != LINK_BOUNCING || c->away_tries > 3)
        m->engine.link = LINK_AWAY;
    m->engine.retry_at = m->now + SEC(waits[k]);
    m->engine.slots_busy = UNKNOWN;
    m->gauges.decode = UNKNOWN;
    turn_pump(m, fx); /* a headless run may give up */
}

void engine_loading(struct model *m, struct effects *fx)
{
    if (m->engine.link != LINK_BOUNCING)
        m->engine.link = LINK_LOADING;
    m->engine.retry_at = m->now + SEC(1);
    m->core->away_since = 0;
    engine_heard(m);
}

/* ---- answers ---- */

static void note_boot(struct model *m, const char *boot, struct effects *fx)
{
    if (boot == NULL)
        return;
    bool changed = m->engine.boot != NULL && strcmp(m->engine.boot, boot) != 0;
    set_str(&m->engine.boot, boot);
    if (!changed)
        return;
    m->core->prev_predicted = m->core->prev_read = -1;
    m->engine.slot_warm = false;
    if (m->core->phase != PH_STREAM && m->core->props_known)
        engine_ask(m, "/props", NULL, fx);
}

static void bouncing(struct model *m, double eta)
{
    if (m->engine.link != LINK_BOUNCING)
        notice(m, NOTICE_INFO, "The engine announced a clean restart. Nothing is lost; the turn goes on.");
    m->engine.link = LINK_BOUNCING;
    m->engine.bounce_eta = eta;
    m->engine.retry_at = m->now + SEC(1);
}

static void on_health(struct model *m, const struct event *e, struct effects *fx)
{
    json_t *o = e->text != NULL ? js_parse(e->text, e->len, NULL, 0) : NULL;
    const json_t *err = json_object_get(o, "error");
    const char *state = js_str(o, "state") != NULL ? js_str(o, "state") : js_str(err, "state");
    const char *boot = js_str(o, "boot_id");
    char made[64];
    if (boot == NULL && js_int(o, "generation", -1) >= 0) {
        snprintf(made, sizeof made, "%" PRId64 ".%" PRId64, js_int(o, "pid", 0), js_int(o, "generation", 0));
        boot = made;
    }
    engine_heard(m);
    bool leaving = state != NULL && (strcmp(state, "bouncing") == 0 || strcmp(state, "draining") == 0);
    double eta = js_num(o, "bounce_eta_s", js_num(err, "bounce_eta_s", UNKNOWN));
    if (leaving)
        bouncing(m, eta);
    else if (e->n == 200)
        go_live(m, fx);
    else if (e->n == 503)
        engine_loading(m, fx);
    else /* no such path: a server that is alive without it */
        go_live(m, fx);
    if (e->n == 200)
        note_boot(m, boot, fx);
    json_decref(o);
}

static void same_engine(struct model *m, const char *model, int64_t window)
{
    if (m->engine.model != NULL && model != NULL && strcmp(m->engine.model, model) != 0)
        notice(m, NOTICE_INFO,
               "The engine serves another model now: %.100s. The next request reads everything again.",
               model);
    else if (m->engine.window > 0 && window > 0 && m->engine.window != window)
        notice(m, NOTICE_INFO, "The engine's window changed from %" PRId64 " to %" PRId64 " tokens.",
               m->engine.window, window);
}

/* What the gateway says of the measurement behind the depth. */
static void certified_how(struct model *m, const json_t *o)
{
    struct text t = {0};
    double decode = js_num(o, "decode_per_second", 0), prompt = js_num(o, "prompt_per_second", 0);
    if (decode > 0)
        text_printf(&t, "%.1f tok/s there", decode);
    if (prompt > 0)
        text_printf(&t, "%s%.1f tok/s reading", t.len != 0 ? ", " : "", prompt);
    if (js_str(o, "profile") != NULL && js_str(o, "profile")[0] != '\0')
        text_printf(&t, "%sprofile %.60s", t.len != 0 ? ", " : "", js_str(o, "profile"));
    if (js_str(o, "date") != NULL && js_str(o, "date")[0] != '\0')
        text_printf(&t, "%s%.20s", t.len != 0 ? ", " : "", js_str(o, "date"));
    set_str(&m->engine.certified_how, t.len != 0 ? t.s : NULL);
    text_free(&t);
}

static void on_props(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    json_t *o = e->n == 200 ? js_parse(e->text, e->len, NULL, 0) : NULL;
    c->props_known = true;
    if (o != NULL) {
        int64_t window =
            js_int(json_object_get(o, "default_generation_settings"), "n_ctx", js_int(o, "n_ctx", UNKNOWN));
        const char *model =
            js_str(o, "model_alias") != NULL ? js_str(o, "model_alias") : js_str(o, "model_name");
        const json_t *certified = json_object_get(o, "certified"),
                     *caps = json_object_get(o, "chat_template_caps");
        const json_t *save = json_object_get(o, "checkpoints");
        same_engine(m, model, window);
        m->engine.window = window;
        m->engine.certified = json_is_integer(certified) ? (int64_t)json_integer_value(certified)
                                                         : js_int(certified, "tokens", UNKNOWN);
        certified_how(m, certified);
        m->engine.slots = (int)js_int(o, "total_slots", UNKNOWN);
        set_str(&m->engine.model, model);
        set_str(&m->engine.build, js_str(o, "build_info"));
        m->engine.tools_known = js_bool(caps, "supports_tools", true);
        m->engine.can_save = js_bool(save, "available", js_bool(o, "endpoint_slots", false));
        set_str(&m->engine.save_why_not, js_str(save, "why_not"));
        m->engine.cut_anywhere =
            strcmp(js_str(o, "cache_cut") != NULL ? js_str(o, "cache_cut") : "", "any") == 0;
        m->engine.can_end_think = js_bool(o, "reasoning_control", false);
        if (!m->engine.tools_known && !m->headless)
            notice(m, NOTICE_TROUBLE, "The served template does not know tools; the model can only talk.");
    }
    json_decref(o);
    economy_gauges(m);
    go_live(m, fx);
}

static void on_slots(struct model *m, const struct event *e)
{
    json_t *v = e->n == 200 ? js_parse(e->text, e->len, NULL, 0) : NULL;
    if (!json_is_array(v)) {
        m->engine.slots_busy = UNKNOWN;
        json_decref(v);
        return;
    }
    int busy = 0;
    for (size_t i = 0; i < json_array_size(v); i++)
        busy += js_bool(json_array_get(v, i), "is_processing", js_int(json_array_get(v, i), "state", 0) != 0);
    m->engine.slots = (int)json_array_size(v);
    m->engine.slots_busy = busy;
    json_decref(v);
}

/* The value of a series, the sum of its samples where they have labels; -1 when it is not there. */
static double series(const char *text, const char *name)
{
    size_t n = strlen(name);
    double sum = -1;
    for (const char *p = text; p != NULL && *p != '\0'; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, name, n) != 0 || (p[n] != ' ' && p[n] != '{'))
            continue;
        const char *value = p + n + strcspn(p + n, p[n] == '{' ? "}\n" : " ");
        double v = *value == '}' || *value == ' ' ? strtod(value + 1, NULL) : -1;
        if (isfinite(v) && v >= 0)
            sum = (sum > 0 ? sum : 0) + v;
    }
    return sum;
}

static void push_speed(struct model *m, double speed)
{
    struct gauges *g = &m->gauges;
    if (m->now - m->core->speed_at < MSEC(900))
        return;
    m->core->speed_at = m->now;
    memmove(g->speed, g->speed + 1, (SPEED_SAMPLES - 1) * sizeof g->speed[0]);
    g->speed[SPEED_SAMPLES - 1] = (float)speed;
    g->speed_max = speed > g->speed_max ? speed : g->speed_max;
}

static void on_metrics(struct model *m, const struct event *e)
{
    struct core *c = m->core;
    if (e->n != 200 || e->text == NULL)
        return;
    double total = series(e->text, "llamacpp:tokens_predicted_total");
    double seconds = series(e->text, "llamacpp:tokens_predicted_seconds_total");
    double evicted = series(e->text, "vitriol_kv_evicted_tokens_total");
    m->engine.boot_decoded = total >= 0 ? (int64_t)total : UNKNOWN;
    m->engine.evicted = evicted >= 0 ? (int64_t)evicted : UNKNOWN;
    bool known = c->prev_predicted >= 0 && total >= c->prev_predicted && seconds >= c->prev_seconds;
    double tokens = known ? total - c->prev_predicted : 0, took = known ? seconds - c->prev_seconds : 0;
    if (took > 0) {
        /* Half-life of 3 s over polls of about one second. */
        double now = tokens / took, keep = m->gauges.decode > 0 ? 0.794 : 0;
        m->gauges.decode = keep * m->gauges.decode + (1 - keep) * now;
        push_speed(m, now);
    } else if (known) {
        push_speed(m, 0);
        if (m->engine.slots_busy == 0)
            m->gauges.decode = UNKNOWN;
    }
    c->prev_predicted = total;
    c->prev_seconds = seconds;
}

/* ---- checkpoints ---- */

static int our_slot(const struct model *m)
{
    return m->core->cpl.slot >= 0 ? m->core->cpl.slot : m->engine.slots == 1 ? 0 : UNKNOWN;
}

void engine_checkpoint(struct model *m, bool asked, struct effects *fx)
{
    struct core *c = m->core;
    int slot = our_slot(m);
    char path[80];
    if (c->checkpoint_wanted != NULL && slot >= 0 && m->engine.link == LINK_LIVE) {
        snprintf(path, sizeof path, "/slots/%d?action=restore", slot);
        json_t *o = json_object();
        js_set_str(o, "filename", c->checkpoint_wanted);
        char *body = js_dump(o);
        engine_ask(m, path, body, fx);
        free(body);
        set_str(&m->engine.warming, c->checkpoint_wanted);
        set_str(&c->checkpoint_wanted, NULL);
        m->engine.link = LINK_WARMING;
        m->engine.retry_at = m->now + SEC(60);
        return;
    }
    if (asked && (!is_vitriol(m) || m->n_turns == 0))
        notice(m, NOTICE_TROUBLE,
               is_vitriol(m) ? "There is nothing to save yet."
                             : "No checkpoint: only a coupling of kind vitriol can save.");
    if (!is_vitriol(m) || m->n_turns == 0 || (m->headless && !asked))
        return;
    const struct turn *t = &m->turns[m->n_turns - 1];
    if (!m->engine.can_save || slot < 0 || t->checkpoint != NULL) {
        if (asked)
            notice(m, NOTICE_TROUBLE, "No checkpoint: %s",
                   m->engine.save_why_not != NULL ? m->engine.save_why_not
                   : !m->engine.can_save          ? "the engine cannot save slots"
                   : slot < 0
                       ? "it is not known which slot holds this conversation (set slot in couplings.conf)"
                       : "this turn has one already");
        return;
    }
    if (!asked && (m->gauges.used < 0 || m->gauges.used - c->saved_tokens < CHECKPOINT_MIN))
        return;
    json_t *o = json_object();
    struct text name = {0};
    text_printf(&name, "officina-%s-%s", m->session != NULL ? m->session : "x", t->key);
    js_set_str(o, "filename", text_str(&name));
    char *body = js_dump(o);
    snprintf(path, sizeof path, "/slots/%d?action=save", slot);
    engine_ask(m, path, body, fx);
    set_str(&m->turns[m->n_turns - 1].checkpoint, text_str(&name));
    m->turns[m->n_turns - 1].dirty = true;
    c->saved_tokens = m->gauges.used;
    free(body);
    text_free(&name);
}

static void on_slot_action(struct model *m, const struct event *e, struct effects *fx)
{
    json_t *o = e->text != NULL ? js_parse(e->text, e->len, NULL, 0) : NULL;
    if (strstr(e->name, "action=restore") != NULL) {
        if (e->n == 200) {
            m->engine.slot_warm = true;
            notice(m, NOTICE_INFO, "Checkpoint restored: %" PRId64 " tokens.", js_int(o, "n_restored", 0));
        } else {
            notice(m, NOTICE_INFO, "The checkpoint is gone; the conversation is read again.");
        }
        set_str(&m->engine.warming, NULL);
        go_live(m, fx);
    } else if (e->n == 200) {
        json_t *out = json_object();
        js_set_str(out, "name", js_str(o, "filename"));
        js_set_int(out, "tokens", js_int(o, "n_saved", UNKNOWN));
        emit(m, fx, "checkpoint", out);
        m->engine.slot_warm = true;
    } else {
        for (size_t i = m->n_turns; i-- > 0;) {
            if (m->turns[i].checkpoint == NULL)
                continue;
            set_str(&m->turns[i].checkpoint, NULL);
            m->turns[i].dirty = true;
            break;
        }
        if (e->n == 501)
            m->engine.can_save = false;
    }
    json_decref(o);
}

void engine_reply(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    bool poll =
        strcmp(e->name, "/health") == 0 || strcmp(e->name, "/slots") == 0 || strcmp(e->name, "/metrics") == 0;
    if (poll && c->polls_open > 0)
        c->polls_open--;
    if (e->n == 0) {
        if (m->engine.link == LINK_LIVE && ++c->silent_polls < SILENT_POLLS && c->phase == PH_STREAM)
            return; /* a stream that lives is better evidence */
        if (strncmp(e->name, "/slots/", 7) == 0)
            on_slot_action(m, e, fx);
        if (c->phase != PH_STREAM || c->silent_polls >= SILENT_POLLS)
            engine_lost(m, fx);
        return;
    }
    engine_heard(m);
    c->silent_polls = 0;
    if (e->n == 503 && strncmp(e->name, "/slots", 6) != 0 && strcmp(e->name, "/health") != 0) {
        engine_loading(m, fx);
        return;
    }
    if (strcmp(e->name, "/health") == 0)
        on_health(m, e, fx);
    else if (strcmp(e->name, "/props") == 0)
        on_props(m, e, fx);
    else if (strcmp(e->name, "/slots") == 0)
        on_slots(m, e);
    else if (strcmp(e->name, "/metrics") == 0)
        on_metrics(m, e);
    else if (strncmp(e->name, "/slots/", 7) == 0)
        on_slot_action(m, e, fx);
    economy_gauges(m);
}

/* ---- time ---- */

static uint64_t poll_gap(const struct model *m)
{
    const struct core *c = m->core;
    return !c->focus ? SEC(15) : is_busy(m) ? SEC(1) : SEC(5);
}

static bool waits(const struct model *m)
{
    return m->engine.link == LINK_AWAY || m->engine.link == LINK_LOADING || m->engine.link == LINK_BOUNCING;
}

void engine_tick(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (!c->open)
        return;
    if (!is_vitriol(m)) { /* a provider has no health to ask */
        if (!c->props_known) {
            c->props_known = true;
            go_live(m, fx);
        } else if (m->engine.link == LINK_AWAY && m->now >= m->engine.retry_at) {
            go_live(m, fx);
        }
        return;
    }
    if (m->engine.link == LINK_WARMING && m->now >= m->engine.retry_at) {
        set_str(&m->engine.warming, NULL);
        go_live(m, fx);
    }
    if (waits(m) && m->engine.retry_at != 0 && m->now >= m->engine.retry_at) {
        m->engine.retry_at = 0; /* until the answer */
        engine_ask(m, c->props_known ? "/health" : "/props", NULL, fx);
        return;
    }
    if (!c->props_asked) {
        c->props_asked = true;
        if (!m->headless)
            engine_ask(m, "/health", NULL, fx);
        engine_ask(m, "/props", NULL, fx);
        c->poll_at = m->now;
    }
    if (m->headless || waits(m))
        return;
    if (m->now >= c->poll_at && (c->polls_open == 0 || m->now - c->poll_sent > SEC(3))) {
        bool first = c->poll_sent == 0;
        c->poll_sent = m->now;
        c->poll_at = m->now + poll_gap(m);
        c->polls_open = first ? 2 : 3;
        if (!first)
            engine_ask(m, "/health", NULL, fx);
        engine_ask(m, "/slots", NULL, fx);
        engine_ask(m, "/metrics", NULL, fx);
    }
}

uint64_t engine_deadline(const struct model *m)
{
    const struct core *c = m->core;
    if (!c->open)
        return 0;
    if (!is_vitriol(m))
        return !c->props_known ? m->now : m->engine.link == LINK_AWAY ? m->engine.retry_at : 0;
    if (!c->props_asked)
        return m->now;
    if (waits(m) || m->engine.link == LINK_WARMING)
        return m->engine.retry_at;
    uint64_t next = c->poll_at < m->now && c->polls_open != 0 ? c->poll_sent + SEC(3) : c->poll_at;
    return m->headless ? 0 : next;
}
