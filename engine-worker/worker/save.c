#include "checkpoint_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- end ---- */

static void give_back(struct checkpoint *c)
{
    struct save *s = &c->save;
    if (s->x != NULL) {
        struct cmd *m = compute_cmd(CMD_EXPORT_FREE);
        if (m != NULL) {
            m->ptr = s->x;
            compute_put(c->o.compute, m);
        }
    }
    free(s->rec);
    free(s->names);
    free(s->rec_names);
    free(s->need);
    *s = (struct save){0};
    c->kick = true;
}

static void tell(struct checkpoint *c, struct checkpoint_result *r)
{
    checkpoint_done done = c->save.done;
    void *arg = c->save.arg;
    r->us = vt_mono(c->o.clock) - c->save.started;
    if (c->save.name[0] == 0 && c->order.active) {
        c->order.result.saved += r->saved;
        c->order.result.skipped += r->skipped;
        c->order.result.failed += r->failed;
        c->order.result.bytes += r->bytes;
        c->order.result.tokens += r->tokens;
        if (r->err.code != 0)
            c->order.result.err = r->err;
    }
    give_back(c);
    if (done != NULL)
        done(arg, r);
}

void save_fail(struct checkpoint *c, const struct vt_err *why)
{
    struct save *s = &c->save;
    struct checkpoint_result r = {.failed = 1, .err = *why};
    if (s->state == SAVE_IDLE)
        return;
    c->stats.refused++;
    struct slot_mark *m = &c->mark[s->slot];
    /* A store that is out of its budget says so for hours. */
    vt_log(c->o.log, m->put_off ? VT_LOG_DEBUG : VT_LOG_NOTICE, "slot %u is not saved: %s", s->slot,
           why->text);
    m->put_off = why->code == VT_E_BUSY;
    /* A store that was made anew, or that has forgotten a tenant, has other salts and refuses the names of the old ones. */
    if (why->code == VT_E_PARAM || why->code == VT_E_CORRUPT)
        c->n_salts = 0;
    if (s->name[0] != 0) {
        tell(c, &r);
        return;
    }
    if (why->code == VT_E_CLOBBER && s->x != NULL)
        m->epoch = s->x->epoch; /* the richer checkpoint stays; asked again when the slot changes */
    else if (c->link != NULL)
        m->due = vt_mono(c->o.clock) + c->o.autosave_us;
    tell(c, &r);
}

static void abort_op(struct checkpoint *c, int code, const char *text)
{
    struct vt_err why;
    vt_fail(&why, code, "%s", text);
    if (c->link != NULL && c->save.state >= SAVE_NEED) {
        vt_enc_err(vt_link_begin(c->link, VT_F_CK_ABORT, c->save.id), &why);
        ck_post(c);
    }
    save_fail(c, &why);
}

/* ---- begin ---- */

void save_start(struct checkpoint *c, uint32_t slot, enum ckpt_reason reason, const char *name,
                checkpoint_done done, void *arg)
{
    struct cmd *m = compute_cmd(CMD_EXPORT);
    struct save *s = &c->save;
    struct vt_err err;
    *s = (struct save){.state = SAVE_EXPORT,
                       .id = ++c->next_id,
                       .slot = slot,
                       .reason = reason,
                       .done = done,
                       .arg = arg,
                       .started = vt_mono(c->o.clock)};
    snprintf(s->name, sizeof s->name, "%s", name != NULL ? name : "");
    c->mark[slot].due = 0;
    if (m == NULL) {
        vt_fail(&err, VT_E_NOMEM, "no memory for a save");
        save_fail(c, &err);
        return;
    }
    m->slot = slot;
    m->tag = s->id;
    compute_put(c->o.compute, m);
}

static uint32_t last_rec(const struct save *s)
{
    return s->n_rec > 0 ? s->x->rec_pos[s->rec[s->n_rec - 1]] : 0;
}

/* A snapshot is as big as the KV of some blocks. A conversation goes on from the newest, is asked again from the border of its
 * last prompt, and branches off at a cost of at most REC_EVERY blocks; the others would only be written. */
