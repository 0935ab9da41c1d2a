/* /v1/responses, from the real vitriol-gateway between a played vitriold and a played engine. */
#include "test_boss.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define THOUGHT_TEXT_CALL                                                                                    \
    "<think>\nhm</think>\n\nWell.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"

static const char tools[] = "{\"input\":\"hi\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},"
                            "{\"type\":\"web_search\"},{\"type\":\"local_shell\"}]%s}";

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static const json_t *content_of(const json_t *item)
{
    return json_array_get(json_object_get(item, "content"), 0);
}

static void check_output(const json_t *output)
{
    const json_t *thought = json_array_get(output, 0), *text = json_array_get(output, 1),
                 *call = json_array_get(output, 2);
    assert_int_equal(json_array_size(output), 3);
    assert_string_equal(str(thought, "type"), "reasoning");
    assert_string_equal(str(content_of(thought), "text"), "hm");
    assert_string_equal(str(text, "type"), "message");
    assert_string_equal(str(content_of(text), "type"), "output_text");
    assert_string_equal(str(content_of(text), "text"), "Well.");
    assert_string_equal(str(call, "type"), "function_call");
    assert_string_equal(str(call, "name"), "f");
    assert_string_equal(str(call, "arguments"), "{\"a\": 1}");
    assert_string_equal(str(call, "status"), "completed");
}

static void test_whole(void **state)
{
    struct boss b;
    struct reply r = {0};
    char body[512];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = THOUGHT_TEXT_CALL;
    snprintf(body, sizeof body, tools, "");
    http_call(&b, &r, "POST", "/v1/responses", NULL, body);
    assert_int_equal(r.status, 200);
    json_t *v = reply_json(&r), *u = json_object_get(v, "usage");
    assert_int_equal(strncmp(str(v, "id"), "resp_", 5), 0);
    assert_string_equal(str(v, "object"), "response");
    assert_string_equal(str(v, "status"), "completed");
    check_output(json_object_get(v, "output"));
    assert_int_equal(json_integer_value(json_object_get(u, "total_tokens")),
                     json_integer_value(json_object_get(u, "input_tokens")) +
                         json_integer_value(json_object_get(u, "output_tokens")));
    json_decref(v);
    reply_free(&r);
    b.answer = "abc";
    http_call(&b, &r, "POST", "/responses", NULL, "{\"input\":\"hi\",\"max_output_tokens\":2}");
    v = reply_json(&r);
    assert_string_equal(str(v, "status"), "incomplete");
    assert_string_equal(str(json_object_get(v, "incomplete_details"), "reason"), "max_output_tokens");
    json_decref(v);
    reply_free(&r);
    boss_stop(&b);
}

/* What a client puts together: deltas and the item that closes them must agree, events are counted, one is the last. */
struct built {
    char text[256], last[40];
    json_t *items, *response;
    unsigned events;
};

static bool ends_with(const char *s, const char *end)
{
    return strlen(s) >= strlen(end) && strcmp(s + strlen(s) - strlen(end), end) == 0;
}

static void on_event(struct built *t, const json_t *e)
{
    const char *type = str(e, "type");
    const json_t *item = json_object_get(e, "item");
    assert_int_equal(json_integer_value(json_object_get(e, "sequence_number")), t->events++);
    assert_null(t->response); /* nothing comes behind the last */
    if (strcmp(type, "response.output_item.added") == 0) {
        t->text[0] = '\0';
        assert_int_equal(json_integer_value(json_object_get(e, "output_index")), json_array_size(t->items));
    } else if (ends_with(type, ".delta")) {
        strncat(t->text, str(e, "delta"), sizeof t->text - strlen(t->text) - 1);
    } else if (ends_with(type, "text.done")) {
        assert_string_equal(str(e, "text"), t->text);
    } else if (ends_with(type, "arguments.done")) {
        assert_string_equal(str(e, "arguments"), t->text);
    } else if (strcmp(type, "response.output_item.done") == 0) {
        json_array_append(t->items, (json_t *)(uintptr_t)item);
    } else if (strcmp(type, "response.completed") == 0 || strcmp(type, "response.incomplete") == 0 ||
               strcmp(type, "response.failed") == 0) {
        t->response = json_incref(json_object_get(e, "response"));
    }
    snprintf(t->last, sizeof t->last, "%s", type);
}

static void build(const struct reply *r, struct built *t)
{
    char *save, *text = strdup(r->body), *name = NULL;
    *t = (struct built){.items = json_array()};
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "event: ", 7) == 0)
            name = line + 7;
        if (strncmp(line, "data: ", 6) != 0)
            continue;
        json_t *e = json_loads(line + 6, 0, NULL);
        assert_non_null(e);
        assert_non_null(name);
        assert_string_equal(name, str(e, "type")); /* each event is named */
        on_event(t, e);
        json_decref(e);
        name = NULL;
    }
    free(text);
    assert_non_null(t->response);
}

