/* Generations of children under vitriold: handshake, classes of ends, hangs, orders, what they inherit. */
#include "fixture.h"

#include "rundir.h"

#include "handshake.h"
#include "sock.h"
#include "sock_ctl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static void test_refused_children(void **state)
{
    static const char *const faults[] = {"wrong-nonce", "wrong-gen"};
    for (int i = 0; i < 2; i++) {
        struct fx *f = *state;
        char arg[64];
        snprintf(arg, sizeof arg, "engine.args=%s", faults[i]);
        f->n_more = 0;
        fx_set(f, arg);
        fx_start(f);
        fx_wait(f, "engine0", "failed", 1, 10);
        fx_expect_class(f, "engine0", "version", "refused: HELLO");
        fx_wait(f, "gateway", "ready", 1, 5); /* nobody else is disturbed */
        kill(f->pid, SIGTERM);
        assert_int_equal(fx_wait_end(f, 10), 0);
    }
}

static void run_fault(struct fx *f, const char *fault)
{
    char arg[64];
    snprintf(arg, sizeof arg, "engine.args=%s", fault);
    fx_set(f, arg);
    fx_start(f);
}

/* What is left of the pause before the engine's next start. */
static uint64_t next_start_ms(struct fx *f)
{
    json_t *st = fx_status(f);
    uint64_t ms = client_num(fx_child(st, "engine0"), "next_start_ms");
    json_decref(st);
    return ms;
}

/* V01: exit 0 without an order is a fault, and the next generation comes. */
static void test_exit_zero(void **state)
{
    struct fx *f = *state;
    run_fault(f, "exit0");
    fx_wait(f, "engine0", "backoff", 1, 10);
    assert_in_range(next_start_ms(f), 0, 1200); /* the first pause, not a later one */
    fx_expect_class(f, "engine0", "unexpected_exit", "exit status 0 without an order");
    fx_wait(f, "engine0", "ready", 2, 5);
    json_t *st = fx_status(f);
    assert_int_equal(client_num(fx_child(st, "engine0"), "restarts"), 1);
    json_decref(st);
}

static void test_signal(void **state)
{
    struct fx *f = *state;
    run_fault(f, "abort");
    fx_wait(f, "engine0", "backoff", 1, 10);
    fx_expect_class(f, "engine0", "signal", "killed by SIGABRT");
}

static void test_config_fault_is_final(void **state)
{
    struct fx *f = *state;
    run_fault(f, "exit78");
    fx_wait(f, "engine0", "failed", 1, 10);
    fx_expect_class(f, "engine0", "config", "exit status 78");
    fx_nap(1500);
    fx_wait(f, "engine0", "failed", 1, 1);
    fx_wait_overall(f, "failed", 1);
}

/* L11: what was requested and not applied is a failed launch. */
static void test_effective(void **state)
{
    struct fx *f = *state;
    run_fault(f, "drop-option");
    fx_wait(f, "engine0", "failed", 1, 10);
    fx_expect_class(f, "engine0", "config", "config_not_applied: engine.ubatch_tokens");
}

static void test_unknown_frame(void **state)
{
    struct fx *f = *state;
    run_fault(f, "bad-frame");
    fx_wait(f, "engine0", "backoff", 1, 10);
    fx_expect_class(f, "engine0", "protocol", "must be understood");
}

static void test_timeouts(void **state)
{
    static const struct {
        const char *fault, *key, *class;
    } rows[] = {{"no-hello", "engine.hello_timeout_s=1", "hello_timeout"},
                {"stall-load", "engine.load_stall_s=1", "load_stall"},
                {"heartbeat-only", "engine.hang_budget_s=1", "hung"}};
    for (int i = 0; i < 3; i++) {
        struct fx *f = *state;
        f->n_more = 0;
        fx_set(f, rows[i].key);
        run_fault(f, rows[i].fault);
        fx_wait(f, "engine0", "backoff", 1, 15);
        fx_expect_class(f, "engine0", rows[i].class, "");
        kill(f->pid, SIGTERM);
        assert_int_equal(fx_wait_end(f, 10), 0);
    }
}