static bool choose_rec(const struct checkpoint *c, struct save *s)
{
    const struct eng_export *x = s->x;
    uint32_t prompt = c->mark[s->slot].prompt / ENG_PAGE * ENG_PAGE;
    s->rec = malloc((x->n_rec + 1) * sizeof *s->rec);
    for (uint32_t i = 0; s->rec != NULL && i < x->n_rec; i++)
        if (i + 1 == x->n_rec || x->rec_pos[i] == prompt || x->rec_pos[i] % (REC_EVERY * ENG_PAGE) == 0)
            s->rec[s->n_rec++] = i;
    return s->rec != NULL;
}

/* Ids behind the last block are worth no autosave, since a restore gives nothing for them; an order to save means them, too. */
static bool unchanged(const struct checkpoint *c)
{
    const struct save *s = &c->save;
    const struct slot_mark *m = &c->mark[s->slot];
    uint32_t n = s->x->n_blocks;
    return !m->forgotten && n == m->blocks && last_rec(s) == m->rec &&
           (s->reason == CKPT_AUTOSAVE || s->x->n_items == m->items) &&
           (n == 0 || memcmp(s->names + (n - 1) * (size_t)CKPT_NAME_LEN, m->name, CKPT_NAME_LEN) == 0);
}

/* The slot went on with another conversation than the one that was saved or restored last. Only a request does that, so
 * the client wants it so: the store may move the head to something shorter, and keeps the richer one for a day. A process
 * that has seen no checkpoint of the slot cannot know, and must not replace one. */
static bool replaced(const struct checkpoint *c)
{
    const struct save *s = &c->save;
    const struct slot_mark *m = &c->mark[s->slot];
    return m->blocks > 0 &&
           (m->forgotten || s->x->n_blocks < m->blocks ||
            memcmp(s->names + (m->blocks - 1) * (size_t)CKPT_NAME_LEN, m->name, CKPT_NAME_LEN) != 0);
}

static enum ckpt_reason reason_of(const struct checkpoint *c)
{
    const struct save *s = &c->save;
    if (s->reason == CKPT_EXPLICIT)
        return CKPT_EXPLICIT;
    return c->mark[s->slot].erased || replaced(c) ? CKPT_RESET : s->reason;
}

static void mark_saved(struct checkpoint *c)
{
    const struct save *s = &c->save;
    struct slot_mark *m = &c->mark[s->slot];
    m->epoch = s->x->epoch;
    m->blocks = s->x->n_blocks;
    m->rec = last_rec(s);
    m->items = s->x->n_items;
    m->changed_at = 0;
    m->erased = m->forgotten = m->put_off = false;
    memcpy(m->tenant, s->x->tenant, sizeof m->tenant);
    if (m->blocks > 0)
        memcpy(m->name, s->names + (m->blocks - 1) * (size_t)CKPT_NAME_LEN, CKPT_NAME_LEN);
}

