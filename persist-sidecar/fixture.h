/* What the store's tests share: a store over a disk in memory or in a directory, conversations whose blocks
 * can be made again from their names, saves and restores of them. Failures of set-up abort. */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include "check.h"
#include "db.h"
#include "simdisk.h"

struct fix {
    struct vt_fake_time time;
    struct vt_clock clock;
    struct store_opts o;
    struct store *s;
    struct simdisk *sim; /* NULL: real files */
    char dir[128];
    int died;           /* code of the last die(), 0 = none */
    unsigned events[8]; /* by enum store_event */
    uint64_t seed;      /* of the salts: the same seed gives the same file, byte for byte */
    uint64_t avail;     /* what the filesystem claims to have, when the disk is in memory */
};

/* In memory, or (sim NULL) in a fresh directory below $TMPDIR. Not opened yet. */
void fix_init(struct fix *f, bool sim);
void fix_fini(struct fix *f); /* closes, removes the directory */
int fix_open(struct fix *f, struct vt_err *err);
void fix_close(struct fix *f, bool clean);

struct talk { /* one conversation */
    const char *tenant;
    uint32_t slot, block_tokens, n_items;
    uint64_t kv_bytes, rec_bytes; /* rec 0: not hybrid */
    uint32_t rec_every;           /* blocks between snapshots */
    uint32_t seed;                /* items are a function of (seed, position) */
    uint8_t fp[32];
    enum ckpt_reason reason;
    uint64_t base_gen;
    const char *name;
    bool private_salt;
};
/* A plain one: tenant "t", 64-token blocks of 64 KiB, reason autosave. */
struct talk talk_of(uint32_t seed, uint32_t n_items);
uint32_t talk_item(const struct talk *t, uint32_t pos);
/* The bytes of a piece of the block of this name. */
void talk_fill(const uint8_t name[32], uint32_t piece, uint8_t *out, uint32_t len);

/* A whole save; sent: blocks that the store asked for (may be NULL). */
int fix_save(struct fix *f, const struct talk *t, struct save_result *r, uint32_t *sent, struct vt_err *err);
/* The begin of one, for tests that stop in the middle. */
int fix_begin(struct fix *f, const struct talk *t, struct save **out, struct vt_err *err);
/* One wanted block, pieces and steps. */
int fix_send(struct save *sv, const struct talk *t, struct fix *f, enum ckpt_kind kind, uint32_t index,
             struct vt_err *err);
void talk_names(struct fix *f, const struct talk *t, uint8_t *names);

/* Restores the head of the talk's slot and compares every byte; items must be a prefix of the talk's seed.
 * Returns tokens in the manifest, -1 when there is none or it cannot be read. poisoned: set when a byte or an
 * item differs. kv: restored tokens. */
int64_t fix_restore(struct fix *f, const struct talk *t, uint32_t *kv, bool *poisoned, struct vt_err *err);
/* Invariants; aborts with the text on violation if loud. Returns violations. */
uint64_t fix_check(struct fix *f, bool loud);

#endif
