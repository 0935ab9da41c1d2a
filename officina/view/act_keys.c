#include "view/act.h"
#include "view/look.h"

#include <stdlib.h>
#include <string.h>

#define ESC_TWICE_US 400000

static bool empty(const struct act *a)
{
    return a->u->edit.text.len == 0;
}

static void scroll(struct act *a, int by)
{
    struct ui *u = a->u;
    const struct model *m = a->m;
    bool page = m->sheet.kind == SHEET_PAGE || m->sheet.kind == SHEET_DIFF || m->sheet.kind == SHEET_TRUST ||
                u->overlay == OVER_HELP;
    const struct item *asking =
        m->status == ST_APPROVAL && m->asking < m->n_items ? &m->items[m->asking] : NULL;
    if (page) {
        u->sheet_top = u->sheet_top + by > 0 ? u->sheet_top + by : 0;
    } else if (m->sheet.kind != SHEET_NONE) {
        act_send(a, EV_SHEET_MOVE, by, NULL);
    } else if (asking && asking->call && asking->call->approval && asking->call->approval->n_changes &&
               u->follow) {
        u->box_scroll = u->box_scroll + by > 0 ? u->box_scroll + by : 0;
    } else {
        view_scroll(u, m, a->caps, by, a->now);
    }
}

/* Esc: what is open closes first; then the turn stops; twice on an idle empty workshop opens the rewind picker. */
static void escape(struct act *a)
{
    struct ui *u = a->u;
    const struct model *m = a->m;
    bool twice = u->esc_at && a->now - u->esc_at <= ESC_TWICE_US;
    u->esc_at = 0;
    if (u->overlay != OVER_NONE) {
        u->overlay = OVER_NONE;
        menu_clear(&u->menu);
    } else if (u->menu.shown) {
        menu_clear(&u->menu);
    } else if (m->sheet.kind != SHEET_NONE) {
        act_send(a, EV_SHEET_DO, 27, NULL);
    } else if (u->selected != SIZE_MAX) {
        u->selected = SIZE_MAX;
    } else if (act_works(m)) {
        act_send(a, EV_STOP, 0, NULL);
    } else if (empty(a) && twice) {
        act_send(a, EV_SUBMIT, 0, "/rewind");
    } else {
        u->esc_at = a->now;
    }
}

static void interrupt(struct act *a)
{
    struct ui *u = a->u;
    if (act_works(a->m)) {
        act_send(a, EV_STOP, 0, NULL);
    } else if (!empty(a)) {
        free(u->cleared);
        u->cleared = mem_dup(text_str(&u->edit.text));
        edit_load(&u->edit, "", 0, 0);
        u->edit.history_at = 0;
        menu_clear(&u->menu);
    } else {
        act_send(a, EV_LEAVE, 0, NULL);
    }
}

static void history(struct act *a, int by)
{
    const char *prompts[EDIT_PROMPTS];
    size_t n = act_prompts(a, prompts, EDIT_PROMPTS);
    edit_history(&a->u->edit, prompts, n, by);
}

static void vertical(struct act *a, int by)
{
    struct ui *u = a->u;
    if (u->menu.shown && u->menu.n) {
        u->menu.cursor = (u->menu.cursor + u->menu.n + (size_t)by) % u->menu.n;
    } else if (a->m->sheet.kind != SHEET_NONE) {
        scroll(a, by);
    } else if (u->overlay == OVER_HELP) {
        scroll(a, by);
    } else if (!edit_vertical(&u->edit, by)) {
        history(a, -by);
    }
}

static void enter(struct act *a)
{
    struct ui *u = a->u;
    const struct model *m = a->m;
    if (u->menu.shown) {
        menu_accept(a, true);
    } else if (u->overlay == OVER_TASKS || u->overlay == OVER_HELP) {
        u->overlay = OVER_NONE;
    } else if (m->sheet.kind != SHEET_NONE && empty(a)) {
        act_send(a, EV_SHEET_DO, '\r', NULL);
    } else if (!act_submit(a) && m->status == ST_ERROR) {
        act_send(a, EV_RETRY, 0, NULL);
    }
}

static void toggle_folds(struct act *a)
{
    a->u->all_open = !a->u->all_open;
    a->u->n_fold = 0;
}

static void panel(struct act *a)
{
    struct ui *u = a->u;
    bool room = (u->w >= 110 && u->h >= 30);
    if (room)
        u->panel_off = !u->panel_off;
    else
        u->overlay = u->overlay == OVER_PANEL ? OVER_NONE : OVER_PANEL;
}

static void whole(struct act *a)
{
    const struct model *m = a->m;
    const struct item *it = m->status == ST_APPROVAL && m->asking < m->n_items ? &m->items[m->asking] : NULL;
    if (m->sheet.kind == SHEET_DIFF ||
        (it && it->call->approval && it->call->approval->n_changes && a->u->w >= 160))
        a->u->unified = !a->u->unified;
    else
        a->u->whole = !a->u->whole;
}

