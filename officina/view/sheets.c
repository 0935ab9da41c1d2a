#include "core/command.h"
#include "util/text.h"
#include "view/look.h"
#include "view/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 5

static void rule(struct rows *in)
{
    struct cell line = {.bytes = "\n", .n = 1, .width = 0}; /* box_layout draws it across */
    row_cell(rows_add(in), &line);
}

static int cell_width(const char *s)
{
    return s ? (int)gate_width(s, strlen(s), GATE_EXACT) : 0;
}

/* Widths of the columns so that a row fits: the widest one gives way. */
static void column_widths(const struct sheet *s, int inner, int *width)
{
    static const int gap[COLUMNS] = {3, 2, 3, 3, 0};
    int total = 2;
    for (int c = 0; c < COLUMNS; c++) {
        width[c] = cell_width(s->heads[c]);
        for (size_t i = 0; i < s->n_rows; i++) {
            int w = cell_width(s->rows[i].cells[c]);
            width[c] = w > width[c] ? w : width[c];
        }
        if (width[c])
            total += width[c] += gap[c];
    }
    while (total > inner) {
        int widest = 0;
        for (int c = 1; c < COLUMNS; c++)
            widest = width[c] > width[widest] ? c : widest;
        if (width[widest] < 6)
            return;
        width[widest]--;
        total--;
    }
}

static void cells_row(struct row *r, char *const *cells, const int *width, enum role role,
                      const struct glyph_set *g)
{
    for (int c = 0; c < COLUMNS; c++) {
        struct row cell = {0};
        int end = r->width + width[c];
        if (!width[c])
            continue;
        if (cells[c])
            row_text(&cell, cells[c], strlen(cells[c]), GATE_EXACT, 4, style_of(role));
        row_cut(&cell, width[c] - (c == 1 ? 2 : c + 1 < COLUMNS ? 3 : 0), g->more);
        row_append(r, &cell);
        row_pad(r, end, style_of(ROLE_TEXT));
        row_free(&cell);
    }
}

static void list_rows(struct rows *in, const struct sheet *s, int inner, int room, const struct glyph_set *g)
{
    int width[COLUMNS];
    column_widths(s, inner, width);
    bool heads = s->heads[0] != NULL;
    struct row *r;
    if (heads) {
        r = rows_add(in);
        row_str(r, style_of(ROLE_TEXT), "  ");
        cells_row(r, s->heads, width, ROLE_DIM, g);
        room--;
    }
    room = room > 1 ? room : 1;
    size_t first = s->cursor >= (size_t)room ? s->cursor - (size_t)room + 1 : 0;
    for (size_t i = first; i < s->n_rows && i < first + (size_t)room; i++) {
        bool here = i == s->cursor;
        r = rows_add(in);
        row_printf(r, style_of(ROLE_GOLD), "%s ", here ? g->folded : " ");
        cells_row(r, s->rows[i].cells, width, here ? ROLE_GOLD : ROLE_TEXT, g);
        if (here)
            row_ground(r, 0, ROLE_SELECTION, 0);
    }
    if (!s->n_rows)
        row_str(rows_add(in), style_of(ROLE_DIM), "nothing here");
}

/* Lines of a page from `top` on, `room` of them; returns the greatest useful top. */
static int page_rows(struct rows *in, const struct rows *all, int top, int room)
{
    int most = (int)all->n - room > 0 ? (int)all->n - room : 0;
    top = top < most ? top : most;
    for (int i = top; i < (int)all->n && i < top + room; i++)
        row_append(rows_add(in), &all->v[i]);
    return most;
}

static void lines_of(struct rows *all, const struct sheet *s, int inner)
{
    for (size_t i = 0; i < s->n_lines; i++) {
        struct row flow = {0}, rest = {0};
        size_t n = strlen(s->lines[i]), indent = strspn(s->lines[i], " ");
        row_text(&flow, s->lines[i], n, GATE_EXACT, 4, style_of(ROLE_TEXT));
        row_pad(&rest, (int)(indent < 20 ? indent : 20), style_of(ROLE_TEXT));
        rows_wrap(all, &flow, inner, NULL, &rest);
        row_free(&flow);
        row_free(&rest);
    }
}

