/* The table of filters, and those that work on single values. */
#include "filters.h"

#include "points.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    filter_fn *fn;
} table[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"batch", filter_batch},
    {"capitalize", filter_capitalize},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"filesizeformat", filter_filesizeformat},
    {"first", filter_first},
    {"float", filter_float},
    {"forceescape", filter_escape},
    {"format", filter_format},
    {"groupby", filter_groupby},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_lower},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"random", filter_random},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_safe},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"unique", filter_unique},
    {"upper", filter_upper},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
    {"wordwrap", filter_wordwrap},
    {"xmlattr", filter_xmlattr},
};

int filter_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0)
            return (int)i;
    return -1;
}

int filter_apply(struct eval *e, int id, const struct string *name, const struct args *args,
                 struct value *out)
{
    if (id < 0)
        return eval_fail(e, "no filter named '%.*s'", name->n > 60 ? 60 : (int)name->n, name->p);
    if (args->n == 0)
        return eval_fail(e, "the filter '%s' needs a value", table[id].name);
    if (eval_take(e, 1))
        return -1;
    return table[id].fn(e, args, out);
}

int filter_abs(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"x"};
    const struct value *v[1];
    if (eval_bind(e, "abs", args, names, 1, 1, v))
        return -1;
    if (v[0]->type == V_FLOAT) {
        *out = v_float(fabs(v[0]->f));
        return 0;
    }
    int64_t i = v[0]->type == V_BOOL ? v[0]->b : v[0]->i;
    if (v[0]->type != V_INT && v[0]->type != V_BOOL)
        return eval_fail(e, "bad operand type for abs(): '%s'", value_type_name(v[0]));
    if (i < 0 && __builtin_sub_overflow((int64_t)0, i, &i))
        return eval_fail(e, "a number is larger than 64 bits");
    *out = v_int(i);
    return 0;
}

/* The number that all of a string is (white space around it allowed), as Python reads it. */
static bool read_float(const struct string *s, double *f)
{
    char buf[400];
    const size_t from = space_run(s->p, s->n), to = space_end(s->p, s->n);
    size_t k = 0;
    if (from >= to || to - from >= sizeof buf)
        return false;
    for (size_t i = from; i < to; i++)
        if (s->p[i] == 'x' || s->p[i] == 'X' || s->p[i] == 'p' || s->p[i] == 'P' || s->p[i] == 0)
            return false;
        else if (s->p[i] != '_')
            buf[k++] = s->p[i];
    buf[k] = 0;
    char *end;
    *f = strtod(buf, &end);
    return k && *end == 0;
}

static bool read_int(const struct string *s, int base, int64_t *out)
{
    char buf[100];
    size_t from = space_run(s->p, s->n), k = 0;
    const size_t to = space_end(s->p, s->n);
    if (from >= to || to - from >= sizeof buf)
        return false;
    for (size_t i = from; i < to; i++)
        if (s->p[i] == 0)
            return false;
        else if (s->p[i] != '_')
            buf[k++] = s->p[i];
    buf[k] = 0;
    const char *p = buf;
    const bool sign = *p == '-' || *p == '+';
    if (p[sign] == '0' && (p[sign + 1] | 32) == 'b' && (base == 2 || base == 0)) {
        memmove(buf + sign, buf + sign + 2, k - sign - 1);
        base = 2;
    } else if (p[sign] == '0' && (p[sign + 1] | 32) == 'o' && (base == 8 || base == 0)) {
        memmove(buf + sign, buf + sign + 2, k - sign - 1);
        base = 8;
    }
    char *end;
    errno = 0;
    *out = strtoll(buf, &end, base);
    return k && *end == 0 && end != buf && errno == 0;
}

int filter_int(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "default", "base"};
    const struct value *v[3];
    int64_t i, base;
    double f = 0;
    if (eval_bind(e, "int", args, names, 3, 1, v) || arg_int(e, "base", v[2], 10, &base))
        return -1;
    if (base != 0 && (base < 2 || base > 36))
        return eval_fail(e, "the base of int must be 2 to 36");
    *out = v[1] ? *v[1] : v_int(0);
    if (v[0]->type == V_STRING) {
        if (read_int(v[0]->s, (int)base, &i)) {
            *out = v_int(i);
            return 0;
        }
        if (!read_float(v[0]->s, &f))
            return 0;
    } else if (v[0]->type == V_INT) {
        *out = *v[0];
        return 0;
    } else if (!value_number(v[0], &f)) {
        return 0;
    }
    if (f == f && f < 9.2e18 && f > -9.2e18)
        *out = v_int((int64_t)f);
    return 0;
}

