#include "util/text.h"
#include "view/format.h"
#include "view/look.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_PASTE    6       /* rows of a user's text that are shown folded */
#define TAIL_ROWS     8       /* of a running tool */
#define THOUGHT_ROWS  3       /* of running reasoning */
#define OPEN_MAX      2000    /* rows of an unfolded result */
#define FOLD_AFTER_US 2000000 /* a tool that went well folds then */
#define TOOL_WIDTH    72

bool block_drawn(const struct model *m, size_t i)
{
    const struct item *it = &m->items[i];
    switch (it->kind) {
    case ITEM_NOTE: return false;
    case ITEM_REASONING:
    case ITEM_TEXT: return it->body.len > 0;
    case ITEM_CALL: return it->call != NULL;
    default: return true;
    }
}

static bool asks(const struct item *it)
{
    return it->kind == ITEM_CALL && it->call && it->call->state == CALL_ASKING;
}

bool block_gap(const struct model *m, size_t i, size_t before)
{
    if (before == SIZE_MAX)
        return false;
    const struct item *a = &m->items[before], *b = &m->items[i];
    if (b->kind == ITEM_CALL && a->kind == ITEM_CALL)
        return asks(a) || asks(b);
    if (b->kind == ITEM_TEXT && a->kind == ITEM_REASONING)
        return false;
    return !(a->kind == ITEM_NOTICE && b->kind == ITEM_NOTICE);
}

uint64_t block_folds_at(const struct item *it)
{
    if (it->kind != ITEM_CALL || !it->call || it->call->state != CALL_OK || !it->call->ended)
        return UINT64_MAX;
    return it->call->ended + FOLD_AFTER_US;
}

bool block_open_itself(const struct model *m, const struct item *it, uint64_t now)
{
    if (it->kind != ITEM_CALL || !it->call)
        return false;
    switch (it->call->state) {
    case CALL_RUNNING: return true;
    case CALL_FAILED: return it->live;
    case CALL_OK: return it->call->ended && it->call->started != it->call->ended && now < block_folds_at(it);
    default: return false;
    }
}

static void indent(struct row *r, const struct look *k)
{
    if (k->selected)
        row_str(r, style_of(ROLE_GOLD), k->g->v);
    row_pad(r, k->left, style_of(ROLE_TEXT));
}

static void put_indented(struct rows *out, const struct rows *in, size_t from, size_t n, int left,
                         const struct look *k)
{
    for (size_t i = from; i < in->n && i < from + n; i++) {
        struct row *r = rows_add(out);
        indent(r, k);
        row_pad(r, left, style_of(ROLE_TEXT));
        row_append(r, &in->v[i]);
    }
}

/* One row of the program's own words, wrapped at that column. */
static void put_words(struct rows *out, const struct look *k, int end, struct style mark_style,
                      const char *mark, const char *s, size_t n, struct style st)
{
    struct row flow = {0}, first = {0}, rest = {0};
    row_text(&flow, s, n, GATE_RUNNING, 4, st);
    indent(&first, k);
    row_str(&first, mark_style, mark);
    row_str(&first, mark_style, *mark ? " " : "");
    row_pad(&rest, first.width, st);
    rows_wrap(out, &flow, end, &first, &rest);
    row_free(&flow);
    row_free(&first);
    row_free(&rest);
}

/* ---- you ---- */

