#include "child_priv.h"

#include "hash.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LIFELINE_MAX   (1u << 20)
#define LIFELINE_QUEUE 64
#define LOST_US        VT_SEC(5)

static const int guarded[] = {SIGTERM, SIGINT, SIGHUP};

int vt_timer(sd_event *ev, sd_event_source **src, uint64_t after_us, sd_event_time_handler_t fn, void *arg)
{
    return sd_event_add_time_relative(ev, src, CLOCK_MONOTONIC, after_us, 1000, fn, arg);
}

int vt_unknown(struct vt_child *c, const struct vt_frame *f)
{
    c->stale++;
    return f->type >= VT_FRAME_MUST ? -1 : 0;
}

void vt_bad_frame(struct vt_child *c, const char *where, const uint8_t *buf, size_t len,
                  const struct vt_err *why)
{
    char hex[33];
    vt_hex(buf, len < 16 ? len : 16, hex);
    vt_log(c->log, VT_LOG_WARNING, "%s: %s; it begins with %s", where, why->text, hex);
}

/* ---- end ---- */

static void close_lifeline(struct vt_child *c)
{
    c->recv_src = sd_event_source_disable_unref(c->recv_src);
    c->event_src = sd_event_source_disable_unref(c->event_src);
    c->hello_timer = sd_event_source_disable_unref(c->hello_timer);
    vt_sock_close(c->sock);
    c->sock = NULL;
}

static int on_left(sd_event_source *src, uint64_t usec, void *arg)
{
    struct vt_child *c = arg;
    return sd_event_exit(c->ev, VT_EX_OK);
}

void vt_child_leave(struct vt_child *c, uint64_t id, unsigned verb)
{
    struct vt_enc *e = vt_child_begin(c, VT_F_ORDER_DONE, id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, verb);
    vt_enc_u64(e, VT_ORDER_DONE_OK, 1);
    vt_child_send(c);
    vt_enc_u64(vt_child_begin(c, VT_F_BYE, 0), VT_BYE_REASON, 0);
    vt_child_send(c);
    /* The socket's own threads need a moment to write what was queued. */
    if (sd_event_add_time_relative(c->ev, NULL, CLOCK_MONOTONIC, VT_MS(50), 1000, on_left, c) < 0)
        sd_event_exit(c->ev, VT_EX_OK);
}

static void become_orphan(struct vt_child *c, const char *why)
{
    if (c->orphan)
        return;
    c->orphan = true;
    vt_log(c->log, VT_LOG_ERR, "the supervisor is lost: %s", why);
    if (c->ops->on_orphan == NULL) {
        sd_event_exit(c->ev, VT_EX_LOST_SUPERVISOR);
        return;
    }
    /* Whatever on_orphan starts may hang; the default action of this signal does not. */
    alarm(3);
    c->ops->on_orphan(c->arg);
}

static int on_lost(sd_event_source *src, uint64_t usec, void *arg)
{
    become_orphan(arg, "no lifeline for 5 s");
    return 0;
}

/* A lifeline is never repaired: its process is alive and suspect, and the supervisor decides. */
static void lose_lifeline(struct vt_child *c, const char *why)
{
    if (c->sock == NULL)
        return;
    vt_log(c->log, VT_LOG_WARNING, "lifeline lost: %s", why);
    close_lifeline(c);
    if (c->lost_timer == NULL && vt_timer(c->ev, &c->lost_timer, LOST_US, on_lost, c) < 0)
        become_orphan(c, "no timer");
}

static int on_parent(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct vt_child *c = arg;
    c->parent_src = sd_event_source_disable_unref(c->parent_src);
    become_orphan(c, "its process ended");
    return 0;
}

static int on_signal(sd_event_source *src, const struct signalfd_siginfo *si, void *arg)
{
    struct vt_child *c = arg;
    char text[64];
    if (getppid() != c->parent) {
        become_orphan(c, "its process ended");
        return 0;
    }
    snprintf(text, sizeof text, "%s from pid %u", sigabbrev_np((int)si->ssi_signo), si->ssi_pid);
    vt_log(c->log, VT_LOG_NOTICE, "%s is not obeyed while the supervisor lives", text);
    vt_child_note(c, VT_NOTE_SIGNAL, "signal", text);
    return 0;
}

/* ---- sending ---- */

static bool droppable(const uint8_t *frame)
{
    return frame[2] == VT_F_BEAT || frame[2] == VT_F_T_ENGINE || frame[2] == VT_F_T_STORE ||
           frame[2] == VT_F_GW_STATS;
}

