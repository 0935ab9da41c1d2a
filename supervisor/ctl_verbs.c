#include "ctl_verbs.h"

#include "child.h"
#include "ctl.h"
#include "device.h"
#include "duties.h"
#include "events.h"
#include "links.h"
#include "memory.h"
#include "ops.h"
#include "routes.h"
#include "store_ask.h"
#include "tele.h"

#include "build_id.h"
#include "suggest.h"

#include <nng/nng.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVENTS_PER_REPLY 100

/* ---- small writers ---- */

static void str(struct vt_enc *e, const char *key, const char *value)
{
    vt_enc_put_str(e, key);
    vt_enc_put_str(e, value);
}

static void num(struct vt_enc *e, const char *key, uint64_t value)
{
    vt_enc_put_str(e, key);
    vt_enc_put_u64(e, value);
}

static void result(struct vt_enc *e, unsigned n)
{
    vt_enc_map(e, VT_CTL_REP_RESULT, n);
}

static bool arg_str(const msgpack_object_map *args, const char *key, char *out, size_t size)
{
    const msgpack_object *o = args != NULL ? vt_map_get_str(args, key) : NULL;
    out[0] = '\0';
    if (o == NULL || o->type != MSGPACK_OBJECT_STR)
        return false;
    vt_obj_str(o, out, size);
    return out[0] != '\0';
}

static int64_t arg_int(const msgpack_object_map *args, const char *key, int64_t dflt)
{
    const msgpack_object *o = args != NULL ? vt_map_get_str(args, key) : NULL;
    if (o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 <= INT64_MAX)
        return (int64_t)o->via.u64;
    return o != NULL && o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER ? o->via.i64 : dflt;
}

/* ---- reading ---- */

/* On its way to being down, by order. */
static bool leaving(const struct child *c)
{
    return c->state == VT_CHILD_DRAINING || (c->state == VT_CHILD_REAPING && !c->want);
}

/* The truth of now, whatever the loop has not come to yet: a death that is in the making ends "ready". */
static bool serves(const struct sup *s, const struct child *c)
{
    return c->state == VT_CHILD_READY && !c->unrouted && !child_dying(c) &&
           (c->role != ROLE_ENGINE || links_up(s, 'd', c) != 0);
}

const char *verb_overall(const struct sup *s)
{
    bool engine = false, gateway = false, failed = false, draining = s->stopping;
    bool engines_down = true, gateway_down = false;
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct child *c = &s->child[i];
        bool down = c->state == VT_CHILD_DOWN && !c->want;
        if (c->role == ROLE_STORE || c->role == ROLE_VAULT || c->role == ROLE_SHIELD)
            continue; /* without them engines serve; they show in their own lines */
        failed = failed || c->state == VT_CHILD_FAILED;
        draining = draining || leaving(c);
        if (c->role == ROLE_ENGINE) {
            engine = engine || serves(s, c);
            engines_down = engines_down && down;
        } else {
            gateway = serves(s, c);
            gateway_down = down;
        }
    }
    if (s->stopping)
        return "draining";
    if (engine && gateway)
        return "ready";
    if (failed)
        return "failed";
    if (draining)
        return "draining";
    return engines_down || gateway_down ? "down" : "loading";
}

static int verb_ping(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    result(e, 2);
    str(e, "instance", s->instance_hex);
    num(e, "pid", (uint64_t)getpid());
    return 0;
}

static int verb_health(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    const char *state = verb_overall(s);
    result(e, 6);
    str(e, "fp", engine != NULL ? engine->launch.fp : "");
    num(e, "gen", engine != NULL ? engine->gen : 0);
    str(e, "instance", s->instance_hex);
    num(e, "pid", (uint64_t)getpid());
    num(e, "retry_ms", engine != NULL && engine->want ? routes_retry_ms(s, engine) : 0);
    str(e, "state", state);
    return 0;
}