static void user_layout(struct rows *out, const struct model *m, const struct item *it, const struct look *k)
{
    struct row *head = rows_add(out);
    struct rows text = {0};
    struct row flow = {0};
    indent(head, k);
    row_str(head, (struct style){.fg = ROLE_GOLD, .attr = ATTR_BOLD}, "YOU");
    row_str(head, style_of(ROLE_DIM), k->compact ? " " : "  ");
    if (it->turn < m->n_turns)
        row_str(head, style_of(ROLE_DIM), m->turns[it->turn].key);
    if (k->w >= 88 && it->at) {
        int end = k->w < 100 ? k->w - 11 : k->w - 5;
        row_pad(head, end - 5, style_of(ROLE_TEXT));
        row_str(head, style_of(ROLE_DIM), fmt_hour(it->at).s);
    }
    row_text(&flow, text_str(&it->body), it->body.len, GATE_RUNNING, 4, style_of(ROLE_TEXT));
    rows_wrap(&text, &flow, k->text, NULL, NULL);
    size_t shown = k->open ? text.n : k->compact ? 1 : text.n > LONG_PASTE + 1 ? LONG_PASTE : text.n;
    if (k->compact && !k->open && text.n > 1) {
        row_flatten(&flow);
        row_cut(&flow, k->text, k->g->more);
        struct row *r = rows_add(out);
        indent(r, k);
        row_append(r, &flow);
    } else {
        put_indented(out, &text, 0, shown, k->left, k);
        if (shown < text.n) {
            char words[64];
            snprintf(words, sizeof words, "%zu more rows %s space opens", text.n - shown, k->g->dot);
            put_words(out, k, k->left + k->text, style_of(ROLE_DIM), k->g->folded, words, strlen(words),
                      style_of(ROLE_DIM));
        }
    }
    rows_free(&text);
    row_free(&flow);
}

/* ---- the model ---- */

static void stone_head(struct rows *out, const struct model *m, size_t i, const struct look *k)
{
    for (size_t b = i; b-- > 0;) {
        if (!block_drawn(m, b))
            continue;
        if (m->items[b].kind == ITEM_TEXT || m->items[b].kind == ITEM_REASONING)
            return;
        break;
    }
    struct row *r = rows_add(out);
    indent(r, k);
    row_str(r, (struct style){.fg = ROLE_VERDIGRIS, .attr = ATTR_BOLD}, "STONE");
}

static size_t answer_grow(struct rows *out, const struct item *it, const struct look *k,
                          struct block_keep *keep)
{
    struct row before = {0};
    struct markdown_look look = {
        .width = k->text, .wide = k->w - k->left - 3, .scroll = k->scroll, .glyphs = k->g};
    if (look.wide < look.width)
        look.wide = look.width;
    size_t first = markdown_grow(out, keep->base, text_str(&it->body), it->body.len, &look, &keep->text);
    indent(&before, k);
    for (size_t y = first; y < out->n; y++)
        row_prepend(&out->v[y], &before);
    row_free(&before);
    return first;
}

static void answer_layout(struct rows *out, const struct item *it, const struct look *k,
                          struct block_keep *keep)
{
    keep->base = out->n;
    answer_grow(out, it, k, keep);
    if (it->partial)
        put_words(out, k, k->left + k->text, style_of(ROLE_CINNABAR), "!",
                  "the answer broke off here; what had arrived is kept", 51, style_of(ROLE_DIM));
}

static void thought_head(struct rows *out, const struct item *it, const struct look *k)
{
    char words[96];
    bool running = !it->ended;
    uint64_t took = (running ? k->now : it->ended) - it->at;
    int n = snprintf(words, sizeof words, "%s %s", running ? "thinking" : "thought",
                     fmt_span(took < (1ull << 50) ? took : 0).s);
    if (it->tokens > 0)
        snprintf(words + n, sizeof words - (size_t)n, ", %" PRId64 " tokens", it->tokens);
    put_words(out, k, k->left + k->text, style_of(ROLE_DIM),
              k->open || running ? k->g->unfolded : k->g->folded, words, strlen(words),
              (struct style){.fg = ROLE_DIM});
}

/* One line of a thought, wrapped. */
static void thought_line(struct rows *out, const char *s, size_t n, const struct look *k)
{
    struct row flow = {0}, before = {0};
    indent(&before, k);
    row_pad(&before, before.width + 2, style_of(ROLE_TEXT));
    row_text(&flow, s, n, GATE_RUNNING, 4, (struct style){.fg = ROLE_DIM, .attr = ATTR_ITALIC});
    rows_wrap(out, &flow, before.width + k->text - 2, &before, &before);
    row_free(&flow);
    row_free(&before);
}

