/* vitriold as a process: life and death, operations, locks, ports, the service manager, deaf endpoints. */
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
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void test_life(void **state)
{
    struct fx *f = *state;
    char path[160];
    struct vt_err err;
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    json_t *st = fx_status(f);
    assert_int_equal(client_verify(&f->c, st, &err), 0);
    assert_int_equal(json_array_size(json_object_get(st, "links")), 2);
    json_decref(st);
    snprintf(path, sizeof path, "%s/int", f->run);
    assert_true(fx_entries(path) >= 3); /* lifelines and links */
    fx_wait_log(f, "VITRIOL-FINGERPRINT: v=1 fp=", 1);
    kill(f->pid, SIGTERM);
    assert_int_equal(fx_wait_end(f, 10), 0);
    assert_int_equal(fx_entries(path), 0);
    assert_int_equal(rundir_holder(f->run), 0);
}

static void test_operations(void **state)
{
    struct fx *f = *state;
    struct vt_err err;
    static const char *const verbs[] = {"bounce", "export", "drain", "start", "bounce"};
    static const char *const after[] = {"ready", "ready", "down", "ready", "ready"};
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    for (int i = 0; i < 5; i++) {
        uint64_t op = 0;
        json_t *r = client_call(&f->c, verbs[i], NULL, &op, &err);
        assert_non_null(r);
        json_decref(r);
        json_t *end = client_follow(&f->c, op, 10, &err);
        assert_string_equal(client_str(end, "state"), "done");
        json_decref(end);
        fx_wait(f, "engine0", after[i], 1, 1);
    }
    assert_null(client_call(&f->c, "bounce", json_pack("{s:s}", "child", "enigne0"), NULL, &err));
    assert_non_null(strstr(err.text, "did you mean engine0?"));
    assert_null(client_call(&f->c, "nonsense", NULL, NULL, &err));
    assert_int_equal(err.code, VT_E_UNKNOWN);
}

static void test_second_instance(void **state)
{
    struct fx *f = *state;
    char want[32];
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    pid_t first = f->pid;
    int port = f->port;
    f->port = 1;
    fx_start(f);
    assert_int_equal(fx_wait_end(f, 5), VT_EX_UNAVAILABLE);
    snprintf(want, sizeof want, "(pid %d) runs in", (int)first);
    assert_non_null(strstr(fx_log(f), want));
    f->pid = first;
    f->port = port;
    fx_wait_overall(f, "ready", 1);
}

/* V07: a foreign process on the port: exit 69 naming it; after it leaves, all is well. */
static void test_port_taken(void **state)
{
    struct fx *f = *state;
    char want[64];
    struct vt_err err;
    int fd = fx_listen_any(&f->port);
    fx_start(f);
    assert_int_equal(fx_wait_end(f, 5), VT_EX_UNAVAILABLE);
    snprintf(want, sizeof want, "is taken by pid %d", (int)getpid());
    assert_non_null(strstr(fx_log(f), want));
    assert_null(client_call(&f->c, "status", NULL, NULL, &err));
    assert_int_equal(err.code, VT_E_UNAVAILABLE);
    close(fd);
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
}

static void test_inherited_socket(void **state)
{
    struct fx *f = *state;
    char arg[64];
    f->inherit = fx_listen_any(&f->port);
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    fx_wait_log(f, "handed over", 1);
    kill(f->pid, SIGTERM);
    assert_int_equal(fx_wait_end(f, 10), 0);
    snprintf(arg, sizeof arg, "http.listen=127.0.0.1:%d", f->port == 1000 ? 1001 : 1000);
    fx_set(f, arg);
    fx_start(f);
    assert_int_equal(fx_wait_end(f, 5), VT_EX_CONFIG);
    fx_wait_log(f, "http.listen says 127.0.0.1:1000", 1);
    close(f->inherit);
}

