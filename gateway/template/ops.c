/* Operators, attributes and items. */
#include "eval.h"
#include "points.h"

#include <math.h>
#include <string.h>

static int bad_operands(struct eval *e, const char *op, const struct value *a, const struct value *b)
{
    const struct value *u = a->type == V_UNDEFINED ? a : b;
    if (u->type == V_UNDEFINED && u->name)
        return eval_fail(e, "'%.*s' is undefined", u->name->n > 60 ? 60 : (int)u->name->n, u->name->p);
    return eval_fail(e, "unsupported operand types for %s: '%s' and '%s'", op, value_type_name(a),
                     value_type_name(b));
}

static bool as_int(const struct value *v, int64_t *i)
{
    *i = v->type == V_BOOL ? v->b : v->i;
    return v->type == V_INT || v->type == V_BOOL;
}

static int int_floor(struct eval *e, enum op op, int64_t a, int64_t b, struct value *out)
{
    if (b == 0)
        return eval_fail(e, "integer division or modulo by zero");
    if (b == -1) { /* the one quotient that does not fit is a's */
        if (op == OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &out->i))
            return eval_fail(e, "a number is larger than 64 bits");
        *out = v_int(op == OP_MOD ? 0 : -a);
        return 0;
    }
    int64_t q = a / b, r = a % b;
    if (r != 0 && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    *out = v_int(op == OP_MOD ? r : q);
    return 0;
}

static int int_power(struct eval *e, int64_t a, int64_t b, struct value *out)
{
    if (b < 0) {
        if (a == 0)
            return eval_fail(e, "zero cannot be raised to a negative power");
        *out = v_float(pow((double)a, (double)b));
        return 0;
    }
    int64_t r = 1;
    while (b > 0) {
        if ((b & 1) && __builtin_mul_overflow(r, a, &r))
            return eval_fail(e, "a number is larger than 64 bits");
        b >>= 1;
        if (b && __builtin_mul_overflow(a, a, &a))
            return eval_fail(e, "a number is larger than 64 bits");
    }
    *out = v_int(r);
    return 0;
}

static int int_op(struct eval *e, enum op op, int64_t a, int64_t b, struct value *out)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case OP_DIV:
        if (b == 0)
            return eval_fail(e, "division by zero");
        *out = v_float((double)a / (double)b);
        return 0;
    case OP_POW: return int_power(e, a, b, out);
    default: return int_floor(e, op, a, b, out);
    }
    if (over)
        return eval_fail(e, "a number is larger than 64 bits");
    *out = v_int(r);
    return 0;
}

static int float_op(struct eval *e, enum op op, double a, double b, struct value *out)
{
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return eval_fail(e, "division by zero");
    double r = 0;
    switch (op) {
    case OP_ADD: r = a + b; break;
    case OP_SUB: r = a - b; break;
    case OP_MUL: r = a * b; break;
    case OP_DIV: r = a / b; break;
    case OP_POW: r = pow(a, b); break;
    case OP_MOD:
        r = fmod(a, b);
        if (r != 0 && (r < 0) != (b < 0))
            r += b;
        break;
    default: r = floor(a / b); break;
    }
    *out = v_float(r);
    return 0;
}

static int list_add(struct eval *e, const struct value *a, const struct value *b, struct value *out)
{
    if (a->l->kind != b->l->kind || a->l->kind > L_TUPLE)
        return bad_operands(e, "+", a, b);
    struct list *l = list_new(&e->arena, (enum list_kind)a->l->kind, a->l->n + b->l->n);
    if (!l)
        return eval_exhausted(e);
    if (eval_take(e, a->l->n + b->l->n))
        return -1;
    for (size_t i = 0; i < a->l->n; i++)
        l->v[l->n++] = a->l->v[i];
    for (size_t i = 0; i < b->l->n; i++)
        l->v[l->n++] = b->l->v[i];
    *out = v_list(l);
    return 0;
}

static int list_repeat(struct eval *e, const struct list *l, int64_t times, struct value *out)
{
    struct list *r = list_new(&e->arena, (enum list_kind)l->kind, 0);
    if (!r)
        return eval_exhausted(e);
    for (int64_t t = 0; t < times && l->n; t++) {
        if (eval_take(e, l->n))
            return -1;
        for (size_t i = 0; i < l->n; i++)
            if (list_push(&e->arena, r, l->v[i]))
                return eval_exhausted(e);
    }
    *out = v_list(r);
    return 0;
}

static int repeat(struct eval *e, const struct value *v, int64_t times, struct value *out)
{
    return v->type == V_STRING ? text_repeat(e, v->s, times, out) : list_repeat(e, v->l, times, out);
}

static bool repeats(const struct value *v)
{
    return v->type == V_STRING || (v->type == V_LIST && v->l->kind <= L_TUPLE);
}

