/* Filters on sequences. */
#include "filters.h"

#include "hash.h"

#include <string.h>

static int no_arguments(struct eval *e, const struct args *args, const char *name)
{
    return args->n == 1 && !args->n_kw ? 0 : eval_fail(e, "%s takes no arguments", name);
}

static int push(struct eval *e, struct list *l, struct value v)
{
    return list_push(&e->arena, l, v) ? eval_exhausted(e) : eval_take(e, 1);
}

int filter_first(struct eval *e, const struct args *args, struct value *out)
{
    const struct list *l;
    if (no_arguments(e, args, "first") || eval_items(e, &args->v[0], &l))
        return -1;
    *out = l->n ? l->v[0] : v_undefined(NULL);
    return 0;
}

int filter_last(struct eval *e, const struct args *args, struct value *out)
{
    const struct list *l;
    if (no_arguments(e, args, "last") || eval_items(e, &args->v[0], &l))
        return -1;
    *out = l->n ? l->v[l->n - 1] : v_undefined(NULL);
    return 0;
}

int filter_random(struct eval *e, const struct args *args, struct value *out)
{
    const struct list *l;
    uint64_t r;
    if (no_arguments(e, args, "random") || eval_items(e, &args->v[0], &l))
        return -1;
    vt_random(&r, sizeof r);
    *out = l->n ? l->v[r % l->n] : v_undefined(NULL);
    return 0;
}

static int copy_list(struct eval *e, const struct list *from, enum list_kind kind, struct list **out)
{
    struct list *l = list_new(&e->arena, kind, from->n);
    if (!l)
        return eval_exhausted(e);
    if (from->n)
        memcpy(l->v, from->v, from->n * sizeof *l->v);
    l->n = from->n;
    *out = l;
    return eval_take(e, l->n);
}

int filter_list(struct eval *e, const struct args *args, struct value *out)
{
    const struct list *l;
    struct list *copy = NULL;
    if (no_arguments(e, args, "list") || eval_items(e, &args->v[0], &l) || copy_list(e, l, L_LIST, &copy))
        return -1;
    *out = v_list(copy);
    return 0;
}

int filter_reverse(struct eval *e, const struct args *args, struct value *out)
{
    const struct value *v = &args->v[0];
    const struct list *l;
    struct list *r = NULL;
    if (no_arguments(e, args, "reverse"))
        return -1;
    if (v->type == V_STRING) {
        const struct value back = v_int(-1);
        return eval_slice(e, v, NULL, NULL, &back, out);
    }
    if (eval_items(e, v, &l) || copy_list(e, l, L_GENERATOR, &r))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        r->v[i] = l->v[l->n - 1 - i];
    *out = v_list(r);
    return 0;
}

/* The items with an attribute put in their place, when one is asked for. */
static int pick(struct eval *e, const struct list *items, const struct value *path, const struct list **out)
{
    if (!path || path->type == V_NONE) {
        *out = items;
        return 0;
    }
    struct list *l = list_new(&e->arena, L_LIST, items->n);
    if (!l)
        return eval_exhausted(e);
    for (size_t i = 0; i < items->n; i++) {
        struct value v;
        if (value_path(e, &items->v[i], path, NULL, &v) || push(e, l, v))
            return -1;
    }
    *out = l;
    return 0;
}

int filter_join(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "d", "attribute"};
    const struct value *v[3];
    const struct list *items;
    const struct string none = {.p = "", .n = 0}, *glue = &none;
    if (eval_bind(e, "join", args, names, 3, 1, v) || eval_items(e, v[0], &items) ||
        pick(e, items, v[2], &items) || (v[1] && arg_text(e, v[1], &glue)))
        return -1;
    return text_join(e, glue, items, out);
}

int filter_sum(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"iterable", "attribute", "start"};
    const struct value *v[3];
    const struct list *items;
    if (eval_bind(e, "sum", args, names, 3, 1, v) || eval_items(e, v[0], &items) ||
        pick(e, items, v[1], &items))
        return -1;
    *out = v[2] ? *v[2] : v_int(0);
    for (size_t i = 0; i < items->n; i++) {
        const struct value so_far = *out;
        if (eval_take(e, 1) || eval_binary(e, OP_ADD, &so_far, &items->v[i], out))
            return -1;
    }
    return 0;
}

/* ---- order ---- */

struct keyed {
    struct value key, value;
};

struct order {
    struct eval *e;
    bool reverse, failed;
};

/* What a value is sorted by: strings in lower case unless case matters. */
static int sort_key(struct eval *e, const struct value *v, bool case_sensitive, struct value *out)
{
    *out = *v;
    return v->type == V_STRING && !case_sensitive ? text_case(e, v->s, CASE_LOWER, out) : 0;
}

