#include "stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct stop_set *set_of(const char *const *s, size_t n)
{
    size_t len[8];
    for (size_t i = 0; i < n; i++)
        len[i] = strlen(s[i]);
    struct stop_set *set = stop_set_new(s, len, n);
    assert_non_null(set);
    return set;
}

/* What comes through when the text is fed in the pieces that the bits of `cuts` make: bit i cuts behind byte i. */
static int run(const struct stop_set *set, const char *text, unsigned long cuts, char *out, size_t *early)
{
    struct stop_state st;
    struct buf b = {0};
    int hit = -1;
    size_t n = strlen(text), from = 0;
    assert_int_equal(stop_init(&st, set), 0);
    for (size_t i = 0; i < n && hit < 0; i++) {
        if (!(cuts >> i & 1) && i + 1 < n)
            continue;
        hit = stop_feed(&st, text + from, i + 1 - from, &b);
        from = i + 1;
        early[i] = b.n;
    }
    if (hit < 0)
        stop_flush(&st, &b);
    memcpy(out, b.p ? b.p : "", b.n);
    out[b.n] = '\0';
    buf_fini(&b);
    stop_fini(&st);
    return hit;
}

static void every_cut(const char *const *stops, size_t n, const char *text, const char *want, int want_hit)
{
    struct stop_set *set = set_of(stops, n);
    char out[64];
    size_t early[64];
    for (unsigned long cuts = 0; cuts < 1ul << (strlen(text) - 1); cuts++) {
        int hit = run(set, text, cuts, out, early);
        if (hit != want_hit || strcmp(out, want) != 0)
            fail_msg("cuts %lx of '%s': '%s' (%d), expected '%s' (%d)", cuts, text, out, hit, want, want_hit);
    }
    stop_set_free(set);
}

static void test_every_split(void **state)
{
    static const char *const one[] = {"STOP"}, *const two[] = {"ab", "abc"}, *const self[] = {"aab"};
    static const char *const inner[] = {"xyz", "y"}, *const late[] = {"\n\n", "User:"};
    every_cut(one, 1, "abSTOPcd", "ab", 0);
    every_cut(one, 1, "STSTOPST", "ST", 0);
    every_cut(one, 1, "STO STO", "STO STO", -1);
    every_cut(two, 2, "xabcab", "x", 0);
    every_cut(self, 1, "aaaab", "aa", 0);
    every_cut(inner, 2, "xxyz", "xx", 1);
    every_cut(late, 2, "a\nUser:b", "a\n", 1);
    every_cut(late, 2, "a\n\nUser:", "a", 0);
}

static void test_nothing_early(void **state)
{
    static const char *const s[] = {"END"};
    struct stop_set *set = set_of(s, 1);
    char out[64];
    size_t early[64] = {0};
    assert_int_equal(run(set, "aEND", ~0ul, out, early), 0);
    assert_int_equal(early[0], 1);
    assert_int_equal(early[1], 1); /* E may be the beginning */
    assert_int_equal(early[2], 1);
    assert_int_equal(run(set, "aEx", ~0ul, out, early), -1);
    assert_int_equal(early[1], 1);
    assert_int_equal(early[2], 3); /* it was not */
    stop_set_free(set);
}

static void test_empty(void **state)
{
    static const char *const s[] = {"", ""};
    size_t early[64];
    char out[64];
    struct stop_set *set = set_of(s, 2);
    assert_int_equal(stop_set_count(set), 0);
    assert_int_equal(run(set, "all of it", 0, out, early), -1);
    assert_string_equal(out, "all of it");
    stop_set_free(set);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split),
        cmocka_unit_test(test_nothing_early),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
