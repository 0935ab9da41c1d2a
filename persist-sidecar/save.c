/* Saving: blocks, then manifest and head, in one transaction whose last step is the head. A save bigger than
 * a transaction may be commits whole blocks ahead; nobody names those until the head moves. */
#include "save.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fixed price of a commit (one page of each tree to the journal and to the file), measured 0.3 to 0.6 MiB. */
#define COMMIT_COST ((uint64_t)640 << 10)

static void *dup_bytes(const void *p, size_t n)
{
    void *q = malloc(n > 0 ? n : 1);
    if (q != NULL && n > 0)
        memcpy(q, p, n);
    return q;
}

static int check_shape(const struct save_begin *b, struct vt_err *err)
{
    if (db_check_tenant(b->tenant, err) < 0)
        return -1;
    if (b->name != NULL && strlen(b->name) > STORE_NAME_MAX)
        return vt_fail(err, VT_E_PARAM, "a slot file's name has at most %d bytes", STORE_NAME_MAX);
    if (b->slot > 65535 || b->reason < CKPT_AUTOSAVE || b->reason > CKPT_RESET)
        return vt_fail(err, VT_E_PARAM, "slot %" PRIu32 " or reason %d is out of range", b->slot,
                       (int)b->reason);
    if (b->n_items == 0)
        return vt_fail(err, VT_E_CLOBBER, "an empty slot is not saved");
    if (b->n_items > STORE_ITEMS_MAX || b->layout_len > 65536 || b->sampler_len > 65536)
        return vt_fail(err, VT_E_LIMIT, "a checkpoint has at most %u items", STORE_ITEMS_MAX);
    if (b->block_tokens == 0 || b->block_tokens % 64 != 0 || b->block_tokens > 65536)
        return vt_fail(err, VT_E_PARAM, "blocks of %" PRIu32 " tokens; a multiple of 64 is needed",
                       b->block_tokens);
    if (b->n_names > b->n_items / b->block_tokens)
        return vt_fail(err, VT_E_PARAM, "%" PRIu32 " names for %" PRIu32 " items", b->n_names, b->n_items);
    if ((b->n_names > 0 && b->kv_bytes == 0) || b->kv_bytes > STORE_BLOCK_MAX ||
        b->rec_bytes > STORE_BLOCK_MAX || (b->n_rec > 0 && b->rec_bytes == 0) || b->n_rec > STORE_REC_MAX)
        return vt_fail(err, VT_E_PARAM,
                       "blocks of %" PRIu64 " and snapshots of %" PRIu64 " bytes cannot be stored",
                       b->kv_bytes, b->rec_bytes);
    for (uint32_t i = 0; i < b->n_rec; i++)
        if (b->rec[i].pos == 0 || b->rec[i].pos % b->block_tokens != 0 ||
            b->rec[i].pos / b->block_tokens > b->n_names || (i > 0 && b->rec[i].pos <= b->rec[i - 1].pos))
            return vt_fail(err, VT_E_PARAM, "snapshot at %" PRIu32 " is not at the end of a saved block",
                           b->rec[i].pos);
    return 0;
}

static int copy_in(struct save *sv, const struct save_begin *b)
{
    strcpy(sv->tenant, b->tenant);
    strcpy(sv->name, b->name != NULL ? b->name : "");
    sv->slot = b->slot;
    sv->block_tokens = b->block_tokens;
    sv->n_items = b->n_items;
    sv->n_names = b->n_names;
    sv->n_rec = b->n_rec;
    sv->kv_bytes = b->kv_bytes;
    sv->rec_bytes = b->rec_bytes;
    sv->reason = b->reason;
    sv->ordered = b->ordered;
    sv->sampler_len = b->sampler_len;
    sv->layout_len = b->layout_len;
    memcpy(sv->fp, b->layout_fp, 32);
    sv->has_private = b->private_salt != NULL;
    if (sv->has_private)
        memcpy(sv->private_salt, b->private_salt, 32);
    sv->items = dup_bytes(b->items, 4u * (size_t)b->n_items);
    sv->names = dup_bytes(b->names, 32u * (size_t)b->n_names);
    sv->rec = dup_bytes(b->rec, sizeof *b->rec * b->n_rec);
    sv->sampler = dup_bytes(b->sampler, b->sampler_len);
    sv->layout = dup_bytes(b->layout, b->layout_len);
    sv->units = calloc(save_units(sv) + 1, sizeof *sv->units);
    uint64_t max = sv->kv_bytes > sv->rec_bytes ? sv->kv_bytes : sv->rec_bytes;
    sv->sums = malloc(16u * ckpt_pieces(max) + 16);
    return sv->items != NULL && sv->names != NULL && sv->rec != NULL && sv->sampler != NULL &&
                   sv->layout != NULL && sv->units != NULL && sv->sums != NULL
               ? 0
               : -1;
}

