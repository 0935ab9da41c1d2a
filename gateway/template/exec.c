/* Statements: output, assignment, loops, macros. */
#include "eval.h"

#include <string.h>

int scope_set(struct eval *e, const struct string *name, struct value v)
{
    struct scope *s = e->scope;
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].name == name) {
            s->v[i].value = v;
            return 0;
        }
    if (s->n == s->cap) {
        const size_t cap = s->cap * 2 + 4;
        struct variable *p = arena_grow(&e->arena, s->v, s->cap * sizeof *p, cap * sizeof *p);
        if (!p)
            return eval_exhausted(e);
        s->v = p;
        s->cap = cap;
    }
    s->v[s->n++] = (struct variable){name, v};
    return 0;
}

static struct scope *scope_new(struct eval *e, struct scope *parent)
{
    struct scope *s = arena_alloc(&e->arena, sizeof *s);
    if (s)
        *s = (struct scope){.parent = parent};
    else
        eval_exhausted(e);
    return s;
}

static int assign_attr(struct eval *e, const struct node *target, struct value v)
{
    struct value ns;
    const struct node name = {.kind = E_NAME, .name = target->name};
    if (eval_expr(e, &name, &ns))
        return -1;
    e->where = target;
    if (ns.type != V_NAMESPACE)
        return eval_fail(e, "cannot assign an attribute of '%.*s': it is no namespace",
                         target->name->n > 60 ? 60 : (int)target->name->n, target->name->p);
    struct string *key = string_slice(&e->arena, target->b->name, 0, target->b->name->n);
    if (!key || dict_set(&e->arena, ns.d, v_string(key), v))
        return eval_exhausted(e);
    return 0;
}

int eval_assign(struct eval *e, const struct node *target, struct value v)
{
    if (target->kind == E_NAME)
        return scope_set(e, target->name, v);
    if (target->kind == E_NSREF)
        return assign_attr(e, target, v);
    if (target->kind != E_TUPLE)
        return eval_fail(e, "this cannot be assigned to");
    const struct list *items;
    e->where = target;
    if (eval_items(e, &v, &items) || eval_enter(e))
        return -1;
    size_t i = 0;
    for (const struct node *t = target->a; t; t = t->next, i++) {
        if (i == items->n)
            return eval_fail(e, "not enough values to unpack (got %zu)", items->n);
        if (eval_assign(e, t, items->v[i]))
            return -1;
    }
    eval_leave(e);
    return i < items->n ? eval_fail(e, "too many values to unpack (expected %zu)", i) : 0;
}

/* Runs a body with its output going into a string. */
static int capture(struct eval *e, const struct node *body, struct value *out)
{
    struct builder b = eval_builder(e);
    struct builder *outer = e->out;
    b.limit = outer->limit;
    e->out = &b;
    const int rc = eval_body(e, body);
    e->out = outer;
    if (rc > 0)
        return eval_fail(e, "%s cannot leave a macro or a block that is kept",
                         rc == EVAL_BREAK ? "break" : "continue");
    return rc ? -1 : eval_built(e, &b, out);
}

static int in_scope(struct eval *e, const struct node *body, struct value *captured)
{
    struct scope *outer = e->scope;
    struct scope *inner = scope_new(e, outer);
    if (!inner)
        return -1;
    e->scope = inner;
    const int rc = captured ? capture(e, body, captured) : eval_body(e, body);
    e->scope = outer;
    return rc;
}

static int apply_filters(struct eval *e, const struct node *filters, struct value *v)
{
    for (const struct node *f = filters; f; f = f->next) {
        struct args args;
        if (eval_args(e, f->a, v, &args))
            return -1;
        e->where = f;
        if (filter_apply(e, f->id, f->name, &args, v))
            return -1;
    }
    return 0;
}

static int exec_if(struct eval *e, const struct node *n)
{
    for (const struct node *b = n->a; b; b = b->next) {
        struct value cond = v_bool(true);
        if (b->a && eval_expr(e, b->a, &cond))
            return -1;
        if (value_truth(&cond))
            return eval_body(e, b->b);
    }
    return 0;
}

/* The items for which the condition of a for statement holds. */
static int filter_items(struct eval *e, const struct node *n, const struct list **items)
{
    struct list *kept = list_new(&e->arena, L_LIST, 0);
    struct scope *outer = e->scope;
    struct scope *inner = scope_new(e, outer);
    if (!kept || !inner)
        return eval_exhausted(e);
    e->scope = inner;
    for (size_t i = 0; i < (*items)->n; i++) {
        struct value cond;
        if (eval_assign(e, n->a, (*items)->v[i]) || eval_expr(e, n->c, &cond))
            return -1;
        if (value_truth(&cond) && list_push(&e->arena, kept, (*items)->v[i]))
            return eval_exhausted(e);
    }
    e->scope = outer;
    *items = kept;
    return 0;
}

