/* Drives the stub engine, a real process with real sockets, through vitriold's, the gateway's and the store's eyes. */
#include "sampling.h"
#include "test_rig.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct rig rig;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t ref(uint64_t seed, uint64_t pos)
{
    return 33 + (uint32_t)(mix(mix(seed) + pos) % (126 - 33 + 1));
}

/* ---- requests ---- */

struct ask {
    uint64_t id, seed;
    uint32_t n_prompt, first, max_new, credit, n_emitted, logprobs;
    int slot;
    const char *tenant;
    uint8_t rid; /* fills the request id */
    unsigned op;
};

static void submit(const struct ask *a)
{
    uint32_t *ids = malloc(((size_t)a->n_prompt + a->n_emitted + 1) * 4);
    uint8_t rid[16];
    memset(rid, a->rid, sizeof rid);
    if (a->rid == 0)
        memcpy(rid, &a->id, sizeof a->id);
    for (uint32_t i = 0; i < a->n_prompt; i++)
        ids[i] = a->first + i;
    struct vt_enc *e = peer_begin(&rig.gw, VT_F_SUBMIT, a->id);
    vt_enc_bin(e, VT_SUBMIT_RID, rid, 16);
    vt_enc_u64(e, VT_SUBMIT_OP, a->op);
    vt_enc_str(e, VT_SUBMIT_TENANT, a->tenant != NULL ? a->tenant : "t");
    vt_enc_i64(e, VT_SUBMIT_SLOT, a->slot);
    vt_enc_bin(e, VT_SUBMIT_ITEMS, ids, a->n_prompt * 4);
    vt_enc_u64(e, VT_SUBMIT_MAX_NEW, a->max_new);
    vt_enc_map(e, VT_SUBMIT_SAMPLING, 1);
    vt_enc_put_u64(e, VT_SAMPLING_SEED);
    vt_enc_put_u64(e, a->seed);
    if (a->logprobs > 0)
        vt_enc_u64(e, VT_SUBMIT_LOGPROBS, a->logprobs);
    if (a->credit > 0)
        vt_enc_u64(e, VT_SUBMIT_CREDIT, a->credit);
    if (a->n_emitted > 0) {
        for (uint32_t i = 0; i < a->n_emitted; i++)
            ids[i] = ref(a->seed, i);
        vt_enc_map(e, VT_SUBMIT_RESUME, 3);
        vt_enc_put_u64(e, VT_RESUME_EMITTED);
        vt_enc_put_bin(e, ids, a->n_emitted * 4);
        vt_enc_put_u64(e, VT_RESUME_ATTEMPT);
        vt_enc_put_u64(e, 1);
        vt_enc_put_u64(e, VT_RESUME_SEED);
        vt_enc_put_u64(e, a->seed);
    }
    peer_send(&rig.gw);
    free(ids);
}

static uint32_t accepted(uint64_t id, unsigned dup)
{
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_ACCEPTED, id, 5000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_ACCEPTED_DUP, 9), dup);
    uint32_t reused = (uint32_t)vt_frame_u64(&g->f, VT_ACCEPTED_REUSED, 0);
    got_free(g);
    return reused;
}

/* Takes tokens from `from` until there are `to`; each must be the reference's, none may be missing or twice. */
static void tokens(uint64_t id, uint64_t seed, uint32_t from, uint32_t to)
{
    while (from < to) {
        size_t n;
        struct got *g = rig_wait(&rig, &rig.gw, VT_F_TOKENS, id, 5000);
        if (g == NULL)
            fail_msg("no token at %u of %u", from, to);
        const uint8_t *ids = vt_frame_bin(&g->f, VT_TOKENS_IDS, &n);
        assert_int_equal(vt_frame_u64(&g->f, VT_TOKENS_FIRST, 999), from);
        for (size_t i = 0; i < n / 4; i++) {
            uint32_t v;
            memcpy(&v, ids + 4 * i, 4);
            assert_int_equal(v, ref(seed, from + i));
        }
        from += (uint32_t)(n / 4);
        got_free(g);
    }
    assert_int_equal(from, to);
}

