/* Themes: what each role looks like at each depth of colour, on dark and on light ground. A fixed table. */
#ifndef OFF_THEME_H
#define OFF_THEME_H

#include "term/caps.h"
#include "term/cells.h"

#define COLOUR_DEFAULT (-1)

struct ink {
    int fg, bg; /* 0xrrggbb at DEPTH_TRUE, a palette number below; COLOUR_DEFAULT: the terminal's own */
    unsigned attr;
};

/* What a cell of that style is shown with. At DEPTH_NONE roles become attributes. */
struct ink theme_ink(struct style st, enum depth depth, bool light);

#endif
