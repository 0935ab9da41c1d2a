#include "vectors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(int p, const float want[3])
{
    float v[3] = {3, -4, 0};
    vector_normalize(v, 3, p);
    for (int i = 0; i < 3; i++)
        assert_true(fabsf(v[i] - want[i]) <= 1e-6f * fabsf(want[i]));
}

static void norms(void **state)
{
    check(-1, (float[]){3, -4, 0});
    check(0, (float[]){24570, -32760, 0});
    check(1, (float[]){3.0f / 7, -4.0f / 7, 0});
    check(2, (float[]){0.6f, -0.8f, 0});
    check(3, (float[]){3 / cbrtf(91), -4 / cbrtf(91), 0});
    float zero[2] = {0, 0}, huge[2] = {3e38f, -3e38f};
    vector_normalize(zero, 2, 2);
    assert_true(zero[0] == 0 && zero[1] == 0);
    vector_normalize(huge, 2, 2);
    assert_true(fabsf(huge[0] - sqrtf(0.5f)) < 1e-6f);
}

static void text(struct buf *b, const char *want)
{
    size_t n;
    char *s = buf_take(b, &n);
    assert_string_equal(s, want);
    free(s);
}

static void forms(void **state)
{
    struct buf b = {0};
    const float v[] = {1, -0.5f, 1e-30f}, third = 1.0f / 3;
    vector_json(&b, v, 3);
    text(&b, "[1,-0.5,1e-30]");
    vector_json(&b, &third, 1);
    size_t n;
    char *s = buf_take(&b, &n);
    assert_true(strtof(s + 1, NULL) == third);
    free(s);
    vector_json(&b, v, 0);
    text(&b, "[]");
    vector_base64(&b, v, 1);
    text(&b, "\"AACAPw==\"");
    vector_base64(&b, v, 2);
    text(&b, "\"AACAPwAAAL8=\"");
    vector_base64(&b, (const float[]){1, 1, 1}, 3);
    text(&b, "\"AACAPwAAgD8AAIA/\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms), cmocka_unit_test(forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
