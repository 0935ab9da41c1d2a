#ifndef OFF_STORE_PRIV_H
#define OFF_STORE_PRIV_H

#include "store/store.h"

#include <sqlite3.h>

struct store {
    sqlite3 *db;
    char *home;
    uint64_t
        died; /* when whoever held it before gave its last sign; wall clock, microseconds; 0: not known */
    uint64_t beat; /* when this one did */
    int lock;      /* descriptor of the held conversation's lock file; -1 */
    char *held;
    int64_t num;                /* of the held conversation */
    int64_t epoch;              /* of the projection as stored */
    size_t units, tasks, queue; /* stored */
    uint64_t draft_hash, tasks_hash, queue_hash, meta_hash, sign;
    char **history;
    size_t n_history;
};

/* A prepared statement with arguments by letters: s text, i int64, d double, b text of a length (pointer, size_t), x the same as a blob, n NULL. NULL with err. */
sqlite3_stmt *sql_prepare(struct store *s, struct vt_err *err, const char *sql, const char *types, ...);
/* The same, run to its end. */
int sql_run(struct store *s, struct vt_err *err, const char *sql, const char *types, ...);
int sql_fail(struct store *s, struct vt_err *err);
/* First column of the first row, or dflt. */
int64_t sql_int(struct store *s, int64_t dflt, const char *sql, const char *types, ...);
char *sql_str(struct store *s, const char *sql, const char *types, ...);

/* Number of a conversation, or -1. */
int64_t session_num(struct store *s, const char *session);
/* Rows of items have numbers of the whole file: conversation and item. */
#define ROW(num, id) (((int64_t)(num) << 32) | (int64_t)(id))

#endif
