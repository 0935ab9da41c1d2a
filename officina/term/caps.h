/* What the terminal can do, as the view has to know it. Plain values; the view draws for any combination. */
#ifndef OFF_CAPS_H
#define OFF_CAPS_H

#include <stdbool.h>

enum depth { DEPTH_NONE, DEPTH_8, DEPTH_16, DEPTH_256, DEPTH_TRUE };
enum glyphs { GLYPHS_FULL, GLYPHS_BLOCKS, GLYPHS_ASCII }; /* braille, no braille, ASCII */

struct caps {
    enum depth depth;
    enum glyphs glyphs;
    bool light;  /* light background */
    bool motion; /* the mark may dissolve */
    bool mouse;
};

#endif
