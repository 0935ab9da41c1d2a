#include "body.h"
#include "params.h"
#include "tool_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int two_ids(void *arg, const char *text, size_t n, uint32_t **ids, size_t *n_ids)
{
    *ids = malloc(2 * sizeof **ids);
    (*ids)[0] = 11;
    (*ids)[1] = 12;
    *n_ids = 2;
    return 0;
}

static const struct params_env env = {.n_vocab = 100, .slots = 4, .tokenize = two_ids};

/* 0 or the status; e is filled then. */
static int parse(const char *text, struct params *p, struct api_err *e)
{
    json_t *body = body_parse(text, strlen(text), e);
    if (!body) {
        params_init(p);
        return e->status;
    }
    int r = params_parse(p, body, &env, e);
    json_decref(body);
    return r ? e->status : 0;
}

static void test_defaults(void **state)
{
    struct params p;
    struct api_err e;
    assert_int_equal(parse("{\"temperature\":null,\"stop\":null,\"seed\":null,\"unknown\":{}}", &p, &e), 0);
    assert_true(p.s.temperature == 0.8 && p.s.top_p == 0.95 && p.s.top_k == 40 && p.n_predict == -1 &&
                !p.s.has_seed);
    assert_true(p.s.n_chain == 9 && p.s.breakers_len == 8);
    assert_true(p.cache_prompt && !p.stream && p.n == 1);
    params_fini(&p);
}

static void test_every_row(void **state)
{
    size_t n;
    const struct param_row *rows = params_table(&n);
    for (size_t i = 0; i < n; i++) {
        struct params p;
        struct api_err e;
        char text[128];
        snprintf(text, sizeof text, "{\"%s\":\"word\"}", rows[i].name);
        assert_int_equal(parse(text, &p, &e), 400);
        assert_string_equal(e.param, rows[i].name);
        assert_non_null(strstr(e.message, rows[i].name));
        params_fini(&p);
        snprintf(text, sizeof text, "{\"%s\":null}", rows[i].name);
        assert_int_equal(parse(text, &p, &e), 0);
        params_fini(&p);
        if (rows[i].type == PARAM_BOOL || rows[i].type == PARAM_FLAG || rows[i].max > 1e15)
            continue;
        snprintf(text, sizeof text, "{\"%s\":%.0f}", rows[i].name, rows[i].max + 1);
        int status = parse(text, &p, &e);
        assert_int_equal(status, rows[i].rule == PARAM_CLAMP || rows[i].rule == PARAM_RESET ? 0 : 400);
        params_fini(&p);
    }
}