static void begin(struct checkpoint *c)
{
    struct save *s = &c->save;
    const struct eng_facts *f = ck_facts(c);
    const struct eng_export *x = s->x;
    struct vt_enc *e = vt_link_begin(c->link, VT_F_CK_BEGIN, s->id);
    vt_enc_str(e, VT_CK_BEGIN_TENANT, x->tenant);
    vt_enc_u64(e, VT_CK_BEGIN_SLOT, s->slot);
    vt_enc_bin(e, VT_CK_BEGIN_LAYOUT_FP, f->layout_fp, sizeof f->layout_fp);
    vt_enc_u64(e, VT_CK_BEGIN_BASE_GEN, 0);
    vt_enc_u64(e, VT_CK_BEGIN_NTOK, x->n_items);
    vt_enc_bin(e, VT_CK_BEGIN_ITEMS, x->items, x->n_items * sizeof *x->items);
    vt_enc_bin(e, VT_CK_BEGIN_NAMES, s->names, x->n_blocks * (size_t)CKPT_NAME_LEN);
    if (s->n_rec > 0) {
        vt_enc_array(e, VT_CK_BEGIN_REC, s->n_rec);
        for (uint32_t i = 0; i < s->n_rec; i++) {
            vt_enc_put_array(e, 2);
            vt_enc_put_u64(e, x->rec_pos[s->rec[i]]);
            vt_enc_put_bin(e, s->rec_names + i * (size_t)CKPT_NAME_LEN, CKPT_NAME_LEN);
        }
    }
    vt_enc_u64(e, VT_CK_BEGIN_REASON, reason_of(c));
    vt_enc_u64(e, VT_CK_BEGIN_EPOCH, x->epoch);
    vt_enc_u64(e, VT_CK_BEGIN_BYTES, x->n_blocks * f->block_bytes + s->n_rec * f->rec_bytes);
    if (s->name[0] != 0)
        vt_enc_str(e, VT_CK_BEGIN_NAME, s->name);
    vt_enc_bin(e, VT_CK_BEGIN_DESCR, f->layout, f->layout_len);
    vt_enc_u64(e, VT_CK_BEGIN_BLOCK_TOKENS, ENG_PAGE);
    vt_enc_u64(e, VT_CK_BEGIN_BLOCK_BYTES, f->block_bytes);
    vt_enc_u64(e, VT_CK_BEGIN_REC_BYTES, f->rec_bytes);
    vt_enc_u64(e, VT_CK_BEGIN_ORDERED, s->reason != CKPT_AUTOSAVE);
    s->state = SAVE_NEED;
    if (!ck_post(c))
        abort_op(c, VT_E_BUSY, "the store does not read");
}

/* The salt is known: names can be made, and with them the question whether anything is new. */
static void name_and_begin(struct checkpoint *c, const uint8_t *salt)
{
    struct save *s = &c->save;
    const struct eng_export *x = s->x;
    s->names = malloc(x->n_blocks * (size_t)CKPT_NAME_LEN + 1);
    s->rec_names = malloc(x->n_rec * (size_t)CKPT_NAME_LEN + 1);
    s->need = calloc(1, (size_t)x->n_blocks + x->n_rec + 1);
    if (s->names == NULL || s->rec_names == NULL || s->need == NULL || !choose_rec(c, s)) {
        abort_op(c, VT_E_NOMEM, "no memory for the names of a save");
        return;
    }
    ck_names(c, salt, x->items, x->n_blocks, s->names);
    for (uint32_t i = 0; i < s->n_rec; i++) {
        uint32_t pos = x->rec_pos[s->rec[i]];
        ckpt_rec(s->names + (pos / ENG_PAGE - 1) * (size_t)CKPT_NAME_LEN, pos,
                 s->rec_names + i * (size_t)CKPT_NAME_LEN);
    }
    if (s->name[0] == 0 && unchanged(c)) {
        struct checkpoint_result r = {.skipped = 1};
        uint32_t items = c->mark[s->slot].items;
        mark_saved(c);
        c->mark[s->slot].items = items;
        c->stats.skipped++;
        tell(c, &r);
        return;
    }
    begin(c);
}

void save_salt(struct checkpoint *c)
{
    struct save *s = &c->save;
    const uint8_t *salt = s->state == SAVE_SALT ? ck_salt(c, s->x->tenant, s->id) : NULL;
    if (salt != NULL)
        name_and_begin(c, salt);
}

void save_event(struct checkpoint *c, struct event *ev)
{
    struct save *s = &c->save;
    if (ev->handle != s->id || s->state != SAVE_EXPORT) {
        struct cmd *m = ev->ptr != NULL ? compute_cmd(CMD_EXPORT_FREE) : NULL;
        if (m != NULL) {
            m->ptr = ev->ptr;
            compute_put(c->o.compute, m);
        }
        return;
    }
    s->x = ev->ptr;
    if (s->x == NULL) {
        save_fail(c, ev->err);
        return;
    }
    if (c->link == NULL) {
        abort_op(c, VT_E_UNAVAILABLE, "the store is down");
        return;
    }
    if (s->x->n_items == 0 || (s->name[0] == 0 && s->x->n_blocks == 0)) {
        struct checkpoint_result r = {.skipped = 1};
        c->mark[s->slot].epoch = s->x->epoch;
        c->mark[s->slot].changed_at = 0;
        if (s->name[0] != 0)
            vt_fail(&r.err, VT_E_NOT_FOUND, "slot %u holds nothing that could be saved", s->slot);
        tell(c, &r);
        return;
    }
    s->state = SAVE_SALT;
    save_salt(c);
}

