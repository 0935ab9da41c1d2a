/* Programs that tools run: one in a session of its own, output and errors in one pipe, nothing on its input,
 * a cleaned environment, limits, a time; ended as a whole and with nothing left over.
 *
 * Between us and the program stands a nurse: a small process that collects orphans (sub-reaper), so that
 * when the shell ends what it left behind is ended too, also if it moved to another session. It obeys
 * SIGTERM (terminate everything), SIGUSR1 (kill everything) and does the latter when we die. Wait for `out`
 * and `report`. One thread. */
#ifndef OFF_PROC_H
#define OFF_PROC_H

#include "tools/box.h"

#include <stdint.h>
#include <sys/types.h>

struct proc {
    pid_t nurse;                             /* 0: ended and collected */
    int out;                                 /* the pipe's read end, not blocking; -1 when it has ended */
    int report;                              /* the nurse's last word; readable when it ends. -1: collected */
    int status;                              /* the program's exit status once ended; 128 + n: by signal n */
    int left;                                /* processes that it had left behind */
    uint64_t deadline, kill_at, drain_until; /* monotonic microseconds; 0: none */
    bool timed_out, cancelled, ended;
};

struct proc_spec {
    const struct box *box;
    struct box_way way;
    const char *command, *dir;
    unsigned seconds; /* 0: no limit */
    char **argv;      /* instead of command: this program, outside the box (box may be NULL) */
    char **
        env; /* with argv: names of variables that it gets beyond the allow list, NULL-terminated; NULL: none */
    int in;  /* its standard input; -1: nothing */
    int err; /* its standard error; -1: with the output */
};

int proc_start(struct proc *p, const struct proc_spec *s, uint64_t now, struct vt_err *err);
/* SIGTERM to all of it now, SIGKILL a second later. */
void proc_end(struct proc *p, uint64_t now);
void proc_kill(struct proc *p);
/* Looks whether it has ended and whether a time has come. True once it has ended and its pipe is drained (or
 * 200 ms have passed): then status, left, timed_out say how. Reading `out` is the caller's; it sets out to
 * -1 after closing it at its end. */
bool proc_work(struct proc *p, uint64_t now);
/* When proc_work() wants to be called; 0: not before the pipe says something. */
uint64_t proc_deadline(const struct proc *p);
/* Waits for its end after a kill, at most two seconds (for closing down). */
void proc_reap(struct proc *p);
uint64_t proc_now(void);

#endif
