/* The table of methods; those of lists and dicts. */
#include "methods.h"

#include <string.h>

static const struct {
    const char *name;
    uint8_t type;
} table[] = {
    [M_S_SPLIT] = {"split", V_STRING},
    [M_S_RSPLIT] = {"rsplit", V_STRING},
    [M_S_SPLITLINES] = {"splitlines", V_STRING},
    [M_S_STRIP] = {"strip", V_STRING},
    [M_S_LSTRIP] = {"lstrip", V_STRING},
    [M_S_RSTRIP] = {"rstrip", V_STRING},
    [M_S_STARTSWITH] = {"startswith", V_STRING},
    [M_S_ENDSWITH] = {"endswith", V_STRING},
    [M_S_REPLACE] = {"replace", V_STRING},
    [M_S_UPPER] = {"upper", V_STRING},
    [M_S_LOWER] = {"lower", V_STRING},
    [M_S_TITLE] = {"title", V_STRING},
    [M_S_CAPITALIZE] = {"capitalize", V_STRING},
    [M_S_SWAPCASE] = {"swapcase", V_STRING},
    [M_S_JOIN] = {"join", V_STRING},
    [M_S_FORMAT] = {"format", V_STRING},
    [M_S_FIND] = {"find", V_STRING},
    [M_S_RFIND] = {"rfind", V_STRING},
    [M_S_INDEX] = {"index", V_STRING},
    [M_S_COUNT] = {"count", V_STRING},
    [M_S_ISDIGIT] = {"isdigit", V_STRING},
    [M_S_ISALPHA] = {"isalpha", V_STRING},
    [M_S_ISALNUM] = {"isalnum", V_STRING},
    [M_S_ISSPACE] = {"isspace", V_STRING},
    [M_S_ISUPPER] = {"isupper", V_STRING},
    [M_S_ISLOWER] = {"islower", V_STRING},
    [M_S_REMOVEPREFIX] = {"removeprefix", V_STRING},
    [M_S_REMOVESUFFIX] = {"removesuffix", V_STRING},
    [M_S_PARTITION] = {"partition", V_STRING},
    [M_S_RPARTITION] = {"rpartition", V_STRING},
    [M_S_ZFILL] = {"zfill", V_STRING},
    [M_S_LJUST] = {"ljust", V_STRING},
    [M_S_RJUST] = {"rjust", V_STRING},
    [M_L_APPEND] = {"append", V_LIST},
    [M_L_POP] = {"pop", V_LIST},
    [M_L_INDEX] = {"index", V_LIST},
    [M_L_COUNT] = {"count", V_LIST},
    [M_D_ITEMS] = {"items", V_DICT},
    [M_D_KEYS] = {"keys", V_DICT},
    [M_D_VALUES] = {"values", V_DICT},
    [M_D_GET] = {"get", V_DICT},
    [M_D_COPY] = {"copy", V_DICT},
};

int method_find(const struct value *v, const struct string *name)
{
    if (v->type != V_STRING && v->type != V_LIST && v->type != V_DICT)
        return -1;
    if (v->type == V_LIST && v->l->kind > L_TUPLE)
        return -1;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].type == v->type && string_is(name, table[i].name))
            return (i == M_L_APPEND || i == M_L_POP) && v->l->kind == L_TUPLE ? -1 : (int)i;
    return -1;
}

const char *method_name(int id)
{
    return table[id].name;
}

static int list_pop(struct eval *e, struct list *l, const struct args *args, struct value *out)
{
    int64_t at;
    if (args->n > 1 || args->n_kw || arg_int(e, "the index", args->n ? &args->v[0] : NULL, -1, &at))
        return args->n > 1 || args->n_kw ? eval_fail(e, "pop takes one argument") : -1;
    at += at < 0 ? (int64_t)l->n : 0;
    if (at < 0 || at >= (int64_t)l->n)
        return eval_fail(e, "pop: the list has no such item");
    *out = l->v[at];
    memmove(&l->v[at], &l->v[at + 1], (l->n - (size_t)at - 1) * sizeof *l->v);
    l->n--;
    return eval_take(e, 1 + (l->n - (size_t)at) / 8);
}

static int list_method(struct eval *e, enum method id, struct list *l, const struct args *args,
                       struct value *out)
{
    if (id == M_L_POP)
        return list_pop(e, l, args, out);
    if (args->n != 1 || args->n_kw)
        return eval_fail(e, "%s takes one argument", table[id].name);
    if (id == M_L_APPEND) {
        *out = v_none();
        return list_push(&e->arena, l, args->v[0]) ? eval_exhausted(e) : 0;
    }
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const bool equal = value_equal(&e->meter, &l->v[i], &args->v[0]);
        if (e->meter.spent)
            return eval_exhausted(e);
        if (equal && id == M_L_INDEX) {
            *out = v_int((int64_t)i);
            return 0;
        }
        n += equal;
    }
    if (id == M_L_INDEX)
        return eval_fail(e, "the value is not in the list");
    *out = v_int(n);
    return 0;
}

static int dict_get_method(struct eval *e, const struct dict *d, const struct args *args, struct value *out)
{
    static const char *const names[] = {"key", "default"};
    const struct value *v[2];
    if (eval_bind(e, "get", args, names, 2, 1, v))
        return -1;
    if (!value_hashable(v[0]))
        return eval_fail(e, "unhashable type: '%s'", value_type_name(v[0]));
    const struct value *found = dict_get(d, v[0]);
    *out = found ? *found : v[1] ? *v[1] : v_none();
    return eval_take(e, v[0]->type == V_STRING ? v[0]->s->n / 64 : 0);
}

static int pair_tuple(struct eval *e, const struct pair *p, struct value *out)
{
    struct list *t = list_new(&e->arena, L_TUPLE, 2);
    if (!t)
        return eval_exhausted(e);
    t->v[0] = p->key;
    t->v[1] = p->value;
    t->n = 2;
    *out = v_list(t);
    return 0;
}

static int dict_method(struct eval *e, enum method id, struct dict *d, const struct args *args,
                       struct value *out)
{
    if (id == M_D_GET)
        return dict_get_method(e, d, args, out);
    if (args->n || args->n_kw)
        return eval_fail(e, "%s takes no arguments", table[id].name);
    if (eval_take(e, d->n))
        return -1;
    if (id == M_D_COPY) {
        struct dict *c = dict_new(&e->arena);
        if (!c)
            return eval_exhausted(e);
        for (size_t i = 0; i < d->n; i++)
            if (dict_set(&e->arena, c, d->v[i].key, d->v[i].value))
                return eval_exhausted(e);
        *out = v_dict(c);
        return 0;
    }
    struct list *l = list_new(&e->arena,
                              id == M_D_ITEMS  ? L_ITEMS
                              : id == M_D_KEYS ? L_KEYS
                                               : L_VALUES,
                              d->n);
    if (!l)
        return eval_exhausted(e);
    for (size_t i = 0; i < d->n; i++) {
        struct value v = id == M_D_KEYS ? d->v[i].key : d->v[i].value;
        if (id == M_D_ITEMS && pair_tuple(e, &d->v[i], &v))
            return -1;
        l->v[l->n++] = v;
    }
    *out = v_list(l);
    return 0;
}

int method_call(struct eval *e, int id, const struct value *self, const struct args *args, struct value *out)
{
    if (self->type == V_STRING)
        return string_method(e, (enum method)id, self->s, args, out);
    if (self->type == V_LIST)
        return list_method(e, (enum method)id, self->l, args, out);
    return dict_method(e, (enum method)id, self->d, args, out);
}
