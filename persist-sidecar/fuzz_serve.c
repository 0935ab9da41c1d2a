/* Sequences of frames that an engine or vitriold might send, valid, nearly valid and not, against a store in memory. The
 * input is a program: each step picks a frame and takes its fields from small sets, so that operations get far enough to
 * meet each other. After every sequence the invariants hold and nothing that restores is wrong. */
#include "fixture.h"
#include "frame.h"
#include "ring.h"
#include "serve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LINKS 2

struct fuzz {
    struct fix f;
    struct serve *v;
    struct vt_ring ring[LINKS];
    bool up[LINKS], failed[LINKS];
    struct vt_enc enc;
    const uint8_t *in;
    size_t left;
    uint8_t names[2][32 * 4]; /* of two conversations */
    struct talk talk[2];
};

static uint8_t take(struct fuzz *z)
{
    if (z->left == 0)
        return 0;
    z->left--;
    return *z->in++;
}

/* Sizes of the first conversation are even, of the second odd: a piece of one never passes for one of the other, which no
 * store could notice. */
static uint64_t size_for(const struct fuzz *z, const struct talk *t, uint64_t v)
{
    return (v & ~(uint64_t)1) | (uint64_t)(t - z->talk);
}

/* A plausible number, now and then an absurd one. */
static uint64_t number(struct fuzz *z, uint64_t limit)
{
    static const uint64_t absurd[] = {UINT32_MAX, UINT64_MAX >> 1, 1u << 20, 65535, 4096,
                                      257,        (1u << 20) + 1,  0};
    uint8_t b = take(z);
    return b >= 240 ? absurd[b % 8] : b % limit;
}

static void on_send(void *arg, uint32_t link, const uint8_t *frame, size_t len)
{
    struct fuzz *z = arg;
    struct vt_frame f;
    struct vt_err err;
    if (vt_frame_open(&f, frame, len, 8u << 20, &err) < 0)
        abort(); /* the store speaks well whatever it hears */
    bool data = f.type == VT_F_CK_DATA && link < LINKS;
    if (data && vt_ring_slot(&z->ring[link], (uint32_t)vt_frame_u64(&f, VT_CK_DATA_RING_SLOT, UINT32_MAX),
                             vt_frame_u64(&f, VT_CK_DATA_LEN, SIZE_MAX)) == NULL)
        abort();
    vt_frame_close(&f);
}

static void on_fail(void *arg, uint32_t link, const struct vt_err *why)
{
    struct fuzz *z = arg;
    if (link < LINKS)
        z->failed[link] = true;
}

static void send_frame(struct fuzz *z)
{
    if (vt_enc_end(&z->enc, NULL) == 0)
        serve_frame(z->v, z->enc.buf, z->enc.len);
}

