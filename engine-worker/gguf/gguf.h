/* GGUF: read-only view of a model file (v2, v3; little endian; split files joined), hardened against hostile
 * bytes.
 *
 * Every length is checked against what is left of the file before it is used; every tensor's range lies
 * inside its file; nothing is copied but the index. Opening costs milliseconds at any size: tensor data is
 * only mapped. After gguf_open the view is immutable and may be read from any thread; a file that is
 * truncated later is answered by SIGBUS (see gguf_stat_ok). */
#ifndef GGUF_H
#define GGUF_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARR,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

/* Weight types by their number in the file; numbers between were removed from the format. Integers and F64 are of no use as
 * weights: the loader of the model refuses them, not the reader. */
enum ggml_type {
    GT_F32 = 0,
    GT_F16 = 1,
    GT_Q4_0 = 2,
    GT_Q4_1 = 3,
    GT_Q5_0 = 6,
    GT_Q5_1 = 7,
    GT_Q8_0 = 8,
    GT_Q8_1 = 9,
    GT_Q2_K = 10,
    GT_Q3_K = 11,
    GT_Q4_K = 12,
    GT_Q5_K = 13,
    GT_Q6_K = 14,
    GT_Q8_K = 15,
    GT_IQ2_XXS = 16,
    GT_IQ2_XS = 17,
    GT_IQ3_XXS = 18,
    GT_IQ1_S = 19,
    GT_IQ4_NL = 20,
    GT_IQ3_S = 21,
    GT_IQ2_S = 22,
    GT_IQ4_XS = 23,
    GT_I8 = 24,
    GT_I16 = 25,
    GT_I32 = 26,
    GT_I64 = 27,
    GT_F64 = 28,
    GT_IQ1_M = 29,
    GT_BF16 = 30,
    GT_TQ1_0 = 34,
    GT_TQ2_0 = 35,
    GT_MXFP4 = 39,
    GT_NVFP4 = 40,
    GT_Q1_0 = 41,
    GT_Q2_0 = 42
};

struct gguf_tensor {
    const char *name;    /* NUL-terminated, owned by the file */
    uint32_t type;       /* number in the file */
    uint32_t n_dims;     /* 1..4 */
    uint64_t ne[4];      /* ne[0] is contiguous; unused ones are 1 */
    const uint8_t *data; /* mapped; aligned to general.alignment */
    uint64_t bytes;
};

struct gguf_file;

/* Opens path, and the other parts when it is part 1 of a split file. Errors: VT_E_NO_INPUT, VT_E_PAYLOAD
 * (names the offset, key or tensor), VT_E_NOMEM. header_only: do not require (or map) the tensor data:
 * `inspect` of a cut file, the gateway. */
int gguf_open(struct gguf_file **out, const char *path, bool header_only, struct vt_err *err);
void gguf_close(struct gguf_file *f);

/* Metadata. Integer getters accept any integer type whose value fits. Return 0 found, 1 absent (out
 * untouched), -1 wrong type or range (err says which key and what it is). */
int gguf_u32(const struct gguf_file *f, const char *key, uint32_t *out, struct vt_err *err);
int gguf_u64(const struct gguf_file *f, const char *key, uint64_t *out, struct vt_err *err);
int gguf_f32(const struct gguf_file *f, const char *key, float *out, struct vt_err *err);
int gguf_bool(const struct gguf_file *f, const char *key, bool *out, struct vt_err *err);
/* Strings point into the mapping and are not NUL-terminated. */
int gguf_str(const struct gguf_file *f, const char *key, const char **s, size_t *len, struct vt_err *err);
/* Arrays: element type and count, then elements by index. */
int gguf_arr(const struct gguf_file *f, const char *key, enum gguf_type *elem, uint64_t *n,
             struct vt_err *err);
int gguf_arr_str(const struct gguf_file *f, const char *key, uint64_t i, const char **s, size_t *len,
                 struct vt_err *err);
int gguf_arr_u32(const struct gguf_file *f, const char *key, uint64_t i, uint32_t *out, struct vt_err *err);
int gguf_arr_f32(const struct gguf_file *f, const char *key, uint64_t i, float *out, struct vt_err *err);

/* Tensors. */
uint64_t gguf_n_tensors(const struct gguf_file *f);
const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *f, uint64_t i);
const struct gguf_tensor *gguf_tensor(const struct gguf_file *f, const char *name); /* NULL when absent */

/* Bytes of a row of n values of a type; 0 when the type is unknown or n is not a multiple of its block. */
uint64_t ggml_row_bytes(uint32_t type, uint64_t n);
/* Values and bytes of a block; false (and zeros) when the type is unknown. */
bool ggml_block(uint32_t type, int64_t *values, int64_t *bytes);
const char *ggml_type_name(uint32_t type); /* "Q4_K"; "unknown type" for others */

/* For tools: every key with type, count and a short value; every tensor. */
void gguf_print(const struct gguf_file *f, FILE *out, bool all_values);
uint64_t gguf_total_bytes(const struct gguf_file *f); /* of all parts */
int gguf_n_parts(const struct gguf_file *f);
/* SHA-256 over the metadata and tensor index of all parts: the cheap payload identity used in layouts. -1: no memory. */
int gguf_index_sha256(const struct gguf_file *f, uint8_t out[32]);
/* Which files these are, and their state: 12 hex digits of device, inode, size and time of change of all parts, as they are open.
 * "": no memory. */
#define GGUF_KEY 13
void gguf_key(const struct gguf_file *f, char out[GGUF_KEY]);
/* 0 when every part still has its size on disk. */
int gguf_stat_ok(const struct gguf_file *f, struct vt_err *err);

#endif
