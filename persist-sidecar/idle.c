/* Idle time: what is due when nobody waits, and the scrub that reads every block again now and then. */
#include "db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COLLECT_EVERY  VT_SEC(60)
#define SCRUB_US       ((int64_t)14 * 86400 * 1000000)
#define CHECK_US       ((int64_t)7 * 86400 * 1000000)
#define IDLE_FOR_CHECK VT_SEC(600)

static int vacuum(struct store *s, struct vt_err *err)
{
    int64_t pages = db_int(s, "PRAGMA page_count", err), idle = db_int(s, "PRAGMA freelist_count", err);
    if (pages < 0 || idle < 0)
        return -1;
    if (idle < 256 || 4 * idle <= pages)
        return 0;
    if (db_begin(s, err) < 0)
        return -1;
    if (db_exec(s, "PRAGMA incremental_vacuum(64)", "giving space back", err) < 0) {
        db_rollback(s);
        return -1;
    }
    return db_commit(s, err) < 0 ? -1 : 1;
}

/* What was done in the future was done by a clock that was wrong, and says nothing. */
static bool due(int64_t last, int64_t now, int64_t every)
{
    return last == INT64_MIN || last > now || now - last >= every;
}

/* The weekly look at the whole file. A job that comes in interrupts it; it then starts again in the next idle
 * time. */
static int integrity(struct store *s, struct vt_err *err)
{
    int64_t last = db_mark_get(s, "checked"), now = (int64_t)vt_wall(s->o.clock);
    if (!due(last, now, CHECK_US))
        return 0;
    sqlite3_stmt *st = NULL;
    s->interruptible = true;
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA integrity_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    s->interruptible = false;
    bool ok = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(st, 0), "ok") == 0;
    if (rc == SQLITE_ROW && !ok)
        s->damaged = true;
    sqlite3_finalize(st);
    if (rc == SQLITE_INTERRUPT)
        return 0;
    if (!ok)
        return vt_fail(err, VT_E_CORRUPT, "the weekly check found damage");
    if (db_begin(s, err) < 0)
        return -1;
    if (db_mark_set(s, "checked", now, err) < 0) {
        db_rollback(s);
        return -1;
    }
    return db_commit(s, err) < 0 ? -1 : 1;
}

int store_idle(struct store *s, struct vt_err *err)
{
    struct vt_err local;
    if (err == NULL)
        err = &local;
    uint64_t now = vt_mono(s->o.clock);
    int rc = store_quarantine(s, err);
    if (rc != 0)
        return rc;
    if (now - s->collect_us < COLLECT_EVERY)
        return 0;
    if ((rc = store_collect(s, false, err)) != 0)
        return rc;
    if ((rc = vacuum(s, err)) != 0)
        return rc;
    s->collect_us = now;
    if (s->ballast_gone)
        space_ballast_make(s);
    if (now - s->idle_us < IDLE_FOR_CHECK)
        return 0;
    return integrity(s, err);
}

/* ---- scrub ---- */

static int64_t newest(struct store *s)
{
    return s->next_block - 1;
}

/* A pass over the whole store, every two weeks. */
static bool start_pass(struct store *s)
{
    int64_t last = db_mark_get(s, "scrubbed"), at = db_mark_get(s, "scrub"),
            now = (int64_t)vt_wall(s->o.clock);
    if (newest(s) == 0 || !due(last, now, SCRUB_US))
        return false;
    s->scrubbing = s->scrub_all = true;
    s->scrub_at = at > 0 ? at : 1;
    s->scrub_end = newest(s);
    return true;
}

bool store_scrub_all(struct store *s)
{
    if (s->scrubbing)
        return false;
    s->scrubbing = s->scrub_all = true;
    s->scrub_at = 1;
    s->scrub_piece = 0;
    s->scrub_end = newest(s);
    return true;
}

bool store_scrubbing(const struct store *s)
{
    return s->scrubbing;
}

static int end_pass(struct store *s, struct vt_err *err)
{
    if (db_begin(s, err) < 0)
        return -1;
    int rc;
    if (s->scrub_all) {
        rc = db_mark_set(s, "scrubbed", (int64_t)vt_wall(s->o.clock), err);
        if (rc == 0)
            rc = db_mark_set(s, "scrub", 1, err);
    } else {
        rc = db_mark_set(s, "clean", s->scrub_end, err);
    }
    if (rc < 0) {
        db_rollback(s);
        return -1;
    }
    if (db_commit(s, err) < 0)
        return -1;
    if (!s->scrub_all)
        s->clean = s->scrub_end;
    s->scrubbing = s->scrub_all = false;
    return 0;
}

int store_scrub(struct store *s, struct vt_err *err)
{
    struct vt_err local;
    if (err == NULL)
        err = &local;
    if (!s->scrubbing && !start_pass(s))
        return 0;
    sqlite3_stmt *st = db_stmt(s, ST_BLOCK_NEXT, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, s->scrub_at);
    int rc = db_step(s, st, "looking for the next block to verify", err);
    if (rc < 0)
        return -1;
    int64_t id = rc == 1 ? sqlite3_column_int64(st, 0) : INT64_MAX;
    uint64_t bytes = rc == 1 ? (uint64_t)sqlite3_column_int64(st, 1) : 0;
    if (rc == 1)
        sqlite3_reset(st);
    if (id > s->scrub_end)
        return end_pass(s, err);
    if (id != s->scrub_at) {
        s->scrub_at = id;
        s->scrub_piece = 0;
    }
    uint8_t sum[VT_XXH128_LEN], *buf = malloc(CKPT_PIECE);
    if (buf == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory to verify a block");
    rc = payload_read(s, id, NULL, bytes, s->scrub_piece, buf, sum, err);
    free(buf);
    if (rc < 0 && err->code != VT_E_CORRUPT)
        return -1;
    if (rc < 0 && db_add_bad(s, id, err->text, err) < 0)
        return -1;
    s->f.scrubbed_bytes += rc == 0 ? ckpt_piece_len(bytes, s->scrub_piece) : 0;
    if (rc < 0 || ++s->scrub_piece == ckpt_pieces(bytes)) {
        s->f.scrubbed++;
        s->scrub_at = id + 1;
        s->scrub_piece = 0;
    }
    return 1;
}
