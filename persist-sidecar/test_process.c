/* The real process on real sockets and a real disk: what vitriold and an engine see of it. */
#include "proc.h"

#include "link.h"
#include "series.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void started(struct proc *x)
{
    int code = proc_start(x, NULL);
    if (code != 0)
        fail_msg("the store ended with %d", code);
    assert_int_equal(proc_link(x), 0);
}

static int run_check(const struct proc *x, char *out, size_t size)
{
    char cmd[256];
    snprintf(cmd, sizeof cmd, "%s --check %s 2>&1", getenv("VITRIOL_STORE"), x->state);
    FILE *p = popen(cmd, "r");
    size_t n = fread(out, 1, size - 1, p);
    out[n] = '\0';
    return WEXITSTATUS(pclose(p));
}

static void saves_and_stops(void **state)
{
    struct proc x;
    struct vt_frame f;
    struct puppet_saved saved;
    struct puppet_restored r;
    char out[4096];
    struct stat st;
    proc_init(&x);
    started(&x);
    struct talk t = talk_of(1, 1000);
    assert_int_equal(puppet_save(&x.p, &t, &saved), 0);
    assert_int_equal(saved.sent, 15);
    proc_order(&x, VT_ORDER_STOP);
    assert_true(proc_wait(&x, VT_F_ORDER_DONE, &f, 5000));
    assert_int_equal(vt_frame_u64(&f, VT_ORDER_DONE_VERB, 0), VT_ORDER_STOP);
    vt_frame_close(&f);
    assert_int_equal(proc_exit(&x, 5000), 0);
    assert_int_equal(run_check(&x, out, sizeof out), 0);
    assert_non_null(strstr(out, "head t slot 0 generation 1"));
    assert_non_null(strstr(out, "0 violations"));
    char path[128];
    snprintf(path, sizeof path, "%s/store.db", x.state);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(x.state, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    started(&x);
    assert_int_equal(puppet_restore(&x.p, &t, &r), 0);
    assert_true(r.ended_ok && !r.poisoned);
    assert_int_equal(r.blocks, 15);
    /* Not while it is open elsewhere. */
    assert_int_not_equal(run_check(&x, out, sizeof out), 0);
    assert_non_null(strstr(out, "locked"));
    proc_fini(&x);
}

static void telemetry_and_beats(void **state)
{
    struct proc x;
    struct vt_frame f;
    proc_init(&x);
    started(&x);
    struct talk t = talk_of(2, 640);
    assert_int_equal(puppet_save(&x.p, &t, NULL), 0);
    uint64_t commits = 0;
    for (int i = 0; i < 5 && commits == 0; i++) {
        assert_true(proc_wait(&x, VT_F_T_STORE, &f, 3000));
        commits = vt_map_u64(vt_frame_map(&f, VT_T_STORE_COUNTERS), VT_SERIES_STORE_COMMITS, 0);
        vt_frame_close(&f);
    }
    assert_int_equal(commits, 1);
    assert_true(proc_wait(&x, VT_F_BEAT, &f, 3000));
    assert_true(vt_frame_u64(&f, VT_BEAT_STEP, 0) > 0);
    assert_int_equal(vt_frame_u64(&f, VT_BEAT_IN_FLIGHT, 9), 0);
    vt_frame_close(&f);
    proc_fini(&x);
}

/* A SIGTERM from outside is reported, not obeyed, while the parent lives. */
static void sigterm_is_a_note(void **state)
{
    struct proc x;
    struct vt_frame f;
    proc_init(&x);
    started(&x);
    kill(x.pid, SIGTERM);
    assert_true(proc_wait(&x, VT_F_NOTE, &f, 3000));
    vt_frame_close(&f);
    struct talk t = talk_of(3, 640);
    assert_int_equal(puppet_save(&x.p, &t, NULL), 0);
    proc_fini(&x);
}

/* What the store finds is told to vitriold, whose list of events an operator reads. */
static void damage_is_told(void **state)
{
    struct proc x;
    char path[128];
    proc_init(&x);
    snprintf(path, sizeof path, "%s/store.db", x.state);
    FILE *db = fopen(path, "w");
    for (int i = 0; i < 4096; i++)
        fputs("this is no database\n", db);
    fclose(db);
    started(&x);
    assert_non_null(strstr(x.noted, "moved aside"));
    struct talk t = talk_of(3, 640);
    assert_int_equal(puppet_save(&x.p, &t, NULL), 0);
    proc_fini(&x);
}

static void vanished_engine(void **state)
{
    struct proc x;
    uint64_t id;
    uint32_t pieces = 0;
    struct puppet_restored r;
    proc_init(&x);
    started(&x);
    struct talk t = talk_of(4, 640);
    assert_int_equal(puppet_save(&x.p, &t, NULL), 0);
    t.n_items = 1280;
    assert_int_equal(puppet_begin(&x.p, &t, &id, NULL), 0);
    assert_int_equal(puppet_block(&x.p, &t, id, CKPT_KV, 10, &pieces), 0);
    proc_unlink(&x);
    struct vt_frame f;
    bool down = false;
    while (!down && proc_wait(&x, VT_F_LINK_STATE, &f, 3000)) {
        down = vt_frame_u64(&f, VT_LINK_STATE_STATE, 0) == 3;
        vt_frame_close(&f);
    }
    assert_true(down);
    assert_int_equal(proc_link(&x), 0);
    assert_int_equal(puppet_restore(&x.p, &t, &r), 0);
    assert_int_equal(r.ntok, 640);
    assert_int_equal(puppet_save(&x.p, &t, NULL), 0);
    proc_fini(&x);
}

static void orphan_ends(void **state)
{
    struct proc x;
    proc_init(&x);
    started(&x);
    proc_unlink(&x);
    vt_sock_close(x.life);
    x.life = NULL;
    assert_int_equal(proc_exit(&x, 8000), 85);
    proc_fini(&x);
}

/* A state directory that cannot be had ends the process with its class before anything is touched. */
static void unusable_state_dir(void **state)
{
    struct proc x;
    char path[128];
    proc_init(&x);
    snprintf(path, sizeof path, "%s/store.db", x.state);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(proc_start(&x, NULL), 78);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(x.state), 0);
    FILE *f = fopen(x.state, "w");
    fclose(f);
    assert_int_equal(proc_start(&x, NULL), 78);
    proc_fini(&x);
}

static void bad_setting(void **state)
{
    static const char *const extra[] = {"store.quota_mib=lots", NULL};
    struct proc x;
    proc_init(&x);
    int code = proc_start(&x, extra);
    assert_int_equal(code, 78);
    proc_fini(&x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves_and_stops),    cmocka_unit_test(telemetry_and_beats),
        cmocka_unit_test(sigterm_is_a_note),  cmocka_unit_test(vanished_engine),
        cmocka_unit_test(orphan_ends),        cmocka_unit_test(bad_setting),
        cmocka_unit_test(unusable_state_dir), cmocka_unit_test(damage_is_told),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
