#include "view/format.h"
#include "view/gauge.h"
#include "view/view.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Where the next row of the panel goes. */
struct pen {
    struct frame *f;
    int x, w, y, bottom;
};

static void edge(struct pen *p)
{
    grid_str(p->f->grid, p->x, p->y, p->f->l.w, style_of(ROLE_DIM), p->f->l.g->v);
}

static void head(struct pen *p, const char *name)
{
    const struct glyph_set *g = p->f->l.g;
    int end = p->x + p->w;
    if (p->y >= p->bottom)
        return;
    int x = grid_str(p->f->grid, p->x, p->y, end, style_of(ROLE_DIM), g->left);
    x = grid_str(p->f->grid, x, p->y, end, style_of(ROLE_DIM), g->h);
    x = grid_str(p->f->grid, x, p->y, end, style_of(ROLE_DIM), " ");
    x = grid_str(p->f->grid, x, p->y, end, style_of(ROLE_SILVER), name);
    x = grid_str(p->f->grid, x, p->y, end, style_of(ROLE_DIM), " ");
    grid_fill(p->f->grid, x, p->y, end - x, g->h, style_of(ROLE_DIM));
    p->y++;
}

/* Puts a row and frees it. */
static void line(struct pen *p, struct row *r)
{
    if (p->y < p->bottom) {
        edge(p);
        row_cut(r, p->w - 3, p->f->l.g->more);
        rows_put(p->f->grid, p->x + 2, p->y, p->x + p->w, r);
        p->y++;
    }
    row_free(r);
}

static void words(struct pen *p, enum role role, const char *s)
{
    struct row r = {0};
    row_text(&r, s, strlen(s), GATE_EXACT, 4, style_of(role));
    line(p, &r);
}

static void coupling_block(struct pen *p)
{
    const struct model *m = p->f->m;
    const struct engine *e = &m->engine;
    struct row r = {0};
    head(p, "COUPLING");
    words(p, ROLE_TEXT, m->coupling_title ? m->coupling_title : m->coupling ? m->coupling : p->f->l.g->dash);
    words(p, ROLE_TEXT, e->model ? e->model : p->f->l.g->dash);
    if (e->slot >= 0 && e->slots >= 0)
        row_printf(&r, style_of(ROLE_DIM), "slot %d of %d", e->slot, e->slots);
    else if (e->slots >= 0)
        row_printf(&r, style_of(ROLE_DIM), "any of %d slots", e->slots);
    else
        row_str(&r, style_of(ROLE_DIM), p->f->l.g->dash);
    if (e->slot >= 0)
        row_str(&r, style_of(e->slot_warm ? ROLE_VERDIGRIS : ROLE_DIM), e->slot_warm ? " · warm" : " · cold");
    line(p, &r);
    if (e->save_why_not)
        words(p, ROLE_DIM, e->save_why_not);
}

static void engine_block(struct pen *p)
{
    const struct glyph_set *g = p->f->l.g;
    const struct gauges *v = &p->f->m->gauges;
    const struct engine *e = &p->f->m->engine;
    struct row r = {0};
    head(p, "ENGINE");
    row_str(&r, style_of(ROLE_DIM), "decode ");
    gauge_history(&r, 6, v->speed, SPEED_SAMPLES, v->speed_max, g);
    row_printf(&r, style_of(ROLE_TEXT), "  %s", fmt_speed(v->decode).s);
    row_str(&r, style_of(ROLE_DIM), " tok/s");
    line(p, &r);
    row_str(&r, style_of(ROLE_DIM), "read   ");
    bool reads = v->read_of > 0 && v->read >= 0;
    gauge_put(&r, 8,
              reads               ? v->read
              : v->read_last >= 0 ? 1
                                  : -1,
              reads ? v->read_of : 1, -1, GAUGE_PLAIN, g);
    row_printf(&r, style_of(ROLE_TEXT), "   %s", reads ? fmt_count(v->read).s : fmt_count(v->read_last).s);
    row_str(&r, style_of(ROLE_DIM), reads ? "" : v->read_last >= 0 ? " done" : "");
    line(p, &r);
    row_str(&r, style_of(ROLE_DIM), "slots  ");
    gauge_put(&r, 8, e->slots_busy, e->slots, -1, GAUGE_FULL_IS_WORRY, g);
    if (e->slots >= 0 && e->slots_busy >= 0)
        row_printf(&r, style_of(ROLE_TEXT), "      %d/%d", e->slots_busy, e->slots);
    line(p, &r);
    char total[48];
    snprintf(total, sizeof total, "%s tok", fmt_count(e->boot_decoded).s);
    row_printf(&r, style_of(ROLE_DIM), "boot %s decoded", g->sum);
    row_pad(&r, 29 - (int)gate_width(total, strlen(total), GATE_RUNNING), style_of(ROLE_TEXT));
    row_str(&r, style_of(ROLE_TEXT), total);
    line(p, &r);
}

