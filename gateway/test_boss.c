#include "test_boss.h"

#include "handshake.h"
#include "hash.h"
#include "link.h"
#include "sampling.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

uint64_t test_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- frames to the gateway ---- */

static void send_life(struct boss *b)
{
    struct vt_err err;
    if (vt_enc_end(&b->enc, &err) || vt_sock_send(b->life, b->enc.buf, b->enc.len, &err))
        fail_msg("%s", err.text);
}

static bool send_data(struct boss *b)
{
    struct vt_err err;
    if (vt_enc_end(&b->enc, &err))
        fail_msg("%s", err.text);
    return vt_sock_send(b->data, b->enc.buf, b->enc.len, &err) == 0;
}

void boss_routes(struct boss *b, unsigned state)
{
    vt_enc_begin(&b->enc, VT_F_ROUTES, 0, BOSS_LIFE_LINK);
    vt_enc_u64(&b->enc, VT_ROUTES_EPOCH, 1);
    vt_enc_array(&b->enc, VT_ROUTES_LIST, 1);
    vt_enc_put_array(&b->enc, 17);
    vt_enc_put_str(&b->enc, "engine0");
    vt_enc_put_u64(&b->enc, b->gen);
    vt_enc_put_u64(&b->enc, state == VT_CHILD_READY ? b->link : 0);
    vt_enc_put_u64(&b->enc, state);
    vt_enc_put_u64(&b->enc, 1024);
    vt_enc_put_u64(&b->enc, 2);
    vt_enc_put_u64(&b->enc, 1);
    vt_enc_put_str(&b->enc, "tiny");
    vt_enc_put_u64(&b->enc, state == VT_CHILD_READY ? 0 : 1500);
    vt_enc_put_str(&b->enc, "fp-test");
    vt_enc_put_u64(&b->enc, 500);
    vt_enc_put_u64(&b->enc, !b->stopping);
    vt_enc_put_u64(&b->enc, b->depth);
    vt_enc_put_u64(&b->enc, 11300);
    vt_enc_put_u64(&b->enc, 250500);
    vt_enc_put_u64(&b->enc, 1764460800); /* 2025-11-30 */
    vt_enc_put_str(&b->enc, "deep");
    vt_enc_u64(&b->enc, VT_ROUTES_STOPPING, b->stopping);
    send_life(b);
}

void boss_hold(struct boss *b, bool on)
{
    vt_enc_begin(&b->enc, VT_F_HOLD, 0, BOSS_LIFE_LINK);
    vt_enc_u64(&b->enc, VT_HOLD_ON, on);
    send_life(b);
}

void boss_order(struct boss *b, unsigned verb, unsigned deadline_ms)
{
    vt_enc_begin(&b->enc, VT_F_ORDER, 1, BOSS_LIFE_LINK);
    vt_enc_u64(&b->enc, VT_ORDER_VERB, verb);
    vt_enc_u64(&b->enc, VT_ORDER_DEADLINE_MS, deadline_ms);
    send_life(b);
}

/* ---- the engine ---- */

struct boss_request *boss_last(struct boss *b)
{
    struct boss_request *last = NULL;
    for (int i = 0; i < BOSS_REQUESTS; i++)
        if (b->req[i].used && (!last || b->req[i].id > last->id))
            last = &b->req[i];
    assert_non_null(last);
    return last;
}

static struct boss_request *request(struct boss *b, uint64_t id)
{
    for (int i = 0; i < BOSS_REQUESTS; i++)
        if (b->req[i].used && b->req[i].id == id)
            return &b->req[i];
    return NULL;
}

static void accepted(struct boss *b, struct boss_request *q)
{
    vt_enc_begin(&b->enc, VT_F_ACCEPTED, q->id, b->link);
    vt_enc_u64(&b->enc, VT_ACCEPTED_SLOT, 0);
    vt_enc_u64(&b->enc, VT_ACCEPTED_REUSED, q->has_resume ? q->n_prompt : 0);
    vt_enc_u64(&b->enc, VT_ACCEPTED_SEED, q->has_resume ? q->seed : 4242);
    send_data(b);
    vt_enc_begin(&b->enc, VT_F_PREFILL, q->id, b->link);
    vt_enc_u64(&b->enc, VT_PREFILL_DONE, q->n_prompt);
    vt_enc_u64(&b->enc, VT_PREFILL_TOTAL, q->n_prompt);
    send_data(b);
}

