/* Checkpoint: the engine's side of the store link (frames CK_*, ckpt.h). Saves slots that changed, loads them back, serves slot
 * files by name. One save and one load at a time; whatever the store does or fails to do, serving goes on.
 * I/O thread only. */
#ifndef WORKER_CHECKPOINT_H
#define WORKER_CHECKPOINT_H

#include "ckpt.h"
#include "compute.h"
#include "link.h"
#include "worth.h"

struct checkpoint;

struct checkpoint_opts {
    struct compute *compute;
    const struct vt_clock *clock;
    struct vt_log *log;
    uint64_t autosave_us, turn_save_us;
    uint64_t
        prefix_wait_us; /* longest time that a prompt waits for blocks of the store; 0: it is not asked */
    void (*fetched)(void *arg, uint64_t handle);
    void *arg;
    uint32_t corrupt_chunk; /* test: the checksum of the n-th piece is wrong; 0: none */
};

struct checkpoint_stats {
    uint64_t fetches, fetched_tokens,
        fetches_late; /* prefixes asked for, tokens that came, answers that did not */
    uint64_t saves, skipped, refused, bytes, restored_tokens, restore_us;
    double age_s; /* of the oldest change that no checkpoint holds */
};

int checkpoint_new(struct checkpoint **out, const struct checkpoint_opts *o, struct vt_err *err);
void checkpoint_free(struct checkpoint *c);

void checkpoint_link_up(struct checkpoint *c, struct vt_link *l, void *bulk, size_t bytes);
void checkpoint_link_down(struct checkpoint *c);
bool checkpoint_linked(const struct checkpoint *c);
/* -1: protocol error, the link has to end. */
int checkpoint_frame(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err);
/* EV_DIRTY, EV_EXPORT, EV_IMPORT_*, and whatever has a handle of compute_fill_handle; takes over what the event owns. */
void checkpoint_event(struct checkpoint *c, struct event *ev);
/* Does the next pieces of work. True: call again within a millisecond or so. */
bool checkpoint_pump(struct checkpoint *c);
/* Several times a second: what is due, what takes too long. */
void checkpoint_tick(struct checkpoint *c);

struct checkpoint_result {
    unsigned saved, skipped, failed;
    uint64_t tokens, bytes, us;
    struct vt_err err; /* code 0: all well */
};
typedef void (*checkpoint_done)(void *arg, const struct checkpoint_result *r);

/* Saves a slot, or all that changed (slot -1). done is called once, perhaps before this returns. One such order at a time;
 * a second one is told VT_E_BUSY. */
void checkpoint_save(struct checkpoint *c, int32_t slot, enum ckpt_reason reason, uint64_t max_us,
                     checkpoint_done done, void *arg);
/* Slot files. */
void checkpoint_save_named(struct checkpoint *c, uint32_t slot, const char *name, checkpoint_done done,
                           void *arg);
void checkpoint_load_named(struct checkpoint *c, uint32_t slot, const char *tenant, const char *name,
                           checkpoint_done done, void *arg);
/* At load: the newest heads first, for at most max_us. Result: tokens. */
void checkpoint_restore(struct checkpoint *c, uint64_t max_us, checkpoint_done done, void *arg);
/* Prefixes. The store has blocks of prompts that no page here holds any more. One prompt at a time is asked for; what came
 * whole within prefix_wait_us is put into the cache of pages, and `fetched` is called in any case, late by at most a tick and
 * what the compute thread is busy with. A store that let that time pass in silence is not asked again until it speaks. */
bool checkpoint_may_fetch(const struct checkpoint *c);
/* False: not worth it, or no room; then nothing is called. */
bool checkpoint_fetch(struct checkpoint *c, uint64_t handle, const struct eng_request *q, uint32_t resident);
void checkpoint_fetch_cancel(struct checkpoint *c, uint64_t handle);
/* A request was placed. False: it continues what was restored into that slot, or for it, and yet reused nothing worth a
 * restore. */
bool checkpoint_placed(struct checkpoint *c, uint64_t handle, uint32_t slot, const uint32_t *ids,
                       size_t n_ids, uint32_t reused);
/* Do restores pay, at what it takes to evaluate a token? True: no longer, as of now. */
bool checkpoint_turns_poor(struct checkpoint *c, double us_per_token, struct worth *out);
/* A client emptied the slot: its next, shorter save may replace the head. */
void checkpoint_erased(struct checkpoint *c, uint32_t slot);

void checkpoint_stats(const struct checkpoint *c, struct checkpoint_stats *out);

#endif
