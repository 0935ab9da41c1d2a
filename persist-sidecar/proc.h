/* A real vitriol-store process for tests: this side plays vitriold on its lifeline and one engine on a data link. */
#ifndef STORE_PROC_H
#define STORE_PROC_H

#include "puppet.h"
#include "sock.h"

#include <sys/types.h>

struct proc {
    char run[64], state[64]; /* folders, made and removed here */
    pid_t pid;
    struct vt_sock *life, *data;
    struct vt_enc enc;
    struct puppet p; /* the engine's end, after proc_link */
    bool linked;
    uint32_t serial;
    uint8_t *frame; /* the last lifeline frame that was waited for */
    size_t len;
    char noted[200]; /* what the last NOTE about the store said */
};

void proc_init(struct proc *x);
void proc_fini(struct proc *x);
/* Starts and waits for READY; extra: "section.key=value" settings, NULL-terminated, or NULL. 0, or the exit code. */
int proc_start(struct proc *x, const char *const *extra);
/* Opens a data link with a ring and shakes hands as the engine. 0, or -1. */
int proc_link(struct proc *x);
void proc_unlink(struct proc *x); /* the engine vanishes */
/* A lifeline frame of this type within ms. */
bool proc_wait(struct proc *x, uint8_t type, struct vt_frame *f, int ms);
void proc_send(struct proc *x); /* enc */
void proc_order(struct proc *x, unsigned verb);
void proc_kill(struct proc *x);        /* SIGKILL, reaped */
int proc_exit(struct proc *x, int ms); /* exit code, 128 + signal, or -1 */

#define PROC_LIFE 0x1000

#endif
