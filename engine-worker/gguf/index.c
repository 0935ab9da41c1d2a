#include "internal.h"

#include "hash.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_name(const char *s, size_t len)
{
    uint8_t d[VT_XXH128_LEN];
    vt_xxh128(s, len, d);
    return gguf_le64(d);
}

int gguf_index_init(struct gguf_index *ix, uint64_t n)
{
    uint64_t cap = 16;
    while (cap < 2 * n)
        cap *= 2;
    ix->slot = calloc(cap, sizeof *ix->slot);
    ix->mask = (uint32_t)(cap - 1);
    return ix->slot != NULL ? 0 : -1;
}

void gguf_index_free(struct gguf_index *ix)
{
    free(ix->slot);
    ix->slot = NULL;
}

/* The slot that holds the name, or the free one where it belongs. The table is never more than half full. */
static uint32_t *find_slot(const struct gguf_index *ix, gguf_name_fn *name, const void *arr, const char *s,
                           size_t len)
{
    for (uint64_t h = hash_name(s, len);; h++) {
        uint32_t *slot = &ix->slot[h & ix->mask];
        if (*slot == 0)
            return slot;
        size_t n;
        const char *other = name(arr, *slot - 1, &n);
        if (n == len && memcmp(other, s, len) == 0)
            return slot;
    }
}

int gguf_index_add(struct gguf_index *ix, gguf_name_fn *name, const void *arr, uint64_t i)
{
    size_t len;
    const char *s = name(arr, i, &len);
    uint32_t *slot = find_slot(ix, name, arr, s, len);
    if (*slot != 0)
        return -1;
    *slot = (uint32_t)i + 1;
    return 0;
}

int64_t gguf_index_find(const struct gguf_index *ix, gguf_name_fn *name, const void *arr, const char *s,
                        size_t len)
{
    if (ix->slot == NULL)
        return -1;
    return (int64_t)*find_slot(ix, name, arr, s, len) - 1;
}

const char *gguf_kv_name(const void *arr, uint64_t i, size_t *len)
{
    const struct gguf_kv *kv = arr;
    *len = kv[i].key_len;
    return kv[i].key;
}

const char *gguf_tensor_name(const void *arr, uint64_t i, size_t *len)
{
    const struct gguf_tensor *t = arr;
    *len = strlen(t[i].name);
    return t[i].name;
}
