/* The store's side of a k link, in memory. */
#include "test_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct blob *find(struct shelf *s, const uint8_t name[32])
{
    for (unsigned i = 0; i < s->n_blobs; i++) {
        if (memcmp(s->blobs[i].name, name, 32) == 0)
            return &s->blobs[i];
    }
    return NULL;
}

static bool whole(struct shelf *s, const uint8_t name[32])
{
    const struct blob *b = find(s, name);
    return b != NULL && !b->bad;
}

static void free_head(struct shelf_head *h)
{
    free(h->items);
    free(h->names);
    memset(h, 0, sizeof *h);
}

void shelf_free(struct shelf *s)
{
    if (s == NULL)
        return;
    for (unsigned i = 0; i < s->n_blobs; i++)
        free(s->blobs[i].data);
    for (int i = 0; i < 64; i++)
        free_head(&s->heads[i]);
    free_head(&s->open);
    free(s->blobs);
    free(s);
}

static void salt(struct rig *r, const struct vt_frame *f)
{
    char tenant[65];
    uint8_t out[32];
    vt_frame_str(f, VT_CK_SALT_TENANT, tenant, sizeof tenant);
    vt_sha256(tenant, strlen(tenant), out);
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_SALT_IS, f->id);
    vt_enc_str(e, VT_CK_SALT_IS_TENANT, tenant);
    vt_enc_bin(e, VT_CK_SALT_IS_SALT, out, sizeof out);
    peer_send(&r->store);
}

/* ---- save ---- */

static void begin(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    struct shelf_head *o = &s->open;
    size_t n_items, n_names, n;
    uint8_t need[512] = {0}, need_rec[64] = {0}, h[32], sum[32];
    const uint8_t *items = vt_frame_bin(f, VT_CK_BEGIN_ITEMS, &n_items);
    const uint8_t *names = vt_frame_bin(f, VT_CK_BEGIN_NAMES, &n_names);
    const msgpack_object_array *rec = vt_frame_array(f, VT_CK_BEGIN_REC);
    free_head(o);
    o->items = malloc(n_items + 1);
    o->names = malloc(n_names + 1);
    memcpy(o->items, items, n_items);
    memcpy(o->names, names, n_names);
    o->n_items = (uint32_t)(n_items / 4);
    o->n_blocks = (uint32_t)(n_names / 32);
    o->slot = (uint32_t)vt_frame_u64(f, VT_CK_BEGIN_SLOT, 0);
    vt_frame_str(f, VT_CK_BEGIN_TENANT, o->tenant, sizeof o->tenant);
    vt_frame_str(f, VT_CK_BEGIN_NAME, o->name, sizeof o->name);
    s->open_id = f->id;
    s->reason = vt_frame_u64(f, VT_CK_BEGIN_REASON, 0);
    s->block_bytes = vt_frame_u64(f, VT_CK_BEGIN_BLOCK_BYTES, 0);
    s->rec_bytes = vt_frame_u64(f, VT_CK_BEGIN_REC_BYTES, 0);
    /* The names must be the chain that ckpt.h tells. */
    vt_sha256(o->tenant, strlen(o->tenant), sum);
    ckpt_h0(vt_frame_bin_n(f, VT_CK_BEGIN_LAYOUT_FP, 32), sum, h);
    for (uint32_t i = 0; i < o->n_blocks; i++) {
        ckpt_next(h, o->items + i * 256, 256, h);
        assert_memory_equal(h, o->names + i * 32, 32);
        need[i / 8] |= (uint8_t)(!whole(s, h) << i % 8);
    }
    s->n_rec = rec != NULL ? rec->size : 0;
    for (uint32_t i = 0; i < s->n_rec; i++) {
        const msgpack_object_array *row = vt_array_array(rec, i);
        s->rec_pos[i] = (uint32_t)vt_array_u64(row, 0, 0);
        memcpy(s->rec_names[i], vt_array_bin(row, 1, &n), 32);
        need_rec[i / 8] |= (uint8_t)(!whole(s, s->rec_names[i]) << i % 8);
    }
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_NEED, f->id);
    vt_enc_bin(e, VT_CK_NEED_BITMAP, need, o->n_blocks / 8 + 1);
    vt_enc_bin(e, VT_CK_NEED_REC, need_rec, s->n_rec / 8 + 1);
    vt_enc_u64(e, VT_CK_NEED_CREDIT, 4);
    peer_send(&r->store);
}

