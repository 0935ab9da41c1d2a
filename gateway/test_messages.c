/* /v1/messages, from the real vitriol-gateway between a played vitriold and a played engine. */
#include "test_boss.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THOUGHT_TEXT_CALL                                                                                    \
    "<think>\nhm</think>\n\nWell.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"

static const char tools[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":[{\"name\":\"f\",\"input_schema\":{}},"
    "{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]%s}";

static const char *str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void check_blocks(const json_t *content)
{
    const json_t *think = json_array_get(content, 0), *text = json_array_get(content, 1),
                 *use = json_array_get(content, 2);
    assert_int_equal(json_array_size(content), 3);
    assert_string_equal(str(think, "type"), "thinking");
    assert_string_equal(str(think, "thinking"), "hm");
    assert_string_equal(str(text, "type"), "text");
    assert_string_equal(str(text, "text"), "Well.");
    assert_string_equal(str(use, "type"), "tool_use");
    assert_string_equal(str(use, "name"), "f");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(use, "input"), "a")), 1);
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
    http_call(&b, &r, "POST", "/v1/messages?beta=true", NULL, body);
    assert_int_equal(r.status, 200);
    json_t *v = reply_json(&r), *u = json_object_get(v, "usage");
    assert_int_equal(strncmp(str(v, "id"), "msg_", 4), 0);
    assert_string_equal(str(v, "type"), "message");
    assert_string_equal(str(v, "role"), "assistant");
    assert_string_equal(str(v, "stop_reason"), "tool_use");
    check_blocks(json_object_get(v, "content"));
    assert_true(json_integer_value(json_object_get(u, "input_tokens")) > 0);
    assert_true(json_integer_value(json_object_get(u, "output_tokens")) > 0);
    json_decref(v);
    reply_free(&r);
    b.answer = "abc STOP def";
    http_call(&b, &r, "POST", "/v1/messages", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stop_sequences\":[\"STOP\"]}");
    v = reply_json(&r);
    assert_string_equal(str(v, "stop_reason"), "stop_sequence");
    assert_string_equal(str(v, "stop_sequence"), "STOP");
    json_decref(v);
    reply_free(&r);
    http_call(&b, &r, "POST", "/v1/messages", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":2}");
    v = reply_json(&r);
    assert_string_equal(str(v, "stop_reason"), "max_tokens");
    json_decref(v);
    reply_free(&r);
    boss_stop(&b);
}

/* What a client puts together of a stream; blocks must be opened, filled and closed one behind the other. */
struct built {
    json_t *content;
    char args[256], stop[32];
    int open; /* index, -1: none */
    bool started, over;
};

static void append(json_t *block, const char *key, const char *more)
{
    json_object_set_new(block, key, json_sprintf("%s%s", str(block, key), more));
}

static void on_block(struct built *t, const char *type, json_t *e)
{
    int index = (int)json_integer_value(json_object_get(e, "index"));
    json_t *block = json_array_get(t->content, (size_t)index), *d = json_object_get(e, "delta");
    if (strcmp(type, "content_block_start") == 0) {
        assert_true(t->open == -1 && index == (int)json_array_size(t->content));
        json_array_append(t->content, json_object_get(e, "content_block"));
        t->open = index;
        return;
    }
    assert_int_equal(index, t->open);
    if (strcmp(type, "content_block_stop") == 0) {
        t->open = -1;
        if (t->args[0])
            json_object_set_new(block, "input", json_loads(t->args, 0, NULL));
    } else if (strcmp(str(d, "type"), "input_json_delta") == 0) {
        strncat(t->args, str(d, "partial_json"), sizeof t->args - strlen(t->args) - 1);
    } else if (strcmp(str(d, "type"), "text_delta") == 0) {
        append(block, "text", str(d, "text"));
    } else if (strcmp(str(d, "type"), "thinking_delta") == 0) {
        append(block, "thinking", str(d, "thinking"));
    } else {
        assert_string_equal(str(d, "type"), "signature_delta");
    }
}

