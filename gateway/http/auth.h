/* API keys: none configured means open. Keys are compared by their digests in constant time. Immutable after loading. */
#ifndef AUTH_H
#define AUTH_H

#include "server.h"

struct auth;

/* path "": no keys. The file has one key a line (# begins a comment), belongs to us or root and is closed to others:
 * otherwise VT_E_CONFIG. */
int auth_load(struct auth **out, const char *path, struct vt_err *err);
void auth_free(struct auth *a);
/* Does the request carry a key that is known? Authorization: Bearer K (or K alone), else X-Api-Key: K. */
bool auth_ok(const struct auth *a, const char *authorization, const char *x_api_key);

#endif