static void done(struct boss *b, struct boss_request *q, unsigned reason);

/* (id, place, 4) of each id, or (sum of the ids, pooling, 4); twice, as after a resume. */
static void vectors(struct boss *b, struct boss_request *q)
{
    size_t n = q->pool == 1 ? q->n_prompt : 1;
    float v[64][3] = {0};
    assert_true(n <= 64);
    for (size_t i = 0; i < q->n_prompt; i++)
        v[q->pool == 1 ? i : 0][0] += (float)q->prompt[i];
    for (size_t i = 0; i < n; i++) {
        v[i][1] = q->pool == 1 ? (float)i : (float)q->pool;
        v[i][2] = 4;
    }
    for (int twice = 0; n > b->lack && twice < 2; twice++) {
        vt_enc_begin(&b->enc, VT_F_VECTOR, q->id, b->link);
        vt_enc_u64(&b->enc, VT_VECTOR_INDEX, 0);
        vt_enc_u64(&b->enc, VT_VECTOR_DIM, 3);
        vt_enc_bin(&b->enc, VT_VECTOR_VALUES, v, (n - b->lack) * sizeof v[0]);
        send_data(b);
    }
    done(b, q, 2);
}

static void on_submit(struct boss *b, const struct vt_frame *f)
{
    struct boss_request *q = NULL;
    size_t n;
    b->submits++;
    if (b->refuse) {
        vt_enc_begin(&b->enc, VT_F_REFUSED, f->id, b->link);
        vt_enc_u64(&b->enc, VT_KEY_CODE, (uint64_t)b->refuse);
        vt_enc_str(&b->enc, VT_KEY_TEXT, "not now");
        vt_enc_u64(&b->enc, VT_KEY_RETRY_MS, b->refuse == VT_E_QUEUE_FULL ? 2500 : 300);
        send_data(b);
        return;
    }
    for (int i = 0; i < BOSS_REQUESTS && !q; i++)
        if (!b->req[i].used)
            q = &b->req[i];
    assert_non_null(q);
    memset(q, 0, sizeof *q);
    q->used = true;
    q->id = f->id;
    memcpy(q->rid, vt_frame_bin_n(f, VT_SUBMIT_RID, 16), 16);
    const uint8_t *items = vt_frame_bin(f, VT_SUBMIT_ITEMS, &n);
    assert_true(n <= sizeof q->prompt);
    memcpy(q->prompt, items, n);
    q->n_prompt = n / 4;
    b->n_seen = q->n_prompt;
    memcpy(b->seen, items, n);
    q->max_new = vt_frame_u64(f, VT_SUBMIT_MAX_NEW, 0);
    q->logprobs = vt_frame_u64(f, VT_SUBMIT_LOGPROBS, 0);
    q->temperature = vt_map_f64(vt_frame_map(f, VT_SUBMIT_SAMPLING), VT_SAMPLING_TEMPERATURE, -1);
    const msgpack_object_map *resume = vt_frame_map(f, VT_SUBMIT_RESUME);
    if (resume) {
        const uint8_t *em = vt_map_bin(resume, VT_RESUME_EMITTED, &n);
        q->has_resume = true;
        q->resumed_from = q->sent = n / 4;
        q->attempt = vt_map_u64(resume, VT_RESUME_ATTEMPT, 0);
        q->seed = vt_map_u64(resume, VT_RESUME_SEED, 0);
        for (size_t i = 0; i < n / 4; i++) { /* exactly what was sent before */
            uint32_t id;
            memcpy(&id, em + 4 * i, 4);
            assert_int_equal(id, (uint8_t)b->answer[i]);
        }
    }
    q->credit = q->sent + vt_frame_u64(f, VT_SUBMIT_CREDIT, 256);
    q->pool = vt_frame_u64(f, VT_SUBMIT_OP, 0) == 1 ? vt_frame_u64(f, VT_SUBMIT_POOL, 0) : 0;
    if (!b->mute)
        accepted(b, q);
    if (!b->mute && q->pool > 0 && !b->keep)
        vectors(b, q);
}

const char *boss_prompt(const struct boss *b, char *out, size_t size)
{
    static const char marks[] = "[]tTcCABCDE";
    size_t n = 0;
    for (size_t i = 0; i < b->n_seen && n + 1 < size; i++)
        out[n++] = b->seen[i] < 256 ? (char)b->seen[i] : marks[b->seen[i] - 256];
    out[n] = '\0';
    return out;
}

