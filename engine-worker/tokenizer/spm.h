/* SentencePiece BPE by scores (`llama` vocabularies, gemma among them): no pieces, one merge over the whole fragment. */
#ifndef TOKENIZER_SPM_H
#define TOKENIZER_SPM_H

#include "vocab.h"

/* Appends the ids of a fragment without special tokens. prefix: put a space before it. unknown: for bytes without a token,
 * VOCAB_NONE drops them. */
int spm_encode(const struct vocab *v, const uint8_t *s, size_t n, bool prefix, uint32_t unknown,
               struct tok_ids *out, struct vt_err *err);

#endif
