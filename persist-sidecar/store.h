/* The store: what a process's checkpoints, launches and salts are kept in, as one SQLite database.
 *
 * Everything here runs on one thread, the database thread. Long work is cut
 * into steps of one statement or one piece of 1 MiB, so that a lookup never waits for a save. Errors carry
 * the codes of the wire. Pointers that are handed in are borrowed for the call; results are owned as each
 * function says. */
#ifndef STORE_H
#define STORE_H

#include "ckpt.h"
#include "clock.h"
#include "err.h"
#include "log.h"
#include "vfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define STORE_TENANT_MAX 64
#define STORE_NAME_MAX   255
#define STORE_BLOCK_MAX  ((uint64_t)768 << 20) /* bytes of one block or snapshot; SQLite takes a billion */
#define STORE_ITEMS_MAX  (1u << 20)
#define STORE_REC_MAX    4096 /* snapshots named in one save */

struct store;

enum store_event {
    STORE_EV_REBUILT,   /* the database could not be used and was moved aside */
    STORE_EV_UNCLEAN,   /* the last process did not stop cleanly */
    STORE_EV_DISK_FULL, /* once until a save succeeds again */
    STORE_EV_BAD_BLOCK, /* a block's bytes did not match its checksum */
    STORE_EV_QUOTA,     /* a save was refused for the quota */
    STORE_EV_BUDGET,    /* a day's writing is nearly used up; once until half of it is free again */
};

struct store_opts {
    const char *dir; /* state directory; must exist or be creatable, 0700 */
    uint64_t quota, min_free, txn_bytes, hour_bytes, day_bytes, ballast; /* bytes */
    uint64_t retain_us; /* idle for so long: heads may be given up for space */
    bool unsafe_fs;
    bool condemned; /* move whatever is there aside first: SQLite found damage in it */
    const struct vt_clock *clock;
    struct vt_log *log;
    sqlite3_vfs *base; /* NULL: the system's */
    bool inspect;      /* by hand, of a closed database: nothing is made and nothing moved aside */
    bool bare;         /* no file but the database and its journal: no ballast, no filesystem checks */
    /* Space of the filesystem: NULL = statvfs(dir). */
    int (*avail)(void *arg, uint64_t *avail, uint64_t *total);
    void *avail_arg;
    struct store_io *io;           /* counters that other threads read; NULL: the store's own */
    const _Atomic bool *interrupt; /* true: a long check gives way; NULL: never */
    void (*random)(void *arg, void *buf, size_t n); /* where salts come from; NULL = the kernel */
    void *random_arg;
    void (*die)(void *arg, int code); /* a sync failed; NULL = _exit */
    void *die_arg;
    void (*event)(void *arg, enum store_event ev, const char *text);
    void *event_arg;
};

/* Opens, creates or moves aside. VT_E_VERSION: the file is of a newer program and was not touched. */
int store_open(struct store **out, const struct store_opts *o, struct vt_err *err);
/* clean: writes the clean mark (only if this process wrote anything). */
void store_close(struct store *s, bool clean);
const struct store_io *store_io(const struct store *s);
/* True after SQLite reported damage outside a payload: the owner closes with store_close(s, false) and opens
 * again, which moves the file aside. */
bool store_damaged(const struct store *s);

struct store_facts {
    uint64_t bytes;      /* used pages */
    uint64_t file_bytes; /* the file */
    uint64_t fs_avail, fs_total;
    uint64_t heads, blocks, bad;
    uint64_t hour_bytes, day_bytes;          /* written in the last hour, in the last 24 */
    uint64_t last_commit_us;                 /* wall clock, 0 = none */
    uint64_t scrub_left;                     /* blocks still to be verified */
    uint64_t bad_found, collected, scrubbed; /* blocks, since the process began */
    uint64_t scrubbed_bytes;
    uint64_t refused_clobber, refused_full, refused_quota, saves, restores;
    uint64_t put_off; /* saves that nobody ordered, for the budget of an hour or a day */
    bool full;
};
void store_facts(struct store *s, struct store_facts *out);

/* ---- tenants ---- */

/* 0 when the tenant has a salt; VT_E_NOT_FOUND otherwise. Reads only. */
int store_salt_get(struct store *s, const char *tenant, uint8_t salt[CKPT_SALT_LEN], struct vt_err *err);
/* The tenant's salt, drawn now if it has none. */
int store_salt(struct store *s, const char *tenant, uint8_t salt[CKPT_SALT_LEN], struct vt_err *err);

