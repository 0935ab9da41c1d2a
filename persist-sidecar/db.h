/* The database handle behind store.h: connection, statements, marks and the sets that the store's files
 * share. */
#ifndef STORE_DB_H
#define STORE_DB_H

#include "nameset.h"
#include "store.h"

#include <sqlite3.h>

/* Every statement of the store. sql.def holds the text; prepared at first use, kept for the connection's
 * life. */
enum sql_id {
#define SQL(id, text) ST_##id,
#include "sql.def"
#undef SQL
    ST_COUNT
};

#define STORE_HOUR_SLOTS 60
#define STORE_DAY_SLOTS  24

struct store_written { /* in one hour of the wall clock */
    uint64_t hour, bytes;
};

struct store {
    sqlite3 *db;
    sqlite3_stmt *st[ST_COUNT];
    struct store_vfs *vfs;
    struct store_opts o;
    char *path; /* of the database */

    int64_t next_block; /* ids are never given twice, so that the clean mark stays true */
    int64_t txn_first;  /* first block id of the open transaction; lookups treat it and all above as absent */
    int64_t clean;      /* blocks up to here were verified */
    bool in_txn, marked; /* marked: this process has written "not stopped cleanly" */
    bool damaged;        /* SQLite found damage outside a payload */
    bool full;           /* the last save did not fit */
    bool ballast_gone;
    struct save *save; /* the one open save */

    struct nameset pins;
    int64_t *bad; /* ids of blocks found bad by reads, not yet marked in the database */
    size_t n_bad, cap_bad;
    int64_t *touched; /* ids whose last use is to be written with the next transaction */
    size_t n_touched, cap_touched;

    uint64_t deadline_us; /* of the running statement; 0: none */
    bool interruptible;

    uint64_t hour[STORE_HOUR_SLOTS]; /* bytes written, by minute */
    uint64_t hour_minute, hour_seen;
    struct store_written day[STORE_DAY_SLOTS]; /* by hour; survives the process */
    uint64_t day_seen;
    bool budget_told;

    bool scrubbing;              /* a pass is under way */
    int64_t scrub_at, scrub_end; /* its next block and its last */
    uint32_t scrub_piece;
    bool scrub_all; /* this pass is of the whole store */
    uint64_t idle_us, vacuum_us, collect_us;

    struct store_facts f; /* counters; counts of rows as of facts_at */
    int64_t facts_at;     /* changes of the connection when they were counted; -1: never */
};

/* Turns a result of SQLite into an error; what: the thing that was done, in words. Notes damage, of which a constraint that
 * correct rows cannot break is a sign. Returns -1. */
int db_fail(struct store *s, int rc, const char *what, struct vt_err *err);
/* A reset statement without bindings, NULL on failure (err is set). */
sqlite3_stmt *db_stmt(struct store *s, enum sql_id id, struct vt_err *err);
/* One step: 1 row, 0 done, -1 failed. The statement is reset unless a row came. */
int db_step(struct store *s, sqlite3_stmt *st, const char *what, struct vt_err *err);
/* Runs a bound statement that returns no row of interest. */
int db_run(struct store *s, sqlite3_stmt *st, const char *what, struct vt_err *err);
/* Plain text, for pragmas and transactions. */
int db_exec(struct store *s, const char *sql, const char *what, struct vt_err *err);
/* The single integer of a query that needs no binding; -1 on failure. */
int64_t db_int(struct store *s, const char *sql, struct vt_err *err);

int db_begin(struct store *s, struct vt_err *err);
int db_commit(struct store *s, struct vt_err *err);
/* Never fails: whatever SQLite thinks of it, no transaction is open afterwards. */
void db_rollback(struct store *s);

/* INT64_MIN when absent. */
int64_t db_mark_get(struct store *s, const char *name);
int db_mark_set(struct store *s, const char *name, int64_t value, struct vt_err *err);

void db_event(struct store *s, enum store_event ev, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Blocks found bad. */
bool db_is_bad(const struct store *s, int64_t block);
int db_add_bad(struct store *s, int64_t block, const char *why, struct vt_err *err);
/* Remembers a use of a block; written with the next transaction, lost with the process. */
void db_touch(struct store *s, int64_t block);

/* Cuts every manifest that lists the block, or starts from it, there. A transaction is open. */
int block_cut(struct store *s, int64_t block, struct vt_err *err);
/* Deletes the row of a bad block and its bytes. Manifests are cut first: a block that only a flipped bit calls bad is still
 * listed. A transaction is open. */
int block_delete_bad(struct store *s, int64_t block, struct vt_err *err);

struct block_row {
    int64_t id;
    uint64_t bytes;
    bool bad;
};
/* The row of a name, whatever its state and transaction: 1 found, 0 not. */
int db_block_row(struct store *s, const uint8_t name[CKPT_NAME_LEN], struct block_row *row,
                 struct vt_err *err);
/* A live block by its name, as lookups may see it: 1 found, 0 not. */
int db_block_find(struct store *s, const uint8_t name[CKPT_NAME_LEN], int64_t *id, uint64_t *bytes,
                  struct vt_err *err);

/* ---- space (space.c) ---- */
/* Refuses filesystems on which the claims do not hold; tests a sync of a file and of the directory. */
int space_check_fs(const struct store_opts *o, struct vt_err *err);
int space_avail(struct store *s, uint64_t *avail, uint64_t *total, struct vt_err *err);
uint64_t space_used(struct store *s); /* used pages in bytes */
uint64_t space_file(struct store *s);
/* Makes room for a save of so many bytes, collecting as needed. VT_E_QUOTA or VT_E_DISK_FULL. No transaction
 * is open. */
int space_reserve(struct store *s, uint64_t bytes, struct vt_err *err);
void space_ballast_make(struct store *s);
bool space_ballast_drop(struct store *s); /* true: there was one */
/* Bytes written in the last hour, in the last 24 hours. */
uint64_t space_hour(struct store *s);
uint64_t space_day(struct store *s);
/* What the database remembers of the day's writing, at open; and puts into it, with the transaction that is open. */
void space_day_load(struct store *s);
int space_day_keep(struct store *s, struct vt_err *err);
/* May a save that nobody ordered be written now? head_age: of the slot's checkpoint, UINT64_MAX without one. VT_E_BUSY. */
int space_budget(struct store *s, uint64_t head_age_us, struct vt_err *err);

/* Piece `piece` of block `id` read into dst. name: what the block must be called, NULL = whatever. 0, or -1 with VT_E_CORRUPT (bytes or
 * structure) or another code. sum: the stored checksum, verified. */
int payload_read(struct store *s, int64_t id, const uint8_t *name, uint64_t bytes, uint32_t piece,
                 uint8_t *dst, uint8_t sum[VT_XXH128_LEN], struct vt_err *err);

int db_check_tenant(const char *tenant, struct vt_err *err);
/* A launch row inside the open transaction. */
int launch_insert(struct store *s, const struct store_launch *l, int64_t *id, struct vt_err *err);

#endif
