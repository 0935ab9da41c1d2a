/* Requests: what the gateway asked for, what the core has produced and what has gone out. Ids are kept until a while after a
 * request's end, so that a repeated SUBMIT, a gap or a new link is served from here and nothing ever runs twice. A request
 * whose link is lost is taken out of the core at once (its KV stays as prefix) and stays parked here for a while.
 * I/O thread only. */
#ifndef WORKER_REQUESTS_H
#define WORKER_REQUESTS_H

#include "compute.h"
#include "link.h"

struct requests;

#define REQUESTS_GATHER_US VT_MS(8)

struct requests_opts {
    struct compute *compute;
    const struct vt_clock *clock;
    struct vt_log *log;
    uint64_t orphan_us; /* how long requests of a lost link stay parked */
    /* A request without credit for this long leaves its slot when others wait. */
    uint64_t credit_stall_us;
    bool send_twice; /* test: every TOKENS frame goes out twice */
    /* A request has got its slot at once and reuses that many tokens of it. */
    void (*placed)(void *arg, uint64_t handle, uint32_t slot, const uint32_t *ids, size_t n_ids,
                   uint32_t reused);
    /* Prefixes that are kept elsewhere; may_fetch NULL: nowhere. may_fetch: is it worth to look what is here? fetch: begins to
     * bring more of q's prompt than `resident` tokens; true: requests_fetched will be called later,
     * unless fetch_cancel comes first. */
    bool (*may_fetch)(void *arg);
    bool (*fetch)(void *arg, uint64_t handle, const struct eng_request *q, uint32_t resident);
    void (*fetch_cancel)(void *arg, uint64_t handle);
    void *arg;
};

int requests_new(struct requests **out, const struct requests_opts *o, struct vt_err *err);
void requests_free(struct requests *r);

/* The link to the gateway came or went. */
void requests_link_up(struct requests *r, struct vt_link *l);
void requests_link_down(struct requests *r);

/* 0: work is taken; else the code (VT_E_DRAINING, …) that new requests are refused with. */
void requests_close(struct requests *r, int code, const char *text, uint32_t retry_ms);

/* Memory is short, level 0 to 3: from 2 on a new request is refused while another one runs, at 3 always. What an earlier
 * generation has begun goes on: it was let in already. */
void requests_shed(struct requests *r, unsigned level);

/* SUBMIT, CREDIT, CANCEL, ATTACH. -1: a protocol error, the link has to end. */
int requests_frame(struct requests *r, const struct vt_frame *f, struct vt_err *err);
/* EV_ACCEPTED, EV_REFUSED, EV_WANTS, EV_PREFILL, EV_TOKEN, EV_DONE; takes over what the event owns. */
void requests_event(struct requests *r, struct event *ev);
void requests_fetched(struct requests *r, uint64_t handle);
/* Whatever waits for a fetch goes to the core now: everything is about to be parked. */
void requests_hurry(struct requests *r);
/* Sends what waits to be sent. True when something is left because the gateway does not read fast enough. Tokens that come
 * faster than one in REQUESTS_GATHER_US wait for each other that long, since every frame costs both ends several thread
 * switches; a request's first token and its last ones never wait. */
bool requests_pump(struct requests *r);
/* When the pump has to be called at the latest for tokens that wait for others, monotonic; 0: none do. It is later than
 * needed by half, for the next token mostly comes first and wakes the loop anyway. */
uint64_t requests_due(const struct requests *r);
/* Once a second: deadlines, orphans, what may be forgotten. */
void requests_tick(struct requests *r);

/* Requests that the core still works on. */
unsigned requests_running(const struct requests *r);
/* Requests with frames that have not gone out. */
unsigned requests_unsent(const struct requests *r);
uint64_t
requests_sent(const struct requests *r); /* requests served by the pump so far: progress of the link */
uint64_t requests_parked(const struct requests *r); /* so far */
/* The rid behind the one that the core was given; NULL when forgotten. */
const uint8_t *requests_rid(const struct requests *r, const uint8_t core_rid[16]);

#endif
