/* Context economy: how much the model sees, what is replaced by stubs, distilling, and money. A pass changes bytes that
 * were sent, so passes are rare and large; each is told with its numbers. */
#include "core/core_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIGH_MARK_MIN 24000
#define WORTH         60 /* tokens below which a stub saves nothing */
#define RECENT        8  /* units at the end that a deep pass leaves alone */
#define ANSWER_ROOM   4096
#define SUMMARY_MOST  2048
#define SUMMARY_ASKED 250 /* tokens of the request for a summary, and some for the error of estimates */

static int64_t high_mark(int64_t size)
{
    int64_t high = size / 4 > HIGH_MARK_MIN ? size / 4 : HIGH_MARK_MIN, most = size * 8 / 10;
    return high < most ? high : most;
}

void economy_gauges(struct model *m)
{
    struct core *c = m->core;
    struct gauges *g = &m->gauges;
    int64_t window = c->cpl.window > 0 ? c->cpl.window : m->engine.window;
    g->size_certified = c->cpl.certified && m->engine.certified > 0;
    g->size =
        g->size_certified && (window <= 0 || m->engine.certified < window) ? m->engine.certified : window;
    g->target = g->size > 0 ? high_mark(g->size) : UNKNOWN;
    g->live = c->n_units != 0 ? wire_tokens(m) : UNKNOWN;
}

/* Tokens of the next prompt: what the engine counted, and an estimate of what came since. */
static int64_t next_prompt(const struct model *m)
{
    const struct core *c = m->core;
    int64_t sum = m->gauges.used;
    size_t from = (size_t)c->counted_units;
    if (sum < 0 || from > c->n_units || c->sent.len == 0) {
        struct text t = {0};
        sum = (int64_t)(1500 + (double)(c->opening != NULL ? strlen(c->opening) : 0) / c->bytes_per_token);
        text_free(&t);
        from = 0;
    }
    for (size_t i = from; i < c->n_units; i++)
        sum += c->units[i].tokens;
    return sum;
}

static void epoch(struct model *m)
{
    m->core->epoch++;
    text_clear(&m->core->sent);
    economy_gauges(m);
}

static void stub(struct model *m, struct unit *u)
{
    int64_t before = u->tokens;
    u->form = FORM_STUB;
    unit_build(m, u);
    if (m->gauges.offload < 0)
        m->gauges.offload = 0;
    m->gauges.offload += before > u->tokens ? before - u->tokens : 0;
}

static bool is_superseded(const struct model *m, size_t k)
{
    const struct core *c = m->core;
    const struct item *a = &m->items[c->units[k].item];
    if (a->kind != ITEM_CALL || strcmp(a->call->name, "read") != 0 || a->call->gist == NULL)
        return false;
    for (size_t i = k + 1; i < c->n_units; i++) {
        const struct item *b = &m->items[c->units[i].item];
        if (c->units[i].role == ROLE_RESULT && b->kind == ITEM_CALL && strcmp(b->call->name, "read") == 0 &&
            b->call->gist != NULL && strcmp(a->call->gist, b->call->gist) == 0)
            return true;
    }
    return false;
}

/* pass 0: superseded reads; 1: results; 2: reasoning. */
static bool is_candidate(const struct model *m, size_t k, int pass, bool deep)
{
    const struct core *c = m->core;
    const struct unit *u = &c->units[k];
    const struct item *it = &m->items[u->item];
    bool old = it->turn + 2 < m->n_turns || (deep && k + RECENT < c->n_units);
    if (u->form != FORM_FULL || u->tokens < WORTH)
        return false;
    if (pass == 0)
        return u->role == ROLE_RESULT && (old || it->turn + 1 < m->n_turns) && is_superseded(m, k);
    if (pass == 1)
        return u->role == ROLE_RESULT && old;
    return u->role == ROLE_ANSWER && old && it->kind == ITEM_REASONING;
}

