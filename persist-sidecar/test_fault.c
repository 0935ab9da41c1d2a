/* Every call to the disk fails once, every moment is the last one: what was acknowledged stays, what was not is not there
 * by half, and a failed sync ends the process. The same laws must be seen to break on a store that is built wrong. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* One history: a plain and a hybrid conversation that grow, a split export, a reset, a slot file, a collection. Each save
 * that was acknowledged is noted, as an engine would. */
struct history {
    struct fix f;
    struct talk acked[2], tried[2]; /* by slot */
    bool any[2], early;             /* early: acknowledges before the commit (a red run) */
    int step;
};

static struct talk plan(int step)
{
    struct talk t = talk_of(100, 64 * 2);
    t.kv_bytes = 40000;
    t.fp[0] = 1;
    switch (step) {
    case 1: t.n_items = 64 * 4 + 7; break;
    case 2:
        t = talk_of(200, 64 * 3);
        t.slot = 1;
        t.kv_bytes = 70000;
        t.rec_bytes = 50000;
        t.rec_every = 1;
        break;
    case 3: t.n_items = 64 * 9; break; /* more than a transaction */
    case 4:
        t = talk_of(201, 64 * 2);
        t.slot = 1;
        t.kv_bytes = 70000;
        t.rec_bytes = 50000;
        t.rec_every = 1;
        t.reason = CKPT_RESET;
        break;
    case 5: t.n_items = 64 * 9 + 3; break; /* items alone */
    default: break;
    }
    return t;
}

#define STEPS 6

/* Runs the history from h->step on until the disk refuses or it is done. */
static int go_on(struct history *h)
{
    struct vt_err err;
    for (; h->step < STEPS; h->step++) {
        struct talk t = plan(h->step);
        h->tried[t.slot] = t;
        if (h->early) {
            h->acked[t.slot] = t;
            h->any[t.slot] = true;
        }
        if (fix_save(&h->f, &t, NULL, NULL, &err) < 0)
            return -1;
        h->acked[t.slot] = t;
        h->any[t.slot] = true;
        if (h->step == 4 && store_collect(h->f.s, true, &err) < 0)
            return -1;
    }
    return 0;
}

/* I1 to I4, said without aborting: true when all hold. */
static bool laws_hold(struct history *h, const char **law)
{
    uint32_t kv;
    bool poisoned;
    struct vt_err err;
    for (uint32_t slot = 0; slot < 2; slot++) {
        int64_t n = fix_restore(&h->f, &h->acked[slot], &kv, &poisoned, &err);
        bool is_acked = h->any[slot] && n == h->acked[slot].n_items && !poisoned &&
                        kv == h->acked[slot].n_items / 64 * 64;
        if (is_acked || (!h->any[slot] && n < 0))
            continue;
        /* A save that was on its way may have become the head: whole, or not at all. */
        if (h->tried[slot].n_items == 0) {
            *law = "I4: something that was never saved";
            return false;
        }
        n = fix_restore(&h->f, &h->tried[slot], &kv, &poisoned, &err);
        if (n != h->tried[slot].n_items || poisoned || kv != h->tried[slot].n_items / 64 * 64) {
            *law = "I1/I4: the acknowledged checkpoint does not restore";
            return false;
        }
    }
    *law = "I1-I3: the check of the closed database";
    return fix_check(&h->f, false) == 0;
}

static void begin(struct history *h)
{
    memset(h, 0, sizeof *h);
    fix_init(&h->f, true);
    h->f.o.txn_bytes = 150000;
    struct vt_err err;
    if (fix_open(&h->f, &err) < 0)
        fail_msg("%s", err.text);
}

/* The next process: opens, the laws hold, the history can be finished. */
static bool next_process(struct history *h, const char **law)
{
    struct vt_err err;
    *law = "the next process does not open";
    if (fix_open(&h->f, &err) < 0)
        return false;
    *law = "an intact database was moved aside";
    if (h->f.events[STORE_EV_REBUILT] > 0 || !laws_hold(h, law))
        return false;
    *law = "the history cannot be finished";
    if (go_on(h) < 0)
        return false;
    return laws_hold(h, law);
}

typedef void spoil_fn(struct history *h);

/* Crashes at the k-th change for every k (or every stride-th); returns the number of crash points, or -1 at the first law
 * that broke. */
static int crash_everywhere(enum sim_loss loss, unsigned stride, spoil_fn *spoil, const char **law)
{
    int points = 0;
    for (uint64_t k = 1;; k += stride) {
        struct history h;
        begin(&h);
        if (spoil != NULL)
            spoil(&h);
        sim_crash(h.f.sim, k);
        int rc = go_on(&h);
        bool fired = sim_fired(h.f.sim);
        if (!fired && rc < 0)
            fail_msg("the history fails by itself");
        if (fired && rc == 0) /* the crash came after the last acknowledgement */
            rc = -1;
        sim_die(h.f.sim);
        fix_close(&h.f, false);
        sim_restart(h.f.sim, loss, k);
        bool good = next_process(&h, law);
        fix_fini(&h.f);
        if (!good)
            return -1;
        if (!fired)
            return points;
        points++;
    }
}

