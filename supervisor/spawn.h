/* Spawn: fork and exec of one child, from the main thread only (the parent-death signal follows the thread).
 *
 * The child gets exactly: 0 /dev/null, 1 and 2 the log pipe, 3 the nonce pipe, 4… the extra descriptors; an environment
 * built here; its own process group; default signals; no core files. What is executed is the descriptor opened at
 * vitriold's start, not the path. Between fork and exec only async-signal-safe calls are made. */
#ifndef SPAWN_H
#define SPAWN_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SPAWN_EXTRA_MAX 8

struct spawn_req {
    int exe_fd;
    const char *const *argv; /* NULL-terminated; argv[0] is the program's path, for people */
    const char *const *envp;
    int log_fd;   /* write end */
    int nonce_fd; /* read end */
    const int *extra;
    int n_extra;
    int death_signal;
    bool change_user; /* to uid and gid; supplementary groups are those of the caller without root's */
    uid_t uid;
    gid_t gid;
    int leaf_fd; /* cgroup.procs that it enters before anything else; 0 or less: none */
};

/* Returns the pid and a pidfd, or -1 with the step that failed in the child. */
int spawn(const struct spawn_req *r, pid_t *pid, int *pidfd, struct vt_err *err);

/* Opens a child's program: VT_E_NO_INPUT when it is not there. */
int spawn_open(const char *path, struct vt_err *err);

/* The environment of a child: the allowed names from ours, then VITRIOL_*. Owned by the caller (spawn_env_free). */
struct spawn_env {
    char **envp;
    unsigned n;
};
int spawn_env_make(struct spawn_env *e, char **from, const char *instance, const char *run_dir,
                   const char *child, uint32_t gen);
void spawn_env_free(struct spawn_env *e);
/* First 4 hex digits of a hash over what changes a child's answers, which is the time zone alone. */
void spawn_env_hash(const struct spawn_env *e, char out[5]);

#endif
