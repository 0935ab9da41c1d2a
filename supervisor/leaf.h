/* Leaf: a cgroup (version 2) for each child, where the service manager has delegated vitriold's own to it. By its leaf a
 * child's whole tree is killed at once, whatever it did to its group and session; it is known when nothing of it is left;
 * and the kernel's out-of-memory kills are counted for each child. vitriold itself moves into the leaf "super", since a
 * cgroup that has leaves may hold no process.
 *
 * Without delegation, on hosts with version 1 only, and where anything is refused, nothing is touched: every call says so
 * and children are held by process group and sub-reaper alone, as they are anyway. Main thread. */
#ifndef LEAF_H
#define LEAF_H

#include <stdbool.h>
#include <stdint.h>

struct leaves {
    bool on;
    bool accounting; /* the memory controller counts in them */
    char path[512];  /* of the delegated cgroup */
};

/* Finds out, from the files below cgroup_root (/sys/fs/cgroup) and proc_root (/proc); l->on says what came of it. */
void leaves_open(struct leaves *l, const char *cgroup_root, const char *proc_root);
/* Makes the leaf of a child if it is not there: a descriptor for writing pids, -1 without leaves. */
int leaf_open(const struct leaves *l, const char *name);
/* SIGKILL to all that is in it. */
void leaf_kill(const struct leaves *l, const char *name);
/* Nothing is in it; true without leaves. */
bool leaf_empty(const struct leaves *l, const char *name);
/* A counter of its memory.events ("oom_kill", "high"); false where they are not counted. */
bool leaf_event(const struct leaves *l, const char *name, const char *event, uint64_t *n);
/* Writes a limit of the memory controller; false where there is none. */
bool leaf_put(const struct leaves *l, const char *name, const char *file, uint64_t bytes);
/* Removes an empty leaf. */
void leaf_remove(const struct leaves *l, const char *name);

#endif
