/* vitriol-external: an engine whose work is done by a server with the OpenAI API. To vitriold it is an engine like any
 * other: it says READY after a decode, counts steps, answers canaries, drains, and ends when its server ends. */
#include "relay.h"
#include "upstream.h"

#include "build_id.h"
#include "config.h"
#include "link.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_US  VT_MS(100)
#define TRY_US   VT_MS(500)
#define GAUGE_US VT_SEC(1)
#define STOP_MS  5000u
#define KEY_MAX  500

struct app {
    sd_event *ev;
    sd_event_source *tick;
    struct vt_config *cfg;
    struct vt_log *log;
    struct vt_clock clock;
    struct vt_child_args args;
    struct vt_child *child;
    struct upstream up;
    struct http *http;
    struct relay *relay;
    uint64_t tried_at, gauged_at, loaded;
    uint64_t drain_by, drain_id; /* 0: not draining */
    bool ready, canary_due, probing;
    uint64_t canary_id;
    int exit_code;
};

static uint64_t now(const struct app *a)
{
    return vt_mono(&a->clock);
}

static void leave(struct app *a, int code)
{
    a->exit_code = code;
    sd_event_exit(a->ev, code);
}

static void fatal(struct app *a, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void fatal(struct app *a, int code, const char *fmt, ...)
{
    struct vt_err err;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    vt_fail(&err, VT_E_UNAVAILABLE, "%s", text);
    vt_log(a->log, VT_LOG_ERR, "%s", text);
    vt_child_fatal_as(a->child, &err, code);
    leave(a, code);
}

/* ---- ready ---- */

static void put_effective(const struct app *a, struct vt_enc *e)
{
    enum vt_config_key keys[VT_CFG_COUNT];
    unsigned n = 0;
    char text[4096];
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        const char *name = vt_config_name((enum vt_config_key)k);
        if (strncmp(name, "external.", 9) == 0 || strncmp(name, "engine.", 7) == 0)
            keys[n++] = (enum vt_config_key)k;
    }
    vt_enc_map(e, VT_READY_EFFECTIVE, n);
    for (unsigned at = 0; at < n; at++) { /* ascending by name */
        unsigned least = at;
        for (unsigned i = at + 1; i < n; i++) {
            if (strcmp(vt_config_name(keys[i]), vt_config_name(keys[least])) < 0)
                least = i;
        }
        enum vt_config_key k = keys[least];
        keys[least] = keys[at];
        vt_enc_put_str(e, vt_config_name(k));
        vt_enc_put_str(e, vt_config_text(a->cfg, k, text, sizeof text));
    }
}

static void say_ready(struct app *a)
{
    uint64_t slots = (uint64_t)vt_config_int(a->cfg, VT_CFG_EXTERNAL_SLOTS);
    uint64_t window = (uint64_t)vt_config_int(a->cfg, VT_CFG_EXTERNAL_CTX_TOKENS);
    struct vt_enc *e = vt_child_begin(a->child, VT_F_READY, 0);
    put_effective(a, e);
    vt_enc_u64(e, VT_READY_POOL_TOKENS, slots * window);
    vt_enc_u64(e, VT_READY_SLOTS, slots);
    vt_enc_u64(e, VT_READY_WINDOW, window);
    vt_enc_u64(e, VT_READY_MODALITIES, 1);
    const char *const pair[][2] = {
        {"arch", "external"}, {"device", "external"}, {"gpus", "none"}, {"model", relay_model(a->relay)}};
    vt_enc_map(e, VT_READY_FACTS, sizeof pair / sizeof pair[0]);
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        vt_enc_put_str(e, pair[i][0]);
        vt_enc_put_str(e, pair[i][1]);
    }
    vt_child_send(a->child);
    a->ready = true;
}

static void canary_done(struct app *a, const struct vt_err *err)
{
    struct vt_enc *e = vt_child_begin(a->child, VT_F_ORDER_DONE, a->canary_id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, VT_ORDER_CANARY);
    vt_enc_u64(e, VT_ORDER_DONE_OK, err == NULL);
    if (err != NULL)
        vt_enc_err(e, err);
    vt_child_send(a->child);
    a->canary_due = false;
}

static void on_decoded(void *arg, const struct vt_err *err)
{
    struct app *a = arg;
    a->probing = false;
    if (a->ready && a->canary_due) {
        canary_done(a, err);
        if (err != NULL && !a->up.ours)
            fatal(a, VT_EX_UNAVAILABLE, "%s does not decode any more: %s", a->up.base, err->text);
    } else if (!a->ready && err == NULL) {
        say_ready(a);
    } else if (!a->ready) {
        vt_log(a->log, VT_LOG_DEBUG, "%s does not decode yet: %s", a->up.base, err->text);
    }
}

