#include "transcript.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_positions(void **state)
{
    struct transcript t;
    transcript_init(&t, malloc(4), 1, false, 0);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(transcript_push(&t, i, 0, NULL, 0), 0);
    assert_int_equal(transcript_known(&t, 200, 3), 0);
    assert_int_equal(transcript_known(&t, 198, 3), 2);
    assert_int_equal(transcript_known(&t, 10, 3), 3);
    assert_int_equal(transcript_known(&t, 201, 1), -1); /* a gap */
    assert_int_equal(t.ids[199], 199);
    transcript_fini(&t);
}

static void test_alternatives(void **state)
{
    struct transcript t;
    const struct transcript_top top[] = {{7, -1.5f}, {8, -2.5f}};
    transcript_init(&t, NULL, 0, true, 3);
    assert_int_equal(transcript_push(&t, 5, -0.5f, top, 2), 0);
    assert_true(t.lp[0] == -0.5f && t.top[1].id == 8);
    assert_true(isnan(t.top[2].logprob));
    transcript_fini(&t);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_positions),
                                              cmocka_unit_test(test_alternatives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
