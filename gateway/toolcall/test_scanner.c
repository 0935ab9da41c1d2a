#include "scanner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct parts {
    char content[512], reasoning[256], calls[1024];
};

static void content(void *arg, const char *s, size_t n)
{
    strncat(((struct parts *)arg)->content, s, n);
}

static void reasoning(void *arg, const char *s, size_t n)
{
    strncat(((struct parts *)arg)->reasoning, s, n);
}

static void call(void *arg, const char *name)
{
    strcat(((struct parts *)arg)->calls, name);
}

static void args(void *arg, const char *s, size_t n)
{
    strncat(((struct parts *)arg)->calls, s, n);
}

static void whole(void *arg)
{
    strcat(((struct parts *)arg)->calls, ";");
}

static void broken(void *arg, const char *s, size_t n)
{
    strcat(((struct parts *)arg)->calls, "!");
    strncat(((struct parts *)arg)->content, s, n);
}

static const struct scan_ops ops = {content, reasoning, call, args, whole, broken};

enum { OPEN = 1 /* inside of thoughts */, LIMIT = 2 /* ended by one */, FORCED = 4 };

struct want {
    const char *text, *content, *reasoning, *calls;
    unsigned how;
};

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":"
    "\"string\"},"
    "\"n\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"z\":{\"type\":[\"string\",\"null\"]}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"g\"}},{\"type\":\"function\",\"function\":{\"name\":"
    "\"go\"}}]";

static void run(const struct scan_rules *rules, const char *text, size_t n, size_t cut, size_t cut2,
                bool limit, struct parts *got)
{
    struct scanner s;
    *got = (struct parts){0};
    scanner_init(&s, rules, &ops, got);
    if (cut > n)
        for (size_t i = 0; i < n; i++)
            scanner_feed(&s, text + i, 1);
    else {
        scanner_feed(&s, text, cut);
        scanner_feed(&s, text + cut, cut2 - cut);
        scanner_feed(&s, text + cut2, n - cut2);
    }
    scanner_end(&s, limit);
    assert_false(scanner_failed(&s));
    scanner_fini(&s);
}

/* Whole, in every two and three pieces, and byte by byte. */
static void check(const char *template, const struct want *w)
{
    const size_t n = strlen(w->text);
    json_t *tools = json_loads(tools_text, 0, NULL);
    const struct scan_rules rules = {.dialect = dialect_find(template, strlen(template), false, false),
                                     .think = think_marks_find(template, strlen(template)),
                                     .frames = strcmp(template, "<|channel|>") == 0,
                                     .tools = tools,
                                     .think_open = w->how & OPEN,
                                     .forced = w->how & FORCED};
    for (size_t cut = 0; cut <= n + 1; cut++)
        for (size_t cut2 = cut; cut2 <= (cut > n ? cut : n); cut2 += 1 + n / 40) {
            struct parts got;
            run(&rules, w->text, n, cut, cut2, w->how & LIMIT, &got);
            if (strcmp(got.content, w->content) != 0 || strcmp(got.reasoning, w->reasoning) != 0 ||
                strcmp(got.calls, w->calls) != 0)
                fail_msg("%s: '%s' cut at %zu, %zu: content '%s' reasoning '%s' calls '%s'", template,
                         w->text, cut, cut2, got.content, got.reasoning, got.calls);
        }
    json_decref(tools);
}

#define CHECK(template, rows)                                                                                \
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)                                                \
    check(template, &rows[i])

static void test_reasoning(void **state)
{
    static const struct want w[] = {
        {"plain", "plain", "", "", 0},
        {"  led by blanks", "  led by blanks", "", "", 0},
        {"<think>\nhm\n</think>\n\nso", "so", "hm", "", 0},
        {"\n<think>a</think>b", "b", "a", "", 0},
        {"a thought\n</think>\n\nb", "b", "a thought", "", OPEN},
        {"never closed", "", "never closed", "", OPEN},
        {"<think>half", "", "half", "", 0},
        {"<thin", "<thin", "", "", 0},
        {"a <think>b</think>", "a <think>b</think>", "", "", 0},
        {"x < y </tool_call>", "x < y </tool_call>", "", "", 0},
    };
    static const struct want mistral[] = {{"[THINK]a[/THINK]b [THINK]", "b [THINK]", "a", "", 0}};
    static const struct want gemma[] = {{"<|channel>thought\nhm\n<channel|>so", "so", "hm", "", 0}};
    CHECK("", w);
    CHECK("[/THINK][TOOL_CALLS]", mistral);
    CHECK("<channel|><|tool_call>", gemma);
}