static void put_child(const struct sup *s, const struct child *c, struct vt_enc *e)
{
    uint64_t now = sup_now(s);
    const char *program;
    child_program(c, &program);
    vt_enc_put_map(e, 22);
    num(e, "age_s", (now - c->since) / 1000000u);
    str(e, "class", c->class != CLASS_NONE ? exit_class_name(c->class) : "");
    str(e, "detail", c->detail);
    num(e, "gen", c->gen);
    num(e, "held_beyond_plan", memory_of(s, c)->gain);
    num(e, "hung", c->hung_total);
    num(e, "in_flight", c->live.in_flight);
    num(e, "load_permille", (uint64_t)(child_load_ratio(c) * 1000));
    str(e, "name", c->name);
    num(e, "next_start_ms", c->next_start > now ? (c->next_start - now) / 1000 : 0);
    num(e, "op", c->live.op);
    num(e, "operation", c->op);
    num(e, "pid", (uint64_t)c->pid);
    num(e, "plan_bytes", memory_of(s, c)->baseline);
    str(e, "program", program);
    num(e, "restarts", c->restarts);
    str(e, "role", c->info->role);
    num(e, "rss_anon", c->rss_anon);
    num(e, "served", child_life(c) == LIFE_SERVED);
    num(e, "start_ms", c->ready_at != 0 ? (c->ready_at - c->spawned_at) / 1000 : 0);
    str(e, "state", child_state_name((unsigned)c->state));
    num(e, "step_age_ms", live_step_age(&c->live, now) / 1000);
}

static void put_links(const struct sup *s, struct vt_enc *e)
{
    struct link_view v;
    unsigned n = 0;
    while (links_at(s, n, &v))
        n++;
    vt_enc_put_str(e, "links");
    vt_enc_put_array(e, n);
    for (unsigned i = 0; i < n && links_at(s, i, &v); i++) {
        char kind[2] = {v.kind, '\0'};
        vt_enc_put_map(e, 5);
        str(e, "dialer", v.dialer);
        num(e, "id", v.id);
        str(e, "kind", kind);
        str(e, "listener", v.listener);
        str(e, "state", v.state);
    }
}

static void put_sockets(const struct sup *s, struct vt_enc *e)
{
    vt_enc_put_str(e, "http_inodes");
    vt_enc_put_array(e, (unsigned)s->http.n);
    for (int i = 0; i < s->http.n; i++) {
        struct stat st = {0};
        fstat(s->http.fd[i], &st);
        vt_enc_put_u64(e, st.st_ino);
    }
}

static int verb_status(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    char text[256];
    const char *late = duties_overdue(s);
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    struct memory_view mem;
    struct device_view dev;
    memory_look(s, &mem);
    device_look(s, &dev);
    duties_status(s, text, sizeof text);
    result(e, 36);
    str(e, "address", s->http.address);
    str(e, "build", VT_BUILD_ID);
    num(e, "certified", engine != NULL ? engine->launch.depth.tokens : 0);
    num(e, "certified_decode_milli", engine != NULL ? engine->launch.depth.decode_milli : 0);
    str(e, "cgroup", !s->leaves.on ? "flat" : s->leaves.accounting ? "leaves" : "leaves, memory not counted");
    vt_enc_put_str(e, "children");
    vt_enc_put_array(e, s->n_children);
    for (unsigned i = 0; i < s->n_children; i++)
        put_child(s, &s->child[i], e);
    num(e, "ctl_relistens", ctl_relistens(s));
    str(e, "device", dev.text);
    num(e, "device_lost", dev.lost);
    num(e, "device_rung", dev.rung);
    num(e, "epoch", routes_epoch(s));
    str(e, "fp", engine != NULL ? engine->launch.fp : "");
    put_sockets(s, e);
    str(e, "instance", s->instance_hex);
    num(e, "late", s->late_total);
    put_links(s, e);
    num(e, "mem_available", s->mem_available);
    num(e, "mem_base", mem.base);
    num(e, "mem_bounces", mem.bounces);
    num(e, "mem_invalid", mem.invalid);
    num(e, "mem_level", mem.level);
    str(e, "mem_trigger", mem.trigger ? "armed" : mem.trigger_why);
    num(e, "mem_usable", mem.usable);
    str(e, "mem_why", mem.why);
    str(e, "model", s->model);
    str(e, "overdue", late != NULL ? late : "");
    num(e, "pid", (uint64_t)getpid());
    str(e, "profile", vt_config_str(s->cfg, VT_CFG_PROFILE_NAME));
    str(e, "run_dir", s->dir.run);
    num(e, "slots", engine != NULL ? engine->launch.slots : 0);
    str(e, "state", verb_overall(s));
    str(e, "state_dir", s->dir.state);
    num(e, "tele_relistens", tele_relistens(s));
    str(e, "text", text);
    num(e, "uptime_s", (sup_now(s) - s->started_at) / 1000000u);
    num(e, "window", engine != NULL ? engine->launch.window : 0);
    return 0;
}

