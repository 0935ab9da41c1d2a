/* The store: what was shown is there after any death, and a conversation goes on with the same bytes. */
#include "core/play.h"
#include "store/store.h"

#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct home {
    char dir[64];
    struct store *s;
    int64_t project;
};

static void home_open(struct home *h)
{
    struct vt_err err = {0};
    h->s = store_open(h->dir, &err);
    if (h->s == NULL)
        fail_msg("%s", err.text);
    h->project = store_project(h->s, "/p", 1, &err);
    assert_true(h->project > 0);
}

static void home_make(struct home *h)
{
    *h = (struct home){.dir = "/tmp/off-store-XXXXXX"};
    assert_non_null(mkdtemp(h->dir));
    home_open(h);
}

static void home_remove(struct home *h)
{
    char cmd[128];
    store_close(h->s);
    snprintf(cmd, sizeof cmd, "rm -rf %s", h->dir);
    assert_int_equal(system(cmd), 0);
}

static void sync_or_fail(struct home *h, struct play *p)
{
    struct vt_err err = {0};
    if (store_sync(h->s, p->m, false, &err) < 0)
        fail_msg("%s", err.text);
}

static void begin(struct home *h, struct play *p)
{
    struct vt_err err = {0};
    play_open(p, "");
    assert_int_equal(store_new(h->s, h->project, "s1", "lapis", "Date: today", 1, &err), 0);
    assert_int_equal(store_hold(h->s, "s1", &err), 1);
    sync_or_fail(h, p);
}

static void stored(void *arg, const struct event *e)
{
    play_step(arg, *e);
}

/* What another process finds: nothing was closed or flushed. */
static void resume(struct home *h, struct play *p)
{
    struct vt_err err = {0};
    struct store *other = store_open(h->dir, &err);
    assert_non_null(other);
    play_open(p, "");
    assert_int_equal(store_load(other, "s1", 0, stored, p, &err), 0);
    play_step(p, (struct event){.kind = EV_RESUMED});
    store_close(other);
}

static const char *const calls =
    "[{\"index\":0,\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"path\\\":\\\"a\\\"}\"}}]";

static void any_death_leaves_a_valid_history(void **state)
{
    /* n: after how many events the first process dies. */
    for (int n = 0; n < 14; n++) {
        struct home h;
        struct play p, q;
        home_make(&h);
        begin(&h, &p);
        for (int i = 0; i < n; i++) {
            switch (i % 7) {
            case 0: play_say(&p, "look at it"); break;
            case 1: play_data(&p, "{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}"); break;
            case 2:
                p.now += 2000000; /* long enough for the part to be kept */
                play_data(&p, "{\"choices\":[{\"delta\":{\"content\":\"I look.\"}}]}");
                break;
            case 3: play_answer(&p, NULL, calls); break;
            case 4: {
                int64_t id = play_find(&p, FX_CHECK)->id;
                play_step(
                    &p, (struct event){.kind = EV_TOOL_CHECKED, .id = id, .n = TOOL_ALLOW, .m = TOOL_READS});
                break;
            }
            case 5: {
                int64_t id = play_find(&p, FX_RUN)->id;
                play_step(&p,
                          (struct event){
                              .kind = EV_TOOL_DONE, .id = id, .n = TOOL_OK, .text = "line one", .len = 8});
                break;
            }
            default: play_answer(&p, "seen", NULL); break;
            }
            sync_or_fail(&h, &p);
        }
        resume(&h, &q);
        assert_int_equal(q.m->n_turns, p.m->n_turns);
        play_say(&q, "go on");
        play_valid(q.body);
        if (n > 0)
            assert_non_null(strstr(q.body, "look at it"));
        if (n >= 6)
            assert_non_null(strstr(q.body, "line one"));
        if (n > 0 && n % 7 == 3)
            assert_non_null(strstr(q.body, "I look."));
        play_end(&p);
        play_end(&q);
        home_remove(&h);
    }
}