static void test_hermes(void **state)
{
    static const struct want w[] = {
        {"<tool_call>\n{\"name\":\"f\",\"arguments\":{\"a\":1}}\n</tool_call>", "", "", "f{\"a\":1};", 0},
        {"hi\n<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"b\\\":2}\"}</"
         "tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>",
         "hi", "", "f{\"b\":2};g{};", 0},
        {"<tool_call>{\"arguments\": {\"a\": [1, {}]}, \"name\": \"f\"}</tool_call>after", "after", "",
         "f{\"a\": [1, {}]};", 0},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\"}}</tool_call>", "", "",
         "f{\"s\":\"</tool_call>\"};", 0},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"a\nb\"}}</tool_call>", "", "",
         "f{\"s\":\"a\\nb\"};", 0},
        {"<tool_call>nonsense</tool_call>!", "<tool_call>nonsense!", "", "", 0},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{}}", "", "", "f{};", 0},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{}</tool_call>", "", "", "f{};", 0},
        {"<tool_call>{\"name\":\"f\",\"argum", "<tool_call>{\"name\":\"f\",\"argum", "", "", 0},
        {"<tool_call>{\"name\":1}</tool_call>", "<tool_call>{\"name\":1}", "", "", 0},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":tru}}</tool_call>x",
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":tru}}x", "", "f{\"a\":tru!", 0},
        {"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":",
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", "", "f{\"a\":!", 0},
        {"<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{}}]</tool_call>", "",
         "", "f{};g{};", 0},
        {"<think>t</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>\nend", "end", "t",
         "f{};", 0},
        {"a <tool_cal", "a <tool_cal", "", "", 0},
        {"<tool_call>", "<tool_call>", "", "", 0},
    };
    CHECK("<tool_call>", w);
}

static void test_xml(void **state)
{
    static const struct want w[] = {
        {"<tool_call>\n<function=go>\n<parameter=n>\n3\n</parameter>\n<parameter=s>\na "
         "b\n</parameter>\n</function>\n"
         "</tool_call>",
         "", "", "go{\"n\": 3, \"s\": \"a b\"};", 0},
        {"<function=f>\n<parameter=s>\n3\n</parameter>\n<parameter=n>7</parameter><parameter=b>True</"
         "parameter>\n"
         "<parameter=z>null</parameter></function>\n</tool_call>x",
         "x", "", "f{\"s\": \"3\", \"n\": 7, \"b\": true, \"z\": null};", 0},
        {"<function=f><parameter=s>\nif a</parameter> </b>\n\"q\"\\\n\n</parameter></function>", "", "",
         "f{\"s\": \"if a</parameter> </b>\\n\\\"q\\\"\\\\\\n\"};", 0},
        {"<function=f></function>", "", "", "f{};", 0},
        {"<tool_call><function=f>junk</function></tool_call>", "<tool_call><function=f>junk</function>", "",
         "", 0},
        {"<function=f><parameter=x>[1, {\"a\": 2}]</parameter><parameter=y>word</parameter></function>", "",
         "", "f{\"x\": [1, {\"a\": 2}], \"y\": \"word\"};", 0},
        {"<function=f><parameter=s>half", "<function=f><parameter=s>half", "", "f{\"s\": \"half!", 0},
        {"1 <function", "1 <function", "", "", 0},
    };
    CHECK("<tool_call><function=", w);
}

