/* The inside of struct tok, for the files of this folder. */
#ifndef TOKENIZER_TOK_H
#define TOKENIZER_TOK_H

#include "bpe.h"
#include "pretok.h"
#include "special.h"
#include "spm.h"
#include "tokenizer.h"

struct tok {
    enum { TOK_MODEL_BPE, TOK_MODEL_SPM } model;
    struct vocab vocab;
    struct bpe bpe; /* TOK_MODEL_BPE only, as is pre */
    const struct pretok *pre;
    struct spm spm; /* TOK_MODEL_SPM only */
    struct special special;
    int32_t purpose[TOK_N_PURPOSES];
    bool add_bos, add_eos, add_space;
    bool strips_right; /* special tokens swallow the white space behind them (phi-3) ... */
    int32_t keeps[3];  /* ... but for these; -1 = none */
    uint32_t *eog;
    size_t n_eog;
    char *chat_template;
    size_t chat_template_len;
    uint8_t sha[32];
};

#endif
