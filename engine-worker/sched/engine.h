/* Engine core: what the worker process drives. Two implementations: the real one (sched/) and the scripted stub (stub/),
 * behind one table, so that the process around them (worker/) is the same program.
 *
 * All calls come from one thread, the compute thread, except where "any thread" is written. Events are called on the compute
 * thread from inside step() or the call that caused them. Token ids, logits and KV are all that is known here: no text. */
#ifndef ENGINE_H
#define ENGINE_H

#include "err.h"
#include "sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENG_PAGE  256
#define ENG_CACHE UINT32_MAX /* as the slot of an import: into none */

/* What a request is for: ids, or vectors of the hidden states behind the output norm: each of them, their mean, that of the
 * first or of the last id. */
enum eng_pool {
    ENG_POOL_OFF = 0,
    ENG_POOL_ROWS = 1,
    ENG_POOL_MEAN = 2,
    ENG_POOL_FIRST = 3,
    ENG_POOL_LAST = 4,
};

/* Most bytes of vectors that one request gives. */
#define ENG_VECTOR_BYTES (64u << 20)

struct eng_request {
    uint64_t handle; /* chosen by the gateway, unique per link */
    uint8_t rid[16]; /* idempotency id */
    const char *tenant;
    int32_t slot;        /* -1: any */
    const uint32_t *ids; /* prompt; borrowed during submit */
    size_t n_ids;
    const uint32_t *emitted; /* resume: ids already sent to the client */
    size_t n_emitted;
    /* The output begins with these ids whatever the sampler would say; they are told like the others, with their
     * log-probabilities. `emitted`, as far as it goes, begins with them, too. Neither stop ids nor the grammar look at them. */
    const uint32_t *forced;
    size_t n_forced;
    uint32_t max_new;         /* counted from the first emitted id; 0: evaluate the prompt only */
    const uint32_t *stop_ids; /* end the sequence, beside the model's own */
    size_t n_stop_ids;
    uint32_t credit;
    uint8_t logprobs; /* 0: none, n: n-1 top alternatives with each token */
    const uint8_t
        *grammar; /* bytes of an automaton (automaton.h) that the output follows; borrowed during submit */
    size_t n_grammar; /* 0: none */
    bool reuse;       /* may reuse cached prefixes */
    enum eng_pool
        pool; /* not OFF: max_new is 0, nothing is emitted or forced, and the slot is empty afterwards */
    struct vt_sampling
        sampling; /* its arrays are borrowed during submit; without a seed the engine draws one */
    double state; /* resume: the sampler's state after the last of `emitted`, as told; NAN: none */
};

enum eng_done {
    ENG_EOS = 0,
    ENG_STOP_ID = 1,
    ENG_LENGTH = 2,
    ENG_CANCELLED = 3,
    ENG_ERROR = 4,
    ENG_PARKED = 5
};

struct eng_usage {
    uint32_t prompt, reused,
        generated; /* forced ids are of the prompt; generated counts the ids that a resume brought along */
    uint32_t drafted, accepted; /* ids that were guessed in this run of the request; those that came out so */
    uint64_t queue_us, prefill_us, decode_us;
};

struct eng_top {
    uint32_t id;
    float logprob;
};

struct eng_token {
    uint64_t pos; /* in the request's output */
    uint32_t id;
    float logprob; /* logprob and top are valid when logprobs was asked for */
    const struct eng_top *top;
    unsigned n_top;
    double state; /* of the sampler after this token, to be given back on resume; NAN when it has none */
};

/* Every handle gets accepted or refused first, and exactly one of refused and done last. */
struct eng_events {
    /* queue_pos 0: placed in `slot`, which reuses `reused` tokens. Else it waits: slot is the one asked for, or UINT32_MAX,
     * and the first `prefill` event tells what was reused. */
    void (*accepted)(void *arg, uint64_t handle, uint32_t slot, uint32_t reused, uint32_t queue_pos,
                     uint64_t seed);
    void (*refused)(void *arg, uint64_t handle, const struct vt_err *why, uint32_t retry_ms);
    void (*prefill)(void *arg, uint64_t handle, uint32_t done, uint32_t total, uint32_t reused);
    /* The id that ends the sequence (eog or stop id) is told, too, and counts; done follows. */
    void (*token)(void *arg, uint64_t handle, const struct eng_token *t);
    /* Vectors `first` and following of a request that pools, [n][dim]; all of them before a done without error. */
    void (*vectors)(void *arg, uint64_t handle, uint32_t first, uint32_t n, uint32_t dim, const float *v);
    void (*done)(void *arg, uint64_t handle, enum eng_done why, uint64_t emitted,
                 const struct eng_usage *usage, const struct vt_err *err);
    /* A slot reached a state worth saving: prompt evaluated, page filled, turn ended. */
    void (*dirty)(void *arg, uint32_t slot, bool turn_end);
};

