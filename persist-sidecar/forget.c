/* By hand: what is there, and what is to be there no longer. A plain deletion leaves text in freed pages and in the journal, so
 * forgetting zeroes what it deletes, gives the free pages back and empties the journal. */
#include "db.h"
#include "schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH        64
#define VACUUM_PAGES 1024

int store_rows(struct store *s, const char *tenant, struct store_row **out, size_t *n, struct vt_err *err)
{
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    sqlite3_stmt *st = db_stmt(s, ST_ROW_LIST, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, tenant != NULL ? tenant : "", -1, SQLITE_STATIC);
    int rc;
    while ((rc = db_step(s, st, "listing the checkpoints", err)) == 1) {
        if (*n == cap) {
            cap = cap > 0 ? 2 * cap : 16;
            struct store_row *p = realloc(*out, cap * sizeof *p);
            if (p == NULL) {
                sqlite3_reset(st);
                rc = vt_fail(err, VT_E_NOMEM, "no memory for the list of checkpoints");
                break;
            }
            *out = p;
        }
        struct store_row *r = &(*out)[(*n)++];
        const char *who = (const char *)sqlite3_column_text(st, 0);
        const char *name = (const char *)sqlite3_column_text(st, 2);
        *r = (struct store_row){.slot = (uint32_t)sqlite3_column_int64(st, 1),
                                .ntok = (uint64_t)sqlite3_column_int64(st, 3),
                                .good = (uint64_t)sqlite3_column_int64(st, 4),
                                .created_us = (uint64_t)sqlite3_column_int64(st, 5)};
        snprintf(r->tenant, sizeof r->tenant, "%s", who != NULL ? who : "");
        snprintf(r->name, sizeof r->name, "%s", name != NULL ? name : "");
    }
    if (rc == 0)
        return 0;
    free(*out);
    *out = NULL;
    *n = 0;
    return -1;
}

/* ---- forgetting ---- */

static int drop(struct store *s, enum sql_id sql, const char *tenant, int64_t slot, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, sql, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, tenant, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, slot);
    return db_run(s, st, "forgetting checkpoints", err);
}

static int drop_rows(struct store *s, const char *tenant, int64_t slot, struct store_erased *out,
                     struct vt_err *err)
{
    if (db_begin(s, err) < 0)
        return -1;
    int rc = drop(s, ST_FORGET_HEADS, tenant, slot, err);
    if (rc == 0)
        rc = drop(s, ST_FORGET_NAMED, tenant, slot, err);
    if (rc == 0)
        rc = drop(s, ST_FORGET_MANIFESTS, tenant, slot, err);
    out->manifests = rc == 0 ? (uint64_t)sqlite3_changes(s->db) : 0;
    /* With another salt nothing that is saved from now on can be told to equal what was saved before. */
    if (rc == 0 && slot < 0)
        rc = drop(s, ST_FORGET_SALT, tenant, slot, err);
    if (rc == 0)
        return db_commit(s, err);
    db_rollback(s);
    return -1;
}

/* One batch of blocks that nobody names: their tenant is not known any more, so all of them go. 1: there may be more. */
static int drop_blocks(struct store *s, struct store_erased *out, struct vt_err *err)
{
    int64_t id[BATCH];
    uint64_t bytes = 0;
    size_t n = 0;
    int rc;
    sqlite3_stmt *st = db_stmt(s, ST_FORGET_LOOSE, err);
    if (st == NULL)
        return -1;
    while ((rc = db_step(s, st, "looking for forgotten blocks", err)) == 1 && n < BATCH) {
        bytes += (uint64_t)sqlite3_column_int64(st, 1);
        id[n++] = sqlite3_column_int64(st, 0);
    }
    if (rc == 1)
        sqlite3_reset(st);
    if (rc < 0 || n == 0)
        return rc;
    if (db_begin(s, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (block_delete_bad(s, id[i], err) < 0) {
            db_rollback(s);
            return -1;
        }
    if (db_commit(s, err) < 0)
        return -1;
    out->blocks += n;
    out->bytes += bytes;
    return 1;
}

static int give_back(struct store *s, struct vt_err *err)
{
    int64_t before = INT64_MAX, idle;
    while ((idle = db_int(s, "PRAGMA freelist_count", err)) > 0 && idle < before) {
        char sql[64];
        before = idle;
        snprintf(sql, sizeof sql, "PRAGMA incremental_vacuum(%d)", VACUUM_PAGES);
        if (db_begin(s, err) < 0)
            return -1;
        if (db_exec(s, sql, "giving space back", err) < 0) {
            db_rollback(s);
            return -1;
        }
        if (db_commit(s, err) < 0)
            return -1;
    }
    return idle < 0 ? -1 : 0;
}

/* A commit under this limit cuts the journal to nothing. */
static int empty_journal(struct store *s, struct vt_err *err)
{
    if (db_exec(s, "PRAGMA journal_size_limit=0", "emptying the journal", err) < 0)
        return -1;
    int rc = db_begin(s, err);
    if (rc == 0 && (rc = db_mark_set(s, "forgot", (int64_t)vt_wall(s->o.clock), err)) < 0)
        db_rollback(s);
    if (rc == 0)
        rc = db_commit(s, err);
    int back = db_exec(s, "PRAGMA journal_size_limit=" STORE_JOURNAL_LIMIT, "emptying the journal", err);
    return rc < 0 || back < 0 ? -1 : 0;
}

static int erase(struct store *s, const char *tenant, int64_t slot, struct store_erased *out,
                 struct vt_err *err)
{
    int more;
    if (drop_rows(s, tenant, slot, out, err) < 0)
        return -1;
    while ((more = drop_blocks(s, out, err)) == 1)
        ;
    if (more < 0 || give_back(s, err) < 0)
        return -1;
    return empty_journal(s, err);
}

int store_forget(struct store *s, const char *tenant, int64_t slot, struct store_erased *out,
                 struct vt_err *err)
{
    char bad[4200];
    *out = (struct store_erased){0};
    if (db_check_tenant(tenant, err) < 0)
        return -1;
    if (db_exec(s, "PRAGMA secure_delete=ON", "preparing to forget", err) < 0)
        return -1;
    s->n_touched = 0; /* of blocks that may go now */
    int rc = erase(s, tenant, slot, out, err);
    db_exec(s, "PRAGMA secure_delete=" STORE_SECURE_DELETE, "after forgetting", NULL);
    /* A database that was moved aside holds conversations too, nobody can tell whose. */
    snprintf(bad, sizeof bad, "%s.bad", s->path);
    if (rc == 0 && !s->o.bare)
        unlink(bad);
    return rc;
}
