#include "ext/server.h"

#include "ext/line.h"
#include "ext/named.h"
#include "tools/output.h"
#include "util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HELLO_SECONDS = 10,
    EVENT_SECONDS = 5,
    MAX_WAITING = 64,
    PANEL_LINES = 12,
    MAX_MARKS = 3,
    MAX_LOG = 64 << 10,
    MAX_OUT = 16 << 20
};

struct ext_server *server_new(const char *name)
{
    struct ext_server *s = mem_new(sizeof *s);
    s->name = mem_dup(name);
    s->word = mem_dup("not started");
    s->in = s->err = -1;
    s->proc.out = s->proc.report = -1;
    s->timeout = 60;
    return s;
}

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

static void stop(struct ext_server *s)
{
    if (s->in >= 0)
        close(s->in);
    if (s->err >= 0)
        close(s->err);
    s->in = s->err = -1;
    if (s->running) {
        proc_kill(&s->proc);
        proc_reap(&s->proc);
    }
    s->running = false;
    text_clear(&s->out);
    text_clear(&s->line);
}

static void call_free(struct open_call *c)
{
    free(c->tool);
    json_decref(c->arguments);
    free(c);
}

void server_free(struct ext_server *s)
{
    stop(s);
    while (s->calls) {
        struct open_call *c = s->calls;
        s->calls = c->next;
        call_free(c);
    }
    free_list(s->argv);
    free_list(s->env);
    free_list(s->enabled);
    free(s->dir);
    free(s->name);
    free(s->word);
    json_decref(s->tools);
    json_decref(s->commands);
    json_decref(s->panel_lines);
    text_free(&s->out);
    text_free(&s->line);
    text_free(&s->log);
    free(s);
}

bool server_enabled(const struct ext_server *s, const char *tool)
{
    for (size_t i = 0; s->enabled && s->enabled[i]; i++)
        if (strcmp(s->enabled[i], tool) == 0)
            return true;
    return !s->enabled;
}

void server_word(struct ext *x, struct ext_server *s, const char *text)
{
    free(s->word);
    s->word = mem_dup(text);
    ext_told(x, s);
}

void server_end_call(struct ext *x, struct ext_server *s, struct open_call *c, bool ok, const char *text,
                     size_t n, const json_t *body)
{
    struct open_call **p = &s->calls;
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    ext_answered(x, s, c, ok, text, n, body);
    call_free(c);
}

void server_show_panel(struct ext *x, struct ext_server *s, const json_t *lines)
{
    json_t *list = json_array(), *l;
    size_t i;
    json_array_foreach(lines, i, l) if (json_is_string(l) && i < PANEL_LINES) json_array_append(list, l);
    json_decref(s->panel_lines);
    s->panel_lines = list;
    s->panel_changed = false;
    ext_panel(x, s);
}

/* The server is of no use now: every open call fails, and the next start waits twice as long; three times in
 * a row is the end. */
void server_fail(struct ext *x, struct ext_server *s, const char *why)
{
    struct text t = {0};
    stop(s);
    s->marks++;
    s->state = s->marks >= MAX_MARKS ? SERVER_OFF : SERVER_IDLE;
    s->start_after = proc_now() + (UINT64_C(500000) << s->marks);
    server_word(x, s, why);
    if (json_array_size(s->panel_lines))
        server_show_panel(x, s, NULL);
    text_printf(&t, "server %s: %s%s", s->name, why,
                s->state == SERVER_OFF ? "; it is off for this session" : "");
    struct open_call *gone = s->calls; /* what is asked meanwhile is of the next start */
    s->calls = NULL;
    while (gone) {
        struct open_call *c = gone;
        gone = c->next;
        ext_answered(x, s, c, false, text_str(&t), t.len, NULL);
        call_free(c);
    }
    text_free(&t);
    ext_contribute(x);
}

