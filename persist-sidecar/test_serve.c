/* The conversation, frame by frame, without sockets: saves, restores, refusals, lies, and who waits for whom. */
#include "puppet.h"
#include "serve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ENGINES 2

struct stage {
    struct fix f; /* clock, options and disk; its store is not opened */
    struct serve *v;
    struct puppet e[ENGINES];
    char dir[128];
    unsigned failed[ENGINES];
    uint8_t *last; /* last frame for the lifeline */
    size_t last_len;
};

static void on_send(void *arg, uint32_t link, const uint8_t *frame, size_t len)
{
    struct stage *s = arg;
    if (link >= 1 && link <= ENGINES) {
        puppet_came(&s->e[link - 1], frame, len);
        return;
    }
    free(s->last);
    s->last = malloc(len);
    memcpy(s->last, frame, len);
    s->last_len = len;
}

static void on_fail(void *arg, uint32_t link, const struct vt_err *why)
{
    struct stage *s = arg;
    s->failed[link - 1]++;
}

static const struct serve_ops ops = {on_send, on_fail};

static void engine_send(void *arg, const uint8_t *frame, size_t len)
{
    struct stage *s = arg;
    serve_frame(s->v, frame, len);
}

static int engine_pump(void *arg, struct puppet *p)
{
    struct stage *s = arg;
    struct vt_err err;
    while (p->taken == p->n) {
        enum serve_did did = serve_step(s->v, &err);
        assert_int_not_equal(did, SERVE_BROKEN);
        if (did == SERVE_NOTHING)
            return 0;
    }
    return 1;
}

static void stage_open(struct stage *s)
{
    struct vt_err err;
    struct serve_opts o = {.store = s->f.o, .ck_idle_us = VT_MS(2000)};
    if (serve_new(&s->v, &o, &ops, s, &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < ENGINES; i++)
        serve_link_up(s->v, i + 1, s->e[i].ring.base, s->e[i].ring.bytes);
}

static void stage_init(struct stage *s)
{
    memset(s, 0, sizeof *s);
    fix_init(&s->f, true);
    snprintf(s->dir, sizeof s->dir, "/tmp/vitriol-serve-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    for (uint32_t i = 0; i < ENGINES; i++) {
        puppet_init(&s->e[i], i + 1, s->dir);
        s->e[i].send = engine_send;
        s->e[i].pump = engine_pump;
        s->e[i].arg = s;
    }
    stage_open(s);
}

static void stage_fini(struct stage *s)
{
    serve_free(s->v, true);
    for (int i = 0; i < ENGINES; i++)
        puppet_fini(&s->e[i]);
    rmdir(s->dir);
    fix_fini(&s->f);
    free(s->last);
}

static void save_and_restore(void **state)
{
    struct stage s;
    struct puppet_saved a, b;
    struct puppet_restored r;
    stage_init(&s);
    struct talk t = talk_of(1, 1000);
    assert_int_equal(puppet_save(&s.e[0], &t, &a), 0);
    assert_int_equal(a.sent, 15);
    assert_int_equal(puppet_save(&s.e[0], &t, &b), 0);
    assert_int_equal(b.sent, 0);
    assert_int_equal(b.manifest, a.manifest);
    serve_free(s.v, true);
    stage_open(&s);
    assert_int_equal(puppet_restore(&s.e[0], &t, &r), 0);
    assert_true(r.ended_ok);
    assert_false(r.poisoned);
    assert_int_equal(r.ntok, 1000);
    assert_int_equal(r.blocks, 15);
    t.slot = 3;
    assert_int_equal(puppet_restore(&s.e[0], &t, &r), VT_E_NOT_FOUND);
    stage_fini(&s);
}

static void hybrid_with_big_blocks(void **state)
{
    struct stage s;
    struct puppet_restored r;
    stage_init(&s);
    struct talk t = talk_of(2, 64 * 5 + 3); /* the snapshot at four ends what is of use */
    t.kv_bytes = (5 << 20) + 17;
    t.rec_bytes = (9 << 20) + 1;
    t.rec_every = 2;
    assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0);
    assert_int_equal(puppet_restore(&s.e[1], &t, &r), 0);
    assert_true(r.ended_ok);
    assert_false(r.poisoned);
    assert_true(r.has_rec);
    assert_int_equal(r.blocks, 4);
    stage_fini(&s);
}