static int verb_routes(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n_children; i++)
        n += s->child[i].role == ROLE_ENGINE;
    result(e, 2);
    num(e, "epoch", routes_epoch(s));
    vt_enc_put_str(e, "routes");
    vt_enc_put_array(e, n);
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct child *c = &s->child[i];
        if (c->role != ROLE_ENGINE)
            continue;
        vt_enc_put_map(e, 6);
        str(e, "engine", c->name);
        num(e, "gen", c->gen);
        num(e, "link", links_up(s, 'd', c));
        num(e, "retry_ms", routes_retry_ms(s, c));
        str(e, "state", child_state_name((unsigned)c->state));
        num(e, "window", c->launch.window);
    }
    return 0;
}

static void put_event(const struct event *ev, struct vt_enc *e)
{
    vt_enc_put_map(e, 9);
    str(e, "child", ev->child);
    str(e, "class", ev->class != NULL ? ev->class : "");
    str(e, "event", event_kind_name(ev->kind));
    str(e, "from", ev->from != NULL ? ev->from : "");
    num(e, "gen", ev->gen);
    num(e, "seq", ev->seq);
    num(e, "t_us", ev->t_us);
    str(e, "text", ev->text);
    str(e, "to", ev->to != NULL ? ev->to : "");
}

static int verb_events(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    int64_t seq = arg_int(args, "seq", 0);
    unsigned n = 0;
    while (n < EVENTS_PER_REPLY && events_after(s->events, (uint64_t)(seq < 0 ? 0 : seq), n) != NULL)
        n++;
    result(e, 2);
    vt_enc_put_str(e, "events");
    vt_enc_put_array(e, n);
    for (unsigned i = 0; i < n; i++)
        put_event(events_after(s->events, (uint64_t)(seq < 0 ? 0 : seq), i), e);
    num(e, "last", events_last(s->events));
    return 0;
}

static void put_kv(const struct kv *k, struct vt_enc *e)
{
    vt_enc_put_map(e, k->n);
    for (unsigned i = 0; i < k->n; i++)
        str(e, k->key[i], k->value[i]);
}

static int verb_fingerprint(struct sup *s, const msgpack_object_map *args, struct vt_enc *e,
                            struct vt_err *err)
{
    unsigned engines = 0, past = s->n_past < LAUNCH_PAST ? s->n_past : LAUNCH_PAST;
    for (unsigned i = 0; i < s->n_children; i++)
        engines += s->child[i].role == ROLE_ENGINE;
    result(e, 2);
    vt_enc_put_str(e, "current");
    vt_enc_put_array(e, engines);
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct child *c = &s->child[i];
        if (c->role != ROLE_ENGINE)
            continue;
        vt_enc_put_map(e, 6);
        str(e, "child", c->name);
        str(e, "diff", c->launch.diff);
        str(e, "fp", c->launch.fp);
        num(e, "gen", c->gen);
        str(e, "line", c->launch.line);
        vt_enc_put_str(e, "map");
        put_kv(&c->launch.map, e);
    }
    vt_enc_put_str(e, "history");
    vt_enc_put_array(e, past);
    for (unsigned i = 0; i < past; i++) {
        const struct launch_past *p = &s->past[(s->n_past - 1 - i) % LAUNCH_PAST];
        vt_enc_put_map(e, 6);
        num(e, "at_us", p->at_us);
        str(e, "child", p->child);
        str(e, "diff", p->diff);
        str(e, "fp", p->fp);
        num(e, "gen", p->gen);
        str(e, "line", p->line);
    }
    return 0;
}

/* What counts: where a key leaves the choice to vitriold, what it chose. */
static const char *in_force(const struct sup *s, enum vt_config_key k, char *buf, size_t size)
{
    switch (k) {
    case VT_CFG_PATHS_RUN_DIR: return s->dir.run;
    case VT_CFG_PATHS_STATE_DIR: return s->dir.state;
    case VT_CFG_MODEL_PATH: return s->model;
    case VT_CFG_HTTP_LISTEN: return s->http.address;
    default: return vt_config_text(s->cfg, k, buf, size);
    }
}

