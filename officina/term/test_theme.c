/* Themes: contrast of the light inks, palettes within their size, nothing coloured without colour. */
#include "term/theme.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static double luminance(int rgb)
{
    static const double share[] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        double c = ((rgb >> (16 - 8 * i)) & 255) / 255.0;
        sum += share[i] * (c <= 0.03928 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
}

static double contrast(int a, int b)
{
    double x = luminance(a), y = luminance(b);
    return x > y ? (x + 0.05) / (y + 0.05) : (y + 0.05) / (x + 0.05);
}

static void test_contrast(void **state)
{
    for (int r = ROLE_DIM; r <= ROLE_FUNCTION; r++) {
        struct ink light = theme_ink(style_of((enum role)r), DEPTH_TRUE, true);
        struct ink dark = theme_ink(style_of((enum role)r), DEPTH_TRUE, false);
        if (contrast(light.fg, 0xffffff) < 4.5)
            fail_msg("role %d on white: %.2f", r, contrast(light.fg, 0xffffff));
        if (contrast(dark.fg, 0x101010) < 3.5)
            fail_msg("role %d on black: %.2f", r, contrast(dark.fg, 0x101010));
    }
}

static void test_ranges(void **state)
{
    static const int most[] = {-1, 7, 15, 255, 0xffffff};
    for (int d = DEPTH_NONE; d <= DEPTH_TRUE; d++) {
        for (int fg = 0; fg < ROLE_N; fg++) {
            for (int bg = 0; bg < ROLE_N; bg++) {
                for (int light = 0; light < 2; light++) {
                    struct style st = {.fg = (uint8_t)fg, .bg = (uint8_t)bg};
                    struct ink k = theme_ink(st, (enum depth)d, light);
                    assert_true(k.fg >= -1 && k.fg <= most[d] && k.bg >= -1 && k.bg <= most[d]);
                }
            }
        }
    }
}

/* Without colour the roles that carry meaning are still told apart. */
static void test_alone(void **state)
{
    assert_int_equal(theme_ink(style_of(ROLE_CINNABAR), DEPTH_NONE, false).attr, ATTR_REVERSE);
    assert_int_equal(theme_ink(style_of(ROLE_GOLD), DEPTH_NONE, false).attr, ATTR_UNDERLINE);
    assert_int_equal(theme_ink(style_of(ROLE_VERDIGRIS), DEPTH_NONE, false).attr, ATTR_BOLD);
    struct style added = {.bg = ROLE_ADDED};
    assert_int_equal(theme_ink(added, DEPTH_16, false).fg, 2);
    struct style selected = {.bg = ROLE_SELECTION};
    assert_int_equal(theme_ink(selected, DEPTH_16, false).attr, ATTR_REVERSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contrast),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