static void test_llama(void **state)
{
    static const struct want w[] = {
        {"<|python_tag|>{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "", "", "f{\"n\": 1};", 0},
        {"{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "", "", "f{\"n\": 1};", 0},
        {" {\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": "
         "{}}",
         "", "", "f{};f{};", 0},
        {"{\"name\": \"Bob\", \"parameters\": {}}", "{\"name\": \"Bob\", \"parameters\": {}}", "", "", 0},
        {"{\"answer\": 42}", "{\"answer\": 42}", "", "", 0},
        {"{\"name\": \"f\"} is JSON", "{\"name\": \"f\"} is JSON", "", "", 0},
        {"say {\"name\": \"f\", \"parameters\": {}}", "say {\"name\": \"f\", \"parameters\": {}}", "", "", 0},
        {"<|python_tag|>print(1)", "<|python_tag|>print(1)", "", "", 0},
        {"{\"name\": \"f\", \"parameters\": {}} done", "done", "", "f{};", 0},
    };
    CHECK("<|python_tag|>", w);
}

static void test_mistral(void **state)
{
    static const struct want w[] = {
        {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}, {\"name\": "
         "\"g\", "
         "\"arguments\": {}}]",
         "", "", "f{\"a\": 1};g{};", 0},
        {"hi [TOOL_CALLS]f[ARGS]{\"a\": \"[TOOL_CALLS]\"}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}", "hi", "",
         "f{\"a\": \"[TOOL_CALLS]\"};g{};", 0},
        {"[TOOL_CALLS] f {\"a\": 1} and", " and", "", "f{\"a\": 1};", 0},
        {"[TOOL_CALLS]f[ARG]{}", "[TOOL_CALLS]f[ARG]{}", "", "", 0},
        {"[TOOL_CALLS][1]", "[TOOL_CALLS][1]", "", "", 0},
        {"[TOOL_CALL", "[TOOL_CALL", "", "", 0},
    };
    CHECK("[TOOL_CALLS]", w);
}

static void test_gemma(void **state)
{
    static const struct want w[] = {
        {"<|tool_call>call:f{s:<|\"|>a \"b\" <|x<|\"|>,n:3,l:[1,<|\"|>z<|\"|>,{k:true}],e:{},w:two "
         "words}<tool_call|>",
         "", "",
         "f{\"s\": \"a \\\"b\\\" <|x\", \"n\": 3, \"l\": [1, \"z\", {\"k\": true}], \"e\": {}, \"w\": \"two "
         "words\"};",
         0},
        {"a<|tool_call>call:f{}<tool_call|><|tool_call>call:g{x:1}<tool_call|>b", "ab", "",
         "f{};g{\"x\": 1};", 0},
        {"<|tool_call>call f", "<|tool_call>call f", "", "", 0},
        {"<|tool_call>call:f{a:}<tool_call|>", "<|tool_call>call:f{a:}", "", "f{\"a\": !", 0},
    };
    static const struct want fg[] = {{"<start_function_call>call:f{s:<escape>x<escape>}<end_function_call>",
                                      "", "", "f{\"s\": \"x\"};", 0}};
    CHECK("<|tool_call>", w);
    CHECK("<start_function_call>", fg);
}

static void test_glm(void **state)
{
    static const struct want w[] = {
        {"<think>t</think>\nso\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a <b> "
         "\"c\"\n</arg_value>\n<arg_key>n</arg_key>\n"
         "<arg_value>3</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
         "so", "t", "f{\"s\": \"a <b> \\\"c\\\"\\n\", \"n\": 3};g{};", 0},
        {"<tool_call>f<arg_key>s</arg_key><arg_value>7</arg_value><arg_key>b</arg_key><arg_value>true</"
         "arg_value><arg_key>x</arg_key>"
         "<arg_value>{\"k\": [1]}</arg_value></tool_call>",
         "", "", "f{\"s\": \"7\", \"b\": true, \"x\": {\"k\": [1]}};", 0},
        {"<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n", "", "", "f{\"s\": \"x\"};", 0},
        {"<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n",
         "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n", "", "f{\"s\": \"x\"!", LIMIT},
        {"<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>ha",
         "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>ha", "", "f{\"s\": \"ha!", 0},
        {"<tool_call>h\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
         "<tool_call>h\n<arg_key>s</arg_key>\n<arg_value>x</arg_value>", "", "", 0},
        {"<tool_call>f\n<arg_value>", "<tool_call>f\n<arg_value>", "", "f!", 0},
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "", "", "f{};", 0},
        {"<tool_call></tool_call>", "<tool_call>", "", "", 0},
    };
    CHECK("<tool_call><arg_key></think>", w);
}

#define CALLS  "<｜tool▁calls▁begin｜>"
#define CALL   "<｜tool▁call▁begin｜>"
#define SEP    "<｜tool▁sep｜>"
#define CLOSE  "<｜tool▁call▁end｜>"
#define CLOSES "<｜tool▁calls▁end｜>"

static void test_deepseek(void **state)
{
    static const struct want w[] = {
        {"<think>\nhm\n</think>\n\nLet me." CALLS CALL "function" SEP
         "f\n```json\n{\"s\": \"``` x\"}\n```" CLOSE "\n" CALL "function" SEP
         "g\n```json\n{}\n```" CLOSE CLOSES,
         "Let me.", "hm", "f{\"s\": \"``` x\"};g{};", 0},
        {CALLS CALL "f" SEP "{\"n\": 1}" CLOSE CALL "g" SEP "{}" CLOSE CLOSES, "", "", "f{\"n\": 1};g{};", 0},
        {CALL "function" SEP "{\"n\": 1}" CLOSE, CALL "function" SEP "{\"n\": 1}", "", "", 0},
        {CALL "f" SEP "{\"n\": 1}", "", "", "f{\"n\": 1};", LIMIT},
        {CALL "f" SEP "{\"n\": ", CALL "f" SEP "{\"n\": ", "", "f{\"n\": !", LIMIT},
        {CALL "function" SEP "f\n``", "", "", "", LIMIT},
        {CALL "function" SEP "f\n``", CALL "function" SEP "f\n``", "", "", 0},
        {CALL "nothing of it", CALL "nothing of it", "", "", 0},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "", "", "f{};", 0},
    };
    CHECK("</think>" CALL, w);
}

