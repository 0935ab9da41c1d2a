#include "sse.h"

#include <string.h>

static int put(const char *p, size_t n, void *out)
{
    buf_add(out, p, n);
    return ((struct buf *)out)->failed ? -1 : 0;
}

void sse_json(struct buf *out, const char *name, const json_t *data)
{
    size_t start = out->n;
    if (name) {
        buf_puts(out, "event: ");
        buf_puts(out, name);
        buf_puts(out, "\n");
    }
    buf_puts(out, "data: ");
    if (json_dump_callback(data, put, out, JSON_COMPACT | JSON_REAL_PRECISION(10))) {
        out->failed = true;
        out->n = start; /* no half event */
        return;
    }
    buf_puts(out, "\n\n");
    if (out->failed)
        out->n = start;
}

void sse_text(struct buf *out, const char *text)
{
    size_t start = out->n;
    buf_puts(out, "data: ");
    buf_puts(out, text);
    buf_puts(out, "\n\n");
    if (out->failed)
        out->n = start;
}

void sse_comment(struct buf *out)
{
    size_t start = out->n;
    buf_puts(out, ":\n\n");
    if (out->failed)
        out->n = start;
}
