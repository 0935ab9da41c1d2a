#include "eval.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int eval_fail(struct eval *e, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct node *n = e->where;
    return vt_fail(e->err, VT_E_PARAM, "template line %u, column %u: %s", n ? n->line : 0, n ? n->column : 0,
                   text);
}

int eval_exhausted(struct eval *e)
{
    if (e->meter.spent == METER_NO_STEPS)
        return eval_fail(e, "the template takes more than %llu steps", (unsigned long long)e->max_steps);
    if (e->meter.spent == METER_NO_DEPTH)
        return eval_fail(e, "nested more than %u levels deep", e->max_depth);
    if (e->out && e->out->full)
        return eval_fail(e, "the output is longer than %zu bytes", e->out->limit);
    return eval_fail(e, "the template needs more than %zu bytes of memory", e->arena.limit);
}

int eval_enter(struct eval *e)
{
    return meter_enter(&e->meter) ? 0 : eval_exhausted(e);
}

int eval_built(struct eval *e, struct builder *b, struct value *out)
{
    struct string *s = builder_end(b);
    if (!s)
        return eval_exhausted(e);
    *out = v_string(s);
    return 0;
}

int eval_text(struct eval *e, const char *text, size_t n, bool input, struct value *out)
{
    struct string *s = string_view(&e->arena, text, n, input);
    if (!s)
        return eval_exhausted(e);
    *out = v_string(s);
    return 0;
}

static int load_name(struct eval *e, const struct string *name, struct value *out)
{
    for (const struct scope *s = e->scope; s; s = s->parent) {
        for (size_t i = s->n; i-- > 0;)
            if (s->v[i].name == name) {
                *out = s->v[i].value;
                return 0;
            }
        if (eval_take(e, s->n / 16))
            return -1;
    }
    const struct value *g = dict_get_text(e->globals, name->p, name->n);
    *out = g ? *g : v_undefined(name);
    return 0;
}

static int eval_list(struct eval *e, const struct node *n, struct value *out)
{
    struct list *l = list_new(&e->arena, n->kind == E_TUPLE ? L_TUPLE : L_LIST, 0);
    if (!l)
        return eval_exhausted(e);
    for (const struct node *i = n->a; i; i = i->next) {
        struct value v;
        if (eval_expr(e, i, &v))
            return -1;
        if (list_push(&e->arena, l, v))
            return eval_exhausted(e);
    }
    *out = v_list(l);
    return 0;
}

static int eval_dict(struct eval *e, const struct node *n, struct value *out)
{
    struct dict *d = dict_new(&e->arena);
    if (!d)
        return eval_exhausted(e);
    for (const struct node *i = n->a; i; i = i->next) {
        struct value key, v;
        if (eval_expr(e, i->a, &key) || eval_expr(e, i->b, &v))
            return -1;
        if (!value_hashable(&key))
            return eval_fail(e, "a %s cannot be a key", value_type_name(&key));
        if (dict_set(&e->arena, d, key, v))
            return eval_exhausted(e);
    }
    *out = v_dict(d);
    return 0;
}

static int eval_chain(struct eval *e, const struct node *n, struct value *out)
{
    if (eval_expr(e, n->a, out))
        return -1;
    for (const struct node *i = n->a->next; i; i = i->next) {
        const struct value left = *out;
        struct value right;
        if (eval_expr(e, i, &right))
            return -1;
        e->where = i;
        if (eval_binary(e, (enum op)i->op, &left, &right, out))
            return -1;
    }
    return 0;
}

static int eval_concat(struct eval *e, const struct node *n, struct value *out)
{
    struct builder b = eval_builder(e);
    for (const struct node *i = n->a; i; i = i->next) {
        struct value v;
        if (eval_expr(e, i, &v) || print_str(e, &b, &v))
            return -1;
    }
    return eval_built(e, &b, out);
}

