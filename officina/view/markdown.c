#include "view/markdown.h"
#include "util/text.h"
#include "view/fence.h"
#include "view/pipes.h"

#include <md4c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 24 /* nested quotes and lists that are drawn; deeper ones keep the last indent */
#define COLS_MAX  64 /* of a table; what a longer row has more is dropped */

struct container {
    MD_BLOCKTYPE type; /* QUOTE, LI */
    int indent;
    char marker[16];
    bool first; /* its marker is still to be drawn */
};

struct list {
    bool ordered, tight;
    unsigned next;
    MD_CHAR mark;
};

struct md {
    struct rows *out;
    size_t base; /* rows that were there before this part */
    bool behind; /* other text stands before it */
    const struct markdown_look *look;
    struct container box[DEPTH_MAX];
    size_t depth, too_deep;
    struct list list[DEPTH_MAX];
    size_t lists, too_many;
    struct row flow;
    bool gap; /* a blank row before what comes next */
    int strong, em, code, del, link, heading;
    struct text href[4];
    struct text code_text, lang;
    bool in_code;
    struct row *table; /* cells, row by row */
    size_t n_table, cap_table;
    unsigned cols;
    bool in_cell;
};

static struct style style_now(const struct md *m)
{
    struct style st = style_of(m->code ? ROLE_STRING : m->heading || m->link ? ROLE_SILVER : ROLE_TEXT);
    if (m->strong || m->heading)
        st.attr |= ATTR_BOLD;
    if (m->em)
        st.attr |= ATTR_ITALIC;
    if (m->link)
        st.attr |= ATTR_UNDERLINE;
    if (m->del)
        st.fg = ROLE_DIM;
    return st;
}

/* What stands before a row: bars of quotes, indents and markers of lists. The marker is used up. */
static void prefix(struct md *m, struct row *first, struct row *rest)
{
    for (size_t i = 0; i < m->depth; i++) {
        struct container *c = &m->box[i];
        if (c->type == MD_BLOCK_QUOTE) {
            row_printf(first, style_of(ROLE_DIM), "%s ", m->look->glyphs->v);
            row_printf(rest, style_of(ROLE_DIM), "%s ", m->look->glyphs->v);
            continue;
        }
        int at = rest->width + c->indent;
        if (c->first) {
            row_pad(first, at - (int)gate_width(c->marker, strlen(c->marker), GATE_RUNNING),
                    style_of(ROLE_TEXT));
            row_str(first, style_of(ROLE_TEXT), c->marker);
        }
        row_pad(first, at, style_of(ROLE_TEXT));
        row_pad(rest, at, style_of(ROLE_TEXT));
        c->first = false;
    }
}

static void gap(struct md *m)
{
    if (m->gap && (m->behind || m->out->n > m->base)) {
        struct row *r = rows_add(m->out);
        for (size_t i = 0; i < m->depth && m->box[i].type == MD_BLOCK_QUOTE; i++)
            row_printf(r, style_of(ROLE_DIM), "%s ", m->look->glyphs->v);
    }
    m->gap = false;
}

static void flush(struct md *m)
{
    struct row first = {0}, rest = {0};
    if (!m->flow.n || m->in_cell)
        return;
    gap(m);
    prefix(m, &first, &rest);
    rows_wrap(m->out, &m->flow, m->look->width, &first, &rest);
    row_clear(&m->flow);
    row_free(&first);
    row_free(&rest);
}

static void push_box(struct md *m, MD_BLOCKTYPE type, int indent, const char *marker)
{
    if (m->depth == DEPTH_MAX) {
        m->too_deep++;
        return;
    }
    struct container *c = &m->box[m->depth++];
    *c = (struct container){.type = type, .indent = indent, .first = true};
    snprintf(c->marker, sizeof c->marker, "%s", marker);
}

static void pop_box(struct md *m)
{
    if (m->too_deep)
        m->too_deep--;
    else if (m->depth)
        m->depth--;
}

static void push_list(struct md *m, bool ordered, bool tight, unsigned start, MD_CHAR mark)
{
    flush(m);
    if (m->lists && m->list[m->lists - 1].tight)
        m->gap = false;
    if (m->lists == DEPTH_MAX)
        m->too_many++;
    else
        m->list[m->lists++] = (struct list){ordered, tight, start, mark};
}

static void pop_list(struct md *m)
{
    if (m->too_many)
        m->too_many--;
    else if (m->lists)
        m->lists--;
    m->gap = !m->lists || !m->list[m->lists - 1].tight;
}

