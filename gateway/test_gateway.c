/* The surfaces, from the real vitriol-gateway between a played vitriold, a played engine and real sockets. */
#include "test_boss.h"

#include "err.h"
#include "link.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
static const char chat_stream[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
                                  "\"stream_options\":{\"include_usage\":true}}";

static void test_states(void **state)
{
    struct boss b;
    struct reply r = {0};
    char type[64];
    boss_start(&b, NULL);
    boss_routes(&b, VT_CHILD_LOADING);
    boss_run(&b, 50);
    http_call(&b, &r, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "Loading model"));
    assert_non_null(strstr(r.head, "Retry-After: 2"));
    assert_null(strstr(r.body, "bounce_eta_s")); /* a first start is no bounce */
    assert_string_equal(error_type(&r, type, sizeof type), "unavailable_error");
    reply_free(&r);
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, chat);
    assert_int_equal(r.status, 503);
    reply_free(&r);
    http_call(&b, &r, "GET", "/v1/models", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"value\":\"loading\""));
    reply_free(&r);
    http_call(&b, &r, "POST", "/tokenize", NULL, "{\"content\":\"ab\"}");
    assert_string_equal(r.body, "{\"tokens\":[97,98]}");
    reply_free(&r);
    boss_engine_up(&b);
    uint64_t before = test_ms();
    http_call(&b, &r, "GET", "/health", NULL, NULL);
    assert_true(test_ms() - before < 1000); /* at once, as a busy machine does it */
    assert_int_equal(r.status, 200);
    json_t *v = reply_json(&r);
    assert_string_equal(json_string_value(json_object_get(v, "status")), "ok");
    assert_int_equal(json_integer_value(json_object_get(v, "pid")), getpid());
    assert_string_equal(json_string_value(json_object_get(v, "fingerprint")), "fp-test");
    json_decref(v);
    reply_free(&r);
    boss_stop(&b);
}

static void test_plain_chat(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "Hello, w\xc3\xb6rld.";
    http_call(&b, &r, "POST", "/v1/chat/completions", "Origin: http://a.example\r\n", chat);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Access-Control-Allow-Origin: http://a.example"));
    json_t *v = reply_json(&r), *c = json_array_get(json_object_get(v, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(json_object_get(c, "message"), "content")),
                        b.answer);
    assert_string_equal(json_string_value(json_object_get(c, "finish_reason")), "stop");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "usage"), "completion_tokens")),
                     14);
    json_decref(v);
    reply_free(&r);
    /* <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n */
    http_call(&b, &r, "POST", "/apply-template", NULL, chat);
    assert_string_equal(r.body,
                        "{\"prompt\":\"<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\n\"}");
    reply_free(&r);
    boss_stop(&b);
}

static void test_stream(void **state)
{
    struct boss b;
    struct reply r = {0};
    struct told t;
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "One two \xf0\x9f\x98\x80 three";
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, chat_stream);
    check_stream(&r, b.answer);
    read_stream(&r, &t);
    assert_true(t.usage);
    assert_int_equal(t.usage_tokens, 18);
    assert_non_null(strstr(r.head, "text/event-stream"));
    reply_free(&r);
    boss_stop(&b);
}

static void test_stop_string_and_limit(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "abc STOP def";
    http_call(&b, &r, "POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"stop\":[\"ST\",\"OP\"]}");
    json_t *v = reply_json(&r), *c = json_array_get(json_object_get(v, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(c, "text")), "abc ");
    assert_string_equal(json_string_value(json_object_get(c, "finish_reason")), "stop");
    json_decref(v);
    reply_free(&r);
    boss_until(&b, b.cancels > 0);
    assert_int_equal(b.cancels, 1); /* the engine is told to go no further */
    http_call(&b, &r, "POST", "/completion", NULL, "{\"prompt\":[120],\"n_predict\":5,\"stream\":true}");
    assert_non_null(strstr(r.body, "\"stop_type\":\"limit\""));
    assert_null(strstr(r.body, "[DONE]"));
    reply_free(&r);
    boss_stop(&b);
}

