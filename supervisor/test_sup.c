/* The parts of vitriold that need no child: fingerprint, gates, readers, logs, environment, lock, requests on ctl. */
#include "child.h"
#include "childlog.h"
#include "ctl.h"
#include "duties.h"
#include "events.h"
#include "fingerprint.h"
#include "gate.h"
#include "links.h"
#include "mem_read.h"
#include "ops.h"
#include "routes.h"
#include "rundir.h"
#include "spawn.h"
#include "store_ask.h"

#include "sock_ctl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", text, part);
}

/* ---- fingerprint ---- */

static void fill(struct kv *effective, struct kv *facts)
{
    kv_set(effective, "engine.slots", "2");
    kv_set(effective, "engine.ctx_tokens", "4096");
    kv_set(effective, "engine.ubatch_tokens", "256");
    kv_set(effective, "model.path", "/somewhere/m.gguf");
    kv_set(facts, "model", "Lapis hybrid");
    kv_set(facts, "bytes", "11799296");
    kv_set(facts, "arch", "qwen35");
    kv_set(facts, "kv", "k:f16,v:f16");
    kv_set(facts, "plan_delta", "+1.2%");
}

static void test_fingerprint_golden(void **state)
{
    struct kv effective = {0}, facts = {0}, map = {0};
    char fp[FINGERPRINT_FP], line[FINGERPRINT_LINE];
    fill(&effective, &facts);
    struct fingerprint_in in = {.child = "engine0",
                                .build = "1.4.0+g1a2b3c4",
                                .profile = "default",
                                .boot_env = "4c7d",
                                .args = "91fe",
                                .gen = 7,
                                .effective = &effective,
                                .facts = &facts,
                                .pool_tokens = 8192,
                                .slots = 2,
                                .window = 4096,
                                .diff = "slots:3>2",
                                .bdiff = "none"};
    assert_int_equal(fingerprint_map(&in, &map), 0);
    assert_null(kv_get(&map, "model.path"));
    assert_null(kv_get(&map, "fact.plan_delta"));
    fingerprint_fp(&map, fp);
    fingerprint_line(&in, fp, line, sizeof line);
    char want[1024];
    snprintf(
        want, sizeof want,
        "VITRIOL-FINGERPRINT: v=1 fp=%s child=engine0 gen=7 build=1.4.0+g1a2b3c4 numerics=- profile=default "
        "blessed=none "
        "model=Lapis_hybrid sha=- bytes=11799296 arch=qwen35 kv=k:f16,v:f16 pool=8192 slots=2 window=4096 "
        "batch=256 "
        "ubatch=256 spec=none split=none gpus=none driver=none free=- plan_delta=+1.2%% env=4c7d args=91fe "
        "diff=slots:3>2 bdiff=none",
        fp);
    assert_string_equal(line, want);
    assert_string_equal(fp, "3cf584a126e5");
    kv_clear(&effective);
    kv_clear(&facts);
    kv_clear(&map);
}

/* Where and when it runs does not matter; every provenance-bearing key does. */
static void test_fingerprint_bears(void **state)
{
    struct kv effective = {0}, facts = {0}, map = {0};
    char base[FINGERPRINT_FP], fp[FINGERPRINT_FP];
    fill(&effective, &facts);
    struct fingerprint_in in = {.child = "engine0",
                                .build = "b",
                                .profile = "p",
                                .boot_env = "e",
                                .args = "a",
                                .gen = 1,
                                .effective = &effective,
                                .facts = &facts,
                                .diff = "none",
                                .bdiff = "none"};
    fingerprint_map(&in, &map);
    fingerprint_fp(&map, base);
    static const char *const same[] = {"model.path", "log.level", "engine.hang_budget_s", "http.listen",
                                       "paths.run_dir"};
    for (size_t i = 0; i < 5; i++) {
        kv_set(&effective, same[i], "changed");
        fingerprint_map(&in, &map);
        fingerprint_fp(&map, fp);
        assert_string_equal(fp, base);
    }
    static const char *const other[] = {"engine.slots", "engine.simd", "engine.threads"};
    for (size_t i = 0; i < 3; i++) {
        kv_set(&effective, other[i], "7");
        fingerprint_map(&in, &map);
        fingerprint_fp(&map, fp);
        assert_string_not_equal(fp, base);
        memcpy(base, fp, sizeof base);
    }
    in.boot_env = "f";
    fingerprint_map(&in, &map);
    fingerprint_fp(&map, fp);
    assert_string_not_equal(fp, base);
    kv_clear(&effective);
    kv_clear(&facts);
    kv_clear(&map);
}

