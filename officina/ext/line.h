/* One line of a server, read as hostile. Pure; any thread. */
#ifndef OFF_EXT_LINE_H
#define OFF_EXT_LINE_H

#include "util/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { LINE_MAX_BYTES = 4 << 20 };

enum line_kind {
    LINE_NOISE,   /* no JSON object, or one that means nothing */
    LINE_RESULT,  /* answers request id: body is its result */
    LINE_FAULT,   /* answers request id: words say what went wrong */
    LINE_REQUEST, /* asks us: method, its id in `body` as it came */
    LINE_NOTICE,  /* tells us: method; of an executable: id, body is the message */
};

struct line {
    enum line_kind kind;
    int64_t id;
    char *method, *words;
    json_t *body;
};

/* What an extension may be told of. */
enum ext_event {
    TELL_SESSION_START,
    TELL_BEFORE_TOOL,
    TELL_AFTER_TOOL,
    TELL_BEFORE_REQUEST,
    TELL_TURN_END,
    TELL_KINDS
};
const char *ext_event_name(enum ext_event e); /* "session_start", … */
int ext_event_find(const char *name);         /* -1: none */

/* MCP: a JSON-RPC 2.0 message. Batches are noise (the protocol dropped them). */
void line_read_rpc(struct line *l, const char *s, size_t n);
/* An executable's message: hello, result, verdict and note answer a request, progress (of request id) and panel tell
 * something; the body is the message. */
void line_read_own(struct line *l, const char *s, size_t n);
void line_free(struct line *l);

/* The text of a tools/call result: its texts behind each other, other content as a word. failed: isError. */
void line_result_text(const json_t *result, struct text *out, bool *failed);
/* Tool names are one word of at most 64 letters, digits, _ - . /; others are dropped. */
bool line_name_ok(const char *name);

#endif
