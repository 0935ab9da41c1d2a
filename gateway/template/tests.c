/* Tests: what may follow `is`. */
#include "eval.h"
#include "points.h"

#include <string.h>

enum test {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_ITERABLE,
    IS_SEQUENCE,
    IS_CALLABLE,
    IS_SAMEAS,
    IS_IN,
    IS_EQ,
    IS_NE,
    IS_GT,
    IS_GE,
    IS_LT,
    IS_LE,
    IS_ODD,
    IS_EVEN,
    IS_DIVISIBLEBY,
    IS_UPPER,
    IS_LOWER,
    IS_FILTER,
    IS_TEST,
    IS_ESCAPED,
};

static const struct {
    const char *name;
    int8_t id;
    bool argument;
} table[] = {
    {"defined", IS_DEFINED, false},
    {"undefined", IS_UNDEFINED, false},
    {"none", IS_NONE, false},
    {"boolean", IS_BOOLEAN, false},
    {"true", IS_TRUE, false},
    {"false", IS_FALSE, false},
    {"integer", IS_INTEGER, false},
    {"float", IS_FLOAT, false},
    {"number", IS_NUMBER, false},
    {"string", IS_STRING, false},
    {"mapping", IS_MAPPING, false},
    {"iterable", IS_ITERABLE, false},
    {"sequence", IS_SEQUENCE, false},
    {"callable", IS_CALLABLE, false},
    {"sameas", IS_SAMEAS, true},
    {"in", IS_IN, true},
    {"eq", IS_EQ, true},
    {"equalto", IS_EQ, true},
    {"==", IS_EQ, true},
    {"ne", IS_NE, true},
    {"!=", IS_NE, true},
    {"gt", IS_GT, true},
    {"greaterthan", IS_GT, true},
    {">", IS_GT, true},
    {"ge", IS_GE, true},
    {">=", IS_GE, true},
    {"lt", IS_LT, true},
    {"lessthan", IS_LT, true},
    {"<", IS_LT, true},
    {"le", IS_LE, true},
    {"<=", IS_LE, true},
    {"odd", IS_ODD, false},
    {"even", IS_EVEN, false},
    {"divisibleby", IS_DIVISIBLEBY, true},
    {"upper", IS_UPPER, false},
    {"lower", IS_LOWER, false},
    {"filter", IS_FILTER, false},
    {"test", IS_TEST, false},
    {"escaped", IS_ESCAPED, false},
};

int test_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, name, n) == 0)
            return (int)i;
    return -1;
}

static int arithmetic(struct eval *e, enum test id, const struct value *v, const struct value *by, bool *out)
{
    const struct value two = v_int(2), *divisor = id == IS_DIVISIBLEBY ? by : &two;
    struct value rest;
    double f = 0;
    if (eval_binary(e, OP_MOD, v, divisor, &rest))
        return -1;
    if (!value_number(&rest, &f))
        return eval_fail(e, "this test needs a number");
    *out = id == IS_ODD ? f == 1 : f == 0;
    return 0;
}

static int letter_case(struct eval *e, const struct value *v, bool upper, bool *out)
{
    const struct string *s;
    bool cased = false, other = false;
    if (arg_text(e, v, &s) || eval_take(e, s->n / 8))
        return -1;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        i += point_get(s->p + i, s->n - i, &cp);
        cased |= upper ? point_is_upper(cp) : point_is_lower(cp);
        other |= upper ? point_is_lower(cp) : point_is_upper(cp);
    }
    *out = cased && !other;
    return 0;
}

static bool same(const struct value *a, const struct value *b)
{
    if (a->type != b->type)
        return false;
    switch ((enum value_type)a->type) {
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_BOOL: return a->b == b->b;
    case V_INT: return a->i == b->i;
    case V_FLOAT: return a->f == b->f;
    case V_STRING: return a->s->p == b->s->p && a->s->n == b->s->n;
    case V_LIST: return a->l == b->l;
    case V_DICT:
    case V_NAMESPACE: return a->d == b->d;
    case V_FUNC: return a->fn == b->fn;
    case V_LOOP: return a->loop == b->loop;
    }
    return false;
}

static bool iterable(const struct value *v)
{
    return v->type == V_STRING || v->type == V_LIST || v->type == V_DICT || v->type == V_UNDEFINED;
}

static bool sequence(const struct value *v)
{
    return v->type == V_STRING || v->type == V_DICT || v->type == V_UNDEFINED ||
           (v->type == V_LIST && (v->l->kind <= L_TUPLE || v->l->kind == L_RANGE));
}

static int named(struct eval *e, const struct value *v, int (*find)(const char *, size_t), bool *out)
{
    const struct string *s;
    if (arg_string(e, "the name", v, &s))
        return -1;
    *out = find(s->p, s->n) >= 0;
    return 0;
}

int test_apply(struct eval *e, int id, const struct string *name, const struct args *args, bool *out)
{
    if (id < 0)
        return eval_fail(e, "no test named '%.*s'", name->n > 60 ? 60 : (int)name->n, name->p);
    if (args->n != 1u + table[id].argument || args->n_kw)
        return eval_fail(e, "the test '%s' takes %s", table[id].name,
                         table[id].argument ? "one argument" : "no argument");
    const struct value *v = &args->v[0], *by = &args->v[table[id].argument];
    const enum test test = (enum test)table[id].id;
    switch (test) {
    case IS_DEFINED: *out = v->type != V_UNDEFINED; return 0;
    case IS_UNDEFINED: *out = v->type == V_UNDEFINED; return 0;
    case IS_NONE: *out = v->type == V_NONE; return 0;
    case IS_BOOLEAN: *out = v->type == V_BOOL; return 0;
    case IS_TRUE: *out = v->type == V_BOOL && v->b; return 0;
    case IS_FALSE: *out = v->type == V_BOOL && !v->b; return 0;
    case IS_INTEGER: *out = v->type == V_INT; return 0;
    case IS_FLOAT: *out = v->type == V_FLOAT; return 0;
    case IS_NUMBER: *out = v->type == V_INT || v->type == V_FLOAT || v->type == V_BOOL; return 0;
    case IS_STRING: *out = v->type == V_STRING; return 0;
    case IS_MAPPING: *out = v->type == V_DICT; return 0;
    case IS_ITERABLE: *out = iterable(v); return 0;
    case IS_SEQUENCE: *out = sequence(v); return 0;
    case IS_CALLABLE: *out = v->type == V_FUNC || v->type == V_LOOP || v->type == V_UNDEFINED; return 0;
    case IS_SAMEAS: *out = same(v, by); return 0;
    case IS_ESCAPED: *out = false; return 0;
    case IS_IN: return eval_compare(e, OP_IN, v, by, out);
    case IS_EQ: return eval_compare(e, OP_EQ, v, by, out);
    case IS_NE: return eval_compare(e, OP_NE, v, by, out);
    case IS_GT: return eval_compare(e, OP_GT, v, by, out);
    case IS_GE: return eval_compare(e, OP_GE, v, by, out);
    case IS_LT: return eval_compare(e, OP_LT, v, by, out);
    case IS_LE: return eval_compare(e, OP_LE, v, by, out);
    case IS_ODD:
    case IS_EVEN:
    case IS_DIVISIBLEBY: return arithmetic(e, test, v, by, out);
    case IS_UPPER:
    case IS_LOWER: return letter_case(e, v, test == IS_UPPER, out);
    case IS_FILTER: return named(e, v, filter_find, out);
    case IS_TEST: return named(e, v, test_find, out);
    }
    return eval_fail(e, "no such test");
}
