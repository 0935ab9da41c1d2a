/* A child for tests of vitriold: any role, named by the program's own file name, with one fault chosen by its extra
 * argument (engine.args). */
#include "kv.h"

#include "link.h"
#include "series.h"

#include "build_id.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct state {
    sd_event *ev;
    struct vt_child *child;
    struct vt_config *cfg;
    const char *role, *fault;
    const char *vram; /* file with what its GPU has free; NULL: it has none */
    sd_event_source *timer;
    uint64_t step;
    unsigned ticks;
};

static bool has(const struct state *s, const char *fault)
{
    return s->fault != NULL && strcmp(s->fault, fault) == 0;
}

/* Whatever it was told is in force, but for the fault that withholds one. */
static bool reports(const struct state *s, enum vt_config_key k)
{
    return vt_config_is_set(s->cfg, k) && !(has(s, "drop-option") && k == VT_CFG_ENGINE_UBATCH_TOKENS);
}

/* An engine on a GPU: 60 MiB of weights and 30 of KV, and 10 of work space. */
static void put_plan(struct vt_enc *e)
{
    static const struct {
        const char *name;
        uint64_t mib;
    } row[] = {{"weights", 60}, {"kv", 30}, {"work", 10}};
    vt_enc_array(e, VT_READY_PLAN, 3);
    for (int i = 0; i < 3; i++) {
        vt_enc_put_array(e, 3);
        vt_enc_put_str(e, row[i].name);
        vt_enc_put_u64(e, row[i].mib << 20);
        vt_enc_put_u64(e, row[i].mib << 20);
    }
}

static void put_facts(struct vt_enc *e)
{
    vt_enc_map(e, VT_READY_FACTS, 2);
    vt_enc_put_str(e, "device");
    vt_enc_put_str(e, "gpu:0");
    vt_enc_put_str(e, "gpus");
    vt_enc_put_str(e, "test-gpu");
}

/* Free memory as the file of the vram fault says it, in MiB; or "exit N", once. */
static void tell_vram(struct state *s)
{
    unsigned long long mib = 0;
    int status;
    FILE *f = fopen(s->vram, "re");
    if (f == NULL)
        return;
    bool ends = fscanf(f, "exit %d", &status) == 1, read = !ends && fscanf(f, "%llu", &mib) == 1;
    fclose(f);
    if (ends && unlink(s->vram) == 0)
        sd_event_exit(s->ev, status);
    if (!read)
        return;
    struct vt_enc *e = vt_child_begin(s->child, VT_F_T_ENGINE, 0);
    vt_enc_str(e, VT_T_ENGINE_CHILD, "engine0");
    vt_enc_u64(e, VT_T_ENGINE_GEN, 1);
    vt_enc_map(e, VT_T_ENGINE_COUNTERS, 0);
    vt_enc_map(e, VT_T_ENGINE_GAUGES, 1);
    vt_enc_put_u64(e, VT_SERIES_VRAM_FREE);
    vt_enc_put_f64(e, (double)(mib << 20));
    vt_child_send(s->child);
}

static void ready(struct state *s)
{
    bool engine = strcmp(s->role, "engine") == 0;
    struct vt_enc *e = vt_child_begin(s->child, VT_F_READY, 0);
    struct kv effective = {0};
    for (int k = 0; engine && k < VT_CFG_COUNT; k++) {
        char text[4096];
        enum vt_config_key key = (enum vt_config_key)k;
        if (reports(s, key))
            kv_set(&effective, vt_config_name(key), vt_config_text(s->cfg, key, text, sizeof text));
    }
    kv_put(&effective, e, VT_READY_EFFECTIVE);
    kv_clear(&effective);
    if (engine && s->vram != NULL)
        put_plan(e);
    if (engine) {
        int64_t slots = vt_config_int(s->cfg, VT_CFG_ENGINE_SLOTS),
                ctx = vt_config_int(s->cfg, VT_CFG_ENGINE_CTX_TOKENS);
        vt_enc_u64(e, VT_READY_POOL_TOKENS, (uint64_t)(slots * ctx));
        vt_enc_u64(e, VT_READY_SLOTS, (uint64_t)slots);
        vt_enc_u64(e, VT_READY_WINDOW, (uint64_t)ctx);
    }
    if (engine && s->vram != NULL)
        put_facts(e);
    vt_child_send(s->child);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct state *s = arg;
    s->ticks++;
    sd_event_source_set_time_relative(src, 50000);
    sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
    if (has(s, "stall-load") || has(s, "slow-load")) {
        if (s->ticks <= 2 || has(s, "slow-load"))
            vt_child_phase(s->child, VT_PHASE_WEIGHTS, s->ticks, 100, NULL);
        if (s->ticks < 100 || has(s, "stall-load"))
            return 0;
    }
    if (s->ticks == 1) {
        vt_child_phase(s->child, VT_PHASE_WEIGHTS, 1, 1, NULL);
    } else if (s->ticks == 2 || (has(s, "slow-load") && s->ticks == 100)) {
        ready(s);
    } else if (s->vram != NULL && strcmp(s->role, "engine") == 0 && s->ticks % 4 == 0) {
        tell_vram(s);
    } else if (s->ticks == 6) {
        if (has(s, "exit0"))
            sd_event_exit(s->ev, 0);
        if (has(s, "abort"))
            raise(SIGABRT);
        if (has(s, "exit78"))
            sd_event_exit(s->ev, 78);
        if (has(s, "bad-frame")) {
            vt_enc_u64(vt_child_begin(s->child, 0x7e, 0), 1, 1);
            vt_child_send(s->child);
        }
    }
    return 0;
}

