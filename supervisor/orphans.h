/* Orphans: processes that a dead predecessor left behind, and grandchildren that outlived their parent. Both are found in
 * /proc and ended through pidfds, never by a remembered number. */
#ifndef ORPHANS_H
#define ORPHANS_H

#include "log.h"

#include <sys/types.h>

#define ORPHANS_LEFT 16

/* What did not end. */
struct orphans {
    struct {
        int pidfd;
        pid_t pid;
        char child[24]; /* whose generation it was */
    } left[ORPHANS_LEFT];
    unsigned n;
};

/* At start, holding the lock: processes of this uid whose environment names this run directory and another instance get 5 s
 * (a gateway is ending its streams), then SIGKILL and 2 s more. Blocks for that time at most. What is there even then is kept
 * in o, which is zeroed before. Returns how many there were. */
int orphans_sweep(struct orphans *o, const char *proc_root, const char *run_dir, const char *instance,
                  struct vt_log *log);
/* One of that child's that is still there, 0: none. */
pid_t orphans_left(struct orphans *o, const char *child);
void orphans_close(struct orphans *o);

/* Our children that are not in `known`: adopted grandchildren. Kills them, reaps the dead. Returns how many still live. */
int orphans_adopted(const pid_t *known, unsigned n_known);

#endif