#define FINAL "<|channel|>final<|message|>"
#define HMM   "<|channel|>analysis<|message|>"
#define TO_F  "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"

static void test_harmony(void **state)
{
    static const struct want w[] = {
        {HMM "I think.<|end|><|start|>assistant" FINAL "Hello\n\nyou<|return|>", "Hello\n\nyou", "I think.",
         "", 0},
        {FINAL "Hello", "Hello", "", "", 0},
        {"plain", "plain", "", "", 0},
        {HMM "hm<|end|><|start|>assistant" TO_F "{\"s\": \"<|end|>\"}<|call|>", "", "hm",
         "f{\"s\": \"<|end|>\"};", 0},
        {" to=functions.g<|channel|>commentary json<|message|>{}", "", "", "g{};", 0},
        {"<|channel|>commentary<|message|>First I look.<|end|><|start|>assistant "
         "to=functions.f<|channel|>commentary json<|message|>{\"n\":1}"
         "<|call|>",
         "First I look.", "", "f{\"n\":1};", 0},
        {TO_F
         "{}<|end|><|start|>assistant<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}",
         "", "", "f{};g{};", 0},
        {HMM "a<|end|>" HMM "b", "", "ab", "", 0},
        {"more thoughts<|end|><|start|>assistant" FINAL "x", "x", "more thoughts", "", OPEN},
        {"<|channel|>commentary to=functions.h <|constrain|>json<|message|>{\"a\":1}<|call|>",
         "<|channel|>commentary to=functions.h <|constrain|>json<|message|>{\"a\":1}", "", "", 0},
        {"<|channel|>commentary to=python code<|message|>print(1)<|call|>",
         "<|channel|>commentary to=python code<|message|>print(1)<|call|>", "", "", 0},
        {TO_F "{\"n\": nan}<|call|>", TO_F "{\"n\": nan}", "", "f{\"n\": n!", 0},
        {TO_F "{\"n\": ", TO_F "{\"n\": ", "", "f{\"n\": !", LIMIT},
        {"<|channel|>commentary to=functi", "", "", "", LIMIT},
        {"<|channel|>analysis", "<|channel|>analysis", "", "", 0},
        {HMM "half", "", "half", "", LIMIT},
        {"a <|en", "a <|en", "", "", 0},
    };
    CHECK("<|channel|>", w);
}

