/* Ctl http: one GET to the local gateway, for what only the gateway knows. */
#ifndef CTL_HTTP_H
#define CTL_HTTP_H

#include "err.h"

#include <jansson.h>

/* The answer's JSON (owned), or NULL. key_file: NULL, or a file whose first line is an API key. Waits 3 s at most. */
json_t *http_get_json(const char *address, const char *path, const char *key_file, struct vt_err *err);

#endif