static int run_loop(struct eval *e, const struct node *n, const struct value *over, unsigned depth)
{
    const struct list *items;
    struct scope *outer = e->scope;
    if (eval_items(e, over, &items))
        return -1;
    if (n->c && filter_items(e, n, &items))
        return -1;
    if (items->n == 0)
        return n->e ? in_scope(e, n->e, NULL) : 0;
    struct loop *loop = arena_alloc(&e->arena, sizeof *loop);
    if (!loop)
        return eval_exhausted(e);
    *loop = (struct loop){.items = items, .depth = depth, .node = n, .scope = outer};
    const size_t count = items->n; /* the body may append to the list it walks, or take from it */
    int rc = 0;
    struct scope *inner = NULL;
    for (size_t i = 0; i < count && i < items->n && rc != EVAL_BREAK; i++) {
        loop->i = i;
        /* variables of an iteration end with it; a scope that no macro can have kept is used again */
        if (!inner || n->flag2)
            inner = scope_new(e, outer);
        if (!inner || eval_take(e, 1))
            return -1;
        inner->n = 0;
        e->scope = inner;
        if (scope_set(e, n->name, (struct value){.type = V_LOOP, .loop = loop}) ||
            eval_assign(e, n->a, items->v[i]))
            return -1;
        rc = eval_body(e, n->d);
        e->scope = outer;
        if (rc < 0)
            return -1;
    }
    return 0;
}

int eval_loop_call(struct eval *e, const struct loop *loop, const struct value *items, struct value *out)
{
    if (!loop->node->flag)
        return eval_fail(e, "the loop is not marked 'recursive'");
    struct builder b = eval_builder(e);
    struct builder *outer = e->out;
    struct scope *scope = e->scope;
    if (eval_enter(e))
        return -1;
    b.limit = outer->limit;
    e->out = &b;
    e->scope = loop->scope;
    const int rc = run_loop(e, loop->node, items, loop->depth + 1);
    e->out = outer;
    e->scope = scope;
    eval_leave(e);
    return rc < 0 ? -1 : eval_built(e, &b, out);
}

/* Binds the arguments of a call to the parameters of a macro; defaults see the parameters before them. */
static int bind_parameters(struct eval *e, const struct node *n, const struct args *args, const char *what)
{
    size_t i = 0, used = 0;
    for (const struct node *p = n->a; p; p = p->next, i++) {
        struct value v = v_undefined(p->name);
        const struct keyword *kw = NULL;
        for (size_t k = 0; k < args->n_kw; k++)
            if (args->kw[k].name->n == p->name->n && memcmp(args->kw[k].name->p, p->name->p, p->name->n) == 0)
                kw = &args->kw[k];
        if (i < args->n)
            v = args->v[i];
        else if (kw)
            v = kw->value;
        else if (p->a && eval_expr(e, p->a, &v))
            return -1;
        if (kw && i < args->n)
            return eval_fail(e, "%s got two values for '%.*s'", what, p->name->n > 60 ? 60 : (int)p->name->n,
                             p->name->p);
        used += kw != NULL;
        if (scope_set(e, p->name, v))
            return -1;
    }
    if (args->n > i && !n->flag)
        return eval_fail(e, "%s takes not more than %zu arguments", what, i);
    if (args->n_kw > used && !n->flag2)
        return eval_fail(e, "%s takes no keyword argument of that name", what);
    return 0;
}

/* The caller of a call block and what did not fit the parameters, where the macro names them. */
static int bind_extras(struct eval *e, const struct node *n, const struct args *args)
{
    size_t params = 0;
    for (const struct node *p = n->a; p; p = p->next)
        params++;
    struct list *rest = list_new(&e->arena, L_TUPLE, 0);
    struct dict *named = dict_new(&e->arena);
    if (!rest || !named)
        return eval_exhausted(e);
    for (size_t i = params; i < args->n; i++)
        if (list_push(&e->arena, rest, args->v[i]))
            return eval_exhausted(e);
    for (size_t k = 0; k < args->n_kw; k++) {
        const struct string *name = args->kw[k].name;
        bool is_param = false;
        for (const struct node *p = n->a; p; p = p->next)
            is_param |= p->name->n == name->n && memcmp(p->name->p, name->p, name->n) == 0;
        struct string *key = is_param ? NULL : string_slice(&e->arena, name, 0, name->n);
        if (!is_param && (!key || dict_set(&e->arena, named, v_string(key), args->kw[k].value)))
            return eval_exhausted(e);
    }
    const struct node *names = n->e; /* E_NAME nodes: varargs, kwargs */
    return scope_set(e, names->name, v_list(rest)) || scope_set(e, names->next->name, v_dict(named)) ? -1 : 0;
}

int eval_macro(struct eval *e, const struct func *fn, const struct args *args, struct value *out)
{
    const struct node *n = fn->node;
    struct scope *outer = e->scope;
    struct args rest = *args;
    struct scope *inner = scope_new(e, fn->scope);
    if (!inner || eval_enter(e))
        return -1;
    e->scope = inner;
    /* a call block hands itself over as a keyword that no template can write */
    if (rest.n_kw && rest.kw[rest.n_kw - 1].value.type == V_FUNC &&
        rest.kw[rest.n_kw - 1].value.fn->kind == F_CALLER &&
        string_is(rest.kw[rest.n_kw - 1].name, "caller")) {
        rest.n_kw--;
        if (scope_set(e, n->e->next->next->name, rest.kw[rest.n_kw].value))
            return -1;
    }
    int rc = bind_parameters(e, n, &rest, fn->name);
    if (rc == 0 && (n->flag || n->flag2))
        rc = bind_extras(e, n, &rest);
    if (rc == 0)
        rc = capture(e, n->d, out);
    e->scope = outer;
    eval_leave(e);
    return rc;
}