static void build(const struct reply *r, struct built *t)
{
    char *save, *text = strdup(r->body), *name = NULL;
    *t = (struct built){.content = json_array(), .open = -1};
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "event: ", 7) == 0)
            name = line + 7;
        if (strncmp(line, "data: ", 6) != 0)
            continue;
        json_t *e = json_loads(line + 6, 0, NULL);
        const char *type = str(e, "type");
        assert_non_null(e);
        assert_non_null(name);
        assert_string_equal(name, type); /* each event is named */
        assert_false(t->over);
        if (strncmp(type, "content_block_", 14) == 0)
            on_block(t, type, e);
        else if (strcmp(type, "message_start") == 0)
            t->started = true;
        else if (strcmp(type, "message_delta") == 0)
            snprintf(t->stop, sizeof t->stop, "%s", str(json_object_get(e, "delta"), "stop_reason"));
        else if (strcmp(type, "message_stop") == 0)
            t->over = true;
        else
            fail_msg("event %s", type);
        json_decref(e);
        name = NULL;
    }
    assert_true(t->started && t->over && t->open == -1);
    free(text);
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
    http_call(&b, &r, "POST", "/v1/messages", NULL, body);
    assert_non_null(strstr(r.head, "text/event-stream"));
    assert_null(strstr(r.body, "[DONE]"));
    build(&r, &t);
    assert_string_equal(t.stop, "tool_use");
    check_blocks(t.content);
    json_decref(t.content);
    reply_free(&r);
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
        &b, &r, "POST", "/v1/messages", NULL,
        "{\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: 7\"},"
        "{\"type\":\"text\",\"text\":\"Be kind.\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":["
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":"
        "\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"redacted_thinking\",\"data\":\"x\"},"
        "{\"type\":\"text\",\"text\":\"c\"}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"d\"},"
        "{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":\"text\",\"text\":\"e\"}]}]}]"
        "}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    assert_string_equal(boss_prompt(&b, text, sizeof text),
                        "[system\nBe "
                        "kind.]\n[user\na\nb]\n[assistant\nc]\n[user\n<tool_response>\ne\n</"
                        "tool_response>\n\nd]\n[assistant\n");
    http_call(&b, &r, "POST", "/v1/messages/count_tokens", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    /* <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n of single bytes */
    assert_string_equal(r.body, "{\"input_tokens\":21}");
    reply_free(&r);
    boss_stop(&b);
}

static void check_refused(struct boss *b, const char *body, const char *word)
{
    struct reply r = {0};
    char type[64];
    http_call(b, &r, "POST", "/v1/messages", NULL, body);
    json_t *v = reply_json(&r);
    assert_int_equal(r.status, 400);
    error_type(&r, type, sizeof type);
    assert_string_equal(str(v, "type"), "error");
    if (!strstr(r.body, word))
        fail_msg("%s says %s", body, r.body);
    json_decref(v);
    reply_free(&r);
}

static void test_refusals(void **state)
{
#define USER(content) "{\"messages\":[{\"role\":\"user\",\"content\":" content "}]}"
#define MORE(fields)  "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," fields "}"
    static const char *const bad[][2] = {
        {"{}", "messages"},
        {"{\"messages\":[5]}", "messages[0]"},
        {USER("7"), "messages[0]"},
        {USER("[7]"), "messages[0]"},
        {USER("[{\"type\":\"image\"}]"), "images"},
        {USER("[{\"type\":\"tool_result\"}]"), "tool_use_id"},
        {USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\"}]}]"),
         "text only"},
        {USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":8}]"), "content"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\"}]}]}",
         "tool_use"},
        {MORE("\"system\":5"), "system"},
        {MORE("\"system\":[5]"), "system[0]"},
        {MORE("\"tools\":5"), "tools"},
        {MORE("\"tools\":[{}]"), "tools[0]"},
        {MORE("\"tool_choice\":\"auto\""), "tool_choice"},
        {MORE("\"tool_choice\":{\"type\":\"any\"}"), "tool_choice"},
        {MORE("\"stop_sequences\":5"), "stop"},
    };
    struct boss b;
    boss_start(&b, NULL);
    boss_engine_up(&b);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_refused(&b, bad[i][0], bad[i][1]);
    char body[4096], long_text[2048];
    memset(long_text, 'z', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    snprintf(body, sizeof body, USER("\"%s\""), long_text);
    check_refused(&b, body, "prompt is too long: 20");
    check_refused(&b, body, "exceeds the available context size");
    boss_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
