/* Framing of events, error objects, keys and origins: everything of http/ that needs no connection. */
#include "auth.h"
#include "cors.h"
#include "error.h"
#include "sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_events(void **state)
{
    struct buf b = {0};
    json_t *v = json_pack("{s:s}", "a", "line\nbreak");
    sse_json(&b, NULL, v);
    sse_json(&b, "done", v);
    sse_text(&b, "[DONE]");
    sse_comment(&b);
    buf_add(&b, "", 1);
    assert_string_equal(b.p,
                        "data: {\"a\":\"line\\nbreak\"}\n\nevent: done\ndata: {\"a\":\"line\\nbreak\"}\n\n"
                        "data: [DONE]\n\n:\n\n");
    json_decref(v);
    buf_fini(&b);
}

static void test_no_half_event(void **state)
{
    struct buf b = {0};
    json_t *v = json_object();
    sse_text(&b, "x");
    b.failed = true; /* as after an allocation that failed */
    sse_json(&b, NULL, v);
    sse_text(&b, "y");
    assert_int_equal(b.n, strlen("data: x\n\n"));
    json_decref(v);
    buf_fini(&b);
}

static void check_error(const struct api_err *e, const char *want)
{
    json_t *v = api_error_json(e);
    char *text = json_dumps(v, JSON_COMPACT);
    assert_string_equal(text, want);
    free(text);
    json_decref(v);
}

static void test_errors(void **state)
{
    struct api_err e;
    struct vt_err err = {.code = VT_E_QUEUE_FULL, .text = "full"};
    assert_int_equal(api_fail(&e, 400, "n", "no %d", 7), -1);
    check_error(
        &e,
        "{\"error\":{\"code\":400,\"message\":\"no 7\",\"type\":\"invalid_request_error\",\"param\":\"n\"}}");
    api_fail(&e, 404, NULL, "File Not Found");
    check_error(&e, "{\"error\":{\"code\":404,\"message\":\"File Not "
                    "Found\",\"type\":\"not_found_error\",\"param\":null}}");
    api_fail_window(&e, "messages", 33056, 32768);
    check_error(&e,
                "{\"error\":{\"code\":400,\"message\":\"request (33056 tokens) exceeds the available context "
                "size (32768 "
                "tokens), try increasing it\",\"type\":\"exceed_context_size_error\",\"param\":\"messages\","
                "\"n_prompt_tokens\":33056,\"n_ctx\":32768}}");
    api_fail(&e, 400, NULL, "bad \xff\xc3 text");
    check_error(&e, "{\"error\":{\"code\":400,\"message\":\"bad \xef\xbf\xbd\xef\xbf\xbd text\","
                    "\"type\":\"invalid_request_error\",\"param\":null}}");
    api_from_err(&e, &err, 1500);
    assert_int_equal(e.status, 429);
    assert_int_equal(e.retry_ms, 1500);
    err.code = VT_E_NOT_FINITE;
    api_from_err(&e, &err, 0);
    assert_int_equal(e.status, 500);
}

static const char *key_file(const char *text, mode_t mode)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/vt-keys-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
    return path;
}

static void test_keys(void **state)
{
    struct auth *a;
    struct vt_err err;
    assert_int_equal(auth_load(&a, "", &err), 0);
    assert_true(auth_ok(a, NULL, NULL));
    assert_true(auth_ok(a, "Bearer anything", NULL));
    auth_free(a);
    const char *path = key_file("# keys\n  one \r\n\ntwo", 0600);
    assert_int_equal(auth_load(&a, path, &err), 0);
    assert_true(auth_ok(a, "Bearer one", NULL));
    assert_true(auth_ok(a, "bearer two", NULL));
    assert_true(auth_ok(a, "two", NULL));
    assert_true(auth_ok(a, NULL, "one"));
    assert_false(auth_ok(a, NULL, NULL));
    assert_false(auth_ok(a, "Bearer on", NULL));
    assert_false(auth_ok(a, "Bearer ", "one")); /* the first header is the one that counts */
    auth_free(a);
    unlink(path);
    path = key_file("one\n", 0644);
    assert_int_equal(auth_load(&a, path, &err), -1);
    assert_int_equal(err.code, VT_E_CONFIG);
    unlink(path);
    path = key_file("# none\n", 0600);
    assert_int_equal(auth_load(&a, path, &err), -1);
    unlink(path);
    assert_int_equal(auth_load(&a, "/nonexistent/keys", &err), -1);
}

static void test_origins(void **state)
{
    assert_true(cors_allowed("*", "http://a"));
    assert_true(cors_allowed("http://a, http://b", "http://b"));
    assert_false(cors_allowed("http://a,http://b", "http://ab"));
    assert_false(cors_allowed("", "http://a"));
    assert_false(cors_allowed("http://a", ""));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events), cmocka_unit_test(test_no_half_event), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_keys),   cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