static void begin_frame(struct fuzz *z, uint32_t link)
{
    struct vt_enc *e = &z->enc;
    const struct talk *t = &z->talk[take(z) % 2];
    uint32_t items[64 * 4 + 3];
    uint64_t n = number(z, 64 * 4 + 3), names = number(z, 5), flags = take(z);
    n = n < 64 * 4 + 3 ? n : 64 * 4;
    names = names < 5 ? names : 4;
    for (uint32_t i = 0; i < n; i++)
        items[i] = talk_item(t, i);
    vt_enc_str(e, VT_CK_BEGIN_TENANT, flags & 1 ? "t" : flags & 2 ? "" : "t/../t");
    vt_enc_u64(e, VT_CK_BEGIN_SLOT, number(z, 3));
    vt_enc_bin(e, VT_CK_BEGIN_LAYOUT_FP, t->fp, flags & 4 ? 32 : 31 + (flags & 1));
    vt_enc_u64(e, VT_CK_BEGIN_BASE_GEN, flags & 8 ? 0 : number(z, 4));
    vt_enc_u64(e, VT_CK_BEGIN_NTOK, flags & 16 ? n : number(z, 300));
    vt_enc_bin(e, VT_CK_BEGIN_ITEMS, items, 4 * n);
    vt_enc_bin(e, VT_CK_BEGIN_NAMES, z->names[t - z->talk], 32 * names - (flags & 128 ? names > 0 : 0));
    if (flags & 32) {
        uint8_t rec[32];
        uint64_t at = 1 + number(z, 4) % 4;
        ckpt_rec(z->names[t - z->talk] + 32 * (at - 1), (uint32_t)at * 64, rec);
        vt_enc_array(e, VT_CK_BEGIN_REC, 1);
        vt_enc_put_array(e, 2);
        vt_enc_put_u64(e, at * 64);
        vt_enc_put_bin(e, rec, 32);
    }
    vt_enc_u64(e, VT_CK_BEGIN_REASON, number(z, 7));
    vt_enc_bin(e, VT_CK_BEGIN_SAMPLER, "smp", 3);
    if (flags & 64)
        vt_enc_str(e, VT_CK_BEGIN_NAME, "file");
    vt_enc_u64(e, VT_CK_BEGIN_BLOCK_TOKENS, flags & 8 ? 64 : number(z, 200));
    vt_enc_u64(e, VT_CK_BEGIN_BLOCK_BYTES, flags & 4 ? t->kv_bytes : size_for(z, t, number(z, 200) * 40));
    vt_enc_u64(e, VT_CK_BEGIN_REC_BYTES, t->rec_bytes);
    (void)link;
}

static void chunk_frame(struct fuzz *z, uint32_t link)
{
    struct vt_enc *e = &z->enc;
    const struct talk *t = &z->talk[take(z) % 2];
    uint64_t index = number(z, 4), kind = number(z, 4), slot = number(z, 8);
    uint64_t len = kind == CKPT_REC ? t->rec_bytes : t->kv_bytes;
    if (take(z) > 220)
        len = size_for(z, t, number(z, 200) * 40);
    uint8_t sum[16] = {0}, name[32];
    uint8_t *at = len <= CKPT_PIECE ? vt_ring_slot(&z->ring[link], (uint32_t)(slot % 8), len) : NULL;
    if (at != NULL) {
        memcpy(name, z->names[t - z->talk] + 32 * (index % 4), 32);
        if (kind == CKPT_REC)
            ckpt_rec(name, (uint32_t)(index % 4 + 1) * 64, name);
        talk_fill(name, 0, at, (uint32_t)len);
        vt_xxh128(at, len, sum);
    }
    vt_enc_u64(e, VT_CK_CHUNK_INDEX, index);
    vt_enc_u64(e, VT_CK_CHUNK_KIND, kind);
    vt_enc_u64(e, VT_CK_CHUNK_PIECE, number(z, 2) % 250);
    vt_enc_u64(e, VT_CK_CHUNK_RING_SLOT, slot);
    vt_enc_u64(e, VT_CK_CHUNK_LEN, len);
    vt_enc_bin(e, VT_CK_CHUNK_XXH128, sum, 16);
}

static void find_frame(struct fuzz *z, uint32_t link)
{
    struct vt_enc *e = &z->enc;
    const struct talk *t = &z->talk[take(z) % 2];
    uint8_t how = take(z);
    vt_enc_bin(e, VT_CK_FIND_LAYOUT_FP, t->fp, 32);
    if (how & 1)
        vt_enc_str(e, VT_CK_FIND_TENANT, "t");
    if (how & 2)
        vt_enc_bin(e, VT_CK_FIND_NAMES, z->names[t - z->talk], 32 * (how % 5));
    if (how & 4)
        vt_enc_u64(e, VT_CK_FIND_SLOT, number(z, 3));
    if (how & 8)
        vt_enc_str(e, VT_CK_FIND_NAME, "file");
    (void)link;
}

