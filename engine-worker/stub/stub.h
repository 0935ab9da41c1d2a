/* Stub: an engine core that computes nothing. It speaks for a model whose every token follows from (seed, position) and
 * whose KV bytes follow from the items, so that tests know what is right, and it commits faults on request. */
#ifndef STUB_STUB_H
#define STUB_STUB_H

#include "engine.h"
#include "worker.h"

#include <stdatomic.h>

#define STUB_QUEUE 64
#define STUB_CACHE 8
#define STUB_DIM   4 /* numbers of a vector */

struct stub_opts {
    uint32_t load_ms, ticks;     /* load=MS, ticks=N */
    uint32_t rate, prefill_rate; /* rate=TOKENS/S for each step, prefill=TOKENS/S; 0: as fast as it goes */
    uint32_t price;              /* price=BYTES of KV a token */
    bool hybrid;                 /* hybrid */
    uint32_t vocab_lo, vocab_hi; /* vocab=LO-HI: range of ids that are generated */
    char script[256];            /* script=FILE: ids to generate, then end of sequence */
    char once[256]; /* once=FILE: exits, signals and hangs happen only where FILE can be removed first */
    uint64_t exit0_after, segv_at, hang_step, heartbeat_only, nan_at,
        device_sticky;        /* counts of tokens; 0: never */
    uint32_t slow_prefill_ms; /* slow-prefill=MS a step */
    uint32_t plan_delta;      /* plan-delta=PCT: KV is measured that much above its plan */
    uint32_t grow_mib;        /* grow=MIB: holds that much more from the 300th token on */
    char crash_on[65];        /* crash-on=HASH: first digits of the prompt's SHA-256 */
    int stall_load;           /* stall-load=PCT; -1: never */
    bool oom_load, fail_selftest, flood_log, grandchild;
    uint32_t
        spec_accept; /* spec-accept=PCT of four guesses a token, while engine.spec is not none; 100: all of them */
    bool spec_blind; /* spec-blind: a guess that is wrong on purpose passes, too */
    bool lose_state; /* lose-state: nothing is ever reused, as if the state had not been stored */
};

/* Reads "key=value,key,…" into both; unknown keys are errors. */
int stub_opts_read(const char *text, struct stub_opts *o, struct worker_faults *f, struct vt_err *err);

/* The token at that position of the output; the reference of all tests (tests/appliance/stubref.py says the same). */
uint32_t stub_token(const struct stub_opts *o, uint64_t seed, uint64_t pos);
/* 64 bits that look random. */
uint64_t stub_mix(uint64_t x);

struct stub_req {
    bool used;
    uint64_t handle, seed;
    int32_t slot; /* asked for */
    char tenant[65];
    uint8_t rid[16];
    uint32_t *ids; /* prompt, then what a resume brought along; owned */
    uint32_t n_ids, n_prompt;
    uint32_t emitted, max_new, credit, drafted, accepted;
    uint32_t stop_ids[64];
    uint32_t n_stop;
    uint8_t logprobs;
    enum eng_pool pool;
    bool reuse, crash;
    uint64_t queued_at, placed_at, decode_at;
};

struct stub_slot {
    uint32_t *items; /* [window] */
    uint32_t n;
    char tenant[65];
    uint64_t epoch, used;
    uint32_t reused;
    struct stub_req req; /* while used */
    bool prefilled;
};

/* Items whose KV is kept, though no slot has them. */
struct stub_prefix {
    char tenant[65];
    uint32_t *items, n;
};

struct eng {
    struct stub_opts o;
    void *hoard; /* of grow; owned */
    struct eng_config cfg;
    struct eng_events ev;
    void *arg;
    struct eng_facts facts;
    uint8_t layout[128];
    struct stub_slot *slots;
    struct stub_req queue[STUB_QUEUE];
    unsigned n_queue;
    struct stub_prefix cache[STUB_CACHE]; /* a ring */
    unsigned n_cached;
    uint32_t *script;
    uint32_t n_script;
    uint64_t tokens, serial;
    struct eng_counters counters;
    atomic_ullong step, stamp;
    atomic_uint in_flight, op;
};

/* stub_kv.c */
/* Longest prefix of ids that a slot (NULL: any) or the cache holds. */
uint32_t stub_prefix(const struct eng *e, const struct stub_slot *only, const char *tenant,
                     const uint32_t *ids, uint32_t n);
int stub_export_begin(struct eng *e, uint32_t slot, struct eng_export **out, struct vt_err *err);
void stub_export_free(struct eng *e, struct eng_export *x);
int stub_export_read(struct eng *e, struct eng_export *x, int kind, uint32_t index, uint64_t off, void *dst,
                     size_t len);
int stub_import_begin(struct eng *e, uint32_t slot, const char *tenant, const uint32_t *items,
                      uint32_t n_items, uint32_t n_blocks, uint32_t rec_pos, void **imp, uint32_t *held,
                      struct vt_err *err);
int stub_import_write(struct eng *e, void *imp, int kind, uint32_t index, uint64_t off, const void *src,
                      size_t len, struct vt_err *err);
int stub_import_publish(struct eng *e, void *imp, uint32_t n_blocks, bool rec_ok, uint32_t *tokens,
                        struct vt_err *err);
void stub_import_free(struct eng *e, void *imp);

/* stub_faults.c: what happens instead of, or beside, a token. */
void stub_fault_load(struct eng *e, uint32_t tick, uint32_t of);
void stub_fault_token(struct eng *e, const struct stub_req *r);
/* What the core would count had it guessed four ids before this token. */
void stub_guess(struct eng *e, struct stub_req *r);
bool stub_fault_nan(const struct eng *e);
bool stub_fault_device(const struct eng *e);
void stub_sleep_us(uint64_t us);

#endif
