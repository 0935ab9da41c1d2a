/* Rig: an engine over a tiny model with every event written down and checked: accepted or refused first, token positions
 * without a gap, exactly one terminal event per handle. For the tests of this folder. */
#ifndef RIG_H
#define RIG_H

#include "engine.h"
#include "tiny.h"

#define RIG_HANDLES 4096
#define RIG_OUT     1024

struct rig_req {
    bool submitted, accepted, refused, done;
    uint32_t slot, reused, queue_pos;
    uint64_t seed, first; /* first: position of the first token of this run */
    uint32_t ids[RIG_OUT];
    float logprobs[RIG_OUT];
    struct eng_top top[RIG_OUT][4];
    uint32_t n;
    double state;   /* as the last token told it */
    float *vectors; /* [n_vectors][dim] */
    uint32_t n_vectors, dim;
    uint32_t n_prefill_events, prefill_done, prefill_total;
    enum eng_done why;
    uint64_t emitted;
    struct eng_usage usage;
    struct vt_err err;
    unsigned n_accepted, n_terminal;
};

struct rig {
    struct eng *e;
    struct rig_req *reqs; /* [RIG_HANDLES], by handle */
    unsigned n_dirty, n_turn_end;
    uint64_t next_handle;
};

struct rig_opts {
    uint32_t slots, ctx, ubatch, snaps; /* 0: 4, 512, 64, 4 */
    int threads;                        /* 0: 1 */
    uint32_t spec_n;                    /* 0: no guesses */
};

void rig_open(struct rig *r, const struct tiny *t, const struct rig_opts *o);
/* Checks that every submitted request has had its end. */
void rig_close(struct rig *r);

/* A greedy request over ids with plenty of credit; change what the test is about, then rig_submit. */
struct eng_request rig_request(const uint32_t *ids, size_t n, uint32_t max_new);
uint64_t rig_submit(struct rig *r, const struct eng_request *q); /* chooses and returns the handle */
struct rig_req *rig_at(struct rig *r, uint64_t handle);
/* Steps until nothing is left to do; fails after too many steps. Returns the steps. */
unsigned rig_run(struct rig *r);
/* Steps until the request has n tokens or has ended. */
void rig_run_to(struct rig *r, uint64_t handle, uint32_t n);
/* Copies what slot 0 of one engine would save into a slot of another, piece by piece, as if only the first good_blocks
 * blocks had come whole. Returns the tokens restored. */
uint32_t rig_carry(struct rig *from, struct rig *to, uint32_t slot, uint32_t good_blocks);
/* Submits and runs to the end. */
struct rig_req *rig_answer(struct rig *r, const struct eng_request *q);

#endif
