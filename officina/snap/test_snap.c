/* Snapshots and rewind through the interface that the program uses, with git. */
#include "snap/keep.h"
#include "snap/snap.h"
#include "snap/tree.h"

#include "util/file.h"
#include "util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char dir[64], root[80], home[80];
    struct snap *s;
    int events;
    struct event e;
    struct text name, text, touched;
    char before[80], after[80];
};

static void hear(void *arg, const struct event *e)
{
    struct world *w = arg;
    if (e->kind == EV_TOUCHED) {
        text_set(&w->touched, e->text);
        return;
    }
    w->events++;
    w->e = *e;
    text_set(&w->name, e->name);
    text_set(&w->text, e->text);
}

static void open_snap(struct world *w)
{
    struct vt_err err;
    struct snap_options o = {w->root, w->home, "s1", hear, w, 0};
    w->s = snap_open(&o, &err);
    if (!w->s)
        fail_msg("%s", err.text);
}

static void open_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    strcpy(w->dir, "/tmp/officina-snap-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->root, sizeof w->root, "%s/project", w->dir);
    snprintf(w->home, sizeof w->home, "%s/state", w->dir);
    assert_int_equal(mkdir(w->root, 0755), 0);
    assert_int_equal(mkdir(w->home, 0700), 0);
    open_snap(w);
}

static void close_world(struct world *w)
{
    char cmd[200];
    snap_close(w->s);
    text_free(&w->name);
    text_free(&w->text);
    text_free(&w->touched);
    snprintf(cmd, sizeof cmd, "rm -rf %s", w->dir);
    assert_int_equal(system(cmd), 0);
}

static void wait_event(struct world *w)
{
    int n = w->events;
    struct pollfd p[1];
    for (int i = 0; w->events == n; i++) {
        size_t k = snap_poll(w->s, p, 1);
        poll(p, k, 1000);
        snap_work(w->s, p, k);
        assert_true(i < 60);
    }
}

static void sh(const struct world *w, const char *cmd)
{
    char line[2000];
    snprintf(line, sizeof line, "cd %s && { %s\n}", w->root, cmd);
    assert_int_equal(system(line), 0);
}

/* Every file's name, mode and bytes as one text. */
static char *picture(const struct world *w)
{
    char cmd[300];
    static char buf[1 << 20];
    snprintf(cmd, sizeof cmd,
             "cd %s && find . -path ./.git -prune -o -print | LC_ALL=C sort | while read -r f; do stat -c "
             "'%%n %%A' \"$f\"; "
             "if [ -L \"$f\" ]; then readlink \"$f\"; elif [ -f \"$f\" ]; then od -c \"$f\"; fi; done",
             w->root);
    FILE *f = popen(cmd, "r");
    size_t n = fread(buf, 1, sizeof buf - 1, f);
    pclose(f);
    buf[n] = 0;
    return strdup(buf);
}

static void take(struct world *w, size_t turn, enum snap_when when, char *to)
{
    snap_take(w->s, turn, when);
    wait_event(w);
    if (!w->name.len)
        fail_msg("%s", text_str(&w->text));
    if (to)
        strcpy(to, text_str(&w->name));
}

static void turn(struct world *w, size_t number, const char *cmd)
{
    take(w, number, SNAP_BEFORE, w->before);
    sh(w, cmd);
    take(w, number, SNAP_AFTER, w->after);
}

static void restore(struct world *w, const struct snap_turn *t, size_t n)
{
    snap_restore(w->s, 0, t, n, 1);
    wait_event(w);
    if (w->e.n)
        fail_msg("%s", text_str(&w->text));
}

static void listed(const struct world *w, const char *list, const char *want)
{
    json_t *o = js_parse(text_str(&w->text), w->text.len, NULL, 0), *v;
    struct text t = {0};
    size_t i;
    json_array_foreach(json_object_get(o, list), i, v)
        text_printf(&t, "%s%s", i ? " " : "", json_string_value(v));
    if (strcmp(text_str(&t), want) != 0)
        fail_msg("%s: '%s', wanted '%s'", list, text_str(&t), want);
    text_free(&t);
    json_decref(o);
}

