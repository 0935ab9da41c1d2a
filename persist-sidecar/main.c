/* vitriol-store: the child of vitriold that keeps checkpoints. The main thread has the links, the beats and the lifeline;
 * everything that may wait for a disk is on the database thread (worker.h). */
#include "build_id.h"
#include "check.h"
#include "link.h"
#include "sandbox.h"
#include "series.h"
#include "worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEND_AGAIN_US VT_MS(10)
#define NOTE_EVERY_US VT_SEC(60)
#define PENDING_MAX   4096 /* answers that one engine may leave unread before its link is given up */

struct pending { /* a frame that found its link's queue full */
    struct pending *next;
    struct worker_out *o;
};

struct conn {
    struct conn *next;
    struct vt_link *link;
    struct pending *head, **tail;
    size_t n;
};

struct app {
    sd_event *ev;
    struct vt_clock clock;
    struct vt_log *log;
    struct vt_config *cfg;
    struct vt_child_args args;
    struct vt_child *child;
    struct worker *worker;
    struct conn *conns;
    sd_event_source *news, *second, *again;
    bool ready, stopping;
    uint64_t noted_us[STORE_EV_BUDGET + 1]; /* by event of the store */
    char dir[4096];
};

/* ---- out ---- */

static struct conn *conn_of(struct app *a, uint32_t link)
{
    for (struct conn *c = a->conns; c != NULL; c = c->next)
        if (vt_link_id(c->link) == link)
            return c;
    return NULL;
}

/* Sends what waits; true when nothing is left. */
static bool flush(struct conn *c)
{
    while (c->head != NULL) {
        struct pending *p = c->head;
        struct vt_err err;
        if (vt_link_send_frame(c->link, p->o->frame, p->o->len, &err) < 0 && err.code == VT_E_BUSY)
            return false;
        c->head = p->next;
        if (c->head == NULL)
            c->tail = &c->head;
        c->n--;
        worker_out_free(p->o);
        free(p);
    }
    return true;
}

static int on_again(sd_event_source *src, uint64_t usec, void *arg)
{
    struct app *a = arg;
    bool all = true;
    for (struct conn *c = a->conns; c != NULL; c = c->next)
        all = flush(c) && all;
    if (all)
        return 0;
    sd_event_source_set_time_relative(src, SEND_AGAIN_US);
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

static void send_frame(struct app *a, struct worker_out *o)
{
    struct conn *c = conn_of(a, o->link);
    struct vt_err err;
    if (c == NULL) {
        if (o->len > 2 && o->frame[2] >= VT_F_LAUNCH_LAST && o->frame[2] <= VT_F_STORE_SAID)
            vt_child_send_frame(a->child, o->frame, o->len);
        worker_out_free(o);
        return;
    }
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL || c->n >= PENDING_MAX) {
        free(p);
        worker_out_free(o);
        vt_fail(&err, VT_E_LIMIT, "the engine does not read the store's answers");
        vt_link_fail(c->link, &err);
        return;
    }
    p->o = o;
    *c->tail = p;
    c->tail = &p->next;
    c->n++;
    if (!flush(c)) {
        sd_event_source_set_time_relative(a->again, SEND_AGAIN_US);
        sd_event_source_set_enabled(a->again, SD_EVENT_ONESHOT);
    }
}

static void put_setting(struct app *a, struct vt_enc *e, enum vt_config_key k)
{
    char text[4096];
    vt_enc_put_str(e, vt_config_name(k));
    vt_enc_put_str(e, vt_config_text(a->cfg, k, text, sizeof text));
}

static void send_ready(struct app *a)
{
    static const enum vt_config_key keys[] = {/* ascending by name, as maps are */
                                              VT_CFG_PATHS_STATE_DIR,       VT_CFG_STORE_BALLAST_MIB,
                                              VT_CFG_STORE_CK_IDLE_MS,      VT_CFG_STORE_CKPT_TXN_MIB,
                                              VT_CFG_STORE_MAX_MIB_PER_DAY, VT_CFG_STORE_MAX_MIB_PER_HOUR,
                                              VT_CFG_STORE_MIN_FREE_MIB,    VT_CFG_STORE_QUOTA_MIB,
                                              VT_CFG_STORE_RETAIN_DAYS,     VT_CFG_STORE_UNSAFE_FS};
    unsigned n = sizeof keys / sizeof *keys;
    struct vt_enc *e = vt_child_begin(a->child, VT_F_READY, 0);
    vt_enc_map(e, VT_READY_EFFECTIVE, n);
    for (unsigned i = 0; i < n; i++)
        put_setting(a, e, keys[i]);
    vt_child_send(a->child);
    a->ready = true;
    vt_log(a->log, VT_LOG_INFO, "the store is ready: %s", a->dir);
}

