#include "ops.h"

#include "child.h"
#include "duties.h"
#include "events.h"
#include "gate.h"
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT_US  VT_SEC(300)
#define GATEWAY_MS 10000u
#define STORE_MS   30000u
#define VAULT_MS   1000
#define SHIELD_MS  5000u
#define HURRY_MS   500u
#define MORE_TIME  "EXTEND_TIMEOUT_USEC=20000000"

/* Reasons of an ORDER. */
enum { REASON_OPERATOR = 1, REASON_SHUTDOWN = 2, REASON_BOUNCE = 3 };

enum stage { STAGE_NONE, STAGE_ENGINES, STAGE_GATEWAY, STAGE_STORE, STAGE_SHIELD, STAGE_OVER };

struct ops {
    uint64_t last;
    struct op kept[OPS_KEPT];
    enum stage stage;
};

int ops_open(struct sup *s, struct vt_err *err)
{
    s->ops = calloc(1, sizeof *s->ops);
    return s->ops != NULL ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory");
}

void ops_close(struct sup *s)
{
    free(s->ops);
    s->ops = NULL;
}

static struct op *slot_of(struct ops *o, uint64_t id)
{
    struct op *op = &o->kept[id % OPS_KEPT];
    return id != 0 && op->id == id ? op : NULL;
}

const struct op *ops_get(const struct sup *s, uint64_t id)
{
    return slot_of(s->ops, id);
}

const char *op_state_name(enum op_state st)
{
    return st == OP_RUNNING ? "running" : st == OP_OK ? "done" : "failed";
}

static struct op *begin(struct sup *s, const char *verb, const struct child *c)
{
    struct ops *o = s->ops;
    struct op *op;
    unsigned tried = 0;
    do /* what still runs is asked for: its place is not taken while there is another */
        op = &o->kept[++o->last % OPS_KEPT];
    while (op->id != 0 && op->state == OP_RUNNING && ++tried < OPS_KEPT);
    *op = (struct op){.id = o->last, .began = sup_now(s)};
    snprintf(op->verb, sizeof op->verb, "%s", verb);
    snprintf(op->child, sizeof op->child, "%s", c->name);
    event_text(s, EVENT_OPERATION, c, VT_LOG_NOTICE, "operation %llu: %s", (unsigned long long)op->id, verb);
    return op;
}

void ops_end(struct sup *s, uint64_t id, int code, const char *text)
{
    struct op *op = slot_of(s->ops, id);
    if (op == NULL || op->state != OP_RUNNING)
        return;
    op->state = code == 0 ? OP_OK : OP_FAILED;
    op->code = code;
    op->ended = sup_now(s);
    snprintf(op->text, sizeof op->text, "%s", text);
    event_text(s, EVENT_OPERATION, sup_child(s, op->child), code == 0 ? VT_LOG_NOTICE : VT_LOG_WARNING,
               "operation %llu: %s %s%s%s", (unsigned long long)id, op->verb, code == 0 ? "done" : "failed",
               text[0] != '\0' ? ": " : "", text);
}

uint64_t ops_begin(struct sup *s, const char *verb, const struct child *c, uint64_t limit_us)
{
    struct op *op = begin(s, verb, c);
    op->limit = limit_us;
    return op->id;
}

static int idle(struct sup *s, const struct child *c, struct vt_err *err)
{
    if (s->stopping)
        return vt_fail(err, VT_E_DRAINING, "vitriold is stopping");
    if (c->op != 0)
        return vt_fail(err, VT_E_BUSY, "%s is in the middle of operation %llu (%s)", c->name,
                       (unsigned long long)c->op,
                       slot_of(s->ops, c->op) != NULL ? slot_of(s->ops, c->op)->verb : "?");
    return 0;
}

/* Nothing comes up beside what cannot be ended. */
static int may_come_up(const struct child *c, struct vt_err *err)
{
    if (c->state == VT_CHILD_FAILED && c->pid != 0)
        return vt_fail(err, VT_E_BUSY, "%s: %s", c->name, c->detail);
    return 0;
}

static uint32_t drain_ms(const struct sup *s, const struct child *c)
{
    return c->role == ROLE_SHIELD  ? SHIELD_MS
           : c->role == ROLE_STORE ? STORE_MS
                                   : (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_DRAIN_S) * 1000u;
}

