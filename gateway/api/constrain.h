/* Constrain: the fields of a request that say what its answer must look like (grammar, json_schema, response_format), from the
 * body to the bytes that an engine takes. What is asked for and cannot be done is an error: an answer is never free instead. */
#ifndef CONSTRAIN_H
#define CONSTRAIN_H

#include "../grammar/grammar.h"
#include "../http/error.h"

#include <jansson.h>

struct constrain {
    struct grammar *g; /* NULL: nothing is asked for */
    uint32_t root;     /* its rule for the answer */
    const char *param; /* the field, for messages */
    char *text;        /* GBNF as it came, for generation_settings; NULL: from a schema */
    uint8_t *bytes;    /* after constrain_finish */
    size_t n_bytes;
};

/* c: zeroed. */
int constrain_read(struct constrain *c, const json_t *body, struct api_err *e);
/* Makes c->g for the field param; an error when another field has made it. The caller sets c->root. */
int constrain_begin(struct constrain *c, const char *param, struct api_err *e);
/* Makes the bytes. */
int constrain_finish(struct constrain *c, struct api_err *e);
void constrain_fini(struct constrain *c);

#endif
