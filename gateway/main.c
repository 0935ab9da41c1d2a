/* vitriol-gateway: HTTP in, frames to the engines. A child of vitriold. */
#include "api/answer.h"
#include "api/scribe.h"
#include "build_id.h"
#include "confine.h"
#include "gateway.h"
#include "hash.h"
#include "http/dispatch.h"
#include "http/error.h"
#include "proxy/proxy.h"
#include "series.h"
#include "telemetry.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_US = 250000,
    TICKS_A_SECOND = 4,
    START_US = 1000000, /* serve without routes after this long */
    FLUSH_US = 1800000, /* for the last events to reach the clients */
    MAX_HTTP_FDS = 16,
    MAX_CONNECTIONS = 2048,
};

static uint64_t now_us(const struct gateway *gw)
{
    return vt_mono(&gw->clock);
}

/* ---- leaving ---- */

static void leave(struct gateway *gw, const char *why, uint64_t within_us)
{
    struct api_err e;
    gw->leave_by = now_us(gw) + within_us;
    if (gw->http)
        http_quiesce(gw->http);
    api_fail(&e, 503, NULL, "%s", why);
    e.retry_ms = 2000;
    router_fail_all(&gw->router, &e);
    proxy_fail_all(gw, why);
}

static void check_leave(struct gateway *gw)
{
    if (!gw->leave_by)
        return;
    bool over = now_us(gw) >= gw->leave_by;
    unsigned open = gw->http ? http_open_requests(gw->http) : 0;
    if (open > 0 && !over)
        return;
    if (over && gw->draining && !gw->router.closed) { /* a drain's time is up: the rest is told */
        leave(gw, "the server is restarting", FLUSH_US);
        return;
    }
    if (!gw->orphaned) {
        vt_enc_u64(vt_child_begin(gw->child, VT_F_BYE, 0), VT_BYE_REASON, 0);
        vt_child_send(gw->child);
    }
    sd_event_exit(gw->ev, gw->exit_code);
}

static void on_orphan(void *arg)
{
    struct gateway *gw = arg;
    gw->orphaned = true;
    gw->exit_code = VT_EX_LOST_SUPERVISOR;
    leave(gw, "the server was interrupted", FLUSH_US);
}

static void on_order(struct gateway *gw, const struct vt_frame *f)
{
    uint64_t verb = vt_frame_u64(f, VT_ORDER_VERB, 0);
    uint64_t ms = vt_frame_u64(f, VT_ORDER_DEADLINE_MS, 10000);
    struct vt_enc *e;
    switch (verb) {
    case VT_ORDER_DRAIN:
        gw->draining = gw->router.stopping = true;
        gw->leave_by = now_us(gw) + ms * 1000;
        if (gw->http)
            http_quiesce(gw->http);
        break;
    case VT_ORDER_STOP:
        gw->draining = true;
        leave(gw, "the server is shutting down", ms * 1000 < FLUSH_US ? ms * 1000 : FLUSH_US);
        break;
    default: return;
    }
    e = vt_child_begin(gw->child, VT_F_ORDER_DONE, f->id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, verb);
    vt_enc_u64(e, VT_ORDER_DONE_OK, 1);
    vt_child_send(gw->child);
}

/* ---- serving ---- */

static int start_http(struct gateway *gw, struct vt_err *err)
{
    int fds[MAX_HTTP_FDS];
    const struct http_limits lim = {
        .max_body = (size_t)vt_config_int(gw->cfg, VT_CFG_HTTP_MAX_BODY_MIB) << 20,
        .timeout_s = (unsigned)vt_config_int(gw->cfg, VT_CFG_HTTP_TIMEOUT_S),
        .max_connections = MAX_CONNECTIONS,
    };
    for (int i = 0; i < gw->n_http_fds; i++)
        fds[i] = VT_HTTP_FD0 + i;
    return http_new(&gw->http, gw->ev, fds, gw->n_http_fds, &lim, &dispatch_ops, gw, gw->log, err);
}

