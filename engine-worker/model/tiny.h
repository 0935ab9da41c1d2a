/* Tiny random models for tests: complete GGUF files of a few hundred KiB, written at test time, and a slow forward pass in
 * double precision over such a file, written from the formulas alone and sharing nothing with forward.c but the reader. */
#ifndef TINY_H
#define TINY_H

#include "gguf.h"

#include <stdint.h>

struct tiny {
    const char *arch; /* "qwen3", "qwen3moe", "qwen35" or "gemma3" */
    uint32_t n_embd, n_blocks, n_head, n_kv, d, n_ff, n_vocab, n_rot;
    uint32_t nk, nv, dk, conv; /* qwen35 */
    uint32_t n_mtp;
    uint32_t n_expert, n_used; /* qwen3moe; n_ff is the width of one */
    uint32_t window, period;   /* gemma3 */
    bool tied;
    uint64_t seed;
    /* faults for the loader's tests */
    const char *skip_tensor, *skip_key; /* leave out; the key without its prefix */
    const char *bend_tensor;            /* one row or value too many */
    const char *nan_tensor;             /* its last value is not a number */
    const char *huge_tensor;            /* its last row is 1e30 */
    const char *bad_type;               /* this tensor says a type that nobody computes with */
    const char *extra_tensor;           /* a tensor that the architecture does not know */
    const char *extra_key, *extra_text; /* a string key, without its prefix */
    const char *extra_u32;              /* an integer key with the value 7 */
};

extern const struct tiny tiny_qwen3, tiny_qwen35, tiny_moe, tiny_gemma3;
#define TINY_KINDS 4
extern const struct tiny *const tiny_all[TINY_KINDS];

/* Writes the file and returns where its tensor data begins; aborts when that fails. */
size_t tiny_write(const struct tiny *t, const char *path);
/* A path in the build's temporary directory that no other test uses; static buffer. */
const char *tiny_path(const char *name);

/* Logits [n][n_vocab] of the ids by the oracle. K and V are rounded to f16, as in the cache. malloc'd. */
double *oracle_logits(const struct gguf_file *f, const uint32_t *ids, uint32_t n);
/* The hidden states [n][n_embd] behind the output norm. */
double *oracle_hidden(const struct gguf_file *f, const uint32_t *ids, uint32_t n);

/* Test ids below limit. */
void tiny_ids(uint32_t *ids, uint32_t n, uint32_t limit);

#endif