static void bytes_stay_after_a_restart(void **state)
{
    struct home h;
    struct play p, q;
    home_make(&h);
    begin(&h, &p);
    play_say(&p, "look");
    play_answer(&p, NULL, calls);
    play_tool(&p, TOOL_ALLOW, "line one");
    play_answer(&p, "seen", NULL);
    play_say(&p, "more");
    sync_or_fail(&h, &p);
    char *sent = mem_dup(p.body);
    play_answer(&p, "that is all", NULL);
    sync_or_fail(&h, &p);
    resume(&h, &q);
    assert_int_equal(q.m->core->n_units, p.m->core->n_units); /* each message once */
    assert_int_equal(q.m->core->covered, p.m->core->covered);
    assert_true(q.m->core->epoch == p.m->core->epoch);
    play_say(&q, "again");
    size_t n = play_messages(sent);
    assert_true(play_messages(q.body) > n);
    assert_memory_equal(q.body, sent, n);
    free(sent);
    play_end(&p);
    play_end(&q);
    home_remove(&h);
}

static void one_writer(void **state)
{
    struct home h;
    struct play p;
    struct vt_err err = {0};
    home_make(&h);
    begin(&h, &p);
    struct store *other = store_open(h.dir, &err);
    assert_int_equal(store_hold(other, "s1", &err), 0);
    assert_int_equal(store_fork(other, "s1", "s2", 5, &err), 0);
    assert_int_equal(store_hold(other, "s2", &err), 1);
    store_close(other);
    play_end(&p);
    home_remove(&h);
}

static void draft_and_queue_are_kept(void **state)
{
    struct home h;
    struct play p;
    struct vt_err err = {0};
    home_make(&h);
    begin(&h, &p);
    play_say(&p, "first");
    play_say(&p, "second, queued");
    play_step(&p, (struct event){.kind = EV_COMPOSE, .text = "half a sent", .n = 4});
    sync_or_fail(&h, &p);
    json_t *o = store_session(h.s, "s1", &err);
    assert_string_equal(js_str(o, "draft"), "half a sent");
    assert_int_equal(js_int(o, "caret", 0), 4);
    json_decref(o);
    struct play q;
    resume(&h, &q);
    assert_int_equal(q.m->n_queue, 1);
    assert_string_equal(q.m->queue[0].text, "second, queued");
    play_end(&p);
    play_end(&q);
    home_remove(&h);
}

static void memory_is_searched(void **state)
{
    struct home h;
    struct play p;
    struct text out = {0};
    home_make(&h);
    begin(&h, &p);
    play_say(&p, "look");
    play_answer(&p, NULL, calls);
    play_tool(&p, TOOL_ALLOW, "the frobnicator's limit is 4711\nsecond line\nthird");
    play_answer(&p, "seen", NULL);
    sync_or_fail(&h, &p);
    assert_int_equal(
        store_recall(h.s, h.project, "s1", "{\"query\":\"frobnicator \\\"limit\"}", "/nowhere", &out), 0);
    assert_non_null(strstr(text_str(&out), "4711"));
    assert_non_null(strstr(text_str(&out), "m-"));
    char id[16];
    snprintf(id, sizeof id, "%.6s", strstr(text_str(&out), "m-"));
    text_clear(&out);
    struct text args = {0};
    text_printf(&args, "{\"id\":\"%s\",\"start\":2,\"lines\":1}", id);
    assert_int_equal(store_recall(h.s, h.project, "s1", text_str(&args), "/nowhere", &out), 0);
    assert_int_equal(strncmp(text_str(&out), "second line\n", 12), 0);
    static const char *const hostile[] = {"{}", "{\"id\":\"../../etc/passwd\"}", "{\"id\":\"o-99\"}",
                                          "{\"id\":\"m-99999999999999999999\"}", "{\"id\":\"\"}"};
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++)
        assert_int_equal(store_recall(h.s, h.project, "s1", hostile[i], "/nowhere", &out), -1);
    assert_int_equal(
        store_recall(h.s, h.project, "s1", "{\"query\":\"AND OR NEAR( * ^ \\\" -\"}", "/nowhere", &out), 0);
    text_free(&args);
    text_free(&out);
    play_end(&p);
    home_remove(&h);
}