/* Loading that ticks is not stalled, and status answers at once all the while. */
static void test_slow_load(void **state)
{
    struct fx *f = *state;
    fx_set(f, "engine.load_stall_s=1");
    run_fault(f, "slow-load");
    fx_wait(f, "engine0", "loading", 1, 10);
    /* Half of them, since the machine may be busy with others; a wait for the engine would make every one late. */
    double end = fx_now() + 4;
    int late = 0, all = 0;
    while (fx_now() < end) {
        double t0 = fx_now();
        json_decref(fx_status(f));
        late += fx_now() - t0 > 0.2;
        all++;
        fx_nap(50);
    }
#if !defined(__SANITIZE_ADDRESS__)
    assert_true(late * 2 <= all);
#endif
    fx_wait(f, "engine0", "ready", 1, 10);
}

/* L40: deaf to every order, gone within its grace; ctl answers meanwhile. */
static void test_ignored_stop(void **state)
{
    struct fx *f = *state;
    struct vt_err err;
    uint64_t op = 0;
    run_fault(f, "ignore-stop");
    pid_t pid = fx_wait(f, "engine0", "ready", 1, 10);
    json_decref(client_call(&f->c, "stop", NULL, &op, &err));
    assert_true(op > 0);
    double t0 = fx_now();
    json_t *end = client_follow(&f->c, op, 30, &err);
    assert_string_equal(client_str(end, "state"), "done");
    json_decref(end);
    assert_true(fx_now() - t0 < 15.0);
    assert_false(fx_alive(pid));
    fx_wait(f, "engine0", "down", 1, 1);
}

/* A grandchild that left its group and session goes with its parent. */
static void test_grandchild(void **state)
{
    struct fx *f = *state;
    run_fault(f, "grandchild");
    pid_t pid = fx_wait(f, "engine0", "ready", 1, 10);
    kill(pid, SIGKILL);
    fx_wait(f, "engine0", "ready", 2, 10);
    kill(f->pid, SIGTERM);
    assert_int_equal(fx_wait_end(f, 10), 0);
    DIR *d = opendir("/proc");
    struct dirent *e;
    char want[128];
    snprintf(want, sizeof want, "VITRIOL_RUN_DIR=%s", f->run);
    while ((e = readdir(d)) != NULL) {
        char path[300], env[8192];
        snprintf(path, sizeof path, "/proc/%s/environ", e->d_name);
        int fd = open(path, O_RDONLY);
        ssize_t n = fd >= 0 ? read(fd, env, sizeof env) : -1;
        if (fd >= 0)
            close(fd);
        if (n > 0 && memmem(env, (size_t)n, want, strlen(want)) != NULL && fx_alive((pid_t)atoi(e->d_name)))
            fail_msg("pid %s is left over", e->d_name);
    }
    closedir(d);
}

/* ---- cgroups ---- */

