/* Confine: what the process gives up before it reads a byte from a client. */
#ifndef CONFINE_H
#define CONFINE_H

#include "err.h"

/* Limits, no_new_privs and the filter of system calls, for this and every later thread. After it: no exec, no ioctl, no
 * executable mappings, no sockets but AF_UNIX. Call before the first NNG socket. */
int confine_enter(struct vt_err *err);

#endif
