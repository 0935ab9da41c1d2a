#include "view/view.h"
#include "util/text.h"
#include "view/format.h"
#include "view/look.h"
#include "view/mark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX  100 /* columns of running text */
#define BELOW_MAX 300 /* rows below the screen that are counted: more would lay out what nobody sees */

static void layout_make(struct layout *l, const struct model *m, struct ui *u, const struct caps *caps, int w,
                        int h)
{
    memset(l, 0, sizeof *l);
    l->w = w;
    l->h = h;
    l->g = glyphs_of(caps->glyphs);
    l->compact = w < 60 || h < 16;
    l->panel_w = u->panel_off ? 0 : w >= 160 && h >= 40 ? 40 : w >= 110 && h >= 30 ? 32 : 0;
    l->transcript_w = w - l->panel_w;
    int most = h / 3 < 10 ? h / 3 : 10, x, y;
    int rows = composer_rows(&u->edit, w - 4, &x, &y);
    l->composer_h = rows < most ? rows : most;
    if (u->menu.shown)
        l->menu_h = (int)u->menu.n < MENU_ROWS ? (int)u->menu.n : MENU_ROWS;
    l->status_y = h - 1;
    l->gauge_y = h - 2;
    l->composer_y = l->gauge_y - l->composer_h;
    l->top = 2;
    if (l->menu_h > l->composer_y - 1 - l->top - 1)
        l->menu_h = l->composer_y - 2 - l->top > 0 ? l->composer_y - 2 - l->top : 0;
    l->rule_y = l->composer_y - l->menu_h - 1;
}

static struct look look_for(const struct frame *f, const struct item *it)
{
    const struct layout *l = &f->l;
    int w = l->transcript_w, left = l->compact ? 1 : 2;
    struct look k = {.w = w,
                     .left = left,
                     .text = w - left -
                             (l->compact ? 1
                              : w < 100  ? 5
                                         : 3),
                     .right = l->compact ? w - 1
                              : w < 100  ? w - 5
                                         : w - 2,
                     .compact = l->compact,
                     .rows = l->rule_y - l->top,
                     .scroll = f->u->code_scroll,
                     .now = f->now,
                     .whole = f->u->whole,
                     .unified = f->u->unified,
                     .box_scroll = f->u->box_scroll,
                     .g = l->g};
    k.text = k.text < TEXT_MAX ? k.text : TEXT_MAX;
    if (it) {
        k.open = ui_is_open(f->u, f->m, it, f->now);
        k.selected = f->u->selected < f->m->n_items && &f->m->items[f->u->selected] == it;
    }
    return k;
}

/* ---- blocks, laid out once ---- */

/* It only gets longer while it arrives. */
static bool grows(const struct item *it)
{
    return (it->kind == ITEM_TEXT || it->kind == ITEM_REASONING) && !it->ended && it->live;
}

/* The stamp says all that its rows depend on: time does not go into them. */
static bool lasts(const struct item *it)
{
    if (it->kind == ITEM_CALL)
        return it->call && (it->call->state >= CALL_OK || it->call->state == CALL_ASKING);
    return it->kind != ITEM_TEXT && it->kind != ITEM_REASONING ? true : it->ended != 0;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 1099511628211u;
    return h ^ h >> 29;
}

static uint64_t call_stamp(uint64_t h, const struct call *c)
{
    uint64_t v[] = {(uint64_t)c->state, c->result.len, c->n_changes, c->ended, c->n_options};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        h = mix(h, v[i]);
    for (size_t i = 0; c->approval && i < sizeof c->approval->bound; i++)
        h = mix(h, c->approval->bound[i]);
    return c->approval ? mix(h, c->approval->since) : h;
}

