/* UTF-8 hold-back: tokens end anywhere in a character, clients get whole ones. Invalid bytes become U+FFFD; an incomplete
 * sequence at the end waits for the next token. State is a few bytes, one stream each. */
#ifndef UTF8_H
#define UTF8_H

#include "../http/buf.h"

#include <stdint.h>

struct utf8_hold {
    uint8_t tail[4];
    unsigned n;
};

/* Appends what is complete to out. */
void utf8_feed(struct utf8_hold *h, const uint8_t *in, size_t n, struct buf *out);
/* The stream is over: an incomplete tail becomes one U+FFFD. */
void utf8_flush(struct utf8_hold *h, struct buf *out);
/* Is the whole text valid UTF-8? */
bool utf8_whole(const void *p, size_t n);

#endif