/* The last rows: lines from the end back until there are enough. */
static void thought_tail(struct rows *out, const char *s, size_t n, const struct look *k)
{
    size_t from = n;
    struct rows text = {0};
    while (from > 0 && text.n < THOUGHT_ROWS) {
        rows_clear(&text);
        for (from--; from > 0 && s[from - 1] != '\n'; from--)
            ;
        for (size_t at = from; at < n;) {
            const char *nl = memchr(s + at, '\n', n - at);
            size_t len = nl ? (size_t)(nl - s) - at : n - at;
            thought_line(&text, s + at, len, k);
            at += len + 1;
        }
    }
    for (size_t y = text.n > THOUGHT_ROWS ? text.n - THOUGHT_ROWS : 0; y < text.n; y++)
        row_append(rows_add(out), &text.v[y]);
    rows_free(&text);
}

static size_t thought_grow(struct rows *out, const struct item *it, const struct look *k,
                           struct block_keep *keep)
{
    const char *s = text_str(&it->body);
    size_t n = it->body.len, first = keep->base + keep->rows;
    rows_cut(out, first);
    if (!k->open) {
        if (!it->ended)
            thought_tail(out, s, n, k);
        return first;
    }
    for (size_t at = keep->at; at < n;) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - s) - at : n - at;
        thought_line(out, s + at, len, k);
        at += len + 1;
        if (nl) {
            keep->at = at;
            keep->rows = out->n - keep->base;
        }
    }
    return first;
}

static void thought_layout(struct rows *out, const struct item *it, const struct look *k,
                           struct block_keep *keep)
{
    keep->head = out->n;
    thought_head(out, it, k);
    keep->base = out->n;
    thought_grow(out, it, k, keep);
}

/* The seconds in its head go on, too. */
static void thought_tick(struct rows *out, const struct item *it, const struct look *k,
                         const struct block_keep *keep)
{
    struct rows head = {0};
    thought_head(&head, it, k);
    for (size_t y = 0; y < head.n && keep->head + y < keep->base; y++) {
        struct row old = out->v[keep->head + y];
        out->v[keep->head + y] = head.v[y];
        head.v[y] = old;
    }
    rows_free(&head);
}

/* ---- tools ---- */

static const char *call_glyph(const struct call *c, const struct glyph_set *g, enum role *role)
{
    switch (c->state) {
    case CALL_OK: *role = ROLE_VERDIGRIS; return g->ok;
    case CALL_FAILED: *role = ROLE_CINNABAR; return g->failed;
    case CALL_DENIED:
    case CALL_REFUSED:
    case CALL_CLOSED: *role = ROLE_CINNABAR; return g->refused;
    default: *role = ROLE_GOLD; return g->running;
    }
}

