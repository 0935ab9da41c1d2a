#include "parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int parser_fail(struct parser *p, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return vt_fail(p->err, VT_E_PARAM, "template line %u, column %u: %s", p->now.line, p->now.column, text);
}

static int no_memory(struct parser *p)
{
    return vt_fail(p->err, VT_E_NOMEM, "the template is too large: it needs more than %zu bytes of memory",
                   p->arena->limit);
}

int parser_next(struct parser *p)
{
    if (p->has_ahead) {
        p->has_ahead = false;
        p->now = p->ahead;
        return 0;
    }
    return lexer_next(&p->lex, &p->now, p->err);
}

int parser_look(struct parser *p)
{
    if (p->has_ahead)
        return 0;
    if (lexer_next(&p->lex, &p->ahead, p->err))
        return -1;
    p->has_ahead = true;
    return 0;
}

struct node *parser_node(struct parser *p, enum node_kind kind)
{
    struct node *n = arena_alloc(p->arena, sizeof *n);
    if (!n) {
        no_memory(p);
        return NULL;
    }
    *n = (struct node){.kind = (uint8_t)kind, .line = p->now.line, .column = p->now.column, .id = -1};
    return n;
}

struct node *parser_node_at(struct parser *p, enum node_kind kind, const struct node *at)
{
    struct node *n = parser_node(p, kind);
    if (n) {
        n->line = at->line;
        n->column = at->column;
    }
    return n;
}

const struct string *parser_name(struct parser *p, const char *s, size_t n)
{
    const struct value *known = dict_get_text(p->names, s, n);
    if (known)
        return known->s;
    struct string *name = string_view(p->arena, s, n, false);
    if (!name || dict_set(p->arena, p->names, v_string(name), v_string(name))) {
        no_memory(p);
        return NULL;
    }
    return name;
}

int parser_enter(struct parser *p)
{
    if (p->depth >= PARSE_DEPTH)
        return parser_fail(p, "nested more than %d levels deep", PARSE_DEPTH);
    p->depth++;
    return 0;
}

void parser_leave(struct parser *p)
{
    p->depth--;
}

bool parser_is_op(const struct parser *p, unsigned op)
{
    return p->now.kind == T_OP && p->now.op == op;
}

static bool token_is_name(const struct token *t, const char *name)
{
    return t->kind == T_NAME && strlen(name) == t->n && memcmp(t->p, name, t->n) == 0;
}

bool parser_is_name(const struct parser *p, const char *name)
{
    return token_is_name(&p->now, name);
}

int parser_skip_op(struct parser *p, unsigned op)
{
    if (!parser_is_op(p, op))
        return 0;
    return parser_next(p) ? -1 : 1;
}

int parser_skip_name(struct parser *p, const char *name)
{
    if (!parser_is_name(p, name))
        return 0;
    return parser_next(p) ? -1 : 1;
}

/* What stands here, for messages. */
static const char *here(const struct parser *p, char *buf, size_t size)
{
    switch (p->now.kind) {
    case T_END: return "the end of the template";
    case T_DATA: return "text";
    case T_PRINT_BEGIN: return "{{";
    case T_PRINT_END: return "}}";
    case T_BLOCK_BEGIN: return "{%";
    case T_BLOCK_END: return "%}";
    case T_STRING: return "a string";
    case T_INT:
    case T_FLOAT: return "a number";
    case T_NAME: snprintf(buf, size, "'%.*s'", p->now.n > 60 ? 60 : (int)p->now.n, p->now.p); return buf;
    case T_OP:
        snprintf(buf, size, "'%c%c'", (char)(p->now.op & 0xFF), (char)(p->now.op >> 8));
        if (p->now.op < 256)
            snprintf(buf, size, "'%c'", (char)p->now.op);
        return buf;
    }
    return "?";
}

static int expected(struct parser *p, const char *what)
{
    char buf[80];
    return parser_fail(p, "expected %s, found %s", what, here(p, buf, sizeof buf));
}