static void enter_item(struct md *m, const MD_BLOCK_LI_DETAIL *d)
{
    char marker[16];
    struct list *l = m->lists ? &m->list[m->lists - 1] : NULL;
    if (l && l->ordered)
        snprintf(marker, sizeof marker, "%u%c ", l->next++, l->mark == ')' ? ')' : '.');
    else if (d->is_task)
        snprintf(marker, sizeof marker, "%s ",
                 d->task_mark == ' ' ? m->look->glyphs->open : m->look->glyphs->done);
    else
        snprintf(marker, sizeof marker, "%s ", m->look->glyphs->bullet);
    int width = (int)gate_width(marker, strlen(marker), GATE_RUNNING);
    push_box(m, MD_BLOCK_LI, 2 + width, marker);
}

static void leave_item(struct md *m)
{
    if (m->depth && m->box[m->depth - 1].first && !m->too_deep &&
        !m->flow.n) { /* an empty item is its marker */
        struct row first = {0}, rest = {0};
        gap(m);
        prefix(m, &first, &rest);
        row_append(rows_add(m->out), &first);
        row_free(&first);
        row_free(&rest);
    }
    flush(m);
    pop_box(m);
    m->gap = m->lists && !m->list[m->lists - 1].tight;
}

static void put_code(struct md *m)
{
    struct row first = {0}, rest = {0};
    struct rows box = {0};
    gap(m);
    prefix(m, &first, &rest);
    int wide = m->look->wide - rest.width - 2;
    code_box(&box, m->code_text.s, m->code_text.len, text_str(&m->lang), m->lang.len, wide > 8 ? wide : 8,
             m->look->scroll, m->look->glyphs);
    for (size_t i = 0; i < box.n; i++) {
        struct row *r = rows_add(m->out);
        row_append(r, i ? &rest : &first);
        row_pad(r, rest.width + 2, style_of(ROLE_TEXT));
        row_append(r, &box.v[i]);
    }
    rows_free(&box);
    row_free(&first);
    row_free(&rest);
    text_clear(&m->code_text);
    text_clear(&m->lang);
}

static void rule(struct md *m)
{
    struct row first = {0}, rest = {0};
    gap(m);
    prefix(m, &first, &rest);
    struct row *r = rows_add(m->out);
    row_append(r, &first);
    row_fill(r, m->look->width < 40 ? m->look->width : 40, m->look->glyphs->h, style_of(ROLE_DIM));
    row_free(&first);
    row_free(&rest);
    m->gap = true;
}

/* ---- tables ---- */

static struct row *table_cell(struct md *m, size_t row, unsigned col)
{
    size_t i = row * m->cols + col;
    return i < m->n_table ? &m->table[i] : NULL;
}

static void table_drawn(struct md *m, const int *width)
{
    size_t n = m->cols ? m->n_table / m->cols : 0;
    for (size_t y = 0; y < n; y++) {
        struct row *r = rows_add(m->out);
        for (unsigned x = 0; x < m->cols; x++) {
            int end = r->width + width[x];
            if (x)
                row_printf(r, style_of(ROLE_DIM), " %s ", m->look->glyphs->v), end += 3;
            row_append(r, table_cell(m, y, x));
            row_pad(r, end, style_of(ROLE_TEXT));
        }
        if (y > 0)
            continue;
        r = rows_add(m->out);
        for (unsigned x = 0; x < m->cols; x++)
            row_fill(r, r->width + width[x] + (x ? 3 : 0), m->look->glyphs->h, style_of(ROLE_DIM));
    }
}

static void table_as_lines(struct md *m)
{
    size_t n = m->cols ? m->n_table / m->cols : 0;
    for (size_t y = 1; y < n; y++) {
        for (unsigned x = 0; x < m->cols; x++) {
            struct row line = {0}, deeper = {0};
            const struct row *head = table_cell(m, 0, x);
            if (head->n) {
                row_append(&line, head);
                row_str(&line, style_of(ROLE_DIM), ": ");
            }
            row_append(&line, table_cell(m, y, x));
            row_pad(&deeper, 2, style_of(ROLE_TEXT));
            rows_wrap(m->out, &line, m->look->width, NULL, &deeper);
            row_free(&line);
            row_free(&deeper);
        }
        if (y + 1 < n)
            rows_add(m->out);
    }
}

static void put_table(struct md *m)
{
    int width[COLS_MAX] = {0}, total = m->cols ? ((int)m->cols - 1) * 3 : 0;
    gap(m);
    for (size_t i = 0; i < m->n_table; i++)
        if (m->table[i].width > width[i % m->cols])
            width[i % m->cols] = m->table[i].width;
    for (unsigned x = 0; x < m->cols; x++)
        total += width[x];
    if (total <= m->look->width)
        table_drawn(m, width);
    else
        table_as_lines(m);
    for (size_t i = 0; i < m->n_table; i++)
        row_free(&m->table[i]);
    m->n_table = 0;
    m->gap = true;
}

/* ---- what md4c calls ---- */

