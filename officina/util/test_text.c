/* Growing text. */
#include "util/json.h"
#include "util/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void grows_and_replaces(void **state)
{
    struct text t = {0};
    assert_string_equal(text_str(&t), "");
    text_puts(&t, "one three");
    text_replace(&t, 4, 0, "two ", 4);
    assert_string_equal(text_str(&t), "one two three");
    text_replace(&t, 0, 4, NULL, 0);
    assert_string_equal(text_str(&t), "two three");
    text_printf(&t, " %d %s", 4, "five");
    assert_string_equal(text_str(&t), "two three 4 five");
    for (int i = 0; i < 1000; i++)
        text_add(&t, "ab\0c", 4);
    assert_int_equal(t.len, 16 + 4000);
    assert_int_equal(t.s[t.len], 0);
    char *taken = text_take(&t);
    assert_memory_equal(taken + 16, "ab\0c", 4);
    assert_int_equal(t.len, 0);
    free(taken);
    taken = text_take(&t);
    assert_string_equal(taken, "");
    free(taken);
}

static void rooms_are_zeroed(void **state)
{
    size_t cap = 0;
    int *v = NULL;
    for (size_t n = 0; n < 100; n++) {
        v = mem_room(v, n, &cap, sizeof *v);
        assert_int_equal(v[n], 0);
        v[n] = (int)n + 1;
    }
    assert_int_equal(v[99], 100);
    free(v);
}

static void a_nul_is_mended(void **state)
{
    json_t *o = json_object();
    js_set_strn(o, "k", "a\0b", 3);
    char *s = js_dump(o);
    o = js_parse(s, strlen(s), NULL, 0);
    assert_string_equal(js_str(o, "k"), "a\xef\xbf\xbd"
                                        "b");
    json_decref(o);
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grows_and_replaces),
                                       cmocka_unit_test(rooms_are_zeroed), cmocka_unit_test(a_nul_is_mended)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
