#include "puppet.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *need(void *p)
{
    if (p == NULL)
        abort();
    return p;
}

void puppet_init(struct puppet *p, uint32_t link, const char *dir)
{
    struct vt_err err;
    *p = (struct puppet){.link = link, .next_id = 1};
    snprintf(p->ring_path, sizeof p->ring_path, "%s/ring-%08x", dir, link);
    if (vt_ring_create(p->ring_path, link, 8, CKPT_PIECE, &err) < 0 ||
        vt_ring_map(&p->ring, p->ring_path, link, &err) < 0) {
        fprintf(stderr, "puppet: %s\n", err.text);
        abort();
    }
    vt_enc_init(&p->enc);
}

void puppet_fini(struct puppet *p)
{
    vt_ring_unmap(&p->ring);
    unlink(p->ring_path);
    vt_enc_fini(&p->enc);
    for (size_t i = 0; i < p->n; i++)
        free(p->frames[i]);
    free(p->frames);
    free(p->lens);
}

void puppet_came(struct puppet *p, const uint8_t *frame, size_t len)
{
    if (p->n == p->cap) {
        p->cap = p->cap > 0 ? 2 * p->cap : 64;
        p->frames = need(realloc(p->frames, p->cap * sizeof *p->frames));
        p->lens = need(realloc(p->lens, p->cap * sizeof *p->lens));
    }
    p->frames[p->n] = need(malloc(len));
    memcpy(p->frames[p->n], frame, len);
    p->lens[p->n++] = len;
}

bool puppet_next(struct puppet *p, struct vt_frame *f)
{
    struct vt_err err;
    if (p->taken == p->n && p->pump(p->arg, p) == 0)
        return false;
    if (vt_frame_open(f, p->frames[p->taken], p->lens[p->taken], 8u << 20, &err) < 0) {
        fprintf(stderr, "puppet: the store sent a bad frame: %s\n", err.text);
        abort();
    }
    p->taken++;
    return true;
}

void puppet_send(struct puppet *p)
{
    struct vt_err err;
    if (vt_enc_end(&p->enc, &err) < 0) {
        fprintf(stderr, "puppet: %s\n", err.text);
        abort();
    }
    p->send(p->arg, p->enc.buf, p->enc.len);
}

/* The next frame must be of this type; otherwise its code (CK_ABORT, CK_END), or -1. */
static int expect(struct puppet *p, uint8_t type, struct vt_frame *f)
{
    while (puppet_next(p, f)) {
        if (f->type == type)
            return 0;
        int code = (int)vt_frame_u64(f, VT_KEY_CODE, 0);
        bool end = f->type == VT_F_CK_ABORT || f->type == VT_F_CK_END;
        vt_frame_close(f);
        if (end)
            return code != 0 ? code : -1;
    }
    return -1;
}

int puppet_salt(struct puppet *p, const char *tenant, uint8_t salt[32])
{
    struct vt_frame f;
    size_t len;
    vt_enc_begin(&p->enc, VT_F_CK_SALT, p->next_id++, p->link);
    vt_enc_str(&p->enc, VT_CK_SALT_TENANT, tenant);
    puppet_send(p);
    int rc = expect(p, VT_F_CK_SALT_IS, &f);
    if (rc != 0)
        return rc;
    const uint8_t *s = vt_frame_bin(&f, VT_CK_SALT_IS_SALT, &len);
    rc = s != NULL && len == 32 ? 0 : (int)vt_frame_u64(&f, VT_KEY_CODE, 1);
    if (rc == 0)
        memcpy(salt, s, 32);
    vt_frame_close(&f);
    return rc;
}

struct shape { /* what a talk is made of */
    uint32_t n, n_rec;
    uint32_t *items;
    uint8_t *names, *rec; /* 32 x n, 32 x n_rec */
};

