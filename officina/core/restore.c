/* A conversation opens: new, resumed or forked. */
#include "core/core_priv.h"
#include "core/item_json.h"

#include <stdlib.h>
#include <string.h>

static void use_coupling(struct model *m, const json_t *o)
{
    struct core *c = m->core;
    coupling_from_json(&c->cpl, o);
    set_str(&m->coupling, c->cpl.name);
    set_str(&m->coupling_title, c->cpl.title);
    m->engine.slot = c->cpl.slot;
    m->gauges.spent = c->cpl.priced ? c->spent_session : UNKNOWN;
}

static void forget_conversation(struct model *m)
{
    struct core *c = m->core;
    model_empty(m);
    for (size_t i = 0; i < c->n_units; i++)
        unit_clear(&c->units[i]);
    c->n_units = c->covered = 0;
    c->epoch = c->counted_units = 0;
    c->next_call = c->next_answer = c->next_turn = 0;
    c->noticed = 0;
    c->send_allowed = false;
    c->phase = PH_IDLE;
    c->request = 0;
    c->told_mode = MODE_BUILD;
    c->denied = c->allowed_later = 0;
    c->spent_session = c->saved_tokens = 0;
    c->in_check = c->snap_wait = false;
    c->note = NOTE_OPEN;
    prepare_forget(c);
    c->snapped = 0;
    c->rewind_what = 0;
    c->n_rewinds = 0;
    c->last_rewind = 0;
    text_clear(&c->sent);
    text_clear(&c->notes);
    set_str(&c->checkpoint_wanted, NULL);
    set_str(&m->status_text, NULL);
    set_str(&m->title, NULL);
    struct gauges *g = &m->gauges;
    g->used = g->live = g->offload = g->read = g->read_of = g->in = g->cached = g->out = g->reread = UNKNOWN;
    m->status = ST_READY;
}

void restore_opened(struct model *m, const char *text, struct effects *fx)
{
    struct core *c = m->core;
    json_t *o = js_parse(text, strlen(text), NULL, 0);
    if (!json_is_object(o)) {
        json_decref(o);
        return;
    }
    forget_conversation(m);
    set_str(&m->session, js_str(o, "session"));
    set_str(&m->root, js_str(o, "root"));
    set_str(&m->folder, js_str(o, "folder"));
    set_str(&m->sandbox, js_str(o, "sandbox"));
    set_str(&m->title, js_str(o, "title"));
    set_str(&c->opening, js_str(o, "opening"));
    set_str(&c->tools, js_str(o, "tools"));
    set_str(&c->version, js_str(o, "version"));
    m->mode = js_int(o, "mode", 0) == 1 ? MODE_PLAN : MODE_BUILD;
    m->headless = js_bool(o, "headless", false);
    m->read_only = js_bool(o, "read_only", false);
    m->trusted = js_bool(o, "trusted", false);
    c->once = js_bool(o, "once", false);
    c->emit = js_bool(o, "emit", false);
    c->answers = js_bool(o, "answers", false);
    c->max_requests = (int)js_int(o, "max_requests", 200);
    c->spent_day = js_int(o, "spent_day", 0);
    c->spent_month = js_int(o, "spent_month", 0);
    use_coupling(m, json_object_get(o, "coupling"));
    text_set(&m->composer.text, js_str(o, "draft"));
    int64_t caret = js_int(o, "caret", (int64_t)m->composer.text.len);
    m->composer.caret =
        caret >= 0 && (size_t)caret <= m->composer.text.len ? (size_t)caret : m->composer.text.len;
    c->open = true;
    json_t *e = json_object();
    js_set_str(e, "session", m->session);
    js_set_str(e, "version", c->version);
    js_set_str(e, "model", m->engine.model);
    js_set_str(e, "coupling", m->coupling);
    js_set_str(e, "sandbox", m->sandbox);
    if (m->gauges.size > 0)
        js_set_int(e, "window", m->gauges.size);
    json_t *tools = c->tools != NULL ? js_parse(c->tools, strlen(c->tools), NULL, 0) : NULL,
           *names = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++)
        json_array_append(names,
                          json_object_get(json_object_get(json_array_get(tools, i), "function"), "name"));
    json_object_set_new(e, "tools", names);
    json_decref(tools);
    emit(m, fx, "session", e);
    json_decref(o);
    economy_gauges(m);
    engine_tick(m, fx);
}