static uint64_t stamp_of(const struct model *m, const struct item *it, const struct look *k, bool gap)
{
    bool open = grows(it);
    uint64_t v[] = {(uint64_t)it->id,
                    open ? 0 : it->body.len,
                    (uint64_t)it->kind,
                    it->live,
                    it->ended,
                    (uint64_t)it->times,
                    it->partial,
                    (uint64_t)k->w,
                    (uint64_t)k->text,
                    (uint64_t)k->rows,
                    (uint64_t)k->compact,
                    (uint64_t)k->scroll,
                    (uint64_t)k->box_scroll,
                    (uint64_t)k->open | (uint64_t)k->selected << 1 | (uint64_t)k->whole << 2 |
                        (uint64_t)k->unified << 3,
                    (uint64_t)k->g->kind,
                    gap,
                    open ? 0 : (uint64_t)it->tokens};
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        h = mix(h, v[i]);
    for (const char *s = m->session ? m->session : ""; *s; s++)
        h = mix(h, (unsigned char)*s);
    return it->call ? call_stamp(h, it->call) : h;
}

static size_t drawn_before(const struct model *m, size_t i)
{
    while (i-- > 0)
        if (block_drawn(m, i))
            return i;
    return SIZE_MAX;
}

/* While nothing of the answer has arrived the engine's doing stands where the answer will. */
static void waiting_rows(struct frame *f, struct rows *out, const struct look *k)
{
    const char *words = f->m->status == ST_READING   ? "reading the conversation …"
                        : f->m->status == ST_SENDING ? "…"
                                                     : NULL;
    if (!words)
        return;
    if (drawn_before(f->m, f->m->n_items) != SIZE_MAX)
        rows_add(out);
    struct row *r = rows_add(out);
    row_pad(r, k->left, style_of(ROLE_TEXT));
    row_str(r, (struct style){.fg = ROLE_VERDIGRIS, .attr = ATTR_BOLD}, "STONE");
    r = rows_add(out);
    row_pad(r, k->left, style_of(ROLE_TEXT));
    row_str(r, style_of(ROLE_DIM), words);
}

static void count_cells(struct ui *u, struct ui_cached *c, size_t first)
{
    c->cells = 0;
    for (size_t y = 0; y < c->rows.n; y++) {
        c->cells += c->rows.v[y].n;
        if (y >= first)
            u->laid += c->rows.v[y].n;
    }
}

static void lay_out(struct frame *f, struct ui_cached *c, size_t i, const struct look *k, bool gap)
{
    rows_clear(&c->rows);
    if (i == f->m->n_items) {
        waiting_rows(f, &c->rows, k);
    } else if (block_drawn(f->m, i)) {
        if (gap)
            rows_add(&c->rows);
        block_layout(&c->rows, f->m, i, k, &c->keep);
    }
    count_cells(f->u, c, 0);
}

/* Rows of block i with the blank row before it; block n_items is what stands for an answer that has not begun. Valid until the
 * next call for another block of the same cache line. */
static const struct rows *block_rows(struct frame *f, size_t i)
{
    const struct model *m = f->m;
    struct ui_cached *c = &f->u->cache[i % UI_CACHE];
    const struct item *it = i < m->n_items ? &m->items[i] : NULL;
    struct look k = look_for(f, it);
    bool gap = it && block_drawn(m, i) && block_gap(m, i, drawn_before(m, i));
    uint64_t stamp = it ? stamp_of(m, it, &k, gap) : 0;
    bool same = c->used && c->item == it && c->stamp == stamp, now = c->frame == f->u->frame;
    c->frame = f->u->frame;
    if (same && (now || (it && lasts(it))))
        return &c->rows;
    if (same && it && grows(it) && block_drawn(m, i) && c->rows.n && it->body.len >= c->keep.seen)
        count_cells(f->u, c, block_grow(&c->rows, m, i, &k, &c->keep));
    else
        lay_out(f, c, i, &k, gap);
    c->used = true;
    c->item = it;
    c->stamp = stamp;
    return &c->rows;
}

