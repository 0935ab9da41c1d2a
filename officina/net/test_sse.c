/* Server-sent events, cut at every byte. */
#include "net/sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void take(void *arg, const char *data, size_t n)
{
    struct text *t = arg;
    text_puts(t, "<");
    text_add(t, data, n);
    text_puts(t, ">");
}

static const char stream[] =
    ": ping\n\ndata: {\"a\":1}\n\nevent: x\ndata:two\ndata: lines\r\n\r\ndata\n\n\n\nid: 4\n\n"
    "data: caf\xc3\xa9\r\rdata: [DONE]\n\n";
static const char want[] = "<{\"a\":1}><two\nlines><><caf\xc3\xa9><[DONE]>";

static void whole_and_in_pieces(void **state)
{
    size_t n = strlen(stream);
    for (size_t piece = 1; piece <= n; piece++) {
        struct sse s = {0};
        struct text out = {0};
        for (size_t i = 0; i < n; i += piece)
            sse_feed(&s, stream + i, piece < n - i ? piece : n - i, take, &out);
        assert_string_equal(text_str(&out), want);
        sse_free(&s);
        text_free(&out);
    }
}

static void cut_once_anywhere(void **state)
{
    size_t n = strlen(stream);
    for (size_t cut = 0; cut <= n; cut++) {
        struct sse s = {0};
        struct text out = {0};
        sse_feed(&s, stream, cut, take, &out);
        sse_feed(&s, stream + cut, n - cut, take, &out);
        assert_string_equal(text_str(&out), want);
        sse_free(&s);
        text_free(&out);
    }
}

static void too_long_is_dropped(void **state)
{
    struct sse s = {0};
    struct text out = {0}, big = {0};
    text_puts(&big, "data: ");
    for (size_t i = 0; i < SSE_LARGEST / 1024 + 1; i++)
        text_printf(&big, "%1024d", 7);
    text_puts(&big, "\n\ndata: after\n\n");
    for (size_t i = 0; i < big.len; i += 65536)
        sse_feed(&s, big.s + i, big.len - i < 65536 ? big.len - i : 65536, take, &out);
    assert_string_equal(text_str(&out), "<after>");
    assert_int_equal(s.dropped, 1);
    sse_free(&s);
    text_free(&out);
    text_free(&big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_and_in_pieces),
                                       cmocka_unit_test(cut_once_anywhere),
                                       cmocka_unit_test(too_long_is_dropped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
