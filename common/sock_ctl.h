/* The two shared endpoints of vitriold and their clients: `ctl` (request and reply) and `tele` (publish).
 *
 * Both listen on a path that must not exist yet, with bounded frames and queues, and are made anew when a
 * canary finds them deaf: somebody has removed the path, or put something else there. A server belongs to the
 * thread of its event loop; clients block, for at most the time they are given, and are for short-lived tools. */
#ifndef VT_SOCK_CTL_H
#define VT_SOCK_CTL_H

#include "err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VT_CTL_CONTEXTS  8
#define VT_CTL_MAX_FRAME (256u * 1024u)

struct vt_rep;

/* One request that waits for its reply. buf is borrowed until vt_rep_reply. */
struct vt_rep_call {
    unsigned ctx;
    const uint8_t *buf;
    size_t len;
    uid_t uid; /* kernel credentials of the asking process; (uid_t)-1 when unknown */
    gid_t gid;
    pid_t pid;
};

/* mode: of the socket, e.g. 0660. */
int vt_rep_listen(struct vt_rep **out, const char *path, mode_t mode, struct vt_err *err);
/* Readable when vt_rep_next may have something. */
int vt_rep_fd(const struct vt_rep *r);
/* 1: *call holds a request; 0: nothing there. */
int vt_rep_next(struct vt_rep *r, struct vt_rep_call *call);
/* Copies and sends. Every call must get one reply. */
int vt_rep_reply(struct vt_rep *r, unsigned ctx, const void *buf, size_t len, struct vt_err *err);
/* Closes the listener, and listens again on the same path; clients that wait are heard. */
int vt_rep_relisten(struct vt_rep *r, struct vt_err *err);
void vt_rep_close(struct vt_rep *r); /* NULL is fine; the path is unlinked */

struct vt_pub;

int vt_pub_listen(struct vt_pub **out, const char *path, mode_t mode, struct vt_err *err);
/* Copies and sends to whoever listens; lossy by design, never waits. */
int vt_pub_send(struct vt_pub *p, const void *buf, size_t len, struct vt_err *err);
int vt_pub_relisten(struct vt_pub *p, struct vt_err *err);
void vt_pub_close(struct vt_pub *p);

/* One call: VT_E_UNAVAILABLE when nobody listens, VT_E_DEADLINE when no reply came in time. *reply belongs to
 * the caller (vt_req_free). */
int vt_req_call(const char *path, const void *buf, size_t len, int timeout_ms, uint8_t **reply,
                size_t *reply_len, struct vt_err *err);
void vt_req_free(uint8_t *reply, size_t len);

struct vt_sub;

/* topic: first bytes of the frames wanted (95 01 tt selects a type); an empty one selects all. */
int vt_sub_dial(struct vt_sub **out, const char *path, const void *topic, size_t topic_len,
                struct vt_err *err);
/* 1: a frame, to be given back with vt_req_free; 0: none within timeout_ms; -1: broken. */
int vt_sub_recv(struct vt_sub *s, int timeout_ms, uint8_t **buf, size_t *len, struct vt_err *err);
void vt_sub_close(struct vt_sub *s);

#endif
