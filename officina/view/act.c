#include "view/act.h"
#include "view/look.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void act_send(struct act *a, enum event_kind kind, int64_t n, const char *text)
{
    const struct event e = {.kind = kind, .at = a->now, .n = n, .text = text, .len = text ? strlen(text) : 0};
    a->sink(a->sink_arg, &e);
}

bool act_works(const struct model *m)
{
    switch (m->status) {
    case ST_READY:
    case ST_INTERRUPT:
    case ST_ERROR:
    case ST_FULL:
    case ST_CAP:
    case ST_REWIND:
    case ST_READONLY:
    case ST_OPENING: return false;
    case ST_AWAY:
    case ST_LOADING:
    case ST_BOUNCING: return m->n_queue > 0;
    default: return true;
    }
}

/* Tells the core when text or caret are not what it knows. */
void act_compose(struct act *a)
{
    struct ui *u = a->u;
    const struct edit *e = &u->edit;
    bool same =
        e->text.len == u->sent.len && memcmp(text_str(&e->text), text_str(&u->sent), e->text.len) == 0;
    if (same && e->caret == u->sent_caret)
        return;
    text_set(&u->sent, text_str(&e->text));
    u->sent_caret = e->caret;
    act_send(a, EV_COMPOSE, (int64_t)e->caret, text_str(&e->text));
}

static void watch_box(struct act *a)
{
    const struct model *m = a->m;
    int64_t id = m->sheet.kind == SHEET_TRUST                         ? TRUST_BOX
                 : m->status == ST_APPROVAL && m->asking < m->n_items ? m->items[m->asking].id
                                                                      : 0;
    if (id != a->u->box_id) {
        a->u->box_id = id;
        a->u->box_shown = 0;
        a->u->whole = false;
        a->u->box_scroll = 0;
    }
}

void act_shown(struct act *a)
{
    struct ui *u = a->u;
    if (!u->box_id || !u->box_seen)
        u->box_shown = 0; /* scrolled away or covered: it has to be read again */
    else if (!u->box_shown)
        u->box_shown = a->now;
}

bool act_read(const struct act *a, int64_t id, uint64_t typed)
{
    const struct ui *u = a->u;
    return u->box_id == id && u->box_shown && typed >= u->box_shown + APPROVAL_SHOWN_US;
}

void act_sync(struct act *a)
{
    struct ui *u = a->u;
    const struct composer *c = &a->m->composer;
    watch_box(a);
    u->mode = a->m->mode;
    if (c->text.len == u->sent.len && memcmp(text_str(&c->text), text_str(&u->sent), u->sent.len) == 0)
        return;
    text_set(&u->sent, text_str(&c->text));
    u->sent_caret = c->caret;
    edit_load(&u->edit, text_str(&c->text), c->text.len, c->caret);
    menu_clear(&u->menu);
}

void act_replace(struct act *a, const char *s, size_t n)
{
    edit_load(&a->u->edit, s, n, n);
    act_compose(a);
    menu_update(a);
}

size_t act_prompts(struct act *a, const char **out, size_t max)
{
    size_t n = 0;
    if (a->u->cleared && max)
        out[n++] = a->u->cleared;
    return n + (a->history ? a->history(a->sink_arg, out + n, max - n) : 0);
}

/* ---- sending ---- */

static void copy_answer(struct act *a, const char *which)
{
    const struct model *m = a->m;
    int want = which ? atoi(which) : 0;
    for (size_t i = m->n_items; i-- > 0;) {
        if (m->items[i].kind != ITEM_TEXT || !m->items[i].body.len)
            continue;
        if (want <= 0) {
            a->host(a->host_arg, HOST_COPY, text_str(&m->items[i].body));
            return;
        }
        const char *s = text_str(&m->items[i].body), *open = s;
        for (int k = 0; (open = strstr(open, "```")) != NULL;) {
            const char *body = strchr(open, '\n'), *end = body ? strstr(body, "\n```") : NULL;
            if (!end)
                break;
            if (++k == want) {
                char *block = mem_dupn(body + 1, (size_t)(end + 1 - body - 1));
                a->host(a->host_arg, HOST_COPY, block);
                free(block);
                return;
            }
            open = end + 4;
        }
        break;
    }
    ui_flash(a->u, a->now,
             want > 0 ? "there is no such code block in the last answer" : "there is no answer to copy yet");
}