static int shape_of(struct puppet *p, const struct talk *t, struct shape *s)
{
    uint8_t salt[32], h[32];
    int rc = puppet_salt(p, t->tenant, salt);
    if (rc != 0)
        return rc;
    s->n = t->n_items / t->block_tokens;
    s->n_rec = t->rec_bytes > 0 ? s->n / t->rec_every : 0;
    s->items = need(malloc(4u * (size_t)t->n_items + 4));
    s->names = need(malloc(32u * (size_t)s->n + 32));
    s->rec = need(malloc(32u * (size_t)s->n_rec + 32));
    for (uint32_t i = 0; i < t->n_items; i++)
        s->items[i] = talk_item(t, i);
    ckpt_h0(t->fp, salt, h);
    for (uint32_t i = 0; i < s->n; i++) {
        ckpt_next(h, s->items + (size_t)i * t->block_tokens, t->block_tokens, h);
        memcpy(s->names + 32u * (size_t)i, h, 32);
    }
    for (uint32_t i = 0; i < s->n_rec; i++) {
        uint32_t at = (i + 1) * t->rec_every;
        ckpt_rec(s->names + 32u * (size_t)(at - 1), at * t->block_tokens, s->rec + 32u * (size_t)i);
    }
    return 0;
}

static void shape_free(struct shape *s)
{
    free(s->items);
    free(s->names);
    free(s->rec);
}

int puppet_begin(struct puppet *p, const struct talk *t, uint64_t *id, uint8_t *needed)
{
    struct shape s;
    struct vt_frame f;
    struct vt_enc *e = &p->enc;
    size_t len;
    int rc = shape_of(p, t, &s);
    if (rc != 0)
        return rc;
    *id = p->next_id++;
    vt_enc_begin(e, VT_F_CK_BEGIN, *id, p->link);
    vt_enc_str(e, VT_CK_BEGIN_TENANT, t->tenant);
    vt_enc_u64(e, VT_CK_BEGIN_SLOT, t->slot);
    vt_enc_bin(e, VT_CK_BEGIN_LAYOUT_FP, t->fp, 32);
    vt_enc_u64(e, VT_CK_BEGIN_BASE_GEN, t->base_gen);
    vt_enc_u64(e, VT_CK_BEGIN_NTOK, t->n_items);
    vt_enc_bin(e, VT_CK_BEGIN_ITEMS, s.items, 4u * (size_t)t->n_items);
    vt_enc_bin(e, VT_CK_BEGIN_NAMES, s.names, 32u * (size_t)s.n);
    if (s.n_rec > 0) {
        vt_enc_array(e, VT_CK_BEGIN_REC, s.n_rec);
        for (uint32_t i = 0; i < s.n_rec; i++) {
            vt_enc_put_array(e, 2);
            vt_enc_put_u64(e, (uint64_t)(i + 1) * t->rec_every * t->block_tokens);
            vt_enc_put_bin(e, s.rec + 32u * (size_t)i, 32);
        }
    }
    vt_enc_u64(e, VT_CK_BEGIN_REASON, t->reason);
    vt_enc_bin(e, VT_CK_BEGIN_SAMPLER, "smp", 3);
    if (t->name != NULL)
        vt_enc_str(e, VT_CK_BEGIN_NAME, t->name);
    vt_enc_bin(e, VT_CK_BEGIN_DESCR, "\x80", 1);
    vt_enc_u64(e, VT_CK_BEGIN_BLOCK_TOKENS, t->block_tokens);
    vt_enc_u64(e, VT_CK_BEGIN_BLOCK_BYTES, t->kv_bytes);
    vt_enc_u64(e, VT_CK_BEGIN_REC_BYTES, t->rec_bytes);
    puppet_send(p);
    if ((rc = expect(p, VT_F_CK_NEED, &f)) == 0) {
        const uint8_t *bits = vt_frame_bin(&f, VT_CK_NEED_BITMAP, &len);
        if (needed != NULL && len > 0)
            memcpy(needed, bits, len);
        bits = vt_frame_bin(&f, VT_CK_NEED_REC, &len);
        if (needed != NULL && len > 0)
            memcpy(needed + (s.n + 7) / 8, bits, len);
        vt_frame_close(&f);
    }
    shape_free(&s);
    return rc;
}