static void test_fingerprint_diff(void **state)
{
    struct kv a = {0}, b = {0};
    char out[1024];
    fingerprint_diff(&a, &b, out, sizeof out);
    assert_string_equal(out, "none");
    kv_set(&a, "engine.slots", "3");
    kv_set(&b, "engine.slots", "2");
    kv_set(&a, "fact.kv", "v:f16");
    kv_set(&b, "fact.kv", "v:f16");
    kv_set(&b, "build", "two words");
    fingerprint_diff(&a, &b, out, sizeof out);
    assert_string_equal(out, "build:->two_words,slots:3>2");
    for (int i = 0; i < 20; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%02d", i);
        kv_set(&b, key, "x");
    }
    fingerprint_diff(&a, &b, out, sizeof out);
    has(out, "k08:->x");
    has(out, "\xe2\x80\xa6+10");
    kv_clear(&a);
    kv_clear(&b);
}

/* However long the values are, the line keeps its bound and has no blanks in values. */
static void test_fingerprint_bound(void **state)
{
    struct kv effective = {0}, facts = {0};
    char line[FINGERPRINT_LINE], big[2000];
    memset(big, ' ', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    kv_set(&facts, "model", big);
    struct fingerprint_in in = {.child = "e",
                                .build = "b",
                                .profile = "p",
                                .boot_env = "e",
                                .args = "a",
                                .effective = &effective,
                                .facts = &facts,
                                .diff = "none",
                                .bdiff = "none"};
    fingerprint_line(&in, "0", line, sizeof line);
    assert_int_equal(strlen(line), FINGERPRINT_LINE - 1);
    kv_clear(&facts);
}

/* ---- gates ---- */

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* L30: a reading of zero is a broken reader. */
static void test_meminfo(void **state)
{
    static const struct {
        const char *text;
        uint64_t want;
    } rows[] = {
        {"MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n", 600 * 1024},
        {"MemTotal:\t1000 kB\nMemAvailable:\t\t600 kB\n", 600 * 1024},
        {"MemAvailable: 600 kB\nMemTotal: 1000 kB\n", 600 * 1024},
        {"MemTotal:1000\nMemAvailable:600", 600 * 1024},
        {"MemTotal: 1000 kB\nMemAvailable: 0 kB\n", 0},
        {"MemTotal: 1000 kB\n", 0},
        {"MemAvailable: 600 kB\n", 0},
        {"MemTotal: 1000 kB\nMemAvailable: 1001 kB\n", 0},
        {"MemTotal: 1000 kB\nMemAvail", 0},
        {"MemTotal 1000\nMemAvailable 600\n", 0},
        {"", 0},
    };
    char dir[] = "/tmp/vt-mem-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_text(dir, "meminfo", rows[i].text);
        if (mem_read_available(dir) != rows[i].want)
            fail_msg("row %zu", i);
    }
    snprintf(path, sizeof path, "%s/meminfo", dir);
    unlink(path);
    assert_int_equal(mem_read_available(dir), 0);
    rmdir(dir);
}

static void test_memory_gate(void **state)
{
    struct vt_plan n = {.weights = 100 << 20, .kv = 20 << 20, .work = 8 << 20};
    struct vt_err err;
    assert_int_equal(gate_memory(&n, 128 << 20, &err), 0);
    assert_int_equal(gate_memory(&n, 0, &err), 0); /* no reading, no refusal */
    assert_int_equal(gate_memory(&n, 127 << 20, &err), -1);
    assert_int_equal(err.code, VT_E_MEM_PRESSURE);
    has(err.text, "100 MiB + KV cache 20 MiB + work space 8 MiB = 128 MiB, available 127 MiB");
}

