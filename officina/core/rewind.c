/* Rewind: the moment before a turn's message was sent, for the files, the talk, or both. The talk's part is here, the
 * files' is the snapshots'. Nothing is deleted: what is left is marked, and /redo brings it back. */
#include "core/core_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *prompt_of(const struct model *m, size_t turn)
{
    for (size_t k = m->turns[turn].first_item; k < m->n_items; k++)
        if (m->items[k].kind == ITEM_USER && m->items[k].turn == turn)
            return text_str(&m->items[k].body);
    return "";
}

static void kilo(char *out, size_t size, int64_t v)
{
    if (v < 0)
        snprintf(out, size, "–");
    else
        snprintf(out, size, v < 1000 ? "%.0f" : "%.1fk", v < 1000 ? (double)v : (double)v / 1000);
}

static void add_row(struct model *m, size_t turn)
{
    struct sheet *s = &m->sheet;
    const struct turn *t = &m->turns[turn];
    struct sheet_row *r = &s->rows[s->n_rows++];
    char files[32], before[24], after[24], when[16];
    const char *asked = prompt_of(m, turn);
    time_t at = (time_t)(t->started / 1000000);
    struct tm tm;
    localtime_r(&at, &tm);
    strftime(when, sizeof when, "%H:%M", &tm);
    if (t->files_changed > 0)
        snprintf(files, sizeof files, "%d changed", t->files_changed);
    else
        snprintf(files, sizeof files, "%s", t->files_changed == 0 ? "none" : "–");
    kilo(before, sizeof before, t->tokens_before);
    kilo(after, sizeof after, t->tokens_after);
    struct text c = {0};
    text_printf(&c, "%s→%s", after, before);
    r->key = mem_dup(t->key);
    r->cells[0] = mem_dup(t->key);
    r->cells[1] = mem_dup(when);
    r->cells[2] = mem_dupn(asked, strcspn(asked, "\n"));
    r->cells[3] = mem_dup(files);
    r->cells[4] = text_take(&c);
}

void rewind_open(struct model *m, const char *arg, struct effects *fx)
{
    static const char *const heads[] = {"turn", "when", "what you asked", "files", "context"};
    char key[16];
    size_t n = strcspn(arg, " ");
    if (arg[0] != '\0') {
        snprintf(key, sizeof key, "%.*s", (int)(n < sizeof key ? n : sizeof key - 1), arg);
        const char *what = arg + n + strspn(arg + n, " ");
        for (size_t i = 0; i < m->n_turns; i++) {
            if (strcmp(m->turns[i].key, key) != 0 || m->turns[i].state == TURN_REWOUND)
                continue;
            rewind_go(m, i, strcmp(what, "files") == 0 ? 'f' : strcmp(what, "context") == 0 ? 'c' : 'b', fx);
            return;
        }
        notice(m, NOTICE_TROUBLE, "There is no turn %s to go back to.", key);
        return;
    }
    struct sheet *s = &m->sheet;
    sheet_clear(s);
    s->kind = SHEET_REWIND;
    s->title = mem_dup("REWIND");
    for (int i = 0; i < 5; i++)
        s->heads[i] = mem_dup(heads[i]);
    s->keys = mem_dup("Enter both   f files only   c context only   d diff   Esc stay");
    s->hint = mem_dup("nothing changes until you press Enter, f or c");
    s->rows = mem_new((m->n_turns + 1) * sizeof *s->rows);
    struct sheet_row *now = &s->rows[s->n_rows++];
    now->cells[0] = mem_dup("now");
    now->cells[2] = mem_dup("(stay here)");
    now->cells[3] = mem_dup("–");
    now->cells[4] = mem_dup("–");
    for (size_t i = m->n_turns; i-- > 0;)
        if (m->turns[i].state != TURN_REWOUND)
            add_row(m, i);
}

static void detail(struct sheet *s, const char *line)
{
    s->detail = mem_grow(s->detail, (s->n_detail + 1) * sizeof *s->detail);
    s->detail[s->n_detail++] = mem_dup(line);
}

static void detail_list(struct sheet *s, const json_t *o, const char *key, const char *word, const char *none)
{
    const json_t *v = json_object_get(o, key);
    struct text t = {0};
    text_printf(&t, "%s", word);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *e = json_array_get(v, i);
        const char *path = json_is_string(e) ? json_string_value(e) : js_str(e, "path");
        text_printf(&t, "  %s", path != NULL ? path : "?");
    }
    if (json_array_size(v) == 0 && none != NULL)
        text_puts(&t, none);
    if (json_array_size(v) != 0 || none != NULL)
        detail(s, text_str(&t));
    text_free(&t);
}

