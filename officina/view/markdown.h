/* Markdown to rows: CommonMark with tables, strike-through and task lists, read by md4c and laid out for cells.
 *
 * Headings are bold, lists hang, quotes have a bar, tables are drawn when they fit and are `key: value` lines when not, links
 * are their text with the address dim, HTML is text, images are their address. Code has a thin frame, the language's name,
 * colours and no wrapping: it is shown from column `scroll` on. Any bytes give some layout; nothing is fetched. Pure.
 *
 * A text that grows is laid out in parts (grow.c). A part begins where CommonMark begins a block whatever came before: at a
 * fence in the first column, or behind a blank line at a character that continues no list and no quote. Parts that are whole
 * keep their rows; code keeps its lines. The parts depend on the text alone, so a text has the same rows in one piece and
 * grown byte by byte. A text with a link's definition is one part: a definition may stand behind what it is for. */
#ifndef OFF_MARKDOWN_H
#define OFF_MARKDOWN_H

#include "view/code.h"
#include "view/fence.h"
#include "view/glyph.h"
#include "view/rows.h"

struct markdown_look {
    int width;  /* of text */
    int wide;   /* of code, at least width */
    int scroll; /* columns that code is moved left by */
    const struct glyph_set *glyphs;
};

/* Where the layout of a growing text stands. Zeroed: nothing is laid out; the same look and the same beginning of the text
 * have to be given until then. */
struct markdown_keep {
    size_t at, rows; /* bytes that are laid out for good, and rows behind `base` that they have */
    bool whole;      /* a link's definition: one part, laid out anew each time */
    bool in_code;
    struct fence fence;
    struct code_grow code;
};

/* Lays the text out behind the first `base` rows of out, where earlier calls with this keep have left theirs. Returns the
 * first row that is new or another one than before; rows before it may have become wider by blanks (code's frame). */
size_t markdown_grow(struct rows *out, size_t base, const char *s, size_t n, const struct markdown_look *look,
                     struct markdown_keep *keep);
/* One part, for grow.c. gap: a blank row goes before it. */
void markdown_part(struct rows *out, bool gap, const char *s, size_t n, const struct markdown_look *look);
void markdown_layout(struct rows *out, const char *s, size_t n, const struct markdown_look *look);

#endif