static void that_turn_and_no_more(void **state)
{
    struct world w;
    open_world(&w);
    sh(&w,
       "printf 'a\\r\\n' > crlf; echo '* text=auto' > .gitattributes; echo one > both; echo u > user; echo x "
       "> gone; "
       "echo '#!/bin/sh' > prog; ln -s both link; mkdir build; echo o > build/out; echo build/ > .gitignore");
    char *start = picture(&w);
    turn(&w, 0,
         "printf 'b\\r\\n' > crlf; echo two > both; rm gone; chmod +x prog; ln -sfn user link; mkdir -p "
         "new/deep; echo n > new/deep/f; "
         "echo p > build/out");
    assert_int_equal(w.e.m, 6);
    assert_non_null(strstr(text_str(&w.touched), "new/deep/f"));
    struct snap_turn t = {"t0001", NULL, strdup(w.before), strdup(w.after)};
    sh(&w, "echo mine > user; echo three >> both");
    snap_plan(w.s, 0, &t, 1);
    wait_event(&w);
    listed(&w, "restore", "crlf gone link new/deep/f prog");
    listed(&w, "keep", "user");
    listed(&w, "conflict", "both");
    listed(&w, "uncovered", "build/ (ignored)");
    restore(&w, &t, 1);
    char *now = picture(&w);
    sh(&w, "echo one > both; echo u > user; echo o > build/out");
    char *back = picture(&w);
    assert_string_equal(back, start);
    sh(&w, "printf 'two\\nthree\\n' > both; echo mine > user; echo p > build/out");
    char *again = picture(&w);
    assert_string_equal(now, again);
    free(start);
    free(now);
    free(back);
    free(again);
    free((char *)t.tree_before);
    free((char *)t.tree_after);
    close_world(&w);
}

static void nested_repositories_and_odd_names(void **state)
{
    struct world w;
    open_world(&w);
    sh(&w, "git init -q . ; git init -q sub; echo a > sub/f; echo b > 'sp ace'; printf x > \"$(printf "
           "'new\\nline')\"; printf y > '-dash'; "
           "git init -q empty; printf z > $(printf '\\377bad')");
    turn(&w, 0,
         "echo c > sub/f; rm 'sp ace' ./-dash; printf q > \"$(printf 'new\\nline')\"; printf q > $(printf "
         "'\\377bad')");
    assert_int_equal(w.e.m, 5);
    struct snap_turn t = {"t", NULL, strdup(w.before), strdup(w.after)};
    restore(&w, &t, 1);
    sh(&w, "test \"$(cat sub/f)\" = a; test \"$(cat 'sp ace')\" = b; test \"$(cat ./-dash)\" = y; "
           "test \"$(cat \"$(printf 'new\\nline')\")\" = x; test \"$(cat $(printf '\\377bad'))\" = z; test ! "
           "-e .git/index");
    free((char *)t.tree_before);
    free((char *)t.tree_after);
    close_world(&w);
}

static void touched_by_a_tool_is_covered(void **state)
{
    struct world w;
    open_world(&w);
    sh(&w, "echo '*.log' > .gitignore; echo a > x.log");
    snap_cover(w.s, "x.log");
    turn(&w, 0, "echo b > x.log");
    struct snap_turn t = {"t", NULL, strdup(w.before), strdup(w.after)};
    restore(&w, &t, 1);
    sh(&w, "test \"$(cat x.log)\" = a");
    free((char *)t.tree_before);
    free((char *)t.tree_after);
    close_world(&w);
}

static void change_at_random(const struct world *w, unsigned *seed)
{
    for (int i = 1 + rand_r(seed) % 4; i > 0; i--) {
        static const char *const names[] = {"a", "b", "d/a", "d/b", "d/e/a", "f"};
        sh(w, "test ! -L d || rm d; test ! -f d || rm d");
        const char *n = names[rand_r(seed) % 6];
        char cmd[300];
        switch (rand_r(seed) % 7) {
        case 0: snprintf(cmd, sizeof cmd, "rm -rf %s", n); break;
        case 1:
            snprintf(cmd, sizeof cmd, "mkdir -p d/e; rm -rf %s; ln -sn t%d %s", n, rand_r(seed) % 3, n);
            break;
        case 2:
            snprintf(cmd, sizeof cmd, "test ! -f %s || chmod %d %s", n, rand_r(seed) % 2 ? 755 : 644, n);
            break;
        default:
            snprintf(cmd, sizeof cmd, "mkdir -p d/e; rm -rf %s; printf 'v%d\\r\\n' > %s", n,
                     rand_r(seed) % 50, n);
            break;
        }
        sh(w, cmd);
    }
}

