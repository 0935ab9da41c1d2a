/* Programs: where the other programs of this build lie: beside the running one, in the folders of $VITRIOL_LIBEXEC (a
 * colon-separated list, for build trees), then where they are installed. */
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include "err.h"

#include <stddef.h>

int program_find(const char *name, char *out, size_t size, struct vt_err *err);

#endif
