#include "view/format.h"
#include "view/gauge.h"
#include "view/view.h"

#include <stdio.h>
#include <string.h>

static bool link_is_live(const struct model *m)
{
    return m->engine.link == LINK_LIVE;
}

/* "41.2k/96.8k ⤓ 12k" behind the gauge. */
static void context_words(const struct frame *f, struct row *r, bool wide)
{
    const struct gauges *v = &f->m->gauges;
    const struct glyph_set *g = f->l.g;
    bool beyond = v->size_certified && v->used > v->size && v->size > 0;
    bool known = link_is_live(f->m) || f->m->engine.link == LINK_WARMING;
    row_str(r, style_of(ROLE_TEXT), " ");
    if (!known)
        row_str(r, style_of(ROLE_DIM), "?");
    else if (v->used < 0)
        row_str(r, style_of(ROLE_DIM), g->dash);
    else
        row_printf(r, style_of(beyond ? ROLE_GOLD : ROLE_TEXT), "%s%s", v->used_estimated ? "~" : "",
                   fmt_count(v->used).s);
    row_printf(r, style_of(ROLE_DIM), "/%s", v->size < 0 ? g->dash : fmt_count(v->size).s);
    if (beyond)
        row_str(r, style_of(ROLE_GOLD), " uncertified");
    else if (wide && v->size > 0)
        row_str(r, style_of(ROLE_DIM), v->size_certified ? " certified" : " uncertified");
    if (wide && f->m->engine.window > 0 && f->m->engine.window != v->size)
        row_printf(r, style_of(ROLE_DIM), " (window %s)", fmt_count(f->m->engine.window).s);
    if (known && f->m->engine.evicted >= 0 && !f->l.compact) {
        row_printf(r, style_of(ROLE_DIM), " %s ", g->evicted);
        row_printf(r, style_of(ROLE_TEXT), "%s%s", fmt_short(f->m->engine.evicted).s,
                   f->m->engine.evicted < 1000 ? "k" : "");
    }
}

/* Beyond the certified depth the physical window goes on in dim cells. */
static void context_gauge(const struct frame *f, struct row *r, int n, bool known)
{
    const struct gauges *v = &f->m->gauges;
    gauge_put(r, n, known ? v->used : -1, v->size, v->target, GAUGE_FULL_IS_WORRY, f->l.g);
}

static void decode_words(const struct frame *f, struct row *r)
{
    const struct gauges *v = &f->m->gauges;
    int cells = f->l.w >= 160 ? 8 : f->l.w >= 110 ? 6 : 4;
    row_str(r, style_of(ROLE_DIM), "decode ");
    if (v->decode < 0) {
        row_printf(r, style_of(ROLE_DIM), "  %s   tok/s", f->l.g->dash);
        return;
    }
    gauge_history(r, cells, v->speed, SPEED_SAMPLES, v->speed_max, f->l.g);
    row_printf(r, style_of(ROLE_TEXT), " %s", fmt_speed(v->decode).s);
    if (f->l.w >= 110)
        row_str(r, style_of(ROLE_DIM), " tok/s");
}

static void slots_words(const struct frame *f, struct row *r)
{
    const struct engine *e = &f->m->engine;
    int cells = f->l.w >= 160 ? 8 : f->l.w >= 110 ? 6 : 4;
    row_str(r, style_of(ROLE_DIM), "slots ");
    gauge_put(r, cells, e->slots_busy, e->slots, -1, GAUGE_FULL_IS_WORRY, f->l.g);
    if (e->slots_busy >= 0 && e->slots >= 0)
        row_printf(r, style_of(ROLE_TEXT), " %d/%d", e->slots_busy, e->slots);
    else
        row_printf(r, style_of(ROLE_DIM), " %s", f->l.g->dash);
    if (f->l.w >= 160)
        row_printf(r, style_of(ROLE_DIM), " %s boot %s %s", f->l.g->dot, f->l.g->sum,
                   fmt_count(e->boot_decoded).s);
}

static void put(struct frame *f, int x, const struct row *r, int end)
{
    if (x < end)
        rows_put(f->grid, x, f->l.gauge_y, end, r);
}

void gauges_draw(struct frame *f)
{
    const struct model *m = f->m;
    const struct gauges *v = &m->gauges;
    int w = f->l.w, cells = f->l.compact ? 8 : w >= 160 ? 40 : w >= 110 ? 24 : 12;
    struct row r = {0};
    bool known = link_is_live(m) || m->engine.link == LINK_WARMING;
    if (m->status == ST_READING && v->read_of > 0) {
        row_str(&r, style_of(ROLE_DIM), "read ");
        gauge_put(&r, cells, v->read, v->read_of, -1, GAUGE_PLAIN, f->l.g);
        row_printf(&r, style_of(ROLE_TEXT), " %s/%s", fmt_count(v->read).s, fmt_count(v->read_of).s);
        put(f, 1, &r, w);
        row_free(&r);
        return;
    }
    row_str(&r, style_of(ROLE_DIM), "ctx ");
    context_gauge(f, &r, cells, known);
    context_words(f, &r, w >= 160);
    put(f, 1, &r, w);
    bool room = !f->l.compact && link_is_live(m) && m->status != ST_WARMING;
    if (room) {
        row_clear(&r);
        slots_words(f, &r);
        int slots_x = w >= 110 ? w - 1 - r.width : w - 5 - (r.width > 14 ? r.width : 14);
        put(f, slots_x, &r, w);
        row_clear(&r);
        decode_words(f, &r);
        put(f, w >= 160 ? w / 2 : w >= 110 ? w * 8 / 15 : w / 2, &r, slots_x - 1);
    }
    row_free(&r);
}
