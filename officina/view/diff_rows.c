#include "util/text.h"
#include "view/code.h"
#include "view/diff.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct side { /* lexer of one side, which sees that side's lines only */
    struct lexer lx;
    size_t next;
};

struct draw {
    struct rows *out;
    const struct diff_look *look;
    const struct diff *d;
    struct side old, new;
    int digits, tab;
};

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Where the changed part of two lines begins and how long it is in each; whole words. */
static void changed_part(const struct diff_line *a, const struct diff_line *b, size_t *from, size_t *end_a,
                         size_t *end_b)
{
    size_t head = 0, tail = 0, least = a->n < b->n ? a->n : b->n;
    while (head < least && a->s[head] == b->s[head])
        head++;
    while (tail < least - head && a->s[a->n - 1 - tail] == b->s[b->n - 1 - tail])
        tail++;
    while (head > 0 && in_word(a->s[head - 1]))
        head--;
    while (tail > 0 && in_word(a->s[a->n - tail]))
        tail--;
    *from = head;
    *end_a = a->n - tail;
    *end_b = b->n - tail;
}

/* The code of one line with its colours, from column scroll on; bytes [from, end) are marked. */
static void put_line(struct draw *w, struct row *r, struct side *side, const struct diff_line *line,
                     size_t index, char kind, size_t from, size_t end, int width)
{
    struct row code = {0};
    while (side->next < index) { /* lines in a folded run still move the lexer */
        const struct diff_line *skipped = side == &w->old ? &w->d->old[side->next] : &w->d->new[side->next];
        struct row none = {0};
        code_line(&none, &side->lx, skipped->s, skipped->n, GATE_EXACT, w->tab);
        row_free(&none);
        side->next++;
    }
    side->next = index + 1;
    code_line(&code, &side->lx, line->s, line->n, GATE_EXACT, w->tab);
    for (size_t i = 0, at = 0; i < line->n && line->s[i] == '\t' && at < code.n; i++, at += (size_t)w->tab) {
        struct cell mark = {.width = 1, .style = style_of(ROLE_DIM)};
        const char *glyph = w->look->glyphs->arrow;
        mark.n = (uint8_t)(w->look->glyphs->kind == GLYPHS_ASCII ? 1 : strlen(glyph));
        memcpy(mark.bytes, w->look->glyphs->kind == GLYPHS_ASCII ? ">" : glyph, mark.n);
        code.c[at] = mark;
    }
    uint8_t bg = kind == '+' ? ROLE_ADDED : kind == '-' ? ROLE_REMOVED : ROLE_TEXT;
    row_ground(&code, 0, bg, 0);
    if (kind != ' ' && end > from) {
        struct row before = {0}, marked = {0};
        row_text(&before, line->s, from, GATE_EXACT, w->tab, style_of(ROLE_TEXT));
        row_text(&marked, line->s, end, GATE_EXACT, w->tab, style_of(ROLE_TEXT));
        for (size_t i = before.n; i < marked.n && i < code.n; i++)
            code.c[i].style.bg = kind == '+' ? ROLE_ADDED_WORD : ROLE_REMOVED_WORD;
        row_free(&before);
        row_free(&marked);
    }
    struct row part = {0};
    int shown = code.width > w->look->scroll ? code.width - w->look->scroll : 0;
    row_window(&part, &code, w->look->scroll, shown, style_of(ROLE_TEXT));
    row_cut(&part, width, w->look->glyphs->more);
    row_pad(&part, width, (struct style){.bg = bg});
    row_append(r, &part);
    row_free(&part);
    row_free(&code);
}

static void head_of_line(struct draw *w, struct row *r, size_t number, char kind)
{
    struct style st = style_of(kind == '+' ? ROLE_ADDED : kind == '-' ? ROLE_REMOVED : ROLE_DIM);
    row_printf(r, style_of(ROLE_DIM), "%*zu ", w->digits, number + 1);
    if (w->look->wide_gap)
        row_str(r, style_of(ROLE_DIM), " ");
    row_printf(r, st, "%c ", kind);
}

static void one_side(struct draw *w, struct row *r, const struct diff_op *op, const struct diff_op *twin,
                     int width)
{
    size_t from = 0, end_old = 0, end_new = 0;
    bool is_new = op->kind == '+';
    if (twin) {
        const struct diff_op *minus = is_new ? twin : op, *plus = is_new ? op : twin;
        changed_part(&w->d->old[minus->old_line], &w->d->new[plus->new_line], &from, &end_old, &end_new);
    }
    head_of_line(w, r, is_new || op->kind == ' ' ? op->new_line : op->old_line, op->kind);
    int room = width - w->digits - 3 - (w->look->wide_gap ? 1 : 0);
    if (op->kind == '-')
        put_line(w, r, &w->old, &w->d->old[op->old_line], op->old_line, '-', from, end_old, room);
    else
        put_line(w, r, &w->new, &w->d->new[op->new_line], op->new_line, op->kind, from, end_new, room);
}

static void folded(struct draw *w, size_t n)
{
    struct row *r = rows_add(w->out), half = {0};
    row_printf(&half, style_of(ROLE_DIM), "%s  %zu unchanged line%s", w->look->glyphs->skip, n,
               n == 1 ? "" : "s");
    if (!w->look->side) {
        row_append(r, &half);
    } else {
        int left = (w->look->width - 3) / 2;
        for (int i = 0; i < 2; i++) {
            row_append(r, &half);
            row_pad(r, i ? w->look->width : left, style_of(ROLE_TEXT));
            if (!i)
                row_printf(r, style_of(ROLE_DIM), " %s ", w->look->glyphs->v);
        }
    }
    row_free(&half);
}

