/* Objects. */
#include "schema.h"

#include "chars.h"
#include "regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MEMBERS = 2048, MAX_CELLS = 40000 };

struct member {
    const char *name;
    const json_t *schema; /* true for one that only `required` names and nothing describes */
    bool required;
    uint32_t rule;
};

struct object {
    struct schema *s;
    struct member *m;
    uint32_t n, n_required;
    const json_t *others; /* schema of other members, NULL: none */
    const char *pattern;  /* that their names must match, NULL: any name */
    const json_t *names;  /* schema of all names, NULL: any name */
    uint32_t min, max;    /* members */
    uint32_t cap;         /* counts above are not told apart */
    uint32_t other, gap, comma_other;
};

/* ---- reading ---- */

static struct member *member_named(struct object *o, const char *name)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (strcmp(o->m[i].name, name) == 0)
            return &o->m[i];
    return NULL;
}

static bool read_members(struct object *o, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required"), *v;
    size_t n = json_object_size(properties) + json_array_size(required), i;
    const char *key;
    if ((properties && !json_is_object(properties)) || (required && !json_is_array(required)))
        return schema_fail(o->s, "properties must be an object, and required an array");
    if (n > MAX_MEMBERS)
        return schema_fail(o->s, "%zu members; the limit is %d", n, MAX_MEMBERS);
    o->m = calloc(n + 1, sizeof *o->m);
    if (!o->m)
        return schema_fail(o->s, "out of memory");
    json_object_foreach((json_t *)properties, key, v) o->m[o->n++] =
        (struct member){.name = key, .schema = v};
    json_array_foreach((json_t *)required, i, v)
    {
        if (!json_is_string(v))
            return schema_fail(o->s, "required must hold strings");
        struct member *m = member_named(o, json_string_value(v));
        if (!m && !o->others)
            return schema_fail(o->s, "'%.40s' is required, and not among the properties that may be there",
                               json_string_value(v));
        if (!m) {
            m = &o->m[o->n++];
            *m = (struct member){.name = json_string_value(v), .schema = o->others};
        }
        o->n_required += !m->required;
        m->required = true;
    }
    return true;
}

static bool read_limits(struct object *o, const json_t *schema)
{
    int has_min = schema_count(o->s, schema, "minProperties", &o->min);
    int has_max = schema_count(o->s, schema, "maxProperties", &o->max);
    if (has_min < 0 || has_max < 0)
        return false;
    if (o->others && o->min > o->n_required + 1)
        return schema_fail(
            o->s,
            "minProperties is supported up to one more than `required`, or with additionalProperties false");
    if (!o->others && o->max > o->n)
        o->max = has_max ? o->n : o->max;
    o->cap = has_max && o->max != GRAMMAR_MANY ? o->max : o->min;
    if (o->cap < 1)
        o->cap = 1;
    if (has_max && o->cap > o->n + 1)
        o->cap = o->n + 1; /* more cannot be counted before the others come */
    if ((uint64_t)o->cap * (o->n + 1) > MAX_CELLS)
        return schema_fail(o->s,
                           "counting members with minProperties or maxProperties takes more than %d states",
                           MAX_CELLS);
    return true;
}

/* ---- names of other members: every string but the names that are taken ---- */