static void flush(struct ext *x, struct ext_server *s)
{
    while (s->out.len && s->in >= 0) {
        ssize_t n = write(s->in, s->out.s, s->out.len);
        if (n > 0)
            text_replace(&s->out, 0, (size_t)n, "", 0);
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n < 0 && errno == EAGAIN)
            break;
        else
            return; /* its end will be told by the other pipes */
    }
    if (s->out.len > MAX_OUT)
        server_fail(x, s, "it does not read what it is sent");
}

void server_send(struct ext *x, struct ext_server *s, json_t *o)
{
    char *line = js_dump(o);
    text_puts(&s->out, line);
    text_puts(&s->out, "\n");
    free(line);
    flush(x, s);
}

json_t *server_rpc(struct ext_server *s, const char *method, json_t *params, int64_t *id)
{
    *id = ++s->next_rpc;
    return json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", (json_int_t)*id, "method", method,
                     "params", params);
}

static void say_hello(struct ext *x, struct ext_server *s)
{
    const struct ext_options *o = ext_options_of(x);
    s->state = SERVER_HELLO;
    s->shake_until = proc_now() + HELLO_SECONDS * UINT64_C(1000000);
    if (s->own) {
        s->shake_rpc = ++s->next_rpc;
        server_send(x, s,
                    json_pack("{s:I, s:s, s:i, s:s, s:s}", "id", (json_int_t)s->shake_rpc, "type", "hello",
                              "version", 1, "root", o->root, "session", o->session ? o->session : ""));
        return;
    }
    json_t *params = json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", "2025-06-18", "capabilities",
                               "clientInfo", "name", "officina", "version", "1");
    server_send(x, s, server_rpc(s, "initialize", params, &s->shake_rpc));
}

static void start(struct ext *x, struct ext_server *s)
{
    struct vt_err err;
    int in[2], log[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(log, O_CLOEXEC) < 0) {
        server_fail(x, s, "no pipe can be made");
        return;
    }
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    fcntl(log[0], F_SETFL, O_NONBLOCK);
    struct proc_spec p = {
        .way = {.user = true}, .dir = s->dir, .argv = s->argv, .env = s->env, .in = in[0], .err = log[1]};
    int rc = proc_start(&s->proc, &p, proc_now(), &err);
    close(in[0]);
    close(log[1]);
    s->in = in[1];
    s->err = log[0];
    if (rc < 0) {
        server_fail(x, s, err.text);
        return;
    }
    s->running = true;
    s->noise = 0;
    server_word(x, s, "starting");
    say_hello(x, s);
}

static void read_log(struct ext_server *s)
{
    char buf[4096];
    ssize_t n;
    while (s->err >= 0 && (n = read(s->err, buf, sizeof buf)) > 0) {
        text_add(&s->log, buf, (size_t)n);
        if (s->log.len > MAX_LOG)
            text_replace(&s->log, 0, s->log.len - MAX_LOG / 2, "", 0);
    }
    if (s->err >= 0 && n == 0) {
        close(s->err);
        s->err = -1;
    }
}

/* ---- from outside ---- */

void server_end(struct ext *x, struct ext_server *s)
{
    static const char gone[] = "the folder's configuration is not trusted any more";
    while (s->calls)
        server_end_call(x, s, s->calls, false, gone, strlen(gone), NULL);
    if (json_array_size(s->panel_lines))
        server_show_panel(x, s, NULL);
    server_free(s);
}

void server_ask(struct ext *x, struct ext_server *s, enum ask_kind kind, int64_t call, const char *tool,
                const json_t *arguments)
{
    static const char off[] = "the server failed three times and is off for this session",
                      full[] = "too much waits for the server";
    struct open_call *c = mem_new(sizeof *c), **p = &s->calls;
    unsigned long seconds =
        HELLO_SECONDS + (kind == ASK_TOOL || kind == ASK_COMMAND ? s->timeout : EVENT_SECONDS);
    size_t waiting = 0;
    *c = (struct open_call){
        kind, call, 0, mem_dup(tool), json_deep_copy(arguments), proc_now() + seconds * UINT64_C(1000000),
        NULL};
    for (; *p; p = &(*p)->next)
        waiting++;
    *p = c;
    if (s->state == SERVER_OFF)
        server_end_call(x, s, c, false, off, strlen(off), NULL);
    else if (waiting >= MAX_WAITING)
        server_end_call(x, s, c, false, full, strlen(full), NULL);
    else if (s->state == SERVER_READY)
        said_send_waiting(x, s);
    else if (!s->running && proc_now() >= s->start_after)
        start(x, s);
}

