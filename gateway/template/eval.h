/* Evaluator: walks the tree of a template with the values of one rendering. The state of a rendering belongs to one thread.
 *
 * Functions return 0, or -1 with the error set in e->err; statements may also return EVAL_BREAK or EVAL_CONTINUE. */
#ifndef TEMPLATE_EVAL_H
#define TEMPLATE_EVAL_H

#include "ast.h"
#include "builder.h"
#include "err.h"

#define EVAL_BREAK    1
#define EVAL_CONTINUE 2

/* Variables set in one block; names are compared by pointer. The outermost scope has the globals behind it. */
struct scope {
    struct scope *parent;
    struct variable {
        const struct string *name;
        struct value value;
    } * v;
    size_t n, cap;
};

struct eval {
    struct arena arena;
    struct meter meter;
    uint64_t max_steps;
    unsigned max_depth;
    struct dict *globals;
    struct scope *scope;
    struct builder *out;
    const struct node *where; /* for messages */
    uint64_t now_us;
    struct vt_err *err;
};

/* Arguments of a call, filter or test. */
struct args {
    struct value *v;
    size_t n;
    struct keyword {
        const struct string *name;
        struct value value;
    } * kw;
    size_t n_kw;
};

int eval_fail(struct eval *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The failure of an allocation, a builder or the meter, whichever it was. */
int eval_exhausted(struct eval *e);
/* Counts work; long strings count by length. */
static inline int eval_take(struct eval *e, uint64_t steps)
{
    return meter_take(&e->meter, steps) ? 0 : eval_exhausted(e);
}
int eval_enter(struct eval *e);
static inline void eval_leave(struct eval *e)
{
    meter_leave(&e->meter);
}

int eval_expr(struct eval *e, const struct node *n, struct value *out);
int eval_body(struct eval *e, const struct node *body);
int eval_call(struct eval *e, const struct value *fn, const struct args *args, struct value *out);
int eval_args(struct eval *e, const struct node *list, const struct value *first, struct args *out);
int eval_binary(struct eval *e, enum op op, const struct value *a, const struct value *b, struct value *out);
int eval_compare(struct eval *e, enum op op, const struct value *a, const struct value *b, bool *out);

int scope_set(struct eval *e, const struct string *name, struct value v);
int eval_assign(struct eval *e, const struct node *target, struct value v);
/* Runs the body of a macro or call block. */
int eval_macro(struct eval *e, const struct func *fn, const struct args *args, struct value *out);
/* loop(items) of a recursive for. */
int eval_loop_call(struct eval *e, const struct loop *loop, const struct value *items, struct value *out);

/* obj.name and obj[key]; undefined when it is not there. */
int eval_attr(struct eval *e, const struct value *obj, const struct string *name, struct value *out);
int eval_item(struct eval *e, const struct value *obj, const struct value *key, struct value *out);
/* The items that a for statement would see. The list may be the value's own: it must not be written. */
int eval_items(struct eval *e, const struct value *v, const struct list **out);

/* filters.c, tests.c, methods.c, globals.c: one table each. */
int filter_apply(struct eval *e, int id, const struct string *name, const struct args *args,
                 struct value *out);
int test_apply(struct eval *e, int id, const struct string *name, const struct args *args, bool *out);
int method_find(const struct value *v, const struct string *name); /* -1 = none */
const char *method_name(int id);
int method_call(struct eval *e, int id, const struct value *self, const struct args *args, struct value *out);
int globals_add(struct eval *e);
int global_call(struct eval *e, int id, const struct args *args, struct value *out);

/* Arguments by place or name, for functions with a fixed list of parameters ("value, default=, boolean="). NULL = absent.
 * eval_bind fails when there are too many or an unknown name; required: how many must be there. */
int eval_bind(struct eval *e, const char *what, const struct args *args, const char *const *names, size_t n,
              size_t required, const struct value **out);
int arg_int(struct eval *e, const char *what, const struct value *v, int64_t otherwise, int64_t *out);
/* A string, or what str() makes of it. */
int arg_text(struct eval *e, const struct value *v, const struct string **out);
/* A string; anything else is an error. */
int arg_string(struct eval *e, const char *what, const struct value *v, const struct string **out);

/* print.c: str(), repr() and JSON. */
int print_str(struct eval *e, struct builder *b, const struct value *v);
int print_repr(struct eval *e, struct builder *b, const struct value *v);
struct json_style {
    bool ascii, sort;
    int indent; /* -1 = on one line */
    const char *item_separator, *key_separator;
};
int print_json(struct eval *e, struct builder *b, const struct value *v, const struct json_style *style);
size_t float_repr(double f, char *out); /* out has room for 40 */

static inline struct builder eval_builder(struct eval *e)
{
    return (struct builder){.arena = &e->arena};
}
/* Turns a builder into a value. */
int eval_built(struct eval *e, struct builder *b, struct value *out);
/* A string of the template's own. */
int eval_text(struct eval *e, const char *text, size_t n, bool input, struct value *out);

/* str_format.c: the method format of strings. */
int str_format(struct eval *e, const struct string *s, const struct args *args, struct value *out);

/* text_ops.c: string functions that filters and methods share. */
enum strip { STRIP_LEFT = 1, STRIP_RIGHT = 2, STRIP_BOTH = 3 };
int text_strip(struct eval *e, const struct string *s, const struct string *chars, enum strip sides,
               struct value *out);
int text_replace(struct eval *e, const struct string *s, const struct string *from, const struct string *to,
                 int64_t max, struct value *out);
enum text_case { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE_FILTER, CASE_TITLE_METHOD, CASE_SWAP };
int text_case(struct eval *e, const struct string *s, enum text_case how, struct value *out);
int text_join(struct eval *e, const struct string *glue, const struct list *items, struct value *out);
int text_format(struct eval *e, const struct string *s, const struct value *arg,
                struct value *out); /* the % operator */
int text_repeat(struct eval *e, const struct string *s, int64_t times, struct value *out);
/* s[start:stop:step] by code points; missing parts are NULL. Serves lists as well. */
int eval_slice(struct eval *e, const struct value *v, const struct value *start, const struct value *stop,
               const struct value *step, struct value *out);
/* End of the line that begins at from; *next is behind its break, or at the end of s. Breaks as Python's splitlines(). */
size_t text_line(const struct string *s, size_t from, size_t *next);
size_t text_find(const struct string *s, size_t from, const struct string *what); /* SIZE_MAX = not there */

#endif
