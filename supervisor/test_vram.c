/* vram.h: memory that returns, GPUs that are lost, the ladder. */
#include "vram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB    (1ull << 20)
#define SEC(n) ((n)*1000000ull)
#define LIMITS                                                                                               \
    {                                                                                                        \
        .return_us = SEC(30), .proof_us = SEC(60), .floor = 256 * MIB                                        \
    }

static const struct vram_limits limits = LIMITS;

static enum vram_step next(struct vram *v, uint64_t now)
{
    uint64_t at;
    return vram_next(v, &limits, now, &at);
}

/* One generation: 1000 MiB free before it, 600 of weights and KV, 100 of work space. */
static struct vram after_one(bool vault)
{
    struct vram v = {0};
    assert_int_equal(next(&v, SEC(1)), VRAM_READ);
    vram_read(&v, 1000 * MIB, SEC(1));
    assert_int_equal(next(&v, SEC(1)), VRAM_GO);
    vram_ready(&v, 600 * MIB, 100 * MIB, vault);
    vram_ended(&v, false);
    return v;
}

static void test_memory_comes_back_late(void **state)
{
    struct vram v = after_one(false);
    unsigned reads = 0;
    uint64_t at, now = SEC(100);
    for (; now < SEC(112); now += 50000) {
        enum vram_step s = vram_next(&v, &limits, now, &at);
        assert_true(s == VRAM_READ || s == VRAM_WAIT);
        if (s == VRAM_READ) {
            reads++;
            vram_read(&v, 300 * MIB, now);
        } else {
            assert_in_range(at, now, now + VRAM_REREAD_US);
        }
    }
    assert_in_range(reads, 40, 49);
    vram_read(&v, 1000 * MIB - VRAM_SLACK - 1, now);
    assert_int_equal(next(&v, now), VRAM_WAIT);
    vram_read(&v, 1000 * MIB - VRAM_SLACK, now);
    assert_int_equal(next(&v, now), VRAM_GO);
    /* The new baseline is what was read, so that losses within the slack add up to a refusal, not to nothing. */
    assert_int_equal(v.baseline, 1000 * MIB - VRAM_SLACK);
}

static void test_memory_never_comes_back(void **state)
{
    struct vram v = after_one(false);
    uint64_t now = SEC(100), end = now + SEC(30);
    for (; now < end; now += VRAM_REREAD_US) {
        assert_int_equal(next(&v, now), VRAM_READ);
        vram_read(&v, 300 * MIB, now);
        assert_int_equal(next(&v, now), VRAM_WAIT);
    }
    assert_int_equal(next(&v, now), VRAM_READ);
    vram_read(&v, 300 * MIB, now);
    assert_int_equal(next(&v, now), VRAM_NOT_RETURNED);
    /* The next try waits again, and begins with a reading. */
    assert_int_equal(next(&v, now + SEC(1)), VRAM_READ);
    vram_read(&v, 300 * MIB, now + SEC(1));
    assert_int_equal(next(&v, now + SEC(1)), VRAM_WAIT);
}

/* Less than before, but enough: somebody else came, and the appliance goes on. */
static void test_somebody_else_took_some(void **state)
{
    struct vram v = after_one(false);
    uint64_t now = SEC(100), end = now + SEC(30);
    assert_int_equal(next(&v, now), VRAM_READ);
    vram_read(&v, 960 * MIB - 30 * MIB, now);
    assert_int_equal(next(&v, now), VRAM_WAIT);
    vram_read(&v, 955 * MIB, end);
    assert_int_equal(next(&v, end), VRAM_GO);
    v = after_one(false);
    v.work = 10 * MIB;
    vram_read(&v, 900 * MIB, now);
    assert_int_equal(next(&v, now), VRAM_WAIT);
    vram_read(&v, 900 * MIB, end);
    assert_int_equal(next(&v, end), VRAM_TAKEN);
    assert_int_equal(v.baseline, 900 * MIB);
}

static void test_what_a_vault_holds_is_not_missing(void **state)
{
    struct vram v = after_one(true);
    vram_read(&v, 400 * MIB, SEC(100));
    assert_int_equal(next(&v, SEC(100)), VRAM_GO);
    assert_int_equal(v.baseline, 1000 * MIB);
    vram_ended(&v, false);
    vram_let_go(&v);
    vram_read(&v, 400 * MIB, SEC(200));
    assert_int_equal(next(&v, SEC(200)), VRAM_WAIT);
    vram_read(&v, 1000 * MIB, SEC(201));
    assert_int_equal(next(&v, SEC(201)), VRAM_GO);
}

