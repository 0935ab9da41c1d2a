/* String functions that filters, methods and operators share. All keep the marks of the input's bytes. */
#include "eval.h"
#include "points.h"

#include <stdio.h>
#include <string.h>

size_t text_find(const struct string *s, size_t from, const struct string *what)
{
    if (what->n == 0)
        return from <= s->n ? from : SIZE_MAX;
    if (from >= s->n)
        return SIZE_MAX;
    const char *p = memmem(s->p + from, s->n - from, what->p, what->n);
    return p ? (size_t)(p - s->p) : SIZE_MAX;
}

static bool line_break(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

size_t text_line(const struct string *s, size_t from, size_t *next)
{
    for (size_t at = from; at < s->n; at = *next) {
        uint32_t cp;
        *next = at + point_get(s->p + at, s->n - at, &cp);
        if (!line_break(cp))
            continue;
        if (cp == '\r' && *next < s->n && s->p[*next] == '\n')
            ++*next;
        return at;
    }
    *next = s->n;
    return s->n;
}

static bool stripped(uint32_t cp, const struct string *chars)
{
    if (!chars)
        return point_is_space(cp);
    for (size_t i = 0; i < chars->n;) {
        uint32_t c;
        i += point_get(chars->p + i, chars->n - i, &c);
        if (c == cp)
            return true;
    }
    return false;
}

int text_strip(struct eval *e, const struct string *s, const struct string *chars, enum strip sides,
               struct value *out)
{
    size_t from = 0, to = s->n;
    uint32_t cp;
    if (eval_take(e, (s->n / 64 + 1) * (chars ? chars->n / 16 + 1 : 1)))
        return -1;
    while ((sides & STRIP_LEFT) && from < to) {
        const size_t n = point_get(s->p + from, to - from, &cp);
        if (!stripped(cp, chars))
            break;
        from += n;
    }
    while ((sides & STRIP_RIGHT) && to > from) {
        size_t i = to - 1;
        while (i > from && ((unsigned char)s->p[i] & 0xC0) == 0x80)
            i--;
        point_get(s->p + i, to - i, &cp);
        if (!stripped(cp, chars))
            break;
        to = i;
    }
    struct string *r = string_slice(&e->arena, s, from, to - from);
    if (!r)
        return eval_exhausted(e);
    *out = v_string(r);
    return 0;
}

/* An empty `from` stands before every character and at the end. */
static size_t next_match(const struct string *s, size_t at, const struct string *from, bool first)
{
    if (from->n || first)
        return text_find(s, at, from);
    if (at >= s->n)
        return SIZE_MAX;
    uint32_t cp;
    return at + point_get(s->p + at, s->n - at, &cp);
}

int text_replace(struct eval *e, const struct string *s, const struct string *from, const struct string *to,
                 int64_t max, struct value *out)
{
    struct builder b = eval_builder(e);
    size_t at = 0, match = max ? next_match(s, 0, from, true) : SIZE_MAX;
    if (eval_take(e, s->n / 64))
        return -1;
    for (int64_t k = 0; match != SIZE_MAX && (max < 0 || k < max); k++) {
        if (eval_take(e, 1 + to->n / 64))
            return -1;
        if (builder_slice(&b, s, at, match - at) || builder_string(&b, to))
            return eval_exhausted(e);
        at = match + from->n;
        match = next_match(s, at, from, false);
    }
    if (builder_slice(&b, s, at, s->n - at))
        return eval_exhausted(e);
    return eval_built(e, &b, out);
}

/* What comes before the first letter of a word for the title filter: blanks, '-' and opening brackets. */
static bool title_border(uint32_t cp)
{
    return point_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

int text_case(struct eval *e, const struct string *s, enum text_case how, struct value *out)
{
    struct builder b = eval_builder(e);
    bool start = true;
    if (eval_take(e, s->n / 8))
        return -1;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        char buf[8];
        const size_t n = point_get(s->p + i, s->n - i, &cp);
        bool upper = how == CASE_UPPER || (how == CASE_SWAP && point_is_lower(cp));
        if (how == CASE_CAPITALIZE || how == CASE_TITLE_FILTER || how == CASE_TITLE_METHOD)
            upper = start;
        const size_t len = upper ? point_upper(cp, buf) : point_lower(cp, buf);
        if (builder_add(&b, buf, len, string_input_at(s, i)))
            return eval_exhausted(e);
        start = how == CASE_TITLE_FILTER ? title_border(cp) : how == CASE_TITLE_METHOD && !point_is_alpha(cp);
        i += n;
    }
    return eval_built(e, &b, out);
}

int text_join(struct eval *e, const struct string *glue, const struct list *items, struct value *out)
{
    struct builder b = eval_builder(e);
    for (size_t i = 0; i < items->n; i++) {
        if (eval_take(e, 1 + glue->n / 64))
            return -1;
        if (i && builder_string(&b, glue))
            return eval_exhausted(e);
        if (print_str(e, &b, &items->v[i]))
            return -1;
    }
    return eval_built(e, &b, out);
}

int text_repeat(struct eval *e, const struct string *s, int64_t times, struct value *out)
{
    struct builder b = eval_builder(e);
    for (int64_t i = 0; i < times && s->n; i++) {
        if (eval_take(e, 1 + s->n / 64))
            return -1;
        if (builder_string(&b, s))
            return eval_exhausted(e);
    }
    return eval_built(e, &b, out);
}

/* ---- slices ---- */

struct range {
    int64_t start, stop, step;
    size_t n;
};

static int64_t clamp(int64_t i, int64_t lo, int64_t hi)
{
    return i < lo ? lo : i > hi ? hi : i;
}

/* The rules of Python's slice.indices(). */
static int slice_range(struct eval *e, size_t length, const struct value *start, const struct value *stop,
                       const struct value *step, struct range *r)
{
    const int64_t n = (int64_t)length;
    if (arg_int(e, "a slice index", step, 1, &r->step))
        return -1;
    if (r->step == 0)
        return eval_fail(e, "slice step cannot be zero");
    const bool back = r->step < 0;
    if (arg_int(e, "a slice index", start, back ? INT64_MAX : 0, &r->start) ||
        arg_int(e, "a slice index", stop, back ? INT64_MIN : INT64_MAX, &r->stop))
        return -1;
    const int64_t lo = back ? -1 : 0, hi = back ? n - 1 : n;
    if (r->start < 0)
        r->start = r->start < -n ? lo : r->start + n;
    if (r->stop < 0)
        r->stop = r->stop < -n || (!stop && back) ? lo : r->stop + n;
    r->start = clamp(r->start, lo, hi);
    r->stop = clamp(r->stop, lo, hi);
    r->n = 0;
    if (!back && r->start < r->stop)
        r->n = (size_t)((r->stop - r->start - 1) / r->step + 1);
    if (back && r->stop < r->start)
        r->n = r->step < -n ? 1 : (size_t)((r->start - r->stop - 1) / -r->step + 1);
    return 0;
}

static int slice_string(struct eval *e, const struct string *s, const struct range *r, struct value *out)
{
    if (r->step == 1) {
        const size_t from = points_offset(s->p, s->n, (size_t)r->start);
        const size_t n = points_offset(s->p + from, s->n - from, r->n);
        struct string *v = string_slice(&e->arena, s, from, n);
        if (!v)
            return eval_exhausted(e);
        *out = v_string(v);
        return 0;
    }
    struct value all = v_string(string_slice(&e->arena, s, 0, s->n));
    const struct list *chars;
    struct builder b = eval_builder(e);
    if (!all.s)
        return eval_exhausted(e);
    if (eval_items(e, &all, &chars))
        return -1;
    int64_t at = r->start;
    for (size_t i = 0; i < r->n; i++, at += r->step)
        if (builder_string(&b, chars->v[at].s))
            return eval_exhausted(e);
    return eval_built(e, &b, out);
}

int eval_slice(struct eval *e, const struct value *v, const struct value *start, const struct value *stop,
               const struct value *step, struct value *out)
{
    struct range r;
    if (v->type == V_UNDEFINED)
        return eval_item(e, v, v, out);
    if (v->type == V_STRING) {
        if (eval_take(e, v->s->n / 16) ||
            slice_range(e, points_count(v->s->p, v->s->n), start, stop, step, &r))
            return -1;
        return slice_string(e, v->s, &r, out);
    }
    if (v->type != V_LIST || (v->l->kind > L_TUPLE && v->l->kind != L_RANGE)) {
        *out = v_undefined(NULL);
        return 0;
    }
    if (slice_range(e, v->l->n, start, stop, step, &r) || eval_take(e, r.n))
        return -1;
    struct list *l = list_new(&e->arena, (enum list_kind)v->l->kind, r.n);
    if (!l)
        return eval_exhausted(e);
    int64_t at = r.start;
    for (size_t i = 0; i < r.n; i++, at += r.step)
        l->v[l->n++] = v->l->v[at];
    *out = v_list(l);
    return 0;
}

/* ---- the % operator ---- */

struct spec {
    char flags[8];
    int width, precision; /* -1 = absent */
    char conversion;
};

/* Reads what follows '%'; returns its length, 0 when it is malformed. */
static size_t read_spec(const char *p, size_t n, struct spec *s)
{
    size_t i = 0, f = 0;
    *s = (struct spec){.width = 0, .precision = -1};
    while (i < n && f < sizeof s->flags - 1 && strchr("-+ #0", p[i]) && p[i])
        s->flags[f++] = p[i++];
    for (; i < n && p[i] >= '0' && p[i] <= '9' && s->width < 10000; i++)
        s->width = s->width * 10 + (p[i] - '0');
    if (i < n && p[i] == '.')
        for (i++, s->precision = 0; i < n && p[i] >= '0' && p[i] <= '9' && s->precision < 10000; i++)
            s->precision = s->precision * 10 + (p[i] - '0');
    if (i == n || !p[i] || s->width > 1000 || s->precision > 300)
        return 0;
    s->conversion = p[i];
    return i + 1;
}

static int pad(struct builder *b, int width, size_t used)
{
    for (size_t i = used; width > 0 && i < (size_t)width; i++)
        if (builder_text(b, " "))
            return -1;
    return 0;
}

static int format_text(struct eval *e, struct builder *b, const struct spec *s, const struct value *v)
{
    struct builder t = eval_builder(e);
    struct value shown;
    if ((s->conversion == 'r' ? print_repr(e, &t, v) : print_str(e, &t, v)) || eval_built(e, &t, &shown))
        return -1;
    size_t n = shown.s->n;
    if (s->precision >= 0)
        n = points_offset(shown.s->p, n, (size_t)s->precision);
    const size_t width = points_count(shown.s->p, n);
    const bool left = strchr(s->flags, '-') != NULL;
    if ((!left && pad(b, s->width, width)) || builder_slice(b, shown.s, 0, n) ||
        (left && pad(b, s->width, width)))
        return eval_exhausted(e);
    return 0;
}

static int format_number(struct eval *e, struct builder *b, const struct spec *s, const struct value *v)
{
    char fmt[40], buf[1600];
    double f;
    const bool integer = strchr("dixXo", s->conversion) != NULL;
    if (!value_number(v, &f))
        return eval_fail(e, "%%%c format: a real number is required, not %s", s->conversion,
                         value_type_name(v));
    if (integer && v->type == V_FLOAT && (f >= 9.2e18 || f <= -9.2e18 || f != f))
        return eval_fail(e, "a number is larger than 64 bits");
    /* the format is one of four shapes; built here from checked parts */
    int n;
    snprintf(fmt, sizeof fmt, "%%%s*%s%s%c", s->flags, s->precision >= 0 ? ".*" : "", integer ? "ll" : "",
             s->conversion == 'i' ? 'd' : s->conversion);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const long long i = integer ? (v->type == V_INT ? (long long)v->i : (long long)f) : 0;
    if (integer)
        n = s->precision >= 0 ? snprintf(buf, sizeof buf, fmt, s->width, s->precision, i)
                              : snprintf(buf, sizeof buf, fmt, s->width, i);
    else
        n = s->precision >= 0 ? snprintf(buf, sizeof buf, fmt, s->width, s->precision, f)
                              : snprintf(buf, sizeof buf, fmt, s->width, f);
#pragma GCC diagnostic pop
    return builder_add(b, buf, (size_t)n, false) ? eval_exhausted(e) : 0;
}

/* "%(name)": the value and the length of the name with its brackets. */
static int mapped(struct eval *e, const char *p, size_t n, const struct value *arg, struct value *v,
                  size_t *used)
{
    const char *end = memchr(p, ')', n);
    if (!end || arg->type != V_DICT)
        return eval_fail(e, "format requires a mapping");
    const struct value *found = dict_get_text(arg->d, p + 1, (size_t)(end - p) - 1);
    if (!found)
        return eval_fail(e, "the format names a key that is not there");
    *v = *found;
    *used = (size_t)(end - p) + 1;
    return 0;
}

int text_format(struct eval *e, const struct string *s, const struct value *arg, struct value *out)
{
    struct builder b = eval_builder(e);
    const bool tuple = arg->type == V_LIST && arg->l->kind == L_TUPLE;
    const size_t n_args = tuple ? arg->l->n : 1;
    size_t next = 0;
    bool by_name = false;
    for (size_t i = 0; i < s->n;) {
        const char *p = memchr(s->p + i, '%', s->n - i);
        const size_t at = p ? (size_t)(p - s->p) : s->n;
        if (eval_take(e, 1 + (at - i) / 64))
            return -1;
        if (builder_slice(&b, s, i, at - i))
            return eval_exhausted(e);
        if (!p)
            break;
        struct value v = v_none();
        size_t used = 0;
        const bool named = at + 1 < s->n && s->p[at + 1] == '(';
        if (named && mapped(e, s->p + at + 1, s->n - at - 1, arg, &v, &used))
            return -1;
        by_name |= named;
        struct spec spec;
        const size_t len = read_spec(s->p + at + 1 + used, s->n - at - 1 - used, &spec);
        if (!len || !strchr("srdixXofFeEgG%", spec.conversion))
            return eval_fail(e, "unsupported format character in a string");
        i = at + 1 + used + len;
        if (spec.conversion == '%') {
            if (builder_text(&b, "%"))
                return eval_exhausted(e);
            continue;
        }
        if (!named) {
            if (next == n_args)
                return eval_fail(e, "not enough arguments for format string");
            v = tuple ? arg->l->v[next] : *arg;
            next++;
        }
        if (spec.conversion == 's' || spec.conversion == 'r' ? format_text(e, &b, &spec, &v)
                                                             : format_number(e, &b, &spec, &v))
            return -1;
    }
    if (!by_name && next < n_args && arg->type != V_DICT)
        return eval_fail(e, "not all arguments converted during string formatting");
    return eval_built(e, &b, out);
}
