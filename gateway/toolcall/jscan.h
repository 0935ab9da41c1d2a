/* JSON scan: reads one JSON value (RFC 8259) byte by byte and says when it is whole or wrong. What it accepts it copies, with
 * one repair: control characters inside of strings, which models write and JSON forbids, are copied as escapes. */
#ifndef JSCAN_H
#define JSCAN_H

#include "../http/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { JSCAN_DEPTH = 256 };

enum jscan_step {
    JSCAN_MORE,
    JSCAN_DONE, /* the value ends with this byte */
    JSCAN_BACK, /* it ended before this byte, which was not taken: numbers only */
    JSCAN_BAD   /* not taken either */
};

struct jscan {
    uint8_t state, hex;
    bool key;            /* the string in work is a key */
    const char *literal; /* what is left of true, false or null */
    unsigned depth;
    uint8_t object[JSCAN_DEPTH / 8]; /* bit d: level d is an object */
};

void jscan_init(struct jscan *j);
/* Appends to out what stands for c. out may be NULL: the value is skipped. */
enum jscan_step jscan_feed(struct jscan *j, char c, struct buf *out);
/* Whole text is one value, white space around it aside. */
bool jscan_valid(const char *s, size_t n);

/* Appends text as the inside of a JSON string. */
void json_escape(const char *s, size_t n, struct buf *out);

static inline bool json_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

#endif
