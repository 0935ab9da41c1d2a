#include "worker_priv.h"

#include "backend.h"
#include "sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_US       VT_MS(50)
#define PUMP_US       500
#define PHASE_US      VT_MS(100)
#define STORE_WAIT_US VT_MS(1500)
#define STUCK_US      VT_SEC(2)
#define USELESS_EVERY VT_SEC(60) /* between notes of restores that were of no use */

/* ---- end ---- */

void worker_exit(struct worker *w, int code)
{
    w->state = W_FAILED;
    w->exit_code = code;
    sd_event_exit(w->ev, code);
}

void worker_fatal(struct worker *w, const struct vt_err *err)
{
    static const struct vt_err unknown = {VT_E_NOMEM, "memory ran out while an error was told"};
    if (err == NULL)
        err = &unknown;
    int code = vt_err_exit(err);
    if (w->state == W_FAILED)
        return;
    if (err->code == VT_E_DEVICE_MEM && w->state < W_READY)
        code = VT_EX_DEVICE_OOM_LOAD;
    vt_child_fatal_as(w->child, err, code);
    worker_exit(w, code);
}

/* ---- load, restore, self-test, ready ---- */

/* Since this process was forked, to the kernel's tick of 10 ms. */
static uint64_t since_start(void)
{
    unsigned long long ticks = 0;
    struct timespec now;
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    const char *at = f != NULL && fgets(text, sizeof text, f) != NULL ? strrchr(text, ')') : NULL;
    if (f != NULL)
        fclose(f);
    if (at == NULL ||
        sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1 ||
        clock_gettime(CLOCK_BOOTTIME, &now) < 0)
        return 0;
    uint64_t us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
    uint64_t start = ticks * 1000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    return us > start ? us - start : 0;
}

static void enter(struct worker *w, enum worker_state s)
{
    w->state = s;
    w->state_since = vt_mono(&w->clock);
}

static void start_selftest(struct worker *w)
{
    struct cmd *m = compute_cmd(CMD_SELFTEST);
    struct vt_err err;
    enter(w, W_SELFTEST);
    vt_child_phase(w->child, VT_PHASE_SELFTEST, 0, 1, NULL);
    if (m == NULL) {
        vt_fail(&err, VT_E_NOMEM, "no memory for the self-test");
        worker_fatal(w, &err);
        return;
    }
    compute_put(w->compute, m);
}

static void restored(void *arg, const struct checkpoint_result *r)
{
    struct worker *w = arg;
    if (w->state != W_RESTORING)
        return;
    vt_log(w->log, VT_LOG_INFO, "restored %u slots, %llu tokens in %.3f s", r->saved,
           (unsigned long long)r->tokens, (double)r->us / 1e6);
    vt_child_phase(w->child, VT_PHASE_RESTORE, 1, 1, NULL);
    start_selftest(w);
}

static void start_restore(struct worker *w)
{
    enter(w, W_RESTORING);
    vt_child_phase(w->child, VT_PHASE_RESTORE, 0, 1, NULL);
    checkpoint_restore(w->checkpoint, VT_SEC((uint64_t)vt_config_int(w->cfg, VT_CFG_STORE_RESTORE_BUDGET_S)),
                       restored, w);
}

static void on_placed(void *arg, uint64_t handle, uint32_t slot, const uint32_t *ids, size_t n_ids,
                      uint32_t reused)
{
    struct worker *w = arg;
    char text[16];
    if (checkpoint_placed(w->checkpoint, handle, slot, ids, n_ids, reused))
        return;
    snprintf(text, sizeof text, "%u", slot);
    vt_log(w->log, VT_LOG_WARNING,
           "what was restored for slot %u was of no use: a request that continues it reused %u tokens only",
           slot, reused);
    if (w->useless_told != 0 && vt_mono(&w->clock) - w->useless_told < USELESS_EVERY)
        return; /* a model on which no restore works would fill the list of events */
    w->useless_told = vt_mono(&w->clock);
    vt_child_note(w->child, VT_NOTE_RESTORE_USELESS, "slot", text);
}

static bool may_fetch(void *arg)
{
    struct worker *w = arg;
    return checkpoint_may_fetch(w->checkpoint);
}

static bool fetch(void *arg, uint64_t handle, const struct eng_request *q, uint32_t resident)
{
    struct worker *w = arg;
    return checkpoint_fetch(w->checkpoint, handle, q, resident);
}

static void fetch_cancel(void *arg, uint64_t handle)
{
    struct worker *w = arg;
    checkpoint_fetch_cancel(w->checkpoint, handle);
}