/* Where version 2 is mounted; NULL: nowhere that we may use. */
static const char *cgroup2(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (int i = 0; i < 2; i++) {
        struct statfs fs;
        if (statfs(places[i], &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC && access(places[i], W_OK) == 0)
            return places[i];
    }
    return NULL;
}

static bool write_pid(const char *cgroup)
{
    char path[200];
    snprintf(path, sizeof path, "%s/cgroup.procs", cgroup);
    FILE *f = fopen(path, "w");
    bool ok = f != NULL && fprintf(f, "%d", (int)getpid()) > 0;
    if (f != NULL)
        ok = fclose(f) == 0 && ok;
    return ok;
}

static char *file_of(pid_t pid, const char *name)
{
    static char text[4096];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* In a cgroup that was delegated each child has a leaf of its own, which nothing of it can leave; in one that was not,
 * nothing is touched. */
static void test_leaves(void **state)
{
    struct fx *f = *state;
    const char *top = cgroup2();
    char dir[96], super[112];
    if (top == NULL || geteuid() != 0)
        skip();
    snprintf(dir, sizeof dir, "%s/vt-test-%d", top, (int)getpid());
    snprintf(super, sizeof super, "%s/super", dir);
    if (mkdir(dir, 0755) < 0 || !write_pid(dir))
        skip();
    for (int given = 0; given < 2; given++) {
        if (given && setxattr(dir, "user.delegate", "1", 1, 0) < 0)
            break;
        f->n_more = 0;
        run_fault(f, "grandchild");
        assert_true(given || f->pid > 0);
        pid_t pid = fx_wait(f, "engine0", "ready", 1, 10);
        json_t *st = fx_status(f);
        const char *cgroup = client_str(st, "cgroup");
        if (given)
            assert_int_equal(strncmp(cgroup, "leaves", 6), 0);
        else
            assert_string_equal(cgroup, "flat");
        json_decref(st);
        assert_int_equal(access(super, F_OK), given ? 0 : -1);
        assert_true((strstr(file_of(pid, "cgroup"), "/engine0\n") != NULL) == (given != 0));
        assert_true((strstr(file_of(f->pid, "cgroup"), "/super\n") != NULL) == (given != 0));
        kill(pid, SIGKILL);
        pid = fx_wait(f, "engine0", "ready", 2, 10);
        assert_true((strstr(file_of(pid, "cgroup"), "/engine0\n") != NULL) == (given != 0));
        kill(f->pid, SIGTERM);
        assert_int_equal(fx_wait_end(f, 10), 0);
    }
    write_pid(top);
    rmdir(super);
    assert_int_equal(rmdir(dir), 0); /* the children's leaves are gone */
}

static void test_hung_gateway(void **state)
{
    struct fx *f = *state;
    fx_set(f, "supervisor.gw_hang_s=2");
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    pid_t pid = fx_wait(f, "gateway", "ready", 1, 1);
    kill(pid, SIGSTOP);
    fx_wait(f, "gateway", "ready", 2, 10);
    assert_false(fx_alive(pid));
    fx_wait_overall(f, "ready", 5); /* and its link is there again */
}

static void test_killed_store(void **state)
{
    struct fx *f = *state;
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    pid_t engine = fx_wait(f, "engine0", "ready", 1, 1);
    kill(fx_wait(f, "store", "ready", 1, 1), SIGKILL);
    fx_wait(f, "store", "ready", 2, 5);
    assert_int_equal(fx_wait(f, "engine0", "ready", 1, 1), engine);
    double end = fx_now() + 30;
    for (;;) {
        json_t *st = fx_status(f);
        size_t n = json_array_size(json_object_get(st, "links"));
        json_decref(st);
        if (n == 2)
            break;
        assert_true(fx_now() < end);
        fx_nap(20);
    }
}

static bool has_served(struct fx *f, const char *name)
{
    json_t *st = fx_status(f);
    bool served = client_num(fx_child(st, name), "served") != 0;
    json_decref(st);
    return served;
}

/* However often one that served is killed, the next generation comes at once. */
static void test_killed_again_and_again(void **state)
{
    struct fx *f = *state;
    fx_start(f);
    for (unsigned gen = 1; gen <= 3; gen++) {
        pid_t pid = fx_wait(f, "engine0", "ready", gen, 10);
        double end = fx_now() + 60;
        while (!has_served(f, "engine0")) {
            assert_true(fx_now() < end);
            fx_nap(50);
        }
        kill(pid, SIGKILL);
        bool back = false;
        for (end = fx_now() + 60; !back; fx_nap(20)) {
            json_t *st = fx_status(f);
            const json_t *c = fx_child(st, "engine0");
            back = client_num(c, "gen") > gen;
            if (!back) /* the second pause would be one of 1 s, the third of 2 s */
                assert_in_range(client_num(c, "next_start_ms"), 0, 240);
            json_decref(st);
            assert_true(fx_now() < end);
        }
    }
}

/* What was true before a kill is no answer after it. */
static void test_health_after_kill(void **state)
{
    struct fx *f = *state;
    struct vt_err err;
    fx_set(f, "supervisor.backoff_max_ms=50");
    fx_set(f, "supervisor.breaker=off");
    fx_start(f);
    for (unsigned gen = 1; gen <= 8; gen++) {
        pid_t pid = fx_wait(f, "engine0", "ready", gen, 10);
        fx_wait_overall(f, "ready", 5);
        kill(pid, SIGKILL);
        json_t *h = client_call(&f->c, "health", NULL, NULL, &err);
        assert_true(strcmp(client_str(h, "state"), "ready") != 0 || client_num(h, "gen") > gen);
        json_decref(h);
    }
}

/* health and status say the same at every moment of a drain: draining, then down; a drained gateway is down as well. */
static void test_one_truth(void **state)
{
    static const char *const names[] = {"engine0", "gateway"};
    struct fx *f = *state;
    struct vt_err err;
    fx_start(f);
    for (int i = 0; i < 2; i++) {
        fx_wait_overall(f, "ready", 10);
        bool down = false;
        double end = fx_now() + 60;
        json_t *told = client_call(&f->c, "drain", json_pack("{s:s}", "child", names[i]), NULL, &err);
        if (told == NULL)
            fail_msg("drain %s: %s", names[i], err.text);
        json_decref(told);
        while (!down) {
            json_t *before = client_call(&f->c, "health", NULL, NULL, &err), *st = fx_status(f),
                   *after = client_call(&f->c, "health", NULL, NULL, &err);
            down = strcmp(client_str(before, "state"), "down") == 0;
            if (!down && strcmp(client_str(before, "state"), "draining") != 0)
                fail_msg("draining %s: %s", names[i],
                         before != NULL ? client_str(before, "state") : err.text);
            if (strcmp(client_str(before, "state"), client_str(after, "state")) == 0)
                assert_string_equal(client_str(st, "state"), client_str(before, "state"));
            json_decref(before);
            json_decref(st);
            json_decref(after);
            assert_true(fx_now() < end);
            fx_nap(80); /* so many calls in a second and no more */
        }
        json_decref(client_call(&f->c, "start", json_pack("{s:s}", "child", names[i]), NULL, &err));
    }
}

/* L18: a bounce that could not come back up does not go down. */
static void test_gate_before_stop(void **state)
{
    struct fx *f = *state;
    struct vt_err err;
    char model[128], arg[160];
    snprintf(model, sizeof model, "%s/m.gguf", f->root);
    snprintf(arg, sizeof arg, "model.path=%s", model);
    assert_int_equal(symlink(getenv("VT_MODEL"), model), 0);
    fx_set(f, arg);
    fx_start(f);
    pid_t pid = fx_wait(f, "engine0", "ready", 1, 10);
    unlink(model);
    FILE *o = fopen(model, "w");
    fputs("GGUF", o);
    fclose(o);
    assert_null(client_call(&f->c, "bounce", NULL, NULL, &err));
    assert_int_equal(err.code, VT_E_PAYLOAD);
    assert_int_equal(fx_wait(f, "engine0", "ready", 1, 1), pid);
    /* and once it is down, it fails by the payload, and comes back by itself when the file is good again */
    kill(pid, SIGKILL);
    fx_wait(f, "engine0", "failed", 1, 5);
    fx_expect_class(f, "engine0", "payload", "m.gguf");
    unlink(model);
    assert_int_equal(symlink(getenv("VT_MODEL"), model), 0);
    fx_wait(f, "engine0", "ready", 2, 5);
}

/* L68: another process on a lifeline is refused before a byte of it is read. */
static void test_foreign_pid(void **state)
{
    struct fx *f = *state;
    char path[160], want[64];
    struct vt_err err;
    struct vt_sock *s = NULL;
    struct vt_sock_opts o = {.max_frame = 65536, .queue = 4, .peer_uid = (uid_t)-1};
    run_fault(f, "no-hello");
    fx_wait(f, "engine0", "starting", 1, 10);
    snprintf(path, sizeof path, "%s/int/l.engine0.1", f->run);
    assert_int_equal(vt_sock_dial(&s, path, &o, &err), 0);
    snprintf(want, sizeof want, "pid %d of uid %u tried its lifeline", (int)getpid(), (unsigned)getuid());
    fx_wait_log(f, want, 5);
    vt_sock_close(s);
    fx_wait(f, "engine0", "starting", 1, 1);
}

/* L15: exactly this environment. */
static void test_environment(void **state)
{
    struct fx *f = *state;
    setenv("VT_TEST_LEAK", "1", 1);
    run_fault(f, "environment");
    fx_wait(f, "engine0", "ready", 1, 10);
    fx_wait_log(f, "env VITRIOL_RUN_DIR=", 2);
    char *text = fx_log(f);
    assert_null(strstr(text, "VT_TEST_LEAK"));
    static const char *const allowed[] = {"HOME=",
                                          "LANG=",
                                          "LC_ALL=",
                                          "PATH=",
                                          "TMPDIR=",
                                          "TZ=",
                                          "VITRIOL_CHILD=engine0",
                                          "VITRIOL_GEN=1",
                                          "VITRIOL_INSTANCE=",
                                          "VITRIOL_RUN_DIR=",
                                          "ASAN_OPTIONS=",
                                          "LSAN_OPTIONS=",
                                          "UBSAN_OPTIONS="};
    for (char *p = text; (p = strstr(p, "engine0: env ")) != NULL;) {
        p += strlen("engine0: env ");
        bool known = false;
        for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
            known = known || strncmp(p, allowed[i], strlen(allowed[i])) == 0;
        if (!known)
            fail_msg("%.60s is in the environment", p);
    }
}

/* Started as root with run_as, children have that user, no other group, and still die with their parent. */
static void test_run_as(void **state)
{
    struct fx *f = *state;
    char path[64], line[256], model[1024], arg[160];
    if (geteuid() != 0)
        skip();
    chmod(f->root, 0755);
    /* the tree that the tests run from may be closed to others: copies are not */
    snprintf(model, sizeof model, "cp '%s' '%s/m.gguf' && chmod 644 '%s/m.gguf'", getenv("VT_MODEL"), f->root,
             f->root);
    assert_int_equal(system(model), 0);
    snprintf(arg, sizeof arg, "model.path=%s/m.gguf", f->root);
    fx_set(f, arg);
    fx_set(f, "supervisor.run_as=nobody");
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    pid_t pid = fx_wait(f, "engine0", "ready", 1, 1);
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *o = fopen(path, "r");
    bool uid = false, groups = false;
    while (fgets(line, sizeof line, o) != NULL) {
        uid = uid || strcmp(line, "Uid:\t65534\t65534\t65534\t65534\n") == 0;
        groups = groups || strncmp(line, "Groups:\t65534 ", 14) == 0;
    }
    fclose(o);
    assert_true(uid);
    assert_true(groups);
    kill(f->pid, SIGKILL);
    waitpid(f->pid, NULL, 0);
    f->pid = 0;
    double end = fx_now() + 4; /* without its parent's signal it would go on for 5 s */
    while (fx_alive(pid)) {
        assert_true(fx_now() < end);
        fx_nap(20);
    }
}

static void test_flood(void **state)
{
    struct fx *f = *state;
    run_fault(f, "flood");
    fx_wait(f, "engine0", "ready", 1, 10);
    fx_wait_log(f, "more lines were not forwarded", 3);
    char *text = fx_log(f);
    int n = 0;
    for (char *p = text; (p = strstr(p, "flood line")) != NULL; p++)
        n++;
    assert_true(n < 1000);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_refused_children),
        T(test_exit_zero),
        T(test_signal),
        T(test_config_fault_is_final),
        T(test_effective),
        T(test_unknown_frame),
        T(test_timeouts),
        T(test_slow_load),
        T(test_ignored_stop),
        T(test_grandchild),
        T(test_hung_gateway),
        T(test_leaves),
        T(test_killed_store),
        T(test_gate_before_stop),
        T(test_killed_again_and_again),
        T(test_health_after_kill),
        T(test_one_truth),
        T(test_foreign_pid),
        T(test_environment),
        T(test_flood),
        T(test_run_as),
    };
    return cmocka_run_group_tests_name("generation", tests, NULL, NULL);
}
