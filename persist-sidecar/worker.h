/* The database thread: one queue in, one out. The main thread keeps the links and never waits for a sync. */
#ifndef STORE_WORKER_H
#define STORE_WORKER_H

#include "serve.h"

struct worker;

enum worker_news {
    WORKER_OPENED,  /* the database can be used */
    WORKER_FRAME,   /* a frame to be sent on a link */
    WORKER_EVENT,   /* err.text says what happened; err.code is its enum store_event */
    WORKER_FAIL,    /* a link whose peer broke the protocol */
    WORKER_BROKEN,  /* the database cannot be used; the thread has ended */
    WORKER_STOPPED, /* flushed, closed with the clean mark; the thread has ended */
};

struct worker_out {
    struct worker_out *next;
    enum worker_news what;
    uint32_t link;
    uint8_t *frame; /* owned */
    size_t len;
    struct vt_err err;
};

struct worker_pulse {         /* all in microseconds of the monotonic clock */
    uint64_t steps, step_us;  /* count, time of the last */
    uint64_t op, op_since_us; /* BEAT's op: 0 idle, 3 save, 4 restore */
    uint64_t queued;
    uint64_t sync_since_us; /* 0: no sync in progress */
};

/* Starts the thread, which opens the store; signals are the caller's business (blocked before). */
int worker_start(struct worker **out, const struct serve_opts *o, struct vt_err *err);
/* Readable when news came. */
int worker_fd(const struct worker *w);
/* The oldest news, to be freed with worker_out_free; NULL: none. */
struct worker_out *worker_take(struct worker *w);
void worker_out_free(struct worker_out *o);

/* base: a mapping that the worker owns from now on and unmaps when the link is down; NULL: none. */
void worker_link_up(struct worker *w, uint32_t link, void *base, size_t bytes);
void worker_link_down(struct worker *w, uint32_t link);
/* frame is malloc'ed and owned by the worker from now on. */
void worker_frame(struct worker *w, uint8_t *frame, size_t len);
/* Flush, clean mark, end: answered by WORKER_STOPPED. */
void worker_stop(struct worker *w);

void worker_pulse(struct worker *w, struct worker_pulse *out);
/* As of the last second. */
void worker_facts(struct worker *w, struct store_facts *out);
const struct store_io *worker_io(const struct worker *w);

#endif
