/* An answer while it arrives: chunks of the stream become items. */
#include "core/core_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEAT_BLOCK 200
#define REPEAT_TIMES 4
#define KEEP_EVERY   SEC(1)

void answer_begin(struct model *m)
{
    struct core *c = m->core;
    c->answer = (struct reply){.prompt = UNKNOWN, .cached = UNKNOWN, .completion = UNKNOWN};
    c->next_answer++;
}

static struct item *grow(struct model *m, size_t *slot, enum item_kind kind)
{
    if (*slot == 0) {
        struct item *it = model_add(m, kind);
        it->answer = m->core->next_answer;
        *slot = m->n_items;
        it->dirty = false; /* until the first part is kept */
    }
    return &m->items[*slot - 1];
}

static void end_item(struct model *m, size_t slot)
{
    if (slot == 0 || m->items[slot - 1].ended != 0)
        return;
    m->items[slot - 1].ended = m->now;
    m->items[slot - 1].dirty = true;
}

/* The same 200 bytes four times in a row at the end: the model runs in circles. */
static bool circles(const struct text *t)
{
    if (t->len < REPEAT_BLOCK * REPEAT_TIMES)
        return false;
    const char *end = t->s + t->len;
    for (size_t period = REPEAT_BLOCK; period <= 400 && period * REPEAT_TIMES <= t->len; period++) {
        bool same = true;
        for (int k = 1; k < REPEAT_TIMES && same; k++)
            same = memcmp(end - period, end - period * (size_t)(k + 1), period) == 0;
        if (same)
            return true;
    }
    /* A shorter period repeats within the block. */
    for (size_t period = 1; period < REPEAT_BLOCK; period++)
        if (memcmp(end - REPEAT_BLOCK * REPEAT_TIMES, end - REPEAT_BLOCK * REPEAT_TIMES + period,
                   REPEAT_BLOCK * REPEAT_TIMES - period) == 0)
            return true;
    return false;
}

static void add_text(struct model *m, size_t *slot, enum item_kind kind, const char *s, size_t n,
                     struct effects *fx)
{
    struct core *c = m->core;
    if (n == 0)
        return;
    struct item *it = grow(m, slot, kind);
    size_t before = it->body.len;
    text_add(&it->body, s, n);
    if (m->now - c->answer.stored_at >= KEEP_EVERY) {
        c->answer.stored_at = m->now;
        it->dirty = true;
    }
    /* Looked at once a kilobyte: cheap, and soon enough. */
    if (before / 1024 != it->body.len / 1024 && circles(&it->body))
        c->answer.repeats = true;
    emit_text(m, fx, kind == ITEM_TEXT ? "text" : "reasoning", s, n);
}

/* The engine's id goes back to it if it is one: short, plain, and not used before. */
static bool fit_id(const struct model *m, const char *id)
{
    size_t n = id != NULL ? strlen(id) : 0;
    if (n == 0 || n > 64 ||
        strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != n)
        return false;
    for (size_t i = 0; i < m->n_items; i++) {
        const struct call *c = m->items[i].call;
        if (c != NULL && (strcmp(c->id, id) == 0 || (c->wire_id != NULL && strcmp(c->wire_id, id) == 0)))
            return false;
    }
    return true;
}

static void add_call(struct model *m, const json_t *part)
{
    struct reply *a = &m->core->answer;
    int64_t index = js_int(part, "index", (int64_t)a->n_calls);
    if (index < 0 || index >= CALLS_MAX) {
        a->too_many = true;
        return;
    }
    const json_t *f = json_object_get(part, "function");
    const char *name = js_str(f, "name"), *args = js_str(f, "arguments");
    if (a->calls[index] == 0) {
        const char *theirs = fit_id(m, js_str(part, "id")) ? js_str(part, "id") : NULL;
        struct item *it = grow(m, &a->calls[index], ITEM_CALL);
        char id[24];
        snprintf(id, sizeof id, "c%04" PRId64, ++m->core->next_call);
        it->call->wire_id = mem_dup(theirs);
        it->call->id = mem_dup(id);
        it->call->state = CALL_ARRIVING;
        it->call->args = mem_dup("");
        it->call->name = mem_dup("");
        a->n_calls++;
    }
    struct call *call = m->items[a->calls[index] - 1].call;
    if (name != NULL && name[0] != '\0' && call->name[0] == '\0')
        set_str(&call->name, name);
    if (args != NULL && args[0] != '\0') {
        size_t have = strlen(call->args), n = strlen(args);
        call->args = mem_grow(call->args, have + n + 1);
        memcpy(call->args + have, args, n + 1);
    }
}

