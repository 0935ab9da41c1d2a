#include "tools/tools_priv.h"

#include "ext/ext.h"
#include "util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void tools_emit(struct tools *t, const struct event *e)
{
    t->o.sink(t->o.arg, e);
}

void tools_done(struct tools *t, int64_t call, enum tool_outcome outcome, const struct text *result)
{
    struct event e = {
        .kind = EV_TOOL_DONE, .id = call, .n = outcome, .text = text_str(result), .len = result->len};
    tools_emit(t, &e);
}

/* ---- life ---- */

/* Results of servers are cut and kept as those of commands are. */
static void ext_event(void *arg, const struct event *e)
{
    struct tools *t = arg;
    struct vt_err err;
    struct output *o = e->kind == EV_TOOL_DONE ? output_new(t->out_dir, output_limit(t->window), &err) : NULL;
    if (!o) {
        tools_emit(t, e);
        return;
    }
    struct text cut = {0};
    struct event as = *e;
    output_add(o, e->text, e->len);
    as.m = output_result(o, &cut);
    as.text = text_str(&cut);
    as.len = cut.len;
    tools_emit(t, &as);
    text_free(&cut);
    output_free(o);
}

static void on_verdict(void *arg, int64_t id, enum ext_verdict v, const char *reason);

int tools_add_dir(struct tools *t, const char *path, struct vt_err *err)
{
    const char *home = getenv("HOME");
    struct text full = {0};
    if (path[0] == '~' && (path[1] == '/' || !path[1]) && home)
        text_printf(&full, "%s%s", home, path + 1);
    else
        text_puts(&full, path);
    char *real = realpath(text_str(&full), NULL);
    int rc = real ? 0 : vt_fail_errno(err, VT_E_NO_INPUT, "%s", path);
    if (rc == 0)
        rc = root_add(&t->root, real, err);
    if (rc == 0 && (rc = box_add(&t->box, real, err)) < 0)
        root_drop(&t->root);
    free(real);
    text_free(&full);
    return rc;
}

static int open_parts(struct tools *t, const struct tools_options *o, struct vt_err *err)
{
    struct text dir = {0};
    if (root_open(&t->root, o->root, err) < 0 ||
        box_open(&t->box, o->sandbox, t->root.path, o->home, err) < 0)
        return -1;
    text_printf(&dir, "%s/out", o->home);
    t->out_dir = text_take(&dir);
    t->seen = seen_new();
    t->rules = rules_open(t->root.path, o->home, o->trusted, err);
    if (!t->rules)
        return -1;
    for (size_t i = 0; o->dirs && o->dirs[i]; i++)
        if (tools_add_dir(t, o->dirs[i], err) < 0)
            return -1;
    for (size_t i = 0; o->allow && o->allow[i]; i++)
        if (rules_add(t->rules, RULE_CMDLINE, UNKNOWN, RULE_ALLOW, o->allow[i], err) < 0)
            return -1;
    for (size_t i = 0; o->deny && o->deny[i]; i++)
        if (rules_add(t->rules, RULE_CMDLINE, UNKNOWN, RULE_DENY, o->deny[i], err) < 0)
            return -1;
    struct ext_options x = {t->root.path, o->home, o->session, o->trusted, ext_event, t, on_verdict};
    t->ext = ext_open(&x, err);
    if (!t->ext)
        return -1;
    return pipe2(t->pipe, O_CLOEXEC) < 0 ? vt_fail_errno(err, VT_E_OS, "a pipe") : 0;
}

struct tools *tools_open(const struct tools_options *o, struct vt_err *err)
{
    struct tools *t = mem_new(sizeof *t);
    t->o = *o;
    t->root.fd = t->box.filter = t->pipe[0] = t->pipe[1] = -1;
    if (open_parts(t, o, err) == 0)
        return t;
    tools_close(t);
    return NULL;
}

static struct held *held_take(struct tools *t, int64_t id)
{
    struct held **p = &t->held, *h;
    while (*p && (*p)->c.id != id)
        p = &(*p)->next;
    h = *p;
    if (h)
        *p = h->next;
    return h;
}

static void held_free(struct held *h)
{
    if (!h)
        return;
    judged_free(h->j);
    free(h->j);
    free((char *)h->c.name);
    free((char *)h->c.args);
    free(h);
}

static void task_free(struct reading *k)
{
    json_decref(k->args);
    text_free(&k->result);
    text_free(&k->content);
    free(k->gist);
    free(k->path);
    free(k);
}

