/* Values of the template language. They live in the arena of one rendering and are never freed one by one; strings are
 * immutable views, so that slicing and splitting copy nothing.
 *
 * Every string knows which of its bytes came from the input (message contents, tool results): its marks. Operations keep
 * them, so that the rendered text says where a client's bytes are and control tokens in them can be refused. */
#ifndef TEMPLATE_VALUE_H
#define TEMPLATE_VALUE_H

#include "arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum value_type {
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_DICT,
    V_FUNC,
    V_NAMESPACE, /* a dict whose attributes can be set */
    V_LOOP,
};

/* Marks of a mixed string: stretches with their end (an offset in the string that the marks were made for). */
struct marks {
    size_t n;
    struct mark {
        size_t end;
        bool input;
    } v[];
};

struct string {
    const char *p; /* valid UTF-8, not terminated, may hold NUL */
    size_t n;
    const struct marks *marks; /* NULL: all bytes are as `input` says */
    size_t off;                /* where this view begins in the string of the marks */
    bool input;
};

/* What a list is in Python's eyes; it decides printing, truth and which tests hold. */
enum list_kind { L_LIST, L_TUPLE, L_GENERATOR, L_KEYS, L_VALUES, L_ITEMS, L_RANGE };

struct value {
    uint8_t type;
    union {
        bool b;
        int64_t i;
        double f;
        struct string *s;
        struct list *l;
        struct dict *d;
        struct func *fn;
        struct loop *loop;
        const struct string *name; /* V_UNDEFINED: what was not there; may be NULL */
    };
};

struct list {
    struct value *v;
    size_t n, cap;
    uint8_t kind;
    bool group; /* a tuple of groupby: its parts have the names grouper and list */
};

struct pair {
    struct value key, value;
    uint32_t hash;
};

/* In order of insertion; a table of positions is kept once there are more than a few. */
struct dict {
    struct pair *v;
    size_t n, cap;
    uint32_t *index;
    size_t index_n;
    uint64_t seed;
};

struct node;
struct scope;

/* Something that can be called: a global, a method bound to its value, a macro, the caller of a call block. */
struct func {
    enum func_kind {
        F_GLOBAL,
        F_METHOD,
        F_MACRO,
        F_CALLER,
        F_CYCLER,
        F_JOINER,
        F_LOOP_CYCLE,
        F_LOOP_CHANGED
    } kind;
    int id; /* F_GLOBAL, F_METHOD: which */
    const char *name;
    struct value
        self; /* F_METHOD: the value it is bound to; F_CYCLER: its list; F_JOINER: its string; loops: the loop */
    const struct node *node; /* F_MACRO, F_CALLER: the definition */
    struct scope *scope;     /* F_MACRO, F_CALLER: where it was defined */
    size_t position;         /* F_CYCLER, F_JOINER: calls so far */
};

/* The `loop` of a for statement. */
struct loop {
    const struct list *items;
    size_t i;
    unsigned depth; /* 0 for the outermost of a recursion */
    const struct node *node;
    struct scope *scope; /* that the statement stands in, for loop(...) */
    struct value changed;
    bool has_changed;
};

static inline struct value v_none(void)
{
    return (struct value){.type = V_NONE};
}
static inline struct value v_undefined(const struct string *name)
{
    return (struct value){.type = V_UNDEFINED, .name = name};
}
static inline struct value v_bool(bool b)
{
    return (struct value){.type = V_BOOL, .b = b};
}
static inline struct value v_int(int64_t i)
{
    return (struct value){.type = V_INT, .i = i};
}
static inline struct value v_float(double f)
{
    return (struct value){.type = V_FLOAT, .f = f};
}
static inline struct value v_list(struct list *l)
{
    return (struct value){.type = V_LIST, .l = l};
}
static inline struct value v_dict(struct dict *d)
{
    return (struct value){.type = V_DICT, .d = d};
}
static inline struct value v_string(struct string *s)
{
    return (struct value){.type = V_STRING, .s = s};
}

/* What a rendering may still do. Lists can be nested without end and shared, so everything that walks through values
 * counts steps and depth here and gives up when they are spent; the evaluator looks at `spent`. */
struct meter {
    uint64_t steps; /* left */
    unsigned depth; /* levels left */
    enum { METER_GOOD, METER_NO_STEPS, METER_NO_DEPTH } spent;
};
/* False, with `spent` set, when n steps are not left. */
static inline bool meter_take(struct meter *m, uint64_t n)
{
    if (m->steps >= n) {
        m->steps -= n;
        return true;
    }
    m->steps = 0;
    m->spent = METER_NO_STEPS;
    return false;
}
static inline bool meter_enter(struct meter *m)
{
    if (m->depth == 0) {
        m->spent = METER_NO_DEPTH;
        return false;
    }
    m->depth--;
    return true;
}
static inline void meter_leave(struct meter *m)
{
    m->depth++;
}

bool value_truth(const struct value *v);
/* Python's ==. */
bool value_equal(struct meter *m, const struct value *a, const struct value *b);
/* Python's <, as -1, 0, 1, and 2 for neither (NaN); false when the two have no order. */
bool value_order(struct meter *m, const struct value *a, const struct value *b, int *order);
bool value_number(const struct value *v, double *f); /* bool, int and float */
/* "str", "int", … as Python names it. */
const char *value_type_name(const struct value *v);
/* False when the value cannot be a key of a dict: keys are scalars and tuples of scalars. */
bool value_hashable(const struct value *v);

/* These return NULL or -1 when the arena is full. */
struct string *string_view(struct arena *a, const char *p, size_t n, bool input);
struct string *string_slice(struct arena *a, const struct string *s, size_t from, size_t n);
struct list *list_new(struct arena *a, enum list_kind kind, size_t room);
int list_push(struct arena *a, struct list *l, struct value v);
struct dict *dict_new(struct arena *a);
/* The key must be hashable. */
int dict_set(struct arena *a, struct dict *d, struct value key, struct value v);
const struct value *dict_get(const struct dict *d, const struct value *key);
const struct value *dict_get_text(const struct dict *d, const char *key, size_t n);

static inline bool string_is(const struct string *s, const char *text)
{
    return __builtin_strlen(text) == s->n && __builtin_memcmp(s->p, text, s->n) == 0;
}

#endif
