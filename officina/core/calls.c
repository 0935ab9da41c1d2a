/* The calls of one answer: judged, asked about, run, finished. Every call ends with exactly one result. */
#include "core/args.h"
#include "core/core_priv.h"
#include "tools/output.h"
#include "tools/tool.h"

#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAIL_MAX     8192
#define TOLD_MAX     30000     /* bytes of a result that extensions get */
#define QUIET        MSEC(400) /* an approval counts only after the box was up so long */
#define REPEAT_TOLD  3
#define REPEAT_ENDED 5
#define TASKS_MAX    50

struct item *item_find(struct model *m, int64_t id)
{
    size_t lo = 0, hi = m->n_items;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (m->items[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->n_items && m->items[lo].id == id ? &m->items[lo] : NULL;
}

static bool is_open(const struct item *it)
{
    return it->kind == ITEM_CALL && it->live &&
           (it->call->state == CALL_PENDING || it->call->state == CALL_ASKING ||
            it->call->state == CALL_RUNNING);
}

/* The first item of the running turn: calls are looked for from there. */
static size_t turn_start(const struct model *m)
{
    return m->n_turns != 0 ? m->turns[m->n_turns - 1].first_item : 0;
}

static bool is_exempt(const char *name)
{
    return strcmp(name, "job") == 0 || strcmp(name, "ask") == 0;
}

/* The repeat guard: how often this very step was made in the last ten. */
static int repeats(struct model *m, const struct call *call)
{
    struct core *c = m->core;
    struct text t = {0};
    uint8_t sign[16];
    int equal = 1;
    text_printf(&t, "%s\n%s\n", call->name, call->args);
    text_add(&t, text_str(&call->result), call->result.len);
    vt_xxh128(text_str(&t), t.len, sign);
    text_free(&t);
    for (size_t i = 0; i < c->n_signs; i++)
        equal += memcmp(c->signs[i], sign, sizeof sign) == 0;
    if (c->n_signs == sizeof c->signs / sizeof c->signs[0])
        memmove(c->signs, c->signs + 1, --c->n_signs * sizeof c->signs[0]);
    memcpy(c->signs[c->n_signs++], sign, sizeof sign);
    return equal;
}

/* A call that was denied before and is now done counts as allowed later. */
static void settle_denied(struct model *m, const struct item *done)
{
    for (size_t i = 0; i < m->n_items; i++) {
        struct item *it = &m->items[i];
        if (it->kind == ITEM_CALL && it->call->state == CALL_DENIED && !it->call->allowed &&
            strcmp(it->call->name, done->call->name) == 0 && strcmp(it->call->args, done->call->args) == 0) {
            it->call->allowed = true;
            m->core->allowed_later++;
        }
    }
}

static void tell_result(struct model *m, struct effects *fx, const struct item *it)
{
    const struct call *call = it->call;
    if ((m->core->hooks & 1u << TELL_AFTER_TOOL) == 0 || call->started == 0)
        return;
    json_t *o = json_object();
    js_set_str(o, "tool", call->name);
    json_object_set_new(o, "arguments", js_parse(call->args, strlen(call->args), NULL, 0));
    json_object_set_new(o, "failed", json_boolean(call->state != CALL_OK));
    js_set_strn(o, "text", text_str(&call->result),
                call->result.len < TOLD_MAX ? call->result.len : TOLD_MAX);
    tell(m, fx, TELL_AFTER_TOOL, o);
}

void call_finish(struct model *m, struct item *it, enum call_state state, const char *result, size_t n,
                 struct effects *fx)
{
    struct call *call = it->call;
    call->state = state;
    call->ended = m->now;
    text_clear(&call->result);
    text_add(&call->result, result, n);
    approval_free(call->approval);
    call->approval = NULL;
    it->dirty = true;
    if (state == CALL_OK || state == CALL_FAILED) {
        int times = is_exempt(call->name) ? 1 : repeats(m, call);
        if (times >= REPEAT_TOLD)
            text_puts(&call->result,
                      "\n[officina] This very step was made before with the same result; do something "
                      "else.");
        m->core->repeat_end |= times >= REPEAT_ENDED;
    }
    if (state == CALL_DENIED)
        m->core->denied++;
    if (state == CALL_OK && m->core->denied != 0)
        settle_denied(m, it);
    emit_result(m, fx, it);
    tell_result(m, fx, it);
}

static void finish(struct model *m, struct item *it, enum call_state state, const char *result,
                   struct effects *fx)
{
    call_finish(m, it, state, result, strlen(result), fx);
}

static void deny(struct model *m, struct item *it, enum call_state state, const char *prefix, const char *why,
                 struct effects *fx)
{
    struct text t = {0};
    text_printf(&t, "%s%s%s", prefix, why != NULL && why[0] != '\0' ? ": " : "", why != NULL ? why : "");
    set_str(&it->call->reason, why != NULL && why[0] != '\0' ? why : prefix);
    finish(m, it, state, text_str(&t), fx);
    text_free(&t);
}

/* ---- reading what arrived ---- */

static void faulty(struct model *m, struct item *it, const char *fault, struct effects *fx)
{
    struct text t = {0};
    set_str(&it->call->fault, fault);
    text_printf(&t, "The call was not run: %s.", fault);
    if (strcmp(m->core->answer.finish, "length") == 0)
        text_puts(&t, " The answer was cut off by the length limit; make a shorter call.");
    finish(m, it, CALL_FAILED, text_str(&t), fx);
    text_free(&t);
}

static void read_call(struct model *m, struct item *it, struct effects *fx)
{
    struct call *call = it->call;
    const struct tool_spec *spec = tool_find(call->name);
    struct args a;
    it->ended = m->now;
    it->dirty = true;
    call->state = CALL_PENDING;
    args_read(&a, call->args, strlen(call->args), spec != NULL ? spec->schema : NULL);
    if (spec == NULL) {
        struct text t = {0};
        text_printf(&t, "there is no tool \"%.60s\"", call->name);
        faulty(m, it, text_str(&t), fx);
        text_free(&t);
    } else if (a.fault != NULL) {
        faulty(m, it, a.fault, fx);
    } else {
        free(call->args);
        call->args = json_dumps(a.value, JSON_COMPACT);
        set_str(&call->repair, a.repair);
        emit_call(m, fx, it);
    }
    args_free(&a);
}

void calls_begin(struct model *m, struct effects *fx)
{
    struct reply *a = &m->core->answer;
    for (int i = 0; i < CALLS_MAX; i++)
        if (a->calls[i] != 0)
            read_call(m, &m->items[a->calls[i] - 1], fx);
    if (a->too_many)
        notice(m, NOTICE_TROUBLE, "The model made more than %d calls at once; the rest was dropped.",
               CALLS_MAX);
    calls_next(m, fx);
}

/* ---- tools of the core ---- */

static void do_todo(struct model *m, struct item *it, const json_t *args, struct effects *fx)
{
    const json_t *items = json_object_get(args, "items");
    size_t n = json_array_size(items), doing = 0;
    for (size_t i = 0; i < n; i++)
        doing += js_str(json_array_get(items, i), "state") != NULL &&
                 strcmp(js_str(json_array_get(items, i), "state"), "doing") == 0;
    if (n > TASKS_MAX || doing > 1) {
        finish(m, it, CALL_FAILED,
               doing > 1 ? "Only one task may be in the state doing." : "At most 50 tasks.", fx);
        return;
    }
    for (size_t i = 0; i < m->n_tasks; i++)
        free(m->tasks[i].text);
    m->n_tasks = 0;
    for (size_t i = 0; i < n; i++) {
        const char *text = js_str(json_array_get(items, i), "text"),
                   *state = js_str(json_array_get(items, i), "state");
        m->tasks = mem_room(m->tasks, m->n_tasks, &m->cap_tasks, sizeof *m->tasks);
        m->tasks[m->n_tasks++] = (struct task){mem_dup(text != NULL ? text : ""),
                                               state != NULL && strcmp(state, "doing") == 0  ? TASK_DOING
                                               : state != NULL && strcmp(state, "done") == 0 ? TASK_DONE
                                                                                             : TASK_OPEN};
    }
    char gist[40];
    snprintf(gist, sizeof gist, "%zu tasks", n);
    set_str(&it->call->gist, gist);
    emit(m, fx, "todo", json_pack("{s:O}", "items", items != NULL ? (json_t *)items : json_null()));
    finish(m, it, CALL_OK, "The list is set.", fx);
}

static void do_ask(struct model *m, struct item *it, const json_t *args, struct effects *fx)
{
    struct call *call = it->call;
    if (m->headless && !m->core->answers) {
        deny(m, it, CALL_DENIED, "denied", "nobody can be asked; decide yourself or stop", fx);
        return;
    }
    const json_t *options = json_object_get(args, "options");
    call->question = mem_dup(js_str(args, "question"));
    call->options = mem_new((json_array_size(options) + 1) * sizeof *call->options);
    for (size_t i = 0; i < json_array_size(options); i++)
        if (json_is_string(json_array_get(options, i)))
            call->options[call->n_options++] = mem_dup(json_string_value(json_array_get(options, i)));
    set_str(&call->gist, call->question);
    call->state = CALL_ASKING;
    call->started = m->now;
}

/* Returns whether the tool is the core's own. */
static bool own_tool(struct model *m, struct item *it, struct effects *fx)
{
    bool todo = strcmp(it->call->name, "todo") == 0, ask = strcmp(it->call->name, "ask") == 0;
    if (!todo && !ask)
        return false;
    json_t *args = js_parse(it->call->args, strlen(it->call->args), NULL, 0);
    if (todo)
        do_todo(m, it, args, fx);
    else
        do_ask(m, it, args, fx);
    json_decref(args);
    return true;
}

/* ---- judging and running ---- */

static void start(struct model *m, struct item *it, struct effects *fx)
{
    struct call *call = it->call;
    call->state = CALL_RUNNING;
    call->started = m->now;
    struct effect *e = effect_add(fx, FX_RUN, it->id, call->name, call->args);
    if (call->allowed) {
        memcpy(e->bound, call->bound, sizeof e->bound);
        e->has_bound = 1;
    }
}

/* A snapshot stands before the first call that may write. Returns whether it can start now. */
static bool snapped(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    struct turn *t = &m->turns[m->n_turns - 1];
    if (t->tree_before != NULL || c->snapped == m->n_turns)
        return true;
    if (!c->snap_wait) {
        effect_add(fx, FX_SNAP, (int64_t)m->n_turns - 1, NULL, NULL)->n = SNAP_BEFORE;
        c->snap_wait = true;
        c->snap_since = m->now;
        return false;
    }
    if (m->now - c->snap_since < SEC(5))
        return false;
    c->snapped = m->n_turns;
    set_str(&t->partial, "the snapshot took longer than 5 s");
    notice(m, NOTICE_TROUBLE, "Rewind will not cover this turn: the snapshot took longer than 5 s.");
    return true;
}

static void close_for_steering(struct model *m, struct effects *fx)
{
    for (size_t i = turn_start(m); i < m->n_items; i++) {
        struct item *it = &m->items[i];
        const struct tool_spec *spec = is_open(it) ? tool_find(it->call->name) : NULL;
        if (spec != NULL && it->call->state == CALL_PENDING && !spec->reads) {
            set_str(&it->call->reason, "a new message came");
            finish(m, it, CALL_CLOSED, "not run: a new message came", fx);
        }
    }
}

void calls_next(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    if (c->phase != PH_CALLS)
        return;
    if (m->n_queue != 0 && c->parts == NULL) /* a command's calls are the user's own */
        close_for_steering(m, fx);
    size_t running = 0, writing = 0, asking = 0, pending = 0;
    for (size_t i = turn_start(m); i < m->n_items; i++) {
        struct item *it = &m->items[i];
        if (!is_open(it))
            continue;
        const struct tool_spec *spec = tool_find(it->call->name);
        bool reads = spec != NULL && spec->reads;
        running += it->call->state == CALL_RUNNING;
        writing += it->call->state == CALL_RUNNING && !reads && (it->call->flags & TOOL_READS) == 0;
        asking += it->call->state == CALL_ASKING;
        if (it->call->state != CALL_PENDING)
            continue;
        pending++;
        if (c->in_check || writing != 0 || asking != 0 || running >= READS_TOGETHER ||
            (!reads && running != 0))
            return;
        if (own_tool(m, it, fx)) {
            calls_next(m, fx);
            return;
        }
        if (it->call->flags != 0) { /* judged before; it waited for the snapshot */
            if ((it->call->flags & TOOL_WRITES) != 0 && !snapped(m, fx))
                return;
            start(m, it, fx);
        } else {
            c->in_check = true;
            effect_add(fx, FX_CHECK, it->id, it->call->name, it->call->args);
        }
        return;
    }
    if (running + asking + pending == 0 && c->parts != NULL)
        prepare_done(m, fx);
    else if (running + asking + pending == 0)
        turn_boundary(m, fx);
}

static void ask_user(struct model *m, struct item *it, const struct event *e, struct effects *fx)
{
    if (m->headless && !m->core->answers) {
        bool plan = m->mode == MODE_PLAN && (e->m & TOOL_READS) == 0; /* what Plan refuses is no denial */
        deny(m, it, plan ? CALL_REFUSED : CALL_DENIED,
             plan ? "refused in Plan" : "denied: nobody can be asked", e->text, fx);
        return;
    }
    it->call->approval = e->approval;
    it->call->state = CALL_ASKING;
    if (e->approval != NULL)
        e->approval->since = m->now;
    json_t *o = json_object();
    js_set_str(o, "id", it->call->id);
    js_set_str(o, "name", it->call->name);
    js_set_str(o, "what", e->approval != NULL ? e->approval->what : NULL);
    js_set_str(o, "reason", e->text);
    emit(m, fx, "approval", o);
}

void calls_checked(struct model *m, const struct event *e, struct effects *fx)
{
    struct item *it = item_find(m, e->id);
    m->core->in_check = false;
    bool taken = false;
    if (it != NULL && is_open(it) && it->call->state == CALL_PENDING) {
        it->call->flags = (int)e->m | 4; /* judged */
        if (e->name != NULL)
            set_str(&it->call->gist, e->name);
        switch (e->n) {
        case TOOL_ALLOW:
            if ((e->m & TOOL_WRITES) == 0 || snapped(m, fx))
                start(m, it, fx);
            break;
        case TOOL_ASK:
            ask_user(m, it, e, fx);
            taken = it->call->approval == e->approval;
            break;
        case TOOL_DENY: deny(m, it, CALL_DENIED, "denied by a rule", e->text, fx); break;
        case TOOL_REFUSE: deny(m, it, CALL_REFUSED, "refused", e->text, fx); break;
        default: finish(m, it, CALL_FAILED, e->text != NULL ? e->text : "the call cannot be run", fx); break;
        }
    }
    if (!taken)
        approval_free(e->approval);
    calls_next(m, fx);
}

void calls_output(struct model *m, const struct event *e)
{
    struct item *it = item_find(m, e->id);
    if (it == NULL || it->kind != ITEM_CALL || it->call->state != CALL_RUNNING)
        return;
    struct text *t = &it->call->tail;
    text_add(t, e->text, e->len);
    if (t->len > 2 * TAIL_MAX) {
        size_t cut = t->len - TAIL_MAX;
        while (cut < t->len && t->s[cut - 1] != '\n')
            cut++;
        text_replace(t, 0, cut < t->len ? cut : t->len - TAIL_MAX, NULL, 0);
    }
}

void calls_done(struct model *m, const struct event *e, struct effects *fx)
{
    struct item *it = item_find(m, e->id);
    if (it == NULL || it->kind != ITEM_CALL || it->call->state != CALL_RUNNING) {
        change_free(e->changes, e->n_changes);
        return;
    }
    struct call *call = it->call;
    if (e->name != NULL)
        set_str(&call->gist, e->name);
    call->output = e->m;
    change_free(call->change, call->n_changes);
    call->change = e->changes;
    call->n_changes = e->n_changes;
    if (e->n == TOOL_CHANGED) { /* a new question with what is there now */
        call->state = CALL_PENDING;
        call->flags = 0;
        call->allowed = false;
    } else if (e->n == TOOL_CANCELLED) {
        set_str(&call->reason, "stopped");
        call_finish(m, it, CALL_CLOSED, e->text != NULL ? e->text : "", e->text != NULL ? e->len : 0, fx);
    } else {
        call_finish(m, it, e->n == TOOL_OK ? CALL_OK : CALL_FAILED, e->text != NULL ? e->text : "",
                    e->text != NULL ? e->len : 0, fx);
    }
    calls_next(m, fx);
}

static void answered_question(struct model *m, struct item *it, const struct event *e, struct effects *fx)
{
    if (e->n == ANSWER_DENY || e->text == NULL || e->text[0] == '\0')
        deny(m, it, CALL_DENIED, "the user did not answer", e->text, fx);
    else
        finish(m, it, CALL_OK, e->text, fx);
}

void calls_answer(struct model *m, const struct event *e, struct effects *fx)
{
    struct item *it = item_find(m, e->id);
    if (it == NULL || it->kind != ITEM_CALL || it->call->state != CALL_ASKING)
        return;
    struct call *call = it->call;
    if (call->approval == NULL) {
        answered_question(m, it, e, fx);
        calls_next(m, fx);
        return;
    }
    if (m->now - call->approval->since < QUIET && !m->headless)
        return;
    const struct approval *a = call->approval;
    const char *rule = e->n == ANSWER_SESSION   ? a->rule_session
                       : e->n == ANSWER_PROJECT ? a->rule_project
                                                : NULL;
    if (e->n == ANSWER_DENY) {
        deny(m, it, CALL_DENIED, "denied by the user", e->text, fx);
    } else if ((e->n == ANSWER_SESSION || e->n == ANSWER_PROJECT) && rule == NULL) {
        return; /* not offered for this call */
    } else {
        if (rule != NULL) {
            struct effect *f =
                effect_add(fx, FX_RULE, 0, e->n == ANSWER_SESSION ? "session" : "project", rule);
            f->n = 1;
            f->m = m->mode;
        }
        memcpy(call->bound, a->bound, sizeof call->bound);
        call->allowed = true;
        call->state = CALL_PENDING;
        approval_free(call->approval);
        call->approval = NULL;
        call->flags |= TOOL_WRITES;
    }
    calls_next(m, fx);
}

void calls_nobody(struct model *m, struct effects *fx)
{
    m->core->answers = false;
    for (size_t i = turn_start(m); i < m->n_items; i++)
        if (m->items[i].kind == ITEM_CALL && m->items[i].call->state == CALL_ASKING)
            deny(m, &m->items[i], CALL_DENIED, "denied: nobody can be asked", NULL, fx);
    calls_next(m, fx);
}

void calls_close(struct model *m, const char *why, struct effects *fx)
{
    for (size_t i = turn_start(m); i < m->n_items; i++) {
        struct item *it = &m->items[i];
        if (it->kind != ITEM_CALL || !it->live)
            continue;
        if (it->call->state == CALL_ARRIVING) {
            it->live = false;
            it->dirty = true;
            it->call->state = CALL_CLOSED;
            set_str(&it->call->reason, why);
            continue;
        }
        if (!is_open(it))
            continue;
        struct text t = {0};
        if (it->call->state == CALL_RUNNING) {
            effect_add(fx, FX_CANCEL, it->id, NULL, NULL);
            text_printf(&t, "%s; until then it had printed:\n", why);
            output_clean(text_str(&it->call->tail), it->call->tail.len, &t);
        } else {
            text_printf(&t, "not run: %s", why);
        }
        set_str(&it->call->reason, why);
        finish(m, it, CALL_CLOSED, text_str(&t), fx);
        text_free(&t);
    }
    m->core->in_check = m->core->snap_wait = false;
}