static void done(struct boss *b, struct boss_request *q, unsigned reason)
{
    vt_enc_begin(&b->enc, VT_F_DONE, q->id, b->link);
    vt_enc_u64(&b->enc, VT_DONE_REASON, reason);
    vt_enc_u64(&b->enc, VT_DONE_EMITTED, q->sent);
    vt_enc_map(&b->enc, VT_DONE_USAGE, 3);
    vt_enc_put_u64(&b->enc, VT_USAGE_PROMPT);
    vt_enc_put_u64(&b->enc, q->n_prompt);
    vt_enc_put_u64(&b->enc, VT_USAGE_PREFILL_US);
    vt_enc_put_u64(&b->enc, 2000);
    vt_enc_put_u64(&b->enc, VT_USAGE_DECODE_US);
    vt_enc_put_u64(&b->enc, 5000);
    send_data(b);
    q->used = false;
}

void boss_park(struct boss *b, unsigned why)
{
    struct boss_request *q = boss_last(b);
    vt_enc_begin(&b->enc, VT_F_PARKED, q->id, b->link);
    vt_enc_u64(&b->enc, VT_PARKED_EMITTED, q->sent);
    vt_enc_u64(&b->enc, VT_PARKED_WHY, why);
    send_data(b);
    done(b, q, 5);
}

static void put_top(struct vt_enc *e, uint32_t id, unsigned n)
{
    vt_enc_array(e, VT_TOKENS_TOP, 1);
    vt_enc_put_array(e, 2 * n);
    for (unsigned i = 0; i < n; i++) {
        vt_enc_put_u64(e, id + i);
        vt_enc_put_f64(e, -0.5 - i);
    }
}

static bool send_token(struct boss *b, struct boss_request *q)
{
    uint64_t from = q->sent > b->skip ? q->sent - b->skip : 0;
    uint32_t ids[64];
    unsigned n = 0;
    float lp[64];
    for (uint64_t i = from; i <= q->sent && n < 64; i++, n++) {
        ids[n] = (uint8_t)b->answer[i];
        lp[n] = -0.25f;
    }
    vt_enc_begin(&b->enc, VT_F_TOKENS, q->id, b->link);
    vt_enc_u64(&b->enc, VT_TOKENS_FIRST, from);
    vt_enc_bin(&b->enc, VT_TOKENS_IDS, ids, n * 4);
    if (q->logprobs > 0)
        vt_enc_bin(&b->enc, VT_TOKENS_LOGPROBS, lp, n * 4);
    if (q->logprobs > 1)
        put_top(&b->enc, ids[0], (unsigned)q->logprobs - 1);
    return send_data(b);
}

static bool wants_token(const struct boss *b, const struct boss_request *q)
{
    return q->used && q->sent < q->max_new && b->answer[q->sent] && q->sent < b->stop_at &&
           q->sent < q->credit;
}

/* One id for each request, and in front of them the id before once more, for a request that nobody knows. */
static bool send_step(struct boss *b)
{
    unsigned n = 0;
    for (int i = 0; i < BOSS_REQUESTS; i++)
        n += wants_token(b, &b->req[i]);
    if (n == 0)
        return true;
    vt_enc_begin(&b->enc, VT_F_STEP, 0, b->link);
    vt_enc_array(&b->enc, VT_STEP_TOKENS, n + 1);
    for (int i = -1; i < BOSS_REQUESTS; i++) {
        const struct boss_request *q = &b->req[i < 0 ? 0 : i];
        uint32_t id = i < 0 ? 0 : (uint8_t)b->answer[q->sent];
        if (i >= 0 && !wants_token(b, q))
            continue;
        vt_enc_put_array(&b->enc, 3);
        vt_enc_put_u64(&b->enc, i < 0 ? 999999 : q->id);
        vt_enc_put_u64(&b->enc, q->sent);
        vt_enc_put_bin(&b->enc, &id, 4);
    }
    return send_data(b);
}

bool boss_sent(const struct boss *b, unsigned submits)
{
    bool more = false;
    for (int i = 0; i < BOSS_REQUESTS; i++)
        more = more || wants_token(b, &b->req[i]);
    return b->submits == submits && !more;
}

uint64_t boss_still(struct boss *b, int ms)
{
    uint64_t sent;
    boss_until(b, b->submits > 0 && boss_last(b)->sent > 0);
    uint64_t end = test_ms() + 60000;
    do {
        sent = boss_last(b)->sent;
        assert_true(test_ms() < end);
        boss_run(b, ms);
    } while (boss_last(b)->sent != sent);
    return sent;
}