/* L39: SIGKILL of vitriold takes everything with it; the next one starts clean. */
static void test_killed_vitriold(void **state)
{
    struct fx *f = *state;
    static const char *const names[] = {"gateway", "store", "engine0"};
    pid_t pids[3];
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    for (int i = 0; i < 3; i++)
        pids[i] = fx_wait(f, names[i], "ready", 1, 1);
    kill(f->pid, SIGKILL);
    waitpid(f->pid, NULL, 0);
    double end = fx_now() + 6;
    for (int i = 0; i < 3; i++) {
        while (fx_alive(pids[i])) {
            if (fx_now() > end)
                fail_msg("%s is an orphan", names[i]);
            fx_nap(20);
        }
    }
    fx_start(f);
    fx_wait_overall(f, "ready", 12);
}

/* The service manager's side: READY=1, STATUS=, and a ping that comes while all duties run. */
static void test_notify(void **state)
{
    struct fx *f = *state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(f->notify, sizeof f->notify, "%s/notify", f->root);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", f->notify);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    struct timeval t = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    fx_start(f);
    bool ready = false, status_line = false, ping = false;
    double end = fx_now() + 60;
    while (!(ready && status_line && ping) && fx_now() < end) {
        char buf[1024];
        ssize_t n = recv(fd, buf, sizeof buf - 1, 0);
        if (n <= 0)
            continue;
        buf[n] = '\0';
        ready = ready || strstr(buf, "READY=1") != NULL;
        status_line = status_line || strstr(buf, "engine0 ready") != NULL;
        ping = ping || strstr(buf, "WATCHDOG=1") != NULL;
    }
    close(fd);
    if (!ready || !status_line || !ping)
        fx_fail(f, "the service manager heard too little");
}

static void poke(struct fx *f, const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", f->run, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
}

static bool hears(struct fx *f, const char *name)
{
    char path[128];
    struct vt_sub *s = NULL;
    struct vt_err err;
    uint8_t *buf;
    size_t len;
    if (strcmp(name, "ctl") == 0) {
        json_t *st = fx_status(f);
        json_decref(st);
        return st != NULL;
    }
    snprintf(path, sizeof path, "%s/%s", f->run, name);
    int rc = vt_sub_dial(&s, path, "", 0, &err);
    if (rc == 0)
        rc = vt_sub_recv(s, 5000, &buf, &len, &err);
    if (rc == 1)
        vt_req_free(buf, len);
    vt_sub_close(s);
    return rc == 1;
}

static int descriptors_of(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    return fx_entries(path);
}

static void wants_relistens(struct fx *f, int n)
{
    json_t *st = fx_status(f);
    assert_int_equal(client_num(st, "ctl_relistens"), n);
    assert_int_equal(client_num(st, "tele_relistens"), n);
    json_decref(st);
}

/* V19: connections that vanish deafen nobody and leave nothing. A stopped process accepts only what has left already. */
static void test_knocks(void **state)
{
    struct fx *f = *state;
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    fx_nap(3000); /* what starting took is over */
    int before = descriptors_of(f->pid);
    for (int round = 0; round < 5; round++) {
        kill(f->pid, SIGSTOP);
        for (int i = 0; i < 10; i++)
            poke(f, i % 2 == 0 ? "ctl" : "tele");
        kill(f->pid, SIGCONT);
        assert_true(hears(f, "ctl") && hears(f, "tele"));
    }
    fx_nap(5000); /* the canaries have sung */
    wants_relistens(f, 0);
    for (int i = 0; i < 100 && descriptors_of(f->pid) > before; i++)
        fx_nap(100);
    assert_true(descriptors_of(f->pid) <= before);
}