static void on_fetched(void *arg, uint64_t handle)
{
    struct worker *w = arg;
    requests_fetched(w->requests, handle);
}

static int make_parts(struct worker *w, struct vt_err *err)
{
    struct requests_opts ro = {.compute = w->compute,
                               .clock = &w->clock,
                               .log = w->log,
                               .orphan_us = VT_SEC((uint64_t)vt_config_int(w->cfg, VT_CFG_ENGINE_ORPHAN_S)),
                               .credit_stall_us =
                                   VT_SEC((uint64_t)vt_config_int(w->cfg, VT_CFG_ENGINE_CREDIT_STALL_S)),
                               .send_twice = w->faults.send_twice,
                               .placed = on_placed,
                               .may_fetch = may_fetch,
                               .fetch = fetch,
                               .fetch_cancel = fetch_cancel,
                               .arg = w};
    struct checkpoint_opts co = {
        .compute = w->compute,
        .clock = &w->clock,
        .log = w->log,
        .autosave_us = VT_SEC((uint64_t)vt_config_int(w->cfg, VT_CFG_STORE_AUTOSAVE_S)),
        .turn_save_us = VT_MS((uint64_t)vt_config_int(w->cfg, VT_CFG_STORE_TURN_SAVE_MS)),
        .prefix_wait_us = VT_MS((uint64_t)vt_config_int(w->cfg, VT_CFG_STORE_PREFIX_WAIT_MS)),
        .fetched = on_fetched,
        .arg = w,
        .corrupt_chunk = w->faults.corrupt_chunk};
    return requests_new(&w->requests, &ro, err) < 0 ? -1 : checkpoint_new(&w->checkpoint, &co, err);
}

static void store_link_to_checkpoint(struct worker *w, void *bulk, size_t bytes)
{
    if (w->checkpoint != NULL)
        checkpoint_link_up(w->checkpoint, w->store, bulk, bytes);
}

static void loaded(struct worker *w)
{
    const struct eng_facts *f = compute_facts(w->compute);
    if (w->drain.verb != 0)
        return;
    report_load(w);
    /* What the engine before had is here: nothing is read from the disk, and a prompt that is not here asks for itself. */
    if (f->kv_kept > 0)
        start_selftest(w);
    else if (checkpoint_linked(w->checkpoint))
        start_restore(w);
    else
        enter(w, W_WAIT_STORE); /* its link is on the way, or it is down */
}

static void ready(struct worker *w, const struct event *ev)
{
    if (ev->err != NULL) {
        worker_fatal(w, ev->err);
        return;
    }
    vt_child_phase(w->child, VT_PHASE_SELFTEST, 1, 1, NULL);
    vt_log(w->log, VT_LOG_NOTICE, "ready %.0f ms after its start, self-test %.0f ms",
           (double)since_start() / 1e3, (double)(vt_mono(&w->clock) - w->state_since) / 1e3);
    enter(w, W_READY);
    report_ready(w);
    orders_admission(w);
}

/* ---- events of the compute thread ---- */

static void take_event(struct worker *w, struct event *ev)
{
    switch ((enum ev_type)ev->type) {
    case EV_LOADED: loaded(w); break;
    case EV_SELFTEST: ready(w, ev); break;
    case EV_FAILED:
    case EV_BROKEN: worker_fatal(w, ev->err); break;
    case EV_CANARY: orders_canary(w, ev); break;
    case EV_ERASED: slot_op_erased(w, ev); break;
    case EV_ACCEPTED:
    case EV_REFUSED:
    case EV_WANTS:
    case EV_PREFILL:
    case EV_TOKEN:
    case EV_VECTORS:
    case EV_DONE:
        if (ev->handle < COMPUTE_FILLS) {
            requests_event(w->requests, ev);
            return;
        }
        checkpoint_event(w->checkpoint, ev);
        return;
    default: checkpoint_event(w->checkpoint, ev); return;
    }
    free(ev->err);
}

static void tell_progress(struct worker *w)
{
    unsigned phase;
    uint64_t done, total, now = vt_mono(&w->clock);
    if (now - w->phase_at < PHASE_US || w->state != W_LOADING ||
        !compute_progress(w->compute, &phase, &done, &total))
        return;
    w->phase_at = now;
    vt_child_phase(w->child, phase, done, total, NULL);
}

static int on_compute(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct worker *w = arg;
    size_t n;
    struct event *ev = compute_take(w->compute, &n);
    for (size_t i = 0; i < n; i++)
        take_event(w, &ev[i]);
    tell_progress(w);
    orders_tick(w);
    worker_pump(w);
    return 0;
}