static void done(uint64_t id, unsigned reason, uint64_t emitted)
{
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_DONE, id, 5000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), reason);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_EMITTED, 0), emitted);
    assert_int_equal(vt_map_u64(vt_frame_map(&g->f, VT_DONE_USAGE), VT_USAGE_GENERATED, 0), emitted);
    got_free(g);
    assert_int_equal(rig_count(&rig.gw, VT_F_TOKENS, id), 0);
}

static void refused(uint64_t id, int code)
{
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_REFUSED, id, 5000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_KEY_CODE, 0), code);
    got_free(g);
}

static void one(uint64_t id, uint64_t value)
{
    vt_enc_u64(peer_begin(&rig.gw, VT_F_CREDIT, id), VT_CREDIT_ADD, value);
    peer_send(&rig.gw);
}

static void cancel(uint64_t id)
{
    vt_enc_u64(peer_begin(&rig.gw, VT_F_CANCEL, id), VT_CANCEL_WHY, 1);
    peer_send(&rig.gw);
}

static void order(unsigned verb, uint64_t id, unsigned deadline_ms)
{
    struct vt_enc *e = peer_begin(&rig.life, VT_F_ORDER, id);
    vt_enc_u64(e, VT_ORDER_VERB, verb);
    if (deadline_ms > 0)
        vt_enc_u64(e, VT_ORDER_DEADLINE_MS, deadline_ms);
    peer_send(&rig.life);
}

static void order_done(unsigned verb, uint64_t id, bool ok)
{
    struct got *g = rig_wait(&rig, &rig.life, VT_F_ORDER_DONE, id, 10000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_ORDER_DONE_VERB, 0), verb);
    assert_int_equal(vt_frame_u64(&g->f, VT_ORDER_DONE_OK, 9), ok);
    got_free(g);
}

static const char *const small[] = {
    "engine.slots=2",    "engine.ctx_tokens=2048",  "engine.ubatch_tokens=128", "store.turn_save_ms=100",
    "engine.orphan_s=1", "engine.credit_stall_s=1", "store.autosave_s=1",       NULL};

static void up(const char *extra, bool with_store)
{
    if (with_store && rig.shelf == NULL)
        rig.shelf = calloc(1, sizeof *rig.shelf);
    rig_start(&rig, extra, small);
    rig_ready(&rig, with_store);
    rig_open_gateway(&rig);
}

static int down(void **state)
{
    (void)state;
    rig_cleanup(&rig);
    return 0;
}

/* ---- life ---- */

static void test_start_and_ready(void **state)
{
    (void)state;
    char text[64];
    rig_start(&rig, "load=200,ticks=10", small);
    struct got *g = rig_wait(&rig, &rig.life, VT_F_PHASE, 0, 3000);
    assert_non_null(g);
    got_free(g);
    g = rig_wait(&rig, &rig.life, VT_F_READY, 0, 5000);
    assert_non_null(g);
    assert_true(rig_count(&rig.life, VT_F_PHASE, 0) >= 3);
    const msgpack_object_map *eff = vt_frame_map(&g->f, VT_READY_EFFECTIVE);
    assert_string_equal(vt_obj_str(vt_map_get_str(eff, "engine.slots"), text, sizeof text), "2");
    assert_string_equal(vt_obj_str(vt_map_get_str(eff, "engine.ctx_tokens"), text, sizeof text), "2048");
    assert_non_null(vt_map_get_str(eff, "engine.ubatch_tokens"));
    assert_int_equal(vt_frame_u64(&g->f, VT_READY_POOL_TOKENS, 0), 4096);
    size_t n;
    uint8_t fp[32];
    const uint8_t *layout = vt_frame_bin(&g->f, VT_READY_LAYOUT, &n);
    vt_sha256(layout, n, fp);
    assert_memory_equal(fp, vt_frame_bin_n(&g->f, VT_READY_LAYOUT_FP, 32), 32);
    got_free(g);
    g = rig_wait(&rig, &rig.life, VT_F_T_ENGINE, 0, 3000);
    assert_non_null(g);
    assert_true(vt_map_f64(vt_frame_map(&g->f, VT_T_ENGINE_GAUGES), 17, 0) == 4096);
    got_free(g);
    order(VT_ORDER_CANARY, 5, 0);
    order_done(VT_ORDER_CANARY, 5, true);
    order(99, 6, 0);
    order_done(99, 6, false);
    order(VT_ORDER_STOP, 7, 0);
    order_done(VT_ORDER_STOP, 7, true);
    g = rig_wait(&rig, &rig.life, VT_F_BYE, 0, 2000);
    assert_non_null(g);
    got_free(g);
    assert_int_equal(rig_exit(&rig, 3000), 0);
}

