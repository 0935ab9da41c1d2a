#include "view/code.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 4000 /* of a line that gets colours; what is behind is plain */
#define BOX_MIN        67   /* a short block is this wide where there is room, so that boxes line up */

void code_line(struct row *r, struct lexer *lx, const char *line, size_t n, enum gate_show show, int tab)
{
    uint8_t role[LINE_MAX_BYTES];
    struct row own = {0};
    size_t coloured = n < LINE_MAX_BYTES ? n : LINE_MAX_BYTES;
    lexer_line(lx, line, coloured, role);
    for (size_t at = 0; at < n;) {
        size_t end = at + 1;
        enum role now = at < coloured ? (enum role)role[at] : ROLE_TEXT;
        while (end < n && (end < coloured ? (enum role)role[end] : ROLE_TEXT) == now)
            end++;
        row_text(&own, line + at, end - at, show, tab, style_of(now));
        at = end;
    }
    row_append(r, &own);
    row_free(&own);
}

/* Up to column `wide` of the row, which may begin with blanks. */
static void edge(struct row *r, int wide, const char *left, const char *right, const char *name, size_t n,
                 const struct glyph_set *g)
{
    row_str(r, style_of(ROLE_DIM), left);
    if (n) {
        row_str(r, style_of(ROLE_DIM), " ");
        size_t fit = gate_fit(name, n, GATE_RUNNING, wide > 8 ? (size_t)wide - 6 : 2, NULL);
        row_text(r, name, fit, GATE_RUNNING, 4, style_of(ROLE_DIM));
        row_str(r, style_of(ROLE_DIM), " ");
    }
    row_fill(r, wide - 1, g->h, style_of(ROLE_DIM));
    row_str(r, style_of(ROLE_DIM), right);
}

static int frame_width(int most, int wide)
{
    int width = most + 4 > BOX_MIN ? most + 4 : BOX_MIN;
    return width < wide ? width : wide;
}

void code_grow_begin(struct code_grow *c, struct rows *out, int left, const char *lang, size_t n_lang,
                     int wide, const struct glyph_set *g)
{
    size_t word = 0;
    while (word < n_lang && lang[word] != ' ')
        word++;
    *c = (struct code_grow){
        .row = out->n, .width = frame_width(0, wide), .lx = {.lang = lexer_named(lang, n_lang)}};
    struct row *r = rows_add(out);
    row_pad(r, left, style_of(ROLE_TEXT));
    edge(r, left + c->width, g->tl, g->tr, lang, word, g);
}

/* The frame becomes as wide as its widest line needs. Only lines that are not cut have to change: a frame that cuts one is
 * as wide as it may be. */
static void fit(struct code_grow *c, struct rows *out, int width, const struct glyph_set *g)
{
    int by = width - c->width;
    c->width = width;
    if (!by)
        return;
    row_stretch(&out->v[c->row], by, 1, g->h, style_of(ROLE_DIM));
    for (size_t i = c->row + 1; i < out->n; i++)
        row_stretch(&out->v[i], by, 2, " ", style_of(ROLE_TEXT));
}

static void framed(struct rows *out, const struct row *line, int left, int width, int scroll,
                   const struct glyph_set *g)
{
    struct row *r = rows_add(out), part = {0};
    row_pad(r, left, style_of(ROLE_TEXT));
    row_printf(r, style_of(ROLE_DIM), "%s ", g->v);
    row_window(&part, line, scroll, line->width > scroll ? line->width - scroll : 0, style_of(ROLE_TEXT));
    row_cut(&part, width - 4, g->more);
    row_append(r, &part);
    row_pad(r, left + width - 2, style_of(ROLE_TEXT));
    row_printf(r, style_of(ROLE_DIM), " %s", g->v);
    row_free(&part);
}

size_t code_grow_lines(struct code_grow *c, struct rows *out, int left, const char *s, size_t n, bool closed,
                       int wide, int scroll, const struct glyph_set *g)
{
    struct rows lines = {0};
    struct lexer lx = c->lx;
    size_t whole = 0;
    int most = c->most;
    rows_cut(out, c->row + 1 + c->lines);
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - s) - at : n - at;
        struct row *r = rows_add(&lines);
        if (c->lines + lines.n > CODE_COLOUR_LINES)
            lx.lang = NULL;
        code_line(r, &lx, s + at, len && s[at + len - 1] == '\r' ? len - 1 : len, GATE_RUNNING, 4);
        most = r->width > most ? r->width : most;
        at += len + 1;
        if (nl) {
            whole = at;
            c->lx = lx;
            c->most = most;
        }
    }
    fit(c, out, frame_width(most, wide), g);
    for (size_t i = 0; i < lines.n; i++)
        framed(out, &lines.v[i], left, c->width, scroll, g);
    c->lines += lines.n - (whole < n);
    struct row *r = rows_add(out);
    row_pad(r, left, style_of(ROLE_TEXT));
    edge(r, left + c->width, g->bl, g->br, "", 0, g);
    if (closed)
        c->lines++;
    rows_free(&lines);
    return whole;
}

void code_box(struct rows *out, const char *s, size_t n, const char *lang, size_t n_lang, int wide,
              int scroll, const struct glyph_set *g)
{
    struct code_grow c;
    code_grow_begin(&c, out, 0, lang, n_lang, wide, g);
    code_grow_lines(&c, out, 0, s, n, true, wide, scroll, g);
}