static void progress(struct model *m, const json_t *p)
{
    struct gauges *g = &m->gauges;
    g->read_of = js_int(p, "total", UNKNOWN);
    g->read = js_int(p, "processed", UNKNOWN);
    int64_t cache = js_int(p, "cache", 0);
    double ms = js_num(p, "time_ms", 0);
    if (ms > 0 && g->read > cache)
        g->read_speed = (double)(g->read - cache) * 1000 / ms;
    if (g->read_of > 0 && g->read >= g->read_of)
        g->read_last = g->read_of - cache;
}

static void usage(struct reply *a, const json_t *u)
{
    a->prompt = js_int(u, "prompt_tokens", a->prompt);
    a->completion = js_int(u, "completion_tokens", a->completion);
    a->cached = js_int(json_object_get(u, "prompt_tokens_details"), "cached_tokens", a->cached);
}

static void timings(struct model *m, const json_t *t)
{
    double speed = js_num(t, "predicted_per_second", UNKNOWN);
    if (speed > 0)
        m->gauges.decode = speed;
    if (m->core->answer.cached < 0 && js_int(t, "cache_n", -1) >= 0)
        m->core->answer.cached = js_int(t, "cache_n", -1);
}

static void delta(struct model *m, const json_t *d, struct effects *fx)
{
    struct reply *a = &m->core->answer;
    const json_t *v = json_object_get(d, "reasoning_content");
    if (!json_is_string(v))
        v = json_object_get(d, "reasoning");
    if (json_is_string(v) && json_string_length(v) != 0) {
        add_text(m, &a->reasoning, ITEM_REASONING, json_string_value(v), json_string_length(v), fx);
        a->any = true;
    }
    v = json_object_get(d, "content");
    if (json_is_string(v) && json_string_length(v) != 0) {
        end_item(m, a->reasoning);
        add_text(m, &a->text, ITEM_TEXT, json_string_value(v), json_string_length(v), fx);
        a->any = a->visible = true;
    }
    v = json_object_get(d, "tool_calls");
    for (size_t i = 0; i < json_array_size(v); i++) {
        end_item(m, a->reasoning);
        end_item(m, a->text);
        add_call(m, json_array_get(v, i));
        a->any = true;
    }
}

/* An error inside the stream; kept for the end, which decides. */
static void stream_error(struct model *m, const json_t *e)
{
    const char *words = js_str(e, "message");
    set_str(&m->status_text, words != NULL ? words : "the engine reported an error");
    snprintf(m->core->answer.finish, sizeof m->core->answer.finish, "error");
}

void answer_data(struct model *m, const char *data, size_t n, struct effects *fx)
{
    struct core *c = m->core;
    struct reply *a = &c->answer;
    c->heard_at = m->now;
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) {
        a->done = true;
        return;
    }
    json_t *o = js_parse(data, n, NULL, 0);
    if (!json_is_object(o)) {
        json_decref(o);
        notice(m, NOTICE_TROUBLE, "The engine sent an event that is no JSON; it was skipped.");
        return;
    }
    if (json_is_object(json_object_get(o, "error")))
        stream_error(m, json_object_get(o, "error"));
    if (json_is_object(json_object_get(o, "prompt_progress")))
        progress(m, json_object_get(o, "prompt_progress"));
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    if (choice != NULL) {
        delta(m, json_object_get(choice, "delta"), fx);
        const char *finish = js_str(choice, "finish_reason");
        if (finish != NULL && strcmp(a->finish, "error") != 0) {
            snprintf(a->finish, sizeof a->finish, "%s", finish);
            a->done = true;
        }
    }
    if (json_is_object(json_object_get(o, "usage")))
        usage(a, json_object_get(o, "usage"));
    if (json_is_object(json_object_get(o, "timings")))
        timings(m, json_object_get(o, "timings"));
    a->truncated = a->truncated || js_bool(o, "truncated", false);
    json_decref(o);
    if (a->any)
        m->gauges.read = m->gauges.read_of = UNKNOWN;
}

void answer_close(struct model *m, bool partial)
{
    struct reply *a = &m->core->answer;
    size_t slots[2] = {a->reasoning, a->text};
    for (int i = 0; i < 2; i++) {
        end_item(m, slots[i]);
        if (slots[i] != 0)
            m->items[slots[i] - 1].partial |= partial && (i == 1 || a->text == 0);
    }
    for (int i = 0; i < CALLS_MAX; i++)
        if (a->calls[i] != 0)
            m->items[a->calls[i] - 1].dirty = true;
}