static void put_origin(const struct sup *s, enum vt_config_key k, const char *value, struct vt_enc *e)
{
    char text[4096];
    bool chosen =
        !vt_config_is_set(s->cfg, k) && strcmp(value, vt_config_text(s->cfg, k, text, sizeof text)) != 0;
    bool given = k == VT_CFG_HTTP_LISTEN && s->http.handed_over;
    str(e, "origin",
        given    ? "socket handed over"
        : chosen ? "chosen by vitriold"
                 : vt_config_origin(s->cfg, k));
}

static int verb_config(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    static const char *const reload[] = {"live", "drain", "restart"};
    result(e, 1);
    vt_enc_put_str(e, "keys");
    vt_enc_put_array(e, VT_CFG_COUNT);
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        char text[4096];
        const char *value = in_force(s, (enum vt_config_key)k, text, sizeof text);
        vt_enc_put_map(e, 4);
        str(e, "key", vt_config_name((enum vt_config_key)k));
        put_origin(s, (enum vt_config_key)k, value, e);
        str(e, "reload", reload[vt_config_reload_class((enum vt_config_key)k)]);
        str(e, "value", value);
    }
    return 0;
}

static int verb_op_status(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    const struct op *op = ops_get(s, (uint64_t)arg_int(args, "op", 0));
    if (op == NULL)
        return vt_fail(err, VT_E_NOT_FOUND, "no operation of that number; the last %d are kept", OPS_KEPT);
    uint64_t until = op->state == OP_RUNNING ? sup_now(s) : op->ended;
    result(e, 12);
    num(e, "bytes", op->bytes);
    str(e, "child", op->child);
    num(e, "code", (uint64_t)op->code);
    num(e, "elapsed_ms", (until - op->began) / 1000);
    num(e, "failed", op->failed);
    num(e, "op", op->id);
    num(e, "saved", op->saved);
    num(e, "skipped", op->skipped);
    str(e, "state", op_state_name(op->state));
    str(e, "text", op->text);
    num(e, "tokens", op->tokens);
    str(e, "verb", op->verb);
    return 0;
}

static int verb_version(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    result(e, 3);
    str(e, "build", VT_BUILD_ID);
    str(e, "nng", nng_version());
    num(e, "wire", VT_WIRE_VERSION);
    return 0;
}

/* ---- acting ---- */

/* The child that `child` names; the first engine when it is absent. */
static struct child *target(struct sup *s, const msgpack_object_map *args, struct vt_err *err)
{
    char name[64], hint[128];
    const char *names[SUP_CHILDREN];
    if (!arg_str(args, "child", name, sizeof name)) {
        struct child *c = sup_role(s, ROLE_ENGINE);
        if (c == NULL)
            vt_fail(err, VT_E_NO_ENGINE, "there is no engine");
        return c;
    }
    struct child *c = sup_child(s, name);
    for (unsigned i = 0; i < s->n_children; i++)
        names[i] = s->child[i].name;
    if (c == NULL)
        vt_fail(err, VT_E_NOT_FOUND, "no child %s%s", name,
                vt_suggest(name, names, s->n_children, hint, sizeof hint));
    return c;
}

static int started(struct vt_enc *e, uint64_t op)
{
    if (op == 0)
        return -1;
    vt_enc_u64(e, VT_CTL_REP_OP, op);
    return 0;
}

static int operate(uint64_t (*begin)(struct sup *s, struct child *c, struct vt_err *err), struct sup *s,
                   const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    struct child *c = target(s, args, err);
    return c == NULL ? -1 : started(e, begin(s, c, err));
}

static int verb_bounce(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    return operate(ops_bounce, s, args, e, err);
}

static int verb_drain(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    return operate(ops_drain, s, args, e, err);
}

static int verb_stop(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    return operate(ops_stop, s, args, e, err);
}

static int verb_start(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    return operate(ops_start, s, args, e, err);
}