static int eval_logic(struct eval *e, const struct node *n, struct value *out)
{
    for (const struct node *i = n->a; i; i = i->next) {
        if (eval_expr(e, i, out))
            return -1;
        if (value_truth(out) == (n->kind == E_OR))
            return 0;
    }
    return 0;
}

static int eval_comparison(struct eval *e, const struct node *n, struct value *out)
{
    struct value left, right;
    bool holds = true;
    if (eval_expr(e, n->a, &left))
        return -1;
    for (const struct node *i = n->a->next; i && holds; i = i->next) {
        if (eval_expr(e, i, &right))
            return -1;
        e->where = i;
        if (eval_compare(e, (enum op)i->op, &left, &right, &holds))
            return -1;
        left = right;
    }
    *out = v_bool(holds);
    return 0;
}

static int eval_sign(struct eval *e, const struct node *n, struct value *out)
{
    if (eval_expr(e, n->a, out))
        return -1;
    e->where = n;
    if (out->type == V_BOOL)
        *out = v_int(out->b);
    if (out->type == V_FLOAT) {
        if (n->kind == E_NEG)
            out->f = -out->f;
        return 0;
    }
    if (out->type != V_INT)
        return eval_fail(e, "bad operand type for unary %c: '%s'", n->kind == E_NEG ? '-' : '+',
                         value_type_name(out));
    if (n->kind == E_NEG && __builtin_sub_overflow((int64_t)0, out->i, &out->i))
        return eval_fail(e, "a number is larger than 64 bits");
    return 0;
}

static int eval_cond(struct eval *e, const struct node *n, struct value *out)
{
    struct value cond;
    if (eval_expr(e, n->b, &cond))
        return -1;
    if (value_truth(&cond))
        return eval_expr(e, n->a, out);
    if (n->c)
        return eval_expr(e, n->c, out);
    *out = v_undefined(NULL);
    return 0;
}

static int splat_list(struct eval *e, const struct value *v, struct list *l)
{
    const struct list *items;
    if (eval_items(e, v, &items))
        return -1;
    for (size_t i = 0; i < items->n; i++)
        if (list_push(&e->arena, l, items->v[i]))
            return eval_exhausted(e);
    return eval_take(e, items->n);
}

static int push_keyword(struct eval *e, struct args *a, const struct string *name, struct value v)
{
    struct keyword *kw = arena_grow(&e->arena, a->kw, a->n_kw * sizeof *kw, (a->n_kw + 1) * sizeof *kw);
    if (!kw)
        return eval_exhausted(e);
    kw[a->n_kw++] = (struct keyword){name, v};
    a->kw = kw;
    return 0;
}

static int splat_dict(struct eval *e, const struct value *v, struct args *a)
{
    if (v->type != V_DICT)
        return eval_fail(e, "argument after ** must be a mapping, not %s", value_type_name(v));
    for (size_t i = 0; i < v->d->n; i++) {
        if (v->d->v[i].key.type != V_STRING)
            return eval_fail(e, "keywords must be strings");
        if (eval_take(e, 1) || push_keyword(e, a, v->d->v[i].key.s, v->d->v[i].value))
            return -1;
    }
    return 0;
}

int eval_args(struct eval *e, const struct node *list, const struct value *first, struct args *out)
{
    *out = (struct args){.n = 0};
    struct list *l = list_new(&e->arena, L_LIST, 0);
    if (!l || (first && list_push(&e->arena, l, *first)))
        return eval_exhausted(e);
    for (const struct node *i = list; i; i = i->next) {
        const bool wrapped = i->kind == E_KWARG || i->kind == E_STAR || i->kind == E_STARSTAR;
        struct value v;
        if (eval_expr(e, wrapped ? i->a : i, &v))
            return -1;
        if (!wrapped) {
            if (list_push(&e->arena, l, v))
                return eval_exhausted(e);
        } else if (i->kind == E_STAR    ? splat_list(e, &v, l)
                   : i->kind == E_KWARG ? push_keyword(e, out, i->name, v)
                                        : splat_dict(e, &v, out)) {
            return -1;
        }
    }
    out->v = l->v;
    out->n = l->n;
    return 0;
}

