/* Sandbox: what engine and store give up before they start any thread: core dumps (they would hold conversations),
 * sockets other than AF_UNIX, and running other programs. */
#ifndef VT_SANDBOX_H
#define VT_SANDBOX_H

#include "err.h"

/* Holds for the calling thread and all that it starts later. */
int vt_sandbox_enter(struct vt_err *err);

#endif