static int enter_block(MD_BLOCKTYPE type, void *detail, void *arg)
{
    struct md *m = arg;
    switch (type) {
    case MD_BLOCK_QUOTE:
        flush(m);
        gap(m);
        push_box(m, type, 2, "");
        break;
    case MD_BLOCK_UL: push_list(m, false, ((MD_BLOCK_UL_DETAIL *)detail)->is_tight, 0, 0); break;
    case MD_BLOCK_OL: {
        MD_BLOCK_OL_DETAIL *d = detail;
        push_list(m, true, d->is_tight, d->start, d->mark_delimiter);
        break;
    }
    case MD_BLOCK_LI: enter_item(m, detail); break;
    case MD_BLOCK_HR:
        flush(m);
        rule(m);
        break;
    case MD_BLOCK_H: m->heading = 1; break;
    case MD_BLOCK_CODE: {
        MD_BLOCK_CODE_DETAIL *d = detail;
        flush(m);
        text_clear(&m->lang);
        if (d->lang.text)
            text_add(&m->lang, d->lang.text, d->lang.size);
        m->in_code = true;
        break;
    }
    default: break;
    }
    return 0;
}

static int leave_block(MD_BLOCKTYPE type, void *detail, void *arg)
{
    struct md *m = arg;
    switch (type) {
    case MD_BLOCK_QUOTE:
        flush(m);
        pop_box(m);
        m->gap = true;
        break;
    case MD_BLOCK_UL:
    case MD_BLOCK_OL: pop_list(m); break;
    case MD_BLOCK_LI: leave_item(m); break;
    case MD_BLOCK_H:
    case MD_BLOCK_P:
    case MD_BLOCK_HTML:
        flush(m);
        m->heading = 0;
        m->gap = true;
        break;
    case MD_BLOCK_CODE:
        put_code(m);
        m->in_code = false;
        m->gap = true;
        break;
    default: break;
    }
    return 0;
}

static void keep_address(struct md *m, const MD_ATTRIBUTE *a)
{
    struct text *t = &m->href[m->link < 4 ? m->link : 3];
    text_clear(t);
    if (a->text)
        text_add(t, a->text, a->size);
}

static int enter_span(MD_SPANTYPE type, void *detail, void *arg)
{
    struct md *m = arg;
    switch (type) {
    case MD_SPAN_EM: m->em++; break;
    case MD_SPAN_STRONG: m->strong++; break;
    case MD_SPAN_DEL: m->del++; break;
    case MD_SPAN_CODE:
        m->code++;
        row_str(&m->flow, style_now(m), "`");
        break;
    case MD_SPAN_A:
        keep_address(m, &((MD_SPAN_A_DETAIL *)detail)->href);
        m->link++;
        break;
    case MD_SPAN_IMG:
        keep_address(m, &((MD_SPAN_IMG_DETAIL *)detail)->src);
        m->link++;
        break;
    default: break;
    }
    return 0;
}

/* The address behind a link's text, unless the text is the address. */
static void put_address(struct md *m)
{
    m->link--;
    const struct text *t = &m->href[m->link < 4 ? m->link : 3];
    size_t shown = 0, len = t->len;
    for (size_t i = m->flow.n; i > 0 && shown < len; i--) {
        const struct cell *c = &m->flow.c[i - 1];
        if (len - shown < c->n || memcmp(t->s + len - shown - c->n, c->bytes, c->n) != 0)
            break;
        shown += c->n;
    }
    if (len && shown != len)
        row_printf(&m->flow, style_of(ROLE_DIM), " (%.*s)", (int)(len < 400 ? len : 400), t->s);
}

static int leave_span(MD_SPANTYPE type, void *detail, void *arg)
{
    struct md *m = arg;
    switch (type) {
    case MD_SPAN_EM: m->em--; break;
    case MD_SPAN_STRONG: m->strong--; break;
    case MD_SPAN_DEL: m->del--; break;
    case MD_SPAN_CODE:
        row_str(&m->flow, style_now(m), "`");
        m->code--;
        break;
    case MD_SPAN_A:
    case MD_SPAN_IMG: put_address(m); break;
    default: break;
    }
    return 0;
}

/* The few entities that people write, and numbers; others stay as they are. */
static void entity(struct md *m, const char *s, size_t n)
{
    static const struct {
        const char *name, *text;
    } known[] = {{"&amp;", "&"},  {"&lt;", "<"},     {"&gt;", ">"},    {"&quot;", "\""}, {"&apos;", "'"},
                 {"&nbsp;", " "}, {"&hellip;", "…"}, {"&mdash;", "—"}, {"&ndash;", "–"}};
    char utf8[4];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].name) == n && memcmp(known[i].name, s, n) == 0) {
            row_str(&m->flow, style_now(m), known[i].text);
            return;
        }
    }
    if (n > 3 && n < 16 && s[1] == '#') {
        char digits[16];
        bool hex = s[2] == 'x' || s[2] == 'X';
        memcpy(digits, s, n);
        digits[n] = '\0';
        unsigned long cp = strtoul(digits + (hex ? 3 : 2), NULL, hex ? 16 : 10);
        if (cp < 0x20 || cp > 0x10ffff)
            cp = 0xfffd;
        row_text(&m->flow, utf8, gate_encode((uint32_t)cp, utf8), GATE_RUNNING, 4, style_now(m));
        return;
    }
    row_text(&m->flow, s, n, GATE_RUNNING, 4, style_now(m));
}

