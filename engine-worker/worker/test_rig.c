#include "test_rig.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_FRAME (8u << 20)

uint64_t rig_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- peers ---- */

static void peer_init(struct peer *p, uint32_t link)
{
    memset(p, 0, sizeof *p);
    p->link = link;
    p->tail = &p->first;
    vt_enc_init(&p->enc);
}

void got_free(struct got *g)
{
    if (g == NULL)
        return;
    vt_frame_close(&g->f);
    if (g->own)
        free(g->buf);
    else
        vt_sock_msg_free(g->buf, g->len);
    free(g);
}

static void peer_close(struct peer *p)
{
    vt_sock_close(p->s);
    if (p->tail != NULL)
        vt_enc_fini(&p->enc);
    while (p->first != NULL) {
        struct got *g = p->first;
        p->first = g->next;
        got_free(g);
    }
    memset(p, 0, sizeof *p);
}

struct vt_enc *peer_begin(struct peer *p, uint8_t type, uint64_t id)
{
    vt_enc_begin(&p->enc, type, id, p->link);
    return &p->enc;
}

void peer_send(struct peer *p)
{
    struct vt_err err;
    if (vt_enc_end(&p->enc, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; vt_sock_send(p->s, p->enc.buf, p->enc.len, &err) < 0; i++) {
        if (err.code != VT_E_BUSY || i > 2000)
            fail_msg("%s", err.text);
        usleep(1000);
    }
}

static struct got *keep(struct peer *p, uint8_t *buf, size_t len)
{
    struct vt_err err;
    struct got *g = calloc(1, sizeof *g);
    g->buf = buf;
    g->len = len;
    if (vt_frame_open(&g->f, buf, len, MAX_FRAME, &err) < 0)
        fail_msg("%s", err.text);
    *p->tail = g;
    p->tail = &g->next;
    return g;
}

/* For the tests each row of a STEP is a TOKENS frame of its own. */
static void split_step(struct peer *p, const struct vt_frame *f)
{
    const msgpack_object_array *rows = vt_frame_array(f, VT_STEP_TOKENS);
    struct vt_enc e;
    vt_enc_init(&e);
    p->steps++;
    for (unsigned i = 0; i < rows->size; i++) {
        const msgpack_object_array *row = vt_array_array(rows, i);
        size_t n;
        const uint8_t *ids = vt_array_bin(row, 2, &n);
        vt_enc_begin(&e, VT_F_TOKENS, vt_array_u64(row, 0, 0), p->link);
        vt_enc_u64(&e, VT_TOKENS_FIRST, vt_array_u64(row, 1, 0));
        vt_enc_bin(&e, VT_TOKENS_IDS, ids, n);
        assert_int_equal(vt_enc_end(&e, NULL), 0);
        uint8_t *copy = malloc(e.len);
        memcpy(copy, e.buf, e.len);
        keep(p, copy, e.len)->own = true;
    }
    vt_enc_fini(&e);
}

static void peer_read(struct rig *r, struct peer *p)
{
    uint8_t *buf;
    size_t len;
    while (p->s != NULL && !p->deaf && vt_sock_recv(p->s, &buf, &len) == 1) {
        struct vt_frame f;
        struct vt_err err;
        if (vt_frame_open(&f, buf, len, MAX_FRAME, &err) < 0)
            fail_msg("%s", err.text);
        bool kept = false;
        if (p == &r->store && r->shelf != NULL && f.type >= VT_F_CK_SALT && f.type < VT_F_STG_HELLO)
            shelf_frame(r, &f);
        else if (f.type == VT_F_STEP)
            split_step(p, &f);
        else
            kept = keep(p, buf, len) != NULL;
        vt_frame_close(&f);
        if (!kept)
            vt_sock_msg_free(buf, len);
    }
}

static void turn_once(struct rig *r, int ms)
{
    struct peer *const all[] = {&r->life, &r->gw, &r->store};
    struct pollfd fd[3];
    for (int i = 0; i < 3; i++) {
        bool on = all[i]->s != NULL && !all[i]->deaf;
        fd[i] = (struct pollfd){.fd = on ? vt_sock_recv_fd(all[i]->s) : -1, .events = POLLIN};
    }
    poll(fd, 3, ms);
    for (int i = 0; i < 3; i++)
        peer_read(r, all[i]);
}

void rig_turn(struct rig *r, int ms)
{
    uint64_t end = rig_ms() + (uint64_t)ms;
    for (uint64_t now = rig_ms(); now < end; now = rig_ms())
        turn_once(r, (int)(end - now < 20 ? end - now : 20));
}

static struct got *pick(struct peer *p, uint8_t type, uint64_t id)
{
    for (struct got **at = &p->first; *at != NULL; at = &(*at)->next) {
        struct got *g = *at;
        if (g->f.type != type || (id != 0 && g->f.id != id))
            continue;
        *at = g->next;
        if (p->tail == &g->next)
            p->tail = at;
        g->next = NULL;
        return g;
    }
    return NULL;
}

struct got *rig_look(struct rig *r, struct peer *p, uint8_t type, uint64_t id, int ms)
{
    uint64_t end = rig_ms() + (uint64_t)ms;
    struct got *g = pick(p, type, id);
    while (g == NULL && rig_ms() < end) {
        turn_once(r, 5);
        g = pick(p, type, id);
    }
    return g;
}

struct got *rig_wait(struct rig *r, struct peer *p, uint8_t type, uint64_t id, int ms)
{
    return rig_look(r, p, type, id, ms * RIG_PATIENCE);
}

unsigned rig_count(const struct peer *p, uint8_t type, uint64_t id)
{
    unsigned n = 0;
    for (const struct got *g = p->first; g != NULL; g = g->next)
        n += g->f.type == type && (id == 0 || g->f.id == id);
    return n;
}

/* ---- life ---- */

/* The same key? */
static bool is_instead(const char *instead, const char *set)
{
    return instead != NULL && strncmp(instead, set, strcspn(set, "=") + 1) == 0;
}

static pid_t spawn(struct rig *r, const char *extra, const char *const *sets)
{
    char *argv[64];
    char gen[16];
    int p[2], n = 0;
    snprintf(gen, sizeof gen, "%u", r->gen);
    argv[n++] = getenv("VT_TEST_ENGINE");
    assert_non_null(argv[0]);
    argv[n++] = "--name";
    argv[n++] = "engine0";
    argv[n++] = "--gen";
    argv[n++] = gen;
    argv[n++] = "--lifeline";
    argv[n++] = r->lifeline;
    for (; sets != NULL && *sets != NULL; sets++) {
        argv[n++] = "--set";
        argv[n++] = (char *)(is_instead(r->instead, *sets) ? r->instead : *sets);
    }
    if (extra != NULL)
        argv[n++] = (char *)extra;
    argv[n] = NULL;
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (p[0] != VT_NONCE_FD)
            dup2(p[0], VT_NONCE_FD);
        execv(argv[0], argv);
        _exit(127);
    }
    assert_int_equal(write(p[1], r->nonce, 16), 16);
    close(p[0]);
    close(p[1]);
    return pid;
}

