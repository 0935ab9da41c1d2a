/* The store's side of the engine process: saves, restores, slot files, and a store that fails. */
#include "test_rig.h"

#include "series.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct rig rig;

static int down(void **state)
{
    (void)state;
    rig_cleanup(&rig);
    return 0;
}

static bool wait_commits(uint64_t n, int ms)
{
    for (uint64_t end = rig_ms() + (uint64_t)ms * RIG_PATIENCE; rig.shelf->commits < n && rig_ms() < end;)
        rig_turn(&rig, 10);
    return rig.shelf->commits >= n;
}

static void save_and_restore(const char *extra, uint32_t spoil, uint32_t reused_after)
{
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 1000, .first = 7, .max_new = 30, .slot = 1};
    rig_up(&rig, extra, true);
    rig_submit(&rig, &a);
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 5, 0, 30);
    rig_done(&rig, 1, 2, 30);
    assert_true(wait_commits(1, 4000));
    rig_turn(&rig, 1500); /* autosaves find nothing new */
    uint64_t commits = rig.shelf->commits;
    assert_true(commits <= 2);
    rig_turn(&rig, 1500);
    assert_int_equal(rig.shelf->commits, commits);
    rig_kill(&rig);
    if (spoil > 0)
        rig.shelf->blobs[spoil - 1].data[100] ^= 1;
    rig_up(&rig, extra, true);
    a.id = 2;
    rig_submit(&rig, &a);
    assert_int_equal(rig_accepted(&rig, 2, 0), reused_after);
    rig_tokens(&rig, 2, 5, 0, 30);
    rig_done(&rig, 2, 2, 30);
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
    rig_up(&rig, "rate=0", true);
    rig_submit(&rig, &a);
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 5, 0, 5);
    rig_done(&rig, 1, 2, 5);
    assert_true(wait_commits(1, 4000));
    assert_int_equal(rig.shelf->reason, CKPT_AUTOSAVE);
    rig_turn(&rig, 1500);
    uint64_t commits = rig.shelf->commits;
    a = (struct ask){.id = 2, .seed = 5, .n_prompt = 300, .first = 90, .max_new = 5, .slot = 1};
    rig_submit(&rig, &a);
    rig_accepted(&rig, 2, 0);
    rig_tokens(&rig, 2, 5, 0, 5);
    rig_done(&rig, 2, 2, 5);
    assert_true(wait_commits(commits + 1, 4000));
    assert_int_equal(rig.shelf->reason, CKPT_RESET);
}

static uint64_t counter(enum vt_series id)
{
    uint64_t v = UINT64_MAX;
    for (int i = 0; i < 3; i++) { /* the newest; what came before is of an earlier second */
        struct got *g = rig_wait(&rig, &rig.life, VT_F_T_ENGINE, 0, 3000);
        assert_non_null(g);
        v = vt_map_u64(vt_frame_map(&g->f, VT_T_ENGINE_COUNTERS), id, UINT64_MAX);
        got_free(g);
    }
    return v;
}

static bool noted(unsigned event, int ms)
{
    for (uint64_t end = rig_ms() + (uint64_t)ms; rig_ms() < end;) {
        struct got *g = rig_wait(&rig, &rig.life, VT_F_NOTE, 0, 50);
        bool is = g != NULL && vt_frame_u64(&g->f, VT_NOTE_EVENT, 0) == event;
        got_free(g);
        if (is)
            return true;
    }
    return false;
}

