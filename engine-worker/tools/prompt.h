/* A question as the model's chat template puts it. */
#ifndef TOOL_PROMPT_H
#define TOOL_PROMPT_H

#include "tokenizer.h"

/* The ids of a conversation of one user message, after a system message when `system` is not NULL, up to where the answer
 * begins. Control tokens are read in the template's own words only. VT_E_PARAM when the file has no template. */
int prompt_chat(const struct tok *t, const char *system, const char *user, struct tok_ids *out,
                struct vt_err *err);

#endif
