/* What a project's own configuration would do, and its hash: trust is given to these bytes. Any thread. */
#ifndef OFF_TRUST_H
#define OFF_TRUST_H

#include "err.h"
#include "util/text.h"

#include <stdint.h>

/* Hash of everything below root/.officina (names, modes, bytes; links by their target), and a line for each
 * thing that would count: rules, skills, commands, extensions. Returns 1, or 0 when there is no such folder,
 * -1 with err. */
int trust_look(const char *root, uint8_t hash[32], struct text *lines, struct vt_err *err);

#endif