static void test_list(void **state)
{
    static const struct want w[] = {
        {"<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "", "", "f{};", 0},
        {"<|tool_call|>{\"name\": \"f\", \"arguments\": {}}", "", "", "f{};", 0},
    };
    CHECK("<|tool_call|>", w);
}

/* max_tokens inside of a call: no mark becomes content, and what is known of the call stays. */
static void test_cut(void **state)
{
    static const struct want w[] = {
        {"so <tool_call>", "so", "", "", LIMIT},
        {"<tool_call>\n{\"name\": \"f", "", "", "", LIMIT},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ",
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ", "", "f{\"a\": !", LIMIT},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}", "", "", "f{};", LIMIT},
        {"1 <tool_ca", "1 <tool_ca", "", "", LIMIT}, /* it may be no mark */
        {"<tool_ca", "", "", "", LIMIT | FORCED},
        {"<tool_call>\n{\"na", "", "", "", FORCED},
    };
    static const struct want bare[] = {
        {"{\"name\": \"f", "{\"name\": \"f", "", "", LIMIT}, /* it may be an answer in JSON */
        {"{\"name\": \"f", "", "", "", LIMIT | FORCED},
        {"<|python_tag|>{\"na", "", "", "", LIMIT},
    };
    CHECK("<tool_call>", w);
    CHECK("<|python_tag|>", bare);
}

/* Calls of tools that nobody offered are text, whatever their form. */
static void test_foreign(void **state)
{
    static const struct want w[] = {
        {"<tool_call>{\"name\":\"h\",\"arguments\":{\"a\":1}}</tool_call>",
         "<tool_call>{\"name\":\"h\",\"arguments\":{\"a\":1}}", "", "", 0},
        {"<tool_call>{\"arguments\":{},\"name\":\"h\"}</tool_call> <tool_call>{\"name\":\"f\"}</tool_call>",
         "<tool_call>{\"arguments\":{},\"name\":\"h\"}", "", "f{};", 0},
        {"<tool_call><function=h><parameter=a>1</parameter></function></tool_call>",
         "<tool_call><function=h><parameter=a>1</parameter></function>", "", "", 0},
    };
    static const struct want mistral[] = {{"[TOOL_CALLS]h[ARGS]{}", "[TOOL_CALLS]h[ARGS]{}", "", "", 0},
                                          {"[TOOL_CALLS][{\"name\": \"h\", \"arguments\": {}}]",
                                           "[TOOL_CALLS][{\"name\": \"h\", \"arguments\": {}}]", "", "", 0}};
    static const struct want gemma[] = {
        {"<|tool_call>call:h{}<tool_call|>", "<|tool_call>call:h{}", "", "", 0}};
    CHECK("<tool_call>", w);
    CHECK("[TOOL_CALLS]", mistral);
    CHECK("<|tool_call>", gemma);
}

static void test_off(void **state)
{
    static const char text[] = "<think>a</think><tool_call>{}</tool_call>";
    const struct scan_rules rules = {0};
    struct parts got;
    run(&rules, text, strlen(text), 3, 9, false, &got);
    assert_string_equal(got.content, text);
}

static void test_single(void **state)
{
    static const char text[] =
        "<tool_call>{\"name\":\"f\"}</tool_call><tool_call>{\"name\":\"g\"}</tool_call>x";
    const struct scan_rules rules = {.dialect = dialect_find("", 0, false, false), .single = true};
    struct parts got;
    run(&rules, text, strlen(text), 3, 9, false, &got);
    assert_string_equal(got.calls, "f{};");
    assert_string_equal(got.content, "");
}

static void test_json(void **state)
{
    static const char *const good[] = {"1",     "-0.5e+3", " [ ] ", "{\"a\":[true,null,\"\\u00e9\"]}",
                                       "\"x\"", "0",       "[1,2]"};
    static const char *const bad[] = {"",    "01",  "1.",      "-",   "{\"a\"}", "[1,]",
                                      "{,}", "tru", "\"\\x\"", "1 2", "]",       "{\"a\":1,}"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(jscan_valid(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(jscan_valid(bad[i], strlen(bad[i])));
    char deep[600];
    memset(deep, '[', 300);
    memset(deep + 300, ']', 300);
    assert_false(jscan_valid(deep, 600));
    assert_true(jscan_valid(deep + 100, 400));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasoning), cmocka_unit_test(test_hermes),  cmocka_unit_test(test_xml),
        cmocka_unit_test(test_llama),     cmocka_unit_test(test_mistral), cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_list),      cmocka_unit_test(test_cut),     cmocka_unit_test(test_glm),
        cmocka_unit_test(test_deepseek),  cmocka_unit_test(test_harmony), cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_off),       cmocka_unit_test(test_single),  cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
