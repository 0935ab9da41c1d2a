/* Parser: recursive descent over the lexer's tokens. Depth is bounded, so no text can exhaust the stack. */
#ifndef TEMPLATE_PARSER_H
#define TEMPLATE_PARSER_H

#include "ast.h"
#include "lexer.h"

/* Brackets, blocks and unary operators inside one another. */
#define PARSE_DEPTH 100

struct parser {
    struct lexer lex;
    struct token now, ahead;
    bool has_ahead;
    struct arena *arena;
    struct dict *names; /* spelling -> itself, so that equal names share a pointer */
    unsigned depth;
    size_t n_macros;      /* seen so far */
    bool varargs, kwargs; /* the macro being read names these */
    struct vt_err *err;
};

/* A list of nodes being appended to. */
struct nodes {
    struct node *first, **end;
};

/* The body of a whole template in *out (NULL when it is empty). Errors: VT_E_PARAM with line and column, VT_E_NOMEM. */
int parse_template(struct arena *a, const char *text, size_t n, struct node **out, struct vt_err *err);

/* Shared by the files of the parser. Those that return a pointer return NULL on failure, those with int -1. */
int parser_next(struct parser *p);
int parser_look(struct parser *p); /* fills p->ahead */
int parser_fail(struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct node *parser_node(struct parser *p, enum node_kind kind);
struct node *parser_node_at(struct parser *p, enum node_kind kind, const struct node *at);
const struct string *parser_name(struct parser *p, const char *s, size_t n);
int parser_enter(struct parser *p);
void parser_leave(struct parser *p);
bool parser_is_op(const struct parser *p, unsigned op);
bool parser_is_name(const struct parser *p, const char *name);
/* Takes the token when it is there: 1 taken, 0 not there, -1 failed. */
int parser_skip_op(struct parser *p, unsigned op);
int parser_skip_name(struct parser *p, const char *name);
int parser_expect_op(struct parser *p, unsigned op);
int parser_expect_name(struct parser *p, const char *name);
int parser_expect_kind(struct parser *p, enum token_kind kind);
void nodes_add(struct nodes *l, struct node *n);

/* A value with its attributes, calls, filters and tests; and all operators on such. */
struct node *parse_operand(struct parser *p);
struct node *parse_or(struct parser *p);
struct node *parse_expression(struct parser *p);
struct node *parse_expression_no_cond(struct parser *p);
/* An expression, or a tuple when commas follow; stop: a name that ends it, or NULL. */
struct node *parse_tuple(struct parser *p, bool cond, const char *stop);
/* What can be assigned to: names, tuples of them, and name.attribute when namespaces are allowed. */
struct node *parse_target(struct parser *p, bool namespaces, const char *stop);
/* Filters: `|f|g(1)`, or with bare set `f|g(1)`. */
int parse_filters(struct parser *p, bool bare, struct nodes *out);
struct node *parse_arguments(struct parser *p, struct node *call);

#endif
