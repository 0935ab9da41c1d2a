/* What the files of the reader share. Nothing outside this folder includes it. */
#ifndef GGUF_INTERNAL_H
#define GGUF_INTERNAL_H

#include "gguf.h"

/* Bounds far above any model in the world and far below what a hostile count could make us do. */
#define GGUF_MAX_KV       65536u
#define GGUF_MAX_TENSORS  1000000u
#define GGUF_MAX_KEY      65535u
#define GGUF_MAX_NAME     1024u
#define GGUF_MAX_STR      (64u << 20)
#define GGUF_MAX_ARR      (16u << 20)
#define GGUF_MAX_ALIGN    (1u << 20)
#define GGUF_MAX_PARTS    1024u
#define GGUF_MAX_ELEMENTS (UINT64_C(1) << 47)
/* A string array keeps the position of every 8th string; the rest are found by walking. */
#define GGUF_STR_STRIDE 8u

struct gguf_kv {
    const char *key; /* in the mapping, not NUL-terminated */
    uint32_t key_len;
    uint32_t type; /* enum gguf_type */
    uint32_t elem; /* element type of an array */
    uint64_t n;    /* elements of an array, bytes of a string, else 1 */
    const uint8_t *val;
    const uint8_t **strs; /* every GGUF_STR_STRIDE-th string of an array of strings */
};

/* Open-addressing table of positions in an array of names. */
struct gguf_index {
    uint32_t *slot; /* position + 1, 0 = free */
    uint32_t mask;
};

struct gguf_part {
    char *path;
    int fd;
    const uint8_t *map;
    size_t mapped;     /* bytes of the mapping */
    uint64_t size;     /* of the file at open */
    uint64_t head_end; /* end of the tensor infos */
    uint64_t data_at;  /* start of the tensor data */
    uint32_t version, alignment;
    struct gguf_kv *kv;
    uint32_t n_kv;
    struct gguf_index keys;
    uint64_t tensor0, n_tensors; /* range in gguf_file.tensors */
};

struct gguf_file {
    struct gguf_part *parts;
    uint32_t n_parts;
    struct gguf_tensor *tensors;
    uint64_t n_tensors;
    struct gguf_index names;
    bool header_only;
};

/* types.c */
struct ggml_type_info {
    const char *name; /* NULL: number not in use */
    uint16_t block;   /* values */
    uint16_t bytes;
};
const struct ggml_type_info *ggml_type_info(uint32_t type); /* NULL when unknown */
uint32_t gguf_value_size(uint32_t type);                    /* 0 for strings, arrays and unknown numbers */
const char *gguf_value_name(uint32_t type);

/* index.c: names are (pointer, length) pairs given by a callback so that keys and tensors share one table. */
typedef const char *gguf_name_fn(const void *arr, uint64_t i, size_t *len);
int gguf_index_init(struct gguf_index *ix, uint64_t n);
void gguf_index_free(struct gguf_index *ix);
/* Adds position i. Returns 0, or -1 when the name is already there. */
int gguf_index_add(struct gguf_index *ix, gguf_name_fn *name, const void *arr, uint64_t i);
/* Position of a name or -1. */
int64_t gguf_index_find(const struct gguf_index *ix, gguf_name_fn *name, const void *arr, const char *s,
                        size_t len);

const char *gguf_kv_name(const void *arr, uint64_t i, size_t *len);
const char *gguf_tensor_name(const void *arr, uint64_t i, size_t *len);

/* reader.c: maps one part and reads its index; tensors are appended to f. */
int gguf_part_read(struct gguf_file *f, struct gguf_part *p, struct vt_err *err);
void gguf_part_close(struct gguf_part *p);

/* meta.c: lookups within one part. */
const struct gguf_kv *gguf_part_kv(const struct gguf_part *p, const char *key);
int gguf_part_u64(const struct gguf_part *p, const char *key, uint64_t *out, struct vt_err *err);

static inline uint64_t gguf_le64(const uint8_t *b)
{
    uint64_t v;
    __builtin_memcpy(&v, b, 8);
    return v;
}
static inline uint32_t gguf_le32(const uint8_t *b)
{
    uint32_t v;
    __builtin_memcpy(&v, b, 4);
    return v;
}

#endif
