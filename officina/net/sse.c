#include "net/sse.h"

#include <string.h>

static void end_line(struct sse *s, sse_taker take, void *arg)
{
    const char *l = text_str(&s->line);
    size_t n = s->line.len;
    if (n == 0 && !s->too_long) {
        if (s->any)
            take(arg, text_str(&s->data), s->data.len);
        text_clear(&s->data);
        s->any = false;
    } else if (s->too_long || s->data.len + n > SSE_LARGEST) {
        s->dropped++;
    } else if (n >= 4 && memcmp(l, "data", 4) == 0 && (n == 4 || l[4] == ':')) {
        size_t from = n > 5 && l[5] == ' ' ? 6 : n > 4 ? 5 : 4;
        if (s->any)
            text_add(&s->data, "\n", 1);
        text_add(&s->data, l + from, n - from);
        s->any = true;
    }
    text_clear(&s->line);
    s->too_long = false;
}

void sse_feed(struct sse *s, const char *bytes, size_t n, sse_taker take, void *arg)
{
    const char *end = bytes + n;
    while (bytes < end) {
        if (s->cr && *bytes == '\n') {
            s->cr = false;
            bytes++;
            continue;
        }
        s->cr = false;
        const char *p = bytes;
        while (p < end && *p != '\n' && *p != '\r')
            p++;
        if (s->line.len + (size_t)(p - bytes) > SSE_LARGEST) {
            s->too_long = true;
            text_clear(&s->line);
        } else if (!s->too_long) {
            text_add(&s->line, bytes, (size_t)(p - bytes));
        }
        if (p == end)
            return;
        s->cr = *p == '\r';
        end_line(s, take, arg);
        bytes = p + 1;
    }
}

void sse_free(struct sse *s)
{
    text_free(&s->line);
    text_free(&s->data);
    *s = (struct sse){0};
}
