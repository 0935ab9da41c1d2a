/* What becomes of requests when clients, links, engines and the supervisor go away. */
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
    boss_until(&b, boss_sent(&b, 3));
    uint64_t start = test_ms();
    close(leave);
    boss_until(&b, b.cancels >= 1);
    assert_true(test_ms() - start <= 2000); /* at once, as a busy machine does it */
    start = test_ms();
    close(plain);
    boss_until(&b, b.cancels >= 2);
    assert_true(test_ms() - start <= 2000);
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
    boss_until(&b, boss_sent(&b, 2));
    boss_run(&b, 50);
    boss_engine_dies(&b, true);
    b.stop_at = UINT64_MAX;
    b.skip = at % 3; /* a few ids come twice */
    boss_engine_up(&b);
    http_read(&b, s, &r, NULL, 5000);
    check_stream(&r, b.answer);
    reply_free(&r);
    http_read(&b, p, &none, NULL, 5000);
    assert_int_equal(none.status, 200);
    json_t *v = reply_json(&none);
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

/* One frame for the tokens of all: each client gets its own, also when another one leaves in the middle. */
static void test_steps(void **state)
{
    struct boss b;
    struct reply r[3] = {0};
    int s[3];
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "a step for \xf0\x9f\x98\x80 each of them";
    b.step = true;
    b.stop_at = 5;
    for (int i = 0; i < 3; i++) {
        s[i] = http_dial(&b);
        http_send(s[i], "POST", "/v1/chat/completions", NULL, chat_stream);
    }
    http_read(&b, s[2], &r[2], "\"e\"", 3000);
    close(s[2]);
    boss_until(&b, b.cancels > 0);
    b.stop_at = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        http_read(&b, s[i], &r[i], NULL, 5000);
        check_stream(&r[i], b.answer);
        close(s[i]);
    }
    for (int i = 0; i < 3; i++)
        reply_free(&r[i]);
    boss_stop(&b);
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
    boss_until(&b, boss_sent(&b, 2));
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
    boss_until(&b, boss_sent(&b, 2));
    http_read(&b, s, &r, "\"c\"", 3000);
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
    boss_until(&b, boss_sent(&b, 1));
    boss_run(&b, 50);
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
    static const char *const sets[] = {"gateway.queue_max=1", "gateway.hold_s=4", NULL};
    struct boss b;
    struct reply r = {0};
    char type[64];
    boss_start(&b, sets);
    boss_engine_up(&b);
    b.answer = "held and served";
    boss_engine_dies(&b, true);
    int held = http_dial(&b), more = http_dial(&b);
    http_send(held, "POST", "/v1/chat/completions", NULL, chat);
    boss_until(&b, b.held > 0);
    http_send(more, "POST", "/v1/chat/completions", NULL, chat);
    http_read(&b, more, &r, NULL, 2000);
    assert_int_equal(r.status, 429);
    assert_non_null(strstr(r.head, "Retry-After: "));
    assert_string_equal(error_type(&r, type, sizeof type), "rate_limit_error");
    reply_free(&r);
    boss_hold(&b, true);
    boss_run(&b, 50);
    http_call(&b, &r, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 503);
    json_t *v = reply_json(&r), *e = json_object_get(v, "error");
    assert_string_equal(json_string_value(json_object_get(e, "state")), "bouncing");
    double eta = json_real_value(json_object_get(e, "bounce_eta_s"));
    assert_true(eta > 0 && eta <= 1.5); /* as the routes said, less what has passed */
    json_decref(v);
    reply_free(&r);
    boss_hold(&b, false);
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
    b.refuse = VT_E_QUEUE_FULL;
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
    boss_until(&b, boss_sent(&b, 2));
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
    assert_true(test_ms() - start < 20000); /* 5 s and what a busy machine adds */
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
    uint64_t first = boss_still(&b, 700); /* it waits */
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

/* Parked by an engine that lives on: it goes on there at once, whatever the reason. */
static void test_parked_goes_on(void **state)
{
    for (unsigned why = VT_PARK_ORDER; why <= VT_PARK_LOST; why++) {
        struct boss b;
        struct reply r = {0};
        boss_start(&b, NULL);
        boss_engine_up(&b);
        b.answer = "let go and taken back";
        b.stop_at = 6;
        int s = http_dial(&b);
        http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
        boss_until(&b, boss_sent(&b, 1));
        boss_park(&b, why);
        b.stop_at = UINT64_MAX;
        http_read(&b, s, &r, NULL, 2000);
        check_stream(&r, b.answer);
        assert_int_equal(b.submits, 2);
        reply_free(&r);
        close(s);
        boss_stop(&b);
    }
}

