#include "view/keys.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *about, *keys;
} actions[ACT_N] = {
    [ACT_SEND] = {"send", "send; while the model works: steer", "Enter"},
    [ACT_NEWLINE] = {"newline", "new line", "Alt-Enter, Ctrl-J, Shift-Enter"},
    [ACT_MODE] = {"mode", "Plan or Build; complete in a menu", "Tab"},
    [ACT_ESC] = {"escape", "close, else stop the turn; twice: rewind", "Esc"},
    [ACT_INTERRUPT] = {"interrupt", "clear the composer, stop the turn, leave", "Ctrl-C"},
    [ACT_LEAVE] = {"leave", "leave, when the composer is empty", "Ctrl-D"},
    [ACT_YES] = {"approve-once", "approve once", "Alt-Y, Ctrl-X y"},
    [ACT_YES_SESSION] = {"approve-session", "approve for the session", "Alt-S, Ctrl-X s"},
    [ACT_YES_PROJECT] = {"approve-project", "approve as a project rule", "Alt-P, Ctrl-X p"},
    [ACT_NO] = {"deny", "deny; what stands in the composer is the reason", "Alt-N, Ctrl-X n"},
    [ACT_WHOLE] = {"whole", "whole call of an approval, other view of a diff", "Alt-V"},
    [ACT_UNQUEUE] = {"unqueue", "take the first queued line back", "Alt-Q"},
    [ACT_END_THINK] = {"end-thinking", "end the reasoning early", "Alt-E"},
    [ACT_RETRY] = {"retry", "try the engine now", "Alt-R"},
    [ACT_PAGE_UP] = {"page-up", "scroll a page up", "PgUp"},
    [ACT_PAGE_DOWN] = {"page-down", "scroll a page down", "PgDn"},
    [ACT_LINE_UP] = {"line-up", "scroll a row up", "Shift-Up"},
    [ACT_LINE_DOWN] = {"line-down", "scroll a row down", "Shift-Down"},
    [ACT_TOP] = {"top", "to the beginning", "Ctrl-Home"},
    [ACT_FOLLOW] = {"follow", "to the end, and follow", "End, Ctrl-End"},
    [ACT_SELECT_UP] = {"select-up", "select the block before; space folds, y copies, d diff", "Ctrl-Up"},
    [ACT_SELECT_DOWN] = {"select-down", "select the block after", "Ctrl-Down"},
    [ACT_FOLDS] = {"folds", "fold or open all tool blocks", "Ctrl-O"},
    [ACT_PANEL] = {"panel", "panel", "F2, Ctrl-X b"},
    [ACT_TASKS] = {"tasks", "tasks", "F3, Ctrl-X t"},
    [ACT_PALETTE] = {"palette", "command palette", "Ctrl-P"},
    [ACT_SEARCH] = {"search", "search earlier prompts", "Ctrl-R"},
    [ACT_EDITOR] = {"editor", "composer in $EDITOR", "Ctrl-G"},
    [ACT_REDRAW] = {"redraw", "full repaint, new size query", "Ctrl-L"},
    [ACT_SUSPEND] = {"suspend", "suspend", "Ctrl-Z"},
    [ACT_HELP] = {"help", "help", "F1"},
    [ACT_FRAME] = {"frame", "write the frame to a file", "F8"},
    [ACT_MOUSE] = {"mouse", "mouse on or off", "F9"},
    [ACT_CODE_LEFT] = {"code-left", "code and diffs sideways", "Shift-Left"},
    [ACT_CODE_RIGHT] = {"code-right", "code and diffs sideways", "Shift-Right"},
    [ACT_LEFT] = {"left", NULL, "Left, Ctrl-B"},
    [ACT_RIGHT] = {"right", NULL, "Right, Ctrl-F"},
    [ACT_WORD_LEFT] = {"word-left", NULL, "Alt-B, Ctrl-Left, Alt-Left"},
    [ACT_WORD_RIGHT] = {"word-right", NULL, "Alt-F, Ctrl-Right, Alt-Right"},
    [ACT_LINE_START] = {"line-start", NULL, "Ctrl-A, Home"},
    [ACT_LINE_END] = {"line-end", NULL, "Ctrl-E"},
    [ACT_BACKSPACE] = {"backspace", NULL, "Backspace, Ctrl-H, Shift-Backspace"},
    [ACT_DELETE] = {"delete", NULL, "Delete"},
    [ACT_KILL_END] = {"kill-end", NULL, "Ctrl-K"},
    [ACT_KILL_START] = {"kill-start", NULL, "Ctrl-U"},
    [ACT_KILL_WORD_LEFT] = {"kill-word-left", NULL, "Ctrl-W, Alt-Backspace"},
    [ACT_KILL_WORD_RIGHT] = {"kill-word-right", NULL, "Alt-D"},
    [ACT_YANK] = {"yank", "put back what was cut", "Ctrl-Y"},
    [ACT_YANK_OLDER] = {"yank-older", "after that: what was cut before", "Alt-T"},
    [ACT_UNDO] = {"undo", "undo", "Ctrl-_"},
    [ACT_REDO] = {"redo", "redo", "Alt-_"},
    [ACT_UP] = {"up", "up; at the first line: earlier prompts", "Up"},
    [ACT_DOWN] = {"down", "down; at the last line: later prompts", "Down"},
};

