#include "value.h"

#include <string.h>
#include <xxhash.h>

bool value_truth(const struct value *v)
{
    switch ((enum value_type)v->type) {
    case V_UNDEFINED:
    case V_NONE: return false;
    case V_BOOL: return v->b;
    case V_INT: return v->i != 0;
    case V_FLOAT: return v->f != 0;
    case V_STRING: return v->s->n > 0;
    case V_LIST: return v->l->n > 0 || v->l->kind == L_GENERATOR;
    case V_DICT: return v->d->n > 0;
    case V_FUNC:
    case V_NAMESPACE:
    case V_LOOP: return true;
    }
    return false;
}

bool value_number(const struct value *v, double *f)
{
    switch (v->type) {
    case V_BOOL: *f = v->b; return true;
    case V_INT: *f = (double)v->i; return true;
    case V_FLOAT: *f = v->f; return true;
    default: return false;
    }
}

const char *value_type_name(const struct value *v)
{
    static const char *const lists[] = {"list",        "tuple",      "generator", "dict_keys",
                                        "dict_values", "dict_items", "range"};
    switch ((enum value_type)v->type) {
    case V_UNDEFINED: return "Undefined";
    case V_NONE: return "NoneType";
    case V_BOOL: return "bool";
    case V_INT: return "int";
    case V_FLOAT: return "float";
    case V_STRING: return "str";
    case V_LIST: return lists[v->l->kind];
    case V_DICT: return "dict";
    case V_FUNC: return "function";
    case V_NAMESPACE: return "Namespace";
    case V_LOOP: return "LoopContext";
    }
    return "object";
}

static bool same_kind(const struct list *a, const struct list *b)
{
    return a->kind == b->kind;
}

static bool scalar_equal(const struct value *a, const struct value *b)
{
    double x, y;
    if (a->type == V_INT && b->type == V_INT)
        return a->i == b->i;
    if (value_number(a, &x))
        return value_number(b, &y) && x == y;
    if (a->type != b->type)
        return false;
    switch ((enum value_type)a->type) {
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_STRING: return a->s->n == b->s->n && memcmp(a->s->p, b->s->p, a->s->n) == 0;
    case V_FUNC: return a->fn == b->fn;
    case V_NAMESPACE: return a->d == b->d;
    case V_LOOP: return a->loop == b->loop;
    default: return false;
    }
}

static bool list_equal(struct meter *m, const struct list *a, const struct list *b)
{
    if (a == b)
        return true;
    if (!same_kind(a, b) || a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!value_equal(m, &a->v[i], &b->v[i]))
            return false;
    return true;
}

static bool dict_equal(struct meter *m, const struct dict *a, const struct dict *b)
{
    if (a == b)
        return true;
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *v = dict_get(b, &a->v[i].key);
        if (!v || !value_equal(m, &a->v[i].value, v))
            return false;
    }
    return true;
}

bool value_equal(struct meter *m, const struct value *a, const struct value *b)
{
    if (a->type != b->type || (a->type != V_LIST && a->type != V_DICT))
        return meter_take(m, a->type == V_STRING ? 1 + a->s->n / 64 : 1) && scalar_equal(a, b);
    if (!meter_take(m, 1) || !meter_enter(m))
        return false;
    const bool equal = a->type == V_LIST ? list_equal(m, a->l, b->l) : dict_equal(m, a->d, b->d);
    meter_leave(m);
    return equal;
}

static int order_text(const struct string *a, const struct string *b)
{
    const size_t n = a->n < b->n ? a->n : b->n;
    const int c = n ? memcmp(a->p, b->p, n) : 0;
    return c ? (c > 0) - (c < 0) : (a->n > b->n) - (a->n < b->n);
}

static bool order_list(struct meter *m, const struct list *a, const struct list *b, int *order)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!value_equal(m, &a->v[i], &b->v[i]))
            return value_order(m, &a->v[i], &b->v[i], order);
    *order = (a->n > b->n) - (a->n < b->n);
    return true;
}

bool value_order(struct meter *m, const struct value *a, const struct value *b, int *order)
{
    double x, y;
    *order = 0;
    if (a->type == V_INT && b->type == V_INT) {
        *order = (a->i > b->i) - (a->i < b->i);
        return true;
    }
    if (value_number(a, &x) && value_number(b, &y)) {
        *order = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
        return true;
    }
    if (a->type == V_STRING && b->type == V_STRING) {
        if (meter_take(m, 1 + a->s->n / 64))
            *order = order_text(a->s, b->s);
        return true;
    }
    if (a->type != V_LIST || b->type != V_LIST || !same_kind(a->l, b->l) || a->l->kind > L_TUPLE)
        return false;
    if (!meter_enter(m))
        return true;
    const bool ordered = order_list(m, a->l, b->l, order);
    meter_leave(m);
    return ordered;
}

static uint32_t hash_bytes(const void *p, size_t n, uint64_t seed)
{
    return (uint32_t)XXH3_64bits_withSeed(p, n, seed);
}

static uint32_t hash_scalar(const struct value *v, uint64_t seed)
{
    double f;
    /* equal numbers are equal keys whatever their type */
    if (value_number(v, &f)) {
        f = f == 0 ? 0 : f;
        return hash_bytes(&f, sizeof f, seed);
    }
    return v->type == V_STRING ? hash_bytes(v->s->p, v->s->n, seed) : v->type;
}