void tools_close(struct tools *t)
{
    if (!t)
        return;
    run_close(t);
    for (struct reading *k = t->tasks; k; k = k->next)
        atomic_store(&k->stop, 1);
    for (struct reading *k = t->tasks, *next; k; k = next) {
        next = k->next;
        pthread_join(k->thread, NULL);
        task_free(k);
    }
    while (t->held)
        held_free(held_take(t, t->held->c.id));
    ext_close(t->ext);
    rules_free(t->rules);
    seen_free(t->seen);
    box_close(&t->box);
    root_close(&t->root);
    free(t->out_dir);
    for (int i = 0; i < 2; i++)
        if (t->pipe[i] >= 0)
            close(t->pipe[i]);
    free(t);
}

const char *tools_sandbox(const struct tools *t)
{
    return box_name(&t->box);
}

void tools_session(struct tools *t, const char *session)
{
    seen_clear(t->seen);
    rules_clear(t->rules, RULE_SESSION);
    ext_session(t->ext, session);
}

void tools_seen(struct tools *t, seen_sink sink, void *arg)
{
    seen_changes(t->seen, sink, arg);
}

void tools_seen_put(struct tools *t, const char *path, const uint64_t *lines, size_t n)
{
    seen_put(t->seen, path, lines, n);
}

void tools_trust(struct tools *t, bool trusted)
{
    rules_trust(t->rules, trusted);
    ext_trust(t->ext, trusted);
}

/* ---- calls ---- */

static void checked(struct tools *t, int64_t id, struct judged *j)
{
    struct event e = {.kind = EV_TOOL_CHECKED,
                      .id = id,
                      .n = j->verdict,
                      .m = j->bits,
                      .text = text_str(&j->reason),
                      .len = j->reason.len,
                      .name = j->gist,
                      .approval = j->verdict == TOOL_ASK ? j->approval : NULL};
    if (j->verdict == TOOL_ASK)
        j->approval = NULL; /* taken over */
    tools_emit(t, &e);
}

/* The extensions may make it stricter. */
static void on_verdict(void *arg, int64_t id, enum ext_verdict v, const char *reason)
{
    struct tools *t = arg;
    struct held *h = held_take(t, id);
    if (!h)
        return; /* it was stopped meanwhile */
    if (v == EXT_DENY || v == EXT_FAIL) {
        h->j->verdict = v == EXT_DENY ? TOOL_DENY : TOOL_FAULT;
        text_clear(&h->j->reason);
        text_printf(&h->j->reason, "%s%s", reason,
                    v == EXT_FAIL ? "; without its verdict the call is not run" : "");
    } else if (v == EXT_ASK && h->j->verdict == TOOL_ALLOW) {
        judged_ask(t, &h->c, h->j, reason);
    }
    checked(t, id, h->j);
    held_free(h);
}

/* Returns whether the extensions are asked first; takes what was judged then. */
static bool hold(struct tools *t, const struct tool_call *c, const json_t *args, struct judged *j)
{
    if (j->verdict != TOOL_ALLOW && j->verdict != TOOL_ASK)
        return false;
    json_t *fields = json_pack("{s:s, s:O, s:s}", "tool", c->name, "arguments", args, "mode",
                               c->mode == MODE_PLAN ? "plan" : "build");
    bool yes = ext_judges(t->ext, fields);
    if (yes) {
        struct held *h = mem_new(sizeof *h);
        *h = (struct held){t->held, *c, mem_new(sizeof *j)};
        h->c.name = mem_dup(c->name);
        h->c.args = mem_dup(c->args);
        *h->j = *j;
        memset(j, 0, sizeof *j);
        t->held = h;
        ext_before_tool(t->ext, c->id, fields);
    }
    json_decref(fields);
    return yes;
}

void tools_check(struct tools *t, const struct tool_call *c)
{
    struct judged j;
    json_t *args = js_parse(c->args, strlen(c->args), NULL, 0);
    held_free(held_take(t, c->id));
    if (!tool_find(c->name) || !json_is_object(args)) {
        memset(&j, 0, sizeof j);
        j.verdict = TOOL_FAULT;
        text_printf(&j.reason, "there is no tool '%.60s'", c->name);
    } else {
        tools_judge(t, c, args, &j);
    }
    if (!json_is_object(args) || !hold(t, c, args, &j))
        checked(t, c->id, &j);
    judged_free(&j);
    json_decref(args);
}