static void test_faults_of_the_load(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        int code;
    } list[] = {{"fail-selftest", VT_EX_INTERNAL},
                {"oom-load", VT_EX_DEVICE_OOM_LOAD},
                {"script=/none", VT_EX_NOINPUT}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        rig_start(&rig, list[i].extra, small);
        struct got *g = rig_wait(&rig, &rig.life, VT_F_FATAL, 0, 5000);
        assert_non_null(g);
        assert_int_equal(vt_frame_u64(&g->f, VT_FATAL_EXIT_CODE, 0), list[i].code);
        got_free(g);
        assert_int_equal(rig_exit(&rig, 3000), list[i].code);
        rig_kill(&rig);
    }
    rig_start(&rig, "drop-option=engine.slots,lie-effective=engine.ctx_tokens", small);
    struct got *g = rig_wait(&rig, &rig.life, VT_F_READY, 0, 5000);
    char text[16];
    assert_null(vt_map_get_str(vt_frame_map(&g->f, VT_READY_EFFECTIVE), "engine.slots"));
    vt_obj_str(vt_map_get_str(vt_frame_map(&g->f, VT_READY_EFFECTIVE), "engine.ctx_tokens"), text,
               sizeof text);
    assert_string_equal(text, "lie");
    got_free(g);
}

/* ---- work ---- */

static void test_generates(void **state)
{
    (void)state;
    up("rate=2000", false);
    submit(&(struct ask){.id = 1, .seed = 7, .n_prompt = 300, .max_new = 50, .slot = -1});
    assert_int_equal(accepted(1, 0), 0);
    tokens(1, 7, 0, 50);
    done(1, 2, 50);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_PREFILL, 1, 100);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_PREFILL_TOTAL, 0), 300);
    got_free(g);
    /* The same prompt again finds its prefix; four at once share two slots and the queue. */
    for (uint64_t id = 2; id <= 5; id++)
        submit(&(struct ask){.id = id, .seed = id, .n_prompt = 300, .max_new = 20, .slot = -1});
    assert_int_equal(accepted(2, 0), 299);
    for (uint64_t id = 2; id <= 5; id++) {
        tokens(id, id, 0, 20);
        done(id, 2, 20);
    }
    assert_true(rig.gw.steps > 0); /* two at a time came in one frame */
    /* Resume: the first five are known, the next is the sixth. */
    submit(&(struct ask){.id = 6, .seed = 9, .n_prompt = 10, .max_new = 12, .n_emitted = 5, .slot = -1});
    accepted(6, 0);
    tokens(6, 9, 5, 12);
    done(6, 2, 12);
}

static void test_refusals(void **state)
{
    (void)state;
    up("rate=0", false);
    submit(&(struct ask){.id = 1, .n_prompt = 3000, .first = 1, .max_new = 5, .slot = -1});
    refused(1, VT_E_WINDOW);
    submit(&(struct ask){.id = 2, .n_prompt = 5, .max_new = 5, .slot = -1, .op = 1});
    refused(2, VT_E_CAPABILITY);
    submit(&(struct ask){.id = 3, .n_prompt = 5, .max_new = 5, .slot = -1, .tenant = "../x"});
    refused(3, VT_E_PARAM);
    submit(&(struct ask){.id = 4, .n_prompt = 5, .first = 1u << 20, .max_new = 5, .slot = -1});
    refused(4, VT_E_PARAM);
    submit(&(struct ask){.id = 5, .n_prompt = 5, .max_new = 5, .slot = 77});
    refused(5, VT_E_NO_SLOT);
    order(VT_ORDER_QUIESCE, 1, 0);
    order_done(VT_ORDER_QUIESCE, 1, true);
    submit(&(struct ask){.id = 6, .n_prompt = 5, .max_new = 5, .slot = -1});
    refused(6, VT_E_BOUNCING);
    order(VT_ORDER_CONTINUE, 2, 0);
    order_done(VT_ORDER_CONTINUE, 2, true);
    /* Nothing of a refused request is remembered: the same id runs now. */
    submit(&(struct ask){.id = 6, .seed = 1, .n_prompt = 5, .max_new = 5, .slot = -1});
    accepted(6, 0);
    tokens(6, 1, 0, 5);
    done(6, 2, 5);
}

