#include "child_priv.h"

#include "spawn.h"

#include "device.h"
#include "events.h"
#include "evidence.h"
#include "lifeline.h"
#include "links.h"
#include "memory.h"
#include "ops.h"
#include "profiles.h"
#include "routes.h"
#include "suspects.h"

#include "hash.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define STORE_WAIT_US                                                                                        \
    VT_SEC(5) /* an engine's first start waits so long for a store that could restore its slots */
#define LIFE_LOST_US VT_SEC(8) /* a child without lifeline ends by itself after 5 s */

const struct role_info role_table[ROLE_COUNT] = {
    [ROLE_GATEWAY] = {"gateway", "vitriol-gateway", SIGTERM, VT_MS(200), false},
    [ROLE_STORE] = {"store", "vitriol-store", SIGKILL, VT_MS(200), true},
    [ROLE_ENGINE] = {"engine", "vitriol-engine", SIGKILL, VT_SEC(1), true},
    [ROLE_VAULT] = {"vault", "vitriol-vault", SIGKILL, VT_MS(200), true},
    [ROLE_SHIELD] = {"shield", "vitriol-shield", SIGTERM, VT_SEC(1), true},
};

/* ---- state ---- */

void child_arm(struct child *c, uint64_t at)
{
    if (at == 0) {
        sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
        return;
    }
    sd_event_source_set_time(c->timer, at);
    sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

int child_watch(struct child *c, sd_event_source **src, int fd, sd_event_io_handler_t fn)
{
    if (*src == NULL)
        return sd_event_add_io(c->sup->ev, src, fd, EPOLLIN, fn, c);
    int rc = sd_event_source_set_io_fd(*src, fd);
    return rc < 0 ? rc : sd_event_source_set_enabled(*src, SD_EVENT_ON);
}

void child_change(struct child *c, enum child_event e)
{
    struct sup *s = c->sup;
    enum vt_child_state from = c->state;
    int to = state_next(from, e);
    assert(to != STATE_UNDEFINED);
    if ((enum vt_child_state)to == from)
        return;
    c->state = (enum vt_child_state)to;
    c->since = sup_now(s);
    event_state(s, c, from);
    routes_changed(s);
    ops_child_changed(s, c);
}

void child_cause(struct child *c, enum exit_class why, const char *fmt, ...)
{
    va_list ap;
    c->class = why;
    va_start(ap, fmt);
    vsnprintf(c->detail, sizeof c->detail, fmt, ap);
    va_end(ap);
}

enum restart_life child_life(const struct child *c)
{
    if (!c->was_ready)
        return LIFE_STARTED;
    return live_served(&c->live, c->ready_at, RESTART_SERVED_US) ? LIFE_SERVED : LIFE_READY;
}

static struct restart_policy policy(const struct child *c)
{
    return (struct restart_policy){
        .first_us = c->info->first_backoff_us,
        .max_us = VT_MS(vt_config_int(c->sup->cfg, VT_CFG_SUPERVISOR_BACKOFF_MAX_MS)),
        .breaker = c->info->breaker && vt_config_bool(c->sup->cfg, VT_CFG_SUPERVISOR_BREAKER)};
}

/* A generation that failed, or a start that did not happen: when is the next one? */
void child_schedule(struct child *c, enum child_event wait, enum child_event final)
{
    struct restart_policy p = policy(c);
    uint64_t random, delay, now = sup_now(c->sup);
    vt_random(&random, sizeof random);
    switch (restart_failed(&c->restart, &p, c->class, child_life(c), now, random, &delay)) {
    case RESTART_WAIT:
        c->next_start = now + delay;
        child_change(c, wait);
        child_arm(c, c->next_start);
        break;
    case RESTART_OPEN: {
        char text[sizeof c->detail];
        memcpy(text, c->detail, sizeof text);
        snprintf(c->detail, sizeof c->detail, "crash loop, next try in %llu s; last: %.200s",
                 (unsigned long long)(delay / 1000000u), text);
        c->next_start = now + delay;
        child_change(c, final);
        child_arm(c, c->next_start);
        break;
    }
    case RESTART_FINAL:
        c->next_start = 0;
        child_change(c, final);
        child_arm(c, 0);
        break;
    }
}

/* ---- conversation ---- */

struct vt_enc *child_begin(struct child *c, uint8_t type, uint64_t id)
{
    vt_enc_begin(&c->enc, type, id, c->life_link);
    return &c->enc;
}

int child_send(struct child *c)
{
    struct vt_err err;
    if (vt_enc_end(&c->enc, &err) < 0) {
        vt_log(c->sup->log, VT_LOG_ERR, "to %s: %s", c->name, err.text);
        return -1;
    }
    if (c->life == NULL || !c->welcomed)
        return -1;
    if (vt_sock_send(c->life, c->enc.buf, c->enc.len, &err) == 0)
        return 0;
    /* A child that does not read its lifeline is judged by its beats; telling it again is the next change's task. */
    vt_log(c->sup->log, VT_LOG_WARNING, "to %s: %s frame not sent: %s", c->name, vt_frame_name(c->enc.buf[2]),
           err.text);
    return -1;
}

int child_order(struct child *c, unsigned verb, uint64_t id, uint32_t deadline_ms, unsigned reason,
                int64_t slot)
{
    struct vt_enc *e = child_begin(c, VT_F_ORDER, id);
    vt_enc_u64(e, VT_ORDER_VERB, verb);
    vt_enc_u64(e, VT_ORDER_DEADLINE_MS, deadline_ms);
    vt_enc_u64(e, VT_ORDER_REASON, reason);
    if (slot >= 0) {
        vt_enc_map(e, VT_ORDER_ARGS, 1);
        vt_enc_put_u64(e, 1);
        vt_enc_put_u64(e, (uint64_t)slot);
    }
    return child_send(c);
}

void child_hello(struct child *c)
{
    if (state_next(c->state, EV_HELLO) == STATE_UNDEFINED)
        return;
    live_enter(&c->live, LIVE_LOADING, sup_now(c->sup));
    child_change(c, EV_HELLO);
    links_want(c->sup);
    if (c->role == ROLE_GATEWAY) {
        suspects_tell(c->sup);
        routes_resend(c->sup);
    }
}

void child_phase(struct child *c, const struct vt_frame *f)
{
    unsigned phase = (unsigned)vt_frame_u64(f, VT_PHASE_PHASE, 0);
    uint64_t done = vt_frame_u64(f, VT_PHASE_DONE, 0), now = sup_now(c->sup);
    live_tick(&c->live, phase, done, now);
    if (c->load_began == 0)
        c->load_began = now;
    if (phase != c->load_phase)
        vt_log(c->sup->log, VT_LOG_DEBUG, "%s: load phase %u", c->name, phase);
    c->load_phase = phase;
    c->load_done = done;
    c->load_total = vt_frame_u64(f, VT_PHASE_TOTAL, 0);
    routes_changed(c->sup);
}

void child_fatal(struct child *c, const struct vt_frame *f)
{
    vt_frame_str(f, VT_KEY_TEXT, c->detail, sizeof c->detail);
}

void child_ready(struct child *c, const struct vt_frame *f)
{
    struct sup *s = c->sup;
    struct vt_err err;
    if (c->state != VT_CHILD_LOADING)
        return;
    if (launch_ready(c, f, &err) < 0) {
        child_kill(c, err.code == VT_E_CONFIG ? CLASS_CONFIG : CLASS_PROTOCOL, err.text);
        return;
    }
    c->ready_at = sup_now(s);
    c->was_ready = c->ever_ready = true;
    c->start_us[c->n_starts++ % SUP_START_TIMES] = c->ready_at - c->spawned_at;
    live_enter(&c->live, LIVE_SERVING, c->ready_at);
    profiles_launched(s, c, f);
    device_ready(s, c, f);
    launch_announce(c);
    child_change(c, EV_READY);
    if (c->role == ROLE_STORE)
        launch_tell_store(s);
    links_want(s);
}

double child_load_ratio(const struct child *c)
{
    if (c->state == VT_CHILD_READY)
        return 1.0;
    if (c->state != VT_CHILD_LOADING || c->load_total == 0 || c->load_phase == 0)
        return 0.0;
    double part = (double)c->load_done / (double)c->load_total;
    part = part > 1.0 ? 1.0 : part;
    /* Weights are nearly all of it. */
    return c->load_phase <= VT_PHASE_WEIGHTS ? 0.9 * part : 0.9 + 0.02 * (c->load_phase - 2) + 0.02 * part;
}

/* ---- time ---- */

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct child *c = arg;
    switch (c->state) {
    case VT_CHILD_DOWN: /* its model was being read */
    case VT_CHILD_BACKOFF:
    case VT_CHILD_FAILED:
        if (c->want && !c->sup->stopping)
            child_start(c);
        break;
    case VT_CHILD_DRAINING:
        child_kill(c, CLASS_DRAIN_DEADLINE, "it did not end within its drain time");
        break;
    case VT_CHILD_REAPING:
        if (c->pid == 0)
            child_reap(c);
        else
            child_give_up(c);
        break;
    default: break;
    }
    return 0;
}

