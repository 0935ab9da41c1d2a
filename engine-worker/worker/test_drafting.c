/* Guesses that do not pay and guesses that nobody verifies are told, and a text that only copies is neither. */
#include "drafting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define SEC 1000000ull

static char text[120];

static enum drafting_verdict at(struct drafting *d, uint64_t s, uint64_t drafted, uint64_t accepted,
                                uint64_t refuted)
{
    const struct eng_counters c = {
        .spec_drafted = drafted, .spec_accepted = accepted, .spec_refuted = refuted};
    return drafting_judge(d, &c, 30, 600 * SEC, s * SEC, text, sizeof text);
}

static void low_for_ten_minutes(void **state)
{
    struct drafting d = {0};
    assert_int_equal(at(&d, 1, 0, 0, 0), DRAFTING_FINE);
    assert_int_equal(at(&d, 300, 1000, 100, 200), DRAFTING_FINE);
    assert_int_equal(at(&d, 600, 2000, 200, 400), DRAFTING_FINE);
    assert_int_equal(at(&d, 601, 2000, 200, 400), DRAFTING_POOR);
    assert_non_null(strstr(text, "200 of 2000"));
    assert_int_equal(at(&d, 1201, 4000, 400, 800), DRAFTING_FINE); /* told once */
    assert_int_equal(at(&d, 1801, 6000, 1900, 999), DRAFTING_FINE);
    assert_int_equal(at(&d, 2401, 8000, 2100, 1999), DRAFTING_POOR); /* and again */
}

static void few_say_nothing(void **state)
{
    struct drafting d = {0};
    at(&d, 1, 0, 0, 0);
    assert_int_equal(at(&d, 700, 63, 0, 60), DRAFTING_FINE);
    assert_int_equal(at(&d, 1400, 126, 0, 120), DRAFTING_FINE);
    assert_int_equal(at(&d, 2100, 190, 0, 180), DRAFTING_POOR);
}

static void nothing_is_refuted(void **state)
{
    struct drafting d = {0};
    assert_int_equal(at(&d, 1, 1023, 1023, 0), DRAFTING_FINE);
    assert_int_equal(at(&d, 2, 1024, 1024, 0), DRAFTING_BLINDLY);
    assert_non_null(strstr(text, "1.0 over 1024"));
    assert_int_equal(at(&d, 3, 9000, 9000, 0), DRAFTING_FINE);
    assert_int_equal(at(&d, 4, 9000, 9000, 1), DRAFTING_FINE);
    assert_int_equal(at(&d, 5, 10024, 10024, 1), DRAFTING_BLINDLY);
}

/* Everything right for hours, and one wrong on purpose in 256 that is refuted. */
static void copies_are_fine(void **state)
{
    struct drafting d = {0};
    for (uint64_t n = 0; n < 1000000; n += 200)
        assert_int_equal(at(&d, 1 + n / 50, n, n, n / 256), DRAFTING_FINE);
}

static void names(void **state)
{
    struct vt_config *cfg = vt_config_new();
    char out[32];
    struct vt_err err;
    drafting_name(cfg, out, sizeof out);
    assert_string_equal(out, "none");
    assert_int_equal(vt_config_set(cfg, VT_L_CMDLINE, "engine.spec", "ngram", "test", &err), 0);
    drafting_name(cfg, out, sizeof out);
    assert_string_equal(out, "ngram:8");
    vt_config_free(cfg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(low_for_ten_minutes), cmocka_unit_test(few_say_nothing),
        cmocka_unit_test(nothing_is_refuted), cmocka_unit_test(copies_are_fine), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