static void context_line(struct model *m, size_t turn)
{
    char line[200];
    const char *ck = NULL;
    for (size_t i = 0; i < turn; i++)
        if (m->turns[i].checkpoint != NULL)
            ck = m->turns[i].checkpoint;
    if (m->engine.cut_anywhere)
        snprintf(line, sizeof line, "context  nothing is re-read");
    else if (ck != NULL)
        snprintf(line, sizeof line, "context  checkpoint %.60s: what came after it is re-read", ck);
    else
        snprintf(line, sizeof line, "context  %" PRId64 " tokens are re-read",
                 m->turns[turn].tokens_before > 0 ? m->turns[turn].tokens_before : 0);
    detail(&m->sheet, line);
}

void rewind_planned(struct model *m, const struct event *e, struct effects *fx)
{
    struct sheet *s = &m->sheet;
    if (e->id < 0 || (size_t)e->id >= m->n_turns)
        return;
    if (m->core->emit) { /* somebody asked by dry_run */
        json_t *told = e->text != NULL ? js_parse(e->text, strlen(e->text), NULL, 0) : NULL,
               *out = json_object();
        js_set_str(out, "turn", m->turns[e->id].key);
        json_object_set_new(out, "dry_run", json_true());
        json_object_update(out, told);
        json_decref(told);
        emit(m, fx, "rewind", out);
    }
    if (s->kind != SHEET_REWIND)
        return;
    for (size_t i = 0; i < s->n_detail; i++)
        free(s->detail[i]);
    s->n_detail = 0;
    json_t *o = e->text != NULL ? js_parse(e->text, strlen(e->text), NULL, 0) : NULL;
    char line[64];
    snprintf(line, sizeof line, "%s · before this turn", m->turns[e->id].key);
    detail(s, line);
    detail_list(s, o, "restore", "restore", "  nothing");
    detail_list(s, o, "keep", "keep   ", NULL);
    detail_list(s, o, "conflict", "conflict", NULL);
    detail_list(s, o, "uncovered", "not covered:", NULL);
    context_line(m, (size_t)e->id);
    json_decref(o);
}

/* A distilling or an earlier rewind between here and there: the projection of that time has to be made anew. */
static bool cut_between(const struct model *m, size_t first)
{
    for (size_t i = first; i < m->n_items; i++)
        if (m->items[i].kind == ITEM_CUT && m->items[i].live)
            return true;
    return false;
}

static void project_anew(struct model *m)
{
    struct core *c = m->core;
    for (size_t i = 0; i < c->n_units; i++)
        unit_clear(&c->units[i]);
    c->n_units = c->covered = 0;
    text_clear(&c->sent);
    c->epoch++;
    c->counted_units = 0;
    wire_update(m);
}

static void cut_talk(struct model *m, size_t turn, struct effects *fx)
{
    struct core *c = m->core;
    size_t first = m->turns[turn].first_item;
    bool anew = cut_between(m, first);
    char *prompt = mem_dup(prompt_of(m, turn));
    for (size_t i = first; i < m->n_items; i++) {
        struct item *it = &m->items[i];
        if (!it->live || it->kind == ITEM_NOTICE)
            continue;
        it->live = false;
        it->rewound = c->last_rewind;
        it->dirty = true;
    }
    for (size_t i = turn; i < m->n_turns; i++) {
        m->turns[i].state = TURN_REWOUND;
        m->turns[i].dirty = true;
    }
    while (c->n_units != 0 && c->units[c->n_units - 1].item >= first)
        unit_clear(&c->units[--c->n_units]);
    struct item *cut = model_add(m, ITEM_CUT);
    text_printf(&cut->body, "rewound to before %s", m->turns[turn].key);
    cut->turn = turn;
    if (anew)
        project_anew(m);
    c->covered = m->n_items;
    text_clear(&c->sent);
    c->epoch++;
    c->counted_units = 0;
    m->gauges.used = m->turns[turn].tokens_before;
    m->gauges.used_estimated = true;
    for (size_t i = 0; i < turn && !m->engine.cut_anywhere; i++)
        if (m->turns[i].checkpoint != NULL)
            set_str(&c->checkpoint_wanted, m->turns[i].checkpoint);
    text_set(&m->composer.text, prompt);
    m->composer.caret = m->composer.text.len;
    free(prompt);
    c->told_mode = m->mode; /* the opening note and the next message say what matters */
    economy_gauges(m);
    if (c->checkpoint_wanted != NULL)
        engine_checkpoint(m, false, fx);
}