static void test_payload_gate(void **state)
{
    struct sup *s = calloc(1, sizeof *s);
    struct vt_err err = {0};
    char dir[] = "/tmp/vt-gate-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    s->cfg = vt_config_new();
    vt_config_set(s->cfg, VT_L_CMDLINE, "model.path", path, "test", &err);
    assert_int_equal(gate_find_model(s, &err), -1);
    assert_int_equal(vt_err_exit(&err), VT_EX_NOINPUT);
    has(err.text, path);
    write_text(dir, "m.gguf", "GGUF\3");
    assert_int_equal(gate_find_model(s, &err), 0);
    assert_string_equal(s->model_name, "m");
    assert_int_equal(gate_engine(s, &err), -1);
    assert_int_equal(vt_err_exit(&err), VT_EX_PAYLOAD);
    has(err.text, "m.gguf");
    unlink(path);
    mkdir(path, 0700);
    assert_int_equal(gate_engine(s, &err), -1);
    assert_int_equal(vt_err_exit(&err), VT_EX_PAYLOAD);
    rmdir(path);
    rmdir(dir);
    vt_config_free(s->cfg);
    free(s);
}

/* ---- logs and environment ---- */

static void test_childlog(void **state)
{
    struct childlog l;
    int p[2];
    char out[4096];
    assert_int_equal(childlog_init(&l), 0);
    assert_int_equal(pipe2(p, O_NONBLOCK | O_CLOEXEC), 0);
    l.fd = p[0];
    for (int i = 0; i < 300; i++)
        dprintf(p[1], "engine0: warning: line %d\n", i);
    assert_int_equal(childlog_read(&l, NULL, "engine0", 5000000), 0);
    assert_int_equal(l.n, 300);
    assert_int_equal(l.suppressed, 300 - CHILDLOG_RATE);
    childlog_tail(&l, 2, out, sizeof out);
    assert_string_equal(out, "engine0: warning: line 298\nengine0: warning: line 299\n");
    memset(out, 'x', sizeof out);
    assert_int_equal(write(p[1], out, sizeof out), sizeof out); /* one endless line is cut, not split */
    dprintf(p[1], "\nlast words");
    close(p[1]);
    assert_int_equal(childlog_read(&l, NULL, "engine0", 6000000), 1);
    assert_int_equal(l.n, 302);
    childlog_tail(&l, 1, out, sizeof out);
    assert_string_equal(out, "last words\n");
    assert_true(childlog_tail(&l, CHILDLOG_LINES, out, 64) < 64);
    childlog_fini(&l);
}