static void toggle_mode(struct act *a)
{
    if (a->u->menu.shown) {
        menu_accept(a, false);
        return;
    }
    a->u->mode = a->u->mode == MODE_BUILD ? MODE_PLAN : MODE_BUILD;
    act_send(a, EV_MODE, a->u->mode, NULL);
}

/* The turn that a block belongs to, for its diff. */
static void diff_of(struct act *a, const struct item *it)
{
    struct text t = {0};
    if (it->turn < a->m->n_turns)
        text_printf(&t, "/diff %s", a->m->turns[it->turn].key);
    act_send(a, EV_SUBMIT, 0, text_str(&t));
    text_free(&t);
}

/* Keys of a selected block, while nothing is being written. */
static bool block_key(struct act *a, uint32_t cp)
{
    struct ui *u = a->u;
    if (u->selected >= a->m->n_items || !empty(a))
        return false;
    const struct item *it = &a->m->items[u->selected];
    if (cp == ' ') {
        ui_fold(u, it, !ui_is_open(u, a->m, it, a->now));
    } else if (cp == 'y') {
        char *s = block_text(a->m, u->selected);
        a->host(a->host_arg, HOST_COPY, s);
        free(s);
    } else if (cp == 'd') {
        diff_of(a, it);
    } else {
        return false;
    }
    return true;
}

/* Plain letters that a picker takes, while nothing is being written. */
static bool sheet_key(struct act *a, uint32_t cp)
{
    enum sheet_kind k = a->m->sheet.kind;
    if (k == SHEET_NONE || k == SHEET_PAGE || k == SHEET_DIFF || k == SHEET_TRUST || !empty(a))
        return false;
    if (cp != 'f' && cp != 'c' && cp != 'd' && cp != 'y')
        return false;
    act_send(a, EV_SHEET_DO, (int64_t)cp, NULL);
    return true;
}

static void type(struct act *a, uint32_t cp)
{
    struct ui *u = a->u;
    char utf8[4];
    size_t n = gate_encode(cp, utf8);
    if (u->overlay == OVER_PALETTE || u->overlay == OVER_SEARCH) {
        text_add(&u->query, utf8, n);
        menu_update(a);
        return;
    }
    if (sheet_key(a, cp) || block_key(a, cp))
        return;
    edit_insert(&u->edit, utf8, n, EDIT_TYPE);
    u->selected = SIZE_MAX;
    menu_update(a);
}

static void erase(struct act *a)
{
    struct ui *u = a->u;
    if (u->overlay == OVER_PALETTE || u->overlay == OVER_SEARCH) {
        size_t at = gate_before(text_str(&u->query), u->query.len, u->query.len);
        text_replace(&u->query, at, u->query.len - at, "", 0);
    } else {
        edit_do(&u->edit, EDIT_BACKSPACE);
    }
    menu_update(a);
}

static void edit(struct act *a, enum edit_do what)
{
    edit_do(&a->u->edit, what);
    menu_update(a);
}

static void approve(struct act *a, enum action act, uint64_t typed, bool quiet)
{
    if (a->m->sheet.kind == SHEET_TRUST && act == ACT_YES) {
        if (!quiet || !act_read(a, TRUST_BOX, typed))
            ui_flash(a->u, a->now, "that came too quickly: read the question, then press it again");
        else
            act_send(a, EV_SHEET_DO, 'y', NULL);
        return;
    }
    act_answer(a,
               act == ACT_YES           ? ANSWER_ONCE
               : act == ACT_YES_SESSION ? ANSWER_SESSION
               : act == ACT_YES_PROJECT ? ANSWER_PROJECT
                                        : ANSWER_DENY,
               typed, quiet);
}

static void code_scroll(struct act *a, int by)
{
    a->u->code_scroll = a->u->code_scroll + by > 0 ? a->u->code_scroll + by : 0;
}

static void leave(struct act *a)
{
    if (empty(a))
        act_send(a, EV_LEAVE, 0, NULL);
    else
        edit(a, EDIT_DELETE);
}

