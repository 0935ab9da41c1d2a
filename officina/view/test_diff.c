/* Diffs: the operations lead from one text to the other, are few, and their rows say every line. */
#include "util/text.h"
#include "view/diff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t changes(const struct diff *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++)
        n += d->op[i].kind != ' ';
    return n;
}

/* Follows the operations over both sides. */
static void follow(const struct diff *d)
{
    size_t i = 0, k = 0;
    for (size_t o = 0; o < d->n; o++) {
        const struct diff_op *op = &d->op[o];
        if (op->kind != '+')
            assert_int_equal(op->old_line, i++);
        if (op->kind != '-')
            assert_int_equal(op->new_line, k++);
        if (op->kind == ' ') {
            assert_int_equal(d->old[i - 1].n, d->new[k - 1].n);
            assert_memory_equal(d->old[i - 1].s, d->new[k - 1].s, d->old[i - 1].n);
        }
    }
    assert_int_equal(i, d->n_old);
    assert_int_equal(k, d->n_new);
}

static void test_random(void **state)
{
    unsigned seed = 4;
    for (int round = 0; round < 3000; round++) {
        struct text a = {0}, b = {0};
        struct diff d;
        int edits = 0, n = rand_r(&seed) % 40;
        for (int i = 0; i < n; i++) {
            char line[3] = {(char)('a' + rand_r(&seed) % 6), '\n', 0};
            text_puts(&a, line);
            switch (rand_r(&seed) % 8) {
            case 0: edits++; break;
            case 1:
                text_puts(&b, "new\n");
                text_puts(&b, line);
                edits++;
                break;
            default: text_puts(&b, line); break;
            }
        }
        diff_make(&d, a.s, a.len, b.s, b.len);
        follow(&d);
        assert_true((int)changes(&d) <= edits); /* never more than were made */
        diff_free(&d);
        text_free(&a);
        text_free(&b);
    }
}

static void test_far(void **state)
{
    struct text a = {0}, b = {0};
    struct diff d;
    for (int i = 0; i < 5000; i++) {
        text_printf(&a, "old %d\n", i);
        text_printf(&b, "new %d\n", i);
    }
    diff_make(&d, a.s, a.len, b.s, b.len);
    follow(&d);
    assert_int_equal(changes(&d), 10000);
    diff_free(&d);
    text_free(&a);
    text_free(&b);
}

static char *drawn(const char *before, const char *after, const char *path, int width, bool side)
{
    struct file_change c = {.path = (char *)path, .before = (char *)before, .after = (char *)after};
    struct diff_look look = {.width = width, .side = side, .glyphs = glyphs_of(GLYPHS_FULL)};
    struct rows rows = {0};
    struct text out = {0};
    c.before_len = before ? strlen(before) : 0;
    c.after_len = after ? strlen(after) : 0;
    diff_rows(&rows, &c, &look);
    for (size_t y = 0; y < rows.n; y++) {
        size_t n = rows.v[y].n;
        assert_true(rows.v[y].width <= width);
        while (n && rows.v[y].c[n - 1].bytes[0] == ' ')
            n--;
        for (size_t i = 0; i < n; i++)
            text_add(&out, rows.v[y].c[i].bytes, rows.v[y].c[i].n);
        text_puts(&out, "|");
    }
    rows_free(&rows);
    return text_take(&out);
}

static void check(const char *before, const char *after, const char *path, int width, bool side,
                  const char *want)
{
    char *got = drawn(before, after, path, width, side);
    assert_string_equal(got, want);
    free(got);
}

static void test_rows(void **state)
{
    check("a\nb\nc\n", "a\nx\nc\n", "f", 20, false, "  1   a|  2 - b|  2 + x|  3   c|");
    check(NULL, "a\n", "f", 20, false, "new file|  1 + a|");
    check("a\n", NULL, "f", 20, false, "removed|  1 - a|");
    check("a\n", "a", "f", 40, false, "  1   a|no newline at the end any more|");
    check("1\n2\n3\n4\n5\n6\n7\n8\n9\nx\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\ny\n", "f", 20, false,
          "  7   7|  8   8|  9   9| 10 - x| 10 + y|");
    check("x\n1\n2\n3\n4\n5\n6\n7\n8\n9\nx\n", "y\n1\n2\n3\n4\n5\n6\n7\n8\n9\ny\n", "f", 30, false,
          "  1 - x|  1 + y|  2   1|  3   2|  4   3|⋮  3 unchanged lines|  8   7|  9   8| 10   9| 11 - x| 11 "
          "+ y|");
    check("a\n", "b\n", "f", 27, true, "  1 - a      │   1 + b|");
    check("a\n", "a\nb\n", "f", 27, true, "  1   a      │   1   a|             │   2 + b|");
    check("\tx\n", "\ty\n", "Makefile", 30, false, "  1 - →       x|  1 + →       y|");
    check("a\n", "a\x1b[31m\n", "f", 30, false, "  1 - a|  1 + a\\x1b[31m|");
    check("a\n", "a\xe2\x80\xae\n", "f", 30, false, "  1 - a|  1 + a\\u202e|");
    check("abcdefghij\n", "x\n", "f", 12, false, "  1 - abcde…|  1 + x|");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