static struct live_budget budget(const struct child *c)
{
    const struct vt_config *cfg = c->sup->cfg;
    struct live_budget b = {.hello = VT_SEC(vt_config_int(cfg, VT_CFG_ENGINE_HELLO_TIMEOUT_S)),
                            .load_stall = VT_SEC(vt_config_int(cfg, VT_CFG_ENGINE_LOAD_STALL_S)),
                            .load_max = VT_SEC(vt_config_int(cfg, VT_CFG_ENGINE_LOAD_MAX_S)),
                            .hang = VT_SEC(vt_config_int(cfg, VT_CFG_ENGINE_HANG_BUDGET_S)),
                            .suspect = VT_SEC(10)};
    if (c->role == ROLE_GATEWAY)
        b.hang = VT_SEC(vt_config_int(cfg, VT_CFG_SUPERVISOR_GW_HANG_S));
    if (c->role == ROLE_STORE)
        b.hang = VT_SEC(vt_config_int(cfg, VT_CFG_STORE_IO_STALL_S));
    if (memory_throttles(c->sup, c))
        b.hang *= 2;
    if (b.hang <= b.suspect)
        b.suspect = b.hang / 2;
    return b;
}

static void judge(struct child *c, uint64_t now)
{
    struct live_budget b = budget(c);
    enum live_verdict v = live_judge(&c->live, &b, now);
    char text[160];
    switch (v) {
    case LIVE_OK: return;
    case LIVE_SUSPECT:
        event_text(c->sup, EVENT_SUSPECT, c, VT_LOG_WARNING, "no beat for %llu s, process state %c",
                   (unsigned long long)(b.suspect / 1000000u), evidence_proc_state(c->sup, c->pid));
        return;
    case LIVE_HELLO_TIMEOUT: child_kill(c, CLASS_HELLO_TIMEOUT, live_verdict_name(v)); return;
    case LIVE_LOAD_STALL:
    case LIVE_LOAD_MAX: child_kill(c, CLASS_LOAD_STALL, live_verdict_name(v)); return;
    default:
        snprintf(text, sizeof text, "%s for %llu s, process state %c", live_verdict_name(v),
                 (unsigned long long)(live_hang_budget(&c->live, &b) / 1000000u),
                 evidence_proc_state(c->sup, c->pid));
        child_hang(c, CLASS_HUNG, text);
        return;
    }
}