static void call_line(struct rows *out, const struct call *c, const struct look *k)
{
    struct row *r = rows_add(out), gist = {0};
    enum role role;
    bool told = false; /* why it did not run stands where the gist would */
    const char *glyph = call_glyph(c, k->g, &role), *name = c->name ? c->name : "?";
    int end = k->compact ? k->w - 6 : (k->left + TOOL_WIDTH < k->w - 4 ? k->left + TOOL_WIDTH : k->w - 4) - 3;
    struct word took = {""};
    if (c->state == CALL_RUNNING && c->started)
        took = fmt_clock(k->now > c->started ? k->now - c->started : 0);
    else if (c->started && c->ended >= c->started && c->ended)
        took = fmt_took(c->ended - c->started);
    indent(r, k);
    row_str(r, style_of(role), glyph);
    row_pad(r, k->left + (k->g->kind == GLYPHS_ASCII ? 3 : 2), style_of(ROLE_TEXT));
    row_text(r, name, strlen(name), GATE_EXACT, 4, style_of(ROLE_SILVER));
    row_str(r, style_of(ROLE_TEXT), " ");
    if (!k->compact)
        row_pad(r, k->left + 9 + (k->g->kind == GLYPHS_ASCII ? 1 : 0), style_of(ROLE_TEXT));
    if (c->reason && (c->state == CALL_DENIED || c->state == CALL_REFUSED || c->state == CALL_CLOSED)) {
        told = true;
        took = (struct word){""};
        if (c->state == CALL_DENIED && strncmp(c->reason, "denied", 6) != 0)
            row_str(&gist, style_of(ROLE_DIM), "denied: ");
        row_text(&gist, c->reason, strlen(c->reason), GATE_EXACT, 4, style_of(ROLE_DIM));
    } else if (c->gist) {
        row_text(&gist, c->gist, strlen(c->gist), GATE_EXACT, 4, style_of(ROLE_TEXT));
    } else if (c->state == CALL_ARRIVING) {
        row_printf(&gist, style_of(ROLE_DIM), "%zu bytes of arguments so far", c->args ? strlen(c->args) : 0);
    }
    row_flatten(&gist); /* a command of several lines shows its first ones */
    int room = end - (int)gate_width(took.s, strlen(took.s), GATE_RUNNING) - 1 - r->width;
    row_cut(&gist, room > 0 ? room : 0, k->g->more);
    row_append(r, &gist);
    row_pad(r, end - (int)gate_width(took.s, strlen(took.s), GATE_RUNNING), style_of(ROLE_TEXT));
    row_str(r, style_of(ROLE_DIM), took.s);
    if (!k->compact && !told && (c->result.len || c->tail.len || c->n_changes)) {
        row_str(r, style_of(ROLE_DIM), "  ");
        row_str(r, style_of(ROLE_DIM), k->open ? k->g->unfolded : k->g->folded);
    }
    row_free(&gist);
}

/* The last rows of what a program printed, or the first ones of a result. */
static void call_text(struct rows *out, const char *s, size_t n, bool tail, size_t most, const struct look *k)
{
    struct rows text = {0};
    struct row flow = {0};
    int left = k->compact ? k->left : k->left + 5;
    if (n && s[n - 1] == '\n')
        n--;
    if (n > 65536) { /* more than any screen shows */
        s += tail ? n - 65536 : 0;
        n = 65536;
    }
    row_text(&flow, s, n, GATE_RUNNING, 8, style_of(ROLE_DIM));
    rows_wrap(&text, &flow, k->w - left - 3, NULL, NULL);
    put_indented(out, &text, tail && text.n > most ? text.n - most : 0, most, left, k);
    if (!tail && text.n > most)
        put_words(out, k, k->left + k->text, style_of(ROLE_DIM), k->g->skip, "the rest is stored: /recall",
                  27, style_of(ROLE_DIM));
    rows_free(&text);
    row_free(&flow);
}

static void call_changes(struct rows *out, const struct call *c, const struct look *k)
{
    int left = k->left + 5;
    struct diff_look look = {.width = k->w - left - 3, .scroll = k->scroll, .wide_gap = true, .glyphs = k->g};
    for (size_t i = 0; i < c->n_changes; i++) {
        struct rows diff = {0};
        if (c->n_changes > 1)
            put_words(out, k, k->left + k->text, style_of(ROLE_DIM), k->g->dot, c->change[i].path,
                      strlen(c->change[i].path), style_of(ROLE_SILVER));
        diff_rows(&diff, &c->change[i], &look);
        put_indented(out, &diff, 0, OPEN_MAX, left, k);
        rows_free(&diff);
    }
}

