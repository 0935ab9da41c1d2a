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

void code_box(struct rows *out, const char *s, size_t n, const char *lang, size_t n_lang, int wide,
              int scroll, const struct glyph_set *g)
{
    struct rows lines = {0};
    struct lexer lx = {.lang = lexer_named(lang, n_lang)};
    int most = 0;
    size_t word = 0;
    while (word < n_lang && lang[word] != ' ')
        word++;
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - s) - at : n - at;
        struct row *r = rows_add(&lines);
        if (lines.n > CODE_COLOUR_LINES)
            lx.lang = NULL;
        code_line(r, &lx, s + at, len, GATE_RUNNING, 4);
        most = r->width > most ? r->width : most;
        at += len + 1;
    }
    int width = most + 4 > BOX_MIN ? most + 4 : BOX_MIN;
    width = width < wide ? width : wide;
    edge(rows_add(out), width, g->tl, g->tr, lang, word, g);
    for (size_t i = 0; i < lines.n; i++) {
        struct row *r = rows_add(out), part = {0};
        row_printf(r, style_of(ROLE_DIM), "%s ", g->v);
        row_window(&part, &lines.v[i], scroll, lines.v[i].width > scroll ? lines.v[i].width - scroll : 0,
                   style_of(ROLE_TEXT));
        row_cut(&part, width - 4, g->more);
        row_append(r, &part);
        row_pad(r, width - 2, style_of(ROLE_TEXT));
        row_printf(r, style_of(ROLE_DIM), " %s", g->v);
        row_free(&part);
    }
    edge(rows_add(out), width, g->bl, g->br, "", 0, g);
    rows_free(&lines);
}