static void test_runs_once(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 3, .n_prompt = 10, .max_new = 40, .slot = -1, .rid = 0x42};
    up("rate=400", false);
    submit(&a);
    accepted(1, 0);
    tokens(1, 3, 0, 1);
    a.id = 2;
    submit(&a); /* while it runs: its progress moves over */
    accepted(2, 1);
    tokens(2, 3, 0, 40);
    done(2, 2, 40);
    a.id = 3;
    submit(&a); /* after its end: told again, not run again */
    accepted(3, 1);
    tokens(3, 3, 0, 40);
    done(3, 2, 40);
    assert_int_equal(rig_count(&rig.gw, VT_F_DONE, 0), 0);
}

static void test_double_send_and_logprobs(void **state)
{
    (void)state;
    size_t n;
    up("rate=1000,double-send", false);
    submit(&(struct ask){.id = 1, .seed = 3, .n_prompt = 10, .max_new = 2, .slot = -1, .logprobs = 3});
    accepted(1, 0);
    unsigned frames = 0;
    struct got *g;
    while ((g = rig_wait(&rig, &rig.gw, VT_F_TOKENS, 1, 500)) != NULL) {
        assert_non_null(vt_frame_bin(&g->f, VT_TOKENS_LOGPROBS, &n));
        const msgpack_object_array *top = vt_array_array(vt_frame_array(&g->f, VT_TOKENS_TOP), 0);
        assert_int_equal(top->size, 4);
        assert_true(vt_array_f64(top, 3, 0) == -1.0);
        got_free(g);
        frames++;
    }
    assert_true(frames >= 2 && frames % 2 == 0);
}

static void test_cancel(void **state)
{
    (void)state;
    up("rate=200", false);
    for (uint64_t id = 1; id <= 3; id++)
        submit(&(struct ask){.id = id, .seed = id, .n_prompt = 10, .max_new = 30, .slot = -1});
    accepted(1, 0);
    accepted(2, 0);
    accepted(3, 0);
    cancel(3); /* queued */
    done(3, 3, 0);
    cancel(2); /* decoding */
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_DONE, 2, 500);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), 3);
    got_free(g);
    cancel(2);
    cancel(99);
    tokens(1, 1, 0, 30); /* the neighbour saw nothing of it */
    done(1, 2, 30);
    rig_turn(&rig, 100);
    assert_int_equal(rig_count(&rig.gw, VT_F_DONE, 0), 0);
}

static void test_credit(void **state)
{
    (void)state;
    up("rate=2000", false);
    submit(&(struct ask){.id = 1, .seed = 1, .n_prompt = 10, .max_new = 30, .slot = -1, .credit = 8});
    submit(&(struct ask){.id = 2, .seed = 2, .n_prompt = 10, .max_new = 100, .slot = -1});
    accepted(1, 0);
    tokens(1, 1, 0, 8);
    accepted(2, 0);
    tokens(2, 2, 0, 100); /* not held up by the one that waits */
    done(2, 2, 100);
    assert_int_equal(rig_count(&rig.gw, VT_F_TOKENS, 1), 0);
    one(1, 4);
    tokens(1, 1, 8, 12);
    rig_turn(&rig, 100);
    assert_int_equal(rig_count(&rig.gw, VT_F_TOKENS, 1), 0);
    one(1, 100);
    tokens(1, 1, 12, 30);
    done(1, 2, 30);
}

