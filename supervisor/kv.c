#include "kv.h"

#include <stdlib.h>
#include <string.h>

void kv_clear(struct kv *k)
{
    for (unsigned i = 0; i < k->n; i++) {
        free(k->key[i]);
        free(k->value[i]);
    }
    k->n = 0;
}

int kv_set(struct kv *k, const char *key, const char *value)
{
    unsigned at = 0;
    while (at < k->n && strcmp(k->key[at], key) < 0)
        at++;
    char *v = strdup(value);
    if (v == NULL)
        return -1;
    if (at < k->n && strcmp(k->key[at], key) == 0) {
        free(k->value[at]);
        k->value[at] = v;
        return 0;
    }
    char *name = k->n < KV_MAX ? strdup(key) : NULL;
    if (name == NULL) {
        free(v);
        return -1;
    }
    memmove(&k->key[at + 1], &k->key[at], (k->n - at) * sizeof k->key[0]);
    memmove(&k->value[at + 1], &k->value[at], (k->n - at) * sizeof k->value[0]);
    k->key[at] = name;
    k->value[at] = v;
    k->n++;
    return 0;
}

const char *kv_get(const struct kv *k, const char *key)
{
    for (unsigned i = 0; i < k->n; i++) {
        if (strcmp(k->key[i], key) == 0)
            return k->value[i];
    }
    return NULL;
}

int kv_from_map(struct kv *k, const msgpack_object_map *m)
{
    kv_clear(k);
    for (uint32_t i = 0; m != NULL && i < m->size; i++) {
        char key[128], value[4096];
        if (m->ptr[i].key.type != MSGPACK_OBJECT_STR || m->ptr[i].val.type != MSGPACK_OBJECT_STR)
            continue;
        if (kv_set(k, vt_obj_str(&m->ptr[i].key, key, sizeof key),
                   vt_obj_str(&m->ptr[i].val, value, sizeof value)) < 0)
            return -1;
    }
    return 0;
}

void kv_put(const struct kv *k, struct vt_enc *e, unsigned frame_key)
{
    vt_enc_map(e, frame_key, k->n);
    for (unsigned i = 0; i < k->n; i++) {
        vt_enc_put_str(e, k->key[i]);
        vt_enc_put_str(e, k->value[i]);
    }
}

int kv_copy(struct kv *to, const struct kv *from)
{
    kv_clear(to);
    for (unsigned i = 0; i < from->n; i++) {
        if (kv_set(to, from->key[i], from->value[i]) < 0)
            return -1;
    }
    return 0;
}
