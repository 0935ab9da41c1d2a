#include "ext/server.h"

#include "ext/line.h"
#include "ext/named.h"
#include "tools/output.h"
#include "util/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EVENT_SECONDS = 5,
    MAX_NOISE = 100,
    MAX_TOLD = 1000, /* lines a second that nobody asked for */
    COMMANDS = 16,
    MAX_TOOLS = 200
};

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

static void send_event(struct ext *x, struct ext_server *s, struct open_call *c)
{
    json_t *o = json_object();
    bool command = c->kind == ASK_COMMAND, told = c->kind == ASK_NOTHING;
    c->deadline = proc_now() + (command ? s->timeout : EVENT_SECONDS) * UINT64_C(1000000);
    if (!told)
        json_object_set_new(o, "id", json_integer(c->rpc = ++s->next_rpc));
    js_set_str(o, "type", command ? "command" : "event");
    js_set_str(o, "name", c->tool);
    json_object_update(o, c->arguments);
    if (told)
        server_end_call(x, s, c, true, "", 0, NULL); /* sending may fail the server, and end its calls */
    server_send(x, s, o);
}

static void send_call(struct ext *x, struct ext_server *s, struct open_call *c)
{
    struct text t = {0};
    if (c->kind != ASK_TOOL) {
        send_event(x, s, c);
    } else if (!c->tool) {
        list_text(s, &t);
        server_end_call(x, s, c, true, text_str(&t), t.len, NULL);
    } else if (!knows(s, c->tool)) {
        text_printf(&t, "server %s has no tool %.64s. ", s->name, c->tool);
        list_text(s, &t);
        server_end_call(x, s, c, false, text_str(&t), t.len, NULL);
    } else {
        json_t *args = c->arguments ? json_incref(c->arguments) : json_object();
        c->deadline = proc_now() + s->timeout * UINT64_C(1000000);
        if (s->own) {
            c->rpc = ++s->next_rpc;
            server_send(x, s,
                        json_pack("{s:I, s:s, s:s, s:o, s:I}", "id", (json_int_t)c->rpc, "type", "call",
                                  "tool", c->tool, "arguments", args, "deadline_ms",
                                  (json_int_t)s->timeout * 1000));
        } else {
            json_t *m = server_rpc(s, "tools/call",
                                   json_pack("{s:s, s:o}", "name", c->tool, "arguments", args), &c->rpc);
            server_send(x, s, m);
        }
    }
    text_free(&t);
}

