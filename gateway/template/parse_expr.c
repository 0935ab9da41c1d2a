#include "parser.h"

#include <string.h>

static struct node *parse_unary(struct parser *p, bool filters);

static struct node *parse_const(struct parser *p, struct value v)
{
    struct node *n = parser_node(p, E_CONST);
    if (n)
        n->literal = v;
    return n && parser_next(p) == 0 ? n : NULL;
}

/* Strings side by side are one. */
static struct node *parse_string(struct parser *p)
{
    struct node *n = parser_node(p, E_CONST);
    if (!n)
        return NULL;
    const char *s = p->now.p;
    size_t len = p->now.n;
    if (parser_next(p))
        return NULL;
    while (p->now.kind == T_STRING) {
        char *joined = arena_alloc(p->arena, len + p->now.n);
        if (!joined)
            goto no_memory;
        memcpy(joined, s, len);
        memcpy(joined + len, p->now.p, p->now.n);
        s = joined;
        len += p->now.n;
        if (parser_next(p))
            return NULL;
    }
    struct string *str = string_view(p->arena, s, len, false);
    if (str) {
        n->literal = v_string(str);
        return n;
    }
no_memory:
    vt_fail(p->err, VT_E_NOMEM, "no memory for the template");
    return NULL;
}

static struct node *parse_list(struct parser *p)
{
    struct node *n = parser_node(p, E_LIST);
    struct nodes items = {0};
    if (!n || parser_next(p))
        return NULL;
    while (!parser_is_op(p, ']')) {
        if (items.first && parser_expect_op(p, ','))
            return NULL;
        if (parser_is_op(p, ']'))
            break;
        struct node *item = parse_expression(p);
        if (!item)
            return NULL;
        nodes_add(&items, item);
    }
    n->a = items.first;
    return parser_next(p) ? NULL : n;
}

static struct node *parse_dict(struct parser *p)
{
    struct node *n = parser_node(p, E_DICT);
    struct nodes pairs = {0};
    if (!n || parser_next(p))
        return NULL;
    while (!parser_is_op(p, '}')) {
        if (pairs.first && parser_expect_op(p, ','))
            return NULL;
        if (parser_is_op(p, '}'))
            break;
        struct node *pair = parser_node(p, E_PAIR);
        if (!pair || !(pair->a = parse_expression(p)) || parser_expect_op(p, ':') ||
            !(pair->b = parse_expression(p)))
            return NULL;
        nodes_add(&pairs, pair);
    }
    n->a = pairs.first;
    return parser_next(p) ? NULL : n;
}

static struct node *parse_name(struct parser *p, bool namespaces)
{
    if (parser_is_name(p, "true") || parser_is_name(p, "True"))
        return parse_const(p, v_bool(true));
    if (parser_is_name(p, "false") || parser_is_name(p, "False"))
        return parse_const(p, v_bool(false));
    if (parser_is_name(p, "none") || parser_is_name(p, "None"))
        return parse_const(p, v_none());
    struct node *n = parser_node(p, E_NAME);
    p->varargs |= parser_is_name(p, "varargs");
    p->kwargs |= parser_is_name(p, "kwargs");
    if (!n || !(n->name = parser_name(p, p->now.p, p->now.n)) || parser_next(p))
        return NULL;
    if (!namespaces || !parser_is_op(p, '.'))
        return n;
    n->kind = E_NSREF;
    if (parser_next(p))
        return NULL;
    if (p->now.kind != T_NAME) {
        parser_expect_kind(p, T_NAME);
        return NULL;
    }
    n->b = parser_node(p, E_CONST);
    const struct string *attr = parser_name(p, p->now.p, p->now.n);
    if (!n->b || !attr)
        return NULL;
    n->b->name = attr;
    return parser_next(p) ? NULL : n;
}