static void on_welcome(void *arg, const uint8_t instance[16])
{
    struct state *s = arg;
    sd_event_add_time_relative(s->ev, &s->timer, CLOCK_MONOTONIC, 50000, 1000, on_timer, s);
}

static void on_beat(void *arg, struct vt_enc *e)
{
    struct state *s = arg;
    bool stuck = has(s, "heartbeat-only") && s->ticks > 6;
    s->step += !stuck;
    vt_enc_u64(e, VT_BEAT_STEP, s->step);
    vt_enc_u64(e, VT_BEAT_IN_FLIGHT, stuck);
    vt_enc_u64(e, VT_BEAT_OP, stuck ? 2 : 0);
}

static void done(struct state *s, const struct vt_frame *f, unsigned verb)
{
    struct vt_enc *e = vt_child_begin(s->child, VT_F_ORDER_DONE, f->id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, verb);
    vt_enc_u64(e, VT_ORDER_DONE_OK, 1);
    vt_child_send(s->child);
}

static void on_lifeline(void *arg, const struct vt_frame *f)
{
    struct state *s = arg;
    if (f->type != VT_F_ORDER)
        return;
    unsigned verb = (unsigned)vt_frame_u64(f, VT_ORDER_VERB, 0);
    if (has(s, "ignore-stop"))
        return;
    if (verb == VT_ORDER_STOP)
        sd_event_exit(s->ev, 0);
    else
        done(s, f, verb);
}

static void grandchild(void)
{
    if (fork() != 0)
        return;
    setsid();
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_NAME, "vt-grandchild");
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    static const struct vt_child_ops ops = {
        .on_welcome = on_welcome, .on_beat = on_beat, .on_lifeline = on_lifeline};
    struct vt_child_args a;
    struct vt_err err;
    struct state s = {.cfg = vt_config_new()};
    struct vt_clock clock = vt_clock_real();
    const char *dash = strrchr(argv[0], '-');
    s.role = dash != NULL ? dash + 1 : "engine";
    if (s.cfg == NULL || vt_child_args(&a, argc, argv, s.cfg, &err) < 0)
        return VT_EX_USAGE;
    s.fault = a.extra;
    s.vram = a.extra != NULL && strncmp(a.extra, "vram=", 5) == 0 ? a.extra + 5 : NULL;
    if (has(&s, "no-hello"))
        for (;;)
            pause();
    if (has(&s, "wrong-nonce"))
        a.nonce[0] ^= 1;
    if (has(&s, "wrong-gen"))
        a.gen++;
    if (has(&s, "grandchild"))
        grandchild();
    struct vt_log *log = vt_log_new(a.name, VT_SINK_STDERR, VT_LOG_INFO, 1);
    for (int i = 0; has(&s, "flood") && i < 5000; i++)
        vt_log(log, VT_LOG_INFO, "flood line %d", i);
    if (has(&s, "environment")) {
        for (char **p = environ; *p != NULL; p++)
            vt_log(log, VT_LOG_INFO, "env %s", *p);
    }
    if (sd_event_default(&s.ev) < 0 ||
        vt_child_new(&s.child, s.ev, &a, s.role, 0, &ops, &s, log, &clock, &err) < 0)
        return VT_EX_INTERNAL;
    vt_log(log, VT_LOG_INFO, "test child %s %s", a.name, s.fault != NULL ? s.fault : "without fault");
    int rc = sd_event_loop(s.ev);
    vt_child_free(s.child);
    vt_log_free(log);
    sd_event_source_disable_unref(s.timer);
    sd_event_unref(s.ev);
    vt_config_free(s.cfg);
    return rc;
}
