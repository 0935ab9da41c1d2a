#include "util/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p)
{
    if (p == NULL) {
        fputs("officina: memory is out\n", stderr);
        abort();
    }
    return p;
}

void *mem_new(size_t n)
{
    return checked(calloc(1, n != 0 ? n : 1));
}

void *mem_grow(void *p, size_t n)
{
    return checked(realloc(p, n != 0 ? n : 1));
}

char *mem_dupn(const char *s, size_t n)
{
    char *p = mem_new(n + 1);
    if (n != 0)
        memcpy(p, s, n);
    return p;
}

char *mem_dup(const char *s)
{
    return s == NULL ? NULL : mem_dupn(s, strlen(s));
}

void *mem_room(void *a, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return a;
    size_t more = *cap != 0 ? *cap * 2 : 8;
    a = mem_grow(a, more * size);
    memset((char *)a + *cap * size, 0, (more - *cap) * size);
    *cap = more;
    return a;
}

static void reserve(struct text *t, size_t n)
{
    if (t->len + n < t->cap)
        return;
    size_t cap = t->cap != 0 ? t->cap : 32;
    while (cap <= t->len + n)
        cap *= 2;
    t->s = mem_grow(t->s, cap);
    t->cap = cap;
}

void text_add(struct text *t, const char *bytes, size_t n)
{
    reserve(t, n);
    if (n != 0)
        memcpy(t->s + t->len, bytes, n);
    t->len += n;
    t->s[t->len] = '\0';
}

void text_puts(struct text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_printf(struct text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    reserve(t, (size_t)n);
    vsnprintf(t->s + t->len, (size_t)n + 1, fmt, again);
    va_end(again);
    t->len += (size_t)n;
}

void text_set(struct text *t, const char *s)
{
    text_clear(t);
    if (s != NULL)
        text_puts(t, s);
}

void text_replace(struct text *t, size_t at, size_t n, const char *bytes, size_t len)
{
    assert(at + n <= t->len);
    reserve(t, len);
    memmove(t->s + at + len, t->s + at + n, t->len - at - n);
    if (len != 0)
        memcpy(t->s + at, bytes, len);
    t->len = t->len - n + len;
    t->s[t->len] = '\0';
}

void text_clear(struct text *t)
{
    t->len = 0;
    if (t->s != NULL)
        t->s[0] = '\0';
}

void text_free(struct text *t)
{
    free(t->s);
    *t = (struct text){0};
}

const char *text_str(const struct text *t)
{
    return t->s != NULL ? t->s : "";
}

char *text_take(struct text *t)
{
    char *s = t->s != NULL ? t->s : mem_new(1);
    *t = (struct text){0};
    return s;
}
