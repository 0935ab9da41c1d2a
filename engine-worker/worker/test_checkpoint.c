/* The store's side of the engine process: saves, restores, slot files, and a store that fails. */
#include "test_rig.h"

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
    for (uint64_t end = rig_ms() + (uint64_t)ms; rig.shelf->commits < n && rig_ms() < end;)
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
    slot_op(1, 0, "talk.bin", 91, true, 512, 0); /* what a restore gives */
    slot_op(3, 0, "", 92, true, 605, 0);
    slot_op(2, 1, "talk.bin", 93, true, 512, 0);
    slot_op(2, 1, "none", 94, false, 0, VT_E_NOT_FOUND);
    slot_op(2, 9, "talk.bin", 95, false, 0, VT_E_NO_SLOT);
    slot_op(1, 0, "", 96, false, 0, VT_E_PARAM);
    a.id = 2;
    a.slot = 1;
    rig_submit(&rig, &a);
    assert_int_equal(rig_accepted(&rig, 2, 0), 512);
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
        cmocka_unit_test_teardown(test_save_and_restore, down),
        cmocka_unit_test_teardown(test_replaced_conversation, down),
        cmocka_unit_test_teardown(test_damaged_piece_is_not_committed, down),
        cmocka_unit_test_teardown(test_store_comes_and_goes, down),
        cmocka_unit_test_teardown(test_slot_files, down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