/* 5,000 items come back within 200 ms of processor time on an idle machine; the bound allows for a slow one. */
static void a_long_conversation_opens_quickly(void **state)
{
    struct home h;
    struct play p, q;
    home_make(&h);
    begin(&h, &p);
    play_step(&p, (struct event){.kind = EV_REPLY,
                                 .n = 200,
                                 .name = "/props",
                                 .text = "{\"n_ctx\":10000000,\"total_slots\":1}"});
    for (int i = 0; i < 1250; i++) {
        play_say(&p, "look");
        play_answer(&p, NULL, calls);
        play_tool(&p, TOOL_ALLOW, i % 2 ? "line one" : "line two");
        play_answer(&p, "It has one line, and this is what there is to say of it.", NULL);
        play_clear(&p);
    }
    sync_or_fail(&h, &p);
    clock_t before = clock();
    resume(&h, &q);
    double ms = (double)(clock() - before) * 1000 / CLOCKS_PER_SEC;
    print_message("%zu items in %.0f ms\n", q.m->n_items, ms);
    assert_true(q.m->n_items >= 3750);
    assert_true(ms < 3000);
    play_end(&p);
    play_end(&q);
    home_remove(&h);
}

static void a_stranger_file_is_refused(void **state)
{
    struct home h;
    struct vt_err err = {0};
    char path[128];
    home_make(&h);
    store_close(h.s);
    snprintf(path, sizeof path, "%s/officina.db", h.dir);
    FILE *f = fopen(path, "w");
    fputs("this is no database, whatever its name says, and it is long enough to be read as one", f);
    fclose(f);
    assert_null(store_open(h.dir, &err));
    assert_non_null(strstr(err.text, "officina.db"));
    unlink(path);
    home_open(&h);
    home_remove(&h);
}

static void shown(void *arg, const char *path, const uint64_t *lines, size_t n)
{
    struct text *t = arg;
    text_printf(t, "%s %zu", path, n);
    for (size_t i = 0; i < n; i++)
        text_printf(t, " %llu", (unsigned long long)lines[i]);
    text_puts(t, ";");
}

static void expect_shown(struct home *h, const char *session, const char *want)
{
    struct text t = {0};
    store_each_seen(h->s, session, shown, &t);
    assert_string_equal(text_str(&t), want);
    text_free(&t);
}

static void shown_lines_are_kept(void **state)
{
    static const uint64_t lines[] = {7, 0, 9};
    struct home h;
    struct play p;
    struct vt_err err = {0};
    home_make(&h);
    begin(&h, &p);
    assert_int_equal(store_seen(h.s, "a", lines, 1, &err), 0);
    assert_int_equal(store_seen(h.s, "a", lines, 3, &err), 0);
    assert_int_equal(store_seen(h.s, "b", lines, 0, &err), 0);
    store_close(h.s);
    home_open(&h);
    expect_shown(&h, "s1", "a 3 7 0 9;b 0;");
    expect_shown(&h, "nobody", "");
    assert_int_equal(store_fork(h.s, "s1", "s2", 2, &err), 0);
    expect_shown(&h, "s2", "a 3 7 0 9;b 0;");
    assert_int_equal(store_seen(h.s, "c", lines, 1, &err), 0); /* it holds none: nothing is written */
    expect_shown(&h, "s1", "a 3 7 0 9;b 0;");
    play_end(&p);
    home_remove(&h);
}

/* A file of the first version: its conversations stay, and a copy of it is kept. */
static void an_older_file_is_migrated(void **state)
{
    struct home h;
    struct play p;
    char path[128];
    sqlite3 *db;
    home_make(&h);
    begin(&h, &p);
    store_close(h.s);
    snprintf(path, sizeof path, "%s/officina.db", h.dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "DROP TABLE seen; PRAGMA user_version=1", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    home_open(&h);
    static const uint64_t line = 5;
    struct vt_err err = {0};
    assert_int_equal(store_hold(h.s, "s1", &err), 1);
    assert_int_equal(store_seen(h.s, "a", &line, 1, &err), 0);
    expect_shown(&h, "s1", "a 1 5;");
    snprintf(path, sizeof path, "%s/officina.db.v1", h.dir);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 077, 0);
    play_end(&p);
    home_remove(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_death_leaves_a_valid_history),
        cmocka_unit_test(bytes_stay_after_a_restart),
        cmocka_unit_test(one_writer),
        cmocka_unit_test(draft_and_queue_are_kept),
        cmocka_unit_test(memory_is_searched),
        cmocka_unit_test(a_stranger_file_is_refused),
        cmocka_unit_test(shown_lines_are_kept),
        cmocka_unit_test(an_older_file_is_migrated),
        cmocka_unit_test(a_long_conversation_opens_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
