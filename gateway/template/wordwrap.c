/* The wordwrap filter: breaks lines where Python's textwrap breaks them. */
#include "filters.h"

#include "points.h"

#include <string.h>

struct wrapper {
    struct eval *e;
    struct builder *b;
    const struct string *glue;
    size_t width;
    bool long_words, hyphens;
    size_t lines; /* of this paragraph, so far */
};

/* A chunk of a line: code points [from, to). */
struct chunk {
    size_t from, to;
};

struct text {
    const struct string *s;
    size_t *at; /* byte offset of each code point, and of the end */
    uint32_t *cp;
    size_t n;
};

static bool white(uint32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13);
}

static bool word(uint32_t c)
{
    return point_is_alpha(c) || point_is_digit(c) || c == '_';
}

static bool letter(uint32_t c)
{
    return word(c) && !point_is_digit(c);
}

static bool punctuated(uint32_t c)
{
    return word(c) || (c < 128 && c && strchr("!\"'&.,?", (int)c));
}

static size_t dashes(const struct text *t, size_t i)
{
    size_t k = i;
    while (k < t->n && t->cp[k] == '-')
        k++;
    return k - i;
}

/* A break may follow the hyphen at i: two letters, or letter, hyphen and one more, before it, and letters behind. */
static bool hyphen_breaks(const struct text *t, size_t i)
{
    if (t->cp[i] != '-' || i < 2)
        return false;
    const bool before = (letter(t->cp[i - 2]) && letter(t->cp[i - 1])) ||
                        (i >= 3 && letter(t->cp[i - 3]) && t->cp[i - 2] == '-' && punctuated(t->cp[i - 1]));
    size_t k = i + 1;
    if (!before || k >= t->n || !letter(t->cp[k++]))
        return false;
    if (k < t->n && t->cp[k] == '-')
        k++;
    return k < t->n && letter(t->cp[k]);
}

/* An em-dash (two or more hyphens between words) begins at i. */
static bool em_dash(const struct text *t, size_t i)
{
    if (i == 0 || !punctuated(t->cp[i - 1])) /* asked at each code point: a run of hyphens is measured once */
        return false;
    const size_t n = dashes(t, i);
    return n >= 2 && i + n < t->n && word(t->cp[i + n]);
}

static size_t chunk_end(const struct text *t, size_t i, bool hyphens)
{
    const bool blank = white(t->cp[i]);
    size_t k = i;
    if (blank || !hyphens) {
        while (k < t->n && white(t->cp[k]) == blank)
            k++;
        return k;
    }
    if (em_dash(t, i))
        return i + dashes(t, i);
    for (k = i + 1; k < t->n && !white(t->cp[k]); k++)
        if (hyphen_breaks(t, k - 1) || em_dash(t, k))
            break;
    return k;
}

static bool all_space(const struct text *t, const struct chunk *c)
{
    for (size_t i = c->from; i < c->to; i++)
        if (!point_is_space(t->cp[i]))
            return false;
    return true;
}

/* How much of a chunk that no line can hold goes into the room that is left. */
static size_t long_part(const struct wrapper *w, const struct text *t, const struct chunk *c, size_t room)
{
    size_t hyphen = 0;
    bool other = false;
    if (w->hyphens && c->to - c->from > room)
        for (size_t i = 0; i < room; i++) {
            if (t->cp[c->from + i] == '-' && i > 0 && other)
                hyphen = i;
            other |= t->cp[c->from + i] != '-';
        }
    return hyphen ? hyphen + 1 : room < c->to - c->from ? room : c->to - c->from;
}

static int put_line(struct wrapper *w, const struct text *t, size_t from, size_t to)
{
    if ((w->lines++ > 0 && builder_string(w->b, w->glue)) ||
        builder_slice(w->b, t->s, t->at[from], t->at[to] - t->at[from]))
        return eval_exhausted(w->e);
    return eval_take(w->e, 1 + (to - from) / 16);
}

/* One line of the result, from the chunk *c on; *c is behind it afterwards. */
static int fill_line(struct wrapper *w, const struct text *t, struct chunk *c)
{
    if (w->lines > 0 && all_space(t, c)) {
        if (c->to == t->n) {
            c->from = t->n;
            return 0;
        }
        *c = (struct chunk){c->to, chunk_end(t, c->to, w->hyphens)};
    }
    const size_t from = c->from;
    struct chunk last = {from, from}; /* the newest chunk of the line */
    while (c->from < t->n && c->to - from <= w->width) {
        last = *c;
        *c = (struct chunk){c->to, c->to < t->n ? chunk_end(t, c->to, w->hyphens) : c->to};
    }
    if (c->from < t->n && c->to - c->from > w->width) {
        const size_t take = w->long_words     ? long_part(w, t, c, w->width - (c->from - from))
                            : c->from == from ? c->to - c->from
                                              : 0;
        if (take) {
            last = (struct chunk){c->from, c->from + take};
            c->from = last.to;
        }
        if (c->from == c->to && c->to < t->n)
            c->to = chunk_end(t, c->to, w->hyphens);
    }
    const size_t to = last.to > last.from && all_space(t, &last) ? last.from : last.to;
    return to > from ? put_line(w, t, from, to) : 0;
}

static int wrap_line(struct wrapper *w, const struct string *s)
{
    struct text t = {.s = s};
    t.at = arena_alloc(&w->e->arena, (s->n + 1) * sizeof *t.at);
    t.cp = arena_alloc(&w->e->arena, (s->n + 1) * sizeof *t.cp);
    if (!t.at || !t.cp)
        return eval_exhausted(w->e);
    for (size_t i = 0; i < s->n; t.n++) {
        t.at[t.n] = i;
        i += point_get(s->p + i, s->n - i, &t.cp[t.n]);
    }
    t.at[t.n] = s->n;
    w->lines = 0;
    struct chunk c = {0, t.n ? chunk_end(&t, 0, w->hyphens) : 0};
    while (c.from < t.n)
        if (eval_take(w->e, 1) || fill_line(w, &t, &c))
            return -1;
    return 0;
}

int filter_wordwrap(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"s", "width", "break_long_words", "wrapstring", "break_on_hyphens"};
    const struct value *v[5];
    const struct string *s, newline = {.p = "\n", .n = 1}, *glue = &newline;
    struct builder b = eval_builder(e);
    int64_t width;
    if (eval_bind(e, "wordwrap", args, names, 5, 1, v) || arg_text(e, v[0], &s) ||
        arg_int(e, "width", v[1], 79, &width) ||
        (v[3] && v[3]->type != V_NONE && arg_string(e, "wrapstring", v[3], &glue)))
        return -1;
    if (width < 1)
        return eval_fail(e, "wordwrap: the width must be at least 1");
    struct wrapper w = {.e = e,
                        .b = &b,
                        .glue = glue,
                        .width = (size_t)width,
                        .long_words = !v[2] || value_truth(v[2]),
                        .hyphens = !v[4] || value_truth(v[4])};
    for (size_t from = 0, next = 0; from < s->n; from = next) {
        const size_t end = text_line(s, from, &next);
        struct string *line = string_slice(&e->arena, s, from, end - from);
        if (!line || (from > 0 && builder_string(&b, glue)))
            return eval_exhausted(e);
        if (eval_take(e, 1 + (end - from) / 4) || wrap_line(&w, line))
            return -1;
    }
    return eval_built(e, &b, out);
}