static uint32_t hash_key(const struct value *v, uint64_t seed)
{
    if (v->type != V_LIST)
        return hash_scalar(v, seed);
    uint32_t h = 0;
    for (size_t i = 0; i < v->l->n; i++) {
        const uint32_t both[] = {h, hash_scalar(&v->l->v[i], seed)};
        h = hash_bytes(both, sizeof both, seed);
    }
    return h;
}

static bool hashable_scalar(const struct value *v)
{
    return v->type <= V_STRING;
}

bool value_hashable(const struct value *v)
{
    if (v->type != V_LIST)
        return hashable_scalar(v);
    if (v->l->kind != L_TUPLE)
        return false;
    for (size_t i = 0; i < v->l->n; i++)
        if (!hashable_scalar(&v->l->v[i]))
            return false;
    return true;
}

struct string *string_view(struct arena *a, const char *p, size_t n, bool input)
{
    struct string *s = arena_alloc(a, sizeof *s);
    if (s)
        *s = (struct string){.p = p, .n = n, .input = input};
    return s;
}

struct string *string_slice(struct arena *a, const struct string *s, size_t from, size_t n)
{
    struct string *out = arena_alloc(a, sizeof *out);
    if (out)
        *out = (struct string){s->p + from, n, s->marks, s->off + from, s->input};
    return out;
}

struct list *list_new(struct arena *a, enum list_kind kind, size_t room)
{
    struct list *l = arena_alloc(a, sizeof *l);
    if (!l || room > SIZE_MAX / 2 / sizeof *l->v)
        return NULL;
    *l = (struct list){.kind = (uint8_t)kind};
    if (room) {
        l->v = arena_alloc(a, room * sizeof *l->v);
        if (!l->v)
            return NULL;
        l->cap = room;
    }
    return l;
}

int list_push(struct arena *a, struct list *l, struct value v)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap * 2 + 4;
        struct value *p = arena_grow(a, l->v, l->cap * sizeof *p, cap * sizeof *p);
        if (!p)
            return -1;
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return 0;
}

struct dict *dict_new(struct arena *a)
{
    struct dict *d = arena_alloc(a, sizeof *d);
    if (d)
        *d = (struct dict){.seed = a->seed};
    return d;
}

static bool is_pair(const struct pair *p, const struct value *key, uint32_t hash)
{
    if (p->hash != hash)
        return false;
    if (p->key.type != V_LIST || key->type != V_LIST)
        return scalar_equal(&p->key, key);
    const struct list *a = p->key.l, *b = key->l;
    size_t i = 0;
    while (a->n == b->n && i < a->n && scalar_equal(&a->v[i], &b->v[i]))
        i++;
    return a->n == b->n && i == a->n;
}

/* Position of the key, or n. */
static size_t dict_find(const struct dict *d, const struct value *key, uint32_t hash)
{
    if (!d->index) {
        size_t i = 0;
        while (i < d->n && !is_pair(&d->v[i], key, hash))
            i++;
        return i;
    }
    for (size_t k = hash & (d->index_n - 1);; k = (k + 1) & (d->index_n - 1)) {
        const uint32_t i = d->index[k];
        if (i == UINT32_MAX)
            return d->n;
        if (is_pair(&d->v[i], key, hash))
            return i;
    }
}

static void index_put(struct dict *d, uint32_t i)
{
    size_t k = d->v[i].hash & (d->index_n - 1);
    while (d->index[k] != UINT32_MAX)
        k = (k + 1) & (d->index_n - 1);
    d->index[k] = i;
}

static int dict_reindex(struct arena *a, struct dict *d)
{
    size_t n = 32;
    while (n < d->cap * 2)
        n *= 2;
    uint32_t *index = arena_alloc(a, n * sizeof *index);
    if (!index)
        return -1;
    memset(index, 0xFF, n * sizeof *index);
    d->index = index;
    d->index_n = n;
    for (size_t i = 0; i < d->n; i++)
        index_put(d, (uint32_t)i);
    return 0;
}

int dict_set(struct arena *a, struct dict *d, struct value key, struct value v)
{
    const uint32_t hash = hash_key(&key, d->seed);
    const size_t i = dict_find(d, &key, hash);
    if (i < d->n) {
        d->v[i].value = v;
        return 0;
    }
    if (d->n == d->cap) {
        const size_t cap = d->cap * 2 + 4;
        if (cap >= UINT32_MAX)
            return -1;
        struct pair *p = arena_grow(a, d->v, d->cap * sizeof *p, cap * sizeof *p);
        if (!p)
            return -1;
        d->v = p;
        d->cap = cap;
        if (cap > 12 && dict_reindex(a, d))
            return -1;
    }
    d->v[d->n++] = (struct pair){key, v, hash};
    if (d->index)
        index_put(d, (uint32_t)d->n - 1);
    return 0;
}

const struct value *dict_get(const struct dict *d, const struct value *key)
{
    if (!value_hashable(key))
        return NULL;
    const size_t i = dict_find(d, key, hash_key(key, d->seed));
    return i < d->n ? &d->v[i].value : NULL;
}

const struct value *dict_get_text(const struct dict *d, const char *key, size_t n)
{
    struct string s = {.p = key, .n = n};
    const struct value v = v_string(&s);
    return dict_get(d, &v);
}
