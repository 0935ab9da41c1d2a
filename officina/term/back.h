/* The back for people: a grid of cells through ncurses, as the bytes of one write.
 *
 * ncurses writes into a memory file; what a frame made is taken from there, put between the marks of a synchronized update
 * where the terminal knows them, and written to the terminal at once. ncurses keeps global state, so there is one screen at
 * a time. It reads no input here. One thread. */
#ifndef OFF_BACK_H
#define OFF_BACK_H

#include "err.h"
#include "term/caps.h"
#include "term/cells.h"

struct back;

/* Opens the terminal description `type` (NULL or one that is not there: its family, then ansi; *remark then says so, malloc'd)
 * for a terminal on fd. want: the depth asked for at most; the screen's own is read with back_depth(). */
struct back *back_open(int fd, const char *type, enum depth want, int w, int h, char **remark,
                       struct vt_err *err);
void back_close(struct back *s);

enum depth back_depth(const struct back *s);
/* Does the terminal's description know bracketed paste? */
bool back_pastes(const struct back *s);
void back_set_sync(struct back *s, bool on);
void back_set_light(struct back *s, bool on);
/* The next frame is drawn whole, at this size. */
void back_resize(struct back *s, int w, int h);
/* Shows the grid, which has the screen's size. Returns 1 when something was written, 0 when nothing had changed, -1 when the
 * terminal is gone. */
int back_draw(struct back *s, const struct grid *g);

#endif