static int apply_slice(struct eval *e, const struct node *op, const struct value *base, struct value *out)
{
    struct value v[3];
    const struct node *const part[3] = {op->a, op->b, op->c};
    const struct value *p[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3; i++)
        if (part[i]) {
            if (eval_expr(e, part[i], &v[i]))
                return -1;
            p[i] = v[i].type == V_NONE ? NULL : &v[i];
        }
    e->where = op;
    return eval_slice(e, base, p[0], p[1], p[2], out);
}

static int apply_test(struct eval *e, const struct node *op, const struct value *base, struct value *out)
{
    struct args args;
    bool holds = false;
    if (eval_args(e, op->a, base, &args))
        return -1;
    e->where = op;
    if (test_apply(e, op->id, op->name, &args, &holds))
        return -1;
    *out = v_bool(holds != op->flag);
    return 0;
}

static int apply(struct eval *e, const struct node *op, const struct value *base, struct value *out)
{
    struct value key;
    struct args args;
    e->where = op;
    switch (op->kind) {
    case P_ATTR: return eval_attr(e, base, op->name, out);
    case P_ITEM:
        if (eval_expr(e, op->a, &key))
            return -1;
        e->where = op;
        return eval_item(e, base, &key, out);
    case P_SLICE: return apply_slice(e, op, base, out);
    case P_CALL:
        if (eval_args(e, op->a, NULL, &args))
            return -1;
        e->where = op;
        return eval_call(e, base, &args, out);
    case P_FILTER:
        if (eval_args(e, op->a, base, &args))
            return -1;
        e->where = op;
        return filter_apply(e, op->id, op->name, &args, out);
    default: return apply_test(e, op, base, out);
    }
}

static int eval_postfix(struct eval *e, const struct node *n, struct value *out)
{
    if (eval_expr(e, n->a, out))
        return -1;
    for (const struct node *op = n->b; op; op = op->next) {
        const struct value base = *out;
        if (eval_take(e, 1) || apply(e, op, &base, out))
            return -1;
    }
    return 0;
}

static int eval_nested(struct eval *e, const struct node *n, struct value *out)
{
    struct value v;
    switch ((enum node_kind)n->kind) {
    case E_LIST:
    case E_TUPLE: return eval_list(e, n, out);
    case E_DICT: return eval_dict(e, n, out);
    case E_CHAIN: return eval_chain(e, n, out);
    case E_CONCAT: return eval_concat(e, n, out);
    case E_AND:
    case E_OR: return eval_logic(e, n, out);
    case E_COMPARE: return eval_comparison(e, n, out);
    case E_NOT:
        if (eval_expr(e, n->a, &v))
            return -1;
        *out = v_bool(!value_truth(&v));
        return 0;
    case E_NEG:
    case E_POS: return eval_sign(e, n, out);
    case E_COND: return eval_cond(e, n, out);
    case E_POSTFIX: return eval_postfix(e, n, out);
    default: return eval_fail(e, "this cannot be evaluated");
    }
}

int eval_expr(struct eval *e, const struct node *n, struct value *out)
{
    if (eval_take(e, 1))
        return -1;
    if (n->kind == E_CONST) {
        *out = n->literal;
        return 0;
    }
    if (n->kind == E_NAME)
        return load_name(e, n->name, out);
    e->where = n;
    if (eval_enter(e))
        return -1;
    const int rc = eval_nested(e, n, out);
    eval_leave(e);
    return rc;
}

