/* Grid of cells: what a screen shows, without a terminal. The view fills one, a back of the terminal shows it, tests read it.
 *
 * A cell has the bytes of one character with its marks, a role for its ink and one for its ground, and attributes. A wide
 * character takes two cells; the right one is empty (n = 0) and belongs to the left one: writing over one half blanks the
 * other, so no row is ever wider than the grid. Coordinates are columns and rows from 0; everything outside is clipped. */
#ifndef OFF_CELLS_H
#define OFF_CELLS_H

#include "term/gate.h"

#include <stdbool.h>

/* The order is that of role_letters and of the themes in theme.c. */
enum role {
    ROLE_TEXT,
    ROLE_DIM,
    ROLE_VERDIGRIS,
    ROLE_GOLD,
    ROLE_CINNABAR,
    ROLE_SILVER,
    ROLE_ADDED,
    ROLE_REMOVED,
    ROLE_COMMENT,
    ROLE_STRING,
    ROLE_NUMBER,
    ROLE_KEYWORD,
    ROLE_TYPE,
    ROLE_FUNCTION,
    ROLE_SELECTION,
    ROLE_ADDED_WORD,   /* changed words inside a changed line */
    ROLE_REMOVED_WORD, /* grounds only */
    ROLE_N,
};

enum attr {
    ATTR_BOLD = 1,
    ATTR_DIM = 2,
    ATTR_UNDERLINE = 4,
    ATTR_REVERSE = 8,
    ATTR_ITALIC = 16,
};

struct style {
    uint8_t fg, bg; /* enum role; ROLE_TEXT as ground: the terminal's own */
    uint8_t attr;
};

struct cell {
    char bytes[GATE_BYTES];
    uint8_t n;     /* 0: right half of a wide character */
    uint8_t width; /* 1, 2; 0 for a right half */
    struct style style;
};

struct grid {
    int w, h;
    struct cell *cell; /* w * h, row by row; owned */
    int caret_x, caret_y;
    bool caret;
    char title[96];
};

static inline struct style style_of(enum role fg)
{
    return (struct style){.fg = (uint8_t)fg};
}

/* A blank grid; sizes below 1 count as 1. -1: out of memory. */
int grid_init(struct grid *g, int w, int h);
void grid_fini(struct grid *g);
void grid_clear(struct grid *g);
/* Copies the cells of a grid of the same size. */
void grid_copy(struct grid *to, const struct grid *from);

struct cell *grid_at(const struct grid *g, int x, int y); /* NULL outside */
/* Puts one piece; returns the columns it takes, also when clipped. */
int grid_piece(struct grid *g, int x, int y, const struct piece *p, struct style st);
/* Puts a text up to column `end` (exclusive); returns the column after it. Tabs are one blank, a newline ends the text. */
int grid_text(struct grid *g, int x, int y, int end, const char *s, size_t n, enum gate_show show,
              struct style st);
/* The same for a string that the program itself made. */
int grid_str(struct grid *g, int x, int y, int end, struct style st, const char *s);
/* The same, ending in … (or "..." where glyphs are ASCII: `more`) when the text does not fit. */
int grid_cut(struct grid *g, int x, int y, int end, const char *s, size_t n, enum gate_show show,
             const char *more, struct style st);
void grid_cell(struct grid *g, int x, int y, const struct cell *c);
void grid_fill(struct grid *g, int x, int y, int w, const char *glyph, struct style st);

bool cell_equal(const struct cell *a, const struct cell *b);

/* The rows as text, each ended by a newline. malloc'd; NULL: out of memory. */
char *frame_text(const struct grid *g);
/* The same shape with one letter a cell: the ground's role where it has one, else the ink's; capital when bold, and
 * d for dim ink. docs/SCREENS.md lists the letters. */
char *frame_attr(const struct grid *g);
char role_letter(enum role r);

#endif