/* Two clients that read nothing hold both slots: they give way to the ones that wait, and only then. */
static void test_credit_stall_parks(void **state)
{
    (void)state;
    up("rate=2000", false);
    submit(&(struct ask){
        .id = 1, .seed = 1, .n_prompt = 10, .max_new = 30, .slot = -1, .credit = 8, .rid = 0x61});
    submit(&(struct ask){
        .id = 2, .seed = 2, .n_prompt = 10, .max_new = 30, .slot = -1, .credit = 8, .rid = 0x62});
    accepted(1, 0);
    tokens(1, 1, 0, 8);
    accepted(2, 0);
    tokens(2, 2, 0, 8);
    rig_turn(&rig, 2500);
    assert_int_equal(rig_count(&rig.gw, VT_F_PARKED, 0), 0); /* nobody waits */
    submit(&(struct ask){.id = 3, .seed = 3, .n_prompt = 10, .max_new = 20, .slot = -1, .rid = 0x63});
    for (uint64_t id = 1; id <= 2; id++) {
        struct got *g = rig_wait(&rig, &rig.gw, VT_F_PARKED, id, 5000);
        assert_non_null(g);
        assert_int_equal(vt_frame_u64(&g->f, VT_PARKED_EMITTED, 99), 8);
        assert_int_equal(vt_frame_u64(&g->f, VT_PARKED_WHY, 99), VT_PARK_SLOW_CLIENT);
        got_free(g);
        done(id, 5, 8);
    }
    accepted(3, 0);
    tokens(3, 3, 0, 20);
    done(3, 2, 20);
    submit(&(struct ask){
        .id = 4, .seed = 1, .n_prompt = 10, .max_new = 30, .slot = -1, .rid = 0x61, .n_emitted = 8});
    accepted(4, 0);
    tokens(4, 1, 8, 30);
    done(4, 2, 30);
}

static void attach(uint64_t id, uint8_t rid_byte, uint64_t next, bool found)
{
    uint8_t rid[16];
    memset(rid, rid_byte, sizeof rid);
    struct vt_enc *e = peer_begin(&rig.gw, VT_F_ATTACH, id);
    vt_enc_bin(e, VT_ATTACH_RID, rid, 16);
    vt_enc_u64(e, VT_ATTACH_NEXT, next);
    peer_send(&rig.gw);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_ATTACHED, id, 2000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_ATTACHED_FOUND, 9), found);
    got_free(g);
}

static void test_link_lost_and_attached(void **state)
{
    (void)state;
    up("rate=500", false);
    submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 60, .slot = -1, .rid = 0x51});
    submit(&(struct ask){.id = 2, .seed = 6, .n_prompt = 10, .max_new = 5, .slot = -1, .rid = 0x52});
    accepted(1, 0);
    accepted(2, 0);
    tokens(2, 6, 0, 5);
    done(2, 2, 5);
    rig_turn(&rig, 20);
    rig_close_gateway(&rig);
    rig_turn(&rig, 200);
    rig_open_gateway(&rig);
    attach(11, 0x51, 3, true);
    attach(12, 0x52, 2, true); /* ended before: told again from there */
    attach(13, 0x53, 0, false);
    attach(14, 0x52, 9, false); /* beyond what there is */
    tokens(11, 5, 3, 60);
    done(11, 2, 60);
    tokens(12, 6, 2, 5);
    done(12, 2, 5);
}

static void test_orphans_are_let_go(void **state)
{
    (void)state;
    up("rate=100", false);
    submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 600, .max_new = 500, .slot = -1, .rid = 0x61});
    accepted(1, 0);
    tokens(1, 5, 0, 3);
    rig_close_gateway(&rig);
    rig_turn(&rig, 3200);
    rig_open_gateway(&rig);
    attach(2, 0x61, 3, false);
    /* Its KV is there as a prefix still. */
    submit(&(struct ask){.id = 3, .seed = 5, .n_prompt = 600, .max_new = 2, .slot = -1});
    assert_int_equal(accepted(3, 0), 599);
    tokens(3, 5, 0, 2);
    done(3, 2, 2);
}

static void test_gateway_that_does_not_read(void **state)
{
    (void)state;
    up("rate=0", false);
    rig.gw.deaf = true;
    /* Many small frames: far more than the queues of the link hold. */
    for (uint64_t id = 1; id <= 600; id++)
        submit(&(struct ask){
            .id = id, .seed = id, .n_prompt = 4, .max_new = 4, .slot = -1, .rid = 0, .first = (uint32_t)id});
    struct got *g = rig_wait(&rig, &rig.life, VT_F_NOTE, 0, 8000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_NOTE_EVENT, 0), VT_NOTE_PEER_STUCK);
    got_free(g);
    g = rig_wait(&rig, &rig.life, VT_F_LINK_STATE, 0, 2000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_LINK_STATE_STATE, 0), 3);
    got_free(g);
    rig_close_gateway(&rig);
    rig_open_gateway(&rig);
    submit(&(struct ask){.id = 700, .seed = 1, .n_prompt = 4, .max_new = 4, .slot = -1, .rid = 0xee});
    accepted(700, 0);
    tokens(700, 1, 0, 4);
    done(700, 2, 4);
}