int parser_expect_op(struct parser *p, unsigned op)
{
    const char what[] = {'\'', (char)op, '\'', 0};
    const int rc = parser_skip_op(p, op);
    return rc == 0 ? expected(p, what) : rc < 0 ? -1 : 0;
}

int parser_expect_name(struct parser *p, const char *name)
{
    const int rc = parser_skip_name(p, name);
    return rc == 0 ? expected(p, name) : rc < 0 ? -1 : 0;
}

int parser_expect_kind(struct parser *p, enum token_kind kind)
{
    if (p->now.kind != kind)
        return expected(p, kind == T_BLOCK_END ? "%}" : kind == T_PRINT_END ? "}}" : "a name");
    return parser_next(p);
}

void nodes_add(struct nodes *l, struct node *n)
{
    if (!l->end)
        l->end = &l->first;
    *l->end = n;
    l->end = &n->next;
}

/* ---- statements ---- */

static int parse_body(struct parser *p, const char *const *ends, struct node **out);

/* The body of a block up to {% name %}, which is taken with its %}. */
static int parse_block(struct parser *p, const char *end, struct node **out)
{
    const char *const ends[] = {end, NULL};
    if (parser_expect_kind(p, T_BLOCK_END) || parse_body(p, ends, out) || parser_next(p))
        return -1;
    /* {% endmacro name %} is allowed */
    if (p->now.kind == T_NAME && parser_next(p))
        return -1;
    return parser_expect_kind(p, T_BLOCK_END);
}

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *n = parser_node(p, S_IF);
    struct nodes branches = {0};
    bool last = false;
    if (!n)
        return NULL;
    for (;;) {
        struct node *b = parser_node(p, S_BRANCH);
        if (!b || parser_next(p))
            return NULL;
        if (!last && !(b->a = parse_tuple(p, false, NULL)))
            return NULL;
        if (parser_expect_kind(p, T_BLOCK_END) || parse_body(p, ends, &b->b))
            return NULL;
        nodes_add(&branches, b);
        if (parser_is_name(p, "endif"))
            break;
        if (last) {
            parser_fail(p, "{%% else %%} is the last branch of an {%% if %%}");
            return NULL;
        }
        last = parser_is_name(p, "else");
    }
    n->a = branches.first;
    return parser_next(p) || parser_expect_kind(p, T_BLOCK_END) ? NULL : n;
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *n = parser_node(p, S_FOR);
    const size_t macros = p->n_macros;
    if (!n || parser_next(p) || !(n->a = parse_target(p, false, "in")) || parser_expect_name(p, "in") ||
        !(n->b = parse_tuple(p, false, "recursive")))
        return NULL;
    int rc = parser_skip_name(p, "if");
    if (rc < 0 || (rc && !(n->c = parse_expression(p))))
        return NULL;
    rc = parser_skip_name(p, "recursive");
    if (rc < 0)
        return NULL;
    n->flag = rc;
    if (parser_expect_kind(p, T_BLOCK_END) || parse_body(p, ends, &n->d))
        return NULL;
    n->flag2 = p->n_macros > macros;
    n->name = parser_name(p, "loop", 4);
    rc = parser_skip_name(p, "else");
    if (!n->name || rc < 0 || (rc && (parser_expect_kind(p, T_BLOCK_END) || parse_body(p, ends + 1, &n->e))))
        return NULL;
    return parser_next(p) || parser_expect_kind(p, T_BLOCK_END) ? NULL : n;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = parser_node(p, S_SET);
    if (!n || parser_next(p) || !(n->a = parse_target(p, true, NULL)))
        return NULL;
    const int rc = parser_skip_op(p, '=');
    if (rc < 0)
        return NULL;
    if (rc) {
        n->b = parse_tuple(p, true, NULL);
        return !n->b || parser_expect_kind(p, T_BLOCK_END) ? NULL : n;
    }
    struct nodes filters = {0};
    n->kind = S_SETBLOCK;
    if (parse_filters(p, false, &filters) || parse_block(p, "endset", &n->d))
        return NULL;
    n->b = filters.first;
    return n;
}