static int exit_of(const struct vt_err *err)
{
    switch (err->code) {
    case VT_E_CORRUPT:
    case VT_E_INTERNAL: return VT_EX_STORE_UNUSABLE;
    default: return vt_err_exit(err);
    }
}

/* To the list of events; what comes again and again, as damaged blocks do, is in the log. */
static void note(struct app *a, unsigned ev, const char *text)
{
    static const char *const names[] = {
        [STORE_EV_REBUILT] = "store_rebuilt", [STORE_EV_UNCLEAN] = "unclean_stop",
        [STORE_EV_DISK_FULL] = "disk_full",   [STORE_EV_BAD_BLOCK] = "bad_block",
        [STORE_EV_QUOTA] = "quota",           [STORE_EV_BUDGET] = "write_budget"};
    char cut[128];
    uint64_t now = vt_mono(&a->clock);
    if (ev >= sizeof names / sizeof names[0] ||
        (a->noted_us[ev] != 0 && now - a->noted_us[ev] < NOTE_EVERY_US))
        return;
    a->noted_us[ev] = now;
    snprintf(cut, sizeof cut, "%.127s", text);
    vt_child_note(a->child, VT_NOTE_STORE, names[ev], cut);
}

static void take_news(struct app *a, struct worker_out *o)
{
    struct conn *c;
    switch (o->what) {
    case WORKER_OPENED: send_ready(a); break;
    case WORKER_FRAME: send_frame(a, o); return; /* owns it now */
    case WORKER_EVENT: note(a, (unsigned)o->err.code, o->err.text); break;
    case WORKER_FAIL:
        if ((c = conn_of(a, o->link)) != NULL)
            vt_link_fail(c->link, &o->err);
        break;
    case WORKER_BROKEN:
        vt_child_fatal(a->child, &o->err);
        sd_event_exit(a->ev, exit_of(&o->err));
        break;
    case WORKER_STOPPED: vt_child_leave(a->child, 0, VT_ORDER_STOP); break;
    }
    worker_out_free(o);
}

static int on_news(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct app *a = arg;
    for (struct worker_out *o; (o = worker_take(a->worker)) != NULL;)
        take_news(a, o);
    return 0;
}

/* ---- telemetry ---- */

static uint64_t mib(const struct vt_config *cfg, enum vt_config_key k)
{
    return (uint64_t)vt_config_int(cfg, k) << 20;
}

static void put_count(struct vt_enc *e, enum vt_series id, uint64_t v)
{
    vt_enc_put_u64(e, id);
    vt_enc_put_u64(e, v);
}

static void put_gauge(struct vt_enc *e, enum vt_series id, double v)
{
    vt_enc_put_u64(e, id);
    vt_enc_put_f64(e, v);
}

static bool is_slow(const struct worker_pulse *p, uint64_t now)
{
    return p->sync_since_us != 0 && now - p->sync_since_us > VT_SEC(1);
}

static void send_telemetry(struct app *a)
{
    struct store_facts f;
    struct worker_pulse p;
    worker_facts(a->worker, &f);
    worker_pulse(a->worker, &p);
    const struct store_io *io = worker_io(a->worker);
    uint64_t wall = vt_wall(&a->clock),
             age = f.last_commit_us != 0 && wall > f.last_commit_us ? wall - f.last_commit_us : 0;
    struct vt_enc *e = vt_child_begin(a->child, VT_F_T_STORE, 0);
    vt_enc_str(e, VT_T_STORE_CHILD, a->args.name);
    vt_enc_u64(e, VT_T_STORE_GEN, a->args.gen);
    vt_enc_map(e, VT_T_STORE_COUNTERS, 7);
    put_count(e, VT_SERIES_STORE_COMMITS, f.saves);
    put_count(e, VT_SERIES_STORE_WRITTEN, atomic_load_explicit(&io->bytes_written, memory_order_relaxed));
    put_count(e, VT_SERIES_STORE_REFUSED, f.refused_clobber + f.refused_full + f.refused_quota + f.put_off);
    put_count(e, VT_SERIES_STORE_BAD_BLOCKS, f.bad_found);
    put_count(e, VT_SERIES_STORE_COLLECTED, f.collected);
    put_count(e, VT_SERIES_STORE_PUT_OFF, f.put_off);
    put_count(e, VT_SERIES_STORE_SCRUBBED, f.scrubbed_bytes);
    vt_enc_map(e, VT_T_STORE_GAUGES, 8);
    put_gauge(e, VT_SERIES_STORE_BYTES, (double)f.bytes);
    put_gauge(e, VT_SERIES_STORE_FREE, (double)f.fs_avail);
    put_gauge(e, VT_SERIES_STORE_HEADS, (double)f.heads);
    put_gauge(e, VT_SERIES_STORE_COMMIT_AGE, (double)age / 1e6);
    put_gauge(e, VT_SERIES_STORE_QUEUE, (double)p.queued);
    put_gauge(e, VT_SERIES_STORE_SLOW, is_slow(&p, vt_mono(&a->clock)));
    put_gauge(e, VT_SERIES_STORE_DAY, (double)f.day_bytes);
    put_gauge(e, VT_SERIES_STORE_DAY_BUDGET, (double)mib(a->cfg, VT_CFG_STORE_MAX_MIB_PER_DAY));
    vt_child_send(a->child);
}

