/* Byte-level BPE: merges by rank over the bytes of a piece. Any thread. */
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include "hash.h"
#include "vocab.h"

struct bpe {
    const struct vocab *vocab;
    struct pair {
        uint32_t left, right, rank, joined;
    } * pairs; /* open addressing; joined VOCAB_NONE = free */
    uint32_t mask;
    bool ignore_merges;
    uint32_t unknown; /* for a byte without a token; VOCAB_NONE: such bytes are dropped */
};

/* vocab is borrowed for the life of b; the merges that count are added to sha. */
int bpe_load(struct bpe *b, const struct vocab *vocab, const struct gguf_file *g, struct vt_sha256 *sha,
             struct vt_err *err);
void bpe_fini(struct bpe *b);
/* Appends the ids of one piece (n >= 1). */
int bpe_piece(const struct bpe *b, const uint8_t *s, size_t n, struct tok_ids *out, struct vt_err *err);

#endif