static int on_pump(sd_event_source *src, uint64_t usec, void *arg)
{
    worker_pump(arg);
    return 0;
}

/* A gateway that takes nothing at all for two seconds is as good as gone. */
static void check_stuck(struct worker *w, bool waiting)
{
    struct vt_err err;
    uint64_t now = vt_mono(&w->clock), sent = requests_sent(w->requests);
    if (!waiting || w->gateway == NULL || sent != w->stuck_sent || w->stuck_since == 0) {
        w->stuck_since = waiting ? now : 0;
        w->stuck_sent = sent;
        return;
    }
    if (now - w->stuck_since < STUCK_US)
        return;
    w->stuck_since = 0;
    vt_child_note(w->child, VT_NOTE_PEER_STUCK, "link", "gateway");
    vt_fail(&err, VT_E_DEADLINE, "the gateway has read nothing for 2 s");
    vt_link_fail(w->gateway, &err);
}

void worker_pump(struct worker *w)
{
    if (w->requests == NULL || w->state == W_FAILED)
        return;
    bool tokens = requests_pump(w->requests), pieces = checkpoint_pump(w->checkpoint);
    check_stuck(w, tokens);
    uint64_t due = requests_due(w->requests);
    if (!tokens && !pieces && due == 0)
        return;
    if (tokens || pieces)
        sd_event_source_set_time_relative(w->pump_src, PUMP_US);
    else
        sd_event_source_set_time(w->pump_src, due);
    sd_event_source_set_enabled(w->pump_src, SD_EVENT_ONESHOT);
}

/* ---- time ---- */

static int on_tick(sd_event_source *src, uint64_t usec, void *arg)
{
    struct worker *w = arg;
    uint64_t now = vt_mono(&w->clock);
    sd_event_source_set_time_relative(src, TICK_US);
    sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
    if (w->compute == NULL || w->state == W_FAILED)
        return 0;
    tell_progress(w);
    if (w->state == W_WAIT_STORE && now - w->state_since > STORE_WAIT_US)
        start_selftest(w);
    if (w->state < W_WAIT_STORE)
        return 0;
    checkpoint_tick(w->checkpoint);
    orders_tick(w);
    if (now - w->second_at >= VT_SEC(1)) {
        w->second_at = now;
        requests_tick(w->requests);
        report_counters(w);
        if (w->keep != NULL && keep_tend(w->keep))
            vt_log(w->log, VT_LOG_NOTICE, "a new vault holds this engine's memory");
    }
    worker_pump(w);
    return 0;
}

/* ---- the child's side ---- */

static int simd_of(const char *name, struct vt_err *err)
{
    static const char *const names[] = {
        [BE_REF] = "ref", [BE_SSE2] = "sse2", [BE_AVX] = "avx", [BE_AVX2] = "avx2", [BE_AVX512] = "avx512"};
    if (strcmp(name, "auto") == 0)
        return -1;
    for (int s = BE_REF; s <= BE_AVX512; s++) {
        if (strcmp(name, names[s]) == 0)
            return s;
    }
    vt_fail(err, VT_E_CONFIG, "engine.simd = %s: auto, ref, sse2, avx, avx2 or avx512 are possible", name);
    return -2;
}

/* The vault of engine0 is vault0; it listens beside the lifeline. */
static int make_keep(struct worker *w, struct vt_err *err)
{
    char path[108];
    const char *slash = strrchr(w->args.lifeline, '/'),
               *number = w->args.name + strcspn(w->args.name, "0123456789");
    if (!w->needs_model || strcmp(vt_config_str(w->cfg, VT_CFG_ENGINE_VAULT), "on") != 0)
        return 0;
    snprintf(path, sizeof path, "%.*s/v.vault%.8s", slash != NULL ? (int)(slash - w->args.lifeline) : 0,
             w->args.lifeline, number);
    return keep_new(&w->keep, path, err);
}