void rewind_go(struct model *m, size_t turn, int what, struct effects *fx)
{
    struct core *c = m->core;
    if (c->rewind_what != 0 || c->phase != PH_IDLE) {
        notice(m, NOTICE_TROUBLE, "A rewind has to wait until what runs has ended.");
        return;
    }
    c->rewind_to = turn;
    c->rewind_what = what;
    c->last_rewind++;
    if (what == 'c') {
        const struct event done = {.kind = EV_REWIND_DONE, .at = m->now, .id = (int64_t)turn};
        rewind_done(m, &done, fx);
    } else {
        effect_add(fx, FX_REWIND, (int64_t)turn, NULL, NULL)->n = c->last_rewind;
    }
}

/* The newest live item that is no notice, counted from 1; 0: none. After a rewind that is its cut. */
static size_t newest_live(const struct model *m)
{
    size_t i = m->n_items;
    while (i > 0 && (!m->items[i - 1].live || m->items[i - 1].kind == ITEM_NOTICE))
        i--;
    return i;
}

static void redo_talk(struct model *m, int64_t number)
{
    size_t cut = newest_live(m);
    if (cut == 0 || m->items[cut - 1].kind != ITEM_CUT)
        return;
    m->items[cut - 1].live = false;
    m->items[cut - 1].dirty = true;
    for (size_t i = 0; i < m->n_items; i++) {
        struct item *it = &m->items[i];
        if (it->rewound != number)
            continue;
        it->live = it->dirty = true;
        it->rewound = 0;
        if (it->kind == ITEM_USER && it->turn < m->n_turns) {
            m->turns[it->turn].state = TURN_DONE;
            m->turns[it->turn].dirty = true;
        }
    }
    project_anew(m);
    m->gauges.used = m->n_turns != 0 ? m->turns[m->n_turns - 1].tokens_after : UNKNOWN;
    text_clear(&m->composer.text);
    m->composer.caret = 0;
}

static void finish(struct model *m, int what, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    if (e->n != 0) {
        notice(m, NOTICE_TROUBLE, "Nothing was rewound: %s",
               e->text != NULL ? e->text : "the files could not be put back");
        emit(m, fx, "rewind", json_pack("{s:b, s:s}", "done", 0, "detail", e->text != NULL ? e->text : ""));
        return;
    }
    if (what == 'r') {
        const struct rewound *r = &c->rewinds[--c->n_rewinds];
        if (r->what != 'f')
            redo_talk(m, r->number);
        else
            text_printf(&c->notes, "%sThe user took the rewind of the files back.",
                        c->notes.len != 0 ? "\n" : "");
        notice(m, NOTICE_INFO, "The rewind was undone.");
    } else {
        const char *key = m->turns[c->rewind_to].key;
        if (c->n_rewinds == REWINDS_MAX)
            memmove(c->rewinds, c->rewinds + 1, --c->n_rewinds * sizeof c->rewinds[0]);
        c->rewinds[c->n_rewinds++] = (struct rewound){c->last_rewind, what};
        if (what == 'f') {
            text_printf(&c->notes, "%sThe user put the files back to what they were before turn %s.",
                        c->notes.len != 0 ? "\n" : "", key);
            notice(m, NOTICE_INFO, "The files are as before %s; the talk stays.", key);
        } else {
            cut_talk(m, c->rewind_to, fx);
        }
        if (e->text != NULL && e->text[0] != '\0')
            notice(m, NOTICE_INFO, "%s", e->text);
    }
    emit(m, fx, "rewind",
         json_pack("{s:b, s:s}", "done", 1, "what",
                   what == 'r'   ? "redo"
                   : what == 'f' ? "files"
                   : what == 'c' ? "context"
                                 : "both"));
}

void rewind_done(struct model *m, const struct event *e, struct effects *fx)
{
    struct core *c = m->core;
    int what = c->rewind_what;
    c->rewind_what = 0;
    if (what == 0 || (what != 'r' && c->rewind_to >= m->n_turns))
        return;
    finish(m, what, e, fx);
    turn_next(m, fx); /* lines that came meanwhile */
}

void rewind_redo(struct model *m, struct effects *fx)
{
    struct core *c = m->core;
    const struct rewound *r = c->n_rewinds != 0 ? &c->rewinds[c->n_rewinds - 1] : NULL;
    size_t cut = newest_live(m);
    bool talk = r != NULL && r->what != 'f';
    if (c->rewind_what != 0 || c->phase != PH_IDLE) {
        notice(m, NOTICE_TROUBLE, "That has to wait until what runs has ended.");
        return;
    }
    if (r == NULL || (talk && (cut == 0 || m->items[cut - 1].kind != ITEM_CUT))) {
        notice(m, NOTICE_TROUBLE, "There is no rewind to undo, or the talk went on since.");
        return;
    }
    c->rewind_what = 'r';
    if (r->what != 'c') {
        effect_add(fx, FX_REDO, 0, NULL, NULL)->n = r->number;
        return;
    }
    const struct event done = {.kind = EV_REWIND_DONE, .at = m->now};
    rewind_done(m, &done, fx);
}