/* In the place of an endpoint: it takes connections and never says a word. */
static int put_mute(struct fx *f, const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", f->run, name);
    assert_int_equal(unlink(a.sun_path), 0);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

/* An endpoint at whose path nobody answers any more is made anew, and is heard again within 12 s. */
static void test_deaf(void **state)
{
    struct fx *f = *state;
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    pid_t gw = fx_wait(f, "gateway", "ready", 1, 1);
    int ctl = put_mute(f, "ctl"), tele = put_mute(f, "tele");
    fx_wait_log(f, "ctl was deaf and is made anew", 12);
    fx_wait_log(f, "tele was deaf and is made anew", 12);
    close(ctl);
    close(tele);
    assert_true(hears(f, "ctl") && hears(f, "tele"));
    fx_nap(7000); /* further rounds find nothing */
    wants_relistens(f, 1);
    assert_int_equal(fx_wait(f, "gateway", "ready", 1, 1), gw);
}

/* Another run directory, the same checkpoints: refused, and told whose they are. */
static void test_shared_state(void **state)
{
    struct fx *f = *state;
    char want[160], run[sizeof f->run];
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    pid_t first = f->pid;
    int port = f->port;
    memcpy(run, f->run, sizeof run);
    snprintf(f->run, sizeof f->run, "%s/r2", f->root);
    f->port = 1;
    fx_start(f);
    assert_int_equal(fx_wait_end(f, 5), VT_EX_UNAVAILABLE);
    snprintf(want, sizeof want, "in use by another vitriold (pid %d, run directory %s)", (int)first, run);
    assert_non_null(strstr(fx_log(f), want));
    memcpy(f->run, run, sizeof run);
    f->pid = first;
    f->port = port;
    fx_wait_overall(f, "ready", 1);
}

static json_t *ctl(struct fx *f, const char *args, int *rc)
{
    char line[600], text[65536];
    snprintf(line, sizeof line, "%s --run-dir %s --json %s 2>%s/ctl.err", getenv("VT_VITRIOLCTL"), f->run,
             args, f->root);
    FILE *p = popen(line, "r");
    assert_non_null(p);
    size_t n = fread(text, 1, sizeof text - 1, p);
    int st = pclose(p);
    *rc = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
    text[n] = '\0';
    return json_loads(text, 0, NULL);
}

static void expect_error(struct fx *f, const char *args, int code)
{
    int rc;
    json_t *v = ctl(f, args, &rc);
    const json_t *e = json_object_get(v, "error");
    assert_int_equal(rc, code);
    assert_int_equal(client_num(e, "exit"), code);
    assert_true(client_num(e, "code") > 0);
    assert_true(client_str(e, "text")[0] != '\0');
    json_decref(v);
}

static void test_vitriolctl(void **state)
{
    struct fx *f = *state;
    int rc;
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    json_t *v = ctl(f, "config show paths.run_dir", &rc);
    assert_int_equal(rc, 0);
    assert_int_equal(json_array_size(v), 1);
    assert_string_equal(client_str(json_array_get(v, 0), "value"), f->run);
    json_decref(v);
    v = ctl(f, "config show model.path", &rc);
    assert_string_equal(client_str(json_array_get(v, 0), "origin"), "chosen by vitriold");
    assert_true(client_str(json_array_get(v, 0), "value")[0] == '/');
    json_decref(v);
    expect_error(f, "config show engine.slotz", VT_EX_USAGE);
    expect_error(f, "checkpoint 99", VT_EX_USAGE);
    expect_error(f, "op 4711", VT_EX_NOINPUT);
    expect_error(f, "op x", VT_EX_USAGE);
    expect_error(f, "op 1x", VT_EX_USAGE);
    expect_error(f, "op", VT_EX_USAGE);
    expect_error(f, "slots --api-key-file /nonexistent", VT_EX_NOINPUT);
    v = ctl(f, "wait --ready", &rc);
    assert_int_equal(rc, 0);
    assert_string_equal(client_str(v, "state"), "ready");
    assert_int_equal(client_num(v, "pid"), f->pid);
    json_decref(v);
    expect_error(f, "statsu", VT_EX_USAGE);
    kill(f->pid, SIGSTOP);
    fx_nap(100);
    double t0 = fx_now();
    expect_error(f, "status", VT_EX_TEMPFAIL);
    assert_true(fx_now() - t0 < 15.0);
    kill(f->pid, SIGCONT);
    fx_wait_overall(f, "ready", 5);
    expect_error(f, "--run-dir /nonexistent status", VT_EX_UNAVAILABLE);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_life),       T(test_operations), T(test_second_instance),  T(test_shared_state),
        T(test_vitriolctl), T(test_port_taken), T(test_inherited_socket), T(test_killed_vitriold),
        T(test_notify),     T(test_deaf),       T(test_knocks),
    };
    return cmocka_run_group_tests_name("vitriold", tests, NULL, NULL);
}
