/* Openai chat: how a chat request becomes a draft, for surfaces that say the same in another form. */
#ifndef API_OPENAI_CHAT_H
#define API_OPENAI_CHAT_H

#include "draft.h"

/* d->body is a request of /v1/chat/completions. */
int chat_draft(struct draft *d, struct api_err *e);
/* The reply is its number of prompt tokens, "input_tokens". */
int chat_draft_count(struct draft *d, struct api_err *e);

#endif
