#include "buf.h"

#include <stdlib.h>
#include <string.h>

void buf_fini(struct buf *b)
{
    free(b->p);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->n = 0;
}

static bool grow(struct buf *b, size_t n)
{
    if (b->failed || n > (size_t)1 << 40) {
        b->failed = true;
        return false;
    }
    if (b->cap - b->n >= n)
        return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap - b->n < n)
        cap += cap / 2 + 64;
    char *p = realloc(b->p, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (n == 0 || !grow(b, n))
        return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void buf_puts(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_drop(struct buf *b, size_t n)
{
    if (n >= b->n) {
        b->n = 0;
        return;
    }
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
}

void buf_trim(struct buf *b, size_t keep)
{
    if (b->cap <= keep || b->n > keep)
        return;
    char *p = realloc(b->p, keep);
    if (p) {
        b->p = p;
        b->cap = keep;
    }
}

char *buf_take(struct buf *b, size_t *n)
{
    if (!grow(b, 1)) {
        buf_fini(b);
        return NULL;
    }
    b->p[b->n] = '\0';
    char *p = b->p;
    if (n)
        *n = b->n;
    *b = (struct buf){0};
    return p;
}
