#include "lifeline.h"

#include "child_priv.h"
#include "device.h"
#include "events.h"
#include "launch.h"
#include "links.h"
#include "ops.h"
#include "profiles.h"
#include "store_ask.h"
#include "suspects.h"
#include "tele.h"

#include "handshake.h"
#include "hash.h"

#include <unistd.h>

#define MAX_FRAME (1u << 20)
#define QUEUE     64
#define PER_TURN  64
#define BEAT_MS   1000

static void protocol_error(struct child *c, const char *what, const uint8_t *buf, size_t len)
{
    char hex[129], text[256];
    vt_hex(buf, len < 64 ? len : 64, hex);
    vt_log(c->sup->log, VT_LOG_WARNING, "%s: lifeline: %s; the frame begins with %s", c->name, what, hex);
    snprintf(text, sizeof text, "protocol error on its lifeline: %.200s", what);
    child_kill(c, CLASS_PROTOCOL, text);
}

static void send_raw(struct child *c, int packed)
{
    if (packed == 0)
        vt_sock_send(c->life, c->enc.buf, c->enc.len, NULL);
}

static void hello(struct child *c, const struct vt_frame *f)
{
    struct sup *s = c->sup;
    struct vt_hello want = {
        .role = c->info->role, .name = c->name, .gen = c->gen, .pid = (uint32_t)c->pid, .nonce = c->nonce};
    struct vt_err err;
    if (vt_hello_check(f, &want, &err) < 0) {
        event_text(s, EVENT_NOTE, c, VT_LOG_ERR, "refused (code %d): %s", err.code, err.text);
        snprintf(c->detail, sizeof c->detail, "refused: %.240s", err.text);
        send_raw(c, vt_reject_pack(&c->enc, &err, c->life_link, NULL));
        return;
    }
    /* Also the answer to a repeated HELLO: the first WELCOME may have been lost. */
    send_raw(c, vt_welcome_pack(&c->enc, s->instance, BEAT_MS, MAX_FRAME, c->life_link, NULL));
    if (!c->welcomed) {
        c->welcomed = true;
        child_hello(c);
    }
}

static void beat(struct child *c, const struct vt_frame *f)
{
    struct live_beat b = {.step = vt_frame_u64(f, VT_BEAT_STEP, 0),
                          .step_age_us = vt_frame_u64(f, VT_BEAT_STEP_AGE, 0),
                          .in_flight = (uint32_t)vt_frame_u64(f, VT_BEAT_IN_FLIGHT, 0),
                          .op = (uint8_t)vt_frame_u64(f, VT_BEAT_OP, 0),
                          .wait = (uint8_t)vt_frame_u64(f, VT_BEAT_WAIT, 0)};
    live_beat(&c->live, &b, sup_now(c->sup));
    c->rss_anon = vt_frame_u64(f, VT_BEAT_RSS_ANON, 0);
    c->pinned_host = vt_frame_u64(f, VT_BEAT_PINNED_HOST, 0);
}

static void order_done(struct child *c, const struct vt_frame *f)
{
    unsigned verb = (unsigned)vt_frame_u64(f, VT_ORDER_DONE_VERB, 0);
    if (verb == VT_ORDER_CANARY) {
        live_canary_answered(&c->live, sup_now(c->sup));
        profiles_canary(c->sup, c, f);
    } else if (verb == VT_ORDER_DRAIN && c->state == VT_CHILD_DRAINING)
        child_order(c, VT_ORDER_STOP, 0, 2000, 0, -1);
    else
        ops_order_done(c->sup, c, f);
}

/* What a child has to tell besides its state; the words are what an operator looks for. */
static const char *note_name(uint64_t event, enum vt_level *level)
{
    static const struct {
        const char *name;
        enum vt_level level;
    } names[] = {[VT_NOTE_SIGNAL] = {"signal from outside", VT_LOG_NOTICE},
                 [VT_NOTE_RESTORE_USELESS] = {"restore_useless", VT_LOG_WARNING},
                 [VT_NOTE_PEER_STUCK] = {"peer stuck", VT_LOG_WARNING},
                 [VT_NOTE_RESTORE_POOR] = {"restores do not pay", VT_LOG_WARNING},
                 [VT_NOTE_SPEC_POOR] = {"guesses do not pay", VT_LOG_WARNING},
                 [VT_NOTE_SPEC_BLIND] = {"guesses are not verified", VT_LOG_ERR},
                 [VT_NOTE_STORE] = {"store", VT_LOG_WARNING}};
    bool known = event < sizeof names / sizeof names[0] && names[event].name != NULL;
    *level = known ? names[event].level : VT_LOG_NOTICE;
    return known ? names[event].name : "note";
}

static void note(struct child *c, const struct vt_frame *f)
{
    enum vt_level level;
    uint64_t event = vt_frame_u64(f, VT_NOTE_EVENT, 0);
    const msgpack_object_map *m = vt_frame_map(f, VT_NOTE_FIELDS);
    char key[64] = "", value[200] = "";
    if (m != NULL && m->size > 0) {
        vt_obj_str(&m->ptr[0].key, key, sizeof key);
        vt_obj_str(&m->ptr[0].val, value, sizeof value);
    }
    const char *name = note_name(event, &level);
    event_text(c->sup, EVENT_NOTE, c, level, "%s: %s=%s", name, key, value);
}