static int start_load(struct worker *w, struct vt_err *err)
{
    if (make_keep(w, err) < 0)
        return -1;
    struct compute_opts o = {
        .ops = w->ops,
        .cfg = {.model_path = vt_config_str(w->cfg, VT_CFG_MODEL_PATH),
                .model_file = w->args.model_file,
                .slots = (uint32_t)vt_config_int(w->cfg, VT_CFG_ENGINE_SLOTS),
                .ctx_tokens = (uint32_t)vt_config_int(w->cfg, VT_CFG_ENGINE_CTX_TOKENS),
                .ubatch = (uint32_t)vt_config_int(w->cfg, VT_CFG_ENGINE_UBATCH_TOKENS),
                .threads = (int)vt_config_int(w->cfg, VT_CFG_ENGINE_THREADS),
                .simd = simd_of(vt_config_str(w->cfg, VT_CFG_ENGINE_SIMD), err),
                .device = vt_config_str(w->cfg, VT_CFG_ENGINE_DEVICE),
                .rec_snapshots = (uint32_t)vt_config_int(w->cfg, VT_CFG_ENGINE_REC_SNAPSHOTS),
                .spec = strcmp(vt_config_str(w->cfg, VT_CFG_ENGINE_SPEC), "ngram") == 0 ? ENG_SPEC_NGRAM
                                                                                        : ENG_SPEC_NONE,
                .spec_n = (uint32_t)vt_config_int(w->cfg, VT_CFG_ENGINE_SPEC_N),
                .reserve = (uint64_t)vt_config_int(w->cfg, VT_CFG_ENGINE_VRAM_FLOOR_MIB) << 20,
                .keep = w->keep,
                .extra = w->args.extra},
        .canary_us = VT_SEC((uint64_t)vt_config_int(w->cfg, VT_CFG_ENGINE_CANARY_S)),
        .clock = &w->clock,
    };
    if (o.cfg.simd < -1)
        return -1;
    if (w->needs_model && o.cfg.model_path[0] == 0)
        return vt_fail(err, VT_E_CONFIG, "model.path is empty: name a GGUF file");
    if (compute_start(&w->compute, &o, err) < 0 || make_parts(w, err) < 0)
        return -1;
    return sd_event_add_io(w->ev, &w->events_src, compute_fd(w->compute), EPOLLIN, on_compute, w) < 0
               ? vt_fail(err, VT_E_OS, "event source for the compute thread")
               : 0;
}

static void on_welcome(void *arg, const uint8_t instance[16])
{
    struct worker *w = arg;
    struct vt_err err;
    enter(w, W_LOADING);
    w->process_us = since_start();
    vt_child_phase(w->child, VT_PHASE_WEIGHTS, 0, 0, NULL);
    if (start_load(w, &err) < 0)
        worker_fatal(w, &err);
}

static void on_lifeline(void *arg, const struct vt_frame *f)
{
    struct worker *w = arg;
    if (f->type == VT_F_ORDER && w->state != W_FAILED)
        orders_take(w, f);
    worker_pump(w);
}

static void on_beat(void *arg, struct vt_enc *e)
{
    struct worker *w = arg;
    struct eng_pulse p = {.op = ENG_OP_LOAD};
    uint64_t now = vt_mono(&w->clock);
    if (w->compute != NULL)
        compute_pulse(w->compute, &p);
    vt_enc_u64(e, VT_BEAT_STEP, p.step);
    vt_enc_u64(e, VT_BEAT_STEP_AGE, p.stamp_us != 0 && now > p.stamp_us ? now - p.stamp_us : 0);
    vt_enc_u64(e, VT_BEAT_IN_FLIGHT, p.in_flight);
    vt_enc_u64(e, VT_BEAT_OP, p.op);
}

static void on_link_up(void *arg, struct vt_link *l, const char *role, void *bulk, size_t bytes)
{
    struct worker *w = arg;
    struct vt_err err;
    bool store = strcmp(role, "store") == 0;
    struct vt_link **at = store ? &w->store : &w->gateway;
    vt_fail(&err, VT_E_STALE_LINK, "a newer link has taken its place");
    if (*at != NULL)
        vt_link_fail(*at, &err);
    *at = l;
    if (w->requests == NULL) {
        vt_fail(&err, VT_E_LOADING, "the engine has not started to load");
        vt_link_fail(l, &err);
    } else if (store) {
        store_link_to_checkpoint(w, bulk, bytes);
        if (w->state == W_WAIT_STORE && checkpoint_linked(w->checkpoint))
            start_restore(w);
    } else {
        requests_link_up(w->requests, l);
    }
}

static void take_gateway(struct worker *w, const struct vt_frame *f)
{
    struct vt_err err;
    if (w->state != W_READY)
        return;
    if (f->type == VT_F_SLOTS_ASK)
        report_slots(w, f->id);
    else if (f->type == VT_F_SLOT_OP)
        slot_op_take(w, f);
    else if (requests_frame(w->requests, f, &err) < 0)
        vt_link_fail(w->gateway, &err);
}