static void generate_steps(struct boss *b)
{
    if (!send_step(b))
        return;
    for (int i = 0; i < BOSS_REQUESTS; i++) {
        struct boss_request *q = &b->req[i];
        if (wants_token(b, q))
            q->sent++;
        if (q->used && b->stop_at == UINT64_MAX && (q->sent == q->max_new || !b->answer[q->sent]))
            done(b, q, b->answer[q->sent] ? 2 : 0);
    }
}

static void generate(struct boss *b)
{
    if (!b->data_up || b->mute)
        return;
    if (b->step) {
        generate_steps(b);
        return;
    }
    for (int i = 0; i < BOSS_REQUESTS; i++) {
        struct boss_request *q = &b->req[i];
        uint64_t all = strlen(b->answer), stop = q->max_new < all ? q->max_new : all;
        if (!q->used || q->pool > 0)
            continue;
        for (int burst = 0; burst < 16 && q->sent < stop && q->sent < b->stop_at && q->sent < q->credit;
             burst++) {
            if (!send_token(b, q))
                return;
            q->sent++;
        }
        if (q->sent == stop && b->stop_at >= stop)
            done(b, q, stop == all ? 0 : 2);
    }
}

static void on_attach(struct boss *b, const struct vt_frame *f)
{
    struct boss_request *q = NULL;
    for (int i = 0; i < BOSS_REQUESTS; i++)
        if (b->req[i].used && memcmp(b->req[i].rid, vt_frame_bin_n(f, VT_ATTACH_RID, 16), 16) == 0)
            q = &b->req[i];
    vt_enc_begin(&b->enc, VT_F_ATTACHED, f->id, b->link);
    vt_enc_u64(&b->enc, VT_ATTACHED_FOUND, q != NULL);
    vt_enc_u64(&b->enc, VT_ATTACHED_FROM, vt_frame_u64(f, VT_ATTACH_NEXT, 0));
    send_data(b);
    if (!q)
        return;
    q->id = f->id;
    q->sent = vt_frame_u64(f, VT_ATTACH_NEXT, 0);
    q->credit = q->sent + 256;
}

static void on_proxy(struct boss *b, const struct vt_frame *f)
{
    vt_frame_str(f, VT_PROXY_PATH, b->target, sizeof b->target);
    b->relayed++;
    if (!b->type)
        return;
    vt_enc_begin(&b->enc, VT_F_PROXY_HEAD, f->id, b->link);
    vt_enc_u64(&b->enc, VT_PROXY_HEAD_STATUS, 200);
    vt_enc_str(&b->enc, VT_PROXY_HEAD_TYPE, b->type);
    send_data(b);
    uint64_t id = f->id;
    for (size_t i = 0; i < b->reply_parts; i++) {
        vt_enc_begin(&b->enc, VT_F_PROXY_DATA, id, b->link);
        vt_enc_bin(&b->enc, VT_PROXY_DATA_BYTES, b->reply, strlen(b->reply));
        while (!send_data(b))
            usleep(1000);
    }
    vt_enc_begin(&b->enc, VT_F_PROXY_END, id, b->link);
    vt_enc_u64(&b->enc, VT_PROXY_END_OK, 1);
    while (!send_data(b))
        usleep(1000);
}