/* "(a, b=1)" */
static int parse_parameters(struct parser *p, struct node **out)
{
    struct nodes params = {0};
    if (parser_expect_op(p, '('))
        return -1;
    while (!parser_is_op(p, ')')) {
        if (params.first && parser_expect_op(p, ','))
            return -1;
        if (parser_is_op(p, ')'))
            break;
        struct node *n = parser_node(p, E_NAME);
        if (!n || !(n->name = parser_name(p, p->now.p ? p->now.p : "", p->now.n)) ||
            parser_expect_kind(p, T_NAME))
            return -1;
        const int rc = parser_skip_op(p, '=');
        if (rc < 0 || (rc && !(n->a = parse_expression(p))))
            return -1;
        nodes_add(&params, n);
    }
    *out = params.first;
    return parser_next(p);
}

/* The body of a macro or call block, with the names that it may use beside its parameters. */
static int parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    static const char *const names[] = {"varargs", "kwargs", "caller"};
    const bool varargs = p->varargs, kwargs = p->kwargs;
    struct nodes extra = {0};
    for (int i = 0; i < 3; i++) {
        struct node *e = parser_node(p, E_NAME);
        if (!e || !(e->name = parser_name(p, names[i], strlen(names[i]))))
            return -1;
        nodes_add(&extra, e);
    }
    n->e = extra.first;
    p->n_macros++;
    p->varargs = p->kwargs = false;
    if (parse_block(p, end, &n->d))
        return -1;
    n->flag = p->varargs;
    n->flag2 = p->kwargs;
    p->varargs = varargs;
    p->kwargs = kwargs;
    return 0;
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = parser_node(p, S_MACRO);
    if (!n || parser_next(p))
        return NULL;
    if (p->now.kind == T_NAME && !(n->name = parser_name(p, p->now.p, p->now.n)))
        return NULL;
    if (parser_expect_kind(p, T_NAME) || parse_parameters(p, &n->a) || parse_macro_body(p, n, "endmacro"))
        return NULL;
    return n;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = parser_node(p, S_CALL);
    if (!n || parser_next(p) || (parser_is_op(p, '(') && parse_parameters(p, &n->a)) ||
        !(n->b = parse_expression(p)))
        return NULL;
    const struct node *last = n->b->kind == E_POSTFIX ? n->b->b : NULL;
    while (last && last->next)
        last = last->next;
    if (!last || last->kind != P_CALL) {
        parser_fail(p, "{%% call %%} needs a call");
        return NULL;
    }
    return parse_macro_body(p, n, "endcall") ? NULL : n;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = parser_node(p, S_FILTER);
    struct nodes filters = {0};
    if (!n || parser_next(p) || parse_filters(p, true, &filters) || parse_block(p, "endfilter", &n->d))
        return NULL;
    n->b = filters.first;
    return n;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = parser_node(p, S_WITH);
    struct nodes sets = {0};
    if (!n || parser_next(p))
        return NULL;
    while (p->now.kind != T_BLOCK_END) {
        if (sets.first && parser_expect_op(p, ','))
            return NULL;
        struct node *s = parser_node(p, S_SET);
        if (!s || !(s->a = parse_target(p, false, NULL)) || parser_expect_op(p, '=') ||
            !(s->b = parse_expression(p)))
            return NULL;
        nodes_add(&sets, s);
    }
    n->a = sets.first;
    return parse_block(p, "endwith", &n->d) ? NULL : n;
}

static struct node *parse_scope(struct parser *p)
{
    struct node *n = parser_node(p, S_SCOPE);
    return !n || parser_next(p) || parse_block(p, "endgeneration", &n->d) ? NULL : n;
}