static void heads_are_listed(void **state)
{
    struct stage s;
    struct vt_frame f;
    stage_init(&s);
    for (uint32_t i = 0; i < 3; i++) {
        struct talk t = talk_of(i, 640);
        t.slot = i;
        s.f.time.wall += VT_SEC(1);
        assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0);
    }
    struct talk t = talk_of(0, 640);
    vt_enc_begin(&s.e[0].enc, VT_F_CK_FIND, 77, 1);
    vt_enc_bin(&s.e[0].enc, VT_CK_FIND_LAYOUT_FP, t.fp, 32);
    puppet_send(&s.e[0]);
    assert_true(puppet_next(&s.e[0], &f));
    assert_int_equal(f.type, VT_F_CK_HEADS);
    assert_int_equal(f.id, 77);
    const msgpack_object_array *list = vt_frame_array(&f, VT_CK_HEADS_LIST);
    assert_int_equal(list->size, 3);
    assert_int_equal(vt_array_u64(vt_array_array(list, 0), 0, 9), 2); /* newest first */
    assert_int_equal(vt_array_u64(vt_array_array(list, 0), 4, 9), 1);
    assert_int_equal(vt_array_u64(vt_array_array(list, 0), 5, 9), 1);
    vt_frame_close(&f);
    stage_fini(&s);
}

static void prefix_by_names(void **state)
{
    struct stage s;
    struct vt_frame f;
    uint8_t salt[32], h[32], names[32 * 10];
    stage_init(&s);
    struct talk t = talk_of(3, 640);
    assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0);
    assert_int_equal(puppet_salt(&s.e[1], "t", salt), 0);
    uint32_t items[640];
    for (uint32_t i = 0; i < 640; i++)
        items[i] = talk_item(&t, i);
    ckpt_h0(t.fp, salt, h);
    for (uint32_t i = 0; i < 10; i++) {
        ckpt_next(h, items + 64 * i, 64, h);
        memcpy(names + 32 * i, h, 32);
    }
    memset(names + 32 * 6, 0, 32);
    vt_enc_begin(&s.e[1].enc, VT_F_CK_FIND, 5, 2);
    vt_enc_bin(&s.e[1].enc, VT_CK_FIND_LAYOUT_FP, t.fp, 32);
    vt_enc_bin(&s.e[1].enc, VT_CK_FIND_NAMES, names, sizeof names);
    puppet_send(&s.e[1]);
    assert_true(puppet_next(&s.e[1], &f));
    assert_int_equal(f.type, VT_F_CK_PLAN);
    assert_int_equal(vt_frame_u64(&f, VT_CK_PLAN_MANIFEST, 9), 0);
    assert_int_equal(vt_frame_u64(&f, VT_CK_PLAN_HAVE, 0), 6);
    vt_frame_close(&f);
    /* Blocks 2 to 4 are wanted: two are held already. */
    vt_enc_begin(&s.e[1].enc, VT_F_CK_LOAD, 5, 2);
    vt_enc_u64(&s.e[1].enc, VT_CK_LOAD_CREDIT, 4);
    vt_enc_bin(&s.e[1].enc, VT_CK_LOAD_NAMES, names, 32 * 5);
    vt_enc_u64(&s.e[1].enc, VT_CK_LOAD_SKIP, 2);
    puppet_send(&s.e[1]);
    for (uint64_t i = 2; i < 5; i++) {
        assert_true(puppet_next(&s.e[1], &f));
        assert_int_equal(f.type, VT_F_CK_DATA);
        assert_int_equal(vt_frame_u64(&f, VT_CK_DATA_INDEX, 99), i);
        vt_frame_close(&f);
    }
    assert_true(puppet_next(&s.e[1], &f));
    assert_int_equal(f.type, VT_F_CK_END);
    assert_int_equal(vt_frame_u64(&f, VT_CK_END_OK, 0), 1);
    assert_int_equal(vt_frame_u64(&f, VT_CK_END_BLOCKS, 0), 5);
    vt_frame_close(&f);
    stage_fini(&s);
}

