#include "util/text.h"
#include "view/look.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHORT_ROWS 12 /* of a call that are shown before Alt-V */

void box_layout(struct rows *out, const struct rows *in, int left, int wide, const char *title,
                enum role edge, const struct glyph_set *g)
{
    struct style st = {.fg = (uint8_t)edge};
    struct row *r = rows_add(out), cut = {0};
    row_pad(r, left, style_of(ROLE_TEXT));
    row_str(r, st, g->tl);
    row_str(&cut, (struct style){.fg = (uint8_t)edge, .attr = ATTR_BOLD}, title);
    row_cut(&cut, wide > 6 ? wide - 6 : 0, g->more);
    if (cut.n)
        row_str(r, st, " ");
    row_append(r, &cut);
    if (cut.n)
        row_str(r, st, " ");
    row_fill(r, left + wide - 1, g->h, st);
    row_str(r, st, g->tr);
    for (size_t i = 0; i < in->n; i++) {
        r = rows_add(out);
        row_pad(r, left, style_of(ROLE_TEXT));
        if (in->v[i].n && in->v[i].c[0].width == 0) { /* a rule within the box */
            row_str(r, st, g->left);
            row_fill(r, left + wide - 1, g->h, st);
            row_str(r, st, g->right);
            continue;
        }
        row_str(r, st, g->v);
        row_str(r, st, " ");
        row_clear(&cut);
        row_append(&cut, &in->v[i]);
        row_cut(&cut, wide - 4, g->more);
        row_append(r, &cut);
        row_pad(r, left + wide - 2, style_of(ROLE_TEXT));
        row_str(r, st, " ");
        row_str(r, st, g->v);
    }
    r = rows_add(out);
    row_pad(r, left, style_of(ROLE_TEXT));
    row_str(r, st, g->bl);
    row_fill(r, left + wide - 1, g->h, st);
    row_str(r, st, g->br);
    row_free(&cut);
}

/* The exact text, controls as codes; at most `most` rows of it. Returns how many were left out. */
static size_t exact(struct rows *out, const char *prefix, const char *s, size_t n, int width, size_t most)
{
    struct row flow = {0}, first = {0}, rest = {0};
    struct rows all = {0};
    for (size_t i = 0; i <= n;) {
        const char *nl = memchr(s + i, '\n', n - i);
        size_t len = nl ? (size_t)(nl - s) - i : n - i;
        if (i)
            row_text(&flow, "\n", 1, GATE_EXACT, 4, style_of(ROLE_TEXT));
        row_text(&flow, s + i, len, GATE_EXACT, 4, style_of(ROLE_TEXT));
        i += len + 1;
    }
    row_str(&first, style_of(ROLE_GOLD), prefix);
    row_pad(&rest, first.width, style_of(ROLE_TEXT));
    rows_wrap(&all, &flow, width, &first, &rest);
    size_t shown = all.n <= most ? all.n : most;
    for (size_t i = 0; i < shown; i++)
        row_append(rows_add(out), &all.v[i]);
    size_t hidden = all.n - shown;
    rows_free(&all);
    row_free(&flow);
    row_free(&first);
    row_free(&rest);
    return hidden;
}

static void parts_rows(struct rows *out, const struct approval *a, int width, const struct look *k)
{
    char head[48] = "";
    int column = 0;
    if (a->n_parts > 1)
        snprintf(head, sizeof head, "%zu commands: ", a->n_parts);
    for (size_t i = 0; i < a->n_parts; i++) {
        int w = (int)gate_width(a->parts[i].text, strlen(a->parts[i].text), GATE_EXACT);
        column = w > column ? w : column;
    }
    if (column > width / 2)
        column = width / 2;
    if (width < 60) { /* no room beside each other, and the reason must be read */
        for (size_t i = 0; i < a->n_parts; i++) {
            const struct approval_part *p = &a->parts[i];
            struct row *r = rows_add(out);
            row_text(r, p->text, strlen(p->text), GATE_EXACT, 4, style_of(ROLE_TEXT));
            row_cut(r, width, k->g->more);
            if (p->reason)
                row_printf(rows_add(out), style_of(p->allowed ? ROLE_VERDIGRIS : ROLE_CINNABAR), "  %s",
                           p->reason);
        }
        return;
    }
    for (size_t i = 0; i < a->n_parts; i++) {
        const struct approval_part *p = &a->parts[i];
        struct row *r = rows_add(out), text = {0};
        row_str(r, style_of(ROLE_DIM), i ? "" : head);
        row_pad(r, (int)strlen(head), style_of(ROLE_TEXT));
        row_text(&text, p->text, strlen(p->text), GATE_EXACT, 4, style_of(ROLE_TEXT));
        row_cut(&text, column, k->g->more);
        row_append(r, &text);
        row_pad(r, (int)strlen(head) + column + 3, style_of(ROLE_TEXT));
        if (p->reason)
            row_text(r, p->reason, strlen(p->reason), GATE_EXACT, 4,
                     style_of(p->allowed ? ROLE_VERDIGRIS : ROLE_CINNABAR));
        row_free(&text);
    }
}

