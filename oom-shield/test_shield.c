/* Shield: exclusions one by one; a made-up /proc in which marks are files; journal and undo. */
#include "shield.h"

#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1024ull * 1024)

/* ---- rules ---- */

static struct rules rules(void)
{
    return (struct rules){.uid = 1000,
                          .own = 50,
                          .floor = 300,
                          .min_bytes = 64 * MIB,
                          .own_dir = "/usr/libexec/vitriol",
                          .own_cgroup = "/user.slice/u/vitriold.service"};
}

static struct task big(const char *exe)
{
    struct task t = {.pid = 999,
                     .ppid = 2,
                     .uid = 1000,
                     .one_uid = true,
                     .bytes = 500 * MIB,
                     .comm = "whatever",
                     .cgroup = "/user.slice/u/app.slice/app-x.scope"};
    snprintf(t.exe, sizeof t.exe, "%s", exe);
    return t;
}

static enum verdict judged(const struct task *t)
{
    struct rules r = rules();
    return rules_judge(&r, t, false);
}

static void exclusions(void **state)
{
    struct task t = big("/usr/bin/firefox");
    struct rules r = rules();
    assert_int_equal(judged(&t), MAY_MARK);
    t.uid = 1001;
    assert_int_equal(judged(&t), KEEP_INIT);
    t = big("/usr/bin/x");
    t.one_uid = false; /* set-uid: partly somebody else's */
    assert_int_equal(judged(&t), KEEP_INIT);
    t = big("/usr/bin/x");
    t.pid = 1;
    assert_int_equal(judged(&t), KEEP_INIT);
    t = big("");
    t.kernel = true;
    assert_int_equal(judged(&t), KEEP_INIT);
    t = big("/usr/bin/x");
    assert_int_equal(rules_judge(&r, &t, true), KEEP_OWN);
    t = big("/usr/libexec/vitriol/vitriol-engine");
    assert_int_equal(judged(&t), KEEP_OWN);
    t = big("/usr/bin/x");
    snprintf(t.cgroup, sizeof t.cgroup, "/user.slice/u/vitriold.service/engine0");
    assert_int_equal(judged(&t), KEEP_OWN);
    snprintf(t.cgroup, sizeof t.cgroup, "/user.slice/u/vitriold.services");
    assert_int_equal(judged(&t), MAY_MARK);
    t.adj = -1;
    assert_int_equal(judged(&t), KEEP_PROTECTED);
    t = big("/usr/bin/x");
    t.tracer = 7;
    assert_int_equal(judged(&t), KEEP_DEBUG);
    t = big("/usr/bin/x");
    t.fuse = true;
    assert_int_equal(judged(&t), KEEP_STORAGE);
    t = big("/usr/bin/x");
    t.bytes = 64 * MIB - 1;
    assert_int_equal(judged(&t), KEEP_SMALL);
    t = big("/usr/bin/x");
    t.adj = 300;
    assert_int_equal(judged(&t), KEEP_AT_FLOOR);
    t.adj = 299;
    assert_int_equal(judged(&t), MAY_MARK);
    t.adj = 900;
    assert_int_equal(judged(&t), KEEP_AT_FLOOR);
}

