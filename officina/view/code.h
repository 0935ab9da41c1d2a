/* Code in cells: coloured lines, and the frame around a code block. Pure. */
#ifndef OFF_CODE_H
#define OFF_CODE_H

#include "view/glyph.h"
#include "view/lexer.h"
#include "view/rows.h"

/* Code that is longer is shown without colours. */
#define CODE_COLOUR_LINES 2000

/* Appends one line to r, coloured, controls shown as codes when `exact`; tabs go to stops of `tab` counted from the line's
 * own start. The state of lx goes on to the next line. */
void code_line(struct row *r, struct lexer *lx, const char *line, size_t n, enum gate_show show, int tab);

/* A framed block, at most `wide` columns. Lines are shown from column `scroll` on; a cut line ends in …. */
void code_box(struct rows *out, const char *s, size_t n, const char *lang, size_t n_lang, int wide,
              int scroll, const struct glyph_set *g);

#endif
