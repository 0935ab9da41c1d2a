/* The gate: widths, clusters, what is hidden and what is shown as a code. */
#include "term/cells.h"
#include "term/gate.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

/* What of s reaches the screen, as one string. */
static const char *shown(const char *s, enum gate_show show, char *out)
{
    struct cluster c;
    size_t n = strlen(s), len = 0;
    for (size_t i = 0; i < n;) {
        i += gate_next(s + i, n - i, show, &c);
        for (int k = 0; k < c.n; k++) {
            memcpy(out + len, c.piece[k].bytes, c.piece[k].n);
            len += c.piece[k].n;
        }
    }
    out[len] = '\0';
    return out;
}

static void check(const char *in, const char *running, const char *exact, size_t width)
{
    char out[512];
    assert_string_equal(shown(in, GATE_RUNNING, out), running);
    assert_int_equal(gate_width(in, strlen(in), GATE_RUNNING), width);
    assert_string_equal(shown(in, GATE_EXACT, out), exact);
}

static void test_shown(void **state)
{
    check("plain", "plain", "plain", 5);
    check("e\xcc\x81t\xc3\xa9", "e\xcc\x81t\xc3\xa9", "e\xcc\x81t\xc3\xa9", 3);
    check("漢字", "漢字", "漢字", 4);
    check("a\x1b[31mb\x1b[0mc", "abc", "a\\x1b[31mb\\x1b[0mc", 3);
    check("a\x1b]0;title\ab", "ab", "a\\x1b]0;title\\x07b", 2);
    check("a\x1b]0;never ended", "a", "a\\x1b]0;never ended", 1);
    check("x\xe2\x80\xaey", "xy", "x\\u202ey", 2); /* right-to-left override */
    check("x\xe2\x80\x8by", "xy", "x\\u200by", 2); /* zero-width space */
    check("a\xff\xc3z", "a\xef\xbf\xbd\xef\xbf\xbdz", "a\xef\xbf\xbd\xef\xbf\xbdz", 4);
    check("👩‍💻", "👩", "👩\\u200d💻", 2);
    check("👍🏽", "👍", "👍", 2);
    check("❤\xef\xb8\x8f", "❤", "❤\\ufe0f", 1);
    check("🇩🇪", "DE", "DE", 2);
    check("한", "한", "한", 2);
    check("\x7f\x01", "", "\\x7f\\x01", 0);
    check("\xcc\x81", " \xcc\x81", " \xcc\x81", 1);
    check("क्षि", "क्षि", "क्षि", gate_width("क्षि", strlen("क्षि"), GATE_RUNNING));
}

static void test_borders(void **state)
{
    const char *s = "a👩‍💻e\xcc\x81\r\n🇩🇪z";
    size_t n = strlen(s), at = 0, borders[16], k = 0;
    while (at < n) {
        borders[k++] = at;
        at = gate_after(s, n, at);
    }
    assert_int_equal(k, 6);
    assert_int_equal(gate_after(s, n, n), n);
    while (k-- > 0) {
        at = gate_before(s, n, at);
        assert_int_equal(at, borders[k]);
    }
    assert_int_equal(gate_before(s, n, 0), 0);
}

static void test_fit(void **state)
{
    size_t used;
    assert_int_equal(gate_fit("漢字ab", 8, GATE_RUNNING, 3, &used), 3);
    assert_int_equal(used, 2);
    assert_int_equal(gate_fit("abc", 3, GATE_RUNNING, 10, &used), 3);
    assert_int_equal(gate_fit("", 0, GATE_RUNNING, 10, &used), 0);
}

/* Against the C library: where both know a printable character the table may be narrower, never wider. */
static void test_table(void **state)
{
    int differ = 0;
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        skip();
    for (uint32_t cp = 0x20; cp < 0x30000; cp++) {
        int c = wcwidth((wchar_t)cp), own = gate_cp_width(cp);
        assert_in_range(own, 0, 2);
        differ += c >= 0 && c != own;
    }
    if (differ > 600)
        fail_msg("%d widths differ from the C library's", differ);
    assert_int_equal(gate_cp_width(0x2500), 1);
    assert_int_equal(gate_cp_width(0x28ff), 1);
    assert_int_equal(gate_cp_width(0x4e00), 2);
    assert_int_equal(gate_cp_width(0x1f600), 2);
    assert_int_equal(gate_cp_width(0x200b), 0);
}

/* Random bytes: progress, and the width is what the pieces say. */
static void test_random(void **state)
{
    unsigned seed = 7;
    char buf[64];
    for (int round = 0; round < 20000; round++) {
        size_t n = 1 + (size_t)(rand_r(&seed) % (int)sizeof buf);
        for (size_t i = 0; i < n; i++) {
            static const char seeds[] = "\x1b[\xe2\x80\x8d\xf0\x9f\x91\xa9\xcc\x81 a\r\n\xef\xb8\x8f\xff";
            buf[i] = rand_r(&seed) % 3 ? seeds[rand_r(&seed) % (int)(sizeof seeds - 1)] : (char)rand_r(&seed);
        }
        for (int show = GATE_RUNNING; show <= GATE_EXACT; show++) {
            for (size_t i = 0; i < n;) {
                struct cluster c;
                size_t len = gate_next(buf + i, n - i, (enum gate_show)show, &c);
                int width = 0;
                assert_in_range(len, 1, n - i);
                for (int k = 0; k < c.n; k++) {
                    assert_in_range(c.piece[k].n, 1, GATE_BYTES);
                    assert_in_range(c.piece[k].width, 1, 2);
                    width += c.piece[k].width;
                }
                assert_int_equal(width, c.width);
                i += len;
            }
        }
        size_t at = 0, steps = 0;
        while (at < n) {
            size_t next = gate_after(buf, n, at);
            assert_true(next > at && next <= n);
            at = next;
            steps++;
        }
        while (at > 0) {
            size_t before = gate_before(buf, n, at);
            assert_true(before < at);
            at = before;
        }
    }
}

static void test_cells(void **state)
{
    struct grid g;
    assert_int_equal(grid_init(&g, 6, 2), 0);
    grid_str(&g, 0, 0, 6, style_of(ROLE_TEXT), "漢字漢字");
    char *text = frame_text(&g);
    assert_string_equal(text, "漢字漢\n      \n");
    free(text);
    grid_str(&g, 1, 0, 6, style_of(ROLE_GOLD), "x");  /* tears the first one */
    grid_str(&g, 5, 1, 8, style_of(ROLE_TEXT), "漢"); /* no room for its right half */
    grid_str(&g, -1, 5, 3, style_of(ROLE_TEXT), "outside");
    text = frame_text(&g);
    assert_string_equal(text, " x字漢\n      \n");
    free(text);
    char *attr = frame_attr(&g);
    assert_string_equal(attr, ".g....\n......\n");
    free(attr);
    grid_clear(&g);
    grid_cut(&g, 0, 0, 6, "abcdefgh", 8, GATE_RUNNING, "…", style_of(ROLE_TEXT));
    grid_cut(&g, 0, 1, 6, "abcdef", 6, GATE_RUNNING, "…", style_of(ROLE_TEXT));
    text = frame_text(&g);
    assert_string_equal(text, "abcde…\nabcdef\n");
    free(text);
    grid_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shown), cmocka_unit_test(test_borders), cmocka_unit_test(test_fit),
        cmocka_unit_test(test_table), cmocka_unit_test(test_random),  cmocka_unit_test(test_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