static void *work(void *arg)
{
    struct reading *k = arg;
    if (strcmp(k->spec->name, "read") == 0)
        run_read(k);
    else if (strcmp(k->spec->name, "grep") == 0)
        run_grep(k);
    else
        run_glob(k);
    while (write(k->t->pipe[1], &k, sizeof k) < 0 && errno == EINTR)
        ;
    return NULL;
}

static void start_task(struct tools *t, const struct tool_call *c, json_t *args)
{
    struct reading *k = mem_new(sizeof *k);
    k->t = t;
    k->call = c->id;
    k->spec = tool_find(c->name);
    k->args = json_deep_copy(args); /* reference counts are not shared between threads */
    k->next = t->tasks;
    t->tasks = k;
    if (pthread_create(&k->thread, NULL, work, k) == 0)
        return;
    struct text words = {0};
    t->tasks = k->next;
    task_free(k);
    text_puts(&words, "no thread can be made for it");
    tools_done(t, c->id, TOOL_FAILED, &words);
    text_free(&words);
}

static void skill(struct tools *t, const struct tool_call *c, json_t *args)
{
    struct text out = {0};
    struct vt_err err;
    int rc = ext_skill(t->ext, js_str(args, "name"), &out, &err);
    if (rc < 0)
        text_set(&out, err.text);
    tools_done(t, c->id, rc < 0 ? TOOL_FAILED : TOOL_OK, &out);
    text_free(&out);
}

static void begin(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j)
{
    static const char *const tasks[] = {"read", "grep", "glob"};
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (strcmp(c->name, tasks[i]) == 0) {
            start_task(t, c, args);
            return;
        }
    if (strcmp(c->name, "bash") == 0)
        run_bash(t, c, args);
    else if (strcmp(c->name, "job") == 0)
        run_job(t, c, args);
    else if (strcmp(c->name, "skill") == 0)
        skill(t, c, args);
    else if (strcmp(c->name, "mcp") == 0) {
        t->window = c->window;
        ext_call(t->ext, c->id, js_str(args, "server"), js_str(args, "tool"),
                 json_object_get(args, "arguments"));
    } else if (j->change)
        run_write(t, c, j);
    else
        tools_done(t, c->id, TOOL_FAILED, &j->reason); /* todo, ask, recall are not run here */
}

/* What has changed since the check: a file, a rule, the mode. */
static bool still_allowed(const struct judged *j, const uint8_t *bound)
{
    if (!bound)
        return j->verdict == TOOL_ALLOW;
    if (j->verdict == TOOL_ALLOW)
        return true; /* a rule given meanwhile allows it anyway */
    return j->verdict == TOOL_ASK && memcmp(j->approval->bound, bound, sizeof j->approval->bound) == 0;
}

void tools_start(struct tools *t, const struct tool_call *c, const uint8_t *bound)
{
    struct judged j;
    struct text words = {0};
    json_t *args = js_parse(c->args, strlen(c->args), NULL, 0);
    if (!tool_find(c->name) || !json_is_object(args)) {
        text_puts(&words, "there is no such tool");
        tools_done(t, c->id, TOOL_FAILED, &words);
        json_decref(args);
        text_free(&words);
        return;
    }
    tools_judge(t, c, args, &j);
    if (still_allowed(&j, bound)) {
        begin(t, c, args, &j);
    } else {
        text_puts(&words, "what was approved has changed since");
        tools_done(t, c->id, TOOL_CHANGED, &words);
    }
    judged_free(&j);
    json_decref(args);
    text_free(&words);
}

void tools_cancel(struct tools *t, int64_t id)
{
    for (struct reading *k = t->tasks; k; k = k->next)
        if (k->call == id)
            atomic_store(&k->stop, 1);
    for (struct run *r = t->runs; r; r = r->next) {
        if (r->call == id && id) {
            r->proc.cancelled = true;
            proc_end(&r->proc, proc_now());
        }
        if (r->waiter == id && id)
            r->wait_until = 0;
    }
    held_free(held_take(t, id));
    ext_cancel(t->ext, id);
}

void tools_kill(struct tools *t, int64_t job)
{
    for (struct run *r = t->runs; r; r = r->next)
        if (r->job == job && job)
            proc_end(&r->proc, proc_now());
}

void tools_user_run(struct tools *t, const char *command, bool into_conversation)
{
    run_user(t, command, into_conversation);
}

