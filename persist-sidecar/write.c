/* Pieces of a save into blobs, one a step. */
#include "save.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int save_piece(struct save *sv, enum ckpt_kind kind, uint32_t index, uint32_t piece, const uint8_t *data,
               uint32_t len, const uint8_t sum[VT_XXH128_LEN], struct vt_err *err)
{
    uint8_t got[VT_XXH128_LEN];
    assert(sv->phase == SAVE_IDLE);
    uint32_t limit = kind == CKPT_KV ? sv->n_names : kind == CKPT_REC ? sv->n_rec : 0;
    if (index >= limit)
        return vt_fail(err, VT_E_BAD_FRAME, "a piece of a block that is not part of the save");
    struct save_unit *u = &sv->units[kind == CKPT_KV ? index : sv->n_names + index];
    if (sv->at == NULL) {
        if (!u->need || u->done || piece != 0)
            return vt_fail(err, VT_E_BAD_FRAME, "a piece of a block that was not asked for");
        if (sv->buf == NULL) {
            uint64_t max = sv->kv_bytes > sv->rec_bytes ? sv->kv_bytes : sv->rec_bytes;
            if ((sv->buf = malloc(max)) == NULL)
                return vt_fail(err, VT_E_NOMEM, "no memory for a block of %" PRIu64 " bytes", max);
        }
        sv->at = u;
        sv->next_piece = 0;
    }
    if (u != sv->at || piece != sv->next_piece || len != ckpt_piece_len(u->bytes, piece))
        return vt_fail(err, VT_E_BAD_FRAME, "a piece out of order or of a wrong length");
    uint8_t *dst = sv->buf + (size_t)piece * CKPT_PIECE;
    memcpy(dst, data, len);
    vt_xxh128(dst, len, got);
    if (memcmp(got, sum, sizeof got) != 0)
        return vt_fail(err, VT_E_CORRUPT, "a piece does not have the checksum it came with");
    memcpy(sv->sums + 16u * (size_t)piece, got, 16);
    if (++sv->next_piece == ckpt_pieces(u->bytes))
        sv->phase = SAVE_ROW;
    return 0;
}

