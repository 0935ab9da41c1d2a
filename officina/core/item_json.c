#include "core/item_json.h"

#include "core/core_priv.h"

#include <stdlib.h>
#include <string.h>

#define CHANGE_KEPT 131072 /* bytes of both texts; larger ones keep their counts only */

/* What is as it mostly is, is not written: a long conversation is read faster. */
static void set_unless(json_t *o, const char *key, int64_t v, int64_t usual)
{
    if (v != usual)
        js_set_int(o, key, v);
}

static void set_bool_unless(json_t *o, const char *key, bool v, bool usual)
{
    if (v != usual)
        json_object_set_new(o, key, json_boolean(v));
}

static json_t *call_to_json(const struct call *c)
{
    json_t *o = json_object(), *changes = json_array();
    js_set_str(o, "id", c->id);
    js_set_str(o, "wire_id", c->wire_id);
    js_set_str(o, "name", c->name);
    js_set_str(o, "args", c->args);
    js_set_str(o, "gist", c->gist);
    js_set_str(o, "reason", c->reason);
    js_set_str(o, "repair", c->repair);
    js_set_str(o, "fault", c->fault);
    js_set_int(o, "state", c->state);
    js_set_int(o, "started", (int64_t)c->started);
    js_set_int(o, "ended", (int64_t)c->ended);
    js_set_int(o, "result_id", c->result_id);
    set_unless(o, "output", c->output, 0);
    set_bool_unless(o, "allowed", c->allowed, false);
    js_set_strn(o, "result", text_str(&c->result), c->result.len);
    for (size_t i = 0; i < c->n_changes; i++) {
        const struct file_change *f = &c->change[i];
        json_t *k = json_object();
        js_set_str(k, "path", f->path);
        js_set_int(k, "added", f->added);
        js_set_int(k, "removed", f->removed);
        js_set_str(k, "remark", f->remark);
        if (f->before_len + f->after_len <= CHANGE_KEPT) {
            if (f->before != NULL)
                js_set_strn(k, "before", f->before, f->before_len);
            if (f->after != NULL)
                js_set_strn(k, "after", f->after, f->after_len);
        }
        json_array_append_new(changes, k);
    }
    if (c->n_changes != 0)
        json_object_set_new(o, "changes", changes);
    else
        json_decref(changes);
    return o;
}

json_t *item_to_json(const struct item *it)
{
    json_t *o = json_object();
    js_set_int(o, "id", it->id);
    js_set_int(o, "kind", it->kind);
    js_set_int(o, "turn", (int64_t)it->turn);
    js_set_int(o, "at", (int64_t)it->at);
    set_unless(o, "ended", (int64_t)it->ended, 0);
    set_unless(o, "answer", it->answer, 0);
    set_unless(o, "level", it->level, 0);
    set_unless(o, "times", it->times, 1);
    set_bool_unless(o, "partial", it->partial, false);
    set_bool_unless(o, "live", it->live, true);
    set_unless(o, "rewound", it->rewound, 0);
    if (it->call != NULL)
        json_object_set_new(o, "call", call_to_json(it->call));
    else
        js_set_strn(o, "body", text_str(&it->body), it->body.len);
    return o;
}

static void add_str(struct text *t, const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_string(v))
        text_add(t, json_string_value(v), json_string_length(v));
}

static void call_from_json(struct call *c, const json_t *o)
{
    c->id = mem_dup(js_str(o, "id"));
    c->wire_id = mem_dup(js_str(o, "wire_id"));
    c->name = mem_dup(js_str(o, "name"));
    c->args = mem_dup(js_str(o, "args"));
    c->gist = mem_dup(js_str(o, "gist"));
    c->reason = mem_dup(js_str(o, "reason"));
    c->repair = mem_dup(js_str(o, "repair"));
    c->fault = mem_dup(js_str(o, "fault"));
    c->state = (enum call_state)js_int(o, "state", CALL_CLOSED);
    c->started = (uint64_t)js_int(o, "started", 0);
    c->ended = (uint64_t)js_int(o, "ended", 0);
    c->result_id = js_int(o, "result_id", c->result_id);
    c->output = js_int(o, "output", 0);
    c->allowed = js_bool(o, "allowed", false);
    add_str(&c->result, o, "result");
    const json_t *changes = json_object_get(o, "changes");
    c->n_changes = json_array_size(changes);
    c->change = c->n_changes != 0 ? mem_new(c->n_changes * sizeof *c->change) : NULL;
    for (size_t i = 0; i < c->n_changes; i++) {
        const json_t *k = json_array_get(changes, i);
        struct file_change *f = &c->change[i];
        f->path = mem_dup(js_str(k, "path"));
        f->remark = mem_dup(js_str(k, "remark"));
        f->before = mem_dup(js_str(k, "before"));
        f->after = mem_dup(js_str(k, "after"));
        f->before_len = f->before != NULL ? strlen(f->before) : 0;
        f->after_len = f->after != NULL ? strlen(f->after) : 0;
        f->added = (int)js_int(k, "added", 0);
        f->removed = (int)js_int(k, "removed", 0);
    }
}

