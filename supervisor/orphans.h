/* Orphans: processes that a dead predecessor left behind, and grandchildren that outlived their parent. Both are found in
 * /proc and ended through pidfds, never by a remembered number. */
#ifndef ORPHANS_H
#define ORPHANS_H

#include "log.h"

#include <sys/types.h>

/* At start, holding the lock: processes of this uid whose environment names this run directory and another instance get 5 s
 * (a gateway is ending its streams), then SIGKILL. Blocks for that time at most. Returns how many there were. */
int orphans_sweep(const char *proc_root, const char *run_dir, const char *instance, struct vt_log *log);

/* Our children that are not in `known`: adopted grandchildren. Kills them, reaps the dead. Returns how many still live. */
int orphans_adopted(const pid_t *known, unsigned n_known);

#endif