static void stored_unit(struct model *m, const json_t *o)
{
    struct core *c = m->core;
    int64_t item = js_int(o, "item", -1), count = js_int(o, "count", 0);
    if (item < 0 || (size_t)item >= m->n_items || count < 0 || (size_t)(item + count) > m->n_items)
        return;
    c->units = mem_room(c->units, c->n_units, &c->cap_units, sizeof *c->units);
    struct unit *u = &c->units[c->n_units++];
    *u = (struct unit){.id = js_int(o, "id", 0),
                       .item = (size_t)item,
                       .count = (size_t)count,
                       .role = (enum role)js_int(o, "role", 0),
                       .form = (enum form)js_int(o, "form", 0)};
    u->note = mem_dup(js_str(o, "note"));
    u->steer = mem_dup(js_str(o, "steer"));
    const char *bytes = js_str(o, "bytes");
    if (bytes == NULL) {
        unit_build(m, u);
        return;
    }
    u->bytes = mem_dup(bytes);
    u->tokens = (int64_t)((double)strlen(bytes) / c->bytes_per_token) + 4;
    u->stored = true;
}

static void stored_rewinds(struct core *c, const json_t *o)
{
    const json_t *list = json_object_get(o, "rewinds");
    c->last_rewind = js_int(o, "last_rewind", 0);
    for (size_t i = 0; i < json_array_size(list) && c->n_rewinds < REWINDS_MAX; i++) {
        const json_t *v = json_array_get(list, i);
        int what = (int)json_integer_value(json_array_get(v, 1));
        if (what == 'b' || what == 'f' || what == 'c')
            c->rewinds[c->n_rewinds++] = (struct rewound){json_integer_value(json_array_get(v, 0)), what};
    }
}

/* A message of the usual form. */
static void stored_plain_unit(struct model *m, const struct event *e)
{
    struct core *c = m->core;
    int64_t count = e->m / 100, role = e->m / 10 % 10, form = e->m % 10;
    if (e->n < 0 || (size_t)e->n >= m->n_items || e->m < 0 || (size_t)(e->n + count) > m->n_items ||
        role > ROLE_RESULT || form > FORM_GONE)
        return;
    c->units = mem_room(c->units, c->n_units, &c->cap_units, sizeof *c->units);
    c->units[c->n_units++] = (struct unit){.id = e->id,
                                           .item = (size_t)e->n,
                                           .count = (size_t)count,
                                           .role = (enum role)role,
                                           .form = (enum form)form,
                                           .bytes = mem_dupn(e->text, e->len),
                                           .tokens = (int64_t)((double)e->len / c->bytes_per_token) + 4,
                                           .stored = true};
}

void restore_stored(struct model *m, const struct event *e)
{
    struct core *c = m->core;
    if (e->name != NULL) {
        stored_plain_unit(m, e);
        return;
    }
    json_t *o = js_parse(e->text, strlen(e->text), NULL, 0);
    const char *type = js_str(o, "type");
    if (type == NULL)
        ;
    else if (strcmp(type, "turn") == 0)
        turn_from_json(m, o);
    else if (strcmp(type, "item") == 0)
        item_from_json(m, o);
    else if (strcmp(type, "unit") == 0)
        stored_unit(m, o);
    else if (strcmp(type, "task") == 0) {
        m->tasks = mem_room(m->tasks, m->n_tasks, &m->cap_tasks, sizeof *m->tasks);
        m->tasks[m->n_tasks++] = (struct task){mem_dup(js_str(o, "text") != NULL ? js_str(o, "text") : ""),
                                               (enum task_state)js_int(o, "state", 0)};
    } else if (strcmp(type, "queue") == 0 && js_str(o, "text") != NULL) {
        m->queue = mem_room(m->queue, m->n_queue, &m->cap_queue, sizeof *m->queue);
        m->queue[m->n_queue++] = (struct queued){mem_dup(js_str(o, "text")), m->now};
    } else if (strcmp(type, "session") == 0) {
        c->spent_session = js_int(o, "spent", 0);
        m->gauges.offload = js_int(o, "offload", UNKNOWN);
        m->gauges.used = js_int(o, "used", UNKNOWN);
        m->gauges.used_estimated = true;
        c->epoch = js_int(o, "epoch", 0);
        c->covered = (size_t)js_int(o, "covered", 0);
        c->told_mode = (enum mode)js_int(o, "told_mode", MODE_BUILD);
        stored_rewinds(c, o);
        text_set(&c->notes, js_str(o, "notes"));
        double ratio = js_num(o, "bytes_per_token", 0);
        c->bytes_per_token = ratio > 0.5 && ratio < 100 ? ratio : c->bytes_per_token;
        if (c->covered > m->n_items)
            c->covered = m->n_items;
    }
    json_decref(o);
}

