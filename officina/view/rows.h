/* Rows of cells that grow: what a block of the transcript, a page or a box is laid out into before a part of it is put on
 * the grid. A row holds the left cells only; a wide character is one cell of width 2. Owned by whoever made them; memory
 * comes from util/text.h. One thread. */
#ifndef OFF_ROWS_H
#define OFF_ROWS_H

#include "term/cells.h"

struct row {
    struct cell *c;
    size_t n, cap;
    int width; /* columns */
};

struct rows {
    struct row *v;
    size_t n, cap;
};

void row_clear(struct row *r); /* keeps the memory */
void row_free(struct row *r);
void row_cell(struct row *r, const struct cell *c);
/* Appends a text; tabs go to the next stop of `tab` counted from the row's start, a newline is a hard break for rows_wrap. */
void row_text(struct row *r, const char *s, size_t n, enum gate_show show, int tab, struct style st);
void row_str(struct row *r, struct style st, const char *s);
void row_printf(struct row *r, struct style st, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Blanks, or another glyph of one column, up to that column. */
void row_pad(struct row *r, int column, struct style st);
void row_fill(struct row *r, int column, const char *glyph, struct style st);
void row_append(struct row *r, const struct row *from);
/* Puts the cells of `from` before the row's own. */
void row_prepend(struct row *r, const struct row *from);
/* Makes the row wider by glyphs of one column before its last `keep` cells, at most 4, or takes as many away there. */
void row_stretch(struct row *r, int by, size_t keep, const char *glyph, struct style st);
/* The cells of `from` that lie in columns [skip, skip + width), padded to width with blanks of style pad. */
void row_window(struct row *r, const struct row *from, int skip, int width, struct style pad);
/* Cuts to that width, the last column being `more` if something was cut. */
void row_cut(struct row *r, int width, const char *more);
/* Hard breaks become blanks, for a text that has to stay in one row. */
void row_flatten(struct row *r);
/* Style of every cell from index `from` on: sets ground and adds attributes. */
void row_ground(struct row *r, size_t from, uint8_t bg, uint8_t attr);

void rows_free(struct rows *rs);
void rows_clear(struct rows *rs);
void rows_cut(struct rows *rs, size_t n); /* keeps the first n */
struct row *rows_add(struct rows *rs);    /* an empty one at the end; valid until the next call */
/* Breaks flow at blanks (at any cell where a word is too long) so that each row, behind its prefix, is at most `width` wide
 * in all. first and rest are prefixes, NULL for none. An empty flow makes one row. */
void rows_wrap(struct rows *out, const struct row *flow, int width, const struct row *first,
               const struct row *rest);
/* Puts row r on the grid from (x, y) to column end (exclusive). */
void rows_put(struct grid *g, int x, int y, int end, const struct row *r);

#endif
