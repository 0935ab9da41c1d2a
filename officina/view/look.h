/* How the transcript is laid out at one size, and the layout of its blocks. Rows begin at the transcript's first column. */
#ifndef OFF_LOOK_H
#define OFF_LOOK_H

#include "core/model.h"
#include "view/diff.h"
#include "view/glyph.h"
#include "view/markdown.h"
#include "view/rows.h"

struct look {
    int w;        /* columns of the transcript */
    int left;     /* indent of its text: 2, or 1 when compact */
    int text;     /* columns of running text, at most 100 */
    int right;    /* column behind the last one of boxes */
    bool compact; /* below 60x16 */
    int rows;     /* of the transcript: bounds what an open block shows */
    int scroll;   /* columns that code and diffs are moved left by */
    bool open;    /* this block is unfolded */
    bool selected;
    bool whole;   /* the approval shows the whole call */
    bool unified; /* diffs are never side by side */
    int box_scroll;
    uint64_t now;
    const struct glyph_set *g;
};

/* Where the layout of a block that still grows stands (an answer or a thought that arrives). */
struct block_keep {
    size_t head, base; /* rows before it; rows before its text */
    size_t seen;       /* bytes that were laid out */
    size_t at, rows;   /* a thought: bytes laid out for good, and their rows behind base */
    struct markdown_keep text;
};

/* Rows of item i. Appends nothing for one that is not drawn. */
void block_layout(struct rows *out, const struct model *m, size_t i, const struct look *k,
                  struct block_keep *keep);
/* The same for an open item whose text has only grown since block_layout() put its rows into out. Returns the first row that
 * is new or changed. */
size_t block_grow(struct rows *out, const struct model *m, size_t i, const struct look *k,
                  struct block_keep *keep);
/* Is item i drawn, and does a blank row stand before it when `before` was the drawn one ahead of it (SIZE_MAX: none)? */
bool block_drawn(const struct model *m, size_t i);
bool block_gap(const struct model *m, size_t i, size_t before);
/* Is the block unfolded by itself, without the user's word: running, failed, or ended less than 2 s ago? */
bool block_open_itself(const struct model *m, const struct item *it, uint64_t now);
/* When a block that is open by itself folds; UINT64_MAX: not by itself. */
uint64_t block_folds_at(const struct item *it);
/* Text that copying the block gives: as it is stored. malloc'd. */
char *block_text(const struct model *m, size_t i);

/* The box of a call that waits for the user (approval.c). */
void approval_layout(struct rows *out, const struct item *it, const struct look *k);
void question_layout(struct rows *out, const struct item *it, const struct look *k);

/* A frame around rows: the title on its upper edge, everything `wide` columns. Takes over nothing. */
void box_layout(struct rows *out, const struct rows *in, int left, int wide, const char *title,
                enum role edge, const struct glyph_set *g);

#endif