/* A restore whose state is lost on the way reports success; what the next request reuses tells. */
static void test_restore_must_pay(void **state)
{
    (void)state;
    static const char *const extra[] = {"rate=0,hybrid,prefill=200000",
                                        "rate=0,hybrid,prefill=200000,lose-state"};
    for (int lost = 0; lost < 2; lost++) {
        struct ask a = {.id = 1, .seed = 5, .n_prompt = 1000, .first = 7, .max_new = 5, .slot = 1};
        rig_up(&rig, extra[lost], true);
        rig_submit(&rig, &a);
        rig_accepted(&rig, 1, 0);
        rig_tokens(&rig, 1, 5, 0, 5);
        rig_done(&rig, 1, 2, 5);
        assert_true(wait_commits(1, 4000));
        rig_kill(&rig);
        rig_up(&rig, extra[lost], true);
        for (a.id = 2; a.id < 8; a.id++) {
            rig_submit(&rig, &a);
            assert_int_equal(rig_accepted(&rig, a.id, 0), lost ? 0 : 768);
            rig_tokens(&rig, a.id, 5, 0, 5);
            rig_done(&rig, a.id, 2, 5);
        }
        assert_int_equal(noted(VT_NOTE_RESTORE_USELESS, lost ? 1000 : 200), lost);
        assert_int_equal(noted(VT_NOTE_RESTORE_POOR, lost ? 3000 : 200), lost);
        uint64_t useless = counter(VT_SERIES_RESTORE_USELESS), reused = counter(VT_SERIES_RESTORE_REUSED);
        assert_int_equal(reused, lost ? 0 : 768);
        assert_true(lost ? useless >= 4 : useless == 0);
        assert_true(counter(VT_SERIES_RESTORE_TOKENS) >= 768 && counter(VT_SERIES_RESTORE_SPENT) > 0);
        rig_cleanup(&rig);
    }
}

/* A save of what is stored already is left out, unless the store was told to forget it. */
static void test_forgotten_tenant(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 1000, .first = 7, .max_new = 5, .slot = 1};
    rig_up(&rig, "rate=0", true);
    for (; a.id <= 4; a.id++) {
        uint64_t commits = rig.shelf->commits;
        if (a.id >= 3) {
            vt_enc_str(peer_begin(&rig.store, VT_F_CK_SALT_IS, 0), VT_CK_SALT_IS_TENANT,
                       a.id == 3 ? "other" : "t");
            peer_send(&rig.store);
            rig_turn(&rig, 50);
        }
        rig_submit(&rig, &a);
        rig_accepted(&rig, a.id, 0);
        rig_tokens(&rig, a.id, 5, 0, 5);
        rig_done(&rig, a.id, 2, 5);
        rig_turn(&rig, 1500);
        assert_int_equal(rig.shelf->commits > commits, a.id == 1 || a.id == 4);
    }
    uint64_t commits = rig.shelf->commits;
    rig_order(&rig, VT_ORDER_EXPORT, 9, 0); /* means every id, those behind the last block, too */
    rig_order_done(&rig, VT_ORDER_EXPORT, 9, true);
    uint64_t after = rig.shelf->commits;
    assert_in_range(after, commits, commits + 1);
    rig_order(&rig, VT_ORDER_EXPORT, 10, 0);
    rig_order_done(&rig, VT_ORDER_EXPORT, 10, true);
    assert_int_equal(rig.shelf->commits, after);
}

static void test_damaged_piece_is_not_committed(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 600, .max_new = 5, .slot = -1};
    rig_up(&rig, "rate=0,corrupt-chunk=1", true);
    rig_submit(&rig, &a);
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 5, 0, 5);
    rig_done(&rig, 1, 2, 5);
    assert_true(wait_commits(1, 5000)); /* the next try is whole */
    assert_int_equal(rig.shelf->refused_sums, 1);
    assert_true(rig.shelf->aborts >= 1);
}

