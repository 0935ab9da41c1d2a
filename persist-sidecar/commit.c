/* The last transaction of a save: manifest, list, head. What the triggers refuse is rolled back. */
#include "save.h"

#include <inttypes.h>
#include <string.h>

/* Every unit's row, as this transaction sees it. A read may have found it bad since the begin, and the next attempt sends it
 * again. Nothing else takes away a pinned row or one just written: an index that does not find it is damaged. */
static int unit_id(struct save *sv, const struct save_unit *u, int64_t *id, struct vt_err *err)
{
    struct store *s = sv->s;
    struct block_row row;
    int rc = db_block_row(s, u->name, &row, err);
    if (rc < 0)
        return -1;
    *id = row.id;
    if (rc == 1 && !row.bad)
        return 0;
    if (rc == 1 && db_is_bad(s, row.id))
        return vt_fail(err, VT_E_CORRUPT, "a block of this save went bad meanwhile; save again");
    s->damaged = true;
    return vt_fail(err, VT_E_CORRUPT, "a block of this save is not found by its name");
}

static int launch_id(struct store *s, int64_t *id, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, ST_LAUNCH_NEWEST, err);
    if (st == NULL || db_step(s, st, "reading the newest launch", err) != 1)
        return -1;
    *id = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    if (*id != 0)
        return 0;
    /* An engine that vitriold has not recorded (tests, tools): one row stands for all of them. */
    struct store_launch none = {.child = "none",
                                .fp = "",
                                .line = "",
                                .diff_prev = "",
                                .diff_bless = "",
                                .boot_id = "",
                                .effective = "\x80",
                                .effective_len = 1,
                                .started_us = vt_wall(s->o.clock)};
    return launch_insert(s, &none, id, err);
}

static int put_manifest(struct save *sv, int64_t *id, struct vt_err *err)
{
    struct store *s = sv->s;
    int64_t rec_block = 0, launch;
    if (launch_id(s, &launch, err) < 0)
        return -1;
    if (sv->n_rec > 0 && unit_id(sv, &sv->units[save_units(sv) - 1], &rec_block, err) < 0)
        return -1;
    sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_PUT, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, sv->tenant, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, sv->slot);
    sqlite3_bind_int64(st, 3, sv->layout_id);
    sqlite3_bind_int64(st, 4, sv->n_items);
    sqlite3_bind_int64(st, 5, (int64_t)sv->n_names * sv->block_tokens);
    if (rec_block != 0) {
        sqlite3_bind_int64(st, 6, rec_block);
        sqlite3_bind_int64(st, 7, sv->rec[sv->n_rec - 1].pos);
    }
    sqlite3_bind_int(st, 8, (int)sv->reason);
    if (sv->cur != 0)
        sqlite3_bind_int64(st, 9, sv->cur);
    sqlite3_bind_int(st, 10, sv->extends);
    sqlite3_bind_int64(st, 11, launch);
    sqlite3_bind_int64(st, 12, (int64_t)vt_wall(s->o.clock));
    if (sv->has_private)
        sqlite3_bind_blob(st, 13, sv->private_salt, 32, SQLITE_STATIC);
    sqlite3_bind_blob(st, 14, sv->seal, 32, SQLITE_STATIC);
    if (sv->sampler_len > 0)
        sqlite3_bind_blob(st, 15, sv->sampler, (int)sv->sampler_len, SQLITE_STATIC);
    sqlite3_bind_blob(st, 16, sv->items, (int)(4 * sv->n_items), SQLITE_STATIC);
    if (db_run(s, st, "writing a manifest", err) < 0)
        return -1;
    *id = sqlite3_last_insert_rowid(s->db);
    return 0;
}

static int put_list(struct save *sv, int64_t manifest, struct vt_err *err)
{
    struct store *s = sv->s;
    for (uint32_t i = 0; i < save_units(sv); i++) {
        int64_t id;
        if (unit_id(sv, &sv->units[i], &id, err) < 0)
            return -1;
        if (sv->units[i].kind != CKPT_KV)
            continue;
        sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_BLOCK_PUT, err);
        if (st == NULL)
            return -1;
        sqlite3_bind_int64(st, 1, manifest);
        sqlite3_bind_int64(st, 2, i);
        sqlite3_bind_int64(st, 3, id);
        if (db_run(s, st, "writing a manifest", err) < 0)
            return -1;
    }
    return 0;
}

/* The richest of the last day stays pinned beside the newest. */
static int64_t richest(struct save *sv, int64_t manifest, struct vt_err *err)
{
    struct store *s = sv->s;
    sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_HEADLINE, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, sv->rich);
    int rc = db_step(s, st, "reading the richest checkpoint", err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return manifest;
    uint64_t ntok = (uint64_t)sqlite3_column_int64(st, 1), created = (uint64_t)sqlite3_column_int64(st, 4);
    sqlite3_reset(st);
    uint64_t now = vt_wall(s->o.clock);
    bool old = now > created && now - created > VT_SEC(86400);
    return sv->n_items >= ntok || old ? manifest : sv->rich;
}

