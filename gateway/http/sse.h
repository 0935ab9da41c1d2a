/* Server-sent events: frames one event into memory. Events are always whole when they reach a connection, so that an error
 * event that has to follow one out of turn starts on a line of its own. */
#ifndef SSE_H
#define SSE_H

#include "buf.h"

#include <jansson.h>

/* data: one line of JSON. name: event name or NULL. Steals nothing. */
void sse_json(struct buf *out, const char *name, const json_t *data);
/* data: literal text of one line. */
void sse_text(struct buf *out, const char *text);
void sse_comment(struct buf *out);

#endif