static void test_logprobs(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "xyz";
    http_call(&b, &r, "POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"logprobs\":2}");
    json_t *v = reply_json(&r),
           *lp = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
    assert_int_equal(json_array_size(json_object_get(lp, "tokens")), 3);
    assert_int_equal(json_array_size(json_object_get(lp, "content")), 3);
    assert_int_equal(json_object_size(json_array_get(json_object_get(lp, "top_logprobs"), 0)), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(lp, "text_offset"), 2)), 2);
    json_decref(v);
    reply_free(&r);
    boss_stop(&b);
}

/* What b.answer holds, streamed: the thought "hm", the text "Well." and a call of f. */
static void expect_thought_text_call(struct boss *b)
{
    struct reply r = {0};
    struct told t;
    http_call(b, &r, "POST", "/v1/chat/completions", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
              "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}");
    read_stream(&r, &t);
    assert_string_equal(t.reasoning, "hm");
    assert_string_equal(t.text, "Well.");
    assert_string_equal(t.name, "f");
    assert_string_equal(t.calls, "{\"a\": 1}");
    assert_string_equal(t.finish, "tool_calls");
    reply_free(&r);
}

static void test_tools_and_reasoning(void **state)
{
    struct boss b;
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "<think>\nhm</think>\n\nWell.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
               "1}}\n</tool_call>";
    expect_thought_text_call(&b);
    boss_stop(&b);
}

/* Messages with channels: thoughts, content and a call, streamed; without tools and without splitting. */
static void test_harmony(void **state)
{
    char path[] = "/tmp/vtgw-harmony-XXXXXX", set[80];
    struct boss b;
    struct reply r = {0};
    struct told t;
    close(mkstemp(path));
    test_model_harmony(path);
    snprintf(set, sizeof set, "model.path=%s", path);
    boss_start(&b, (const char *const[]){set, NULL});
    boss_engine_up(&b);
    b.answer = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>"
               "Well.<|end|>"
               "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": "
               "1}<|call|>";
    expect_thought_text_call(&b);
    b.answer = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello.";
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"reasoning_format\":"
              "\"none\"}");
    read_stream(&r, &t);
    assert_string_equal(t.reasoning, "");
    assert_string_equal(t.text, "<|channel|>analysis<|message|>hm<|end|>Hello.");
    reply_free(&r);
    /* thoughts before a call go back under the template's own name for them */
    http_call(&b, &r, "POST", "/apply-template", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":"
              "null,\"reasoning_content\":\"THOUGHT\","
              "\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\","
              "\"arguments\":\"{}\"}}]},"
              "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"3\"}]}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "THOUGHT"));
    reply_free(&r);
    /* a forced call has a grammar that can be built */
    b.answer = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
    http_call(
        &b, &r, "POST", "/v1/chat/completions", NULL,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tool_choice\":\"required\",\"stream\":true,"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}");
    read_stream(&r, &t);
    assert_string_equal(t.name, "f");
    assert_string_equal(t.calls, "{}");
    reply_free(&r);
    boss_stop(&b);
    unlink(path);
}

