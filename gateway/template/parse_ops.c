/* Binary operators, from the tightest to the loosest. */
#include "parser.h"

#include <string.h>

/* A row of operands that bind equally, joined from the left. */
typedef struct node *parse_fn(struct parser *p);

static struct node *parse_chain(struct parser *p, enum node_kind kind, parse_fn *operand,
                                int (*op)(struct parser *p, enum op *out))
{
    struct node *first = operand(p);
    struct nodes operands = {0};
    struct node *chain = NULL;
    for (;;) {
        enum op o = OP_NONE;
        if (!first)
            return NULL;
        const int rc = op(p, &o);
        if (rc <= 0)
            return rc < 0 ? NULL : chain ? chain : first;
        if (!chain) {
            chain = parser_node_at(p, kind, first);
            if (!chain)
                return NULL;
            nodes_add(&operands, first);
            chain->a = first;
        }
        struct node *next = operand(p);
        if (!next)
            return NULL;
        /* op belongs to the row; a row that is an operand of another uses its own node's */
        next->op = (uint8_t)o;
        nodes_add(&operands, next);
    }
}

struct op_name {
    unsigned token;
    enum op op;
};

static int take_op(struct parser *p, const struct op_name *table, enum op *out)
{
    for (; table->token; table++)
        if (parser_is_op(p, table->token)) {
            *out = table->op;
            return parser_next(p) ? -1 : 1;
        }
    return 0;
}

static int pow_op(struct parser *p, enum op *out)
{
    static const struct op_name table[] = {{OP2('*', '*'), OP_POW}, {0, OP_NONE}};
    return take_op(p, table, out);
}

static struct node *parse_pow(struct parser *p)
{
    return parse_chain(p, E_CHAIN, parse_operand, pow_op);
}

static int product_op(struct parser *p, enum op *out)
{
    static const struct op_name table[] = {
        {'*', OP_MUL}, {'/', OP_DIV}, {OP2('/', '/'), OP_FLOORDIV}, {'%', OP_MOD}, {0, OP_NONE}};
    return take_op(p, table, out);
}

static struct node *parse_product(struct parser *p)
{
    return parse_chain(p, E_CHAIN, parse_pow, product_op);
}

static int concat_op(struct parser *p, enum op *out)
{
    static const struct op_name table[] = {{'~', OP_ADD}, {0, OP_NONE}};
    return take_op(p, table, out);
}

static struct node *parse_concat(struct parser *p)
{
    return parse_chain(p, E_CONCAT, parse_product, concat_op);
}

static int sum_op(struct parser *p, enum op *out)
{
    static const struct op_name table[] = {{'+', OP_ADD}, {'-', OP_SUB}, {0, OP_NONE}};
    return take_op(p, table, out);
}

static struct node *parse_sum(struct parser *p)
{
    return parse_chain(p, E_CHAIN, parse_concat, sum_op);
}

static int compare_op(struct parser *p, enum op *out)
{
    static const struct op_name table[] = {
        {OP2('=', '='), OP_EQ}, {OP2('!', '='), OP_NE}, {'<', OP_LT}, {OP2('<', '='), OP_LE},
        {'>', OP_GT},           {OP2('>', '='), OP_GE}, {0, OP_NONE}};
    const int rc = take_op(p, table, out);
    if (rc)
        return rc;
    if (parser_is_name(p, "in")) {
        *out = OP_IN;
        return parser_next(p) ? -1 : 1;
    }
    if (!parser_is_name(p, "not"))
        return 0;
    if (parser_look(p))
        return -1;
    if (p->ahead.kind != T_NAME || p->ahead.n != 2 || memcmp(p->ahead.p, "in", 2) != 0)
        return 0;
    *out = OP_NOT_IN;
    return parser_next(p) || parser_next(p) ? -1 : 1;
}

static struct node *parse_compare(struct parser *p)
{
    return parse_chain(p, E_COMPARE, parse_sum, compare_op);
}

static struct node *parse_not(struct parser *p)
{
    if (!parser_is_name(p, "not"))
        return parse_compare(p);
    struct node *n = parser_node(p, E_NOT);
    if (!n || parser_enter(p) || parser_next(p) || !(n->a = parse_not(p)))
        return NULL;
    parser_leave(p);
    return n;
}

static int and_op(struct parser *p, enum op *out)
{
    (void)out;
    return parser_skip_name(p, "and");
}

static struct node *parse_and(struct parser *p)
{
    return parse_chain(p, E_AND, parse_not, and_op);
}

static int or_op(struct parser *p, enum op *out)
{
    (void)out;
    return parser_skip_name(p, "or");
}

struct node *parse_or(struct parser *p)
{
    return parse_chain(p, E_OR, parse_and, or_op);
}
