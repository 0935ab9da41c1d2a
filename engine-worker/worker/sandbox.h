/* Sandbox: what an engine gives up before it starts any thread: core dumps (they would hold conversations), sockets other
 * than AF_UNIX, and running other programs. */
#ifndef WORKER_SANDBOX_H
#define WORKER_SANDBOX_H

#include "err.h"

/* Holds for the calling thread and all that it starts later. */
int sandbox_enter(struct vt_err *err);

#endif
