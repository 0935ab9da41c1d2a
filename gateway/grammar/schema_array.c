/* Arrays. */
#include "schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 2048, MAX_COUNTED = 2000 };

struct array {
    struct schema *s;
    const json_t *prefix, *items;
    uint32_t n, min, max, gap;
    uint32_t empty, full;
};

static uint32_t without(uint32_t a, uint32_t b)
{
    return a == GRAMMAR_MANY ? a : a > b ? a - b : 0;
}

static uint32_t element(struct array *a, uint32_t i)
{
    char step[24];
    struct schema *s = a->s;
    size_t was = schema_down(s, i < a->n ? "prefixItems" : "items");
    snprintf(step, sizeof step, "%u", i);
    if (i < a->n)
        schema_down(s, step);
    const json_t *one = i < a->n ? json_array_get(a->prefix, i) : a->items;
    uint32_t rule = one ? schema_rule(s, one) : build_json(s->g, RULE_VALUE);
    schema_up(s, was);
    return rule;
}

static uint32_t behind_comma(struct array *a, uint32_t at)
{
    return build_then(a->s->g, build_word(a->s->g, at, ","), a->gap);
}

/* Behind the first n elements, which have schemas of their own. */
static void rest(struct array *a, uint32_t at)
{
    struct grammar *g = a->s->g;
    uint32_t min = a->min > a->n ? a->min - a->n : 0, max = without(a->max, a->n);
    if (min > max)
        return;
    if (json_is_false(a->items)) {
        if (min == 0)
            build_empty(g, at, a->n == 0 ? a->empty : a->full);
        return;
    }
    uint32_t one = element(a, a->n), comma = build_state(g);
    uint32_t more = build_rule(g, comma, build_then(g, behind_comma(a, comma), one), NULL);
    if (a->n > 0) {
        build_repeat(g, at, a->full, more, min, max);
        return;
    }
    if (min == 0)
        build_empty(g, at, a->empty);
    if (max > 0)
        build_repeat(g, build_then(g, at, one), a->full, more, min > 0 ? min - 1 : 0, without(max, 1));
}

static bool read_array(struct array *a, const json_t *schema)
{
    if (json_is_array(a->items)) {
        if (a->prefix)
            return schema_fail(a->s, "items must be a schema");
        a->prefix = a->items; /* as older drafts write it */
        a->items = NULL;
    }
    if (a->prefix && !json_is_array(a->prefix))
        return schema_fail(a->s, "prefixItems must be an array");
    if (json_array_size(a->prefix) > MAX_ITEMS)
        return schema_fail(a->s, "prefixItems has more than %d elements", MAX_ITEMS);
    a->n = (uint32_t)json_array_size(a->prefix);
    return schema_count(a->s, schema, "minItems", &a->min) >= 0 &&
           schema_count(a->s, schema, "maxItems", &a->max) >= 0;
}

static void close_array(struct array *a, uint32_t to)
{
    struct grammar *g = a->s->g;
    build_empty(g, build_then(g, a->full, a->gap), a->empty);
    build_bytes(g, a->empty, to, ']', ']');
}

/* ---- contains ---- */

struct counted { /* elements that satisfy `contains` */
    const json_t *schema;
    uint32_t min, max;
};

/* What an element may be besides; NULL: it cannot be said. */
static const json_t *and_also(struct array *a, const json_t *more)
{
    return a->items ? schema_merge(a->s, a->items, more) : more;
}

/* A type that the elements have anyhow is left out of it: not every one has an opposite that can be said. */
static const json_t *opposite(struct array *a, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *have = json_object_get(a->items, "type");
    json_t *of = type && have && json_equal((json_t *)type, (json_t *)have) ? json_copy((json_t *)schema)
                                                                            : json_incref((json_t *)schema);
    if (of != schema)
        json_object_del(of, "type");
    json_t *no = json_pack("{s:o}", "not", of);
    if (no && json_array_append_new(a->s->made, no) == 0)
        return no;
    schema_fail(a->s, "out of memory");
    return NULL;
}

/* A state for each number of elements and of those that count, as far as they are told apart. Without a maximum any element may
 * also not be counted: there is a way to count enough of them exactly when there are enough. */
static void containing(struct array *a, uint32_t at, const struct counted *k)
{
    struct grammar *g = a->s->g;
    struct schema *s = a->s;
    const bool whole = a->max != GRAMMAR_MANY, most = k->max != GRAMMAR_MANY;
    const uint32_t cap = whole ? a->max : a->min > 1 ? a->min : 1, width = (most ? k->max : k->min) + 1;
    if (cap > MAX_COUNTED || width > MAX_COUNTED || (uint64_t)cap * width > 10 * MAX_COUNTED) {
        schema_fail(s, "contains with counts above %d, or of more than %d in all, is not supported",
                    MAX_COUNTED, 10 * MAX_COUNTED);
        return;
    }
    const json_t *yes = and_also(a, k->schema), *no = most ? opposite(a, k->schema) : NULL;
    if (most && no)
        no = and_also(a, no);
    if (!yes || (most && !no) || build_failed(g))
        return;
    const uint32_t one = schema_rule(s, yes), other = most ? schema_rule(s, no) : element(a, 0);
    uint32_t *row = calloc(2u * width, sizeof *row), *next = row + width;
    if (!row) {
        schema_fail(s, "out of memory");
        return;
    }
    row[0] = at;
    for (uint32_t c = 0; c <= cap && !build_failed(g); c++) {
        const bool last = c == cap;
        for (uint32_t i = 0; i < width; i++)
            next[i] = last ? row[i] : build_state(g);
        for (uint32_t i = 0; i < width && (c > 0 || i == 0); i++) {
            if (i >= k->min && c >= a->min)
                build_empty(g, row[i], c == 0 ? a->empty : a->full);
            if (last && whole)
                continue;
            const uint32_t begin = c == 0 ? row[i] : behind_comma(a, row[i]);
            build_call(g, begin, next[i], other);
            if (i + 1 < width)
                build_call(g, begin, next[i + 1], one);
        }
        memcpy(row, next, width * sizeof *row);
    }
    free(row);
}

