/* Body: the bytes of a request's body to a JSON object. */
#ifndef API_BODY_H
#define API_BODY_H

#include "../http/error.h"

#include <jansson.h>

/* An object of bounded nesting whose numbers fit into 64 bit, or 400 that says what is wrong and where. NULL on failure. */
json_t *body_parse(const char *text, size_t n, struct api_err *e);

#endif
