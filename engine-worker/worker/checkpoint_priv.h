/* The inside of checkpoint.c, save.c, load.c and fetch.c. */
#ifndef WORKER_CHECKPOINT_PRIV_H
#define WORKER_CHECKPOINT_PRIV_H

#include "checkpoint.h"
#include "ring.h"
#include "worth.h"

#define MAX_SLOTS      256
#define SALTS          64
#define OP_US          VT_SEC(120) /* the store may sit in one sync for that long */
#define REC_EVERY      8u          /* blocks between snapshots that are kept for branches of a conversation */
#define PIECES_AT_ONCE 2           /* pieces copied before the loop turns: about a millisecond */

/* What the newest acknowledged checkpoint of a slot holds. */
struct slot_mark {
    uint64_t epoch;              /* of the last look; equal: nothing to do */
    uint32_t blocks, rec;        /* saved blocks and last snapshot position */
    uint32_t items;              /* ids, those behind the blocks among them */
    uint8_t name[CKPT_NAME_LEN]; /* of the last saved block */
    uint64_t due;                /* 0: no save is planned */
    enum ckpt_reason reason;
    uint64_t changed_at; /* 0: nothing unsaved */
    uint32_t *restored;  /* items that came from the store, until the first request has shown their worth */
    uint32_t n_restored;
    uint32_t prompt;      /* tokens of the last prompt that ran in the slot */
    char tenant[65];      /* of the last checkpoint */
    bool erased, put_off; /* put_off: the last try was */
    bool forgotten;       /* the store was told to; what is in the slot counts as new once it changes */
};

struct salt {
    char tenant[65];
    uint8_t salt[CKPT_SALT_LEN];
};

enum save_state { SAVE_IDLE, SAVE_EXPORT, SAVE_SALT, SAVE_NEED, SAVE_SEND, SAVE_COMMIT };
struct save {
    enum save_state state;
    uint64_t id, started;
    uint32_t slot;
    enum ckpt_reason reason;
    char name[256]; /* slot file; "" for a head */
    checkpoint_done done;
    void *arg;
    struct eng_export *x;
    uint32_t *rec, n_rec;       /* the snapshots of the export that are worth saving */
    uint8_t *names, *rec_names; /* 32 bytes each */
    uint8_t *need;              /* one byte a block, then one a snapshot */
    uint32_t at, piece;         /* next in need; its next piece */
    uint32_t credit, under_way, pieces;
    uint64_t bytes;
    bool ring_busy[VT_RING_SLOTS * 2];
};

enum load_state { LOAD_IDLE, LOAD_HEADS, LOAD_SALT, LOAD_PLAN, LOAD_BEGIN, LOAD_DATA, LOAD_PUBLISH };
struct head {
    uint32_t slot;
    char tenant[65];
};
struct load {
    enum load_state state;
    bool all;    /* a restore of all heads */
    bool prefix; /* of a prompt that waits: into the cache, for the request of that handle */
    uint64_t handle;
    uint32_t resident; /* tokens of the prompt that are here */
    uint8_t *names;    /* of a prompt's blocks; NULL before the salt is known */
    uint64_t id, started, deadline, op_started;
    uint32_t slot;
    char tenant[65], name[256];
    checkpoint_done done;
    void *arg;
    struct checkpoint_result result;
    struct head *heads;
    unsigned n_heads, at_head;

    uint64_t manifest;
    uint32_t *items;
    uint32_t n_items, n_blocks, rec_pos;
    uint32_t all_items; /* a slot file's; those behind n_items have no blocks */
    void *imp;
    uint32_t next_block, next_piece; /* what has to come next; the snapshot comes before block 0 */
    bool want_rec, rec_ok, spoilt, ended, retried;
    uint32_t good, writing;
};

/* Slot files wait their turn: a client's order often comes while the turn before is being saved. */
#define NAMED_MAX 16
struct named_op {
    bool load;
    uint32_t slot;
    char tenant[65], name[256];
    checkpoint_done done;
    void *arg;
};

/* Requests whose prompts wait for the store. */
#define FETCH_MAX 64
struct fetch {
    uint64_t handle, deadline;
    char tenant[65];
    uint32_t *ids, n_ids, resident; /* whole blocks; owned */
};

/* A prompt's blocks that came, and whose request has not been placed yet. */
struct arrived {
    uint64_t handle;
    uint32_t from, to; /* tokens */
};