/* ---- uniqueItems ---- */

/* The values that the items can have, each once; NULL: they are not few enough. */
static json_t *few_values(const json_t *items)
{
    const json_t *list = json_object_get(items, "enum"), *one = json_object_get(items, "const"), *v;
    json_t *out = json_array(), *known;
    size_t i, k;
    if (one)
        json_array_append(out, (json_t *)one);
    json_array_foreach(one ? NULL : (json_t *)list, i, v)
    {
        bool twice = false;
        json_array_foreach(out, k, known) twice |= schema_same(known, v);
        if (!twice)
            json_array_append(out, (json_t *)v);
    }
    if (json_array_size(out) > 0 && json_array_size(out) <= UNIQUE_MAX)
        return out;
    json_decref(out);
    return NULL;
}

/* A state for each set of values that are there. */
static void all_different(struct array *a, uint32_t at)
{
    struct grammar *g = a->s->g;
    uint32_t states[1 << UNIQUE_MAX], rules[UNIQUE_MAX] = {0};
    json_t *values = few_values(a->items), *v;
    size_t k;
    if (!values) {
        schema_fail(a->s,
                    "uniqueItems is supported for items of an enum of at most %d values, or at most one item",
                    UNIQUE_MAX);
        return;
    }
    const unsigned n = (unsigned)json_array_size(values);
    json_array_foreach(values, k, v)
    {
        const json_t *rest = json_pack("{s:[O]}", "enum", v);
        if (rest && json_array_append_new(a->s->made, (json_t *)rest) == 0) {
            rest = schema_merge(a->s, a->items, rest);
            rules[k] = rest ? schema_rule(a->s, rest) : 0;
        }
    }
    for (unsigned set = 0; set < 1u << n && !build_failed(g); set++)
        states[set] = set == 0 ? at : build_state(g);
    for (unsigned set = 0; set < 1u << n && !build_failed(g); set++) {
        const uint32_t count = (uint32_t)__builtin_popcount(set);
        if (count >= a->min && count <= a->max)
            build_empty(g, states[set], set == 0 ? a->empty : a->full);
        if (count >= a->max || set + 1 == 1u << n)
            continue;
        const uint32_t begin = set == 0 ? states[0] : behind_comma(a, states[set]);
        for (unsigned i = 0; i < n; i++)
            if (!(set >> i & 1))
                build_call(g, begin, states[set | 1u << i], rules[i]);
    }
    json_decref(values);
}

/* ---- all of it ---- */

/* True when words that need a way of their own have built the array. */
static bool special(struct array *a, uint32_t at, const json_t *schema)
{
    const json_t *unique = json_object_get(schema, "uniqueItems");
    struct counted k = {json_object_get(schema, "contains"), 1, GRAMMAR_MANY};
    if (unique && !json_is_boolean(unique))
        return schema_fail(a->s, "uniqueItems must be true or false"), true;
    if (schema_count(a->s, schema, "minContains", &k.min) < 0 ||
        schema_count(a->s, schema, "maxContains", &k.max) < 0)
        return true;
    const bool different = json_is_true(unique) && a->max > 1,
               demands = k.schema && (k.min > 0 || k.max != GRAMMAR_MANY);
    if (!different && !demands)
        return false;
    if (a->n > 0 || (different && demands))
        schema_fail(a->s, "'%s' together with %s is not supported", different ? "uniqueItems" : "contains",
                    a->n > 0 ? "prefixItems" : "contains");
    else if (different)
        all_different(a, at);
    else
        containing(a, at, &k);
    return true;
}

void schema_array(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    struct grammar *g = s->g;
    struct array a = {.s = s,
                      .max = GRAMMAR_MANY,
                      .prefix = json_object_get(schema, "prefixItems"),
                      .items = json_object_get(schema, "items")};
    if (!read_array(&a, schema))
        return;
    a.gap = build_json(g, RULE_SPACE);
    a.empty = build_state(g);
    a.full = build_state(g);
    uint32_t at = build_then(g, build_word(g, from, "["), a.gap);
    if (special(&a, at, schema)) {
        close_array(&a, to);
        return;
    }
    for (uint32_t i = 0; i < a.n && !build_failed(g); i++) {
        if (i >= a.min)
            build_empty(g, at, i == 0 ? a.empty : a.full);
        if (i >= a.max)
            break;
        at = build_then(g, i == 0 ? at : behind_comma(&a, at), element(&a, i));
    }
    if (a.max >= a.n)
        rest(&a, at);
    close_array(&a, to);
}