int item_from_json(struct model *m, const json_t *o)
{
    int64_t id = js_int(o, "id", 0), kind = js_int(o, "kind", -1), turn = js_int(o, "turn", -1);
    const json_t *call = json_object_get(o, "call");
    bool late = m->n_items != 0 && id <= m->items[m->n_items - 1].id;
    if (id <= 0 || late || kind < 0 || kind > ITEM_NOTICE || turn < 0 ||
        (size_t)turn >= (m->n_turns > 0 ? m->n_turns : 1) || (kind == ITEM_CALL) != json_is_object(call))
        return -1;
    if (kind == ITEM_CALL &&
        (js_str(call, "id") == NULL || js_str(call, "name") == NULL || js_str(call, "args") == NULL))
        return -1;
    struct item *it = model_add(m, (enum item_kind)kind);
    it->id = id;
    it->turn = (size_t)turn;
    it->at = (uint64_t)js_int(o, "at", 0);
    it->ended = (uint64_t)js_int(o, "ended", 0);
    it->answer = js_int(o, "answer", 0);
    it->level = (enum notice_level)js_int(o, "level", 0);
    it->times = (int)js_int(o, "times", 1);
    it->partial = js_bool(o, "partial", false);
    it->live = js_bool(o, "live", true);
    it->rewound = js_int(o, "rewound", 0);
    it->dirty = false;
    if (it->call != NULL)
        call_from_json(it->call, call);
    else
        add_str(&it->body, o, "body");
    return 0;
}

json_t *turn_to_json(const struct turn *t)
{
    json_t *o = json_object();
    js_set_str(o, "key", t->key);
    js_set_int(o, "started", (int64_t)t->started);
    js_set_int(o, "ended", (int64_t)t->ended);
    js_set_int(o, "state", t->state);
    js_set_int(o, "mode", t->mode);
    js_set_int(o, "first_item", (int64_t)t->first_item);
    js_set_int(o, "tokens_before", t->tokens_before);
    js_set_int(o, "tokens_after", t->tokens_after);
    js_set_int(o, "files_changed", t->files_changed);
    js_set_str(o, "coupling", t->coupling);
    js_set_str(o, "tree_user", t->tree_user);
    js_set_str(o, "tree_before", t->tree_before);
    js_set_str(o, "tree_after", t->tree_after);
    js_set_str(o, "partial", t->partial);
    js_set_str(o, "checkpoint", t->checkpoint);
    return o;
}

int turn_from_json(struct model *m, const json_t *o)
{
    const char *key = js_str(o, "key");
    if (key == NULL || strlen(key) >= sizeof m->turns[0].key)
        return -1;
    m->turns = mem_room(m->turns, m->n_turns, &m->cap_turns, sizeof *m->turns);
    struct turn *t = &m->turns[m->n_turns++];
    *t = (struct turn){.started = (uint64_t)js_int(o, "started", 0),
                       .ended = (uint64_t)js_int(o, "ended", 0),
                       .state = (enum turn_state)js_int(o, "state", TURN_DONE),
                       .mode = (enum mode)js_int(o, "mode", MODE_BUILD),
                       .first_item = (size_t)js_int(o, "first_item", 0),
                       .tokens_before = js_int(o, "tokens_before", UNKNOWN),
                       .tokens_after = js_int(o, "tokens_after", UNKNOWN),
                       .files_changed = (int)js_int(o, "files_changed", UNKNOWN),
                       .row = (int64_t)m->n_turns};
    memcpy(t->key, key, strlen(key) + 1);
    t->coupling = mem_dup(js_str(o, "coupling"));
    t->tree_user = mem_dup(js_str(o, "tree_user"));
    t->tree_before = mem_dup(js_str(o, "tree_before"));
    t->tree_after = mem_dup(js_str(o, "tree_after"));
    t->partial = mem_dup(js_str(o, "partial"));
    t->checkpoint = mem_dup(js_str(o, "checkpoint"));
    return 0;
}