static void diffs_of(struct rows *all, const struct frame *f, int inner)
{
    const struct sheet *s = &f->m->sheet;
    struct diff_look look = {.width = inner,
                             .scroll = f->u->code_scroll,
                             .side = inner >= 146 && !f->u->unified,
                             .glyphs = f->l.g};
    for (size_t i = 0; i < s->n_changes; i++) {
        struct row *r;
        if (i)
            rows_add(all);
        r = rows_add(all);
        row_text(r, s->changes[i].path, strlen(s->changes[i].path), GATE_EXACT, 4,
                 (struct style){.fg = ROLE_SILVER, .attr = ATTR_BOLD});
        row_printf(r, style_of(ROLE_DIM), "  +%d %s%d", s->changes[i].added, f->l.g->minus,
                   s->changes[i].removed);
        diff_rows(all, &s->changes[i], &look);
    }
    if (!s->n_changes)
        row_str(rows_add(all), style_of(ROLE_DIM), "nothing was changed");
}

static void put_box(struct frame *f, const struct rows *in, const char *title, int left, int wide, int top)
{
    struct rows box = {0};
    box_layout(&box, in, 0, wide, title, ROLE_GOLD, f->l.g);
    for (size_t y = 0; y < box.n && top + (int)y < f->l.rule_y; y++) {
        grid_fill(f->grid, left, top + (int)y, wide, " ", style_of(ROLE_TEXT));
        rows_put(f->grid, left, top + (int)y, f->l.w, &box.v[y]);
    }
    rows_free(&box);
}

static void clear(struct frame *f)
{
    for (int y = f->l.top; y < f->l.rule_y; y++)
        grid_fill(f->grid, 0, y, f->l.transcript_w, " ", style_of(ROLE_TEXT));
}

static const char *sheet_title(const struct sheet *s)
{
    static const char *const titles[] = {"",          "REWIND", "CONVERSATIONS", "HISTORY",
                                         "COUPLINGS", "",       "CHANGES",       "TRUST THIS FOLDER?"};
    return s->title && *s->title ? s->title : titles[s->kind];
}

void sheet_draw(struct frame *f)
{
    const struct sheet *s = &f->m->sheet;
    const struct layout *l = &f->l;
    struct rows in = {0}, all = {0};
    int left = l->compact ? 0 : 2, wide = l->transcript_w - left - (l->compact ? 0 : 1), inner = wide - 4;
    int top = l->top + (l->compact ? 0 : 1), room = l->rule_y - top - 2 - (s->keys ? 1 : 0);
    if (s->kind == SHEET_NONE || inner < 8 || room < 1)
        return;
    clear(f);
    if (s->kind == SHEET_PAGE || s->kind == SHEET_DIFF || s->kind == SHEET_TRUST) {
        if (s->kind == SHEET_DIFF)
            diffs_of(&all, f, inner);
        else
            lines_of(&all, s, inner);
        int most = page_rows(&in, &all, f->u->sheet_top, room);
        f->u->sheet_top = f->u->sheet_top < most ? f->u->sheet_top : most;
    } else {
        int detail = (int)s->n_detail + (s->n_detail ? 1 : 0);
        list_rows(&in, s, inner, room - detail, l->g);
        if (s->n_detail)
            rule(&in);
        for (size_t i = 0; i < s->n_detail; i++) {
            struct row *r = rows_add(&in);
            row_text(r, s->detail[i], strlen(s->detail[i]), GATE_EXACT, 4, style_of(ROLE_TEXT));
        }
    }
    if (s->keys)
        row_str(rows_add(&in), (struct style){.fg = ROLE_GOLD, .attr = ATTR_BOLD}, s->keys);
    put_box(f, &in, sheet_title(s), left, wide, top);
    rows_free(&in);
    rows_free(&all);
}

