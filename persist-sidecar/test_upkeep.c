/* Damage and space: what is bad is cut out, what is unusable is moved aside, what is full stays whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture_assert.h"

/* ---- damage ---- */

static void spoil(struct fix *f, const char *sql)
{
    sqlite3_db_config(f->s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    struct vt_err err;
    if (db_exec(f->s, sql, sql, &err) < 0)
        fail_msg("%s", err.text);
    sqlite3_db_config(f->s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 1, NULL);
}

static void bad_block_shortens(void **state)
{
    struct fix f;
    uint32_t kv, sent;
    bool poisoned;
    struct vt_err err;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(20, 64 * 20);
    saved(&f, &t, NULL, NULL);
    spoil(&f, "UPDATE payload SET data=zeroblob(65536) WHERE block_id=8");
    assert_int_equal(fix_restore(&f, &t, &kv, &poisoned, &err), 64 * 20);
    assert_int_equal(err.code, VT_E_CORRUPT);
    assert_int_equal(kv, 64 * 7);
    assert_false(poisoned);
    /* At once out of every plan, then marked. */
    assert_int_equal(restored(&f, &t, &kv), 64 * 20);
    assert_int_equal(kv, 64 * 7);
    assert_int_equal(store_quarantine(f.s, &err), 1);
    assert_int_equal(store_quarantine(f.s, &err), 0);
    assert_int_equal(f.events[STORE_EV_BAD_BLOCK], 1);
    assert_int_equal(db_int(f.s, "SELECT nkv FROM manifest", NULL), 64 * 7);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block WHERE state=3", NULL), 1);
    assert_int_equal(fix_check(&f, true), 0);
    /* The next save brings the one block again. */
    saved(&f, &t, NULL, &sent);
    assert_int_equal(sent, 1);
    assert_int_equal(restored(&f, &t, &kv), 64 * 20);
    assert_int_equal(kv, 64 * 20);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block WHERE state=3", NULL), 0);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

static void damaged_rows_are_seen(void **state)
{
    static const struct {
        const char *sql;
        int64_t tokens; /* -1: not restored */
        uint32_t kv;
    } cases[] = {
        {"UPDATE manifest SET items=zeroblob(length(items))", -1, 0},
        {"UPDATE manifest SET seal=zeroblob(32)", -1, 0},
        {"UPDATE manifest SET sampler=x'010203'", -1, 0},
        {"UPDATE manifest SET slot=4", -1, 0},
        {"UPDATE manifest SET ntok=ntok+1", -1, 0},
        {"UPDATE manifest SET nkv=64", 640, 64},
        {"UPDATE tenant SET salt=zeroblob(32)", 640, 0},
        {"UPDATE block SET hash=zeroblob(32) WHERE block_id=4", 640, 192},
        {"UPDATE block SET csum=zeroblob(16) WHERE block_id=4", 640, 192},
        {"UPDATE manifest_block SET block_id=2 WHERE idx=5", 640, 320},
        {"DELETE FROM manifest_block WHERE idx=5", 640, 320},
        {"UPDATE layout SET block_tokens=128", 640, 0},
        {"UPDATE layout SET kv_bytes=1", 640, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fix f;
        uint32_t kv;
        bool poisoned;
        struct vt_err err;
        fix_init(&f, true);
        opened(&f);
        struct talk t = talk_of(21, 640);
        saved(&f, &t, NULL, NULL);
        spoil(&f, cases[i].sql);
        int64_t n = fix_restore(&f, &t, &kv, &poisoned, &err);
        if (n != cases[i].tokens || kv != cases[i].kv)
            fail_msg("%s: %lld tokens, %u restored", cases[i].sql, (long long)n, kv);
        fix_fini(&f);
    }
}

static void unusable_is_moved_aside(void **state)
{
    struct fix f;
    uint32_t kv;
    fix_init(&f, false);
    opened(&f);
    struct talk t = talk_of(22, 640);
    saved(&f, &t, NULL, NULL);
    fix_close(&f, true);
    char path[256], bad[256];
    snprintf(path, sizeof path, "%s/store.db", f.dir);
    snprintf(bad, sizeof bad, "%s/store.db.bad", f.dir);
    FILE *file = fopen(path, "r+");
    fputs("this is no database", file);
    fclose(file);
    opened(&f);
    assert_int_equal(f.events[STORE_EV_REBUILT], 1);
    assert_int_equal(access(bad, F_OK), 0);
    saved(&f, &t, NULL, NULL);
    assert_int_equal(restored(&f, &t, &kv), 640);
    fix_close(&f, true);
    opened(&f);
    assert_int_equal(f.events[STORE_EV_REBUILT], 1);
    fix_fini(&f);
}

static void newer_version_is_left_alone(void **state)
{
    struct fix f;
    struct vt_err err;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(23, 640);
    saved(&f, &t, NULL, NULL);
    assert_int_equal(db_exec(f.s, "CREATE TABLE later(x); PRAGMA user_version=2", "", NULL), 0);
    fix_close(&f, false);
    uint64_t changes = sim_changes(f.sim);
    assert_int_equal(fix_open(&f, &err), -1);
    assert_int_equal(err.code, VT_E_VERSION);
    assert_int_equal(vt_err_exit(&err), VT_EX_PROTOCOL);
    assert_int_equal(sim_changes(f.sim), changes);
    assert_int_equal(f.events[STORE_EV_REBUILT], 0);
    fix_fini(&f);
}

static void damaged_trigger_is_noticed(void **state)
{
    struct fix f;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(24, 640);
    saved(&f, &t, NULL, NULL);
    fix_close(&f, true);
    size_t len;
    uint8_t *db = sim_file(f.sim, "store.db", &len);
    uint8_t *at = memmem(db, len, "stale head generation", 21);
    assert_non_null(at);
    at[0] ^= 1;
    opened(&f);
    assert_int_equal(f.events[STORE_EV_REBUILT], 1);
    fix_fini(&f);
}

static void unclean_stop_is_verified(void **state)
{
    struct fix f;
    uint32_t kv;
    struct store_facts facts;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(25, 640);
    saved(&f, &t, NULL, NULL);
    fix_close(&f, false);
    opened(&f);
    assert_int_equal(f.events[STORE_EV_UNCLEAN], 1);
    store_facts(f.s, &facts);
    assert_int_equal(facts.scrub_left, 10);
    spoil(&f, "UPDATE payload SET data=zeroblob(65536) WHERE block_id=10");
    while (store_scrub(f.s, NULL) == 1)
        ;
    assert_int_equal(db_mark_get(f.s, "clean"), 10);
    assert_int_equal(store_quarantine(f.s, NULL), 1); /* the scrub found it before a restore did */
    assert_int_equal(restored(&f, &t, &kv), 640);
    assert_int_equal(kv, 576);
    fix_close(&f, true);
    opened(&f);
    assert_int_equal(f.events[STORE_EV_UNCLEAN], 1);
    store_facts(f.s, &facts);
    assert_int_equal(facts.scrub_left, 0);
    fix_fini(&f);
}

/* ---- space ---- */

static void quota_evicts_in_order(void **state)
{
    struct fix f;
    uint32_t kv;
    fix_init(&f, true);
    f.o.quota = 9 << 20;
    opened(&f);
    /* Four conversations of 1.25 MiB, each in a slot of its own; then resets that leave old ones behind. */
    for (uint32_t i = 0; i < 3; i++) {
        struct talk t = talk_of(30 + i, 64 * 20);
        t.slot = i;
        saved(&f, &t, NULL, NULL);
        f.time.wall += VT_SEC(10);
    }
    for (uint32_t round = 0; round < 6; round++) {
        struct talk t = talk_of(40 + round, 64 * 20);
        t.slot = 0;
        t.reason = CKPT_RESET;
        saved(&f, &t, NULL, NULL);
        f.time.wall += VT_SEC(2 * 86400);
        f.time.mono += VT_SEC(2 * 86400);
        assert_true(space_used(f.s) <= f.o.quota);
    }
    for (uint32_t i = 1; i < 3; i++) {
        struct talk t = talk_of(30 + i, 64 * 20);
        t.slot = i;
        assert_int_equal(restored(&f, &t, &kv), 64 * 20); /* heads are never given up for room */
        assert_int_equal(kv, 64 * 20);
    }
    struct talk t = talk_of(50, 64 * 100);
    t.slot = 5;
    assert_int_equal(refused(&f, &t), VT_E_QUOTA);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

static void min_free_is_kept(void **state)
{
    struct fix f;
    uint32_t kv;
    fix_init(&f, true);
    f.o.min_free = 100 << 20;
    opened(&f);
    struct talk t = talk_of(60, 640);
    saved(&f, &t, NULL, NULL);
    f.avail = 101 << 20;
    struct talk big = talk_of(61, 64 * 40);
    big.slot = 1;
    assert_int_equal(refused(&f, &big), VT_E_DISK_FULL);
    assert_int_equal(refused(&f, &big), VT_E_DISK_FULL);
    assert_int_equal(f.events[STORE_EV_DISK_FULL], 1); /* told once */
    assert_int_equal(restored(&f, &t, &kv), 640);
    f.avail = 400 << 20;
    saved(&f, &big, NULL, NULL);
    fix_fini(&f);
}

static void free_space_is_given_back(void **state)
{
    struct fix f;
    struct vt_err err;
    fix_init(&f, true);
    opened(&f);
    struct talk big = talk_of(62, 64 * 400), small = talk_of(63, 64);
    saved(&f, &big, NULL, NULL);
    small.slot = 1;
    saved(&f, &small, NULL, NULL);
    uint64_t before = space_file(f.s);
    f.time.wall += VT_SEC(31ull * 86400); /* both are idle for a month, one is used again */
    f.time.mono += VT_SEC(31ull * 86400);
    small.n_items = 128;
    small.reason = CKPT_AUTOSAVE;
    small.tenant = "u";
    saved(&f, &small, NULL, NULL);
    while (store_collect(f.s, true, &err) == 1)
        ;
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM head WHERE tenant='t'", NULL), 0);
    while (store_idle(f.s, &err) == 1)
        ;
    assert_true(space_file(f.s) < before / 4);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

/* Heads in the store once it has been short of space and nothing was saved for so many days. */
static int64_t heads_after(unsigned days, unsigned retain_days)
{
    struct fix f;
    struct vt_err err;
    fix_init(&f, true);
    f.o.retain_us = VT_SEC(86400ull * retain_days);
    opened(&f);
    struct talk t = talk_of(66, 640);
    saved(&f, &t, NULL, NULL);
    f.time.wall += VT_SEC(86400ull * days) + VT_SEC(1);
    f.time.mono += VT_SEC(86400ull * days) + VT_SEC(1);
    while (store_collect(f.s, false, &err) == 1)
        ;
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM head", NULL), 1); /* there is room */
    while (store_collect(f.s, true, &err) == 1)
        ;
    int64_t n = db_int(f.s, "SELECT count(*) FROM head", NULL);
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block", NULL) > 0, n > 0);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
    return n;
}

static void retention_is_a_setting(void **state)
{
    assert_int_equal(heads_after(2, 3), 1);
    assert_int_equal(heads_after(3, 3), 0);
    assert_int_equal(heads_after(31, 400), 1);
    assert_int_equal(heads_after(400, 400), 0);
}

/* The two-weekly pass over all blocks finds what nobody reads; the weekly check reads the rest. */
static void upkeep_finds_damage(void **state)
{
    struct fix f;
    struct vt_err err;
    struct store_facts facts;
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(64, 640);
    saved(&f, &t, NULL, NULL);
    fix_close(&f, true);
    opened(&f);
    spoil(&f, "UPDATE payload SET data=zeroblob(65536) WHERE block_id=3");
    while (store_scrub(f.s, &err) == 1)
        ;
    store_facts(f.s, &facts);
    assert_int_equal(facts.bad_found, 0); /* not due */
    f.time.wall += VT_SEC(15ull * 86400);
    f.time.mono += VT_SEC(15ull * 86400);
    while (store_scrub(f.s, &err) == 1)
        ;
    store_facts(f.s, &facts);
    assert_int_equal(facts.bad_found, 1);
    while (store_idle(f.s, &err) == 1)
        ;
    assert_int_equal(db_int(f.s, "SELECT nkv FROM manifest", NULL), 128);
    f.time.mono += VT_SEC(700); /* idle long enough for the weekly check */
    while (store_idle(f.s, &err) == 1)
        ;
    assert_true(db_mark_get(f.s, "checked") > (int64_t)VT_SEC(1700000000));
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

/* A machine that started with a clock of ten years ahead: what it did then is neither a check that was made nor a use that is
 * not over. */
static void a_clock_that_was_ahead(void **state)
{
    struct fix f;
    struct vt_err err;
    struct store_facts facts;
    fix_init(&f, true);
    uint64_t right = f.time.wall;
    f.time.wall += VT_SEC(10ull * 365 * 86400);
    opened(&f);
    struct talk t = talk_of(71, 640), gone = talk_of(72, 640);
    saved(&f, &t, NULL, NULL);
    gone.slot = 1;
    saved(&f, &gone, NULL, NULL);
    fix_close(&f, true);
    f.time.wall = right;
    opened(&f);
    spoil(&f, "DELETE FROM head WHERE slot=1");
    spoil(&f, "DELETE FROM manifest WHERE slot=1");
    spoil(&f, "UPDATE payload SET data=zeroblob(65536) WHERE block_id=3");
    while (store_scrub(f.s, &err) == 1)
        ;
    store_facts(f.s, &facts);
    assert_int_equal(facts.bad_found, 1);
    f.time.mono += VT_SEC(700);
    while (store_idle(f.s, &err) == 1)
        ;
    assert_int_equal(db_int(f.s, "SELECT count(*) FROM block", NULL), 3); /* two good ones, and the bad one */
    f.time.mono += VT_SEC(700);
    while (store_idle(f.s, &err) == 1)
        ;
    assert_int_equal(db_mark_get(f.s, "checked"), (int64_t)right);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_block_shortens),         cmocka_unit_test(damaged_rows_are_seen),
        cmocka_unit_test(unusable_is_moved_aside),    cmocka_unit_test(newer_version_is_left_alone),
        cmocka_unit_test(damaged_trigger_is_noticed), cmocka_unit_test(unclean_stop_is_verified),
        cmocka_unit_test(quota_evicts_in_order),      cmocka_unit_test(min_free_is_kept),
        cmocka_unit_test(free_space_is_given_back),   cmocka_unit_test(upkeep_finds_damage),
        cmocka_unit_test(retention_is_a_setting),     cmocka_unit_test(a_clock_that_was_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
