/* Responses body: a request of the Responses API as a request for /v1/chat/completions. Nothing is kept of earlier responses:
 * their items come with the request. */
#ifndef API_RESPONSES_BODY_H
#define API_RESPONSES_BODY_H

#include "../http/error.h"

#include <jansson.h>

/* A new object, or NULL with the reason. */
json_t *responses_body(const json_t *body, struct api_err *e);

#endif
