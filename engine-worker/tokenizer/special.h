/* Special tokens: finds the tokens that are cut out of a text before anything else, leftmost first, longest on ties. */
#ifndef TOKENIZER_SPECIAL_H
#define TOKENIZER_SPECIAL_H

#include "vocab.h"

/* A trie; children of a node are a list, those of the root a table. */
struct special {
    struct special_node {
        uint32_t child, next;   /* 0 = none */
        uint32_t control, user; /* the token that ends here, VOCAB_NONE = none */
        uint8_t byte;
    } * nodes;
    uint32_t n, cap;
    uint32_t root[256];
};

/* Texts longer than this are not looked for: it bounds the work at each position of a text. */
#define SPECIAL_LONGEST 1024

int special_load(struct special *sp, const struct vocab *v, struct vt_err *err);
void special_fini(struct special *sp);

/* The longest special token that begins at s; *len is its length. User-defined tokens may use all n bytes, control tokens
 * the first `trusted` of them. VOCAB_NONE when none begins here. */
uint32_t special_match(const struct special *sp, const uint8_t *s, size_t n, size_t trusted, size_t *len);

#endif
