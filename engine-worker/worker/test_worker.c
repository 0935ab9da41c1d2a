/* Drives the stub engine, a real process with real sockets, through vitriold's, the gateway's and the store's eyes. */
#include "sampling.h"
#include "test_rig.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct rig rig;

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
    rig_start(&rig, "load=200,ticks=10", rig_small);
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
    rig_order(&rig, VT_ORDER_CANARY, 5, 0);
    rig_order_done(&rig, VT_ORDER_CANARY, 5, true);
    rig_order(&rig, 99, 6, 0);
    rig_order_done(&rig, 99, 6, false);
    rig_order(&rig, VT_ORDER_STOP, 7, 0);
    rig_order_done(&rig, VT_ORDER_STOP, 7, true);
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
        rig_start(&rig, list[i].extra, rig_small);
        struct got *g = rig_wait(&rig, &rig.life, VT_F_FATAL, 0, 5000);
        assert_non_null(g);
        assert_int_equal(vt_frame_u64(&g->f, VT_FATAL_EXIT_CODE, 0), list[i].code);
        got_free(g);
        assert_int_equal(rig_exit(&rig, 3000), list[i].code);
        rig_kill(&rig);
    }
    rig_start(&rig, "drop-option=engine.slots,lie-effective=engine.ctx_tokens", rig_small);
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
    rig_up(&rig, "rate=2000", false);
    rig_submit(&rig, &(struct ask){.id = 1, .seed = 7, .n_prompt = 300, .max_new = 50, .slot = -1});
    assert_int_equal(rig_accepted(&rig, 1, 0), 0);
    rig_tokens(&rig, 1, 7, 0, 50);
    rig_done(&rig, 1, 2, 50);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_PREFILL, 1, 100);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_PREFILL_TOTAL, 0), 300);
    got_free(g);
    /* The same prompt again finds its prefix; four at once share two slots and the queue. */
    for (uint64_t id = 2; id <= 5; id++)
        rig_submit(&rig, &(struct ask){.id = id, .seed = id, .n_prompt = 300, .max_new = 20, .slot = -1});
    assert_int_equal(rig_accepted(&rig, 2, 0), 299);
    for (uint64_t id = 2; id <= 5; id++) {
        rig_tokens(&rig, id, id, 0, 20);
        rig_done(&rig, id, 2, 20);
    }
    assert_true(rig.gw.steps > 0); /* two at a time came in one frame */
    /* Resume: the first five are known, the next is the sixth. */
    rig_submit(&rig,
               &(struct ask){.id = 6, .seed = 9, .n_prompt = 10, .max_new = 12, .n_emitted = 5, .slot = -1});
    rig_accepted(&rig, 6, 0);
    rig_tokens(&rig, 6, 9, 5, 12);
    rig_done(&rig, 6, 2, 12);
}

static void test_refusals(void **state)
{
    (void)state;
    rig_up(&rig, "rate=0", false);
    rig_submit(&rig, &(struct ask){.id = 1, .n_prompt = 3000, .first = 1, .max_new = 5, .slot = -1});
    rig_refused(&rig, 1, VT_E_WINDOW);
    rig_submit(&rig, &(struct ask){.id = 2, .n_prompt = 5, .max_new = 5, .slot = -1, .op = 2});
    rig_refused(&rig, 2, VT_E_CAPABILITY);
    rig_submit(&rig, &(struct ask){.id = 3, .n_prompt = 5, .max_new = 5, .slot = -1, .tenant = "../x"});
    rig_refused(&rig, 3, VT_E_PARAM);
    rig_submit(&rig, &(struct ask){.id = 4, .n_prompt = 5, .first = 1u << 20, .max_new = 5, .slot = -1});
    rig_refused(&rig, 4, VT_E_PARAM);
    rig_submit(&rig, &(struct ask){.id = 5, .n_prompt = 5, .max_new = 5, .slot = 77});
    rig_refused(&rig, 5, VT_E_NO_SLOT);
    rig_order(&rig, VT_ORDER_QUIESCE, 1, 0);
    rig_order_done(&rig, VT_ORDER_QUIESCE, 1, true);
    rig_submit(&rig, &(struct ask){.id = 6, .n_prompt = 5, .max_new = 5, .slot = -1});
    rig_refused(&rig, 6, VT_E_BOUNCING);
    rig_order(&rig, VT_ORDER_CONTINUE, 2, 0);
    rig_order_done(&rig, VT_ORDER_CONTINUE, 2, true);
    /* Nothing of a refused request is remembered: the same id runs now. */
    rig_submit(&rig, &(struct ask){.id = 6, .seed = 1, .n_prompt = 5, .max_new = 5, .slot = -1});
    rig_accepted(&rig, 6, 0);
    rig_tokens(&rig, 6, 1, 0, 5);
    rig_done(&rig, 6, 2, 5);
}

