/* Line editor of the composer: text, caret, undo and redo, kill ring, earlier prompts. Pure; keys are named by keys.h.
 *
 * Positions are byte offsets at grapheme borders. Undo keeps whole states, typing of one kind in a row being one; old ones
 * are forgotten at EDIT_UNDO_MAX states or EDIT_UNDO_BYTES. One thread. */
#ifndef OFF_EDIT_H
#define OFF_EDIT_H

#include "util/text.h"

#include <stdbool.h>
#include <stddef.h>

#define EDIT_UNDO_MAX   256
#define EDIT_UNDO_BYTES (8u << 20)
#define EDIT_KILLS      16
#define EDIT_PROMPTS    500 /* earlier prompts that can be gone back to */

enum edit_kind { EDIT_NONE, EDIT_TYPE, EDIT_ERASE, EDIT_KILL, EDIT_YANK, EDIT_OTHER };

struct edit_state {
    char *s; /* owned */
    size_t n, caret;
};

struct edit {
    struct text text;
    size_t caret;
    int column; /* wanted by Up and Down; -1: the caret's own */
    enum edit_kind last;
    struct edit_state undo[EDIT_UNDO_MAX], redo[EDIT_UNDO_MAX];
    size_t n_undo, n_redo, bytes;
    char *kill[EDIT_KILLS]; /* newest first */
    size_t kill_at, yank_from;
    size_t history_at;       /* 0: what is being written; k: k-th newest prompt */
    struct edit_state stash; /* what was being written */
};

void edit_init(struct edit *e);
void edit_fini(struct edit *e);

/* Replaces everything as one step that can be undone (a prompt taken back, an editor's text). The caret goes to `caret`. */
void edit_load(struct edit *e, const char *s, size_t n, size_t caret);
void edit_insert(struct edit *e, const char *s, size_t n, enum edit_kind kind);
/* A turn of the conversation begins: what was written is sent; undo starts anew. */
void edit_reset(struct edit *e);

enum edit_do {
    EDIT_LEFT,
    EDIT_RIGHT,
    EDIT_WORD_LEFT,
    EDIT_WORD_RIGHT,
    EDIT_LINE_START,
    EDIT_LINE_END,
    EDIT_TEXT_START,
    EDIT_TEXT_END,
    EDIT_BACKSPACE,
    EDIT_DELETE,
    EDIT_KILL_END,
    EDIT_KILL_START,
    EDIT_KILL_WORD_LEFT,
    EDIT_KILL_WORD_RIGHT,
    EDIT_YANK_LAST,
    EDIT_YANK_OLDER, /* after a yank: the one before it */
    EDIT_UNDO,
    EDIT_REDO,
};

/* Returns false when there was nothing to do. */
bool edit_do(struct edit *e, enum edit_do what);
/* Up (-1) or down (+1) by a line of the text; false at its edge. */
bool edit_vertical(struct edit *e, int by);
/* Through earlier prompts, newest first: by +1 older, -1 newer. false: there is no further one. */
bool edit_history(struct edit *e, const char *const *prompts, size_t n, int by);

#endif