/* One export at a time: the second engine's begin is answered when the first has committed. */
static void second_save_waits(void **state)
{
    struct stage s;
    uint64_t id;
    uint32_t pieces = 0;
    struct puppet_restored r;
    stage_init(&s);
    struct talk a = talk_of(4, 640), b = talk_of(5, 640);
    b.slot = 1;
    uint8_t salt[32];
    assert_int_equal(puppet_salt(&s.e[1], "t", salt), 0);
    assert_int_equal(puppet_begin(&s.e[0], &a, &id, NULL), 0);
    assert_int_equal(puppet_block(&s.e[0], &a, id, CKPT_KV, 0, &pieces), 0);
    uint64_t id2;
    assert_int_equal(puppet_begin(&s.e[1], &b, &id2, NULL), -1); /* no answer yet */
    /* A read of the other engine is answered at once. */
    assert_int_equal(puppet_restore(&s.e[1], &b, &r), VT_E_NOT_FOUND);
    for (uint32_t i = 1; i < 10; i++)
        assert_int_equal(puppet_block(&s.e[0], &a, id, CKPT_KV, i, &pieces), 0);
    vt_enc_begin(&s.e[0].enc, VT_F_CK_COMMIT, id, 1);
    vt_enc_u64(&s.e[0].enc, VT_CK_COMMIT_PIECES, pieces);
    vt_enc_u64(&s.e[0].enc, VT_CK_COMMIT_BYTES, 0);
    puppet_send(&s.e[0]);
    struct vt_frame f;
    bool need = false;
    while (puppet_next(&s.e[1], &f)) {
        need = need || (f.type == VT_F_CK_NEED && f.id == id2);
        vt_frame_close(&f);
        if (need)
            break;
    }
    assert_true(need);
    stage_fini(&s);
}

static void idle_save_is_rolled_back(void **state)
{
    struct stage s;
    struct vt_frame f;
    struct vt_err err;
    uint64_t id;
    uint32_t pieces = 0;
    stage_init(&s);
    struct talk t = talk_of(6, 640);
    assert_int_equal(puppet_begin(&s.e[0], &t, &id, NULL), 0);
    assert_int_equal(puppet_block(&s.e[0], &t, id, CKPT_KV, 0, &pieces), 0);
    s.f.time.mono += VT_MS(1999);
    while (serve_step(s.v, &err) == SERVE_WORK)
        ;
    assert_true(store_in_txn(serve_store(s.v)));
    assert_true(serve_wait_us(s.v) <= VT_MS(1));
    s.f.time.mono += VT_MS(1);
    assert_true(puppet_next(&s.e[0], &f));
    assert_int_equal(f.type, VT_F_CK_ABORT);
    assert_int_equal(f.id, id);
    assert_int_equal(vt_frame_u64(&f, VT_KEY_CODE, 0), VT_E_DEADLINE);
    vt_frame_close(&f);
    assert_false(store_in_txn(serve_store(s.v)));
    stage_fini(&s);
}

/* Verifying in idle time reads a piece every 50 ms, 20 MiB a second at most, however often it is asked to go on. */
static void scrub_has_a_pace(void **state)
{
    struct stage s;
    struct vt_err err;
    struct store_facts before, after;
    stage_init(&s);
    struct talk t = talk_of(8, 64 * 60);
    assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0);
    s.f.time.wall += VT_SEC(15ull * 86400); /* a pass is due */
    s.f.time.mono += VT_SEC(15ull * 86400);
    for (int i = 0; i < 1000; i++)
        serve_upkeep(s.v, &err);
    store_facts(serve_store(s.v), &before);
    for (int ms = 0; ms < 1000; ms++) {
        s.f.time.mono += VT_MS(1);
        serve_upkeep(s.v, &err);
    }
    store_facts(serve_store(s.v), &after);
    assert_int_equal(after.scrubbed - before.scrubbed, 20); /* blocks of one piece */
    assert_true(serve_wait_us(s.v) <= VT_MS(50));
    stage_fini(&s);
}

static void vanished_engine_is_rolled_back(void **state)
{
    struct stage s;
    uint64_t id;
    uint32_t pieces = 0;
    struct puppet_restored r;
    stage_init(&s);
    struct talk t = talk_of(7, 640);
    assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0);
    t.n_items = 1280;
    assert_int_equal(puppet_begin(&s.e[0], &t, &id, NULL), 0);
    assert_int_equal(puppet_block(&s.e[0], &t, id, CKPT_KV, 10, &pieces), 0);
    serve_link_down(s.v, 1);
    assert_false(store_in_txn(serve_store(s.v)));
    assert_int_equal(puppet_restore(&s.e[1], &t, &r), 0);
    assert_int_equal(r.ntok, 640);
    assert_int_equal(puppet_save(&s.e[1], &t, NULL), 0);
    stage_fini(&s);
}