static void chunk(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    uint32_t index = (uint32_t)vt_frame_u64(f, VT_CK_CHUNK_INDEX, 0);
    uint32_t piece = (uint32_t)vt_frame_u64(f, VT_CK_CHUNK_PIECE, 0);
    uint32_t slot = (uint32_t)vt_frame_u64(f, VT_CK_CHUNK_RING_SLOT, 0),
             len = (uint32_t)vt_frame_u64(f, VT_CK_CHUNK_LEN, 0);
    bool rec = vt_frame_u64(f, VT_CK_CHUNK_KIND, 0) == CKPT_REC;
    uint64_t bytes = rec ? s->rec_bytes : s->block_bytes;
    uint8_t sum[16];
    assert_true(slot < VT_RING_SLOTS / 2);
    assert_int_equal(len, ckpt_piece_len(bytes, piece));
    assert_int_equal(vt_frame_u64(f, VT_CK_CHUNK_LAST, 0), piece + 1 == ckpt_pieces(bytes));
    const uint8_t *src = vt_ring_slot(&r->ring, slot, len);
    const uint8_t *name = rec ? s->rec_names[index] : s->open.names + index * 32;
    vt_xxh128(src, len, sum);
    bool same = memcmp(sum, vt_frame_bin_n(f, VT_CK_CHUNK_XXH128, 16), 16) == 0;
    struct blob *b = find(s, name);
    if (b == NULL) {
        s->blobs = realloc(s->blobs, (s->n_blobs + 1) * sizeof *s->blobs);
        b = &s->blobs[s->n_blobs++];
        *b = (struct blob){.data = malloc(bytes), .len = bytes, .bad = true};
        memcpy(b->name, name, 32);
    }
    memcpy(b->data + (uint64_t)piece * CKPT_PIECE, src, len);
    b->bad = !same || piece + 1 != ckpt_pieces(bytes);
    s->chunks++;
    s->bytes += len;
    s->refused_sums += !same;
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_CREDIT, f->id);
    vt_enc_u64(e, VT_CK_CREDIT_RING_SLOT, slot);
    vt_enc_u64(e, VT_CK_CREDIT_SUM_OK, same);
    peer_send(&r->store);
}

static void commit(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    struct shelf_head *o = &s->open, *at = NULL;
    assert_int_equal(f->id, s->open_id);
    for (uint32_t i = 0; i < o->n_blocks; i++)
        assert_true(whole(s, o->names + i * 32));
    if (s->n_rec > 0) {
        o->rec_pos = s->rec_pos[s->n_rec - 1];
        memcpy(o->rec_name, s->rec_names[s->n_rec - 1], 32);
    }
    for (int i = 0; i < 64 && at == NULL; i++) {
        struct shelf_head *h = &s->heads[i];
        if (h->used && strcmp(h->tenant, o->tenant) == 0 && strcmp(h->name, o->name) == 0 &&
            (o->name[0] != 0 || h->slot == o->slot))
            at = h;
    }
    for (int i = 0; i < 64 && at == NULL; i++)
        at = s->heads[i].used ? NULL : &s->heads[i];
    uint64_t gen = at->gen;
    free_head(at);
    *at = *o;
    at->used = true;
    at->gen = gen + 1;
    memset(o, 0, sizeof *o);
    s->commits++;
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_COMMITTED, f->id);
    vt_enc_u64(e, VT_CK_COMMITTED_MANIFEST, (uint64_t)(at - s->heads) + 1);
    vt_enc_u64(e, VT_CK_COMMITTED_HEAD_GEN, at->gen);
    peer_send(&r->store);
}

/* ---- load ---- */

static void heads(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    unsigned n = 0;
    for (int i = 0; i < 64; i++)
        n += s->heads[i].used && s->heads[i].name[0] == 0;
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_HEADS, f->id);
    vt_enc_array(e, VT_CK_HEADS_LIST, n);
    for (int i = 0; i < 64; i++) {
        const struct shelf_head *h = &s->heads[i];
        if (!h->used || h->name[0] != 0)
            continue;
        vt_enc_put_array(e, 6);
        vt_enc_put_u64(e, h->slot);
        vt_enc_put_str(e, h->tenant);
        vt_enc_put_u64(e, h->n_items);
        vt_enc_put_u64(e, h->n_blocks);
        vt_enc_put_u64(e, 1);
        vt_enc_put_u64(e, h->gen);
    }
    peer_send(&r->store);
}