/* It is there, or need not be waited for. */
static bool settled(struct sup *s, enum child_role role, uint64_t now)
{
    const struct child *c = sup_role(s, role);
    return c == NULL || c->state == VT_CHILD_READY || c->state == VT_CHILD_FAILED || c->restarts > 0 ||
           now - s->started_at > STORE_WAIT_US;
}

static void tick_engine(struct child *c, uint64_t now)
{
    if (c->waits_for_others) {
        if (settled(c->sup, ROLE_STORE, now) && settled(c->sup, ROLE_VAULT, now) && !c->sup->stopping) {
            c->waits_for_others = false;
            child_want(c);
        }
    }
    if (c->state == VT_CHILD_FAILED && c->class == CLASS_PAYLOAD &&
        c->payload_seen != child_payload_identity(c->sup)) {
        vt_log(c->sup->log, VT_LOG_NOTICE, "%s: the model's file has changed, trying again", c->name);
        child_reset(c);
    }
    if (live_canary_due(&c->live, VT_SEC(vt_config_int(c->sup->cfg, VT_CFG_ENGINE_CANARY_S)),
                        RESTART_SERVED_US, now) &&
        child_order(c, VT_ORDER_CANARY, 0, 0, 0, -1) == 0)
        live_canary_sent(&c->live, now);
}