/* What clients may rely on beside the engine's shape: held against the record when an earlier state is restored. */
static void put_contract(const struct gateway *gw, struct vt_enc *e)
{
    const struct model *m = &gw->model;
    uint8_t sum[VT_SHA256_LEN];
    char template[2 * 6 + 1] = "none";
    if (m->tmpl_text) {
        vt_sha256(m->tmpl_text, strlen(m->tmpl_text), sum);
        vt_hex(sum, 6, template);
    }
    const char *const pair[][2] = {{"alias", m->alias},
                                   {"calls", m->tok ? m->dialect->name : "none"},
                                   {"template", template},
                                   {"think", m->tok && m->think->open ? m->think->open : "none"},
                                   {"vocab", m->vocab}};
    vt_enc_map(e, VT_READY_FACTS, sizeof pair / sizeof pair[0]);
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        vt_enc_put_str(e, pair[i][0]);
        vt_enc_put_str(e, pair[i][1]);
    }
}

/* Accepting begins when it is known what is there to serve: whoever waited in the listening socket meanwhile should not be
 * told that a model loads which has been ready all along. */
static void serve(struct gateway *gw)
{
    struct vt_err err;
    if (gw->http || gw->leave_by)
        return;
    if (start_http(gw, &err)) {
        vt_child_fatal(gw->child, &err);
        sd_event_exit(gw->ev, vt_err_exit(&err));
        return;
    }
    put_contract(gw, vt_child_begin(gw->child, VT_F_READY, 0));
    vt_child_send(gw->child);
    vt_log(gw->log, VT_LOG_INFO, "serving %s on %d listening socket(s)", gw->model.alias, gw->n_http_fds);
}

static void send_stats(struct gateway *gw)
{
    unsigned held;
    uint64_t oldest;
    unsigned open = router_open_jobs(&gw->router, &held, &oldest);
    struct vt_enc *e = vt_child_begin(gw->child, VT_F_GW_STATS, 0);
    vt_enc_u64(e, VT_GW_STATS_OPEN, open);
    vt_enc_u64(e, VT_GW_STATS_HELD, held);
    vt_enc_u64(e, VT_GW_STATS_QUEUE_OLDEST_MS, oldest ? (now_us(gw) - oldest) / 1000 : 0);
    vt_enc_map(e, VT_GW_STATS_COUNTERS, 3);
    vt_enc_put_u64(e, VT_SERIES_GW_HELD);
    vt_enc_put_u64(e, gw->router.held_total);
    vt_enc_put_u64(e, VT_SERIES_GW_RESUMED);
    vt_enc_put_u64(e, gw->router.resumed_total);
    vt_enc_put_u64(e, VT_SERIES_GW_INTERRUPTED);
    vt_enc_put_u64(e, gw->router.interrupted_total);
    vt_child_send(gw->child);
}

/* The tokenizer is read once, before the sandbox closes: a new file needs a new gateway. */
static void watch_model(struct gateway *gw)
{
    struct stat st;
    if (gw->model.tok || proxy_wanted(gw) || stat(gw->model.path, &st) ||
        (st.st_size == gw->model_seen.st_size && st.st_mtim.tv_sec == gw->model_seen.st_mtim.tv_sec &&
         st.st_mtim.tv_nsec == gw->model_seen.st_mtim.tv_nsec))
        return;
    vt_log(gw->log, VT_LOG_NOTICE, "the model's file has changed: starting again with it");
    sd_event_exit(gw->ev, VT_EX_TEMPFAIL);
}