static void send_bytes(struct vt_child *c, const uint8_t *buf, size_t len)
{
    struct vt_err err;
    if (vt_wait_send(&c->waiting, c->sock, buf, len, &err) == 0)
        return;
    if (err.code != VT_E_BUSY && err.code != VT_E_NOMEM) {
        vt_log(c->log, VT_LOG_ERR, "lifeline: %s frame not sent: %s", vt_frame_name(buf[2]), err.text);
        return;
    }
    if (!droppable(buf) && vt_wait_keep(&c->waiting, buf, len) < 0)
        lose_lifeline(c, "the supervisor does not read");
}

struct vt_enc *vt_child_begin(struct vt_child *c, uint8_t type, uint64_t id)
{
    vt_enc_begin(&c->enc, type, id, c->link_id);
    return &c->enc;
}

int vt_child_send(struct vt_child *c)
{
    struct vt_err err;
    if (vt_enc_end(&c->enc, &err) < 0) {
        vt_log(c->log, VT_LOG_ERR, "%s", err.text);
        return -1;
    }
    if (c->sock == NULL)
        return -1;
    send_bytes(c, c->enc.buf, c->enc.len);
    return c->sock == NULL ? -1 : 0;
}

int vt_child_send_frame(struct vt_child *c, const uint8_t *buf, size_t len)
{
    if (c->sock == NULL)
        return -1;
    send_bytes(c, buf, len);
    return c->sock == NULL ? -1 : 0;
}

void vt_child_phase(struct vt_child *c, unsigned phase, uint64_t done, uint64_t total, const char *text)
{
    struct vt_enc *e = vt_child_begin(c, VT_F_PHASE, 0);
    vt_enc_u64(e, VT_PHASE_PHASE, phase);
    vt_enc_u64(e, VT_PHASE_DONE, done);
    vt_enc_u64(e, VT_PHASE_TOTAL, total);
    if (text != NULL)
        vt_enc_str(e, VT_KEY_TEXT, text);
    vt_child_send(c);
}

void vt_child_note(struct vt_child *c, unsigned event, const char *key, const char *value)
{
    struct vt_enc *e = vt_child_begin(c, VT_F_NOTE, 0);
    vt_enc_u64(e, VT_NOTE_EVENT, event);
    vt_enc_map(e, VT_NOTE_FIELDS, 1);
    vt_enc_put_str(e, key);
    vt_enc_put_str(e, value);
    vt_child_send(c);
}

void vt_child_fatal(struct vt_child *c, const struct vt_err *err)
{
    vt_child_fatal_as(c, err, vt_err_exit(err));
}

void vt_child_fatal_as(struct vt_child *c, const struct vt_err *err, int exit_code)
{
    vt_log(c->log, VT_LOG_ERR, "%s", err->text);
    if (c->sock == NULL)
        return;
    struct vt_enc *e = vt_child_begin(c, VT_F_FATAL, 0);
    vt_enc_u64(e, VT_FATAL_EXIT_CODE, (uint64_t)exit_code);
    vt_enc_err(e, err);
    vt_child_send(c);
    /* The library's own thread carries the frame; the caller is about to exit under it. */
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

uint64_t vt_child_stale(const struct vt_child *c)
{
    return c->stale;
}

/* ---- handshake and beats ---- */

static void send_hello(struct vt_child *c)
{
    struct vt_hello h = {.role = c->role,
                         .name = c->args.name,
                         .gen = c->args.gen,
                         .pid = (uint32_t)getpid(),
                         .caps = c->caps,
                         .nonce = c->args.nonce};
    if (vt_hello_pack(&c->enc, &h, 0, NULL) == 0)
        vt_sock_send(c->sock, c->enc.buf, c->enc.len, NULL);
}

static int on_hello_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct vt_child *c = arg;
    if (c->welcomed)
        return 0;
    if (vt_mono(c->clock) - c->started > VT_MS(VT_HELLO_MAX_MS)) {
        close_lifeline(c);
        become_orphan(c, "no WELCOME within 5 s");
        return 0;
    }
    send_hello(c);
    return sd_event_source_set_time_relative(src, VT_MS(VT_HELLO_EVERY_MS)) < 0 ||
                   sd_event_source_set_enabled(src, SD_EVENT_ONESHOT) < 0
               ? -1
               : 0;
}

