/* The store's promises without faults: what is saved comes back, what may not be replaced is not, what is idle is quiet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture_assert.h"

static void round_trip(void **state)
{
    struct fix f;
    uint32_t kv, sent;
    struct save_result r;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(1, 1000);
    saved(&f, &t, &r, &sent);
    assert_int_equal(sent, 15);
    assert_int_equal(r.head_gen, 1);
    assert_int_equal(restored(&f, &t, &kv), 1000);
    assert_int_equal(kv, 960);
    /* Growth writes the new blocks alone. */
    t.n_items = 1300;
    t.base_gen = r.head_gen;
    saved(&f, &t, &r, &sent);
    assert_int_equal(sent, 5);
    assert_int_equal(r.head_gen, 2);
    fix_close(&f, true);
    opened(&f);
    assert_int_equal(restored(&f, &t, &kv), 1300);
    assert_int_equal(kv, 1280);
    assert_int_equal(f.events[STORE_EV_UNCLEAN], 0);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

/* Sizes as engines have them: a quarter MiB to 9 MiB, odd ends, with and without snapshots, on real files. */
static void sizes(void **state)
{
    static const struct {
        uint64_t kv, rec;
    } shape[] = {{256 << 10, 0},     {(1 << 20) - 1, 0},
                 {1 << 20, 300000},  {(1 << 20) + 1, (2 << 20) + 5},
                 {9 << 20, 1 << 20}, {1, 1}};
    struct fix f;
    uint32_t kv;
    fix_init(&f, false);
    opened(&f);
    for (uint32_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        struct talk t = talk_of(10 + i, 64 * 3 + i);
        t.slot = i;
        t.kv_bytes = shape[i].kv;
        t.rec_bytes = shape[i].rec;
        t.rec_every = 2;
        t.fp[0] = (uint8_t)i;
        saved(&f, &t, NULL, NULL);
        assert_int_equal(restored(&f, &t, &kv), t.n_items);
        assert_int_equal(kv, 192);
    }
    fix_close(&f, true);
    opened(&f);
    for (uint32_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        struct talk t = talk_of(10 + i, 64 * 3 + i);
        t.slot = i;
        t.fp[0] = (uint8_t)i;
        assert_int_equal(restored(&f, &t, &kv), t.n_items);
    }
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

static void hybrid_snapshots(void **state)
{
    struct fix f;
    struct store_plan p;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(3, 64 * 10 + 5);
    t.rec_bytes = 100000;
    t.rec_every = 3;
    saved(&f, &t, NULL, NULL);
    assert_int_equal(store_find_head(f.s, t.fp, "t", 0, &p, NULL), 0);
    assert_true(p.has_rec);
    assert_int_equal(p.rec_pos, 64 * 9);
    store_plan_free(&p);
    /* A prompt that shares seven blocks starts from the snapshot at six. */
    uint8_t names[32 * 10];
    talk_names(&f, &t, names);
    assert_int_equal(store_find_prefix(f.s, t.fp, names, 7, &p, NULL), 0);
    assert_int_equal(p.have, 7);
    assert_int_equal(p.rec_pos, 64 * 6);
    store_plan_free(&p);
    fix_fini(&f);
}

static void prefix_lookup(void **state)
{
    struct fix f;
    struct store_plan p;
    struct vt_err err;
    uint8_t names[32 * 12];
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(4, 64 * 8);
    saved(&f, &t, NULL, NULL);
    t.n_items = 64 * 12;
    talk_names(&f, &t, names);
    assert_int_equal(store_find_prefix(f.s, t.fp, names, 12, &p, &err), 0);
    assert_int_equal(p.have, 8);
    assert_false(p.has_rec);
    store_plan_free(&p);
    names[32 * 3] ^= 1;
    assert_int_equal(store_find_prefix(f.s, t.fp, names, 12, &p, &err), 0);
    assert_int_equal(p.have, 3);
    store_plan_free(&p);
    names[0] ^= 1;
    assert_int_equal(store_find_prefix(f.s, t.fp, names, 12, &p, &err), -1);
    assert_int_equal(err.code, VT_E_NOT_FOUND);
    /* The same prompt of another tenant has other names. */
    uint8_t other[32 * 12];
    struct talk u = t;
    u.tenant = "u";
    talk_names(&f, &u, other);
    assert_int_equal(store_find_prefix(f.s, t.fp, other, 12, &p, &err), -1);
    fix_fini(&f);
}

static void clobber(void **state)
{
    struct fix f;
    struct save_result r;
    uint32_t kv;
    fix_init(&f, true);
    opened(&f);
    struct talk rich = talk_of(5, 640), poor = talk_of(6, 100), none = talk_of(7, 0);
    saved(&f, &rich, &r, NULL);
    assert_int_equal(refused(&f, &none), VT_E_CLOBBER);
    assert_int_equal(refused(&f, &poor), VT_E_CLOBBER); /* autosave of another, smaller conversation */
    none.reason = CKPT_EXPLICIT;
    assert_int_equal(refused(&f, &none), VT_E_CLOBBER); /* empty: never */
    poor.base_gen = 99;
    poor.reason = CKPT_RESET;
    assert_int_equal(refused(&f, &poor), VT_E_CLOBBER); /* stale */
    assert_int_equal(restored(&f, &rich, &kv), 640);
    poor.base_gen = r.head_gen;
    saved(&f, &poor, &r, NULL); /* the client's own reset */
    assert_int_equal(restored(&f, &poor, &kv), 100);
    assert_int_equal(db_int(f.s, "SELECT m.ntok FROM head h JOIN manifest m ON m.id=h.rich", NULL), 640);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

static void differences(void **state)
{
    struct fix f;
    struct store_plan p;
    struct vt_err err;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(8, 640);
    saved(&f, &t, NULL, NULL);
    for (int bit = 0; bit < 256; bit++) {
        t.fp[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(store_find_head(f.s, t.fp, "t", 0, &p, &err), -1);
        assert_int_equal(err.code, VT_E_LAYOUT);
        t.fp[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(store_find_head(f.s, t.fp, "t", 1, &p, &err), -1);
    assert_int_equal(err.code, VT_E_NOT_FOUND);
    assert_int_equal(store_find_head(f.s, t.fp, "u", 0, &p, &err), -1);
    assert_int_equal(err.code, VT_E_NOT_FOUND);
    fix_fini(&f);
}

static void slot_files(void **state)
{
    struct fix f;
    struct store_plan p;
    struct vt_err err;
    struct save_result r, r2;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(9, 640);
    saved(&f, &t, &r, NULL);
    t.name = "holiday.bin";
    t.reason = CKPT_EXPLICIT;
    saved(&f, &t, &r2, NULL);
    assert_int_equal(r.manifest, r2.manifest); /* the head's content, one manifest */
    t.name = "../../etc/passwd";               /* a key like any other */
    saved(&f, &t, &r2, NULL);
    assert_int_equal(r.manifest, r2.manifest);
    assert_int_equal(r.head_gen, r2.head_gen);
    assert_int_equal(store_find_named(f.s, t.fp, "t", "holiday.bin", &p, &err), 0);
    assert_int_equal(p.n_items, 640);
    assert_int_equal(p.have, 10);
    store_plan_free(&p);
    assert_int_equal(store_find_named(f.s, t.fp, "t", "../../etc/passwd", &p, &err), 0);
    store_plan_free(&p);
    assert_int_equal(store_find_named(f.s, t.fp, "u", "holiday.bin", &p, &err), -1);
    assert_int_equal(err.code, VT_E_NOT_FOUND);
    /* Another conversation in the slot leaves the file as it is; a file of another conversation leaves the head alone. */
    struct talk u = talk_of(10, 64);
    u.reason = CKPT_RESET;
    saved(&f, &u, NULL, NULL);
    struct talk w = talk_of(11, 320);
    w.name = "other";
    saved(&f, &w, NULL, NULL);
    w.n_items = 400; /* written over: the old manifest goes */
    saved(&f, &w, NULL, NULL);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM manifest", NULL), 3);
    assert_int_equal(store_find_head(f.s, u.fp, "t", 0, &p, &err), 0);
    assert_int_equal(p.n_items, 64);
    store_plan_free(&p);
    assert_int_equal(store_find_named(f.s, t.fp, "t", "holiday.bin", &p, &err), 0);
    assert_int_equal(p.n_items, 640);
    store_plan_free(&p);
    fix_fini(&f);
}

static void private_salt_is_kept(void **state)
{
    struct fix f;
    uint32_t kv;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(11, 640);
    t.private_salt = true;
    saved(&f, &t, NULL, NULL);
    assert_int_equal(restored(&f, &t, &kv), 640);
    assert_int_equal(kv, 640);
    fix_fini(&f);
}

static void same_again_writes_nothing(void **state)
{
    struct fix f;
    struct save_result a, b;
    uint32_t sent;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(12, 700);
    saved(&f, &t, &a, NULL);
    saved(&f, &t, &b, &sent);
    assert_int_equal(b.written, 0);
    assert_int_equal(sent, 0);
    assert_int_equal(a.manifest, b.manifest);
    assert_int_equal(a.head_gen, b.head_gen);
    fix_fini(&f);
}

/* An hour and a day of nothing: not one byte. */
static void idle_is_silent(void **state)
{
    struct fix f;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(13, 640);
    saved(&f, &t, NULL, NULL);
    for (int i = 0; i < 10; i++)
        store_idle(f.s, NULL);
    uint64_t before = atomic_load(&store_io(f.s)->bytes_written), changes = sim_changes(f.sim);
    for (int minute = 0; minute < 24 * 60; minute++) {
        f.time.mono += VT_SEC(60);
        f.time.wall += VT_SEC(60);
        assert_true(store_idle(f.s, NULL) >= 0);
        while (store_scrub(f.s, NULL) == 1)
            ;
    }
    assert_int_equal(atomic_load(&store_io(f.s)->bytes_written), before);
    assert_int_equal(sim_changes(f.sim), changes);
    /* Neither does opening and closing. */
    fix_close(&f, true);
    changes = sim_changes(f.sim);
    opened(&f);
    fix_close(&f, true);
    assert_int_equal(sim_changes(f.sim), changes);
    fix_fini(&f);
}

static void write_budget(void **state)
{
    struct fix f;
    fix_init(&f, true);
    f.o.hour_bytes = 4 << 20;
    opened(&f);
    struct talk t = talk_of(14, 64 * 70);
    saved(&f, &t, NULL, NULL);
    t.n_items += 64;
    assert_int_equal(refused(&f, &t), VT_E_BUSY);
    t.reason = CKPT_DRAIN;
    saved(&f, &t, NULL, NULL); /* a drain is not slowed */
    t.reason = CKPT_AUTOSAVE;
    t.n_items += 64;
    f.time.mono += VT_SEC(3700);
    saved(&f, &t, NULL, NULL);
    fix_fini(&f);
}

/* A save of `blocks` new blocks of 64 KiB onto the conversation; 0 or its refusal. */
static int grown(struct fix *f, struct talk *t, uint32_t blocks)
{
    struct talk more = *t;
    struct vt_err err;
    more.n_items += 64 * blocks;
    if (fix_save(f, &more, NULL, NULL, &err) < 0)
        return err.code;
    *t = more;
    return 0;
}

static void later(struct fix *f, uint64_t s)
{
    f->time.mono += VT_SEC(s);
    f->time.wall += VT_SEC(s);
}

static uint64_t written_today(struct fix *f)
{
    struct store_facts now;
    store_facts(f->s, &now);
    return now.day_bytes;
}

/* From half of a day's budget on a checkpoint has to be five minutes old to be replaced; the last tenth is for what is
 * ordered. The last checkpoint stays whole throughout, and drains are never held up. */
static void day_budget(void **state)
{
    struct fix f;
    uint32_t kv;
    fix_init(&f, true);
    f.o.day_bytes = 20 << 20;
    opened(&f);
    struct talk t = talk_of(31, 0);
    while (written_today(&f) < (10 << 20))
        assert_int_equal(grown(&f, &t, 8), 0);
    assert_int_equal(grown(&f, &t, 8), VT_E_BUSY);
    later(&f, 299);
    assert_int_equal(grown(&f, &t, 8), VT_E_BUSY);
    later(&f, 1);
    assert_int_equal(grown(&f, &t, 8), 0);
    struct talk fresh = talk_of(32, 0); /* a slot without a checkpoint is worth one */
    fresh.slot = 1;
    assert_int_equal(grown(&f, &fresh, 8), 0);
    assert_int_equal(f.events[STORE_EV_BUDGET], 0);
    while (written_today(&f) < (18 << 20)) {
        later(&f, 300);
        assert_int_equal(grown(&f, &t, 8), 0);
    }
    later(&f, 3600);
    for (int i = 0; i < 3; i++)
        assert_int_equal(grown(&f, &t, 8), VT_E_BUSY);
    assert_int_equal(f.events[STORE_EV_BUDGET], 1); /* once, not per try */
    struct talk other = talk_of(33, 64 * 4);        /* clients that begin anew do not go round it */
    other.reason = CKPT_RESET;
    assert_int_equal(refused(&f, &other), VT_E_BUSY);
    assert_int_equal(restored(&f, &t, &kv), t.n_items);
    t.reason = CKPT_DRAIN;
    while (written_today(&f) < (21 << 20)) /* even beyond the whole */
        assert_int_equal(grown(&f, &t, 8), 0);
    assert_int_equal(restored(&f, &t, &kv), t.n_items);
    struct store_facts now;
    store_facts(f.s, &now);
    assert_int_equal(now.put_off, 6);
    later(&f, 25 * 3600);
    assert_true(written_today(&f) < (1 << 20));
    t.reason = CKPT_AUTOSAVE;
    assert_int_equal(grown(&f, &t, 8), 0);
    fix_fini(&f);
}

/* The device wears out whichever process writes: a day's sum is in the database. A clock that was set wrong costs no day. */
static void day_survives_the_process(void **state)
{
    struct fix f;
    fix_init(&f, true);
    f.o.day_bytes = 8 << 20;
    opened(&f);
    struct talk t = talk_of(34, 0);
    t.reason = CKPT_EXPLICIT;
    while (written_today(&f) < (8 << 20))
        assert_int_equal(grown(&f, &t, 8), 0);
    uint64_t before = written_today(&f);
    for (int clean = 1; clean >= 0; clean--) {
        fix_close(&f, clean);
        opened(&f);
        assert_in_range(written_today(&f), before - (1 << 20), before + (1 << 20));
        t.reason = CKPT_AUTOSAVE;
        assert_int_equal(grown(&f, &t, 8), VT_E_BUSY);
    }
    later(&f, 12 * 3600);
    fix_close(&f, true);
    opened(&f);
    assert_int_equal(grown(&f, &t, 8), VT_E_BUSY);
    later(&f, 13 * 3600);
    assert_int_equal(grown(&f, &t, 8), 0);
    f.time.wall -= VT_SEC(40 * 3600);
    assert_true(written_today(&f) < (1 << 20)); /* all of it is of the future now */
    t.n_items += 64 * 8;
    saved(&f, &t, NULL, NULL);
    fix_fini(&f);
}

/* The marks of the day are rows like others, and a flipped bit in them must not stop saves for ever. */
static void nonsense_in_the_day(void **state)
{
    static const int64_t values[] = {INT64_MAX, -1, 0, 1, INT64_MIN + 1};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct fix f;
        char sql[120];
        fix_init(&f, true);
        opened(&f);
        struct talk t = talk_of(35, 0);
        assert_int_equal(grown(&f, &t, 8), 0);
        for (int k = 0; k < 24; k++) {
            snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO mark(name,value) VALUES('written.%02d',%lld)",
                     k, (long long)values[i]);
            assert_int_equal(db_exec(f.s, sql, "nonsense", NULL), 0);
        }
        fix_close(&f, true);
        opened(&f);
        assert_int_equal(grown(&f, &t, 8), 0);
        fix_fini(&f);
    }
}

static void big_exports_are_split(void **state)
{
    struct fix f;
    uint32_t sent, kv;
    struct vt_err err;
    struct save *sv;
    fix_init(&f, true);
    f.o.txn_bytes = 256 << 10; /* four blocks */
    opened(&f);
    struct talk t = talk_of(15, 64 * 20);
    assert_int_equal(fix_begin(&f, &t, &sv, &err), 0);
    for (uint32_t i = 0; i < 11; i++)
        assert_int_equal(fix_send(sv, &t, &f, CKPT_KV, i, &err), 0);
    save_end(sv); /* the engine vanished: eight blocks were committed ahead, three are rolled back */
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block", NULL), 8);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM manifest", NULL), 0);
    saved(&f, &t, NULL, &sent);
    assert_int_equal(sent, 12);
    assert_int_equal(restored(&f, &t, &kv), 64 * 20);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

/* Half an export is invisible, and goes after an hour. */
static void unnamed_blocks_are_collected(void **state)
{
    struct fix f;
    struct save *sv;
    struct vt_err err;
    fix_init(&f, true);
    f.o.txn_bytes = 64 << 10;
    opened(&f);
    struct talk t = talk_of(16, 64 * 20), other = talk_of(17, 640);
    other.slot = 1;
    saved(&f, &other, NULL, NULL);
    assert_int_equal(fix_begin(&f, &t, &sv, &err), 0);
    for (uint32_t i = 0; i < 9; i++)
        assert_int_equal(fix_send(sv, &t, &f, CKPT_KV, i, &err), 0);
    save_end(sv);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block", NULL), 18);
    f.time.mono += VT_SEC(61);
    f.time.wall += VT_SEC(61);
    while (store_idle(f.s, &err) == 1)
        ;
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block", NULL), 18);
    f.time.mono += VT_SEC(3700);
    f.time.wall += VT_SEC(3700);
    while (store_idle(f.s, &err) == 1)
        ;
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block", NULL), 10);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

static void reads_go_between_steps(void **state)
{
    struct fix f;
    struct save *sv;
    struct vt_err err;
    struct store_plan p;
    uint32_t kv;
    uint8_t names[32 * 20];
    fix_init(&f, true);
    opened(&f);
    struct talk old = talk_of(18, 640), t = talk_of(19, 64 * 20);
    saved(&f, &old, NULL, NULL);
    t.slot = 1;
    talk_names(&f, &t, names);
    assert_int_equal(fix_begin(&f, &t, &sv, &err), 0);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(fix_send(sv, &t, &f, CKPT_KV, i, &err), 0);
        assert_true(store_in_txn(f.s));
        /* The open transaction's blocks are absent, the committed ones are whole. */
        assert_int_equal(store_find_prefix(f.s, t.fp, names, 20, &p, &err), -1);
        assert_int_equal(restored(&f, &old, &kv), 640);
        assert_int_equal(kv, 640);
    }
    struct save_result r;
    assert_int_equal(save_commit(sv, &r, &err), 0);
    save_end(sv);
    assert_int_equal(restored(&f, &t, &kv), 64 * 20);
    fix_fini(&f);
}

/* ---- launches and salts ---- */

static void launches(void **state)
{
    struct fix f;
    struct store_launch_last last;
    struct store_launch l = {.child = "engine0",
                             .fp = "fp1",
                             .line = "VITRIOL-FINGERPRINT: x",
                             .diff_prev = "",
                             .diff_bless = "",
                             .boot_id = "b",
                             .effective = "\x81\xa1"
                                          "a\xa1"
                                          "b",
                             .effective_len = 5,
                             .started_us = 5};
    uint64_t id;
    fix_init(&f, true);
    opened(&f);
    assert_int_equal(store_launch_last(f.s, "engine0", &last, NULL), 0);
    assert_false(last.found);
    assert_int_equal(store_launch_put(f.s, &l, &id, NULL), 0);
    assert_int_equal(store_launch_end(f.s, id, "signal", "SIGSEGV", 9, NULL), 0);
    fix_close(&f, true);
    opened(&f);
    assert_int_equal(store_launch_last(f.s, "engine0", &last, NULL), 0);
    assert_true(last.found);
    assert_int_equal(last.id, id);
    assert_string_equal(last.fp, "fp1");
    assert_int_equal(last.effective_len, 5);
    store_launch_last_free(&last);
    assert_int_equal(store_launch_last(f.s, "engine1", &last, NULL), 0);
    assert_false(last.found);
    fix_fini(&f);
}

static void salts(void **state)
{
    struct fix f;
    uint8_t a[32], b[32];
    struct vt_err err;
    fix_init(&f, true);
    opened(&f);
    assert_int_equal(store_salt_get(f.s, "a", a, &err), -1);
    assert_int_equal(err.code, VT_E_NOT_FOUND);
    assert_int_equal(store_salt(f.s, "a", a, NULL), 0);
    assert_int_equal(store_salt(f.s, "b", b, NULL), 0);
    assert_memory_not_equal(a, b, 32);
    fix_close(&f, true);
    opened(&f);
    assert_int_equal(store_salt_get(f.s, "a", b, NULL), 0);
    assert_memory_equal(a, b, 32);
    fix_fini(&f);
}

static void engine_lies_are_refused(void **state)
{
    struct fix f;
    struct save *sv;
    struct vt_err err;
    uint8_t data[65536], sum[16];
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(70, 640);
    memset(data, 1, sizeof data);
    vt_xxh128(data, sizeof data, sum);
    assert_int_equal(fix_begin(&f, &t, &sv, &err), 0);
    assert_int_equal(save_piece(sv, CKPT_KV, 10, 0, data, 65536, sum, &err), -1); /* no such block */
    assert_int_equal(save_piece(sv, CKPT_REC, 0, 0, data, 65536, sum, &err), -1);
    assert_int_equal(save_piece(sv, CKPT_KV, 0, 1, data, 65536, sum, &err), -1); /* not the first piece */
    save_end(sv);
    assert_int_equal(fix_begin(&f, &t, &sv, &err), 0);
    assert_int_equal(save_piece(sv, CKPT_KV, 0, 0, data, 65535, sum, &err), -1);
    save_end(sv);
    assert_int_equal(fix_begin(&f, &t, &sv, &err), 0);
    sum[0] ^= 1;
    assert_int_equal(save_piece(sv, CKPT_KV, 0, 0, data, 65536, sum, &err), -1);
    assert_int_equal(err.code, VT_E_CORRUPT);
    save_end(sv);
    struct save_result r;
    assert_int_equal(fix_begin(&f, &t, &sv, &err), 0);
    assert_int_equal(save_commit(sv, &r, &err), -1); /* blocks are missing */
    save_end(sv);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block", NULL), 0);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM head", NULL), 0);
    fix_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(sizes),
        cmocka_unit_test(hybrid_snapshots),
        cmocka_unit_test(prefix_lookup),
        cmocka_unit_test(clobber),
        cmocka_unit_test(differences),
        cmocka_unit_test(slot_files),
        cmocka_unit_test(private_salt_is_kept),
        cmocka_unit_test(same_again_writes_nothing),
        cmocka_unit_test(idle_is_silent),
        cmocka_unit_test(write_budget),
        cmocka_unit_test(day_budget),
        cmocka_unit_test(day_survives_the_process),
        cmocka_unit_test(nonsense_in_the_day),
        cmocka_unit_test(big_exports_are_split),
        cmocka_unit_test(unnamed_blocks_are_collected),
        cmocka_unit_test(reads_go_between_steps),
        cmocka_unit_test(launches),
        cmocka_unit_test(salts),
        cmocka_unit_test(engine_lies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