static int on_second(sd_event_source *src, uint64_t usec, void *arg)
{
    struct app *a = arg;
    if (a->ready)
        send_telemetry(a);
    sd_event_source_set_time_relative(src, VT_SEC(1));
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

static void on_beat(void *arg, struct vt_enc *beat)
{
    struct app *a = arg;
    struct worker_pulse p = {0};
    uint64_t now = vt_mono(&a->clock);
    if (a->worker != NULL)
        worker_pulse(a->worker, &p);
    bool busy = p.op != 0 || p.queued > 0 || p.sync_since_us != 0;
    uint64_t last = p.step_us > p.op_since_us ? p.step_us : p.op_since_us;
    vt_enc_u64(beat, VT_BEAT_STEP, p.steps);
    vt_enc_u64(beat, VT_BEAT_STEP_AGE, busy && now > last ? now - last : 0);
    vt_enc_u64(beat, VT_BEAT_IN_FLIGHT, busy);
    vt_enc_u64(beat, VT_BEAT_OP, p.op);
    vt_enc_u64(beat, VT_BEAT_OP_AGE, p.op != 0 && now > p.op_since_us ? now - p.op_since_us : 0);
    vt_enc_u64(beat, VT_BEAT_WAIT, is_slow(&p, now) ? 3 : 0);
    vt_enc_u64(beat, VT_BEAT_QUEUE, p.queued);
}

/* ---- in ---- */

/* The frame's objects die with the callback, so its bytes are made again for the other thread. */
static void forward(struct app *a, const struct vt_frame *f)
{
    msgpack_sbuffer sb;
    msgpack_packer pk;
    msgpack_object body = {.type = MSGPACK_OBJECT_MAP};
    body.via.map = *f->body;
    msgpack_sbuffer_init(&sb);
    msgpack_packer_init(&pk, &sb, msgpack_sbuffer_write);
    if (msgpack_pack_array(&pk, 5) != 0 || msgpack_pack_uint8(&pk, VT_WIRE_VERSION) != 0 ||
        msgpack_pack_uint8(&pk, f->type) != 0 || msgpack_pack_uint64(&pk, f->id) != 0 ||
        msgpack_pack_uint32(&pk, f->link) != 0 || msgpack_pack_object(&pk, body) != 0) {
        vt_log(a->log, VT_LOG_ERR, "no memory for a frame");
        msgpack_sbuffer_destroy(&sb);
        return;
    }
    size_t len = sb.size;
    worker_frame(a->worker, (uint8_t *)msgpack_sbuffer_release(&sb), len);
}

static void on_link(void *arg, struct vt_link *link, const struct vt_frame *f)
{
    struct app *a = arg;
    if (f->type >= VT_F_CK_SALT && f->type <= VT_F_CK_HEADS)
        forward(a, f);
}

static void on_link_up(void *arg, struct vt_link *link, const char *peer_role, void *bulk, size_t bulk_bytes)
{
    struct app *a = arg;
    struct vt_err err;
    struct conn *c = calloc(1, sizeof *c);
    /* A second mapping of the same pages, which the database thread unmaps when it has let go of them. */
    void *mine = bulk != NULL ? mremap(bulk, 0, bulk_bytes, MREMAP_MAYMOVE) : NULL;
    if (c == NULL || mine == MAP_FAILED || a->worker == NULL || a->stopping) {
        vt_fail(&err, VT_E_UNAVAILABLE, "the store cannot take a link now");
        if (mine != NULL && mine != MAP_FAILED)
            munmap(mine, bulk_bytes);
        free(c);
        vt_link_fail(link, &err);
        return;
    }
    c->link = link;
    c->tail = &c->head;
    c->next = a->conns;
    a->conns = c;
    worker_link_up(a->worker, vt_link_id(link), mine, bulk_bytes);
}

static void on_link_down(void *arg, struct vt_link *link)
{
    struct app *a = arg;
    for (struct conn **at = &a->conns; *at != NULL; at = &(*at)->next) {
        struct conn *c = *at;
        if (c->link != link)
            continue;
        *at = c->next;
        worker_link_down(a->worker, vt_link_id(link));
        while (c->head != NULL) {
            struct pending *p = c->head;
            c->head = p->next;
            worker_out_free(p->o);
            free(p);
        }
        free(c);
        return;
    }
}

static void order(struct app *a, const struct vt_frame *f)
{
    uint64_t verb = vt_frame_u64(f, VT_ORDER_VERB, 0);
    if (verb == VT_ORDER_STOP) {
        if (!a->stopping && a->worker != NULL)
            worker_stop(a->worker);
        else if (a->worker == NULL)
            vt_child_leave(a->child, 0, VT_ORDER_STOP);
        a->stopping = true;
        return;
    }
    /* Nothing else changes what a store does: it has no admission and no memory to give. */
    struct vt_enc *e = vt_child_begin(a->child, VT_F_ORDER_DONE, f->id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, verb);
    vt_enc_u64(e, VT_ORDER_DONE_OK, 1);
    vt_child_send(a->child);
}

static void on_lifeline(void *arg, const struct vt_frame *f)
{
    struct app *a = arg;
    switch (f->type) {
    case VT_F_ORDER: order(a, f); break;
    case VT_F_LAUNCH_LAST:
    case VT_F_LAUNCH_PUT:
    case VT_F_LAUNCH_END:
    case VT_F_STORE_ASK:
        if (a->worker != NULL && !a->stopping)
            forward(a, f);
        break;
    default: break;
    }
}

#define LAUNCHES_TOLD 100

/* ---- start ---- */

static struct serve_opts options(struct app *a)
{
    const struct vt_config *cfg = a->cfg;
    return (struct serve_opts){
        .store = {.dir = a->dir,
                  .quota = mib(cfg, VT_CFG_STORE_QUOTA_MIB),
                  .min_free = mib(cfg, VT_CFG_STORE_MIN_FREE_MIB),
                  .txn_bytes = mib(cfg, VT_CFG_STORE_CKPT_TXN_MIB),
                  .hour_bytes = mib(cfg, VT_CFG_STORE_MAX_MIB_PER_HOUR),
                  .day_bytes = mib(cfg, VT_CFG_STORE_MAX_MIB_PER_DAY),
                  .retain_us = VT_SEC(86400 * (uint64_t)vt_config_int(cfg, VT_CFG_STORE_RETAIN_DAYS)),
                  .ballast = mib(cfg, VT_CFG_STORE_BALLAST_MIB),
                  .unsafe_fs = vt_config_bool(cfg, VT_CFG_STORE_UNSAFE_FS),
                  .clock = &a->clock,
                  .log = a->log},
        .ck_idle_us = VT_MS(vt_config_int(cfg, VT_CFG_STORE_CK_IDLE_MS))};
}

static void on_welcome(void *arg, const uint8_t instance[16])
{
    struct app *a = arg;
    struct vt_err err;
    struct serve_opts o = options(a);
    if (a->worker != NULL)
        return;
    if (worker_start(&a->worker, &o, &err) < 0) {
        vt_child_fatal(a->child, &err);
        sd_event_exit(a->ev, vt_err_exit(&err));
        return;
    }
    if (sd_event_add_io(a->ev, &a->news, worker_fd(a->worker), EPOLLIN, on_news, a) < 0)
        sd_event_exit(a->ev, VT_EX_OS);
}

static int serve_child(int argc, char **argv, struct app *a, struct vt_err *err)
{
    static const struct vt_child_ops ops = {.on_welcome = on_welcome,
                                            .on_lifeline = on_lifeline,
                                            .on_beat = on_beat,
                                            .on_link_up = on_link_up,
                                            .on_link = on_link,
                                            .on_link_down = on_link_down};
    if (vt_child_args(&a->args, argc, argv, a->cfg, err) < 0)
        return -1;
    const char *dir = vt_config_str(a->cfg, VT_CFG_PATHS_STATE_DIR);
    if (dir[0] != '/' || strlen(dir) > sizeof a->dir - 64)
        return vt_fail(err, VT_E_CONFIG, "paths.state_dir = \"%s\": an absolute path is needed", dir);
    snprintf(a->dir, sizeof a->dir, "%s", dir);
    if (vt_sandbox_enter(err) < 0)
        return -1;
    vt_child_block_signals();
    a->log = vt_log_new(a->args.name, VT_SINK_STDERR, VT_LOG_INFO, 0);
    if (sd_event_new(&a->ev) < 0)
        return vt_fail(err, VT_E_OS, "no event loop");
    if (vt_child_new(&a->child, a->ev, &a->args, "store", 0, &ops, a, a->log, &a->clock, err) < 0)
        return -1;
    if (sd_event_add_time_relative(a->ev, &a->second, CLOCK_MONOTONIC, VT_SEC(1), 10000, on_second, a) < 0 ||
        sd_event_add_time_relative(a->ev, &a->again, CLOCK_MONOTONIC, SEND_AGAIN_US, 1000, on_again, a) < 0)
        return vt_fail(err, VT_E_OS, "no timers");
    return sd_event_loop(a->ev);
}

/* For a look from outside: nothing of it is changed but what a crash left undone. */
static int open_by_hand(const char *dir, struct store **s, struct vt_err *err)
{
    static struct vt_clock clock;
    clock = vt_clock_real();
    struct store_opts o = {.dir = dir,
                           .quota = UINT64_MAX,
                           .txn_bytes = 64u << 20,
                           .hour_bytes = UINT64_MAX,
                           .day_bytes = UINT64_MAX,
                           .retain_us = INT64_MAX,
                           .unsafe_fs = true,
                           .inspect = true,
                           .clock = &clock};
    return store_open(s, &o, err);
}

static int failed_by_hand(const struct vt_err *err)
{
    fprintf(stderr, "vitriol-store: %s\n", err->text);
    return exit_of(err);
}

static int launches(const char *dir)
{
    struct vt_err err;
    struct store *s;
    if (open_by_hand(dir, &s, &err) < 0)
        return failed_by_hand(&err);
    int rc = store_launch_list(s, LAUNCHES_TOLD, stdout, &err);
    store_close(s, false);
    return rc < 0 ? failed_by_hand(&err) : VT_EX_OK;
}

static int check(const char *dir)
{
    struct vt_err err;
    struct store *s;
    struct check_result r;
    if (open_by_hand(dir, &s, &err) < 0)
        return failed_by_hand(&err);
    int rc = store_check(s, stdout, &r, &err);
    store_close(s, false);
    if (rc < 0)
        return failed_by_hand(&err);
    printf("%" PRIu64 " heads, %" PRIu64 " blocks, %" PRIu64 " bytes read, %" PRIu64 " bad blocks, %" PRIu64
           " violations\n",
           r.heads, r.blocks, r.bytes, r.bad, r.violations);
    return r.violations == 0 ? VT_EX_OK : VT_EX_PAYLOAD;
}

int main(int argc, char **argv)
{
    struct vt_err err = {0};
    if (vt_told_version(argc, argv, "vitriol-store"))
        return VT_EX_OK;
    if (argc == 3 && strcmp(argv[1], "--check") == 0)
        return check(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--launches") == 0)
        return launches(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("vitriol-store is started by vitriold. By hand: vitriol-store --check DIR, vitriol-store "
             "--launches DIR, vitriol-store --version");
        return VT_EX_OK;
    }
    struct app *a = calloc(1, sizeof *a);
    if (a == NULL || (a->cfg = vt_config_new()) == NULL)
        return VT_EX_HOST_MEM;
    a->clock = vt_clock_real();
    int rc = serve_child(argc, argv, a, &err);
    if (rc < 0) {
        fprintf(stderr, "vitriol-store: %s\n", err.code != 0 ? err.text : strerror(-rc));
        rc = err.code != 0 ? vt_err_exit(&err) : VT_EX_OS;
    }
    vt_log_free(a->log);
    /* The database thread may be in the middle of a sync; nothing it holds outlives the process. */
    _exit(rc);
}
