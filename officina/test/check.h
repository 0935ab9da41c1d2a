/* What a strict server finds wrong in a chat request, and how far it agrees with an earlier one. Pure; any
 * thread. */
#ifndef OFF_TEST_CHECK_H
#define OFF_TEST_CHECK_H

#include "script.h"

#include <jansson.h>

/* Appends a sentence to `problems` (array of strings) for each fault: unknown roles, two messages of one
 * role in a row, a system message that is not first, a tool message that answers no open call, a call left
 * open, ids that repeat, arguments that are no object, content that is missing. provider: also what a strict
 * provider refuses: reasoning sent back, ids that are not nine letters or digits, a user message behind a
 * tool's, members it does not know. Returns the HTTP status it would answer with: 200, 400, or 500 for
 * arguments that cannot be read. */
int check_chat(const json_t *body, bool provider, json_t *problems);

/* Appends what the block expected and did not find. `common` and `before` are bytes of the prompt shared
 * with the one before, and its length. */
void check_expects(const struct block *b, const json_t *body, size_t common, size_t before, json_t *problems);

/* The prompt as one text: the tools and then each message, as compact JSON, a line each. malloc'd. */
char *check_prompt(const json_t *body);
size_t check_common(const char *a, const char *b); /* bytes of the common prefix */

#endif