void rig_start(struct rig *r, const char *extra, const char *const *sets)
{
    struct vt_err err;
    if (r->dir[0] == 0) {
        strcpy(r->dir, "/tmp/vtrig-XXXXXX");
        assert_non_null(mkdtemp(r->dir));
    }
    r->gen++;
    snprintf(r->lifeline, sizeof r->lifeline, "%s/l.engine0.%u", r->dir, r->gen);
    vt_random(r->nonce, sizeof r->nonce);
    peer_init(&r->life, RIG_LINK);
    struct vt_sock_opts o = {.max_frame = 1 << 20, .queue = 64, .peer_uid = geteuid()};
    if (vt_sock_listen(&r->life.s, r->lifeline, &o, &err) < 0)
        fail_msg("%s", err.text);
    r->pid = spawn(r, extra, sets);
    struct got *g = rig_wait(r, &r->life, VT_F_HELLO, 0, 10000);
    assert_non_null(g);
    struct vt_hello want = {
        .role = "engine", .name = "engine0", .gen = r->gen, .pid = (uint32_t)r->pid, .nonce = r->nonce};
    if (vt_hello_check(&g->f, &want, &err) < 0)
        fail_msg("%s", err.text);
    got_free(g);
    assert_int_equal(vt_welcome_pack(&r->life.enc, r->nonce, 100, 1 << 20, RIG_LINK, NULL), 0);
    peer_send(&r->life);
}

static void link_open(struct rig *r, char kind, uint32_t link, unsigned side, const char *role,
                      const uint8_t nonce[16], const char *ring)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%c.%08x", r->dir, kind, link);
    struct vt_enc *e = peer_begin(&r->life, VT_F_LINK_OPEN, 0);
    vt_enc_u64(e, VT_LINK_OPEN_LINK, link);
    vt_enc_str(e, VT_LINK_OPEN_PATH, path);
    vt_enc_u64(e, VT_LINK_OPEN_SIDE, side);
    vt_enc_str(e, VT_LINK_OPEN_PEER_ROLE, role);
    vt_enc_u64(e, VT_LINK_OPEN_PEER_PID, (uint64_t)getpid());
    vt_enc_bin(e, VT_LINK_OPEN_NONCE, nonce, 16);
    if (ring != NULL) {
        vt_enc_str(e, VT_LINK_OPEN_BULK_PATH, ring);
        vt_enc_u64(e, VT_LINK_OPEN_BULK_BYTES, vt_ring_bytes(VT_RING_SLOTS, VT_RING_SLOT_SIZE));
    }
    peer_send(&r->life);
}