static void on_data(struct boss *b, const struct vt_frame *f)
{
    struct vt_err err;
    struct boss_request *q;
    const struct vt_hello want = {.nonce = b->link_nonce, .pid = (uint32_t)b->gateway};
    switch (f->type) {
    case VT_F_HELLO:
        if (vt_hello_check(f, &want, &err))
            fail_msg("%s", err.text);
        assert_int_equal(vt_welcome_pack(&b->enc, b->nonce, 1000, 8 << 20, b->link, &err), 0);
        assert_int_equal(vt_sock_send(b->data, b->enc.buf, b->enc.len, &err), 0);
        b->data_up = true;
        break;
    case VT_F_SUBMIT: on_submit(b, f); break;
    case VT_F_PROXY: on_proxy(b, f); break;
    case VT_F_CREDIT:
        q = request(b, f->id);
        if (q)
            q->credit += vt_frame_u64(f, VT_CREDIT_ADD, 0);
        break;
    case VT_F_CANCEL:
        b->cancels++;
        q = request(b, f->id);
        if (q) {
            q->cancelled = true;
            done(b, q, 3);
        }
        break;
    case VT_F_ATTACH: on_attach(b, f); break;
    case VT_F_SLOTS_ASK:
        vt_enc_begin(&b->enc, VT_F_SLOTS, f->id, b->link);
        vt_enc_array(&b->enc, VT_SLOTS_LIST, 1);
        vt_enc_put_array(&b->enc, 3);
        vt_enc_put_u64(&b->enc, 0);
        vt_enc_put_u64(&b->enc, 0);
        vt_enc_put_u64(&b->enc, 12);
        send_data(b);
        break;
    case VT_F_SLOT_OP:
        vt_enc_begin(&b->enc, VT_F_SLOT_OP_DONE, f->id, b->link);
        vt_enc_u64(&b->enc, VT_SLOT_OP_DONE_OK, 1);
        vt_enc_u64(&b->enc, VT_SLOT_OP_DONE_TOKENS, 12);
        vt_enc_u64(&b->enc, VT_SLOT_OP_DONE_BYTES, 3456);
        send_data(b);
        break;
    default: break;
    }
}

static void on_life(struct boss *b, const struct vt_frame *f)
{
    struct vt_err err;
    if (f->type == VT_F_HELLO && !b->welcomed) {
        assert_int_equal(vt_welcome_pack(&b->enc, b->nonce, 1000, 1 << 20, BOSS_LIFE_LINK, &err), 0);
        assert_int_equal(vt_sock_send(b->life, b->enc.buf, b->enc.len, &err), 0);
        b->welcomed = true;
    } else if (f->type == VT_F_READY) {
        b->ready = true;
    } else if (f->type == VT_F_GW_STATS) {
        b->held = vt_frame_u64(f, VT_GW_STATS_HELD, 0);
    } else if (f->type == VT_F_FATAL) {
        char text[512];
        fail_msg("gateway: %s", vt_frame_str(f, VT_KEY_TEXT, text, sizeof text));
    }
}

static void take(struct boss *b, struct vt_sock *s, size_t max,
                 void (*fn)(struct boss *, const struct vt_frame *))
{
    uint8_t *buf;
    size_t len;
    struct vt_frame f;
    struct vt_err err;
    for (int i = 0; s && i < 64 && vt_sock_recv(s, &buf, &len) == 1; i++) {
        if (vt_frame_open(&f, buf, len, max, &err))
            fail_msg("%s", err.text);
        fn(b, &f);
        vt_frame_close(&f);
        vt_sock_msg_free(buf, len);
    }
}

void boss_turn(struct boss *b)
{
    if (b->life)
        take(b, b->life, 1 << 20, on_life);
    take(b, b->data, 8 << 20, on_data);
    generate(b);
}

void boss_run(struct boss *b, int ms)
{
    for (uint64_t end = test_ms() + (uint64_t)ms; test_ms() < end; usleep(1000))
        boss_turn(b);
}

static void link_open(struct boss *b)
{
    struct vt_err err;
    struct vt_sock_opts o = {
        .max_frame = 8 << 20, .queue = 256, .peer_uid = geteuid(), .peer_pid = b->gateway};
    b->link = ++b->next_link;
    b->data_up = false;
    snprintf(b->data_path, sizeof b->data_path, "%s/d.%08x", dir, b->link);
    if (vt_sock_listen(&b->data, b->data_path, &o, &err))
        fail_msg("%s", err.text);
    vt_random(b->link_nonce, sizeof b->link_nonce);
    vt_enc_begin(&b->enc, VT_F_LINK_OPEN, 0, BOSS_LIFE_LINK);
    vt_enc_u64(&b->enc, VT_LINK_OPEN_LINK, b->link);
    vt_enc_str(&b->enc, VT_LINK_OPEN_PATH, b->data_path);
    vt_enc_u64(&b->enc, VT_LINK_OPEN_SIDE, 1);
    vt_enc_str(&b->enc, VT_LINK_OPEN_PEER_ROLE, "engine");
    vt_enc_u64(&b->enc, VT_LINK_OPEN_PEER_PID, (uint64_t)getpid());
    vt_enc_bin(&b->enc, VT_LINK_OPEN_NONCE, b->link_nonce, 16);
    send_life(b);
    boss_until(b, b->data_up);
}

void boss_engine_up(struct boss *b)
{
    b->gen++;
    memset(b->req, 0, sizeof b->req);
    link_open(b);
    boss_routes(b, VT_CHILD_READY);
    boss_until(b, b->ready);
    boss_run(b, 20);
}