static struct node *parse_primary(struct parser *p, bool namespaces)
{
    struct node *n;
    switch (p->now.kind) {
    case T_NAME: return parse_name(p, namespaces);
    case T_STRING: return parse_string(p);
    case T_INT: return parse_const(p, v_int(p->now.i));
    case T_FLOAT: return parse_const(p, v_float(p->now.f));
    default: break;
    }
    if (!parser_is_op(p, '(') && !parser_is_op(p, '[') && !parser_is_op(p, '{')) {
        parser_fail(p, "expected an expression");
        return NULL;
    }
    if (parser_enter(p))
        return NULL;
    if (parser_is_op(p, '[')) {
        n = parse_list(p);
    } else if (parser_is_op(p, '{')) {
        n = parse_dict(p);
    } else {
        if (parser_next(p))
            return NULL;
        n = parser_is_op(p, ')') ? parser_node(p, E_TUPLE) : parse_tuple(p, true, NULL);
        if (n && parser_expect_op(p, ')'))
            return NULL;
    }
    parser_leave(p);
    return n;
}

/* One index or slice; *slice is set when it was a slice. */
static struct node *parse_subscript(struct parser *p)
{
    struct node *n = parser_node(p, P_ITEM);
    if (!n)
        return NULL;
    struct node **part[] = {&n->a, &n->b, &n->c};
    for (int i = 0; i < 3; i++) {
        if (!parser_is_op(p, ':') && !parser_is_op(p, ']') && !parser_is_op(p, ',') &&
            !(*part[i] = parse_expression(p)))
            return NULL;
        if (!parser_is_op(p, ':'))
            break;
        n->kind = P_SLICE;
        if (i == 2) {
            parser_fail(p, "a slice has at most three parts");
            return NULL;
        }
        if (parser_next(p))
            return NULL;
    }
    if (n->kind == P_ITEM && !n->a) {
        parser_fail(p, "expected an index");
        return NULL;
    }
    return n;
}

/* "[...]" ; several indices make a tuple. */
static struct node *parse_item(struct parser *p)
{
    if (parser_enter(p) || parser_next(p))
        return NULL;
    struct node *n = parse_subscript(p);
    if (!n)
        return NULL;
    if (parser_is_op(p, ',')) {
        struct node *tuple = parser_node_at(p, E_TUPLE, n);
        struct nodes items = {0};
        if (!tuple || n->kind != P_ITEM) {
            parser_fail(p, "slices cannot be combined");
            return NULL;
        }
        nodes_add(&items, n->a);
        while (parser_is_op(p, ',')) {
            struct node *more;
            if (parser_next(p) || !(more = parse_expression(p)))
                return NULL;
            nodes_add(&items, more);
        }
        tuple->a = items.first;
        n->a = tuple;
    }
    parser_leave(p);
    return parser_expect_op(p, ']') ? NULL : n;
}

static struct node *parse_attr(struct parser *p)
{
    if (parser_next(p))
        return NULL;
    if (p->now.kind == T_INT) {
        struct node *n = parser_node(p, P_ITEM);
        return n && (n->a = parse_const(p, v_int(p->now.i))) ? n : NULL;
    }
    struct node *n = parser_node(p, P_ATTR);
    if (!n)
        return NULL;
    if (p->now.kind == T_NAME && !(n->name = parser_name(p, p->now.p, p->now.n)))
        return NULL;
    return parser_expect_kind(p, T_NAME) ? NULL : n;
}

/* "name = " of a keyword argument, when it is one. */
static int keyword(struct parser *p, const struct string **name)
{
    *name = NULL;
    if (p->now.kind != T_NAME)
        return 0;
    if (parser_look(p))
        return -1;
    if (p->ahead.kind != T_OP || p->ahead.op != '=')
        return 0;
    if (!(*name = parser_name(p, p->now.p, p->now.n)) || parser_next(p) || parser_next(p))
        return -1;
    return 0;
}