static void test_runs_once(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 3, .n_prompt = 10, .max_new = 40, .slot = -1, .rid = 0x42};
    rig_up(&rig, "rate=400", false);
    rig_submit(&rig, &a);
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 3, 0, 1);
    a.id = 2;
    rig_submit(&rig, &a); /* while it runs: its progress moves over */
    rig_accepted(&rig, 2, 1);
    rig_tokens(&rig, 2, 3, 0, 40);
    rig_done(&rig, 2, 2, 40);
    a.id = 3;
    rig_submit(&rig, &a); /* after its end: told again, not run again */
    rig_accepted(&rig, 3, 1);
    rig_tokens(&rig, 3, 3, 0, 40);
    rig_done(&rig, 3, 2, 40);
    assert_int_equal(rig_count(&rig.gw, VT_F_DONE, 0), 0);
}

static void test_double_send_and_logprobs(void **state)
{
    (void)state;
    size_t n;
    rig_up(&rig, "rate=1000,double-send", false);
    rig_submit(&rig,
               &(struct ask){.id = 1, .seed = 3, .n_prompt = 10, .max_new = 2, .slot = -1, .logprobs = 3});
    rig_accepted(&rig, 1, 0);
    unsigned frames = 0;
    struct got *g;
    while ((g = rig_look(&rig, &rig.gw, VT_F_TOKENS, 1, 500)) != NULL) {
        assert_non_null(vt_frame_bin(&g->f, VT_TOKENS_LOGPROBS, &n));
        const msgpack_object_array *top = vt_array_array(vt_frame_array(&g->f, VT_TOKENS_TOP), 0);
        assert_int_equal(top->size, 4);
        assert_true(vt_array_f64(top, 3, 0) == -1.0);
        got_free(g);
        frames++;
    }
    assert_true(frames >= 2 && frames % 2 == 0);
}

/* Tokens that come fast share frames; the first one and the last ones are not held back. */
static void test_gathered(void **state)
{
    (void)state;
    rig_up(&rig, "rate=10000", false); /* a few in 8 ms on a busy machine, too */
    rig_submit(&rig, &(struct ask){.id = 1, .seed = 3, .n_prompt = 10, .max_new = 120, .slot = -1});
    rig_accepted(&rig, 1, 0);
    unsigned frames = 0, ids = 0;
    size_t n = 0;
    struct got *g;
    while (ids < 120 && (g = rig_wait(&rig, &rig.gw, VT_F_TOKENS, 1, 2000)) != NULL) {
        assert_int_equal(vt_frame_u64(&g->f, VT_TOKENS_FIRST, 999), ids);
        assert_non_null(vt_frame_bin(&g->f, VT_TOKENS_IDS, &n));
        if (frames++ == 0)
            assert_int_equal(n, 4);
        ids += (unsigned)(n / 4);
        got_free(g);
    }
    assert_int_equal(ids, 120);
    assert_in_range(frames, 2, 60);
    rig_done(&rig, 1, 2, 120);
}