int eval_binary(struct eval *e, enum op op, const struct value *a, const struct value *b, struct value *out)
{
    static const char *const names[] = {"", "+", "-", "*", "/", "//", "%", "**"};
    int64_t i, j;
    double x, y;
    if (op == OP_ADD && a->type == V_STRING && b->type == V_STRING) {
        struct builder t = eval_builder(e);
        if (eval_take(e, (a->s->n + b->s->n) / 64))
            return -1;
        if (builder_room(&t, a->s->n + b->s->n) || builder_string(&t, a->s) || builder_string(&t, b->s))
            return eval_exhausted(e);
        return eval_built(e, &t, out);
    }
    if (op == OP_ADD && a->type == V_LIST && b->type == V_LIST)
        return list_add(e, a, b, out);
    if (op == OP_MOD && a->type == V_STRING)
        return text_format(e, a->s, b, out);
    if (as_int(a, &i) && as_int(b, &j))
        return int_op(e, op, i, j, out);
    if (value_number(a, &x) && value_number(b, &y))
        return float_op(e, op, x, y, out);
    if (op == OP_MUL && repeats(a) && as_int(b, &j))
        return repeat(e, a, j, out);
    if (op == OP_MUL && repeats(b) && as_int(a, &i))
        return repeat(e, b, i, out);
    return bad_operands(e, names[op], a, b);
}

static int contains(struct eval *e, const struct value *item, const struct value *in, bool *out)
{
    *out = false;
    if (in->type == V_STRING) {
        const struct string *what;
        if (item->type != V_STRING)
            return eval_fail(e, "'in <string>' requires a string, not %s", value_type_name(item));
        what = item->s;
        *out = text_find(in->s, 0, what) != SIZE_MAX;
        return eval_take(e, in->s->n / 64);
    }
    if (in->type == V_DICT) {
        if (!value_hashable(item))
            return eval_fail(e, "unhashable type: '%s'", value_type_name(item));
        *out = dict_get(in->d, item) != NULL;
        return 0;
    }
    const struct list *items;
    if (eval_items(e, in, &items))
        return -1;
    for (size_t i = 0; i < items->n && !*out; i++)
        *out = value_equal(&e->meter, &items->v[i], item);
    return e->meter.spent ? eval_exhausted(e) : 0;
}

int eval_compare(struct eval *e, enum op op, const struct value *a, const struct value *b, bool *out)
{
    if (op == OP_IN || op == OP_NOT_IN) {
        if (contains(e, a, b, out))
            return -1;
        *out = *out != (op == OP_NOT_IN);
        return 0;
    }
    if (op == OP_EQ || op == OP_NE) {
        *out = value_equal(&e->meter, a, b) == (op == OP_EQ);
        return e->meter.spent ? eval_exhausted(e) : 0;
    }
    int order;
    if (!value_order(&e->meter, a, b, &order))
        return bad_operands(e, op == OP_LT ? "<" : op == OP_LE ? "<=" : op == OP_GT ? ">" : ">=", a, b);
    if (e->meter.spent)
        return eval_exhausted(e);
    switch (op) {
    case OP_LT: *out = order == -1; break;
    case OP_LE: *out = order == -1 || order == 0; break;
    case OP_GT: *out = order == 1; break;
    default: *out = order == 1 || order == 0; break;
    }
    return 0;
}

static int string_items(struct eval *e, const struct string *s, struct list *l)
{
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        const size_t n = point_get(s->p + i, s->n - i, &cp);
        struct string *c = string_slice(&e->arena, s, i, n);
        if (!c || list_push(&e->arena, l, v_string(c)))
            return eval_exhausted(e);
        i += n;
    }
    return eval_take(e, l->n);
}

int eval_items(struct eval *e, const struct value *v, const struct list **out)
{
    if (v->type == V_LIST) {
        *out = v->l;
        return 0;
    }
    if (v->type != V_STRING && v->type != V_DICT && v->type != V_UNDEFINED)
        return eval_fail(e, "'%s' object is not iterable", value_type_name(v));
    struct list *l = list_new(&e->arena, L_LIST, v->type == V_DICT ? v->d->n : 0);
    if (!l)
        return eval_exhausted(e);
    *out = l;
    if (v->type == V_STRING)
        return string_items(e, v->s, l);
    if (v->type == V_DICT) {
        for (size_t i = 0; i < v->d->n; i++)
            l->v[l->n++] = v->d->v[i].key;
        return eval_take(e, l->n);
    }
    return 0;
}

