#include "util/text.h"
#include "view/format.h"
#include "view/view.h"

#include <stdio.h>
#include <string.h>

/* Steps through the composer's text as it is drawn: cells are broken where the row is full. */
struct place {
    int x, y;
};

static void step(struct place *p, int width, int take)
{
    if (p->x + take > width) {
        p->x = 0;
        p->y++;
    }
    p->x += take;
}

int composer_rows(const struct edit *e, int width, int *caret_x, int *caret_y)
{
    const char *s = text_str(&e->text);
    struct place p = {0};
    struct cluster c;
    width = width > 2 ? width : 2;
    *caret_x = *caret_y = 0;
    for (size_t i = 0; i < e->text.len;) {
        if (i == e->caret) {
            *caret_x = p.x;
            *caret_y = p.y;
        }
        char first = s[i];
        i += gate_next(s + i, e->text.len - i, GATE_RUNNING, &c);
        if (first == '\n')
            p = (struct place){0, p.y + 1};
        else if (first == '\t')
            step(&p, width, 4 - p.x % 4);
        else
            for (int k = 0; k < c.n; k++)
                step(&p, width, c.piece[k].width);
    }
    if (e->caret >= e->text.len) {
        *caret_x = p.x;
        *caret_y = p.y;
    }
    if (*caret_x >= width) { /* behind a full row the caret stands on the next one */
        *caret_x = 0;
        ++*caret_y;
    }
    return (p.y > *caret_y ? p.y : *caret_y) + 1;
}

static void composer_draw(struct frame *f)
{
    const struct edit *e = &f->u->edit;
    const char *s = text_str(&e->text);
    int width = f->l.w - 4, cx, cy, top = 0;
    struct place p = {0};
    struct cluster c;
    composer_rows(e, width, &cx, &cy);
    if (cy >= f->l.composer_h)
        top = cy - f->l.composer_h + 1;
    grid_str(f->grid, 1, f->l.composer_y, f->l.w, (struct style){.fg = ROLE_VERDIGRIS, .attr = ATTR_BOLD},
             f->l.g->prompt);
    for (size_t i = 0; i < e->text.len && p.y < top + f->l.composer_h;) {
        char first = s[i];
        i += gate_next(s + i, e->text.len - i, GATE_RUNNING, &c);
        if (first == '\n') {
            p = (struct place){0, p.y + 1};
            continue;
        }
        if (first == '\t') {
            step(&p, width, 4 - p.x % 4);
            continue;
        }
        for (int k = 0; k < c.n; k++) {
            step(&p, width, c.piece[k].width);
            if (p.y >= top && p.y < top + f->l.composer_h)
                grid_piece(f->grid, 3 + p.x - c.piece[k].width, f->l.composer_y + p.y - top, &c.piece[k],
                           style_of(ROLE_TEXT));
        }
    }
    f->grid->caret = true;
    f->grid->caret_x = 3 + cx;
    f->grid->caret_y = f->l.composer_y + cy - top;
}

static bool works(const struct model *m)
{
    return m->status == ST_SENDING || m->status == ST_READING || m->status == ST_THINKING ||
           m->status == ST_WRITING || m->status == ST_RUNNING;
}

/* The one hint at the right of the composer's rule. */
static void hint_of(const struct frame *f, struct text *out, enum role *role)
{
    const struct model *m = f->m;
    const struct glyph_set *g = f->l.g;
    *role = ROLE_DIM;
    if (m->leaving && f->now < m->leave_until) {
        *role = ROLE_GOLD;
        text_puts(out, "press Ctrl-C again to leave");
    } else if (f->u->flash && f->now < f->u->flash_until) {
        *role = ROLE_GOLD;
        text_puts(out, f->u->flash);
    } else if (f->u->overlay == OVER_SEARCH || f->u->overlay == OVER_PALETTE) {
        *role = ROLE_GOLD;
        text_printf(out, "%s: %s_", f->u->overlay == OVER_SEARCH ? "search" : "command",
                    text_str(&f->u->query));
    } else if (m->sheet.kind != SHEET_NONE && m->sheet.hint) {
        text_puts(out, m->sheet.hint);
    } else if (!f->u->follow && f->u->rows_below > 0) {
        *role = ROLE_GOLD;
        text_printf(out, "%s %d%s%s row%s · End", g->down, f->u->rows_below,
                    f->u->rows_below >= 300 ? "+" : "", m->n_items > f->u->seen ? " new" : "",
                    f->u->rows_below == 1 ? "" : "s");
    } else if (m->status == ST_APPROVAL) {
        text_puts(out, "typing here never answers the box above");
    } else if (m->status == ST_ANSWER) {
        text_puts(out, "Enter answers · Esc refuses");
    } else if (m->n_queue) {
        *role = ROLE_GOLD;
        text_printf(out, "QUEUED %zu", m->n_queue);
    } else if (works(m)) {
        text_puts(out, f->l.compact    ? ""
                       : f->l.w >= 110 ? "Enter steers at the next tool boundary · Esc stops"
                                       : "QUEUED 0");
    } else if (m->read_only) {
        text_puts(out, "another Officina holds this conversation · /fork");
    } else if (m->engine.link == LINK_LIVE || m->engine.link == LINK_START) {
        if (m->status == ST_READY)
            text_puts(out, "TAB plan · / commands · @ files · F1 help");
    }
    if (m->mode == MODE_PLAN && out->len > 8 && strncmp(out->s, "TAB plan", 8) == 0)
        text_replace(out, 0, 8, "TAB build", 9);
}