static void unified_run(struct draw *w, const struct diff_op *op, size_t minus, size_t plus)
{
    for (size_t i = 0; i < minus + plus; i++) {
        const struct diff_op *twin = NULL;
        if (minus == plus)
            twin = i < minus ? &op[i + minus] : &op[i - minus];
        one_side(w, rows_add(w->out), &op[i], twin, w->look->width);
    }
}

static void side_run(struct draw *w, const struct diff_op *op, size_t minus, size_t plus)
{
    int left = (w->look->width - 3) / 2, right = w->look->width - 3 - left;
    size_t n = minus > plus ? minus : plus;
    for (size_t i = 0; i < n; i++) {
        struct row *r = rows_add(w->out);
        bool both = i < minus && i < plus;
        if (i < minus)
            one_side(w, r, &op[i], both ? &op[minus + i] : NULL, left);
        row_pad(r, left, style_of(ROLE_TEXT));
        row_printf(r, style_of(ROLE_DIM), " %s ", w->look->glyphs->v);
        if (i < plus)
            one_side(w, r, &op[minus + i], both ? &op[i] : NULL, right);
        row_pad(r, w->look->width, style_of(ROLE_TEXT));
    }
}

static void context_line(struct draw *w, const struct diff_op *op)
{
    struct row *r = rows_add(w->out);
    if (!w->look->side) {
        one_side(w, r, op, NULL, w->look->width);
        return;
    }
    int left = (w->look->width - 3) / 2, right = w->look->width - 3 - left;
    head_of_line(w, r, op->old_line, ' ');
    put_line(w, r, &w->old, &w->d->old[op->old_line], op->old_line, ' ', 0, 0, left - w->digits - 3);
    row_printf(r, style_of(ROLE_DIM), " %s ", w->look->glyphs->v);
    one_side(w, r, op, NULL, right);
}

/* How far op i is from the next and the last change; SIZE_MAX: there is none. */
static size_t to_change(const struct diff *d, size_t i, int by)
{
    size_t n = 0;
    for (size_t k = i;; k += (size_t)by, n++) {
        if (k >= d->n) /* also below 0 */
            return SIZE_MAX;
        if (d->op[k].kind != ' ')
            return n;
    }
}

static void walk(struct draw *w)
{
    const struct diff *d = w->d;
    for (size_t i = 0; i < d->n;) {
        if (d->op[i].kind == ' ') {
            size_t before = to_change(d, i, -1), run = 0;
            size_t ahead = to_change(d, i, 1);
            size_t skip = ahead == SIZE_MAX ? d->n - i : ahead;
            size_t keep_head = before == SIZE_MAX ? 0 : DIFF_CONTEXT,
                   keep_tail = ahead == SIZE_MAX ? 0 : DIFF_CONTEXT;
            for (run = 0; run < skip && (run < keep_head || skip <= keep_head + keep_tail + 1); run++)
                context_line(w, &d->op[i + run]);
            if (run < skip) {
                size_t hidden = skip - run - keep_tail;
                if (before != SIZE_MAX && ahead != SIZE_MAX)
                    folded(w, hidden);
                for (run += hidden; run < skip; run++)
                    context_line(w, &d->op[i + run]);
            }
            i += skip;
            continue;
        }
        size_t minus = 0, plus = 0;
        while (i + minus < d->n && d->op[i + minus].kind == '-')
            minus++;
        while (i + minus + plus < d->n && d->op[i + minus + plus].kind == '+')
            plus++;
        (w->look->side ? side_run : unified_run)(w, &d->op[i], minus, plus);
        i += minus + plus;
    }
}

static void remark(struct draw *w, const char *words)
{
    struct row *r = rows_add(w->out);
    row_text(r, words, strlen(words), GATE_EXACT, 4, style_of(ROLE_GOLD));
    row_cut(r, w->look->width, w->look->glyphs->more);
}

void diff_rows(struct rows *out, const struct file_change *c, const struct diff_look *look)
{
    struct diff d;
    const char *base = strrchr(c->path, '/');
    bool make = strncasecmp(base ? base + 1 : c->path, "makefile", 8) == 0;
    diff_make(&d, c->before, c->before_len, c->after, c->after_len);
    struct draw w = {.out = out, .look = look, .d = &d, .digits = 3, .tab = make ? 8 : 4};
    for (size_t most = d.n_old > d.n_new ? d.n_old : d.n_new; most >= 1000 && w.digits < 9; most /= 10)
        w.digits++;
    w.old.lx.lang = w.new.lx.lang = d.n < CODE_COLOUR_LINES ? lexer_of_path(c->path) : NULL;
    if (c->remark)
        remark(&w, c->remark);
    if (!c->before)
        remark(&w, "new file");
    else if (!c->after)
        remark(&w, "removed");
    walk(&w);
    if (c->before && c->after && d.n_old && d.n_new && d.old_ends != d.new_ends)
        remark(&w, d.new_ends ? "a newline at the end is added" : "no newline at the end any more");
    diff_free(&d);
}
