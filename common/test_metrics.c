#include "metrics.h"
#include "series.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_text(void **state)
{
    (void)state;
    struct vt_metrics m;
    const char *const labels[] = {"child", "engine\"0\"\\\n", "class", "hung", NULL};
    vt_metrics_init(&m);
    vt_metrics_family(&m, "vitriol_x_total", "counter", "How \"many\"\nand \\ more.");
    vt_metrics_count(&m, "vitriol_x_total", NULL, UINT64_MAX);
    vt_metrics_count(&m, "vitriol_x_total", labels, 9007199254740993u);
    vt_metrics_sample(&m, "vitriol_y", NULL, 0.25);
    vt_metrics_sample(&m, "vitriol_y", labels + 2, NAN);
    vt_metrics_sample(&m, "vitriol_y", NULL, INFINITY);
    vt_metrics_sample(&m, "vitriol_y", NULL, -INFINITY);
    vt_metrics_sample(&m, "vitriol_y", NULL, 1e300);
    assert_false(m.failed);
    assert_string_equal(m.text,
                        "# HELP vitriol_x_total How \"many\"\\nand \\\\ more.\n"
                        "# TYPE vitriol_x_total counter\n"
                        "vitriol_x_total 18446744073709551615\n"
                        "vitriol_x_total{child=\"engine\\\"0\\\"\\\\\\n\",class=\"hung\"} 9007199254740993\n"
                        "vitriol_y 0.25\n"
                        "vitriol_y{class=\"hung\"} 0\n"
                        "vitriol_y +Inf\n"
                        "vitriol_y -Inf\n"
                        "vitriol_y 1e+300\n");
    assert_int_equal(m.len, strlen(m.text));
    vt_metrics_fini(&m);
}

static void test_grows(void **state)
{
    (void)state;
    struct vt_metrics m;
    vt_metrics_init(&m);
    for (int i = 0; i < 10000; i++)
        vt_metrics_count(&m, "vitriol_z", NULL, 7);
    assert_int_equal(m.len, 10000 * strlen("vitriol_z 7\n"));
    vt_metrics_fini(&m);
}

static void test_series_table(void **state)
{
    (void)state;
    size_t n;
    const struct vt_series_row *r = vt_series_rows(&n);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            assert_true(r[i - 1].num < r[i].num);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(r[i].name, r[j].name);
        assert_true(strncmp(r[i].name, "vitriol_", 8) == 0 || strncmp(r[i].name, "llamacpp:", 9) == 0);
        assert_true(strcmp(r[i].kind, "counter") == 0 || strcmp(r[i].kind, "gauge") == 0);
        assert_int_equal(r[i].help[strlen(r[i].help) - 1], '.');
        assert_ptr_equal(vt_series_row(r[i].num), &r[i]);
    }
    assert_null(vt_series_row(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_grows),
        cmocka_unit_test(test_series_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