/* ---- saving ---- */

struct store_rec {
    uint32_t pos; /* tokens; a multiple of block_tokens, at most the blocks' end */
    uint8_t name[CKPT_NAME_LEN];
};

struct save_begin {
    const char *tenant;
    const char *name; /* slot file: kept under this name, no head moves; NULL or "" = none */
    uint32_t slot;
    const uint8_t *layout_fp; /* 32 bytes */
    const uint8_t *layout;    /* descriptor; may be empty */
    size_t layout_len;
    uint32_t block_tokens;
    uint64_t kv_bytes, rec_bytes; /* of one block, of one snapshot */
    uint64_t base_gen;            /* 0: no opinion */
    const uint32_t *items;
    uint32_t n_items;
    const uint8_t *names; /* 32 x n_names */
    uint32_t n_names;
    const struct store_rec *rec;
    uint32_t n_rec;
    enum ckpt_reason reason;
    bool ordered; /* by somebody, as drains are: no budget holds it up */
    const uint8_t *sampler;
    size_t sampler_len;
    const uint8_t *private_salt; /* NULL or 32 bytes */
};

struct save; /* one open save; the store has at most one */

struct save_result {
    uint64_t manifest, head_gen, written, us;
};

/* Damage and attempts: a save that meets a bad block or a damaged table fails with VT_E_CORRUPT. The owner then
 * quarantines, or opens anew if store_damaged, and the engine saves again; of one damaged place at most two attempts are
 * lost in this way (its block is marked, then the file is found unusable), so the third is with a marked block or a fresh file. */
/* Checks names, space, head and budget, pins the names and computes what is missing. */
int save_begin(struct store *s, const struct save_begin *b, struct save **out, struct vt_err *err);
/* 1: block (or snapshot, index into rec) i must be sent. */
int save_needs(const struct save *sv, enum ckpt_kind kind, uint32_t i);
/* One piece; pieces of a block come in order, blocks in any order. The bytes are copied. A whole block is
 * then written by save_step; no further piece may come before save_step returned 0. VT_E_CORRUPT: the
 * checksum does not fit the bytes. */
int save_piece(struct save *sv, enum ckpt_kind kind, uint32_t index, uint32_t piece, const uint8_t *data,
               uint32_t len, const uint8_t sum[VT_XXH128_LEN], struct vt_err *err);
/* Does one step of writing. 1: there is more, 0: nothing left to write. */
int save_step(struct save *sv, struct vt_err *err);
/* Manifest, head, COMMIT. Whatever it returns, the save is over: call save_end. */
int save_commit(struct save *sv, struct save_result *r, struct vt_err *err);
/* Rolls back what is open and frees. NULL is fine. */
void save_end(struct save *sv);
/* A transaction is open: other writes have to wait. */
bool store_in_txn(const struct store *s);

/* ---- finding and restoring ---- */

struct store_plan {
    uint64_t manifest; /* 0: prefix lookup */
    uint64_t head_gen;
    uint32_t *items; /* owned */
    uint32_t n_items;
    uint32_t have;    /* leading blocks */
    uint32_t rec_pos; /* valid if has_rec */
    bool has_rec, has_private;
    uint8_t *sampler; /* owned */
    size_t sampler_len;
    uint8_t private_salt[CKPT_SALT_LEN];
    uint32_t block_tokens;
    uint64_t kv_bytes, rec_bytes;
    uint8_t *names; /* 32 x have, owned */
};
void store_plan_free(struct store_plan *p);

struct store_head {
    char tenant[STORE_TENANT_MAX + 1];
    uint32_t slot;
    uint64_t ntok, nkv, gen, manifest;
    bool layout_match;
};
/* Newest first; *out is malloc'ed. */
int store_heads(struct store *s, const uint8_t layout_fp[32], struct store_head **out, size_t *n,
                struct vt_err *err);
/* Each checks layout, seal and name chain. VT_E_NOT_FOUND, VT_E_LAYOUT, VT_E_CORRUPT. */
int store_find_head(struct store *s, const uint8_t layout_fp[32], const char *tenant, uint32_t slot,
                    struct store_plan *p, struct vt_err *err);
int store_find_named(struct store *s, const uint8_t layout_fp[32], const char *tenant, const char *name,
                     struct store_plan *p, struct vt_err *err);