static void decode(struct app *a)
{
    a->tried_at = now(a);
    a->probing = relay_decode(a->relay, on_decoded, a) == 0;
}

/* ---- time ---- */

static void tick_loading(struct app *a)
{
    a->loaded += upstream_worked(&a->up);
    vt_child_phase(a->child, VT_PHASE_WEIGHTS, a->loaded, 0, NULL); /* of how many nobody knows */
    if (!a->probing && now(a) - a->tried_at > TRY_US)
        decode(a);
}

static void drained(struct app *a)
{
    struct vt_enc *e = vt_child_begin(a->child, VT_F_ORDER_DONE, a->drain_id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, VT_ORDER_DRAIN);
    vt_enc_u64(e, VT_ORDER_DONE_OK, 1);
    vt_child_send(a->child);
    vt_enc_u64(vt_child_begin(a->child, VT_F_BYE, 0), VT_BYE_REASON, VT_ORDER_DRAIN);
    vt_child_send(a->child);
    upstream_stop(&a->up, STOP_MS);
    leave(a, VT_EX_OK);
}

/* It ends as its server ended, so that the cause is named by what is known. */
static void server_ended(struct app *a, int status)
{
    if (WIFSIGNALED(status)) {
        struct rlimit none = {0, 0};
        sigset_t one;
        vt_log(a->log, VT_LOG_ERR, "the server was killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
        relay_fail_all(a->relay, "the server was killed");
        setrlimit(RLIMIT_CORE, &none);
        signal(WTERMSIG(status), SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, WTERMSIG(status));
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        raise(WTERMSIG(status));
        fatal(a, VT_EX_INTERNAL, "the server was killed by signal %d", WTERMSIG(status));
        return;
    }
    int code = WEXITSTATUS(status);
    fatal(a, code == 126 || code == 127 ? VT_EX_CONFIG : VT_EX_INTERNAL,
          code == 127   ? "external.command cannot be started"
          : code == 126 ? "external.command cannot be executed"
                        : "the server ended by itself, exit status %d",
          code);
}

static int on_tick(sd_event_source *src, uint64_t usec, void *arg)
{
    struct app *a = arg;
    int status;
    sd_event_source_set_time_relative(src, TICK_US);
    sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
    if (upstream_ended(&a->up, &status)) {
        server_ended(a, status);
        return 0;
    }
    relay_tick(a->relay);
    if (a->drain_by != 0) {
        if (relay_in_flight(a->relay) == 0 || now(a) >= a->drain_by) {
            relay_fail_all(a->relay, "the engine is restarting");
            drained(a);
        }
    } else if (!a->ready) {
        tick_loading(a);
    } else if (a->canary_due && !a->probing) {
        decode(a);
    } else if (now(a) - a->gauged_at > GAUGE_US && relay_in_flight(a->relay) > 0) {
        a->gauged_at = now(a);
        relay_gauge(a->relay);
    }
    return 0;
}

/* ---- the lifeline ---- */

static void on_welcome(void *arg, const uint8_t instance[16])
{
    struct app *a = arg;
    struct vt_err err;
    if (a->up.ours && upstream_start(&a->up, a->cfg, &err) < 0) {
        fatal(a, VT_EX_CONFIG, "%s", err.text);
        return;
    }
    vt_log(a->log, VT_LOG_INFO, a->up.ours ? "the server is started, at %s" : "the server is expected at %s",
           a->up.base);
}

static void on_order(struct app *a, const struct vt_frame *f)
{
    uint64_t ms = vt_frame_u64(f, VT_ORDER_DEADLINE_MS, 0);
    switch (vt_frame_u64(f, VT_ORDER_VERB, 0)) {
    case VT_ORDER_CANARY:
        a->canary_due = true;
        a->canary_id = f->id;
        break;
    case VT_ORDER_DRAIN:
        a->drain_id = f->id;
        a->drain_by = now(a) + VT_MS(ms > 0 ? ms : 1);
        relay_close(a->relay);
        break;
    case VT_ORDER_STOP:
        relay_fail_all(a->relay, "the engine is being stopped");
        upstream_stop(&a->up, ms < STOP_MS ? (unsigned)ms : STOP_MS);
        leave(a, VT_EX_OK);
        break;
    case VT_ORDER_EXPORT: { /* a foreign server's state is its own: nothing is kept, and that is no failure */
        struct vt_enc *e = vt_child_begin(a->child, VT_F_ORDER_DONE, f->id);
        vt_enc_u64(e, VT_ORDER_DONE_VERB, VT_ORDER_EXPORT);
        vt_enc_u64(e, VT_ORDER_DONE_OK, 0);
        vt_enc_u64(e, VT_KEY_CODE, VT_E_CAPABILITY);
        vt_enc_str(e, VT_KEY_TEXT, "an external engine has no checkpoints");
        vt_child_send(a->child);
        break;
    }
    default: break;
    }
}

static void on_lifeline(void *arg, const struct vt_frame *f)
{
    if (f->type == VT_F_ORDER)
        on_order(arg, f);
}

static void on_beat(void *arg, struct vt_enc *e)
{
    struct app *a = arg;
    vt_enc_u64(e, VT_BEAT_STEP, relay_steps(a->relay));
    vt_enc_u64(e, VT_BEAT_IN_FLIGHT, relay_in_flight(a->relay));
    vt_enc_u64(e, VT_BEAT_OP, relay_in_flight(a->relay) > 0 ? 1 : 0);
}

static void on_link(void *arg, struct vt_link *l, const struct vt_frame *f)
{
    relay_frame(((struct app *)arg)->relay, l, f);
}

static void on_link_down(void *arg, struct vt_link *l)
{
    relay_link_down(((struct app *)arg)->relay, l);
}

static const struct vt_child_ops ops = {on_welcome, on_lifeline, on_beat, NULL, on_link, on_link_down, NULL};

/* ---- main ---- */

/* A key is a credential: a file of its own that others cannot read. */
static int read_key(const struct vt_config *cfg, char *out, size_t size, struct vt_err *err)
{
    const char *path = vt_config_str(cfg, VT_CFG_EXTERNAL_API_KEY_FILE);
    struct stat st;
    out[0] = '\0';
    if (path[0] == '\0')
        return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return vt_fail_errno(err, VT_E_CONFIG, "external.api_key_file: %s", path);
    ssize_t n = (st.st_mode & 077) == 0 ? read(fd, out, size - 1) : -2;
    close(fd);
    if (n == -2)
        return vt_fail(err, VT_E_CONFIG, "external.api_key_file: others may read %s: chmod 600", path);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    if (strlen(out) > KEY_MAX)
        return vt_fail(err, VT_E_CONFIG, "external.api_key_file: the key in %s is longer than %d bytes", path,
                       KEY_MAX);
    return out[0] != '\0' ? 0 : vt_fail(err, VT_E_CONFIG, "external.api_key_file: %s holds no key", path);
}

static int prepare(struct app *a, struct vt_err *err)
{
    char key[KEY_MAX + 2]; /* one more, so that a longer one is seen */
    if (upstream_where(&a->up, a->cfg, err) < 0 || read_key(a->cfg, key, sizeof key, err) < 0)
        return -1;
    if (sd_event_new(&a->ev) < 0)
        return vt_fail(err, VT_E_OS, "no event loop");
    if (vt_child_new(&a->child, a->ev, &a->args, "engine", 0, &ops, a, a->log, &a->clock, err) < 0 ||
        http_new(&a->http, a->ev, a->up.base, key, err) < 0 ||
        relay_new(&a->relay, a->http, vt_config_str(a->cfg, VT_CFG_EXTERNAL_MODEL),
                  vt_config_str(a->cfg, VT_CFG_EXTERNAL_METRICS),
                  (unsigned)vt_config_int(a->cfg, VT_CFG_ENGINE_HANG_BUDGET_S), err) < 0)
        return -1;
    if (sd_event_add_time_relative(a->ev, &a->tick, CLOCK_MONOTONIC, TICK_US, 1000, on_tick, a) < 0)
        return vt_fail(err, VT_E_OS, "no timer");
    return 0;
}

int main(int argc, char **argv)
{
    struct app a = {.cfg = vt_config_new(), .clock = vt_clock_real()};
    struct vt_err err;
    if (vt_told_version(argc, argv, "vitriol-external"))
        return VT_EX_OK;
    if (a.cfg == NULL)
        return VT_EX_HOST_MEM;
    if (vt_child_args(&a.args, argc, argv, a.cfg, &err) < 0) {
        fprintf(stderr, "vitriol-external: %s\n", err.text);
        return vt_err_exit(&err);
    }
    vt_child_block_signals();
    a.log = vt_log_new(a.args.name, VT_SINK_STDERR, VT_LOG_INFO, 0);
    int rc = prepare(&a, &err);
    if (rc < 0) {
        vt_log(a.log, VT_LOG_ERR, "%s", err.text);
        rc = vt_err_exit(&err);
    } else {
        rc = sd_event_loop(a.ev);
    }
    upstream_stop(&a.up, 0);
    relay_free(a.relay);
    http_free(a.http);
    sd_event_source_disable_unref(a.tick);
    vt_child_free(a.child);
    sd_event_unref(a.ev);
    vt_log_free(a.log);
    vt_config_free(a.cfg);
    return rc < 0 ? VT_EX_INTERNAL : rc;
}