void said_send_waiting(struct ext *x, struct ext_server *s)
{
    while (s->state == SERVER_READY) {
        struct open_call *c = s->calls;
        while (c && c->rpc)
            c = c->next;
        if (!c)
            return;
        send_call(x, s, c); /* may end it, and the list with it */
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

void server_take_events(struct ext_server *s, const json_t *names)
{
    size_t i;
    json_t *n;
    s->events = 0;
    json_array_foreach(names, i, n)
    {
        int e = ext_event_find(json_string_value(n));
        s->events |= e < 0 ? 0 : 1u << e;
    }
}

void server_take_commands(struct ext_server *s, const json_t *names)
{
    size_t i;
    json_t *n;
    json_decref(s->commands);
    s->commands = json_array();
    json_array_foreach(names, i, n)
    {
        const char *name = json_is_object(n) ? js_str(n, "name") : json_string_value(n);
        if (name && name[0] == '/' && line_name_ok(name + 1) && !strpbrk(name + 1, "./") &&
            strlen(name) <= 33 && json_array_size(s->commands) < COMMANDS)
            named_add(s->commands, name, js_str(n, "arguments"), js_str(n, "description"));
    }
}

static void ready(struct ext *x, struct ext_server *s)
{
    struct text t = {0};
    s->state = SERVER_READY;
    s->shake_rpc = 0;
    size_t n = json_array_size(s->tools);
    text_printf(&t, "ready, %zu tool%s", n, n == 1 ? "" : "s");
    server_word(x, s, text_str(&t));
    text_free(&t);
    ext_compare(x, s);
    ext_contribute(x);
    said_send_waiting(x, s);
}

static void handshake(struct ext *x, struct ext_server *s, const struct line *l)
{
    if (l->kind == LINE_FAULT) {
        server_fail(x, s, l->words);
        return;
    }
    if (s->own) {
        json_array_clear(s->tools);
        take_tools(x, s, json_object_get(l->body, "tools"));
        if (json_object_get(l->body, "events"))
            server_take_events(s, json_object_get(l->body, "events"));
        if (json_object_get(l->body, "commands"))
            server_take_commands(s, json_object_get(l->body, "commands"));
        s->panel = js_bool(l->body, "panel", false);
        ready(x, s);
        return;
    }
    const char *more = NULL;
    if (s->state == SERVER_HELLO) {
        if (s->tools)
            json_array_clear(s->tools);
        server_send(x, s, json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method", "notifications/initialized"));
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
    server_send(x, s, server_rpc(s, "tools/list", params, &s->shake_rpc));
}

static void answered(struct ext *x, struct ext_server *s, struct open_call *c, const struct line *l)
{
    struct text raw = {0}, clean = {0};
    bool failed = l->kind == LINE_FAULT;
    if (c->kind != ASK_TOOL && c->kind != ASK_COMMAND) {
        s->marks = 0;
        server_end_call(x, s, c, true, "", 0, l->body);
        return;
    }
    if (failed)
        text_puts(&raw, l->words);
    else
        line_result_text(l->body, &raw, &failed);
    output_clean(text_str(&raw), raw.len, &clean);
    s->marks = 0;
    server_end_call(x, s, c, !failed, text_str(&clean), clean.len, l->body);
    text_free(&raw);
    text_free(&clean);
}

/* What it says without being asked: progress of a call, lines for the panel, answers that nobody waits for. Shown as it
 * comes, but a flood of it ends the server. */
static void told(struct ext *x, struct ext_server *s, struct open_call *c, const struct line *l)
{
    uint64_t now = proc_now();
    if (now - s->told_since > UINT64_C(1000000)) {
        s->told_since = now;
        s->told = 0;
    }
    if (++s->told > MAX_TOLD) {
        server_fail(x, s, "it floods: more than 1000 lines a second that nobody asked for");
        return;
    }
    if (l->kind != LINE_NOTICE || !s->own)
        return;
    if (strcmp(l->method, "panel") == 0 && s->panel && s->state == SERVER_READY) {
        json_t *lines = json_incref(json_object_get(l->body, "lines"));
        json_decref(s->panel_lines);
        s->panel_lines = lines;
        s->panel_changed = true;
    } else if (strcmp(l->method, "progress") == 0 && c && js_str(l->body, "text")) {
        struct text clean = {0};
        output_clean(js_str(l->body, "text"), strlen(js_str(l->body, "text")), &clean);
        ext_progress(x, c, text_str(&clean));
        text_free(&clean);
    }
}

static void asked(struct ext *x, struct ext_server *s, const struct line *l)
{
    json_t *o = strcmp(l->method, "ping") == 0
                    ? json_pack("{s:s, s:O, s:{}}", "jsonrpc", "2.0", "id", l->body, "result")
                    : json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", l->body, "error", "code",
                                -32601, "message", "not offered by this client");
    server_send(x, s, o);
}

static void take_line(struct ext *x, struct ext_server *s, const char *text, size_t n)
{
    struct line l;
    (s->own ? line_read_own : line_read_rpc)(&l, text, n);
    if (l.kind == LINE_NOISE) {
        if (n && ++s->noise > MAX_NOISE)
            server_fail(x, s, "it writes lines that are no messages");
    } else if (l.kind == LINE_REQUEST) {
        asked(x, s, &l);
    } else {
        struct open_call *c = s->calls;
        while (c && (!l.id || c->rpc != l.id))
            c = c->next;
        if (l.kind == LINE_NOTICE)
            told(x, s, c, &l);
        else if (s->shake_rpc && l.id == s->shake_rpc)
            handshake(x, s, &l);
        else if (c)
            answered(x, s, c, &l);
        else
            told(x, s, NULL, &l);
    }
    line_free(&l);
}

void said_read(struct ext *x, struct ext_server *s)
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
                server_fail(x, s, "it writes a line of more than 4 MiB");
            } else if (nl) {
                char *text = text_take(&s->line);
                take_line(x, s, text, strlen(text));
                free(text);
            }
        }
    }
}