static struct node *parse_print(struct parser *p)
{
    struct node *n = parser_node(p, S_PRINT);
    return !n || parser_next(p) || !(n->a = parse_tuple(p, true, NULL)) || parser_expect_kind(p, T_BLOCK_END)
               ? NULL
               : n;
}

static struct node *parse_jump(struct parser *p, enum node_kind kind)
{
    struct node *n = parser_node(p, kind);
    return !n || parser_next(p) || parser_expect_kind(p, T_BLOCK_END) ? NULL : n;
}

static struct node *parse_statement(struct parser *p)
{
    if (p->now.kind != T_NAME) {
        expected(p, "the name of a statement");
        return NULL;
    }
    if (parser_is_name(p, "if"))
        return parse_if(p);
    if (parser_is_name(p, "for"))
        return parse_for(p);
    if (parser_is_name(p, "set"))
        return parse_set(p);
    if (parser_is_name(p, "macro"))
        return parse_macro(p);
    if (parser_is_name(p, "call"))
        return parse_call_block(p);
    if (parser_is_name(p, "filter"))
        return parse_filter_block(p);
    if (parser_is_name(p, "with"))
        return parse_with(p);
    if (parser_is_name(p, "print"))
        return parse_print(p);
    if (parser_is_name(p, "break"))
        return parse_jump(p, S_BREAK);
    if (parser_is_name(p, "continue"))
        return parse_jump(p, S_CONTINUE);
    /* marks the assistant's part for training masks; its body is rendered as it is */
    if (parser_is_name(p, "generation"))
        return parse_scope(p);
    char buf[80];
    parser_fail(p, "%s is not a statement that a chat template can use here", here(p, buf, sizeof buf));
    return NULL;
}

static struct node *parse_data(struct parser *p)
{
    struct node *n = parser_node(p, S_DATA);
    if (!n)
        return NULL;
    struct string *s = string_view(p->arena, p->now.p, p->now.n, false);
    if (!s) {
        no_memory(p);
        return NULL;
    }
    n->literal = v_string(s);
    return parser_next(p) ? NULL : n;
}

static struct node *parse_output(struct parser *p)
{
    struct node *n = parser_node(p, S_PRINT);
    return !n || parser_next(p) || !(n->a = parse_tuple(p, true, NULL)) || parser_expect_kind(p, T_PRINT_END)
               ? NULL
               : n;
}

static bool is_one_of(const struct parser *p, const char *const *names)
{
    for (; names && *names; names++)
        if (parser_is_name(p, *names))
            return true;
    return false;
}

/* Statements up to a tag whose name is one of ends (NULL: up to the end of the template); that name is the token now. */
static int parse_body(struct parser *p, const char *const *ends, struct node **out)
{
    struct nodes body = {0};
    if (parser_enter(p))
        return -1;
    while (p->now.kind != T_END) {
        struct node *n = NULL;
        if (p->now.kind == T_DATA) {
            n = parse_data(p);
        } else if (p->now.kind == T_PRINT_BEGIN) {
            n = parse_output(p);
        } else {
            if (parser_next(p))
                return -1;
            if (is_one_of(p, ends)) {
                *out = body.first;
                parser_leave(p);
                return 0;
            }
            n = parse_statement(p);
        }
        if (!n)
            return -1;
        nodes_add(&body, n);
    }
    if (ends)
        return parser_fail(p, "the template ends before {%% %s %%}", ends[0]);
    *out = body.first;
    parser_leave(p);
    return 0;
}

int parse_template(struct arena *a, const char *text, size_t n, struct node **out, struct vt_err *err)
{
    struct parser p = {.arena = a, .err = err};
    p.names = dict_new(a);
    if (!p.names)
        return no_memory(&p);
    return lexer_init(&p.lex, a, text, n, err) || parser_next(&p) || parse_body(&p, NULL, out) ? -1 : 0;
}