static void run(struct act *a, enum action act, uint64_t typed, bool quiet)
{
    struct ui *u = a->u;
    int page = u->page > 2 ? u->page - 2 : 1;
    switch (act) {
    case ACT_SEND: enter(a); break;
    case ACT_NEWLINE: edit_insert(&u->edit, "\n", 1, EDIT_TYPE); break;
    case ACT_MODE: toggle_mode(a); break;
    case ACT_ESC: escape(a); break;
    case ACT_INTERRUPT: interrupt(a); break;
    case ACT_LEAVE: leave(a); break;
    case ACT_YES:
    case ACT_YES_SESSION:
    case ACT_YES_PROJECT:
    case ACT_NO: approve(a, act, typed, quiet); break;
    case ACT_WHOLE: whole(a); break;
    case ACT_UNQUEUE: act_send(a, EV_UNQUEUE, 0, NULL); break;
    case ACT_END_THINK: act_send(a, EV_END_THINK, 0, NULL); break;
    case ACT_RETRY: act_send(a, EV_RETRY, 0, NULL); break;
    case ACT_PAGE_UP: scroll(a, -page); break;
    case ACT_PAGE_DOWN: scroll(a, page); break;
    case ACT_LINE_UP: scroll(a, -1); break;
    case ACT_LINE_DOWN: scroll(a, 1); break;
    case ACT_TOP: view_top(u, a->m); break;
    case ACT_FOLLOW: u->follow = true; break;
    case ACT_SELECT_UP: view_select(u, a->m, a->caps, -1, a->now); break;
    case ACT_SELECT_DOWN: view_select(u, a->m, a->caps, 1, a->now); break;
    case ACT_FOLDS: toggle_folds(a); break;
    case ACT_PANEL: panel(a); break;
    case ACT_TASKS: u->overlay = u->overlay == OVER_TASKS ? OVER_NONE : OVER_TASKS; break;
    case ACT_PALETTE: menu_open(a, OVER_PALETTE); break;
    case ACT_SEARCH: menu_open(a, OVER_SEARCH); break;
    case ACT_EDITOR: a->host(a->host_arg, HOST_EDITOR, text_str(&u->edit.text)); break;
    case ACT_REDRAW: a->host(a->host_arg, HOST_REDRAW, NULL); break;
    case ACT_SUSPEND: a->host(a->host_arg, HOST_SUSPEND, NULL); break;
    case ACT_HELP:
        u->overlay = u->overlay == OVER_HELP ? OVER_NONE : OVER_HELP;
        u->sheet_top = 0;
        break;
    case ACT_FRAME: a->host(a->host_arg, HOST_FRAME, NULL); break;
    case ACT_MOUSE: a->host(a->host_arg, HOST_MOUSE, ""); break;
    case ACT_CODE_LEFT: code_scroll(a, -8); break;
    case ACT_CODE_RIGHT: code_scroll(a, 8); break;
    case ACT_LEFT: edit(a, EDIT_LEFT); break;
    case ACT_RIGHT: edit(a, EDIT_RIGHT); break;
    case ACT_WORD_LEFT: edit(a, EDIT_WORD_LEFT); break;
    case ACT_WORD_RIGHT: edit(a, EDIT_WORD_RIGHT); break;
    case ACT_LINE_START: edit(a, EDIT_LINE_START); break;
    case ACT_LINE_END: edit(a, EDIT_LINE_END); break;
    case ACT_BACKSPACE: erase(a); break;
    case ACT_DELETE: edit(a, EDIT_DELETE); break;
    case ACT_KILL_END: edit(a, EDIT_KILL_END); break;
    case ACT_KILL_START: edit(a, EDIT_KILL_START); break;
    case ACT_KILL_WORD_LEFT: edit(a, EDIT_KILL_WORD_LEFT); break;
    case ACT_KILL_WORD_RIGHT: edit(a, EDIT_KILL_WORD_RIGHT); break;
    case ACT_YANK: edit(a, EDIT_YANK_LAST); break;
    case ACT_YANK_OLDER: edit(a, EDIT_YANK_OLDER); break;
    case ACT_UNDO: edit(a, EDIT_UNDO); break;
    case ACT_REDO: edit(a, EDIT_REDO); break;
    case ACT_UP: vertical(a, -1); break;
    case ACT_DOWN: vertical(a, 1); break;
    case ACT_NONE:
    case ACT_N: break;
    }
}

void act_key(struct act *a, const struct term_event *ev)
{
    struct ui *u = a->u;
    bool ctrl_x = ev->u.key.key == TK_CHAR && ev->u.key.cp == 'x' && ev->u.key.mods == TM_CTRL;
    bool prefixed = u->prefixed;
    /* behind Ctrl-X the letter is part of the chord: both times count from before it */
    uint64_t typed = prefixed ? u->chord_at : a->now - a->late;
    bool quiet = prefixed ? u->chord_quiet : typed >= u->last_key + APPROVAL_QUIET_US;
    u->prefixed = false;
    if (ctrl_x && !prefixed) {
        u->prefixed = true;
        u->chord_quiet = quiet;
        u->chord_at = typed;
        return;
    }
    enum action act = keys_find(a->keys, ev, prefixed);
    bool plain = ev->u.key.key == TK_CHAR && !(ev->u.key.mods & (TM_CTRL | TM_ALT));
    if (act != ACT_ESC)
        u->esc_at = 0;
    if (act != ACT_NONE)
        run(a, act, typed, quiet);
    else if (plain && !prefixed)
        type(a, ev->u.key.cp);
    act_compose(a);
}