static int move_head(struct save *sv, int64_t manifest, struct vt_err *err)
{
    struct store *s = sv->s;
    sqlite3_stmt *st = db_stmt(s, sv->cur == 0 ? ST_HEAD_PUT : ST_HEAD_MOVE, err);
    if (st == NULL)
        return -1;
    if (sv->cur != 0) {
        int64_t rich = richest(sv, manifest, err);
        if (rich < 0)
            return -1;
        sqlite3_bind_int64(st, 4, sv->cur);
        sqlite3_bind_int64(st, 5, rich);
        sqlite3_bind_int64(st, 6, sv->gen);
    }
    sqlite3_bind_text(st, 1, sv->tenant, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, sv->slot);
    sqlite3_bind_int64(st, 3, manifest);
    if (db_run(s, st, "moving the head", err) < 0)
        return -1;
    if (sqlite3_changes(s->db) != 1)
        return vt_fail(err, VT_E_CLOBBER, "stale head generation %" PRId64, sv->gen);
    return 0;
}

static int drop_if_free(struct store *s, int64_t manifest, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_FREE, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, manifest);
    int rc = db_step(s, st, "looking at an older checkpoint", err);
    if (rc != 1)
        return rc;
    sqlite3_reset(st);
    if ((st = db_stmt(s, ST_MANIFEST_DEL, err)) == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, manifest);
    return db_run(s, st, "dropping an older checkpoint", err);
}

/* The checkpoint before the previous one goes if the previous one extends it: then it holds nothing of its own. */
static int drop_older(struct save *sv, struct vt_err *err)
{
    struct store *s = sv->s;
    if (sv->prev == 0 || sv->prev == sv->cur)
        return 0;
    sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_CHAIN, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, sv->cur);
    sqlite3_bind_int64(st, 2, sv->prev);
    int rc = db_step(s, st, "looking at the checkpoint before", err);
    bool extends = rc == 1 && sqlite3_column_int(st, 0) == 1;
    if (rc == 1)
        sqlite3_reset(st);
    return rc < 0 || !extends ? (rc < 0 ? -1 : 0) : drop_if_free(s, sv->prev, err);
}

static int named_now(struct save *sv, int64_t *manifest, struct vt_err *err)
{
    *manifest = 0;
    sqlite3_stmt *st = db_stmt(sv->s, ST_NAMED_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, sv->tenant, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, sv->name, -1, SQLITE_STATIC);
    int rc = db_step(sv->s, st, "looking for a slot file", err);
    if (rc == 1) {
        *manifest = sqlite3_column_int64(st, 0);
        sqlite3_reset(st);
    }
    return rc < 0 ? -1 : 0;
}

static int put_name(struct save *sv, int64_t manifest, struct vt_err *err)
{
    int64_t old;
    if (named_now(sv, &old, err) < 0)
        return -1;
    sqlite3_stmt *st = db_stmt(sv->s, ST_NAMED_PUT, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, sv->tenant, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, sv->name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, manifest);
    sqlite3_bind_int64(st, 4, (int64_t)vt_wall(sv->s->o.clock));
    if (db_run(sv->s, st, "naming a slot file", err) < 0)
        return -1;
    return old != 0 && old != manifest ? drop_if_free(sv->s, old, err) : 0;
}

static int last_transaction(struct save *sv, int64_t *manifest, struct vt_err *err)
{
    struct store *s = sv->s;
    bool named = sv->name[0] != '\0';
    if (!s->in_txn && db_begin(s, err) < 0)
        return -1;
    if (!sv->same &&
        (save_layout(sv, err) < 0 || put_manifest(sv, manifest, err) < 0 || put_list(sv, *manifest, err) < 0))
        return -1;
    if (named && put_name(sv, *manifest, err) < 0)
        return -1;
    if (!named && (move_head(sv, *manifest, err) < 0 || drop_older(sv, err) < 0))
        return -1;
    if (space_day_keep(s, err) < 0)
        return -1;
    return db_commit(s, err);
}

int save_commit(struct save *sv, struct save_result *r, struct vt_err *err)
{
    struct store *s = sv->s;
    struct vt_err local;
    if (err == NULL)
        err = &local;
    int64_t manifest = sv->cur;
    if (sv->phase != SAVE_IDLE || sv->at != NULL) {
        vt_fail(err, VT_E_BAD_FRAME, "a commit in the middle of a block");
        return save_give_up(sv, err);
    }
    for (uint32_t i = 0; i < save_units(sv); i++)
        if (sv->units[i].need && !sv->units[i].done && !sv->same) {
            vt_fail(err, VT_E_BAD_FRAME, "a commit before all the blocks that were asked for");
            return save_give_up(sv, err);
        }
    if ((!sv->same || sv->name[0] != '\0') && last_transaction(sv, &manifest, err) < 0)
        return save_give_up(sv, err);
    *r = (struct save_result){.manifest = (uint64_t)manifest,
                              .head_gen = (uint64_t)(sv->same || sv->name[0] != '\0' ? sv->gen : sv->gen + 1),
                              .written = save_written(s) - sv->written0,
                              .us = vt_mono(s->o.clock) - sv->t0_us};
    s->f.saves++;
    s->full = false;
    return 0;
}
