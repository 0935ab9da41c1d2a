/* Rundir: the run directory and its lock, the state directory, and the numbers that never repeat in it.
 *
 * The lock comes before any socket: a second instance must not touch the first one's. It is a POSIX record lock, so that
 * the kernel names its holder to whoever asks and that it ends with the process. */
#ifndef RUNDIR_H
#define RUNDIR_H

#include "config.h"
#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RUNDIR_MAX  65 /* bytes of the path; the longest socket path below it stays under the kernel's 107 */
#define RUNDIR_FILE 128

struct rundir {
    char run[RUNDIR_MAX + 1];
    char state[512];
    char in[RUNDIR_MAX + 5]; /* run/int */
    char lock[RUNDIR_FILE];  /* run/lock */
    char ctl[RUNDIR_FILE], tele[RUNDIR_FILE], address[RUNDIR_FILE];
    int lock_fd, state_fd;
    dev_t lock_dev;
    ino_t lock_ino;
};

/* The default when paths.run_dir is empty: $RUNTIME_DIRECTORY, /run/vitriol for root, $XDG_RUNTIME_DIR/vitriol,
 * /tmp/vitriol-UID. Shared with the tools that look for a running vitriold. */
int rundir_default_run(const struct vt_config *cfg, char *out, size_t size, struct vt_err *err);
/* Fills the paths. */
int rundir_resolve(struct rundir *d, const struct vt_config *cfg, struct vt_err *err);
/* Makes the directories with their modes, owned by uid and gid; refuses ones that others may write. */
int rundir_make(struct rundir *d, uid_t uid, gid_t gid, struct vt_err *err);
/* Both directories; VT_E_UNAVAILABLE names the holder, with its run directory where the state directory is taken. */
int rundir_lock(struct rundir *d, struct vt_err *err);
/* Removes what a dead predecessor left: sockets and rings. */
int rundir_clean(const struct rundir *d, struct vt_err *err);
/* The first of a block of link numbers that no earlier instance used. */
int rundir_link_block(const struct rundir *d, uint32_t *first, struct vt_err *err);
/* 1: the lock file still has its name; 0: it had to be made anew (and was); -1: that failed. */
int rundir_keep(struct rundir *d, struct vt_err *err);
/* Writes one line, whole or not at all. */
int rundir_write(const char *path, const char *line, struct vt_err *err);
void rundir_release(struct rundir *d);
/* The pid that holds the lock of a run directory, 0: nobody, -1: not readable. */
pid_t rundir_holder(const char *run);

#endif
