/* The scheduler's own structures, shared by the files of this folder. See engine.h for the contract. */
#ifndef SCHED_INTERNAL_H
#define SCHED_INTERNAL_H

#include "aside.h"
#include "clock.h"
#include "constraint.h"
#include "engine.h"
#include "forward.h"
#include "model.h"
#include "ngram.h"
#include "pace.h"
#include "resident.h"
#include "sampler.h"
#include "seq.h"
#include "sizing.h"
#include "tokenizer.h"

#include <stdatomic.h>

#define SIMILARITY   0.10 /* least share of a prompt that makes a slot "the one with this conversation" */
#define RIDS         1024 /* finished requests that are remembered */
#define QUEUE_MAX    4096 /* requests that may wait; the gateway's own limit is far below */
#define TENANT_MAX   64
#define NUMERICS     1 /* revision: goes up whenever a change of ours changes KV values */
#define LOGPROBS_MAX 255
#define SCORE_ROWS   SIZING_SCORE_ROWS
#define DRAFT_MAX    SIZING_DRAFT_ROWS /* ids that are guessed for one slot */

struct request {
    uint64_t handle;
    uint8_t rid[16];
    char tenant[TENANT_MAX + 1];
    uint8_t root[KV_NAME];
    int32_t want_slot;
    uint32_t *items; /* prompt, then output, forced ids that have not been told yet included */
    uint32_t n_items, cap_items, n_prompt, n_forced;
    uint32_t n_emitted, n_resumed; /* output so far; the part of it that came with the request */
    uint32_t max_new, credit;
    uint32_t *stop_ids;
    size_t n_stop_ids;
    uint8_t logprobs;
    bool reuse, ignore_eos;
    enum eng_pool pool;
    double *sum;                  /* [n_embd] of the rows so far, of a mean */
    struct vt_sampling sampling;  /* its arrays are owned */
    double state;                 /* of the sampler */
    struct constraint constraint; /* where the output stands under its grammar; zeroed: none */
    uint32_t n_reused, n_drafted, n_accepted;
    uint64_t order;                             /* of arrival */
    uint64_t submitted_us, placed_us, first_us; /* monotonic; first_us: first token of this run */
    struct request *next;                       /* in the queue */
};

struct finished {
    uint8_t rid[16];
    enum eng_done why;
    uint32_t slot, reused;
    uint64_t emitted, seed;
    struct eng_usage usage;
    struct vt_err err;
    bool has_err, used;
};

struct pick { /* what sampling of one slot gave */
    enum sampler_rc rc;
    struct sampler_got got;
    struct token_mask mask; /* of a request with a grammar */
    struct sampler_top top[LOGPROBS_MAX];
};

struct score { /* of a forced id */
    struct slot *slot;
    int64_t row;         /* of the batch's logits */
    const float *logits; /* that row */
    bool finite;
    float logprob;
    struct sampler_top top[LOGPROBS_MAX];
};

/* What one slot guesses. ids are of the present step: they stand in the batch behind the newest item, and never become items
 * before they have been sampled. */
struct drafts {
    struct ngram *ngram; /* over the request's items; NULL: engine.spec is none */
    struct pace pace;
    uint32_t ids[DRAFT_MAX];
    uint32_t n;     /* of ids */
    uint32_t right; /* of them sampled so, so far */
    bool control;   /* the last one is wrong on purpose */
    float *state;   /* of a hybrid, before this step's rows; in the backend's memory */
    uint32_t from;  /* items that it is the state of */
};

struct slot {
    uint32_t index;
    struct kv_seq seq;
    struct request *req; /* NULL: idle */
    struct sampler *sampler;
    struct pick pick;
    struct drafts drafts;
    int64_t row;         /* of the batch's logits, to sample from in this step */
    const float *logits; /* that row; NULL: its best are enough so far */
    uint64_t used;       /* stamp of the last use */
    uint64_t epoch;
    bool parked; /* the last request ended with ENG_PARKED */
    /* of the running or the last request */
    char tenant[TENANT_MAX + 1];
    uint8_t rid[16];
    uint32_t n_prompt, n_reused, n_decoded, n_drafted, n_accepted;
};

struct eng {
    struct eng_events ev;
    void *ev_arg;
    struct vt_clock clock;

    struct gguf_file *file;
    struct tok *tok;
    struct model *model;
    struct resident resident;
    struct be_pool *pool; /* of resident, as is be */
    struct be *be;
    struct keep *keep;   /* borrowed; NULL: nothing outlives us */
    uint64_t held;       /* bytes of the device that the vault had for us */
    unsigned first_kept; /* of the pools, among its pieces */
    struct kv *kv, *win; /* win: of the layers with a window; NULL: none */
    struct fw *fw;
    struct constraints *constraints; /* the compute thread's, and of `aside` while a batch is computed */
    struct aside *aside;
    const uint32_t *eog;
    size_t n_eog;

    struct slot *slots;
    uint32_t n_slots, window, ubatch;
    uint32_t spec_n, draft_rows; /* ids guessed for a slot in a step, and for all; 0: none */
    uint64_t unrefuted;          /* guesses that came out so since one did not */
    struct request *queue;
    uint32_t n_queued;
    uint64_t stamp, order;
    struct finished *done; /* [RIDS], a ring */
    uint32_t done_at;