static void rewind_and_redo_are_the_identity(void **state)
{
    struct world w;
    unsigned seed = 11;
    open_world(&w);
    for (int round = 0; round < 8; round++) {
        struct snap_turn t[3];
        int n = 1 + rand_r(&seed) % 3;
        change_at_random(&w, &seed);
        char *start = picture(&w);
        for (int i = 0; i < n; i++) {
            take(&w, (size_t)i, SNAP_BEFORE, w.before);
            change_at_random(&w, &seed);
            take(&w, (size_t)i, SNAP_AFTER, w.after);
            t[i] = (struct snap_turn){"t", NULL, strdup(w.before), strdup(w.after)};
        }
        char *end = picture(&w);
        restore(&w, t, (size_t)n);
        char *back = picture(&w);
        /* folders that were empty, or became so, are no part of a tree: only files are compared */
        sh(&w, "find . -mindepth 1 -type d -empty -delete");
        free(back);
        back = picture(&w);
        snap_redo(w.s, 1);
        wait_event(&w);
        assert_int_equal(w.e.n, 0);
        sh(&w, "find . -mindepth 1 -type d -empty -delete");
        char *redone = picture(&w);
        char *pairs[2][2] = {{start, back}, {end, redone}};
        for (int k = 0; k < 2; k++) { /* without the lines of folders */
            for (int m = 0; m < 2; m++) {
                char *out = pairs[k][m];
                for (char *p = out, *nl; *p; p = nl) {
                    nl = strchr(p, '\n') + 1;
                    if (!memmem(p, (size_t)(nl - p), " drwx", 5)) {
                        memmove(out, p, (size_t)(nl - p));
                        out += nl - p;
                    }
                }
                *out = 0;
            }
            assert_string_equal(pairs[k][0], pairs[k][1]);
        }
        free(start);
        free(end);
        free(back);
        free(redone);
        for (int i = 0; i < n; i++) {
            free((char *)t[i].tree_before);
            free((char *)t[i].tree_after);
        }
    }
    close_world(&w);
}

