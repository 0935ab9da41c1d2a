/* Bindings: which key does what. A table of defaults that keys.conf may change, `action = key, key`; a key is written as
 * "Ctrl-P", "Alt-Enter", "F2", "Shift-Up", "Ctrl-X b". What would answer an approval with a plain letter is refused. */
#ifndef OFF_KEYS_H
#define OFF_KEYS_H

#include "err.h"
#include "term/decode.h"

enum action {
    ACT_NONE,
    ACT_SEND,
    ACT_NEWLINE,
    ACT_MODE, /* or completes, with a menu open */
    ACT_ESC,
    ACT_INTERRUPT,
    ACT_LEAVE, /* on an empty composer, else deletes */
    ACT_YES,
    ACT_YES_SESSION,
    ACT_YES_PROJECT,
    ACT_NO,
    ACT_WHOLE,
    ACT_UNQUEUE,
    ACT_END_THINK,
    ACT_RETRY,
    ACT_PAGE_UP,
    ACT_PAGE_DOWN,
    ACT_LINE_UP,
    ACT_LINE_DOWN,
    ACT_TOP,
    ACT_FOLLOW,
    ACT_SELECT_UP,
    ACT_SELECT_DOWN,
    ACT_FOLDS,
    ACT_PANEL,
    ACT_TASKS,
    ACT_PALETTE,
    ACT_SEARCH,
    ACT_EDITOR,
    ACT_REDRAW,
    ACT_SUSPEND,
    ACT_HELP,
    ACT_FRAME,
    ACT_MOUSE,
    ACT_CODE_LEFT,
    ACT_CODE_RIGHT,
    ACT_LEFT,
    ACT_RIGHT,
    ACT_WORD_LEFT,
    ACT_WORD_RIGHT,
    ACT_LINE_START,
    ACT_LINE_END,
    ACT_BACKSPACE,
    ACT_DELETE,
    ACT_KILL_END,
    ACT_KILL_START,
    ACT_KILL_WORD_LEFT,
    ACT_KILL_WORD_RIGHT,
    ACT_YANK,
    ACT_YANK_OLDER,
    ACT_UNDO,
    ACT_REDO,
    ACT_UP,
    ACT_DOWN,
    ACT_N,
};

struct chord {
    bool prefixed; /* behind Ctrl-X */
    enum term_key key;
    uint32_t cp;
    unsigned mods;
};

#define KEYS_MAX 160

struct keys {
    struct {
        struct chord chord;
        enum action act;
    } v[KEYS_MAX];
    size_t n;
};

void keys_defaults(struct keys *k);
/* Reads "action = key, …" lines over the defaults; -1 with the line's number and the reason, k then is as it was. */
int keys_read(struct keys *k, const char *text, size_t n, struct vt_err *err);
/* The action of a key; prefixed: Ctrl-X came before it. ACT_NONE: none. */
enum action keys_find(const struct keys *k, const struct term_event *ev, bool prefixed);
const char *action_about(enum action a); /* for help; NULL: not listed */
/* "Alt-Y, Ctrl-X y" into out; returns out. */
char *keys_of(const struct keys *k, enum action a, char *out, size_t cap);

#endif