/* ---- what only the screen opens ---- */

static void tasks_overlay(struct frame *f)
{
    const struct model *m = f->m;
    const struct glyph_set *g = f->l.g;
    struct rows in = {0};
    for (size_t i = 0; i < m->n_tasks; i++) {
        struct row *r = rows_add(&in);
        enum task_state st = m->tasks[i].state;
        row_printf(r,
                   style_of(st == TASK_DONE    ? ROLE_VERDIGRIS
                            : st == TASK_DOING ? ROLE_GOLD
                                               : ROLE_DIM),
                   "%s ",
                   st == TASK_DONE    ? g->done
                   : st == TASK_DOING ? g->doing
                                      : g->open);
        row_text(r, m->tasks[i].text, strlen(m->tasks[i].text), GATE_EXACT, 4, style_of(ROLE_TEXT));
    }
    if (!m->n_tasks)
        row_str(rows_add(&in), style_of(ROLE_DIM), "the model has made no list of tasks");
    row_str(rows_add(&in), style_of(ROLE_DIM), "Esc closes");
    int wide = f->l.transcript_w - 4 < 60 ? f->l.transcript_w - 4 : 60;
    put_box(f, &in, "TASKS", (f->l.transcript_w - wide) / 2, wide, f->l.top + 1);
    rows_free(&in);
}

/* Every key and every command. */
static void help_rows(struct rows *all, const struct keys *k)
{
    for (int a = 1; k && a < ACT_N; a++) {
        char keys[80];
        if (!action_about((enum action)a))
            continue;
        struct row *r = rows_add(all);
        row_str(r, style_of(ROLE_GOLD), keys_of(k, (enum action)a, keys, sizeof keys));
        row_pad(r, 24, style_of(ROLE_TEXT));
        row_printf(r, style_of(ROLE_TEXT), " %s", action_about((enum action)a));
    }
    rows_add(all);
    size_t n;
    const struct command *c = command_list(&n);
    for (size_t i = 0; i < n; i++, c++) {
        struct row *r = rows_add(all);
        row_printf(r, style_of(ROLE_GOLD), "%s %s", c->name, c->args);
        row_pad(r, 24, style_of(ROLE_TEXT));
        row_printf(r, style_of(ROLE_TEXT), " %s", c->help);
    }
}

static void help_overlay(struct frame *f)
{
    struct rows all = {0}, in = {0};
    int left = f->l.compact ? 0 : 2, wide = f->l.transcript_w - 2 * left, top = f->l.top;
    int room = f->l.rule_y - top - 3;
    if (room < 1)
        return;
    clear(f);
    help_rows(&all, f->u->keys);
    int most = page_rows(&in, &all, f->u->sheet_top, room);
    f->u->sheet_top = f->u->sheet_top < most ? f->u->sheet_top : most;
    row_str(rows_add(&in), style_of(ROLE_DIM),
            "PgUp PgDn scroll · Esc closes · docs/OFFICINA.md and man officina say more");
    put_box(f, &in, "HELP", left, wide, top);
    rows_free(&all);
    rows_free(&in);
}

void overlay_draw(struct frame *f)
{
    const struct layout *l = &f->l;
    int w = l->w >= 60 ? 32 : l->w - 4;
    if (f->u->overlay == OVER_PANEL && !l->panel_w) {
        panel_draw(f, l->w - w, w, l->top, l->rule_y);
        grid_str(f->grid, l->w - w, 1, l->w, style_of(ROLE_DIM), l->g->top);
    } else if (f->u->overlay == OVER_TASKS) {
        tasks_overlay(f);
    } else if (f->u->overlay == OVER_HELP) {
        help_overlay(f);
    }
}