static void test_store_comes_and_goes(void **state)
{
    (void)state;
    struct ask a = {.id = 1, .seed = 5, .n_prompt = 600, .max_new = 300, .slot = -1, .credit = 500};
    rig_up(&rig, "rate=500", true);
    rig.shelf->mute = true; /* hangs in the first save */
    rig_submit(&rig, &a);
    rig_accepted(&rig, 1, 0);
    rig_turn(&rig, 500);
    rig_close_store(&rig);
    rig_tokens(&rig, 1, 5, 0, 300);
    rig_done(&rig, 1, 2, 300);
    rig.shelf->mute = false;
    got_free(rig_wait(&rig, &rig.life, VT_F_LINK_STATE, 0, 1000));
    rig_open_store(&rig);
    assert_true(wait_commits(1, 5000));
    rig_order(&rig, VT_ORDER_EXPORT, 9, 0);
    rig_order_done(&rig, VT_ORDER_EXPORT, 9, true);
    rig_close_store(&rig);
    rig_turn(&rig, 100);
    rig_order(&rig, VT_ORDER_EXPORT, 10, 0);
    rig_order_done(&rig, VT_ORDER_EXPORT, 10, false);
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
    rig_up(&rig, "rate=0", true);
    slot_op(1, 0, "empty", 90, false, 0, VT_E_NOT_FOUND);
    rig_submit(&rig, &a);
    rig_accepted(&rig, 1, 0);
    rig_tokens(&rig, 1, 5, 0, 5);
    rig_done(&rig, 1, 2, 5);
    slot_op(1, 0, "talk.bin", 91, true, 605, 0);
    slot_op(3, 0, "", 92, true, 605, 0);
    slot_op(2, 1, "talk.bin", 93, true, 605, 0); /* two blocks come, the tail is evaluated */
    slot_op(2, 1, "none", 94, false, 0, VT_E_NOT_FOUND);
    slot_op(2, 9, "talk.bin", 95, false, 0, VT_E_NO_SLOT);
    slot_op(1, 0, "", 96, false, 0, VT_E_PARAM);
    char name[300];
    memset(name, 'n', sizeof name);
    name[256] = 0;
    slot_op(1, 0, name, 98, false, 0, VT_E_PARAM);
    a.id = 2;
    a.slot = 1;
    rig_submit(&rig, &a);
    assert_int_equal(rig_accepted(&rig, 2, 0), 599);
    vt_enc_begin(&rig.gw.enc, VT_F_SLOTS_ASK, 97, rig.gw.link);
    peer_send(&rig.gw);
    struct got *g = rig_wait(&rig, &rig.gw, VT_F_SLOTS, 97, 1000);
    assert_non_null(g);
    assert_int_equal(vt_frame_array(&g->f, VT_SLOTS_LIST)->size, 2);
    got_free(g);
}

/* Less than a block, with and without state: there is nothing but ids, and they are enough. */
static void test_short_slot_files(void **state)
{
    (void)state;
    static const char *const extra[] = {"rate=0", "rate=0,hybrid"};
    for (int i = 0; i < 2; i++) {
        struct ask a = {.id = 1, .seed = 5, .n_prompt = 100, .max_new = 5, .slot = 0};
        rig_up(&rig, extra[i], true);
        rig_submit(&rig, &a);
        rig_accepted(&rig, 1, 0);
        rig_tokens(&rig, 1, 5, 0, 5);
        rig_done(&rig, 1, 2, 5);
        slot_op(1, 0, "short", 91, true, 105, 0);
        rig_kill(&rig);
        rig_up(&rig, extra[i], true);
        slot_op(2, 1, "short", 92, true, 105, 0);
        a = (struct ask){.id = 2, .seed = 6, .n_prompt = 100, .max_new = 300, .slot = 1, .credit = 10};
        rig_submit(&rig, &a);
        assert_int_equal(rig_accepted(&rig, 2, 0),
                         i == 0 ? 99 : 0);               /* state is known at its end and at borders */
        slot_op(2, 1, "short", 93, false, 0, VT_E_BUSY); /* at work: nothing of it is lost */
        rig_credit(&rig, 2, 1000);
        rig_tokens(&rig, 2, 6, 0, 300);
        rig_done(&rig, 2, 2, 300);
        rig_cleanup(&rig);
    }
}

/* ---- prompts ---- */

static void answer(uint64_t id, uint32_t first, uint32_t n_prompt, int slot, uint32_t reused)
{
    rig_submit(&rig,
               &(struct ask){
                   .id = id, .seed = id, .n_prompt = n_prompt, .first = first, .max_new = 5, .slot = slot});
    assert_int_equal(rig_accepted(&rig, id, 0), reused);
    rig_tokens(&rig, id, id, 0, 5);
    rig_done(&rig, id, 2, 5);
}

/* A conversation of 1005 tokens is in the store and in no slot; another one of 505 begins as it does and is in slot 1. */
static void forgotten(const char *extra, bool near)
{
    rig_up(&rig, extra, true);
    answer(1, 7, 1000, 0, 0);
    assert_true(wait_commits(1, 4000));
    answer(2, 5000, 600, 0, 0);
    if (near)
        answer(3, 7, 500, 1, strstr(extra, "hybrid") != NULL ? 0 : 256); /* its state is known at 768 */
    else
        answer(3, 9000, 600, 1, 0);
    rig_turn(&rig, 400);
}

