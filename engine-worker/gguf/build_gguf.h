/* Small GGUF files built in memory for the tests and the fuzz corpus. */
#ifndef BUILD_GGUF_H
#define BUILD_GGUF_H

#include "gguf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    uint8_t *b;
    size_t n;
};

static inline void put(struct bytes *o, const void *p, size_t n)
{
    o->b = realloc(o->b, o->n + n + 1);
    if (n > 0)
        memcpy(o->b + o->n, p, n);
    o->n += n;
}

static inline void put_u32(struct bytes *o, uint32_t v)
{
    put(o, &v, 4);
}

static inline void put_u64(struct bytes *o, uint64_t v)
{
    put(o, &v, 8);
}

static inline void put_str(struct bytes *o, const char *s)
{
    put_u64(o, strlen(s));
    put(o, s, strlen(s));
}

static inline void put_head(struct bytes *o, uint32_t version, uint64_t tensors, uint64_t kvs)
{
    put(o, "GGUF", 4);
    put_u32(o, version);
    put_u64(o, tensors);
    put_u64(o, kvs);
}

static inline void put_key(struct bytes *o, const char *key, uint32_t type)
{
    put_str(o, key);
    put_u32(o, type);
}

static inline void put_kv_u32(struct bytes *o, const char *key, uint32_t v)
{
    put_key(o, key, 4);
    put_u32(o, v);
}

static inline void put_kv_str(struct bytes *o, const char *key, const char *v)
{
    put_key(o, key, 8);
    put_str(o, v);
}

static inline void put_tensor(struct bytes *o, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1,
                              uint64_t offset)
{
    put_str(o, name);
    put_u32(o, 2);
    put_u64(o, ne0);
    put_u64(o, ne1);
    put_u32(o, type);
    put_u64(o, offset);
}

static inline void pad(struct bytes *o, size_t align)
{
    while (o->n % align != 0)
        put(o, "", 1);
}

static inline void put_zeros(struct bytes *o, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(o, "", 1);
}

/* Every value type, an array of each kind, three tensors. */
static inline struct bytes small_file(void)
{
    struct bytes o = {0};
    float f = 1.5f;
    double d = -2.25;
    int64_t neg = -7;
    put_head(&o, 3, 3, 17);
    put_kv_str(&o, "general.architecture", "qwen3");
    put_kv_u32(&o, "general.alignment", 64);
    put_key(&o, "a.u8", 0);
    put(&o, "\xc8", 1);
    put_key(&o, "a.i8", 1);
    put(&o, "\xfe", 1);
    put_key(&o, "a.u16", 2);
    put(&o, "\x39\x30", 2);
    put_key(&o, "a.i16", 3);
    put(&o, "\xff\xff", 2);
    put_kv_u32(&o, "a.u32", 4000000000u);
    put_key(&o, "a.i32", 5);
    put_u32(&o, 77);
    put_key(&o, "a.f32", 6);
    put(&o, &f, 4);
    put_key(&o, "a.bool", 7);
    put(&o, "\1", 1);
    put_key(&o, "a.u64", 10);
    put_u64(&o, 1ull << 40);
    put_key(&o, "a.i64", 11);
    put(&o, &neg, 8);
    put_key(&o, "a.f64", 12);
    put(&o, &d, 8);
    put_key(&o, "tokens", 9);
    put_u32(&o, 8);
    put_u64(&o, 19);
    for (int i = 0; i < 19; i++) {
        char s[24];
        snprintf(s, sizeof s, "%.*s%d", i % 5, "....", i);
        put_str(&o, i == 7 ? "" : s);
    }
    put_key(&o, "ints", 9);
    put_u32(&o, 5);
    put_u64(&o, 3);
    put_u32(&o, 10);
    put_u32(&o, 20);
    put_u32(&o, (uint32_t)-1);
    put_key(&o, "floats", 9);
    put_u32(&o, 6);
    put_u64(&o, 2);
    put(&o, &f, 4);
    put(&o, &f, 4);
    put_key(&o, "bools", 9);
    put_u32(&o, 7);
    put_u64(&o, 2);
    put(&o, "\1\0", 2);
    put_tensor(&o, "w.f32", 0, 8, 2, 0);       /* 64 bytes */
    put_tensor(&o, "w.q8_0", 8, 32, 3, 64);    /* 102 bytes, to 128 */
    put_tensor(&o, "w.q4_k", 12, 256, 1, 192); /* 144 bytes; the last padding may be missing */
    return o;
}

static inline void add_small_data(struct bytes *o)
{
    pad(o, 64);
    for (int i = 0; i < 192 + 144; i++)
        put(o, &(uint8_t){(uint8_t)i}, 1);
}

/* A file with a tensor of two blocks of every type below n_types that the reader knows. */
static inline struct bytes every_type_file(uint32_t n_types)
{
    struct bytes o = {0};
    int64_t values, size;
    uint64_t n = 0, at = 0;
    char name[24];
    for (uint32_t type = 0; type < n_types; type++)
        n += ggml_block(type, &values, &size);
    put_head(&o, 3, n, 0);
    for (uint32_t type = 0; type < n_types; type++) {
        if (!ggml_block(type, &values, &size))
            continue;
        snprintf(name, sizeof name, "w.%u", type);
        put_tensor(&o, name, type, (uint64_t)values, 2, at);
        at += (2 * (uint64_t)size + 31) / 32 * 32;
    }
    pad(&o, 32);
    for (uint64_t i = 0; i < at; i++)
        put(&o, &(uint8_t){(uint8_t)(37 * i + 11)}, 1);
    return o;
}

#endif