static void changes_rows(struct rows *out, const struct approval *a, int width, bool side,
                         const struct look *k)
{
    struct diff_look look = {.width = width, .scroll = k->scroll, .side = side, .glyphs = k->g};
    for (size_t i = 0; i < a->n_changes; i++) {
        const struct file_change *c = &a->changes[i];
        if (i) {
            struct row *r = rows_add(out);
            if (side) {
                row_pad(r, (width - 3) / 2, style_of(ROLE_TEXT));
                row_printf(r, style_of(ROLE_DIM), " %s", k->g->v);
            }
        }
        struct row *r = rows_add(out), name = {0};
        row_text(&name, c->path, strlen(c->path), GATE_EXACT, 4,
                 (struct style){.fg = ROLE_SILVER, .attr = ATTR_BOLD});
        row_cut(&name, (side ? (width - 3) / 2 : width) - 12, k->g->more);
        row_append(r, &name);
        row_free(&name);
        if (a->n_changes > 1)
            row_printf(r, style_of(ROLE_DIM), "  (%zu of %zu)", i + 1, a->n_changes);
        if (side) {
            row_pad(r, (width - 3) / 2, style_of(ROLE_TEXT));
            row_printf(r, style_of(ROLE_DIM), " %s", k->g->v);
        }
        diff_rows(out, c, &look);
    }
}

/* More than 2,000 changed lines: the list of files first. */
static void change_list(struct rows *out, const struct approval *a)
{
    for (size_t i = 0; i < a->n_changes; i++) {
        struct row *r = rows_add(out);
        row_text(r, a->changes[i].path, strlen(a->changes[i].path), GATE_EXACT, 4, style_of(ROLE_SILVER));
        row_printf(r, style_of(ROLE_DIM), "  +%d −%d", a->changes[i].added, a->changes[i].removed);
    }
    row_str(rows_add(out), style_of(ROLE_DIM), "Alt-V shows every line");
}

static void keys_row(struct rows *out, const struct approval *a, bool wide, bool hidden, const struct look *k)
{
    struct row *r = rows_add(out);
    const char *gap = wide ? "    " : "  ";
    bool edits = a->n_changes > 0;
    struct style st = {.fg = ROLE_GOLD, .attr = ATTR_BOLD};
    row_str(r, st, k->compact ? "Alt-Y yes" : "Alt-Y once");
    if (a->rule_session && !k->compact)
        row_printf(r, st, "%s%s", gap, wide && edits ? "Alt-S edits for this session" : "Alt-S session");
    if (a->rule_project && !k->compact)
        row_printf(r, st, "%sAlt-P project rule", gap);
    row_printf(r, st, "%sAlt-N %s", gap,
               wide         ? "deny (reason goes to the model)"
               : k->compact ? "no"
                            : "deny");
    if (edits && wide)
        row_printf(r, st, "%sAlt-V %s", gap, k->unified ? "side by side" : "unified view");
    else if (!k->compact || hidden)
        row_printf(r, st, "%sAlt-V all", gap);
    if (wide)
        row_printf(r, st, "%sPgUp/PgDn scroll", gap);
}

