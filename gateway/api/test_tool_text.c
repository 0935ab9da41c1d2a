#include "tool_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *parse(const char *text)
{
    json_t *v = json_loads(text, 0, NULL);
    assert_non_null(v);
    return v;
}

static void becomes(const char *messages, const char *want)
{
    struct template_caps caps = {.system = true};
    struct api_err e;
    json_t *m = parse(messages), *w = parse(want);
    assert_int_equal(tool_text_write(m, NULL, &caps, &e), 0);
    char *got = json_dumps(m, JSON_SORT_KEYS);
    if (!json_equal(m, w))
        fail_msg("%s", got);
    free(got);
    json_decref(m);
    json_decref(w);
}

static void calls_and_results_become_text(void **state)
{
    becomes(
        "[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"content\":\"let me see\",\"tool_calls\":["
        "{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}},"
        "{\"function\":{\"name\":\"g\",\"arguments\":{\"y\":2}}}]},"
        "{\"role\":\"tool\",\"content\":\"r1\"},{\"role\":\"tool\",\"content\":\"r2\"},"
        "{\"role\":\"user\",\"content\":\"and?\"},{\"role\":\"assistant\",\"content\":\"so\"},"
        "{\"role\":\"user\",\"content\":\"b\"}]",
        "[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"content\":\"let me "
        "see\\n<tool_call>\\n{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":"
        "{\\\"x\\\":1}}\\n</"
        "tool_call>\\n<tool_call>\\n{\\\"name\\\":\\\"g\\\",\\\"arguments\\\":{\\\"y\\\":2}}\\n"
        "</tool_call>\"},"
        "{\"role\":\"user\",\"content\":\"<tool_response>\\nr1\\n</tool_response>\\n<tool_response>\\nr2\\n"
        "</tool_response>\\n\\nand?\"},"
        "{\"role\":\"assistant\",\"content\":\"so\"},{\"role\":\"user\",\"content\":\"b\"}]");
    becomes("[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
            "\"arguments\":\"{}\"}}]},"
            "{\"role\":\"tool\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"x\"}]",
            "[{\"role\":\"assistant\",\"content\":\"<tool_call>\\n{\\\"name\\\":\\\"f\\\",\\\"arguments\\\":{"
            "}}\\n</tool_call>\"},"
            "{\"role\":\"user\",\"content\":\"<tool_response>\\n\\n</tool_response>\"},"
            "{\"role\":\"assistant\",\"content\":\"x\"}]");
    becomes("[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]",
            "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]");
}

/* Where the tools go: before what is there, in a message that the template shows. */
static void tools_are_told(void **state)
{
    static const struct {
        bool system;
        const char *messages, *role;
        size_t n;
        const char *end;
    } t[] = {
        {true, "[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"user\",\"content\":\"a\"}]",
         "system", 2, "be brief"},
        {true, "[{\"role\":\"user\",\"content\":\"a\"}]", "system", 2, "</tool_response>."},
        {false, "[{\"role\":\"user\",\"content\":\"a\"}]", "user", 1, "\n\na"},
        {false, "[{\"role\":\"assistant\",\"content\":\"a\"}]", "user", 2, "</tool_response>."},
    };
    json_t *tools = parse(
        "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\"}}}]");
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct template_caps caps = {.system = t[i].system};
        struct api_err e;
        json_t *m = parse(t[i].messages);
        assert_int_equal(tool_text_write(m, tools, &caps, &e), 0);
        assert_int_equal(json_array_size(m), t[i].n);
        const json_t *first = json_array_get(m, 0);
        const char *text = json_string_value(json_object_get(first, "content"));
        assert_string_equal(json_string_value(json_object_get(first, "role")), t[i].role);
        assert_non_null(
            strstr(text, "\n{\"name\":\"weather\",\"parameters\":{\"type\":\"object\"}}\n</tools>"));
        assert_string_equal(text + strlen(text) - strlen(t[i].end), t[i].end);
        json_decref(m);
    }
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_and_results_become_text),
                                       cmocka_unit_test(tools_are_told)};
    return cmocka_run_group_tests_name("tool_text", tests, NULL, NULL);
}