static void load_frame(struct fuzz *z, uint32_t link)
{
    struct vt_enc *e = &z->enc;
    uint8_t how = take(z);
    vt_enc_u64(e, VT_CK_LOAD_MANIFEST, number(z, 6));
    vt_enc_u64(e, VT_CK_LOAD_CREDIT, number(z, 6));
    if (how & 1)
        vt_enc_bin(e, VT_CK_LOAD_NAMES, z->names[how >> 7], 32 * (how % 5));
    if (how & 2)
        vt_enc_u64(e, VT_CK_LOAD_REC_POS, 64 * number(z, 5));
    if (how & 4)
        vt_enc_u64(e, VT_CK_LOAD_SKIP, number(z, 5));
    (void)link;
}

static void pin_frame(struct fuzz *z, unsigned key)
{
    uint8_t n = take(z);
    vt_enc_bin(&z->enc, key, z->names[n & 1], n % 129);
}

static void launch_frame(struct fuzz *z, uint8_t type)
{
    struct vt_enc *e = &z->enc;
    if (type == VT_F_LAUNCH_END) {
        vt_enc_u64(e, VT_LAUNCH_END_ID, number(z, 4));
        vt_enc_str(e, VT_LAUNCH_END_CLASS, "x");
        vt_enc_bin(e, VT_LAUNCH_END_EVIDENCE, z->names, take(z));
        return;
    }
    vt_enc_str(e, VT_LAUNCH_PUT_CHILD, take(z) & 1 ? "engine0" : "");
    if (type == VT_F_LAUNCH_LAST)
        return;
    vt_enc_u64(e, VT_LAUNCH_PUT_GEN, 1);
    vt_enc_str(e, VT_LAUNCH_PUT_FP, "fp");
    vt_enc_str(e, VT_LAUNCH_PUT_LINE, "line");
    vt_enc_map(e, VT_LAUNCH_PUT_EFFECTIVE, 1);
    vt_enc_put_str(e, "k");
    vt_enc_put_str(e, "v");
}

/* What ctl asks by hand. A list and a pass over the blocks may come at any time; to forget takes the tenant's salt away, and
 * with it the names of later saves. */
static void ask_frame(struct fuzz *z)
{
    uint8_t how = take(z);
    vt_enc_u64(&z->enc, VT_STORE_ASK_VERB, how < 250 ? 1 + how % 3 : number(z, 6));
    if (how & 4)
        vt_enc_str(&z->enc, VT_STORE_ASK_TENANT, how & 8 ? "t" : how & 16 ? "" : "t/../t");
    if (how & 32)
        vt_enc_u64(&z->enc, VT_STORE_ASK_SLOT, number(z, 3));
}

static void one_frame(struct fuzz *z)
{
    static const uint8_t types[] = {
        VT_F_CK_BEGIN, VT_F_CK_CHUNK,    VT_F_CK_CHUNK,   VT_F_CK_COMMIT,  VT_F_CK_ABORT, VT_F_CK_FIND,
        VT_F_CK_LOAD,  VT_F_CK_DATA_ACK, VT_F_CK_END,     VT_F_CK_PIN,     VT_F_CK_UNPIN, VT_F_CK_SALT,
        VT_F_CK_NEED,  VT_F_LAUNCH_LAST, VT_F_LAUNCH_PUT, VT_F_LAUNCH_END, VT_F_STORE_ASK};
    uint8_t b = take(z), type = types[b % (sizeof types)];
    uint32_t link = b >> 4 & 1;
    bool vitriold = (type >= VT_F_LAUNCH_LAST && type <= VT_F_LAUNCH_END) || type == VT_F_STORE_ASK;
    vt_enc_begin(&z->enc, type, number(z, 3), vitriold && b < 250 ? 99 : link);
    switch (type) {
    case VT_F_CK_BEGIN: begin_frame(z, link); break;
    case VT_F_CK_CHUNK: chunk_frame(z, link); break;
    case VT_F_CK_COMMIT:
        vt_enc_u64(&z->enc, VT_CK_COMMIT_PIECES, number(z, 6));
        vt_enc_u64(&z->enc, VT_CK_COMMIT_BYTES, 0);
        break;
    case VT_F_CK_FIND: find_frame(z, link); break;
    case VT_F_CK_LOAD: load_frame(z, link); break;
    case VT_F_CK_DATA_ACK:
        vt_enc_u64(&z->enc, VT_CK_DATA_ACK_RING_SLOT, number(z, 8));
        vt_enc_u64(&z->enc, VT_CK_DATA_ACK_OK, number(z, 2));
        break;
    case VT_F_CK_END: vt_enc_u64(&z->enc, VT_CK_END_OK, 0); break;
    case VT_F_CK_PIN: pin_frame(z, VT_CK_PIN_NAMES); break;
    case VT_F_CK_UNPIN: pin_frame(z, VT_CK_UNPIN_NAMES); break;
    case VT_F_CK_SALT: vt_enc_str(&z->enc, VT_CK_SALT_TENANT, take(z) & 1 ? "t" : "u v"); break;
    case VT_F_CK_NEED:
        vt_enc_bin(&z->enc, VT_CK_NEED_BITMAP, "", 0);
        vt_enc_u64(&z->enc, VT_CK_NEED_CREDIT, 1);
        break;
    case VT_F_CK_ABORT: break;
    case VT_F_STORE_ASK: ask_frame(z); break;
    default: launch_frame(z, type); break;
    }
    send_frame(z);
}

