/* Relaying to an external engine, from the real vitriol-gateway between a played vitriold and a played engine. */
#include "test_boss.h"

#include "err.h"
#include "link.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const external[] = {"engine.kind=external", "external.url=http://127.0.0.1:1", NULL};

static void start(struct boss *b, const char *type, const char *reply)
{
    boss_start(b, external);
    boss_engine_up(b);
    b->type = type;
    b->reply = reply;
    b->reply_parts = 1;
}

static int status_of(struct boss *b, const char *method, const char *path)
{
    struct reply r = {0};
    http_call(b, &r, method, path, NULL, NULL);
    int status = r.status;
    reply_free(&r);
    return status;
}

/* What goes out with a key of our own needs one of the client's, wherever it leads. */
static void test_relayed_needs_the_key(void **state)
{
    char path[] = "/tmp/vtgw-keys-XXXXXX", set[64];
    const char *const sets[] = {"engine.kind=external", "external.url=http://127.0.0.1:1", set, NULL};
    struct boss b;
    struct reply r = {0};
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "sk-one\n", 7), 7);
    close(fd);
    snprintf(set, sizeof set, "http.api_keys_file=%s", path);
    boss_start(&b, sets);
    boss_engine_up(&b);
    b.type = "application/json";
    b.reply = "{}";
    b.reply_parts = 1;
    assert_int_equal(status_of(&b, "GET", "/v1/models/x"), 401);
    assert_int_equal(status_of(&b, "GET", "/v1/models/../../slots"), 401);
    assert_int_equal(b.relayed, 0);
    assert_int_equal(status_of(&b, "GET", "/v1/models"), 200); /* our own list */
    http_call(&b, &r, "GET", "/v1/models/x", "X-Api-Key: sk-one\r\n", NULL);
    assert_int_equal(r.status, 200);
    assert_int_equal(b.relayed, 1);
    reply_free(&r);
    boss_stop(&b);
    unlink(path);
}

static void test_targets(void **state)
{
    static const char *const bad[] = {"/v1/models/../../slots",
                                      "/v1/models/%2e%2E/%2e./slots",
                                      "/v1/models/..%2f..%2Fslots",
                                      "/v1/x/%252e%252e/slots",
                                      "/v1/./x",
                                      "/v1/x%00/../../slots",
                                      "/v1/..%5cslots",
                                      "/v1/x#y",
                                      "%2Fv1%2F@elsewhere/x"};
    static const char *const good[] = {"/v1/x?after=../..&limit=1", "/v1/x%3Fy%23z", "/v1/.x/..y/...",
                                       "/v1/100%"};
    struct boss b;
    start(&b, "application/json", "{}");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_in_range(status_of(&b, "GET", bad[i]), 400, 404);
    assert_int_equal(b.relayed, 0);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(status_of(&b, "GET", good[i]), 200);
        assert_string_equal(b.target, good[i]);
    }
    char path[VT_PROXY_PATH_MAX + 16], line[VT_PROXY_PATH_MAX + 64];
    struct reply r = {0};
    memset(path, 'x', sizeof path);
    memcpy(path, "/v1/", 4);
    path[VT_PROXY_PATH_MAX] = '\0';
    int s = http_dial(&b), n = snprintf(line, sizeof line, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    assert_int_equal(write(s, line, (size_t)n), n);
    http_read(&b, s, &r, NULL, 3000);
    assert_int_equal(r.status, 414);
    reply_free(&r);
    close(s);
    boss_stop(&b);
}

/* [DONE] is demanded where it is promised, and nowhere else. */
static void test_ends_of_streams(void **state)
{
    struct boss b;
    struct reply r = {0};
    start(&b, "text/event-stream", "data: {}\n\n");
    http_call(&b, &r, "POST", "/v1/messages", NULL, "{}");
    assert_true(r.complete);
    assert_string_equal(r.body, "data: {}\n\n");
    reply_free(&r);
    http_call(&b, &r, "POST", "/completion", NULL, "{}");
    assert_string_equal(r.body, "data: {}\n\n");
    reply_free(&r);
    http_call(&b, &r, "POST", "/v1/chat/completions", NULL, "{}");
    assert_non_null(strstr(r.body, "ended without its end"));
    assert_non_null(strstr(r.body, "data: [DONE]\n\n"));
    reply_free(&r);
    boss_stop(&b);
}

/* An answer that never ends does not fill the memory: it is cancelled at its bound. */
static void test_answer_without_end(void **state)
{
    enum { PART = 1 << 20 };
    struct boss b;
    struct reply r = {0};
    char *part = malloc(PART + 1);
    assert_non_null(part);
    memset(part, 'x', PART);
    part[PART] = '\0';
    start(&b, "application/json", part);
    b.reply_parts = 65;
    http_call(&b, &r, "POST", "/v1/embeddings", NULL, "{}");
    assert_int_equal(r.status, 502);
    assert_non_null(strstr(r.body, "larger than 64 MiB"));
    boss_until(&b, b.cancels > 0);
    assert_int_equal(b.cancels, 1);
    reply_free(&r);
    free(part);
    boss_stop(&b);
}

/* More clients go away at once than cancels can wait for a link that takes none: it ends, and all on it, once. */
static void test_many_go_away(void **state)
{
    enum { N = 700 };
    struct boss b;
    int s[N];
    const char *const sets[] = {"engine.kind=external", "external.url=http://127.0.0.1:1",
                                "gateway.queue_max=1000", NULL};
    boss_start(&b, sets);
    boss_engine_up(&b);
    for (int i = 0; i < N; i++) {
        s[i] = http_dial(&b);
        http_send(s[i], "POST", "/v1/completions", NULL, "{}");
    }
    usleep(500000); /* nobody reads the link meanwhile */
    for (int i = 0; i < N; i++)
        close(s[i]);
    usleep(500000);
    boss_run(&b, 200);
    assert_int_equal(boss_exit(&b, 100), -1);
    boss_stop(&b);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relayed_needs_the_key), cmocka_unit_test(test_targets),
        cmocka_unit_test(test_ends_of_streams),       cmocka_unit_test(test_answer_without_end),
        cmocka_unit_test(test_many_go_away),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
