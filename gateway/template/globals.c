/* Global functions. */
#include "eval.h"

#include <string.h>
#include <time.h>

enum global { G_RAISE, G_STRFTIME, G_RANGE, G_NAMESPACE, G_DICT, G_CYCLER, G_JOINER };

static const char *const names[] = {
    [G_RAISE] = "raise_exception",
    [G_STRFTIME] = "strftime_now",
    [G_RANGE] = "range",
    [G_NAMESPACE] = "namespace",
    [G_DICT] = "dict",
    [G_CYCLER] = "cycler",
    [G_JOINER] = "joiner",
};

int globals_add(struct eval *e)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct func *f = arena_alloc(&e->arena, sizeof *f);
        struct string *name = string_view(&e->arena, names[i], strlen(names[i]), false);
        if (!f || !name)
            return eval_exhausted(e);
        *f = (struct func){.kind = F_GLOBAL, .id = (int)i, .name = names[i]};
        const struct value v = {.type = V_FUNC, .fn = f};
        if (dict_set(&e->arena, e->globals, v_string(name), v))
            return eval_exhausted(e);
    }
    return 0;
}

static int raise_exception(struct eval *e, const struct args *args)
{
    const struct string *s;
    if (args->n != 1)
        return eval_fail(e, "raise_exception takes a message");
    if (arg_text(e, &args->v[0], &s))
        return -1;
    return vt_fail(e->err, VT_E_PARAM, "%.*s", s->n > 480 ? 480 : (int)s->n, s->p);
}

static int strftime_now(struct eval *e, const struct args *args, struct value *out)
{
    const struct string *s;
    char format[256], buf[1024];
    if (args->n != 1)
        return eval_fail(e, "strftime_now takes a format");
    if (arg_string(e, "the format", &args->v[0], &s))
        return -1;
    if (s->n >= sizeof format)
        return eval_fail(e, "the format of strftime_now is longer than %zu bytes", sizeof format - 1);
    memcpy(format, s->p, s->n);
    format[s->n] = 0;
    const time_t now = (time_t)(e->now_us / 1000000u);
    struct tm tm;
    if (!localtime_r(&now, &tm))
        return eval_fail(e, "the time cannot be told");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t n = strftime(buf, sizeof buf, format, &tm);
#pragma GCC diagnostic pop
    char *copy = arena_alloc(&e->arena, n + 1);
    if (!copy)
        return eval_exhausted(e);
    memcpy(copy, buf, n);
    return eval_text(e, copy, n, false, out);
}

static int range(struct eval *e, const struct args *args, struct value *out)
{
    int64_t v[3] = {0, 0, 1};
    if (args->n < 1 || args->n > 3 || args->n_kw)
        return eval_fail(e, "range takes one to three arguments");
    for (size_t i = 0; i < args->n; i++)
        if (args->v[i].type != V_INT && args->v[i].type != V_BOOL)
            return eval_fail(e, "range takes integers, not %s", value_type_name(&args->v[i]));
        else if (arg_int(e, "the argument of range", &args->v[i], 0, &v[i]))
            return -1;
    const int64_t start = args->n == 1 ? 0 : v[0], stop = args->n == 1 ? v[0] : v[1], step = v[2];
    if (step == 0)
        return eval_fail(e, "the step of range is zero");
    struct list *l = list_new(&e->arena, L_RANGE, 0);
    if (!l)
        return eval_exhausted(e);
    for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
        if (eval_take(e, 1))
            return -1;
        if (list_push(&e->arena, l, v_int(i)))
            return eval_exhausted(e);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    *out = v_list(l);
    return 0;
}

static int put_pair(struct eval *e, struct dict *d, const struct value *v)
{
    const struct list *kv;
    if (eval_items(e, v, &kv))
        return -1;
    if (kv->n != 2 || !value_hashable(&kv->v[0]))
        return eval_fail(e, "dict takes pairs of a key and a value");
    return dict_set(&e->arena, d, kv->v[0], kv->v[1]) ? eval_exhausted(e) : 0;
}

static int make_dict(struct eval *e, const struct args *args, struct dict **out)
{
    struct dict *d = dict_new(&e->arena);
    if (!d)
        return eval_exhausted(e);
    if (args->n > 1)
        return eval_fail(e, "dict takes at most one mapping");
    if (args->n && args->v[0].type == V_DICT) {
        const struct dict *from = args->v[0].d;
        if (eval_take(e, from->n))
            return -1;
        for (size_t i = 0; i < from->n; i++)
            if (dict_set(&e->arena, d, from->v[i].key, from->v[i].value))
                return eval_exhausted(e);
    } else if (args->n) {
        const struct list *pairs;
        if (eval_items(e, &args->v[0], &pairs))
            return -1;
        for (size_t i = 0; i < pairs->n; i++)
            if (put_pair(e, d, &pairs->v[i]))
                return -1;
    }
    for (size_t k = 0; k < args->n_kw; k++) {
        struct string *name = string_slice(&e->arena, args->kw[k].name, 0, args->kw[k].name->n);
        if (!name || dict_set(&e->arena, d, v_string(name), args->kw[k].value))
            return eval_exhausted(e);
    }
    *out = d;
    return 0;
}

static int make_func(struct eval *e, enum func_kind kind, struct value self, struct value *out)
{
    struct func *f = arena_alloc(&e->arena, sizeof *f);
    if (!f)
        return eval_exhausted(e);
    *f = (struct func){.kind = kind, .self = self};
    *out = (struct value){.type = V_FUNC, .fn = f};
    return 0;
}

static int cycler(struct eval *e, const struct args *args, struct value *out)
{
    struct list *l = list_new(&e->arena, L_LIST, args->n);
    if (!l)
        return eval_exhausted(e);
    for (size_t i = 0; i < args->n; i++)
        l->v[l->n++] = args->v[i];
    return make_func(e, F_CYCLER, v_list(l), out);
}

static int joiner(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const params[] = {"sep"};
    const struct value *v[1];
    struct value sep;
    if (eval_bind(e, "joiner", args, params, 1, 0, v) || eval_text(e, ", ", 2, false, &sep))
        return -1;
    return make_func(e, F_JOINER, v[0] ? *v[0] : sep, out);
}

int global_call(struct eval *e, int id, const struct args *args, struct value *out)
{
    struct dict *d = NULL;
    switch ((enum global)id) {
    case G_RAISE: return raise_exception(e, args);
    case G_STRFTIME: return strftime_now(e, args, out);
    case G_RANGE: return range(e, args, out);
    case G_CYCLER: return cycler(e, args, out);
    case G_JOINER: return joiner(e, args, out);
    case G_NAMESPACE:
    case G_DICT: break;
    }
    if (make_dict(e, args, &d))
        return -1;
    *out = (struct value){.type = id == G_DICT ? V_DICT : V_NAMESPACE, .d = d};
    return 0;
}
