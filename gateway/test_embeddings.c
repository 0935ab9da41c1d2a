/* Embeddings, from the real vitriol-gateway between a played vitriold and a played engine: the vectors that this one gives say
 * what they were made of. */
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

static const char *const mean[] = {"gateway.pooling=mean", NULL};

static void expect(struct boss *b, const char *path, const char *body, int status, const char *has)
{
    struct reply r = {0};
    http_call(b, &r, "POST", path, NULL, body);
    if (r.status != status || !strstr(r.body, has))
        fail_msg("%s %s: %d %s", path, body, r.status, r.body);
    reply_free(&r);
}

static void test_shapes(void **state)
{
    struct boss b;
    boss_start(&b, mean);
    boss_engine_up(&b);
    /* a + b = 195, mean is 2: (195, 2, 4) */
    expect(&b, "/v1/embeddings", "{\"input\":\"ab\",\"model\":\"x\",\"user\":\"me\"}", 200,
           "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.99973");
    expect(&b, "/v1/embeddings", "{\"input\":[\"ab\",\"c\",[97,98]]}", 200,
           "\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5}}");
    expect(&b, "/v1/embeddings", "{\"input\":[97,98],\"embd_normalize\":-1}", 200, "\"embedding\":[195,2,4]");
    expect(&b, "/v1/embeddings", "{\"input\":[\"a\",\"b\"],\"embd_normalize\":-1}", 200,
           "[97,2,4]},{\"object\":\"embedding\",\"index\":1,\"embedding\":[98,2,4]}]");
    expect(&b, "/v1/embeddings", "{\"input\":\"ab\",\"embd_normalize\":-1,\"encoding_format\":\"base64\"}",
           200, "\"embedding\":\"AABDQwAAAEAAAIBA\"");
    expect(&b, "/v1/embeddings", "{\"content\":\"ab\",\"embd_normalize\":-1}", 200,
           "[{\"index\":0,\"embedding\":[[195,2,4]]}]");
    expect(&b, "/embedding", "{\"content\":[\"ab\",\"c\"],\"embd_normalize\":-1}", 200,
           "[{\"index\":0,\"embedding\":[[195,2,4]]},{\"index\":1,\"embedding\":[[99,2,4]]}]");
    expect(&b, "/v1/embeddings", "{\"input\":\"ab\",\"dimensions\":64}", 200, "embedding");
    boss_stop(&b);
}

static void test_each_token(void **state)
{
    struct boss b;
    boss_start(&b, NULL);
    boss_engine_up(&b);
    expect(&b, "/embedding", "{\"content\":\"abc\"}", 200, "\"embedding\":[[97,0,4],[98,1,4],[99,2,4]]");
    expect(&b, "/v1/embeddings", "{\"input\":\"abc\"}", 400, "gateway.pooling");
    b.lack = 1;
    expect(&b, "/embedding", "{\"content\":\"abc\"}", 500, "without all of its numbers");
    boss_stop(&b);
}

static void test_many(void **state)
{
    struct boss b;
    struct reply r = {0};
    char body[4096] = "{\"embd_normalize\":-1,\"input\":[\"a\"";
    boss_start(&b, mean);
    boss_engine_up(&b);
    for (int i = 0; i < 299; i++)
        strcat(body, ",\"a\"");
    strcat(body, "]}");
    http_call(&b, &r, "POST", "/v1/embeddings", NULL, body); /* more than the queue and the slots together */
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"index\":299,\"embedding\":[97,2,4]}"));
    assert_int_equal(b.submits, 300);
    reply_free(&r);
    boss_stop(&b);
}

static void test_wrong(void **state)
{
    static const struct {
        const char *body, *has;
    } t[] = {{"{}", "Field 'input'"},
             {"{\"input\":null}", "Field 'input'"},
             {"{\"input\":[]}", "empty"},
             {"{\"input\":[\"a\",\"\"]}", "empty"},
             {"{\"input\":7}", "Field 'input'"},
             {"{\"input\":{\"a\":1}}", "prompt_string"},
             {"{\"input\":[1,null]}", "token ids"},
             {"{\"input\":[-1]}", "token id"},
             {"{\"input\":[999999]}", "vocabulary"},
             {"{\"input\":\"a\",\"encoding_format\":\"hex\"}", "encoding_format"},
             {"{\"input\":\"a\",\"encoding_format\":1}", "encoding_format"},
             {"{\"input\":\"a\",\"dimensions\":32}", "Field 'dimensions'"},
             {"{\"input\":\"a\",\"dimensions\":0}", "dimensions"},
             {"{\"input\":\"a\",\"embd_normalize\":1000}", "embd_normalize"}};
    struct boss b;
    boss_start(&b, mean);
    boss_engine_up(&b);
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++)
        expect(&b, "/v1/embeddings", t[i].body, 400, t[i].has);
    char *big = calloc(1, 1200);
    memset(big, 'a', 1150);
    memcpy(big, "{\"input\":\"", 10);
    strcpy(big + 1150, "\"}");
    expect(&b, "/v1/embeddings", big, 400, "exceed_context_size_error");
    free(big);
    assert_int_equal(b.submits, 0);
    b.refuse = VT_E_CAPABILITY;
    expect(&b, "/v1/embeddings", "{\"input\":\"a\"}", 501, "not now");
    boss_stop(&b);
}

static void test_interrupted(void **state)
{
    struct boss b;
    struct reply r = {0};
    boss_start(&b, mean);
    boss_engine_up(&b);
    b.keep = true;
    int fd = http_dial(&b);
    http_send(fd, "POST", "/v1/embeddings", NULL, "{\"input\":[\"ab\",\"c\"],\"embd_normalize\":-1}");
    boss_until(&b, b.submits == 2);
    boss_run(&b, 50);
    boss_engine_dies(&b, true);
    b.keep = false;
    boss_engine_up(&b);
    http_read(&b, fd, &r, NULL, 5000);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "[195,2,4]"));
    assert_non_null(strstr(r.body, "[99,2,4]"));
    reply_free(&r);
    close(fd);
    b.keep = true; /* a client that leaves takes its jobs with it */
    fd = http_dial(&b);
    unsigned cancels = b.cancels, submits = b.submits;
    http_send(fd, "POST", "/embedding", NULL, "{\"content\":[\"ab\",\"c\"]}");
    boss_until(&b, b.submits == submits + 2);
    boss_run(&b, 50);
    close(fd);
    boss_until(&b, b.cancels == cancels + 2);
    boss_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_each_token),  cmocka_unit_test(test_many),
        cmocka_unit_test(test_wrong),  cmocka_unit_test(test_interrupted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
