/* What the generating endpoints share on their way from a body to token ids. */
#ifndef BODY_H
#define BODY_H

#include "../gateway.h"
#include "answer.h"
#include "params.h"

/* The body as an object; NULL after an error was sent. */
json_t *body_read(struct http_req *r);
/* params_parse with this gateway's vocabulary and slots. */
int body_params(struct gateway *gw, const json_t *body, struct params *p, struct api_err *e);

/* A text that cannot fit even if every token were the longest one is refused without looking at it: the loop serves others
 * meanwhile. */
int body_too_long(const struct gateway *gw, size_t n, const char *param, struct api_err *e);
/* Text to ids. flags: enum of tokenizer.h. */
int body_encode(struct gateway *gw, const char *text, size_t n, unsigned flags, const char *param,
                struct answer_prompt *out, struct api_err *e);
/* `prompt` in any of its forms to one or several prompts (malloc'd array). want_text: keep the text of each. */
int body_prompts(struct gateway *gw, const json_t *prompt, const char *param, bool want_text,
                 struct answer_prompt **out, unsigned *n, struct api_err *e);
void body_free_prompts(struct answer_prompt *p, unsigned n);
/* Text of ids, control tokens included, invalid bytes replaced. */
void body_text_of(const struct gateway *gw, const uint32_t *ids, size_t n, struct buf *out);

#endif