static void test_cancel(void **state)
{
    (void)state;
    rig_up(&rig, "rate=200", false);
    for (uint64_t id = 1; id <= 3; id++) /* none ends before the others are cancelled */
        rig_submit(&rig,
                   &(struct ask){.id = id, .seed = id, .n_prompt = 10, .max_new = 250 * id, .slot = -1});
    rig_accepted(&rig, 1, 0);
    rig_accepted(&rig, 2, 0);
    rig_accepted(&rig, 3, 0);
    rig_cancel(&rig, 3); /* queued */
    rig_done(&rig, 3, 3, 0);
    rig_cancel(&rig, 2); /* decoding */
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_DONE, 2, 500);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), 3);
    got_free(g);
    rig_cancel(&rig, 2);
    rig_cancel(&rig, 99);
    rig_tokens(&rig, 1, 1, 0, 250); /* the neighbour saw nothing of it */
    rig_done(&rig, 1, 2, 250);
    rig_turn(&rig, 100);
    assert_int_equal(rig_count(&rig.gw, VT_F_DONE, 0), 0);
}

static void test_credit(void **state)
{
    (void)state;
    rig_up(&rig, "rate=2000", false);
    rig_submit(&rig,
               &(struct ask){.id = 1, .seed = 1, .n_prompt = 10, .max_new = 30, .slot = -1, .credit = 8});
    rig_submit(&rig, &(struct ask){.id = 2, .seed = 2, .n_prompt = 10, .max_new = 100, .slot = -1});
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 1, 0, 8);
    rig_accepted(&rig, 2, 0);
    rig_tokens(&rig, 2, 2, 0, 100); /* not held up by the one that waits */
    rig_done(&rig, 2, 2, 100);
    assert_int_equal(rig_count(&rig.gw, VT_F_TOKENS, 1), 0);
    rig_credit(&rig, 1, 4);
    rig_tokens(&rig, 1, 1, 8, 12);
    rig_turn(&rig, 100);
    assert_int_equal(rig_count(&rig.gw, VT_F_TOKENS, 1), 0);
    rig_credit(&rig, 1, 100);
    rig_tokens(&rig, 1, 1, 12, 30);
    rig_done(&rig, 1, 2, 30);
}

/* Two clients that read nothing hold both slots: they give way to the ones that wait, and only then. */
static void test_credit_stall_parks(void **state)
{
    (void)state;
    rig_up(&rig, "rate=2000", false);
    rig_submit(&rig,
               &(struct ask){
                   .id = 1, .seed = 1, .n_prompt = 10, .max_new = 30, .slot = -1, .credit = 8, .rid = 0x61});
    rig_submit(&rig,
               &(struct ask){
                   .id = 2, .seed = 2, .n_prompt = 10, .max_new = 30, .slot = -1, .credit = 8, .rid = 0x62});
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 1, 0, 8);
    rig_accepted(&rig, 2, 0);
    rig_tokens(&rig, 2, 2, 0, 8);
    rig_turn(&rig, 2500);
    assert_int_equal(rig_count(&rig.gw, VT_F_PARKED, 0), 0); /* nobody waits */
    rig_submit(&rig,
               &(struct ask){.id = 3, .seed = 3, .n_prompt = 10, .max_new = 20, .slot = -1, .rid = 0x63});
    for (uint64_t id = 1; id <= 2; id++) {
        struct got *g = rig_wait(&rig, &rig.gw, VT_F_PARKED, id, 5000);
        assert_non_null(g);
        assert_int_equal(vt_frame_u64(&g->f, VT_PARKED_EMITTED, 99), 8);
        assert_int_equal(vt_frame_u64(&g->f, VT_PARKED_WHY, 99), VT_PARK_SLOW_CLIENT);
        got_free(g);
        rig_done(&rig, id, 5, 8);
    }
    rig_accepted(&rig, 3, 0);
    rig_tokens(&rig, 3, 3, 0, 20);
    rig_done(&rig, 3, 2, 20);
    rig_submit(
        &rig,
        &(struct ask){
            .id = 4, .seed = 1, .n_prompt = 10, .max_new = 30, .slot = -1, .rid = 0x61, .n_emitted = 8});
    rig_accepted(&rig, 4, 0);
    rig_tokens(&rig, 4, 1, 8, 30);
    rig_done(&rig, 4, 2, 30);
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
    rig.instead = "engine.orphan_s=60";
    rig_up(&rig, "rate=500", false);
    rig_submit(&rig,
               &(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 60, .slot = -1, .rid = 0x51});
    rig_submit(&rig,
               &(struct ask){.id = 2, .seed = 6, .n_prompt = 10, .max_new = 5, .slot = -1, .rid = 0x52});
    rig_accepted(&rig, 1, 0);
    rig_accepted(&rig, 2, 0);
    rig_tokens(&rig, 2, 6, 0, 5);
    rig_done(&rig, 2, 2, 5);
    rig_turn(&rig, 20);
    rig_close_gateway(&rig);
    rig_turn(&rig, 200);
    rig_open_gateway(&rig);
    attach(11, 0x51, 3, true);
    attach(12, 0x52, 2, true); /* ended before: told again from there */
    attach(13, 0x53, 0, false);
    attach(14, 0x52, 9, false); /* beyond what there is */
    rig_tokens(&rig, 11, 5, 3, 60);
    rig_done(&rig, 11, 2, 60);
    rig_tokens(&rig, 12, 6, 2, 5);
    rig_done(&rig, 12, 2, 5);
}

