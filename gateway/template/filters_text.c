/* Filters on strings. */
#include "filters.h"

#include "points.h"

#include <string.h>

static int cased(struct eval *e, const struct args *args, enum text_case how, struct value *out)
{
    const struct string *s;
    if (args->n != 1 || args->n_kw)
        return eval_fail(e, "this filter takes no arguments");
    return arg_text(e, &args->v[0], &s) ? -1 : text_case(e, s, how, out);
}

int filter_upper(struct eval *e, const struct args *args, struct value *out)
{
    return cased(e, args, CASE_UPPER, out);
}

int filter_lower(struct eval *e, const struct args *args, struct value *out)
{
    return cased(e, args, CASE_LOWER, out);
}

int filter_capitalize(struct eval *e, const struct args *args, struct value *out)
{
    return cased(e, args, CASE_CAPITALIZE, out);
}

int filter_title(struct eval *e, const struct args *args, struct value *out)
{
    return cased(e, args, CASE_TITLE_FILTER, out);
}

int filter_trim(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "chars"};
    const struct value *v[2];
    const struct string *s, *chars = NULL;
    if (eval_bind(e, "trim", args, names, 2, 1, v) || arg_text(e, v[0], &s) ||
        (v[1] && v[1]->type != V_NONE && arg_string(e, "chars", v[1], &chars)))
        return -1;
    return text_strip(e, s, chars, STRIP_BOTH, out);
}

int filter_replace(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"s", "old", "new", "count"};
    const struct value *v[4];
    const struct string *s, *from, *to;
    int64_t count;
    if (eval_bind(e, "replace", args, names, 4, 3, v) || arg_text(e, v[0], &s) || arg_text(e, v[1], &from) ||
        arg_text(e, v[2], &to) || arg_int(e, "count", v[3], -1, &count))
        return -1;
    return text_replace(e, s, from, to, count, out);
}

/* The text put before a line: spaces, or a string. */
static int indent_width(struct eval *e, const struct value *v, struct value *out)
{
    int64_t width;
    const struct string space = {.p = " ", .n = 1};
    if (v && v->type == V_STRING) {
        *out = *v;
        return 0;
    }
    if (arg_int(e, "width", v, 4, &width))
        return -1;
    if (width > 10000)
        return eval_fail(e, "an indent of more than 10000 is not supported");
    return text_repeat(e, &space, width, out);
}

int filter_indent(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"s", "width", "first", "blank"};
    const struct value *v[4];
    const struct string *s;
    struct value indent;
    if (eval_bind(e, "indent", args, names, 4, 1, v) || arg_text(e, v[0], &s) ||
        indent_width(e, v[1], &indent))
        return -1;
    const bool first = v[2] && value_truth(v[2]), blank = v[3] && value_truth(v[3]);
    struct builder b = eval_builder(e);
    for (size_t from = 0, next = 0; from <= s->n; from = next) {
        const size_t end = text_line(s, from, &next);
        if (eval_take(e, 1 + indent.s->n / 64 + (end - from) / 16))
            return -1;
        if ((from == 0 ? first : blank || end > from) && builder_string(&b, indent.s))
            return eval_exhausted(e);
        if (builder_slice(&b, s, from, end - from))
            return eval_exhausted(e);
        /* a break at the very end begins one more, empty line; only "\r" does not */
        if (end == s->n || (next == s->n && s->p[end] == '\r' && next == end + 1))
            break;
        if (builder_add(&b, "\n", 1, string_input_at(s, end)))
            return eval_exhausted(e);
    }
    return eval_built(e, &b, out);
}

int filter_escape(struct eval *e, const struct args *args, struct value *out)
{
    static const struct {
        char c;
        const char *to;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    const struct string *s;
    struct builder b = eval_builder(e);
    if (args->n != 1)
        return eval_fail(e, "escape takes no arguments");
    if (arg_text(e, &args->v[0], &s) || eval_take(e, s->n / 16))
        return -1;
    size_t from = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char *to = NULL;
        for (size_t k = 0; k < sizeof escapes / sizeof *escapes; k++)
            if (s->p[i] == escapes[k].c)
                to = escapes[k].to;
        if (!to)
            continue;
        if (builder_slice(&b, s, from, i - from) || builder_add(&b, to, strlen(to), string_input_at(s, i)))
            return eval_exhausted(e);
        from = i + 1;
    }
    if (builder_slice(&b, s, from, s->n - from))
        return eval_exhausted(e);
    return eval_built(e, &b, out);
}