static void context_block(struct pen *p)
{
    const struct glyph_set *g = p->f->l.g;
    const struct gauges *v = &p->f->m->gauges;
    const struct engine *e = &p->f->m->engine;
    struct row r = {0};
    head(p, "CONTEXT");
    gauge_put(&r, 20, v->used, v->size, v->target, GAUGE_FULL_IS_WORRY, g);
    if (v->used >= 0 && v->size > 0)
        row_printf(&r, style_of(ROLE_TEXT), "   %d%%", (int)((double)v->used * 100 / (double)v->size));
    line(p, &r);
    row_printf(&r, style_of(ROLE_TEXT), "%s%s / %s", v->used_estimated ? "~" : "", fmt_count(v->used).s,
               fmt_count(v->size).s);
    if (v->size > 0)
        row_str(&r, style_of(v->size_certified ? ROLE_DIM : ROLE_GOLD),
                v->size_certified ? " certified" : " uncertified");
    line(p, &r);
    row_printf(&r, style_of(ROLE_DIM), "window %s", fmt_count(e->window).s);
    row_pad(&r, 19, style_of(ROLE_TEXT));
    row_printf(&r, style_of(ROLE_DIM), "%s %s", g->evicted, fmt_short(e->evicted).s);
    line(p, &r);
    row_printf(&r, style_of(ROLE_DIM), "live %s · offloaded %s", fmt_count(v->live).s,
               fmt_short(v->offload).s);
    line(p, &r);
}

static void flow_line(struct pen *p, const char *a, int64_t x, const char *b, int64_t y)
{
    struct row r = {0};
    row_printf(&r, style_of(ROLE_DIM), "%-6s", a);
    row_pad(&r, 11 - (int)gate_width(fmt_short(x).s, strlen(fmt_short(x).s), GATE_RUNNING),
            style_of(ROLE_TEXT));
    row_printf(&r, style_of(ROLE_TEXT), "%s   ", fmt_short(x).s);
    row_printf(&r, style_of(ROLE_DIM), "%-8s", b);
    row_pad(&r, 26 - (int)gate_width(fmt_short(y).s, strlen(fmt_short(y).s), GATE_RUNNING),
            style_of(ROLE_TEXT));
    row_str(&r, style_of(ROLE_TEXT), fmt_short(y).s);
    line(p, &r);
}

static void flow_block(struct pen *p)
{
    const struct gauges *v = &p->f->m->gauges;
    struct row r = {0};
    head(p, "FLOW");
    flow_line(p, "in", v->in, "cached", v->cached);
    flow_line(p, "out", v->out, "reread", v->reread);
    if (v->spent >= 0) {
        row_printf(&r, style_of(ROLE_DIM), "spent");
        row_printf(&r, style_of(ROLE_TEXT), "  %.4f EUR", (double)v->spent / 1e6);
        line(p, &r);
    }
}

static void folder_block(struct pen *p)
{
    const struct model *m = p->f->m;
    struct row r = {0};
    head(p, "FOLDER");
    words(p, ROLE_TEXT, m->folder ? m->folder : p->f->l.g->dash);
    if (!m->branch)
        return;
    row_text(&r, m->branch, strlen(m->branch), GATE_EXACT, 4, style_of(ROLE_TEXT));
    if (m->git_new > 0 || m->git_changed > 0)
        row_str(&r, style_of(ROLE_TEXT), " ");
    if (m->git_new > 0)
        row_printf(&r, style_of(ROLE_ADDED), " +%d", m->git_new);
    if (m->git_changed > 0)
        row_printf(&r, style_of(ROLE_GOLD), " ~%d", m->git_changed);
    line(p, &r);
}

static void touched_block(struct pen *p)
{
    const struct model *m = p->f->m;
    if (!m->n_touched)
        return;
    head(p, "TOUCHED");
    for (size_t i = 0; i < m->n_touched && i < 8; i++) {
        const struct touched *t = &m->touched[i];
        struct row r = {0}, name = {0}, count = {0};
        row_printf(&r,
                   style_of(t->sign == '+'   ? ROLE_ADDED
                            : t->sign == '-' ? ROLE_REMOVED
                                             : ROLE_GOLD),
                   "%c ", t->sign);
        if (t->added)
            row_printf(&count, style_of(ROLE_ADDED), "+%d", t->added);
        if (t->removed)
            row_printf(&count, style_of(ROLE_REMOVED), "%s%s%d", t->added ? " " : "", p->f->l.g->minus,
                       t->removed);
        row_text(&name, t->path, strlen(t->path), GATE_EXACT, 4, style_of(ROLE_TEXT));
        row_cut(&name, p->w - 5 - count.width - 1, p->f->l.g->more);
        row_append(&r, &name);
        row_pad(&r, 26 - count.width, style_of(ROLE_TEXT));
        if (r.width == name.width + 2)
            row_str(&r, style_of(ROLE_TEXT), " ");
        row_append(&r, &count);
        row_free(&name);
        row_free(&count);
        line(p, &r);
    }
}

