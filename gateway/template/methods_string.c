/* Methods of strings. */
#include "methods.h"
#include "points.h"

#include <string.h>

static int push_part(struct eval *e, struct list *l, const struct string *s, size_t from, size_t to)
{
    struct string *part = string_slice(&e->arena, s, from, to - from);
    if (!part || list_push(&e->arena, l, v_string(part)))
        return eval_exhausted(e);
    return eval_take(e, 1);
}

/* split() without a separator: words between white space. */
static int split_space(struct eval *e, const struct string *s, int64_t max, struct list *l)
{
    size_t at = space_run(s->p, s->n);
    while (at < s->n) {
        if (max >= 0 && (int64_t)l->n >= max)
            return push_part(e, l, s, at, at + space_end(s->p + at, s->n - at));
        size_t end = at;
        while (end < s->n) {
            uint32_t cp;
            const size_t n = point_get(s->p + end, s->n - end, &cp);
            if (point_is_space(cp))
                break;
            end += n;
        }
        if (push_part(e, l, s, at, end))
            return -1;
        at = end + space_run(s->p + end, s->n - end);
    }
    return 0;
}

static int split_on(struct eval *e, const struct string *s, const struct string *sep, int64_t max,
                    struct list *l)
{
    size_t at = 0;
    while (max < 0 || (int64_t)l->n < max) {
        const size_t next = text_find(s, at, sep);
        if (next == SIZE_MAX)
            break;
        if (push_part(e, l, s, at, next))
            return -1;
        at = next + sep->n;
    }
    return push_part(e, l, s, at, s->n);
}

/* Looks at every place, so the caller counts n times m steps. */
static size_t find_last(const struct string *s, size_t to, const struct string *what)
{
    for (size_t i = to + 1; i-- > 0;)
        if (what->n <= to - i && memcmp(s->p + i, what->p, what->n) == 0)
            return i;
    return SIZE_MAX;
}

static int take_find_last(struct eval *e, const struct string *s, const struct string *what)
{
    return eval_take(e, (uint64_t)(s->n / 64 + 1) * (what->n / 8 + 1));
}