/* Commands about looks, which the core does not know. */
static bool look_command(struct act *a, const char *s)
{
    static const struct {
        const char *name;
        enum host_do what;
    } looks[] = {
        {"/theme", HOST_THEME}, {"/glyphs", HOST_GLYPHS}, {"/mouse", HOST_MOUSE}, {"/motion", HOST_MOTION}};
    size_t n = strcspn(s, " \t\n");
    const char *arg = s + n + strspn(s + n, " \t\n");
    bool switches = (n == 6 && (strncmp(s, "/panel", n) == 0 || strncmp(s, "/mouse", n) == 0)) ||
                    (n == 7 && strncmp(s, "/motion", n) == 0);
    size_t len = strcspn(arg, " \t\n");
    if (switches && len != 0 && !(len == 2 && strncmp(arg, "on", 2) == 0) &&
        !(len == 3 && strncmp(arg, "off", 3) == 0)) {
        char words[60];
        snprintf(words, sizeof words, "%.*s is on or off, or nothing to change it", (int)n, s);
        ui_flash(a->u, a->now, words);
        return true;
    }
    if (n == 6 && strncmp(s, "/panel", n) == 0) {
        a->u->panel_off = *arg ? strncmp(arg, "off", 3) == 0 : !a->u->panel_off;
        a->u->overlay = a->u->panel_off || a->u->overlay == OVER_PANEL ? OVER_NONE : OVER_PANEL;
        return true;
    }
    if (n == 5 && strncmp(s, "/keys", n) == 0) {
        a->u->overlay = OVER_HELP;
        a->u->sheet_top = 0;
        return true;
    }
    if (n == 5 && strncmp(s, "/copy", n) == 0) {
        copy_answer(a, *arg ? arg : NULL);
        return true;
    }
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        if (strlen(looks[i].name) == n && strncmp(s, looks[i].name, n) == 0) {
            a->host(a->host_arg, looks[i].what, arg);
            return true;
        }
    }
    return false;
}

bool act_submit(struct act *a)
{
    struct ui *u = a->u;
    char *s = mem_dup(text_str(&u->edit.text));
    bool blank = s[strspn(s, " \t\n")] == '\0';
    if (blank) {
        free(s);
        return false;
    }
    edit_reset(&u->edit);
    menu_clear(&u->menu);
    text_clear(&u->sent); /* the core empties its composer when it takes the text */
    u->sent_caret = 0;
    u->follow = true;
    u->selected = SIZE_MAX;
    if (s[0] == '/' && look_command(a, s))
        act_send(a, EV_COMPOSE, 0, "");
    else
        act_send(a, EV_SUBMIT, 0, s);
    free(s);
    return true;
}

/* ---- consent ---- */

void act_answer(struct act *a, enum answer answer, uint64_t typed, bool quiet)
{
    const struct model *m = a->m;
    if (m->status != ST_APPROVAL || m->asking >= m->n_items)
        return;
    const struct item *it = &m->items[m->asking];
    if (!it->call || it->call->state != CALL_ASKING || !it->call->approval)
        return;
    if (!quiet || !act_read(a, it->id, typed)) {
        ui_flash(a->u, a->now, "that came too quickly: read the box, then press it again");
        return;
    }
    const char *reason = answer == ANSWER_DENY && a->u->edit.text.len ? text_str(&a->u->edit.text) : NULL;
    const struct event e = {.kind = EV_ANSWER,
                            .at = a->now,
                            .id = it->id,
                            .n = answer,
                            .text = reason,
                            .len = reason ? strlen(reason) : 0};
    a->sink(a->sink_arg, &e);
    if (reason) {
        edit_reset(&a->u->edit);
        act_compose(a);
    }
    a->u->whole = false;
    a->u->box_scroll = 0;
}

