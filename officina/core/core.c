#include "core/core.h"

#include "core/core_priv.h"

#include <stdlib.h>
#include <string.h>

#define LEAVE_WITHIN SEC(2)
#define SILENT_AFTER SEC(90)

struct core *core_new(void)
{
    struct core *c = mem_new(sizeof *c);
    c->bytes_per_token = 3.6;
    c->max_requests = 200;
    c->focus = true;
    c->prev_predicted = c->prev_read = -1;
    return c;
}

void core_free(struct core *c)
{
    for (size_t i = 0; i < c->n_units; i++)
        unit_clear(&c->units[i]);
    coupling_clear(&c->cpl);
    text_free(&c->sent);
    text_free(&c->notes);
    prepare_forget(c);
    void *owned[] = {c->units,       c->opening,           c->tools, c->version, c->exit_status,
                     c->exit_detail, c->checkpoint_wanted, c};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

/* ---- the user ---- */

static void clear_kept(struct model *m)
{
    if (m->status == ST_ERROR || m->status == ST_INTERRUPT || m->status == ST_FULL || m->status == ST_CAP)
        m->status = ST_READY;
}

static void retry(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (m->engine.link == LINK_AWAY) {
        m->engine.retry_at = m->now;
        engine_tick(m, fx);
    } else if (m->status == ST_ERROR && c->phase == PH_IDLE && c->rewind_what == 0 && m->n_turns != 0) {
        clear_kept(m);
        struct turn *t = &m->turns[m->n_turns - 1];
        if (t->state != TURN_FAILED)
            return;
        c->send_allowed = true;
        t->state = TURN_OPEN;
        t->ended = 0;
        t->dirty = true;
        c->requests = c->tries = 0;
        turn_want(m, FOR_TURN);
        turn_pump(m, fx);
    }
}

static void submit(struct model *m, const struct event *e, struct effects *fx)
{
    const char *s = e->text != NULL ? e->text : "";
    while (*s == ' ' || *s == '\n' || *s == '\t')
        s++;
    text_clear(&m->composer.text);
    m->composer.caret = 0;
    if (*s == '\0' && m->status == ST_ERROR) { /* Enter tries again */
        retry(m, fx);
        return;
    }
    clear_kept(m);
    if (*s == '\0')
        return;
    if (m->status == ST_ANSWER && m->core->phase == PH_CALLS && e->n == 0) {
        struct event a = {
            .kind = EV_ANSWER, .at = e->at, .id = m->items[m->asking].id, .n = ANSWER_TEXT, .text = s};
        calls_answer(m, &a, fx);
    } else if (e->n == 0 && s[0] == '/') {
        command_run(m, s, fx);
    } else if (e->n == 0 && s[0] == '!') {
        bool silent = s[1] == '!';
        if (s[1 + silent + strspn(s + 1 + silent, " \t\n")] == '\0') {
            notice(m, NOTICE_TROUBLE, "%s needs a command behind it.", silent ? "!!" : "!");
            return;
        }
        struct effect *f = effect_add(fx, FX_USER_RUN, 0, NULL, s + 1 + silent);
        f->m = !silent;
    } else {
        turn_submit(m, e->n == 0 && s[0] == '\\' && s[1] == '/' ? s + 1 : s, fx);
    }
    if (m->core->phase == PH_CALLS)
        calls_next(m, fx);
}

static void compose(struct model *m, const struct event *e)
{
    size_t len = e->text != NULL ? strlen(e->text) : 0;
    text_set(&m->composer.text, e->text);
    m->composer.caret = e->n >= 0 && (size_t)e->n <= len ? (size_t)e->n : len;
    clear_kept(m);
}

static void leave(struct model *m, struct effects *fx)
{
    if (m->leaving && m->now < m->leave_until) {
        effect_add(fx, FX_QUIT, 0, NULL, NULL);
        return;
    }
    m->leaving = true;
    m->leave_until = m->now + LEAVE_WITHIN;
}

static void unqueue(struct model *m)
{
    if (m->n_queue == 0)
        return;
    char *text = m->queue[0].text;
    memmove(m->queue, m->queue + 1, --m->n_queue * sizeof *m->queue);
    if (m->composer.text.len != 0)
        text_puts(&m->composer.text, "\n");
    text_puts(&m->composer.text, text);
    m->composer.caret = m->composer.text.len;
    free(text);
}

static void end_think(struct model *m, struct effects *fx)
{
    if (m->engine.can_end_think && m->status == ST_THINKING)
        engine_ask(m, "/v1/chat/completions/control", "{\"action\":\"reasoning_end\"}", fx);
}

static void user_ran(struct model *m, const struct event *e, struct effects *fx)
{
    struct text t = {0};
    text_printf(&t, "$ %s\n", e->name != NULL ? e->name : "");
    text_add(&t, e->text, e->text != NULL ? e->len : 0);
    if (e->n != 0)
        text_printf(&t, "\n(exit status %lld)", (long long)e->n);
    if (e->m == 0) {
        notice(m, NOTICE_INFO, "%s", text_str(&t));
    } else {
        text_printf(&m->core->notes, "%sThe user ran a command:\n%s", m->core->notes.len != 0 ? "\n" : "",
                    text_str(&t));
        notice(m, NOTICE_INFO, "%s", text_str(&t));
    }
    text_free(&t);
}

/* ---- streams ---- */

static void refused(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    json_t *o = e->text != NULL ? js_parse(e->text, strlen(e->text), NULL, 0) : NULL;
    const json_t *err = json_object_get(o, "error");
    const char *words = js_str(err, "message"), *type = js_str(err, "type");
    bool too_long = (type != NULL && strcmp(type, "exceed_context_size_error") == 0) ||
                    (words != NULL && strstr(words, "context size") != NULL);
    c->request = 0;
    struct text t = {0};
    if (e->n == 503 || e->n == 429) {
        double wait = e->x > 0 ? e->x : 1;
        if (e->n == 503)
            engine_loading(m, fx);
        turn_want(m, c->purpose);
        c->not_before = m->now + (uint64_t)(wait * 1e6);
        if (e->n == 503)
            m->engine.retry_at = c->not_before;
    } else if (e->n >= 500 && c->tries < STREAM_RETRIES) {
        c->tries++;
        turn_want(m, c->purpose);
        c->not_before = m->now + SEC(1);
    } else if (too_long && !c->reduced) {
        c->reduced = true;
        int64_t half = wire_tokens(m) / 2;
        m->gauges.size = m->gauges.size > 0 ? m->gauges.size : js_int(err, "n_ctx", UNKNOWN);
        if (economy_offload(m, half, fx) == 0) {
            text_printf(
                &t, "the request does not fit into the engine's context and nothing can be offloaded: %.300s",
                words != NULL ? words : "");
            turn_fail(m, 5, "context_full", text_str(&t), fx);
        } else {
            turn_want(m, c->purpose);
            turn_pump(m, fx);
        }
    } else {
        text_printf(&t, "the engine refused the request (%lld)%s%.400s", (long long)e->n,
                    words != NULL ? ": " : "", words != NULL ? words : "");
        turn_fail(m, too_long ? 5 : 1, too_long ? "context_full" : "engine_error", text_str(&t), fx);
    }
    text_free(&t);
    json_decref(o);
}

static void stream_end(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    if (e->id != c->request || c->phase != PH_STREAM)
        return;
    if (e->n == 0 && !c->answer.any) { /* nobody there: the request waits */
        c->request = 0;
        turn_want(m, c->purpose);
        engine_lost(m, fx);
        return;
    }
    if (e->n != 200 && !c->answer.any) {
        refused(m, e, fx);
        return;
    }
    answer_end(m, e, fx);
}

static void stream_data(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    if (e->id != c->request || c->phase != PH_STREAM)
        return;
    answer_data(m, e->text, e->len, fx);
    engine_heard(m);
    if (!c->answer.repeats)
        return;
    effect_add(fx, FX_CLOSE, c->request, NULL, NULL);
    c->answer.done = true;
    const struct event end = {.kind = EV_STREAM_END, .at = e->at, .id = c->request, .n = 200};
    answer_end(m, &end, fx);
}

/* ---- snapshots ---- */

static void snapped(struct model *m, const struct event *e, struct effects *fx)
{
    if (e->id < 0 || (size_t)e->id >= m->n_turns)
        return;
    struct turn *t = &m->turns[e->id];
    char **at = e->n == SNAP_USER ? &t->tree_user : e->n == SNAP_BEFORE ? &t->tree_before : &t->tree_after;
    set_str(at, e->name);
    if (e->text != NULL)
        set_str(&t->partial, e->text);
    if (e->n >= SNAP_AFTER && e->m >= 0)
        t->files_changed = (int)e->m;
    t->dirty = true;
    if (e->n != SNAP_BEFORE)
        return;
    if ((size_t)e->id + 1 == m->n_turns)
        m->core->snapped = m->n_turns;
    if (e->name == NULL && t->partial == NULL)
        set_str(&t->partial, "no snapshot could be taken");
    if (t->partial != NULL && m->core->snap_wait)
        notice(m, NOTICE_INFO, "Rewind does not cover all of this turn: %s.", t->partial);
    m->core->snap_wait = false;
    calls_next(m, fx);
}

/* ---- the panel ---- */

/* The oldest job that has ended makes room when there are many. */
static void forget_job(struct model *m)
{
    for (size_t i = 0; i < m->n_jobs && m->n_jobs > JOBS_MAX; i++) {
        if (m->jobs[i].ended == 0)
            continue;
        free(m->jobs[i].command);
        memmove(&m->jobs[i], &m->jobs[i + 1], (--m->n_jobs - i) * sizeof *m->jobs);
        return;
    }
}

static void job(struct model *m, const struct event *e)
{
    struct job *j = NULL;
    for (size_t i = 0; i < m->n_jobs; i++)
        if (m->jobs[i].id == e->id)
            j = &m->jobs[i];
    if (j == NULL) {
        m->jobs = mem_room(m->jobs, m->n_jobs, &m->cap_jobs, sizeof *m->jobs);
        j = &m->jobs[m->n_jobs++];
        *j = (struct job){.id = e->id, .command = mem_dup(e->text), .started = m->now};
    }
    j->lines = e->m;
    j->exit = (int)e->n;
    j->ended = e->n < 0 ? 0 : m->now;
    forget_job(m);
}

static void server(struct model *m, const struct event *e)
{
    struct server *s = NULL;
    for (size_t i = 0; i < m->n_servers; i++)
        if (strcmp(m->servers[i].name, e->name) == 0)
            s = &m->servers[i];
    if (s == NULL) {
        m->servers = mem_room(m->servers, m->n_servers, &m->cap_servers, sizeof *m->servers);
        s = &m->servers[m->n_servers++];
        *s = (struct server){.name = mem_dup(e->name)};
    }
    s->ok = e->n != 0;
    set_str(&s->word, e->text);
}

static void contributed(struct model *m, const struct event *e)
{
    json_t *o = js_parse(e->text, strlen(e->text), NULL, 0), *list = json_object_get(o, "commands");
    m->core->hooks = (unsigned)e->n;
    m->commands = commands_free(m->commands, &m->n_commands);
    m->commands = mem_new((json_array_size(list) + 1) * sizeof *m->commands);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *k = json_array_get(list, i);
        if (js_str(k, "name") != NULL)
            m->commands[m->n_commands++] = (struct own_command){
                mem_dup(js_str(k, "name")), mem_dup(js_str(k, "args")), mem_dup(js_str(k, "help"))};
    }
    json_decref(o);
}