/* The whole conversation of a welcomed child. */
static void take(struct child *c, const struct vt_frame *f)
{
    switch (f->type) {
    case VT_F_HELLO: hello(c, f); break;
    case VT_F_BEAT: beat(c, f); break;
    case VT_F_PHASE: child_phase(c, f); break;
    case VT_F_READY: child_ready(c, f); break;
    case VT_F_ORDER_DONE: order_done(c, f); break;
    case VT_F_LINK_STATE: links_state(c->sup, c, f); break;
    case VT_F_NOTE: note(c, f); break;
    case VT_F_FATAL: child_fatal(c, f); break;
    case VT_F_T_ENGINE:
    case VT_F_T_STORE:
        tele_relay(c->sup, f);
        if (f->type == VT_F_T_ENGINE)
            device_take(c->sup, c, f);
        break;
    case VT_F_LAUNCH_LAST_IS:
    case VT_F_LAUNCH_PUT_DONE:
        if (c->role == ROLE_STORE)
            launch_from_store(c->sup, f);
        break;
    case VT_F_SUSPECT:
        if (c->role == ROLE_GATEWAY)
            suspects_said(c->sup, f);
        break;
    case VT_F_STORE_SAID:
        if (c->role == ROLE_STORE)
            store_ask_said(c->sup, f);
        break;
    case VT_F_PONG:
    case VT_F_BYE:
    case VT_F_GW_STATS: break;
    default:
        c->stale_frames++;
        if (f->type >= VT_FRAME_MUST)
            child_kill(c, CLASS_PROTOCOL, "it sent a frame that must be understood and is not");
        break;
    }
}

static bool take_bytes(void *arg, const uint8_t *buf, size_t len)
{
    struct child *c = arg;
    struct vt_frame f;
    struct vt_err err;
    if (vt_frame_open(&f, buf, len, MAX_FRAME, &err) < 0) {
        protocol_error(c, err.text, buf, len);
        return c->life != NULL;
    }
    c->recent[c->n_recent++ % sizeof c->recent] = f.type;
    if (f.type == VT_F_HELLO)
        hello(c, &f);
    else if (c->welcomed && f.link == c->life_link)
        take(c, &f);
    else
        c->stale_frames++;
    vt_frame_close(&f);
    return c->life != NULL;
}

static void take_some(struct child *c, int max)
{
    if (c->life != NULL)
        vt_sock_drain(c->life, max, take_bytes, c);
}

static int on_frame(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    take_some(arg, PER_TURN);
    return 0;
}

static int on_pipe(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct child *c = arg;
    pid_t pid = 0;
    uid_t uid = 0;
    unsigned ev = c->life != NULL ? vt_sock_events(c->life, &pid, &uid) : 0;
    if (ev & VT_SOCK_REFUSED)
        event_text(c->sup, EVENT_NOTE, c, VT_LOG_WARNING,
                   "pid %d of uid %u tried its lifeline and was refused", (int)pid, (unsigned)uid);
    if ((ev & VT_SOCK_DOWN) && c->welcomed && c->life_down_at == 0)
        c->life_down_at = sup_now(c->sup); /* its process may be ending: the pidfd will tell */
    return 0;
}

int lifeline_listen(struct child *c, struct vt_err *err)
{
    struct sup *s = c->sup;
    struct vt_sock_opts o = {
        .max_frame = MAX_FRAME, .queue = QUEUE, .peer_uid = s->run_uid, .peer_pid = c->pid};
    c->welcomed = false;
    c->life_down_at = 0;
    c->n_recent = 0;
    if (vt_sock_listen(&c->life, c->life_path, &o, err) < 0)
        return -1;
    if (s->run_uid != geteuid() && chown(c->life_path, s->run_uid, s->run_gid) < 0)
        return vt_fail_errno(err, VT_E_OS, "%s", c->life_path);
    if (child_watch(c, &c->on_frame, vt_sock_recv_fd(c->life), on_frame) < 0 ||
        child_watch(c, &c->on_pipe, vt_sock_event_fd(c->life), on_pipe) < 0)
        return vt_fail(err, VT_E_OS, "event source for the lifeline of %s", c->name);
    return 0;
}

void lifeline_drain(struct child *c)
{
    take_some(c, 4096);
}

void lifeline_close(struct child *c)
{
    if (c->on_frame != NULL)
        sd_event_source_set_enabled(c->on_frame, SD_EVENT_OFF);
    if (c->on_pipe != NULL)
        sd_event_source_set_enabled(c->on_pipe, SD_EVENT_OFF);
    vt_sock_close(c->life);
    if (c->life != NULL)
        unlink(c->life_path);
    c->life = NULL;
    c->welcomed = false;
}
