/* Secrets: what must not reach the store, the wire or a child. Pure; any thread. */
#ifndef OFF_SECRETS_H
#define OFF_SECRETS_H

#include "util/text.h"

#include <stdbool.h>

/* Replaces, in a copy appended to out, private-key blocks, tokens of well-known shapes, and the values of
 * NAME=value, NAME: value and "name": "value" with key-like names by [redacted abcd], where abcd tells equal
 * secrets from different ones. in_key carries a key block over calls (lines come one by one); start with
 * false. Returns how many were replaced. */
int secrets_redact(const char *s, size_t n, struct text *out, bool *in_key);
/* The same for one line of a file for which secrets_path() holds: whatever stands behind a name, a `password` or alone in a
 * line is taken for a secret, comments and headings are not. */
int secrets_redact_line(const char *s, size_t n, struct text *out, bool *in_key);
/* Does a key block that began in s[0..n) go on behind it? What in_key has to begin with where a text is shown from there on. */
bool secrets_in_key(const char *s, size_t n);
/* A file whose name says that it holds credentials: .env*, keys, …; asked for even when reading. */
bool secrets_path(const char *path);
/* May this variable of the environment go to a child? An allow list of names. */
bool secrets_env(const char *name);

#endif