static void chunk(struct stage *s, uint64_t id, uint64_t slot, uint64_t len, uint64_t index, bool good_sum)
{
    struct puppet *p = &s->e[0];
    uint8_t sum[16];
    vt_xxh128(p->ring.base, 1, sum);
    const uint8_t *at = vt_ring_slot(&p->ring, (uint32_t)(slot % p->ring.n_slots), len % CKPT_PIECE);
    if (good_sum)
        vt_xxh128(at, len, sum);
    vt_enc_begin(&p->enc, VT_F_CK_CHUNK, id, 1);
    vt_enc_u64(&p->enc, VT_CK_CHUNK_INDEX, index);
    vt_enc_u64(&p->enc, VT_CK_CHUNK_KIND, CKPT_KV);
    vt_enc_u64(&p->enc, VT_CK_CHUNK_PIECE, 0);
    vt_enc_u64(&p->enc, VT_CK_CHUNK_RING_SLOT, slot);
    vt_enc_u64(&p->enc, VT_CK_CHUNK_LEN, len);
    vt_enc_bin(&p->enc, VT_CK_CHUNK_XXH128, sum, 16);
    puppet_send(p);
}

/* Descriptors are claims of somebody else: each false one ends the operation with its code, and nothing is stored. */
static void false_descriptors(void **state)
{
    static const struct {
        uint64_t slot, len, index;
        bool sum;
        uint64_t code;
    } lies[] = {{8, 65536, 0, true, VT_E_BAD_FRAME},
                {4, 65536, 0, true, VT_E_BAD_FRAME}, /* an import slot */
                {UINT64_MAX / 2, 65536, 0, true, VT_E_BAD_FRAME},
                {0, CKPT_PIECE + 1, 0, false, VT_E_BAD_FRAME},
                {0, 0, 0, true, VT_E_BAD_FRAME},
                {0, 65535, 0, true, VT_E_BAD_FRAME},
                {0, 65536, 10, true, VT_E_BAD_FRAME},
                {0, 65536, UINT32_MAX, true, VT_E_BAD_FRAME},
                {0, 65536, 0, false, VT_E_CORRUPT}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct stage s;
        struct vt_frame f;
        uint64_t id;
        stage_init(&s);
        struct talk t = talk_of(8, 640);
        assert_int_equal(puppet_begin(&s.e[0], &t, &id, NULL), 0);
        chunk(&s, id, lies[i].slot, lies[i].len, lies[i].index, lies[i].sum);
        uint64_t code = 0;
        while (code == 0 && puppet_next(&s.e[0], &f)) {
            if (f.type == VT_F_CK_CREDIT)
                assert_int_equal(vt_frame_u64(&f, VT_CK_CREDIT_SUM_OK, 9), 0);
            if (f.type == VT_F_CK_ABORT)
                code = vt_frame_u64(&f, VT_KEY_CODE, 0);
            vt_frame_close(&f);
        }
        assert_int_equal(code, lies[i].code);
        assert_int_equal(db_int(serve_store(s.v), "SELECT count(*) FROM block", NULL), 0);
        assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0); /* and the next save is welcome */
        stage_fini(&s);
    }
}

static void wrong_acks_end_the_link(void **state)
{
    struct stage s;
    stage_init(&s);
    vt_enc_begin(&s.e[0].enc, VT_F_CK_DATA_ACK, 1, 1);
    vt_enc_u64(&s.e[0].enc, VT_CK_DATA_ACK_RING_SLOT, 5);
    vt_enc_u64(&s.e[0].enc, VT_CK_DATA_ACK_OK, 1);
    puppet_send(&s.e[0]);
    assert_int_equal(s.failed[0], 1);
    vt_enc_begin(&s.e[1].enc, VT_F_CK_HEADS, 1, 2); /* the store's own frame */
    vt_enc_array(&s.e[1].enc, VT_CK_HEADS_LIST, 0);
    puppet_send(&s.e[1]);
    assert_int_equal(s.failed[1], 1);
    stage_fini(&s);
}

static void lifeline(struct stage *s, struct vt_enc *e)
{
    struct vt_err err;
    assert_int_equal(vt_enc_end(e, NULL), 0);
    serve_frame(s->v, e->buf, e->len);
    while (serve_step(s->v, &err) == SERVE_WORK)
        ;
}

