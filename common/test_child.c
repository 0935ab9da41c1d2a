/* Plays vitriold's side of lifelines and data links with real sockets against real child processes, which are this program
 * started again. */
#include "build_id.h"
#include "handshake.h"
#include "hash.h"
#include "link.h"
#include "ring.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LINK 0x77

/* Limits of waits are those of a quiet machine; a busy one takes several times as long. */
enum { PATIENCE = 6 };

/* ---- the child under test ---- */

struct kid {
    sd_event *ev;
    struct vt_child *child;
    struct vt_link *link;
};

static void kid_welcome(void *arg, const uint8_t instance[16])
{
    struct kid *k = arg;
    char hex[33];
    vt_hex(instance, 16, hex);
    vt_child_note(k->child, 100, "instance", hex);
}

/* ORDER stop ends; level tells what was dropped; continue floods the data link and tells how much it took. */
static void kid_lifeline(void *arg, const struct vt_frame *f)
{
    struct kid *k = arg;
    char text[32];
    struct vt_err err = {0};
    if (f->type != VT_F_ORDER)
        return;
    uint64_t verb = vt_frame_u64(f, VT_ORDER_VERB, 0);
    if (verb == VT_ORDER_STOP) {
        vt_child_begin(k->child, VT_F_BYE, 0);
        vt_child_send(k->child);
        usleep(50000);
        sd_event_exit(k->ev, 0);
    } else if (verb == VT_ORDER_LEVEL) {
        snprintf(text, sizeof text, "%llu", (unsigned long long)vt_child_stale(k->child));
        vt_child_note(k->child, 101, "stale", text);
    } else if (verb == VT_ORDER_CONTINUE && k->link != NULL) {
        unsigned n = 0;
        do {
            vt_enc_u64(vt_link_begin(k->link, VT_F_CREDIT, 1), VT_CREDIT_ADD, 1);
        } while (vt_link_send(k->link, &err) == 0 && ++n < 100000);
        snprintf(text, sizeof text, "%d", err.code);
        vt_child_note(k->child, 102, "code", text);
    }
}

static void kid_up(void *arg, struct vt_link *l, const char *role, void *bulk, size_t bytes)
{
    struct kid *k = arg;
    struct vt_ring r;
    k->link = l;
    if (bulk != NULL && vt_ring_wrap(&r, bulk, bytes, vt_link_id(l), NULL) == 0)
        memcpy(vt_ring_slot(&r, 1, 6), "inside", 6);
    vt_enc_u64(vt_link_begin(l, VT_F_CREDIT, 5), VT_CREDIT_ADD, 1);
    vt_link_send(l, NULL);
}

/* Counts up to 1000 together with the peer. */
static void kid_link(void *arg, struct vt_link *l, const struct vt_frame *f)
{
    struct kid *k = arg;
    uint64_t n = vt_frame_u64(f, VT_CREDIT_ADD, 0);
    if (n == 1000)
        vt_child_note(k->child, 103, "counted", "1000");
    if (n >= 1000 || f->id != 5)
        return;
    vt_enc_u64(vt_link_begin(l, VT_F_CREDIT, 5), VT_CREDIT_ADD, n + 1);
    vt_link_send(l, NULL);
}

static void kid_down(void *arg, struct vt_link *l)
{
    struct kid *k = arg;
    k->link = NULL;
}

static int kid_main(int argc, char **argv)
{
    static const struct vt_child_ops ops = {.on_welcome = kid_welcome,
                                            .on_lifeline = kid_lifeline,
                                            .on_link_up = kid_up,
                                            .on_link = kid_link,
                                            .on_link_down = kid_down};
    struct kid k = {0};
    struct vt_child_args a;
    struct vt_err err;
    struct vt_clock clock = vt_clock_real();
    struct vt_config *cfg = vt_config_new();
    struct vt_log *log = vt_log_new("kid", VT_SINK_STDERR, VT_LOG_INFO, 1);
    if (vt_child_args(&a, argc, argv, cfg, &err) < 0 || sd_event_default(&k.ev) < 0 ||
        vt_child_new(&k.child, k.ev, &a, a.extra != NULL ? a.extra : "engine", 0, &ops, &k, log, &clock,
                     &err) < 0) {
        fprintf(stderr, "kid: %s\n", err.text);
        return 70;
    }
    const char *tell = getenv("VT_TEST_TELL"); /* to whom it matters that all this is done */
    if (tell != NULL && write(atoi(tell), "", 1) != 1)
        return 70;
    int rc = sd_event_loop(k.ev);
    vt_child_free(k.child);
    sd_event_unref(k.ev);
    vt_log_free(log);
    vt_config_free(cfg);
    return rc;
}

