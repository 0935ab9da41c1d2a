/* Tokenizer: text to token ids and back, from a GGUF file's tokenizer metadata. Used by gateway (text) and engine (token
 * bytes). Immutable after tok_load; any thread may use it. Bytes in, bytes out: invalid UTF-8 is encoded, never refused. */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "err.h"
#include "gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok;

/* A growing array of ids, owned by the caller: zero it first, tok_ids_fini at the end. */
struct tok_ids {
    uint32_t *ids;
    size_t n, cap;
};
void tok_ids_fini(struct tok_ids *v);
int tok_ids_push(struct tok_ids *v, uint32_t id, struct vt_err *err);

enum {
    TOK_ADD_SPECIAL = 1,   /* bos/eos as the model asks */
    TOK_PARSE_SPECIAL = 2, /* read control tokens in the text; user-defined ones are always read */
    TOK_AS_IS = 4,         /* no Unicode normalization, which qwen vocabularies otherwise apply (NFC) */
};

/* Copies what it needs: g may be closed afterwards. Errors: VT_E_PAYLOAD (names the key), VT_E_NOMEM. */
int tok_load(struct tok **out, const struct gguf_file *g, struct vt_err *err);
void tok_free(struct tok *t); /* t may be NULL */

/* Appends to out; on failure out holds what it held before. Linear in len (n log n in an unbroken word) for every input.
 * Decoding gives the text back byte by byte, unless normalization or a space prefix of the model changed it. */
int tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags, struct tok_ids *out,
               struct vt_err *err);

/* A text of trusted and untrusted stretches: a stretch goes from the end of the one before to `end`. */
struct tok_span {
    size_t end;
    bool trusted;
};
/* As tok_encode with TOK_PARSE_SPECIAL, but a control token is read only where all of its bytes are trusted: user content
 * cannot speak as the template. The ids of everything else are those of the whole text. The last span ends at len. */
int tok_encode_spans(const struct tok *t, const char *text, size_t len, const struct tok_span *spans,
                     size_t n_spans, unsigned flags, struct tok_ids *out, struct vt_err *err);

/* Raw bytes of a token (control tokens: their text). NULL when id is out of range. */
const uint8_t *tok_bytes(const struct tok *t, uint32_t id, size_t *len);
/* The token's text as stored in the file (for /props and logit names). */
const char *tok_text(const struct tok *t, uint32_t id, size_t *len);

enum tok_kind {
    TOK_NORMAL = 1,
    TOK_UNKNOWN = 2,
    TOK_CONTROL = 3,
    TOK_USER = 4,
    TOK_UNUSED = 5,
    TOK_BYTE = 6
};
enum tok_kind tok_kind(const struct tok *t, uint32_t id); /* TOK_UNUSED when id is out of range */

uint32_t tok_n_vocab(const struct tok *t);
int32_t tok_bos(const struct tok *t); /* -1 = none */
int32_t tok_eos(const struct tok *t);
bool tok_adds_bos(const struct tok *t);
bool tok_adds_eos(const struct tok *t);
/* Whether the vocabulary puts a space before a text (llama): a decoder drops one leading space of a text's first token. */
bool tok_adds_space(const struct tok *t);
/* Tokens that the file names by their purpose, those of fill-in-the-middle by their usual texts, too; -1 = none. */
enum tok_purpose {
    TOK_FOR_BOS,
    TOK_FOR_EOS,
    TOK_FOR_EOT,
    TOK_FOR_EOM,
    TOK_FOR_UNKNOWN,
    TOK_FOR_PADDING,
    TOK_FOR_FIM_PRE,
    TOK_FOR_FIM_SUF,
    TOK_FOR_FIM_MID,
    TOK_FOR_FIM_PAD,
    TOK_FOR_FIM_REP,
    TOK_FOR_FIM_SEP,
    TOK_N_PURPOSES
};
int32_t tok_for(const struct tok *t, enum tok_purpose purpose);
bool tok_is_eog(const struct tok *t, uint32_t id); /* ends a generation: eos, eot, and friends */
/* The ids for which tok_is_eog holds, ascending; count returned, array owned by t. */
size_t tok_eog_ids(const struct tok *t, const uint32_t **ids);
/* The id of an exact token text as stored, -1 when there is none. */
int32_t tok_find(const struct tok *t, const char *text, size_t len);
/* tokenizer.chat_template of the file, NULL when absent; not NUL-terminated. */
const char *tok_chat_template(const struct tok *t, size_t *len);
/* SHA-256 over everything that changes ids. */
void tok_sha256(const struct tok *t, uint8_t out[32]);

#endif