static void link_up(struct fuzz *z, uint32_t link)
{
    serve_link_up(z->v, link, z->ring[link].base, z->ring[link].bytes);
    z->up[link] = true;
    z->failed[link] = false;
}

static void link_down(struct fuzz *z, uint32_t link)
{
    serve_link_down(z->v, link);
    z->up[link] = false;
}

static void steps(struct fuzz *z, int n)
{
    struct vt_err err;
    for (int i = 0; i < n; i++)
        if (serve_step(z->v, &err) == SERVE_BROKEN)
            abort();
}

/* A save as it should be, frame by frame from the same parts; what else is open may be in its way. */
static void whole_save(struct fuzz *z, uint32_t link)
{
    uint8_t how = take(z), slot = take(z) % 3, blocks = (uint8_t)(1 + how % 4), talk = how >> 6 & 1;
    /* BEGIN: talk, n, names, flags (all well), slot, reason */
    uint8_t begin[] = {talk, (uint8_t)(blocks * 48), blocks, 1 | 4 | 8 | 16, slot, (uint8_t)(1 + how % 5)};
    const uint8_t *rest = z->in;
    size_t left = z->left;
    uint64_t id = 1000 + how;
    begin[1] = (uint8_t)(blocks * 64 < 240 ? blocks * 64 : 239);
    begin[2] = (uint8_t)(begin[1] / 64);
    z->in = begin;
    z->left = sizeof begin;
    vt_enc_begin(&z->enc, VT_F_CK_BEGIN, id, link);
    begin_frame(z, link);
    send_frame(z);
    steps(z, 8);
    for (uint8_t i = 0; i < begin[2]; i++) {
        uint8_t chunk[] = {talk, i, CKPT_KV, (uint8_t)(i % 4), 0, 0};
        z->in = chunk;
        z->left = sizeof chunk;
        vt_enc_begin(&z->enc, VT_F_CK_CHUNK, id, link);
        chunk_frame(z, link);
        send_frame(z);
        steps(z, 6);
    }
    vt_enc_begin(&z->enc, VT_F_CK_COMMIT, id, link);
    vt_enc_u64(&z->enc, VT_CK_COMMIT_PIECES, begin[2]);
    vt_enc_u64(&z->enc, VT_CK_COMMIT_BYTES, 0);
    send_frame(z);
    steps(z, 6);
    z->in = rest;
    z->left = left;
}

static void one_step(struct fuzz *z)
{
    struct vt_err err;
    uint8_t b = take(z);
    for (uint32_t i = 0; i < LINKS; i++) {
        if (z->failed[i] && z->up[i])
            link_down(z, i);
        if (!z->up[i])
            link_up(z, i);
    }
    if (b < 140) {
        one_frame(z);
    } else if (b < 200) {
        steps(z, b % 8 * 4 + 1);
    } else if (b < 225) {
        whole_save(z, b & 1);
    } else if (b < 235) {
        z->f.time.mono += VT_MS(700);
        z->f.time.wall += VT_SEC(3000);
    } else if (b < 245) {
        serve_upkeep(z->v, &err);
    } else {
        link_down(z, b & 1);
    }
}