static void reverse(struct list *l)
{
    for (size_t i = 0; i + 1 < l->n - i; i++) {
        const struct value v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static int rsplit_space(struct eval *e, const struct string *s, int64_t max, struct list *l)
{
    size_t end = space_end(s->p, s->n);
    while (end > 0) {
        if (max >= 0 && (int64_t)l->n >= max) {
            if (push_part(e, l, s, space_run(s->p, end), end))
                return -1;
            break;
        }
        size_t at = end;
        while (at > 0) {
            size_t i = at - 1;
            while (i > 0 && ((unsigned char)s->p[i] & 0xC0) == 0x80)
                i--;
            uint32_t cp;
            point_get(s->p + i, at - i, &cp);
            if (point_is_space(cp))
                break;
            at = i;
        }
        if (push_part(e, l, s, at, end))
            return -1;
        end = space_end(s->p, at);
    }
    if (l->n)
        reverse(l);
    return 0;
}

static int rsplit_on(struct eval *e, const struct string *s, const struct string *sep, int64_t max,
                     struct list *l)
{
    size_t end = s->n;
    if (take_find_last(e, s, sep))
        return -1;
    while (max < 0 || (int64_t)l->n < max) {
        const size_t at = find_last(s, end, sep);
        if (at == SIZE_MAX)
            break;
        if (push_part(e, l, s, at + sep->n, end))
            return -1;
        end = at;
    }
    if (push_part(e, l, s, 0, end))
        return -1;
    reverse(l);
    return 0;
}

static int method_split(struct eval *e, const struct string *s, const struct args *args, bool right,
                        struct value *out)
{
    static const char *const names[] = {"sep", "maxsplit"};
    const struct value *v[2];
    const struct string *sep = NULL;
    int64_t max;
    struct list *l = list_new(&e->arena, L_LIST, 0);
    if (!l)
        return eval_exhausted(e);
    if (eval_bind(e, "split", args, names, 2, 0, v) || arg_int(e, "maxsplit", v[1], -1, &max) ||
        eval_take(e, s->n / 32))
        return -1;
    *out = v_list(l);
    if (!v[0] || v[0]->type == V_NONE)
        return right ? rsplit_space(e, s, max, l) : split_space(e, s, max, l);
    if (arg_string(e, "the separator", v[0], &sep))
        return -1;
    if (sep->n == 0)
        return eval_fail(e, "empty separator");
    return right ? rsplit_on(e, s, sep, max, l) : split_on(e, s, sep, max, l);
}

static int method_splitlines(struct eval *e, const struct string *s, const struct args *args,
                             struct value *out)
{
    static const char *const names[] = {"keepends"};
    const struct value *v[1];
    struct list *l = list_new(&e->arena, L_LIST, 0);
    if (!l)
        return eval_exhausted(e);
    if (eval_bind(e, "splitlines", args, names, 1, 0, v) || eval_take(e, s->n / 16))
        return -1;
    const bool keep = v[0] && value_truth(v[0]);
    *out = v_list(l);
    for (size_t from = 0, next; from < s->n; from = next) {
        const size_t end = text_line(s, from, &next);
        if (push_part(e, l, s, from, keep ? next : end))
            return -1;
    }
    return 0;
}

static bool has_affix(const struct string *s, const struct string *affix, bool end)
{
    return affix->n <= s->n && memcmp(end ? s->p + s->n - affix->n : s->p, affix->p, affix->n) == 0;
}

static int method_affix(struct eval *e, const struct string *s, const struct args *args, bool end,
                        struct value *out)
{
    if (args->n != 1 || args->n_kw)
        return eval_fail(e, "%s takes one argument", end ? "endswith" : "startswith");
    const struct value *v = &args->v[0];
    const struct value one = *v;
    const struct list single = {.v = (struct value *)&one, .n = 1};
    const struct list *l = v->type == V_LIST && v->l->kind == L_TUPLE ? v->l : &single;
    *out = v_bool(false);
    for (size_t i = 0; i < l->n; i++) {
        const struct string *affix;
        if (arg_string(e, "the argument", &l->v[i], &affix) || eval_take(e, 1 + affix->n / 64))
            return -1;
        if (has_affix(s, affix, end))
            *out = v_bool(true);
    }
    return 0;
}

static int method_remove_affix(struct eval *e, const struct string *s, const struct args *args, bool end,
                               struct value *out)
{
    static const char *const names[] = {"affix"};
    const struct value *v[1];
    const struct string *affix;
    if (eval_bind(e, end ? "removesuffix" : "removeprefix", args, names, 1, 1, v) ||
        arg_string(e, "the argument", v[0], &affix))
        return -1;
    const size_t cut = has_affix(s, affix, end) ? affix->n : 0;
    struct string *r = string_slice(&e->arena, s, end ? 0 : cut, s->n - cut);
    if (!r)
        return eval_exhausted(e);
    *out = v_string(r);
    return 0;
}

static int method_strip(struct eval *e, const struct string *s, const struct args *args, enum strip sides,
                        struct value *out)
{
    static const char *const names[] = {"chars"};
    const struct value *v[1];
    const struct string *chars = NULL;
    if (eval_bind(e, "strip", args, names, 1, 0, v) ||
        (v[0] && v[0]->type != V_NONE && arg_string(e, "the argument of strip", v[0], &chars)))
        return -1;
    return text_strip(e, s, chars, sides, out);
}

static int method_replace(struct eval *e, const struct string *s, const struct args *args, struct value *out)
{
    static const char *const names[] = {"old", "new", "count"};
    const struct value *v[3];
    const struct string *from, *to;
    int64_t max;
    if (eval_bind(e, "replace", args, names, 3, 2, v) ||
        arg_string(e, "the first argument of replace", v[0], &from) ||
        arg_string(e, "the second argument of replace", v[1], &to) || arg_int(e, "count", v[2], -1, &max))
        return -1;
    return text_replace(e, s, from, to, max, out);
}

/* find, rfind, index and count: the substring within an optional range of code points. */
static int method_search(struct eval *e, enum method id, const struct string *s, const struct args *args,
                         struct value *out)
{
    static const char *const names[] = {"sub", "start", "end"};
    const struct value *v[3];
    const struct string *what;
    struct value part;
    int64_t start;
    if (eval_bind(e, method_name(id), args, names, 3, 1, v) || arg_string(e, "the argument", v[0], &what) ||
        arg_int(e, "start", v[1], 0, &start))
        return -1;
    struct value whole = v_string(string_slice(&e->arena, s, 0, s->n));
    if (!whole.s)
        return eval_exhausted(e);
    if (eval_slice(e, &whole, v[1], v[2], NULL, &part))
        return -1;
    s = part.s;
    if (id == M_S_COUNT) {
        int64_t n = 0;
        for (size_t at = text_find(s, 0, what); at != SIZE_MAX && what->n;
             at = text_find(s, at + what->n, what))
            n++;
        *out = v_int(what->n ? n : (int64_t)points_count(s->p, s->n) + 1);
        return 0;
    }
    if (id == M_S_RFIND && take_find_last(e, s, what))
        return -1;
    const size_t at = id == M_S_RFIND ? find_last(s, s->n, what) : text_find(s, 0, what);
    if (at == SIZE_MAX && id == M_S_INDEX)
        return eval_fail(e, "substring not found");
    const size_t before = (size_t)(s->p - whole.s->p);
    *out = v_int(at == SIZE_MAX ? -1 : (int64_t)points_count(whole.s->p, before + at));
    return 0;
}

static int method_is(struct eval *e, enum method id, const struct string *s, struct value *out)
{
    bool all = s->n > 0, cased = false;
    if (eval_take(e, s->n / 8))
        return -1;
    for (size_t i = 0; i < s->n && all;) {
        uint32_t cp;
        i += point_get(s->p + i, s->n - i, &cp);
        const bool upper = point_is_upper(cp), lower = point_is_lower(cp);
        cased |= upper || lower;
        switch (id) {
        case M_S_ISDIGIT: all = point_is_digit(cp); break;
        case M_S_ISALPHA: all = point_is_alpha(cp); break;
        case M_S_ISALNUM: all = point_is_alpha(cp) || point_is_digit(cp); break;
        case M_S_ISSPACE: all = point_is_space(cp); break;
        case M_S_ISUPPER: all = !lower; break;
        default: all = !upper; break;
        }
    }
    *out = v_bool(all && (cased || (id != M_S_ISUPPER && id != M_S_ISLOWER)));
    return 0;
}

static int method_partition(struct eval *e, const struct string *s, const struct args *args, bool right,
                            struct value *out)
{
    static const char *const names[] = {"sep"};
    const struct value *v[1];
    const struct string *sep;
    struct list *l = list_new(&e->arena, L_TUPLE, 3);
    if (!l)
        return eval_exhausted(e);
    if (eval_bind(e, "partition", args, names, 1, 1, v) || arg_string(e, "the separator", v[0], &sep) ||
        eval_take(e, s->n / 64))
        return -1;
    if (sep->n == 0)
        return eval_fail(e, "empty separator");
    if (right && take_find_last(e, s, sep))
        return -1;
    const size_t at = right ? find_last(s, s->n, sep) : text_find(s, 0, sep);
    *out = v_list(l);
    if (at != SIZE_MAX)
        return push_part(e, l, s, 0, at) || push_part(e, l, s, at, at + sep->n) ||
                       push_part(e, l, s, at + sep->n, s->n)
                   ? -1
                   : 0;
    return push_part(e, l, s, 0, right ? 0 : s->n) || push_part(e, l, s, 0, 0) ||
                   push_part(e, l, s, right ? 0 : s->n, s->n)
               ? -1
               : 0;
}

static int method_pad(struct eval *e, enum method id, const struct string *s, const struct args *args,
                      struct value *out)
{
    static const char *const names[] = {"width", "fillchar"};
    const struct value *v[2] = {NULL};
    const struct string space = {.p = id == M_S_ZFILL ? "0" : " ", .n = 1}, *fill = &space;
    struct builder b = eval_builder(e);
    int64_t width;
    if (eval_bind(e, method_name(id), args, names, id == M_S_ZFILL ? 1 : 2, 1, v) ||
        arg_int(e, "width", v[0], 0, &width) || (v[1] && arg_string(e, "fillchar", v[1], &fill)))
        return -1;
    const int64_t have = (int64_t)points_count(s->p, s->n);
    size_t sign = id == M_S_ZFILL && s->n && (s->p[0] == '-' || s->p[0] == '+');
    if (id == M_S_LJUST && builder_string(&b, s))
        return eval_exhausted(e);
    if (sign && builder_slice(&b, s, 0, 1))
        return eval_exhausted(e);
    for (int64_t i = have; i < width; i++)
        if (eval_take(e, 1) || builder_string(&b, fill))
            return eval_exhausted(e);
    if (id != M_S_LJUST && builder_slice(&b, s, sign, s->n - sign))
        return eval_exhausted(e);
    return eval_built(e, &b, out);
}

int string_method(struct eval *e, enum method id, const struct string *s, const struct args *args,
                  struct value *out)
{
    const struct list *items;
    switch (id) {
    case M_S_SPLIT:
    case M_S_RSPLIT: return method_split(e, s, args, id == M_S_RSPLIT, out);
    case M_S_SPLITLINES: return method_splitlines(e, s, args, out);
    case M_S_STRIP: return method_strip(e, s, args, STRIP_BOTH, out);
    case M_S_LSTRIP: return method_strip(e, s, args, STRIP_LEFT, out);
    case M_S_RSTRIP: return method_strip(e, s, args, STRIP_RIGHT, out);
    case M_S_STARTSWITH:
    case M_S_ENDSWITH: return method_affix(e, s, args, id == M_S_ENDSWITH, out);
    case M_S_REMOVEPREFIX:
    case M_S_REMOVESUFFIX: return method_remove_affix(e, s, args, id == M_S_REMOVESUFFIX, out);
    case M_S_REPLACE: return method_replace(e, s, args, out);
    case M_S_UPPER: return text_case(e, s, CASE_UPPER, out);
    case M_S_LOWER: return text_case(e, s, CASE_LOWER, out);
    case M_S_TITLE: return text_case(e, s, CASE_TITLE_METHOD, out);
    case M_S_CAPITALIZE: return text_case(e, s, CASE_CAPITALIZE, out);
    case M_S_SWAPCASE: return text_case(e, s, CASE_SWAP, out);
    case M_S_JOIN:
        if (args->n != 1)
            return eval_fail(e, "join takes one argument");
        if (eval_items(e, &args->v[0], &items))
            return -1;
        for (size_t i = 0; i < items->n; i++)
            if (items->v[i].type != V_STRING)
                return eval_fail(e, "join: item %zu is no string but %s", i, value_type_name(&items->v[i]));
        return text_join(e, s, items, out);
    case M_S_FORMAT: return str_format(e, s, args, out);
    case M_S_FIND:
    case M_S_RFIND:
    case M_S_INDEX:
    case M_S_COUNT: return method_search(e, id, s, args, out);
    case M_S_PARTITION:
    case M_S_RPARTITION: return method_partition(e, s, args, id == M_S_RPARTITION, out);
    case M_S_ZFILL:
    case M_S_LJUST:
    case M_S_RJUST: return method_pad(e, id, s, args, out);
    default: return method_is(e, id, s, out);
    }
}