/* ---- send ---- */

static void take_bits(uint8_t *need, uint32_t n, const uint8_t *bits, size_t len)
{
    for (uint32_t i = 0; i < n; i++)
        need[i] = i / 8 < len && (bits[i / 8] >> i % 8 & 1);
}

static void take_need(struct checkpoint *c, const struct vt_frame *f)
{
    struct save *s = &c->save;
    size_t n, n_rec;
    const uint8_t *bits = vt_frame_bin(f, VT_CK_NEED_BITMAP, &n),
                  *rec = vt_frame_bin(f, VT_CK_NEED_REC, &n_rec);
    uint64_t credit = vt_frame_u64(f, VT_CK_NEED_CREDIT, 0);
    take_bits(s->need, s->x->n_blocks, bits, n);
    take_bits(s->need + s->x->n_blocks, s->n_rec, rec, n_rec);
    s->credit = credit < c->half ? (uint32_t)credit : c->half;
    s->state = SAVE_SEND;
    if (s->credit == 0)
        abort_op(c, VT_E_BAD_FRAME, "the store grants no ring slot");
}

static int free_ring_slot(const struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->half; i++) {
        if (!c->save.ring_busy[i])
            return (int)i;
    }
    return -1;
}

/* Copies the next piece into the ring and tells the store. False: nothing more can be done now. */
static bool send_piece(struct checkpoint *c)
{
    struct save *s = &c->save;
    const struct eng_facts *f = ck_facts(c);
    bool rec = s->at >= s->x->n_blocks;
    uint32_t index = rec ? s->at - s->x->n_blocks : s->at;
    uint64_t bytes = rec ? f->rec_bytes : f->block_bytes;
    uint32_t len = ckpt_piece_len(bytes, s->piece);
    uint8_t sum[VT_XXH128_LEN];
    int slot = free_ring_slot(c);
    if (slot < 0 || s->under_way >= s->credit)
        return false;
    if (!c->pinned) {
        compute_pin(c->o.compute, c->bulk, c->bulk_bytes);
        c->pinned = true;
    }
    uint8_t *dst = vt_ring_slot(&c->ring, (uint32_t)slot, len);
    if (dst == NULL ||
        compute_export_read(c->o.compute, s->x, rec ? CKPT_REC : CKPT_KV, rec ? s->rec[index] : index,
                            (uint64_t)s->piece * CKPT_PIECE, dst, len) < 0) {
        abort_op(c, VT_E_INTERNAL, "a block cannot be read");
        return false;
    }
    vt_xxh128(dst, len, sum);
    if (++c->chunks == c->o.corrupt_chunk)
        sum[0] ^= 1;
    struct vt_enc *e = vt_link_begin(c->link, VT_F_CK_CHUNK, s->id);
    vt_enc_u64(e, VT_CK_CHUNK_INDEX, index);
    vt_enc_u64(e, VT_CK_CHUNK_KIND, rec ? CKPT_REC : CKPT_KV);
    vt_enc_u64(e, VT_CK_CHUNK_PIECE, s->piece);
    vt_enc_u64(e, VT_CK_CHUNK_RING_SLOT, (uint64_t)slot);
    vt_enc_u64(e, VT_CK_CHUNK_LEN, len);
    vt_enc_bin(e, VT_CK_CHUNK_XXH128, sum, sizeof sum);
    vt_enc_u64(e, VT_CK_CHUNK_LAST, s->piece + 1 == ckpt_pieces(bytes));
    if (vt_link_send(c->link, NULL) < 0)
        return false;
    s->ring_busy[slot] = true;
    s->under_way++;
    s->pieces++;
    s->bytes += len;
    if (++s->piece == ckpt_pieces(bytes)) {
        s->piece = 0;
        s->at++;
    }
    return true;
}