static void built_fini(struct built *t)
{
    json_decref(t->items);
    json_decref(t->response);
}

static void test_stream(void **state)
{
    struct boss b;
    struct reply r = {0};
    struct built t;
    char body[512];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = THOUGHT_TEXT_CALL;
    snprintf(body, sizeof body, tools, ",\"stream\":true");
    http_call(&b, &r, "POST", "/v1/responses", NULL, body);
    assert_null(strstr(r.body, "[DONE]"));
    build(&r, &t);
    assert_string_equal(t.last, "response.completed");
    check_output(t.items);
    check_output(json_object_get(t.response, "output"));
    built_fini(&t);
    reply_free(&r);
    boss_stop(&b);
}

/* An engine that does not come back: the stream ends with one event that says so. */
static void test_failure(void **state)
{
    struct boss b;
    struct reply r = {0};
    struct built t;
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "abcdefgh";
    b.stop_at = 3;
    int s = http_dial(&b);
    http_send(s, "POST", "/v1/responses", NULL, "{\"input\":\"hi\",\"stream\":true}");
    boss_until(&b, boss_sent(&b, 1));
    http_read(&b, s, &r, "\"c\"", 3000);
    boss_engine_dies(&b, false);
    http_read(&b, s, &r, NULL, 3000);
    build(&r, &t);
    assert_string_equal(t.last, "response.failed");
    assert_string_equal(t.text, "abc");
    assert_string_equal(str(t.response, "status"), "failed");
    assert_true(*str(json_object_get(t.response, "error"), "message") != '\0');
    built_fini(&t);
    reply_free(&r);
    close(s);
    boss_stop(&b);
}

static void test_prompt(void **state)
{
    struct boss b;
    struct reply r = {0};
    char text[4096];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "ok";
    http_call(
        &b, &r, "POST", "/v1/responses", NULL,
        "{\"instructions\":\"Be kind.\",\"input\":[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"type\":\"web_search_call\",\"id\":\"w\"},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\"},"
        "{\"type\":\"output_text\",\"text\":\"c\"}]},"
        "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"e\"},"
        "{\"role\":\"developer\",\"content\":[{\"type\":\"input_text\",\"text\":\"d\"}]}]}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    assert_string_equal(boss_prompt(&b, text, sizeof text),
                        "[system\nBe kind.]\n[user\na]\n[assistant\nb\nc]\n"
                        "[user\n<tool_response>\ne\n</tool_response>]\n[system\nd]\n[assistant\n");
    http_call(&b, &r, "POST", "/v1/responses/input_tokens", NULL, "{\"input\":\"hi\"}");
    assert_non_null(strstr(r.body, "\"input_tokens\":21"));
    reply_free(&r);
    boss_stop(&b);
}

static void test_refusals(void **state)
{
#define ITEM(item) "{\"input\":[" item "]}"
    static const char *const bad[][2] = {
        {"{\"input\":5}", "input"},
        {ITEM("5"), "input[0]"},
        {ITEM("{}"), "input[0]"},
        {ITEM("{\"type\":\"message\"}"), "role"},
        {ITEM("{\"role\":\"user\"}"), "input[0]"},
        {ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}"), "images"},
        {ITEM("{\"type\":\"function_call\"}"), "call_id"},
        {ITEM("{\"type\":\"function_call_output\"}"), "call_id"},
        {ITEM("{\"type\":\"item_reference\",\"id\":\"x\"}"), "not kept here"},
        {"{\"input\":\"x\",\"previous_response_id\":\"y\"}", "not kept here"},
        {"{\"input\":\"x\",\"instructions\":5}", "instructions"},
        {"{\"input\":\"x\",\"tools\":5}", "tools"},
        {"{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"xml\"}}}", "xml"},
        {"{\"input\":\"x\",\"tool_choice\":\"required\"}", "tool_choice"},
    };
    struct boss b;
    struct reply r = {0};
    char type[64];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        http_call(&b, &r, "POST", "/v1/responses", NULL, bad[i][0]);
        assert_int_equal(r.status, 400);
        assert_string_equal(error_type(&r, type, sizeof type), "invalid_request_error");
        if (!strstr(r.body, bad[i][1]))
            fail_msg("%s says %s", bad[i][0], r.body);
        reply_free(&r);
    }
    boss_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),  cmocka_unit_test(test_stream),   cmocka_unit_test(test_failure),
        cmocka_unit_test(test_prompt), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