static void crash(enum sim_loss loss, const char *name)
{
    const char *law = "";
    int points = crash_everywhere(loss, 1, NULL, &law);
    if (points < 0)
        fail_msg("%s: %s", name, law);
    print_message("%s: %d crash points\n", name, points);
    assert_true(points > 200);
}

static void kill_at_every_call(void **state)
{
    crash(SIM_KILL, "kill");
}

static void power_loss_drops(void **state)
{
    crash(SIM_DROP, "power loss, nothing un-synced arrives");
}

static void power_loss_4k(void **state)
{
    crash(SIM_RANDOM_4K, "power loss, sectors of 4096");
}

static void power_loss_512(void **state)
{
    crash(SIM_RANDOM_512, "power loss, sectors torn at 512");
}

/* Crash in the recovery of a crash. */
static void power_loss_while_rolling_back(void **state)
{
    int twice = 0;
    for (uint64_t k = 40; k < 400; k += 13) {
        for (uint64_t j = 1;; j++) {
            struct history h;
            struct vt_err err;
            const char *law = "";
            begin(&h);
            sim_crash(h.f.sim, k);
            go_on(&h);
            fix_close(&h.f, false);
            sim_restart(h.f.sim, SIM_RANDOM_4K, k);
            sim_crash(h.f.sim, j);
            bool opened = fix_open(&h.f, &err) == 0;
            bool fired = sim_fired(h.f.sim);
            sim_die(h.f.sim);
            fix_close(&h.f, false);
            sim_restart(h.f.sim, SIM_RANDOM_512, k + j);
            bool good = next_process(&h, &law);
            fix_fini(&h.f);
            if (!good)
                fail_msg("crash at %d, then at %d: %s", (int)k, (int)j, law);
            if (!fired) {
                assert_true(opened);
                break;
            }
            twice++;
        }
    }
    print_message("%d crashes inside recovery\n", twice);
    assert_true(twice > 50);
}

/* ---- failing calls ---- */

struct failure {
    enum sim_call kind;
    int rc;
    bool half, fatal; /* fatal: the process has to end in it */
};

/* The k-th call fails and the process lives on (or ends, if it was a sync): the open save is refused, the rest goes on. */
static int fail_everywhere(const struct failure *x)
{
    int points = 0;
    for (uint64_t k = 1;; k++) {
        struct history h;
        const char *law = "";
        begin(&h);
        sim_fail(h.f.sim, x->kind, k, x->rc, x->half);
        int rc = go_on(&h);
        bool fired = sim_fired(h.f.sim);
        if (x->fatal && fired)
            assert_int_equal(h.f.died, 74);
        if (!x->fatal)
            assert_int_equal(h.f.died, 0);
        assert_int_equal(sim_synced_after_failure(h.f.sim), 0);
        if (!x->fatal && rc < 0) { /* the same process goes on after the refusal */
            sim_fail(h.f.sim, x->kind, 0, 0, false);
            if (!laws_hold(&h, &law))
                fail_msg("call %d: %s", (int)k, law);
            if (go_on(&h) < 0)
                fail_msg("call %d: the same process cannot go on", (int)k);
        }
        if (x->fatal)
            sim_die(h.f.sim);
        fix_close(&h.f, !x->fatal);
        sim_restart(h.f.sim, x->fatal ? SIM_RANDOM_4K : SIM_KILL, k);
        if (!next_process(&h, &law))
            fail_msg("call %d: %s", (int)k, law);
        fix_fini(&h.f);
        if (!fired)
            return points;
        points++;
    }
}

static void run_failure(const char *name, struct failure x)
{
    int points = fail_everywhere(&x);
    print_message("%s: %d points\n", name, points);
    assert_true(points > 15);
}

static void full_at_every_write(void **state)
{
    run_failure("disk full", (struct failure){SIM_WRITE, SQLITE_FULL, false, false});
}

static void full_after_half_a_write(void **state)
{
    run_failure("disk full, half written", (struct failure){SIM_WRITE, SQLITE_FULL, true, false});
}

static void error_at_every_write(void **state)
{
    run_failure("write error", (struct failure){SIM_WRITE, SQLITE_IOERR_WRITE, false, false});
}

static void error_at_every_sync(void **state)
{
    run_failure("sync error", (struct failure){SIM_SYNC, SQLITE_IOERR_FSYNC, false, true});
}

