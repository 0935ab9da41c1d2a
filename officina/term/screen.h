/* The screen: what the program expects of term and view. It owns the terminal, the ncurses back and the view's
 * `struct ui`; keys become events of core/event.h, and a drawing is view(model, ui, size) written once.
 *
 * Commands about looks (/panel /theme /glyphs /mouse /motion /copy /keys) are done here before SUBMIT is sent. The
 * composer's text stands in model.composer; each edit sends COMPOSE, and the core answers by storing it. */
#ifndef OFF_SCREEN_H
#define OFF_SCREEN_H

#include "core/event.h"
#include "err.h"

#include <stdbool.h>

struct keeper;

struct screen_options {
    const char *home;  /* state folder: keys.conf, looks of this terminal, last-copy.txt */
    const char *color; /* "auto", "never", "16", "256", "24bit" */
    bool ascii, no_mouse, no_motion;
    bool resumed;          /* a conversation goes on: the mark is not shown */
    struct keeper *keeper; /* of term/keeper.h, told when the terminal is ours; or NULL */
    event_sink sink;
    void *arg;
    /* Earlier prompts of the project, newest first, for Up and Ctrl-R: returns how many were filled (borrowed). */
    size_t (*history)(void *arg, const char **out, size_t max);
};

struct screen;

struct screen *screen_open(const struct screen_options *o, struct vt_err *err);
void screen_close(struct screen *s); /* gives the terminal back */
int screen_fd(const struct screen *s);
/* Milliseconds until it wants screen_work() without input (a lone Esc, the mark's next frame, at most 30 frames a
 * second while something moves); -1: not. */
int screen_timeout(struct screen *s, const struct model *m, uint64_t now);
/* Reads what is there and sends events. ready: the descriptor is readable. */
void screen_work(struct screen *s, const struct model *m, uint64_t now, bool ready);
/* The size may have changed (SIGWINCH). */
void screen_resized(struct screen *s);
/* Before and after a program that uses the terminal (editor, suspension). */
void screen_leave(struct screen *s);
void screen_return(struct screen *s);
/* Draws if anything changed. */
void screen_draw(struct screen *s, const struct model *m, uint64_t now);

/* Draws the model at a size to memory and writes its rows to out, for --dump-frame. */
void screen_dump(const struct model *m, int columns, int rows, bool ascii, struct text *out);

#endif
