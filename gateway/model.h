/* Model facts: what the gateway knows of the served file (name, tokenizer, chat template, figures for /v1/models and
 * /props), read once at start. Immutable afterwards. */
#ifndef MODEL_H
#define MODEL_H

#include "err.h"
#include "gguf.h"
#include "template/caps.h"
#include "template/jinja.h"
#include "tokenizer.h"
#include "toolcall/dialect.h"

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_POOLING_NONE, MODEL_POOLING_MEAN, MODEL_POOLING_CLS, MODEL_POOLING_LAST, MODEL_POOLING_RANK };

struct model {
    char alias[128]; /* what clients call it */
    char path[4096];
    char name[128]; /* general.name, or the file's */
    char arch[64], ftype[48], vocab[32];
    struct tok *tok;
    struct jinja *tmpl; /* NULL: the file has none, or it does not parse (tmpl_error) */
    char *tmpl_text;    /* NUL-terminated, NULL when there is none */
    char tmpl_error[256];
    struct template_caps caps;       /* what tmpl can show; all false without one */
    const struct dialect *dialect;   /* never NULL once loaded */
    const struct think_marks *think; /* the same */
    struct model_marks {
        int32_t id[DIALECT_TOKENS];
        unsigned n;
    } think_ids, call_ids; /* control tokens that stand for marks of these */
    uint64_t n_ctx_train, n_embd, n_params, bytes;
    uint64_t pooling;     /* as the file says it; MODEL_POOLING_NONE where it says nothing */
    char file[GGUF_KEY];  /* which file it was */
    int64_t created;      /* wall seconds of the start */
    size_t longest_token; /* bytes */
};

/* On failure only alias and path are set, and tok is NULL: nothing can be served, but the gateway can say so. */
int model_load(struct model *m, const char *path, const char *alias, struct vt_err *err);
void model_fini(struct model *m);

/* Text of an id as a client reads it: nothing for the end of a turn and for control tokens. */
const uint8_t *model_piece(const struct model *m, uint32_t id, size_t *len);

/* Text of a control token that is a mark of reasoning or of calls, where that is looked for; NULL for all others. */
const uint8_t *model_mark(const struct model *m, uint32_t id, bool think, bool calls, size_t *len);

#endif