int tools_rule(struct tools *t, const char *scope, enum mode mode, bool allow, const char *pattern,
               struct vt_err *err)
{
    enum rule_scope s = strcmp(scope, "session") == 0   ? RULE_SESSION
                        : strcmp(scope, "project") == 0 ? RULE_PROJECT
                                                        : RULE_USER;
    return rules_add(t->rules, s, mode, allow ? RULE_ALLOW : RULE_DENY, pattern, err);
}

static char **jobs_page(const struct tools *t, size_t *n)
{
    char **lines = NULL;
    size_t cap = 0;
    *n = 0;
    for (const struct run *r = t->runs; r; r = r->next) {
        struct text s = {0};
        if (!r->job)
            continue;
        text_printf(&s, "%3lld  %-9s %6lld lines  %s", (long long)r->job, r->proc.ended ? "ended" : "running",
                    (long long)output_lines(r->output), r->command);
        lines = mem_room(lines, *n, &cap, sizeof *lines);
        lines[(*n)++] = text_take(&s);
    }
    if (!*n) {
        lines = mem_new(sizeof *lines);
        lines[(*n)++] = mem_dup("no jobs");
    }
    return lines;
}

char **tools_page(struct tools *t, const char *page, size_t *n)
{
    if (strcmp(page, "rules") == 0)
        return rules_page(t->rules, n);
    if (strcmp(page, "jobs") == 0)
        return jobs_page(t, n);
    char **lines = ext_page(t->ext, page, n);
    for (const struct root *x = t->root.more; x && strcmp(page, "note") == 0; x = x->more) {
        struct text line = {0};
        text_printf(&line, "folder %s: added by the user; reached by absolute paths", x->path);
        lines = mem_grow(lines, (*n + 1) * sizeof *lines);
        lines[(*n)++] = text_take(&line);
    }
    return lines;
}

int tools_command(struct tools *t, const char *line)
{
    return ext_command(t->ext, line);
}

void tools_tell(struct tools *t, const char *event, const char *fields)
{
    json_t *o = js_parse(fields, strlen(fields), NULL, 0);
    ext_tell(t->ext, event, o);
    json_decref(o);
}

/* ---- the loop ---- */

size_t tools_poll(struct tools *t, struct pollfd *fds, size_t max)
{
    size_t n = 0;
    if (max)
        fds[n++] = (struct pollfd){t->pipe[0], POLLIN, 0};
    for (struct run *r = t->runs; r; r = r->next) {
        if (n < max && r->proc.out >= 0)
            fds[n++] = (struct pollfd){r->proc.out, POLLIN, 0};
        if (n < max && r->proc.report >= 0)
            fds[n++] = (struct pollfd){r->proc.report, POLLIN, 0};
    }
    return n + ext_poll(t->ext, fds + n, max - n);
}

int tools_timeout(const struct tools *t)
{
    uint64_t now = proc_now(), first = 0;
    for (const struct run *r = t->runs; r; r = r->next) {
        uint64_t at[2] = {proc_deadline(&r->proc), r->waiter ? r->wait_until + 1 : 0};
        for (int i = 0; i < 2; i++)
            if (at[i] && (!first || at[i] < first))
                first = at[i];
    }
    int own = !first ? -1 : first <= now ? 0 : (int)((first - now) / 1000) + 1, ext = ext_timeout(t->ext);
    return own < 0 ? ext : ext < 0 || own < ext ? own : ext;
}

static void finish_task(struct tools *t, struct reading *k)
{
    struct reading **p = &t->tasks;
    while (*p != k)
        p = &(*p)->next;
    *p = k->next;
    pthread_join(k->thread, NULL);
    if (k->count && !atomic_load(&k->stop))
        seen_show(t->seen, k->path, text_str(&k->content), k->content.len, k->first, k->count);
    struct event e = {.kind = EV_TOOL_DONE,
                      .id = k->call,
                      .n = atomic_load(&k->stop) ? TOOL_CANCELLED : k->outcome,
                      .text = text_str(&k->result),
                      .len = k->result.len,
                      .name = k->gist};
    tools_emit(t, &e);
    task_free(k);
}

void tools_work(struct tools *t, const struct pollfd *fds, size_t n)
{
    struct reading *k;
    for (size_t i = 0; i < n; i++) {
        if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
            continue;
        if (fds[i].fd == t->pipe[0] && read(t->pipe[0], &k, sizeof k) == sizeof k)
            finish_task(t, k);
        else
            run_read_pipe(t, fds[i].fd);
    }
    run_poll_done(t);
    ext_work(t->ext, fds, n);
}
