/* Server-sent events out of a byte stream that may be cut anywhere. Pure; one thread.
 *
 * Only `data` fields count: several of one event are joined by newlines; comments, names and ids are skipped. CR, LF and
 * CRLF end lines. A line or event above the limit is dropped whole and counted. */
#ifndef OFF_SSE_H
#define OFF_SSE_H

#include "util/text.h"

#include <stdbool.h>

#define SSE_LARGEST (16u * 1024u * 1024u)

struct sse {
    struct text line, data;
    bool cr;       /* the last byte was CR: a LF that follows belongs to it */
    bool any;      /* the event has a data field */
    bool too_long; /* of this line */
    unsigned dropped;
};

typedef void (*sse_taker)(void *arg, const char *data, size_t n);

void sse_feed(struct sse *s, const char *bytes, size_t n, sse_taker take, void *arg);
void sse_free(struct sse *s);

#endif