static struct node *parse_argument(struct parser *p)
{
    const bool star = parser_is_op(p, '*'), stars = parser_is_op(p, OP2('*', '*'));
    const struct string *name = NULL;
    struct node *n = parser_node(p, star ? E_STAR : stars ? E_STARSTAR : E_KWARG);
    if (!n || ((star || stars) && parser_next(p)) || (!star && !stars && keyword(p, &name)))
        return NULL;
    n->name = name;
    n->a = parse_expression(p);
    return !n->a ? NULL : star || stars || name ? n : n->a;
}

struct node *parse_arguments(struct parser *p, struct node *call)
{
    struct nodes args = {0};
    if (parser_enter(p) || parser_expect_op(p, '('))
        return NULL;
    while (!parser_is_op(p, ')')) {
        if (args.first && parser_expect_op(p, ','))
            return NULL;
        if (parser_is_op(p, ')'))
            break;
        struct node *arg = parse_argument(p);
        if (!arg)
            return NULL;
        nodes_add(&args, arg);
    }
    call->a = args.first;
    parser_leave(p);
    return parser_next(p) ? NULL : call;
}

/* Names with dots in them are one name for filters and tests. */
static int dotted(struct parser *p, struct node *n)
{
    if (p->now.kind != T_NAME)
        return parser_expect_kind(p, T_NAME);
    n->name = parser_name(p, p->now.p, p->now.n);
    return n->name ? parser_next(p) : -1;
}

static struct node *parse_filter(struct parser *p)
{
    struct node *n = parser_node(p, P_FILTER);
    if (!n || dotted(p, n))
        return NULL;
    n->id = (int16_t)filter_find(n->name->p, n->name->n);
    return parser_is_op(p, '(') ? parse_arguments(p, n) : n;
}

int parse_filters(struct parser *p, bool bare, struct nodes *out)
{
    while (bare || parser_is_op(p, '|')) {
        if (!bare && parser_next(p))
            return -1;
        struct node *n = parse_filter(p);
        if (!n)
            return -1;
        nodes_add(out, n);
        bare = false;
    }
    return 0;
}

/* Attributes, items and calls behind a base, and with filters set also filters and tests. */
static int parse_tail(struct parser *p, bool filters, struct nodes *out);

static struct node *with_tail(struct parser *p, struct node *base, bool filters)
{
    struct nodes ops = {0};
    if (!base || parse_tail(p, filters, &ops))
        return NULL;
    if (!ops.first)
        return base;
    struct node *n = parser_node_at(p, E_POSTFIX, base);
    if (!n)
        return NULL;
    n->a = base;
    n->b = ops.first;
    return n;
}

/* A test's argument without brackets, as in `x is divisibleby 3`. */
static bool begins_argument(const struct parser *p)
{
    switch (p->now.kind) {
    case T_NAME:
        return !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and") &&
               !parser_is_name(p, "if") && !parser_is_name(p, "is") && !parser_is_name(p, "in") &&
               !parser_is_name(p, "not") && !parser_is_name(p, "recursive");
    case T_STRING:
    case T_INT:
    case T_FLOAT: return true;
    case T_OP: return p->now.op == '[' || p->now.op == '{';
    default: return false;
    }
}

static struct node *parse_test(struct parser *p)
{
    struct node *n = parser_node(p, P_TEST);
    if (!n || parser_next(p))
        return NULL;
    const int not = parser_skip_name(p, "not");
    if (not < 0)
        return NULL;
    n->flag = not ;
    if (dotted(p, n))
        return NULL;
    n->id = (int16_t)test_find(n->name->p, n->name->n);
    if (parser_is_op(p, '('))
        return parse_arguments(p, n);
    if (begins_argument(p) && !(n->a = with_tail(p, parse_primary(p, false), false)))
        return NULL;
    return n;
}

