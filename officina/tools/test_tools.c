/* The runner as the program uses it: checks, approvals, files, commands, jobs, the sandbox. */
#include "tools/tool.h"

#include "tools/box.h"
#include "util/text.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct world {
    char dir[64], root[80], home[80];
    struct tools *t;
    /* the newest of each kind */
    int64_t verdict, bits, outcome, output, job, job_status;
    struct text reason, result, printed;
    struct approval *approval;
    int done, checked;
    int64_t next;
};

static void hear(void *arg, const struct event *e)
{
    struct world *w = arg;
    if (e->kind == EV_TOOL_CHECKED) {
        w->checked++;
        w->verdict = e->n;
        w->bits = e->m;
        text_set(&w->reason, e->text);
        if (w->approval)
            approval_free(w->approval);
        w->approval = e->approval;
    } else if (e->kind == EV_TOOL_DONE || e->kind == EV_USER_RAN) {
        w->done++;
        w->outcome = e->n;
        w->output = e->m;
        text_clear(&w->result);
        text_add(&w->result, e->text, e->len);
        if (e->changes)
            change_free(e->changes, e->n_changes);
    } else if (e->kind == EV_TOOL_OUTPUT) {
        text_add(&w->printed, e->text, e->len);
    } else if (e->kind == EV_TEMPLATE) {
        text_set(&w->result, e->text);
    } else if (e->kind == EV_JOB) {
        w->job = e->id;
        w->job_status = e->n;
    }
}

static void put(const struct world *w, const char *rel, const char *content)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", w->root, rel);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
}

static char *get(const struct world *w, const char *rel)
{
    char path[200];
    static char buf[4096];
    snprintf(path, sizeof path, "%s/%s", w->root, rel);
    FILE *f = fopen(path, "re");
    if (!f)
        return NULL;
    buf[fread(buf, 1, sizeof buf - 1, f)] = 0;
    fclose(f);
    return buf;
}

