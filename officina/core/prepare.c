/* Commands of commands/NAME.md: the turn begins with the line as it was typed; its !{…} and @{…} are calls by the user,
 * judged, asked about and run like the model's own; when all have ended their results take their places in the prompt and
 * the request goes out. The calls themselves are no part of what the model sees. */
#include "core/core_priv.h"
#include "tools/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_call(const json_t *part)
{
    return js_str(part, "tool") != NULL && tool_find(js_str(part, "tool")) != NULL;
}

void prepare_forget(struct core *c)
{
    json_decref(c->parts);
    c->parts = NULL;
}

static void add_call(struct model *m, const json_t *part, struct effects *fx)
{
    char id[24];
    snprintf(id, sizeof id, "c%04" PRId64, ++m->core->next_call);
    struct item *it = model_add(m, ITEM_CALL);
    it->call->id = mem_dup(id);
    it->call->name = mem_dup(js_str(part, "tool"));
    it->call->args = json_dumps(json_object_get(part, "arguments"), JSON_COMPACT);
    it->call->state = CALL_PENDING;
    emit_call(m, fx, it);
}

/* All its texts behind each other; the results of calls from the item on between them. */
static void fill(const struct model *m, const json_t *parts, size_t item, struct text *out)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *p = json_array_get(parts, i);
        if (!is_call(p)) {
            text_puts(out, js_str(p, "text") != NULL ? js_str(p, "text") : "");
            continue;
        }
        while (item < m->n_items && m->items[item].kind != ITEM_CALL)
            item++;
        if (item >= m->n_items)
            return;
        const struct text *r = &m->items[item++].call->result;
        size_t n = r->len;
        while (n > 0 && r->s[n - 1] == '\n') /* as $(…) in a shell */
            n--;
        text_add(out, text_str(r), n);
    }
}

void prepare_begin(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    json_t *o = js_parse(e->text, strlen(e->text), NULL, 0), *parts = json_object_get(o, "parts");
    const char *mode = js_str(o, "mode");
    bool calls = false;
    for (size_t i = 0; i < json_array_size(parts); i++)
        calls = calls || is_call(json_array_get(parts, i));
    bool idle = c->phase == PH_IDLE && c->open && c->rewind_what == 0;
    if (!m->read_only && !idle && (calls || mode != NULL)) {
        notice(m, NOTICE_TROUBLE, "%.*s has to wait until the turn has ended; Esc stops it.",
               (int)strcspn(e->name, " \n"), e->name);
        json_decref(o);
        return;
    }
    if (mode != NULL && !m->read_only)
        m->mode = strcmp(mode, "plan") == 0 ? MODE_PLAN : MODE_BUILD;
    if (!calls || m->read_only) {
        struct text t = {0};
        fill(m, parts, m->n_items, &t);
        if (text_str(&t)[strspn(text_str(&t), " \t\r\n")] == '\0')
            notice(m, NOTICE_TROUBLE, "%.*s holds no text: nothing was sent.", (int)strcspn(e->name, " \n"),
                   e->name);
        else
            turn_submit(m, text_str(&t), fx);
        text_free(&t);
        json_decref(o);
        return;
    }
    turn_open(m, e->name, fx);
    c->prompt = m->n_items - 1;
    m->items[c->prompt].live = false; /* nothing is sent yet */
    c->parts = json_incref(parts);
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (is_call(json_array_get(parts, i)))
            add_call(m, json_array_get(parts, i), fx);
    json_decref(o);
    c->phase = PH_CALLS;
    c->purpose = FOR_TURN;
    calls_next(m, fx);
}

/* The first call without which the prompt is not what its author meant; NULL: none. A shell line that ran and failed is
 * what it says. */
static const struct call *missing(const struct model *m)
{
    for (size_t i = m->core->prompt; i < m->n_items; i++) {
        const struct call *k = m->items[i].call;
        if (m->items[i].kind == ITEM_CALL && k->state != CALL_OK &&
            !(k->state == CALL_FAILED && k->started != 0 && strcmp(k->name, "bash") == 0))
            return k;
    }
    return NULL;
}

void prepare_done(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    struct item *it = &m->items[c->prompt];
    const struct call *no = missing(m);
    if (no == NULL) {
        text_clear(&it->body);
        fill(m, c->parts, c->prompt, &it->body);
        it->live = it->dirty = true;
        prepare_forget(c);
        turn_want(m, FOR_TURN);
        turn_pump(m, fx);
        return;
    }
    bool denied = no->state == CALL_DENIED;
    const char *why = no->reason != NULL ? no->reason : text_str(&no->result);
    struct text t = {0};
    text_printf(&t, "%.*s was not sent: %.200s: %.300s", (int)strcspn(text_str(&it->body), " \n"),
                text_str(&it->body), no->gist != NULL ? no->gist : no->args, why);
    notice(m, NOTICE_TROUBLE, "%s", text_str(&t));
    set_str(&c->exit_status, denied ? "denied" : "usage");
    set_str(&c->exit_detail, text_str(&t));
    c->exit = denied ? 3 : 2;
    text_free(&t);
    turn_end(m, TURN_INTERRUPTED, fx);
}
