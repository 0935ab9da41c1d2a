#include "tools/change.h"
#include "tools/output.h"
#include "tools/secrets.h"
#include "tools/seen.h"
#include "tools/tool.h"
#include "tools/wild.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void list_is_small_and_valid(void **state)
{
    size_t n, bytes = 0;
    const struct tool_spec *list = tool_list(&n);
    assert_int_equal(n, 12);
    for (size_t i = 0; i < n; i++) {
        json_t *s = json_loads(list[i].schema, JSON_REJECT_DUPLICATES, NULL);
        assert_true(json_is_object(json_object_get(s, "properties")) &&
                    json_is_array(json_object_get(s, "required")));
        bytes += strlen(list[i].schema) + strlen(list[i].name) + strlen(list[i].description) + 80;
        json_decref(s);
        assert_ptr_equal(tool_find(list[i].name), &list[i]);
    }
    assert_true(bytes <= 7000);
    assert_null(tool_find("nothing"));
}

static void wildcards(void **state)
{
    static const struct {
        const char *p, *s;
        int yes;
    } v[] = {{"*.c", "a.c", 1},
             {"*.c", "d/a.c", 0},
             {"**/*.c", "a.c", 1},
             {"**/*.c", "x/y/a.c", 1},
             {"src/**", "src/a/b", 1},
             {"src/**", "srcs/a", 0},
             {"a/**/b", "a/b", 1},
             {"a/**/b", "a/x/y/b", 1},
             {"a?c", "abc", 1},
             {"a?c", "a/c", 0},
             {"[a-c]x", "bx", 1},
             {"[!a-c]x", "bx", 0},
             {"[", "[", 1},
             {"a\\*", "a*", 1},
             {"a\\*", "ab", 0},
             {"", "", 1},
             {"**", "a/b", 1},
             {"*", "", 1},
             {"a*b*c", "aXbYbZc", 1},
             {"**/x/**", "a/x/b", 1},
             {"**/x", "ax", 0}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        if (wild_path(v[i].p, v[i].s) != (v[i].yes != 0))
            fail_msg("%s against %s", v[i].p, v[i].s);
    assert_true(wild_rule("make *", "make") && wild_rule("make *", "make test") &&
                !wild_rule("make *", "makex"));
    assert_true(wild_rule("git status", "git status") && !wild_rule("git status", "git status -s"));
    char deep[4000];
    memset(deep, 'a', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    assert_false(wild_path("a*a*a*a*a*a*a*a*a*a*a*a*b", deep));
}

static void edited(const char *in, struct change_spec c, const char *want)
{
    struct text out = {0};
    struct vt_err err;
    int times;
    if (change_apply(&c, in, strlen(in), &out, &times, &err) < 0) {
        if (want)
            fail_msg("%s", err.text);
    } else {
        assert_non_null(want);
        assert_string_equal(text_str(&out), want);
    }
    text_free(&out);
}

static void edits_keep_line_ends(void **state)
{
    edited("a\r\nb\r\nc", (struct change_spec){"a\nb", "a\nX\nb", false, 0, 0}, "a\r\nX\r\nb\r\nc");
    edited("a\r\nb\nc\n", (struct change_spec){"a\nb\nc", "a\nb\nd", false, 0, 0}, "a\r\nb\nd\n");
    edited("a\nb\n", (struct change_spec){"a\r\nb", "x\r\ny", false, 0, 0}, "x\ny\n");
    edited("x x x", (struct change_spec){"x", "yy", true, 0, 0}, "yy yy yy");
    edited("x x x", (struct change_spec){"x", "yy", false, 0, 0}, NULL);
    edited("abc", (struct change_spec){"zz", "y", false, 0, 0}, NULL);
    edited("abc", (struct change_spec){"b", "b", false, 0, 0}, NULL);
    edited("1\r\n2\r\n3", (struct change_spec){NULL, "x", false, 2, 2}, "1\r\nx\r\n3");
    edited("1\n2\n3", (struct change_spec){NULL, "x", false, 3, 3}, "1\n2\nx");
    edited("1\n2\n", (struct change_spec){NULL, "0\n", false, 1, 0}, "0\n1\n2\n");
    edited("1\n2", (struct change_spec){NULL, "3", false, 3, 2}, "1\n2\n3");
    edited("1\n2\n", (struct change_spec){NULL, "", false, 1, 1}, "2\n");
    edited("1\n2\n", (struct change_spec){NULL, "x", false, 4, 4}, NULL);
}

/* Random texts and edits: what lies outside of the place is byte for byte the same, and the place holds the
 * new text in LF form. */
static void random_edits_change_only_what_is_meant(void **state)
{
    static const char *const bits[] = {"a", "b", "\n", "\r\n", "\r", "xy", "\xc3\xa9", " "};
    unsigned seed = 7;
    for (int round = 0; round < 20000; round++) {
        struct text in = {0}, old = {0}, new = {0}, want = {0}, out = {0}, back = {0};
        struct vt_err err;
        int times, n = rand_r(&seed) % 24;
        for (int i = 0; i < n; i++)
            text_puts(&in, bits[rand_r(&seed) % 8]);
        size_t a = in.len ? (size_t)rand_r(&seed) % in.len : 0,
               b = a + (in.len ? (size_t)rand_r(&seed) % (in.len - a + 1) : 0);
        bool splits = (a && a < in.len && in.s[a - 1] == '\r' && in.s[a] == '\n') ||
                      (b && b < in.len && in.s[b - 1] == '\r' && in.s[b] == '\n');
        for (int i = rand_r(&seed) % 6; i > 0; i--) {
            const char *bit = bits[rand_r(&seed) % 8];
            text_puts(&new, strcmp(bit, "\r") == 0
                                ? "z"
                                : bit); /* a lone \r may meet a \n, and nothing can tell then */
        }
        if (b > a && !splits) {
            text_add(&old, in.s + a, b - a);
            struct change_spec c = {text_str(&old), text_str(&new), false, 0, 0};
            if (change_apply(&c, in.s, in.len, &out, &times, &err) == 0) {
                size_t tail = in.len - b;
                assert_int_equal(times, 1);
                assert_true(out.len >= a + tail);
                assert_memory_equal(out.s, in.s, a);
                assert_memory_equal(out.s + out.len - tail, in.s + b, tail);
                for (size_t i = a; i < out.len - tail; i++)
                    if (!(out.s[i] == '\r' && i + 1 < out.len && out.s[i + 1] == '\n'))
                        text_add(&back, out.s + i, 1);
                for (size_t i = 0; i < new.len; i++)
                    if (!(new.s[i] == '\r' && i + 1 < new.len &&new.s[i + 1] == '\n'))
                        text_add(&want, new.s + i, 1);
                assert_string_equal(text_str(&back), text_str(&want));
            }
        }
        text_free(&in);
        text_free(&old);
        text_free(&new);
        text_free(&want);
        text_free(&out);
        text_free(&back);
    }
}

static void changes_are_counted(void **state)
{
    struct file_change *c = change_new("f", "a\nb\nc\n", 6, "a\nx\nc\nd\n", 8);
    assert_int_equal(c->added, 2);
    assert_int_equal(c->removed, 1);
    change_free(c, 1);
    c = change_new("f", NULL, 0, "a\r\n", 3);
    assert_true(c->added == 1 && c->removed == 0 && !c->before);
    change_free(c, 1);
}

static void lines_shown_are_known(void **state)
{
    struct seen *s = seen_new();
    const char *a = "1\n2\n3\n4\n", *b = "1\n2x\n2y\n3\n4\n";
    long bad;
    seen_show(s, "f", a, strlen(a), 2, 2);
    assert_true(seen_has(s, "f", a, strlen(a), 2, 3, &bad));
    assert_false(seen_has(s, "f", a, strlen(a), 1, 3, &bad));
    assert_int_equal(bad, 1);
    assert_false(seen_has(s, "g", a, strlen(a), 2, 2, &bad));
    assert_false(seen_has(s, "f", "1\nX\n3\n4\n", 8, 2, 3, &bad));
    assert_int_equal(bad, 2);
    seen_changed(s, "f", a, strlen(a), b, strlen(b));
    assert_true(seen_has(s, "f", b, strlen(b), 2, 4, &bad));
    assert_false(seen_has(s, "f", b, strlen(b), 5, 5, &bad));
    seen_free(s);
}

static void redacts(const char *in, int times, const char *gone)
{
    struct text out = {0};
    bool in_key = false;
    assert_int_equal(secrets_redact(in, strlen(in), &out, &in_key), times);
    if (times)
        assert_null(strstr(text_str(&out), gone));
    else
        assert_string_equal(text_str(&out), in);
    assert_false(in_key);
    text_free(&out);
}

static void redacts_line(const char *in, const char *want)
{
    struct text out = {0};
    bool in_key = false;
    secrets_redact_line(in, strlen(in), &out, &in_key);
    char *got = text_take(&out), *mark = strstr(got, "[redacted ");
    if (mark) /* which one it is does not matter here */
        memmove(mark + 10, strchr(mark, ']'), strlen(strchr(mark, ']')) + 1);
    assert_string_equal(got, want);
    free(got);
}

static void files_of_secrets_are_redacted(void **state)
{
    static const char key[] =
        "note\n-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\nAwEHoUQ\n-----END EC PRIVATE KEY-----\nafter\n";
    redacts_line("COLOUR=blue", "COLOUR=[redacted ]");
    redacts_line("  url: https://u:p@h/ ", "  url: [redacted ] ");
    redacts_line("\"id\": \"x\",", "\"id\": [redacted ],");
    redacts_line("machine h login me password p", "machine h login me password [redacted ]");
    redacts_line("0123456789abcdef", "[redacted ]");
    redacts_line("# COLOUR is a comment", "# COLOUR is a comment");
    redacts_line("[default]", "[default]");
    redacts_line("EMPTY=", "EMPTY=");
    for (size_t n = 0; n <= strlen(key); n++) {
        const char *begin = strstr(key, "MHc"), *end = strstr(key, "-----END");
        if (key[n ? n - 1 : 0] == '\n') /* where a line begins */
            assert_int_equal(secrets_in_key(key, n), key + n >= begin && key + n <= end);
    }
}

static void secrets_are_redacted(void **state)
{
    redacts("export API_KEY=abcdef123456", 1, "abcdef123456");
    redacts("\"password\": \"hunter2222\"", 1, "hunter2222");
    redacts("token ghp_0123456789abcdefghijklmnopqrstuv ok", 1, "ghp_01");
    redacts("-----BEGIN RSA PRIVATE KEY-----\nMIIEsecret\n-----END RSA PRIVATE KEY-----\n", 1, "MIIE");
    redacts("int next_token(lexer *lx) { return 1; }", 0, "");
    redacts("password = read_password(tty)", 0, "");
    redacts("API_KEY=$FROM_ENV", 0, "");
    redacts("sk-short", 0, "");
    assert_true(secrets_path("a/.env") && secrets_path(".env.local") && secrets_path("x/id_rsa") &&
                secrets_path("k.pem"));
    assert_false(secrets_path(".env.example") || secrets_path("env.c") || secrets_path("src/key.c"));
    assert_true(secrets_env("PATH") && secrets_env("LC_ALL") && !secrets_env("AWS_SECRET_ACCESS_KEY") &&
                !secrets_env("SSH_AUTH_SOCK"));
}

static void output_is_cleaned_and_cut(void **state)
{
    char dir[] = "/tmp/officina-out-XXXXXX", path[64];
    struct vt_err err;
    struct text out = {0};
    assert_non_null(mkdtemp(dir));
    struct output *o = output_new(dir, 2000, &err);
    assert_non_null(o);
    const char *in = "10%\r50%\r100%\r\nred \033[31mtext\033[0m\nbad \xff\xc3\nAPI_KEY=abcdefgh1\nlast";
    for (const char *p = in; *p; p++)
        output_add(o, p, 1);
    assert_int_equal(output_result(o, &out), 0);
    assert_non_null(
        strstr(text_str(&out), "100%\nred text\nbad \xef\xbf\xbd\xef\xbf\xbd\nAPI_KEY=[redacted"));
    assert_non_null(strstr(text_str(&out), "last"));
    assert_null(strstr(text_str(&out), "50%"));
    output_free(o);
    text_clear(&out);
    o = output_new(dir, 2000, &err);
    for (int i = 1; i <= 5000; i++) {
        char line[32];
        output_add(o, line, (size_t)snprintf(line, sizeof line, "line %d\n", i));
    }
    int64_t number = output_result(o, &out);
    assert_true(number > 0 && out.len < 2300);
    assert_memory_equal(text_str(&out), "line 1\n", 7);
    assert_non_null(strstr(text_str(&out), "line 5000\n"));
    int left, from, to;
    assert_int_equal(sscanf(strstr(text_str(&out), "[…"),
                            "[… %d lines left out; recall id o-%*d, lines %d–%d", &left, &from, &to),
                     3);
    char want[32];
    snprintf(want, sizeof want, "line %d\n[…", from - 1);
    assert_non_null(strstr(text_str(&out), want));
    snprintf(want, sizeof want, "…]\nline %d\n", to + 1);
    assert_non_null(strstr(text_str(&out), want));
    assert_int_equal(to - from + 1, left);
    output_free(o);
    snprintf(path, sizeof path, "%s/o-%d", dir, (int)number);
    assert_int_equal(remove(path), 0); /* kept, since the result names it; the other one is gone */
    assert_int_equal(remove(dir), 0);
    text_free(&out);
}

/* Stored outputs do not grow without a bound: the oldest go, the newest stay whatever they are. */
static void outputs_are_bounded(void **state)
{
    char dir[] = "/tmp/officina-out-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    for (int i = 1; i <= 12; i++) {
        snprintf(path, sizeof path, "%s/o-%d", dir, i);
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        fprintf(f, "%1000d", i);
        fclose(f);
    }
    assert_int_equal(output_tidy(dir, UINT64_MAX, 10, 100), 12);
    for (int i = 1; i <= 12; i++) {
        snprintf(path, sizeof path, "%s/o-%d", dir, i);
        assert_int_equal(access(path, F_OK) == 0, i > 2);
    }
    assert_int_equal(output_tidy(dir, 3500, 10, 100), 12);
    assert_int_equal(output_tidy(dir, 0, 0, 11), 12);
    for (int i = 1; i <= 12; i++) {
        snprintf(path, sizeof path, "%s/o-%d", dir, i);
        assert_int_equal(access(path, F_OK) == 0, i > 10);
        unlink(path);
    }
    assert_int_equal(output_tidy(dir, 0, 0, 0), 0);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_small_and_valid),
        cmocka_unit_test(wildcards),
        cmocka_unit_test(edits_keep_line_ends),
        cmocka_unit_test(random_edits_change_only_what_is_meant),
        cmocka_unit_test(changes_are_counted),
        cmocka_unit_test(lines_shown_are_known),
        cmocka_unit_test(secrets_are_redacted),
        cmocka_unit_test(outputs_are_bounded),
        cmocka_unit_test(files_of_secrets_are_redacted),
        cmocka_unit_test(output_is_cleaned_and_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
