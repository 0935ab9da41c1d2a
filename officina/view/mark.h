/* The mark of the empty workshop: the green lion devours the sun. In braille, three sizes; it dissolves dot by dot. Pure. */
#ifndef OFF_MARK_H
#define OFF_MARK_H

#include "term/caps.h"
#include "term/cells.h"

#define MARK_FRAMES   12
#define MARK_FRAME_US 33000

/* Draws it into the space of the transcript: rows y0 to y1 (exclusive), columns 0 to w. frame 0 is whole, MARK_FRAMES nothing.
 * Without braille, or where even the small one has no room, only the sun's sign is shown, and it does not dissolve. */
void mark_draw(struct grid *g, int y0, int y1, int w, const struct caps *caps, int frame);

#endif