/* An extension's lines; none: its section goes. */
static void panel(struct model *m, const struct event *e)
{
    json_t *list = js_parse(e->text, strlen(e->text), NULL, 0);
    size_t i = 0;
    while (i < m->n_sections && strcmp(m->sections[i].name, e->name) != 0)
        i++;
    if (i == m->n_sections && json_array_size(list) != 0 && i < SECTIONS_MAX) {
        m->sections = mem_room(m->sections, m->n_sections, &m->cap_sections, sizeof *m->sections);
        m->sections[m->n_sections++] = (struct section){.name = mem_dup(e->name)};
    }
    if (i < m->n_sections) {
        struct section *s = &m->sections[i];
        section_clear(s);
        s->lines = mem_new((json_array_size(list) + 1) * sizeof *s->lines);
        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *l = json_string_value(json_array_get(list, k));
            if (l != NULL)
                s->lines[s->n++] = utf8_mend(l, strnlen(l, SECTION_LINE));
        }
        if (s->n == 0) {
            section_clear(s);
            free(s->name);
            memmove(s, s + 1, (--m->n_sections - i) * sizeof *s);
        }
    }
    json_decref(list);
}

static void touched(struct model *m, const struct event *e)
{
    json_t *v = js_parse(e->text, strlen(e->text), NULL, 0);
    for (size_t i = 0; i < m->n_touched; i++)
        free(m->touched[i].path);
    m->n_touched = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *o = json_array_get(v, i);
        const char *path = js_str(o, "path"), *sign = js_str(o, "sign");
        if (path == NULL)
            continue;
        m->touched = mem_room(m->touched, m->n_touched, &m->cap_touched, sizeof *m->touched);
        m->touched[m->n_touched++] =
            (struct touched){mem_dup(path), sign != NULL ? sign[0] : '~', (int)js_int(o, "added", 0),
                             (int)js_int(o, "removed", 0)};
    }
    json_decref(v);
}

