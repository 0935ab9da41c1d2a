#include "pretok.h"

#include "unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct shown {
    char text[4096];
    size_t n;
};

/* Pieces in brackets, with spaces as '_', newlines as 'n' and tabs as 't' behind a backslash. */
static int show(void *ctx, const uint8_t *s, size_t n)
{
    struct shown *o = ctx;
    o->text[o->n++] = '[';
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\n' || s[i] == '\t' || s[i] == '\r') {
            o->text[o->n++] = '\\';
            o->text[o->n++] = s[i] == '\n' ? 'n' : s[i] == '\t' ? 't' : 'r';
        } else {
            o->text[o->n++] = s[i] == ' ' ? '_' : (char)s[i];
        }
    }
    o->text[o->n++] = ']';
    o->text[o->n] = 0;
    return 0;
}

static void check(const char *pre, const char *text, const char *pieces)
{
    struct shown o = {.n = 0};
    const struct pretok *p = pretok_find(pre, strlen(pre));
    assert_non_null(p);
    assert_int_equal(pretok_split(p, (const uint8_t *)text, strlen(text), show, &o), 0);
    assert_string_equal(o.text, pieces);
}

static void sheet(void **state)
{
    static const char text[] = "I'm 3,000 years\n\n  old";
    check("gpt-2", text, "[I]['m][_3][,][000][_years][\\n\\n_][_old]");
    check("smollm", text, "[I]['m][_][3][,][0][0][0][_years][\\n\\n_][_old]");
    check("llama-bpe", text, "[I]['m][_][3][,][000][_years][\\n\\n][_][_old]");
    check("deepseek-v3", text, "[I]['m][_][3][,][000][_years][\\n\\n][_][_old]");
    check("qwen2", text, "[I]['m][_][3][,][0][0][0][_years][\\n\\n][_][_old]");
    check("qwen35", text, "[I]['m][_][3][,][0][0][0][_years][\\n\\n][_][_old]");
    check("gpt-4o", text, "[I'm][_][3][,][000][_years][\\n\\n][_][_old]");
}

static void contractions(void **state)
{
    check("qwen2", "WE'LL don't 's", "[WE]['LL][_don]['t][_'][s]");
    check("gpt-2", "WE'LL don't", "[WE]['][LL][_don]['t]");
    check("qwen2", "'", "[']");
    check("qwen2", "'l", "['l]"); /* no contraction, but a quote before letters */
    check("qwen2", "'ve're'x", "['ve]['re]['x]");
}

static void spaces(void **state)
{
    check("qwen2", "   ", "[___]");
    check("qwen2", "a   b", "[a][__][_b]");
    check("qwen2", "a   ", "[a][___]");
    check("qwen2", "\n \n x", "[\\n_\\n][_x]");
    check("qwen2", "\t\tx", "[\\t][\\tx]");
    check("qwen2", "a \t1", "[a][_][\\t][1]");
    check("gpt-2", "a\n\nb", "[a][\\n][\\n][b]");
    check("qwen2", "!\n\n!", "[!\\n\\n][!]");
    check("qwen2", "", "");
}

static void marks(void **state)
{
    /* e + U+0301: a letter and a mark */
    check("qwen2", "e\xCC\x81x", "[e][\xCC\x81x]");
    check("qwen35", "e\xCC\x81x", "[e\xCC\x81x]");
}

static void cased(void **state)
{
    check("gpt-4o", "HTTPServer camelCase ABC aB", "[HTTPServer][_camel][Case][_ABC][_a][B]");
    check("gpt-4o", "x/y//\n", "[x][/y][//\\n]");
    check("tekken", "1234", "[1][2][3][4]");
}

static void stages(void **state)
{
    check("default", "a+b, 12345", "[a][+][b][,][_][123][45]");
    check("falcon", "x`y 1234", "[x][`][y][_][123][4]");
    check("deepseek-coder", "if x:\n  y1", "[if][_x][:][\\n][_][_y][1]");
    check("deepseek-v3",
          "\xE4\xB8\xAD\xE6\x96\x87"
          "a.b",
          "[\xE4\xB8\xAD\xE6\x96\x87][a][.b]");
}

static void invalid(void **state)
{
    check("qwen2",
          "a\xFF\xFE"
          "b",
          "[a][\xFF\xFE][b]");
    check("qwen2", "\xE2\x82", "[\xE2\x82]");
}

static void names(void **state)
{
    assert_null(pretok_find("no-such", 7));
    assert_ptr_equal(pretok_find("", 0), pretok_find("default", 7));
    assert_ptr_equal(pretok_find("llama3", 6), pretok_find("llama-bpe", 9));
}

static void nfc(const char *in, size_t n, const char *want)
{
    uint8_t *out;
    size_t out_n;
    struct vt_err err;
    assert_int_equal(u_nfc((const uint8_t *)in, n, &out, &out_n, &err), 0);
    assert_int_equal(out_n, strlen(want));
    assert_memory_equal(out, want, out_n);
    free(out);
}

static void normalization(void **state)
{
    nfc("e\xCC\x81", 3, "\xC3\xA9");                                /* composes */
    nfc("a\xCC\x81\xCC\xA3", 5, "\xE1\xBA\xA1\xCC\x81");            /* orders, then composes */
    nfc("\xE2\x84\xA6", 3, "\xCE\xA9");                             /* ohm sign */
    nfc("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", 9, "\xED\x95\x9C"); /* Hangul */
    nfc("\xE0\xA5\x98", 3, "\xE0\xA4\x95\xE0\xA4\xBC");             /* excluded from composition: grows */
    nfc("e\xFF\xCC\x81", 4, "e\xFF\xCC\x81");                       /* an invalid byte stands between */
    nfc("\377\314\201x", 4, "\377\314\201x");
    nfc("ae\314\201\314\201z", 7, "a\303\251\314\201z");
    assert_false(u_nfc_changes((const uint8_t *)"caf\xC3\xA9", 5));
    assert_false(u_nfc_changes((const uint8_t *)"\342\200\224\346\227\245", 6)); /* dash, CJK */
    assert_true(u_nfc_changes((const uint8_t *)"e\314\201", 3));
}

static void long_runs_of_marks(void **state)
{
    /* U+0323 (class 220) behind U+0301 (class 230), many times: all of the first kind come first */
    enum { N = 100000 };
    uint8_t *in = malloc(4 * N + 1), *out;
    size_t out_n;
    struct vt_err err;
    in[0] = '.';
    for (size_t i = 0; i < N; i++)
        memcpy(in + 1 + 4 * i, "\xCC\x81\xCC\xA3", 4);
    assert_int_equal(u_nfc(in, 4 * N + 1, &out, &out_n, &err), 0);
    assert_int_equal(out_n, 4 * N + 1);
    assert_memory_equal(out + 1, "\xCC\xA3\xCC\xA3", 4);
    assert_memory_equal(out + out_n - 4, "\xCC\x81\xCC\x81", 4);
    free(out);
    free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sheet),         cmocka_unit_test(contractions),
        cmocka_unit_test(spaces),        cmocka_unit_test(marks),
        cmocka_unit_test(cased),         cmocka_unit_test(stages),
        cmocka_unit_test(invalid),       cmocka_unit_test(names),
        cmocka_unit_test(normalization), cmocka_unit_test(long_runs_of_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