/* Keys of "a,b" are tuples of both. */
static int path_key(struct eval *e, const struct value *v, const struct value *path, bool case_sensitive,
                    struct value *out)
{
    struct value part;
    if (!path || path->type == V_NONE)
        return sort_key(e, v, case_sensitive, out);
    if (path->type != V_STRING || !memchr(path->s->p, ',', path->s->n))
        return value_path(e, v, path, NULL, &part) || sort_key(e, &part, case_sensitive, out) ? -1 : 0;
    struct list *l = list_new(&e->arena, L_TUPLE, 0);
    if (!l)
        return eval_exhausted(e);
    for (size_t from = 0; from <= path->s->n;) {
        const char *comma = memchr(path->s->p + from, ',', path->s->n - from);
        const size_t end = comma ? (size_t)(comma - path->s->p) : path->s->n;
        const struct value one = v_string(string_slice(&e->arena, path->s, from, end - from));
        struct value key;
        if (!one.s)
            return eval_exhausted(e);
        if (value_path(e, v, &one, NULL, &part) || sort_key(e, &part, case_sensitive, &key) ||
            push(e, l, key))
            return -1;
        from = end + 1;
    }
    *out = v_list(l);
    return 0;
}

/* 1 when b must stand before a. Equal ones keep their places, also in reverse. */
static int out_of_order(struct order *o, const struct keyed *a, const struct keyed *b)
{
    bool less = false;
    const struct value *x = o->reverse ? &a->key : &b->key, *y = o->reverse ? &b->key : &a->key;
    if (!o->failed && eval_compare(o->e, OP_LT, x, y, &less))
        o->failed = true;
    return less;
}

static void merge(struct order *o, struct keyed *v, size_t n, struct keyed *tmp)
{
    if (n < 2 || o->failed)
        return;
    const size_t half = n / 2;
    merge(o, v, half, tmp);
    merge(o, v + half, n - half, tmp);
    memcpy(tmp, v, half * sizeof *v);
    size_t i = 0, j = half, k = 0;
    while (i < half && j < n)
        v[k++] = out_of_order(o, &tmp[i], &v[j]) ? v[j++] : tmp[i++];
    while (i < half)
        v[k++] = tmp[i++];
}

static int sorted(struct eval *e, const struct list *items, const struct value *path, bool case_sensitive,
                  bool reverse, struct keyed **out)
{
    struct keyed *v = arena_alloc(&e->arena, (items->n + 1) * sizeof *v),
                 *tmp = arena_alloc(&e->arena, (items->n + 1) * sizeof *tmp);
    if (!v || !tmp)
        return eval_exhausted(e);
    for (size_t i = 0; i < items->n; i++) {
        v[i].value = items->v[i];
        if (path_key(e, &items->v[i], path, case_sensitive, &v[i].key))
            return -1;
    }
    struct order o = {e, reverse, false};
    merge(&o, v, items->n, tmp);
    *out = v;
    return o.failed ? -1 : 0;
}

static bool truth(const struct value *v)
{
    return v && value_truth(v);
}

int filter_sort(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "reverse", "case_sensitive", "attribute"};
    const struct value *v[4];
    const struct list *items;
    struct keyed *k = NULL;
    struct list *l = NULL;
    if (eval_bind(e, "sort", args, names, 4, 1, v) || eval_items(e, v[0], &items) ||
        sorted(e, items, v[3], truth(v[2]), truth(v[1]), &k) || copy_list(e, items, L_LIST, &l))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        l->v[i] = k[i].value;
    *out = v_list(l);
    return 0;
}

static int extreme(struct eval *e, const struct args *args, bool max, struct value *out)
{
    static const char *const names[] = {"value", "case_sensitive", "attribute"};
    const struct value *v[3];
    const struct list *items;
    struct value best = v_none();
    if (eval_bind(e, max ? "max" : "min", args, names, 3, 1, v) || eval_items(e, v[0], &items))
        return -1;
    *out = v_undefined(NULL);
    for (size_t i = 0; i < items->n; i++) {
        struct value key;
        bool better = true;
        if (path_key(e, &items->v[i], v[2], truth(v[1]), &key) ||
            (i && eval_compare(e, max ? OP_GT : OP_LT, &key, &best, &better)))
            return -1;
        if (better) {
            best = key;
            *out = items->v[i];
        }
    }
    return 0;
}

int filter_min(struct eval *e, const struct args *args, struct value *out)
{
    return extreme(e, args, false, out);
}

int filter_max(struct eval *e, const struct args *args, struct value *out)
{
    return extreme(e, args, true, out);
}