static void diff(struct model *m, const struct event *e)
{
    sheet_clear(&m->sheet);
    if (e->n_changes == 0) {
        change_free(e->changes, e->n_changes);
        notice(m, NOTICE_INFO, "Nothing was changed.");
        return;
    }
    m->sheet.kind = SHEET_DIFF;
    m->sheet.title = mem_dup(e->text);
    m->sheet.keys = mem_dup("Esc closes");
    m->sheet.changes = e->changes;
    m->sheet.n_changes = e->n_changes;
}

static void git(struct model *m, const struct event *e)
{
    set_str(&m->branch, e->name);
    m->git_new = (int)e->n;
    m->git_changed = (int)e->m;
}

/* ---- time ---- */

static void tick(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (m->leaving && m->now >= m->leave_until)
        m->leaving = false;
    engine_tick(m, fx);
    turn_pump(m, fx);
    if (c->phase == PH_CALLS && c->snap_wait)
        calls_next(m, fx);
    uint64_t gap = c->cpl.gap_s > 0 ? SEC(c->cpl.gap_s) : 0;
    if (c->phase == PH_STREAM && gap != 0 && m->now - c->heard_at > gap) {
        effect_add(fx, FX_CLOSE, c->request, NULL, NULL);
        const struct event end = {.kind = EV_STREAM_END,
                                  .at = m->now,
                                  .id = c->request,
                                  .n = 200,
                                  .m = 1,
                                  .text = "nothing came for too long"};
        answer_end(m, &end, fx);
    }
    if (c->phase == PH_STREAM && gap == 0 && m->now - c->heard_at > SILENT_AFTER &&
        m->engine.link == LINK_AWAY) {
        effect_add(fx, FX_CLOSE, c->request, NULL, NULL);
        c->request = 0;
        answer_close(m, true);
        turn_fail(m, 1, "engine_error",
                  "The engine fell silent while writing. What had arrived is kept; Enter goes on.", fx);
    }
}

