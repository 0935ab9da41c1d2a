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

/* The same block while it grows: rows from `row` on are its upper edge and the lines that are whole. Zeroed at the start. */
struct code_grow {
    size_t row;   /* of out: the upper edge */
    size_t lines; /* whole ones that have a row */
    int most;     /* columns of the widest of them */
    int width;    /* of the frame as it is drawn */
    struct lexer lx;
};

/* Begins a block behind the rows of out: `left` blanks, then the upper edge. */
void code_grow_begin(struct code_grow *c, struct rows *out, int left, const char *lang, size_t n_lang,
                     int wide, const struct glyph_set *g);
/* Cuts out back to the whole lines, appends the lines of s[0..n), the last of them only for now when it has no newline,
 * and, when `closed`, the lower edge for good; otherwise for now. Returns the bytes of whole lines. */
size_t code_grow_lines(struct code_grow *c, struct rows *out, int left, const char *s, size_t n, bool closed,
                       int wide, int scroll, const struct glyph_set *g);

#endif