static void test_values(void **state)
{
    static const struct {
        const char *text;
        int status;
        const char *param;
    } t[] = {
        {"{\"temperature\":-1}", 0, ""},
        {"{\"top_p\":7}", 0, ""},
        {"{\"max_tokens\":128.0}", 0, ""},
        {"{\"max_tokens\":128.5}", 400, "max_tokens"},
        {"{\"max_tokens\":-2}", 400, "max_tokens"},
        {"{\"n\":0}", 400, "n"},
        {"{\"n\":5}", 400, "n"},
        {"{\"id_slot\":4}", 400, "id_slot"},
        {"{\"stop\":7}", 400, "stop"},
        {"{\"stop\":[\"a\",null]}", 400, "stop"},
        {"{\"logit_bias\":{\"5\":-100,\"word\":1.5,\"7\":false}}", 0, ""},
        {"{\"logit_bias\":[[5,1],[\"x\",false]]}", 0, ""},
        {"{\"logit_bias\":{\"100\":1}}", 400, "logit_bias"},
        {"{\"logit_bias\":[[5]]}", 400, "logit_bias"},
        {"{\"logit_bias\":[{},1]}", 400, "logit_bias"},
        {"{\"grammar\":\"root ::= x\"}", 400, "grammar"},
        {"{\"grammar\":\"root ::= [a-z]+\"}", 0, ""},
        {"{\"grammar\":7}", 400, "grammar"},
        {"{\"grammar\":\"\"}", 0, ""},
        {"{\"grammar\":\"root ::= [a-z]+\",\"json_schema\":{}}", 400, "json_schema"},
        {"{\"grammar\":\"root ::= [a-z]+\",\"tools\":[{}]}", 400, "grammar"},
        {"{\"grammar\":\"root ::= [a-z]+\",\"ignore_eos\":true}", 400, "ignore_eos"},
        {"{\"grammar\":\"root ::= [a-z]+\",\"grammar_lazy\":true}", 400, "grammar_lazy"},
        {"{\"grammar_triggers\":[{\"type\":0}]}", 400, "grammar_triggers"},
        {"{\"json_schema\":{}}", 0, ""},
        {"{\"json_schema\":true}", 400, "json_schema"},
        {"{\"json_schema\":{\"type\":\"strnig\"}}", 400, "json_schema"},
        {"{\"response_format\":{\"type\":\"json_object\"}}", 0, ""},
        {"{\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"integer\"}}}", 0, ""},
        {"{\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"integer\"}}}", 0, ""},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"integer\"}}}"
         "}",
         0, ""},
        {"{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":[]}}}", 400,
         "response_format"},
        {"{\"response_format\":{\"type\":\"xml\"}}", 400, "response_format"},
        {"{\"response_format\":{\"type\":\"text\"}}", 0, ""},
        {"{\"response_format\":{\"type\":\"json_schema\"}}", 400, "response_format"},
        {"{\"response_format\":\"text\"}", 400, "response_format"},
        {"{\"mirostat\":0}", 0, ""},
        {"{\"mirostat\":1}", 0, ""},
        {"{\"mirostat\":1.5}", 400, "mirostat"},
        {"{\"typical_p\":0.5}", 0, ""},
        {"{\"dry_base\":0.5}", 0, ""},
        {"{\"dry_multiplier\":-1}", 400, "dry_multiplier"},
        {"{\"adaptive_decay\":1}", 400, "adaptive_decay"},
        {"{\"tfs_z\":0.5}", 400, "tfs_z"},
        {"{\"dry_sequence_breakers\":[\"\"]}", 400, "dry_sequence_breakers"},
        {"{\"dry_sequence_breakers\":[\"a\",7]}", 400, "dry_sequence_breakers"},
        {"{\"dry_sequence_breakers\":[\"\\u0000\"]}", 400, "dry_sequence_breakers"},
        {"{\"dry_sequence_breakers\":[\"a\",\"bc\"]}", 0, ""},
        {"{\"dry_sequence_breakers\":[]}", 400, "dry_sequence_breakers"},
        {"{\"samplers\":[\"top_k\",\"temperature\"]}", 0, ""},
        {"{\"samplers\":[\"temperature\",\"top_k\"]}", 0, ""},
        {"{\"samplers\":\"kpt\"}", 0, ""},
        {"{\"samplers\":\"kzt\"}", 400, "samplers"},
        {"{\"samplers\":7}", 400, "samplers"},
        {"{\"samplers\":[]}", 0, ""},
        {"{\"samplers\":\"kkkkkkkkkkkkkkkkk\"}", 400, "samplers"},
        {"{\"samplers\":[\"magic\"]}", 400, "samplers"},
        {"{\"stream_options\":{\"include_usage\":1}}", 400, "include_usage"},
        {"{\"sse_ping_interval\":0}", 400, "sse_ping_interval"},
        {"{\"lora\":[{\"id\":0}]}", 400, "lora"},
        {"{\"lora\":[]}", 0, ""},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct params p;
        struct api_err e = {0};
        int status = parse(t[i].text, &p, &e);
        if (status != t[i].status || (status && strcmp(e.param, t[i].param) != 0))
            fail_msg("%s: %d %s %s", t[i].text, status, e.param, e.message);
        params_fini(&p);
    }
}

static void test_meanings(void **state)
{
    struct params p;
    struct api_err e;
    assert_int_equal(
        parse("{\"max_tokens\":1,\"max_completion_tokens\":2,\"n_predict\":3,\"seed\":4294967295,\"top_p\":7,"
              "\"samplers\":[\"penalties\"],\"stop\":[\"\",\"x\"]}",
              &p, &e),
        0);
    assert_int_equal(p.n_predict, 3);
    assert_false(p.s.has_seed);
    assert_true(p.s.n_chain == 1 && p.s.chain[0] == VT_SAMPLER_PENALTIES && p.s.top_p == 1);
    assert_int_equal(stop_set_count(p.stop), 1);
    params_fini(&p);
    assert_int_equal(parse("{\"logit_bias\":{\"5\":false,\"word\":2}}", &p, &e), 0);
    assert_int_equal(p.n_bias, 3);
    assert_true(p.bias_ids[1] == 11 && p.bias[1] == 2 && p.bias[0] < -1e8f);
    json_t *o = params_json(&p);
    assert_int_equal(json_integer_value(json_object_get(o, "seed")), 4294967295);
    json_decref(o);
    params_fini(&p);
}

