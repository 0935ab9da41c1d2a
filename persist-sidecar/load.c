/* Restoring: one verified piece a step. No handle lives from one step to the next, so that a save's COMMIT or
 * ROLLBACK between two steps meets no reader. */
#include "db.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct load {
    struct store *s;
    uint8_t *names; /* 32 x n */
    uint32_t n, skip, block_tokens, rec_pos;
    uint8_t rec_name[32];
    uint64_t kv_bytes, rec_bytes;
    bool has_rec, rec_done;
    uint32_t index, piece; /* what comes next */
    uint32_t pinned;
    bool rec_pinned;
};

int payload_read(struct store *s, int64_t id, const uint8_t *name, uint64_t bytes, uint32_t piece,
                 uint8_t *dst, uint8_t sum[VT_XXH128_LEN], struct vt_err *err)
{
    uint8_t got[VT_XXH128_LEN];
    sqlite3_stmt *st = db_stmt(s, ST_BLOCK_SUM, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_int64(st, 2, piece);
    int rc = db_step(s, st, "reading a checksum", err);
    if (rc < 0)
        return -1;
    bool ok = rc == 1 && sqlite3_column_bytes(st, 0) == VT_XXH128_LEN &&
              (uint64_t)sqlite3_column_int64(st, 1) == bytes &&
              sqlite3_column_bytes(st, 2) == CKPT_NAME_LEN &&
              (name == NULL || memcmp(sqlite3_column_blob(st, 2), name, CKPT_NAME_LEN) == 0);
    if (ok)
        memcpy(sum, sqlite3_column_blob(st, 0), VT_XXH128_LEN);
    if (rc == 1)
        sqlite3_reset(st);
    if (!ok)
        return vt_fail(err, VT_E_CORRUPT, "block %" PRId64 " has no checksum for piece %" PRIu32, id, piece);
    /* Damage inside a payload's own pages costs that block alone, not the database. */
    bool damaged = s->damaged;
    uint32_t len = ckpt_piece_len(bytes, piece);
    sqlite3_blob *blob = NULL;
    rc = sqlite3_blob_open(s->db, "main", "payload", "data", id, 0, &blob);
    if (rc == SQLITE_OK && (uint64_t)sqlite3_blob_bytes(blob) != bytes)
        rc = SQLITE_CORRUPT;
    if (rc == SQLITE_OK)
        rc = sqlite3_blob_read(blob, dst, (int)len, (int)((uint64_t)piece * CKPT_PIECE));
    sqlite3_blob_close(blob);
    if (rc != SQLITE_OK) {
        db_fail(s, rc, "reading a block", err);
        s->damaged = damaged;
        if (rc == SQLITE_ERROR && err != NULL) /* no such row */
            err->code = VT_E_CORRUPT;
        return -1;
    }
    vt_xxh128(dst, len, got);
    if (memcmp(got, sum, sizeof got) != 0)
        return vt_fail(err, VT_E_CORRUPT,
                       "block %" PRId64 ", piece %" PRIu32 ": the bytes do not fit the checksum", id, piece);
    return 0;
}

int load_begin(struct store *s, const struct store_plan *p, uint32_t skip, struct load **out,
               struct vt_err *err)
{
    *out = NULL;
    struct load *l = calloc(1, sizeof *l);
    uint8_t *names = malloc(32u * (size_t)p->have + 1);
    if (l == NULL || names == NULL) {
        free(l);
        free(names);
        return vt_fail(err, VT_E_NOMEM, "no memory for a restore");
    }
    if (p->have > 0)
        memcpy(names, p->names, 32u * (size_t)p->have);
    *l = (struct load){.s = s,
                       .names = names,
                       .n = p->have,
                       .skip = skip < p->have ? skip : p->have,
                       .block_tokens = p->block_tokens,
                       .rec_pos = p->rec_pos,
                       .kv_bytes = p->kv_bytes,
                       .rec_bytes = p->rec_bytes,
                       .has_rec = p->has_rec,
                       .index = skip < p->have ? skip : p->have};
    if (l->has_rec)
        ckpt_rec(names + 32u * (size_t)(p->rec_pos / p->block_tokens - 1), p->rec_pos, l->rec_name);
    for (; l->pinned < l->n; l->pinned++)
        if (nameset_add(&s->pins, names + 32u * (size_t)l->pinned) < 0)
            break;
    if (l->has_rec && nameset_add(&s->pins, l->rec_name) == 0)
        l->rec_pinned = true;
    if (l->pinned < l->n || l->has_rec != l->rec_pinned) {
        load_end(l);
        return vt_fail(err, VT_E_NOMEM, "no memory for a restore");
    }
    *out = l;
    return 0;
}

int load_step(struct load *l, uint8_t *dst, struct load_piece *out, struct vt_err *err)
{
    struct store *s = l->s;
    struct vt_err local;
    if (err == NULL)
        err = &local;
    bool rec = l->has_rec && !l->rec_done;
    if (!rec && l->index == l->n) {
        s->f.restores++;
        return 0;
    }
    const uint8_t *name = rec ? l->rec_name : l->names + 32u * (size_t)l->index;
    uint64_t want = rec ? l->rec_bytes : l->kv_bytes, bytes;
    int64_t id;
    int rc = db_block_find(s, name, &id, &bytes, err);
    if (rc < 0)
        return -1;
    if (rc == 0 || bytes != want)
        return vt_fail(err, VT_E_CORRUPT, "a block of the plan is not there any more");
    *out = (struct load_piece){.kind = rec ? CKPT_REC : CKPT_KV,
                               .index = rec ? l->rec_pos / l->block_tokens : l->index,
                               .piece = l->piece,
                               .len = ckpt_piece_len(bytes, l->piece),
                               .last = l->piece + 1 == ckpt_pieces(bytes)};
    if (payload_read(s, id, name, bytes, l->piece, dst, out->sum, err) < 0) {
        struct vt_err ignored;
        if (err->code == VT_E_CORRUPT)
            db_add_bad(s, id, err->text, &ignored);
        return -1;
    }
    if (!out->last) {
        l->piece++;
        return 1;
    }
    db_touch(s, id);
    l->piece = 0;
    if (rec)
        l->rec_done = true;
    else
        l->index++;
    return 1;
}

uint32_t load_good(const struct load *l)
{
    return l->index;
}

void load_end(struct load *l)
{
    if (l == NULL)
        return;
    for (uint32_t i = 0; i < l->pinned; i++)
        nameset_del(&l->s->pins, l->names + 32u * (size_t)i);
    if (l->rec_pinned)
        nameset_del(&l->s->pins, l->rec_name);
    free(l->names);
    free(l);
}

int store_pin(struct store *s, const uint8_t *names, size_t n, struct vt_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (nameset_add(&s->pins, names + 32 * i) < 0) {
            store_unpin(s, names, i);
            return vt_fail(err, VT_E_NOMEM, "no memory for pins");
        }
    return 0;
}

void store_unpin(struct store *s, const uint8_t *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        nameset_del(&s->pins, names + 32 * i);
}