    /* the batch under construction */
    uint32_t *ids;
    uint8_t *want;
    struct fw_run *runs;
    struct slot **run_slots, **todo;
    struct score *scores; /* [SCORE_ROWS] */
    float *hidden;        /* [rows][n_embd] behind the output norm, when a run pools */
    float *pooled;        /* [n_embd] */
    int64_t n_rows, n_prefill_rows, n_scores;
    int n_runs;

    struct kv_seq canary; /* pages of its own, never shared */
    uint32_t canary_expect;
    bool canary_known;

    uint8_t *layout;
    struct eng_facts facts;
    struct eng_counters counters;
    _Atomic uint64_t pulse_step, pulse_stamp;
    _Atomic uint32_t pulse_in_flight;
    _Atomic uint8_t pulse_op;
};

/* request.c */
void request_free(struct request *r);
/* Copies and checks; on failure *out is NULL and err tells what to refuse with. */
int request_new(struct request **out, const struct eng *e, const struct eng_request *q, struct vt_err *err);
int request_append(struct request *r, uint32_t id);
/* true when the output as it stands ends the request; tells why. */
bool request_over(const struct eng *e, const struct request *r, enum eng_done *why);
void request_usage(const struct eng *e, const struct request *r, struct eng_usage *u);
/* Output that a sampler has made. */
uint32_t request_made(const struct request *r);
/* Forced ids that have not been told. */
uint32_t request_untold(const struct request *r);
void engine_submit(struct eng *e, const struct eng_request *q);
void engine_cancel(struct eng *e, uint64_t handle);
void engine_credit(struct eng *e, uint64_t handle, uint32_t add);
void engine_park_all(struct eng *e);

/* slot.c */
struct slot *slot_choose(const struct eng *e, const struct request *r); /* NULL: wait */
uint32_t engine_resident(const struct eng *e, const struct eng_request *q);
void slot_place(struct eng *e, struct slot *s, struct request *r);
void slot_place_queued(struct eng *e);
/* Ends the request of a slot: event, memory of the rid, slot idle. err may be NULL. */
void slot_finish(struct eng *e, struct slot *s, enum eng_done why, const struct vt_err *err);
/* Ends a request that has no slot. */
void request_finish(struct eng *e, struct request *r, enum eng_done why, const struct vt_err *err);
/* Room for `want` more tokens in a slot; evicts idle slots, the least recently used first. */
uint32_t slot_room(struct eng *e, struct slot *s, uint32_t want);
bool slot_evict_idle(struct eng *e, const struct slot *except);
void slot_changed(struct slot *s);
uint32_t engine_slots(const struct eng *e, struct eng_slot_info *out, uint32_t max);
int engine_erase(struct eng *e, uint32_t slot, uint32_t *n_erased, struct vt_err *err);

/* drafts.c */
int drafts_new(struct eng *e, struct slot *s, struct vt_err *err);
void drafts_free(struct eng *e, struct slot *s);
/* Another request has come into the slot. */
void drafts_clear(struct slot *s);
/* Guesses behind the items of a slot, all of which are in the batch or evaluated; at most `most`. Returns how many. */
uint32_t drafts_guess(struct eng *e, struct slot *s, uint32_t most);
/* A token was sampled. True: it is what was guessed, and the guess's row of the batch says what comes next. */
bool drafts_confirm(struct eng *e, struct slot *s, uint32_t id);
/* The step is over for this slot, or failed. */
void drafts_judge(struct eng *e, struct slot *s);

/* step.c */
bool engine_step(struct eng *e);

/* proof.c: of life */
int engine_canary(struct eng *e, struct vt_err *err);
int engine_selftest(struct eng *e, struct vt_err *err);
void pulse_set(struct eng *e, enum eng_op op);
void pulse_bump(struct eng *e);

/* vector.c */
/* Pools the rows of a run that has been computed and is not booked yet; tells the vectors that are whole. False: a number in
 * them is not finite. */
bool vector_take(struct eng *e, const struct slot *s, const struct fw_run *run);

/* checkpoint.c */
/* What has to be known beside the blocks to go on at a page border: recurrent state, then the pages of the window. */
uint64_t checkpoint_rec_bytes(const struct eng *e);
int engine_export_begin(struct eng *e, uint32_t slot, struct eng_export **out, struct vt_err *err);
void engine_export_free(struct eng *e, struct eng_export *x);
void engine_pin(struct eng *e, void *p, size_t bytes);
void engine_unpin(struct eng *e, void *p);
int engine_export_read(struct eng *e, struct eng_export *x, int kind, uint32_t index, uint64_t off, void *dst,
                       size_t len);
int engine_import_begin(struct eng *e, uint32_t slot, const char *tenant, const uint32_t *items,
                        uint32_t n_items, uint32_t n_blocks, uint32_t rec_pos, void **imp, uint32_t *held,
                        struct vt_err *err);
int engine_import_write(struct eng *e, void *imp, int kind, uint32_t index, uint64_t off, const void *src,
                        size_t len, struct vt_err *err);
int engine_import_publish(struct eng *e, void *imp, uint32_t n_blocks, bool rec_ok, uint32_t *tokens,
                          struct vt_err *err);
void engine_import_free(struct eng *e, void *imp);

/* layout.c: canonical msgpack of everything that gives KV bytes their meaning (malloc'd), and its SHA-256. */
int layout_describe(const struct eng *e, uint8_t **out, size_t *len, uint8_t fp[32], uint8_t payload[32],
                    struct vt_err *err);

#endif