static void tasks_block(struct pen *p)
{
    const struct model *m = p->f->m;
    const struct glyph_set *g = p->f->l.g;
    if (!m->n_tasks)
        return;
    head(p, "TASKS");
    for (size_t i = 0; i < m->n_tasks; i++) {
        const struct task *t = &m->tasks[i];
        struct row r = {0};
        row_printf(&r,
                   style_of(t->state == TASK_DONE    ? ROLE_VERDIGRIS
                            : t->state == TASK_DOING ? ROLE_GOLD
                                                     : ROLE_DIM),
                   "%s ",
                   t->state == TASK_DONE    ? g->done
                   : t->state == TASK_DOING ? g->doing
                                            : g->open);
        row_text(&r, t->text, strlen(t->text), GATE_EXACT, 4,
                 style_of(t->state == TASK_DONE ? ROLE_DIM : ROLE_TEXT));
        line(p, &r);
    }
}

static void jobs_block(struct pen *p)
{
    const struct model *m = p->f->m;
    if (!m->n_jobs || p->w < 40)
        return;
    head(p, "JOBS");
    for (size_t i = 0; i < m->n_jobs; i++) {
        const struct job *j = &m->jobs[i];
        struct row r = {0};
        row_printf(&r, style_of(ROLE_DIM), "%" PRId64 " ", j->id);
        row_text(&r, j->command, strlen(j->command), GATE_EXACT, 4, style_of(ROLE_TEXT));
        row_cut(&r, 20, p->f->l.g->more);
        row_pad(&r, 21, style_of(ROLE_TEXT));
        if (!j->ended)
            row_str(&r, style_of(ROLE_GOLD), "running");
        else
            row_printf(&r, style_of(j->exit ? ROLE_CINNABAR : ROLE_VERDIGRIS), "exit %d", j->exit);
        line(p, &r);
        uint64_t end = j->ended ? j->ended : p->f->now;
        row_printf(&r, style_of(ROLE_DIM), "  %s  %" PRId64 " lines",
                   fmt_clock(end > j->started ? end - j->started : 0).s, j->lines);
        line(p, &r);
    }
}

static void servers_block(struct pen *p)
{
    const struct model *m = p->f->m;
    if (!m->n_servers)
        return;
    head(p, "EXTENSIONS");
    for (size_t i = 0; i < m->n_servers; i++) {
        const struct server *s = &m->servers[i];
        struct row r = {0};
        row_text(&r, s->name, strlen(s->name), GATE_EXACT, 4, style_of(ROLE_TEXT));
        row_printf(&r, style_of(s->ok ? ROLE_VERDIGRIS : ROLE_CINNABAR), " %s ",
                   s->ok ? p->f->l.g->ok : p->f->l.g->failed);
        if (s->word)
            row_text(&r, s->word, strlen(s->word), GATE_EXACT, 4, style_of(ROLE_DIM));
        line(p, &r);
    }
}

static void sections(struct pen *p)
{
    const struct model *m = p->f->m;
    for (size_t i = 0; i < m->n_sections; i++) {
        const struct section *s = &m->sections[i];
        char name[24];
        size_t n = 0;
        for (const char *c = strncmp(s->name, "ext:", 4) == 0 ? s->name + 4 : s->name;
             *c && n + 1 < sizeof name; c++)
            name[n++] = (char)toupper((unsigned char)*c);
        name[n] = '\0';
        head(p, name);
        for (size_t k = 0; k < s->n; k++)
            words(p, ROLE_TEXT, s->lines[k]);
    }
}

void panel_draw(struct frame *f, int x, int w, int top, int bottom)
{
    struct pen p = {f, x, w, top, bottom};
    for (int y = top; y < bottom; y++)
        grid_fill(f->grid, x, y, w, " ", style_of(ROLE_TEXT));
    coupling_block(&p);
    engine_block(&p);
    context_block(&p);
    flow_block(&p);
    folder_block(&p);
    touched_block(&p);
    tasks_block(&p);
    jobs_block(&p);
    sections(&p);
    servers_block(&p);
    for (; p.y < p.bottom; p.y++)
        edge(&p);
}
