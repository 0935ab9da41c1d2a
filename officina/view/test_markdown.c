/* Markdown and code in rows: each construct as it is drawn, and nothing wider than it may be. */
#include "util/text.h"
#include "view/code.h"
#include "view/markdown.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Rows as text, trailing blanks off, each ended by |. */
static char *drawn(const char *md, int width, enum glyphs kind)
{
    struct rows rows = {0};
    struct text out = {0};
    struct markdown_look look = {.width = width, .wide = width, .glyphs = glyphs_of(kind)};
    markdown_layout(&rows, md, strlen(md), &look);
    for (size_t y = 0; y < rows.n; y++) {
        const struct row *r = &rows.v[y];
        size_t n = r->n;
        assert_true(r->width <= width);
        while (n && r->c[n - 1].n == 1 && r->c[n - 1].bytes[0] == ' ')
            n--;
        for (size_t i = 0; i < n; i++)
            text_add(&out, r->c[i].bytes, r->c[i].n);
        text_puts(&out, "|");
    }
    rows_free(&rows);
    return text_take(&out);
}

static void check(const char *md, int width, const char *want)
{
    char *got = drawn(md, width, GLYPHS_FULL);
    assert_string_equal(got, want);
    free(got);
}

static void test_blocks(void **state)
{
    check("", 40, "");
    check("one two three", 8, "one two|three|");
    check("para\nsoft\n\nnext", 40, "para soft||next|");
    check("hard  \nbreak", 40, "hard|break|");
    check("# Head\ntext", 40, "Head||text|");
    check("> quoted text that wraps\n> on", 16, "│ quoted text|│ that wraps on|");
    check("- one\n- two that wraps\n  - deep\n- three", 14,
          "  • one|  • two that|    wraps|      • deep|  • three|");
    check("1. a\n2. b\n\ntext", 40, "  1. a|  2. b||text|");
    check("9) a\n10) b", 40, "  9) a|  10) b|");
    check("- a\n\n- b", 40, "  • a||  • b|");
    check("- [ ] open\n- [x] done", 40, "  ○ open|  ● done|");
    check("***", 5, "─────|");
    check("a *b* **c** `d` ~~e~~", 40, "a b c `d` e|");
    check("[text](http://a.b) <http://c.d>", 60, "text (http://a.b) http://c.d|");
    check("![pic](x.png)", 40, "pic (x.png)|");
    check("<b>html</b> &amp; &#65; &nope;", 60, "<b>html</b> & A &nope;|");
    check("-\n- x", 40, "  •|  • x|");
    check("漢字漢字漢字", 5, "漢字|漢字|漢字|");
    check("averyveryverylongword", 8, "averyver|yverylon|gword|");
    check("esc \x1b[31mred\x1b[0m", 40, "esc red|");
}

static void test_code(void **state)
{
    check("```c\nint x;\n```", 24,
          "  ┌ c ─────────────────┐|  │ int x;             │|  └────────────────────┘|");
    check("```\nabcdefghijklmnopqrstuvwxyz\n```", 16, "  ┌────────────┐|  │ abcdefghi… │|  └────────────┘|");
    check("- a\n\n      code", 20, "  • a||      ┌────────────┐|      │ code       │|      └────────────┘|");
    check("```c\nunfinished", 24,
          "  ┌ c ─────────────────┐|  │ unfinished         │|  └────────────────────┘|");
    struct rows rows = {0};
    code_box(&rows, "0123456789\n", 11, "", 0, 12, 4, glyphs_of(GLYPHS_ASCII));
    struct text out = {0};
    for (size_t i = 0; i < rows.v[1].n; i++)
        text_add(&out, rows.v[1].c[i].bytes, rows.v[1].c[i].n);
    assert_string_equal(text_str(&out), "| 456789   |");
    text_free(&out);
    rows_free(&rows);
}

