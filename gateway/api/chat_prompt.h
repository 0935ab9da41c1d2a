/* Chat prompt: checks the conversation of a request and renders it with the model's template. */
#ifndef CHAT_PROMPT_H
#define CHAT_PROMPT_H

#include "../gateway.h"

#include <jansson.h>

struct chat_prompt {
    struct jinja_text t; /* what the client wrote is marked: it cannot speak as the template */
    bool open_think;     /* it ends inside a <think> */
};

/* body: the request. Errors name the field. */
int chat_prompt_make(struct chat_prompt *p, struct gateway *gw, const json_t *body, struct api_err *e);
/* Its ids. */
int chat_prompt_encode(const struct chat_prompt *p, const struct gateway *gw, struct tok_ids *out,
                       struct api_err *e);
void chat_prompt_fini(struct chat_prompt *p);

#endif