static int verb_export(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    struct child *c = target(s, args, err);
    int64_t slot = arg_int(args, "slot", -1);
    if (c == NULL)
        return -1;
    if (c->role != ROLE_ENGINE)
        return vt_fail(err, VT_E_PARAM, "%s is no engine", c->name);
    if (slot >= 0 && c->launch.slots > 0 && (uint64_t)slot >= c->launch.slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %lld: %s has slots 0 to %llu", (long long)slot, c->name,
                       (unsigned long long)c->launch.slots - 1);
    return started(e, ops_export(s, c, slot, err));
}

static int verb_reset(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    struct child *c = target(s, args, err);
    if (c == NULL)
        return -1;
    if (s->stopping)
        return vt_fail(err, VT_E_DRAINING, "vitriold is stopping");
    if (c->role == ROLE_ENGINE)
        device_reset(s);
    child_reset(c);
    result(e, 2);
    str(e, "child", c->name);
    str(e, "state", child_state_name((unsigned)c->state));
    return 0;
}

/* ---- the store ---- */

static int verb_store_list(struct sup *s, const msgpack_object_map *args, struct vt_enc *e,
                           struct vt_err *err)
{
    char tenant[128];
    arg_str(args, "tenant", tenant, sizeof tenant);
    return started(e, store_ask(s, STORE_LIST, tenant, -1, err));
}

static int verb_store_verify(struct sup *s, const msgpack_object_map *args, struct vt_enc *e,
                             struct vt_err *err)
{
    return started(e, store_ask(s, STORE_VERIFY, "", -1, err));
}

static int verb_store_forget(struct sup *s, const msgpack_object_map *args, struct vt_enc *e,
                             struct vt_err *err)
{
    char tenant[128];
    int64_t slot = arg_int(args, "slot", -1);
    if (!arg_str(args, "tenant", tenant, sizeof tenant))
        return vt_fail(err, VT_E_PARAM, "whose checkpoints are to be forgotten? A tenant is needed");
    if (slot > UINT16_MAX)
        return vt_fail(err, VT_E_NO_SLOT, "there is no slot %lld", (long long)slot);
    return started(e, store_ask(s, STORE_FORGET, tenant, slot, err));
}

static int verb_store_result(struct sup *s, const msgpack_object_map *args, struct vt_enc *e,
                             struct vt_err *err)
{
    int64_t op = arg_int(args, "op", 0), from = arg_int(args, "from", 0);
    return store_ask_result(s, op > 0 ? (uint64_t)op : 0, from > 0 ? (uint64_t)from : 0, e, err);
}

static const struct verb verbs[] = {
    {"ping", VERB_READ, verb_ping},
    {"status", VERB_READ, verb_status},
    {"health", VERB_READ, verb_health},
    {"routes", VERB_READ, verb_routes},
    {"events.since", VERB_READ, verb_events},
    {"fingerprint", VERB_READ, verb_fingerprint},
    {"config.show", VERB_READ, verb_config},
    {"op.status", VERB_READ, verb_op_status},
    {"version", VERB_READ, verb_version},
    {"drain", VERB_OPERATE, verb_drain},
    {"bounce", VERB_OPERATE, verb_bounce},
    {"export", VERB_OPERATE, verb_export},
    {"start", VERB_ADMIN, verb_start},
    {"stop", VERB_ADMIN, verb_stop},
    {"reset", VERB_ADMIN, verb_reset},
    {"store.list", VERB_READ, verb_store_list},
    {"store.result", VERB_READ, verb_store_result},
    {"store.verify", VERB_ADMIN, verb_store_verify},
    {"store.forget", VERB_ADMIN, verb_store_forget},
};
#define N_VERBS (sizeof verbs / sizeof verbs[0])

static const struct verb *verb_at(size_t i)
{
    return i < N_VERBS ? &verbs[i] : i - N_VERBS < n_profile_verbs ? &profile_verbs[i - N_VERBS] : NULL;
}

const struct verb *verb_find(const char *name)
{
    const struct verb *v;
    for (size_t i = 0; (v = verb_at(i)) != NULL; i++) {
        if (strcmp(v->name, name) == 0)
            return v;
    }
    return NULL;
}

const char *verb_suggest(const char *name, char *out, size_t size)
{
    const char *names[N_VERBS + 16];
    size_t n = 0;
    for (; n < sizeof names / sizeof names[0] && verb_at(n) != NULL; n++)
        names[n] = verb_at(n)->name;
    return vt_suggest(name, names, n, out, size);
}