static void test_lost_until_proved(void **state)
{
    static const uint64_t waits[] = {60, 120, 240, 480, 900, 900};
    struct vram v = after_one(false);
    uint64_t at, now = SEC(1000);
    vram_ended(&v, true);
    assert_int_equal(next(&v, now), VRAM_PROVE);
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        vram_failed(&v, &limits, now);
        assert_int_equal(vram_next(&v, &limits, now, &at), VRAM_LOST);
        assert_int_equal(at, now + SEC(waits[i]));
        /* What only reads says nothing about whether it computes. */
        vram_read(&v, 1000 * MIB, now);
        assert_int_equal(next(&v, at - 1), VRAM_LOST);
        assert_int_equal(next(&v, at), VRAM_PROVE);
        now = at;
    }
    vram_proved(&v, 1000 * MIB, now);
    assert_int_equal(next(&v, now), VRAM_GO);
    vram_ended(&v, true);
    vram_failed(&v, &limits, now);
    vram_next(&v, &limits, now, &at);
    assert_int_equal(at, now + SEC(60)); /* the row begins anew */
}

/* A probe that has never worked says nothing; a GPU that was read, and cannot be read any more, is lost. */
static void test_unreadable(void **state)
{
    struct vram v = {0};
    vram_failed(&v, &limits, SEC(1));
    vram_ended(&v, true);
    assert_false(v.lost);
    v = after_one(false);
    vram_failed(&v, &limits, SEC(100));
    assert_true(v.lost);
    assert_int_equal(next(&v, SEC(100)), VRAM_LOST);
}

static void test_windows_of_the_ladder(void **state)
{
    /* 8 slots: 12288 tokens are 6 pages of each. */
    static const uint32_t want[] = {32768, 31232, 29696, 28160, 26624};
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(ladder_window(32768, 8, 12288, i), want[i]);
    assert_int_equal(ladder_window(4096, 8, 12288, 1), 2560);
    assert_int_equal(ladder_window(4096, 8, 12288, 2), 1024);
    assert_int_equal(ladder_window(4096, 8, 12288, 3), 1024);
    assert_true(ladder_has(4096, 8, 12288, 1, 4));
    assert_false(ladder_has(4096, 8, 12288, 2, 4));
    assert_false(ladder_has(32768, 8, 12288, 4, 4));
    assert_int_equal(ladder_window(2048, 256, 12288, 1), 1792); /* at least a page */
    assert_int_equal(ladder_window(256, 1, 12288, 4), 256);
}

static void test_floor_with_hysteresis(void **state)
{
    struct ladder l = {0};
    uint64_t now = SEC(10);
    const uint64_t floor = 256 * MIB, rung = 100 * MIB;
    assert_int_equal(ladder_take(&l, 255 * MIB, floor, rung, now), LADDER_STAY);
    assert_int_equal(ladder_take(&l, 256 * MIB, floor, rung, now + SEC(9)), LADDER_STAY); /* it was short */
    assert_int_equal(ladder_take(&l, 200 * MIB, floor, rung, now + SEC(10)), LADDER_STAY);
    assert_int_equal(ladder_take(&l, 200 * MIB, floor, rung, now + SEC(20)), LADDER_DOWN);
    assert_int_equal(ladder_take(&l, 200 * MIB, floor, rung, now + SEC(21)), LADDER_STAY); /* counted anew */
    l.rung = 1;
    now += SEC(100);
    assert_int_equal(ladder_take(&l, 380 * MIB, floor, rung, now), LADDER_STAY);
    assert_int_equal(ladder_take(&l, 380 * MIB, floor, rung, now + VRAM_UNDO_US),
                     LADDER_STAY); /* too little */
    assert_int_equal(ladder_take(&l, 381 * MIB, floor, rung, now + VRAM_UNDO_US), LADDER_STAY);
    assert_int_equal(ladder_take(&l, 381 * MIB, floor, rung, now + 2 * VRAM_UNDO_US - 1), LADDER_STAY);
    assert_int_equal(ladder_take(&l, 381 * MIB, floor, rung, now + 2 * VRAM_UNDO_US), LADDER_UP);
    l.rung = 0;
    assert_int_equal(ladder_take(&l, 900 * MIB, floor, rung, now + 4 * VRAM_UNDO_US), LADDER_STAY);
    assert_int_equal(ladder_take(&l, 900 * MIB, floor, rung, now + 6 * VRAM_UNDO_US), LADDER_STAY);
}

static void test_out_of_memory(void **state)
{
    struct ladder l = {0};
    assert_int_equal(ladder_oom(&l, true, SEC(1)), LADDER_DOWN);
    assert_int_equal(ladder_oom(&l, false, SEC(2)), LADDER_STAY);
    assert_int_equal(ladder_oom(&l, false, SEC(603)), LADDER_STAY);
    assert_int_equal(ladder_oom(&l, false, SEC(1203)), LADDER_DOWN);
    assert_int_equal(ladder_oom(&l, false, SEC(1204)), LADDER_STAY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_comes_back_late),
        cmocka_unit_test(test_memory_never_comes_back),
        cmocka_unit_test(test_somebody_else_took_some),
        cmocka_unit_test(test_what_a_vault_holds_is_not_missing),
        cmocka_unit_test(test_lost_until_proved),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_windows_of_the_ladder),
        cmocka_unit_test(test_floor_with_hysteresis),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