uint64_t ops_bounce_within(struct sup *s, struct child *c, uint32_t ms, struct vt_err *err)
{
    if (idle(s, c, err) < 0 || may_come_up(c, err) < 0)
        return 0;
    if (c->role == ROLE_ENGINE &&
        (gate_find_model(s, err) < 0 || (!sup_external(s->cfg) && gate_engine(s, err) < 0))) {
        /* Memory that the running generation holds comes back with its end. */
        if (err->code != VT_E_MEM_PRESSURE || c->pid == 0)
            return 0;
    }
    struct op *op = begin(s, "bounce", c);
    c->op = op->id;
    s->bounces_total++;
    restart_reset(&c->restart);
    child_leave(c, ms != 0 ? ms : drain_ms(s, c), true, REASON_BOUNCE);
    return op->id;
}

uint64_t ops_bounce(struct sup *s, struct child *c, struct vt_err *err)
{
    return ops_bounce_within(s, c, 0, err);
}

void ops_hurry(struct sup *s, struct child *c, uint32_t ms)
{
    if (c->state == VT_CHILD_DRAINING && c->bounce)
        child_leave(c, ms, true, REASON_BOUNCE);
}

static uint64_t leave(struct sup *s, struct child *c, const char *verb, uint32_t ms, struct vt_err *err)
{
    if (idle(s, c, err) < 0)
        return 0;
    struct op *op = begin(s, verb, c);
    c->op = op->id;
    child_leave(c, ms, false, REASON_OPERATOR);
    ops_child_changed(s, c); /* it may be down already */
    return op->id;
}

uint64_t ops_drain(struct sup *s, struct child *c, struct vt_err *err)
{
    return leave(s, c, "drain", drain_ms(s, c), err);
}

uint64_t ops_stop(struct sup *s, struct child *c, struct vt_err *err)
{
    return leave(s, c, "stop", 2000, err);
}

uint64_t ops_start(struct sup *s, struct child *c, struct vt_err *err)
{
    if (idle(s, c, err) < 0 || may_come_up(c, err) < 0)
        return 0;
    struct op *op = begin(s, "start", c);
    c->op = op->id;
    c->waits_for_others = false;
    child_reset(c);
    ops_child_changed(s, c);
    return op->id;
}

uint64_t ops_export(struct sup *s, struct child *c, int64_t slot, struct vt_err *err)
{
    if (s->stopping) {
        vt_fail(err, VT_E_DRAINING, "vitriold is stopping");
        return 0;
    }
    if (c->state != VT_CHILD_READY) {
        vt_fail(err, VT_E_NO_ENGINE, "%s is %s; a checkpoint needs a ready engine", c->name,
                child_state_name((unsigned)c->state));
        return 0;
    }
    struct op *op = begin(s, "export", c);
    op->limit = EXPORT_US;
    if (child_order(c, VT_ORDER_EXPORT, op->id, (uint32_t)(EXPORT_US / 1000), REASON_OPERATOR, slot) < 0)
        ops_end(s, op->id, VT_E_UNAVAILABLE, "the order could not be sent");
    return op->id;
}

static uint64_t result_of(const msgpack_object_map *m, const char *key)
{
    const msgpack_object *o = m != NULL ? vt_map_get_str(m, key) : NULL;
    return o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? o->via.u64 : 0;
}

void ops_order_done(struct sup *s, const struct child *c, const struct vt_frame *f)
{
    struct op *op = slot_of(s->ops, f->id);
    char text[200];
    if (op == NULL || op->state != OP_RUNNING || strcmp(op->child, c->name) != 0)
        return;
    const msgpack_object_map *m = vt_frame_map(f, VT_ORDER_DONE_RESULT);
    op->tokens = result_of(m, "tokens");
    op->bytes = result_of(m, "bytes");
    op->saved = result_of(m, "saved");
    op->skipped = result_of(m, "skipped");
    op->failed = result_of(m, "failed");
    bool ok = vt_frame_u64(f, VT_ORDER_DONE_OK, 0) != 0;
    vt_frame_str(f, VT_KEY_TEXT, text, sizeof text);
    ops_end(s, op->id, ok ? 0 : (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_INTERNAL), text);
}

void ops_child_gone(struct sup *s, const struct child *c)
{
    for (unsigned i = 0; i < OPS_KEPT; i++) {
        const struct op *op = &s->ops->kept[i];
        if (op->state == OP_RUNNING && op->id != 0 && op->id != c->op && strcmp(op->child, c->name) == 0)
            ops_end(s, op->id, VT_E_UNAVAILABLE, "the process ended before it was done");
    }
}

/* ---- shutdown ---- */

static bool all_down(const struct sup *s, enum child_role role)
{
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct child *c = &s->child[i];
        if (c->role == role && c->state != VT_CHILD_DOWN && !(c->state == VT_CHILD_FAILED && c->pid != 0))
            return false;
    }
    return true;
}