int puppet_block(struct puppet *p, const struct talk *t, uint64_t id, enum ckpt_kind kind, uint32_t index,
                 uint32_t *pieces)
{
    struct shape s;
    struct vt_frame f;
    uint64_t bytes = kind == CKPT_KV ? t->kv_bytes : t->rec_bytes;
    int rc = shape_of(p, t, &s);
    if (rc != 0)
        return rc;
    const uint8_t *name = (kind == CKPT_KV ? s.names : s.rec) + 32u * (size_t)index;
    for (uint32_t i = 0; rc == 0 && i < ckpt_pieces(bytes); i++) {
        uint32_t len = ckpt_piece_len(bytes, i), slot = i % (p->ring.n_slots / 2);
        uint8_t sum[16], *data = vt_ring_slot(&p->ring, slot, len);
        talk_fill(name, i, data, len);
        vt_xxh128(data, len, sum);
        vt_enc_begin(&p->enc, VT_F_CK_CHUNK, id, p->link);
        vt_enc_u64(&p->enc, VT_CK_CHUNK_INDEX, index);
        vt_enc_u64(&p->enc, VT_CK_CHUNK_KIND, kind);
        vt_enc_u64(&p->enc, VT_CK_CHUNK_PIECE, i);
        vt_enc_u64(&p->enc, VT_CK_CHUNK_RING_SLOT, slot);
        vt_enc_u64(&p->enc, VT_CK_CHUNK_LEN, len);
        vt_enc_bin(&p->enc, VT_CK_CHUNK_XXH128, sum, 16);
        puppet_send(p);
        ++*pieces;
        if ((rc = expect(p, VT_F_CK_CREDIT, &f)) == 0)
            vt_frame_close(&f);
    }
    shape_free(&s);
    return rc;
}

int puppet_save(struct puppet *p, const struct talk *t, struct puppet_saved *r)
{
    struct vt_frame f;
    uint64_t id;
    uint32_t n = t->n_items / t->block_tokens, n_rec = t->rec_bytes > 0 ? n / t->rec_every : 0, pieces = 0;
    uint8_t *bits = need(calloc((n + 7) / 8 + (n_rec + 7) / 8 + 1, 1));
    struct puppet_saved got = {0};
    int rc = puppet_begin(p, t, &id, bits);
    for (uint32_t i = 0; rc == 0 && i < n + n_rec; i++) {
        bool rec = i >= n;
        uint32_t at = rec ? i - n : i;
        const uint8_t *map = rec ? bits + (n + 7) / 8 : bits;
        if (map[at / 8] & 1 << at % 8) {
            rc = puppet_block(p, t, id, rec ? CKPT_REC : CKPT_KV, at, &pieces);
            got.sent++;
        }
    }
    free(bits);
    if (rc != 0)
        return rc;
    vt_enc_begin(&p->enc, VT_F_CK_COMMIT, id, p->link);
    vt_enc_u64(&p->enc, VT_CK_COMMIT_PIECES, pieces);
    vt_enc_u64(&p->enc, VT_CK_COMMIT_BYTES, 0);
    puppet_send(p);
    if ((rc = expect(p, VT_F_CK_COMMITTED, &f)) != 0)
        return rc;
    got.manifest = vt_frame_u64(&f, VT_CK_COMMITTED_MANIFEST, 0);
    got.head_gen = vt_frame_u64(&f, VT_CK_COMMITTED_HEAD_GEN, 0);
    vt_frame_close(&f);
    if (r != NULL)
        *r = got;
    return 0;
}