static void rule_draw(struct frame *f)
{
    const struct layout *l = &f->l;
    struct text hint = {0};
    enum role role, mode = f->m->mode == MODE_PLAN ? ROLE_GOLD : ROLE_VERDIGRIS;
    int y = l->rule_y;
    grid_fill(f->grid, 0, y, l->w, l->g->h, style_of(ROLE_DIM));
    grid_str(f->grid, 2, y, l->w, style_of(ROLE_DIM), " ");
    int x = grid_str(f->grid, 3, y, l->w, (struct style){.fg = (uint8_t)mode, .attr = ATTR_BOLD},
                     mode_name(f->m->mode));
    x = grid_str(f->grid, x, y, l->w, style_of(ROLE_DIM), " ");
    hint_of(f, &hint, &role);
    int width = (int)gate_width(text_str(&hint), hint.len, GATE_RUNNING);
    bool urgent = role == ROLE_GOLD;
    if (hint.len && (width + 6 <= l->w - x || urgent)) {
        int room = l->w - x - 6, at = l->w - 3 - (width < room ? width : room);
        grid_str(f->grid, at - 1, y, l->w, style_of(ROLE_DIM), " ");
        at = grid_cut(f->grid, at, y, l->w - 3, hint.s, hint.len, GATE_RUNNING, l->g->more, style_of(role));
        grid_str(f->grid, at, y, l->w, style_of(ROLE_DIM), " ");
    }
    text_free(&hint);
}

static void menu_draw(struct frame *f)
{
    const struct menu *n = &f->u->menu;
    const struct layout *l = &f->l;
    int column = 0;
    if (!n->shown || l->menu_h < 1)
        return;
    size_t first = n->cursor >= (size_t)l->menu_h ? n->cursor - (size_t)l->menu_h + 1 : 0;
    for (size_t i = 0; i < n->n; i++) {
        int w = (int)gate_width(n->entry[i], strlen(n->entry[i]), GATE_EXACT);
        column = w > column ? w : column;
    }
    column = column > l->w / 2 ? l->w / 2 : column;
    for (int y = 0; y < l->menu_h && first + (size_t)y < n->n; y++) {
        size_t i = first + (size_t)y;
        bool here = i == n->cursor;
        struct style st = here ? (struct style){.fg = ROLE_GOLD, .bg = ROLE_SELECTION} : style_of(ROLE_TEXT);
        int row = l->rule_y + 1 + y;
        if (here)
            grid_fill(f->grid, 1, row, l->w - 2, " ", st);
        grid_str(f->grid, 1, row, l->w, st, here ? l->g->folded : " ");
        grid_cut(f->grid, 3, row, 3 + (n->about[i] ? column : l->w - 5), n->entry[i], strlen(n->entry[i]),
                 GATE_EXACT, l->g->more, st);
        st.fg = ROLE_DIM;
        if (n->about[i])
            grid_cut(f->grid, 5 + column, row, l->w - 2, n->about[i], strlen(n->about[i]), GATE_RUNNING,
                     l->g->more, st);
    }
}

void floor_draw(struct frame *f)
{
    for (int y = f->l.rule_y; y < f->l.h; y++)
        grid_fill(f->grid, 0, y, f->l.w, " ", style_of(ROLE_TEXT));
    rule_draw(f);
    menu_draw(f);
    composer_draw(f);
}
