/* Pass: frames (frame.h) with open descriptors, between two processes of one machine: a sequenced-packet socket of the AF_UNIX
 * family. For what NNG cannot carry. One frame is one packet of at most VT_PASS_BYTES, with at most VT_PASS_FDS descriptors.
 * Nothing waits unless a function says so. */
#ifndef VT_PASS_H
#define VT_PASS_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VT_PASS_BYTES 8192
#define VT_PASS_FDS   8

/* A listening socket at a path that is unlinked first: the folder has to be the caller's. Returns it, or -1. */
int vt_pass_listen(const char *path, struct vt_err *err);
/* The next peer that is of this user or root, or -1 with nothing to tell when there is none. */
int vt_pass_accept(int listener);
/* VT_E_UNAVAILABLE: nobody listens there. */
int vt_pass_dial(const char *path, struct vt_err *err);

/* Copies; fds stay the caller's. VT_E_BUSY: the peer does not read. VT_E_UNAVAILABLE: it is gone. */
int vt_pass_send(int sock, const uint8_t *buf, size_t len, const int *fds, unsigned n_fds,
                 struct vt_err *err);
/* 1: a packet is in buf[VT_PASS_BYTES] and its descriptors, closed on exec, in fds[VT_PASS_FDS], the caller's from then on; 0: none
 * within wait_ms; -1: the peer is gone, or has sent what is no packet of ours. */
int vt_pass_recv(int sock, int wait_ms, uint8_t *buf, size_t *len, int *fds, unsigned *n_fds);
void vt_pass_close(int *fds, unsigned n_fds);

#endif
