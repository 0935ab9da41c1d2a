#include "tools/tools_priv.h"

#include "util/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_SECONDS = 120,
    MAX_SECONDS = 1800,
    JOB_SECONDS = 24 * 3600,
    MAX_WAIT = 60,
    READS_AT_ONCE = 16,
    ENDED_JOBS = 20, /* that are remembered with what they printed */
};

static void say(struct tools *t, int64_t call, enum tool_outcome outcome, const char *text)
{
    struct text r = {0};
    text_puts(&r, text);
    tools_done(t, call, outcome, &r);
    text_free(&r);
}

static struct run *start(struct tools *t, const char *command, const struct box_way *way, unsigned seconds,
                         size_t limit, struct vt_err *err)
{
    struct run *r = mem_new(sizeof *r);
    struct proc_spec s = {.box = &t->box,
                          .way = *way,
                          .command = command,
                          .dir = t->root.path,
                          .seconds = seconds,
                          .in = -1,
                          .err = -1};
    r->started = proc_now();
    r->seconds = seconds;
    r->command = mem_dup(command);
    r->output = output_new(t->out_dir, limit, err);
    if (r->output && proc_start(&r->proc, &s, r->started, err) == 0) {
        r->next = t->runs;
        t->runs = r;
        return r;
    }
    output_free(r->output);
    free(r->command);
    free(r);
    return NULL;
}

static void drop(struct tools *t, struct run *r)
{
    struct run **p = &t->runs;
    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    proc_kill(&r->proc);
    proc_reap(&r->proc);
    output_free(r->output);
    free(r->command);
    free(r);
}

static void tell_job(struct tools *t, struct run *r)
{
    struct event e = {.kind = EV_JOB,
                      .id = r->job,
                      .text = r->command,
                      .n = r->proc.ended ? r->proc.status : -1,
                      .m = output_lines(r->output)};
    r->told_lines = e.m;
    r->told = r->proc.ended;
    tools_emit(t, &e);
}

/* The oldest ended jobs are forgotten, so that a long session does not grow by each. */
static void drop_ended(struct tools *t)
{
    size_t n = 0;
    for (struct run *r = t->runs, *next; r; r = next) { /* newest first */
        next = r->next;
        if (r->job && r->proc.ended && r->told && !r->waiter && ++n > ENDED_JOBS)
            drop(t, r);
    }
}

void run_bash(struct tools *t, const struct tool_call *c, json_t *args)
{
    struct vt_err err;
    long long seconds = js_int(args, "timeout", DEFAULT_SECONDS);
    bool background = js_bool(args, "background", false);
    struct box_way way = {.read_only = c->mode == MODE_PLAN, .network = js_bool(args, "network", false)};
    seconds = seconds < 1 ? 1 : seconds > MAX_SECONDS ? MAX_SECONDS : seconds;
    if (background && !json_object_get(args, "timeout"))
        seconds = JOB_SECONDS;
    struct run *r = start(t, js_str(args, "command"), &way, (unsigned)seconds, output_limit(c->window), &err);
    if (!r) {
        say(t, c->id, TOOL_FAILED, err.text);
        return;
    }
    if (!background) {
        r->call = c->id;
        return;
    }
    struct text words = {0};
    drop_ended(t);
    r->job = ++t->next_job;
    text_printf(&words, "runs in the background as job %lld", (long long)r->job);
    tools_done(t, c->id, TOOL_OK, &words);
    text_free(&words);
    tell_job(t, r);
}

void run_user(struct tools *t, const char *command, bool into)
{
    struct vt_err err;
    struct box_way way = {.user = true};
    struct run *r = start(t, command, &way, MAX_SECONDS, output_limit(UNKNOWN), &err);
    if (r) {
        r->user = true;
        r->into = into;
        return;
    }
    struct event e = {.kind = EV_USER_RAN, .name = command, .text = err.text, .n = 127, .m = into};
    tools_emit(t, &e);
}

static struct run *find_job(struct tools *t, int64_t id)
{
    for (struct run *r = t->runs; r; r = r->next)
        if (r->job == id && id)
            return r;
    return NULL;
}

static void put_status(const struct run *r, struct text *out)
{
    if (!r->proc.ended) {
        text_printf(out, "job %lld runs, %llu s, %lld lines so far: %s\n", (long long)r->job,
                    (unsigned long long)((proc_now() - r->started) / 1000000),
                    (long long)output_lines(r->output), r->command);
        return;
    }
    text_printf(out, "job %lld ended with exit status %d%s: %s\n", (long long)r->job, r->proc.status,
                r->proc.timed_out ? " (out of time)" : "", r->command);
}