static size_t edits_box(struct rows *in, const struct approval *a, int inner, bool side, const struct look *k)
{
    struct rows body = {0};
    int changed = 0;
    for (size_t i = 0; i < a->n_changes; i++)
        changed += a->changes[i].added + a->changes[i].removed;
    if (changed > 2000 && !k->whole)
        change_list(&body, a);
    else
        changes_rows(&body, a, inner, side, k);
    size_t room = (size_t)(k->rows > 8 ? k->rows - 5 : 4), from = (size_t)k->box_scroll;
    bool fits = body.n <= room || k->whole;
    if (fits || from > body.n - room)
        from = fits ? 0 : body.n - room;
    for (size_t i = from; i < body.n && (fits || i < from + room); i++)
        row_append(rows_add(in), &body.v[i]);
    size_t hidden = fits ? 0 : body.n - room;
    if (hidden)
        row_printf(rows_add(in), style_of(ROLE_DIM), "rows %zu to %zu of %zu", from + 1, from + room, body.n);
    rows_free(&body);
    return hidden;
}

void approval_layout(struct rows *out, const struct item *it, const struct look *k)
{
    const struct call *c = it->call;
    const struct approval *a = c->approval;
    struct rows in = {0};
    struct text title = {0};
    int wide = k->right - k->left, inner = wide - 4;
    bool spacious = inner >= 140, side = a->n_changes && inner >= 140 && !k->unified;
    size_t hidden = 0;
    int added = 0, removed = 0;
    text_printf(&title, "AWAITING APPROVAL %s %s", k->g->h, c->name ? c->name : "?");
    for (size_t i = 0; i < a->n_changes; i++) {
        added += a->changes[i].added;
        removed += a->changes[i].removed;
    }
    if (a->n_changes) {
        text_printf(&title, " %s %zu file%s  +%d %s%d", k->g->h, a->n_changes, a->n_changes == 1 ? "" : "s",
                    added, k->g->minus, removed);
        hidden = edits_box(&in, a, inner, side, k);
    } else {
        const char *what = a->what ? a->what : "";
        size_t most = k->whole ? 4000 : k->compact ? 2 : SHORT_ROWS;
        hidden =
            exact(&in, c->name && strcmp(c->name, "bash") == 0 ? "$ " : "", what, strlen(what), inner, most);
        if (hidden)
            row_printf(rows_add(&in), style_of(ROLE_GOLD), "%s %zu more rows: Alt-V", k->g->skip, hidden);
        if (a->n_parts && !k->compact)
            rows_add(&in);
        if (a->n_parts)
            parts_rows(&in, a, inner, k);
    }
    if (a->where && !spacious && !k->compact)
        row_text(rows_add(&in), a->where, strlen(a->where), GATE_EXACT, 4, style_of(ROLE_DIM));
    keys_row(&in, a, spacious, hidden > 0, k);
    box_layout(out, &in, k->left, wide, title.s, ROLE_GOLD, k->g);
    rows_free(&in);
    text_free(&title);
}

void question_layout(struct rows *out, const struct item *it, const struct look *k)
{
    const struct call *c = it->call;
    struct rows in = {0};
    struct row flow = {0};
    int wide = k->right - k->left;
    const char *q = c->question ? c->question : "";
    row_text(&flow, q, strlen(q), GATE_RUNNING, 4, style_of(ROLE_TEXT));
    rows_wrap(&in, &flow, wide - 4, NULL, NULL);
    for (size_t i = 0; i < c->n_options; i++) {
        struct row first = {0}, rest = {0};
        row_clear(&flow);
        row_text(&flow, c->options[i], strlen(c->options[i]), GATE_RUNNING, 4, style_of(ROLE_TEXT));
        row_printf(&first, style_of(ROLE_GOLD), "  %zu  ", i + 1);
        row_pad(&rest, first.width, style_of(ROLE_TEXT));
        rows_wrap(&in, &flow, wide - 4, &first, &rest);
        row_free(&first);
        row_free(&rest);
    }
    row_str(rows_add(&in), style_of(ROLE_DIM),
            c->n_options ? "write the answer, or its number, below; Enter sends it"
                         : "write the answer below; Enter sends it");
    box_layout(out, &in, k->left, wide, "AWAITING ANSWER", ROLE_GOLD, k->g);
    rows_free(&in);
    row_free(&flow);
}
