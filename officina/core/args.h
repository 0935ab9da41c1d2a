/* Arguments of tool calls as models write them: read strictly, mended only where the meaning is certain. Pure. */
#ifndef OFF_ARGS_H
#define OFF_ARGS_H

#include "util/json.h"

struct args {
    json_t *value; /* the object; NULL: see fault */
    char *repair;  /* what was mended, one sentence; NULL: nothing */
    char *fault;   /* what is wrong and where */
};

/* schema: JSON text of the tool's schema (object with properties and required), or NULL. */
void args_read(struct args *a, const char *bytes, size_t n, const char *schema);
void args_free(struct args *a);

#endif