/* What arrived will not be part of the conversation: it stays readable, the model does not see it. */
void answer_discard(struct model *m)
{
    struct reply *a = &m->core->answer;
    answer_close(m, true);
    size_t slots[CALLS_MAX + 2];
    memcpy(slots, a->calls, sizeof a->calls);
    slots[CALLS_MAX] = a->reasoning;
    slots[CALLS_MAX + 1] = a->text;
    for (int i = 0; i < CALLS_MAX + 2; i++) {
        if (slots[i] == 0)
            continue;
        struct item *it = &m->items[slots[i] - 1];
        it->live = false;
        it->dirty = true;
        if (it->kind == ITEM_CALL) {
            it->call->state = CALL_CLOSED;
            set_str(&it->call->reason, "the answer broke off inside this call");
        }
    }
}

static void account(struct model *m)
{
    struct core *c = m->core;
    struct reply *a = &c->answer;
    struct gauges *g = &m->gauges;
    if (a->prompt < 0)
        return;
    if (a->prompt > 64 && c->sent.len > 0) /* learned: bytes of this dialect for one token of this model */
        c->bytes_per_token = (double)c->sent.len / (double)a->prompt;
    g->used = a->prompt + (a->completion > 0 ? a->completion : 0);
    g->used_estimated = false;
    g->in = (g->in > 0 ? g->in : 0) + a->prompt;
    g->out = (g->out > 0 ? g->out : 0) + (a->completion > 0 ? a->completion : 0);
    if (a->cached >= 0) {
        g->cached = (g->cached > 0 ? g->cached : 0) + a->cached;
        g->reread = g->in - g->cached;
    }
    if (c->purpose == FOR_TURN)
        c->counted_units = (int64_t)c->n_units;
    money_spend(m);
}

/* 1: handled (tried again or failed); 0: the answer stands. */
static int broken(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    struct reply *a = &c->answer;
    if (e->n == 200 && e->m == 0 && a->done && strcmp(a->finish, "error") != 0)
        return 0;
    bool open_call = a->n_calls != 0;
    const char *words = strcmp(a->finish, "error") == 0 && m->status_text != NULL ? m->status_text
                        : e->text != NULL && e->text[0] != '\0'                   ? e->text
                                                                : "the stream ended too early";
    if (!a->visible || open_call) {
        bool again = !c->retry_broken;
        char *why = mem_dup(words);
        answer_discard(m);
        c->retry_broken = true;
        if (again) {
            notice(m, NOTICE_TROUBLE, "The answer broke off (%s); it is asked for once more.", why);
            turn_want(m, c->purpose);
        } else {
            turn_fail(m, 1, "engine_error", why, fx);
        }
        free(why);
        return 1;
    }
    answer_close(m, true);
    struct text t = {0};
    text_printf(
        &t, "The engine stopped answering while writing (%.200s). What had arrived is kept; Enter goes on.",
        words);
    turn_fail(m, 1, "engine_error", text_str(&t), fx);
    text_free(&t);
    return 1;
}

void answer_end(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    struct reply *a = &c->answer;
    c->request = 0;
    m->gauges.read = m->gauges.read_of = UNKNOWN;
    account(m);
    if (broken(m, e, fx))
        return;
    answer_close(m, false);
    c->retry_broken = false;
    c->tries = 0;
    c->reduced = false;
    if (a->truncated)
        notice(m, NOTICE_TROUBLE,
               "The engine cut the prompt to make it fit; the answer may lack what was cut.");
    if (c->purpose == FOR_DISTIL) {
        economy_distilled(m, fx);
        return;
    }
    if (a->n_calls != 0) {
        c->phase = PH_CALLS;
        calls_begin(m, fx);
        return;
    }
    if (a->repeats)
        notice(m, NOTICE_TROUBLE, "The answer repeated itself and was ended.");
    else if (strcmp(a->finish, "length") == 0)
        notice(m, NOTICE_TROUBLE, "The answer reached the length limit.");
    if (!a->any) {
        struct item *it = grow(m, &a->text, ITEM_TEXT);
        it->ended = m->now;
        it->dirty = true;
        notice(m, NOTICE_TROUBLE, "The model answered with nothing.");
    }
    turn_end(m, TURN_DONE, fx);
}