static int parse_tail(struct parser *p, bool filters, struct nodes *out)
{
    for (;;) {
        struct node *n;
        if (parser_is_op(p, '.'))
            n = parse_attr(p);
        else if (parser_is_op(p, '['))
            n = parse_item(p);
        else if (parser_is_op(p, '(')) {
            n = parser_node(p, P_CALL);
            n = n ? parse_arguments(p, n) : NULL;
        } else if (filters && parser_is_op(p, '|'))
            n = parser_next(p) ? NULL : parse_filter(p);
        else if (filters && parser_is_name(p, "is"))
            n = parse_test(p);
        else
            return 0;
        if (!n)
            return -1;
        nodes_add(out, n);
    }
}

static struct node *parse_unary(struct parser *p, bool filters)
{
    if (!parser_is_op(p, '-') && !parser_is_op(p, '+'))
        return with_tail(p, parse_primary(p, false), filters);
    struct node *n = parser_node(p, parser_is_op(p, '-') ? E_NEG : E_POS);
    if (!n || parser_enter(p) || parser_next(p) || !(n->a = parse_unary(p, false)))
        return NULL;
    parser_leave(p);
    return with_tail(p, n, filters);
}

struct node *parse_operand(struct parser *p)
{
    return parse_unary(p, true);
}

struct node *parse_expression_no_cond(struct parser *p)
{
    return parse_or(p);
}

struct node *parse_expression(struct parser *p)
{
    struct node *value = parse_or(p);
    while (value && parser_is_name(p, "if")) {
        struct node *n = parser_node_at(p, E_COND, value);
        if (!n || parser_enter(p) || parser_next(p) || !(n->b = parse_or(p)))
            return NULL;
        n->a = value;
        const int rc = parser_skip_name(p, "else");
        if (rc < 0 || (rc && !(n->c = parse_expression(p))))
            return NULL;
        parser_leave(p);
        value = n;
    }
    return value;
}

static bool ends_tuple(const struct parser *p, const char *stop)
{
    return p->now.kind == T_PRINT_END || p->now.kind == T_BLOCK_END || parser_is_op(p, ')') ||
           (stop && parser_is_name(p, stop));
}

/* Items separated by commas; one without a comma is itself. */
static struct node *parse_commas(struct parser *p, struct node *(*item)(struct parser *), const char *stop)
{
    struct node *n = item(p);
    if (!n || !parser_is_op(p, ','))
        return n;
    struct node *tuple = parser_node_at(p, E_TUPLE, n);
    struct nodes items = {0};
    if (!tuple)
        return NULL;
    nodes_add(&items, n);
    while (parser_is_op(p, ',')) {
        if (parser_next(p))
            return NULL;
        if (ends_tuple(p, stop))
            break;
        n = item(p);
        if (!n)
            return NULL;
        nodes_add(&items, n);
    }
    tuple->a = items.first;
    return tuple;
}

struct node *parse_tuple(struct parser *p, bool cond, const char *stop)
{
    return parse_commas(p, cond ? parse_expression : parse_expression_no_cond, stop);
}

static struct node *parse_target_item(struct parser *p, bool namespaces)
{
    if (parser_is_op(p, '(')) {
        if (parser_enter(p) || parser_next(p))
            return NULL;
        struct node *n = parse_target(p, false, NULL);
        parser_leave(p);
        return n && parser_expect_op(p, ')') == 0 ? n : NULL;
    }
    if (p->now.kind != T_NAME) {
        parser_expect_kind(p, T_NAME);
        return NULL;
    }
    struct node *n = parse_name(p, namespaces);
    if (n && n->kind == E_CONST) {
        parser_fail(p, "cannot assign to a constant");
        return NULL;
    }
    return n;
}

static struct node *target_plain(struct parser *p)
{
    return parse_target_item(p, false);
}

static struct node *target_namespace(struct parser *p)
{
    return parse_target_item(p, true);
}

struct node *parse_target(struct parser *p, bool namespaces, const char *stop)
{
    return parse_commas(p, namespaces ? target_namespace : target_plain, stop);
}
