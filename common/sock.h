/* Sockets: the one constructor for NNG (docs/ARCHITECTURE.md, "Wire"; a lint forbids nng_*_open elsewhere).
 *
 * Every socket gets a receive limit, bounded queues and bounded waits. A PAIR socket belongs to one link: one listener,
 * one dialer, one life. All calls are non-blocking; receive readiness is a descriptor for the event loop. A socket is
 * used and closed from one thread. Paths are at most 107 bytes and must not exist yet when listening. */
#ifndef VT_SOCK_H
#define VT_SOCK_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct vt_sock;

struct vt_sock_opts {
    size_t max_frame; /* bytes; both directions are checked */
    int queue;        /* frames, each direction */
    uid_t peer_uid;   /* expected peer; (uid_t)-1 = any */
    pid_t peer_pid;   /* expected peer; 0 = any. Checked from kernel credentials before a byte is parsed */
};

int vt_sock_listen(struct vt_sock **out, const char *path, const struct vt_sock_opts *o, struct vt_err *err);
int vt_sock_dial(struct vt_sock **out, const char *path, const struct vt_sock_opts *o, struct vt_err *err);
void vt_sock_close(struct vt_sock *s); /* NULL is fine */

/* Readable when vt_sock_recv may have something. Level-triggered. */
int vt_sock_recv_fd(const struct vt_sock *s);
/* Readable when a pipe came or went: vt_sock_events tells which. */
int vt_sock_event_fd(const struct vt_sock *s);

enum { VT_SOCK_UP = 1, VT_SOCK_DOWN = 2, VT_SOCK_REFUSED = 4 };
/* What happened since the last call (bits), and the last peer's kernel credentials. */
unsigned vt_sock_events(struct vt_sock *s, pid_t *peer_pid, uid_t *peer_uid);

/* 1: *buf, *len hold a frame, to be given back with vt_sock_msg_free; 0: nothing there; -1: the socket is broken. */
int vt_sock_recv(struct vt_sock *s, uint8_t **buf, size_t *len);
void vt_sock_msg_free(uint8_t *buf, size_t len);

/* Takes what is there, at most max frames, until take says false: it has closed the socket, or wants no more. -1: the
 * socket is broken. */
typedef bool (*vt_sock_take)(void *arg, const uint8_t *buf, size_t len);
int vt_sock_drain(struct vt_sock *s, int max, vt_sock_take take, void *arg);

/* Copies and queues. 0: queued; -1 with VT_E_BUSY when the queue is full, VT_E_TOO_LARGE when over max_frame. */
int vt_sock_send(struct vt_sock *s, const void *buf, size_t len, struct vt_err *err);

/* Logs nng_version() problems: -1 below 1.5.2. */
int vt_sock_check_library(struct vt_err *err);

#endif