int eval_call(struct eval *e, const struct value *fn, const struct args *args, struct value *out)
{
    if (fn->type == V_UNDEFINED)
        return fn->name ? eval_fail(e, "'%.*s' is undefined", fn->name->n > 60 ? 60 : (int)fn->name->n,
                                    fn->name->p)
                        : eval_fail(e, "an undefined value is called");
    if (fn->type == V_LOOP) {
        if (args->n != 1)
            return eval_fail(e, "loop() takes the items to loop over");
        return eval_loop_call(e, fn->loop, &args->v[0], out);
    }
    if (fn->type != V_FUNC)
        return eval_fail(e, "'%s' object is not callable", value_type_name(fn));
    struct func *f = fn->fn;
    switch (f->kind) {
    case F_GLOBAL: return global_call(e, f->id, args, out);
    case F_METHOD: return method_call(e, f->id, &f->self, args, out);
    case F_MACRO:
    case F_CALLER: return eval_macro(e, f, args, out);
    case F_CYCLER:
        if (f->self.l->n == 0)
            return eval_fail(e, "at least one item has to be provided");
        *out = f->self.l->v[f->position++ % f->self.l->n];
        return 0;
    case F_JOINER:
        if (f->position++ == 0)
            return eval_text(e, "", 0, false, out);
        *out = f->self;
        return 0;
    case F_LOOP_CYCLE:
        if (args->n == 0)
            return eval_fail(e, "no items for cycling given");
        *out = args->v[f->self.loop->i % args->n];
        return 0;
    case F_LOOP_CHANGED: {
        struct list *l = list_new(&e->arena, L_TUPLE, args->n);
        if (!l)
            return eval_exhausted(e);
        for (size_t i = 0; i < args->n; i++)
            if (list_push(&e->arena, l, args->v[i]))
                return eval_exhausted(e);
        struct loop *loop = f->self.loop;
        const struct value now = v_list(l);
        const bool same = loop->has_changed && value_equal(&e->meter, &loop->changed, &now);
        if (e->meter.spent)
            return eval_exhausted(e);
        loop->changed = now;
        loop->has_changed = true;
        *out = v_bool(!same);
        return 0;
    }
    }
    return eval_fail(e, "this cannot be called");
}

int eval_bind(struct eval *e, const char *what, const struct args *args, const char *const *names, size_t n,
              size_t required, const struct value **out)
{
    if (args->n > n)
        return eval_fail(e, "%s takes at most %zu arguments, %zu are given", what, n, args->n);
    for (size_t i = 0; i < n; i++)
        out[i] = i < args->n ? &args->v[i] : NULL;
    for (size_t k = 0; k < args->n_kw; k++) {
        size_t i = 0;
        while (i < n && !string_is(args->kw[k].name, names[i]))
            i++;
        if (i == n)
            return eval_fail(e, "%s has no argument '%.*s'", what,
                             args->kw[k].name->n > 60 ? 60 : (int)args->kw[k].name->n, args->kw[k].name->p);
        out[i] = &args->kw[k].value;
    }
    for (size_t i = 0; i < required; i++)
        if (!out[i])
            return eval_fail(e, "%s needs the argument '%s'", what, names[i]);
    return 0;
}

int arg_int(struct eval *e, const char *what, const struct value *v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (!v || v->type == V_NONE)
        return 0;
    if (v->type != V_INT && v->type != V_BOOL)
        return eval_fail(e, "%s must be an integer, not %s", what, value_type_name(v));
    *out = v->type == V_INT ? v->i : v->b;
    return 0;
}

int arg_string(struct eval *e, const char *what, const struct value *v, const struct string **out)
{
    if (v->type != V_STRING)
        return eval_fail(e, "%s must be a string, not %s", what, value_type_name(v));
    *out = v->s;
    return 0;
}

int arg_text(struct eval *e, const struct value *v, const struct string **out)
{
    if (v->type == V_STRING) {
        *out = v->s;
        return 0;
    }
    struct builder b = eval_builder(e);
    struct value s;
    if (print_str(e, &b, v) || eval_built(e, &b, &s))
        return -1;
    *out = s.s;
    return 0;
}