int filter_unique(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "case_sensitive", "attribute"};
    const struct value *v[3];
    const struct list *items;
    struct list *l = list_new(&e->arena, L_GENERATOR, 0);
    struct dict *seen = dict_new(&e->arena);
    if (!l || !seen)
        return eval_exhausted(e);
    if (eval_bind(e, "unique", args, names, 3, 1, v) || eval_items(e, v[0], &items))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        struct value key;
        if (path_key(e, &items->v[i], v[2], truth(v[1]), &key))
            return -1;
        if (!value_hashable(&key))
            return eval_fail(e, "unhashable type: '%s'", value_type_name(&key));
        if (dict_get(seen, &key))
            continue;
        if (dict_set(&e->arena, seen, key, v_none()))
            return eval_exhausted(e);
        if (push(e, l, items->v[i]))
            return -1;
    }
    *out = v_list(l);
    return 0;
}

static int tuple_of(struct eval *e, struct value a, struct value b, struct value *out)
{
    struct list *t = list_new(&e->arena, L_TUPLE, 2);
    if (!t)
        return eval_exhausted(e);
    t->v[0] = a;
    t->v[1] = b;
    t->n = 2;
    *out = v_list(t);
    return 0;
}

int filter_dictsort(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "case_sensitive", "by", "reverse"};
    const struct value *v[4];
    const struct string *by = NULL;
    if (eval_bind(e, "dictsort", args, names, 4, 1, v) || (v[2] && arg_string(e, "by", v[2], &by)))
        return -1;
    if (v[0]->type != V_DICT)
        return eval_fail(e, "dictsort needs a mapping, not %s", value_type_name(v[0]));
    if (by && !string_is(by, "key") && !string_is(by, "value"))
        return eval_fail(e, "dictsort sorts by 'key' or 'value'");
    struct list *l = list_new(&e->arena, L_LIST, v[0]->d->n);
    struct keyed *k = NULL;
    if (!l)
        return eval_exhausted(e);
    for (size_t i = 0; i < v[0]->d->n; i++) {
        struct value pair;
        if (tuple_of(e, v[0]->d->v[i].key, v[0]->d->v[i].value, &pair) || push(e, l, pair))
            return -1;
    }
    const struct value place = v_int(by && string_is(by, "value"));
    if (sorted(e, l, &place, truth(v[1]), truth(v[3]), &k))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        l->v[i] = k[i].value;
    *out = v_list(l);
    return 0;
}

int filter_groupby(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "attribute", "default", "case_sensitive"};
    const struct value *v[4];
    const struct list *items;
    struct keyed *k = NULL;
    struct list *groups = list_new(&e->arena, L_LIST, 0), *members = NULL;
    if (!groups)
        return eval_exhausted(e);
    if (eval_bind(e, "groupby", args, names, 4, 2, v) || eval_items(e, v[0], &items) ||
        sorted(e, items, v[1], truth(v[3]), false, &k))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        struct value group, grouper;
        const bool same = i && value_equal(&e->meter, &k[i].key, &k[i - 1].key);
        if (e->meter.spent)
            return eval_exhausted(e);
        if (!same) {
            members = list_new(&e->arena, L_LIST, 0);
            if (!members)
                return eval_exhausted(e);
            if (value_path(e, &k[i].value, v[1], v[2], &grouper) ||
                tuple_of(e, grouper, v_list(members), &group) || push(e, groups, group))
                return -1;
            group.l->group = true;
        }
        if (push(e, members, k[i].value))
            return -1;
    }
    *out = v_list(groups);
    return 0;
}

static int new_row(struct eval *e, struct list *rows, struct list **row)
{
    *row = list_new(&e->arena, L_LIST, 0);
    return *row ? push(e, rows, v_list(*row)) : eval_exhausted(e);
}

int filter_batch(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "linecount", "fill_with"};
    const struct value *v[3];
    const struct list *items;
    int64_t n;
    struct list *rows = list_new(&e->arena, L_GENERATOR, 0), *row = NULL;
    if (!rows)
        return eval_exhausted(e);
    if (eval_bind(e, "batch", args, names, 3, 2, v) || eval_items(e, v[0], &items) ||
        arg_int(e, "linecount", v[1], 1, &n))
        return -1;
    if (n < 1)
        return eval_fail(e, "linecount must be at least 1");
    for (size_t i = 0; i < items->n; i++)
        if ((i % (size_t)n == 0 && new_row(e, rows, &row)) || push(e, row, items->v[i]))
            return -1;
    while (row && v[2] && v[2]->type != V_NONE && row->n < (size_t)n)
        if (push(e, row, *v[2]))
            return -1;
    *out = v_list(rows);
    return 0;
}

