#include "util/text.h"
#include "view/format.h"
#include "view/view.h"

#include <stdio.h>
#include <string.h>

static uint64_t since(uint64_t now, uint64_t then)
{
    return then && now > then ? now - then : 0;
}

static uint64_t until(uint64_t now, uint64_t then)
{
    return then > now ? then - now : 0;
}

static const char *turn_key(const struct model *m)
{
    return m->n_turns ? m->turns[m->n_turns - 1].key : "t0000";
}

/* What follows the word at once. */
static void left_words(const struct frame *f, struct text *t)
{
    const struct model *m = f->m;
    const struct gauges *g = &m->gauges;
    const struct call *c = m->running < m->n_items ? m->items[m->running].call : NULL;
    text_puts(t, status_word(m->status));
    switch (m->status) {
    case ST_READING:
        if (g->read_of > 0)
            text_printf(t, " %d%%  %s of %s",
                        (int)((double)(g->read < 0 ? 0 : g->read) * 100 / (double)g->read_of +
                              (g->read < g->read_of ? 0.49 : 0)),
                        fmt_count(g->read).s, fmt_count(g->read_of).s);
        else
            text_printf(t, "  %s", fmt_span(since(f->now, m->status_since)).s);
        break;
    case ST_SENDING:
    case ST_THINKING:
    case ST_WRITING: text_printf(t, "  %s", fmt_span(since(f->now, m->status_since)).s); break;
    case ST_RUNNING:
        if (c)
            text_printf(t, " %.24s %s", c->name ? c->name : "", fmt_clock(since(f->now, c->started)).s);
        break;
    case ST_AWAY: text_printf(t, "  retry in %s", fmt_span(until(f->now, m->engine.retry_at)).s); break;
    case ST_LOADING: text_printf(t, "  %s", fmt_span(since(f->now, m->status_since)).s); break;
    case ST_BOUNCING:
        if (m->engine.bounce_eta >= 0)
            text_printf(t, "  about %.0f s", m->engine.bounce_eta);
        else
            text_printf(t, "  %s", fmt_span(since(f->now, m->status_since)).s);
        break;
    case ST_WARMING: text_printf(t, " %s", m->engine.warming ? m->engine.warming : ""); break;
    case ST_ERROR:
    case ST_OFFLOAD:
    case ST_DISTIL:
    case ST_FULL:
    case ST_CAP:
        if (m->status_text)
            text_printf(t, "  %s", m->status_text);
        break;
    default: break;
    }
}

/* "131 tok/s · about 2 min left". */
static void reading_words(const struct frame *f, struct text *t)
{
    const struct gauges *g = &f->m->gauges;
    if (g->read_speed > 0) {
        text_printf(t, "%.0f tok/s · ", g->read_speed);
        if (g->read_of > g->read)
            text_printf(t, "about %s left · ",
                        fmt_span((uint64_t)((double)(g->read_of - g->read) / g->read_speed * 1e6)).s);
    }
    text_puts(t, "Esc stops");
}

static void ready_words(const struct frame *f, struct text *t)
{
    const struct engine *e = &f->m->engine;
    text_printf(t, "%s", e->model ? e->model : f->l.g->dash);
    if (e->slot >= 0)
        text_printf(t, " · slot %d", e->slot);
    if (e->boot_decoded >= 0) {
        struct word w = fmt_count(e->boot_decoded);
        if (f->l.w < 110 && e->boot_decoded >= 1000000)
            snprintf(w.s, sizeof w.s, "%.1fM", (double)(e->boot_decoded / 100000) / 10);
        text_printf(t, " · boot %s %s", f->l.g->sum, w.s);
    }
}