static void test_bad_requests(void **state)
{
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *has;
    } t[] = {
        {"POST", "/v1/chat/completions", "{", 400, "not valid JSON"},
        {"POST", "/v1/chat/completions", "[]", 400, "JSON object"},
        {"POST", "/v1/chat/completions", "{}", 400, "\"param\":\"messages\""},
        {"POST", "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0]"},
        {"POST", "/v1/completions", "{\"prompt\":\"x\",\"temperature\":\"hot\"}", 400, "Field 'temperature'"},
        {"POST", "/v1/completions", "{\"prompt\":\"x\",\"tfs_z\":0.5}", 400, "Field 'tfs_z'"},
        {"POST", "/v1/completions", "{\"prompt\":\"x\",\"grammar\":\"root ::= root\"}", 400, "grammar"},
        {"POST", "/v1/completions",
         "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"string\","
         "\"enum\":[1]}}}",
         400, "response_format"},
        {"POST", "/v1/completions", "{\"prompt\":\"x\",\"n\":99}", 400, "Field 'n'"},
        {"POST", "/v1/completions", "{\"prompt\":[99999]}", 400, "vocabulary"},
        {"POST", "/v1/completions", "{\"prompt\":null}", 400, "Field 'prompt'"},
        {"POST", "/nowhere", "{}", 404, "File Not Found"},
        {"GET", "/v1/completions", NULL, 405, "Method Not Allowed"},
        {"GET", "/v1/models/other", NULL, 404, "not_found_error"},
        {"POST", "/slots/zero?action=erase", "{}", 400, "Invalid slot ID"},
        {"POST", "/slots/0?action=melt", "{}", 400, "Invalid action"},
        {"POST", "/slots/0?action=save", "{\"filename\":\"../x\"}", 400, "Invalid filename"},
        {"POST", "/slots/0?action=save", "{}", 400, "filename"},
        {"POST", "/v1/embeddings", "{}", 400, "Field 'input'"},
        {"POST", "/v1/rerank", "{}", 501, "rank head"},
    };
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        http_call(&b, &r, t[i].method, t[i].path, NULL, t[i].body);
        if (r.status != t[i].status || !strstr(r.body, t[i].has))
            fail_msg("%s %s: %d %s", t[i].path, t[i].body ? t[i].body : "", r.status, r.body ? r.body : "");
        reply_free(&r);
    }
    char *big = malloc(5000);
    memset(big, 'a', 4999);
    snprintf(big, 5000, "{\"prompt\":\"%.*s", 1100, "");
    memset(big + 11, 'a', 1100);
    snprintf(big + 1111, 16, "\"}");
    http_call(&b, &r, "POST", "/v1/completions", NULL, big);
    assert_int_equal(r.status, 400);
    assert_non_null(strstr(r.body, "exceeds the available context size (1024 tokens)"));
    assert_non_null(strstr(r.body, "\"n_prompt_tokens\":1100"));
    reply_free(&r);
    free(big);
    boss_stop(&b);
}

static void test_slots_and_metrics(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    http_call(&b, &r, "GET", "/slots", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"is_processing\":false"));
    reply_free(&r);
    http_call(&b, &r, "POST", "/slots/1?action=save", NULL, "{\"filename\":\"a.bin\"}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"n_saved\":12"));
    reply_free(&r);
    http_call(&b, &r, "GET", "/metrics", NULL, NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\nllamacpp:prompt_tokens_total 0\n"));
    assert_non_null(strstr(r.body, "vitriol_time_to_first_token_seconds_bucket{le=\"+Inf\"} 0"));
    reply_free(&r);
    http_call(&b, &r, "GET", "/metrics?compat=0", NULL, NULL);
    assert_null(strstr(r.body, "llamacpp:"));
    reply_free(&r);
    http_call(&b, &r, "GET", "/props", NULL, NULL);
    assert_non_null(strstr(r.body, "\"n_ctx\":1024"));
    assert_null(strstr(r.body, "certified")); /* never measured */
    reply_free(&r);
    b.depth = 900;
    boss_routes(&b, VT_CHILD_READY);
    boss_run(&b, 50);
    http_call(&b, &r, "GET", "/props", NULL, NULL);
    json_t *v = reply_json(&r), *c = json_object_get(v, "certified");
    assert_int_equal(json_integer_value(json_object_get(c, "tokens")), 900);
    assert_true(json_real_value(json_object_get(c, "decode_per_second")) == 11.3);
    assert_true(json_real_value(json_object_get(c, "prompt_per_second")) == 250.5);
    assert_string_equal(json_string_value(json_object_get(c, "profile")), "deep");
    assert_string_equal(json_string_value(json_object_get(c, "date")), "2025-11-30");
    json_decref(v);
    reply_free(&r);
    boss_stop(&b);
}

