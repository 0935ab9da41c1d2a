/* Pre-tokenizers: how a byte-level BPE vocabulary cuts text into pieces before merging. Each is one to six stages of
 * hand-written scanners (no backtracking engine), linear in the text. Immutable; any thread. */
#ifndef TOKENIZER_PRETOK_H
#define TOKENIZER_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the match that begins at s (n >= 1 bytes left), 0 when none does. arg: the stage's variant. */
typedef size_t pretok_match(const uint8_t *s, size_t n, unsigned arg);

struct pretok {
    const char *name;
    struct {
        pretok_match *match;
        unsigned arg;
    } stage[6];         /* applied one after another, each on the pieces of the one before; ends with NULL */
    unsigned end_stage; /* the one whose match is the length of what ends the piece; 0 = none */
    bool nfc;           /* the reference tokenizer normalizes to NFC first */
    bool ignore_merges; /* a piece that is a token is that token */
    bool add_bos;       /* when the file does not say */
};

/* By tokenizer.ggml.pre; NULL when it is unknown. An empty name is "default". */
const struct pretok *pretok_find(const char *name, size_t len);
/* The known names, NULL-terminated, for messages. */
const char *pretok_names(void);

/* Calls fn for every piece in order; the pieces joined are the text. Stops at and returns the first value that is not 0. */
typedef int pretok_piece(void *ctx, const uint8_t *s, size_t n);
int pretok_split(const struct pretok *p, const uint8_t *s, size_t n, pretok_piece *fn, void *ctx);

#endif
