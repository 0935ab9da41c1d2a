/* Draft: what is made of a request's body before anything is asked of an engine: JSON, parameters, template, token ids. It
 * depends on the body and on what never changes, so a large one is worked on by a thread of its own (scribe.h) while the
 * loop serves others. */
#ifndef DRAFT_H
#define DRAFT_H

#include "answer.h"

struct draft {
    /* given */
    const struct model *model;
    uint32_t window, slots; /* as they were when the request came */
    uint64_t wall_us;
    const json_t *body;
    /* made: either prompts to generate from, or a whole reply */
    struct params p;
    struct answer_opts o;
    struct answer_prompt *prompts;
    unsigned n_prompts;
    json_t *reply;
};

/* Fills the draft or says why not. Any thread. */
typedef int (*draft_fn)(struct draft *d, struct api_err *e);

/* A body in another form: converted for `as`, and given back as it was. */
int draft_converted(struct draft *d, json_t *(*convert)(const json_t *body, struct api_err *e), draft_fn as,
                    struct api_err *e);
/* params_parse with the model's vocabulary and the slots. */
int draft_params(struct draft *d, struct api_err *e);
/* A text that cannot fit even if every token were the longest one is refused; without looking at it when it is long. */
int draft_too_long(const struct draft *d, size_t n, const char *param, struct api_err *e);
enum { DRAFT_PROMPTS = 256 /* of one request that generates */ };
/* `prompt` in any of its forms to one or several prompts, `most` at most. want_text: keep the text of each. */
int draft_prompts(struct draft *d, const char *param, bool want_text, unsigned most, struct api_err *e);
void draft_fini(struct draft *d);

/* Text of ids, control tokens included, invalid bytes replaced. */
void model_text(const struct model *m, const uint32_t *ids, size_t n, struct buf *out);

#endif