static bool data_is_right(struct puppet *p, const struct talk *t, const struct shape *s,
                          const struct vt_frame *f, uint64_t *slot)
{
    uint64_t index = vt_frame_u64(f, VT_CK_DATA_INDEX, 0), piece = vt_frame_u64(f, VT_CK_DATA_PIECE, 0);
    uint64_t len = vt_frame_u64(f, VT_CK_DATA_LEN, 0), kind = vt_frame_u64(f, VT_CK_DATA_KIND, 0);
    *slot = vt_frame_u64(f, VT_CK_DATA_RING_SLOT, 0);
    const uint8_t *data = *slot >= p->ring.n_slots / 2 ? vt_ring_slot(&p->ring, (uint32_t)*slot, len) : NULL;
    if (data == NULL || index > s->n)
        return false;
    uint8_t name[32], *want = need(malloc(len + 8));
    if (kind == CKPT_KV)
        memcpy(name, s->names + 32u * (size_t)index, 32);
    else
        ckpt_rec(s->names + 32u * (size_t)(index - 1), (uint32_t)index * t->block_tokens, name);
    talk_fill(name, (uint32_t)piece, want, (uint32_t)len);
    bool same = memcmp(data, want, len) == 0;
    free(want);
    return same;
}

static int take_data(struct puppet *p, const struct talk *t, const struct shape *s, uint64_t id,
                     struct puppet_restored *r)
{
    struct vt_frame f;
    uint64_t slot;
    while (puppet_next(p, &f)) {
        if (f.type == VT_F_CK_END) {
            r->ended_ok = vt_frame_u64(&f, VT_CK_END_OK, 0) == 1;
            r->blocks = (uint32_t)vt_frame_u64(&f, VT_CK_END_BLOCKS, 0);
            vt_frame_close(&f);
            return 0;
        }
        if (f.type == VT_F_CK_DATA) {
            if (!data_is_right(p, t, s, &f, &slot))
                r->poisoned = true;
            r->has_rec = r->has_rec || vt_frame_u64(&f, VT_CK_DATA_KIND, 0) == CKPT_REC;
            vt_enc_begin(&p->enc, VT_F_CK_DATA_ACK, id, p->link);
            vt_enc_u64(&p->enc, VT_CK_DATA_ACK_RING_SLOT, slot);
            vt_enc_u64(&p->enc, VT_CK_DATA_ACK_OK, 1);
            puppet_send(p);
        }
        vt_frame_close(&f);
    }
    return -1;
}

int puppet_restore(struct puppet *p, const struct talk *t, struct puppet_restored *r)
{
    struct shape s;
    struct vt_frame f;
    struct vt_enc *e = &p->enc;
    uint64_t id = p->next_id++;
    size_t len;
    *r = (struct puppet_restored){0};
    vt_enc_begin(e, VT_F_CK_FIND, id, p->link);
    vt_enc_bin(e, VT_CK_FIND_LAYOUT_FP, t->fp, 32);
    vt_enc_str(e, VT_CK_FIND_TENANT, t->tenant);
    if (t->name != NULL)
        vt_enc_str(e, VT_CK_FIND_NAME, t->name);
    else
        vt_enc_u64(e, VT_CK_FIND_SLOT, t->slot);
    puppet_send(p);
    int rc = expect(p, VT_F_CK_PLAN, &f);
    if (rc != 0)
        return rc;
    uint64_t manifest = vt_frame_u64(&f, VT_CK_PLAN_MANIFEST, 0),
             rec = vt_frame_u64(&f, VT_CK_PLAN_REC_POS, 0);
    const uint8_t *items = vt_frame_bin(&f, VT_CK_PLAN_ITEMS, &len);
    r->ntok = (uint32_t)(len / 4);
    for (uint32_t i = 0; i < r->ntok; i++) {
        uint32_t want = talk_item(t, i);
        r->poisoned = r->poisoned || memcmp(items + 4 * (size_t)i, &want, 4) != 0;
    }
    vt_frame_close(&f);
    struct talk whole = *t;
    whole.n_items = r->ntok;
    if ((rc = shape_of(p, &whole, &s)) != 0)
        return rc;
    vt_enc_begin(e, VT_F_CK_LOAD, id, p->link);
    vt_enc_u64(e, VT_CK_LOAD_MANIFEST, manifest);
    vt_enc_u64(e, VT_CK_LOAD_CREDIT, p->ring.n_slots / 2);
    if (rec > 0)
        vt_enc_u64(e, VT_CK_LOAD_REC_POS, rec);
    puppet_send(p);
    rc = take_data(p, &whole, &s, id, r);
    shape_free(&s);
    return rc;
}