static void launch_frames(void **state)
{
    struct stage s;
    struct vt_enc e;
    struct vt_frame f;
    char text[64];
    stage_init(&s);
    vt_enc_init(&e);
    vt_enc_begin(&e, VT_F_LAUNCH_PUT, 0, 99);
    vt_enc_str(&e, VT_LAUNCH_PUT_CHILD, "engine0");
    vt_enc_u64(&e, VT_LAUNCH_PUT_GEN, 1);
    vt_enc_str(&e, VT_LAUNCH_PUT_FP, "abc");
    vt_enc_str(&e, VT_LAUNCH_PUT_LINE, "VITRIOL-FINGERPRINT: abc");
    vt_enc_map(&e, VT_LAUNCH_PUT_EFFECTIVE, 2);
    vt_enc_put_str(&e, "engine.slots");
    vt_enc_put_str(&e, "8");
    vt_enc_put_str(&e, "model.path");
    vt_enc_put_str(&e, "/m.gguf");
    lifeline(&s, &e);
    assert_int_equal(vt_frame_open(&f, s.last, s.last_len, 1 << 20, NULL), 0);
    assert_int_equal(f.type, VT_F_LAUNCH_PUT_DONE);
    uint64_t id = vt_frame_u64(&f, VT_LAUNCH_PUT_DONE_ID, 0);
    assert_int_not_equal(id, 0);
    vt_frame_close(&f);
    vt_enc_begin(&e, VT_F_LAUNCH_END, 0, 99);
    vt_enc_u64(&e, VT_LAUNCH_END_ID, id);
    vt_enc_str(&e, VT_LAUNCH_END_CLASS, "signal");
    vt_enc_str(&e, VT_LAUNCH_END_DETAIL, "SIGSEGV");
    vt_enc_bin(&e, VT_LAUNCH_END_EVIDENCE, "state: R\n\x01\xff", 11);
    lifeline(&s, &e);
    assert_int_equal(
        db_int(
            serve_store(s.v),
            "SELECT count(*) FROM launch WHERE exit_class='signal' AND exit_detail LIKE 'SIGSEGV%state: R%'",
            NULL),
        1);
    vt_enc_begin(&e, VT_F_LAUNCH_LAST, 3, 99);
    vt_enc_str(&e, VT_LAUNCH_LAST_CHILD, "engine0");
    lifeline(&s, &e);
    assert_int_equal(vt_frame_open(&f, s.last, s.last_len, 1 << 20, NULL), 0);
    assert_int_equal(f.type, VT_F_LAUNCH_LAST_IS);
    assert_int_equal(vt_frame_u64(&f, VT_LAUNCH_LAST_IS_FOUND, 0), 1);
    assert_int_equal(vt_frame_u64(&f, VT_LAUNCH_LAST_IS_ID, 0), id);
    const msgpack_object_map *m = vt_frame_map(&f, VT_LAUNCH_LAST_IS_EFFECTIVE);
    assert_string_equal(vt_obj_str(vt_map_get_str(m, "model.path"), text, sizeof text), "/m.gguf");
    vt_frame_close(&f);
    vt_enc_begin(&e, VT_F_LAUNCH_LAST, 3, 99);
    vt_enc_str(&e, VT_LAUNCH_LAST_CHILD, "engine9");
    lifeline(&s, &e);
    assert_int_equal(vt_frame_open(&f, s.last, s.last_len, 1 << 20, NULL), 0);
    assert_int_equal(vt_frame_u64(&f, VT_LAUNCH_LAST_IS_FOUND, 9), 0);
    vt_frame_close(&f);
    vt_enc_fini(&e);
    stage_fini(&s);
}

/* Damage found in use: the engines are told, a fresh database serves on. */
static void damage_in_use(void **state)
{
    struct stage s;
    struct vt_err err;
    struct puppet_restored r;
    size_t len;
    stage_init(&s);
    struct talk t = talk_of(9, 640);
    assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0);
    serve_free(s.v, true);
    /* Page 1 stays, so that it opens; the trees behind it do not. */
    uint8_t *db = sim_file(s.f.sim, "store.db", &len);
    for (size_t i = 0; i < 40 && (i + 2) * 16384 < len; i++)
        memset(db + (i + 2) * 16384, 0xa5, 16);
    stage_open(&s);
    int rc = puppet_restore(&s.e[0], &t, &r);
    assert_true(rc > 0);
    while (serve_step(s.v, &err) == SERVE_WORK)
        ;
    assert_true(s.f.events[STORE_EV_REBUILT] >= 1);
    assert_int_equal(puppet_save(&s.e[0], &t, NULL), 0);
    assert_int_equal(puppet_restore(&s.e[1], &t, &r), 0);
    assert_int_equal(r.blocks, 10);
    assert_false(r.poisoned);
    stage_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(save_and_restore),  cmocka_unit_test(hybrid_with_big_blocks),
        cmocka_unit_test(heads_are_listed),  cmocka_unit_test(prefix_by_names),
        cmocka_unit_test(second_save_waits), cmocka_unit_test(idle_save_is_rolled_back),
        cmocka_unit_test(scrub_has_a_pace),  cmocka_unit_test(vanished_engine_is_rolled_back),
        cmocka_unit_test(false_descriptors), cmocka_unit_test(wrong_acks_end_the_link),
        cmocka_unit_test(launch_frames),     cmocka_unit_test(damage_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