int filter_slice(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "slices", "fill_with"};
    const struct value *v[3];
    const struct list *items;
    int64_t n;
    struct list *rows = list_new(&e->arena, L_GENERATOR, 0), *row;
    if (!rows)
        return eval_exhausted(e);
    if (eval_bind(e, "slice", args, names, 3, 2, v) || eval_items(e, v[0], &items) ||
        arg_int(e, "slices", v[1], 1, &n))
        return -1;
    if (n < 1)
        return eval_fail(e, "slices must be at least 1");
    const size_t each = items->n / (size_t)n, more = items->n % (size_t)n;
    size_t at = 0;
    for (size_t s = 0; s < (size_t)n; s++) {
        if (new_row(e, rows, &row))
            return -1;
        for (size_t i = 0; i < each + (s < more); i++)
            if (push(e, row, items->v[at++]))
                return -1;
        if (v[2] && v[2]->type != V_NONE && s >= more && more && push(e, row, *v[2]))
            return -1;
    }
    *out = v_list(rows);
    return 0;
}

/* ---- map and select ---- */

static const struct value *keyword(const struct args *args, const char *name)
{
    for (size_t i = 0; i < args->n_kw; i++)
        if (string_is(args->kw[i].name, name))
            return &args->kw[i].value;
    return NULL;
}

/* The arguments for a filter or test on one item: the item, then those after `skip`. */
static int item_args(struct eval *e, const struct args *args, size_t skip, const struct value *item,
                     struct args *out)
{
    *out = (struct args){.n = args->n - skip + 1, .kw = args->kw, .n_kw = args->n_kw};
    out->v = arena_alloc(&e->arena, out->n * sizeof *out->v);
    if (!out->v)
        return eval_exhausted(e);
    out->v[0] = *item;
    for (size_t i = skip; i < args->n; i++)
        out->v[i - skip + 1] = args->v[i];
    return 0;
}

static int map_one(struct eval *e, const struct args *args, const struct value *item, struct value *out)
{
    const struct value *path = args->n == 1 ? keyword(args, "attribute") : NULL;
    const struct string *name;
    struct args call;
    if (path)
        return value_path(e, item, path, keyword(args, "default"), out);
    if (args->n < 2)
        return eval_fail(e, "map takes the name of a filter, or attribute=");
    if (arg_string(e, "the name of a filter", &args->v[1], &name) || item_args(e, args, 2, item, &call))
        return -1;
    return filter_apply(e, filter_find(name->p, name->n), name, &call, out);
}

int filter_map(struct eval *e, const struct args *args, struct value *out)
{
    const struct list *items;
    struct list *l = list_new(&e->arena, L_GENERATOR, 0);
    if (!l)
        return eval_exhausted(e);
    *out = v_list(l);
    if (!value_truth(&args->v[0])) /* none and 0 are as good as no items here */
        return 0;
    if (eval_items(e, &args->v[0], &items))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        struct value v;
        if (map_one(e, args, &items->v[i], &v) || push(e, l, v))
            return -1;
    }
    return 0;
}

/* Keeps the items for which the test holds (keep) or does not; with attr the test looks at an attribute. */
static int filter_by(struct eval *e, const struct args *args, bool keep, bool attr, struct value *out)
{
    const struct list *items;
    const size_t skip = attr ? 2 : 1;
    struct list *l = list_new(&e->arena, L_GENERATOR, 0);
    if (!l)
        return eval_exhausted(e);
    if (args->n < skip)
        return eval_fail(e, "%s takes the name of an attribute", keep ? "selectattr" : "rejectattr");
    *out = v_list(l);
    if (!value_truth(&args->v[0]))
        return 0;
    if (eval_items(e, &args->v[0], &items))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        struct value v = items->v[i];
        bool holds;
        if (attr && value_path(e, &items->v[i], &args->v[1], NULL, &v))
            return -1;
        if (args->n == skip) {
            holds = value_truth(&v);
        } else {
            const struct string *name;
            struct args call;
            if (arg_string(e, "the name of a test", &args->v[skip], &name) ||
                item_args(e, args, skip + 1, &v, &call) ||
                test_apply(e, test_find(name->p, name->n), name, &call, &holds))
                return -1;
        }
        if (holds == keep ? push(e, l, items->v[i]) : eval_take(e, 1))
            return -1;
    }
    return 0;
}

int filter_select(struct eval *e, const struct args *args, struct value *out)
{
    return filter_by(e, args, true, false, out);
}

int filter_reject(struct eval *e, const struct args *args, struct value *out)
{
    return filter_by(e, args, false, false, out);
}

int filter_selectattr(struct eval *e, const struct args *args, struct value *out)
{
    return filter_by(e, args, true, true, out);
}

int filter_rejectattr(struct eval *e, const struct args *args, struct value *out)
{
    return filter_by(e, args, false, true, out);
}
