#include "nameset.h"

#include <stdlib.h>
#include <string.h>

static size_t slot_of(const struct nameset *s, const uint8_t name[32])
{
    uint64_t h;
    memcpy(&h, name, sizeof h); /* names are hashes already */
    return (size_t)(h ^ h >> 29) & (s->cap - 1);
}

/* The entry of the name, or the free place where the probe ended. cap > n_used, so there is one. */
static struct nameset_entry *probe(const struct nameset *s, const uint8_t name[32])
{
    size_t i = slot_of(s, name);
    while (s->tab[i].used && memcmp(s->tab[i].name, name, 32) != 0)
        i = (i + 1) & (s->cap - 1);
    return &s->tab[i];
}

static int grow(struct nameset *s)
{
    size_t live = 0;
    for (size_t i = 0; i < s->cap; i++)
        live += s->tab[i].count > 0;
    struct nameset n = {.cap = 64};
    while (n.cap < 4 * (live + 1))
        n.cap *= 2;
    n.tab = calloc(n.cap, sizeof *n.tab);
    if (n.tab == NULL)
        return -1;
    for (size_t i = 0; i < s->cap; i++) {
        if (s->tab[i].count == 0)
            continue;
        *probe(&n, s->tab[i].name) = s->tab[i];
        n.n_used++;
    }
    free(s->tab);
    *s = n;
    return 0;
}

void nameset_free(struct nameset *s)
{
    free(s->tab);
    *s = (struct nameset){0};
}

int nameset_add(struct nameset *s, const uint8_t name[32])
{
    if (2 * (s->n_used + 1) > s->cap && grow(s) < 0)
        return -1;
    struct nameset_entry *e = probe(s, name);
    if (!e->used) {
        memcpy(e->name, name, 32);
        e->used = true;
        s->n_used++;
    }
    e->count++;
    return 0;
}

void nameset_del(struct nameset *s, const uint8_t name[32])
{
    if (s->cap == 0)
        return;
    struct nameset_entry *e = probe(s, name);
    if (e->used && e->count > 0)
        e->count--;
}

bool nameset_has(const struct nameset *s, const uint8_t name[32])
{
    return s->cap > 0 && probe(s, name)->count > 0;
}