int store_find_manifest(struct store *s, uint64_t manifest, struct store_plan *p, struct vt_err *err);
/* Longest stored prefix of a chain of names. */
int store_find_prefix(struct store *s, const uint8_t layout_fp[32], const uint8_t *names, uint32_t n,
                      struct store_plan *p, struct vt_err *err);

struct load; /* one open restore; pins its names */

struct load_piece {
    enum ckpt_kind kind;
    uint32_t index, piece, len;
    uint8_t sum[VT_XXH128_LEN];
    bool last;
};
/* Takes what it needs from the plan; skip: leading blocks that are not wanted. */
int load_begin(struct store *s, const struct store_plan *p, uint32_t skip, struct load **out,
               struct vt_err *err);
/* One verified piece into dst (CKPT_PIECE bytes). 1: a piece, 0: the end, -1: the block is bad (VT_E_CORRUPT)
 * or cannot be read; the restore is over and load_good says what it is worth. */
int load_step(struct load *l, uint8_t *dst, struct load_piece *out, struct vt_err *err);
uint32_t load_good(const struct load *l); /* leading good blocks, skipped ones included */
void load_end(struct load *l);

/* ---- pins ---- */
int store_pin(struct store *s, const uint8_t *names, size_t n, struct vt_err *err);
void store_unpin(struct store *s, const uint8_t *names, size_t n);

/* ---- upkeep, one step a call; none may be called while a transaction is open ---- */

/* Marks bad blocks that reads have found. 1: did something. */
int store_quarantine(struct store *s, struct vt_err *err);
/* Deletes one batch of what nobody names. pressure: also goes through the order of eviction. 1: freed
 * something. */
int store_collect(struct store *s, bool pressure, struct vt_err *err);
/* Everything due in idle time: quarantine, collection, vacuum, ballast, last use. 1: more to do now. */
int store_idle(struct store *s, struct vt_err *err);
/* Verifies one piece. 1: more to verify, 0: nothing due. The caller paces it. */
int store_scrub(struct store *s, struct vt_err *err);

/* Begins a pass over every block now; store_scrub then takes its steps. False: a pass is under way already. */
bool store_scrub_all(struct store *s);
bool store_scrubbing(const struct store *s);
/* The rows of every table but the payload, as after an unclean stop. VT_E_CORRUPT: damaged, and store_damaged is true. */
int store_check_tables(struct store *s, struct vt_err *err);

/* ---- by hand ---- */

struct store_row { /* one checkpoint that somebody can ask for */
    char tenant[STORE_TENANT_MAX + 1], name[STORE_NAME_MAX + 1]; /* name "": the head of the slot */
    uint32_t slot;
    uint64_t ntok, good, created_us; /* good: tokens that a restore gives */
};
/* Newest first, at most 1024; *out is malloc'ed. tenant NULL: of all. */
int store_rows(struct store *s, const char *tenant, struct store_row **out, size_t *n, struct vt_err *err);

struct store_erased {
    uint64_t manifests, blocks, bytes;
};
/* Erases every checkpoint of a tenant (slot -1: its salt too) or of one of its slots, so that neither the file nor its journal
 * holds them any more. No save, restore or plan may be open. On failure it may be half done; it can be repeated. */
int store_forget(struct store *s, const char *tenant, int64_t slot, struct store_erased *out,
                 struct vt_err *err);

/* ---- launches ---- */

struct store_launch {
    const char *child, *fp, *line, *diff_prev, *diff_bless, *boot_id;
    const void *effective; /* canonical msgpack of a map */
    size_t effective_len;
    uint64_t started_us;
};
int store_launch_put(struct store *s, const struct store_launch *l, uint64_t *id, struct vt_err *err);
int store_launch_end(struct store *s, uint64_t id, const char *cls, const char *detail, uint64_t ready_us,
                     struct vt_err *err);

struct store_launch_last {
    bool found;
    uint64_t id;
    char *fp, *line; /* owned */
    uint8_t *effective;
    size_t effective_len;
};
int store_launch_last(struct store *s, const char *child, struct store_launch_last *out, struct vt_err *err);
void store_launch_last_free(struct store_launch_last *l);
/* The last n launches, the newest first, a line each: start in wall-clock us, child, fp, difference and fingerprint line
 * with tabs between them. */
int store_launch_list(struct store *s, unsigned n, FILE *out, struct vt_err *err);

#endif
