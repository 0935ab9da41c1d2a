/* Test fixture: small GGUF files with a vocabulary, made in memory. */
#ifndef TOKENIZER_FIXTURE_H
#define TOKENIZER_FIXTURE_H

#include "gguf.h"

#include <stdbool.h>

struct fixture {
    uint8_t *data;
    size_t n, cap;
    uint64_t n_keys;
};

void fixture_begin(struct fixture *f);
void fixture_str(struct fixture *f, const char *key, const char *value);
void fixture_u32(struct fixture *f, const char *key, uint32_t value);
void fixture_bool(struct fixture *f, const char *key, bool value);
void fixture_strs(struct fixture *f, const char *key, const char *const *values, size_t n);
void fixture_i32s(struct fixture *f, const char *key, const int32_t *values, size_t n);
void fixture_f32s(struct fixture *f, const char *key, const float *values, size_t n);
/* Opens what was written; the fixture is used up. */
int fixture_open(struct fixture *f, struct gguf_file **g, struct vt_err *err);

/* A whole gpt2 vocabulary: the 256 bytes (ids 0 to 255), a few merges and special tokens (names of ids below). */
enum {
    FIX_TH = 256,
    FIX_THE,
    FIX_SPACE_THE,
    FIX_AA,
    FIX_AAAA,
    FIX_SPACES,
    FIX_END,
    FIX_START,
    FIX_THINK,
    FIX_THINK_MORE,
    FIX_N
};
void fixture_bpe(struct fixture *f, const char *pre);
/* A whole llama vocabulary without a space prefix: the 256 bytes (ids 3 to 258), some words and a special token. Some words
 * hold a space inside, some runs of spaces. */
void fixture_spm(struct fixture *f);

#endif
