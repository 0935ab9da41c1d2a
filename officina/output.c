/* Headless input and output: text, one JSON object, or a line for each thing that happens. */
#include "app.h"

#include "core/core_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_LARGEST (16u * 1024u * 1024u)

void app_emit(struct app *a, const char *json)
{
    if (a->o.output != OUT_STREAM)
        return;
    /* {"type":… becomes {"seq":n,"type":… */
    printf("{\"seq\":%lld,%s\n", (long long)++a->seq, json + 1);
    fflush(stdout);
}

/* ---- what came of it ---- */

static void answer_of(const struct model *m, size_t turn, struct text *out)
{
    int64_t last = 0;
    for (size_t i = 0; i < m->n_items; i++)
        if (m->items[i].kind == ITEM_TEXT && m->items[i].live && m->items[i].turn == turn)
            last = m->items[i].answer;
    for (size_t i = 0; i < m->n_items; i++)
        if (m->items[i].kind == ITEM_TEXT && m->items[i].live && m->items[i].turn == turn &&
            m->items[i].answer == last)
            text_puts(out, text_str(&m->items[i].body));
}

static json_t *denied_list(const struct model *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_items; i++) {
        const struct item *it = &m->items[i];
        if (it->kind != ITEM_CALL || it->call->state != CALL_DENIED || it->call->allowed)
            continue;
        json_t *o = json_object();
        js_set_str(o, "tool", it->call->name);
        json_object_set_new(o, "arguments", js_parse(it->call->args, strlen(it->call->args), NULL, 0));
        js_set_str(o, "reason", it->call->reason);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *changed_list(const struct model *m)
{
    json_t *paths = json_object(), *list = json_array();
    for (size_t i = 0; i < m->n_items; i++) {
        const struct item *it = &m->items[i];
        for (size_t k = 0; it->kind == ITEM_CALL && k < it->call->n_changes; k++)
            json_object_set_new(paths, it->call->change[k].path, json_true());
    }
    for (size_t i = 0; i < m->n_touched; i++)
        json_object_set_new(paths, m->touched[i].path, json_true());
    const char *path;
    json_t *v;
    json_object_foreach(paths, path, v) json_array_append_new(list, json_string(path));
    json_decref(paths);
    return list;
}

static json_t *result_of(struct app *a, const char *status, const char *detail, const struct text *answer)
{
    const struct model *m = a->m;
    const struct gauges *g = &m->gauges;
    json_t *o = json_object(), *usage = json_object();
    js_set_str(o, "status", status);
    js_set_str(o, "detail", detail != NULL ? detail : "");
    js_set_strn(o, "text", text_str(answer), answer->len);
    js_set_str(o, "session", m->session);
    js_set_str(o, "turn", m->n_turns != 0 ? m->turns[m->n_turns - 1].key : NULL);
    json_object_set_new(o, "denied", denied_list(m));
    json_object_set_new(o, "changed", changed_list(m));
    js_set_int(usage, "prompt", g->in > 0 ? g->in : 0);
    js_set_int(usage, "cached", g->cached > 0 ? g->cached : 0);
    js_set_int(usage, "completion", g->out > 0 ? g->out : 0);
    js_set_int(usage, "offloaded", g->offload > 0 ? g->offload : 0);
    json_object_set_new(o, "usage", usage);
    js_set_str(o, "coupling", m->coupling);
    json_object_set_new(o, "money", json_real((double)(g->spent > 0 ? g->spent : 0) / 1e6));
    return o;
}

void app_result(struct app *a, const char *words)
{
    const struct core *c = a->m->core;
    if (!a->headless || a->o.dump_w != 0)
        return;
    struct text answer = {0};
    const char *status = a->exit == 130 || a->exit == 143 ? "interrupted"
                         : c->exit_status != NULL         ? c->exit_status
                                                          : "ok";
    const char *detail = words != NULL ? words : c->exit_detail;
    if (a->m->n_turns != 0)
        answer_of(a->m, a->m->n_turns - 1, &answer);
    if (a->o.output == OUT_TEXT) {
        fwrite(text_str(&answer), 1, answer.len, stdout);
        if (answer.len != 0 && answer.s[answer.len - 1] != '\n')
            putchar('\n');
        if (a->exit != 0)
            fprintf(stderr, "officina: %s%s%s\n", status, detail != NULL ? ": " : "",
                    detail != NULL ? detail : "");
    } else {
        json_t *o = result_of(a, status, detail, &answer);
        if (a->o.output == OUT_STREAM) {
            json_t *line = json_object();
            js_set_str(line, "type", "result");
            json_object_update(line, o);
            json_decref(o);
            char *s = js_dump(line);
            app_emit(a, s);
            free(s);
        } else {
            char *s = js_dump(o);
            puts(s);
            free(s);
        }
    }
    fflush(stdout);
    text_free(&answer);
}

/* The conversation as plain text, for --print-on-exit and /export. */
void app_print_text(struct app *a, FILE *out)
{
    const struct model *m = a->m;
    for (size_t i = 0; i < m->n_items; i++) {
        const struct item *it = &m->items[i];
        if (it->kind == ITEM_USER)
            fprintf(out, "## You (%s)\n\n%s\n\n", it->turn < m->n_turns ? m->turns[it->turn].key : "",
                    text_str(&it->body));
        else if (it->kind == ITEM_TEXT)
            fprintf(out, "%s\n\n", text_str(&it->body));
        else if (it->kind == ITEM_CUT)
            fprintf(out, "---- %s ----\n\n", text_str(&it->body));
        else if (it->kind == ITEM_CALL)
            fprintf(out, "`%s %s`%s%s\n\n", it->call->name, it->call->gist != NULL ? it->call->gist : "",
                    it->call->reason != NULL ? ": " : "", it->call->reason != NULL ? it->call->reason : "");
    }
}

/* ---- stream-json input ---- */

static void put(struct app *a, enum event_kind kind, int64_t id, int64_t n, const char *text)
{
    const struct event e = {.kind = kind, .id = id, .n = n, .text = text};
    app_put(a, &e);
}

static int64_t item_of_call(const struct model *m, const char *id)
{
    for (size_t i = m->n_items; id != NULL && i-- > 0;)
        if (m->items[i].kind == ITEM_CALL && strcmp(m->items[i].call->id, id) == 0)
            return m->items[i].id;
    return 0;
}

static void rewind_line(struct app *a, const json_t *o)
{
    const char *turn = js_str(o, "turn"), *what = js_str(o, "what");
    struct text t = {0};
    if (turn == NULL) {
        put(a, EV_NOTICE, 0, NOTICE_TROUBLE, "rewind: turn is missing");
        return;
    }
    if (js_bool(o, "dry_run", false)) {
        for (size_t i = 0; i < a->m->n_turns; i++)
            if (strcmp(a->m->turns[i].key, turn) == 0)
                app_do(a, &(struct effect){.kind = FX_REWIND_PLAN, .id = (int64_t)i});
    } else {
        text_printf(&t, "/rewind %s %s", turn, what != NULL ? what : "both");
        put(a, EV_SUBMIT, 0, 0, text_str(&t));
    }
    text_free(&t);
}

static void input_line(struct app *a, const char *line, size_t n)
{
    char why[200];
    json_t *o = js_parse(line, n, why, sizeof why);
    const char *type = js_str(o, "type"), *text = js_str(o, "text");
    if (type == NULL) {
        app_notice(a, NOTICE_TROUBLE, "input: %s", o == NULL ? why : "a line without type");
    } else if (strcmp(type, "user") == 0 && text != NULL) {
        put(a, EV_SUBMIT, 0, 1, text);
    } else if (strcmp(type, "command") == 0 && text != NULL) {
        put(a, EV_SUBMIT, 0, 0, text);
    } else if (strcmp(type, "mode") == 0 && js_str(o, "mode") != NULL) {
        put(a, EV_MODE, 0, strcmp(js_str(o, "mode"), "plan") == 0 ? MODE_PLAN : MODE_BUILD, NULL);
    } else if (strcmp(type, "couple") == 0 && js_str(o, "name") != NULL) {
        struct vt_err err = {0};
        if (app_couple(a, js_str(o, "name"), &err) < 0)
            app_notice(a, NOTICE_TROUBLE, "%s", err.text);
    } else if (strcmp(type, "approve") == 0 || strcmp(type, "deny") == 0) {
        const char *scope = js_str(o, "scope");
        put(a, EV_ANSWER, item_of_call(a->m, js_str(o, "id")),
            type[0] == 'd'                                   ? ANSWER_DENY
            : scope != NULL && strcmp(scope, "session") == 0 ? ANSWER_SESSION
            : scope != NULL && strcmp(scope, "project") == 0 ? ANSWER_PROJECT
                                                             : ANSWER_ONCE,
            js_str(o, "reason"));
    } else if (strcmp(type, "stop") == 0) {
        put(a, EV_STOP, 0, 0, NULL);
    } else if (strcmp(type, "rewind") == 0) {
        rewind_line(a, o);
    } else if (strcmp(type, "redo") == 0) {
        put(a, EV_SUBMIT, 0, 0, "/redo");
    } else if (strcmp(type, "quit") == 0) {
        put(a, EV_QUIT, 0, 0, NULL);
    } else {
        app_notice(a, NOTICE_TROUBLE, "input: unknown or incomplete line of type %.40s", type);
    }
    json_decref(o);
}

void app_input(struct app *a)
{
    char buf[65536];
    ssize_t n = read(STDIN_FILENO, buf, sizeof buf);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) { /* what was asked is still done; then it leaves */
        a->eof = true;
        put(a, EV_CLOSED, 0, 0, NULL);
        return;
    }
    text_add(&a->input, buf, (size_t)n);
    char *nl;
    while (a->input.len != 0 && (nl = memchr(a->input.s, '\n', a->input.len)) != NULL) {
        size_t len = (size_t)(nl - a->input.s);
        if (len != 0)
            input_line(a, a->input.s, len);
        text_replace(&a->input, 0, len + 1, NULL, 0);
    }
    if (a->input.len > LINE_LARGEST) {
        app_notice(a, NOTICE_TROUBLE, "input: a line longer than 16 MiB was dropped");
        text_clear(&a->input);
    }
}
