#include "ext/server.h"

#include "ext/line.h"
#include "tools/output.h"
#include "util/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HELLO_SECONDS = 10,
    MAX_NOISE = 100,
    MAX_MARKS = 3,
    MAX_LOG = 64 << 10,
    MAX_OUT = 16 << 20,
    MAX_TOOLS = 200
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

static void word(struct ext *x, struct ext_server *s, const char *text)
{
    free(s->word);
    s->word = mem_dup(text);
    ext_told(x, s);
}

static void end_call(struct ext *x, struct ext_server *s, struct open_call *c, bool ok, const char *text,
                     size_t n)
{
    struct open_call **p = &s->calls;
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    int64_t id = c->call;
    call_free(c);
    ext_done(x, id, ok, text, n);
}

/* The server is of no use now: every open call fails, and the next start waits twice as long; three times in
 * a row is the end. */
static void fail(struct ext *x, struct ext_server *s, const char *why)
{
    struct text t = {0};
    stop(s);
    s->marks++;
    s->state = s->marks >= MAX_MARKS ? SERVER_OFF : SERVER_IDLE;
    s->start_after = proc_now() + (UINT64_C(500000) << s->marks);
    word(x, s, why);
    text_printf(&t, "server %s: %s%s", s->name, why,
                s->state == SERVER_OFF ? "; it is off for this session" : "");
    while (s->calls)
        end_call(x, s, s->calls, false, text_str(&t), t.len);
    text_free(&t);
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
        fail(x, s, "it does not read what it is sent");
}

static void send_message(struct ext *x, struct ext_server *s, json_t *o)
{
    char *line = js_dump(o);
    text_puts(&s->out, line);
    text_puts(&s->out, "\n");
    free(line);
    flush(x, s);
}

static json_t *rpc(struct ext_server *s, const char *method, json_t *params, int64_t *id)
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
        send_message(x, s,
                     json_pack("{s:I, s:s, s:i, s:s, s:s}", "id", (json_int_t)s->shake_rpc, "type", "hello",
                               "version", 1, "root", o->root, "session", o->session ? o->session : ""));
        return;
    }
    json_t *params = json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", "2025-06-18", "capabilities",
                               "clientInfo", "name", "officina", "version", "1");
    send_message(x, s, rpc(s, "initialize", params, &s->shake_rpc));
}

static void start(struct ext *x, struct ext_server *s)
{
    struct vt_err err;
    int in[2], log[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(log, O_CLOEXEC) < 0) {
        fail(x, s, "no pipe can be made");
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
        fail(x, s, err.text);
        return;
    }
    s->running = true;
    s->noise = 0;
    word(x, s, "starting");
    say_hello(x, s);
}

/* ---- what it says ---- */

static void list_text(const struct ext_server *s, struct text *out)
{
    size_t i;
    json_t *t;
    json_array_foreach(s->tools, i, t)
    {
        json_t *schema = json_object_get(t, "inputSchema");
        if (!schema)
            schema = json_object_get(t, "schema");
        char *words = schema ? json_dumps(schema, JSON_COMPACT) : NULL;
        const char *d = js_str(t, "description");
        text_printf(out, "%s/%s: %.600s\n  arguments: %.2000s\n", s->name, js_str(t, "name"), d ? d : "",
                    words ? words : "{}");
        free(words);
    }
    if (!out->len)
        text_printf(out, "server %s offers no tools\n", s->name);
}

static bool knows(const struct ext_server *s, const char *tool)
{
    size_t i;
    json_t *t;
    json_array_foreach(s->tools, i, t) if (strcmp(js_str(t, "name"), tool) == 0) return true;
    return false;
}

