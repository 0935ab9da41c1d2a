/* Chat prompt: checks the conversation of a request and renders it with the model's template. */
#ifndef CHAT_PROMPT_H
#define CHAT_PROMPT_H

#include "draft.h"

#include <jansson.h>

struct chat_prompt {
    struct jinja_text t; /* what the client wrote is marked: it cannot speak as the template */
    bool open_think;     /* it ends inside a <think> */
};

/* From the draft's body. Errors name the field. */
int chat_prompt_make(struct chat_prompt *p, const struct draft *d, struct api_err *e);
/* Its ids. */
int chat_prompt_encode(const struct chat_prompt *p, const struct model *m, struct tok_ids *out,
                       struct api_err *e);
void chat_prompt_fini(struct chat_prompt *p);

#endif
