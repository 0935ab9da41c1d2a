/* The frames of a job, packed and unpacked. Sends return 0, or -1 when the link does not take the frame now. */
#ifndef JOB_FRAMES_H
#define JOB_FRAMES_H

#include "frame.h"
#include "job.h"
#include "link.h"

/* The whole request; with what has been emitted when it ran before. err: VT_E_BUSY means later. */
int job_send_submit(const struct job *j, struct vt_link *l, struct vt_err *err);
int job_send_attach(const struct job *j, struct vt_link *l);
int job_send_cancel(struct vt_link *l, uint64_t handle, uint8_t why);
int job_send_credit(struct vt_link *l, uint64_t handle, uint32_t add);
int job_send_slots_ask(struct vt_link *l, uint64_t id);
int job_send_slot_op(struct vt_link *l, uint64_t id, uint32_t slot, unsigned verb, const char *name);

/* Tokens of one job as a frame brings them: of TOKENS, or of one row of STEP. */
struct job_tokens {
    uint64_t first;
    const uint8_t *ids, *logprobs; /* u32le, f32le; logprobs NULL: none */
    size_t bytes, logprob_bytes;
    const msgpack_object_array *top; /* NULL: none */
    double state;                    /* of the sampler after the last of them; NAN: none */
};
void job_tokens_of(struct job_tokens *t, const struct vt_frame *f);
/* Appends the ids that are new. Returns how many ids there were, or -1: a gap, nonsense, or memory. */
int job_take_tokens(struct job *j, const struct job_tokens *t);

#endif