/* What this frame did not need is kept only up to a size. */
static void trim(struct ui *u)
{
    size_t cells = 0;
    for (size_t i = 0; i < UI_CACHE; i++) {
        struct ui_cached *c = &u->cache[i];
        if (!c->used || c->frame == u->frame)
            continue;
        cells += c->cells;
        if (cells <= UI_CELLS)
            continue;
        cells -= c->cells;
        rows_free(&c->rows);
        c->used = false;
    }
}

/* Moves a place (block, row) by rows; returns how far it could not go. */
static int walk(struct frame *f, size_t *item, int *row, int by)
{
    size_t last = f->m->n_items;
    while (by < 0) {
        if (*row > 0) {
            int step = *row < -by ? *row : -by;
            *row -= step;
            by += step;
        } else if (*item > 0) {
            --*item;
            *row = (int)block_rows(f, *item)->n;
        } else {
            return by;
        }
    }
    while (by > 0) {
        int n = (int)block_rows(f, *item)->n;
        int step = n - *row < by ? n - *row : by;
        *row += step;
        by -= step;
        if (*row >= n) {
            if (*item == last)
                return by;
            ++*item;
            *row = 0;
        }
    }
    return 0;
}

static int rows_after(struct frame *f, size_t item, int row, int most)
{
    int n = -row;
    for (size_t i = item; i <= f->m->n_items && n < most; i++)
        n += (int)block_rows(f, i)->n;
    return n;
}

/* Where the transcript begins: the anchor, or so that its end is at the bottom. */
static void start_of(struct frame *f, int h, size_t *item, int *row)
{
    struct ui *u = f->u;
    if (!u->follow) {
        *item = u->top_item <= f->m->n_items ? u->top_item : f->m->n_items;
        int n = (int)block_rows(f, *item)->n;
        *row = u->top_row <= n ? u->top_row : n;
        if (rows_after(f, *item, *row, h + 1) >= h)
            return;
        u->follow = true;
    }
    *item = f->m->n_items;
    *row = (int)block_rows(f, *item)->n;
    walk(f, item, row, -h);
}

static void transcript_draw(struct frame *f)
{
    const struct layout *l = &f->l;
    int h = l->rule_y - l->top, y = l->top, row;
    size_t item;
    if (h < 1)
        return;
    f->u->page = h;
    start_of(f, h, &item, &row);
    for (; item <= f->m->n_items && y < l->rule_y; item++, row = 0) {
        const struct rows *rs = block_rows(f, item);
        f->u->box_seen |= f->m->status == ST_APPROVAL && item == f->m->asking && row < (int)rs->n;
        for (; row < (int)rs->n && y < l->rule_y; row++)
            rows_put(f->grid, 0, y++, l->transcript_w, &rs->v[row]);
        if (row < (int)rs->n)
            break;
    }
    f->u->rows_below = item > f->m->n_items ? 0 : rows_after(f, item, row, BELOW_MAX);
}

/* ---- the frame ---- */

static void header_draw(struct frame *f)
{
    const struct layout *l = &f->l;
    const struct model *m = f->m;
    const char *title = m->coupling_title ? m->coupling_title : m->coupling;
    int end = l->w - 1, width = title ? (int)gate_width(title, strlen(title), GATE_EXACT) : 0;
    int x =
        grid_str(f->grid, 1, 0, l->w, (struct style){.fg = ROLE_VERDIGRIS, .attr = ATTR_BOLD}, "OFFICINA");
    if (title && !l->compact && width < l->w / 2) {
        end -= width;
        grid_text(f->grid, end, 0, l->w - 1, title, strlen(title), GATE_EXACT, style_of(ROLE_DIM));
        end -= 2;
    }
    x += l->compact ? 1 : 2;
    if (m->folder)
        grid_cut(f->grid, x, 0, end, m->folder, strlen(m->folder), GATE_EXACT, l->g->more,
                 style_of(ROLE_TEXT));
    snprintf(f->grid->title, sizeof f->grid->title, "Officina %.70s", m->folder ? m->folder : "");
    grid_fill(f->grid, 0, 1, l->w, l->g->h, style_of(ROLE_DIM));
    if (l->panel_w)
        grid_str(f->grid, l->transcript_w, 1, l->w, style_of(ROLE_DIM), l->g->top);
}

