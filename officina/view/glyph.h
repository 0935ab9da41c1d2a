/* Glyphs: what stands for lines, marks and gauges with braille, without it, and in ASCII. Fixed tables. */
#ifndef OFF_GLYPH_H
#define OFF_GLYPH_H

#include "term/caps.h"

#include <stdint.h>

struct glyph_set {
    enum glyphs kind;
    const char *full, *half, *empty, *unknown; /* gauge cells */
    const char *ok, *running, *failed, *refused;
    const char *done, *doing, *open; /* tasks */
    const char *evicted, *down;
    const char *h, *v, *tl, *tr, *bl, *br, *left, *right, *top, *bottom; /* lines; left: ├, top: ┬ */
    const char *folded, *unfolded;
    const char *more, *dash, *dot, *bullet, *prompt, *skip, *sum, *arrow, *sun, *minus;
};

const struct glyph_set *glyphs_of(enum glyphs g);
/* The one ASCII character that stands for a code point in a frame that may hold ASCII only. */
char glyphs_plain(uint32_t cp);

#endif
