#include "utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BAD "\xef\xbf\xbd"

static void check(const char *in, const char *want)
{
    size_t n = strlen(in);
    for (unsigned long cuts = 0; cuts < 1ul << (n - 1); cuts++) {
        struct utf8_hold h = {0};
        struct buf b = {0};
        size_t from = 0;
        for (size_t i = 0; i < n; i++) {
            if (!(cuts >> i & 1) && i + 1 < n)
                continue;
            utf8_feed(&h, (const uint8_t *)in + from, i + 1 - from, &b);
            assert_true(utf8_whole(b.p, b.n)); /* at every moment */
            from = i + 1;
        }
        utf8_flush(&h, &b);
        if (b.n != strlen(want) || memcmp(b.p, want, b.n) != 0)
            fail_msg("cuts %lx of '%s': '%.*s'", cuts, in, (int)b.n, b.p);
        buf_fini(&b);
    }
}

static void test_splits(void **state)
{
    check("a\xc3\xa9z", "a\xc3\xa9z");
    check("\xf0\x9f\x98\x80\xe2\x82\xac", "\xf0\x9f\x98\x80\xe2\x82\xac");
    check("\xff"
          "a\x80",
          BAD "a" BAD);
    check("\xc3(", BAD "(");
    check("\xe2\x82", BAD);             /* cut off at the end */
    check("\xed\xa0\x80", BAD BAD BAD); /* a surrogate */
    check("\xf0\x9f\xc3\xa9", BAD BAD "\xc3\xa9");
    check("\xc0\xaf", BAD BAD); /* overlong */
    check("\xf4\x90\x80\x80", BAD BAD BAD BAD);
}

static void test_holds(void **state)
{
    struct utf8_hold h = {0};
    struct buf b = {0};
    utf8_feed(&h, (const uint8_t *)"x\xf0\x9f\x98", 4, &b);
    assert_int_equal(b.n, 1);
    utf8_feed(&h, (const uint8_t *)"\x80", 1, &b);
    assert_int_equal(b.n, 5);
    utf8_flush(&h, &b);
    assert_int_equal(b.n, 5);
    buf_fini(&b);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_splits), cmocka_unit_test(test_holds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
