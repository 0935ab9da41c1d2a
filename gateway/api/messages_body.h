/* Messages body: a request of the Messages API as a request for /v1/chat/completions. What both say alike, and what only
 * llama-server knows, goes through as it is. */
#ifndef API_MESSAGES_BODY_H
#define API_MESSAGES_BODY_H

#include "../http/error.h"

#include <jansson.h>

/* A new object, or NULL with the reason. */
json_t *messages_body(const json_t *body, struct api_err *e);

#endif
