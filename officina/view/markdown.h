/* Markdown to rows: CommonMark with tables, strike-through and task lists, read by md4c and laid out for cells.
 *
 * Headings are bold, lists hang, quotes have a bar, tables are drawn when they fit and are `key: value` lines when not, links
 * are their text with the address dim, HTML is text, images are their address. Code has a thin frame, the language's name,
 * colours and no wrapping: it is shown from column `scroll` on. Any bytes give some layout; nothing is fetched. Pure. */
#ifndef OFF_MARKDOWN_H
#define OFF_MARKDOWN_H

#include "view/glyph.h"
#include "view/rows.h"

struct markdown_look {
    int width;  /* of text */
    int wide;   /* of code, at least width */
    int scroll; /* columns that code is moved left by */
    const struct glyph_set *glyphs;
};

void markdown_layout(struct rows *out, const char *s, size_t n, const struct markdown_look *look);

#endif
