/* Ctl http: one request to the local gateway, for what only the gateway knows. */
#ifndef CTL_HTTP_H
#define CTL_HTTP_H

#include "err.h"

#include <jansson.h>

/* The answer's JSON (owned), or NULL. key_file: NULL, or a file whose first line is an API key. Waits 3 s at most. */
json_t *http_get_json(const char *address, const char *path, const char *key_file, struct vt_err *err);

/* A POST whose answer is a stream of events, each given to event as its JSON (borrowed). 0 once the stream has ended, -1: what
 * went wrong, an error event included. Waits silence_s for each next line. */
int http_post_events(const char *address, const char *path, const json_t *body, const char *key_file,
                     int silence_s, void (*event)(void *arg, const json_t *e), void *arg, struct vt_err *err);

#endif
