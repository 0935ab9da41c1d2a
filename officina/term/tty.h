/* The terminal as a whole: settings, questions, input, one frame a write, suspending, and the way back.
 *
 * One thread; file descriptors are borrowed. Times are milliseconds of any one clock that the caller reads. */
#ifndef OFF_TTY_H
#define OFF_TTY_H

#include "err.h"
#include "term/caps.h"
#include "term/cells.h"
#include "term/decode.h"

struct tty;

enum tty_theme { TTY_THEME_AUTO, TTY_THEME_DARK, TTY_THEME_LIGHT };

struct tty_options {
    int in, out;
    const char *type;      /* TERM */
    const char *colorterm; /* COLORTERM or NULL */
    const char *colorfgbg; /* COLORFGBG or NULL: some terminals' word about their background */
    bool no_color;         /* NO_COLOR is set, or --color never */
    enum depth depth;      /* at most this one; DEPTH_TRUE: whatever is there */
    enum glyphs glyphs;
    enum tty_theme theme;
    bool mouse, motion, remote; /* remote: over ssh, a lone Esc waits longer */
};

/* Takes the terminal: raw mode, alternate screen, questions. *remark: malloc'd words for the user, or NULL. NULL: err. */
struct tty *tty_open(const struct tty_options *o, uint64_t now_ms, char **remark, struct vt_err *err);
/* Gives it back as it was. */
void tty_close(struct tty *t);

/* What the view draws for. Changes when answers come. */
const struct caps *tty_caps(const struct tty *t);
void tty_size(const struct tty *t, int *w, int *h);

/* Reads what is there and calls fn for each event; answers are kept here. Returns the bytes read, 0 for none; -1: the terminal is
 * gone. */
int tty_read(struct tty *t, uint64_t now_ms, decode_fn *fn, void *arg);
/* Time passed. */
void tty_tick(struct tty *t, uint64_t now_ms, decode_fn *fn, void *arg);
/* When tty_tick has to be called; UINT64_MAX: not at a certain time. */
uint64_t tty_deadline(const struct tty *t);

/* The size may have changed (SIGWINCH, Ctrl-L): asks, and draws the next frame whole. */
void tty_resized(struct tty *t);
/* 1: written, 0: nothing had changed, -1: the terminal is gone. */
int tty_draw(struct tty *t, const struct grid *g);

/* The terminal for somebody else (an editor, the shell after Ctrl-Z), and back. */
void tty_leave(struct tty *t);
void tty_return(struct tty *t);
void tty_mouse(struct tty *t, bool on);
void tty_glyphs(struct tty *t, enum glyphs g);
void tty_theme(struct tty *t, enum tty_theme theme);
/* Bytes straight to the terminal between frames: title, clipboard. */
void tty_send(struct tty *t, const char *bytes, size_t n);

/* What leaves every mode that Officina may have set, in the right order: mouse, focus, paste, keyboard, colours, alternate
 * screen, cursor. */
const char *tty_restore_string(void);

#endif