/* The same with the process's real end: status 74, and nothing is acknowledged after the sync that failed. */
static void sync_error_ends_the_process(void **state)
{
    int ends = 0;
    for (uint64_t k = 1;; k++) {
        int p[2], status;
        char acks[STEPS];
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct history h;
            begin(&h);
            fix_close(&h.f, true);
            h.f.o.die = NULL;
            if (freopen("/dev/null", "w", stderr) == NULL || fix_open(&h.f, NULL) < 0)
                _exit(1);
            sim_fail(h.f.sim, SIM_SYNC, k, SQLITE_IOERR_FSYNC, false);
            for (; h.step < STEPS; h.step++) {
                struct talk t = plan(h.step);
                if (fix_save(&h.f, &t, NULL, NULL, NULL) < 0)
                    _exit(2);
                /* A save that came after the failure would say so here. */
                if (write(p[1], sim_fired(h.f.sim) ? "!" : "a", 1) != 1)
                    _exit(3);
            }
            _exit(0);
        }
        close(p[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        ssize_t n = read(p[0], acks, sizeof acks);
        close(p[0]);
        assert_true(WIFEXITED(status));
        for (ssize_t i = 0; i < n; i++)
            assert_int_equal(acks[i], 'a');
        if (WEXITSTATUS(status) == 0)
            break;
        assert_int_equal(WEXITSTATUS(status), 74);
        ends++;
    }
    print_message("sync error: the process ended with 74 at each of %d syncs\n", ends);
    assert_true(ends > 15);
}

/* A read that fails refuses, and never passes for "not there" or for other bytes. */
static void error_at_every_read(void **state)
{
    int points = 0;
    struct vt_err err;
    for (uint64_t k = 1;; k++) {
        struct history h;
        const char *law = "";
        uint32_t kv;
        bool poisoned;
        begin(&h);
        assert_int_equal(go_on(&h), 0);
        fix_close(&h.f, true);
        sim_fail(h.f.sim, SIM_READ, k, SQLITE_IOERR_READ, false);
        if (fix_open(&h.f, &err) == 0) {
            for (uint32_t slot = 0; slot < 2; slot++) {
                fix_restore(&h.f, &h.acked[slot], &kv, &poisoned, &err);
                assert_false(poisoned);
            }
        }
        bool fired = sim_fired(h.f.sim);
        fix_close(&h.f, true);
        assert_int_equal(h.f.events[STORE_EV_REBUILT], 0); /* an I/O error is not damage */
        sim_restart(h.f.sim, SIM_KILL, k);
        if (!next_process(&h, &law))
            fail_msg("read %d: %s", (int)k, law);
        fix_fini(&h.f);
        if (!fired)
            break;
        points++;
    }
    print_message("read error: %d points\n", points);
    assert_true(points > 15);
}

/* ---- red runs: stores built wrong, which these tests must catch ---- */

static void journal_in_memory(struct history *h)
{
    sqlite3_stmt *st;
    struct vt_err err;
    /* A connection that has its journal open keeps using it, whatever the pragma says. */
    fix_close(&h->f, true);
    assert_int_equal(fix_open(&h->f, &err), 0);
    assert_int_equal(sqlite3_prepare_v2(h->f.s->db, "PRAGMA journal_mode=MEMORY", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_string_equal(sqlite3_column_text(st, 0), "memory");
    sqlite3_finalize(st);
}

static void syncs_off(struct history *h)
{
    struct vt_err err;
    if (db_exec(h->f.s, "PRAGMA synchronous=OFF", "", &err) < 0)
        fail_msg("%s", err.text);
}

static void lying_disk(struct history *h)
{
    sim_lie(h->f.sim, true);
}

static void early_acknowledgement(struct history *h)
{
    h->early = true;
}

static void must_fail(const char *name, enum sim_loss loss, spoil_fn *spoil)
{
    const char *law = "";
    if (crash_everywhere(loss, 3, spoil, &law) >= 0)
        fail_msg("%s passes: these tests prove nothing", name);
    print_message("%s is caught (%s)\n", name, law);
}

static void red_journal_in_memory(void **state)
{
    must_fail("a journal in memory", SIM_KILL, journal_in_memory);
}

static void red_syncs_off(void **state)
{
    must_fail("synchronous=OFF", SIM_RANDOM_4K, syncs_off);
}

static void red_lying_disk(void **state)
{
    must_fail("a disk that lies about syncs", SIM_RANDOM_4K, lying_disk);
}

static void red_early_acknowledgement(void **state)
{
    must_fail("acknowledgement before commit", SIM_KILL, early_acknowledgement);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_at_every_call),
        cmocka_unit_test(power_loss_drops),
        cmocka_unit_test(power_loss_4k),
        cmocka_unit_test(power_loss_512),
        cmocka_unit_test(power_loss_while_rolling_back),
        cmocka_unit_test(full_at_every_write),
        cmocka_unit_test(full_after_half_a_write),
        cmocka_unit_test(error_at_every_write),
        cmocka_unit_test(error_at_every_sync),
        cmocka_unit_test(sync_error_ends_the_process),
        cmocka_unit_test(error_at_every_read),
        cmocka_unit_test(red_journal_in_memory),
        cmocka_unit_test(red_syncs_off),
        cmocka_unit_test(red_lying_disk),
        cmocka_unit_test(red_early_acknowledgement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
