/* Arena: memory that is freed all at once, with a limit. One thread. Blocks are 16-byte aligned and not zeroed. */
#ifndef TEMPLATE_ARENA_H
#define TEMPLATE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct arena {
    struct arena_big *bigs; /* blocks with a malloc of their own, so that they can grow in place */
    struct arena_chunk *chunks;
    size_t at, end; /* free part of the newest chunk */
    size_t used, limit;
    uint64_t seed; /* of the hash tables in it: random, so that nobody can choose keys that collide */
};

/* NULL when the limit is reached or memory is out. */
void *arena_alloc(struct arena *a, size_t n);
/* The block with room for n bytes; the first old_n bytes stay. old may be NULL. NULL on failure: old is still good. */
void *arena_grow(struct arena *a, void *old, size_t old_n, size_t n);
void arena_fini(struct arena *a);

#endif
