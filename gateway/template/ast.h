/* The syntax tree of a template. Nodes live in the arena of the template and never change after parsing.
 *
 * Chains (sums, filters one after another, elif) are lists and not nested nodes, so that the depth of the tree is that of
 * the brackets and blocks in the text. */
#ifndef TEMPLATE_AST_H
#define TEMPLATE_AST_H

#include "value.h"

enum node_kind {
    /* expressions; op in the operands of a chain joins each to what stands left of it */
    E_CONST,   /* literal */
    E_NAME,    /* name */
    E_LIST,    /* a: items */
    E_TUPLE,   /* a: items */
    E_DICT,    /* a: E_PAIR nodes */
    E_PAIR,    /* a: key, b: value */
    E_CHAIN,   /* a: operands of + - * / // % ** */
    E_CONCAT,  /* a: operands of ~ */
    E_AND,     /* a: operands */
    E_OR,      /* a: operands */
    E_COMPARE, /* a: operands */
    E_NOT,     /* a */
    E_NEG,     /* a */
    E_POS,     /* a */
    E_COND,    /* a: value, b: condition, c: else or NULL */
    E_POSTFIX, /* a: base, b: P_ nodes */
    P_ATTR,    /* name */
    P_ITEM,    /* a: index */
    P_SLICE,   /* a, b, c: start, stop, step; each may be NULL */
    P_CALL,    /* a: arguments */
    P_FILTER,  /* name, id, a: arguments */
    P_TEST,    /* name, id, a: arguments, flag: negated */
    E_KWARG,   /* in arguments: name, a: value */
    E_STAR,    /* in arguments: a */
    E_STARSTAR,
    E_NSREF, /* as a target: name, b: E_CONST with the attribute */
    /* statements */
    S_DATA,   /* literal */
    S_PRINT,  /* a: expression */
    S_IF,     /* a: S_BRANCH nodes */
    S_BRANCH, /* a: condition, NULL for else; b: body */
    S_FOR, /* a: target, b: iterated, c: condition or NULL, d: body, e: else body, name: "loop", flag: recursive,
                   flag2: the body defines macros, which keep its variables */
    S_SET,      /* a: target, b: value */
    S_SETBLOCK, /* a: target, b: P_FILTER nodes, d: body */
    S_MACRO, /* name, a: E_NAME parameters with a: default or NULL, d: body, e: the names varargs, kwargs and caller,
                   flag: the body uses varargs, flag2: kwargs */
    S_CALL,   /* b: the call, a, d, e, flag, flag2 as of S_MACRO */
    S_FILTER, /* b: P_FILTER nodes, d: body */
    S_WITH,   /* a: S_SET nodes, d: body */
    S_SCOPE,  /* d: body */
    S_BREAK,
    S_CONTINUE,
};

enum op {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
};

struct node {
    uint8_t kind, op;
    bool flag, flag2;
    int16_t id; /* P_FILTER and P_TEST: place in the table, -1 = there is none of that name */
    uint32_t line, column;
    struct node *next; /* in a list */
    struct node *a, *b, *c, *d, *e;
    const struct string *name; /* one pointer per spelling: names are equal when the pointers are */
    struct value literal;
};

/* Names, filters and tests known to the evaluator; -1 when there is none. */
int filter_find(const char *name, size_t n);
int test_find(const char *name, size_t n);

#endif