void server_cancel(struct ext *x, struct ext_server *s, int64_t call)
{
    for (struct open_call *c = s->calls; c; c = c->next) {
        if (c->call != call || c->kind != ASK_TOOL)
            continue;
        if (c->rpc && s->own)
            server_send(x, s, json_pack("{s:s, s:I}", "type", "cancel", "id", (json_int_t)c->rpc));
        else if (c->rpc)
            server_send(x, s,
                        json_pack("{s:s, s:s, s:{s:I}}", "jsonrpc", "2.0", "method",
                                  "notifications/cancelled", "params", "requestId", (json_int_t)c->rpc));
        struct event e = {.kind = EV_TOOL_DONE, .id = call, .n = 2, .text = "stopped by the user", .len = 19};
        for (struct open_call **p = &s->calls; *p; p = &(*p)->next)
            if (*p == c) {
                struct open_call *gone = *p;
                *p = gone->next;
                call_free(gone);
                break;
            }
        const struct ext_options *o = ext_options_of(x);
        o->sink(o->arg, &e);
        return;
    }
}

void server_work(struct ext *x, struct ext_server *s, const struct pollfd *fds, size_t n)
{
    uint64_t now = proc_now();
    for (size_t i = 0; i < n && s->running; i++) {
        if (!fds[i].revents)
            continue;
        if (fds[i].fd == s->proc.out)
            said_read(x, s);
        else if (fds[i].fd == s->err)
            read_log(s);
        else if (fds[i].fd == s->in)
            flush(x, s);
    }
    if (s->running && proc_work(&s->proc, now))
        server_fail(x, s, "it has ended");
    if (s->running && s->state < SERVER_READY && now >= s->shake_until)
        server_fail(x, s, "no answer");
    if (!s->running && s->calls && s->state == SERVER_IDLE && now >= s->start_after)
        start(x, s);
    if (s->panel_changed && s->running) { /* the newest of what this reading brought */
        json_t *lines = s->panel_lines;
        s->panel_lines = NULL;
        server_show_panel(x, s, lines);
        json_decref(lines);
    }
    for (bool again = true; again;) {
        struct open_call *c = s->calls;
        while (c && now < c->deadline)
            c = c->next;
        again = c != NULL;
        if (c)
            server_end_call(x, s, c, false, "no answer within the time", 25, NULL); /* may ask anew */
        if (c && s->state == SERVER_READY && ++s->marks >= MAX_MARKS) {
            server_fail(x, s, "no answer, three times");
            return;
        }
    }
}

size_t server_poll(const struct ext_server *s, struct pollfd *fds, size_t max)
{
    const struct pollfd want[] = {{s->proc.out, POLLIN, 0},
                                  {s->proc.report, POLLIN, 0},
                                  {s->err, POLLIN, 0},
                                  {s->out.len ? s->in : -1, POLLOUT, 0}};
    size_t n = 0;
    for (size_t i = 0; s->running && i < sizeof want / sizeof *want; i++)
        if (want[i].fd >= 0 && n < max)
            fds[n++] = want[i];
    return n;
}

static void sooner(uint64_t *first, uint64_t at)
{
    if (at && (!*first || at < *first))
        *first = at;
}

uint64_t server_deadline(const struct ext_server *s)
{
    uint64_t first = 0;
    if (s->running) {
        sooner(&first, proc_deadline(&s->proc));
        sooner(&first, s->state < SERVER_READY ? s->shake_until : 0);
    } else if (s->calls && s->state == SERVER_IDLE) {
        sooner(&first, s->start_after);
    }
    for (const struct open_call *c = s->calls; c; c = c->next)
        sooner(&first, c->deadline);
    return first;
}