static int mark_frame(const struct frame *f)
{
    if (f->u->mark_gone)
        return MARK_FRAMES;
    if (!f->u->mark_since)
        return 0;
    uint64_t n = (f->now - f->u->mark_since) / MARK_FRAME_US;
    return n < MARK_FRAMES ? (int)n + 1 : MARK_FRAMES;
}

static void mark_step(struct frame *f)
{
    struct ui *u = f->u;
    if (u->mark_gone)
        return;
    bool empty = model_is_empty(f->m) && !u->edit.text.len;
    if (!empty && !u->mark_since) {
        u->mark_since = f->now;
        u->mark_gone = !f->caps->motion || f->m->n_items > 0;
    }
    bool second =
        f->m->n_items > 0 || u->edit.text.len > gate_after(text_str(&u->edit.text), u->edit.text.len,
                                                           0); /* a second key does not wait for it */
    if (u->mark_since && (second || f->now - u->mark_since >= MARK_FRAMES * MARK_FRAME_US))
        u->mark_gone = true;
}

/* In an ASCII frame nothing else is left, whatever a text holds. */
static void make_plain(struct grid *g)
{
    for (int i = 0; i < g->w * g->h; i++) {
        struct cell *c = &g->cell[i];
        uint32_t cp;
        if (!c->n || (unsigned char)c->bytes[0] < 0x80) {
            if (c->n > 1)
                c->n = 1;
            continue;
        }
        gate_decode(c->bytes, c->n, &cp);
        c->bytes[0] = glyphs_plain(cp);
        c->n = 1;
        if (c->width == 2) {
            c->width = 1;
            c[1] = (struct cell){.bytes = " ", .n = 1, .width = 1, .style = c->style};
        }
    }
}

static void too_small(struct frame *f)
{
    char words[64];
    int n = snprintf(words, sizeof words, "window too small: %d%s%d, needs %d%s%d", f->l.w, "×", f->l.h,
                     VIEW_MIN_W, "×", VIEW_MIN_H);
    int width = (int)gate_width(words, (size_t)n, GATE_RUNNING), x = (f->l.w - width) / 2;
    grid_str(f->grid, x > 0 ? x : 0, f->l.h / 2, f->l.w, style_of(ROLE_GOLD), words);
}

static struct frame frame_of(struct grid *g, const struct model *m, struct ui *u, const struct caps *caps,
                             uint64_t now, int w, int h)
{
    struct frame f = {.grid = g, .m = m, .u = u, .caps = caps, .now = now};
    layout_make(&f.l, m, u, caps, w, h);
    u->frame++;
    return f;
}

void view_draw(struct grid *g, const struct model *m, struct ui *u, const struct caps *caps, uint64_t now)
{
    struct frame f = frame_of(g, m, u, caps, now, g->w, g->h);
    grid_clear(g);
    u->laid = 0;
    u->box_seen = false;
    u->w = g->w;
    u->h = g->h;
    if (g->w < VIEW_MIN_W || g->h < VIEW_MIN_H) {
        too_small(&f);
    } else {
        header_draw(&f);
        mark_step(&f);
        if (!u->mark_gone && m->sheet.kind == SHEET_NONE && u->overlay == OVER_NONE && !u->menu.shown)
            mark_draw(g, f.l.top, f.l.rule_y, f.l.transcript_w, caps, mark_frame(&f));
        transcript_draw(&f); /* over what is left of the mark */
        if (f.l.panel_w)
            panel_draw(&f, f.l.transcript_w, f.l.panel_w, f.l.top, f.l.rule_y);
        sheet_draw(&f);
        overlay_draw(&f);
        if (m->sheet.kind != SHEET_NONE || u->overlay != OVER_NONE)
            u->box_seen = m->sheet.kind == SHEET_TRUST && u->overlay == OVER_NONE;
        floor_draw(&f);
        gauges_draw(&f);
        status_draw(&f);
    }
    trim(u);
    if (caps->glyphs == GLYPHS_ASCII)
        make_plain(g);
}