static int on_tick(sd_event_source *src, uint64_t usec, void *arg)
{
    struct gateway *gw = arg;
    gw->ticks++;
    router_tick(&gw->router);
    proxy_pump(gw);
    answers_ping(gw);
    if (gw->welcome_us && now_us(gw) - gw->welcome_us > START_US)
        serve(gw);
    if (gw->ticks % TICKS_A_SECOND == 0 && !gw->orphaned) {
        send_stats(gw);
        watch_model(gw);
    }
    check_leave(gw);
    sd_event_source_set_time_relative(src, gw->leave_by ? TICK_US / 10 : TICK_US);
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

/* ---- the lifeline and the links ---- */

static void on_welcome(void *arg, const uint8_t instance[16])
{
    struct gateway *gw = arg;
    vt_hex(instance, 16, gw->instance);
    gw->welcome_us = now_us(gw);
}

/* vitriold remembers it for the next gateway. */
static void on_blame(void *arg, const struct blame_entry *b, unsigned class, unsigned in_flight,
                     const char *label)
{
    struct gateway *gw = arg;
    struct vt_enc *e = vt_child_begin(gw->child, VT_F_SUSPECT, 0);
    vt_enc_bin(e, VT_SUSPECT_PROMPT_SHA, b->sha, sizeof b->sha);
    vt_enc_u64(e, VT_SUSPECT_CRASHES, b->crashes);
    vt_enc_u64(e, VT_SUSPECT_QUARANTINED, b->quarantined);
    vt_enc_u64(e, VT_SUSPECT_CLASS, class);
    vt_enc_u64(e, VT_SUSPECT_IN_FLIGHT, in_flight);
    vt_enc_str(e, VT_SUSPECT_LABEL, label);
    vt_child_send(gw->child);
}

static void on_lifeline(void *arg, const struct vt_frame *f)
{
    struct gateway *gw = arg;
    switch (f->type) {
    case VT_F_ROUTES:
        router_routes(&gw->router, f);
        proxy_pump(gw);
        serve(gw);
        break;
    case VT_F_INTERRUPTED: router_interrupted(&gw->router, f); break;
    case VT_F_SUSPECTS: blame_known(&gw->router, f); break;
    case VT_F_HOLD: router_hold(&gw->router, f); break;
    case VT_F_ORDER: on_order(gw, f); break;
    default: telemetry_frame(gw->telemetry, f, now_us(gw));
    }
}

static void on_beat(void *arg, struct vt_enc *e)
{
    struct gateway *gw = arg;
    unsigned held;
    uint64_t oldest;
    unsigned open = router_open_jobs(&gw->router, &held, &oldest);
    vt_enc_u64(e, VT_BEAT_STEP, gw->ticks);
    vt_enc_u64(e, VT_BEAT_IN_FLIGHT, open + proxy_open(gw));
}

static void on_link_up(void *arg, struct vt_link *l, const char *peer_role, void *bulk, size_t bulk_bytes)
{
    router_link_up(&((struct gateway *)arg)->router, l);
    proxy_pump(arg);
}

static void on_link(void *arg, struct vt_link *l, const struct vt_frame *f)
{
    if (f->type >= VT_F_PROXY_HEAD && f->type <= VT_F_PROXY_END)
        proxy_frame(arg, l, f);
    else
        router_frame(&((struct gateway *)arg)->router, l, f);
}

static void on_link_down(void *arg, struct vt_link *l)
{
    proxy_link_down(arg, l);
    router_link_down(&((struct gateway *)arg)->router, l);
}

static const struct vt_child_ops child_ops = {on_welcome, on_lifeline,  on_beat,  on_link_up,
                                              on_link,    on_link_down, on_orphan};

/* ---- main ---- */

static enum vt_level level_of(const char *name)
{
    static const char *const names[] = {"error", "warning", "notice", "info", "debug"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum vt_level)(VT_LOG_ERR + i);
    return VT_LOG_INFO;
}

static int check_sockets(int n, struct vt_err *err)
{
    if (n < 1 || n > MAX_HTTP_FDS)
        return vt_fail(err, VT_E_USAGE,
                       "--http-fds must be 1 to %d: vitriold hands the listening sockets over", MAX_HTTP_FDS);
    for (int fd = VT_HTTP_FD0; fd < VT_HTTP_FD0 + n; fd++) {
        int fl = fcntl(fd, F_GETFL);
        /* Two generations may wait on one socket for a moment: who comes second must not block. */
        if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
            return vt_fail_errno(err, VT_E_USAGE, "descriptor %d is no listening socket", fd);
    }
    return 0;
}

static struct router_rules rules_of(const struct gateway *gw)
{
    const struct vt_config *c = gw->cfg;
    bool external = proxy_wanted(gw);
    return (struct router_rules){
        .queue_max = (unsigned)vt_config_int(c, VT_CFG_GATEWAY_QUEUE_MAX),
        .hold_s = (unsigned)vt_config_int(c, VT_CFG_GATEWAY_HOLD_S),
        .resume_attempts = (unsigned)vt_config_int(c, VT_CFG_GATEWAY_RESUME_ATTEMPTS),
        .resume_max_age_s = (unsigned)vt_config_int(c, VT_CFG_GATEWAY_RESUME_MAX_AGE_S),
        .resume = vt_config_bool(c, VT_CFG_GATEWAY_RESUME),
        .window =
            (uint32_t)vt_config_int(c, external ? VT_CFG_EXTERNAL_CTX_TOKENS : VT_CFG_ENGINE_CTX_TOKENS),
        .slots = (uint32_t)vt_config_int(c, external ? VT_CFG_EXTERNAL_SLOTS : VT_CFG_ENGINE_SLOTS),
    };
}

/* A file that cannot be read costs the answers, not the gateway: clients are told, and a changed file is tried again. */
static void load_model(struct gateway *gw)
{
    struct vt_err err;
    const char *path = vt_config_str(gw->cfg, VT_CFG_MODEL_PATH);
    if (stat(path, &gw->model_seen))
        gw->model_seen = (struct stat){0};
    if (model_load(&gw->model, path, vt_config_str(gw->cfg, VT_CFG_GATEWAY_ALIAS), &err))
        vt_log(gw->log, VT_LOG_ERR, "nothing can be served: %s", err.text);
}

static int prepare(struct gateway *gw, const struct vt_child_args *a, struct vt_err *err)
{
    struct router_rules rules = rules_of(gw);
    sd_event_source *tick;
    gw->n_http_fds = a->http_fds;
    gw->started = time(NULL);
    snprintf(gw->build, sizeof gw->build, "%s", VT_BUILD_ID);
    stats_init(&gw->stats);
    router_init(&gw->router, &gw->clock, gw->log, &rules);
    gw->router.blame.tell = on_blame;
    gw->router.blame.tell_arg = gw;
    gw->telemetry = telemetry_new();
    if (!gw->telemetry)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    if (check_sockets(a->http_fds, err) ||
        auth_load(&gw->auth, vt_config_str(gw->cfg, VT_CFG_HTTP_API_KEYS_FILE), err))
        return -1;
    if (proxy_wanted(gw)) {
        const char *alias = vt_config_str(gw->cfg, VT_CFG_GATEWAY_ALIAS);
        const char *model = vt_config_str(gw->cfg, VT_CFG_EXTERNAL_MODEL);
        snprintf(gw->model.alias, sizeof gw->model.alias, "%s",
                 alias[0]   ? alias
                 : model[0] ? model
                            : "external");
    } else {
        load_model(gw);
        if (a->model_file && gw->model.tok && strcmp(a->model_file, gw->model.file) != 0)
            return vt_fail(err, VT_E_BUSY, "%s is not the file any more that it was when this start began",
                           gw->model.path);
    }
    if (gw->model.tmpl_error[0])
        vt_log(gw->log, VT_LOG_WARNING, "the model's chat template cannot be used: %s", gw->model.tmpl_error);
    int r = sd_event_new(&gw->ev);
    if (r >= 0)
        r = sd_event_add_time_relative(gw->ev, &tick, CLOCK_MONOTONIC, TICK_US, 10000, on_tick, gw);
    if (r < 0)
        return vt_fail(err, VT_E_OS, "cannot make an event loop: %s", strerror(-r));
    sd_event_source_set_floating(tick, 1);
    sd_event_source_unref(tick);
    if (confine_enter(err) || scribe_new(&gw->scribe, gw, err))
        return -1;
    return vt_child_new(&gw->child, gw->ev, a, "gateway", 0, &child_ops, gw, gw->log, &gw->clock, err);
}

static void fini(struct gateway *gw)
{
    http_free(gw->http); /* clients are gone for the scribe after this */
    scribe_free(gw->scribe);
    vt_child_free(gw->child);
    telemetry_free(gw->telemetry);
    auth_free(gw->auth);
    model_fini(&gw->model);
    sd_event_unref(gw->ev);
    vt_log_free(gw->log);
    vt_config_free(gw->cfg);
}

int main(int argc, char **argv)
{
    struct gateway gw = {.clock = vt_clock_real()};
    struct vt_child_args args;
    struct vt_err err;
    int code;
    if (vt_told_version(argc, argv, "vitriol-gateway"))
        return VT_EX_OK;
    vt_child_block_signals();
    gw.cfg = vt_config_new();
    if (!gw.cfg || vt_child_args(&args, argc, argv, gw.cfg, &err)) {
        fprintf(stderr, "vitriol-gateway: %s\n", gw.cfg ? err.text : "out of memory");
        vt_config_free(gw.cfg);
        return gw.cfg ? vt_err_exit(&err) : VT_EX_OS;
    }
    gw.log = vt_log_new("gateway", VT_SINK_STDERR, level_of(vt_config_str(gw.cfg, VT_CFG_LOG_LEVEL)), 0);
    if (prepare(&gw, &args, &err)) {
        vt_log(gw.log, VT_LOG_ERR, "%s", err.text);
        code = vt_err_exit(&err);
    } else {
        code = sd_event_loop(gw.ev);
    }
    fini(&gw);
    return code < 0 ? VT_EX_INTERNAL : code;
}
