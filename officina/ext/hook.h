/* What extensions contribute beyond tools: verdicts before a call, notes before a request, commands, and what they are
 * told of. Used by ext.c alone. */
#ifndef OFF_EXT_HOOK_H
#define OFF_EXT_HOOK_H

#include "ext/server.h"

struct hook *hook_new(void);
void hook_free(struct hook *h);

#endif