static void call_layout(struct rows *out, const struct item *it, const struct look *k)
{
    const struct call *c = it->call;
    if (c->state == CALL_ASKING) {
        if (c->approval)
            approval_layout(out, it, k);
        else
            question_layout(out, it, k);
        return;
    }
    call_line(out, c, k);
    if (!k->open)
        return;
    if (c->n_changes)
        call_changes(out, c, k);
    else if (c->state == CALL_RUNNING)
        call_text(out, text_str(&c->tail), c->tail.len, true, k->compact ? 1 : TAIL_ROWS, k);
    else
        call_text(out, text_str(&c->result), c->result.len, false, OPEN_MAX, k);
}

/* ---- the rest ---- */

static void cut_layout(struct rows *out, const struct item *it, const struct look *k)
{
    struct row *r = rows_add(out);
    indent(r, k);
    row_printf(r, style_of(ROLE_DIM), "%s%s ", k->g->h, k->g->h);
    row_text(r, text_str(&it->body), it->body.len, GATE_RUNNING, 4, style_of(ROLE_GOLD));
    row_cut(r, k->right - 4, k->g->more);
    row_str(r, style_of(ROLE_DIM), " ");
    row_fill(r, k->right, k->g->h, style_of(ROLE_DIM));
}

static void notice_layout(struct rows *out, const struct item *it, const struct look *k)
{
    struct text t = {0};
    bool trouble = it->level == NOTICE_TROUBLE;
    int wide = k->w - 4, most = k->left + 100, end = wide < k->left + k->text ? k->left + k->text : wide;
    end = end > most ? most : end; /* a sentence stays on one row where there is room */
    text_add(&t, text_str(&it->body), it->body.len);
    if (it->times > 1)
        text_printf(&t, " (%d%s)", it->times, k->g->kind == GLYPHS_ASCII ? "x" : "×");
    put_words(out, k, end, style_of(trouble ? ROLE_CINNABAR : ROLE_DIM), trouble ? "!" : k->g->dot, t.s,
              t.len, style_of(trouble ? ROLE_TEXT : ROLE_DIM));
    text_free(&t);
}

void block_layout(struct rows *out, const struct model *m, size_t i, const struct look *k,
                  struct block_keep *keep)
{
    const struct item *it = &m->items[i];
    memset(keep, 0, sizeof *keep);
    keep->seen = it->body.len;
    if (!block_drawn(m, i))
        return;
    size_t from = out->n;
    switch (it->kind) {
    case ITEM_USER: user_layout(out, m, it, k); break;
    case ITEM_REASONING:
        stone_head(out, m, i, k);
        thought_layout(out, it, k, keep);
        break;
    case ITEM_TEXT:
        stone_head(out, m, i, k);
        answer_layout(out, it, k, keep);
        break;
    case ITEM_CALL: call_layout(out, it, k); break;
    case ITEM_CUT: cut_layout(out, it, k); break;
    case ITEM_NOTICE: notice_layout(out, it, k); break;
    case ITEM_NOTE: break;
    }
    if (!it->live) /* above a rewind's cut: readable, but no more part of the talk */
        for (size_t y = from; y < out->n; y++)
            row_ground(&out->v[y], 0, 0, ATTR_DIM);
}

size_t block_grow(struct rows *out, const struct model *m, size_t i, const struct look *k,
                  struct block_keep *keep)
{
    const struct item *it = &m->items[i];
    keep->seen = it->body.len;
    if (it->kind == ITEM_TEXT)
        return answer_grow(out, it, k, keep);
    thought_tick(out, it, k, keep);
    return thought_grow(out, it, k, keep);
}

char *block_text(const struct model *m, size_t i)
{
    const struct item *it = &m->items[i];
    struct text t = {0};
    if (it->kind != ITEM_CALL || !it->call) {
        text_add(&t, text_str(&it->body), it->body.len);
    } else {
        text_printf(&t, "%s %s\n", it->call->name ? it->call->name : "",
                    it->call->gist ? it->call->gist : "");
        text_add(&t, text_str(&it->call->result), it->call->result.len);
    }
    return text_take(&t);
}