static int text_in(MD_TEXTTYPE type, const MD_CHAR *s, MD_SIZE n, void *arg)
{
    struct md *m = arg;
    if (m->in_code) {
        text_add(&m->code_text, s, n);
        return 0;
    }
    switch (type) {
    case MD_TEXT_NULLCHAR: row_str(&m->flow, style_now(m), "\xef\xbf\xbd"); break;
    case MD_TEXT_BR: row_text(&m->flow, "\n", 1, GATE_RUNNING, 4, style_now(m)); break;
    case MD_TEXT_SOFTBR: row_str(&m->flow, style_now(m), " "); break;
    case MD_TEXT_ENTITY: entity(m, s, n); break;
    default: row_text(&m->flow, s, n, GATE_RUNNING, 4, style_now(m)); break;
    }
    return 0;
}

static const MD_PARSER parser = {
    .flags = MD_FLAG_STRIKETHROUGH | MD_FLAG_TASKLISTS | MD_FLAG_NOHTML | MD_FLAG_PERMISSIVEURLAUTOLINKS,
    .enter_block = enter_block,
    .leave_block = leave_block,
    .enter_span = enter_span,
    .leave_span = leave_span,
    .text = text_in,
};

/* md4c 0.4.8 reads beyond a text that ends in an open link without a newline: it gets a copy that ends in one. */
static void parse(struct md *m, const char *s, size_t n)
{
    char *copy = mem_new(n + 2);
    memcpy(copy, s, n);
    copy[n] = '\n';
    md_parse(copy, (MD_SIZE)n + 1, &parser, m);
    free(copy);
}

/* A cell is Markdown unless its first character would make a block of it. */
static void cell_text(struct md *m, const char *s, size_t n, bool head)
{
    m->in_cell = true;
    m->strong = head;
    if (n && !strchr("#-+>=0123456789~\t ", s[0]))
        parse(m, s, n);
    else
        row_text(&m->flow, s, n, GATE_RUNNING, 4, style_now(m));
    m->strong = 0;
    m->in_cell = false;
    m->table = mem_room(m->table, m->n_table, &m->cap_table, sizeof *m->table);
    m->table[m->n_table++] = m->flow;
    memset(&m->flow, 0, sizeof m->flow);
}

static void table_row(struct md *m, const char *line, size_t n, bool head)
{
    const char *at = line, *end = line + n, *cell;
    size_t len;
    unsigned col = 0;
    while (at < end && *at == ' ')
        at++;
    if (at < end && *at == '|')
        at++;
    while ((head ? col < COLS_MAX : col < m->cols) && pipes_cell(&at, end, &cell, &len)) {
        cell_text(m, cell, len, head);
        col++;
    }
    if (head)
        m->cols = col;
    for (; col < m->cols; col++) /* a short row */
        cell_text(m, "", 0, false);
}

static void put_pipes(struct md *m, const char *s, size_t n)
{
    size_t row = 0;
    flush(m);
    for (size_t at = 0; at < n; row++) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - s) - at : n - at;
        if (row != 1)
            table_row(m, s + at, len, row == 0);
        at += len + 1;
    }
    put_table(m);
}

static void put_text(struct md *m, const char *s, size_t n)
{
    if (n)
        parse(m, s, n);
    flush(m);
}

void markdown_part(struct rows *out, bool gap_before, const char *s, size_t n,
                   const struct markdown_look *look)
{
    struct md m = {.out = out, .look = look, .base = out->n, .gap = gap_before, .behind = gap_before};
    size_t from = 0;
    struct fence fence = {0};
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - s) - at : n - at;
        size_t table = fence.n || !memchr(s + at, '|', len) ? 0 : pipes_table(s + at, n - at);
        if (table) {
            put_text(&m, s + from, at - from);
            put_pipes(&m, s + at, table);
            from = at += table;
        } else {
            fence_step(&fence, s + at, len);
            at += len + 1;
        }
    }
    if (from < n)
        put_text(&m, s + from, n - from);
    row_free(&m.flow);
    free(m.table);
    for (size_t i = 0; i < 4; i++)
        text_free(&m.href[i]);
    text_free(&m.code_text);
    text_free(&m.lang);
}