int filter_float(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "default"};
    const struct value *v[2];
    double f;
    if (eval_bind(e, "float", args, names, 2, 1, v))
        return -1;
    *out = v[1] ? *v[1] : v_float(0);
    if (v[0]->type == V_STRING ? read_float(v[0]->s, &f) : value_number(v[0], &f))
        *out = v_float(f);
    return 0;
}

/* Rounds half to even in the decimal digits that the number really has. */
static double round_common(double f, int precision)
{
    char buf[800];
    if (precision < 0) {
        const double scale = pow(10, -precision);
        return rint(f / scale) * scale;
    }
    snprintf(buf, sizeof buf, "%.*f", precision, f);
    return strtod(buf, NULL);
}

int filter_round(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "precision", "method"};
    const struct value *v[3];
    int64_t precision;
    double f;
    if (eval_bind(e, "round", args, names, 3, 1, v) || arg_int(e, "precision", v[1], 0, &precision))
        return -1;
    if (!value_number(v[0], &f))
        return eval_fail(e, "round needs a number, not %s", value_type_name(v[0]));
    if (precision > 300 || precision < -300)
        return eval_fail(e, "the precision of round must be between -300 and 300");
    const struct string common = {.p = "common", .n = 6}, *method = &common;
    if (v[2] && arg_string(e, "method", v[2], &method))
        return -1;
    const double scale = pow(10, (double)precision);
    if (string_is(method, "common")) {
        if (v[0]->type == V_INT && precision >= 0)
            *out = *v[0];
        else if (v[0]->type == V_INT && fabs(f) < 9e18)
            *out = v_int((int64_t)round_common(f, (int)precision));
        else
            *out = v_float(round_common(f, (int)precision));
    } else if (string_is(method, "floor"))
        *out = v_float(floor(f * scale) / scale);
    else if (string_is(method, "ceil"))
        *out = v_float(ceil(f * scale) / scale);
    else
        return eval_fail(e, "the method of round must be common, ceil or floor");
    return 0;
}

int filter_default(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "default_value", "boolean"};
    const struct value *v[3];
    if (eval_bind(e, "default", args, names, 3, 1, v))
        return -1;
    *out = *v[0];
    if (v[0]->type != V_UNDEFINED && !(v[2] && value_truth(v[2]) && !value_truth(v[0])))
        return 0;
    if (!v[1])
        return eval_text(e, "", 0, false, out);
    *out = *v[1];
    return 0;
}

int filter_length(struct eval *e, const struct args *args, struct value *out)
{
    const struct value *v = &args->v[0];
    if (args->n != 1 || args->n_kw)
        return eval_fail(e, "length takes no arguments");
    size_t n = 0;
    if (v->type == V_STRING)
        n = points_count(v->s->p, v->s->n);
    else if (v->type == V_LIST && v->l->kind != L_GENERATOR)
        n = v->l->n;
    else if (v->type == V_DICT)
        n = v->d->n;
    else if (v->type == V_LOOP)
        n = v->loop->items->n;
    else if (v->type != V_UNDEFINED)
        return eval_fail(e, "object of type '%s' has no length", value_type_name(v));
    *out = v_int((int64_t)n);
    return eval_take(e, v->type == V_STRING ? n / 64 : 0);
}

int filter_string(struct eval *e, const struct args *args, struct value *out)
{
    const struct string *s;
    if (args->n != 1)
        return eval_fail(e, "string takes no arguments");
    if (arg_text(e, &args->v[0], &s))
        return -1;
    *out = v_string(string_slice(&e->arena, s, 0, s->n));
    return out->s ? 0 : eval_exhausted(e);
}

int filter_safe(struct eval *e, const struct args *args, struct value *out)
{
    return filter_string(e, args, out);
}

static int separators(struct eval *e, const struct value *v, struct json_style *style)
{
    const struct list *l;
    const struct string *s[2];
    char *text[2];
    if (eval_items(e, v, &l))
        return -1;
    if (l->n != 2)
        return eval_fail(e, "separators must be a pair of strings");
    for (int i = 0; i < 2; i++) {
        if (arg_string(e, "a separator", &l->v[i], &s[i]))
            return -1;
        text[i] = arena_alloc(&e->arena, s[i]->n + 1);
        if (!text[i])
            return eval_exhausted(e);
        memcpy(text[i], s[i]->p, s[i]->n);
        text[i][s[i]->n] = 0;
    }
    style->item_separator = text[0];
    style->key_separator = text[1];
    return 0;
}

