/* Sandbox: what a process gives up before it reads what strangers wrote: limits and a filter of system calls. The filter and
 * no_new_privs hold for every thread, those that exist already too. */
#ifndef VT_SANDBOX_H
#define VT_SANDBOX_H

#include "err.h"

#include <stdint.h>

/* Engine and store: no core dumps (they would hold conversations), no sockets other than AF_UNIX, no other programs. */
int vt_sandbox_enter(struct vt_err *err);

/* The parts, for a process that gives up more. */
int vt_sandbox_limit(int what, uint64_t n,
                     struct vt_err *err); /* RLIMIT_*: never raised above its hard limit */
/* rules adds its rules to a scmp_filter_ctx and returns 0 or -errno; `otherwise` (SCMP_ACT_*) is for calls without a rule. */
int vt_sandbox_filter(uint32_t otherwise, int (*rules)(void *filter), struct vt_err *err);

#endif