static void network(struct model *m, const struct event *e, struct effects *fx)
{
    switch (e->kind) {
    case EV_REPLY: engine_reply(m, e, fx); break;
    case EV_STREAM_OPEN:
        if (e->id == m->core->request && e->n == 200) {
            m->core->heard_at = m->now;
            m->engine.link = m->engine.link == LINK_START ? LINK_LIVE : m->engine.link;
            m->engine.slot_warm = true;
        }
        break;
    case EV_STREAM_DATA: stream_data(m, e, fx); break;
    default: stream_end(m, e, fx); break;
    }
}

static void user(struct model *m, const struct event *e, struct effects *fx)
{
    if (e->kind != EV_LEAVE)
        m->leaving = false;
    switch (e->kind) {
    case EV_SUBMIT: submit(m, e, fx); break;
    case EV_COMPOSE: compose(m, e); break;
    case EV_STOP: turn_stop(m, fx); break;
    case EV_LEAVE: leave(m, fx); break;
    case EV_MODE: m->mode = e->n == MODE_PLAN ? MODE_PLAN : MODE_BUILD; break;
    case EV_ANSWER: calls_answer(m, e, fx); break;
    case EV_UNQUEUE: unqueue(m); break;
    case EV_END_THINK: end_think(m, fx); break;
    case EV_RETRY: retry(m, fx); break;
    case EV_SHEET_MOVE: sheet_move(m, e->n, fx); break;
    case EV_SHEET_DO: sheet_do(m, (int)e->n, fx); break;
    case EV_CLOSED:
        m->core->once = true;
        calls_nobody(m, fx);
        if (m->core->phase == PH_IDLE && m->n_queue == 0)
            effect_add(fx, FX_QUIT, 0, NULL, NULL)->n = m->core->exit;
        break;
    case EV_FOCUS: m->core->focus = e->n != 0; break;
    default: effect_add(fx, FX_QUIT, 0, NULL, NULL)->n = e->n; break;
    }
}

