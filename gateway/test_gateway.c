/* The real vitriol-gateway between a played vitriold, a played engine and real sockets. */
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

static json_t *parse(const struct reply *r)
{
    json_error_t e;
    json_t *v = json_loadb(r->body, r->n, 0, &e);
    if (!v)
        fail_msg("%s in %s", e.text, r->body);
    return v;
}

static const char *error_type(const struct reply *r, char *out, size_t size)
{
    json_t *v = parse(r), *e = json_object_get(v, "error");
    assert_int_equal(json_integer_value(json_object_get(e, "code")), r->status);
    assert_non_null(json_object_get(e, "param"));
    snprintf(out, size, "%s", json_string_value(json_object_get(e, "type")));
    json_decref(v);
    return out;
}

/* All content of a chat stream, and whether it ended as it must. */
struct told {
    char text[65536], reasoning[4096], finish[32], calls[4096], name[64];
    size_t n;
    bool done, error, usage;
    int events, usage_tokens;
};

static void take_event(struct told *t, const char *s, size_t n)
{
    json_error_t e;
    if (n >= 6 && memcmp(s, "[DONE]", 6) == 0) {
        t->done = true;
        return;
    }
    assert_false(t->done);
    json_t *v = json_loadb(s, n, 0, &e);
    if (!v)
        fail_msg("%s: %.*s", e.text, (int)n, s);
    t->events++;
    t->error |= json_object_get(v, "error") != NULL;
    if (json_object_get(v, "usage")) {
        t->usage = true;
        t->usage_tokens =
            (int)json_integer_value(json_object_get(json_object_get(v, "usage"), "completion_tokens"));
    }
    json_t *c = json_array_get(json_object_get(v, "choices"), 0), *d = json_object_get(c, "delta");
    const char *text = json_string_value(json_object_get(d, "content"));
    const char *think = json_string_value(json_object_get(d, "reasoning_content"));
    const char *fin = json_string_value(json_object_get(c, "finish_reason"));
    json_t *call = json_object_get(json_array_get(json_object_get(d, "tool_calls"), 0), "function");
    if (json_string_value(json_object_get(call, "name")))
        strcat(t->name, json_string_value(json_object_get(call, "name")));
    if (json_string_value(json_object_get(call, "arguments")))
        strcat(t->calls, json_string_value(json_object_get(call, "arguments")));
    if (text) {
        size_t k = json_string_length(json_object_get(d, "content"));
        memcpy(t->text + t->n, text, k);
        t->n += k;
    }
    if (think)
        strcat(t->reasoning, think);
    if (fin)
        snprintf(t->finish, sizeof t->finish, "%s", fin);
    json_decref(v);
}

static void read_stream(const struct reply *r, struct told *t)
{
    memset(t, 0, sizeof *t);
    for (const char *p = r->body, *end = r->body + r->n; p < end;) {
        const char *stop = memmem(p, (size_t)(end - p), "\n\n", 2);
        if (!stop)
            break;
        if (strncmp(p, "data: ", 6) == 0)
            take_event(t, p + 6, (size_t)(stop - p - 6));
        else
            assert_true(*p == ':');
        p = stop + 2;
    }
}

static void check_stream(const struct reply *r, const char *text)
{
    struct told t;
    assert_int_equal(r->status, 200);
    assert_true(r->complete);
    read_stream(r, &t);
    assert_string_equal(t.text, text);
    assert_string_equal(t.finish, "stop");
    assert_true(t.done);
    assert_false(t.error);
}

/* ---- cases ---- */

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
    assert_true(test_ms() - before < 50);
    assert_int_equal(r.status, 200);
    json_t *v = parse(&r);
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
    json_t *v = parse(&r), *c = json_array_get(json_object_get(v, "choices"), 0);
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
    json_t *v = parse(&r), *c = json_array_get(json_object_get(v, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(c, "text")), "abc ");
    assert_string_equal(json_string_value(json_object_get(c, "finish_reason")), "stop");
    json_decref(v);
    reply_free(&r);
    boss_run(&b, 20);
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
    json_t *v = parse(&r),
           *lp = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "logprobs");
    assert_int_equal(json_array_size(json_object_get(lp, "tokens")), 3);
    assert_int_equal(json_array_size(json_object_get(lp, "content")), 3);
    assert_int_equal(json_object_size(json_array_get(json_object_get(lp, "top_logprobs"), 0)), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(lp, "text_offset"), 2)), 2);
    json_decref(v);
    reply_free(&r);
    boss_stop(&b);
}

static void test_tools_and_reasoning(void **state)
{
    struct boss b;
    struct reply r = {0};
    struct told t;
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "<think>\nhm</think>\n\nWell.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
               "1}}\n</tool_call>";
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"
              "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}");
    read_stream(&r, &t);
    assert_string_equal(t.reasoning, "hm");
    assert_string_equal(t.text, "Well.");
    assert_string_equal(t.name, "f");
    assert_string_equal(t.calls, "{\"a\":1}");
    assert_string_equal(t.finish, "tool_calls");
    reply_free(&r);
    boss_stop(&b);
}