static void wait_state(struct rig *r, uint32_t link, unsigned want)
{
    bool mine = false;
    while (!mine) { /* what is told of links before it is skipped */
        struct got *g = rig_wait(r, &r->life, VT_F_LINK_STATE, 0, 5000);
        assert_non_null(g);
        mine = vt_frame_u64(&g->f, VT_LINK_STATE_LINK, 0) == link;
        if (mine)
            assert_int_equal(vt_frame_u64(&g->f, VT_LINK_STATE_STATE, 0), want);
        got_free(g);
    }
}

void rig_open_store(struct rig *r)
{
    char path[128], ring[108];
    uint32_t link = 0x200 + ++r->serial;
    uint8_t nonce[16];
    struct vt_err err;
    vt_random(nonce, sizeof nonce);
    peer_init(&r->store, link);
    snprintf(path, sizeof path, "%s/k.%08x", r->dir, link);
    snprintf(ring, sizeof ring, "%s/b.%08x", r->dir, link);
    struct vt_sock_opts o = {.max_frame = MAX_FRAME, .queue = 64, .peer_uid = geteuid(), .peer_pid = r->pid};
    if (vt_ring_create(ring, link, VT_RING_SLOTS, VT_RING_SLOT_SIZE, &err) < 0 ||
        vt_ring_map(&r->ring, ring, link, &err) < 0 || vt_sock_listen(&r->store.s, path, &o, &err) < 0)
        fail_msg("%s", err.text);
    link_open(r, 'k', link, 1, "store", nonce, ring);
    struct got *g = rig_wait(r, &r->store, VT_F_HELLO, 0, 5000);
    assert_non_null(g);
    got_free(g);
    assert_int_equal(vt_welcome_pack(&r->store.enc, NULL, 1000, MAX_FRAME, link, NULL), 0);
    peer_send(&r->store);
    wait_state(r, link, 2);
    unlink(ring);
}

void rig_close_store(struct rig *r)
{
    peer_close(&r->store);
    vt_ring_unmap(&r->ring);
}

void rig_open_gateway(struct rig *r)
{
    char path[128];
    uint32_t link = 0x100 + ++r->serial;
    uint8_t nonce[16];
    struct vt_err err;
    vt_random(nonce, sizeof nonce);
    peer_init(&r->gw, link);
    snprintf(path, sizeof path, "%s/d.%08x", r->dir, link);
    link_open(r, 'd', link, 0, "gateway", nonce, NULL);
    wait_state(r, link, 1);
    struct vt_sock_opts o = {.max_frame = MAX_FRAME, .queue = 256, .peer_uid = geteuid(), .peer_pid = r->pid};
    if (vt_sock_dial(&r->gw.s, path, &o, &err) < 0)
        fail_msg("%s", err.text);
    struct vt_hello h = {
        .role = "gateway", .name = "gateway", .gen = 1, .pid = (uint32_t)getpid(), .nonce = nonce};
    struct got *g = NULL;
    for (int i = 0; i < 20 && g == NULL; i++) {
        assert_int_equal(vt_hello_pack(&r->gw.enc, &h, link, NULL), 0);
        vt_sock_send(r->gw.s, r->gw.enc.buf, r->gw.enc.len, NULL);
        g = rig_wait(r, &r->gw, VT_F_WELCOME, 0, 250);
    }
    assert_non_null(g);
    got_free(g);
    wait_state(r, link, 2);
}

void rig_close_gateway(struct rig *r)
{
    peer_close(&r->gw);
}

void rig_ready(struct rig *r, bool with_store)
{
    if (with_store)
        rig_open_store(r);
    struct got *g = rig_wait(r, &r->life, VT_F_READY, 0, 60000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_READY_MODALITIES, 0), 1);
    got_free(g);
}

int rig_exit(struct rig *r, int ms)
{
    int status;
    uint64_t end = rig_ms() + (uint64_t)ms * RIG_PATIENCE;
    while (r->pid > 0 && rig_ms() < end) {
        if (waitpid(r->pid, &status, WNOHANG) == r->pid) {
            r->pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        turn_once(r, 5);
    }
    return -1;
}

void rig_kill(struct rig *r)
{
    if (r->pid > 0) {
        kill(r->pid, SIGKILL);
        waitpid(r->pid, NULL, 0);
    }
    r->pid = 0;
    peer_close(&r->gw);
    rig_close_store(r);
    peer_close(&r->life);
    if (r->shelf != NULL)
        r->shelf->loading = false;
}

void rig_cleanup(struct rig *r)
{
    char cmd[96];
    rig_kill(r);
    shelf_free(r->shelf);
    snprintf(cmd, sizeof cmd, "rm -rf %s", r->dir);
    if (system(cmd) != 0)
        fail_msg("%s", cmd);
    memset(r, 0, sizeof *r);
}
