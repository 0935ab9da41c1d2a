/* Task: what /proc says of one process, read through one descriptor of its directory, so that all of it, and a later write,
 * is of the same process whatever becomes of its number. */
#ifndef SHIELD_TASK_H
#define SHIELD_TASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct task {
    pid_t pid, ppid, tracer;
    uid_t uid;
    uint64_t start; /* clock ticks since boot: with the pid it names a process for good */
    int adj;
    uint64_t bytes; /* resident and swapped out */
    char comm[32];
    char exe[512]; /* "" when it cannot be read: somebody else's, or a thread of the kernel */
    dev_t exe_dev;
    ino_t exe_ino;
    char cgroup[512]; /* path in the one hierarchy, else in systemd's named one; "" : neither */
    bool kernel, fuse;
    bool one_uid; /* real, effective and saved user are the same */
};

/* A descriptor of the process's directory below proc_root, or -1. */
int task_open(const char *proc_root, pid_t pid);
/* False when it is gone or unreadable. fuse is found out only with look_at_files, for it reads every descriptor. */
bool task_read(struct task *t, int dir, pid_t pid, bool look_at_files);
bool task_start(int dir, uint64_t *start);
bool task_adj(int dir, int *adj);
/* Sets oom_score_adj; -1 with errno. */
int task_set_adj(int dir, int adj);

#endif
