/* Framing: where requests of HTTP/1.x begin and end in the bytes of one connection (RFC 9112), and whether they are well formed.
 * Stricter than the library that answers them, so that what passes here is not refused there: no folded lines, no bare CR, no
 * control characters, one length only. A request with Content-Length and Transfer-Encoding is refused, since two readers could
 * disagree where it ends. Time linear in the bytes, memory one line. Pure: knows no sockets. */
#ifndef FRAMING_H
#define FRAMING_H

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FRAMING_LINE = 16384, /* bytes of one line */
    FRAMING_HEAD = 49152, /* of a request line and all headers */
    FRAMING_HEADERS = 256,
    FRAMING_MARKS = 512 /* & and ; in a head: each makes a value */
};

enum framing_state {
    FRAMING_START, /* between requests */
    FRAMING_HEADER,
    FRAMING_BODY,
    FRAMING_CHUNK_SIZE,
    FRAMING_CHUNK,
    FRAMING_CHUNK_END,
    FRAMING_TRAILER,
    FRAMING_LAST, /* the connection's last request is over: nothing counts any more */
    FRAMING_BAD
};

struct framing {
    enum framing_state state;
    struct buf line;
    uint64_t left; /* of the body or chunk */
    size_t head, headers, marks;
    bool has_length, chunked, coded, close, keep, old; /* old: HTTP/1.0 */
    uint64_t heads;                                    /* well-formed ones so far */
    /* FRAMING_BAD */
    bool in_body; /* of the last of them; else in the next head */
    unsigned status;
    const char *why; /* a sentence for the client */
};

void framing_fini(struct framing *f);
/* The next n bytes. False: FRAMING_BAD. */
bool framing_feed(struct framing *f, const char *p, size_t n);
/* How many of the next bytes need not be looked at: framing_skip passes over them. */
uint64_t framing_blind(const struct framing *f);
void framing_skip(struct framing *f, uint64_t n);

#endif
