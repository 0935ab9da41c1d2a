#include "term/cells.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const struct cell blank = {.bytes = " ", .n = 1, .width = 1};
static const char role_letters[] = ".dvgcs+-#qnktf=pm";

_Static_assert(sizeof role_letters - 1 == ROLE_N, "a letter for each role");

char role_letter(enum role r)
{
    return role_letters[r];
}

int grid_init(struct grid *g, int w, int h)
{
    memset(g, 0, sizeof *g);
    g->w = w < 1 ? 1 : w;
    g->h = h < 1 ? 1 : h;
    g->cell = malloc((size_t)g->w * (size_t)g->h * sizeof *g->cell);
    if (!g->cell)
        return -1;
    grid_clear(g);
    return 0;
}

void grid_fini(struct grid *g)
{
    free(g->cell);
    memset(g, 0, sizeof *g);
}

void grid_clear(struct grid *g)
{
    for (int i = 0; i < g->w * g->h; i++)
        g->cell[i] = blank;
    g->caret = false;
    g->caret_x = g->caret_y = 0;
}

void grid_copy(struct grid *to, const struct grid *from)
{
    memcpy(to->cell, from->cell, (size_t)from->w * (size_t)from->h * sizeof *to->cell);
    to->caret = from->caret;
    to->caret_x = from->caret_x;
    to->caret_y = from->caret_y;
    memcpy(to->title, from->title, sizeof to->title);
}

struct cell *grid_at(const struct grid *g, int x, int y)
{
    return x < 0 || y < 0 || x >= g->w || y >= g->h ? NULL : &g->cell[y * g->w + x];
}

/* Blanks the other half of a wide character that is about to lose one. */
static void tear(struct grid *g, int x, int y)
{
    struct cell *c = grid_at(g, x, y);
    if (!c)
        return;
    if (c->width == 0 && x > 0)
        grid_at(g, x - 1, y)[0] = blank;
    if (c->width == 2 && x + 1 < g->w)
        grid_at(g, x + 1, y)[0] = blank;
}

void grid_cell(struct grid *g, int x, int y, const struct cell *in)
{
    struct cell *c = grid_at(g, x, y);
    if (!c || in->width == 0)
        return;
    tear(g, x, y);
    if (in->width == 2) {
        struct cell *right = grid_at(g, x + 1, y);
        if (!right) {
            *c = blank;
            c->style = in->style;
            return;
        }
        tear(g, x + 1, y);
        *right = (struct cell){.style = in->style};
    }
    *c = *in;
}

int grid_piece(struct grid *g, int x, int y, const struct piece *p, struct style st)
{
    struct cell c = {.n = p->n, .width = p->width, .style = st};
    memcpy(c.bytes, p->bytes, p->n);
    grid_cell(g, x, y, &c);
    return p->width;
}

int grid_text(struct grid *g, int x, int y, int end, const char *s, size_t n, enum gate_show show,
              struct style st)
{
    struct cluster c;
    for (size_t i = 0; i < n && s[i] != '\n';) {
        bool tab = s[i] == '\t';
        i += gate_next(s + i, n - i, show, &c);
        if (tab) {
            c.n = 1;
            c.width = 1;
            c.piece[0] = (struct piece){.bytes = " ", .n = 1, .width = 1};
        }
        if (x + c.width > end)
            break;
        for (int k = 0; k < c.n; k++)
            x += grid_piece(g, x, y, &c.piece[k], st);
    }
    return x;
}

int grid_str(struct grid *g, int x, int y, int end, struct style st, const char *s)
{
    return grid_text(g, x, y, end, s, strlen(s), GATE_RUNNING, st);
}

int grid_cut(struct grid *g, int x, int y, int end, const char *s, size_t n, enum gate_show show,
             const char *more, struct style st)
{
    const char *nl = memchr(s, '\n', n);
    size_t line = nl ? (size_t)(nl - s) : n;
    if (end <= x)
        return x;
    if (line == n && gate_width(s, line, show) <= (size_t)(end - x))
        return grid_text(g, x, y, end, s, line, show, st);
    int room = end - x - (int)gate_width(more, strlen(more), GATE_RUNNING);
    size_t fit = gate_fit(s, line, show, room > 0 ? (size_t)room : 0, NULL);
    x = grid_text(g, x, y, end, s, fit, show, st);
    return grid_str(g, x, y, end, st, more);
}

void grid_fill(struct grid *g, int x, int y, int w, const char *glyph, struct style st)
{
    for (int i = 0; i < w; i++)
        grid_str(g, x + i, y, x + i + 1, st, glyph);
}

bool cell_equal(const struct cell *a, const struct cell *b)
{
    return a->n == b->n && a->width == b->width && a->style.fg == b->style.fg && a->style.bg == b->style.bg &&
           a->style.attr == b->style.attr && memcmp(a->bytes, b->bytes, a->n) == 0;
}

char *frame_text(const struct grid *g)
{
    char *out = malloc((size_t)g->h * ((size_t)g->w * GATE_BYTES + 1) + 1), *p = out;
    if (!out)
        return NULL;
    for (int y = 0; y < g->h; y++) {
        for (int x = 0; x < g->w; x++) {
            const struct cell *c = grid_at(g, x, y);
            memcpy(p, c->bytes, c->n);
            p += c->n;
        }
        *p++ = '\n';
    }
    *p = '\0';
    return out;
}

static char attr_letter(const struct style *st)
{
    char l = role_letters[st->bg ? st->bg : st->fg];
    if (st->attr & ATTR_DIM && l == '.')
        l = 'd';
    if (st->attr & ATTR_BOLD)
        l = l == '.' ? 'B' : (char)toupper((unsigned char)l);
    if (st->attr & ATTR_REVERSE && l == '.')
        l = 'R';
    if (st->attr & ATTR_UNDERLINE && l == '.')
        l = 'U';
    return l;
}

char *frame_attr(const struct grid *g)
{
    char *out = malloc((size_t)g->h * ((size_t)g->w + 1) + 1), *p = out;
    if (!out)
        return NULL;
    for (int y = 0; y < g->h; y++) {
        for (int x = 0; x < g->w; x++)
            *p++ = attr_letter(&grid_at(g, x, y)->style);
        *p++ = '\n';
    }
    *p = '\0';
    return out;
}