/* The parts that every sequence starts from, made once: an empty database whose tenant has its salt, and the rings. */
struct ground {
    struct simdisk *disk;
    uint8_t salt[32];
    uint8_t *ring[LINKS];
};

static void make_ground(struct ground *g)
{
    struct fix f;
    struct vt_err err;
    fix_init(&f, true);
    if (fix_open(&f, &err) < 0 || store_salt(f.s, "t", g->salt, &err) < 0)
        abort();
    fix_close(&f, true);
    g->disk = f.sim; /* kept for the process's life */
    for (uint32_t i = 0; i < LINKS; i++) {
        char path[64];
        struct vt_ring r;
        snprintf(path, sizeof path, "/tmp/fuzz-ring-%d-%u", (int)getpid(), i);
        if (vt_ring_create(path, i, 8, CKPT_PIECE, &err) < 0 || vt_ring_map(&r, path, i, &err) < 0)
            abort();
        unlink(path);
        g->ring[i] = r.base;
    }
}

static void open_all(struct fuzz *z)
{
    static struct ground g;
    static const struct serve_ops ops = {on_send, on_fail};
    struct vt_err err;
    if (g.disk == NULL)
        make_ground(&g);
    fix_init(&z->f, true);
    sim_free(z->f.sim);
    z->f.sim = sim_clone(g.disk, "fuzz");
    z->f.o.base = sim_vfs(z->f.sim);
    z->f.o.txn_bytes = 20000;
    struct serve_opts o = {.store = z->f.o, .ck_idle_us = VT_MS(2000)};
    if (serve_new(&z->v, &o, &ops, z, &err) < 0)
        abort();
    for (uint32_t i = 0; i < LINKS; i++)
        if (vt_ring_wrap(&z->ring[i], g.ring[i], vt_ring_bytes(8, CKPT_PIECE), i, &err) < 0)
            abort();
    /* Two conversations, one hybrid. */
    for (uint32_t c = 0; c < 2; c++) {
        uint8_t h[32];
        z->talk[c] = talk_of(c + 1, 64 * 4);
        z->talk[c].kv_bytes = 5000 + c;
        z->talk[c].rec_bytes = c == 1 ? 3001 : 0;
        z->talk[c].fp[0] = (uint8_t)c;
        ckpt_h0(z->talk[c].fp, g.salt, h);
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t items[64];
            for (uint32_t k = 0; k < 64; k++)
                items[k] = talk_item(&z->talk[c], i * 64 + k);
            ckpt_next(h, items, 64, h);
            memcpy(z->names[c] + 32 * i, h, 32);
        }
    }
}

/* What restores is right, whatever was sent. */
static void final_check(struct fuzz *z)
{
    struct vt_err err;
    for (uint32_t i = 0; i < LINKS; i++)
        if (z->up[i])
            link_down(z, i);
    serve_flush(z->v);
    z->f.s = serve_store(z->v);
    if (fix_check(&z->f, true) != 0)
        abort();
    for (uint32_t c = 0; c < 2; c++)
        for (uint32_t slot = 0; slot < 3; slot++) {
            struct talk t = z->talk[c];
            uint32_t kv;
            bool poisoned;
            t.slot = slot;
            if (fix_restore(&z->f, &t, &kv, &poisoned, &err) >= 0 && poisoned)
                abort();
        }
    z->f.s = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz z = {.in = data, .left = size};
    vt_enc_init(&z.enc);
    open_all(&z);
    while (z.left > 0)
        one_step(&z);
    final_check(&z);
    serve_free(z.v, true);
    fix_fini(&z.f);
    vt_enc_fini(&z.enc);
    return 0;
}
