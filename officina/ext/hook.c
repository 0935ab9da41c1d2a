#include "ext/hook.h"

#include "ext/line.h"
#include "ext/named.h"
#include "tools/output.h"
#include "util/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTE_MAX = 2000, REASON_MAX = 300, PAGE_LINES = 400 };

/* A call that waits for verdicts. */
struct gate {
    struct gate *next;
    int64_t id;
    unsigned open; /* that have not answered */
    enum ext_verdict verdict;
    struct text reason;
};

struct hook {
    struct gate *gates;
    int64_t request; /* number of the question before a request */
    unsigned open;
    struct text notes;
    char *told; /* what was last said of the contributions */
};

struct hook *hook_new(void)
{
    return mem_new(sizeof(struct hook));
}

static void gate_free(struct gate *g)
{
    text_free(&g->reason);
    free(g);
}

void hook_free(struct hook *h)
{
    while (h->gates) {
        struct gate *g = h->gates;
        h->gates = g->next;
        gate_free(g);
    }
    text_free(&h->notes);
    free(h->told);
    free(h);
}

static void say(struct ext *x, const struct event *e)
{
    const struct ext_options *o = ext_options_of(x);
    o->sink(o->arg, e);
}

static bool wants(const struct ext_server *s, enum ext_event e)
{
    return s->own && s->state != SERVER_OFF && (s->events & 1u << e);
}

/* A project runs nothing at the start, whatever is trusted. */
static bool starts_late(const struct ext_server *s)
{
    return s->project && !s->running;
}

/* ---- before a tool runs ---- */

/* Tools of an extension are not judged by itself. */
static bool judges(const struct ext_server *s, const json_t *fields)
{
    const char *server = js_str(json_object_get(fields, "arguments"), "server");
    return wants(s, TELL_BEFORE_TOOL) && !(server && strcmp(server, s->name) == 0);
}

bool ext_judges(const struct ext *x, const json_t *fields)
{
    for (const struct ext_server *s = ext_servers(x); s; s = s->next)
        if (judges(s, fields))
            return true;
    return false;
}

static void settle(struct ext *x, struct gate *g)
{
    const struct ext_options *o = ext_options_of(x);
    struct gate **p = &ext_hook(x)->gates;
    if (--g->open)
        return;
    while (*p != g)
        p = &(*p)->next;
    *p = g->next;
    o->verdict(o->arg, g->id, g->verdict, text_str(&g->reason));
    gate_free(g);
}

void ext_before_tool(struct ext *x, int64_t id, const json_t *fields)
{
    struct hook *h = ext_hook(x);
    struct gate *g = mem_new(sizeof *g);
    *g = (struct gate){.next = h->gates, .id = id, .open = 1};
    h->gates = g;
    for (struct ext_server *s = ext_servers(x); s; s = s->next)
        if (judges(s, fields)) {
            g->open++;
            server_ask(x, s, ASK_BEFORE, id, ext_event_name(TELL_BEFORE_TOOL), fields);
        }
    settle(x, g);
}

static void verdict(struct ext *x, const struct ext_server *s, const struct open_call *c, bool ok,
                    const char *text, const json_t *body)
{
    static const struct {
        const char *word;
        enum ext_verdict v;
    } words[] = {{"pass", EXT_PASS}, {"allow", EXT_PASS}, {"ask", EXT_ASK}, {"deny", EXT_DENY}};
    struct gate *g = ext_hook(x)->gates;
    enum ext_verdict v = EXT_FAIL;
    const char *word = js_str(body, "verdict"), *reason = js_str(body, "reason");
    struct text clean = {0};
    while (g && g->id != c->call)
        g = g->next;
    if (!g)
        return;
    for (size_t i = 0; ok && word && i < sizeof words / sizeof *words; i++)
        v = strcmp(word, words[i].word) == 0 ? words[i].v : v;
    if (v == EXT_FAIL)
        reason = !ok ? text : "its answer is no verdict";
    if (reason)
        output_clean(reason, strnlen(reason, REASON_MAX), &clean);
    if (v > g->verdict) {
        g->verdict = v;
        text_clear(&g->reason);
        text_printf(&g->reason, "%s: %s", s->name, clean.len ? text_str(&clean) : "without a reason");
    }
    text_free(&clean);
    settle(x, g);
}

/* ---- told ---- */

static void noted(struct ext *x, struct ext_server *s, const struct open_call *c, const json_t *body)
{
    struct hook *h = ext_hook(x);
    const char *text = js_str(body, "text");
    if (s && c->call != h->request)
        return; /* of a request that did not wait any longer */
    if (s && text && *text) {
        struct text clean = {0};
        output_clean(text, strnlen(text, NOTE_MAX), &clean);
        char *good = utf8_mend(text_str(&clean), clean.len);
        text_printf(&h->notes, "%sThe extension %s says:\n%s", h->notes.len ? "\n" : "", s->name, good);
        free(good);
        text_free(&clean);
    }
    if (--h->open)
        return;
    struct event e = {.kind = EV_NOTED, .text = h->notes.len ? text_str(&h->notes) : NULL};
    say(x, &e);
}

void ext_tell(struct ext *x, const char *event, const json_t *fields)
{
    struct hook *h = ext_hook(x);
    int e = ext_event_find(event);
    bool request = e == TELL_BEFORE_REQUEST;
    if (e < 0)
        return;
    if (request) {
        h->request++;
        h->open = 1;
        text_clear(&h->notes);
    }
    for (struct ext_server *s = ext_servers(x); s; s = s->next)
        if (wants(s, (enum ext_event)e) && !(e == TELL_SESSION_START && starts_late(s))) {
            h->open += request;
            server_ask(x, s, request ? ASK_REQUEST : ASK_NOTHING, h->request, event, fields);
        }
    if (request)
        noted(x, NULL, NULL, NULL);
}