struct eng_slot_info {
    uint32_t slot;
    uint8_t state;     /* 0 idle, 1 queued, 2 prefill, 3 decode, 4 paused (credit), 5 parked */
    uint32_t n_tokens; /* items in the slot's cache */
    uint32_t n_prompt, n_reused, n_decoded, n_remain;
    uint32_t drafted, accepted; /* of the running or the last request */
    char tenant[65];
    uint8_t rid[16];
    uint64_t epoch; /* moves whenever the slot's items change */
};

struct eng_facts {
    char arch[32];
    char model[128]; /* general.name, or the file's name */
    uint32_t n_vocab, n_layer, n_embd, n_ctx_train;
    uint64_t n_params, model_bytes;
    uint32_t slots, window; /* tokens of one slot, prompt and output together */
    uint64_t pool_tokens;
    uint64_t kv_bytes_per_token;                   /* all layers, measured from the allocation */
    uint64_t block_bytes;                          /* one 256-token page, all layers */
    uint64_t rec_bytes;                            /* one recurrent snapshot, 0 when not hybrid */
    char simd[16];                                 /* instruction set of the kernels, or "cuda" */
    char device[16];                               /* "cpu", "gpu:0" */
    char device_note[256], gpu[128], gpu_uuid[40]; /* empty when there is nothing to tell */
    uint64_t gpu_free;                             /* before the load */
    bool vault, weights_kept;    /* memory is held by a vault; the weights were there already */
    uint32_t kv_kept, kv_spoilt; /* pages that were taken over, and that failed their seal */
    uint64_t model_us, device_us, weights_us, pools_us; /* parts of the load */
    int threads;
    uint64_t weights_planned, weights_measured, kv_planned, kv_measured, work_planned, work_measured;
    const uint8_t *layout; /* canonical msgpack of the layout descriptor; owned by the core */
    size_t layout_len;
    uint8_t layout_fp[32];
    uint8_t payload[32]; /* identity of the file's bytes: its index and samples of every tensor */
    uint32_t numerics;   /* revision of the arithmetic */
};

/* One slot's exportable state, frozen: pages are immutable and held by reference until export_free. */
struct eng_export {
    uint32_t slot;
    char tenant[65];
    uint64_t epoch;
    uint32_t n_items;
    const uint32_t *items;   /* copy, owned by the export */
    uint32_t n_blocks;       /* full pages: n_items / 256, those computed */
    uint32_t n_rec;          /* snapshots worth keeping, ascending */
    const uint32_t *rec_pos; /* each a multiple of 256 */
    void *opaque;
};

struct eng_counters {
    uint64_t prompt_tokens, prompt_reused, predicted, decode_calls, busy_slots_sum, max_tokens, cancelled;
    uint64_t prompt_us, predict_us;
    uint32_t processing, deferred;
    uint64_t kv_used_tokens;
    uint64_t kv_evicted_tokens, kv_evicted_pages; /* given up for want of room; tails of slots are no pages */
    /* Sequences' steps with a guess, ids guessed, those that came out so. */
    uint64_t spec_drafts, spec_drafted, spec_accepted;
    /* Guesses that came out otherwise, those that were made wrong on purpose among them (spec.h): if it stands still while accepted grows,
     * whatever is guessed passes. */
    uint64_t spec_refuted;
};

enum eng_op {
    ENG_OP_IDLE = 0,
    ENG_OP_PREFILL = 1,
    ENG_OP_DECODE = 2,
    ENG_OP_EXPORT = 3,
    ENG_OP_IMPORT = 4,
    ENG_OP_LOAD = 6,
    ENG_OP_CANARY = 7
};

/* The scheduler's pulse; written by the compute thread, read from any thread (relaxed atomics inside the core). */
struct eng_pulse {
    uint64_t step;     /* counts ubatches and decode steps */
    uint64_t stamp_us; /* monotonic time of the last bump */
    uint32_t in_flight;
    uint8_t op;
};

struct eng;
struct keep;

/* Where guessed ids come from (engine.spec, in the order of its words). The output is the same with each. */
enum eng_spec { ENG_SPEC_NONE, ENG_SPEC_NGRAM };