static void open_world(struct world *w, const char *sandbox, const char *const *allow,
                       const char *const *deny)
{
    struct vt_err err;
    memset(w, 0, sizeof *w);
    strcpy(w->dir, "/tmp/officina-test-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->root, sizeof w->root, "%s/project", w->dir);
    snprintf(w->home, sizeof w->home, "%s/state", w->dir);
    assert_int_equal(mkdir(w->root, 0755), 0);
    assert_int_equal(mkdir(w->home, 0700), 0);
    struct tools_options o = {w->root, w->home, "s1", sandbox, NULL, allow, deny, true, false, hear, w};
    w->t = tools_open(&o, &err);
    if (!w->t)
        fail_msg("%s", err.text);
}

static void close_world(struct world *w)
{
    char cmd[200];
    tools_close(w->t);
    if (w->approval)
        approval_free(w->approval);
    text_free(&w->reason);
    text_free(&w->result);
    text_free(&w->printed);
    snprintf(cmd, sizeof cmd, "rm -rf %s", w->dir);
    assert_int_equal(system(cmd), 0);
}

static void wait_for(struct world *w, const int *what, int n)
{
    struct pollfd fds[32];
    for (int i = 0; *what < n; i++) {
        size_t k = tools_poll(w->t, fds, 32);
        int ms = tools_timeout(w->t);
        poll(fds, k, ms < 0 || ms > 1000 ? 1000 : ms);
        tools_work(w->t, fds, k);
        assert_true(i < 5000);
    }
}

static int64_t check(struct world *w, const char *name, const char *args, enum mode mode)
{
    struct tool_call c = {++w->next, name, args, mode, UNKNOWN};
    tools_check(w->t, &c);
    return w->verdict;
}

/* Checks, answers yes when asked, runs to the end. */
static const char *call(struct world *w, const char *name, const char *args, enum mode mode)
{
    struct tool_call c = {w->next + 1, name, args, mode, UNKNOWN};
    int n = w->done + 1;
    check(w, name, args, mode);
    if (w->verdict != TOOL_ALLOW && w->verdict != TOOL_ASK)
        fail_msg("%s %s: %s", name, args, text_str(&w->reason));
    tools_start(w->t, &c, w->verdict == TOOL_ASK ? w->approval->bound : NULL);
    wait_for(w, &w->done, n);
    return text_str(&w->result);
}

static void has(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("'%s' is not in: %s", what, text);
}

static void files(void **state)
{
    struct world w;
    open_world(&w, "project", NULL, NULL);
    put(&w, "a.txt", "one\r\ntwo\nthree\n");
    has(call(&w, "read", "{\"path\":\"a.txt\"}", MODE_PLAN), "     2\ttwo\n");
    assert_int_equal(check(&w, "edit", "{\"path\":\"a.txt\",\"old\":\"two\",\"new\":\"2\"}", MODE_PLAN),
                     TOOL_REFUSE);
    has(call(&w, "edit", "{\"path\":\"a.txt\",\"old\":\"one\\ntwo\",\"new\":\"one\\n2\\n2b\"}", MODE_BUILD),
        "+2 -1");
    assert_string_equal(get(&w, "a.txt"), "one\r\n2\r\n2b\nthree\n");
    /* the lines that it wrote are known; three moved */
    has(call(&w, "edit", "{\"path\":\"a.txt\",\"start\":4,\"end\":4,\"new\":\"3\"}", MODE_BUILD), "changed");
    put(&w, "a.txt", "one\nX\n");
    assert_int_equal(
        check(&w, "edit", "{\"path\":\"a.txt\",\"start\":2,\"end\":2,\"new\":\"3\"}", MODE_BUILD),
        TOOL_FAULT);
    has(text_str(&w.reason), "line 2 was not read");
    assert_int_equal(check(&w, "write", "{\"path\":\"a.txt\",\"content\":\"x\"}", MODE_BUILD), TOOL_FAULT);
    assert_int_equal(
        check(&w, "write", "{\"path\":\"a.txt\",\"content\":\"x\",\"replace\":true}", MODE_BUILD),
        TOOL_FAULT);
    call(&w, "read", "{\"path\":\"a.txt\"}", MODE_BUILD);
    has(call(&w, "write", "{\"path\":\"a.txt\",\"content\":\"x\\n\",\"replace\":true}", MODE_BUILD),
        "changed");
    has(call(&w, "write", "{\"path\":\"new/dir/b.c\",\"content\":\"int x;\\n\"}", MODE_BUILD), "wrote");
    assert_string_equal(get(&w, "new/dir/b.c"), "int x;\n");
    has(call(&w, "glob", "{\"pattern\":\"**/*.c\"}", MODE_PLAN), "new/dir/b.c");
    has(call(&w, "grep", "{\"pattern\":\"^int\\\\s\"}", MODE_PLAN), "new/dir/b.c:1:int x;");
    has(call(&w, "grep", "{\"pattern\":\"(\"}", MODE_PLAN), "pattern is wrong");
    put(&w, ".gitignore", "*.log\n/out/\n");
    put(&w, "x.log", "int y;\n");
    assert_null(strstr(call(&w, "grep", "{\"pattern\":\"int\"}", MODE_PLAN), "x.log"));
    has(call(&w, "read", "{\"path\":\"none\"}", MODE_PLAN), "no such file");
    assert_int_equal(w.outcome, TOOL_FAILED);
    close_world(&w);
}

static void nothing_leads_out(void **state)
{
    struct world w;
    char path[200], target[200];
    open_world(&w, "project", NULL, NULL);
    snprintf(target, sizeof target, "%s/outside", w.dir);
    FILE *f = fopen(target, "we");
    fputs("secret\n", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/link", w.root);
    assert_int_equal(symlink(target, path), 0);
    snprintf(path, sizeof path, "%s/dir", w.root);
    assert_int_equal(symlink("..", path), 0);
    snprintf(path, sizeof path, "%s/dangling", w.root);
    assert_int_equal(symlink("nowhere", path), 0);
    snprintf(path, sizeof path, "%s/hard", w.root);
    assert_int_equal(link(target, path), 0);
    assert_int_equal(check(&w, "read", "{\"path\":\"../outside\"}", MODE_BUILD), TOOL_FAULT);
    assert_int_equal(check(&w, "read", "{\"path\":\"/etc/passwd\"}", MODE_BUILD), TOOL_FAULT);
    has(call(&w, "read", "{\"path\":\"link\"}", MODE_BUILD), "leads out");
    has(call(&w, "read", "{\"path\":\"dir/outside\"}", MODE_BUILD), "leads out");
    assert_int_equal(check(&w, "write", "{\"path\":\"dir/x\",\"content\":\"\"}", MODE_BUILD), TOOL_FAULT);
    assert_int_equal(check(&w, "edit", "{\"path\":\"link\",\"old\":\"secret\",\"new\":\"x\"}", MODE_BUILD),
                     TOOL_FAULT);
    assert_int_equal(check(&w, "write", "{\"path\":\"dangling\",\"content\":\"x\"}", MODE_BUILD), TOOL_FAULT);
    has(text_str(&w.reason), "does not exist");
    /* a file with another name elsewhere is replaced, not written through */
    call(&w, "edit", "{\"path\":\"hard\",\"old\":\"secret\",\"new\":\"mine\"}", MODE_BUILD);
    assert_string_equal(get(&w, "hard"), "mine\n");
    assert_string_equal(get(&w, "../outside"), "secret\n");
    close_world(&w);
}

static void approvals_are_bound(void **state)
{
    struct world w;
    open_world(&w, "project", NULL, NULL);
    put(&w, "a", "1\n");
    const char *args = "{\"path\":\"a\",\"old\":\"1\",\"new\":\"2\"}";
    assert_int_equal(check(&w, "edit", args, MODE_BUILD), TOOL_ASK);
    struct tool_call c = {w.next, "edit", args, MODE_BUILD, UNKNOWN};
    put(&w, "a", "1\nmore\n");
    tools_start(w.t, &c, w.approval->bound);
    assert_int_equal(w.outcome, TOOL_CHANGED);
    assert_string_equal(get(&w, "a"), "1\nmore\n");
    tools_start(w.t, &c, NULL);
    assert_int_equal(w.outcome, TOOL_CHANGED);
    struct tool_call other = {w.next, "edit", "{\"path\":\"a\",\"old\":\"more\",\"new\":\"2\"}", MODE_BUILD,
                              UNKNOWN};
    check(&w, "edit", args, MODE_BUILD);
    other.id = w.next;
    tools_start(w.t, &other, w.approval->bound);
    assert_int_equal(w.outcome, TOOL_CHANGED);
    assert_int_equal(check(&w, "edit", args, MODE_BUILD), TOOL_ASK);
    assert_string_equal(w.approval->rule_session, "edit:**");
    assert_int_equal(tools_rule(w.t, "session", MODE_BUILD, true, "edit:**", NULL), 0);
    assert_int_equal(check(&w, "edit", args, MODE_BUILD), TOOL_ALLOW);
    tools_session(w.t, "s2");
    assert_int_equal(check(&w, "edit", args, MODE_BUILD), TOOL_ASK);
    close_world(&w);
}

static void rules_decide(void **state)
{
    static const char *const allow[] = {"bash:make *", NULL}, *const deny[] = {"bash:rm *", "edit:keep/**",
                                                                               NULL};
    struct world w;
    open_world(&w, "project", allow, deny);
    assert_int_equal(check(&w, "bash", "{\"command\":\"make test\"}", MODE_BUILD), TOOL_ALLOW);
    assert_int_equal(check(&w, "bash", "{\"command\":\"make test && touch x\"}", MODE_BUILD), TOOL_ASK);
    assert_int_equal(w.approval->n_parts, 2);
    assert_true(w.approval->parts[0].allowed && !w.approval->parts[1].allowed);
    assert_string_equal(w.approval->rule_session, "bash:touch *");
    assert_int_equal(check(&w, "bash", "{\"command\":\"make test; rm x\"}", MODE_BUILD), TOOL_DENY);
    has(text_str(&w.reason), "on the command line");
    assert_int_equal(check(&w, "bash", "{\"command\":\"echo $(rm x)\"}", MODE_BUILD), TOOL_DENY);
    assert_int_equal(check(&w, "bash", "{\"command\":\"make > out\"}", MODE_BUILD), TOOL_ASK);
    assert_int_equal(check(&w, "bash", "{\"command\":\"make\",\"network\":true}", MODE_BUILD), TOOL_ASK);
    assert_int_equal(check(&w, "bash", "{\"command\":\"ls\"}", MODE_BUILD), TOOL_ALLOW);
    assert_true(w.bits & TOOL_READS);
    assert_int_equal(check(&w, "write", "{\"path\":\"keep/a\",\"content\":\"\"}", MODE_BUILD), TOOL_DENY);
    assert_int_equal(check(&w, "read", "{\"path\":\".env\"}", MODE_BUILD), TOOL_ASK);
    struct vt_err err;
    assert_int_equal(tools_rule(w.t, "project", MODE_BUILD, true, "bash:touch *", &err), 0);
    assert_int_equal(check(&w, "bash", "{\"command\":\"touch x\"}", MODE_BUILD), TOOL_ALLOW);
    assert_int_equal(check(&w, "bash", "{\"command\":\"touch x\"}", MODE_PLAN), TOOL_ASK);
    assert_int_equal(tools_rule(w.t, "project", MODE_BUILD, true, "dance:x", &err), -1);
    tools_session(w.t, "s2");
    assert_int_equal(check(&w, "bash", "{\"command\":\"touch x\"}", MODE_BUILD), TOOL_ALLOW);
    close_world(&w);
}

static void commands_run(void **state)
{
    struct world w;
    open_world(&w, "project", NULL, NULL);
    has(call(&w, "bash", "{\"command\":\"echo hello; echo world >&2; exit 3\"}", MODE_BUILD),
        "hello\nworld\n[exit status 3]");
    assert_int_equal(w.outcome, TOOL_FAILED);
    has(text_str(&w.printed), "hello\n");
    for (int i = 0; i < 20; i++)
        assert_null(
            strstr(call(&w, "bash", "{\"command\":\"sh -c 'echo a'; true\"}", MODE_BUILD), "left over"));
    has(call(&w, "bash", "{\"command\":\"sleep 30\",\"timeout\":1}", MODE_BUILD), "out of time");
    has(call(&w, "bash", "{\"command\":\"cat; echo done\"}", MODE_BUILD), "done");
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    has(call(&w, "bash", "{\"command\":\"(setsid sleep 60 &) ; sleep 61 & echo here\"}", MODE_BUILD), "here");
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec < 30); /* not as long as they sleep */
    /* stopping */
    struct tool_call c = {++w.next, "bash", "{\"command\":\"echo begun; sleep 60\"}", MODE_BUILD, UNKNOWN};
    tools_check(w.t, &c);
    int n = w.done;
    text_clear(&w.printed);
    tools_start(w.t, &c, w.verdict == TOOL_ASK ? w.approval->bound : NULL);
    struct pollfd fds[32];
    while (!w.printed.len) {
        size_t k = tools_poll(w.t, fds, 32);
        poll(fds, k, 100);
        tools_work(w.t, fds, k);
    }
    tools_cancel(w.t, c.id);
    wait_for(&w, &w.done, n + 1);
    assert_int_equal(w.outcome, TOOL_CANCELLED);
    has(text_str(&w.result), "begun\n[stopped by the user]");
    close_world(&w);
}

static void jobs_go_on(void **state)
{
    struct world w;
    char args[100];
    open_world(&w, "project", NULL, NULL);
    has(call(&w, "bash", "{\"command\":\"echo a; sleep 0.3; echo b\",\"background\":true}", MODE_BUILD),
        "job 1");
    assert_int_equal(w.job, 1);
    has(call(&w, "job", "{\"id\":1,\"action\":\"output\",\"wait\":10}", MODE_BUILD), "exit status 0");
    has(text_str(&w.result), "b\n");
    has(call(&w, "job", "{\"id\":1,\"action\":\"status\"}", MODE_BUILD), "ended");
    has(call(&w, "job", "{\"id\":9,\"action\":\"status\"}", MODE_BUILD), "no such job");
    call(&w, "bash", "{\"command\":\"sleep 50\",\"background\":true}", MODE_BUILD);
    snprintf(args, sizeof args, "{\"id\":%d,\"action\":\"stop\"}", (int)w.job);
    has(call(&w, "job", args, MODE_BUILD), "ended with exit status");
    int n = w.done;
    tools_user_run(w.t, "echo me", true);
    wait_for(&w, &w.done, n + 1);
    has(text_str(&w.result), "me");
    close_world(&w);
}

static bool full(const struct world *w)
{
    return strcmp(tools_sandbox(w->t), "project") == 0;
}

static void the_box_is_a_wall(void **state)
{
    struct world w;
    open_world(&w, "project", NULL, NULL);
    if (!full(&w)) {
        close_world(&w);
        skip();
    }
    put(&w, "a", "1\n");
    char cmd[400];
    snprintf(cmd, sizeof cmd, "{\"command\":\"echo x > %s/escaped; touch /etc/escaped; echo y > b; ls %s\"}",
             w.dir, w.home);
    call(&w, "bash", cmd, MODE_BUILD);
    assert_null(get(&w, "../escaped"));
    assert_int_equal(access("/etc/escaped", F_OK), -1);
    assert_string_equal(get(&w, "b"), "y\n");
    /* Plan: the kernel says no, whatever the command is */
    has(call(&w, "bash", "{\"command\":\"echo z > a; sh -c 'rm b'; python3 -c 'open(chr(97),chr(119))'\"}",
             MODE_PLAN),
        "Read-only");
    assert_string_equal(get(&w, "a"), "1\n");
    assert_string_equal(get(&w, "b"), "y\n");
    /* no network: not even the loopback of this machine */
    has(call(&w, "bash", "{\"command\":\"cat /proc/net/dev | wc -l; ls /proc | grep -c '^[0-9]'\"}",
             MODE_BUILD),
        "3\n");
    /* hooks and configuration of the repository stay as they are */
    call(&w, "bash", "{\"command\":\"git init -q .\"}", MODE_BUILD);
    call(&w, "bash", "{\"command\":\"echo evil > .git/hooks/pre-commit; echo evil >> .git/config\"}",
         MODE_BUILD);
    assert_null(get(&w, ".git/hooks/pre-commit"));
    assert_null(strstr(get(&w, ".git/config"), "evil"));
    close_world(&w);
}

static void a_redirection_is_judged_where_it_leads(void **state)
{
    static const char *const allow[] = {"edit:src/**", "bash:echo *", NULL};
    static const struct {
        const char *args;
        enum tool_verdict want;
    } list[] = {{"{\"command\":\"echo x > src/a\"}", TOOL_ALLOW},
                {"{\"command\":\"echo x > src/../b\"}", TOOL_ASK},
                {"{\"command\":\"echo x > src/link\"}", TOOL_ASK},
                {"{\"command\":\"cd .. && echo x > src/a\"}", TOOL_ASK},
                {"{\"command\":\"echo x > $HOME/a\"}", TOOL_ASK}};
    struct world w;
    char link[300];
    open_world(&w, "off", allow, NULL);
    snprintf(link, sizeof link, "%s/src", w.root);
    assert_int_equal(mkdir(link, 0755), 0);
    put(&w, "src/a", "a\n");
    put(&w, ".env", "A=1\n");
    snprintf(link, sizeof link, "%s/src/link", w.root);
    assert_int_equal(symlink("../.env", link), 0);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (check(&w, "bash", list[i].args, MODE_BUILD) != (int64_t)list[i].want)
            fail_msg("%s: %d", list[i].args, (int)w.verdict);
    assert_int_equal(check(&w, "read", "{\"path\":\"src/link\"}", MODE_BUILD), TOOL_ASK);
    close_world(&w);
}

/* Of ended jobs the last twenty are remembered; one that runs is never forgotten. */
static void ended_jobs_are_forgotten(void **state)
{
    static const char *const allow[] = {"bash:*", NULL};
    struct world w;
    open_world(&w, "off", allow, NULL);
    has(call(&w, "bash", "{\"command\":\"sleep 60\",\"background\":true}", MODE_BUILD), "job 1");
    for (int i = 2; i <= 25; i++) {
        char args[64];
        call(&w, "bash", "{\"command\":\"true\",\"background\":true}", MODE_BUILD);
        snprintf(args, sizeof args, "{\"id\":%d,\"action\":\"output\",\"wait\":10}", i);
        has(call(&w, "job", args, MODE_BUILD), "exit status 0");
    }
    has(call(&w, "bash", "{\"command\":\"true\",\"background\":true}", MODE_BUILD), "job 26");
    size_t n, ended = 0, running = 0;
    char **lines = tools_page(w.t, "jobs", &n);
    for (size_t i = 0; i < n; i++) {
        ended += strstr(lines[i], "ended") != NULL;
        running += strstr(lines[i], "sleep 60") != NULL;
        free(lines[i]);
    }
    free(lines);
    assert_true(ended >= 20 && ended <= 21);
    assert_int_equal(running, 1);
    has(call(&w, "job", "{\"id\":2,\"action\":\"status\"}", MODE_BUILD), "no such job");
    has(call(&w, "job", "{\"id\":1,\"action\":\"status\"}", MODE_BUILD), "job 1 runs");
    close_world(&w);
}

static void own_commands_become_prompts(void **state)
{
    struct world w;
    char path[300];
    open_world(&w, "off", NULL, NULL);
    snprintf(path, sizeof path, "%s/commands", w.home);
    assert_int_equal(mkdir(path, 0700), 0);
    put(&w, "../state/commands/fix.md", "Fix $1 of $ARGUMENTS\n");
    assert_int_equal(tools_command(w.t, "/fix a b"), 0);
    assert_string_equal(text_str(&w.result), "{\"parts\":[{\"text\":\"Fix a of a b\\n\"}]}");
    tools_trust(w.t, true);
    snprintf(path, sizeof path, "%s/.officina", w.root);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/.officina/commands", w.root);
    assert_int_equal(mkdir(path, 0700), 0);
    put(&w, "../out.md", "x\n");
    snprintf(path, sizeof path, "%s/.officina/commands/out.md", w.root);
    assert_int_equal(symlink("../../../out.md", path), 0);
    assert_int_equal(tools_command(w.t, "/out"), -1); /* leads out of the project */
    put(&w, ".officina/commands/in.md", "description: into\nmode: plan\n\nx\n");
    assert_int_equal(tools_command(w.t, "/in"), 0);
    assert_string_equal(text_str(&w.result), "{\"mode\":\"plan\",\"parts\":[{\"text\":\"x\\n\"}]}");
    assert_int_equal(tools_command(w.t, "/../commands/fix"), -1);
    assert_int_equal(tools_command(w.t, "/none"), -1);
    close_world(&w);
}

static void what_others_obey_is_guarded(void **state)
{
    assert_true(box_guarded(".git/hooks/pre-commit") && box_guarded(".git") && box_guarded(".envrc"));
    assert_true(box_guarded(".vscode/tasks.json") && box_guarded(".officina/rules"));
    assert_false(box_guarded(".gitignore") || box_guarded("src/.git.c") || box_guarded(".envrc.example"));
}

static void secrets_stay_in_their_files(void **state)
{
    struct world w;
    open_world(&w, "off", NULL, NULL);
    put(&w, "id_rsa", "-----BEGIN RSA PRIVATE KEY-----\nMIIEbody\nMIIEmore\n-----END RSA PRIVATE KEY-----\n");
    put(&w, ".env", "# colours\nCOLOUR=crimson\nNAME=somebody\n");
    put(&w, "notes.txt",
        "a\n-----BEGIN PRIVATE KEY-----\nMIIEbody\n-----END PRIVATE KEY-----\nCOLOUR=crimson\n");
    call(&w, "read", "{\"path\":\"id_rsa\",\"start\":2}", MODE_BUILD);
    assert_null(strstr(text_str(&w.result), "MIIE"));
    call(&w, "read", "{\"path\":\"notes.txt\",\"start\":3}", MODE_BUILD);
    assert_null(strstr(text_str(&w.result), "MIIE"));
    assert_non_null(strstr(text_str(&w.result), "crimson")); /* it is no file of secrets */
    call(&w, "grep", "{\"pattern\":\"MII|COL\",\"path\":\"notes.txt\"}", MODE_BUILD);
    assert_null(strstr(text_str(&w.result), "MIIE"));
    call(&w, "grep", "{\"pattern\":\"COLOUR|NAME\",\"path\":\".env\",\"context\":1}", MODE_BUILD);
    assert_non_null(strstr(text_str(&w.result), "COLOUR=[redacted"));
    assert_non_null(strstr(text_str(&w.result), "# colours"));
    assert_null(strstr(text_str(&w.result), "crimson"));
    call(&w, "grep", "{\"pattern\":\"NAME\"}", MODE_BUILD); /* not asked for by its name */
    assert_null(strstr(text_str(&w.result), ".env"));
    close_world(&w);
}

static void arguments_of_the_box_are_closed(void **state)
{
    struct box b = {
        .level = BOX_PROJECT, .root = "/p/--bind", .home = "/p", .state = "/p/--bind/.state", .filter = -1};
    struct box_way w = {.read_only = true};
    char **v = box_argv(&b, &w, "--help");
    size_t n = 0, dashes = 0;
    for (; v[n]; n++)
        dashes += strcmp(v[n], "--") == 0;
    assert_int_equal(dashes, 1);
    assert_string_equal(v[n - 1], "--help");
    assert_string_equal(v[n - 2], "-c");
    assert_string_equal(v[n - 4], "--");
    box_argv_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files),
        cmocka_unit_test(nothing_leads_out),
        cmocka_unit_test(approvals_are_bound),
        cmocka_unit_test(rules_decide),
        cmocka_unit_test(commands_run),
        cmocka_unit_test(jobs_go_on),
        cmocka_unit_test(ended_jobs_are_forgotten),
        cmocka_unit_test(the_box_is_a_wall),
        cmocka_unit_test(own_commands_become_prompts),
        cmocka_unit_test(what_others_obey_is_guarded),
        cmocka_unit_test(a_redirection_is_judged_where_it_leads),
        cmocka_unit_test(secrets_stay_in_their_files),
        cmocka_unit_test(arguments_of_the_box_are_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