struct names {
    struct schema *s;
    const char **name;
    uint32_t n;
    uint32_t any, quote; /* states: the rest may be anything; behind the closing quote */
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names lo..hi share their first `at` bytes, with which we stand in `state`. */
static void other_names(struct names *t, uint32_t state, uint32_t lo, uint32_t hi, size_t at)
{
    struct chars taken = {0};
    struct grammar *g = t->s->g;
    bool ends = lo < hi && t->name[lo][at] == '\0';
    if (!ends)
        build_bytes(g, state, t->quote, '"', '"');
    for (uint32_t i = lo + ends; i < hi && !build_failed(g);) {
        uint32_t cp = 0, k = i, next = build_state(g);
        size_t len = chars_decode(t->name[i] + at, strlen(t->name[i] + at), &cp);
        while (k < hi && strncmp(t->name[k] + at, t->name[i] + at, len) == 0)
            k++;
        if (len == 0) {
            schema_fail(t->s, "the name of a property is not UTF-8");
            break;
        }
        struct chars one = {0};
        chars_add(&one, cp, cp);
        chars_add(&taken, cp, cp);
        chars_build_json(g, state, next, &one);
        chars_fini(&one);
        other_names(t, next, i, k, at + len);
        i = k;
    }
    chars_invert(&taken);
    chars_build_json(g, state, t->any, &taken);
    chars_fini(&taken);
}

uint32_t schema_string_but(struct schema *s, const char **names, uint32_t n)
{
    struct grammar *g = s->g;
    struct names t = {.s = s, .n = n, .name = names};
    struct chars all = {0};
    uint32_t from = build_state(g), in = build_word(g, from, "\"");
    t.any = build_state(g);
    t.quote = build_state(g);
    for (uint32_t i = 0; i < n; i++)
        if (strlen(names[i]) > 1024)
            schema_fail(s, "a name of more than 1024 bytes");
    if (n > 1)
        qsort(names, n, sizeof *names, by_text);
    if (!build_failed(g))
        other_names(&t, in, 0, n, 0);
    chars_add(&all, 0, CHARS_LAST);
    chars_build_json(g, t.any, t.any, &all);
    chars_fini(&all);
    build_bytes(g, t.any, t.quote, '"', '"');
    return build_rule(g, from, t.quote, NULL);
}

static uint32_t other_key(struct object *o)
{
    const char **names = calloc(o->n + 1, sizeof *names);
    if (!names)
        return schema_fail(o->s, "out of memory");
    for (uint32_t i = 0; i < o->n; i++)
        names[i] = o->m[i].name;
    const uint32_t rule = schema_string_but(o->s, names, o->n);
    free(names);
    return rule;
}

static uint32_t names_key(struct object *o)
{
    json_t *text = json_pack("{s:s}", "type", "string");
    const json_t *both = NULL;
    if (text && json_array_append_new(o->s->made, text) == 0)
        both = schema_merge(o->s, text, o->names);
    else
        schema_fail(o->s, "out of memory");
    size_t was = schema_down(o->s, "propertyNames");
    const uint32_t rule = both ? schema_rule(o->s, both) : 0;
    schema_up(o->s, was);
    return rule;
}

static uint32_t pattern_key(struct object *o)
{
    struct grammar *g = o->s->g;
    char where[SCHEMA_PATH + 64];
    snprintf(where, sizeof where, "%.40s at %s", o->s->where, o->s->path[0] ? o->s->path : "its root");
    uint32_t from = build_state(g), in = build_word(g, from, "\""), out = build_state(g),
             end = build_state(g);
    regex_build(g, in, out, o->pattern, strlen(o->pattern), where);
    build_bytes(g, out, end, '"', '"');
    return build_rule(g, from, end, NULL);
}

/* ---- building ---- */

static uint32_t value_rule(struct object *o, uint32_t from, const json_t *schema, const char *step)
{
    struct grammar *g = o->s->g;
    uint32_t colon = build_word(g, build_then(g, from, o->gap), ":");
    size_t was = schema_down(o->s, step);
    uint32_t to = build_then(g, build_then(g, colon, o->gap), schema_rule(o->s, schema));
    schema_up(o->s, was);
    return to;
}

static void member_rules(struct object *o)
{
    struct grammar *g = o->s->g;
    for (uint32_t i = 0; i < o->n && !build_failed(g); i++) {
        size_t n = 0;
        char *key = schema_quoted(o->s, o->m[i].name, strlen(o->m[i].name), &n);
        uint32_t from = build_state(g), at = key ? build_text(g, from, key, n) : from;
        free(key);
        size_t was = schema_down(o->s, "properties");
        uint32_t to = value_rule(o, at, o->m[i].schema, o->m[i].name);
        schema_up(o->s, was);
        o->m[i].rule = build_rule(g, from, to, o->m[i].name);
    }
    if (o->others && !build_failed(g)) {
        uint32_t from = build_state(g);
        uint32_t key = build_then(g, from,
                                  o->pattern ? pattern_key(o)
                                  : o->names ? names_key(o)
                                  : o->n > 0 ? other_key(o)
                                             : build_json(g, RULE_STRING));
        o->other = build_rule(
            g, from, value_rule(o, key, o->others, o->pattern ? "patternProperties" : "additionalProperties"),
            "other member");
        uint32_t comma = build_state(g);
        uint32_t at = build_then(g, build_then(g, build_word(g, comma, ","), o->gap), o->other);
        o->comma_other = build_rule(g, comma, at, NULL);
    }
}

static uint32_t less(uint32_t a, uint32_t b)
{
    return a == GRAMMAR_MANY ? a : a > b ? a - b : 0;
}

/* Behind all named members, `c` of which are there: others, and the end. */
static void finish(struct object *o, uint32_t state, uint32_t c, uint32_t empty, uint32_t full)
{
    struct grammar *g = o->s->g;
    uint32_t min = o->min > c ? o->min - c : 0, max = less(o->max, c);
    if (!o->others) {
        if (min == 0)
            build_empty(g, state, c == 0 ? empty : full);
    } else if (c > 0) {
        if (min <= max)
            build_repeat(g, state, full, o->comma_other, min, max);
    } else {
        if (min == 0)
            build_empty(g, state, empty);
        if (max > 0 && min <= max)
            build_repeat(g, build_then(g, state, o->other), full, o->comma_other, min > 0 ? min - 1 : 0,
                         less(max, 1));
    }
}

/* One row of states for each member, one state in it for each number of members so far. */
static void rows(struct object *o, uint32_t begin, uint32_t empty, uint32_t full)
{
    struct grammar *g = o->s->g;
    uint32_t width = o->cap + 1, *row = calloc(2u * width, sizeof *row), *next = row + width;
    if (!row) {
        schema_fail(o->s, "out of memory");
        return;
    }
    row[0] = begin;
    for (uint32_t c = 1; c < width; c++)
        row[c] = build_state(g);
    for (uint32_t i = 0; i < o->n && !build_failed(g); i++) {
        for (uint32_t c = 0; c < width; c++)
            next[c] = build_state(g);
        for (uint32_t c = 0; c < width; c++) {
            uint32_t to = c + 1 < width ? c + 1 : c;
            if (!o->m[i].required)
                build_empty(g, row[c], next[c]);
            if (c >= o->max)
                continue;
            uint32_t at = c == 0 ? row[c] : build_then(g, build_word(g, row[c], ","), o->gap);
            build_call(g, at, next[to], o->m[i].rule);
        }
        memcpy(row, next, width * sizeof *row);
    }
    for (uint32_t c = 0; c < width; c++)
        finish(o, row[c], c, empty, full);
    free(row);
}

/* One pattern and nothing beside it: then no name can be meant twice. Names that it does not match are left out, as those that
 * `properties` does not name are. */
static bool read_pattern(struct object *o, const json_t *schema)
{
    static const char *const beside[] = {"properties", "required"};
    const json_t *patterns = json_object_get(schema, "patternProperties");
    if (json_object_size(patterns) == 0)
        return !patterns || json_is_object(patterns) ||
               schema_fail(o->s, "patternProperties must be an object");
    for (size_t i = 0; i < 2; i++)
        if (json_object_size(json_object_get(schema, beside[i])) ||
            json_array_size(json_object_get(schema, beside[i])))
            return schema_fail(o->s, "patternProperties together with %s is not supported", beside[i]);
    if (json_object_size(patterns) > 1)
        return schema_fail(o->s, "patternProperties is supported for one pattern");
    if (o->others && json_object_get(schema, "additionalProperties"))
        return schema_fail(
            o->s,
            "patternProperties together with additionalProperties is not supported, unless it is false");
    void *first = json_object_iter((json_t *)patterns);
    o->pattern = json_object_iter_key(first);
    o->others = json_object_iter_value(first);
    return true;
}

/* Names that are listed are members like those of `properties`: NULL when they are not, or it was told what is wrong. */
static const json_t *listed_names(struct schema *s, const json_t *schema, const json_t *names,
                                  const json_t *others)
{
    const json_t *list = json_object_get(names, "enum"), *one = json_object_get(names, "const"), *v;
    size_t i;
    if (json_object_size(names) - (json_object_get(names, "type") != NULL) -
                (json_object_get(names, "title") != NULL) !=
            1 ||
        (!json_is_array(list) && !one))
        return NULL;
    json_t *members = json_object(), *as = json_copy((json_t *)schema);
    json_array_foreach((json_t *)list, i, v) if (json_is_string(v))
        json_object_set(members, json_string_value(v), (json_t *)others);
    if (json_is_string(one))
        json_object_set(members, json_string_value(one), (json_t *)others);
    json_object_del(as, "propertyNames");
    json_object_set_new(as, "properties", members);
    json_object_set_new(as, "additionalProperties", json_false());
    if (as && json_array_append_new(s->made, as) == 0)
        return as;
    schema_fail(s, "out of memory");
    return NULL;
}

/* propertyNames where no name is written out elsewhere. *as: the object in other words, if it has some. False: told. */
static bool read_names(struct object *o, const json_t *schema, const json_t **as)
{
    static const char *const beside[] = {"properties", "required", "patternProperties"};
    const json_t *names = json_object_get(schema, "propertyNames"), *ref;
    if (!names || json_is_true(names) || (json_is_object(names) && json_object_size(names) == 0) ||
        !o->others)
        return true;
    if (!json_is_object(names))
        return schema_fail(o->s, "propertyNames must be a schema that some name satisfies");
    for (int i = 0;
         i < 8 && json_object_size(names) == 1 && json_is_string(ref = json_object_get(names, "$ref")); i++)
        if (!(names = schema_target(o->s, json_string_value(ref))))
            return false;
    for (size_t i = 0; i < 3; i++)
        if (i != 1 && json_object_size(json_object_get(schema, beside[i])))
            return schema_fail(o->s, "propertyNames together with %s is not supported", beside[i]);
    *as = listed_names(o->s, schema, names, o->others);
    if (*as)
        return true;
    if (json_array_size(json_object_get(schema, "required")))
        return schema_fail(o->s,
                           "propertyNames together with required is supported where it lists the names");
    o->names = names;
    return true;
}

void schema_object(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    struct grammar *g = s->g;
    struct object o = {
        .s = s, .max = GRAMMAR_MANY, .others = json_object_get(schema, "additionalProperties")};
    if (!o.others && !json_object_get(schema, "properties"))
        o.others = json_true();
    if (json_is_false(o.others))
        o.others = NULL;
    o.gap = build_json(g, RULE_SPACE);
    const json_t *as = NULL;
    if (!read_names(&o, schema, &as))
        return;
    if (as) {
        schema_object(s, from, to, as);
        return;
    }
    if (read_pattern(&o, schema) && read_members(&o, schema) && read_limits(&o, schema)) {
        uint32_t begin = build_then(g, build_word(g, from, "{"), o.gap), empty = build_state(g),
                 full = build_state(g);
        member_rules(&o);
        rows(&o, begin, empty, full);
        build_empty(g, build_then(g, full, o.gap), empty);
        build_bytes(g, empty, to, '}', '}');
    }
    free(o.m);
}