static void test_protocol_error_ends_the_link(void **state)
{
    (void)state;
    up("rate=0", false);
    struct vt_enc *e = peer_begin(&rig.gw, VT_F_ATTACH, 1);
    vt_enc_bin(e, VT_ATTACH_RID, "short", 5);
    vt_enc_u64(e, VT_ATTACH_NEXT, 0);
    peer_send(&rig.gw);
    struct got *g = rig_wait(&rig, &rig.life, VT_F_LINK_STATE, 0, 2000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_LINK_STATE_STATE, 0), 3);
    got_free(g);
    rig_close_gateway(&rig);
    rig_open_gateway(&rig);
}

/* ---- orders ---- */

static void test_drain(void **state)
{
    (void)state;
    up("rate=500", true);
    submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 600, .max_new = 50, .slot = -1});
    accepted(1, 0);
    order(VT_ORDER_DRAIN, 1, 5000);
    rig_turn(&rig, 20);
    submit(&(struct ask){.id = 2, .seed = 5, .n_prompt = 5, .max_new = 50, .slot = -1});
    refused(2, VT_E_DRAINING);
    tokens(1, 5, 0, 50); /* work that ends in time is let end */
    done(1, 2, 50);
    order_done(VT_ORDER_DRAIN, 1, true);
    assert_int_equal(rig_exit(&rig, 3000), 0);
    assert_true(rig.shelf->commits >= 1);
}

static void test_stop_parks(void **state)
{
    (void)state;
    up("rate=100", true);
    submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 600, .max_new = 1000, .slot = -1});
    accepted(1, 0);
    tokens(1, 5, 0, 2);
    order(VT_ORDER_STOP, 1, 5000);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_DONE, 1, 3000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), 5);
    got_free(g);
    assert_int_equal(rig_count(&rig.gw, VT_F_PARKED, 1), 1);
    order_done(VT_ORDER_STOP, 1, true);
    assert_int_equal(rig_exit(&rig, 3000), 0);
    assert_true(rig.shelf->commits >= 1);
}

static void test_park_all_and_go_on(void **state)
{
    (void)state;
    up("rate=200", false);
    submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 100, .max_new = 40, .slot = -1, .rid = 0x71});
    accepted(1, 0);
    tokens(1, 5, 0, 2);
    order(VT_ORDER_PARK_ALL, 1, 0);
    order_done(VT_ORDER_PARK_ALL, 1, true);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_DONE, 1, 1000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), 5);
    uint32_t n = (uint32_t)vt_frame_u64(&g->f, VT_DONE_EMITTED, 0);
    got_free(g);
    while ((g = rig_wait(&rig, &rig.gw, VT_F_TOKENS, 1, 50)) != NULL)
        got_free(g);
    submit(&(struct ask){
        .id = 2, .seed = 5, .n_prompt = 100, .max_new = 40, .slot = -1, .rid = 0x71, .n_emitted = n});
    assert_true(accepted(2, 0) >= 100);
    tokens(2, 5, n, 40);
    done(2, 2, 40);
}

static void test_faults_at_work(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        int code;
    } list[] = {{"rate=500,exit0-after=5", 0},
                {"rate=500,segv-at=5", 128 + SIGSEGV},
                {"rate=500,device_sticky=5", 80}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        up(list[i].extra, false);
        submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 50, .slot = -1});
        assert_int_equal(rig_exit(&rig, 3000), list[i].code);
        rig_kill(&rig);
    }
    up("rate=500,hang-step=5", false);
    submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 50, .slot = -1});
    rig_turn(&rig, 1500);
    while (rig_count(&rig.life, VT_F_BEAT, 0) > 1)
        got_free(rig_wait(&rig, &rig.life, VT_F_BEAT, 0, 10));
    struct got *g = rig_wait(&rig, &rig.life, VT_F_BEAT, 0, 1000); /* beats go on, the step does not */
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_BEAT_IN_FLIGHT, 0), 1);
    assert_true(vt_frame_u64(&g->f, VT_BEAT_STEP_AGE, 0) > 1000000);
    got_free(g);
    rig_kill(&rig);
    up("rate=500,nan-at=3", false);
    submit(&(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 50, .slot = -1});
    g = rig_wait(&rig, &rig.gw, VT_F_DONE, 1, 2000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_KEY_CODE, 0), VT_E_NOT_FINITE);
    got_free(g);
    rig_kill(&rig);
    up("ignore-term,rate=0", false);
    order(VT_ORDER_STOP, 1, 1000);
    kill(rig.pid, SIGTERM);
    assert_int_equal(rig_exit(&rig, 1500), -1);
}