/* ---- the mouse ---- */

/* The choice of an approval that stands at column x of a row like "│ Alt-Y once  Alt-N deny │". */
static bool choice_at(const struct grid *g, int x, int y, enum answer *out)
{
    for (int at = x; at >= 0; at--) {
        const struct cell *c = grid_at(g, at, y);
        char word[6] = "";
        for (int i = 0; i < 5; i++) {
            const struct cell *d = grid_at(g, at + i, y);
            word[i] = d && d->n == 1 ? d->bytes[0] : '?';
        }
        if (!c || c->n != 1 || strncmp(word, "Alt-", 4) != 0)
            continue;
        for (int i = at; i + 1 <= x; i++) { /* two blanks end a choice */
            const struct cell *p = grid_at(g, i, y), *q = grid_at(g, i + 1, y);
            if (p->bytes[0] == ' ' && q->bytes[0] == ' ')
                return false;
        }
        switch (word[4]) {
        case 'Y': *out = ANSWER_ONCE; return true;
        case 'S': *out = ANSWER_SESSION; return true;
        case 'P': *out = ANSWER_PROJECT; return true;
        case 'N': *out = ANSWER_DENY; return true;
        default: return false;
        }
    }
    return false;
}

static void press(struct act *a, int x, int y)
{
    struct ui *u = a->u;
    const struct model *m = a->m;
    enum answer answer;
    if (m->sheet.kind != SHEET_NONE || u->overlay != OVER_NONE)
        return;
    size_t i = view_item_at(u, m, a->caps, x, y, a->now);
    if (i >= m->n_items)
        return;
    bool box = m->status == ST_APPROVAL && i == m->asking;
    if (box && a->now - u->focus_at > 300000 && a->shown && choice_at(a->shown, x, y, &answer)) {
        act_answer(a, answer, a->now - a->late, true);
        return;
    }
    const struct item *it = &m->items[i];
    if (it->kind == ITEM_CALL || it->kind == ITEM_REASONING || it->kind == ITEM_USER)
        ui_fold(u, it, !ui_is_open(u, m, it, a->now));
}

void act_mouse(struct act *a, const struct term_event *ev)
{
    switch (ev->u.mouse.what) {
    case TMOUSE_WHEEL_UP: view_scroll(a->u, a->m, a->caps, -3, a->now); break;
    case TMOUSE_WHEEL_DOWN: view_scroll(a->u, a->m, a->caps, 3, a->now); break;
    case TMOUSE_PRESS:
        if (ev->u.mouse.button == 0)
            press(a, ev->u.mouse.x, ev->u.mouse.y);
        break;
    default: break;
    }
}

static void paste(struct act *a, const struct term_event *ev)
{
    edit_insert(&a->u->edit, ev->u.paste.text, ev->u.paste.n, EDIT_OTHER);
    menu_clear(&a->u->menu);
    if (ev->u.paste.cut)
        ui_flash(a->u, a->now, "the paste was longer than 16 MiB: its end is missing");
    act_compose(a);
}

void act_event(struct act *a, const struct term_event *ev)
{
    switch (ev->kind) {
    case TE_KEY:
        act_key(a, ev);
        a->u->last_key = a->now;
        break;
    case TE_PASTE:
        paste(a, ev);
        a->u->last_key = a->now;
        break;
    case TE_MOUSE: act_mouse(a, ev); break;
    case TE_FOCUS:
        if (ev->u.focused)
            a->u->focus_at = a->now;
        act_send(a, EV_FOCUS, ev->u.focused, NULL);
        break;
    case TE_ANSWER: break;
    }
}