static const struct {
    const char *name;
    enum term_key key;
} names[] = {{"Enter", TK_ENTER},   {"Tab", TK_TAB},       {"Esc", TK_ESC},   {"Backspace", TK_BACKSPACE},
             {"Insert", TK_INSERT}, {"Delete", TK_DELETE}, {"Home", TK_HOME}, {"End", TK_END},
             {"PgUp", TK_PGUP},     {"PgDn", TK_PGDN},     {"Up", TK_UP},     {"Down", TK_DOWN},
             {"Left", TK_LEFT},     {"Right", TK_RIGHT},   {"Space", TK_CHAR}};

const char *action_about(enum action a)
{
    return actions[a].about;
}

/* One key's name without the prefix; false: there is no such key. */
static bool read_chord(const char *s, struct chord *c)
{
    memset(c, 0, sizeof *c);
    if (strncasecmp(s, "Ctrl-X ", 7) == 0) {
        c->prefixed = true;
        s += 7;
    }
    for (;;) {
        if (strncasecmp(s, "Ctrl-", 5) == 0 && s[5])
            c->mods |= TM_CTRL, s += 5;
        else if (strncasecmp(s, "Alt-", 4) == 0 && s[4])
            c->mods |= TM_ALT, s += 4;
        else if (strncasecmp(s, "Shift-", 6) == 0 && s[6])
            c->mods |= TM_SHIFT, s += 6;
        else
            break;
    }
    if ((s[0] == 'F' || s[0] == 'f') && isdigit((unsigned char)s[1])) {
        int n = atoi(s + 1);
        c->key = (enum term_key)(TK_F1 + n - 1);
        return n >= 1 && n <= 12;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(s, names[i].name) == 0) {
            c->key = names[i].key;
            c->cp = c->key == TK_CHAR ? ' ' : 0;
            return true;
        }
    }
    c->key = TK_CHAR;
    c->cp = (uint32_t)tolower((unsigned char)s[0]);
    return s[0] > 0x20 && s[0] < 0x7f && s[1] == '\0';
}

static bool answers(enum action a)
{
    return a == ACT_YES || a == ACT_YES_SESSION || a == ACT_YES_PROJECT || a == ACT_NO;
}

static int bind(struct keys *k, enum action a, const char *list, size_t n, char *why, size_t cap)
{
    for (size_t at = 0; at < n;) {
        char one[32];
        size_t end = at;
        while (end < n && (list[end] != ',' || end == at))
            end++;
        size_t from = at, to = end;
        while (from < to && isspace((unsigned char)list[from]))
            from++;
        while (to > from && isspace((unsigned char)list[to - 1]))
            to--;
        snprintf(one, sizeof one, "%.*s", (int)(to - from), list + from);
        at = end + 1;
        struct chord c;
        if (!read_chord(one, &c)) {
            snprintf(why, cap, "\"%s\" is no key: write Ctrl-P, Alt-Enter, F2, Shift-Up or Ctrl-X b", one);
            return -1;
        }
        if (answers(a) && !c.prefixed && c.key == TK_CHAR && !(c.mods & (TM_ALT | TM_CTRL))) {
            snprintf(why, cap, "%s may not be the plain key \"%s\": typing must never answer an approval",
                     actions[a].name, one);
            return -1;
        }
        if (!c.prefixed && c.key == TK_CHAR && !(c.mods & (TM_ALT | TM_CTRL))) {
            snprintf(why, cap, "\"%s\" is a letter that is typed: use it with Ctrl, Alt or behind Ctrl-X",
                     one);
            return -1;
        }
        if (k->n == KEYS_MAX) {
            snprintf(why, cap, "more than %d keys are bound", KEYS_MAX);
            return -1;
        }
        k->v[k->n].chord = c;
        k->v[k->n++].act = a;
    }
    return 0;
}