/* ---- commands ---- */

void ext_contribute(struct ext *x)
{
    struct hook *h = ext_hook(x);
    json_t *commands = json_array(), *o = json_object(), *c;
    unsigned bits = 0;
    size_t i;
    if (!h)
        return;
    named_commands(x, commands);
    for (const struct ext_server *s = ext_servers(x); s; s = s->next) {
        bits |= s->own && s->state != SERVER_OFF ? s->events : 0;
        if (s->state != SERVER_OFF)
            json_array_foreach(s->commands, i, c) named_add(commands, js_str(c, "name"), js_str(c, "args"),
                                                            js_str(c, "help") ? js_str(c, "help") : s->name);
    }
    json_object_set_new(o, "commands", commands);
    json_object_set_new(o, "bits", json_integer(bits));
    char *now = js_dump(o);
    if (!h->told || strcmp(h->told, now) != 0) {
        struct event e = {.kind = EV_CONTRIBUTED, .n = bits, .text = now};
        say(x, &e);
    }
    free(h->told);
    h->told = now;
}

static void notice(struct ext *x, enum notice_level level, const char *text)
{
    struct event e = {.kind = EV_NOTICE, .n = level, .text = text};
    say(x, &e);
}

static struct ext_server *offers(const struct ext *x, const char *name)
{
    size_t i;
    json_t *c;
    for (struct ext_server *s = ext_servers(x); s; s = s->next)
        if (s->state != SERVER_OFF)
            json_array_foreach(s->commands, i, c) if (strcmp(js_str(c, "name"), name) == 0) return s;
    return NULL;
}

int ext_command(struct ext *x, const char *line)
{
    size_t n = strcspn(line, " \t\n");
    char *name = mem_dupn(line, n);
    const char *arguments = line + n + strspn(line + n, " \t\n");
    struct ext_server *s;
    struct vt_err err = {0};
    struct text words = {0};
    json_t *o = NULL;
    int rc = named_command(x, name + 1, arguments, &o, &err);
    if (rc == 0) {
        char *json = js_dump(o);
        struct event e = {.kind = EV_TEMPLATE, .name = line, .text = json};
        say(x, &e);
        free(json);
    } else if (err.code != VT_E_NOT_FOUND) {
        text_printf(&words, "%.40s: %s", name, err.text);
        notice(x, NOTICE_TROUBLE, text_str(&words));
        rc = 0;
    } else if ((s = offers(x, name))) {
        text_printf(&words, "%s works on %.40s, at most %u s.", s->name, name, s->timeout);
        notice(x, NOTICE_INFO, text_str(&words));
        o = json_pack("{s:s}", "arguments", arguments);
        server_ask(x, s, ASK_COMMAND, 0, name, o);
        json_decref(o);
        rc = 0;
    }
    text_free(&words);
    free(name);
    return rc;
}

static void show_page(struct ext *x, const char *title, const char *text)
{
    json_t *o = json_object(), *lines = json_array();
    for (const char *p = text; *p && json_array_size(lines) < PAGE_LINES;) {
        size_t k = strcspn(p, "\n");
        char *good = utf8_mend(p, k);
        json_array_append_new(lines, json_string(good));
        free(good);
        p += k + (p[k] == '\n');
    }
    json_object_set_new(o, "lines", lines);
    char *json = js_dump(o);
    struct event e = {.kind = EV_SHEET, .n = SHEET_PAGE, .name = title, .text = json};
    say(x, &e);
    free(json);
}

static void commanded(struct ext *x, const struct open_call *c, bool ok, const char *text, const json_t *body)
{
    const char *prompt = ok ? js_str(body, "prompt") : NULL;
    struct text words = {0};
    if (!ok || (*text && !strchr(text, '\n') && strlen(text) <= 200)) {
        text_printf(&words, "%s: %.900s", c->tool, text);
        notice(x, ok ? NOTICE_INFO : NOTICE_TROUBLE, text_str(&words));
    } else if (*text) {
        show_page(x, c->tool, text);
    }
    if (prompt && *prompt) {
        struct event e = {.kind = EV_SUBMIT, .n = 1, .text = prompt};
        say(x, &e);
    }
    text_free(&words);
}

/* ---- answers ---- */

void ext_answered(struct ext *x, struct ext_server *s, const struct open_call *c, bool ok, const char *text,
                  size_t n, const json_t *body)
{
    switch (c->kind) {
    case ASK_TOOL: ext_done(x, c->call, ok, text, n); break;
    case ASK_COMMAND: commanded(x, c, ok, text, body); break;
    case ASK_BEFORE: verdict(x, s, c, ok, text, body); break;
    case ASK_REQUEST: noted(x, s, c, body); break;
    case ASK_NOTHING: break;
    }
}

void ext_progress(struct ext *x, const struct open_call *c, const char *text)
{
    struct text t = {0};
    if (c->kind != ASK_TOOL)
        return;
    text_printf(&t, "%s\n", text);
    struct event e = {.kind = EV_TOOL_OUTPUT, .id = c->call, .text = text_str(&t), .len = t.len};
    say(x, &e);
    text_free(&t);
}

void ext_panel(struct ext *x, struct ext_server *s)
{
    char *lines = json_dumps(s->panel_lines, JSON_COMPACT);
    struct event e = {.kind = EV_PANEL, .name = s->name, .text = lines ? lines : "[]"};
    say(x, &e);
    free(lines);
}