/* Takes n vectors of that request; each has the id or the sum of ids that it was made of in front. */
static void take_vectors(uint64_t id, uint32_t n, float first, float step)
{
    for (uint32_t had = 0; had < n;) {
        struct got *g = rig_wait(&rig, &rig.gw, VT_F_VECTOR, id, 5000);
        size_t bytes;
        assert_non_null(g);
        const uint8_t *values = vt_frame_bin(&g->f, VT_VECTOR_VALUES, &bytes);
        assert_int_equal(vt_frame_u64(&g->f, VT_VECTOR_INDEX, 99), had);
        assert_int_equal(vt_frame_u64(&g->f, VT_VECTOR_DIM, 0), 4);
        for (uint32_t i = 0; i < bytes / 16; i++) {
            float v[4];
            memcpy(v, values + 16 * i, sizeof v);
            assert_true(v[0] == first + step * (float)(had + i) && v[1] == 1);
        }
        had += (uint32_t)(bytes / 16);
        assert_true(had <= n);
        got_free(g);
    }
}

static void test_vectors(void **state)
{
    (void)state;
    rig_up(&rig, "rate=2000", false);
    struct ask mean = {.id = 1, .n_prompt = 100, .first = 5, .slot = -1, .op = 1, .pool = 2, .rid = 0x71},
               rows = {.id = 2, .n_prompt = 300, .first = 5, .slot = -1, .op = 1, .pool = 1, .rid = 0x72};
    rig_submit(&rig, &mean);
    rig_submit(&rig, &rows);
    rig_accepted(&rig, 1, 0);
    rig_accepted(&rig, 2, 0);
    take_vectors(1, 1, 100 * 5 + 99 * 50, 0);
    rig_done(&rig, 1, 2, 0);
    take_vectors(2, 300, 5, 1);
    rig_done(&rig, 2, 2, 0);
    /* a repeated question and a new link get them again, and nothing runs twice */
    mean.id = 3;
    rig_submit(&rig, &mean);
    rig_accepted(&rig, 3, 1);
    take_vectors(3, 1, 100 * 5 + 99 * 50, 0);
    rig_done(&rig, 3, 2, 0);
    rig_close_gateway(&rig);
    rig_turn(&rig, 200);
    rig_open_gateway(&rig);
    attach(12, 0x72, 0, true);
    take_vectors(12, 300, 5, 1);
    rig_done(&rig, 12, 2, 0);
    static const struct ask wrong[] = {
        {.id = 20, .n_prompt = 5, .slot = -1, .op = 1, .pool = 9},
        {.id = 21, .n_prompt = 3000, .slot = -1, .op = 1, .pool = 2},
    };
    rig_submit(&rig, &wrong[0]);
    rig_refused(&rig, 20, VT_E_CAPABILITY);
    rig_submit(&rig, &wrong[1]);
    rig_refused(&rig, 21, VT_E_WINDOW);
}

