/* The view: model, ui, size and abilities to cells. Draws any model at any size; below 40x10 only a line that says so. It
 * writes into ui what a key has to know of the frame (rows on a page, rows below) and its cache of closed blocks. */
#ifndef OFF_VIEW_H
#define OFF_VIEW_H

#include "term/caps.h"
#include "term/cells.h"
#include "view/glyph.h"
#include "view/ui.h"

#define VIEW_MIN_W 40
#define VIEW_MIN_H 10

void view_draw(struct grid *g, const struct model *m, struct ui *u, const struct caps *caps, uint64_t now);
/* Moves the transcript by rows (negative: up); following ends going up and begins again at the end. */
void view_scroll(struct ui *u, const struct model *m, const struct caps *caps, int by, uint64_t now);
void view_top(struct ui *u, const struct model *m);
/* Selects the block after (+1) or before (-1) the selected one and brings it into view. */
void view_select(struct ui *u, const struct model *m, const struct caps *caps, int by, uint64_t now);
/* When the frame changes without an event (a fold, the mark, a spinner); UINT64_MAX: it does not. */
uint64_t view_deadline(const struct model *m, const struct ui *u, const struct caps *caps, uint64_t now);
/* Which item and which choice of its approval lie at a place of the frame; SIZE_MAX: none. For the mouse. */
size_t view_item_at(struct ui *u, const struct model *m, const struct caps *caps, int x, int y, uint64_t now);

/* ---- parts of a frame, for view.c ---- */

struct layout {
    int w, h;
    bool compact;
    int transcript_w, panel_w; /* panel_w 0: none */
    int top, rule_y;           /* transcript: rows top to rule_y (exclusive) */
    int menu_h, composer_y, composer_h, gauge_y, status_y;
    const struct glyph_set *g;
};

struct frame { /* what every part needs */
    struct grid *grid;
    const struct model *m;
    struct ui *u;
    const struct caps *caps;
    uint64_t now;
    struct layout l;
};

void floor_draw(struct frame *f);  /* composer's rule, menu, composer, gauges, status (floor.c) */
void gauges_draw(struct frame *f); /* (gauges.c) */
void status_draw(struct frame *f); /* (status.c) */
void panel_draw(struct frame *f, int x, int w, int top, int bottom);
void sheet_draw(struct frame *f); /* the model's sheet, over the transcript */
void overlay_draw(struct frame *f);
/* Rows that the composer's text takes at that width, and where its caret is. */
int composer_rows(const struct edit *e, int width, int *caret_x, int *caret_y);

#endif
