/* What the store says to an engine: saves, finds, loads, pins. Nothing in a frame is used as a length, a slot or an index
 * before it was checked. */
#include "serve_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PINS_MAX 65536

static void send_end(struct serve *v, struct peer *p, uint64_t id, bool ok, uint32_t blocks,
                     const struct vt_err *err)
{
    vt_enc_begin(&v->enc, VT_F_CK_END, id, p->link);
    vt_enc_u64(&v->enc, VT_CK_END_OK, ok);
    vt_enc_u64(&v->enc, VT_CK_END_BLOCKS, blocks);
    if (err != NULL)
        vt_enc_err(&v->enc, err);
    serve_send(v, p->link);
}

static void send_abort(struct serve *v, struct peer *p, uint64_t id, const struct vt_err *err)
{
    vt_enc_begin(&v->enc, VT_F_CK_ABORT, id, p->link);
    vt_enc_err(&v->enc, err);
    serve_send(v, p->link);
}

void answer_abort(struct serve *v, struct peer *p, const struct vt_err *err)
{
    if (p->save == NULL)
        return;
    save_end(p->save);
    p->save = NULL;
    if (err != NULL)
        send_abort(v, p, p->save_id, err);
}

/* ---- saving ---- */

/* u32le ids of a frame; unaligned there, so they are copied. */
static uint32_t *read_items(const uint8_t *bin, size_t len, uint32_t *n)
{
    *n = (uint32_t)(len / 4);
    uint32_t *items = malloc(len + 4);
    for (uint32_t i = 0; items != NULL && i < *n; i++)
        items[i] = (uint32_t)bin[4 * i] | (uint32_t)bin[4 * i + 1] << 8 | (uint32_t)bin[4 * i + 2] << 16 |
                   (uint32_t)bin[4 * i + 3] << 24;
    return items;
}

static int read_rec(const msgpack_object_array *a, struct store_rec *rec, uint32_t n, struct vt_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const msgpack_object_array *row = vt_array_array(a, i);
        size_t len = 0;
        const uint8_t *name = row != NULL ? vt_array_bin(row, 1, &len) : NULL;
        uint64_t pos = row != NULL ? vt_array_u64(row, 0, UINT64_MAX) : UINT64_MAX;
        if (name == NULL || len != CKPT_NAME_LEN || pos > UINT32_MAX)
            return vt_fail(err, VT_E_BAD_FRAME, "CK_BEGIN: a snapshot is [pos, name]");
        rec[i].pos = (uint32_t)pos;
        memcpy(rec[i].name, name, CKPT_NAME_LEN);
    }
    return 0;
}

struct begin { /* what a CK_BEGIN frame was read into */
    struct save_begin b;
    char tenant[STORE_TENANT_MAX + 2], name[STORE_NAME_MAX + 2];
    uint32_t *items;
    struct store_rec *rec;
};