int filter_center(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "width"};
    const struct value *v[2];
    const struct string *s;
    int64_t width;
    struct builder b = eval_builder(e);
    if (eval_bind(e, "center", args, names, 2, 1, v) || arg_text(e, v[0], &s) ||
        arg_int(e, "width", v[1], 80, &width))
        return -1;
    const int64_t have = (int64_t)points_count(s->p, s->n), pad = width > have ? width - have : 0;
    const int64_t left = pad / 2 + (pad & width & 1);
    for (int64_t i = 0; i < left; i++)
        if (eval_take(e, 1) || builder_text(&b, " "))
            return eval_exhausted(e);
    if (builder_string(&b, s))
        return eval_exhausted(e);
    for (int64_t i = left; i < pad; i++)
        if (eval_take(e, 1) || builder_text(&b, " "))
            return eval_exhausted(e);
    return eval_built(e, &b, out);
}

int filter_format(struct eval *e, const struct args *args, struct value *out)
{
    const struct string *s;
    if (arg_text(e, &args->v[0], &s))
        return -1;
    struct list rest = {.v = args->v + 1, .n = args->n - 1, .kind = L_TUPLE};
    struct value arg = v_list(&rest);
    if (args->n_kw) {
        struct dict *d = dict_new(&e->arena);
        for (size_t i = 0; d && i < args->n_kw; i++) {
            struct string *name = string_slice(&e->arena, args->kw[i].name, 0, args->kw[i].name->n);
            if (!name || dict_set(&e->arena, d, v_string(name), args->kw[i].value))
                d = NULL;
        }
        if (!d)
            return eval_exhausted(e);
        arg = v_dict(d);
    }
    return text_format(e, s, &arg, out);
}

int filter_wordcount(struct eval *e, const struct args *args, struct value *out)
{
    const struct string *s;
    int64_t n = 0;
    bool in = false;
    if (args->n != 1)
        return eval_fail(e, "wordcount takes no arguments");
    if (arg_text(e, &args->v[0], &s) || eval_take(e, s->n / 8))
        return -1;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        i += point_get(s->p + i, s->n - i, &cp);
        const bool word = point_is_alpha(cp) || point_is_digit(cp) || cp == '_';
        n += word && !in;
        in = word;
    }
    *out = v_int(n);
    return 0;
}

/* The first code points of s, up to the last space among them unless words may be cut. */
static size_t truncated(const struct string *s, size_t points, bool cut_words)
{
    const size_t n = points_offset(s->p, s->n, points);
    if (cut_words)
        return n;
    for (size_t i = n; i-- > 0;)
        if (s->p[i] == ' ')
            return i;
    return n;
}

int filter_truncate(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"s", "length", "killwords", "end", "leeway"};
    const struct value *v[5];
    const struct string *s, dots = {.p = "...", .n = 3}, *end = &dots;
    int64_t length, leeway;
    if (eval_bind(e, "truncate", args, names, 5, 1, v) || arg_text(e, v[0], &s) ||
        arg_int(e, "length", v[1], 255, &length) || (v[3] && arg_string(e, "end", v[3], &end)) ||
        arg_int(e, "leeway", v[4], 5, &leeway) || eval_take(e, s->n / 16))
        return -1;
    const int64_t end_n = (int64_t)points_count(end->p, end->n);
    if (length < end_n || leeway < 0)
        return eval_fail(e, "truncate: length must be at least %lld and leeway not negative",
                         (long long)end_n);
    const int64_t have = (int64_t)points_count(s->p, s->n);
    struct builder b = eval_builder(e);
    if (have - leeway <= length)
        return builder_string(&b, s) ? eval_exhausted(e) : eval_built(e, &b, out);
    const size_t n = truncated(s, (size_t)(length - end_n), v[2] && value_truth(v[2]));
    if (builder_slice(&b, s, 0, n) || builder_string(&b, end))
        return eval_exhausted(e);
    return eval_built(e, &b, out);
}
