/* Past: the launches that a state directory remembers, for when no vitriold runs. The store's program reads them, since only
 * it knows its database. */
#ifndef PAST_H
#define PAST_H

#include "err.h"

#include <jansson.h>

/* As verb "fingerprint" answers, with nothing current; owned. state: the state directory, NULL for the configured one.
 * NULL: VT_E_NO_INPUT and others, naming the directory. */
json_t *past_launches(const char *state, struct vt_err *err);

#endif