/* Bytes of resident pages that no file backs: what a kill would give back. */
static uint64_t rss_anon(void)
{
    unsigned long size, resident, shared;
    FILE *f = fopen("/proc/self/statm", "re");
    int n = f != NULL ? fscanf(f, "%lu %lu %lu", &size, &resident, &shared) : 0;
    if (f != NULL)
        fclose(f);
    return n == 3 && resident > shared ? (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void send_beat(struct vt_child *c)
{
    struct vt_enc *e = vt_child_begin(c, VT_F_BEAT, 0);
    if (c->ops->on_beat != NULL)
        c->ops->on_beat(c->arg, e);
    else
        vt_enc_u64(e, VT_BEAT_STEP, c->turns);
    if (e->last_key < VT_BEAT_RSS_ANON)
        vt_enc_u64(e, VT_BEAT_RSS_ANON, rss_anon());
    vt_child_send(c);
}

static int on_beat_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct vt_child *c = arg;
    c->turns++;
    if (c->sock != NULL) {
        vt_wait_flush(&c->waiting, c->sock);
        send_beat(c);
    }
    sd_event_source_set_time_relative(src, c->beat_us);
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

static void take_welcome(struct vt_child *c, const struct vt_frame *f)
{
    static const uint8_t none[16];
    uint64_t beat = vt_frame_u64(f, VT_WELCOME_BEAT_MS, 1000);
    const uint8_t *instance = vt_frame_bin_n(f, VT_WELCOME_INSTANCE, 16);
    if (c->welcomed)
        return;
    c->welcomed = true;
    c->link_id = (uint32_t)vt_frame_u64(f, VT_WELCOME_LINK, 0);
    c->beat_us = VT_MS(beat < 10 ? 10 : beat > 10000 ? 10000 : beat);
    if (vt_timer(c->ev, &c->beat_timer, c->beat_us, on_beat_timer, c) < 0) {
        lose_lifeline(c, "no timer");
        return;
    }
    send_beat(c);
    if (c->ops->on_welcome != NULL)
        c->ops->on_welcome(c->arg, instance != NULL ? instance : none);
}

static void take_reject(struct vt_child *c, const struct vt_frame *f)
{
    char text[512];
    vt_frame_str(f, VT_KEY_TEXT, text, sizeof text);
    vt_log(c->log, VT_LOG_ERR, "refused by the supervisor: %s", text);
    c->orphan = true; /* what follows is no loss any more */
    close_lifeline(c);
    sd_event_exit(c->ev, VT_EX_PROTOCOL);
}

/* ---- receiving ---- */

static void pong(struct vt_child *c, const struct vt_frame *f)
{
    struct vt_enc *e = vt_child_begin(c, VT_F_PONG, f->id);
    vt_enc_u64(e, VT_PONG_TOKEN, vt_frame_u64(f, VT_PING_TOKEN, 0));
    vt_child_send(c);
}

static void take_frame(struct vt_child *c, const struct vt_frame *f)
{
    if (f->type == VT_F_WELCOME || f->type == VT_F_REJECT) {
        if (f->type == VT_F_WELCOME)
            take_welcome(c, f);
        else
            take_reject(c, f);
        return;
    }
    if (!c->welcomed || f->link != c->link_id) {
        if (c->stale++ == 0)
            vt_log(c->log, VT_LOG_WARNING, "lifeline: a %s frame of link %08x is dropped, this is %08x",
                   vt_frame_name(f->type), f->link, c->link_id);
        return;
    }
    if (f->type == VT_F_PING)
        pong(c, f);
    else if (f->type == VT_F_LINK_OPEN)
        vt_link_open(c, f);
    else if (vt_frame_name(f->type)[0] == '?') {
        if (vt_unknown(c, f) < 0)
            lose_lifeline(c, "a frame that must be understood is not");
    } else if (c->ops->on_lifeline != NULL)
        c->ops->on_lifeline(c->arg, f);
}

static bool take_bytes(void *arg, const uint8_t *buf, size_t len)
{
    struct vt_child *c = arg;
    struct vt_frame f;
    struct vt_err err;
    if (vt_frame_open(&f, buf, len, LIFELINE_MAX, &err) < 0) {
        vt_bad_frame(c, "lifeline", buf, len, &err);
        lose_lifeline(c, "protocol error");
        return false;
    }
    take_frame(c, &f);
    vt_frame_close(&f);
    return c->sock != NULL;
}

static void drain(struct vt_child *c, int max)
{
    c->turns++;
    if (c->sock != NULL && vt_sock_drain(c->sock, max, take_bytes, c) < 0)
        lose_lifeline(c, "socket broken");
}

static int on_recv(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    drain(arg, VT_DRAIN_MAX);
    return 0;
}

static int on_event(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct vt_child *c = arg;
    pid_t pid;
    uid_t uid;
    unsigned ev = vt_sock_events(c->sock, &pid, &uid);
    if (ev & VT_SOCK_REFUSED)
        vt_log(c->log, VT_LOG_WARNING, "lifeline: pid %d of uid %u listens there, not the supervisor",
               (int)pid, (unsigned)uid);
    if ((ev & VT_SOCK_UP) && !c->welcomed)
        send_hello(c);
    if (ev & VT_SOCK_DOWN) {
        /* What came before the end is still in the queue: a REJECT, for one. */
        drain(c, INT_MAX);
        lose_lifeline(c, "closed by the other side");
    }
    return 0;
}

/* ---- making ---- */

static int watch_parent(struct vt_child *c, struct vt_err *err)
{
    bool finishes = strcmp(c->role, "gateway") == 0 || strcmp(c->role, "shield") == 0;
    c->parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, finishes ? SIGTERM : SIGKILL) < 0)
        return vt_fail_errno(err, VT_E_OS, "parent-death signal");
    c->parent_fd = (int)syscall(SYS_pidfd_open, c->parent, 0);
    /* Checked after the signal was asked for: a parent that died before it sends none. */
    if (c->parent_fd < 0 || getppid() != c->parent)
        return vt_fail(err, VT_E_UNAVAILABLE, "the parent process ended before this one had started");
    if (sd_event_add_io(c->ev, &c->parent_src, c->parent_fd, EPOLLIN, on_parent, c) < 0)
        return vt_fail(err, VT_E_OS, "event source for the parent");
    return 0;
}