static int make_func(struct eval *e, enum func_kind kind, const struct node *n, const char *name,
                     struct value *out)
{
    struct func *f = arena_alloc(&e->arena, sizeof *f);
    if (!f)
        return eval_exhausted(e);
    *f = (struct func){.kind = kind, .name = name, .node = n, .scope = e->scope};
    *out = (struct value){.type = V_FUNC, .fn = f};
    return 0;
}

static int exec_macro(struct eval *e, const struct node *n)
{
    struct value v;
    char *name = arena_alloc(&e->arena, n->name->n + 1);
    if (!name)
        return eval_exhausted(e);
    memcpy(name, n->name->p, n->name->n);
    name[n->name->n] = 0;
    return make_func(e, F_MACRO, n, name, &v) || scope_set(e, n->name, v) ? -1 : 0;
}

/* {% call f(x) %}: evaluates the call with the block as its keyword argument `caller`. */
static int exec_call(struct eval *e, const struct node *n)
{
    const struct node *call = n->b->b;
    struct value fn, out;
    struct args args;
    if (eval_expr(e, n->b->a, &fn))
        return -1;
    for (; call->next; call = call->next) {
        struct node head = *call, base = {.kind = E_CONST, .literal = fn};
        head.next = NULL;
        const struct node one = {
            .kind = E_POSTFIX, .line = call->line, .column = call->column, .a = &base, .b = &head};
        if (eval_expr(e, &one, &fn))
            return -1;
    }
    if (eval_args(e, call->a, NULL, &args))
        return -1;
    struct keyword *kw = arena_grow(&e->arena, args.kw, args.n_kw * sizeof *kw, (args.n_kw + 1) * sizeof *kw);
    if (!kw)
        return eval_exhausted(e);
    kw[args.n_kw].name = n->e->next->next->name;
    if (make_func(e, F_CALLER, n, "caller", &kw[args.n_kw].value))
        return -1;
    args.kw = kw;
    args.n_kw++;
    e->where = n;
    if (eval_call(e, &fn, &args, &out))
        return -1;
    return print_str(e, e->out, &out);
}

static int exec_set_block(struct eval *e, const struct node *n)
{
    struct value v;
    if (in_scope(e, n->d, &v) < 0 || apply_filters(e, n->b, &v))
        return -1;
    return eval_assign(e, n->a, v);
}

static int exec_filter(struct eval *e, const struct node *n)
{
    struct value v;
    if (in_scope(e, n->d, &v) < 0 || apply_filters(e, n->b, &v))
        return -1;
    return print_str(e, e->out, &v);
}

static int exec_with(struct eval *e, const struct node *n)
{
    struct scope *outer = e->scope;
    struct scope *inner = scope_new(e, outer);
    if (!inner)
        return -1;
    /* the values see the variables outside */
    for (const struct node *s = n->a; s; s = s->next) {
        struct value v;
        e->scope = outer;
        if (eval_expr(e, s->b, &v))
            return -1;
        e->scope = inner;
        if (eval_assign(e, s->a, v))
            return -1;
    }
    e->scope = inner;
    const int rc = eval_body(e, n->d);
    e->scope = outer;
    return rc;
}

static int exec(struct eval *e, const struct node *n)
{
    struct value v;
    switch ((enum node_kind)n->kind) {
    case S_DATA:
        return builder_string(e->out, n->literal.s) ? eval_exhausted(e) : eval_take(e, n->literal.s->n / 64);
    case S_PRINT: return eval_expr(e, n->a, &v) || print_str(e, e->out, &v) ? -1 : 0;
    case S_IF: return exec_if(e, n);
    case S_FOR: return eval_expr(e, n->b, &v) ? -1 : run_loop(e, n, &v, 0);
    case S_SET: return eval_expr(e, n->b, &v) ? -1 : eval_assign(e, n->a, v);
    case S_SETBLOCK: return exec_set_block(e, n);
    case S_MACRO: return exec_macro(e, n);
    case S_CALL: return exec_call(e, n);
    case S_FILTER: return exec_filter(e, n);
    case S_WITH: return exec_with(e, n);
    case S_SCOPE: return in_scope(e, n->d, NULL);
    case S_BREAK: return EVAL_BREAK;
    case S_CONTINUE: return EVAL_CONTINUE;
    default: return eval_fail(e, "this is no statement");
    }
}

int eval_body(struct eval *e, const struct node *body)
{
    if (eval_enter(e))
        return -1;
    int rc = 0;
    for (const struct node *n = body; n && rc == 0; n = n->next) {
        e->where = n;
        rc = eval_take(e, 1);
        if (rc == 0)
            rc = exec(e, n);
    }
    eval_leave(e);
    return rc;
}
