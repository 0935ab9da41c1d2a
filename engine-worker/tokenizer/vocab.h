/* Vocabulary: the tokens of a file, as stored and as the bytes they stand for, and the way back from bytes to an id.
 * Everything is copied: the file may be closed afterwards. Any thread: the only thing written after loading is a memo of
 * single bytes, each of which goes once from unset to set. */
#ifndef TOKENIZER_VOCAB_H
#define TOKENIZER_VOCAB_H

#include "gguf.h"
#include "tokenizer.h"

#include <stdatomic.h>

#define VOCAB_NONE 0xFFFFFFFFu

/* One string per token in one block: token i is data[at[i]] .. data[at[i + 1]]. */
struct strings {
    uint8_t *data;
    uint32_t *at;
};

enum vocab_text {
    VOCAB_BYTE_ALPHABET /* gpt2 */,
    VOCAB_LOWER_BLOCK /* llama: U+2581 is a space, <0x41> a byte */
};

struct vocab {
    uint32_t n;
    struct strings text; /* as stored */
    struct strings bytes;
    uint8_t *kind; /* enum tok_kind */
    float *score;  /* NULL when the file has none; never NaN */
    struct slot {
        uint32_t hash, id;
    } * words; /* open addressing over the bytes of tokens that plain text can become; id VOCAB_NONE = free */
    uint32_t words_mask;
    uint32_t one[256]; /* the word that is this one byte, or VOCAB_NONE */
    uint32_t byte_id
        [256]; /* the token that stands in for a byte without a word (llama: <0x41>; gpt2: the same as one) */
    uint32_t longest;     /* bytes of the longest word */
    _Atomic uint8_t *own; /* per token: 1 when its text is known to merge into just itself */
};

int vocab_load(struct vocab *v, const struct gguf_file *g, enum vocab_text how, struct vt_err *err);
void vocab_fini(struct vocab *v);

/* The token that plain bytes are; VOCAB_NONE when there is none. Control, user-defined and unknown tokens are not found
 * here: they are cut out of the text before. */
uint32_t vocab_word(const struct vocab *v, const uint8_t *s, size_t n);

/* Most pieces of a text are a token whose own text merges into just that token; that is worth remembering per token. */
static inline bool vocab_is_own(const struct vocab *v, uint32_t id)
{
    return atomic_load_explicit(&v->own[id], memory_order_relaxed);
}
static inline void vocab_set_own(const struct vocab *v, uint32_t id)
{
    atomic_store_explicit(&v->own[id], 1, memory_order_relaxed);
}

/* Whether plain text can become a token of this kind. */
static inline bool vocab_is_plain(uint8_t kind)
{
    return kind != TOK_CONTROL && kind != TOK_USER && kind != TOK_UNKNOWN;
}

/* Texts that end a generation whatever the file says about them, e.g. "<|im_end|>". */
bool vocab_is_end_text(const uint8_t *s, size_t n);

static inline const uint8_t *strings_at(const struct strings *s, uint32_t i, size_t *len)
{
    *len = s->at[i + 1] - s->at[i];
    return s->data + s->at[i];
}

/* Text of the byte alphabet to bytes; out has room for len. False when a character is outside the alphabet. */
bool byte_alphabet_decode(const char *s, size_t len, uint8_t *out, size_t *out_len);

#endif
