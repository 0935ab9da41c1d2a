/* The inside of child.c and link.c; nobody else includes it. */
#ifndef VT_CHILD_PRIV_H
#define VT_CHILD_PRIV_H

#include "handshake.h"
#include "link.h"

/* Frames taken from one socket before the loop turns to the others. */
#define VT_DRAIN_MAX 64

/* Encoded frames that wait for room, in order. */
struct vt_waiting {
    struct vt_waiting *next;
    size_t len;
    uint8_t bytes[];
};
struct vt_wait_list {
    struct vt_waiting *first, **tail;
    unsigned n;
};

struct vt_link {
    struct vt_child *child;
    struct vt_link *next;
    uint32_t id, peer_pid;
    size_t max_frame;
    bool dial, up, dead;
    char peer_role[32], path[108];
    uint8_t nonce[VT_NONCE_LEN];
    struct vt_sock *sock;
    sd_event_source *recv_src, *event_src, *timer, *post_timer;
    struct vt_wait_list waiting;
    uint64_t deadline; /* of the handshake, monotonic */
    struct vt_enc enc;
    void *bulk, *user;
    size_t bulk_bytes;
};

struct vt_child {
    sd_event *ev;
    struct vt_child_args args;
    char role[32], dir[108];
    uint64_t caps;
    const struct vt_child_ops *ops;
    void *arg;
    struct vt_log *log;
    const struct vt_clock *clock;

    struct vt_sock *sock;
    sd_event_source *recv_src, *event_src, *hello_timer, *beat_timer, *lost_timer, *parent_src, *sweep_src;
    sd_event_source *signal_src[3];
    pid_t parent;
    int parent_fd;
    bool welcomed, orphan;
    uint32_t link_id;
    uint64_t started, beat_us, turns, stale;
    struct vt_enc enc;
    struct vt_wait_list waiting;
    struct vt_link *links;
};

/* LINK_OPEN. */
void vt_link_open(struct vt_child *c, const struct vt_frame *f);
/* Ends all links without a word to the supervisor. */
void vt_link_close_all(struct vt_child *c);
/* Frees links that ended. Never called from inside a link's own callback. */
void vt_link_sweep(struct vt_child *c);

void vt_wait_init(struct vt_wait_list *w);
void vt_wait_fini(struct vt_wait_list *w);
/* -1 when the list is full or memory is out. */
int vt_wait_keep(struct vt_wait_list *w, const uint8_t *buf, size_t len);
/* Sends from the front until the socket is full; true when the list is empty then. */
bool vt_wait_flush(struct vt_wait_list *w, struct vt_sock *s);

/* Sends behind what waits. -1 with VT_E_BUSY when some of that, or this, has to wait on. */
int vt_wait_send(struct vt_wait_list *w, struct vt_sock *s, const uint8_t *buf, size_t len,
                 struct vt_err *err);

/* A one-shot timer that is armed again by sd_event_source_set_time_relative. */
int vt_timer(sd_event *ev, sd_event_source **src, uint64_t after_us, sd_event_time_handler_t fn, void *arg);
/* Decides what to do with a frame of an unknown type: 0 drop, -1 end the link. */
int vt_unknown(struct vt_child *c, const struct vt_frame *f);
/* Logs the first bytes (the envelope, no content) of a frame that was refused. */
void vt_bad_frame(struct vt_child *c, const char *where, const uint8_t *buf, size_t len,
                  const struct vt_err *why);

#endif