static void programs(void **state)
{
    static const struct {
        const char *exe;
        enum verdict v;
    } rows[] = {{"/usr/sbin/sshd", KEEP_LOGIN},
                {"/usr/lib/systemd/systemd", KEEP_LOGIN},
                {"/usr/bin/tmux", KEEP_LOGIN},
                {"/usr/bin/dbus-daemon", KEEP_LOGIN},
                {"/usr/lib/xorg/Xorg", KEEP_DISPLAY},
                {"/usr/bin/kwin_wayland", KEEP_DISPLAY},
                {"/usr/bin/pipewire", KEEP_DISPLAY},
                {"/usr/bin/gnome-session-binary", KEEP_DISPLAY},
                {"/usr/bin/sshfs", KEEP_STORAGE},
                {"/usr/bin/apt-get", KEEP_STORAGE},
                {"/usr/bin/gdb", KEEP_DEBUG},
                {"/usr/bin/tmuxinator", MAY_MARK}, /* exactly, not the beginning of a name */
                {"/usr/bin/Xfoo", MAY_MARK},
                {"/home/u/sshd.py", MAY_MARK}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct task t = big(rows[i].exe);
        if (judged(&t) != rows[i].v)
            fail_msg("%s: %s", rows[i].exe, verdict_name(judged(&t)));
    }
    struct task t = big("/usr/bin/x");
    snprintf(t.comm, sizeof t.comm, "sshd"); /* a name that it gives itself counts only without a file */
    assert_int_equal(judged(&t), MAY_MARK);
    t.exe[0] = '\0';
    assert_int_equal(judged(&t), KEEP_LOGIN);
    t = big("/opt/own-bus");
    snprintf(t.cgroup, sizeof t.cgroup, "/user.slice/u/dbus.service");
    assert_int_equal(judged(&t), KEEP_LOGIN);
}

static void kept_by_the_user(void **state)
{
    struct rules r = rules();
    char bad[64];
    struct stat st;
    struct task t = big("/bin/sh");
    assert_int_equal(rules_keep(&r, " precious, unit:backup.service /bin/sh", bad, sizeof bad), 0);
    assert_int_equal(r.n_keep, 3);
    stat("/bin/sh", &st);
    t.exe_dev = st.st_dev;
    t.exe_ino = st.st_ino;
    assert_int_equal(rules_judge(&r, &t, false), KEEP_LISTED);
    t = big("/usr/bin/x");
    assert_int_equal(rules_judge(&r, &t, false), MAY_MARK);
    snprintf(t.cgroup, sizeof t.cgroup, "/user.slice/backup.service/x");
    assert_int_equal(rules_judge(&r, &t, false), KEEP_LISTED);
    t = big("/usr/bin/x");
    snprintf(t.comm, sizeof t.comm, "precious");
    assert_int_equal(rules_judge(&r, &t, false), KEEP_LISTED);
    snprintf(t.comm, sizeof t.comm, "precious2");
    assert_int_equal(rules_judge(&r, &t, false), MAY_MARK);
    static const char *const wrong[] = {"a/b", "unit:", "/no/such/file", "ok unit:a/b"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(rules_keep(&r, wrong[i], bad, sizeof bad), -1);
        assert_true(bad[0] != '\0');
    }
}

/* ---- a world ---- */

struct world {
    char dir[64], proc[80];
};