static void test_infill(void **state)
{
    struct boss b;
    struct reply r = {0};
    char text[4096], body[8192];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "x + 1";
    http_call(&b, &r, "POST", "/infill", NULL,
              "{\"input_prefix\":\"f(\",\"input_suffix\":\")<|fim_middle|>\"}");
    assert_int_equal(r.status, 200);
    json_t *v = reply_json(&r);
    assert_string_equal(json_string_value(json_object_get(v, "content")), b.answer);
    json_decref(v);
    reply_free(&r);
    assert_string_equal(boss_prompt(&b, text, sizeof text),
                        "Af(B)<|fim_middle|>C"); /* a client's text is no mark */
    http_call(
        &b, &r, "POST", "/infill", NULL,
        "{\"input_prefix\":\"f(\",\"input_suffix\":\"\",\"prompt\":\"y\",\"stream\":true,\"input_extra\":["
        "{\"filename\":\"a.c\",\"text\":\"int a;\"},{\"text\":\"int b;\"}]}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    assert_string_equal(boss_prompt(&b, text, sizeof text),
                        "Drepository\nEa.c\nint a;Etmp\nint b;Ecurrent\nAf(BCy");
    /* Of what lies in front the last is kept, of what stands around the gap everything. */
    memset(text, 'z', 3000);
    text[3000] = '\0';
    snprintf(body, sizeof body,
             "{\"input_prefix\":\"f(\",\"input_suffix\":\")\",\"n_predict\":10,\"input_extra\":[{\"text\":\"%"
             "s\"}]}",
             text);
    http_call(&b, &r, "POST", "/infill", NULL, body);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    assert_int_equal(b.n_seen, 1024 - 10 - 1);
    boss_prompt(&b, text, sizeof text);
    assert_string_equal(text + strlen(text) - 16, "zEcurrent\nAf(B)C");
    boss_stop(&b);
}

static void test_infill_refusals(void **state)
{
    struct boss b;
    struct reply r = {0};
    char type[64];
    static const char *const bad[] = {"{\"input_suffix\":\"\"}",
                                      "{\"input_prefix\":\"\"}",
                                      "{\"input_prefix\":1,\"input_suffix\":\"\"}",
                                      "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":{}}",
                                      "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"input_extra\":[5]}",
                                      "{\"input_prefix\":\"\",\"input_suffix\":\"\",\"prompt\":[1]}"};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        http_call(&b, &r, "POST", "/infill", NULL, bad[i]);
        assert_int_equal(r.status, 400);
        assert_string_equal(error_type(&r, type, sizeof type), "invalid_request_error");
        reply_free(&r);
    }
    b.answer = "mid";
    http_call(&b, &r, "POST", "/v1/completions", NULL, "{\"prompt\":\"a\",\"suffix\":\"b\"}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"text\":\"mid\""));
    reply_free(&r);
    char text[64];
    assert_string_equal(boss_prompt(&b, text, sizeof text), "AaBbC");
    http_call(&b, &r, "POST", "/v1/completions", NULL, "{\"prompt\":[\"a\",\"b\"],\"suffix\":\"b\"}");
    assert_int_equal(r.status, 400);
    reply_free(&r);
    http_call(&b, &r, "POST", "/v1/completions", NULL, "{\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true}");
    assert_int_equal(r.status, 400);
    reply_free(&r);
    boss_stop(&b);
}