/* ---- checkpoints ---- */

static bool wait_commits(uint64_t n, int ms)
{
    for (uint64_t end = rig_ms() + (uint64_t)ms; rig.shelf->commits < n && rig_ms() < end;)
        rig_turn(&rig, 10);
    return rig.shelf->commits >= n;
}

static void save_and_restore(const char *extra, uint32_t spoil, uint32_t reused_after)
{
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 1000, .first = 7, .max_new = 30, .slot = 1};
    up(extra, true);
    submit(&a);
    accepted(1, 0);
    tokens(1, 5, 0, 30);
    done(1, 2, 30);
    assert_true(wait_commits(1, 4000));
    rig_turn(&rig, 1500); /* autosaves find nothing new */
    uint64_t commits = rig.shelf->commits;
    assert_true(commits <= 2);
    rig_turn(&rig, 1500);
    assert_int_equal(rig.shelf->commits, commits);
    rig_kill(&rig);
    if (spoil > 0)
        rig.shelf->blobs[spoil - 1].data[100] ^= 1;
    up(extra, true);
    a.id = 2;
    submit(&a);
    assert_int_equal(accepted(2, 0), reused_after);
    tokens(2, 5, 0, 30);
    done(2, 2, 30);
    rig_cleanup(&rig);
}

static void test_save_and_restore(void **state)
{
    (void)state;
    save_and_restore("rate=0", 0, 999); /* four blocks hold the prompt and more; its last token is computed */
    save_and_restore("rate=0,price=16384", 0, 999); /* blocks of four pieces */
    save_and_restore("rate=0,hybrid", 0, 768);
    save_and_restore("rate=0", 2, 256); /* the second block is not what the items say */
}

/* A request that replaces a slot's conversation says so, else the store would keep the longer one for ever. */
static void test_replaced_conversation(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 1000, .first = 7, .max_new = 5, .slot = 1};
    up("rate=0", true);
    submit(&a);
    accepted(1, 0);
    tokens(1, 5, 0, 5);
    done(1, 2, 5);
    assert_true(wait_commits(1, 4000));
    assert_int_equal(rig.shelf->reason, CKPT_AUTOSAVE);
    rig_turn(&rig, 1500);
    uint64_t commits = rig.shelf->commits;
    a = (struct ask){.id = 2, .seed = 5, .n_prompt = 300, .first = 90, .max_new = 5, .slot = 1};
    submit(&a);
    accepted(2, 0);
    tokens(2, 5, 0, 5);
    done(2, 2, 5);
    assert_true(wait_commits(commits + 1, 4000));
    assert_int_equal(rig.shelf->reason, CKPT_RESET);
}

static void test_damaged_piece_is_not_committed(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 600, .max_new = 5, .slot = -1};
    up("rate=0,corrupt-chunk=1", true);
    submit(&a);
    accepted(1, 0);
    tokens(1, 5, 0, 5);
    done(1, 2, 5);
    assert_true(wait_commits(1, 5000)); /* the next try is whole */
    assert_int_equal(rig.shelf->refused_sums, 1);
    assert_true(rig.shelf->aborts >= 1);
}

static void test_store_comes_and_goes(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 600, .max_new = 300, .slot = -1, .credit = 500};
    up("rate=500", true);
    rig.shelf->mute = true; /* hangs in the first save */
    submit(&a);
    accepted(1, 0);
    rig_turn(&rig, 500);
    rig_close_store(&rig);
    tokens(1, 5, 0, 300);
    done(1, 2, 300);
    rig.shelf->mute = false;
    got_free(rig_wait(&rig, &rig.life, VT_F_LINK_STATE, 0, 1000));
    rig_open_store(&rig);
    assert_true(wait_commits(1, 5000));
    order(VT_ORDER_EXPORT, 9, 0);
    order_done(VT_ORDER_EXPORT, 9, true);
    rig_close_store(&rig);
    rig_turn(&rig, 100);
    order(VT_ORDER_EXPORT, 10, 0);
    order_done(VT_ORDER_EXPORT, 10, false);
}