static int read_begin(const struct vt_frame *f, struct begin *x, struct vt_err *err)
{
    size_t items_len, names_len, salt_len;
    const uint8_t *items = vt_frame_bin(f, VT_CK_BEGIN_ITEMS, &items_len);
    const msgpack_object_array *rec = vt_frame_array(f, VT_CK_BEGIN_REC);
    struct save_begin *b = &x->b;
    uint64_t slot = vt_frame_u64(f, VT_CK_BEGIN_SLOT, UINT64_MAX),
             ntok = vt_frame_u64(f, VT_CK_BEGIN_NTOK, 0);
    uint64_t reason = vt_frame_u64(f, VT_CK_BEGIN_REASON, 0),
             tokens = vt_frame_u64(f, VT_CK_BEGIN_BLOCK_TOKENS, 0);
    b->names = vt_frame_bin(f, VT_CK_BEGIN_NAMES, &names_len);
    b->layout_fp = vt_frame_bin_n(f, VT_CK_BEGIN_LAYOUT_FP, 32);
    if (b->layout_fp == NULL || items_len % 4 != 0 || items_len / 4 != ntok ||
        names_len % CKPT_NAME_LEN != 0 || slot > UINT32_MAX || reason > CKPT_RESET || tokens > UINT32_MAX ||
        (rec != NULL && rec->size > STORE_REC_MAX) || ntok > STORE_ITEMS_MAX)
        return vt_fail(err, VT_E_BAD_FRAME, "CK_BEGIN: items, names, slot or sizes do not fit together");
    if (vt_frame_has(f, VT_CK_BEGIN_PRIVATE_SALT)) {
        b->private_salt = vt_frame_bin(f, VT_CK_BEGIN_PRIVATE_SALT, &salt_len);
        if (salt_len != CKPT_SALT_LEN)
            return vt_fail(err, VT_E_BAD_FRAME, "CK_BEGIN: a private salt has 32 bytes");
    }
    x->items = read_items(items, items_len, &b->n_items);
    b->n_rec = rec != NULL ? rec->size : 0;
    x->rec = malloc(sizeof *x->rec * (b->n_rec + 1));
    if (x->items == NULL || x->rec == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for a save");
    if (rec != NULL && read_rec(rec, x->rec, b->n_rec, err) < 0)
        return -1;
    b->tenant = vt_frame_str(f, VT_CK_BEGIN_TENANT, x->tenant, sizeof x->tenant);
    b->name = vt_frame_str(f, VT_CK_BEGIN_NAME, x->name, sizeof x->name);
    b->slot = (uint32_t)slot;
    b->layout = vt_frame_bin(f, VT_CK_BEGIN_DESCR, &b->layout_len);
    b->block_tokens = (uint32_t)tokens;
    b->kv_bytes = vt_frame_u64(f, VT_CK_BEGIN_BLOCK_BYTES, 0);
    b->rec_bytes = vt_frame_u64(f, VT_CK_BEGIN_REC_BYTES, 0);
    b->base_gen = vt_frame_u64(f, VT_CK_BEGIN_BASE_GEN, 0);
    b->n_names = (uint32_t)(names_len / CKPT_NAME_LEN);
    b->items = x->items;
    b->rec = x->rec;
    b->reason = (enum ckpt_reason)reason;
    b->ordered = vt_frame_u64(f, VT_CK_BEGIN_ORDERED, 0) != 0;
    b->sampler = vt_frame_bin(f, VT_CK_BEGIN_SAMPLER, &b->sampler_len);
    return 0;
}

static void put_bitmap(struct vt_enc *e, unsigned key, const struct save *sv, enum ckpt_kind kind, uint32_t n)
{
    uint8_t *bits = calloc(n / 8 + 1, 1);
    for (uint32_t i = 0; bits != NULL && i < n; i++)
        if (save_needs(sv, kind, i))
            bits[i / 8] |= (uint8_t)(1 << i % 8);
    vt_enc_bin(e, key, bits, bits != NULL ? (n + 7) / 8 : 0);
    free(bits);
}

void answer_begin(struct serve *v, struct peer *p, const struct vt_frame *f)
{
    struct begin x = {0};
    struct vt_err err;
    int rc = p->has_ring ? read_begin(f, &x, &err)
                         : vt_fail(&err, VT_E_BAD_FRAME, "a save needs a ring beside its link");
    if (rc == 0)
        rc = save_begin(v->s, &x.b, &p->save, &err);
    if (rc == 0) {
        p->save_id = f->id;
        p->save_heard_us = vt_mono(v->o.store.clock);
        p->pieces = 0;
        vt_enc_begin(&v->enc, VT_F_CK_NEED, f->id, p->link);
        put_bitmap(&v->enc, VT_CK_NEED_BITMAP, p->save, CKPT_KV, x.b.n_names);
        put_bitmap(&v->enc, VT_CK_NEED_REC, p->save, CKPT_REC, x.b.n_rec);
        vt_enc_u64(&v->enc, VT_CK_NEED_CREDIT, p->ring.n_slots / 2);
        serve_send(v, p->link);
    } else {
        send_abort(v, p, f->id, &err);
    }
    free(x.items);
    free(x.rec);
}

void answer_chunk(struct serve *v, struct peer *p, const struct vt_frame *f)
{
    struct vt_err err;
    uint64_t slot = vt_frame_u64(f, VT_CK_CHUNK_RING_SLOT, UINT64_MAX),
             len = vt_frame_u64(f, VT_CK_CHUNK_LEN, 0);
    uint64_t index = vt_frame_u64(f, VT_CK_CHUNK_INDEX, UINT64_MAX),
             piece = vt_frame_u64(f, VT_CK_CHUNK_PIECE, UINT64_MAX);
    uint64_t kind = vt_frame_u64(f, VT_CK_CHUNK_KIND, 0);
    const uint8_t *sum = vt_frame_bin_n(f, VT_CK_CHUNK_XXH128, VT_XXH128_LEN);
    const uint8_t *data =
        slot < p->ring.n_slots / 2 && len <= CKPT_PIECE ? vt_ring_slot(&p->ring, (uint32_t)slot, len) : NULL;
    int rc;
    if (data == NULL || sum == NULL || index > UINT32_MAX || piece > UINT32_MAX || kind > CKPT_REC ||
        len == 0)
        rc = vt_fail(&err, VT_E_BAD_FRAME, "CK_CHUNK: slot, length or index out of range");
    else
        rc = save_piece(p->save, (enum ckpt_kind)kind, (uint32_t)index, (uint32_t)piece, data, (uint32_t)len,
                        sum, &err);
    if (data != NULL) {
        vt_enc_begin(&v->enc, VT_F_CK_CREDIT, f->id, p->link);
        vt_enc_u64(&v->enc, VT_CK_CREDIT_RING_SLOT, slot);
        vt_enc_u64(&v->enc, VT_CK_CREDIT_SUM_OK, rc == 0);
        serve_send(v, p->link);
    }
    p->pieces++;
    if (rc < 0)
        answer_abort(v, p, &err);
}

void answer_commit(struct serve *v, struct peer *p, const struct vt_frame *f)
{
    struct save_result r;
    struct vt_err err;
    if (vt_frame_u64(f, VT_CK_COMMIT_PIECES, UINT64_MAX) != p->pieces) {
        vt_fail(&err, VT_E_BAD_FRAME, "CK_COMMIT: %" PRIu32 " pieces came, the engine says otherwise",
                p->pieces);
        answer_abort(v, p, &err);
        return;
    }
    if (save_commit(p->save, &r, &err) < 0) {
        answer_abort(v, p, &err);
        return;
    }
    answer_abort(v, p, NULL); /* it is over: nothing is open any more */
    vt_enc_begin(&v->enc, VT_F_CK_COMMITTED, f->id, p->link);
    vt_enc_u64(&v->enc, VT_CK_COMMITTED_MANIFEST, r.manifest);
    vt_enc_u64(&v->enc, VT_CK_COMMITTED_HEAD_GEN, r.head_gen);
    vt_enc_u64(&v->enc, VT_CK_COMMITTED_WRITTEN, r.written);
    vt_enc_u64(&v->enc, VT_CK_COMMITTED_US, r.us);
    serve_send(v, p->link);
}

/* ---- finding ---- */

static void send_heads(struct serve *v, struct peer *p, uint64_t id, const uint8_t *fp)
{
    struct store_head *heads;
    struct vt_err err;
    size_t n;
    if (store_heads(v->s, fp, &heads, &n, &err) < 0) {
        send_end(v, p, id, false, 0, &err);
        return;
    }
    vt_enc_begin(&v->enc, VT_F_CK_HEADS, id, p->link);
    vt_enc_array(&v->enc, VT_CK_HEADS_LIST, (unsigned)n);
    for (size_t i = 0; i < n; i++) {
        vt_enc_put_array(&v->enc, 6);
        vt_enc_put_u64(&v->enc, heads[i].slot);
        vt_enc_put_str(&v->enc, heads[i].tenant);
        vt_enc_put_u64(&v->enc, heads[i].ntok);
        vt_enc_put_u64(&v->enc, heads[i].nkv);
        vt_enc_put_u64(&v->enc, heads[i].layout_match);
        vt_enc_put_u64(&v->enc, heads[i].gen);
    }
    serve_send(v, p->link);
    free(heads);
}

static void put_items(struct vt_enc *e, unsigned key, const uint32_t *items, uint32_t n)
{
    uint8_t *bin = malloc(4u * (size_t)n + 1);
    for (uint32_t i = 0; bin != NULL && i < n; i++) {
        bin[4 * i] = (uint8_t)items[i];
        bin[4 * i + 1] = (uint8_t)(items[i] >> 8);
        bin[4 * i + 2] = (uint8_t)(items[i] >> 16);
        bin[4 * i + 3] = (uint8_t)(items[i] >> 24);
    }
    vt_enc_bin(e, key, bin, bin != NULL ? 4u * (size_t)n : 0);
    free(bin);
}

static void send_plan(struct serve *v, struct peer *p, uint64_t id)
{
    const struct store_plan *x = &p->plan;
    struct vt_enc *e = &v->enc;
    vt_enc_begin(e, VT_F_CK_PLAN, id, p->link);
    vt_enc_u64(e, VT_CK_PLAN_MANIFEST, x->manifest);
    if (x->manifest != 0)
        put_items(e, VT_CK_PLAN_ITEMS, x->items, x->n_items);
    vt_enc_u64(e, VT_CK_PLAN_HAVE, x->have);
    if (x->has_rec)
        vt_enc_u64(e, VT_CK_PLAN_REC_POS, x->rec_pos);
    if (x->sampler_len > 0)
        vt_enc_bin(e, VT_CK_PLAN_SAMPLER, x->sampler, x->sampler_len);
    vt_enc_u64(e, VT_CK_PLAN_PIECES,
               (uint64_t)x->have * ckpt_pieces(x->kv_bytes) + (x->has_rec ? ckpt_pieces(x->rec_bytes) : 0));
    if (x->has_private)
        vt_enc_bin(e, VT_CK_PLAN_PRIVATE_SALT, x->private_salt, CKPT_SALT_LEN);
    if (x->head_gen != 0)
        vt_enc_u64(e, VT_CK_PLAN_HEAD_GEN, x->head_gen);
    serve_send(v, p->link);
}

void answer_find(struct serve *v, struct peer *p, const struct vt_frame *f)
{
    char tenant[STORE_TENANT_MAX + 2], name[STORE_NAME_MAX + 2];
    struct vt_err err;
    size_t len;
    int rc;
    const uint8_t *fp = vt_frame_bin_n(f, VT_CK_FIND_LAYOUT_FP, 32);
    const uint8_t *names = vt_frame_bin(f, VT_CK_FIND_NAMES, &len);
    uint64_t slot = vt_frame_u64(f, VT_CK_FIND_SLOT, 0);
    vt_frame_str(f, VT_CK_FIND_TENANT, tenant, sizeof tenant);
    vt_frame_str(f, VT_CK_FIND_NAME, name, sizeof name);
    store_plan_free(&p->plan);
    p->has_plan = false;
    if (fp == NULL || len % CKPT_NAME_LEN != 0 || slot > UINT32_MAX) {
        vt_fail(&err, VT_E_BAD_FRAME, "CK_FIND: fingerprint, names or slot are out of shape");
        send_end(v, p, f->id, false, 0, &err);
        return;
    }
    if (names != NULL) {
        rc = store_find_prefix(v->s, fp, names, (uint32_t)(len / CKPT_NAME_LEN), &p->plan, &err);
    } else if (vt_frame_has(f, VT_CK_FIND_NAME)) {
        rc = store_find_named(v->s, fp, tenant, name, &p->plan, &err);
    } else if (vt_frame_has(f, VT_CK_FIND_SLOT)) {
        rc = store_find_head(v->s, fp, tenant, (uint32_t)slot, &p->plan, &err);
    } else {
        send_heads(v, p, f->id, fp);
        return;
    }
    if (rc < 0) {
        send_end(v, p, f->id, false, 0, &err);
        return;
    }
    p->has_plan = true;
    p->plan_id = f->id;
    send_plan(v, p, f->id);
}

/* ---- loading ---- */

void answer_end_load(struct serve *v, struct peer *p, const struct vt_err *err)
{
    if (p->load == NULL)
        return;
    uint32_t good = load_good(p->load);
    load_end(p->load);
    p->load = NULL;
    if (err != NULL)
        send_end(v, p, p->load_id, false, good, err);
}

/* What of the plan the engine asks for. */
static int narrow(struct peer *p, const struct vt_frame *f, struct vt_err *err)
{
    size_t len;
    struct store_plan *x = &p->plan;
    const uint8_t *names = vt_frame_bin(f, VT_CK_LOAD_NAMES, &len);
    if (!p->has_ring || !p->has_plan || p->plan_id != f->id)
        return vt_fail(err, VT_E_NOT_FOUND, "CK_LOAD without a plan of the same operation");
    uint64_t rec_pos = vt_frame_u64(f, VT_CK_LOAD_REC_POS, 0);
    if (rec_pos != 0 && (!x->has_rec || rec_pos != x->rec_pos))
        return vt_fail(err, VT_E_NOT_FOUND, "CK_LOAD of another snapshot than the plan's");
    if (names == NULL) {
        if (vt_frame_u64(f, VT_CK_LOAD_MANIFEST, 0) != x->manifest)
            return vt_fail(err, VT_E_NOT_FOUND, "CK_LOAD of another manifest than the plan's");
    } else {
        uint32_t n = (uint32_t)(len / CKPT_NAME_LEN);
        if (len % CKPT_NAME_LEN != 0 || n > x->have || (n > 0 && memcmp(names, x->names, len) != 0))
            return vt_fail(err, VT_E_NOT_FOUND, "CK_LOAD of other names than the plan's");
        x->have = n;
    }
    /* A snapshot is the end of what a hybrid model can use: blocks behind it stay where they are. */
    x->has_rec = rec_pos != 0;
    if (x->has_rec && x->have > rec_pos / x->block_tokens)
        x->have = (uint32_t)(rec_pos / x->block_tokens);
    return x->has_rec && x->have < rec_pos / x->block_tokens
               ? vt_fail(err, VT_E_NOT_FOUND, "CK_LOAD of a snapshot without the blocks before it")
               : 0;
}

void answer_load(struct serve *v, struct peer *p, const struct vt_frame *f)
{
    struct vt_err err;
    uint64_t credit = vt_frame_u64(f, VT_CK_LOAD_CREDIT, 0), skip = vt_frame_u64(f, VT_CK_LOAD_SKIP, 0);
    int rc = narrow(p, f, &err);
    if (rc == 0)
        rc = load_begin(v->s, &p->plan, skip < UINT32_MAX ? (uint32_t)skip : UINT32_MAX, &p->load, &err);
    store_plan_free(&p->plan);
    p->has_plan = false;
    if (rc < 0) {
        send_end(v, p, f->id, false, 0, &err);
        return;
    }
    uint32_t half = p->ring.n_slots - p->ring.n_slots / 2;
    p->load_id = f->id;
    p->load_credit = credit > 0 && credit < half ? (uint32_t)credit : half;
}

static bool free_slot(const struct peer *p, uint32_t *slot)
{
    for (uint32_t i = p->ring.n_slots / 2; i < p->ring.n_slots; i++)
        if (!p->slot_out[i]) {
            *slot = i;
            return true;
        }
    return false;
}

bool answer_can_load(const struct peer *p)
{
    return p->load != NULL && p->load_out < p->load_credit;
}

bool answer_load_step(struct serve *v, struct peer *p)
{
    struct load_piece x;
    struct vt_err err;
    uint32_t slot;
    if (!answer_can_load(p) || !free_slot(p, &slot))
        return false;
    int rc = load_step(p->load, vt_ring_slot(&p->ring, slot, CKPT_PIECE), &x, &err);
    if (rc == 1) {
        p->slot_out[slot] = 1;
        p->load_out++;
        vt_enc_begin(&v->enc, VT_F_CK_DATA, p->load_id, p->link);
        vt_enc_u64(&v->enc, VT_CK_DATA_INDEX, x.index);
        vt_enc_u64(&v->enc, VT_CK_DATA_KIND, x.kind);
        vt_enc_u64(&v->enc, VT_CK_DATA_PIECE, x.piece);
        vt_enc_u64(&v->enc, VT_CK_DATA_RING_SLOT, slot);
        vt_enc_u64(&v->enc, VT_CK_DATA_LEN, x.len);
        vt_enc_bin(&v->enc, VT_CK_DATA_XXH128, x.sum, VT_XXH128_LEN);
        vt_enc_u64(&v->enc, VT_CK_DATA_LAST, x.last);
        serve_send(v, p->link);
        return true;
    }
    if (rc < 0) {
        answer_end_load(v, p, &err);
        return true;
    }
    uint32_t good = load_good(p->load);
    answer_end_load(v, p, NULL);
    send_end(v, p, p->load_id, true, good, NULL);
    return true;
}

/* Also of an operation that has ended: its last slots come back late. */
void answer_ack(struct serve *v, struct peer *p, const struct vt_frame *f)
{
    struct vt_err err;
    uint64_t slot = vt_frame_u64(f, VT_CK_DATA_ACK_RING_SLOT, UINT64_MAX);
    if (!p->has_ring || slot >= p->ring.n_slots || !p->slot_out[slot]) {
        vt_fail(&err, VT_E_BAD_FRAME, "CK_DATA_ACK for a slot that the engine does not have");
        serve_fail(v, p, &err);
        return;
    }
    p->slot_out[slot] = 0;
    p->load_out--;
    if (vt_frame_u64(f, VT_CK_DATA_ACK_OK, 0) != 1 && p->load != NULL && p->load_id == f->id) {
        vt_fail(&err, VT_E_CORRUPT, "the engine did not accept a piece");
        answer_end_load(v, p, &err);
    }
}

/* ---- pins ---- */

static int remember_pins(struct peer *p, const uint8_t *names, size_t n, struct vt_err *err)
{
    if (p->n_pins + n > PINS_MAX)
        return vt_fail(err, VT_E_LIMIT, "more than %d names pinned", PINS_MAX);
    if (p->n_pins + n > p->cap_pins) {
        size_t cap = 2 * (p->n_pins + n);
        uint8_t *q = realloc(p->pins, cap * CKPT_NAME_LEN);
        if (q == NULL)
            return vt_fail(err, VT_E_NOMEM, "no memory for pins");
        p->pins = q;
        p->cap_pins = cap;
    }
    memcpy(p->pins + p->n_pins * CKPT_NAME_LEN, names, n * CKPT_NAME_LEN);
    p->n_pins += n;
    return 0;
}

static bool forget_pin(struct peer *p, const uint8_t *name)
{
    for (size_t i = 0; i < p->n_pins; i++) {
        uint8_t *at = p->pins + i * CKPT_NAME_LEN;
        if (memcmp(at, name, CKPT_NAME_LEN) != 0)
            continue;
        p->n_pins--;
        memmove(at, p->pins + p->n_pins * CKPT_NAME_LEN, CKPT_NAME_LEN);
        return true;
    }
    return false;
}

void answer_pin(struct serve *v, struct peer *p, const struct vt_frame *f, bool pin)
{
    struct vt_err err;
    size_t len;
    const uint8_t *names = vt_frame_bin(f, pin ? VT_CK_PIN_NAMES : VT_CK_UNPIN_NAMES, &len);
    size_t n = len / CKPT_NAME_LEN;
    if (len % CKPT_NAME_LEN != 0) {
        vt_fail(&err, VT_E_BAD_FRAME, "names have 32 bytes");
        serve_fail(v, p, &err);
        return;
    }
    if (pin) {
        if (n == 0 || store_pin(v->s, names, n, &err) < 0)
            return;
        if (remember_pins(p, names, n, &err) < 0) {
            store_unpin(v->s, names, n);
            serve_fail(v, p, &err);
        }
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (forget_pin(p, names + i * CKPT_NAME_LEN))
            store_unpin(v->s, names + i * CKPT_NAME_LEN, 1);
}