/* The names are what makes a block findable by its meaning; a wrong one would be stored for nobody, or worse.
 */
static int check_names(struct save *sv, struct vt_err *err)
{
    uint8_t h[32];
    ckpt_h0(sv->fp, sv->salt, h);
    memcpy(sv->root, h, 32);
    for (uint32_t i = 0; i < sv->n_names; i++) {
        ckpt_next(h, sv->items + (size_t)i * sv->block_tokens, sv->block_tokens, h);
        if (memcmp(h, sv->names + 32u * (size_t)i, 32) != 0)
            return vt_fail(err, VT_E_PARAM, "the name of block %" PRIu32 " is not that of its items", i);
        sv->units[i] = (struct save_unit){.name = sv->names + 32u * (size_t)i,
                                          .parent = i > 0 ? sv->names + 32u * (size_t)(i - 1) : sv->root,
                                          .kind = CKPT_KV,
                                          .pos = i * sv->block_tokens,
                                          .ntok = sv->block_tokens,
                                          .bytes = sv->kv_bytes};
    }
    for (uint32_t i = 0; i < sv->n_rec; i++) {
        struct store_rec *r = &sv->rec[i];
        const uint8_t *at = sv->names + 32u * (size_t)(r->pos / sv->block_tokens - 1);
        ckpt_rec(at, r->pos, h);
        if (memcmp(h, r->name, 32) != 0)
            return vt_fail(err, VT_E_PARAM,
                           "the name of the snapshot at %" PRIu32 " is not that of its items", r->pos);
        sv->units[sv->n_names + i] = (struct save_unit){.name = r->name,
                                                        .parent = at,
                                                        .kind = CKPT_REC,
                                                        .pos = r->pos,
                                                        .ntok = sv->block_tokens,
                                                        .bytes = sv->rec_bytes};
    }
    return 0;
}

/* Other sizes than the row's: the stored blocks tell whether the row was damaged or the engine contradicts itself. */
static int layout_differs(struct save *sv, int64_t block_tokens, int64_t kv, int64_t rec, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(sv->s, ST_LAYOUT_ODD, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, sv->layout_id);
    sqlite3_bind_int64(st, 2, kv);
    sqlite3_bind_int64(st, 3, rec);
    sqlite3_bind_int64(st, 4, block_tokens);
    int odd = db_step(sv->s, st, "comparing a layout with its blocks", err);
    if (odd < 0)
        return -1;
    if (odd == 0)
        return vt_fail(err, VT_E_LAYOUT, "the same layout fingerprint came with other block sizes before");
    sqlite3_reset(st);
    sv->s->damaged = true;
    return vt_fail(err, VT_E_CORRUPT, "a layout's row does not fit its blocks");
}

