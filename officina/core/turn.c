/* Turns: from the user's words to the end of the model's work. */
#include "core/core_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AWAY_HEADLESS SEC(5)
#define SNAP_WAIT     SEC(5)

struct turn *turn_now(struct model *m)
{
    struct turn *t = m->n_turns != 0 ? &m->turns[m->n_turns - 1] : NULL;
    return t != NULL && t->state == TURN_OPEN ? t : NULL;
}

struct item *notice(struct model *m, enum notice_level level, const char *fmt, ...)
{
    struct text t = {0};
    char buf[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    text_puts(&t, buf);
    struct item *last = m->n_items != 0 ? &m->items[m->n_items - 1] : NULL;
    if (last != NULL && last->kind == ITEM_NOTICE && last->level == level &&
        strcmp(text_str(&last->body), text_str(&t)) == 0) {
        last->times++;
        last->dirty = true;
        text_free(&t);
        return last;
    }
    struct item *it = model_add(m, ITEM_NOTICE);
    it->level = level;
    it->body = t;
    return it;
}

void turn_want(struct model *m, enum purpose purpose)
{
    struct core *c = m->core;
    c->phase = PH_WANT;
    c->purpose = purpose;
    c->not_before = 0;
}

static void add_note(struct model *m, const char *words)
{
    struct item *it = model_add(m, ITEM_NOTE);
    text_puts(&it->body, words);
}

/* What changed since the model was told last rides at the head of the next message. */
static void add_notes(struct model *m)
{
    struct core *c = m->core;
    if (c->told_mode != m->mode) {
        c->told_mode = m->mode;
        add_note(m,
                 m->mode == MODE_PLAN
                     ? "Plan mode: nothing may be changed now; calls that would change anything are refused. "
                       "Look, think, and propose."
                     : "Build mode: you may change files and run commands.");
    }
    if (c->notes.len != 0) {
        add_note(m, text_str(&c->notes));
        text_clear(&c->notes);
    }
}

static struct item *add_user(struct model *m, const char *text)
{
    struct item *it = model_add(m, ITEM_USER);
    text_puts(&it->body, text);
    return it;
}

static void set_title(struct model *m, const char *text, struct effects *fx)
{
    if (m->title != NULL)
        return;
    size_t n = strcspn(text, "\n");
    char *all = mem_dupn(text, n), *good = utf8_mend(all, n < 60 ? n : 60);
    set_str(&m->title, good);
    effect_add(fx, FX_TITLE, 0, NULL, good);
    free(good);
    free(all);
}

void turn_open(struct model *m, const char *text, struct effects *fx)
{
    struct core *c = m->core;
    m->turns = mem_room(m->turns, m->n_turns, &m->cap_turns, sizeof *m->turns);
    struct turn *t = &m->turns[m->n_turns++];
    *t = (struct turn){.first_item = m->n_items,
                       .started = m->now,
                       .mode = m->mode,
                       .files_changed = UNKNOWN,
                       .tokens_before = m->gauges.used,
                       .tokens_after = UNKNOWN,
                       .dirty = true};
    snprintf(t->key, sizeof t->key, "t%04u", (unsigned)(++c->next_turn % 100000));
    t->coupling = mem_dup(m->coupling);
    effect_add(fx, FX_SNAP, (int64_t)m->n_turns - 1, NULL, NULL)->n = SNAP_USER;
    effect_add(fx, FX_HISTORY, 0, NULL, text);
    add_notes(m);
    add_user(m, text);
    set_title(m, text, fx);
    c->requests = 0;
    c->stopped = c->repeat_end = c->reduced = c->retry_broken = c->full = false;
    c->n_signs = 0;
    c->tries = c->away_tries = 0;
    c->away_since = 0;
    set_str(&m->status_text, NULL);
    json_t *o = json_object();
    js_set_str(o, "turn", m->turns[m->n_turns - 1].key);
    js_set_str(o, "mode", m->mode == MODE_PLAN ? "plan" : "build");
    js_set_str(o, "text", text);
    emit(m, fx, "turn_start", o);
    m->status = ST_SENDING;
    c->note = NOTE_OPEN;
}

void turn_begin(struct model *m, const char *text, struct effects *fx)
{
    turn_open(m, text, fx);
    turn_want(m, FOR_TURN);
    turn_pump(m, fx);
}

static void enqueue(struct model *m, const char *text)
{
    m->queue = mem_room(m->queue, m->n_queue, &m->cap_queue, sizeof *m->queue);
    m->queue[m->n_queue++] = (struct queued){mem_dup(text), m->now};
}

static char *dequeue(struct model *m)
{
    char *text = m->queue[0].text;
    memmove(m->queue, m->queue + 1, --m->n_queue * sizeof *m->queue);
    return text;
}

void turn_submit(struct model *m, const char *text, struct effects *fx)
{
    if (m->read_only) {
        notice(m, NOTICE_TROUBLE,
               "Another Officina holds this conversation; /fork makes a copy to go on with.");
        return;
    }
    if (m->core->phase != PH_IDLE || !m->core->open || m->core->rewind_what != 0)
        enqueue(m, text);
    else
        turn_begin(m, text, fx);
}

void turn_next(struct model *m, struct effects *fx)
{
    if (m->core->phase != PH_IDLE || m->n_queue == 0)
        return;
    char *text = dequeue(m);
    turn_begin(m, text, fx);
    free(text);
}

/* The user's lines that came while the model worked are the next message. */
static bool steer(struct model *m, struct effects *fx)
{
    bool any = m->n_queue != 0;
    while (m->n_queue != 0) {
        char *text = dequeue(m);
        effect_add(fx, FX_HISTORY, 0, NULL, text);
        add_user(m, text);
        free(text);
    }
    return any;
}

void turn_boundary(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (c->repeat_end) {
        notice(m, NOTICE_TROUBLE,
               "The same step was made five times with the same result; the turn was ended.");
        turn_end(m, TURN_DONE, fx);
        return;
    }
    if (c->requests >= c->max_requests) {
        struct text t = {0};
        text_printf(&t, "the turn made %d requests, the limit of --max-turns; Enter goes on", c->requests);
        turn_fail(m, 4, "turn_limit", text_str(&t), fx);
        text_free(&t);
        return;
    }
    add_notes(m);
    steer(m, fx);
    c->note = NOTE_OPEN;
    turn_want(m, FOR_TURN);
    turn_pump(m, fx);
}

/* A coupling beyond this machine asks once in a conversation. */
static bool may_leave(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (!c->cpl.ask_send || c->send_allowed)
        return true;
    struct text t = {0};
    text_printf(&t,
                m->headless ? "nothing was sent: %.60s asks before a conversation leaves this machine (send "
                              "= yes in couplings.conf)"
                            : "%.60s is not on this machine: Enter or Alt-R sends the conversation there, "
                              "/couple chooses another",
                m->coupling);
    turn_fail(m, 1, "engine_error", text_str(&t), fx);
    text_free(&t);
    return false;
}

static void send(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (!may_leave(m, fx))
        return;
    wire_update(m);
    int fits = economy_fits(m, fx);
    if (fits <= 0 || !money_allows(m, fx))
        return;
    char *body = wire_body(m, NULL, economy_answer_room(m));
    c->request = ++c->next_ask;
    c->requests++;
    effect_add(fx, FX_SEND, c->request, m->coupling, body);
    free(body);
    c->phase = PH_STREAM;
    c->sent_at = c->heard_at = m->now;
    answer_begin(m);
}

/* Headless runs do not wait for an engine for ever. */
static bool gave_up(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (!m->headless || !c->once || m->engine.link != LINK_AWAY || c->away_since == 0 ||
        m->now - c->away_since < AWAY_HEADLESS)
        return false;
    turn_fail(m, 6, "engine_unreachable", "the engine cannot be reached", fx);
    return true;
}

/* Extensions may add a note before each request. Returns whether it need not wait for them. */
static bool noted(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (c->note == NOTE_OPEN && (c->hooks & 1u << TELL_BEFORE_REQUEST) != 0) {
        c->note = NOTE_ASKED;
        c->note_since = m->now;
        json_t *o = json_object();
        js_set_str(o, "turn", m->turns[m->n_turns - 1].key);
        js_set_str(o, "mode", m->mode == MODE_PLAN ? "plan" : "build");
        js_set_int(o, "requests", c->requests);
        tell(m, fx, TELL_BEFORE_REQUEST, o);
    }
    return c->note != NOTE_ASKED || m->now - c->note_since >= NOTE_WAIT;
}

void turn_noted(struct model *m, const char *text, struct effects *fx)
{
    struct core *c = m->core;
    if (c->note != NOTE_ASKED || c->phase != PH_WANT)
        return;
    c->note = NOTE_HEARD;
    if (text != NULL && text[0] != '\0')
        add_note(m, text);
    turn_pump(m, fx);
}

void turn_pump(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (c->phase != PH_WANT || gave_up(m, fx))
        return;
    bool link = m->engine.link == LINK_LIVE || (m->engine.link == LINK_START && c->props_known);
    if (!c->open || !link || m->now < c->not_before)
        return;
    if (c->purpose == FOR_DISTIL)
        economy_distil(m, NULL, fx);
    else if (noted(m, fx))
        send(m, fx);
}

void turn_end(struct model *m, enum turn_state state, struct effects *fx)
{
    struct core *c = m->core;
    struct turn *t = turn_now(m);
    c->phase = PH_IDLE;
    prepare_forget(c);
    if (t == NULL)
        return;
    t->state = state;
    t->ended = m->now;
    t->tokens_after = m->gauges.used;
    t->dirty = true;
    effect_add(fx, FX_SNAP, (int64_t)m->n_turns - 1, NULL, NULL)->n = SNAP_AFTER;
    emit_turn_end(m, fx);
    if (state == TURN_DONE) {
        set_str(&c->exit_status, c->denied > c->allowed_later ? "denied" : "ok");
        c->exit = c->denied > c->allowed_later ? 3 : 0;
        engine_checkpoint(m, false, fx);
        economy_after_turn(m, fx);
    }
    if ((state == TURN_DONE || m->headless) && c->phase == PH_IDLE && m->n_queue != 0) {
        turn_next(m, fx);
    } else if (c->once && c->phase == PH_IDLE) {
        effect_add(fx, FX_QUIT, 0, NULL, NULL)->n = c->exit;
    }
}

void turn_fail(struct model *m, int exit, const char *status, const char *words, struct effects *fx)
{
    struct core *c = m->core;
    char *copy = mem_dup(words);
    set_str(&m->status_text, copy);
    set_str(&c->exit_status, status);
    set_str(&c->exit_detail, copy);
    c->exit = exit;
    m->status = strcmp(status, "context_full") == 0  ? ST_FULL
                : strcmp(status, "cap_reached") == 0 ? ST_CAP
                                                     : ST_ERROR;
    calls_close(m, "the turn failed", fx);
    notice(m, NOTICE_TROUBLE, "%s", copy);
    free(copy);
    turn_end(m, TURN_FAILED, fx);
}

void turn_stop(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (c->phase == PH_IDLE)
        return;
    if (c->request != 0) {
        effect_add(fx, FX_CLOSE, c->request, NULL, NULL);
        c->request = 0;
    }
    c->stopped = true;
    m->gauges.read = m->gauges.read_of = UNKNOWN;
    if (c->purpose == FOR_DISTIL && c->phase == PH_STREAM) {
        c->phase = PH_IDLE;
        answer_discard(m);
        notice(m, NOTICE_INFO, "Distilling was put off.");
        if (turn_now(m) == NULL)
            return;
    }
    if (c->phase == PH_STREAM)
        answer_close(m, true);
    calls_close(m, "stopped by the user", fx);
    set_str(&c->exit_status, "interrupted");
    c->exit = 130;
    turn_end(m, TURN_INTERRUPTED, fx);
    m->status = ST_INTERRUPT;
}
