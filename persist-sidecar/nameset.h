/* A counted set of checkpoint names: what must not be collected now. One thread. */
#ifndef STORE_NAMESET_H
#define STORE_NAMESET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nameset_entry {
    uint8_t name[32];
    uint32_t count; /* 0: free or deleted */
    bool used;      /* a probe must go on */
};

struct nameset {
    struct nameset_entry *tab;
    size_t cap, n_used; /* cap is 0 or a power of two */
};

void nameset_free(struct nameset *s);
/* 0, or -1 when memory is out (nothing changed). */
int nameset_add(struct nameset *s, const uint8_t name[32]);
void nameset_del(struct nameset *s, const uint8_t name[32]); /* absent: nothing */
bool nameset_has(const struct nameset *s, const uint8_t name[32]);

#endif
