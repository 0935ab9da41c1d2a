/* Difference of two texts by lines (E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986), and its rows.
 *
 * Common heads and tails are taken off first; two middles further apart than DIFF_FAR edits are one whole replacement, so that
 * time stays bounded. Pure. */
#ifndef OFF_DIFF_H
#define OFF_DIFF_H

#include "core/model.h"
#include "view/glyph.h"
#include "view/rows.h"

#define DIFF_FAR     1500
#define DIFF_CONTEXT 3

struct diff_line {
    const char *s; /* borrowed; without its newline */
    size_t n;
};

struct diff_op {
    char kind;                 /* ' ', '-', '+' */
    size_t old_line, new_line; /* from 0; of the side that has the line, both for ' ' */
};

struct diff {
    struct diff_line *old, *new;
    size_t n_old, n_new;
    struct diff_op *op;
    size_t n, cap;
    bool old_ends, new_ends; /* the last line has its newline */
};

void diff_make(struct diff *d, const char *before, size_t n_before, const char *after, size_t n_after);
void diff_free(struct diff *d);

struct diff_look {
    int width;     /* of a row */
    int scroll;    /* columns that lines are moved left by */
    bool side;     /* side by side */
    bool wide_gap; /* two blanks behind the line's number, as in the transcript */
    const struct glyph_set *glyphs;
};

/* Rows of one file's change: numbers, signs, coloured and marked words, folded runs. */
void diff_rows(struct rows *out, const struct file_change *c, const struct diff_look *look);

#endif
