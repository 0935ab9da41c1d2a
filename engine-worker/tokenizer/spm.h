/* SentencePiece BPE by scores (`llama` vocabularies, gemma among them): symbols of a fragment are joined, best score first.
 *
 * The reference merges over the whole fragment. Two neighbours that stand in no word side by side can never be joined, so
 * the text is cut there into pieces, with the same result: in practice at the spaces. Any thread. */
#ifndef TOKENIZER_SPM_H
#define TOKENIZER_SPM_H

#include "vocab.h"

struct spm {
    const struct vocab *vocab;
    uint32_t unknown;        /* for a byte without a token; VOCAB_NONE: such bytes are dropped */
    uint64_t inside[256][4]; /* bit b of row a: some word has byte a before byte b */
};

/* vocab is borrowed for the life of m. */
void spm_load(struct spm *m, const struct vocab *vocab, uint32_t unknown);
/* Appends the ids of a fragment without special tokens. prefix: put a space before it. */
int spm_encode(const struct spm *m, const uint8_t *s, size_t n, bool prefix, struct tok_ids *out,
               struct vt_err *err);

#endif
