#include "builder.h"

#include <string.h>

int builder_room(struct builder *b, size_t n)
{
    if (b->limit && n > b->limit - b->n) {
        b->full = true;
        return -1;
    }
    if (n <= b->cap - b->n)
        return 0;
    size_t cap = b->cap + b->cap / 2 + 64;
    if (cap < b->n + n)
        cap = b->n + n;
    char *p = arena_grow(b->arena, b->p, b->cap, cap);
    if (!p)
        return -1;
    b->p = p;
    b->cap = cap;
    return 0;
}

int builder_wrote(struct builder *b, size_t n, bool input)
{
    b->n += n;
    if (n == 0)
        return 0;
    if (b->n_marks && b->marks[b->n_marks - 1].input == input) {
        b->marks[b->n_marks - 1].end = b->n;
        return 0;
    }
    if (b->n_marks == b->cap_marks) {
        const size_t cap = b->cap_marks * 2 + 4;
        struct mark *m = arena_grow(b->arena, b->marks, b->cap_marks * sizeof *m, cap * sizeof *m);
        if (!m)
            return -1;
        b->marks = m;
        b->cap_marks = cap;
    }
    b->marks[b->n_marks++] = (struct mark){b->n, input};
    return 0;
}

int builder_add(struct builder *b, const char *p, size_t n, bool input)
{
    if (n == 0)
        return 0;
    if (builder_room(b, n))
        return -1;
    memcpy(b->p + b->n, p, n);
    return builder_wrote(b, n, input);
}

int builder_text(struct builder *b, const char *text)
{
    return builder_add(b, text, strlen(text), false);
}

/* The first mark that ends after `at`. */
static size_t mark_at(const struct marks *m, size_t at)
{
    size_t lo = 0, hi = m->n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (m->v[mid].end <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int builder_slice(struct builder *b, const struct string *s, size_t from, size_t n)
{
    if (!s->marks)
        return builder_add(b, s->p + from, n, s->input);
    size_t at = from;
    for (size_t i = mark_at(s->marks, s->off + from); at < from + n; i++) {
        size_t end = s->marks->v[i].end - s->off;
        if (end > from + n)
            end = from + n;
        if (builder_add(b, s->p + at, end - at, s->marks->v[i].input))
            return -1;
        at = end;
    }
    return 0;
}

int builder_string(struct builder *b, const struct string *s)
{
    return builder_slice(b, s, 0, s->n);
}

struct string *builder_end(struct builder *b)
{
    struct string *s = string_view(b->arena, b->p ? b->p : "", b->n, b->n_marks == 1 && b->marks[0].input);
    if (!s || b->n_marks < 2)
        return s;
    struct marks *m = arena_alloc(b->arena, sizeof *m + b->n_marks * sizeof *m->v);
    if (!m)
        return NULL;
    m->n = b->n_marks;
    memcpy(m->v, b->marks, b->n_marks * sizeof *m->v);
    s->marks = m;
    return s;
}

bool string_input_at(const struct string *s, size_t at)
{
    if (!s->marks)
        return s->input;
    const size_t i = mark_at(s->marks, s->off + at);
    return i < s->marks->n && s->marks->v[i].input;
}