/* As chat templates expect it: no HTML escapes, text as it is, keys in their order. */
int filter_tojson(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "ensure_ascii", "indent", "separators", "sort_keys"};
    /* by place, the one argument that templates pass is the indent of the language's own tojson */
    static const char *const by_place[] = {"value", "indent"};
    const struct value *v[5] = {NULL};
    int64_t indent;
    if (args->n == 2 && args->v[1].type == V_INT) {
        struct args two = {.v = args->v, .n = 2};
        const struct value *w[2];
        if (eval_bind(e, "tojson", &two, by_place, 2, 1, w))
            return -1;
        struct args rest = {.v = args->v, .n = 1, .kw = args->kw, .n_kw = args->n_kw};
        if (eval_bind(e, "tojson", &rest, names, 5, 1, v))
            return -1;
        v[2] = w[1];
    } else if (eval_bind(e, "tojson", args, names, 5, 1, v)) {
        return -1;
    }
    if (arg_int(e, "indent", v[2], -1, &indent))
        return -1;
    if (indent > 100)
        return eval_fail(e, "an indent of more than 100 is not supported");
    struct json_style style = {.ascii = v[1] && value_truth(v[1]),
                               .sort = v[4] && value_truth(v[4]),
                               .indent = indent < 0 ? (v[2] && v[2]->type != V_NONE ? 0 : -1) : (int)indent,
                               .item_separator = ", ",
                               .key_separator = ": "};
    if (style.indent >= 0)
        style.item_separator = ",";
    if (v[3] && v[3]->type != V_NONE && separators(e, v[3], &style))
        return -1;
    struct builder b = eval_builder(e);
    return print_json(e, &b, v[0], &style) ? -1 : eval_built(e, &b, out);
}

int filter_attr(struct eval *e, const struct args *args, struct value *out)
{
    const struct string *name;
    if (args->n != 2)
        return eval_fail(e, "attr takes the name of an attribute");
    if (arg_string(e, "the name", &args->v[1], &name))
        return -1;
    /* attributes of a dict are its methods; its keys are items */
    if (args->v[0].type == V_DICT && method_find(&args->v[0], name) < 0) {
        *out = v_undefined(name);
        return 0;
    }
    return eval_attr(e, &args->v[0], name, out);
}

int filter_items(struct eval *e, const struct args *args, struct value *out)
{
    const struct value *v = &args->v[0];
    if (args->n != 1)
        return eval_fail(e, "items takes no arguments");
    if (v->type != V_DICT && v->type != V_UNDEFINED)
        return eval_fail(e, "can only get item pairs from a mapping, not %s", value_type_name(v));
    const struct string name = {.p = "items", .n = 5};
    const struct args none = {.n = 0};
    if (v->type == V_DICT) {
        if (method_call(e, method_find(v, &name), v, &none, out))
            return -1;
        out->l->kind = L_GENERATOR;
        return 0;
    }
    struct list *l = list_new(&e->arena, L_GENERATOR, 0);
    if (!l)
        return eval_exhausted(e);
    *out = v_list(l);
    return 0;
}

int value_path(struct eval *e, const struct value *v, const struct value *path, const struct value *fallback,
               struct value *out)
{
    struct value at = *v;
    if (path->type != V_STRING) {
        if (eval_item(e, &at, path, out))
            return -1;
    } else {
        const struct string *s = path->s;
        for (size_t from = 0; from <= s->n;) {
            const char *dot = memchr(s->p + from, '.', s->n - from);
            const size_t end = dot ? (size_t)(dot - s->p) : s->n;
            struct string *part = string_slice(&e->arena, s, from, end - from);
            int64_t i;
            if (!part)
                return eval_exhausted(e);
            const bool number = part->n && part->p[0] >= '0' && part->p[0] <= '9' && read_int(part, 10, &i);
            const struct value key = number ? v_int(i) : v_string(part);
            struct value next;
            if (eval_take(e, 1) || eval_item(e, &at, &key, &next))
                return -1;
            if (next.type == V_UNDEFINED && fallback)
                next = *fallback;
            at = next;
            from = end + 1;
        }
        *out = at;
    }
    if (out->type == V_UNDEFINED && fallback)
        *out = *fallback;
    return 0;
}
