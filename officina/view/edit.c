#include "view/edit.h"
#include "term/gate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void edit_init(struct edit *e)
{
    memset(e, 0, sizeof *e);
    e->column = -1;
}

static void drop_state(struct edit *e, struct edit_state *s)
{
    e->bytes -= s->n;
    free(s->s);
    memset(s, 0, sizeof *s);
}

static void drop_all(struct edit *e, struct edit_state *v, size_t *n)
{
    while (*n)
        drop_state(e, &v[--*n]);
}

void edit_fini(struct edit *e)
{
    drop_all(e, e->undo, &e->n_undo);
    drop_all(e, e->redo, &e->n_redo);
    for (size_t i = 0; i < EDIT_KILLS; i++)
        free(e->kill[i]);
    free(e->stash.s);
    text_free(&e->text);
}

static void push(struct edit *e, struct edit_state *v, size_t *n)
{
    while (*n && (*n == EDIT_UNDO_MAX || e->bytes + e->text.len > EDIT_UNDO_BYTES)) {
        drop_state(e, &v[0]);
        memmove(&v[0], &v[1], (*n - 1) * sizeof *v);
        memset(&v[--*n], 0, sizeof *v);
    }
    v[*n] = (struct edit_state){mem_dupn(text_str(&e->text), e->text.len), e->text.len, e->caret};
    e->bytes += v[(*n)++].n;
}

/* Before a change: keeps the state, unless the change goes on with what the last one did. */
static void keep(struct edit *e, enum edit_kind kind)
{
    e->column = -1;
    if (kind != e->last || kind == EDIT_OTHER || kind == EDIT_YANK)
        push(e, e->undo, &e->n_undo);
    drop_all(e, e->redo, &e->n_redo);
    e->last = kind;
}

void edit_insert(struct edit *e, const char *s, size_t n, enum edit_kind kind)
{
    if (!n)
        return;
    if (kind == EDIT_TYPE && n == 1 && (*s == ' ' || *s == '\n')) /* a word is a step */
        e->last = EDIT_NONE;
    keep(e, kind);
    text_replace(&e->text, e->caret, 0, s, n);
    e->caret += n;
}

void edit_load(struct edit *e, const char *s, size_t n, size_t caret)
{
    keep(e, EDIT_OTHER);
    text_replace(&e->text, 0, e->text.len, s, n);
    e->caret = caret < n ? caret : n;
}

void edit_reset(struct edit *e)
{
    drop_all(e, e->undo, &e->n_undo);
    drop_all(e, e->redo, &e->n_redo);
    text_clear(&e->text);
    free(e->stash.s);
    memset(&e->stash, 0, sizeof e->stash);
    e->caret = e->history_at = 0;
    e->column = -1;
    e->last = EDIT_NONE;
}

