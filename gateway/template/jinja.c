#include "jinja.h"

#include "eval.h"
#include "hash.h"
#include "parser.h"

#include <stdlib.h>
#include <string.h>

#define TEMPLATE_MAX (1u << 20)
#define TREE_MEMORY  (256u << 20)
#define DEPTH_MAX    1000u

struct jinja {
    struct arena arena;
    struct node *body;
};

int jinja_parse(struct jinja **out, const char *text, size_t len, struct vt_err *err)
{
    *out = NULL;
    if (len > TEMPLATE_MAX)
        return vt_fail(err, VT_E_PARAM, "the template has %zu bytes; at most %u are allowed", len,
                       TEMPLATE_MAX);
    struct jinja *t = calloc(1, sizeof *t);
    if (!t)
        return vt_fail(err, VT_E_NOMEM, "no memory for a template");
    t->arena.limit = TREE_MEMORY;
    vt_random(&t->arena.seed, sizeof t->arena.seed);
    if (parse_template(&t->arena, text, len, &t->body, err)) {
        jinja_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void jinja_free(struct jinja *t)
{
    if (t)
        arena_fini(&t->arena);
    free(t);
}

void jinja_text_fini(struct jinja_text *r)
{
    free(r->text);
    free(r->spans);
    *r = (struct jinja_text){0};
}

static int from_json(struct eval *e, const json_t *j, bool input, struct value *out);

static int from_object(struct eval *e, const json_t *j, bool input, struct dict *d)
{
    json_t *obj = (json_t *)(uintptr_t)j; /* iterators want a pointer to non-const, though they only read */
    for (void *iter = json_object_iter(obj); iter; iter = json_object_iter_next(obj, iter)) {
        const char *key = json_object_iter_key(iter);
        const json_t *item = json_object_iter_value(iter);
        struct string *name = string_view(&e->arena, key, strlen(key), input);
        struct value v;
        if (!name)
            return eval_exhausted(e);
        if (from_json(e, item, input, &v))
            return -1;
        if (dict_set(&e->arena, d, v_string(name), v))
            return eval_exhausted(e);
    }
    return 0;
}

static int from_array(struct eval *e, const json_t *j, bool input, struct list *l)
{
    for (size_t i = 0; i < json_array_size(j); i++)
        if (from_json(e, json_array_get(j, i), input, &l->v[l->n++]))
            return -1;
    return 0;
}

static int from_json(struct eval *e, const json_t *j, bool input, struct value *out)
{
    int rc = 0;
    *out = v_none();
    switch (json_typeof(j)) {
    case JSON_NULL: return 0;
    case JSON_TRUE:
    case JSON_FALSE: *out = v_bool(json_is_true(j)); return 0;
    case JSON_INTEGER: *out = v_int(json_integer_value(j)); return 0;
    case JSON_REAL: *out = v_float(json_real_value(j)); return 0;
    case JSON_STRING: return eval_text(e, json_string_value(j), json_string_length(j), input, out);
    default: break;
    }
    if (eval_enter(e))
        return -1;
    if (json_is_array(j)) {
        struct list *l = list_new(&e->arena, L_LIST, json_array_size(j));
        rc = l ? from_array(e, j, input, l) : eval_exhausted(e);
        *out = v_list(l);
    } else {
        struct dict *d = dict_new(&e->arena);
        rc = d ? from_object(e, j, input, d) : eval_exhausted(e);
        *out = v_dict(d);
    }
    eval_leave(e);
    return rc;
}

static int export_text(const struct string *s, struct jinja_text *out, struct vt_err *err)
{
    const size_t n = s->marks ? s->marks->n : s->n ? 1 : 0;
    out->text = malloc(s->n + 1);
    out->spans = malloc((n ? n : 1) * sizeof *out->spans);
    if (!out->text || !out->spans) {
        jinja_text_fini(out);
        return vt_fail(err, VT_E_NOMEM, "no memory for a rendered text of %zu bytes", s->n);
    }
    memcpy(out->text, s->p, s->n);
    out->text[s->n] = 0;
    out->len = s->n;
    for (size_t i = 0; i < n; i++)
        out->spans[i] = s->marks ? (struct jinja_span){s->marks->v[i].end, s->marks->v[i].input}
                                 : (struct jinja_span){s->n, s->input};
    out->n_spans = n;
    return 0;
}

static int render(struct eval *e, const struct jinja *t, const json_t *vars, const json_t *trusted,
                  size_t max_output, struct jinja_text *out)
{
    struct scope top = {0};
    struct builder text = eval_builder(e);
    struct value rendered;
    text.limit = max_output;
    e->out = &text;
    e->scope = &top;
    e->globals = dict_new(&e->arena);
    if (!e->globals)
        return eval_exhausted(e);
    if (globals_add(e) || (vars && from_object(e, vars, true, e->globals)) ||
        (trusted && from_object(e, trusted, false, e->globals)))
        return -1;
    const int rc = eval_body(e, t->body);
    if (rc > 0)
        return eval_fail(e, "%s stands outside of a loop", rc == EVAL_BREAK ? "break" : "continue");
    if (rc || eval_built(e, &text, &rendered))
        return -1;
    return export_text(rendered.s, out, e->err);
}

int jinja_render_spans(const struct jinja *t, const json_t *vars, const json_t *trusted,
                       const struct jinja_limits *lim, uint64_t now_us, struct jinja_text *out,
                       struct vt_err *err)
{
    struct eval e = {.now_us = now_us, .err = err};
    *out = (struct jinja_text){0};
    vt_random(&e.arena.seed, sizeof e.arena.seed);
    e.arena.limit = lim && lim->memory ? lim->memory : (size_t)256 << 20;
    e.max_steps = lim && lim->steps ? lim->steps : 10000000;
    e.max_depth = lim && lim->depth ? lim->depth : 256;
    if (e.max_depth > DEPTH_MAX)
        e.max_depth = DEPTH_MAX;
    e.meter = (struct meter){.steps = e.max_steps, .depth = e.max_depth};
    const int rc = render(&e, t, vars, trusted, lim && lim->output ? lim->output : (size_t)64 << 20, out);
    arena_fini(&e.arena);
    return rc;
}

int jinja_render(const struct jinja *t, const json_t *vars, const struct jinja_limits *lim, uint64_t now_us,
                 char **out, size_t *out_len, struct vt_err *err)
{
    struct jinja_text r;
    *out = NULL;
    *out_len = 0;
    if (jinja_render_spans(t, vars, NULL, lim, now_us, &r, err))
        return -1;
    *out = r.text;
    *out_len = r.len;
    free(r.spans);
    return 0;
}