static void test_cancel_on_disconnect(void **state)
{
    struct boss b;
    struct reply r = {0}, other = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "a long answer that goes on";
    b.stop_at = 5;
    int keep = http_dial(&b), leave = http_dial(&b), plain = http_dial(&b);
    http_send(keep, "POST", "/v1/chat/completions", NULL, chat_stream);
    http_read(&b, keep, &other, "\"l\"", 3000);
    http_send(leave, "POST", "/v1/chat/completions", NULL, chat_stream);
    http_read(&b, leave, &r, "\"l\"", 3000);
    reply_free(&r);
    http_send(plain, "POST", "/v1/chat/completions", NULL, chat);
    boss_run(&b, 50);
    assert_int_equal(b.submits, 3);
    uint64_t start = test_ms();
    close(leave);
    while (b.cancels < 1 && test_ms() - start < 2000)
        boss_run(&b, 1);
    assert_true(test_ms() - start <= 250);
    start = test_ms();
    close(plain);
    while (b.cancels < 2 && test_ms() - start < 2000)
        boss_run(&b, 1);
    assert_true(test_ms() - start <= 250);
    b.stop_at = UINT64_MAX;
    http_read(&b, keep, &other, NULL, 5000);
    check_stream(&other, b.answer); /* the other one saw nothing of it */
    assert_int_equal(b.cancels, 2);
    close(keep);
    reply_free(&other);
    boss_stop(&b);
}

static void resume_at(unsigned at)
{
    struct boss b;
    struct reply r = {0}, none = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "Text with \xe2\x82\xac and \xf0\x9f\x98\x80, and an end.";
    b.stop_at = at;
    int s = http_dial(&b), p = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    http_send(p, "POST", "/v1/chat/completions", NULL, chat);
    boss_run(&b, 100);
    assert_int_equal(b.submits, 2);
    boss_engine_dies(&b, true);
    b.stop_at = UINT64_MAX;
    b.skip = at % 3; /* a few ids come twice */
    boss_engine_up(&b);
    http_read(&b, s, &r, NULL, 5000);
    check_stream(&r, b.answer);
    reply_free(&r);
    http_read(&b, p, &none, NULL, 5000);
    assert_int_equal(none.status, 200);
    json_t *v = parse(&none);
    json_t *m = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message");
    assert_string_equal(json_string_value(json_object_get(m, "content")), b.answer);
    json_decref(v);
    reply_free(&none);
    assert_int_equal(b.submits, 4);
    close(s);
    close(p);
    boss_stop(&b);
}

static void test_resume(void **state)
{
    static const unsigned at[] = {0, 1, 10, 11, 12, 18, 20, 34};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        resume_at(at[i]);
}

static void test_resume_carries_ids_and_seed(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "abcdefgh";
    b.stop_at = 3;
    int s = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    http_read(&b, s, &r, "\"c\"", 3000);
    boss_engine_dies(&b, true);
    boss_engine_up(&b);
    boss_run(&b, 50);
    struct boss_request *q = boss_last(&b);
    assert_true(q->has_resume);
    assert_int_equal(q->resumed_from, 3);
    assert_int_equal(q->attempt, 1);
    assert_int_equal(q->seed, 4242);
    /* A second crash in the batch is one too many: error event and terminator. */
    boss_engine_dies(&b, true);
    http_read(&b, s, &r, NULL, 3000);
    struct told t;
    assert_true(r.complete);
    read_stream(&r, &t);
    assert_true(t.error && t.done && t.usage);
    reply_free(&r);
    close(s);
    boss_stop(&b);
}

static void test_resume_refused(void **state)
{
    struct boss b;
    struct reply r = {0};
    struct told t;
    char type[64];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "abcdefgh";
    b.stop_at = 3;
    int s = http_dial(&b), p = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    http_send(p, "POST", "/v1/chat/completions", NULL, chat);
    boss_run(&b, 100);
    boss_engine_dies(&b, false);
    http_read(&b, s, &r, NULL, 3000);
    read_stream(&r, &t);
    assert_true(r.complete && t.error && t.done);
    assert_string_equal(t.text, "abc");
    reply_free(&r);
    http_read(&b, p, &r, NULL, 3000);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.head, "Retry-After: "));
    assert_string_equal(error_type(&r, type, sizeof type), "unavailable_error");
    reply_free(&r);
    close(s);
    close(p);
    boss_stop(&b);
}