static void test_prompt_from_the_store(void **state)
{
    (void)state;
    static const char *const extra[] = {"rate=0", "rate=0,price=16384", "rate=0,hybrid"};
    for (int i = 0; i < 3; i++) {
        forgotten(extra[i], false);
        uint64_t finds = rig.shelf->finds;
        answer(10, 7, 1000, -1, 768);
        assert_int_equal(rig.shelf->loads, 1);
        answer(11, 7, 1000, -1, i == 2 ? 768 : 999); /* here now: nobody is asked */
        answer(12, 7, 1024, -1, i == 2 ? 768 : 1000);
        assert_int_equal(rig.shelf->finds, finds + 1);
        answer(13, 7, 200, -1, i == 2 ? 0 : 199);
        assert_int_equal(rig.shelf->finds, finds + 1);
        rig_cleanup(&rig);
    }
}

/* What is here is not sent again; a state between blocks is found at a border beyond them. */
static void test_rest_of_a_prompt(void **state)
{
    (void)state;
    static const char *const extra[] = {"rate=0", "rate=0,hybrid"};
    for (int i = 0; i < 2; i++) {
        forgotten(extra[i], true);
        answer(10, 7, 1000, -1, 768);
        assert_int_equal(rig.shelf->loads, i == 0 ? 2 : 1);
        assert_int_equal(rig.shelf->skipped, 1);
        rig_cleanup(&rig);
    }
}

static bool link_down_told(int ms)
{
    struct got *g = rig_look(&rig, &rig.life, VT_F_LINK_STATE, 0, ms);
    bool down_told = g != NULL && vt_frame_u64(&g->f, VT_LINK_STATE_STATE, 0) == 3;
    got_free(g);
    return down_told;
}

/* Whatever the store does, the prompt is evaluated in time and the answer is right. */
static void test_store_that_lies(void **state)
{
    (void)state;
    static const struct {
        enum shelf_lie lie;
        const char *extra;
        uint32_t reused;
        bool waits, ends_link;
    } list[] = {{LIE_SILENT, "rate=0", 0, true, false},         {LIE_NO_DATA, "rate=0", 0, true, false},
                {LIE_NO_DATA, "rate=0,hybrid", 0, true, false}, {LIE_STOPS, "rate=0", 256, true, false},
                {LIE_STOPS, "rate=0,hybrid", 0, true, false},   {LIE_ENDS, "rate=0", 256, false, false},
                {LIE_SUM, "rate=0", 256, false, false},         {LIE_SUM, "rate=0,hybrid", 0, false, false},
                {LIE_BYTES, "rate=0", 256, false, false},       {LIE_MORE, "rate=0", 0, false, false},
                {LIE_REC, "rate=0,hybrid", 0, false, false},    {LIE_MANIFEST, "rate=0", 0, false, false},
                {LIE_ORDER, "rate=0", 0, false, true},          {LIE_RING_SLOT, "rate=0", 0, false, true},
                {LIE_LENGTH, "rate=0", 0, false, true}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        rig.instead = list[i].waits ? NULL : "store.prefix_wait_ms=8000";
        forgotten(list[i].extra, false);
        rig.shelf->lie = list[i].lie;
        while (link_down_told(300))
            fail_msg("lie %d: the link is down before", list[i].lie);
        uint64_t began = rig_ms(), commits = rig.shelf->commits;
        answer(10, 7, 1000, -1, list[i].reused);
        uint64_t took = rig_ms() - began;
        if (list[i].waits ? took < 1000 || took > 15000 : took >= 8000)
            fail_msg("lie %d: %d ms", list[i].lie, (int)took);
        assert_int_equal(link_down_told(list[i].ends_link ? 5000 : 300), list[i].ends_link);
        rig.shelf->lie = LIE_NONE;
        if (list[i].ends_link) {
            rig_close_store(&rig);
            rig_open_store(&rig);
        }
        assert_true(wait_commits(commits + 1, 4000)); /* and it serves as before */
        rig_cleanup(&rig);
    }
}