static void slot_op(unsigned verb, uint32_t slot, const char *name, uint64_t id, bool ok, uint64_t n_tokens,
                    int code)
{
    struct vt_enc *e = peer_begin(&rig.gw, VT_F_SLOT_OP, id);
    vt_enc_u64(e, VT_SLOT_OP_SLOT, slot);
    vt_enc_u64(e, VT_SLOT_OP_VERB, verb);
    vt_enc_str(e, VT_SLOT_OP_NAME, name);
    vt_enc_str(e, VT_SLOT_OP_TENANT, "t");
    peer_send(&rig.gw);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_SLOT_OP_DONE, id, 5000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_SLOT_OP_DONE_OK, 9), ok);
    assert_int_equal(vt_frame_u64(&g->f, VT_SLOT_OP_DONE_TOKENS, 0), n_tokens);
    assert_int_equal(vt_frame_u64(&g->f, VT_KEY_CODE, 0), code);
    got_free(g);
}

static void test_slot_files(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 600, .max_new = 5, .slot = 0};
    up("rate=0", true);
    slot_op(1, 0, "empty", 90, false, 0, VT_E_NOT_FOUND);
    submit(&a);
    accepted(1, 0);
    tokens(1, 5, 0, 5);
    done(1, 2, 5);
    slot_op(1, 0, "talk.bin", 91, true, 512, 0); /* what a restore gives */
    slot_op(3, 0, "", 92, true, 605, 0);
    slot_op(2, 1, "talk.bin", 93, true, 512, 0);
    slot_op(2, 1, "none", 94, false, 0, VT_E_NOT_FOUND);
    slot_op(2, 9, "talk.bin", 95, false, 0, VT_E_NO_SLOT);
    slot_op(1, 0, "", 96, false, 0, VT_E_PARAM);
    a.id = 2;
    a.slot = 1;
    submit(&a);
    assert_int_equal(accepted(2, 0), 512);
    vt_enc_begin(&rig.gw.enc, VT_F_SLOTS_ASK, 97, rig.gw.link);
    peer_send(&rig.gw);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_SLOTS, 97, 1000);
    assert_non_null(g);
    assert_int_equal(vt_frame_array(&g->f, VT_SLOTS_LIST)->size, 2);
    got_free(g);
}

int main(int argc, char **argv)
{
    if (getenv("VT_TEST_ENGINE") == NULL) {
        fprintf(stderr, "VT_TEST_ENGINE names no stub engine\n");
        return 77;
    }
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_start_and_ready, down),
        cmocka_unit_test_teardown(test_faults_of_the_load, down),
        cmocka_unit_test_teardown(test_generates, down),
        cmocka_unit_test_teardown(test_refusals, down),
        cmocka_unit_test_teardown(test_runs_once, down),
        cmocka_unit_test_teardown(test_double_send_and_logprobs, down),
        cmocka_unit_test_teardown(test_cancel, down),
        cmocka_unit_test_teardown(test_credit, down),
        cmocka_unit_test_teardown(test_credit_stall_parks, down),
        cmocka_unit_test_teardown(test_link_lost_and_attached, down),
        cmocka_unit_test_teardown(test_orphans_are_let_go, down),
        cmocka_unit_test_teardown(test_gateway_that_does_not_read, down),
        cmocka_unit_test_teardown(test_protocol_error_ends_the_link, down),
        cmocka_unit_test_teardown(test_drain, down),
        cmocka_unit_test_teardown(test_stop_parks, down),
        cmocka_unit_test_teardown(test_park_all_and_go_on, down),
        cmocka_unit_test_teardown(test_faults_at_work, down),
        cmocka_unit_test_teardown(test_save_and_restore, down),
        cmocka_unit_test_teardown(test_replaced_conversation, down),
        cmocka_unit_test_teardown(test_damaged_piece_is_not_committed, down),
        cmocka_unit_test_teardown(test_store_comes_and_goes, down),
        cmocka_unit_test_teardown(test_slot_files, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