/* What stands at the right end: numbers and the way out. */
static void right_words(const struct frame *f, struct text *t)
{
    const struct model *m = f->m;
    bool wide = f->l.w >= 110;
    switch (m->status) {
    case ST_READY: ready_words(f, t); break;
    case ST_READING: reading_words(f, t); break;
    case ST_SENDING:
    case ST_WRITING: text_printf(t, "%s%s · Esc stops", turn_key(m), m->gauges.decode >= 0 ? "" : ""); break;
    case ST_THINKING:
        text_printf(t, "%sEsc stops", m->engine.can_end_think ? "Alt-E ends the thinking · " : "");
        break;
    case ST_RUNNING:
        text_printf(t, "%s · queued %zu", turn_key(m), m->n_queue);
        text_puts(t, wide ? " · F1 help" : " · Esc stops");
        break;
    case ST_APPROVAL:
        text_printf(t, "%zu waiting · %s", m->n_asking ? m->n_asking : 1, turn_key(m));
        if (f->l.w >= 160 && m->sandbox)
            text_printf(t, " · sandbox %s", m->sandbox);
        if (f->l.w >= 160)
            text_puts(t, " · F1 help");
        break;
    case ST_ANSWER: text_printf(t, "%s · Esc refuses", turn_key(m)); break;
    case ST_INTERRUPT: text_printf(t, "%s · what had arrived is kept", turn_key(m)); break;
    case ST_ERROR: text_printf(t, "%s · Enter tries again", turn_key(m)); break;
    case ST_AWAY:
        if (m->engine.last_seen)
            text_printf(t, "last seen %s ago · ", fmt_span(since(f->now, m->engine.last_seen)).s);
        else
            text_puts(t, "never seen · ");
        text_puts(t, "Alt-R now · /couple");
        break;
    case ST_LOADING: text_puts(t, "the engine loads its model · it goes on by itself"); break;
    case ST_BOUNCING: text_puts(t, "planned restart · conversation kept"); break;
    case ST_WARMING:
        if (m->gauges.used >= 0)
            text_printf(t, "restoring %s tokens from checkpoint", fmt_count(m->gauges.used).s);
        else
            text_puts(t, "restoring from checkpoint");
        break;
    case ST_SLOT: text_puts(t, "another tenant has the slot · Esc"); break;
    case ST_OFFLOAD:
    case ST_DISTIL: text_puts(t, "Esc puts it off"); break;
    case ST_FULL: text_puts(t, "/rewind · /new · /drop"); break;
    case ST_CAP: text_puts(t, "/couple · /cap"); break;
    case ST_REWIND: text_puts(t, "the old branch is kept · /redo"); break;
    case ST_READONLY: text_puts(t, "/fork goes on in a copy"); break;
    case ST_OPENING: text_puts(t, "what you type is kept"); break;
    }
}

static enum role word_role(enum status s)
{
    switch (s) {
    case ST_READY: return ROLE_VERDIGRIS;
    case ST_ERROR:
    case ST_AWAY:
    case ST_FULL:
    case ST_CAP: return ROLE_CINNABAR;
    default: return ROLE_GOLD;
    }
}

void status_draw(struct frame *f)
{
    struct text left = {0}, right = {0};
    int y = f->l.status_y, w = f->l.w;
    left_words(f, &left);
    right_words(f, &right);
    size_t word = strlen(status_word(f->m->status));
    int x = grid_text(f->grid, 1, y, w, left.s, word, GATE_RUNNING,
                      (struct style){.fg = (uint8_t)word_role(f->m->status), .attr = ATTR_BOLD});
    int width = (int)gate_width(text_str(&right), right.len, GATE_RUNNING);
    int rest = (int)gate_width(left.s + word, left.len - word, GATE_RUNNING);
    bool both = x + rest + 2 + width < w;
    if (!both && width < w / 3 && !f->l.compact) { /* the way out stays; the sentence before it gives way */
        x = grid_cut(f->grid, x, y, w - 3 - width, left.s + word, left.len - word, GATE_EXACT, f->l.g->more,
                     style_of(ROLE_TEXT));
        both = true;
    } else {
        x = grid_cut(f->grid, x, y, w - 1, left.s + word, left.len - word, GATE_EXACT, f->l.g->more,
                     style_of(ROLE_TEXT));
    }
    if (both)
        grid_text(f->grid, w - 1 - width, y, w, right.s, right.len, GATE_RUNNING, style_of(ROLE_DIM));
    else if (w - 1 - x - 2 > 12 && !f->l.compact) /* the tail of the hints is the way out: keep that */
        grid_cut(f->grid, x + 2, y, w - 1, right.s, right.len, GATE_RUNNING, f->l.g->more,
                 style_of(ROLE_DIM));
    text_free(&left);
    text_free(&right);
}