static void rest(struct model *m, const struct event *e, struct effects *fx)
{
    switch (e->kind) {
    case EV_TOOL_CHECKED: calls_checked(m, e, fx); break;
    case EV_TOOL_OUTPUT: calls_output(m, e); break;
    case EV_TOOL_DONE: calls_done(m, e, fx); break;
    case EV_JOB: job(m, e); break;
    case EV_SERVER: server(m, e); break;
    case EV_USER_RAN: user_ran(m, e, fx); break;
    case EV_CONTRIBUTED: contributed(m, e); break;
    case EV_PANEL: panel(m, e); break;
    case EV_NOTED: turn_noted(m, e->text, fx); break;
    case EV_TEMPLATE: prepare_begin(m, e, fx); break;
    case EV_SNAP: snapped(m, e, fx); break;
    case EV_REWIND_PLAN: rewind_planned(m, e, fx); break;
    case EV_REWIND_DONE: rewind_done(m, e, fx); break;
    case EV_DIFF: diff(m, e); break;
    case EV_GIT: git(m, e); break;
    case EV_TOUCHED: touched(m, e); break;
    case EV_OPENED: restore_opened(m, e->text, fx); break;
    case EV_RESUMED: restore_resumed(m, fx); break;
    case EV_AROUND: around_told(m, e->text); break;
    case EV_COUPLED: restore_coupled(m, e->text, fx); break;
    case EV_SHEET: sheet_show(m, e); break;
    case EV_NOTICE: notice(m, e->n == 0 ? NOTICE_INFO : NOTICE_TROUBLE, "%s", e->text); break;
    default: break;
    }
}

static void tell_notices(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    for (; c->noticed < m->n_items; c->noticed++)
        if (m->items[c->noticed].kind == ITEM_NOTICE)
            emit_text(m, fx, "notice", text_str(&m->items[c->noticed].body), m->items[c->noticed].body.len);
}

void core_step(struct model *m, const struct event *e, struct effects *fx)
{
    m->now = e->at > m->now ? e->at : m->now;
    if (e->kind == EV_STORED) { /* thousands in a row; what follows from them is for EV_RESUMED */
        restore_stored(m, e);
        return;
    }
    if (e->kind == EV_TICK)
        tick(m, fx);
    else if (e->kind <= EV_FOCUS)
        user(m, e, fx);
    else if (e->kind <= EV_STREAM_END)
        network(m, e, fx);
    else
        rest(m, e, fx);
    turn_pump(m, fx);
    status_update(m);
    economy_gauges(m);
    tell_notices(m, fx);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a == 0 ? b : b == 0 ? a : a < b ? a : b;
}

uint64_t core_deadline(const struct model *m)
{
    const struct core *c = m->core;
    uint64_t t = engine_deadline(m);
    if (c->phase == PH_WANT)
        t = sooner(t, c->not_before > m->now ? c->not_before : 0);
    if (c->phase == PH_WANT && m->headless && c->once && c->away_since != 0)
        t = sooner(t, c->away_since + SEC(5));
    if (c->phase == PH_WANT && c->note == NOTE_ASKED)
        t = sooner(t, c->note_since + NOTE_WAIT);
    if (c->phase == PH_CALLS && c->snap_wait)
        t = sooner(t, c->snap_since + SEC(5));
    if (c->phase == PH_STREAM)
        t = sooner(t, c->heard_at + (c->cpl.gap_s > 0 ? SEC(c->cpl.gap_s) : SILENT_AFTER) + 1);
    if (m->leaving)
        t = sooner(t, m->leave_until);
    return t;
}