/* What a death left open is closed, so that the history is valid. */
static void close_open(struct model *m, struct effects *fx)
{
    for (size_t i = 0; i < m->n_items; i++) {
        struct item *it = &m->items[i];
        if ((it->kind == ITEM_TEXT || it->kind == ITEM_REASONING) && it->ended == 0) {
            it->ended = m->now;
            it->partial = it->dirty = true;
        }
        if (it->kind != ITEM_CALL || it->call->state >= CALL_OK)
            continue;
        if (it->call->state == CALL_ARRIVING)
            it->live = false;
        set_str(&it->call->reason, "Officina ended before it was done");
        static const char words[] = "not known to have run: the workshop ended during this turn";
        call_finish(m, it, CALL_CLOSED, words, sizeof words - 1, fx);
    }
}

void restore_resumed(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    bool interrupted = false;
    c->noticed = m->n_items;
    close_open(m, fx);
    for (size_t i = 0; i < m->n_items; i++) {
        const struct item *it = &m->items[i];
        if (it->answer > c->next_answer)
            c->next_answer = it->answer;
        if (it->kind == ITEM_CALL && strtoll(it->call->id + 1, NULL, 10) > c->next_call)
            c->next_call = strtoll(it->call->id + 1, NULL, 10);
    }
    for (size_t i = 0; i < m->n_turns; i++) {
        struct turn *t = &m->turns[i];
        if (strtoll(t->key + 1, NULL, 10) > c->next_turn)
            c->next_turn = strtoll(t->key + 1, NULL, 10);
        if (t->state != TURN_OPEN)
            continue;
        t->state = TURN_INTERRUPTED;
        t->ended = m->now;
        t->dirty = interrupted = true;
        if (t->tree_before != NULL && t->tree_after == NULL && !m->read_only)
            effect_add(fx, FX_SNAP, (int64_t)i, NULL, NULL)->n = SNAP_LATE;
    }
    wire_update(m);
    economy_gauges(m);
    if (m->n_turns != 0 && m->turns[m->n_turns - 1].checkpoint != NULL)
        c->saved_tokens = m->gauges.used;
    m->status = interrupted ? ST_INTERRUPT : ST_READY;
    if (interrupted)
        notice(m, NOTICE_INFO, "The workshop ended during this turn; what had arrived is kept.");
    if (m->n_queue != 0 && !m->read_only && !interrupted) {
        char *text = m->queue[0].text;
        memmove(m->queue, m->queue + 1, --m->n_queue * sizeof *m->queue);
        turn_begin(m, text, fx);
        free(text);
    }
}

void restore_coupled(struct model *m, const char *text, struct effects *fx)
{
    struct core *c = m->core;
    json_t *o = js_parse(text, strlen(text), NULL, 0);
    char *before = mem_dup(m->coupling);
    c->send_allowed = c->cap_answered = false;
    use_coupling(m, o);
    json_decref(o);
    wire_reset(m);
    c->counted_units = 0;
    m->gauges.used = UNKNOWN;
    struct engine *en = &m->engine;
    en->link = LINK_START;
    en->window = en->certified = en->boot_decoded = en->evicted = UNKNOWN;
    en->slots = en->slots_busy = UNKNOWN;
    en->retry_at = 0;
    set_str(&en->boot, NULL);
    set_str(&en->model, NULL);
    c->props_known = c->props_asked = false;
    c->prev_predicted = -1;
    c->polls_open = 0;
    c->poll_sent = 0;
    if (before != NULL && strcmp(before, m->coupling) != 0)
        notice(m, NOTICE_INFO, "coupling: %.60s → %.60s", before, m->coupling);
    emit(m, fx, "coupling", json_pack("{s:s?, s:s}", "from", before, "to", m->coupling));
    free(before);
    economy_gauges(m);
    engine_tick(m, fx);
}