static void a_death_in_between_is_completed(void **state)
{
    struct world w;
    struct git g;
    struct plan p;
    struct vt_err err;
    open_world(&w);
    sh(&w, "for i in 1 2 3 4 5 6; do echo old > f$i; done");
    turn(&w, 0, "for i in 1 2 3 4 5 6; do echo new > f$i; done; echo n > g");
    struct snap_turn t = {"t", NULL, strdup(w.before), strdup(w.after)};
    assert_int_equal(git_open(&g, w.root, w.home, "s1", &err), 0);
    assert_int_equal(plan_make(&g, &t, 1, w.after, &p, &err), 0);
    char file[300];
    snprintf(file, sizeof file, "%s/journal", g.dir);
    /* a process that writes the way back and the journal and dies after half of the files */
    pid_t pid = fork();
    if (pid == 0) {
        struct root r;
        struct text left = {0};
        char redo[300];
        snprintf(redo, sizeof redo, "%s/redo-s1-1", g.dir);
        plan_turn_round(&p);
        if (plan_save(&p, redo, &err) < 0)
            _exit(1);
        plan_turn_round(&p);
        if (plan_save(&p, file, &err) < 0 || root_open(&r, w.root, &err) < 0)
            _exit(1);
        p.n = 3;
        plan_apply(&g, &r, &p, &left, &err);
        kill(getpid(), SIGKILL);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    sh(&w, "test $(cat f? | sort -u | wc -l) = 2");
    snap_close(w.s);
    open_snap(&w);
    sh(&w, "test \"$(cat f? | sort -u)\" = old; test ! -e g");
    assert_int_equal(access(file, F_OK), -1);
    snap_redo(w.s, 1);
    wait_event(&w);
    sh(&w, "test \"$(cat f? | sort -u)\" = new; test -e g");
    plan_free(&p);
    git_close(&g);
    free((char *)t.tree_before);
    free((char *)t.tree_after);
    close_world(&w);
}

static void a_broken_journal_is_no_refusal(void **state)
{
    struct world w;
    struct git g;
    struct vt_err err;
    open_world(&w);
    assert_int_equal(git_open(&g, w.root, w.home, "s1", &err), 0);
    char file[300];
    snprintf(file, sizeof file, "%s/journal", g.dir);
    assert_int_equal(file_write(file, "{", 1, &err), 0);
    git_close(&g);
    snap_close(w.s);
    open_snap(&w);
    assert_non_null(w.s);
    close_world(&w);
}

static void looks_and_diffs(void **state)
{
    struct world w;
    open_world(&w);
    sh(&w, "git init -q -b trunk .; echo a > f; git add f; git -c user.name=x -c user.email=x commit -qm x; "
           "echo b > f; echo c > h");
    sh(&w, "git config filter.evil.clean 'touch ran; cat'; echo 'f filter=evil' > .git/info/attributes");
    snap_look(w.s);
    wait_event(&w);
    sh(&w, "test ! -e ran; rm .git/info/attributes");
    assert_int_equal(w.e.kind, EV_GIT);
    assert_string_equal(text_str(&w.name), "trunk");
    assert_true((w.e.n == 1 && w.e.m == 1) || w.e.n == UNKNOWN); /* unknown: this machine has no sandbox */
    turn(&w, 0, "echo more >> f");
    struct snap_turn t = {"t", NULL, strdup(w.before), strdup(w.after)};
    snap_diff(w.s, "t", &t, 1);
    wait_event(&w);
    assert_int_equal(w.e.n_changes, 1);
    assert_string_equal(w.e.changes->after, "b\nmore\n");
    change_free(w.e.changes, 1);
    free((char *)t.tree_before);
    free((char *)t.tree_after);
    close_world(&w);
}

/* A turn that a death ended: what was changed after it is the user's, and a rewind that is asked for at once knows it. */
static void changes_after_a_death_are_the_users(void **state)
{
    struct world w;
    struct stat st;
    char path[120];
    open_world(&w);
    sh(&w, "mkdir d; echo a > mine; echo b > its; echo c > gone; echo e > d/kept");
    snap_take(w.s, 0, SNAP_BEFORE);
    wait_event(&w);
    char *before = mem_dup(text_str(&w.name));
    sh(&w, "echo changed > its; rm gone; echo n > made; sleep 0.1");
    snprintf(path, sizeof path, "%s/made", w.root);
    assert_int_equal(stat(path, &st), 0);
    uint64_t died = (uint64_t)st.st_mtim.tv_sec * 1000000 + (uint64_t)st.st_mtim.tv_nsec / 1000;
    sh(&w, "echo by hand > mine; echo by hand > d/new; rm d/kept");
    snap_take_late(w.s, 0, "t0001", before, died + 50000 - SNAP_DIED_US);
    struct snap_turn t = {"t0001", NULL, before, NULL}; /* the event has not been heard yet */
    snap_restore(w.s, 0, &t, 1, 1);
    while (w.e.kind != EV_REWIND_DONE) {
        wait_event(&w);
        if (w.e.kind == EV_SNAP) {
            assert_int_equal(w.e.n, SNAP_LATE);
            assert_int_equal(w.e.m, 3);
        }
    }
    assert_int_equal(w.e.n, 0);
    sh(&w, "test \"$(cat mine)\" = 'by hand' -a \"$(cat d/new)\" = 'by hand' -a ! -e d/kept");
    sh(&w, "test \"$(cat its gone)\" = \"$(printf 'b\\nc')\" -a ! -e made");
    free(before);
    close_world(&w);
}

/* The store of snapshots has a bound: the oldest of other conversations go, the open one's stay and can be rewound. */
static void the_store_is_bounded(void **state)
{
    struct world w;
    struct vt_err err;
    struct git g;
    open_world(&w);
    for (int i = 0; i < 6; i++) { /* half a mebibyte that does not compress, each time another one */
        sh(&w, "head -c 524288 /dev/urandom > big");
        snap_session(w.s, i < 5 ? "other" : "s1");
        snap_take(w.s, (size_t)i, SNAP_USER);
        wait_event(&w);
    }
    char *tree = mem_dup(text_str(&w.name)), *before = picture(&w);
    assert_int_equal(git_open(&g, w.root, w.home, "s1", &err), 0);
    assert_true(keep_size(&g, NULL) > 3000000);
    snap_close(w.s);
    struct snap_options o = {w.root, w.home, "s1", hear, &w, 1600000};
    w.s = snap_open(&o, &err);
    assert_non_null(w.s);
    snap_tidy(w.s);
    wait_event(&w);
    assert_int_equal(w.e.kind, EV_NOTICE);
    assert_non_null(strstr(text_str(&w.text), "given up"));
    assert_true(keep_size(&g, NULL) <= 1600000);
    sh(&w, "echo changed > big");
    snap_take(w.s, 9, SNAP_AFTER);
    wait_event(&w);
    struct snap_turn t = {"t0001", tree, tree, text_str(&w.name)};
    char *after = mem_dup(text_str(&w.name));
    t.tree_after = after;
    snap_restore(w.s, 0, &t, 1, 1);
    wait_event(&w);
    assert_int_equal(w.e.kind, EV_REWIND_DONE);
    char *now = picture(&w);
    assert_string_equal(now, before);
    free(now);
    free(before);
    free(after);
    free(tree);
    git_close(&g);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(that_turn_and_no_more),
        cmocka_unit_test(nested_repositories_and_odd_names),
        cmocka_unit_test(touched_by_a_tool_is_covered),
        cmocka_unit_test(rewind_and_redo_are_the_identity),
        cmocka_unit_test(a_death_in_between_is_completed),
        cmocka_unit_test(a_broken_journal_is_no_refusal),
        cmocka_unit_test(changes_after_a_death_are_the_users),
        cmocka_unit_test(the_store_is_bounded),
        cmocka_unit_test(looks_and_diffs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
