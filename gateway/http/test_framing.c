#include "framing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    unsigned status;
    enum framing_state state;
    uint64_t heads;
    bool in_body;
};

static struct seen run(const char *text, size_t n, size_t piece)
{
    struct framing f = {0};
    for (size_t at = 0; at < n; at += piece)
        framing_feed(&f, text + at, n - at < piece ? n - at : piece);
    const struct seen s = {f.state == FRAMING_BAD ? f.status : 0, f.state, f.heads, f.in_body};
    assert_true(f.state != FRAMING_BAD || f.why);
    framing_fini(&f);
    return s;
}

/* The same in pieces of any size. */
static struct seen check(const char *text, size_t n)
{
    const struct seen whole = run(text, n, n ? n : 1);
    for (size_t piece = 1; piece < 40; piece++) {
        const struct seen s = run(text, n, piece);
        if (s.status != whole.status || s.state != whole.state || s.heads != whole.heads)
            fail_msg("%s: in pieces of %zu: %u %d, else %u %d", text, piece, s.status, s.state, whole.status,
                     whole.state);
    }
    return whole;
}

#define GET  "GET / HTTP/1.1\r\nHost: x\r\n"
#define POST "POST /a?b=c HTTP/1.1\r\nHost: x\r\n"

static void test_good(void **state)
{
    static const struct {
        const char *text;
        uint64_t heads;
        enum framing_state state;
    } t[] = {
        {GET "\r\n", 1, FRAMING_START},
        {"\r\n\n" GET "\r\n" GET "\r\n", 2, FRAMING_START},
        {"GET / HTTP/1.1\nHost: x\n\n", 1, FRAMING_START},
        {POST "Content-Length: 5\r\n\r\nhello" GET "\r\n", 2, FRAMING_START},
        {POST "content-length:\t5 \r\n\r\nhel", 1, FRAMING_BODY},
        {POST "Content-Length: 0\r\n\r\n", 1, FRAMING_START},
        {POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0A;x=y\r\n0123456789\r\n0\r\n\r\n", 1,
         FRAMING_START},
        {POST "Transfer-Encoding: Chunked\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n" GET "\r\n", 2,
         FRAMING_START},
        {GET "Connection: close\r\n\r\n\x01 anything", 1, FRAMING_LAST},
        {"GET / HTTP/1.0\r\n\r\nrest", 1, FRAMING_LAST},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 1, FRAMING_START},
        {GET "X-Empty:\r\nX-Latin: \xe9\r\n\r\n", 1, FRAMING_START},
        {"GET / HTT", 0, FRAMING_START},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        const struct seen s = check(t[i].text, strlen(t[i].text));
        if (s.status || s.heads != t[i].heads || s.state != t[i].state)
            fail_msg("%s: %u, %u heads, state %d", t[i].text, s.status, (unsigned)s.heads, s.state);
    }
}

static void test_bad(void **state)
{
    static const struct {
        const char *text;
        unsigned status;
        uint64_t heads;
        bool in_body;
    } t[] = {
        {"GET\r\n", 400, 0, false},
        {"GET /\r\n", 400, 0, false},
        {"GET  / HTTP/1.1\r\n", 400, 0, false},
        {"GET / x HTTP/1.1\r\n", 400, 0, false},
        {"GET / HTTP/1.1 \r\n", 400, 0, false},
        {"G{T / HTTP/1.1\r\n", 400, 0, false},
        {"GET /\x01 HTTP/1.1\r\n", 400, 0, false},
        {"GET / HTTP/11\r\n", 400, 0, false},
        {"GET / http/1.1\r\n", 400, 0, false},
        {"GET / HTTP/2.0\r\n", 505, 0, false},
        {"GET /ssssssssssssssssssssssssssssssssssssssssssssssssssssss X\r\n", 400, 0, false},
        {GET "no colon\r\n", 400, 0, false},
        {GET "Name : x\r\n", 400, 0, false},
        {GET " folded: x\r\n", 400, 0, false},
        {GET ": x\r\n", 400, 0, false},
        {GET "A: x\ry\r\n", 400, 0, false},
        {POST "Content-Length: -5\r\n", 400, 0, false},
        {POST "Content-Length: +5\r\n", 400, 0, false},
        {POST "Content-Length: 5 5\r\n", 400, 0, false},
        {POST "Content-Length:\r\n", 400, 0, false},
        {POST "Content-Length: 5\r\nContent-Length: 5\r\n", 400, 0, false},
        {POST "Content-Length: 99999999999999999999\r\n", 413, 0, false},
        {POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0, false},
        {POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 400, 0, false},
        {POST "Transfer-Encoding: gzip, chunked\r\n", 400, 0, false},
        {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400, 0, false},
        {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, 0, false},
        {POST "Transfer-Encoding: chunked\r\n\r\nzzz\r\n", 400, 1, true},
        {POST "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400, 1, true},
        {POST "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400, 1, true},
        {POST "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 400, 1, true},
        {POST "Transfer-Encoding: chunked\r\n\r\n0\r\nno colon\r\n", 400, 1, true},
        {GET "\r\nGARBAGE\r\n", 400, 1, false},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        const struct seen s = check(t[i].text, strlen(t[i].text));
        if (s.status != t[i].status || s.heads != t[i].heads || s.in_body != t[i].in_body)
            fail_msg("%s: %u, %u heads, in body %d", t[i].text, s.status, (unsigned)s.heads, s.in_body);
    }
}

static void test_limits(void **state)
{
    static char text[200000];
    size_t n = (size_t)snprintf(text, sizeof text, "GET /");
    memset(text + n, 'a', 17000);
    assert_int_equal(run(text, n + 17000, 1000).status, 414);
    n = (size_t)snprintf(text, sizeof text, GET "X: ");
    memset(text + n, 'a', 17000);
    assert_int_equal(run(text, n + 17000, 1000).status, 431);
    n = (size_t)snprintf(text, sizeof text, GET);
    for (int i = 0; i < 257; i++)
        n += (size_t)sprintf(text + n, "A: b\r\n");
    assert_int_equal(run(text, n, 1000).status, 431);
    n = (size_t)snprintf(text, sizeof text, GET);
    for (int i = 0; i < 100; i++)
        n += (size_t)sprintf(text + n, "A: %0600d\r\n", 0);
    assert_int_equal(run(text, n, 1000).status, 431);
    n = (size_t)snprintf(text, sizeof text, "GET /?");
    memset(text + n, '&', 600);
    assert_int_equal(run(text, n + 600, 7).status, 431);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