static void answer_waiter(struct tools *t, struct run *r)
{
    struct text out = {0};
    int64_t call = r->waiter;
    r->waiter = 0;
    put_status(r, &out);
    output_news(r->output, &out);
    tools_done(t, call, TOOL_OK, &out);
    text_free(&out);
}

void run_job(struct tools *t, const struct tool_call *c, json_t *args)
{
    const char *action = js_str(args, "action");
    struct run *r = find_job(t, js_int(args, "id", 0));
    long long wait = js_int(args, "wait", 0);
    if (!r) {
        say(t, c->id, TOOL_FAILED, "no such job; /jobs shows them, and jobs end with the workshop");
        return;
    }
    if (strcmp(action, "stop") == 0) {
        proc_end(&r->proc, proc_now());
        wait = 3;
    }
    if (r->waiter)
        answer_waiter(t, r);
    r->waiter = c->id;
    wait = wait < 0 ? 0 : wait > MAX_WAIT ? MAX_WAIT : wait;
    r->wait_until = proc_now() + (uint64_t)wait * 1000000;
    if (r->proc.ended || !wait)
        answer_waiter(t, r);
}

static void finish_call(struct tools *t, struct run *r)
{
    struct text out = {0};
    int64_t number = output_result(r->output, &out);
    if (out.len && out.s[out.len - 1] != '\n')
        text_puts(&out, "\n");
    if (r->proc.cancelled)
        text_puts(&out, "[stopped by the user]\n");
    else if (r->proc.timed_out)
        text_printf(&out, "[ended after %u s: out of time]\n", r->seconds);
    if (r->proc.status && !r->proc.timed_out && !r->proc.cancelled)
        text_printf(&out, "[exit status %d]\n", r->proc.status);
    else if (!out.len)
        text_puts(&out, "[no output]\n");
    if (r->proc.left)
        text_printf(&out, "[left over and ended: %d processes]\n", r->proc.left);
    struct event e = {.kind = EV_TOOL_DONE,
                      .id = r->call,
                      .text = text_str(&out),
                      .len = out.len,
                      .m = number,
                      .n = r->proc.cancelled                     ? TOOL_CANCELLED
                           : r->proc.status || r->proc.timed_out ? TOOL_FAILED
                                                                 : TOOL_OK};
    drop(t, r);
    tools_emit(t, &e);
    text_free(&out);
}

static void finish_user(struct tools *t, struct run *r)
{
    struct text out = {0};
    char *command = mem_dup(r->command);
    output_result(r->output, &out);
    struct event e = {.kind = EV_USER_RAN,
                      .name = command,
                      .text = text_str(&out),
                      .len = out.len,
                      .n = r->proc.status,
                      .m = r->into};
    drop(t, r);
    tools_emit(t, &e);
    text_free(&out);
    free(command);
}

static void read_output(struct tools *t, struct run *r)
{
    char buf[16384];
    for (int i = 0; i < READS_AT_ONCE && r->proc.out >= 0; i++) {
        ssize_t n = read(r->proc.out, buf, sizeof buf);
        if (n > 0) {
            output_add(r->output, buf, (size_t)n);
            struct event e = {.kind = EV_TOOL_OUTPUT, .id = r->call, .text = buf, .len = (size_t)n};
            if (r->call)
                tools_emit(t, &e);
        } else if (n == 0) {
            close(r->proc.out);
            r->proc.out = -1;
        } else if (errno != EINTR) {
            return;
        }
    }
}

void run_read_pipe(struct tools *t, int fd)
{
    for (struct run *r = t->runs; r; r = r->next)
        if (r->proc.out == fd) {
            read_output(t, r);
            return;
        }
}

void run_poll_done(struct tools *t)
{
    uint64_t now = proc_now();
    for (struct run *r = t->runs, *next; r; r = next) {
        next = r->next;
        bool was = r->proc.ended, over = proc_work(&r->proc, now);
        if (!r->job) {
            if (over) {
                (r->user ? finish_user : finish_call)(t, r);
                next =
                    t->runs; /* the sink may have started another; looking again at the rest does no harm */
            }
            continue;
        }
        if ((over && !was) || (!r->told && output_lines(r->output) >= r->told_lines + 50))
            tell_job(t, r);
        if (r->waiter && (over || now >= r->wait_until))
            answer_waiter(t, r);
    }
}

void run_close(struct tools *t)
{
    for (struct run *r = t->runs; r; r = r->next)
        proc_kill(&r->proc);
    while (t->runs)
        drop(t, t->runs);
}