void vt_child_block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof guarded / sizeof guarded[0]; i++)
        sigaddset(&set, guarded[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* fails for an unknown way of setting alone */
}

static int guard_signals(struct vt_child *c, struct vt_err *err)
{
    vt_child_block_signals();
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return vt_fail_errno(err, VT_E_OS, "signal mask");
    for (size_t i = 0; i < sizeof guarded / sizeof guarded[0]; i++) {
        if (sd_event_add_signal(c->ev, &c->signal_src[i], guarded[i], on_signal, c) < 0)
            return vt_fail(err, VT_E_OS, "event source for signal %d", guarded[i]);
    }
    return 0;
}

static int dial(struct vt_child *c, struct vt_err *err)
{
    struct vt_sock_opts o = {
        .max_frame = LIFELINE_MAX, .queue = LIFELINE_QUEUE, .peer_uid = (uid_t)-1, .peer_pid = c->parent};
    if (vt_sock_dial(&c->sock, c->args.lifeline, &o, err) < 0)
        return -1;
    if (sd_event_add_io(c->ev, &c->recv_src, vt_sock_recv_fd(c->sock), EPOLLIN, on_recv, c) < 0 ||
        sd_event_add_io(c->ev, &c->event_src, vt_sock_event_fd(c->sock), EPOLLIN, on_event, c) < 0 ||
        vt_timer(c->ev, &c->hello_timer, VT_MS(VT_HELLO_EVERY_MS), on_hello_timer, c) < 0)
        return vt_fail(err, VT_E_OS, "event sources for the lifeline");
    return 0;
}

int vt_child_new(struct vt_child **out, sd_event *ev, const struct vt_child_args *a, const char *role,
                 uint64_t caps, const struct vt_child_ops *ops, void *arg, struct vt_log *log,
                 const struct vt_clock *clock, struct vt_err *err)
{
    struct vt_child *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the child");
    c->ev = sd_event_ref(ev);
    c->args = *a;
    c->caps = caps;
    c->ops = ops;
    c->arg = arg;
    c->log = log;
    c->clock = clock;
    c->parent_fd = -1;
    c->started = vt_mono(clock);
    vt_wait_init(&c->waiting);
    vt_enc_init(&c->enc);
    snprintf(c->role, sizeof c->role, "%s", role);
    snprintf(c->dir, sizeof c->dir, "%s", a->lifeline);
    char *slash = strrchr(c->dir, '/');
    if (slash != NULL)
        slash[1] = 0;
    if (watch_parent(c, err) < 0 || guard_signals(c, err) < 0 || dial(c, err) < 0) {
        vt_child_free(c);
        return -1;
    }
    *out = c;
    return 0;
}

void vt_child_free(struct vt_child *c)
{
    if (c == NULL)
        return;
    vt_link_close_all(c);
    close_lifeline(c);
    sd_event_source_disable_unref(c->beat_timer);
    sd_event_source_disable_unref(c->lost_timer);
    sd_event_source_disable_unref(c->parent_src);
    sd_event_source_disable_unref(c->sweep_src);
    for (size_t i = 0; i < sizeof guarded / sizeof guarded[0]; i++)
        sd_event_source_disable_unref(c->signal_src[i]);
    vt_wait_fini(&c->waiting);
    if (c->parent_fd >= 0)
        close(c->parent_fd);
    vt_enc_fini(&c->enc);
    sd_event_unref(c->ev);
    free(c);
}