static size_t line_start(const struct edit *e, size_t at)
{
    const char *s = text_str(&e->text);
    while (at > 0 && s[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const struct edit *e, size_t at)
{
    const char *s = text_str(&e->text);
    while (at < e->text.len && s[at] != '\n')
        at++;
    return at;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

static size_t word_left(const struct edit *e, size_t at, bool blanks)
{
    const char *s = text_str(&e->text);
    while (at > 0 && (blanks ? isspace((unsigned char)s[at - 1]) : !in_word(s[at - 1])))
        at--;
    while (at > 0 && (blanks ? !isspace((unsigned char)s[at - 1]) : in_word(s[at - 1])))
        at--;
    return at;
}

static size_t word_right(const struct edit *e, size_t at)
{
    const char *s = text_str(&e->text);
    while (at < e->text.len && !in_word(s[at]))
        at++;
    while (at < e->text.len && in_word(s[at]))
        at++;
    return at;
}

static bool move_to(struct edit *e, size_t at)
{
    bool moved = at != e->caret;
    e->caret = at;
    e->column = -1;
    e->last = EDIT_NONE;
    return moved;
}

static bool erase(struct edit *e, size_t from, size_t to)
{
    if (from == to)
        return false;
    keep(e, EDIT_ERASE);
    text_replace(&e->text, from, to - from, "", 0);
    e->caret = from;
    return true;
}

/* Kills in a row go into one entry, in the order in which they stood. */
static bool kill_range(struct edit *e, size_t from, size_t to)
{
    if (from == to)
        return false;
    bool joins = e->last == EDIT_KILL && e->kill[0];
    struct text t = {0};
    if (joins && to > e->caret) /* forwards: behind the last one */
        text_puts(&t, e->kill[0]);
    text_add(&t, text_str(&e->text) + from, to - from);
    if (joins && to <= e->caret)
        text_puts(&t, e->kill[0]);
    keep(e, EDIT_KILL);
    if (joins) {
        free(e->kill[0]);
    } else {
        free(e->kill[EDIT_KILLS - 1]);
        memmove(&e->kill[1], &e->kill[0], (EDIT_KILLS - 1) * sizeof e->kill[0]);
    }
    e->kill[0] = text_take(&t);
    text_replace(&e->text, from, to - from, "", 0);
    e->caret = from;
    return true;
}

static bool yank(struct edit *e)
{
    if (!e->kill[0])
        return false;
    e->kill_at = 0;
    e->yank_from = e->caret;
    edit_insert(e, e->kill[0], strlen(e->kill[0]), EDIT_YANK);
    return true;
}

static bool yank_older(struct edit *e)
{
    if (e->last != EDIT_YANK || !e->kill[0])
        return false;
    e->kill_at = e->kill_at + 1 < EDIT_KILLS && e->kill[e->kill_at + 1] ? e->kill_at + 1 : 0;
    const char *s = e->kill[e->kill_at];
    text_replace(&e->text, e->yank_from, e->caret - e->yank_from, s, strlen(s));
    e->caret = e->yank_from + strlen(s);
    return true;
}

/* Swaps the present state with the newest of `from`, which goes onto `to`. */
static bool step(struct edit *e, struct edit_state *from, size_t *n_from, struct edit_state *to, size_t *n_to)
{
    if (!*n_from)
        return false;
    struct edit_state s = from[--*n_from];
    memset(&from[*n_from], 0, sizeof *from);
    e->bytes -= s.n;
    push(e, to, n_to);
    text_replace(&e->text, 0, e->text.len, s.s, s.n);
    e->caret = s.caret;
    e->column = -1;
    e->last = EDIT_NONE;
    free(s.s);
    return true;
}

bool edit_do(struct edit *e, enum edit_do what)
{
    const char *s = text_str(&e->text);
    size_t n = e->text.len, at = e->caret;
    switch (what) {
    case EDIT_LEFT: return move_to(e, gate_before(s, n, at));
    case EDIT_RIGHT: return move_to(e, gate_after(s, n, at));
    case EDIT_WORD_LEFT: return move_to(e, word_left(e, at, false));
    case EDIT_WORD_RIGHT: return move_to(e, word_right(e, at));
    case EDIT_LINE_START: return move_to(e, line_start(e, at));
    case EDIT_LINE_END: return move_to(e, line_end(e, at));
    case EDIT_TEXT_START: return move_to(e, 0);
    case EDIT_TEXT_END: return move_to(e, n);
    case EDIT_BACKSPACE: return erase(e, gate_before(s, n, at), at);
    case EDIT_DELETE: return erase(e, at, gate_after(s, n, at));
    case EDIT_KILL_END: return kill_range(e, at, line_end(e, at) == at && at < n ? at + 1 : line_end(e, at));
    case EDIT_KILL_START: return kill_range(e, line_start(e, at), at);
    case EDIT_KILL_WORD_LEFT: return kill_range(e, word_left(e, at, true), at);
    case EDIT_KILL_WORD_RIGHT: return kill_range(e, at, word_right(e, at));
    case EDIT_YANK_LAST: return yank(e);
    case EDIT_YANK_OLDER: return yank_older(e);
    case EDIT_UNDO: return step(e, e->undo, &e->n_undo, e->redo, &e->n_redo);
    case EDIT_REDO: return step(e, e->redo, &e->n_redo, e->undo, &e->n_undo);
    }
    return false;
}

bool edit_vertical(struct edit *e, int by)
{
    const char *s = text_str(&e->text);
    size_t start = line_start(e, e->caret), end = line_end(e, e->caret);
    if (by < 0 ? start == 0 : end == e->text.len)
        return false;
    int column = e->column >= 0 ? e->column : (int)gate_width(s + start, e->caret - start, GATE_RUNNING);
    size_t to = by < 0 ? line_start(e, start - 1) : end + 1;
    move_to(e, to + gate_fit(s + to, line_end(e, to) - to, GATE_RUNNING, (size_t)column, NULL));
    e->column = column;
    return true;
}

bool edit_history(struct edit *e, const char *const *prompts, size_t n, int by)
{
    if (by > 0 ? e->history_at >= n : e->history_at == 0)
        return false;
    if (e->history_at == 0) {
        free(e->stash.s);
        e->stash = (struct edit_state){mem_dupn(text_str(&e->text), e->text.len), e->text.len, e->caret};
    }
    e->history_at = by > 0 ? e->history_at + 1 : e->history_at - 1;
    const char *s = e->history_at ? prompts[e->history_at - 1] : e->stash.s;
    size_t at = e->history_at;
    edit_load(e, s, strlen(s), strlen(s));
    e->history_at = at;
    return true;
}
