/* One request; the inside of requests.c and request_frames.c. */
#ifndef WORKER_REQUEST_H
#define WORKER_REQUEST_H

#include "requests.h"

#define REQUEST_CREDIT 256 /* tokens that may be under way when SUBMIT says nothing */

enum request_state {
    R_RUNNING, /* the core has it */
    R_PARKING, /* its link is gone, the core was told to let go */
    R_PARKED,  /* waits for ATTACH */
    R_ENDED,
};

struct request {
    uint64_t handle; /* towards the core; its low bits are the place in the table */
    uint64_t gid;    /* towards the gateway, on the present link */
    bool linked;     /* somebody listens */
    enum request_state state;
    uint8_t rid[16];
    pid_t gateway; /* process that asked */

    /* As submitted, to be submitted again after a park. Arrays are in blob. */
    struct eng_request submit;
    void *blob;

    /* Output by position; positions before `resumed` came with SUBMIT. */
    uint32_t *ids;
    float *logprob;
    struct eng_top *top; /* n_top for each position */
    uint8_t n_top;
    uint32_t n, cap, resumed, sent;
    float *vec; /* [n_vec][dim] of one that pools */
    uint32_t n_vec, vec_sent, dim;
    double sampler_state; /* after the last id; NAN: it has none */

    /* pending: submitted, and the core has not said that it has it. fetching: the core gave it back, and it waits for the
     * store. cancelled, hurried: what it is told when it comes back now. */
    bool pending, fetching, cancelled, hurried;
    bool told_accepted, owes_accepted, owes_prefill, owes_done, attach, dropped, timed_out, park, dup;
    uint32_t slot, reused, queue_pos, pf_done, pf_total, pf_reused;
    uint64_t seed;
    uint8_t reason;
    struct eng_usage usage;
    struct vt_err *error;

    uint64_t granted, deadline, ended_at, parked_at, stalled_at;
};

void request_release(struct request *r);
/* One id more; false when memory is out. top: n_top alternatives; the rest up to r->n_top is NAN. */
bool request_add_id(struct request *r, uint32_t id, float logprob, const struct eng_top *top, unsigned n_top);
/* n vectors more, from the one with number `first` on; false when memory is out or some are missing. */
bool request_add_vectors(struct request *r, uint32_t first, const float *v, uint32_t n, uint32_t dim);
/* Its output is there, as far as it has any. */
bool request_whole(const struct request *r);
/* Gives the output's memory back; what was sent stays counted. */
void request_forget_output(struct request *r);

/* Fills r->submit and r->blob from a SUBMIT frame. -1: refused with that error. n_vocab: ids are checked against it. */
int request_read(struct request *r, const struct vt_frame *f, uint32_t n_vocab, struct vt_err *err);
/* Sends what r owes, in order. -1 with VT_E_BUSY when the link is full. */
int request_send(struct request *r, struct vt_link *l, bool twice, struct vt_err *err);
/* Of n requests, those that owe tokens and nothing before them, none of them with logprobs: their tokens in one frame, as
 * far as there are at least two. Returns how many, 0 for none; -1 as request_send. */
int request_send_step(struct request *const *at, unsigned n, struct vt_link *l, struct vt_err *err);
/* True when request_send would send something. */
bool request_owes(const struct request *r);
/* What it owes are tokens, neither its first nor its last ones. */
bool request_may_wait(const struct request *r);
int request_send_attached(struct vt_link *l, uint64_t gid, bool found, uint64_t from, bool ended);
int request_send_refused(struct vt_link *l, uint64_t gid, const struct vt_err *why, uint32_t retry_ms);

#endif