static void put(const struct world *w, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", w->proc, name);
    for (char *p = path + strlen(w->dir) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(path, 0755);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void process(const struct world *w, int pid, int ppid, const char *comm, int adj, unsigned mib,
                    unsigned long start)
{
    char name[64], text[512];
    snprintf(name, sizeof name, "%d/stat", pid);
    snprintf(text, sizeof text, "%d (%s) S %d 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %lu 1 1\n", pid, comm,
             ppid, start);
    put(w, name, text);
    snprintf(name, sizeof name, "%d/status", pid);
    snprintf(text, sizeof text, "Name:\t%s\nTracerPid:\t0\nUid:\t%u\t%u\t%u\t%u\nVmRSS:\t%u kB\n", comm,
             getuid(), getuid(), getuid(), getuid(), mib * 1024);
    put(w, name, text);
    snprintf(name, sizeof name, "%d/oom_score_adj", pid);
    snprintf(text, sizeof text, "%d\n", adj);
    put(w, name, text);
}

static int adj_of(const struct world *w, int pid)
{
    int adj = -9999, dir = task_open(w->proc, pid);
    assert_true(dir >= 0 && task_adj(dir, &adj));
    close(dir);
    return adj;
}

static int make_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    snprintf(w->dir, sizeof w->dir, "/tmp/vt-shield-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->proc, sizeof w->proc, "%s/proc", w->dir);
    put(w, "sys/kernel/random/boot_id", "11111111-2222\n");
    process(w, 10, 1, "shell", 0, 100, 5); /* started vitriold */
    process(w, 50, 10, "vitriold", 0, 100, 6);
    process(w, 51, 50, "child) R (of it", 0, 100, 7);
    process(w, 60, 10, "browser", 0, 900, 8);
    process(w, 61, 60, "tab", 100, 300, 9);
    process(w, 62, 10, "tiny", 0, 3, 9);
    process(w, 63, 10, "high", 700, 300, 9);
    process(w, 64, 10, "guarded", -500, 300, 9);
    *state = w;
    return 0;
}

static int gone(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static int end_world(void **state)
{
    struct world *w = *state;
    nftw(w->dir, gone, 8, FTW_DEPTH | FTW_PHYS);
    free(w);
    return 0;
}

static struct shield opened(const struct world *w)
{
    struct shield s = {.rules = {.uid = getuid(), .own = 50, .floor = 300, .min_bytes = 64 * MIB}};
    struct vt_err err;
    assert_int_equal(shield_open(&s, w->dir, w->proc, true, &err), 0);
    return s;
}

static void scan(struct shield *s)
{
    struct vt_err err;
    assert_int_equal(shield_scan(s, true, NULL, NULL, &err), 0);
}

static void marks_and_takes_back(void **state)
{
    struct world *w = *state;
    struct shield s = opened(w);
    scan(&s);
    assert_int_equal(adj_of(w, 60), 300);
    assert_int_equal(adj_of(w, 61), 300);
    static const int same[][2] = {{10, 0}, {50, 0}, {51, 0}, {62, 0}, {63, 700}, {64, -500}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_int_equal(adj_of(w, same[i][0]), same[i][1]);
    assert_int_equal(shield_marked(&s), 2);
    assert_int_equal(s.by[KEEP_OWN], 3);
    assert_int_equal(s.by[KEEP_PROTECTED], 1);
    scan(&s); /* a floor, not an increment */
    assert_int_equal(adj_of(w, 60), 300);
    assert_int_equal(shield_marked(&s), 2);
    shield_undo(&s);
    assert_int_equal(adj_of(w, 60), 0);
    assert_int_equal(adj_of(w, 61), 100);
    assert_int_equal(adj_of(w, 63), 700);
    assert_int_equal(s.restored, 2);
    assert_int_equal(shield_marked(&s), 0);
    shield_close(&s);
}

/* SIGKILL at any time: who comes next takes over, and takes back. */
static void another_takes_over(void **state)
{
    struct world *w = *state;
    struct shield s = opened(w);
    scan(&s);
    shield_close(&s);
    put(w, "../shield.journal.tail", ""); /* anything else in the folder does not matter */
    s = opened(w);
    assert_int_equal(shield_marked(&s), 2);
    scan(&s);
    assert_int_equal(shield_marked(&s), 2);
    shield_close(&s);
    process(w, 61, 60, "another", 300, 300, 77); /* the number belongs to somebody else now */
    s = opened(w);
    shield_undo(&s);
    assert_int_equal(adj_of(w, 60), 0);
    assert_int_equal(adj_of(w, 61), 300);
    shield_close(&s);
    s = opened(w);
    assert_int_equal(shield_marked(&s), 0);
    shield_close(&s);
}

static char *journal_text(const struct world *w, char *text, size_t size)
{
    char path[80];
    snprintf(path, sizeof path, "%s/shield.journal", w->dir);
    FILE *f = fopen(path, "r");
    text[f ? fread(text, 1, size - 1, f) : 0] = '\0';
    if (f)
        fclose(f);
    return text;
}

/* Neither an heir that it finds nor a process that has ended changes a byte, and no lock is needed. */
static void a_look_writes_nothing(void **state)
{
    struct world *w = *state;
    struct vt_err err;
    char before[512], after[512];
    struct shield s = opened(w), looker = s;
    scan(&s);
    process(w, 61, 60, "another", 300, 300, 77);
    process(w, 71, 60, "born later", 300, 2, 1ul << 40);
    journal_text(w, before, sizeof before);
    assert_int_equal(shield_open(&looker, w->dir, w->proc, false, &err), 0);
    assert_int_equal(shield_scan(&looker, false, NULL, NULL, &err), 0);
    assert_int_equal(shield_marked(&looker), 2); /* 60 and its heir */
    shield_close(&looker);
    assert_true(before[0] != '\0');
    assert_string_equal(journal_text(w, after, sizeof after), before);
    assert_int_equal(shield_open(&looker, w->dir, w->proc, true, &err), -1);
    assert_int_equal(err.code, VT_E_BUSY);
    shield_close(&s);
}

/* A full disk may take half a line: it is cut off again, and nobody is marked who is not written down. */
static void half_an_entry_is_cut_off(void **state)
{
    struct world *w = *state;
    struct vt_err err;
    char text[512];
    struct shield s = opened(w);
    struct mark m = {60, 8, 0, 300, 9};
    struct rlimit was, tight;
    assert_int_equal(journal_add(&s.journal, &m, &err), 0);
    size_t whole = strlen(journal_text(w, text, sizeof text));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    tight = (struct rlimit){whole + 5, was.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    int rc = shield_scan(&s, true, NULL, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(rc, -1);
    assert_int_equal(strlen(journal_text(w, text, sizeof text)), whole);
    assert_int_equal(adj_of(w, 61), 100);
    scan(&s);
    shield_undo(&s);
    assert_int_equal(adj_of(w, 61), 100);
    shield_close(&s);
}

static void changed_meanwhile(void **state)
{
    struct world *w = *state;
    struct shield s = opened(w);
    scan(&s);
    put(w, "60/oom_score_adj", "555\n"); /* somebody else's decision */
    put(w, "61/oom_score_adj", "0\n");
    scan(&s);
    assert_int_equal(adj_of(w, 61), 0); /* lowered again: not fought over */
    shield_undo(&s);
    assert_int_equal(adj_of(w, 60), 555);
    assert_int_equal(adj_of(w, 61), 0);
    shield_close(&s);
}

static void heirs(void **state)
{
    struct world *w = *state;
    struct shield s = opened(w);
    process(w, 70, 60, "always 300", 300, 100, 8); /* was so before its parent was marked */
    scan(&s);
    process(w, 71, 60, "born later", 300, 2, 1ul << 40);
    shield_undo(&s);
    assert_int_equal(adj_of(w, 70), 300);
    assert_int_equal(adj_of(w, 71), 0);
    shield_close(&s);
}

static void stands_down(void **state)
{
    struct world *w = *state;
    struct shield s = opened(w);
    s.scope_cgroup = true;
    scan(&s);
    assert_int_equal(adj_of(w, 60), 0);
    assert_int_equal(shield_marked(&s), 0);
    shield_close(&s);
}

static void hostile_journals(void **state)
{
    static const char *const rows[] = {"",
                                       "\n",
                                       "60 8 0 300 1 11111111-2222",
                                       "60 8 0 300 1 other-boot\n",
                                       "1 0 0 300 1 11111111-2222\n",
                                       "60 8 300 0 1 11111111-2222\n",
                                       "-60 8 0 300 1 11111111-2222\n",
                                       "60 8 -5000 300 1 11111111-2222\n",
                                       "a b c d e f\n",
                                       "60 99999999999999999999999999 0 300 1 11111111-2222\n"};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put(w, "60/oom_score_adj", "300\n");
        put(w, "../shield.journal", rows[i]);
        struct shield s = opened(w);
        shield_undo(&s);
        if (adj_of(w, 60) != 300)
            fail_msg("row %zu was believed", i);
        shield_close(&s);
    }
}

int main(void)
{
#define W(name) cmocka_unit_test_setup_teardown(name, make_world, end_world)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exclusions),
        cmocka_unit_test(programs),
        cmocka_unit_test(kept_by_the_user),
        W(marks_and_takes_back),
        W(another_takes_over),
        W(a_look_writes_nothing),
        W(half_an_entry_is_cut_off),
        W(changed_meanwhile),
        W(heirs),
        W(stands_down),
        W(hostile_journals),
    };
    return cmocka_run_group_tests_name("shield", tests, NULL, NULL);
}