static void test_bodies(void **state)
{
    struct api_err e;
    char deep[1024];
    assert_null(body_parse("", 0, &e));
    assert_int_equal(e.status, 400);
    assert_null(body_parse("[1]", 3, &e));
    assert_null(body_parse("{\"a\":\xff}", 7, &e));
    memset(deep, '[', 600);
    assert_null(body_parse(deep, 600, &e));
    assert_non_null(strstr(e.message, "nested"));
    /* Brackets in text are no nesting. */
    size_t n = (size_t)snprintf(deep, sizeof deep, "{\"a\":\"%0600d\\\"", 0);
    memset(deep + 6, '[', 600);
    memcpy(deep + n, "\"}", 3);
    json_t *v = body_parse(deep, n + 2, &e);
    assert_non_null(v);
    json_decref(v);
}

/* Too large for what numbers are kept in: valid JSON, so that is not what is said. */
static void test_numbers_out_of_range(void **state)
{
    static const struct {
        const char *text, *param, *number;
    } t[] = {
        {"{\"seed\": 99999999999999999999}", "seed", "99999999999999999999"},
        {"{\"a\":\"x\",\"seed\":-99999999999999999999 , \"b\":1}", "seed", "-99999999999999999999"},
        {"{\"tools\":[{},{\"x\":{\"k\":[1,\"]\\\"[\",1e999]}}]}", "tools[1].x.k[2]", "1e999"},
        {"{\"logit_bias\":[[5,1],[1,184467440737095516160]]}", "logit_bias[1][1]", "184467440737095516160"},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct api_err e = {0};
        assert_null(body_parse(t[i].text, strlen(t[i].text), &e));
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, t[i].param);
        assert_non_null(strstr(e.message, t[i].number));
        assert_non_null(strstr(e.message, "out of range"));
    }
}

/* Shapes of tools, each wrong in one place, which is named. */
static void test_tool_shapes(void **state)
{
#define F                                                                                                    \
    "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},{\"type\":\"function\",\"function\":"
    static const struct {
        const char *text, *param;
    } t[] = {
        {"{\"tools\":5}", "tools"},
        {"{\"tools\":[5]}", "tools[0]"},
        {"{\"tools\":[{\"type\":\"web_search\"}]}", "tools[0].type"},
        {F "7}]}", "tools[1].function"},
        {F "{}}]}", "tools[1].function.name"},
        {F "{\"name\":\"\"}}]}", "tools[1].function.name"},
        {F "{\"name\":\"a\\nb\"}}]}", "tools[1].function.name"},
        {F "{\"name\":\"b\",\"parameters\":5}}]}", "tools[1].function.parameters"},
        {F "{\"name\":\"b\",\"parameters\":[]}}]}", "tools[1].function.parameters"},
        {F "{\"name\":\"b\",\"parameters\":{\"properties\":[]}}}]}",
         "tools[1].function.parameters.properties"},
        {F "{\"name\":\"b\",\"parameters\":{\"properties\":{\"x\":1}}}}]}",
         "tools[1].function.parameters.properties"},
        {F "{\"name\":\"b\",\"parameters\":{\"required\":\"x\"}}}]}",
         "tools[1].function.parameters.required"},
        {F "{\"name\":\"b\",\"parameters\":{\"required\":[1]}}}]}", "tools[1].function.parameters.required"},
        {F "{\"name\":\"b\",\"description\":[]}}]}", "tools[1].function.description"},
        {F "{\"name\":\"b\",\"strict\":\"yes\"}}]}", "tools[1].function.strict"},
        {F "{\"name\":\"b\",\"description\":null,\"parameters\":null,\"strict\":null}}]}", NULL},
        {F "{\"name\":\"b\",\"parameters\":{\"properties\":{\"x\":{\"pattern\":\"\\\\bx\"}}}}}]}", NULL},
    };
#undef F
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct api_err e = {0};
        json_t *body = body_parse(t[i].text, strlen(t[i].text), &e);
        assert_non_null(body);
        const int r = tool_list_check(body, &e);
        if ((r == 0) != !t[i].param || (t[i].param && strcmp(e.param, t[i].param) != 0))
            fail_msg("%s: %d %s %s", t[i].text, r, e.param, e.message);
        json_decref(body);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),    cmocka_unit_test(test_every_row),
        cmocka_unit_test(test_values),      cmocka_unit_test(test_meanings),
        cmocka_unit_test(test_bodies),      cmocka_unit_test(test_numbers_out_of_range),
        cmocka_unit_test(test_tool_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