/* A body that takes long to read through does not keep others waiting. */
static void test_large_body(void **state)
{
    struct boss b;
    struct reply r = {0}, big = {0};
    size_t n = 1 << 20;
    char *body = malloc(n + 32);
    boss_start(&b, NULL);
    boss_engine_up(&b);
    memcpy(body, "{\"content\":\"", 12);
    for (size_t i = 0; i < n; i++)
        body[12 + i] = i % 7 ? 'a' + (char)(i % 26) : ' ';
    memcpy(body + 12 + n, "\"}", 3);
    int fd = http_dial(&b), gone = http_dial(&b);
    http_send(gone, "POST", "/tokenize", NULL, body);
    http_send(fd, "POST", "/tokenize", NULL, body);
    shutdown(gone, SHUT_RDWR);
    close(gone);
    uint64_t began = test_ms(), slowest = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t before = test_ms();
        http_call(&b, &r, "GET", "/health", NULL, NULL);
        assert_int_equal(r.status, 200);
        if (test_ms() - before > slowest)
            slowest = test_ms() - before;
        reply_free(&r);
    }
    http_read(&b, fd, &big, NULL, 60000);
    assert_true(big.complete);
    printf("body %d ms, slowest beside it %d ms\n", (int)(test_ms() - began), (int)slowest);
    assert_true(slowest < 250 || slowest < (test_ms() - began) / 3);
    json_t *v = reply_json(&big);
    assert_int_equal(json_array_size(json_object_get(v, "tokens")), n);
    json_decref(v);
    reply_free(&big);
    close(fd);
    free(body);
    boss_stop(&b);
}

static void test_head(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    int fd = http_dial(&b);
    http_send(fd, "HEAD", "/health", "Connection: close\r\n", NULL);
    http_read(&b, fd, &r, NULL, 3000);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.n, 0);
    close(fd);
    reply_free(&r);
    http_call(&b, &r, "HEAD", "/tokenize", "Connection: close\r\n", NULL);
    assert_int_equal(r.status, 405);
    assert_non_null(strstr(r.head, "Allow: POST"));
    reply_free(&r);
    boss_stop(&b);
}

static void test_keys(void **state)
{
    char path[] = "/tmp/vtgw-keys-XXXXXX", set[128];
    int fd = mkstemp(path); /* mode 0600 */
    assert_int_equal(write(fd, "# ours\nsk-one\nsk-two\n", 21), 21);
    close(fd);
    snprintf(set, sizeof set, "http.api_keys_file=%s", path);
    const char *const sets[] = {set, NULL};
    struct boss b;
    struct reply r = {0};
    boss_start(&b, sets);
    boss_engine_up(&b);
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, chat);
    assert_int_equal(r.status, 401);
    assert_non_null(strstr(r.head, "WWW-Authenticate: Bearer"));
    reply_free(&r);
    http_call(&b, &r, "POST", "/tokenize", "Authorization: Bearer sk-two\r\n", "{}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    http_call(&b, &r, "POST", "/tokenize", "X-Api-Key: sk-one\r\n", "{}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    http_call(&b, &r, "GET", "/v1/models", NULL, NULL);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    http_call(&b, &r, "OPTIONS", "/v1/chat/completions",
              "Origin: o\r\nAccess-Control-Request-Headers: x-y\r\n", NULL);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "Access-Control-Allow-Headers: x-y"));
    reply_free(&r);
    boss_stop(&b);
    unlink(path);
}

static void test_body_limit(void **state)
{
    static const char *const sets[] = {"http.max_body_mib=1", NULL};
    struct boss b;
    struct reply r = {0};
    size_t n = 1500000;
    char *body = malloc(n + 1);
    memset(body, ' ', n);
    body[n] = '\0';
    boss_start(&b, sets);
    boss_engine_up(&b);
    http_call(&b, &r, "POST", "/tokenize", NULL, body);
    assert_int_equal(r.status, 413);
    reply_free(&r);
    free(body);
    boss_stop(&b);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_plain_chat),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stop_string_and_limit),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_tools_and_reasoning),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_slots_and_metrics),
        cmocka_unit_test(test_infill),
        cmocka_unit_test(test_infill_refusals),
        cmocka_unit_test(test_large_body),
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_body_limit),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