void view_scroll(struct ui *u, const struct model *m, const struct caps *caps, int by, uint64_t now)
{
    struct frame f = frame_of(NULL, m, u, caps, now, u->w, u->h);
    int h = f.l.rule_y - f.l.top, row;
    size_t item;
    if (h < 1)
        return;
    start_of(&f, h, &item, &row);
    if (u->follow && by < 0)
        u->seen = m->n_items;
    walk(&f, &item, &row, by);
    u->follow = false;
    u->top_item = item;
    u->top_row = row;
    start_of(&f, h, &item, &row); /* at the end following begins again */
}

void view_top(struct ui *u, const struct model *m)
{
    u->follow = false;
    u->top_item = 0;
    u->top_row = 0;
    u->seen = m->n_items;
}

void view_select(struct ui *u, const struct model *m, const struct caps *caps, int by, uint64_t now)
{
    struct frame f = frame_of(NULL, m, u, caps, now, u->w, u->h);
    size_t i = u->selected < m->n_items ? u->selected : by < 0 ? m->n_items : SIZE_MAX;
    do {
        i += (size_t)by;
        if (i >= m->n_items) {
            if (by > 0)
                u->selected = SIZE_MAX;
            return;
        }
    } while (!block_drawn(m, i));
    u->selected = i;
    int h = f.l.rule_y - f.l.top, row, need = (int)block_rows(&f, i)->n;
    size_t item;
    if (h < 1)
        return;
    start_of(&f, h, &item, &row);
    int above = 0;
    for (size_t b = item; b < i && above < h; b++)
        above += (int)block_rows(&f, b)->n - (b == item ? row : 0);
    if (i < item || (i == item && row > 0) || above + (need < h ? need : h) > h) {
        item = i;
        row = 0;
        if (need < h)
            walk(&f, &item, &row, -(h - need) / 2);
        u->follow = false;
        u->top_item = item;
        u->top_row = row;
        start_of(&f, h, &item, &row);
    }
}

size_t view_item_at(struct ui *u, const struct model *m, const struct caps *caps, int x, int y, uint64_t now)
{
    struct frame f = frame_of(NULL, m, u, caps, now, u->w, u->h);
    int h = f.l.rule_y - f.l.top, row;
    size_t item;
    if (h < 1 || y < f.l.top || y >= f.l.rule_y || x >= f.l.transcript_w)
        return SIZE_MAX;
    start_of(&f, h, &item, &row);
    walk(&f, &item, &row, y - f.l.top);
    return item < m->n_items ? item : SIZE_MAX;
}

uint64_t view_deadline(const struct model *m, const struct ui *u, const struct caps *caps, uint64_t now)
{
    uint64_t at = UINT64_MAX;
    if (!u->mark_gone && u->mark_since)
        at = now + MARK_FRAME_US;
    if (u->flash && u->flash_until < at)
        at = u->flash_until;
    for (size_t i = m->n_items; i-- > 0 && i + 32 > m->n_items;) {
        uint64_t folds = block_folds_at(&m->items[i]);
        if (folds > now && folds < at)
            at = folds;
    }
    bool counts = m->status != ST_READY && m->status != ST_INTERRUPT && m->status != ST_ERROR &&
                  m->status != ST_REWIND && m->status != ST_APPROVAL && m->status != ST_ANSWER &&
                  m->status != ST_READONLY && m->status != ST_OPENING;
    if (counts && now + 1000000 < at)
        at = now + 1000000 - now % 1000000;
    return at;
}