static void test_tables(void **state)
{
    check("| a | bb |\n|---|----|\n| 1 | 2 |\n| 333 | 4 |", 40, "a   │ bb|────────|1   │ 2|333 │ 4|");
    check("text\n\n|a|b|\n|-|-|\n| `x|y` | [l](u\n\nend", 40,
          "text||a     │ b|─────────────|`x|y` │ [l](u||end|");
    check("```\n|a|b|\n|-|-|\n```", 16,
          "  ┌────────────┐|  │ |a|b|      │|  │ |-|-|      │|  └────────────┘|");
    check("| key | value |\n|---|---|\n| one | a long text here |", 16,
          "key: one|value: a long|  text here|");
}

static void test_ascii(void **state)
{
    char *got = drawn("- a\n\n```c\nx\n```", 20, GLYPHS_ASCII);
    assert_string_equal(got, "  * a||  + c -------------+|  | x              ||  +----------------+|");
    free(got);
}

/* Every head of a text is a text: what streams is laid out at every byte. */
static void test_heads(void **state)
{
    static const char md[] = "# T\n\n- a **b\n  ```py\n  def f():\n\n> q\n\n| a | b |\n|--|--|\n| 1 | [x](y) "
                             "~~z~~ |\n\n1. é漢👩‍💻 `c`\n";
    for (size_t n = 0; n < sizeof md; n++) {
        for (int width = 1; width < 40; width += 7) {
            struct rows rows = {0};
            struct markdown_look look = {.width = width, .wide = width, .glyphs = glyphs_of(GLYPHS_FULL)};
            markdown_layout(&rows, md, n, &look);
            rows_free(&rows);
        }
    }
}

static const char *roles_of(const char *lang, const char *line, int *st, char *out)
{
    uint8_t role[256];
    size_t n = strlen(line);
    struct lexer lx = {.lang = lexer_named(lang, strlen(lang)), .state = *st};
    lexer_line(&lx, line, n, role);
    *st = lx.state;
    for (size_t i = 0; i < n; i++)
        out[i] = role_letter((enum role)role[i]);
    out[n] = '\0';
    return out;
}

static void test_lexers(void **state)
{
    static const struct {
        const char *lang, *line, *roles;
    } cases[] = {
        {"c", "int x = f(1); // c", "ttt.....f.n...####"},
        {"c", "#include <a.h>", "kkkkkkkk......"},
        {"c", "return \"a\\\"b\";", "kkkkkk.qqqqqq."},
        {"py", "def f(): # x", "kkk.f....###"},
        {"rust", "fn f<'a>(x: &'a str) {}", NULL},
        {"sh", "echo $HOME # c", "tttt.ttttt.###"},
        {"json", "{\"a\": [1, true]}", ".ttt...n..kkkk.."},
        {"yaml", "key: value # c", "ttt........###"},
        {"sql", "SELECT a FROM b -- c", "kkkkkk...kkkk...####"},
        {"diff", "+new", "++++"},
        {"diff", "-old", "----"},
        {"make", "all: $(X)", NULL},
        {"nothing", "int x", "....."},
    };
    char out[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int st = 0;
        roles_of(cases[i].lang, cases[i].line, &st, out);
        if (cases[i].roles)
            assert_string_equal(out, cases[i].roles);
    }
    int st = 0;
    roles_of("c", "a /* b", &st, out);
    assert_int_not_equal(st, 0);
    assert_string_equal(roles_of("c", "c */ int", &st, out), "####.ttt");
    assert_int_equal(st, 0);
    assert_non_null(lexer_of_path("src/a.tsx"));
    assert_ptr_equal(lexer_of_path("x/Makefile"), lexer_named("mk", 2));
    assert_null(lexer_of_path("noext"));
    assert_null(lexer_of_path("a."));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_code),  cmocka_unit_test(test_tables),
        cmocka_unit_test(test_ascii),  cmocka_unit_test(test_heads), cmocka_unit_test(test_lexers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
