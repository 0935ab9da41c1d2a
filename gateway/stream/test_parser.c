#include "parser.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct parts {
    char content[256], reasoning[256], calls[512];
};

static void content(void *arg, const char *s, size_t n)
{
    strncat(((struct parts *)arg)->content, s, n);
}

static void reasoning(void *arg, const char *s, size_t n)
{
    strncat(((struct parts *)arg)->reasoning, s, n);
}

static void tool(void *arg, const char *name, const char *args)
{
    struct parts *p = arg;
    size_t n = strlen(p->calls);
    snprintf(p->calls + n, sizeof p->calls - n, "%s%s;", name, args);
}

static const struct parser_ops ops = {content, reasoning, tool};

struct want {
    const char *text, *content, *reasoning, *calls;
    bool open;
};

/* Whole, in every pair of pieces, and byte by byte. */
static void check(const struct want *w)
{
    size_t n = strlen(w->text);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        struct parser p;
        struct parts got = {0};
        parser_init(&p, &ops, &got, true, w->open, true);
        if (cut > n) {
            for (size_t i = 0; i < n; i++)
                parser_feed(&p, w->text + i, 1);
        } else {
            parser_feed(&p, w->text, cut);
            parser_feed(&p, w->text + cut, n - cut);
        }
        parser_end(&p);
        assert_false(parser_failed(&p));
        parser_fini(&p);
        if (strcmp(got.content, w->content) != 0 || strcmp(got.reasoning, w->reasoning) != 0 ||
            strcmp(got.calls, w->calls) != 0)
            fail_msg("'%s' cut at %zu: content '%s' reasoning '%s' calls '%s'", w->text, cut, got.content,
                     got.reasoning, got.calls);
    }
}

static void test_parts(void **state)
{
    static const struct want w[] = {
        {"plain", "plain", "", "", false},
        {"  led by blanks", "  led by blanks", "", "", false},
        {"<think>\nhm\n</think>\n\nso", "so", "hm", "", false},
        {"\n<think>a</think>b", "b", "a", "", false},
        {"a thought\n</think>\n\nb", "b", "a thought", "", true},
        {"never closed", "", "never closed", "", true},
        {"<think>half", "", "half", "", false},
        {"<thin", "<thin", "", "", false},
        {"a <think>b</think>", "a <think>b</think>", "", "", false},
        {"x < y </tool_call>", "x < y </tool_call>", "", "", false},
        {"<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>", "", "", "f{\"a\":1};", false},
        {"hi\n<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":2}\"}</"
         "tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>",
         "hi", "", "f{\"b\":2};g{};", false},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\"}}</tool_call>", "", "",
         "f{\"s\":\"</tool_call>\"};", false},
        {"<tool_call>nonsense</tool_call>!", "<tool_call>nonsense</tool_call>!", "", "", false},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{}}", "", "", "f{};", false},
        {"<tool_call>{\"name\":\"f\",\"argum", "<tool_call>{\"name\":\"f\",\"argum", "", "", false},
        {"<tool_call>{\"name\":1}</tool_call>", "<tool_call>{\"name\":1}</tool_call>", "", "", false},
        {"<think>t</think>\n\n<tool_call>\n<function=go>\n<parameter=n>\n3\n</parameter>\n<parameter=s>\na "
         "b\n</parameter>\n"
         "</function>\n</tool_call>",
         "", "t", "go{\"n\":3,\"s\":\"a b\"};", false},
    };
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++)
        check(&w[i]);
}

static void test_off(void **state)
{
    struct parser p;
    struct parts got = {0};
    static const char text[] = "<think>a</think><tool_call>{}</tool_call>";
    parser_init(&p, &ops, &got, false, false, false);
    parser_feed(&p, text, strlen(text));
    parser_end(&p);
    assert_string_equal(got.content, text);
    parser_fini(&p);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