static void commit(struct checkpoint *c)
{
    struct save *s = &c->save;
    struct vt_enc *e = vt_link_begin(c->link, VT_F_CK_COMMIT, s->id);
    vt_enc_u64(e, VT_CK_COMMIT_PIECES, s->pieces);
    vt_enc_u64(e, VT_CK_COMMIT_BYTES, s->bytes);
    s->state = SAVE_COMMIT;
    if (!ck_post(c))
        abort_op(c, VT_E_BUSY, "the store does not read");
}

bool save_pump(struct checkpoint *c)
{
    struct save *s = &c->save;
    if (s->state != SAVE_SEND)
        return false;
    for (int i = 0; i < PIECES_AT_ONCE; i++) {
        uint32_t end = s->x->n_blocks + s->n_rec;
        while (s->at < end && !s->need[s->at])
            s->at++;
        if (s->at == end) {
            if (s->under_way == 0)
                commit(c); /* every piece is known to be whole on the other side */
            return false;
        }
        if (!send_piece(c))
            return s->state == SAVE_SEND && s->under_way < s->credit;
    }
    return true;
}

/* ---- answers ---- */

static int take_credit(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err)
{
    struct save *s = &c->save;
    uint64_t slot = vt_frame_u64(f, VT_CK_CREDIT_RING_SLOT, UINT64_MAX);
    if (slot >= c->half || !s->ring_busy[slot])
        return vt_fail(err, VT_E_BAD_FRAME, "CK_CREDIT for ring slot %llu, which is not under way",
                       (unsigned long long)slot);
    s->ring_busy[slot] = false;
    s->under_way--;
    if (!vt_frame_u64(f, VT_CK_CREDIT_SUM_OK, 0))
        abort_op(c, VT_E_CORRUPT, "a piece was damaged on its way to the store");
    return 0;
}

static void take_committed(struct checkpoint *c, const struct vt_frame *f)
{
    struct save *s = &c->save;
    /* What a restore would give back: whole blocks, of a model with state between them up to its newest snapshot; of a slot
     * file also what it then evaluates. */
    uint32_t good = ck_facts(c)->rec_bytes > 0 ? last_rec(s) : s->x->n_blocks * ENG_PAGE;
    if (s->name[0] != 0 && s->x->n_items - good <= FILL_MAX)
        good = s->x->n_items;
    struct checkpoint_result r = {.saved = 1, .tokens = good, .bytes = s->bytes};
    c->stats.saves++;
    c->stats.bytes += s->bytes;
    vt_log(c->o.log, VT_LOG_DEBUG, "slot %u saved: %u tokens, %llu bytes sent, manifest %llu", s->slot,
           s->x->n_items, (unsigned long long)s->bytes,
           (unsigned long long)vt_frame_u64(f, VT_CK_COMMITTED_MANIFEST, 0));
    if (s->name[0] == 0)
        mark_saved(c);
    else
        r.bytes = s->x->n_items * sizeof *s->x->items + s->x->n_blocks * ck_facts(c)->block_bytes +
                  s->n_rec * ck_facts(c)->rec_bytes;
    tell(c, &r);
}

static int out_of_turn(const struct vt_frame *f, struct vt_err *err)
{
    return vt_fail(err, VT_E_BAD_FRAME, "%s is out of turn", vt_frame_name(f->type));
}

int save_frame(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err)
{
    struct save *s = &c->save;
    struct vt_err why;
    if (f->id != s->id || s->state < SAVE_NEED)
        return 0; /* of an operation that was given up */
    switch (f->type) {
    case VT_F_CK_NEED:
        if (s->state != SAVE_NEED)
            return out_of_turn(f, err);
        take_need(c, f);
        return 0;
    case VT_F_CK_CREDIT: return s->state == SAVE_SEND ? take_credit(c, f, err) : out_of_turn(f, err);
    case VT_F_CK_COMMITTED:
        if (s->state != SAVE_COMMIT && s->state != SAVE_NEED) /* the same checkpoint may be there already */
            return out_of_turn(f, err);
        take_committed(c, f);
        return 0;
    default:
        why.code = (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_INTERNAL);
        vt_frame_str(f, VT_KEY_TEXT, why.text, sizeof why.text);
        save_fail(c, &why);
        return 0;
    }
}