static int find_layout(struct save *sv, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(sv->s, ST_LAYOUT_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_blob(st, 1, sv->fp, 32, SQLITE_STATIC);
    int rc = db_step(sv->s, st, "looking for the layout", err);
    if (rc != 1)
        return rc;
    sv->layout_id = sqlite3_column_int64(st, 0);
    int64_t tokens = sqlite3_column_int64(st, 1), kv = sqlite3_column_int64(st, 2),
            rec = sqlite3_column_int64(st, 3);
    sqlite3_reset(st);
    bool same = tokens == sv->block_tokens && kv == (int64_t)sv->kv_bytes && rec == (int64_t)sv->rec_bytes;
    return same ? 0 : layout_differs(sv, tokens, kv, rec, err);
}

/* Computed here, never taken from a frame: the guard against clobbering rests on it. */
static int compare_items(struct save *sv, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(sv->s, ST_MANIFEST_ITEMS, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, sv->cur);
    int rc = db_step(sv->s, st, "reading the head's items", err);
    if (rc != 1)
        return rc;
    size_t n = (size_t)sqlite3_column_bytes(st, 0);
    const void *items = sqlite3_column_blob(st, 0);
    sv->extends = n <= 4u * (size_t)sv->n_items && (n == 0 || memcmp(items, sv->items, n) == 0);
    sqlite3_reset(st);
    return 0;
}

/* What the head holds now, and whether it is all that this save would bring. */
static int find_head(struct save *sv, uint64_t base_gen, struct vt_err *err)
{
    struct store *s = sv->s;
    bool named = sv->name[0] != '\0';
    sqlite3_stmt *st = db_stmt(s, ST_HEAD_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, sv->tenant, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, sv->slot);
    int rc = db_step(s, st, "reading the head", err);
    if (rc < 0)
        return -1;
    if (rc == 1) {
        sv->cur = sqlite3_column_int64(st, 0);
        sv->prev = sqlite3_column_int64(st, 1);
        sv->rich = sqlite3_column_int64(st, 2);
        sv->gen = sqlite3_column_int64(st, 3);
        sqlite3_reset(st);
    }
    if (!named && base_gen != 0 && base_gen != (uint64_t)sv->gen) {
        s->f.refused_clobber++;
        return vt_fail(err, VT_E_CLOBBER, "stale head generation %" PRIu64 ", the head is at %" PRId64,
                       base_gen, sv->gen);
    }
    if (rc == 0)
        return 0;
    if ((st = db_stmt(s, ST_MANIFEST_HEADLINE, err)) == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, sv->cur);
    if ((rc = db_step(s, st, "reading the head's manifest", err)) != 1)
        return rc;
    const void *seal = sqlite3_column_blob(st, 0);
    uint64_t nkv = (uint64_t)sqlite3_column_int64(st, 2), rec_pos = (uint64_t)sqlite3_column_int64(st, 3);
    uint64_t new_rec = sv->n_rec > 0 ? sv->rec[sv->n_rec - 1].pos : 0;
    sv->same = seal != NULL && sqlite3_column_bytes(st, 0) == 32 && memcmp(seal, sv->seal, 32) == 0 &&
               (uint64_t)sv->n_names * sv->block_tokens <= nkv && new_rec <= rec_pos;
    uint64_t ntok = (uint64_t)sqlite3_column_int64(st, 1);
    sv->cur_us = (uint64_t)sqlite3_column_int64(st, 4);
    sqlite3_reset(st);
    if (compare_items(sv, err) < 0)
        return -1;
    /* The triggers refuse this too, after the blocks were written for nothing. */
    if (!named && !sv->extends && sv->n_items < ntok && sv->reason != CKPT_EXPLICIT &&
        sv->reason != CKPT_RESET) {
        s->f.refused_clobber++;
        return vt_fail(err, VT_E_CLOBBER,
                       "clobber refused: the head is of another conversation and holds more");
    }
    return 0;
}

static int find_missing(struct save *sv, uint64_t *bytes, struct vt_err *err)
{
    *bytes = 0;
    for (uint32_t i = 0; i < save_units(sv); i++) {
        struct save_unit *u = &sv->units[i];
        int64_t id;
        uint64_t have;
        int rc = db_block_find(sv->s, u->name, &id, &have, err);
        if (rc < 0)
            return -1;
        u->need = rc == 0 && !sv->same;
        if (u->need)
            *bytes += u->bytes + u->bytes / 16;
    }
    return 0;
}

/* A reset is as often as clients begin anew, so it waits like an autosave; what the slot's head holds stays meanwhile. */
static int check_budget(struct save *sv, struct vt_err *err)
{
    uint64_t now = vt_wall(sv->s->o.clock), since = sv->cur_us;
    if (sv->ordered || (sv->reason != CKPT_AUTOSAVE && sv->reason != CKPT_RESET))
        return 0;
    return space_budget(sv->s, since == 0 || since > now ? UINT64_MAX : now - since, err);
}

static int make_room(struct save *sv, uint64_t bytes, struct vt_err *err)
{
    struct store *s = sv->s;
    struct vt_err local;
    if (err == NULL)
        err = &local;
    if (space_reserve(s, bytes, err) == 0)
        return 0;
    if (err->code == VT_E_QUOTA) {
        s->f.refused_quota++;
        db_event(s, STORE_EV_QUOTA, "a save was refused: %s", err->text);
    } else if (err->code == VT_E_DISK_FULL) {
        s->f.refused_full++;
        if (!s->full)
            db_event(s, STORE_EV_DISK_FULL, "a save was refused: %s", err->text);
        s->full = true;
    }
    return -1;
}

static int pin_all(struct save *sv, struct vt_err *err)
{
    for (uint32_t i = 0; i < save_units(sv); i++) {
        if (nameset_add(&sv->s->pins, sv->units[i].name) < 0)
            return vt_fail(err, VT_E_NOMEM, "no memory for the save's names");
        sv->n_pinned++;
    }
    return 0;
}

int save_begin(struct store *s, const struct save_begin *b, struct save **out, struct vt_err *err)
{
    *out = NULL;
    assert(s->save == NULL && !s->in_txn);
    if (check_shape(b, err) < 0) {
        s->f.refused_clobber += b->n_items == 0;
        return -1;
    }
    struct save *sv = calloc(1, sizeof *sv);
    if (sv == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for a save");
    sv->s = s;
    s->save = sv;
    sv->t0_us = vt_mono(s->o.clock);
    sv->written0 = save_written(s);
    if (copy_in(sv, b) < 0) {
        vt_fail(err, VT_E_NOMEM, "no memory for a save");
        goto fail;
    }
    if (sv->has_private)
        memcpy(sv->salt, sv->private_salt, 32);
    else if (store_salt(s, sv->tenant, sv->salt, err) < 0)
        goto fail;
    struct ckpt_seal seal = {.layout_fp = sv->fp,
                             .tenant = sv->tenant,
                             .slot = sv->slot,
                             .private_salt = sv->has_private ? sv->private_salt : NULL,
                             .sampler = sv->sampler,
                             .sampler_len = sv->sampler_len,
                             .items = sv->items,
                             .n_items = sv->n_items};
    ckpt_seal(&seal, sv->seal);
    uint64_t bytes;
    if (check_names(sv, err) < 0 || pin_all(sv, err) < 0 || find_layout(sv, err) < 0 ||
        find_head(sv, b->base_gen, err) < 0 || find_missing(sv, &bytes, err) < 0)
        goto fail;
    if (!sv->same &&
        (check_budget(sv, err) < 0 ||
         make_room(sv, bytes + COMMIT_COST + 4u * (uint64_t)sv->n_items + 64u * (uint64_t)sv->n_names, err) <
             0))
        goto fail;
    *out = sv;
    return 0;
fail:
    save_end(sv);
    return -1;
}

int save_needs(const struct save *sv, enum ckpt_kind kind, uint32_t i)
{
    if (kind == CKPT_KV)
        return i < sv->n_names && sv->units[i].need;
    return i < sv->n_rec && sv->units[sv->n_names + i].need;
}

void save_end(struct save *sv)
{
    if (sv == NULL)
        return;
    struct store *s = sv->s;
    if (sv->blob != NULL)
        sqlite3_blob_close(sv->blob);
    if (s->in_txn)
        db_rollback(s);
    for (uint32_t i = 0; i < sv->n_pinned; i++)
        nameset_del(&s->pins, sv->units[i].name);
    s->save = NULL;
    free(sv->items);
    free(sv->names);
    free(sv->rec);
    free(sv->sampler);
    free(sv->layout);
    free(sv->units);
    free(sv->sums);
    free(sv->buf);
    free(sv);
}
