#include "db.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest statement: anything slower is a plan gone wrong, not work. Commits are not bounded: a sync takes
 * what it takes. */
#define STATEMENT_US VT_SEC(30)

static const char *const sql_text[ST_COUNT] = {
#define SQL(id, text) [ST_##id] = text,
#include "sql.def"
#undef SQL
};

static bool is_damage(int rc)
{
    int primary = rc & 0xff;
    return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_READONLY ||
           primary == SQLITE_FORMAT;
}

/* Everything that is written was checked before. What the database refuses all the same, other than a move of a head, it
 * refuses because an index and its table, or a row and what it refers to, do not agree any more. */
static bool is_disagreement(struct store *s, int rc)
{
    if ((rc & 0xff) != SQLITE_CONSTRAINT || s->db == NULL)
        return false;
    const char *m = sqlite3_errmsg(s->db);
    return strcmp(m, "clobber refused") != 0 && strcmp(m, "stale head generation") != 0;
}

static int code_of(struct store *s, int rc)
{
    if (is_disagreement(s, rc))
        return VT_E_CORRUPT;
    switch (rc & 0xff) {
    case SQLITE_FULL: return VT_E_DISK_FULL;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN: return VT_E_IO;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return VT_E_BUSY;
    case SQLITE_NOMEM: return VT_E_NOMEM;
    case SQLITE_INTERRUPT: return VT_E_DEADLINE;
    case SQLITE_CONSTRAINT: return VT_E_CLOBBER;
    default: return is_damage(rc) ? VT_E_CORRUPT : VT_E_INTERNAL;
    }
}

int db_fail(struct store *s, int rc, const char *what, struct vt_err *err)
{
    if (is_damage(rc) || is_disagreement(s, rc))
        s->damaged = true;
    return vt_fail(err, code_of(s, rc), "%s: %s", what,
                   s->db != NULL ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc));
}

sqlite3_stmt *db_stmt(struct store *s, enum sql_id id, struct vt_err *err)
{
    if (s->st[id] == NULL) {
        int rc = sqlite3_prepare_v3(s->db, sql_text[id], -1, SQLITE_PREPARE_PERSISTENT, &s->st[id], NULL);
        if (rc != SQLITE_OK) {
            db_fail(s, rc, "preparing a statement", err);
            return NULL;
        }
        return s->st[id];
    }
    sqlite3_reset(s->st[id]);
    sqlite3_clear_bindings(s->st[id]);
    return s->st[id];
}

int db_step(struct store *s, sqlite3_stmt *st, const char *what, struct vt_err *err)
{
    s->deadline_us = vt_mono(s->o.clock) + STATEMENT_US;
    int rc = sqlite3_step(st);
    s->deadline_us = 0;
    if (rc == SQLITE_ROW)
        return 1;
    if (rc != SQLITE_DONE)
        db_fail(s, rc, what, err);
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? 0 : -1;
}

int db_run(struct store *s, sqlite3_stmt *st, const char *what, struct vt_err *err)
{
    int rc = db_step(s, st, what, err);
    if (rc == 1)
        sqlite3_reset(st);
    return rc < 0 ? -1 : 0;
}

int db_exec(struct store *s, const char *sql, const char *what, struct vt_err *err)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : db_fail(s, rc, what, err);
}

int64_t db_int(struct store *s, const char *sql, struct vt_err *err)
{
    sqlite3_stmt *st = NULL;
    int64_t v = -1;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        v = sqlite3_column_int64(st, 0);
        rc = SQLITE_OK;
    }
    if (rc != SQLITE_OK)
        db_fail(s, rc, sql, err);
    sqlite3_finalize(st);
    return v;
}

/* ---- transactions ---- */

/* The first write of a process also says that it has not stopped yet: an idle process writes nothing at all.
 */
static int mark_running(struct store *s, struct vt_err *err)
{
    if (s->marked)
        return 0;
    return db_mark_set(s, "stopped", 0, err);
}

static int write_touched(struct store *s, struct vt_err *err)
{
    int64_t now = (int64_t)vt_wall(s->o.clock);
    for (size_t i = 0; i < s->n_touched; i++) {
        sqlite3_stmt *st = db_stmt(s, ST_BLOCK_TOUCH, err);
        if (st == NULL)
            return -1;
        sqlite3_bind_int64(st, 1, s->touched[i]);
        sqlite3_bind_int64(st, 2, now);
        if (db_run(s, st, "noting a use", err) < 0)
            return -1;
    }
    s->n_touched = 0;
    return 0;
}

int db_begin(struct store *s, struct vt_err *err)
{
    assert(!s->in_txn);
    sqlite3_stmt *st = db_stmt(s, ST_BEGIN, err);
    if (st == NULL || db_run(s, st, "beginning a transaction", err) < 0)
        return -1;
    s->in_txn = true;
    s->txn_first = s->next_block;
    s->idle_us = vt_mono(s->o.clock);
    if (mark_running(s, err) < 0 || write_touched(s, err) < 0) {
        db_rollback(s);
        return -1;
    }
    return 0;
}

