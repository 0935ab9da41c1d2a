/* Upkeep: quarantine of bad blocks, collection in the order of eviction, vacuum, and the scrub. Each call is
 * one bounded step; a deletion is one transaction of at most 64 blocks, manifests first. */
#include "db.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BATCH     64
#define LOOSE_AGE VT_SEC(3600)
#define PREV_AGE  VT_SEC(7 * 86400)
#define RICH_AGE  VT_SEC(86400)
#define BAD_BYTES ((int64_t)1 << 30)

struct victim {
    int64_t id, bytes;
};

static int64_t before(const struct store *s, uint64_t age)
{
    int64_t now = (int64_t)vt_wall(s->o.clock);
    return now - (int64_t)age;
}

static int run_id(struct store *s, enum sql_id sql, int64_t id, const char *what, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, sql, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, id);
    return db_run(s, st, what, err);
}

static int end_txn(struct store *s, int rc, struct vt_err *err)
{
    if (rc < 0) {
        db_rollback(s);
        return -1;
    }
    return db_commit(s, err);
}

/* ---- bad blocks ---- */

int block_cut(struct store *s, int64_t block, struct vt_err *err)
{
    static const enum sql_id acts[] = {ST_CUT_REC, ST_CUT_KV, ST_CUT_LIST};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (run_id(s, acts[i], block, "cutting what lists a bad block", err) < 0)
            return -1;
    return 0;
}

int block_delete_bad(struct store *s, int64_t block, struct vt_err *err)
{
    if (block_cut(s, block, err) < 0)
        return -1;
    return run_id(s, ST_BLOCK_DEL, block, "deleting a bad block", err);
}

int store_quarantine(struct store *s, struct vt_err *err)
{
    if (s->n_bad == 0)
        return 0;
    int64_t id = s->bad[s->n_bad - 1];
    if (db_begin(s, err) < 0)
        return -1;
    int rc = block_cut(s, id, err);
    if (rc == 0)
        rc = run_id(s, ST_BLOCK_BAD, id, "marking a bad block", err);
    if (end_txn(s, rc, err) < 0)
        return -1;
    s->n_bad--;
    return 1;
}

/* ---- collection ---- */

static int delete_blocks(struct store *s, const struct victim *v, size_t n, bool bad, struct vt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int rc = bad ? block_delete_bad(s, v[i].id, err)
                     : run_id(s, ST_BLOCK_DEL, v[i].id, "deleting a block", err);
        if (rc < 0)
            return -1;
    }
    s->f.collected += n;
    return 0;
}

static int gather(struct store *s, sqlite3_stmt *st, struct victim *v, size_t *n, struct vt_err *err)
{
    int rc;
    *n = 0;
    while ((rc = db_step(s, st, "looking for what may go", err)) == 1) {
        const uint8_t *name = sqlite3_column_blob(st, 1);
        bool pinned = name != NULL && sqlite3_column_bytes(st, 1) == 32 && nameset_has(&s->pins, name);
        if (!pinned)
            v[(*n)++] = (struct victim){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 2)};
        if (*n == BATCH) {
            sqlite3_reset(st);
            break;
        }
    }
    return rc < 0 ? -1 : 0;
}

/* A deletion that does not fit a full disk gets the ballast, once. */
static int retry_with_ballast(struct store *s, const struct vt_err *err)
{
    return err->code == VT_E_DISK_FULL && space_ballast_drop(s);
}

/* Blocks that no manifest names. loose: also snapshots whose block is named but that no manifest starts from.
 */
static int collect_loose(struct store *s, bool snapshots, struct vt_err *err)
{
    struct victim v[BATCH];
    size_t n;
    sqlite3_stmt *st = db_stmt(s, ST_GC_LOOSE, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, before(s, LOOSE_AGE));
    sqlite3_bind_int(st, 2, snapshots);
    sqlite3_bind_int64(st, 3, before(s, 0)); /* used in the future: by a clock that was wrong */
    if (gather(s, st, v, &n, err) < 0)
        return -1;
    if (n == 0)
        return 0;
    for (int attempt = 0;; attempt++) {
        if (db_begin(s, err) == 0 && end_txn(s, delete_blocks(s, v, n, false, err), err) == 0)
            return 1;
        if (attempt > 0 || !retry_with_ballast(s, err))
            return -1;
    }
}

