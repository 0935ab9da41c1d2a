/* Kv: a small ordered list of text pairs, as the effective configuration of a launch. Owned; one thread. */
#ifndef KV_H
#define KV_H

#include "frame.h"

#include <stdbool.h>
#include <stddef.h>

#define KV_MAX 160

struct kv {
    char *key[KV_MAX], *value[KV_MAX]; /* ascending by key */
    unsigned n;
};

void kv_clear(struct kv *k);
/* Adds or replaces; -1 when full or out of memory. */
int kv_set(struct kv *k, const char *key, const char *value);
const char *kv_get(const struct kv *k, const char *key); /* NULL when absent */
/* From a map of strings in a frame; other kinds are skipped. NULL empties. */
int kv_from_map(struct kv *k, const msgpack_object_map *m);
void kv_put(const struct kv *k, struct vt_enc *e, unsigned frame_key);
int kv_copy(struct kv *to, const struct kv *from);

#endif
