#include "check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char EXAMPLE[] =
    "engine n_ctx=32768 slots=1 cut=any\n"
    "ON 1 expect last \"look at a\"\n"
    "     think \"hm\" pause 50 call read {\"path\":\"a;b.txt\"} usage 900 20 0 end\n"
    "ON 2 expect result call_1 contains \"line one\" # why\n"
    "     progress 400 0 100 ; progress 400 0 400 ; say \"a\\u00e9\" ; end length\n"
    "ON 3 status 503 loading ; again\n"
    "ON 4 say \"part\" ; drop\n"
    "ELSE say \"ok\" end\n"
    "HEALTH 5.0s bouncing eta=20 ; 7.0s down ; 9.0s up boot=2\n"
    "TELEMETRY 2.0s evicted=12000 decoded=1840000\n";

static void example_is_read(void **state)
{
    struct script s;
    struct vt_err err;
    if (script_parse(&s, EXAMPLE, strlen(EXAMPLE), &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(s.n_blocks, 5);
    const struct block *b = s.blocks;
    assert_int_equal(b[0].n_steps, 5);
    assert_string_equal(b[0].steps[2].more, "{\"path\":\"a;b.txt\"}");
    assert_true(b[0].steps[3].n[0] == 900 && b[0].steps[3].n[2] == 0);
    assert_string_equal(b[1].expects[0].id, "call_1");
    assert_string_equal(b[1].steps[2].text, "a\xc3\xa9");
    assert_string_equal(b[1].steps[3].text, "length");
    assert_true(b[2].again && b[2].n_steps == 1);
    assert_string_equal(b[2].steps[0].text, "loading");
    assert_int_equal(b[4].number, 0);
    assert_int_equal(s.n_timed, 4);
    assert_true(s.timed[0].kind == STEP_TELEMETRY && s.timed[3].at == 9);
    assert_string_equal(pairs_get(&s.timed[3].pairs, "boot", ""), "2");
    script_free(&s);
}

static void faults_name_the_line(void **state)
{
    static const char *const bad[] = {"ON 1\nshout \"x\"",  "ON 1\nsay x",         "ON 2 end\nON 2 end",
                                      "ON 1\nsay \"open",   "ON 1\ncall read",     "ELSE end\nON 1 end",
                                      "ON 1\nprogress 1 2", "ON 1\nexpect half 3", "HEALTH\nsoon down"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct script s;
        struct vt_err err = {0};
        assert_int_equal(script_parse(&s, bad[i], strlen(bad[i]), &err), -1);
        assert_non_null(strstr(err.text, "line 2"));
        script_free(&s);
    }
}

static int judged(const char *messages, bool provider, size_t problems)
{
    char body[2048];
    snprintf(body, sizeof body, "{\"messages\":%s}", messages);
    json_t *o = json_loads(body, 0, NULL), *found = json_array();
    assert_non_null(o);
    int status = check_chat(o, provider, found);
    assert_int_equal(json_array_size(found), problems);
    json_decref(o);
    json_decref(found);
    return status;
}

#define USER "{\"role\":\"user\",\"content\":\"x\"}"
#define CALL(id, args)                                                                                       \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id                                 \
    "\",\"type\":\"function\",\"function\":{\"name\":\"t\",\"arguments\":\"" args "\"}}]}"
#define TOOL(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"r\"}"

static void history_is_judged(void **state)
{
    assert_int_equal(judged("[" USER "]", false, 0), 200);
    assert_int_equal(judged("[" USER "," CALL("a", "{}") "," TOOL("a") "]", false, 0), 200);
    assert_int_equal(judged("[" USER "," CALL("a", "{}") "," TOOL("a") "," USER "]", false, 0), 200);
    assert_int_equal(judged("[" USER "," CALL("a", "{}") "," TOOL("a") "," USER "]", true, 2), 400);
    assert_int_equal(judged("[" USER "," CALL("a", "{}") "," USER "]", false, 1), 400);
    assert_int_equal(judged("[" USER "," CALL("a", "{}") "]", false, 2), 400);
    assert_int_equal(judged("[" USER "," CALL("a", "{}") "," TOOL("b") "]", false, 2), 400);
    assert_int_equal(judged("[" USER "," CALL("a", "{}") "," TOOL("a") "," TOOL("a") "]", false, 1), 400);
    assert_int_equal(judged("[" USER "," CALL("a", "[1]") "," TOOL("a") "]", false, 1), 500);
    assert_int_equal(judged("[" USER "," CALL("a", "{") "," TOOL("a") "]", false, 1), 500);
    assert_int_equal(judged("[" USER "," USER "]", false, 1), 400);
    assert_int_equal(judged("[{\"role\":\"wizard\",\"content\":\"\"}]", false, 1), 400);
    assert_int_equal(judged("[" USER ",{\"role\":\"system\",\"content\":\"\"}]", false, 2), 400);
    assert_int_equal(judged("[]", false, 1), 400);
    assert_int_equal(
        judged("[" USER "," CALL("a", "{}") "," TOOL("a") "," CALL("a", "{}") "," TOOL("a") "]", false, 1),
        400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_is_read),
        cmocka_unit_test(faults_name_the_line),
        cmocka_unit_test(history_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
