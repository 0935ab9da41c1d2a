/* Tool list: the shapes of the field `tools`. What a schema in it says is looked at only where a call is forced: the others must
 * not die of a word that a grammar cannot do. */
#ifndef TOOL_LIST_H
#define TOOL_LIST_H

#include "../http/error.h"

#include <jansson.h>

/* body: the request. 0, or -1 with a 400 that names the place. */
int tool_list_check(const json_t *body, struct api_err *e);

#endif
