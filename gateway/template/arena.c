#include "arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Larger blocks get a malloc of their own. */
#define SMALL 16384
#define CHUNK 65536

struct arena_chunk {
    struct arena_chunk *next;
    alignas(16) unsigned char data[];
};

struct arena_big {
    struct arena_big *prev, *next;
    size_t n;
    alignas(16) unsigned char data[];
};

static int charge(struct arena *a, size_t n)
{
    if (n > a->limit - a->used)
        return -1;
    a->used += n;
    return 0;
}

static void *big_alloc(struct arena *a, size_t n)
{
    if (charge(a, n))
        return NULL;
    struct arena_big *b = malloc(sizeof *b + n);
    if (!b) {
        a->used -= n;
        return NULL;
    }
    b->prev = NULL;
    b->next = a->bigs;
    b->n = n;
    if (a->bigs)
        a->bigs->prev = b;
    a->bigs = b;
    return b->data;
}

static void *big_grow(struct arena *a, void *old, size_t n)
{
    struct arena_big *b =
        (struct arena_big *)(void *)((unsigned char *)old - offsetof(struct arena_big, data));
    if (charge(a, n - b->n))
        return NULL;
    struct arena_big *moved = realloc(b, sizeof *b + n);
    if (!moved) {
        a->used -= n - b->n;
        return NULL;
    }
    moved->n = n;
    if (moved->prev)
        moved->prev->next = moved;
    else
        a->bigs = moved;
    if (moved->next)
        moved->next->prev = moved;
    return moved->data;
}

void *arena_alloc(struct arena *a, size_t n)
{
    if (n > SIZE_MAX / 2)
        return NULL;
    n = n ? (n + 15) & ~(size_t)15 : 16;
    if (n > SMALL)
        return big_alloc(a, n);
    if (!a->chunks || n > a->end - a->at) {
        if (charge(a, CHUNK))
            return NULL;
        struct arena_chunk *c = malloc(sizeof *c + CHUNK);
        if (!c) {
            a->used -= CHUNK;
            return NULL;
        }
        c->next = a->chunks;
        a->chunks = c;
        a->at = 0;
        a->end = CHUNK;
    }
    void *p = a->chunks->data + a->at;
    a->at += n;
    return p;
}

void *arena_grow(struct arena *a, void *old, size_t old_n, size_t n)
{
    if (n > SIZE_MAX / 2)
        return NULL;
    const size_t had = old_n ? (old_n + 15) & ~(size_t)15 : 16, want = n ? (n + 15) & ~(size_t)15 : 16;
    if (old && want <= had)
        return old;
    if (old && had > SMALL)
        return big_grow(a, old, want);
    /* the newest block of a chunk grows where it is */
    if (old && want <= SMALL && (unsigned char *)old + had == a->chunks->data + a->at &&
        want - had <= a->end - a->at) {
        a->at += want - had;
        return old;
    }
    void *p = arena_alloc(a, n);
    if (p && old)
        memcpy(p, old, old_n);
    return p;
}

void arena_fini(struct arena *a)
{
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (struct arena_big *b = a->bigs, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){.limit = a->limit, .seed = a->seed};
}