static void send_call(struct ext *x, struct ext_server *s, struct open_call *c)
{
    struct text t = {0};
    if (!c->tool) {
        list_text(s, &t);
        end_call(x, s, c, true, text_str(&t), t.len);
    } else if (!knows(s, c->tool)) {
        text_printf(&t, "server %s has no tool %.64s. ", s->name, c->tool);
        list_text(s, &t);
        end_call(x, s, c, false, text_str(&t), t.len);
    } else {
        json_t *args = c->arguments ? json_incref(c->arguments) : json_object();
        c->deadline = proc_now() + s->timeout * UINT64_C(1000000);
        if (s->own) {
            c->rpc = ++s->next_rpc;
            send_message(x, s,
                         json_pack("{s:I, s:s, s:s, s:o, s:I}", "id", (json_int_t)c->rpc, "type", "call",
                                   "tool", c->tool, "arguments", args, "deadline_ms",
                                   (json_int_t)s->timeout * 1000));
        } else {
            json_t *m =
                rpc(s, "tools/call", json_pack("{s:s, s:o}", "name", c->tool, "arguments", args), &c->rpc);
            send_message(x, s, m);
        }
    }
    text_free(&t);
}

static void send_waiting(struct ext *x, struct ext_server *s)
{
    for (bool again = true; again && s->state == SERVER_READY;) {
        again = false;
        for (struct open_call *c = s->calls; c && !again; c = c->next)
            if (!c->rpc) {
                send_call(x, s, c); /* may end it, and the list with it */
                again = true;
            }
    }
}

static void take_tools(struct ext *x, struct ext_server *s, const json_t *list)
{
    size_t i;
    json_t *t;
    if (!s->tools)
        s->tools = json_array();
    json_array_foreach(list, i, t)
    {
        const char *name = js_str(t, "name");
        if (line_name_ok(name) && server_enabled(s, name) && !knows(s, name) &&
            json_array_size(s->tools) < MAX_TOOLS)
            json_array_append(s->tools, t);
    }
}

static void ready(struct ext *x, struct ext_server *s)
{
    struct text t = {0};
    s->state = SERVER_READY;
    s->shake_rpc = 0;
    s->marks = 0;
    text_printf(&t, "ready, %zu tools", json_array_size(s->tools));
    word(x, s, text_str(&t));
    text_free(&t);
    ext_compare(x, s);
    send_waiting(x, s);
}

static void handshake(struct ext *x, struct ext_server *s, const struct line *l)
{
    if (l->kind == LINE_FAULT) {
        fail(x, s, l->words);
        return;
    }
    if (s->own) {
        json_array_clear(s->tools);
        take_tools(x, s, json_object_get(l->body, "tools"));
        ready(x, s);
        return;
    }
    const char *more = NULL;
    if (s->state == SERVER_HELLO) {
        if (s->tools)
            json_array_clear(s->tools);
        send_message(x, s, json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method", "notifications/initialized"));
        s->state = SERVER_LIST;
    } else {
        take_tools(x, s, json_object_get(l->body, "tools"));
        more = js_str(l->body, "nextCursor");
        if (!more || !*more || json_array_size(s->tools) >= MAX_TOOLS) {
            ready(x, s);
            return;
        }
    }
    json_t *params = more ? json_pack("{s:s}", "cursor", more) : json_object();
    send_message(x, s, rpc(s, "tools/list", params, &s->shake_rpc));
}

static void answered(struct ext *x, struct ext_server *s, struct open_call *c, const struct line *l)
{
    struct text raw = {0}, clean = {0};
    bool failed = l->kind == LINE_FAULT;
    if (failed)
        text_puts(&raw, l->words);
    else
        line_result_text(l->body, &raw, &failed);
    output_clean(text_str(&raw), raw.len, &clean);
    s->marks = 0;
    end_call(x, s, c, !failed, text_str(&clean), clean.len);
    text_free(&raw);
    text_free(&clean);
}

static void asked(struct ext *x, struct ext_server *s, const struct line *l)
{
    json_t *o = strcmp(l->method, "ping") == 0
                    ? json_pack("{s:s, s:O, s:{}}", "jsonrpc", "2.0", "id", l->body, "result")
                    : json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", l->body, "error", "code",
                                -32601, "message", "not offered by this client");
    send_message(x, s, o);
}

