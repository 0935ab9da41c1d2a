/* Worth: what counts as useless, and when restores as a whole do not pay. */
#include "worth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SLACK 256

static void test_useless(void **state)
{
    static const struct {
        uint32_t offered, same, n_ids, reused;
        bool fine;
    } rows[] = {
        {0, 0, 100, 0, true},           /* nothing was restored */
        {1024, 1024, 1100, 1024, true}, /* goes on, finds all of it */
        {1024, 1024, 1100, 768, true},  /* all but a block */
        {1024, 1024, 1100, 767, false}, /* less than that */
        {1024, 1024, 1100, 0, false},
        {1024, 1023, 1100, 0, true}, /* another conversation: that is no fault of the restore */
        {1024, 1024, 1024, 0, true}, /* not behind all of it: recurrent state is at its end */
        {100, 100, 200, 0, true},    /* less than a block */
    };
    uint64_t useless = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct worth w = {0};
        if (worth_followed(&w, rows[i].offered, rows[i].same, rows[i].n_ids, rows[i].reused, SLACK) !=
            rows[i].fine)
            fail_msg("row %zu", i);
        useless += w.useless;
        assert_int_equal(w.useless, !rows[i].fine);
    }
    assert_int_equal(useless, 2);
}

static void test_what_was_reused(void **state)
{
    struct worth w = {0};
    worth_followed(&w, 1024, 300, 2000, 1500, SLACK); /* 1500 of something else */
    assert_int_equal(w.total.reused, 300);
    assert_int_equal(w.total.offered, 1024);
    worth_followed(&w, 1024, 1024, 2000, 1024, SLACK);
    assert_int_equal(w.total.reused, 1324);
    assert_int_equal(w.total.followed, 2);
}

/* n restores of 1000 tokens in a second each, of which `reused` are reused. */
static bool poor_after(struct worth *w, unsigned n, uint32_t reused, double us_per_token)
{
    bool poor = false;
    for (unsigned i = 0; i < n; i++) {
        worth_restored(w, 1000, 1000000);
        worth_followed(w, 1000, 1000, 1200, reused, SLACK);
        poor |= worth_turns_poor(w, us_per_token);
    }
    return poor;
}

static void test_poor(void **state)
{
    struct worth w = {0};
    assert_false(poor_after(&w, 50, 1000, 2000)); /* two seconds saved for each that was spent */
    w = (struct worth){0};
    assert_false(poor_after(&w, WORTH_ENOUGH - 1, 0, 2000)); /* too few to tell */
    assert_true(poor_after(&w, 1, 0, 2000));
    assert_false(poor_after(&w, 20, 0, 2000)); /* told once */
    assert_true(w.poor);
    assert_false(poor_after(&w, 60, 1000, 2000)); /* and taken back */
    assert_false(w.poor);
    assert_true(poor_after(&w, 2 * WORTH_MANY, 100,
                           2000)); /* until it comes again: what was long ago counts little */
    w = (struct worth){0};
    assert_true(poor_after(&w, 10, 1000, 500)); /* all reused, and evaluating is faster than the disk */
    w = (struct worth){0};
    assert_false(poor_after(&w, 10, 0, 0)); /* nothing was evaluated yet: no price */
}

/* A restore of many slots, of which few were wanted so far: the others may still pay. */
static void test_unfollowed_cost_nothing(void **state)
{
    struct worth w = {0};
    for (int i = 0; i < 100; i++)
        worth_restored(&w, 1000, 1000000);
    for (int i = 0; i < 5; i++)
        worth_followed(&w, 1000, 1000, 1200, 1000, SLACK);
    assert_false(worth_turns_poor(&w, 1100));
    assert_true(worth_turns_poor(&w, 900));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_useless),
        cmocka_unit_test(test_what_was_reused),
        cmocka_unit_test(test_poor),
        cmocka_unit_test(test_unfollowed_cost_nothing),
    };
    return cmocka_run_group_tests_name("worth", tests, NULL, NULL);
}