static void leave_all(struct sup *s, enum child_role role, uint32_t ms)
{
    for (unsigned i = 0; i < s->n_children; i++) {
        struct child *c = &s->child[i];
        if (c->role != role)
            continue;
        c->want = false;
        if (c->state != VT_CHILD_DOWN && !(c->state == VT_CHILD_FAILED && c->pid != 0))
            child_leave(c, s->hurried ? HURRY_MS : ms, false, REASON_SHUTDOWN);
    }
}

/* Goes on to the next stage when the children of this one are gone. */
static void advance(struct sup *s)
{
    struct ops *o = s->ops;
    if (o->stage == STAGE_ENGINES && all_down(s, ROLE_ENGINE)) {
        o->stage = STAGE_GATEWAY;
        leave_all(s, ROLE_GATEWAY, GATEWAY_MS);
    }
    if (o->stage == STAGE_GATEWAY && all_down(s, ROLE_GATEWAY)) {
        o->stage = STAGE_STORE;
        leave_all(s, ROLE_STORE, STORE_MS);
        leave_all(s, ROLE_VAULT, VAULT_MS);
    }
    if (o->stage == STAGE_STORE && all_down(s, ROLE_STORE) && all_down(s, ROLE_VAULT)) {
        o->stage = STAGE_SHIELD;
        leave_all(s, ROLE_SHIELD, SHIELD_MS);
    }
    if (o->stage == STAGE_SHIELD && all_down(s, ROLE_SHIELD)) {
        o->stage = STAGE_OVER;
        sd_event_exit(s->ev, s->exit_code);
    }
}

void ops_shutdown(struct sup *s, bool hurry)
{
    static const enum child_role role_of[] = {ROLE_COUNT, ROLE_ENGINE, ROLE_GATEWAY,
                                              ROLE_STORE, ROLE_SHIELD, ROLE_COUNT};
    if (hurry && s->stopping && !s->hurried) {
        s->hurried = true;
        vt_log(s->log, VT_LOG_NOTICE, "hurrying: what does not end now is killed");
        if (role_of[s->ops->stage] != ROLE_COUNT)
            leave_all(s, role_of[s->ops->stage], HURRY_MS);
    }
    if (s->stopping)
        return;
    s->stopping = true;
    s->hurried = hurry;
    duties_notify("STOPPING=1\n" MORE_TIME);
    vt_log(s->log, VT_LOG_NOTICE, "stopping: engines drain, then the gateway ends, then the store flushes");
    s->ops->stage = STAGE_ENGINES;
    routes_changed(s);
    leave_all(s, ROLE_ENGINE, (uint32_t)vt_config_int(s->cfg, VT_CFG_ENGINE_DRAIN_S) * 1000u);
    advance(s);
}

/* ---- as things happen ---- */

void ops_child_changed(struct sup *s, struct child *c)
{
    if (s->ops == NULL)
        return;
    const struct op *op = slot_of(s->ops, c->op);
    bool moves = op != NULL && (strcmp(op->verb, "apply") == 0 || strcmp(op->verb, "probe") == 0 ||
                                strcmp(op->verb, "rollback") == 0); /* profiles_move.c ends these */
    if (op != NULL && op->state == OP_RUNNING && !moves) {
        bool up = strcmp(op->verb, "bounce") == 0 || strcmp(op->verb, "start") == 0;
        if (up && c->state == VT_CHILD_READY && c->was_ready && sup_now(s) >= op->began &&
            c->ready_at >= op->began)
            ops_end(s, c->op, 0, "");
        else if (up && strcmp(op->verb, "start") == 0 && c->state == VT_CHILD_READY)
            ops_end(s, c->op, 0, "it was ready already");
        else if (!up && c->state == VT_CHILD_DOWN)
            ops_end(s, c->op, 0, "");
        else if (c->state == VT_CHILD_FAILED)
            ops_end(s, c->op, VT_E_INTERNAL, c->detail);
    }
    op = slot_of(s->ops, c->op);
    if (op == NULL || op->state != OP_RUNNING)
        c->op = 0;
    if (s->stopping)
        advance(s);
}

void ops_tick(struct sup *s)
{
    char text[64];
    for (unsigned i = 0; i < OPS_KEPT; i++) {
        const struct op *op = &s->ops->kept[i];
        if (op->id == 0 || op->state != OP_RUNNING || op->limit == 0 || sup_now(s) - op->began <= op->limit)
            continue;
        snprintf(text, sizeof text, "no answer within %llu s", (unsigned long long)op->limit / 1000000);
        ops_end(s, op->id, VT_E_DEADLINE, text);
    }
    if (s->stopping) {
        duties_notify(MORE_TIME);
        advance(s);
    }
}