void keys_defaults(struct keys *k)
{
    char why[160];
    memset(k, 0, sizeof *k);
    for (int a = 1; a < ACT_N; a++)
        if (bind(k, (enum action)a, actions[a].keys, strlen(actions[a].keys), why, sizeof why) < 0)
            abort();
}

static enum action action_named(const char *s, size_t n)
{
    for (int a = 1; a < ACT_N; a++)
        if (strlen(actions[a].name) == n && strncasecmp(actions[a].name, s, n) == 0)
            return (enum action)a;
    return ACT_NONE;
}

static void unbind(struct keys *k, enum action a)
{
    size_t n = 0;
    for (size_t i = 0; i < k->n; i++)
        if (k->v[i].act != a)
            k->v[n++] = k->v[i];
    k->n = n;
}

int keys_read(struct keys *k, const char *text, size_t n, struct vt_err *err)
{
    struct keys out = *k;
    int line = 0;
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t end = nl ? (size_t)(nl - text) : n, from = at, equals;
        line++;
        at = end + 1;
        while (from < end && isspace((unsigned char)text[from]))
            from++;
        if (from == end || text[from] == '#')
            continue;
        for (equals = from; equals < end && text[equals] != '='; equals++)
            ;
        size_t name = equals;
        while (name > from && isspace((unsigned char)text[name - 1]))
            name--;
        enum action a = action_named(text + from, name - from);
        if (a == ACT_NONE || equals == end)
            return vt_fail(err, VT_E_CONFIG, "keys.conf line %d: \"%.*s\" is no action; /keys lists them",
                           line, (int)(name - from < 40 ? name - from : 40), text + from);
        char why[200];
        unbind(&out, a);
        if (bind(&out, a, text + equals + 1, end - equals - 1, why, sizeof why) < 0)
            return vt_fail(err, VT_E_CONFIG, "keys.conf line %d: %s", line, why);
    }
    *k = out;
    return 0;
}

enum action keys_find(const struct keys *k, const struct term_event *ev, bool prefixed)
{
    uint32_t cp = ev->u.key.cp;
    if (ev->u.key.key == TK_CHAR && cp >= 'A' && cp <= 'Z' && (ev->u.key.mods & (TM_ALT | TM_CTRL)))
        cp += 32;
    for (size_t i = k->n; i-- > 0;) { /* what was bound last counts */
        const struct chord *c = &k->v[i].chord;
        if (c->prefixed == prefixed && c->key == ev->u.key.key && c->cp == (c->key == TK_CHAR ? cp : 0) &&
            c->mods == ev->u.key.mods)
            return k->v[i].act;
    }
    return ACT_NONE;
}

static void write_chord(const struct chord *c, char *out, size_t cap)
{
    char name[16] = "";
    if (c->key >= TK_F1)
        snprintf(name, sizeof name, "F%d", (int)(c->key - TK_F1) + 1);
    else if (c->key == TK_CHAR && c->cp != ' ')
        snprintf(name, sizeof name, "%c", c->prefixed ? (int)c->cp : toupper((int)c->cp));
    for (size_t i = 0; !name[0] && i < sizeof names / sizeof names[0]; i++)
        if (names[i].key == c->key)
            snprintf(name, sizeof name, "%s", names[i].name);
    snprintf(out, cap, "%s%s%s%s%s", c->prefixed ? "Ctrl-X " : "", c->mods & TM_CTRL ? "Ctrl-" : "",
             c->mods & TM_ALT ? "Alt-" : "", c->mods & TM_SHIFT ? "Shift-" : "", name);
}

char *keys_of(const struct keys *k, enum action a, char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < k->n; i++) {
        char one[40];
        if (k->v[i].act != a)
            continue;
        write_chord(&k->v[i].chord, one, sizeof one);
        int n = snprintf(out + len, cap - len, "%s%s", len ? ", " : "", one);
        if (n < 0 || (size_t)n >= cap - len)
            break;
        len += (size_t)n;
    }
    return out;
}
