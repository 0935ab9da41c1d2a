/* Commands filled in: what an argument may do to a shell line is nothing. */
#include "ext/template.h"

#include "util/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* "T:text|S:shell line|F:path", or "! words of the fault". Static. */
static const char *filled(const char *body, const char *arguments)
{
    static char out[4096];
    struct template_part *p = NULL;
    struct vt_err err = {0};
    size_t n, at = 0;
    out[0] = '\0';
    if (template_fill(body, arguments, &p, &n, &err) < 0)
        snprintf(out, sizeof out, "! %s", err.text);
    else
        for (size_t i = 0; i < n; i++)
            at += (size_t)snprintf(out + at, sizeof out - at, "%s%c:%s", i ? "|" : "", "TSF"[p[i].kind],
                                   p[i].text);
    template_free(p, n);
    return out;
}

static void parts_stand_in_order(void **state)
{
    static const struct {
        const char *body, *arguments, *want;
    } list[] = {
        {"Fix $1 of $ARGUMENTS", "a b", "T:Fix a of a b"},
        {"Fix $1 of $9.", "", "T:Fix  of ."},
        {"See !{git diff} and @{src/$1}.", "a.c", "T:See |S:git diff|T: and |F:src/a.c|T:."},
        {"!{a}!{b}", "", "S:a|S:b"},
        {"!{awk '{print $1}' f} x", "q", "S:awk '{print $1}' f|T: x"},
        {"!{echo \"}\" '}' \\} }", "", "S:echo \"}\" '}' \\} "},
        {"\\!{no} \\@{no} !x @y", "", "T:!{no} @{no} !x @y"},
        {"$1", "\"two words\" x", "T:two words"},
        /* what an argument brings is not read again */
        {"Do $ARGUMENTS", "!{rm -rf /} @{/etc/passwd} $1", "T:Do !{rm -rf /} @{/etc/passwd} $1"},
        {"", "", ""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        assert_string_equal(filled(list[i].body, list[i].arguments), list[i].want);
}

static void arguments_stay_data(void **state)
{
    static const struct {
        const char *body, *arguments, *want;
    } list[] = {
        {"!{ls $1}", "src/a-b.c", "S:ls src/a-b.c"},
        {"!{ls $1}", "a;rm", "S:ls 'a;rm'"},
        {"!{ls $1}", "\"it's\"", "S:ls 'it'\\''s'"},
        {"!{ls $ARGUMENTS}", "a;b \"c d\"", "S:ls 'a;b' 'c d'"},
        {"!{ls \"$1\"}", "$(x)`y`", "S:ls \"\\$(x)\\`y\\`\""},
        {"!{ls \"$ARGUMENTS\"}", "a;b c", "S:ls \"a;b c\""},
        {"!{ls $1 $2 \"$1\"}", "\"\"", "S:ls ''  \"\""},
        {"!{ls '$1'}", "a", "S:ls '$1'"},
        {"!{ls \\$1}", "a;b", "S:ls \\$1"},
        {"!{ls $(basename $1)}", "a.c", "S:ls $(basename a.c)"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        assert_string_equal(filled(list[i].body, list[i].arguments), list[i].want);
    static const char *const unsafe[] = {"!{ls $(basename $1)}", "!{ls `basename $1`}", "!{cat <<X\n$1\nX\n}",
                                         "!{ls # 'tis it's\n $1}", "!{ls \"$(echo $1)\"}"};
    for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++)
        assert_non_null(strstr(filled(unsafe[i], "a;b"), "! the argument a;b cannot be quoted"));
    assert_non_null(strstr(filled("!{make $1}", "\"a\nrm -rf x\""), "line break"));
}

/* The shell itself is asked: each argument is one word, whatever it holds. */
static void a_shell_agrees(void **state)
{
    static const char *const hostile[] = {"a;exit", "$(exit)", "`exit`", "it's", "a\\'b", "|x", "*",
                                          "~",      "#no",     "&&",     "\\",   "-n",    "$1", "a b"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct text arg = {0}, line = {0};
        char got[200] = "";
        text_printf(&arg, "\"%s\"", hostile[i]);
        text_printf(&line, "%s", filled("!{printf '<%s>' $1 \"$1\"}", text_str(&arg)) + 2);
        FILE *p = popen(text_str(&line), "re");
        assert_non_null(p);
        got[fread(got, 1, sizeof got - 1, p)] = '\0';
        assert_int_equal(pclose(p), 0);
        text_clear(&line);
        text_printf(&line, "<%s><%s>", hostile[i], hostile[i]);
        assert_string_equal(got, text_str(&line));
        text_free(&arg);
        text_free(&line);
    }
}

static void what_is_wrong_is_named(void **state)
{
    assert_non_null(strstr(filled("x !{make", ""), "! the command's !{make"));
    assert_non_null(strstr(filled("x !{echo '}", ""), "not closed"));
    assert_non_null(strstr(filled("x @{", ""), "not closed"));
    assert_non_null(strstr(filled("x @{$1}", ""), "needs an argument"));
    struct text many = {0};
    for (int i = 0; i < 17; i++)
        text_puts(&many, "!{x}");
    assert_non_null(strstr(filled(text_str(&many), ""), "more than 16"));
    text_free(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_stand_in_order),
        cmocka_unit_test(arguments_stay_data),
        cmocka_unit_test(a_shell_agrees),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