/* What a slot file does not hold as blocks is evaluated: its tail, and of a model with state what lies behind the newest
 * snapshot. Of a damaged one only what is not more than that. */
#define FILL_MAX ((REC_EVERY + 1) * ENG_PAGE - 1)
struct filling {
    bool used;
    uint64_t id;
    uint32_t n_items;
    struct checkpoint_result result;
    checkpoint_done done;
    void *arg;
    uint64_t started;
};

struct checkpoint {
    struct checkpoint_opts o;
    struct vt_link *link;
    struct vt_ring ring;
    void *bulk; /* the ring's mapping, of the link; what is exported goes there */
    size_t bulk_bytes;
    bool pinned;
    uint32_t half; /* ring slots of each direction */
    uint64_t next_id, ids_before_link, next_autosave, chunks;
    struct salt salts[SALTS];
    unsigned n_salts;
    struct slot_mark mark[MAX_SLOTS];
    struct compute_status status;
    struct save save;
    struct load load;
    struct named_op named[NAMED_MAX];
    unsigned n_named;
    struct filling filling[NAMED_MAX];
    struct fetch fetch[FETCH_MAX];
    unsigned n_fetch;
    struct arrived arrived[FETCH_MAX]; /* the oldest gives way: of a request that never was placed */
    unsigned next_arrived;
    struct worth worth;
    uint64_t heard; /* when the store said something last */
    bool silent;    /* it let a prompt wait for nothing */
    bool kick;      /* an operation has ended: look for the next one */
    struct {
        bool active;
        uint64_t deadline, started;
        struct checkpoint_result result;
        checkpoint_done done;
        void *arg;
    } order;
    struct checkpoint_stats stats;
};

const struct eng_facts *ck_facts(const struct checkpoint *c);
/* The tenant's salt when it is known; else asks for it under that operation and returns NULL. */
const uint8_t *ck_salt(struct checkpoint *c, const char *tenant, uint64_t id);
bool ck_post(struct checkpoint *c);
void ck_free_import(struct checkpoint *c, void *imp);
/* names[n_blocks]; h0 from the salt. */
void ck_names(const struct checkpoint *c, const uint8_t *salt, const uint32_t *items, uint32_t n_blocks,
              uint8_t *names);

/* save.c */
void save_start(struct checkpoint *c, uint32_t slot, enum ckpt_reason reason, const char *name,
                checkpoint_done done, void *arg);
void save_event(struct checkpoint *c, struct event *ev);
int save_frame(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err);
void save_salt(struct checkpoint *c);
bool save_pump(struct checkpoint *c);
/* Gives everything back; tells whoever waits. */
void save_fail(struct checkpoint *c, const struct vt_err *why);

/* load.c */
void load_event(struct checkpoint *c, struct event *ev);
int load_frame(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err);
void load_salt(struct checkpoint *c);
void load_named(struct checkpoint *c, const struct named_op *op);
void load_tick(struct checkpoint *c);
void load_fail(struct checkpoint *c, const struct vt_err *why);
/* Nothing more will come: what is whole is used. */
void load_cut(struct checkpoint *c, const struct vt_err *why);
void load_prefix(struct checkpoint *c, const struct fetch *f); /* takes f->ids over */
/* The load of that prompt ends without telling anybody. */
void load_forget(struct checkpoint *c);

/* fetch.c */
/* Takes the next prompt if no load is under way. */
void fetch_start(struct checkpoint *c);
void fetch_tick(struct checkpoint *c);
/* All that wait go without. */
void fetch_end_all(struct checkpoint *c);
/* The time of a prompt is over. */
void fetch_late(struct checkpoint *c);
void fetch_told(struct checkpoint *c, uint64_t handle);
void fetch_arrived(struct checkpoint *c, uint64_t handle, uint32_t from, uint32_t to);
/* The request of that handle was placed and reuses so many of its n_ids tokens; false: the blocks came for nothing. */
bool fetch_used(struct checkpoint *c, uint64_t handle, size_t n_ids, uint32_t reused);

/* fill.c */
/* The items of the load that is about to end are being evaluated in its slot: that ends later, and then tells its caller. */
void fill_start(struct checkpoint *c);
void fill_event(struct checkpoint *c, struct event *ev);
void fill_end_all(struct checkpoint *c, const struct vt_err *why);

#endif