struct eng_config {
    const char *model_path;
    const char
        *model_file; /* gguf_key of the file that is meant; another one at the path is refused. NULL: any */
    uint32_t slots, ctx_tokens, ubatch;
    int threads;
    uint64_t reserve;   /* bytes that stay free on a GPU */
    int simd;           /* enum be_simd or -1 */
    const char *device; /* resident.h: "auto", "cpu", "gpu:0" */
    uint32_t rec_snapshots;
    enum eng_spec spec;
    uint32_t spec_n;   /* most ids that are guessed for a sequence in a step; ignored with ENG_SPEC_NONE */
    struct keep *keep; /* memory that outlives the engine (keep.h), borrowed; NULL: none */
    /* Load progress, called from the loading thread. */
    void (*progress)(void *arg, unsigned phase, uint64_t done, uint64_t total);
    void *progress_arg;
    const char *extra; /* options of the stub; the real core takes none and is given NULL */
};

struct eng_ops {
    int (*load)(struct eng **out, const struct eng_config *cfg, const struct eng_events *ev, void *ev_arg,
                struct vt_err *err);
    void (*free)(struct eng *e);
    const struct eng_facts *(*facts)(const struct eng *e); /* any thread after load */
    /* Decodes once through the real path in every slot and runs the largest ubatch once. */
    int (*selftest)(struct eng *e, struct vt_err *err);
    /* 0: accepted or queued or refused, told by event. Duplicate rid within the memory: told by event `accepted` again. */
    void (*submit)(struct eng *e, const struct eng_request *r);
    void (*cancel)(struct eng *e, uint64_t handle);
    void (*credit)(struct eng *e, uint64_t handle, uint32_t add);
    /* Runs one step (one ubatch with all running decodes). Returns false when there is nothing to do. */
    bool (*step)(struct eng *e);
    /* One token on a reserved sequence: the idle canary. */
    int (*canary)(struct eng *e, struct vt_err *err);
    /* Ends every sequence at its token boundary with ENG_PARKED; KV stays as prefix. */
    void (*park_all)(struct eng *e);
    void (*pulse)(const struct eng *e, struct eng_pulse *out); /* any thread */
    /* Free bytes of the device now; 0: this processor, or it does not say. Any thread. */
    uint64_t (*device_free)(const struct eng *e);
    void (*counters)(const struct eng *e, struct eng_counters *out);
    uint32_t (*slots)(const struct eng *e, struct eng_slot_info *out, uint32_t max);
    int (*erase)(struct eng *e, uint32_t slot, uint32_t *n_erased, struct vt_err *err);

    /* Checkpoint. export_begin on the compute thread; export_read from any thread while the export is held. */
    int (*export_begin)(struct eng *e, uint32_t slot, struct eng_export **out, struct vt_err *err);
    void (*export_free)(struct eng *e, struct eng_export *x);
    /* kind 1: block `index`; kind 2: snapshot `index`. Copies len bytes at off into dst. */
    int (*export_read)(struct eng *e, struct eng_export *x, int kind, uint32_t index, uint64_t off, void *dst,
                       size_t len);

    /* Memory that export_read will be given parts of; NULL: the core does not care. unpin before it is unmapped. Any thread. */
    void (*pin)(struct eng *e, void *p, size_t bytes);
    void (*unpin)(struct eng *e, void *p);

    /* Tokens that this request would reuse if it were submitted now. */
    uint32_t (*resident)(const struct eng *e, const struct eng_request *q);
    /* Import into fresh pages; publish is one swap into the slot; free without publish gives everything back. With ENG_CACHE
     * no slot changes: what is published is found by the next request that begins so, as long as its memory is not wanted
     * for something else. *held: leading blocks that are here already; they need not be written. */
    int (*import_begin)(struct eng *e, uint32_t slot, const char *tenant, const uint32_t *items,
                        uint32_t n_items, uint32_t n_blocks, uint32_t rec_pos /* 0 = none */, void **imp,
                        uint32_t *held, struct vt_err *err);
    int (*import_write)(struct eng *e, void *imp, int kind, uint32_t index, uint64_t off, const void *src,
                        size_t len, struct vt_err *err);
    /* n_blocks: how many leading blocks are whole (a bad one shortens the prefix). Returns tokens restored. */
    int (*import_publish)(struct eng *e, void *imp, uint32_t n_blocks, bool rec_ok, uint32_t *tokens,
                          struct vt_err *err);
    void (*import_free)(struct eng *e, void *imp);
};

extern const struct eng_ops eng_real; /* sched/engine.c */
extern const struct eng_ops eng_stub; /* stub/stub.c */

#endif