static int loop_attr(struct eval *e, struct loop *l, const struct string *name, struct value *out)
{
    const int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    if (string_is(name, "index"))
        *out = v_int(i + 1);
    else if (string_is(name, "index0"))
        *out = v_int(i);
    else if (string_is(name, "first"))
        *out = v_bool(i == 0);
    else if (string_is(name, "last"))
        *out = v_bool(i + 1 >= n);
    else if (string_is(name, "length"))
        *out = v_int(n);
    else if (string_is(name, "revindex"))
        *out = v_int(n - i);
    else if (string_is(name, "revindex0"))
        *out = v_int(n - i - 1);
    else if (string_is(name, "depth"))
        *out = v_int((int64_t)l->depth + 1);
    else if (string_is(name, "depth0"))
        *out = v_int(l->depth);
    else if (string_is(name, "previtem"))
        *out = i > 0 ? l->items->v[i - 1] : v_undefined(name);
    else if (string_is(name, "nextitem"))
        *out = i + 1 < n ? l->items->v[i + 1] : v_undefined(name);
    else if (string_is(name, "cycle") || string_is(name, "changed")) {
        struct func *f = arena_alloc(&e->arena, sizeof *f);
        if (!f)
            return eval_exhausted(e);
        *f = (struct func){.kind = string_is(name, "cycle") ? F_LOOP_CYCLE : F_LOOP_CHANGED,
                           .self = {.type = V_LOOP, .loop = l}};
        *out = (struct value){.type = V_FUNC, .fn = f};
    } else
        *out = v_undefined(name);
    return 0;
}

static int undefined_used(struct eval *e, const struct value *obj)
{
    if (obj->name)
        return eval_fail(e, "'%.*s' is undefined", obj->name->n > 60 ? 60 : (int)obj->name->n, obj->name->p);
    return eval_fail(e, "an undefined value has no attributes");
}

static int bound_method(struct eval *e, const struct value *obj, int id, struct value *out)
{
    struct func *f = arena_alloc(&e->arena, sizeof *f);
    if (!f)
        return eval_exhausted(e);
    *f = (struct func){.kind = F_METHOD, .id = id, .name = method_name(id), .self = *obj};
    *out = (struct value){.type = V_FUNC, .fn = f};
    return 0;
}

int eval_attr(struct eval *e, const struct value *obj, const struct string *name, struct value *out)
{
    *out = v_undefined(name);
    if (obj->type == V_UNDEFINED)
        return undefined_used(e, obj);
    if (obj->type == V_LOOP)
        return loop_attr(e, obj->loop, name, out);
    const int id = method_find(obj, name);
    if (id >= 0)
        return bound_method(e, obj, id, out);
    if (obj->type == V_DICT || obj->type == V_NAMESPACE) {
        const struct value *v = dict_get_text(obj->d, name->p, name->n);
        if (v)
            *out = *v;
    } else if (obj->type == V_LIST && obj->l->group &&
               (string_is(name, "grouper") || string_is(name, "list"))) {
        *out = obj->l->v[string_is(name, "list")];
    } else if (obj->type == V_FUNC && obj->fn->kind == F_CYCLER && string_is(name, "next")) {
        *out = *obj; /* calling the cycler is its next() */
    } else if (obj->type == V_FUNC && obj->fn->kind == F_CYCLER && string_is(name, "current")) {
        const struct list *l = obj->fn->self.l;
        if (l->n)
            *out = l->v[obj->fn->position % l->n];
    } else if (obj->type == V_FUNC && obj->fn->kind == F_MACRO && string_is(name, "name"))
        return eval_text(e, obj->fn->name, strlen(obj->fn->name), false, out);
    return 0;
}

static int index_of(int64_t i, size_t n, size_t *out)
{
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n)
        return -1;
    *out = (size_t)i;
    return 0;
}

static int string_item(struct eval *e, const struct string *s, int64_t i, struct value *out)
{
    size_t at, k;
    uint32_t cp;
    if (eval_take(e, s->n / 64))
        return -1;
    if (index_of(i, points_count(s->p, s->n), &k))
        return 0;
    at = points_offset(s->p, s->n, k);
    struct string *c = string_slice(&e->arena, s, at, point_get(s->p + at, s->n - at, &cp));
    if (!c)
        return eval_exhausted(e);
    *out = v_string(c);
    return 0;
}

int eval_item(struct eval *e, const struct value *obj, const struct value *key, struct value *out)
{
    int64_t i;
    size_t k;
    *out = v_undefined(key->type == V_STRING ? key->s : NULL);
    if (obj->type == V_UNDEFINED)
        return undefined_used(e, obj);
    if (obj->type == V_DICT) {
        const struct value *v = dict_get(obj->d, key);
        if (v) {
            *out = *v;
            return eval_take(e, key->type == V_STRING ? key->s->n / 64 : 0);
        }
    }
    if (as_int(key, &i)) {
        if (obj->type == V_STRING)
            return string_item(e, obj->s, i, out);
        if (obj->type == V_LIST && (obj->l->kind <= L_TUPLE || obj->l->kind == L_RANGE) &&
            index_of(i, obj->l->n, &k) == 0)
            *out = obj->l->v[k];
        return 0;
    }
    return key->type == V_STRING ? eval_attr(e, obj, key->s, out) : 0;
}