static void test_environment(void **state)
{
    char *from[] = {"PATH=/bin",   "SECRET=1",          "HOST=h", "LD_PRELOAD=x", "LANG=C",
                    "PATHOLOGY=1", "VITRIOL_MODELS=/m", NULL};
    struct spawn_env e;
    char a[5], b[5];
    assert_int_equal(spawn_env_make(&e, from, "0123", "/run/v", "engine0", 7), 0);
    static const char *const want[] = {"LANG=C",
                                       "PATH=/bin",
                                       "VITRIOL_CHILD=engine0",
                                       "VITRIOL_GEN=7",
                                       "VITRIOL_INSTANCE=0123",
                                       "VITRIOL_RUN_DIR=/run/v"};
    assert_int_equal(e.n, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(e.envp[i], want[i]);
    assert_null(e.envp[6]);
    spawn_env_hash(&e, a);
    spawn_env_free(&e);
    spawn_env_make(&e, from, "4567", "/run/w", "engine0", 8);
    spawn_env_hash(&e, b);
    assert_string_equal(a, b);
    spawn_env_free(&e);
    from[0] = "PATH=/usr/bin";
    from[4] = "LANG=D";
    spawn_env_make(&e, from, "4567", "/run/w", "engine0", 8);
    spawn_env_hash(&e, b);
    assert_string_equal(a, b); /* nothing that a child reads */
    spawn_env_free(&e);
    from[5] = "TZ=Asia/Tokyo";
    spawn_env_make(&e, from, "4567", "/run/w", "engine0", 8);
    spawn_env_hash(&e, b);
    assert_string_not_equal(a, b);
    spawn_env_free(&e);
}

static void test_spawn_failure(void **state)
{
    char path[] = "/tmp/vt-spawn-XXXXXX";
    struct vt_err err;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "no program", 10), 10);
    fchmod(fd, 0755);
    close(fd);
    int exe = spawn_open(path, &err), p[2], q[2], pidfd;
    pid_t pid;
    assert_true(exe >= 0);
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(pipe2(q, O_CLOEXEC), 0);
    const char *argv[] = {path, NULL}, *envp[] = {NULL};
    struct spawn_req r = {
        .exe_fd = exe, .argv = argv, .envp = envp, .log_fd = p[1], .nonce_fd = q[0], .death_signal = 9};
    assert_int_equal(spawn(&r, &pid, &pidfd, &err), -1);
    has(err.text, "exec: Exec format error");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing is left to reap */
    chmod(path, 0644);
    assert_int_equal(spawn_open(path, &err), geteuid() == 0 ? -1 : -1);
    unlink(path);
    assert_int_equal(spawn_open(path, &err), -1);
    assert_int_equal(err.code, VT_E_NO_INPUT);
    close(exe);
    for (int i = 0; i < 2; i++) {
        close(p[i]);
        close(q[i]);
    }
}

/* A kill that was sent is a death, whether or not the kernel has come to it. */
static void test_dying(void **state)
{
    struct sup s = {.cfg = vt_config_new()};
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            for (;;)
                pause();
        }
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        struct child c = {.sup = &s, .pid = pid, .pidfd = fd};
        assert_false(child_dying(&c));
        kill(pid, SIGSTOP);
        assert_false(child_dying(&c));
        kill(pid, SIGKILL);
        assert_true(child_dying(&c));
        waitpid(pid, NULL, 0);
        assert_true(child_dying(&c));
        close(fd);
    }
    vt_config_free(s.cfg);
}

/* ---- run directory ---- */