static void test_link_fault_attaches(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "the link goes, the engine stays";
    b.stop_at = 7;
    int s = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    boss_run(&b, 100);
    boss_drop_link(&b);
    boss_run(&b, 50);
    boss_relink(&b);
    b.stop_at = UINT64_MAX;
    http_read(&b, s, &r, NULL, 3000);
    check_stream(&r, b.answer);
    assert_int_equal(b.submits, 1);
    reply_free(&r);
    close(s);
    boss_stop(&b);
}

static void test_hold_and_retry_after(void **state)
{
    static const char *const sets[] = {"gateway.queue_max=1", "gateway.hold_s=2", NULL};
    struct boss b;
    struct reply r = {0};
    char type[64];
    boss_start(&b, sets);
    boss_engine_up(&b);
    b.answer = "held and served";
    boss_engine_dies(&b, true);
    int held = http_dial(&b), more = http_dial(&b);
    http_send(held, "POST", "/v1/chat/completions", NULL, chat);
    boss_run(&b, 50);
    http_send(more, "POST", "/v1/chat/completions", NULL, chat);
    http_read(&b, more, &r, NULL, 2000);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.head, "Retry-After: "));
    assert_string_equal(error_type(&r, type, sizeof type), "rate_limit_error");
    reply_free(&r);
    http_call(&b, &r, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 503);
    reply_free(&r);
    boss_engine_up(&b);
    http_read(&b, held, &r, NULL, 3000);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "held and served"));
    reply_free(&r);
    /* Nothing comes back this time. */
    boss_engine_dies(&b, true);
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, chat);
    assert_int_equal(r.status, 503);
    reply_free(&r);
    close(held);
    close(more);
    boss_stop(&b);
}

static void test_engine_refuses(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.refuse_full = true;
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, chat_stream);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.head, "Retry-After: 3"));
    reply_free(&r);
    boss_stop(&b);
}

static void test_orphan(void **state)
{
    struct boss b;
    struct reply r = {0};
    struct told t;
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "never to end";
    b.stop_at = 4;
    int s = http_dial(&b), p = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    http_send(p, "POST", "/v1/chat/completions", NULL, chat);
    boss_run(&b, 100);
    /* The lifeline goes for good. */
    vt_sock_close(b.life);
    b.life = NULL;
    uint64_t start = test_ms();
    http_read(&b, s, &r, NULL, 9000);
    read_stream(&r, &t);
    assert_true(r.complete && t.error && t.done);
    reply_free(&r);
    http_read(&b, p, &r, NULL, 2000);
    assert_int_equal(r.status, 503);
    reply_free(&r);
    assert_int_equal(boss_exit(&b, 3000), 85);
    assert_true(test_ms() - start < 8500);
    close(s);
    close(p);
    boss_stop(&b);
}

static void test_client_that_never_reads(void **state)
{
    struct boss b;
    struct reply r = {0};
    static char long_answer[16384];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    memset(long_answer, 'x', sizeof long_answer - 1);
    b.answer = long_answer;
    int fd = http_dial(&b), small = 8192, large = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_send(fd, "POST", "/completion", NULL,
              "{\"prompt\":\"x\",\"stream\":true,\"n_predict\":1000,\"timings_per_token\":true}");
    boss_run(&b, 300);
    uint64_t first = boss_last(&b)->sent;
    boss_run(&b, 700);
    assert_int_equal(boss_last(&b)->sent, first); /* it waits */
    assert_true(first >= 256 && first < 900);
    /* Others are served meanwhile. */
    b.answer = long_answer + sizeof long_answer - 1 - 900;
    http_call(&b, &r, "POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"max_tokens\":700}");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    http_read(&b, fd, &r, NULL, 20000);
    assert_true(r.complete);
    reply_free(&r);
    close(fd);
    boss_stop(&b);
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
        {"POST", "/v1/completions", "{\"prompt\":\"x\",\"mirostat\":2}", 400, "Field 'mirostat'"},
        {"POST", "/v1/completions", "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_object\"}}", 400,
         "response_format"},
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
        {"POST", "/v1/embeddings", "{}", 501, "not_supported_error"},
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

static void test_drain(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "ends by itself";
    b.stop_at = 4;
    int s = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    boss_run(&b, 100);
    boss_order(&b, VT_ORDER_DRAIN, 5000);
    boss_run(&b, 100);
    b.stop_at = UINT64_MAX;
    http_read(&b, s, &r, NULL, 3000);
    check_stream(&r, b.answer);
    reply_free(&r);
    assert_int_equal(boss_exit(&b, 2000), 0);
    close(s);
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
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_slots_and_metrics),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_body_limit),
        cmocka_unit_test(test_cancel_on_disconnect),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_carries_ids_and_seed),
        cmocka_unit_test(test_resume_refused),
        cmocka_unit_test(test_link_fault_attaches),
        cmocka_unit_test(test_hold_and_retry_after),
        cmocka_unit_test(test_engine_refuses),
        cmocka_unit_test(test_client_that_never_reads),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_orphan),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
