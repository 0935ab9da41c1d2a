/* Buf: a growing run of bytes. Zero it first, buf_fini at the end. A failed allocation is sticky: later calls do nothing and
 * `failed` is set, so that a writer checks once at its end. One thread. */
#ifndef BUF_H
#define BUF_H

#include <stdbool.h>
#include <stddef.h>

struct buf {
    char *p; /* owned; NULL while empty */
    size_t n, cap;
    bool failed;
};

void buf_fini(struct buf *b);
void buf_clear(struct buf *b); /* keeps the memory */
void buf_add(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *s);
/* Drops n bytes from the front. */
void buf_drop(struct buf *b, size_t n);
/* Gives back memory beyond `keep` when the content fits in it. */
void buf_trim(struct buf *b, size_t keep);
/* The bytes with a NUL behind them; the caller frees. NULL when memory is out. b is empty afterwards. */
char *buf_take(struct buf *b, size_t *n);

#endif