static void take_line(struct ext *x, struct ext_server *s, const char *text, size_t n)
{
    struct line l;
    (s->own ? line_read_own : line_read_rpc)(&l, text, n);
    if (l.kind == LINE_NOISE) {
        if (n && ++s->noise > MAX_NOISE)
            fail(x, s, "it writes lines that are no messages");
    } else if (l.kind == LINE_REQUEST) {
        asked(x, s, &l);
    } else if (l.kind != LINE_NOTICE) {
        struct open_call *c = s->calls;
        while (c && c->rpc != l.id)
            c = c->next;
        if (s->shake_rpc && l.id == s->shake_rpc)
            handshake(x, s, &l);
        else if (c && l.id)
            answered(x, s, c, &l);
    }
    line_free(&l);
}

static void read_lines(struct ext *x, struct ext_server *s)
{
    char buf[16384];
    for (int i = 0; i < 16 && s->running && s->proc.out >= 0; i++) {
        ssize_t n = read(s->proc.out, buf, sizeof buf);
        if (n == 0) {
            close(s->proc.out);
            s->proc.out = -1;
        }
        if (n <= 0)
            return;
        for (const char *p = buf, *end = buf + n; p < end && s->running;) {
            const char *nl = memchr(p, '\n', (size_t)(end - p));
            text_add(&s->line, p, (size_t)((nl ? nl : end) - p));
            p = nl ? nl + 1 : end;
            if (s->line.len > LINE_MAX_BYTES) {
                fail(x, s, "it writes a line of more than 4 MiB");
            } else if (nl) {
                char *text = text_take(&s->line);
                take_line(x, s, text, strlen(text));
                free(text);
            }
        }
    }
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

void server_call(struct ext *x, struct ext_server *s, int64_t call, const char *tool, const json_t *arguments)
{
    static const char off[] = "the server failed three times and is off for this session";
    struct open_call *c = mem_new(sizeof *c), **p = &s->calls;
    *c = (struct open_call){
        call, 0, mem_dup(tool), json_deep_copy(arguments), proc_now() + s->timeout * UINT64_C(1000000), NULL};
    while (*p)
        p = &(*p)->next;
    *p = c;
    if (s->state == SERVER_OFF)
        end_call(x, s, c, false, off, strlen(off));
    else if (s->state == SERVER_READY)
        send_waiting(x, s);
    else if (!s->running && proc_now() >= s->start_after)
        start(x, s);
}

void server_cancel(struct ext *x, struct ext_server *s, int64_t call)
{
    for (struct open_call *c = s->calls; c; c = c->next) {
        if (c->call != call)
            continue;
        if (c->rpc && s->own)
            send_message(x, s, json_pack("{s:s, s:I}", "type", "cancel", "id", (json_int_t)c->rpc));
        else if (c->rpc)
            send_message(x, s,
                         json_pack("{s:s, s:s, s:{s:I}}", "jsonrpc", "2.0", "method",
                                   "notifications/cancelled", "params", "requestId", (json_int_t)c->rpc));
        struct event e = {.kind = EV_TOOL_DONE, .id = call, .n = 2, .text = "stopped by the user", .len = 19};
        for (struct open_call **p = &s->calls; *p; p = &(*p)->next)
            if ((*p)->call == call) {
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
            read_lines(x, s);
        else if (fds[i].fd == s->err)
            read_log(s);
        else if (fds[i].fd == s->in)
            flush(x, s);
    }
    if (s->running && proc_work(&s->proc, now))
        fail(x, s, "it has ended");
    if (s->running && s->state < SERVER_READY && now >= s->shake_until)
        fail(x, s, "no answer");
    if (!s->running && s->calls && s->state == SERVER_IDLE && now >= s->start_after)
        start(x, s);
    for (struct open_call *c = s->calls, *next; c; c = next) {
        next = c->next;
        if (now < c->deadline)
            continue;
        end_call(x, s, c, false, "no answer within the time", 25);
        if (s->state == SERVER_READY && ++s->marks >= MAX_MARKS) {
            fail(x, s, "no answer, three times");
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