static void test_orphans_are_let_go(void **state)
{
    (void)state;
    rig_up(&rig, "rate=100", false);
    rig_submit(&rig,
               &(struct ask){.id = 1, .seed = 5, .n_prompt = 600, .max_new = 500, .slot = -1, .rid = 0x61});
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 5, 0, 3);
    rig_close_gateway(&rig);
    rig_turn(&rig, 3200);
    rig_open_gateway(&rig);
    attach(2, 0x61, 3, false);
    /* Its KV is there as a prefix still. */
    rig_submit(&rig, &(struct ask){.id = 3, .seed = 5, .n_prompt = 600, .max_new = 2, .slot = -1});
    assert_int_equal(rig_accepted(&rig, 3, 0), 599);
    rig_tokens(&rig, 3, 5, 0, 2);
    rig_done(&rig, 3, 2, 2);
}

static void test_gateway_that_does_not_read(void **state)
{
    (void)state;
    rig_up(&rig, "rate=0", false);
    rig.gw.deaf = true;
    /* Many small frames: far more than the queues of the link hold. */
    for (uint64_t id = 1; id <= 600; id++)
        rig_submit(&rig, &(struct ask){.id = id,
                                       .seed = id,
                                       .n_prompt = 4,
                                       .max_new = 4,
                                       .slot = -1,
                                       .rid = 0,
                                       .first = (uint32_t)id});
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
    rig_submit(&rig,
               &(struct ask){.id = 700, .seed = 1, .n_prompt = 4, .max_new = 4, .slot = -1, .rid = 0xee});
    rig_accepted(&rig, 700, 0);
    rig_tokens(&rig, 700, 1, 0, 4);
    rig_done(&rig, 700, 2, 4);
}

static void test_protocol_error_ends_the_link(void **state)
{
    (void)state;
    rig_up(&rig, "rate=0", false);
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
    rig_up(&rig, "rate=100", true);
    rig_submit(&rig, &(struct ask){.id = 1, .seed = 5, .n_prompt = 600, .max_new = 150, .slot = -1});
    rig_accepted(&rig, 1, 0);
    rig_order(&rig, VT_ORDER_DRAIN, 1, 30000);
    rig_turn(&rig, 300); /* orders and requests come on links of their own */
    rig_submit(&rig, &(struct ask){.id = 2, .seed = 5, .n_prompt = 5, .max_new = 50, .slot = -1});
    rig_refused(&rig, 2, VT_E_DRAINING);
    rig_tokens(&rig, 1, 5, 0, 150); /* work that ends in time is let end */
    rig_done(&rig, 1, 2, 150);
    rig_order_done(&rig, VT_ORDER_DRAIN, 1, true);
    assert_int_equal(rig_exit(&rig, 3000), 0);
    assert_true(rig.shelf->commits >= 1);
}

static void test_stop_parks(void **state)
{
    (void)state;
    rig_up(&rig, "rate=100", true);
    rig_submit(&rig, &(struct ask){.id = 1, .seed = 5, .n_prompt = 600, .max_new = 1000, .slot = -1});
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 5, 0, 2);
    rig_order(&rig, VT_ORDER_STOP, 1, 5000);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_DONE, 1, 3000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), 5);
    got_free(g);
    assert_int_equal(rig_count(&rig.gw, VT_F_PARKED, 1), 1);
    rig_order_done(&rig, VT_ORDER_STOP, 1, true);
    assert_int_equal(rig_exit(&rig, 3000), 0);
    assert_true(rig.shelf->commits >= 1);
}