void child_tick(struct child *c)
{
    uint64_t now = sup_now(c->sup);
    childlog_tick(&c->log, c->sup->log, c->name);
    if (c->role == ROLE_ENGINE)
        tick_engine(c, now);
    now = sup_now(c->sup); /* it may just have been started */
    if (c->pid == 0)
        return;
    if (sd_event_source_get_enabled(c->on_exit, NULL) == 0)
        child_on_end(c->on_exit, c->pidfd, 0, c); /* its tracer may have let go of it */
    else if (c->life_down_at != 0 && now - c->life_down_at > LIFE_LOST_US)
        child_hang(c, CLASS_PROTOCOL, "its lifeline is lost and it does not end");
    else
        judge(c, now);
    if (c->state == VT_CHILD_READY && c->restart.n_failed > 0 && now - c->ready_at > RESTART_STABLE_US)
        restart_reset(&c->restart);
}

void child_guard(struct child *c, uint64_t extend)
{
    uint64_t at;
    live_grace(&c->live, extend, sup_now(c->sup));
    if ((c->state == VT_CHILD_DRAINING || c->state == VT_CHILD_REAPING) &&
        sd_event_source_get_time(c->timer, &at) >= 0)
        child_arm(c, at + extend);
}

/* ---- making ---- */

int child_open(struct sup *s, struct child *c, enum child_role role, const char *name, struct vt_err *err)
{
    memset(c, 0, sizeof *c);
    c->sup = s;
    c->role = role;
    c->info = &role_table[role];
    c->exe_fd = c->ext_fd = c->pidfd = c->log.fd = -1;
    c->since = sup_now(s);
    c->waits_for_others = role == ROLE_ENGINE;
    snprintf(c->name, sizeof c->name, "%s", name);
    vt_enc_init(&c->enc);
    if (childlog_init(&c->log) < 0)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    if (sd_event_add_time(s->ev, &c->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, c) < 0 ||
        sd_event_source_set_enabled(c->timer, SD_EVENT_OFF) < 0)
        return vt_fail(err, VT_E_OS, "timer for %s", name);
    return child_find_program(c, err);
}

void child_close(struct child *c)
{
    if (c->sup == NULL)
        return;
    lifeline_close(c);
    sd_event_source_disable_unref(c->on_exit);
    sd_event_source_disable_unref(c->on_frame);
    sd_event_source_disable_unref(c->on_pipe);
    sd_event_source_disable_unref(c->on_log);
    sd_event_source_disable_unref(c->timer);
    childlog_fini(&c->log);
    if (c->exe_fd >= 0)
        close(c->exe_fd);
    if (c->ext_fd >= 0)
        close(c->ext_fd);
    if (c->pidfd >= 0)
        close(c->pidfd);
    launch_clear(&c->launch);
    vt_enc_fini(&c->enc);
    free(c->evidence);
}
