/* Compute: the one thread that drives the engine core. It loads the core, then takes commands, runs steps and tells events,
 * and it never waits for anything but work: commands come through an inbox, events leave through an outbox that the I/O
 * thread empties. Every function here is called from the I/O thread. */
#ifndef WORKER_COMPUTE_H
#define WORKER_COMPUTE_H

#include "clock.h"
#include "engine.h"

enum cmd_type {
    CMD_SUBMIT, /* look: not yet, if a block more could be found elsewhere: answered by EV_WANTS then */
    CMD_CANCEL, /* handle */
    CMD_CREDIT, /* handle, n */
    CMD_PARK_ALL,
    CMD_SELFTEST,
    CMD_CANARY,
    CMD_ERASE,        /* slot, tag */
    CMD_EXPORT,       /* slot, tag; answered by EV_EXPORT */
    CMD_EXPORT_FREE,  /* ptr */
    CMD_IMPORT_BEGIN, /* tag, import */
    CMD_IMPORT_WRITE, /* tag, ptr, import.kind … */
    /* tag, ptr, import; with items in blob a slot then evaluates those of them that the import does not cover, if they are
     * at most import.fill: a request of its own, whose handle is compute_fill_handle(tag). ptr NULL: nothing but that. */
    CMD_IMPORT_PUBLISH,
    CMD_IMPORT_FREE,
};

struct cmd {
    struct cmd *next;
    enum cmd_type type;
    uint32_t slot, n;
    bool look;
    uint64_t handle, tag;
    void *ptr; /* the export or import that is meant; not owned */
    union {
        struct eng_request submit; /* its arrays are owned by blob */
        struct {
            char tenant[65];
            uint32_t n_items, n_blocks, rec_pos; /* items in blob */
            int kind;                            /* of a piece in blob */
            uint32_t index;
            uint64_t off;
            size_t len;
            bool rec_ok;
            uint32_t fill;
        } import;
    };
    void *blob; /* owned; freed with the command */
};

enum ev_type {
    EV_LOADED,
    EV_FAILED, /* err: the load */
    EV_ACCEPTED,
    EV_REFUSED,
    EV_WANTS, /* n: tokens that are here; CMD_SUBMIT has to come again */
    EV_PREFILL,
    EV_TOKEN,
    EV_VECTORS, /* vec: n of them from `a` on, b numbers each */
    EV_DONE,
    EV_DIRTY,
    EV_SELFTEST, /* err or NULL */
    EV_CANARY,
    EV_ERASED,
    EV_EXPORT,       /* ptr: struct eng_export, or err */
    EV_IMPORT_BEGUN, /* ptr: the import, n: blocks that need not come; or err */
    EV_IMPORT_WRITTEN,
    EV_IMPORT_DONE, /* n: tokens, a: 1 if the rest is being evaluated; or err */
    EV_BROKEN,      /* err: the core cannot go on, the process has to end */
};

enum { DIRTY_PAGE, DIRTY_PROMPT, DIRTY_TURN };

struct event {
    uint8_t type;
    uint8_t kind; /* DIRTY_*, enum eng_done */
    uint8_t n_top;
    uint32_t slot, n, a,
        b;           /* accepted: n reused, a queue_pos; prefill: n done, a total, b reused; token: n id */
    uint64_t handle; /* or the tag of the command */
    uint64_t pos;    /* token: position; accepted: seed; done: emitted */
    float logprob;
    double state; /* token: of the sampler */
    void *ptr;
    struct vt_err *err;  /* owned by the taker */
    struct eng_top *top; /* owned by the taker */
    float *vec;          /* owned by the taker */
    struct eng_usage usage;
};

/* What the last steps left behind, copied for the other thread. */
struct compute_status {
    struct eng_counters counters;
    uint32_t n_slots;
    bool idle;
    struct eng_slot_info slot[256];
};

struct compute;

struct compute_opts {
    const struct eng_ops *ops;
    struct eng_config cfg; /* progress is filled in here */
    uint64_t canary_us;    /* idle time after which one token is decoded; 0: never */
    const struct vt_clock *clock;
};

int compute_start(struct compute **out, const struct compute_opts *o, struct vt_err *err);
/* Asks the thread to end and waits up to ms. False: it did not; then nothing may be freed and the process must _exit. */
bool compute_stop(struct compute *c, unsigned ms);

/* Readable when there are events or load progress. */
int compute_fd(const struct compute *c);
/* All events since the last call; valid until the next. */
struct event *compute_take(struct compute *c, size_t *n);
/* Load progress: false when nothing moved since the last call. */
bool compute_progress(struct compute *c, unsigned *phase, uint64_t *done, uint64_t *total);

/* NULL when memory is out. The command is filled by the caller and given away by compute_put. */
struct cmd *compute_cmd(enum cmd_type type);
void compute_cmd_free(struct cmd *m);
void compute_put(struct compute *c, struct cmd *m);

/* Handles of the gateway's requests are below. */
#define COMPUTE_FILLS (UINT64_C(1) << 63)
static inline uint64_t compute_fill_handle(uint64_t tag)
{
    return tag | COMPUTE_FILLS;
}

/* Before the load has ended: step counts load progress, op is ENG_OP_LOAD. */
void compute_pulse(struct compute *c, struct eng_pulse *out);
void compute_status(struct compute *c, struct compute_status *out);
/* After EV_LOADED. */
const struct eng_facts *compute_facts(const struct compute *c);
uint64_t compute_device_free(const struct compute *c);
/* For what export_read fills; any thread after the load. */
void compute_pin(struct compute *c, void *p, size_t bytes);
void compute_unpin(struct compute *c, void *p);
/* Copies bytes of a held export; any time until CMD_EXPORT_FREE. */
int compute_export_read(struct compute *c, struct eng_export *x, int kind, uint32_t index, uint64_t off,
                        void *dst, size_t len);

#endif