static void plan(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    char tenant[65], name[129];
    const struct shelf_head *h = NULL;
    vt_frame_str(f, VT_CK_FIND_TENANT, tenant, sizeof tenant);
    vt_frame_str(f, VT_CK_FIND_NAME, name, sizeof name);
    uint64_t slot = vt_frame_u64(f, VT_CK_FIND_SLOT, 0);
    for (int i = 0; i < 64; i++) {
        const struct shelf_head *k = &s->heads[i];
        if (k->used && strcmp(k->tenant, tenant) == 0 && strcmp(k->name, name) == 0 &&
            (name[0] != 0 || k->slot == slot))
            h = k;
    }
    if (h == NULL) {
        struct vt_enc *e = peer_begin(&r->store, VT_F_CK_END, f->id);
        vt_enc_u64(e, VT_CK_END_OK, 0);
        vt_enc_u64(e, VT_KEY_CODE, VT_E_NOT_FOUND);
        peer_send(&r->store);
        return;
    }
    uint32_t have = 0;
    while (have < h->n_blocks && whole(s, h->names + have * 32))
        have++;
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_PLAN, f->id);
    vt_enc_u64(e, VT_CK_PLAN_MANIFEST, (uint64_t)(h - s->heads) + 1);
    vt_enc_bin(e, VT_CK_PLAN_ITEMS, h->items, h->n_items * 4);
    vt_enc_u64(e, VT_CK_PLAN_HAVE, have);
    if (h->rec_pos > 0)
        vt_enc_u64(e, VT_CK_PLAN_REC_POS, h->rec_pos);
    peer_send(&r->store);
}

static void prompt_plan(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    size_t n;
    const uint8_t *names = vt_frame_bin(f, VT_CK_FIND_NAMES, &n);
    uint32_t have = 0, rec = 0;
    uint8_t name[32];
    s->finds++;
    if (s->lie == LIE_SILENT)
        return;
    while (have < n / 32 && whole(s, names + have * 32)) {
        ckpt_rec(names + have * 32, (have + 1) * 256, name);
        have++;
        rec = whole(s, name) ? have * 256 : rec;
    }
    if (have == 0) {
        struct vt_enc *e = peer_begin(&r->store, VT_F_CK_END, f->id);
        vt_enc_u64(e, VT_CK_END_OK, 0);
        vt_enc_u64(e, VT_KEY_CODE, VT_E_NOT_FOUND);
        peer_send(&r->store);
        return;
    }
    if (rec > 0)
        ckpt_rec(names + (rec / 256 - 1) * 32, rec, s->load_rec);
    s->load_rec_pos = rec;
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_PLAN, f->id);
    vt_enc_u64(e, VT_CK_PLAN_MANIFEST, s->lie == LIE_MANIFEST);
    vt_enc_u64(e, VT_CK_PLAN_HAVE, s->lie == LIE_MORE ? have + 100 : have);
    if (rec > 0)
        vt_enc_u64(e, VT_CK_PLAN_REC_POS, s->lie == LIE_REC ? rec - 1 : rec);
    peer_send(&r->store);
}

/* What of a piece is not as it should be; bytes and their checksum are. */
static void spoil(const struct shelf *s, uint8_t *bytes, uint32_t len, uint8_t *sum, uint32_t *index,
                  uint32_t *slot, uint32_t *said)
{
    bool second = s->next == 1 && s->piece == 0;
    if (!s->load_prompt || s->send_rec)
        return;
    if (s->lie == LIE_BYTES && second) {
        bytes[7] ^= 1;
        vt_xxh128(bytes, len, sum);
    }
    if (s->lie == LIE_SUM && second)
        sum[0] ^= 1;
    if (s->lie == LIE_ORDER)
        *index ^= 1;
    if (s->lie == LIE_RING_SLOT)
        *slot = 60000;
    if (s->lie == LIE_LENGTH)
        *said = UINT32_MAX;
}

