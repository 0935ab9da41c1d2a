/* Stop strings: one matcher over text for several strings, independent of token borders. No byte that may still become part
 * of a match is let through early; the matched string itself never is.
 *
 * A set is immutable and shared by all choices of a request; the state is one stream's. */
#ifndef STOP_H
#define STOP_H

#include "../http/buf.h"

#include <stdint.h>

struct stop_set;

/* Takes copies. Empty strings are ignored; n may be 0. NULL when memory is out. */
struct stop_set *stop_set_new(const char *const *strings, const size_t *lens, size_t n);
void stop_set_free(struct stop_set *s);
size_t stop_set_count(const struct stop_set *s);

struct stop_state {
    const struct stop_set *set; /* borrowed */
    uint32_t *len;              /* matched prefix of each string */
    struct buf held;            /* the longest of them, as text */
};

int stop_init(struct stop_state *st, const struct stop_set *set);
void stop_fini(struct stop_state *st);
/* Appends what is safe to out. Returns the index of the string that matched (text behind it is dropped) or -1. Of several
 * that end at the same byte the longest wins. Not to be fed after a match. */
int stop_feed(struct stop_state *st, const char *text, size_t n, struct buf *out);
/* The stream is over without a match: the held text is let through. */
void stop_flush(struct stop_state *st, struct buf *out);
/* The text of a string of the set. */
const char *stop_text(const struct stop_set *s, size_t i, size_t *len);

#endif
