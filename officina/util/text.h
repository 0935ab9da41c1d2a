/* Text that grows: bytes with a NUL behind them. Zero-initialized is empty. One thread at a time.
 *
 * Memory: the process ends with a message when it is out; an interactive program of 64 MiB has no better way. */
#ifndef OFF_TEXT_H
#define OFF_TEXT_H

#include <stdarg.h>
#include <stddef.h>

struct text {
    char *s; /* NULL while nothing was ever added; use text_str() to read */
    size_t len, cap;
};

void text_add(struct text *t, const char *bytes, size_t n);
void text_puts(struct text *t, const char *s);
void text_printf(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Replaces the content. s may be NULL: empty. Must not point into t. */
void text_set(struct text *t, const char *s);
/* Takes n bytes out from at, and puts others there. at + n lies within the text. */
void text_replace(struct text *t, size_t at, size_t n, const char *bytes, size_t len);
void text_clear(struct text *t); /* keeps the memory */
void text_free(struct text *t);
const char *text_str(const struct text *t); /* never NULL */
/* Gives the bytes to the caller (free()); t is empty after. Never NULL. */
char *text_take(struct text *t);

/* Allocation that ends the process when memory is out; n == 0 is allowed. */
void *mem_new(size_t n); /* zeroed */
void *mem_grow(void *p, size_t n);
char *mem_dup(const char *s); /* NULL gives NULL */
char *mem_dupn(const char *s, size_t n);
/* Room for one more element in an array that doubles: `a = mem_room(a, n, &cap, sizeof *a);` */
void *mem_room(void *a, size_t n, size_t *cap, size_t size);

#endif