/* ---- vitriold's side ---- */

struct boss {
    struct vt_sock *s;
    pid_t pid;
    char path[108], name[32];
    uint8_t nonce[16];
    struct vt_enc enc;
};

static char dir[64];

static pid_t spawn(const char *path, const char *name, const char *role, const uint8_t nonce[16])
{
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (p[0] != VT_NONCE_FD)
            dup2(p[0], VT_NONCE_FD);
        setenv("VT_TEST_KID", "1", 1);
        execl("/proc/self/exe", "test_child", "--name", name, "--gen", "7", "--lifeline", path, "--set",
              "engine.slots=4", role, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(write(p[1], nonce, 16), 16);
    close(p[0]);
    close(p[1]);
    return pid;
}

static void boss_open(struct boss *b, const char *name, pid_t only, bool bad_nonce)
{
    static int serial;
    struct vt_err err;
    uint8_t given[16];
    memset(b, 0, sizeof *b);
    vt_enc_init(&b->enc);
    snprintf(b->name, sizeof b->name, "%s", name);
    snprintf(b->path, sizeof b->path, "%s/l.%s.%d", dir, name, ++serial);
    vt_random(b->nonce, sizeof b->nonce);
    memcpy(given, b->nonce, sizeof given);
    given[0] ^= bad_nonce;
    struct vt_sock_opts o = {.max_frame = 1 << 20, .queue = 64, .peer_uid = geteuid(), .peer_pid = only};
    if (vt_sock_listen(&b->s, b->path, &o, &err) < 0)
        fail_msg("%s", err.text);
    b->pid = spawn(b->path, name, "engine", given);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The next frame of that type within ms; frames of other types are skipped. The bytes stay until the next call. */
static bool frame_within(struct boss *b, uint8_t type, struct vt_frame *f, int ms)
{
    static uint8_t *held;
    static size_t held_len;
    uint64_t end = now_ms() + (uint64_t)ms;
    if (held != NULL)
        vt_sock_msg_free(held, held_len);
    held = NULL;
    while (now_ms() < end) {
        struct pollfd p = {.fd = vt_sock_recv_fd(b->s), .events = POLLIN};
        uint8_t *buf;
        size_t len;
        struct vt_err err;
        poll(&p, 1, 10);
        if (vt_sock_recv(b->s, &buf, &len) != 1)
            continue;
        if (vt_frame_open(f, buf, len, 1 << 20, &err) < 0)
            fail_msg("%s", err.text);
        if (f->type == type) {
            held = buf;
            held_len = len;
            return true;
        }
        vt_frame_close(f);
        vt_sock_msg_free(buf, len);
    }
    return false;
}

static bool wait_frame(struct boss *b, uint8_t type, struct vt_frame *f, int ms)
{
    return frame_within(b, type, f, ms * PATIENCE);
}

static void boss_send(struct boss *b)
{
    struct vt_err err;
    if (vt_enc_end(&b->enc, &err) < 0 || vt_sock_send(b->s, b->enc.buf, b->enc.len, &err) < 0)
        fail_msg("%s", err.text);
}

static void boss_welcome(struct boss *b)
{
    static const uint8_t instance[16] = "instance-of-test";
    struct vt_frame f;
    struct vt_err err;
    struct vt_hello want = {
        .role = "engine", .name = b->name, .gen = 7, .pid = (uint32_t)b->pid, .nonce = b->nonce};
    assert_true(wait_frame(b, VT_F_HELLO, &f, 3000));
    if (vt_hello_check(&f, &want, &err) < 0)
        fail_msg("%s", err.text);
    vt_frame_close(&f);
    assert_int_equal(vt_welcome_pack(&b->enc, instance, 20, 1 << 20, LINK, &err), 0);
    boss_send(b);
}

static void order(struct boss *b, unsigned verb)
{
    vt_enc_begin(&b->enc, VT_F_ORDER, 0, LINK);
    vt_enc_u64(&b->enc, VT_ORDER_VERB, verb);
    boss_send(b);
}

static int exit_code(pid_t pid, int ms)
{
    for (uint64_t end = now_ms() + (uint64_t)ms * PATIENCE; now_ms() < end; usleep(5000)) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return -1;
}

static void boss_close(struct boss *b)
{
    kill(b->pid, SIGKILL);
    waitpid(b->pid, NULL, 0);
    vt_sock_close(b->s);
    vt_enc_fini(&b->enc);
}

static bool wait_note(struct boss *b, unsigned event, char *value, size_t size, int ms)
{
    struct vt_frame f;
    while (wait_frame(b, VT_F_NOTE, &f, ms)) {
        bool is = vt_frame_u64(&f, VT_NOTE_EVENT, 0) == event;
        if (is)
            vt_obj_str(&vt_frame_map(&f, VT_NOTE_FIELDS)->ptr[0].val, value, size);
        vt_frame_close(&f);
        if (is)
            return true;
    }
    return false;
}

/* ---- lifeline ---- */

static void test_lifeline(void **state)
{
    (void)state;
    struct boss b;
    struct vt_frame f;
    char text[64];
    boss_open(&b, "engine0", 0, false);
    boss_welcome(&b);
    assert_true(wait_note(&b, 100, text, sizeof text, 2000));
    assert_string_equal(text, "696e7374616e63652d6f662d74657374");
    for (int i = 0; i < 3; i++) {
        assert_true(wait_frame(&b, VT_F_BEAT, &f, 1000));
        assert_int_equal(f.link, LINK);
        assert_true(vt_frame_u64(&f, VT_BEAT_RSS_ANON, 0) > 100000);
        vt_frame_close(&f);
    }
    vt_enc_begin(&b.enc, VT_F_PING, 4711, LINK);
    vt_enc_u64(&b.enc, VT_PING_TOKEN, 1234567);
    boss_send(&b);
    assert_true(wait_frame(&b, VT_F_PONG, &f, 1000));
    assert_int_equal(f.id, 4711);
    assert_int_equal(vt_frame_u64(&f, VT_PONG_TOKEN, 0), 1234567);
    vt_frame_close(&f);
    /* A frame of another link and an unknown type are counted, not obeyed. */
    vt_enc_begin(&b.enc, VT_F_ORDER, 0, LINK + 1);
    vt_enc_u64(&b.enc, VT_ORDER_VERB, VT_ORDER_STOP);
    boss_send(&b);
    vt_enc_begin(&b.enc, 0x6f, 0, LINK);
    boss_send(&b);
    order(&b, VT_ORDER_LEVEL);
    assert_true(wait_note(&b, 101, text, sizeof text, 1000));
    assert_string_equal(text, "2");
    order(&b, VT_ORDER_STOP);
    assert_true(wait_frame(&b, VT_F_BYE, &f, 1000));
    vt_frame_close(&f);
    assert_int_equal(exit_code(b.pid, 2000), 0);
    boss_close(&b);
}

static void test_hello_repeats_until_welcome(void **state)
{
    (void)state;
    struct boss b;
    struct vt_frame f;
    boss_open(&b, "engine0", 0, false);
    for (int i = 0; i < 3; i++) {
        assert_true(wait_frame(&b, VT_F_HELLO, &f, 1000));
        vt_frame_close(&f);
    }
    boss_welcome(&b);
    assert_true(wait_frame(&b, VT_F_BEAT, &f, 1000));
    vt_frame_close(&f);
    boss_close(&b);
}

static void refuse(struct boss *b, const struct vt_err *why)
{
    assert_int_equal(vt_reject_pack(&b->enc, why, LINK, NULL), 0);
    boss_send(b);
    assert_int_equal(exit_code(b->pid, 2000), VT_EX_PROTOCOL);
    boss_close(b);
}

static void test_wrong_nonce(void **state)
{
    (void)state;
    struct boss b;
    struct vt_frame f;
    struct vt_err err;
    boss_open(&b, "engine0", 0, true);
    struct vt_hello want = {
        .role = "engine", .name = "engine0", .gen = 7, .pid = (uint32_t)b.pid, .nonce = b.nonce};
    assert_true(wait_frame(&b, VT_F_HELLO, &f, 3000));
    assert_int_equal(vt_hello_check(&f, &want, &err), -1);
    assert_int_equal(err.code, VT_E_NONCE);
    vt_frame_close(&f);
    refuse(&b, &err);
}

/* The kernel's word about the peer is heard before any byte: nothing arrives, the child gives up by itself. */
static void test_wrong_pid(void **state)
{
    (void)state;
    struct boss b;
    struct vt_frame f;
    pid_t pid;
    uid_t uid;
    boss_open(&b, "engine0", getpid(), false);
    bool refused = false;
    for (int i = 0; i < 10 * PATIENCE && !refused; i++) {
        assert_false(frame_within(&b, VT_F_HELLO, &f, 100));
        refused = vt_sock_events(b.s, &pid, &uid) & VT_SOCK_REFUSED;
    }
    assert_true(refused);
    assert_false(frame_within(&b, VT_F_HELLO, &f, 1000));
    assert_int_equal(pid, b.pid);
    assert_int_equal(uid, geteuid());
    assert_int_equal(exit_code(b.pid, 8000), VT_EX_LOST_SUPERVISOR);
    boss_close(&b);
}

static void check_hello(const char *role, const char *name, unsigned gen, unsigned pid, const char *build,
                        unsigned vmin, unsigned vmax, int code)
{
    static const uint8_t nonce[16] = {1};
    struct vt_hello want = {.role = "store", .name = "store", .gen = 3, .pid = 99, .nonce = nonce};
    struct vt_enc e;
    struct vt_frame f;
    struct vt_err err = {0};
    vt_enc_init(&e);
    vt_enc_begin(&e, VT_F_HELLO, 0, 0);
    vt_enc_str(&e, VT_HELLO_ROLE, role);
    vt_enc_str(&e, VT_HELLO_NAME, name);
    vt_enc_u64(&e, VT_HELLO_GEN, gen);
    vt_enc_u64(&e, VT_HELLO_PID, pid);
    vt_enc_str(&e, VT_HELLO_BUILD, build);
    vt_enc_u64(&e, VT_HELLO_VMIN, vmin);
    vt_enc_u64(&e, VT_HELLO_VMAX, vmax);
    vt_enc_bin(&e, VT_HELLO_NONCE, nonce, 16);
    assert_int_equal(vt_enc_end(&e, NULL), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, 4096, NULL), 0);
    assert_int_equal(vt_hello_check(&f, &want, &err), code == 0 ? 0 : -1);
    assert_int_equal(err.code, code);
    vt_frame_close(&f);
    vt_enc_fini(&e);
}

static void test_hello_checks(void **state)
{
    (void)state;
    check_hello("store", "store", 3, 99, VT_BUILD_ID, 1, 1, 0);
    check_hello("store", "store", 3, 99, VT_BUILD_ID, 1, 7, 0);
    check_hello("store", "store", 3, 99, VT_BUILD_ID, 2, 7, VT_E_VERSION);
    check_hello("store", "store", 3, 99, VT_BUILD_ID, 0, 0, VT_E_VERSION);
    check_hello("store", "store", 3, 99, "another", 1, 1, VT_E_VERSION);
    check_hello("engine", "store", 3, 99, VT_BUILD_ID, 1, 1, VT_E_CREDENTIALS);
    check_hello("store", "store2", 3, 99, VT_BUILD_ID, 1, 1, VT_E_CREDENTIALS);
    check_hello("store", "store", 2, 99, VT_BUILD_ID, 1, 1, VT_E_CREDENTIALS);
    check_hello("store", "store", 3, 98, VT_BUILD_ID, 1, 1, VT_E_CREDENTIALS);
}

static void test_bad_frame_ends_the_lifeline(void **state)
{
    (void)state;
    struct boss b;
    struct vt_frame f;
    static const char *const bad[] = {"\x95\x01\x0a\x00\x77\x81\x01", "\x95\x01\x7f\x00\x77\x80"};
    static const size_t len[] = {7, 6};
    for (int i = 0; i < 2; i++) {
        boss_open(&b, "engine0", 0, false);
        boss_welcome(&b);
        assert_true(wait_frame(&b, VT_F_BEAT, &f, 1000));
        vt_frame_close(&f);
        assert_int_equal(vt_sock_send(b.s, bad[i], len[i], NULL), 0);
        unsigned ev = 0;
        for (int n = 0; n < 100 * PATIENCE && !(ev & VT_SOCK_DOWN); n++, usleep(10000))
            ev |= vt_sock_events(b.s, NULL, NULL);
        assert_true(ev & VT_SOCK_DOWN);
        if (i == 0)
            assert_int_equal(exit_code(b.pid, 7000), VT_EX_LOST_SUPERVISOR);
        boss_close(&b);
    }
}

static void test_signals_are_not_obeyed(void **state)
{
    (void)state;
    struct boss b;
    struct vt_frame f;
    char text[64];
    boss_open(&b, "engine0", 0, false);
    boss_welcome(&b);
    assert_true(wait_frame(&b, VT_F_BEAT, &f, 1000));
    vt_frame_close(&f);
    kill(b.pid, SIGINT);
    assert_true(wait_note(&b, VT_NOTE_SIGNAL, text, sizeof text, 1000));
    assert_memory_equal(text, "INT from pid", 12);
    kill(b.pid, SIGTERM);
    assert_true(wait_note(&b, VT_NOTE_SIGNAL, text, sizeof text, 1000));
    assert_true(wait_frame(&b, VT_F_BEAT, &f, 1000));
    vt_frame_close(&f);
    boss_close(&b);
}

/* A supervisor that does not read for a while: beats are dropped, the rest arrives in order. */
static void test_stopped_supervisor(void **state)
{
    (void)state;
    struct boss b;
    char text[64];
    boss_open(&b, "engine0", 0, false);
    boss_welcome(&b);
    usleep(300000);
    for (int i = 0; i < 200; i++) {
        while (vt_sock_send(b.s, "\x95\x01\x05\x00\x77\x81\x01\x01", 8, NULL) < 0)
            usleep(1000);
        kill(b.pid, SIGTERM);
    }
    usleep(2500000);
    order(&b, VT_ORDER_LEVEL);
    assert_true(wait_note(&b, 101, text, sizeof text, 3000));
    boss_close(&b);
}

/* An intermediate parent that is killed: its engine dies with it, its gateway gets a SIGTERM and obeys. */
static void test_parent_dies(void **state)
{
    (void)state;
    static const char *const role[] = {"engine", "gateway"};
    static const int code[] = {128 + SIGKILL, VT_EX_LOST_SUPERVISOR};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int i = 0; i < 2; i++) {
        int p[2];
        pid_t kid;
        char told;
        uint8_t nonce[16] = {0};
        assert_int_equal(pipe(p), 0);
        pid_t mid = fork();
        if (mid == 0) {
            char tell[12];
            snprintf(tell, sizeof tell, "%d", p[1]);
            setenv("VT_TEST_TELL", tell, 1);
            kid = spawn("/nowhere/l.x.1", "x", role[i], nonce);
            if (write(p[1], &kid, sizeof kid) != sizeof kid)
                _exit(1);
            pause();
            _exit(0);
        }
        assert_int_equal(read(p[0], &kid, sizeof kid), sizeof kid);
        assert_int_equal(read(p[0], &told, 1), 1);
        kill(mid, SIGKILL);
        waitpid(mid, NULL, 0);
        uint64_t began = now_ms();
        assert_int_equal(exit_code(kid, 5000), code[i]);
        assert_true(now_ms() - began < 4000); /* without that signal it would go on for 5 s */
        close(p[0]);
        close(p[1]);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* ---- data links ---- */

static void link_open(struct boss *b, uint32_t link, unsigned side, const struct boss *peer,
                      const uint8_t nonce[16], const char *ring)
{
    char path[160];
    snprintf(path, sizeof path, "%s/d.%08x", dir, link);
    vt_enc_begin(&b->enc, VT_F_LINK_OPEN, 0, LINK);
    vt_enc_u64(&b->enc, VT_LINK_OPEN_LINK, link);
    vt_enc_str(&b->enc, VT_LINK_OPEN_PATH, path);
    vt_enc_u64(&b->enc, VT_LINK_OPEN_SIDE, side);
    vt_enc_str(&b->enc, VT_LINK_OPEN_PEER_ROLE, "engine");
    vt_enc_u64(&b->enc, VT_LINK_OPEN_PEER_PID, (uint64_t)peer->pid);
    vt_enc_bin(&b->enc, VT_LINK_OPEN_NONCE, nonce, 16);
    if (ring != NULL) {
        vt_enc_str(&b->enc, VT_LINK_OPEN_BULK_PATH, ring);
        vt_enc_u64(&b->enc, VT_LINK_OPEN_BULK_BYTES, vt_ring_bytes(4, 4096));
    }
    boss_send(b);
}

static unsigned wait_state(struct boss *b, uint32_t link, int ms, char *why, size_t size)
{
    struct vt_frame f;
    unsigned s = 0;
    if (!wait_frame(b, VT_F_LINK_STATE, &f, ms))
        return 0;
    assert_int_equal(vt_frame_u64(&f, VT_LINK_STATE_LINK, 0), link);
    s = (unsigned)vt_frame_u64(&f, VT_LINK_STATE_STATE, 0);
    if (why != NULL)
        vt_frame_str(&f, VT_KEY_TEXT, why, size);
    vt_frame_close(&f);
    return s;
}

static void pair_of_kids(struct boss *a, struct boss *b)
{
    boss_open(a, "engine0", 0, false);
    boss_open(b, "engine1", 0, false);
    boss_welcome(a);
    boss_welcome(b);
}

static void connect_kids(struct boss *a, struct boss *b, uint32_t link, const char *ring)
{
    uint8_t nonce[16];
    vt_random(nonce, sizeof nonce);
    link_open(a, link, 0, b, nonce, ring);
    assert_int_equal(wait_state(a, link, 2000, NULL, 0), 1);
    link_open(b, link, 1, a, nonce, ring);
    assert_int_equal(wait_state(b, link, 2000, NULL, 0), 2);
    assert_int_equal(wait_state(a, link, 2000, NULL, 0), 2);
}

static void test_data_link(void **state)
{
    (void)state;
    struct boss a, b;
    struct vt_ring r;
    struct vt_err err;
    char ring[108], text[64];
    pair_of_kids(&a, &b);
    snprintf(ring, sizeof ring, "%s/b.00000021", dir);
    assert_int_equal(vt_ring_create(ring, 0x21, 4, 4096, &err), 0);
    assert_int_equal(vt_ring_map(&r, ring, 0x21, &err), 0);
    connect_kids(&a, &b, 0x21, ring);
    unlink(ring);
    assert_true(wait_note(&b, 103, text, sizeof text, 3000) || wait_note(&a, 103, text, sizeof text, 3000));
    assert_memory_equal(vt_ring_slot(&r, 1, 6), "inside", 6);
    vt_ring_unmap(&r);
    /* The peer stops: sends end in "busy", nothing waits. Then it is killed: the link goes down. */
    kill(b.pid, SIGSTOP);
    order(&a, VT_ORDER_CONTINUE);
    assert_true(wait_note(&a, 102, text, sizeof text, 3000));
    assert_int_equal(atoi(text), VT_E_BUSY);
    kill(b.pid, SIGKILL);
    assert_int_equal(wait_state(&a, 0x21, 3000, text, sizeof text), 3);
    assert_string_equal(text, "the other side is gone");
    boss_close(&a);
    boss_close(&b);
}

static void test_data_link_wrong_nonce(void **state)
{
    (void)state;
    struct boss a, b;
    char text[128];
    uint8_t n1[16] = {1}, n2[16] = {2};
    pair_of_kids(&a, &b);
    link_open(&a, 0x31, 0, &b, n1, NULL);
    assert_int_equal(wait_state(&a, 0x31, 2000, NULL, 0), 1);
    link_open(&b, 0x31, 1, &a, n2, NULL);
    assert_int_equal(wait_state(&a, 0x31, 2000, text, sizeof text), 3);
    assert_non_null(strstr(text, "nonce"));
    assert_int_equal(wait_state(&b, 0x31, 2000, text, sizeof text), 3);
    assert_non_null(strstr(text, "refused"));
    /* The next number is as good as new. */
    connect_kids(&a, &b, 0x32, NULL);
    boss_close(&a);
    boss_close(&b);
}

/* The listener expects somebody else: the dialer's bytes are never read. */
static void test_data_link_wrong_pid(void **state)
{
    (void)state;
    struct boss a, b;
    char text[128];
    uint8_t nonce[16] = {1};
    pair_of_kids(&a, &b);
    link_open(&a, 0x41, 0, &a, nonce, NULL);
    assert_int_equal(wait_state(&a, 0x41, 2000, NULL, 0), 1);
    link_open(&b, 0x41, 1, &a, nonce, NULL);
    assert_int_equal(wait_state(&b, 0x41, 7000, text, sizeof text), 3);
    /* Turned away before the handshake: seen as a lost peer, or not at all. */
    assert_true(strcmp(text, "the other side is gone") == 0 || strcmp(text, "no handshake in time") == 0);
    boss_close(&a);
    boss_close(&b);
}

static void test_data_link_paths(void **state)
{
    (void)state;
    struct boss a;
    char path[160], text[256];
    uint8_t nonce[16] = {1};
    boss_open(&a, "engine0", 0, false);
    boss_welcome(&a);
    snprintf(path, sizeof path, "%s/d.00000051", dir);
    assert_int_equal(symlink("/nowhere", path), 0);
    link_open(&a, 0x51, 0, &a, nonce, NULL);
    assert_int_equal(wait_state(&a, 0x51, 2000, text, sizeof text), 3);
    assert_non_null(strstr(text, "there already"));
    struct stat st;
    assert_int_equal(lstat(path, &st), 0); /* the stranger is left alone */
    link_open(&a, 0x52, 0, &a, nonce, "/etc/passwd");
    assert_int_equal(wait_state(&a, 0x52, 2000, text, sizeof text), 3);
    assert_non_null(strstr(text, "not beside the lifeline"));
    snprintf(path, sizeof path, "%s/b.missing", dir);
    link_open(&a, 0x53, 0, &a, nonce, path);
    assert_int_equal(wait_state(&a, 0x53, 2000, text, sizeof text), 3);
    boss_close(&a);
}

int main(int argc, char **argv)
{
    if (getenv("VT_TEST_KID") != NULL)
        return kid_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lifeline),
        cmocka_unit_test(test_hello_repeats_until_welcome),
        cmocka_unit_test(test_wrong_nonce),
        cmocka_unit_test(test_wrong_pid),
        cmocka_unit_test(test_hello_checks),
        cmocka_unit_test(test_bad_frame_ends_the_lifeline),
        cmocka_unit_test(test_signals_are_not_obeyed),
        cmocka_unit_test(test_stopped_supervisor),
        cmocka_unit_test(test_parent_dies),
        cmocka_unit_test(test_data_link),
        cmocka_unit_test(test_data_link_wrong_nonce),
        cmocka_unit_test(test_data_link_wrong_pid),
        cmocka_unit_test(test_data_link_paths),
    };
    snprintf(dir, sizeof dir, "/tmp/vtchild-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd) == 0 ? rc : 1;
}