int db_commit(struct store *s, struct vt_err *err)
{
    assert(s->in_txn);
    sqlite3_stmt *st = db_stmt(s, ST_COMMIT, err);
    if (st == NULL || db_run(s, st, "committing", err) < 0) {
        db_rollback(s);
        return -1;
    }
    s->in_txn = false;
    s->marked = true;
    s->f.last_commit_us = vt_wall(s->o.clock);
    return 0;
}

void db_rollback(struct store *s)
{
    if (!sqlite3_get_autocommit(s->db)) {
        sqlite3_stmt *st = db_stmt(s, ST_ROLLBACK, NULL);
        if (st == NULL || db_run(s, st, "rolling back", NULL) < 0)
            s->damaged = s->damaged || !sqlite3_get_autocommit(s->db);
    }
    s->in_txn = false;
}

int64_t db_mark_get(struct store *s, const char *name)
{
    int64_t v = INT64_MIN;
    sqlite3_stmt *st = db_stmt(s, ST_MARK_GET, NULL);
    if (st == NULL)
        return v;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    if (db_step(s, st, "reading a mark", NULL) == 1) {
        v = sqlite3_column_int64(st, 0);
        sqlite3_reset(st);
    }
    return v;
}

int db_mark_set(struct store *s, const char *name, int64_t value, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, ST_MARK_SET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, value);
    return db_run(s, st, "writing a mark", err);
}

void db_event(struct store *s, enum store_event ev, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    vt_log(s->o.log, ev == STORE_EV_UNCLEAN ? VT_LOG_NOTICE : VT_LOG_WARNING, "%s", text);
    if (s->o.event != NULL)
        s->o.event(s->o.event_arg, ev, text);
}

/* ---- blocks ---- */

bool db_is_bad(const struct store *s, int64_t block)
{
    for (size_t i = 0; i < s->n_bad; i++)
        if (s->bad[i] == block)
            return true;
    return false;
}

static int push_id(int64_t **list, size_t *n, size_t *cap, int64_t id)
{
    if (*n == *cap) {
        size_t want = *cap > 0 ? 2 * *cap : 64;
        int64_t *p = realloc(*list, want * sizeof *p);
        if (p == NULL)
            return -1;
        *list = p;
        *cap = want;
    }
    (*list)[(*n)++] = id;
    return 0;
}

int db_add_bad(struct store *s, int64_t block, const char *why, struct vt_err *err)
{
    if (db_is_bad(s, block))
        return 0;
    if (push_id(&s->bad, &s->n_bad, &s->cap_bad, block) < 0)
        return vt_fail(err, VT_E_NOMEM, "no memory to remember a bad block");
    s->f.bad_found++;
    db_event(s, STORE_EV_BAD_BLOCK, "block %lld is bad (%s); what lists it is cut there", (long long)block,
             why);
    return 0;
}

void db_touch(struct store *s, int64_t block)
{
    /* Losing one of these costs an earlier eviction, nothing else. */
    if (s->n_touched < 65536)
        push_id(&s->touched, &s->n_touched, &s->cap_touched, block);
}

/* SQLite answers a lookup by hash from the index alone and believes it. One flipped bit there would hand out another block
 * under this name, with bytes that fit that block's checksum, so the row itself is asked for its name. */
int db_block_row(struct store *s, const uint8_t name[CKPT_NAME_LEN], struct block_row *row,
                 struct vt_err *err)
{
    *row = (struct block_row){0};
    sqlite3_stmt *st = db_stmt(s, ST_BLOCK_FIND, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_blob(st, 1, name, CKPT_NAME_LEN, SQLITE_STATIC);
    int rc = db_step(s, st, "looking for a block", err);
    if (rc != 1)
        return rc;
    row->id = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    if ((st = db_stmt(s, ST_BLOCK_ROW, err)) == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, row->id);
    if ((rc = db_step(s, st, "looking for a block", err)) < 0)
        return -1;
    bool same = rc == 1 && sqlite3_column_bytes(st, 0) == CKPT_NAME_LEN &&
                memcmp(sqlite3_column_blob(st, 0), name, CKPT_NAME_LEN) == 0;
    if (rc == 1) {
        row->bytes = (uint64_t)sqlite3_column_int64(st, 1);
        row->bad = sqlite3_column_int(st, 2) != 1 || db_is_bad(s, row->id);
        sqlite3_reset(st);
    }
    if (!same) {
        s->damaged = true;
        return vt_fail(err, VT_E_CORRUPT, "the index of names disagrees with the blocks");
    }
    return 1;
}

int db_block_find(struct store *s, const uint8_t name[CKPT_NAME_LEN], int64_t *id, uint64_t *bytes,
                  struct vt_err *err)
{
    struct block_row row;
    int rc = db_block_row(s, name, &row, err);
    if (rc != 1)
        return rc;
    *id = row.id;
    *bytes = row.bytes;
    return !row.bad && !(s->in_txn && row.id >= s->txn_first);
}

bool store_in_txn(const struct store *s)
{
    return s->in_txn;
}
