#include "view/rows.h"
#include "util/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void row_clear(struct row *r)
{
    r->n = 0;
    r->width = 0;
}

void row_free(struct row *r)
{
    free(r->c);
    memset(r, 0, sizeof *r);
}

void row_cell(struct row *r, const struct cell *c)
{
    r->c = mem_room(r->c, r->n, &r->cap, sizeof *r->c);
    r->c[r->n++] = *c;
    r->width += c->width;
}

static void add_piece(struct row *r, const struct piece *p, struct style st)
{
    struct cell c = {.n = p->n, .width = p->width, .style = st};
    memcpy(c.bytes, p->bytes, p->n);
    row_cell(r, &c);
}

static void add_blanks(struct row *r, int n, struct style st)
{
    struct cell c = {.bytes = " ", .n = 1, .width = 1, .style = st};
    for (int i = 0; i < n; i++)
        row_cell(r, &c);
}

void row_text(struct row *r, const char *s, size_t n, enum gate_show show, int tab, struct style st)
{
    struct cluster c;
    for (size_t i = 0; i < n;) {
        char first = s[i];
        i += gate_next(s + i, n - i, show, &c);
        if (first == '\n') {
            struct cell hard = {.bytes = "\n", .n = 1, .width = 0, .style = st};
            row_cell(r, &hard);
        } else if (first == '\t') {
            add_blanks(r, tab - r->width % tab, st);
        }
        for (int k = 0; k < c.n; k++)
            add_piece(r, &c.piece[k], st);
    }
}

void row_str(struct row *r, struct style st, const char *s)
{
    row_text(r, s, strlen(s), GATE_RUNNING, 4, st);
}

void row_printf(struct row *r, struct style st, const char *fmt, ...)
{
    char buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    row_str(r, st, buf);
}

void row_pad(struct row *r, int column, struct style st)
{
    add_blanks(r, column - r->width, st);
}

void row_fill(struct row *r, int column, const char *glyph, struct style st)
{
    while (r->width < column)
        row_str(r, st, glyph);
}

void row_append(struct row *r, const struct row *from)
{
    for (size_t i = 0; i < from->n; i++)
        row_cell(r, &from->c[i]);
}

void row_prepend(struct row *r, const struct row *from)
{
    for (size_t i = 0; i < from->n; i++) /* makes room */
        row_cell(r, &from->c[i]);
    memmove(r->c + from->n, r->c, (r->n - from->n) * sizeof *r->c);
    if (from->n)
        memcpy(r->c, from->c, from->n * sizeof *r->c);
}

void row_stretch(struct row *r, int by, size_t keep, const char *glyph, struct style st)
{
    struct cell tail[4];
    size_t n = keep < r->n ? keep : r->n;
    assert(n <= sizeof tail / sizeof tail[0]);
    for (size_t i = n; i-- > 0;) {
        tail[i] = r->c[--r->n];
        r->width -= tail[i].width;
    }
    for (; by < 0 && r->n; by++)
        r->width -= r->c[--r->n].width;
    row_fill(r, r->width + by, glyph, st);
    for (size_t i = 0; i < n; i++)
        row_cell(r, &tail[i]);
}

void row_window(struct row *r, const struct row *from, int skip, int width, struct style pad)
{
    int start = r->width, x = 0;
    for (size_t i = 0; i < from->n; i++) {
        const struct cell *c = &from->c[i];
        if (x >= skip && x + c->width <= skip + width && c->width)
            row_cell(r, c);
        else if (x < skip && x + c->width > skip) /* the right half of a wide one */
            add_blanks(r, 1, c->style);
        x += c->width;
    }
    row_pad(r, start + width, pad);
}

void row_cut(struct row *r, int width, const char *more)
{
    if (r->width <= width)
        return;
    int room = width - (int)gate_width(more, strlen(more), GATE_RUNNING);
    struct style st = r->n ? r->c[0].style : style_of(ROLE_TEXT);
    while (r->n && r->width > (room > 0 ? room : 0)) {
        st = r->c[r->n - 1].style;
        r->width -= r->c[--r->n].width;
    }
    while (room > 0 && r->n && r->c[r->n - 1].n == 1 && r->c[r->n - 1].bytes[0] == ' ')
        r->width -= r->c[--r->n].width; /* the mark stands at a word */
    if (room >= 0)
        row_str(r, st, more);
}

void row_flatten(struct row *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->c[i].width)
            continue;
        r->c[i] = (struct cell){.bytes = " ", .n = 1, .width = 1, .style = r->c[i].style};
        r->width++;
    }
}

void row_ground(struct row *r, size_t from, uint8_t bg, uint8_t attr)
{
    for (size_t i = from; i < r->n; i++) {
        if (bg)
            r->c[i].style.bg = bg;
        r->c[i].style.attr |= attr;
    }
}

void rows_clear(struct rows *rs)
{
    rows_cut(rs, 0);
}

void rows_cut(struct rows *rs, size_t n)
{
    while (rs->n > n)
        row_free(&rs->v[--rs->n]);
}

void rows_free(struct rows *rs)
{
    rows_clear(rs);
    free(rs->v);
    memset(rs, 0, sizeof *rs);
}

struct row *rows_add(struct rows *rs)
{
    rs->v = mem_room(rs->v, rs->n, &rs->cap, sizeof *rs->v);
    struct row *r = &rs->v[rs->n++];
    memset(r, 0, sizeof *r);
    return r;
}

static bool is_blank(const struct cell *c)
{
    return c->n == 1 && c->bytes[0] == ' ';
}

static bool is_hard(const struct cell *c)
{
    return c->width == 0 && c->n == 1 && c->bytes[0] == '\n';
}

/* Index behind the last cell of the row that begins at `at` and has `room` columns; *next: where the following one begins. */
static size_t break_at(const struct row *flow, size_t at, int room, size_t *next)
{
    int width = 0;
    size_t i = at, good = 0, good_next = 0;
    for (; i < flow->n; i++) {
        const struct cell *c = &flow->c[i];
        if (is_hard(c)) {
            *next = i + 1;
            return i;
        }
        if (is_blank(c) && i > at) {
            good = i;
            good_next = i + 1;
        } else if (c->width == 2 && i > at && width <= room) {
            good = good_next = i;
        }
        width += c->width;
        if (width > room)
            break;
    }
    if (i == flow->n) {
        *next = i;
        return i;
    }
    if (!good)
        good = good_next = i > at ? i : at + 1;
    while (good_next < flow->n && is_blank(&flow->c[good_next]))
        good_next++;
    *next = good_next;
    return good;
}

void rows_wrap(struct rows *out, const struct row *flow, int width, const struct row *first,
               const struct row *rest)
{
    size_t at = 0;
    do {
        const struct row *prefix = at == 0 ? first : rest;
        int room = width - (prefix ? prefix->width : 0);
        size_t next, end = break_at(flow, at, room > 1 ? room : 1, &next);
        struct row *r = rows_add(out);
        if (prefix)
            row_append(r, prefix);
        for (size_t i = at; i < end; i++)
            row_cell(r, &flow->c[i]);
        at = next;
    } while (at < flow->n);
}

void rows_put(struct grid *g, int x, int y, int end, const struct row *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (x + r->c[i].width > end)
            return;
        grid_cell(g, x, y, &r->c[i]);
        x += r->c[i].width;
    }
}