static int collect_bad(struct store *s, bool all, struct vt_err *err)
{
    struct victim v[BATCH];
    size_t n;
    sqlite3_stmt *st = db_stmt(s, ST_GC_BAD_SUM, err);
    if (st == NULL || db_step(s, st, "summing bad blocks", err) != 1)
        return -1;
    int64_t sum = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    if (sum == 0 || (!all && sum <= BAD_BYTES))
        return 0;
    if ((st = db_stmt(s, ST_GC_BAD, err)) == NULL || gather(s, st, v, &n, err) < 0)
        return -1;
    for (size_t i = 0; !all && i < n; i++)
        if ((sum -= v[i].bytes) <= BAD_BYTES)
            n = i + 1;
    if (n == 0)
        return 0;
    if (db_begin(s, err) < 0)
        return -1;
    return end_txn(s, delete_blocks(s, v, n, true, err), err) < 0 ? -1 : 1;
}

/* What else has to let go of a manifest before its row can be deleted. */
struct eviction {
    enum sql_id find, release; /* release = ST_COUNT: nothing holds it */
    uint64_t age;
    bool by_name; /* release is by tenant and name, else by tenant and slot */
};

/* The manifest's row goes; its blocks are then loose, and old enough to be collected by the next steps, in
 * batches. */
static int delete_manifest(struct store *s, int64_t id, struct vt_err *err)
{
    if (run_id(s, ST_GC_AGE, id, "letting go of a manifest's blocks", err) < 0)
        return -1;
    return run_id(s, ST_MANIFEST_DEL, id, "deleting a manifest", err);
}

static int release(struct store *s, const struct eviction *e, const char *tenant, int64_t slot,
                   const char *name, struct vt_err *err)
{
    if (e->release == ST_COUNT)
        return 0;
    sqlite3_stmt *st = db_stmt(s, e->release, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, tenant, -1, SQLITE_STATIC);
    if (e->by_name)
        sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
    else
        sqlite3_bind_int64(st, 2, slot);
    return db_run(s, st, "letting go of a manifest", err);
}

static int is_free(struct store *s, int64_t manifest, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_FREE, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, manifest);
    int rc = db_step(s, st, "looking at a manifest", err);
    if (rc == 1)
        sqlite3_reset(st);
    return rc;
}

static int evict_one(struct store *s, const struct eviction *e, struct vt_err *err)
{
    char tenant[STORE_TENANT_MAX + 1] = "", name[STORE_NAME_MAX + 1] = "";
    sqlite3_stmt *st = db_stmt(s, e->find, err);
    if (st == NULL)
        return -1;
    if (e->age > 0)
        sqlite3_bind_int64(st, 1, before(s, e->age));
    int rc = db_step(s, st, "looking for what may go", err);
    if (rc != 1)
        return rc;
    int64_t id = sqlite3_column_int64(st, 0), slot = 0;
    const char *text = (const char *)sqlite3_column_text(st, 1);
    snprintf(tenant, sizeof tenant, "%s", text != NULL ? text : "");
    if (e->by_name && (text = (const char *)sqlite3_column_text(st, 2)) != NULL)
        snprintf(name, sizeof name, "%s", text);
    if (!e->by_name)
        slot = sqlite3_column_int64(st, 2);
    sqlite3_reset(st);
    if (db_begin(s, err) < 0)
        return -1;
    rc = release(s, e, tenant, slot, name, err);
    int loose = rc == 0 ? is_free(s, id, err) : -1;
    if (loose == 1)
        rc = delete_manifest(s, id, err);
    return end_txn(s, loose < 0 ? -1 : rc, err) < 0 ? -1 : 1;
}

int store_collect(struct store *s, bool pressure, struct vt_err *err)
{
    const struct eviction order[] = {
        {ST_GC_MANIFEST, ST_COUNT, 0, false},
        {ST_GC_RICH, ST_GC_UNRICH, RICH_AGE, false},
        {ST_GC_PREV, ST_GC_UNPREV, PREV_AGE, false},
        {ST_GC_NAMED, ST_GC_UNNAME, 0, true},
        {ST_GC_CUR, ST_GC_UNHEAD, s->o.retain_us, false},
    };
    struct vt_err local;
    if (err == NULL)
        err = &local;
    int rc = collect_bad(s, pressure, err);
    if (rc == 0)
        rc = collect_loose(s, pressure, err);
    for (size_t i = 0; pressure && rc == 0 && i < sizeof order / sizeof *order; i++) {
        rc = evict_one(s, &order[i], err);
        if (rc < 0 && retry_with_ballast(s, err))
            rc = evict_one(s, &order[i], err);
    }
    return rc;
}