/* The engine refuses while it ends its work, and then stays after all; no route ever says so. */
static void test_parked_by_an_order_taken_back(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "the order was taken back";
    b.stop_at = 6;
    int s = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    boss_until(&b, boss_sent(&b, 1));
    b.refuse = VT_E_DRAINING;
    uint64_t start = test_ms();
    boss_park(&b, VT_PARK_ORDER);
    boss_until(&b, b.submits >= 2);
    boss_run(&b, 1000);
    assert_true(b.submits <= 2 + (test_ms() - start) / 300); /* the time that the refusals name */
    b.refuse = 0;
    b.stop_at = UINT64_MAX;
    http_read(&b, s, &r, NULL, 2000);
    check_stream(&r, b.answer);
    reply_free(&r);
    close(s);
    boss_stop(&b);
}

/* Parked because the client does not read: its place stays with others until it does. */
static void test_parked_until_the_client_reads(void **state)
{
    struct boss b;
    struct reply r = {0};
    static char long_answer[901];
    boss_start(&b, (const char *const[]){"gateway.resume_max_age_s=1", NULL});
    boss_engine_up(&b);
    for (size_t i = 0; i + 1 < sizeof long_answer; i++)
        long_answer[i] = (char)('a' + i % 26);
    b.answer = long_answer;
    int fd = http_dial(&b), small = 8192, large = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_send(fd, "POST", "/v1/chat/completions", NULL,
              "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,\"logprobs\":true,"
              "\"top_logprobs\":5,\"stream_options\":{\"include_usage\":true},\"timings_per_token\":true}");
    uint64_t before = boss_still(&b, 1000);
    assert_true(before >= 256 && before < 900);
    boss_park(&b, VT_PARK_SLOW_CLIENT);
    boss_run(&b, 1500); /* longer than a request without an engine may wait */
    assert_int_equal(b.submits, 1);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    http_read(&b, fd, &r, NULL, 20000);
    check_stream(&r, long_answer);
    assert_int_equal(b.submits, 2);
    reply_free(&r);
    close(fd);
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
    boss_until(&b, boss_sent(&b, 1));
    boss_order(&b, VT_ORDER_DRAIN, 60000);
    boss_run(&b, 100);
    b.stop_at = UINT64_MAX;
    http_read(&b, s, &r, NULL, 3000);
    check_stream(&r, b.answer);
    reply_free(&r);
    assert_int_equal(boss_exit(&b, 2000), 0);
    close(s);
    boss_stop(&b);
}

static void check_shutting_down(struct reply *r)
{
    assert_int_equal(r->status, 503);
    assert_non_null(strstr(r->body, "shutting down"));
    assert_non_null(strstr(r->head, "Retry-After:"));
    reply_free(r);
}

/* While engines drain the gateway still answers: what runs ends well, and all else is told at once what happens. */
static void test_shutdown_is_told(void **state)
{
    struct boss b;
    struct reply r = {0}, held = {0};
    boss_start(&b, NULL);
    boss_engine_up(&b);
    b.answer = "ends by itself";
    b.stop_at = 4;
    int s = http_dial(&b), waits = http_dial(&b);
    http_send(s, "POST", "/v1/chat/completions", NULL, chat_stream);
    boss_until(&b, boss_sent(&b, 1));
    b.refuse = VT_E_DRAINING;
    http_send(waits, "POST", "/v1/chat/completions", NULL, chat_stream);
    boss_until(&b, b.submits >= 2);
    b.stopping = true;
    boss_routes(&b, VT_CHILD_DRAINING);
    http_read(&b, waits, &held, NULL, 1000);
    check_shutting_down(&held);
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, chat_stream);
    check_shutting_down(&r);
    http_call(&b, &r, "GET", "/health", NULL, NULL);
    check_shutting_down(&r);
    b.stop_at = UINT64_MAX;
    http_read(&b, s, &r, NULL, 3000);
    check_stream(&r, b.answer);
    reply_free(&r);
    boss_routes(&b, VT_CHILD_DOWN);
    boss_run(&b, 50);
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, chat_stream);
    check_shutting_down(&r);
    close(waits);
    close(s);
    boss_stop(&b);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_on_disconnect),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_resume_carries_ids_and_seed),
        cmocka_unit_test(test_resume_refused),
        cmocka_unit_test(test_link_fault_attaches),
        cmocka_unit_test(test_hold_and_retry_after),
        cmocka_unit_test(test_engine_refuses),
        cmocka_unit_test(test_orphan),
        cmocka_unit_test(test_client_that_never_reads),
        cmocka_unit_test(test_parked_goes_on),
        cmocka_unit_test(test_parked_by_an_order_taken_back),
        cmocka_unit_test(test_parked_until_the_client_reads),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_shutdown_is_told),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