int save_layout(struct save *sv, struct vt_err *err)
{
    if (sv->layout_id != 0)
        return 0;
    sqlite3_stmt *st = db_stmt(sv->s, ST_LAYOUT_PUT, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_blob(st, 1, sv->fp, 32, SQLITE_STATIC);
    sqlite3_bind_blob(st, 2, sv->layout, (int)sv->layout_len, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, sv->block_tokens);
    sqlite3_bind_int64(st, 4, (int64_t)sv->kv_bytes);
    sqlite3_bind_int64(st, 5, (int64_t)sv->rec_bytes);
    sqlite3_bind_int64(st, 6, (int64_t)vt_wall(sv->s->o.clock));
    if (db_run(sv->s, st, "noting the layout", err) < 0)
        return -1;
    sv->layout_id = sqlite3_last_insert_rowid(sv->s->db);
    return 0;
}

/* A bad row of this name goes first; its bytes were kept as evidence until the good ones came. */
static int delete_bad(struct save *sv, const uint8_t *name, struct vt_err *err)
{
    struct store *s = sv->s;
    struct block_row row;
    int rc = db_block_row(s, name, &row, err);
    return rc == 1 ? block_delete_bad(s, row.id, err) : rc;
}

/* The only place where a blob is opened for writing: on the row that this transaction has just inserted. */
static int write_row(struct save *sv, struct vt_err *err)
{
    struct store *s = sv->s;
    struct save_unit *u = sv->at;
    if (s->in_txn && sv->txn_payload > 0 && sv->txn_payload + u->bytes > s->o.txn_bytes) {
        if (db_commit(s, err) < 0)
            return -1;
        sv->txn_payload = 0;
        return 0; /* the row is the next step */
    }
    if (!s->in_txn && db_begin(s, err) < 0)
        return -1;
    if (save_layout(sv, err) < 0 || delete_bad(sv, u->name, err) < 0)
        return -1;
    sqlite3_stmt *st = db_stmt(s, ST_BLOCK_PUT, err);
    if (st == NULL)
        return -1;
    int64_t id = s->next_block;
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_blob(st, 2, u->name, 32, SQLITE_STATIC);
    sqlite3_bind_int64(st, 3, sv->layout_id);
    sqlite3_bind_int(st, 4, (int)u->kind);
    sqlite3_bind_blob(st, 5, u->parent, 32, SQLITE_STATIC);
    sqlite3_bind_int64(st, 6, u->pos);
    sqlite3_bind_int64(st, 7, u->ntok);
    sqlite3_bind_int64(st, 8, (int64_t)u->bytes);
    sqlite3_bind_blob(st, 9, sv->sums, (int)(16 * ckpt_pieces(u->bytes)), SQLITE_STATIC);
    sqlite3_bind_int64(st, 10, (int64_t)vt_wall(s->o.clock));
    if (db_run(s, st, "writing a block", err) < 0)
        return -1;
    s->next_block++;
    if ((st = db_stmt(s, ST_PAYLOAD_PUT, err)) == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_int64(st, 2, (int64_t)u->bytes);
    if (db_run(s, st, "writing a block", err) < 0)
        return -1;
    int rc = sqlite3_blob_open(s->db, "main", "payload", "data", id, 1, &sv->blob);
    if (rc != SQLITE_OK)
        return db_fail(s, rc, "opening a block for writing", err);
    sv->write_piece = 0;
    sv->phase = SAVE_BYTES;
    return 0;
}

static int write_piece(struct save *sv, struct vt_err *err)
{
    struct save_unit *u = sv->at;
    uint64_t off = (uint64_t)sv->write_piece * CKPT_PIECE;
    int rc =
        sqlite3_blob_write(sv->blob, sv->buf + off, (int)ckpt_piece_len(u->bytes, sv->write_piece), (int)off);
    if (rc != SQLITE_OK)
        return db_fail(sv->s, rc, "writing a block", err);
    if (++sv->write_piece < ckpt_pieces(u->bytes))
        return 0;
    rc = sqlite3_blob_close(sv->blob);
    sv->blob = NULL;
    if (rc != SQLITE_OK)
        return db_fail(sv->s, rc, "writing a block", err);
    u->done = true;
    sv->txn_payload += u->bytes;
    sv->at = NULL;
    sv->phase = SAVE_IDLE;
    return 0;
}

static void note_full(struct save *sv, const struct vt_err *err)
{
    struct store *s = sv->s;
    s->f.refused_full++;
    if (!s->full)
        db_event(s, STORE_EV_DISK_FULL, "a save was rolled back: %s", err->text);
    s->full = true;
}

/* Whatever was open is rolled back; on a full disk the next attempt finds what collection could free. */
int save_give_up(struct save *sv, struct vt_err *err)
{
    struct store *s = sv->s;
    if (sv->blob != NULL)
        sqlite3_blob_close(sv->blob);
    sv->blob = NULL;
    db_rollback(s);
    if (err->code == VT_E_DISK_FULL) {
        struct vt_err ignored;
        note_full(sv, err);
        store_collect(s, true, &ignored);
    }
    s->f.refused_clobber += err->code == VT_E_CLOBBER;
    return -1;
}

int save_step(struct save *sv, struct vt_err *err)
{
    struct vt_err local;
    if (err == NULL)
        err = &local;
    switch (sv->phase) {
    case SAVE_IDLE: return 0;
    case SAVE_ROW: return write_row(sv, err) < 0 ? save_give_up(sv, err) : 1;
    case SAVE_BYTES: return write_piece(sv, err) < 0 ? save_give_up(sv, err) : sv->phase != SAVE_IDLE;
    }
    return 0;
}