static void test_park_all_and_go_on(void **state)
{
    (void)state;
    rig_up(&rig, "rate=200", false);
    rig_submit(&rig,
               &(struct ask){.id = 1, .seed = 5, .n_prompt = 100, .max_new = 40, .slot = -1, .rid = 0x71});
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 5, 0, 2);
    rig_order(&rig, VT_ORDER_PARK_ALL, 1, 0);
    rig_order_done(&rig, VT_ORDER_PARK_ALL, 1, true);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_DONE, 1, 1000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_DONE_REASON, 9), 5);
    uint32_t n = (uint32_t)vt_frame_u64(&g->f, VT_DONE_EMITTED, 0);
    got_free(g);
    while ((g = rig_look(&rig, &rig.gw, VT_F_TOKENS, 1, 50)) != NULL)
        got_free(g);
    rig_submit(
        &rig,
        &(struct ask){
            .id = 2, .seed = 5, .n_prompt = 100, .max_new = 40, .slot = -1, .rid = 0x71, .n_emitted = n});
    assert_true(rig_accepted(&rig, 2, 0) >= 100);
    rig_tokens(&rig, 2, 5, n, 40);
    rig_done(&rig, 2, 2, 40);
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
        rig_up(&rig, list[i].extra, false);
        rig_submit(&rig, &(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 50, .slot = -1});
        assert_int_equal(rig_exit(&rig, 3000), list[i].code);
        rig_kill(&rig);
    }
    rig_up(&rig, "rate=500,hang-step=5", false);
    rig_submit(&rig, &(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 50, .slot = -1});
    struct got *g;
    bool stuck = false;
    for (uint64_t end = rig_ms() + 20000; rig_ms() < end && !stuck;) { /* beats go on, the step does not */
        g = rig_wait(&rig, &rig.life, VT_F_BEAT, 0, 2000);
        assert_non_null(g);
        stuck = vt_frame_u64(&g->f, VT_BEAT_IN_FLIGHT, 0) == 1 &&
                vt_frame_u64(&g->f, VT_BEAT_STEP_AGE, 0) > 1000000;
        got_free(g);
    }
    assert_true(stuck);
    rig_kill(&rig);
    rig_up(&rig, "rate=500,nan-at=3", false);
    rig_submit(&rig, &(struct ask){.id = 1, .seed = 5, .n_prompt = 10, .max_new = 50, .slot = -1});
    g = rig_wait(&rig, &rig.gw, VT_F_DONE, 1, 2000);
    assert_non_null(g);
    assert_int_equal(vt_frame_u64(&g->f, VT_KEY_CODE, 0), VT_E_NOT_FINITE);
    got_free(g);
    rig_kill(&rig);
    rig_up(&rig, "ignore-term,rate=0", false);
    rig_order(&rig, VT_ORDER_STOP, 1, 1000);
    kill(rig.pid, SIGTERM);
    rig_turn(&rig, 1500);
    assert_int_equal(waitpid(rig.pid, NULL, WNOHANG), 0);
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
        cmocka_unit_test_teardown(test_gathered, down),
        cmocka_unit_test_teardown(test_cancel, down),
        cmocka_unit_test_teardown(test_credit, down),
        cmocka_unit_test_teardown(test_credit_stall_parks, down),
        cmocka_unit_test_teardown(test_link_lost_and_attached, down),
        cmocka_unit_test_teardown(test_vectors, down),
        cmocka_unit_test_teardown(test_orphans_are_let_go, down),
        cmocka_unit_test_teardown(test_gateway_that_does_not_read, down),
        cmocka_unit_test_teardown(test_protocol_error_ends_the_link, down),
        cmocka_unit_test_teardown(test_drain, down),
        cmocka_unit_test_teardown(test_stop_parks, down),
        cmocka_unit_test_teardown(test_park_all_and_go_on, down),
        cmocka_unit_test_teardown(test_faults_at_work, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