static void on_link(void *arg, struct vt_link *l, const struct vt_frame *f)
{
    struct worker *w = arg;
    struct vt_err err;
    if (l == w->gateway)
        take_gateway(w, f);
    else if (l == w->store && checkpoint_frame(w->checkpoint, f, &err) < 0)
        vt_link_fail(l, &err);
    worker_pump(w);
}

static void on_link_down(void *arg, struct vt_link *l)
{
    struct worker *w = arg;
    if (l == w->gateway) {
        w->gateway = NULL;
        requests_link_down(w->requests);
    } else if (l == w->store) {
        w->store = NULL;
        checkpoint_link_down(w->checkpoint);
    }
}

static const struct vt_child_ops child_ops = {.on_welcome = on_welcome,
                                              .on_lifeline = on_lifeline,
                                              .on_beat = on_beat,
                                              .on_link_up = on_link_up,
                                              .on_link = on_link,
                                              .on_link_down = on_link_down};

/* ---- main ---- */

static int log_level(const char *name)
{
    static const char *const names[] = {"error", "warning", "notice", "info", "debug"};
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, names[i]) == 0)
            return VT_LOG_ERR + i;
    }
    return VT_LOG_INFO;
}

static int read_args(struct worker *w, int argc, char **argv, worker_extra extra, struct vt_err *err)
{
    w->cfg = vt_config_new();
    if (w->cfg == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the configuration");
    if (vt_child_args(&w->args, argc, argv, w->cfg, err) < 0 || vt_config_check(w->cfg, err) < 0)
        return -1;
    if (w->args.extra == NULL)
        return 0;
    if (extra == NULL)
        return vt_fail(err, VT_E_USAGE, "%s: this program takes no argument beside its options",
                       w->args.extra);
    return extra(w->args.extra, &w->faults, err);
}

static int start(struct worker *w, struct vt_err *err)
{
    /* The filter comes before every thread, the signal mask before those that the log, the loop and NNG start. */
    if (vt_sandbox_enter(err) < 0)
        return -1;
    vt_child_block_signals();
    w->log = vt_log_new(w->args.name, VT_SINK_STDERR,
                        (enum vt_level)log_level(vt_config_str(w->cfg, VT_CFG_LOG_LEVEL)), 0);
    w->clock = vt_clock_real();
    if (w->log == NULL || sd_event_default(&w->ev) < 0)
        return vt_fail(err, VT_E_NOMEM, "no memory for the event loop");
    if (vt_child_new(&w->child, w->ev, &w->args, "engine", 0, &child_ops, w, w->log, &w->clock, err) < 0)
        return -1;
    if (sd_event_add_time_relative(w->ev, &w->tick_src, CLOCK_MONOTONIC, TICK_US, 1000, on_tick, w) < 0 ||
        sd_event_add_time_relative(w->ev, &w->pump_src, CLOCK_MONOTONIC, PUMP_US, 50, on_pump, w) < 0)
        return vt_fail(err, VT_E_OS, "timers");
    return 0;
}

static void stop(struct worker *w, int code)
{
    sd_event_source_disable_unref(w->events_src);
    sd_event_source_disable_unref(w->tick_src);
    sd_event_source_disable_unref(w->pump_src);
    checkpoint_free(w->checkpoint);
    requests_free(w->requests);
    usleep(50000); /* the library's threads carry the last frames */
    vt_child_free(w->child);
    if (code ==
        VT_EX_DEVICE_LOST) { /* nothing on the device can be given back in order, and trying may not end */
        vt_log_free(w->log);
        _exit(code);
    }
    bool ended = w->compute == NULL || compute_stop(w->compute, 1000);
    vt_log_free(w->log);
    if (!ended)
        _exit(code); /* a step that does not end; its memory must stay */
    keep_free(w->keep);
    sd_event_unref(w->ev);
    vt_config_free(w->cfg);
}

int worker_main(int argc, char **argv, const struct eng_ops *ops, bool needs_model, worker_extra extra)
{
    struct worker w = {.ops = ops, .needs_model = needs_model};
    struct vt_err err;
    if (vt_told_version(argc, argv, "vitriol-engine"))
        return VT_EX_OK;
    if (read_args(&w, argc, argv, extra, &err) < 0 || start(&w, &err) < 0) {
        fprintf(stderr, "%s: %s\n", argv[0], err.text);
        return vt_err_exit(&err);
    }
    int code = sd_event_loop(w.ev);
    if (code < 0)
        code = VT_EX_OS;
    stop(&w, code);
    return code;
}
