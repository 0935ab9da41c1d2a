/* Guesses grow while they are right, and become rare where they are not. */
#include "pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void grows_while_right(void **state)
{
    struct pace p = {0};
    static const uint32_t want[] = {2, 4, 8, 16, 16, 16};
    for (int i = 0; i < 6; i++) {
        uint32_t n = pace_length(&p, 16);
        assert_int_equal(n, want[i]);
        pace_told(&p, n, n);
    }
    for (int i = 0; i < 100; i++)
        pace_told(&p, 16, 16);
    assert_int_equal(pace_length(&p, 1000000), 1u << 16); /* it does not overflow */
}

static void shrinks_to_what_was_right(void **state)
{
    struct pace p = {.length = 8};
    pace_told(&p, 8, 3);
    assert_int_equal(pace_length(&p, 16), 3);
    assert_int_equal(pace_agreement(&p, 3), 3);
}

static void a_cut_guess_is_not_its_length(void **state)
{
    struct pace p = {.length = 8};
    assert_int_equal(pace_length(&p, 2), 2);
    pace_told(&p, 2, 2);
    assert_int_equal(pace_length(&p, 16), 16);
    assert_int_equal(pace_length(&p, 0), 0);
}

/* A thousand steps in which every guess is wrong. */
static void wrong_guesses_become_rare(void **state)
{
    struct pace p = {0};
    unsigned guesses = 0, rows = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t n = pace_length(&p, 16);
        if (n == 0)
            continue;
        guesses++;
        rows += n;
        pace_told(&p, n, 0);
    }
    assert_in_range(guesses, 14, 24);
    assert_int_equal(rows, guesses + 1); /* all but the first are of one id */
    assert_in_range(pace_agreement(&p, 3), 7, 9);
    pace_told(&p, 1, 1);
    assert_int_equal(pace_agreement(&p, 3), 3);
}

static void half_right_goes_on(void **state)
{
    struct pace p = {0};
    for (int i = 0; i < 100; i++) {
        uint32_t n = pace_length(&p, 16);
        assert_in_range(n, 1, 4);
        pace_told(&p, n, (n + 1) / 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_while_right), cmocka_unit_test(shrinks_to_what_was_right),
        cmocka_unit_test(a_cut_guess_is_not_its_length), cmocka_unit_test(wrong_guesses_become_rare),
        cmocka_unit_test(half_right_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
