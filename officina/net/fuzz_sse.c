/* The joiner must give the same events however the bytes are cut; arguments of tools that were accepted are
 * accepted again. */
#include "core/args.h"
#include "net/sse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take(void *arg, const char *bytes, size_t n)
{
    struct text *t = arg;
    text_printf(t, "%zu:", n);
    text_add(t, bytes, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct sse a = {0}, b = {0};
    struct text whole = {0}, cut = {0};
    const char *bytes = (const char *)data + 1;
    size_t n = size - 1, at = data[0] % n;
    sse_feed(&a, bytes, n, take, &whole);
    sse_feed(&b, bytes, at, take, &cut);
    sse_feed(&b, bytes + at, n - at, take, &cut);
    if (whole.len != cut.len || memcmp(text_str(&whole), text_str(&cut), whole.len) != 0)
        abort();
    struct args args;
    args_read(&args, bytes, n,
              "{\"properties\":{\"path\":{\"type\":\"string\"},\"all\":{\"type\":\"boolean\"},\"n\":{"
              "\"type\":\"integer\"},"
              "\"x\":{\"type\":\"number\"},\"list\":{\"type\":\"array\"}},\"required\":[\"path\"]}");
    if ((args.value == NULL) != (args.fault != NULL))
        abort();
    if (args.value != NULL) {
        struct args again;
        char *text = json_dumps(args.value, JSON_COMPACT);
        args_read(&again, text, strlen(text), NULL);
        if (again.value == NULL)
            abort();
        free(text);
        args_free(&again);
    }
    args_free(&args);
    sse_free(&a);
    sse_free(&b);
    text_free(&whole);
    text_free(&cut);
    return 0;
}