/* Silence is waited for once; and a store that speaks again is asked again. */
static void test_silent_store_is_not_asked_twice(void **state)
{
    (void)state;
    rig.instead = "store.prefix_wait_ms=3000";
    forgotten("rate=0", false);
    uint64_t finds = rig.shelf->finds;
    rig.shelf->mute = true;
    uint64_t began = rig_ms();
    answer(10, 20000, 1000, 0, 0);
    assert_in_range(rig_ms() - began, 3000, 15000);
    began = rig_ms();
    answer(11, 30000, 1000, 1, 0);
    assert_in_range(rig_ms() - began, 0, 2900);
    assert_int_equal(rig.shelf->finds, finds);
    rig_close_store(&rig);
    rig.shelf->mute = false;
    assert_true(link_down_told(5000));
    rig_open_store(&rig);
    answer(12, 7, 1000, -1, 768);
    assert_int_equal(rig.shelf->finds, finds + 1);
}

/* Others decode while a prompt waits; it can be cancelled, given credit, parked and lose its gateway meanwhile. */
static void test_while_a_prompt_waits(void **state)
{
    (void)state;
    rig.instead = "store.prefix_wait_ms=3000";
    forgotten("rate=1000", false);
    rig.shelf->lie = LIE_NO_DATA;
    rig_submit(&rig,
               &(struct ask){.id = 20, .seed = 20, .n_prompt = 10, .first = 1, .max_new = 200, .slot = 0});
    assert_int_equal(rig_accepted(&rig, 20, 0), 0);
    rig_submit(&rig,
               &(struct ask){
                   .id = 21, .seed = 21, .n_prompt = 1000, .first = 7, .max_new = 9, .slot = 1, .credit = 3});
    rig_credit(&rig, 21, 6);
    rig_tokens(&rig, 20, 20, 0, 200);
    assert_int_equal(rig_count(&rig.gw, VT_F_ACCEPTED, 21), 0); /* the other one waits still */
    rig_done(&rig, 20, 2, 200);
    rig_accepted(&rig, 21, 0);
    rig_tokens(&rig, 21, 21, 0, 9);
    rig_done(&rig, 21, 2, 9);

    answer(22, 5000, 600, 1, 0); /* away with it; its save makes the store speak */
    rig_turn(&rig, 400);
    rig_submit(&rig,
               &(struct ask){.id = 23, .seed = 23, .n_prompt = 1000, .first = 7, .max_new = 9, .slot = 1});
    rig_turn(&rig, 100);
    uint64_t began = rig_ms();
    rig_cancel(&rig, 23);
    rig_done(&rig, 23, 3, 0);
    assert_in_range(rig_ms() - began, 0, 2700);

    rig_submit(&rig,
               &(struct ask){.id = 24, .seed = 24, .n_prompt = 1000, .first = 7, .max_new = 9, .slot = 1});
    rig_turn(&rig, 100);
    rig_order(&rig, VT_ORDER_PARK_ALL, 1, 0);
    rig_order_done(&rig, VT_ORDER_PARK_ALL, 1, true);
    rig_done(&rig, 24, 5, 0);

    rig_submit(&rig,
               &(struct ask){
                   .id = 25, .seed = 25, .n_prompt = 1000, .first = 7, .max_new = 9, .slot = 1, .rid = 0x25});
    rig_turn(&rig, 100);
    rig_close_gateway(&rig);
    rig_turn(&rig, 100);
    rig_open_gateway(&rig);
    rig_submit(&rig,
               &(struct ask){
                   .id = 26, .seed = 25, .n_prompt = 1000, .first = 7, .max_new = 9, .slot = 1, .rid = 0x25});
    rig_accepted(&rig, 26, 0);
    rig_tokens(&rig, 26, 25, 0, 9);
    rig_done(&rig, 26, 2, 9);
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
        cmocka_unit_test_teardown(test_save_and_restore, down),
        cmocka_unit_test_teardown(test_replaced_conversation, down),
        cmocka_unit_test_teardown(test_restore_must_pay, down),
        cmocka_unit_test_teardown(test_forgotten_tenant, down),
        cmocka_unit_test_teardown(test_damaged_piece_is_not_committed, down),
        cmocka_unit_test_teardown(test_store_comes_and_goes, down),
        cmocka_unit_test_teardown(test_slot_files, down),
        cmocka_unit_test_teardown(test_short_slot_files, down),
        cmocka_unit_test_teardown(test_prompt_from_the_store, down),
        cmocka_unit_test_teardown(test_rest_of_a_prompt, down),
        cmocka_unit_test_teardown(test_store_that_lies, down),
        cmocka_unit_test_teardown(test_silent_store_is_not_asked_twice, down),
        cmocka_unit_test_teardown(test_while_a_prompt_waits, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