/* One piece; false when all are out. */
static bool data(struct rig *r, uint32_t slot)
{
    struct shelf *s = r->shelf;
    if (!s->loading || (!s->send_rec && s->next >= s->blocks))
        return false;
    const struct blob *b = find(s, s->send_rec ? s->load_rec : s->load_names + s->next * 32);
    assert_non_null(b);
    uint32_t len = ckpt_piece_len(b->len, s->piece), said = len;
    uint32_t index = s->send_rec ? s->load_rec_pos / 256 : s->next;
    uint8_t *dst = vt_ring_slot(&r->ring, slot, len), sum[16];
    memcpy(dst, b->data + (uint64_t)s->piece * CKPT_PIECE, len);
    vt_xxh128(dst, len, sum);
    spoil(s, dst, len, sum, &index, &slot, &said);
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_DATA, s->load_id);
    vt_enc_u64(e, VT_CK_DATA_INDEX, index);
    vt_enc_u64(e, VT_CK_DATA_KIND, s->send_rec ? CKPT_REC : CKPT_KV);
    vt_enc_u64(e, VT_CK_DATA_PIECE, s->piece);
    vt_enc_u64(e, VT_CK_DATA_RING_SLOT, slot);
    vt_enc_u64(e, VT_CK_DATA_LEN, said);
    vt_enc_bin(e, VT_CK_DATA_XXH128, sum, 16);
    vt_enc_u64(e, VT_CK_DATA_LAST, s->piece + 1 == ckpt_pieces(b->len));
    peer_send(&r->store);
    if (++s->piece == ckpt_pieces(b->len)) {
        s->piece = 0;
        if (s->send_rec)
            s->send_rec = false;
        else
            s->next++;
    }
    return true;
}

static void load_end(struct rig *r)
{
    struct shelf *s = r->shelf;
    struct vt_enc *e = peer_begin(&r->store, VT_F_CK_END, s->load_id);
    vt_enc_u64(e, VT_CK_END_OK, 1);
    vt_enc_u64(e, VT_CK_END_BLOCKS, s->blocks);
    peer_send(&r->store);
    s->loading = false;
}

static void load_of_head(struct shelf *s, const struct shelf_head *h)
{
    memcpy(s->load_names, h->names, h->n_blocks * 32);
    memcpy(s->load_rec, h->rec_name, 32);
    s->load_rec_pos = h->rec_pos;
    s->blocks = h->n_blocks;
    while (s->blocks > 0 && !whole(s, h->names + (s->blocks - 1) * 32))
        s->blocks--;
}

static void load(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    size_t n;
    const uint8_t *names = vt_frame_bin(f, VT_CK_LOAD_NAMES, &n);
    s->load_prompt = names != NULL;
    s->loading = true;
    s->load_id = f->id;
    s->piece = s->credit = 0;
    s->next = s->skipped = (uint32_t)vt_frame_u64(f, VT_CK_LOAD_SKIP, 0);
    if (s->load_prompt) {
        s->loads++;
        s->blocks = (uint32_t)(n / 32);
        memcpy(s->load_names, names, n);
    } else {
        load_of_head(s, &s->heads[vt_frame_u64(f, VT_CK_LOAD_MANIFEST, 1) - 1]);
    }
    s->send_rec = vt_frame_has(f, VT_CK_LOAD_REC_POS);
    if (s->send_rec)
        s->blocks = s->load_rec_pos / 256;
    if (s->load_prompt && (s->lie == LIE_STOPS || s->lie == LIE_ENDS))
        s->blocks = 1;
    if (s->load_prompt && s->lie == LIE_NO_DATA)
        return;
    for (uint32_t i = 0; i < 4 && data(r, VT_RING_SLOTS / 2 + i); i++)
        s->credit++;
    if (s->credit == 0)
        load_end(r);
}

static void data_ack(struct rig *r, const struct vt_frame *f)
{
    struct shelf *s = r->shelf;
    if (!s->loading || f->id != s->load_id)
        return;
    s->credit--;
    if (data(r, (uint32_t)vt_frame_u64(f, VT_CK_DATA_ACK_RING_SLOT, 0)))
        s->credit++;
    else if (s->credit == 0 && !(s->load_prompt && s->lie == LIE_STOPS))
        load_end(r);
}

void shelf_frame(struct rig *r, const struct vt_frame *f)
{
    if (r->shelf->mute)
        return;
    switch (f->type) {
    case VT_F_CK_SALT: salt(r, f); break;
    case VT_F_CK_BEGIN: begin(r, f); break;
    case VT_F_CK_CHUNK: chunk(r, f); break;
    case VT_F_CK_COMMIT: commit(r, f); break;
    case VT_F_CK_FIND:
        if (vt_frame_has(f, VT_CK_FIND_NAMES))
            prompt_plan(r, f);
        else if (vt_frame_has(f, VT_CK_FIND_TENANT))
            plan(r, f);
        else
            heads(r, f);
        break;
    case VT_F_CK_LOAD: load(r, f); break;
    case VT_F_CK_DATA_ACK: data_ack(r, f); break;
    case VT_F_CK_ABORT:
        r->shelf->aborts++;
        r->shelf->loading &= f->id != r->shelf->load_id;
        break;
    default: fail_msg("the engine sends %s", vt_frame_name(f->type));
    }
}