void boss_relink(struct boss *b)
{
    link_open(b);
    boss_routes(b, VT_CHILD_READY);
    boss_run(b, 20);
}

void boss_drop_link(struct boss *b)
{
    vt_sock_close(b->data);
    b->data = NULL;
    b->data_up = false;
    unlink(b->data_path);
}

void boss_engine_dies(struct boss *b, bool resume)
{
    uint32_t link = b->link;
    boss_drop_link(b);
    vt_enc_begin(&b->enc, VT_F_INTERRUPTED, 0, BOSS_LIFE_LINK);
    vt_enc_u64(&b->enc, VT_INTERRUPTED_LINK, link);
    vt_enc_u64(&b->enc, VT_INTERRUPTED_RESUME, resume);
    vt_enc_u64(&b->enc, VT_INTERRUPTED_RETRY_MS, 1200);
    send_life(b);
    boss_routes(b, VT_CHILD_BACKOFF);
    boss_run(b, 50);
}

/* ---- the process ---- */

static int listen_any(uint16_t *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 64) == 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    *port = ntohs(a.sin_port);
    return fd;
}

static void child(struct boss *b, int nonce, int http, const char *const *sets)
{
    const char *argv[64] = {"vitriol-gateway", "--name",     "gateway",    "--gen", "3",
                            "--lifeline",      b->life_path, "--http-fds", "1"};
    int n = 9;
    char model[160];
    snprintf(model, sizeof model, "model.path=%s", test_model(dir));
    argv[n++] = "--set";
    argv[n++] = model;
    for (; sets && *sets; sets++) {
        if (strncmp(*sets, "model.path=", 11) == 0) { /* another than the usual one */
            snprintf(model, sizeof model, "%s", *sets);
            continue;
        }
        argv[n++] = "--set";
        argv[n++] = *sets;
    }
    /* Out of the way first: both numbers may be taken by the other. */
    int a = fcntl(nonce, F_DUPFD, 20), c = fcntl(http, F_DUPFD, 20);
    dup2(a, VT_NONCE_FD);
    dup2(c, VT_HTTP_FD0);
    close(a);
    close(c);
    execv(getenv("VT_GATEWAY"), (char **)argv);
    _exit(127);
}

static void tidy(void)
{
    unlink(test_model(dir));
    rmdir(dir);
}

void boss_start(struct boss *b, const char *const *sets)
{
    static int serial;
    struct vt_err err;
    int p[2];
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/tmp/vtgw-XXXXXX");
        assert_non_null(mkdtemp(dir));
        test_model(dir);
        atexit(tidy);
    }
    memset(b, 0, sizeof *b);
    b->stop_at = UINT64_MAX;
    b->answer = "";
    b->next_link = (uint32_t)++serial << 8;
    vt_enc_init(&b->enc);
    vt_random(b->nonce, sizeof b->nonce);
    snprintf(b->life_path, sizeof b->life_path, "%s/l.gateway.%d", dir, serial);
    struct vt_sock_opts o = {.max_frame = 1 << 20, .queue = 64, .peer_uid = geteuid()};
    if (vt_sock_listen(&b->life, b->life_path, &o, &err))
        fail_msg("%s", err.text);
    int http = listen_any(&b->port);
    assert_int_equal(pipe(p), 0);
    b->gateway = fork();
    assert_true(b->gateway >= 0);
    if (b->gateway == 0)
        child(b, p[0], http, sets);
    assert_int_equal(write(p[1], b->nonce, 16), 16);
    close(p[0]);
    close(p[1]);
    close(http);
    boss_until(b, b->welcomed);
}

int boss_exit(struct boss *b, int ms)
{
    for (uint64_t end = test_ms() + (uint64_t)ms * BOSS_PATIENCE; test_ms() < end;) {
        int status;
        if (waitpid(b->gateway, &status, WNOHANG) == b->gateway) {
            b->gateway = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        boss_run(b, 5);
    }
    return -1;
}

void boss_stop(struct boss *b)
{
    if (b->gateway > 0) {
        boss_order(b, VT_ORDER_STOP, 1000);
        assert_int_equal(boss_exit(b, 5000), 0);
    }
    vt_sock_close(b->life);
    vt_sock_close(b->data);
    unlink(b->life_path);
    unlink(b->data_path);
    vt_enc_fini(&b->enc);
}