static void test_rundir(void **state)
{
    char root[] = "/tmp/vt-run-XXXXXX", run[64], path[128];
    struct vt_config *cfg = vt_config_new();
    struct vt_err err;
    struct rundir d;
    struct stat st;
    uint32_t a, b;
    assert_non_null(mkdtemp(root));
    snprintf(run, sizeof run, "%s/deep/r", root);
    vt_config_set(cfg, VT_L_CMDLINE, "paths.run_dir", run, "test", &err);
    snprintf(path, sizeof path, "%s/s", root);
    vt_config_set(cfg, VT_L_CMDLINE, "paths.state_dir", path, "test", &err);
    assert_int_equal(rundir_resolve(&d, cfg, &err), 0);
    assert_int_equal(rundir_make(&d, geteuid(), getegid(), &err), 0);
    assert_int_equal(stat(d.run, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0750);
    assert_int_equal(stat(d.in, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(rundir_holder(run), 0);
    assert_int_equal(rundir_lock(&d, &err), 0);
    pid_t child = fork();
    if (child == 0) { /* another process sees the holder, and cannot have the lock */
        struct rundir other = d;
        bool ok =
            rundir_holder(run) == getppid() && rundir_lock(&other, &err) < 0 && err.code == VT_E_UNAVAILABLE;
        _exit(ok ? 0 : 1);
    }
    int rc;
    waitpid(child, &rc, 0);
    assert_int_equal(rc, 0);
    assert_int_equal(rundir_link_block(&d, &a, &err), 0);
    assert_int_equal(rundir_link_block(&d, &b, &err), 0);
    assert_true(b > a);
    snprintf(path, sizeof path, "%s/l.engine0.1", d.in);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(rundir_clean(&d, &err), 0);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(rundir_keep(&d, &err), 1);
    unlink(d.lock);
    assert_int_equal(rundir_keep(&d, &err), 0);
    assert_int_equal(rundir_keep(&d, &err), 1);
    snprintf(path, sizeof path, "rm -rf %s", root);
    assert_int_equal(system(path), 0);
    vt_config_free(cfg);
    /* too long for a socket */
    cfg = vt_config_new();
    memset(path, 'x', 100);
    path[0] = '/';
    path[100] = '\0';
    vt_config_set(cfg, VT_L_CMDLINE, "paths.run_dir", path, "test", &err);
    assert_int_equal(rundir_resolve(&d, cfg, &err), -1);
    has(err.text, "107 at most");
    vt_config_free(cfg);
}

/* ---- keep-alive ---- */

static bool pinged(int fd)
{
    char buf[512];
    bool ping = false;
    ssize_t n;
    while ((n = recv(fd, buf, sizeof buf - 1, MSG_DONTWAIT)) > 0) {
        buf[n] = '\0';
        ping = ping || strstr(buf, "WATCHDOG=1") != NULL;
    }
    return ping;
}

/* L7: the ping is earned. One duty that stalls stops it, whichever it is, and is named. */
static void test_watchdog(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char dir[] = "/tmp/vt-dog-XXXXXX";
    struct vt_fake_time t = {.mono = VT_SEC(100)};
    struct vt_err err;
    assert_non_null(mkdtemp(dir));
    snprintf(a.sun_path, sizeof a.sun_path, "%s/n", dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    setenv("NOTIFY_SOCKET", a.sun_path, 1);
    setenv("WATCHDOG_USEC", "20000000", 1);
    struct sup *s = calloc(1, sizeof *s);
    s->cfg = vt_config_new();
    s->clock = vt_clock_fake(&t);
    assert_int_equal(duties_open(s, &err), 0);
    for (int stalled = DUTY_MEMORY; stalled <= DUTY_TELE; stalled++) {
        int pings = 0, late = 0;
        for (int second = 0; second < 60; second++) {
            t.mono += VT_SEC(1);
            for (int d = DUTY_MEMORY; d < DUTY_COUNT; d++) {
                if (d != stalled || second < 30)
                    duty_done(s, (enum duty)d);
            }
            duties_tick(s);
            bool ping = pinged(fd);
            pings += ping;
            late += ping && second > 42;
        }
        assert_in_range(pings, 5, 12);
        assert_int_equal(late, 0);
        assert_string_equal(duties_overdue(s), duty_name((enum duty)stalled));
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    duties_close(s);
    vt_config_free(s->cfg);
    free(s);
    close(fd);
    unlink(a.sun_path);
    rmdir(dir);
}

/* ---- requests ---- */

struct answer {
    struct sup *s;
    struct vt_fake_time t;
    struct vt_enc req, rep;
};

static void open_answer(struct answer *a)
{
    struct vt_err err;
    memset(a, 0, sizeof *a);
    a->t.mono = 1000000;
    a->s = calloc(1, sizeof *a->s);
    a->s->cfg = vt_config_new();
    a->s->clock = vt_clock_fake(&a->t);
    a->s->events = events_new();
    vt_enc_init(&a->req);
    vt_enc_init(&a->rep);
    assert_true(sd_event_new(&a->s->ev) >= 0);
    assert_int_equal(ctl_new(a->s, &err), 0);
    assert_int_equal(ops_open(a->s, &err), 0);
    assert_int_equal(links_open(a->s, &err), 0);
    assert_int_equal(routes_open(a->s, &err), 0);
    assert_int_equal(duties_open(a->s, &err), 0);
}

static void close_answer(struct answer *a)
{
    ctl_close(a->s);
    store_ask_close(a->s);
    ops_close(a->s);
    links_close(a->s);
    routes_close(a->s);
    duties_close(a->s);
    events_free(a->s->events);
    vt_config_free(a->s->cfg);
    sd_event_unref(a->s->ev);
    vt_enc_fini(&a->req);
    vt_enc_fini(&a->rep);
    free(a->s);
}

/* The reply's code; 0 for ok. */
static int ask(struct answer *a, const uint8_t *buf, size_t len, uid_t uid)
{
    struct ctl_caller who = {.uid = uid};
    struct vt_frame f;
    struct vt_err err;
    ctl_answer(a->s, buf, len, &who, &a->rep);
    assert_int_equal(vt_enc_end(&a->rep, &err), 0);
    assert_int_equal(vt_frame_open(&f, a->rep.buf, a->rep.len, 1 << 20, &err), 0);
    assert_int_equal(f.type, VT_F_CTL_REP);
    bool ok = vt_frame_u64(&f, VT_CTL_REP_OK, 0) != 0;
    int code = (int)vt_frame_u64(&f, VT_KEY_CODE, 0);
    assert_int_equal(ok, code == 0);
    vt_frame_close(&f);
    return code;
}

static void request(struct answer *a, const char *verb)
{
    static const uint8_t nonce[16] = {1};
    vt_enc_begin(&a->req, VT_F_CTL_REQ, 1, 0);
    vt_enc_str(&a->req, VT_CTL_REQ_VERB, verb);
    vt_enc_bin(&a->req, VT_CTL_REQ_NONCE, nonce, sizeof nonce);
    assert_int_equal(vt_enc_end(&a->req, NULL), 0);
}

static void test_ctl(void **state)
{
    static const char *const reads[] = {"ping",         "status",      "health",      "routes",
                                        "events.since", "fingerprint", "config.show", "version"};
    static const char *const store[] = {"store.list", "store.verify"};
    static const char *const acts[] = {"bounce", "drain", "export", "start", "stop", "reset"};
    struct answer a;
    open_answer(&a);
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        request(&a, reads[i]);
        assert_int_equal(ask(&a, a.req.buf, a.req.len, 65534), 0);
    }
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        request(&a, acts[i]);
        assert_int_equal(ask(&a, a.req.buf, a.req.len, 65534), VT_E_PERM);
        assert_int_equal(ask(&a, a.req.buf, a.req.len, 0), VT_E_NO_ENGINE);
    }
    for (size_t i = 0; i < sizeof store / sizeof store[0]; i++) {
        request(&a, store[i]);
        assert_int_equal(ask(&a, a.req.buf, a.req.len, 65534), i == 0 ? VT_E_UNAVAILABLE : VT_E_PERM);
        assert_int_equal(ask(&a, a.req.buf, a.req.len, 0), VT_E_UNAVAILABLE);
    }
    request(&a, "store.forget");
    assert_int_equal(ask(&a, a.req.buf, a.req.len, 65534), VT_E_PERM);
    assert_int_equal(ask(&a, a.req.buf, a.req.len, 0), VT_E_PARAM); /* whose? */
    request(&a, "store.result");
    assert_int_equal(ask(&a, a.req.buf, a.req.len, 65534), VT_E_NOT_FOUND);
    request(&a, "op.status");
    assert_int_equal(ask(&a, a.req.buf, a.req.len, 0), VT_E_NOT_FOUND);
    request(&a, "statsu");
    assert_int_equal(ask(&a, a.req.buf, a.req.len, 0), VT_E_UNKNOWN);
    close_answer(&a);
}

/* ---- what the store is asked ---- */

static void say(struct answer *a, uint64_t op, bool ok, unsigned rows)
{
    struct vt_frame f;
    struct vt_err err;
    vt_enc_begin(&a->req, VT_F_STORE_SAID, op, 0);
    vt_enc_u64(&a->req, VT_STORE_SAID_VERB, STORE_LIST);
    vt_enc_u64(&a->req, VT_STORE_SAID_OK, ok);
    if (ok)
        vt_enc_array(&a->req, VT_STORE_SAID_LIST, rows);
    for (unsigned i = 0; ok && i < rows; i++) {
        vt_enc_put_array(&a->req, i == 7 ? 2 : 6); /* one is cut short */
        vt_enc_put_str(&a->req, "t");
        vt_enc_put_u64(&a->req, i);
        for (unsigned k = 2; i != 7 && k < 6; k++)
            vt_enc_put_u64(&a->req, k); /* the slot file is a number: it is read as none */
    }
    if (!ok) {
        vt_fail(&err, VT_E_CORRUPT, "no");
        vt_enc_err(&a->req, &err);
    }
    assert_int_equal(vt_enc_end(&a->req, &err), 0);
    assert_int_equal(vt_frame_open(&f, a->req.buf, a->req.len, 1 << 20, &err), 0);
    store_ask_said(a->s, &f);
    vt_frame_close(&f);
}

/* The result's rows from there on; -code when it is an error. */
static int rows_from(struct answer *a, uint64_t op, uint64_t from)
{
    struct vt_frame f;
    struct vt_err err;
    vt_enc_begin(&a->rep, VT_F_CTL_REP, 1, 0);
    vt_enc_u64(&a->rep, VT_CTL_REP_OK, 1);
    if (store_ask_result(a->s, op, from, &a->rep, &err) < 0)
        return -err.code;
    assert_int_equal(vt_enc_end(&a->rep, &err), 0);
    assert_true(a->rep.len < VT_CTL_MAX_FRAME);
    assert_int_equal(vt_frame_open(&f, a->rep.buf, a->rep.len, 1 << 20, &err), 0);
    const msgpack_object *list = vt_map_get_str(vt_frame_map(&f, VT_CTL_REP_RESULT), "checkpoints");
    int n = (int)list->via.array.size;
    vt_frame_close(&f);
    return n;
}

/* n frames: NNG 1.5.2 may wait for ever in closing a socket that is still being connected, or has frames unread. */
static void read_all(struct vt_sock *s, int n)
{
    uint8_t *buf;
    size_t len;
    for (int i = 0; n > 0 && i < 5000; i++) {
        if (vt_sock_recv(s, &buf, &len) == 1) {
            vt_sock_msg_free(buf, len);
            n--;
        } else {
            usleep(1000);
        }
    }
    assert_int_equal(n, 0);
}

static void test_store_asked(void **state)
{
    struct answer a;
    struct vt_err err;
    open_answer(&a);
    struct child *store = &a.s->child[a.s->n_children++];
    store->sup = a.s;
    store->role = ROLE_STORE;
    strcpy(store->name, "store");
    vt_enc_init(&store->enc);
    store->state = VT_CHILD_BACKOFF;
    assert_int_equal(store_ask(a.s, STORE_LIST, "", -1, &err), 0);
    assert_int_equal(err.code, VT_E_UNAVAILABLE);
    store->state = VT_CHILD_READY;
    uint64_t op = store_ask(a.s, STORE_LIST, "", -1, &err);
    assert_int_equal(rows_from(&a, op, 0), -VT_E_UNAVAILABLE); /* it has no lifeline: known at once */

    char path[] = "/tmp/vtasked-XXXXXX", sock[64];
    struct vt_sock *far = NULL;
    struct vt_sock_opts o = {.max_frame = 1 << 20, .queue = 64, .peer_uid = geteuid()};
    assert_non_null(mkdtemp(path));
    snprintf(sock, sizeof sock, "%s/l", path);
    assert_int_equal(vt_sock_listen(&store->life, sock, &o, &err), 0);
    assert_int_equal(vt_sock_dial(&far, sock, &o, &err), 0);
    store->welcomed = true;

    op = store_ask(a.s, STORE_LIST, "", -1, &err);
    assert_int_equal(rows_from(&a, op, 0), -VT_E_BUSY);
    say(&a, op + 1, true, 3); /* of something else */
    assert_int_equal(rows_from(&a, op, 0), -VT_E_BUSY);
    say(&a, op, true, 450);
    say(&a, op, true, 3); /* twice */
    assert_int_equal(rows_from(&a, op, 0), 200);
    assert_int_equal(rows_from(&a, op, 200), 200);
    assert_int_equal(rows_from(&a, op, 400), 49);
    assert_int_equal(rows_from(&a, op, 449), 0);
    assert_int_equal(rows_from(&a, op, UINT64_MAX), 0);

    uint64_t refused = store_ask(a.s, STORE_FORGET, "t", 0, &err);
    say(&a, refused, false, 0);
    assert_int_equal(rows_from(&a, refused, 0), -VT_E_CORRUPT);
    uint64_t late = store_ask(a.s, STORE_LIST, "t", -1, &err);
    a.t.mono += VT_SEC(11);
    ops_tick(a.s);
    assert_int_equal(rows_from(&a, late, 0), -VT_E_DEADLINE);
    say(&a, late, true, 3); /* comes after all */
    assert_int_equal(rows_from(&a, late, 0), -VT_E_DEADLINE);
    uint64_t orphan = store_ask(a.s, STORE_VERIFY, "", -1, &err);
    ops_child_gone(a.s, store);
    assert_int_equal(rows_from(&a, orphan, 0), -VT_E_UNAVAILABLE);
    for (int i = 0; i < 20; i++)
        say(&a, store_ask(a.s, STORE_LIST, "", -1, &err), true, 9);
    assert_int_equal(rows_from(&a, op, 0), -VT_E_NOT_FOUND); /* its place was needed */
    read_all(far, 24);
    vt_sock_close(store->life);
    vt_sock_close(far);
    store->life = NULL;
    vt_enc_fini(&store->enc);
    unlink(sock);
    rmdir(path);
    close_answer(&a);
}

static void test_ctl_hostile(void **state)
{
    struct answer a;
    open_answer(&a);
    request(&a, "status");
    uint8_t copy[256];
    size_t n = a.req.len;
    memcpy(copy, a.req.buf, n);
    for (size_t cut = 0; cut < n; cut++) {
        a.t.mono += 1000000;
        assert_int_not_equal(ask(&a, copy, cut, 0), 0);
    }
    for (size_t i = 0; i < n * 8; i++) {
        a.t.mono += 1000000;
        copy[i / 8] ^= (uint8_t)(1u << i % 8);
        ask(&a, copy, n, 0);
        copy[i / 8] ^= (uint8_t)(1u << i % 8);
    }
    close_answer(&a);
}

static void test_ctl_rate(void **state)
{
    struct answer a;
    int refused = 0;
    open_answer(&a);
    request(&a, "ping");
    for (int i = 0; i < 80; i++)
        refused += ask(&a, a.req.buf, a.req.len, 1000) == VT_E_LIMIT;
    assert_int_equal(refused, 30);
    assert_int_equal(ask(&a, a.req.buf, a.req.len, 1001), 0); /* another user is not to blame */
    a.t.mono += 1000000;
    assert_int_equal(ask(&a, a.req.buf, a.req.len, 1000), 0);
    close_answer(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fingerprint_golden),
        cmocka_unit_test(test_fingerprint_bears),
        cmocka_unit_test(test_fingerprint_diff),
        cmocka_unit_test(test_fingerprint_bound),
        cmocka_unit_test(test_meminfo),
        cmocka_unit_test(test_memory_gate),
        cmocka_unit_test(test_payload_gate),
        cmocka_unit_test(test_childlog),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_spawn_failure),
        cmocka_unit_test(test_dying),
        cmocka_unit_test(test_rundir),
        cmocka_unit_test(test_watchdog),
        cmocka_unit_test(test_ctl),
        cmocka_unit_test(test_store_asked),
        cmocka_unit_test(test_ctl_hostile),
        cmocka_unit_test(test_ctl_rate),
    };
    return cmocka_run_group_tests_name("sup", tests, NULL, NULL);
}