static int64_t offload(struct model *m, int64_t target, bool deep, struct effects *fx)
{
    struct core *c = m->core;
    int64_t before = wire_tokens(m), live = before;
    for (int pass = 0; pass < 3 && live > target; pass++) {
        for (size_t k = 0; k < c->n_units && live > target; k++) {
            if (!is_candidate(m, k, pass, deep))
                continue;
            int64_t had = c->units[k].tokens;
            stub(m, &c->units[k]);
            live += c->units[k].tokens - had;
        }
    }
    if (live == before)
        return 0;
    m->gauges.used = m->gauges.used > 0 ? m->gauges.used - (before - live) : UNKNOWN;
    m->gauges.used_estimated = true;
    epoch(m);
    notice(m, NOTICE_INFO,
           "Offloaded %" PRId64 " tokens of old output (%" PRId64 " → %" PRId64 " live); recall finds them.",
           before - live, before, live);
    emit(m, fx, "offload", json_pack("{s:I, s:I}", "before", (json_int_t)before, "after", (json_int_t)live));
    return before - live;
}

int64_t economy_offload(struct model *m, int64_t target, struct effects *fx)
{
    return offload(m, target, false, fx);
}

static int full(struct model *m, int64_t need, struct effects *fx)
{
    char words[300];
    snprintf(words, sizeof words,
             "The context is full: %" PRId64 " of %" PRId64 " tokens, of them %" PRId64
             " of the conversation. /context shows what fills it; /drop, /rewind and /new help.",
             need, m->gauges.size, wire_tokens(m));
    turn_fail(m, 5, "context_full", words, fx);
    return -1;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* An answer may take what is left but for the room that a summary of all needs: else a full window could not be reduced. */
int64_t economy_answer_room(const struct model *m)
{
    int64_t size = m->gauges.size;
    int64_t room = size > 0 ? size - next_prompt(m) - least(SUMMARY_MOST, size / 8) - SUMMARY_ASKED : UNKNOWN;
    return room > 0 ? room : UNKNOWN;
}

int economy_fits(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    economy_gauges(m);
    int64_t size = m->gauges.size, need = next_prompt(m);
    if (size <= 0)
        return 1;
    int64_t room = size / 8 < ANSWER_ROOM ? size / 8 : ANSWER_ROOM;
    if (need + room <= size)
        return 1;
    int64_t gained = offload(m, high_mark(size) / 2, true, fx);
    need -= gained;
    if (need + room <= size)
        return 1;
    if (c->reduced || c->n_units < 3)
        return full(m, need, fx);
    c->reduced = true;
    turn_want(m, FOR_DISTIL);
    turn_pump(m, fx);
    return 0;
}

void economy_after_turn(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    wire_update(m);
    economy_gauges(m);
    int64_t high = m->gauges.target;
    if (high <= 0 || wire_tokens(m) <= high)
        return;
    /* A pass costs reading again what stands behind the first change; it must save that within ten requests. */
    int64_t before = wire_tokens(m);
    if (before < m->gauges.size * 8 / 10 && m->gauges.read_speed > 0 && c->n_units < 4)
        return;
    offload(m, high / 2, false, fx);
}

void economy_distil(struct model *m, const char *focus, struct effects *fx)
{
    struct core *c = m->core;
    struct text t = {0};
    wire_update(m);
    text_puts(
        &t,
        "[officina] The conversation gets too long and will be replaced by your summary. Write it now, "
        "without "
        "calling tools: the goals and limits in the user's own words; decisions and rejected ways; files and "
        "functions that were touched; commands and their outcome; open tasks; the next step. No contents of "
        "files. At most 1,000 words.");
    if (focus != NULL && focus[0] != '\0')
        text_printf(&t, " Pay attention to: %s", focus);
    int64_t size = m->gauges.size;
    char *body = wire_body(m, text_str(&t), size > 0 ? least(SUMMARY_MOST, size / 8) : SUMMARY_MOST);
    c->request = ++c->next_ask;
    c->purpose = FOR_DISTIL;
    effect_add(fx, FX_SEND, c->request, m->coupling, body);
    c->phase = PH_STREAM;
    c->sent_at = c->heard_at = m->now;
    answer_begin(m);
    free(body);
    text_free(&t);
}

/* The first unit that stays in full: whole turns from the end within a tenth of the size; always the open turn. */
static size_t tail_start(const struct model *m)
{
    const struct core *c = m->core;
    int64_t room = m->gauges.size > 0 ? m->gauges.size / 10 : 2000, sum = 0;
    size_t start = c->n_units;
    bool open = m->n_turns != 0 && m->turns[m->n_turns - 1].state == TURN_OPEN;
    for (size_t i = c->n_units; i-- > 0;) {
        sum += c->units[i].tokens;
        if (c->units[i].role != ROLE_USER)
            continue;
        bool must = open && m->items[c->units[i].item].turn + 1 == m->n_turns;
        if (sum > room && !must)
            break;
        start = i;
    }
    return start;
}

static void tasks_and_jobs(const struct model *m, struct text *t)
{
    static const char *const words[] = {"open", "doing", "done"};
    for (size_t i = 0; i < m->n_tasks; i++)
        text_printf(t, "\nTask (%s): %s", words[m->tasks[i].state], m->tasks[i].text);
    for (size_t i = 0; i < m->n_jobs; i++)
        if (m->jobs[i].ended == 0)
            text_printf(t, "\nJob %" PRId64 " still runs: %s", m->jobs[i].id, m->jobs[i].command);
}

static void no_summary(struct model *m, struct effects *fx)
{
    notice(m, NOTICE_TROUBLE, "The model wrote no summary; nothing was distilled.");
    m->core->phase = PH_IDLE;
    if (turn_now(m) != NULL)
        full(m, next_prompt(m), fx);
}

void economy_distilled(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    struct reply *a = &c->answer;
    int64_t before = wire_tokens(m);
    struct text sum = {0};
    if (a->text != 0)
        text_printf(&sum, "Summary of the conversation so far, written by you:\n%s",
                    text_str(&m->items[a->text - 1].body));
    for (size_t i = 0; i < m->n_items; i++) /* what was written for the summary is no part of the talk */
        if (m->items[i].answer == c->next_answer) {
            m->items[i].live = false;
            m->items[i].dirty = true;
            if (m->items[i].kind == ITEM_CALL)
                m->items[i].call->state = CALL_CLOSED;
        }
    if (sum.len == 0) {
        no_summary(m, fx);
        return;
    }
    tasks_and_jobs(m, &sum);
    size_t start = tail_start(m);
    int64_t gone = 0;
    for (size_t i = 0; i < start; i++) {
        gone += c->units[i].tokens;
        unit_clear(&c->units[i]);
    }
    c->n_units -= start;
    memmove(c->units, c->units + start, c->n_units * sizeof *c->units);
    struct item *cut = model_add(m, ITEM_CUT);
    c->covered = m->n_items;
    if (c->n_units != 0) {
        free(c->units[0].note);
        c->units[0].note = text_take(&sum);
        unit_build(m, &c->units[0]);
    } else {
        text_printf(&c->notes, "%s%s", c->notes.len != 0 ? "\n" : "", text_str(&sum));
    }
    text_free(&sum);
    m->gauges.offload = (m->gauges.offload > 0 ? m->gauges.offload : 0) + gone;
    c->counted_units = 0;
    m->gauges.used = UNKNOWN;
    epoch(m);
    int64_t after = wire_tokens(m) + (int64_t)((double)c->notes.len / c->bytes_per_token);
    cut = &m->items[m->n_items - 1];
    text_printf(&cut->body, "distilled %.1fk → %.1fk", (double)before / 1000, (double)after / 1000);
    cut->dirty = true;
    emit(m, fx, "distil", json_pack("{s:I, s:I}", "before", (json_int_t)before, "after", (json_int_t)after));
    c->phase = PH_IDLE;
    if (turn_now(m) == NULL)
        return;
    if (after * 10 > before * 9) {
        full(m, next_prompt(m), fx);
        return;
    }
    turn_want(m, FOR_TURN);
    turn_pump(m, fx);
}

bool economy_drop(struct model *m, int64_t id, struct effects *fx)
{
    struct core *c = m->core;
    for (size_t i = 0; i < c->n_units; i++) {
        struct unit *u = &c->units[i];
        if (u->id != id || u->role != ROLE_RESULT || u->form != FORM_FULL)
            continue;
        stub(m, u);
        epoch(m);
        return true;
    }
    return false;
}

void economy_page(struct model *m)
{
    struct core *c = m->core;
    int64_t by[3] = {0}, stubs = 0;
    wire_update(m);
    for (size_t i = 0; i < c->n_units; i++) {
        by[c->units[i].role] += c->units[i].tokens;
        stubs += c->units[i].form == FORM_STUB;
    }
    page_begin(m, "CONTEXT");
    char used[24], size[24];
    page_line(m, "used        %s%s of %s tokens", amount(used, m->gauges.used),
              m->gauges.used_estimated ? " (estimated)" : "", amount(size, m->gauges.size));
    page_line(m, "your words  %" PRId64, by[ROLE_USER]);
    page_line(m, "answers     %" PRId64, by[ROLE_ANSWER]);
    page_line(m, "results     %" PRId64 "  (%" PRId64 " of them stubs)", by[ROLE_RESULT], stubs);
    page_line(m, "offloaded   %" PRId64, m->gauges.offload > 0 ? m->gauges.offload : 0);
    page_line(m, "%s", "");
    page_line(m, "Largest results (/drop ID):");
    bool shown[12] = {0};
    size_t taken[12] = {0};
    for (int k = 0; k < 12; k++) {
        size_t best = c->n_units;
        for (size_t i = 0; i < c->n_units; i++) {
            bool had = c->units[i].role != ROLE_RESULT || c->units[i].form != FORM_FULL;
            for (int j = 0; j < k; j++)
                had |= shown[j] && taken[j] == i;
            if (!had && (best == c->n_units || c->units[i].tokens > c->units[best].tokens))
                best = i;
        }
        if (best == c->n_units)
            break;
        shown[k] = true;
        taken[k] = best;
        const struct call *call = m->items[c->units[best].item].call;
        page_line(m, "  m-%04" PRId64 "  %6" PRId64 "  %s %s", c->units[best].id, c->units[best].tokens,
                  call->name, call->gist != NULL ? call->gist : "");
    }
}

/* ---- money ---- */

static int64_t price(const struct coupling *p, int64_t prompt, int64_t cached, int64_t out)
{
    double euro = (double)(prompt - cached) * p->price_in + (double)cached * p->price_cached +
                  (double)out * p->price_out;
    return (int64_t)(euro + 0.5); /* tokens × euro per million = micro-euro */
}

void money_spend(struct model *m)
{
    struct core *c = m->core;
    const struct reply *a = &c->answer;
    if (!c->cpl.priced || a->prompt < 0)
        return;
    int64_t cost =
        price(&c->cpl, a->prompt, a->cached > 0 ? a->cached : 0, a->completion > 0 ? a->completion : 0);
    c->spent_session += cost;
    c->spent_day += cost;
    c->spent_month += cost;
    m->gauges.spent = c->spent_session;
}

bool money_allows(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    const struct coupling *p = &c->cpl;
    if (!p->priced)
        return true;
    int64_t worst = price(p, next_prompt(m), 0, ANSWER_ROOM);
    const struct {
        const char *name;
        double cap;
        int64_t spent;
    } caps[] = {{"of this conversation", p->cap_session, c->spent_session},
                {"of today", p->cap_day, c->spent_day},
                {"of this month", p->cap_month, c->spent_month}};
    for (int i = 0; i < 3; i++) {
        if (caps[i].cap < 0 || (double)(caps[i].spent + worst) <= caps[i].cap * 1e6)
            continue;
        if (strncmp(p->on_cap, "couple:", 7) == 0 && !c->cap_answered) {
            c->cap_answered = true;
            notice(m, NOTICE_INFO, "The cap %s is reached; going on with %s.", caps[i].name, p->on_cap + 7);
            effect_add(fx, FX_COUPLE, 0, p->on_cap + 7, NULL);
            return false;
        }
        char words[200];
        snprintf(words, sizeof words, "The cap %s is reached: %.2f € spent of %.2f €; /couple or /cap.",
                 caps[i].name, (double)caps[i].spent / 1e6, caps[i].cap);
        turn_fail(m, 7, "cap_reached", words, fx);
        return false;
    }
    return true;
}
