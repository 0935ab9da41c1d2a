/* The inside of compute.c and compute_cmds.c. */
#ifndef WORKER_COMPUTE_PRIV_H
#define WORKER_COMPUTE_PRIV_H

#include "compute.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAX_DIRTY 256

struct outbox {
    struct event *ev;
    size_t n, cap;
};

struct compute {
    struct compute_opts o;
    pthread_t thread;
    int fd;

    pthread_mutex_t lock; /* over everything down to `taken` */
    pthread_cond_t wake;
    struct cmd *inbox, **inbox_tail;
    struct outbox out;
    bool quit, ended, choked;
    struct compute_status status;
    unsigned phase;
    uint64_t done, total;
    bool progress_new;

    struct outbox taken; /* of the I/O thread alone */

    /* of the compute thread alone */
    uint64_t status_at, busy_at;
    bool signal, prompt_done;
    struct {
        uint32_t slot;
        bool turn_end;
    } dirty[MAX_DIRTY];
    unsigned n_dirty;
    bool not_finite;
    struct vt_err *broken;

    _Atomic(struct eng *) eng;
    atomic_ullong load_step, load_stamp;
};

struct vt_err *compute_copy_err(const struct vt_err *err);
/* Takes over what the event owns. */
void compute_push(struct compute *c, const struct event *ev);
void compute_run_cmd(struct compute *c, struct cmd *m);

#endif
