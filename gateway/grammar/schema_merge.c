/* allOf: two schemas into one that says what both say. And the opposite question: whether two schemas exclude each other. */
#include "schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MERGES = 4000, MAX_BRANCHES = 256, EXCLUSIVE_DEPTH = 8, MAX_COMPARISONS = 20000 };

static json_t *keep(struct schema *s, json_t *v)
{
    if (!v || json_array_append_new(s->made, v)) {
        schema_fail(s, "out of memory");
        return NULL;
    }
    return v;
}

/* ---- references ---- */

/* One step of a JSON pointer, unescaped (~1, ~0, and %XX of a URI). Returns what follows, NULL when it is too long. */
static const char *pointer_step(const char *p, char *out, size_t size)
{
    size_t n = 0;
    while (*p && *p != '/') {
        char c = *p++;
        if (c == '~' && (*p == '0' || *p == '1'))
            c = *p++ == '0' ? '~' : '/';
        else if (c == '%' && p[0] && p[1]) {
            char hex[3] = {p[0], p[1], 0};
            c = (char)strtol(hex, NULL, 16);
            p += 2;
        }
        if (n + 1 >= size || c == '\0')
            return NULL;
        out[n++] = c;
    }
    out[n] = '\0';
    return p;
}

const json_t *schema_target(struct schema *s, const char *ref)
{
    const json_t *at = s->root;
    char step[256];
    const char *p = ref;
    if (*p != '#' || (p[1] != '\0' && p[1] != '/')) {
        schema_fail(s, "$ref '%.60s': only places of the same schema (#/…) can be meant", ref);
        return NULL;
    }
    for (p++; at && *p == '/';) {
        p = pointer_step(p + 1, step, sizeof step);
        if (!p)
            at = NULL;
        else if (json_is_array(at))
            at = json_array_get(at, strtoul(step, NULL, 10));
        else
            at = json_object_get(at, step);
        if (!p)
            break;
    }
    if (!at)
        schema_fail(s, "$ref '%.60s' leads nowhere", ref);
    return at;
}

/* ---- merging word by word ---- */

static json_t *both(const json_t *a, const json_t *b)
{
    if (json_is_true(a))
        return json_incref((json_t *)b);
    if (json_is_true(b) || a == b)
        return json_incref((json_t *)a);
    if (json_is_false(a) || json_is_false(b))
        return json_false();
    return json_pack("{s:[O, O]}", "allOf", a, b);
}

static unsigned all_types(unsigned t)
{
    return t & TYPE_NUMBER ? t | TYPE_INTEGER : t;
}

static json_t *types_both(struct schema *s, const json_t *a, const json_t *b)
{
    unsigned t = all_types(schema_types(s, a)) & all_types(schema_types(s, b));
    json_t *list = json_array();
    if (t & TYPE_NUMBER)
        t &= ~(unsigned)TYPE_INTEGER;
    for (unsigned k = 1; k <= TYPE_OBJECT; k <<= 1)
        if (t & k)
            json_array_append_new(list, json_string(schema_type_name(k)));
    return list;
}

static json_t *values_of(const json_t *schema)
{
    const json_t *one = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    return one ? json_pack("[O]", one) : json_incref((json_t *)list);
}

static json_t *values_both(const json_t *a, const json_t *b)
{
    json_t *x = values_of(a), *y = values_of(b), *out = json_array(), *v, *w;
    size_t i, k;
    json_array_foreach(x, i, v) json_array_foreach(y, k, w) if (json_equal(v, w)) json_array_append(out, v);
    json_decref(x);
    json_decref(y);
    return out;
}

static bool has_values(const json_t *schema)
{
    return json_object_get(schema, "enum") || json_object_get(schema, "const");
}

/* What a schema says about a member that the other one names. */
static json_t *member_both(const json_t *schema, const json_t *own, const char *name)
{
    const json_t *p = json_object_get(json_object_get(schema, "properties"), name);
    const json_t *others = json_object_get(schema, "additionalProperties");
    if (!p)
        p = others;
    return p ? both(own, p) : json_incref((json_t *)own);
}

static json_t *properties_both(const json_t *a, const json_t *b)
{
    json_t *out = json_object(), *v;
    const char *key;
    json_object_foreach(json_object_get(a, "properties"), key, v)
        json_object_set_new(out, key, member_both(b, v, key));
    json_object_foreach(json_object_get(b, "properties"), key, v) if (!json_object_get(out, key))
        json_object_set_new(out, key, member_both(a, v, key));
    return out;
}

static json_t *required_both(const json_t *a, const json_t *b)
{
    json_t *out = json_array(), *v;
    size_t i;
    json_array_foreach(json_object_get(a, "required"), i, v) json_array_append(out, v);
    json_array_foreach(json_object_get(b, "required"), i, v) json_array_append(out, v);
    return out;
}

static const json_t *item_at(const json_t *schema, size_t i)
{
    const json_t *p = json_array_get(json_object_get(schema, "prefixItems"), i);
    return p ? p : json_object_get(schema, "items");
}

static json_t *prefix_both(const json_t *a, const json_t *b)
{
    json_t *out = json_array();
    size_t n = json_array_size(json_object_get(a, "prefixItems")),
           m = json_array_size(json_object_get(b, "prefixItems"));
    for (size_t i = 0; i < n || i < m; i++) {
        const json_t *x = item_at(a, i), *y = item_at(b, i);
        json_array_append_new(out, x && y ? both(x, y) : json_incref((json_t *)(x ? x : y)));
    }
    return out;
}

static json_t *branches_both(struct schema *s, const json_t *a, const json_t *b)
{
    json_t *out = json_array(), *v, *w;
    size_t i, k;
    if (json_array_size(a) * json_array_size(b) > MAX_BRANCHES) {
        schema_fail(s, "merging anyOf with anyOf gives more than %d branches", MAX_BRANCHES);
        return out;
    }
    json_array_foreach((json_t *)a, i, v) json_array_foreach((json_t *)b, k, w)
        json_array_append_new(out, both(v, w));
    return out;
}

/* The least common multiple. */
static json_t *multiple_both(struct schema *s, const json_t *x, const json_t *y)
{
    const json_int_t a = json_integer_value(x), b = json_integer_value(y);
    json_int_t m = a, n = b;
    while (n > 0) {
        const json_int_t r = m % n;
        m = n;
        n = r;
    }
    if (m > 0 && a <= 1000000 && b <= 1000000)
        return json_integer(a / m * b);
    schema_fail(s, "multipleOf of two schemas that must both hold cannot be made one");
    return NULL;
}

/* A word that both have. NULL: it cannot be said in one. */
static json_t *word_both(struct schema *s, const char *key, const json_t *x, const json_t *y)
{
    static const char *const larger[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                         "minProperties"};
    static const char *const smaller[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                          "maxProperties"};
    if (json_equal((json_t *)x, (json_t *)y))
        return json_incref((json_t *)x);
    for (int i = 0; i < 5 && json_is_number(x) && json_is_number(y); i++) {
        bool x_more = json_number_value(x) > json_number_value(y);
        if (strcmp(key, larger[i]) == 0)
            return json_incref((json_t *)(x_more ? x : y));
        if (strcmp(key, smaller[i]) == 0)
            return json_incref((json_t *)(x_more ? y : x));
    }
    if (strcmp(key, "items") == 0 || strcmp(key, "additionalProperties") == 0 ||
        strcmp(key, "propertyNames") == 0)
        return both(x, y);
    if (strcmp(key, "anyOf") == 0)
        return branches_both(s, x, y);
    if (strcmp(key, "not") == 0)
        return json_pack("{s:[O, O]}", "anyOf", x, y);
    if (strcmp(key, "uniqueItems") == 0)
        return json_boolean(json_is_true(x) || json_is_true(y));
    if (strcmp(key, "multipleOf") == 0)
        return multiple_both(s, x, y);
    if (strcmp(key, SCHEMA_EXCEPT) == 0) {
        json_t *none = json_copy((json_t *)x);
        json_array_extend(none, (json_t *)y);
        return none;
    }
    if (strcmp(key, "allOf") == 0) {
        json_t *all = json_array();
        json_array_extend(all, (json_t *)x);
        json_array_extend(all, (json_t *)y);
        return all;
    }
    schema_fail(s, "'%s' of two schemas that must both hold cannot be made one", key);
    return NULL;
}

static bool merged_elsewhere(const char *key)
{
    static const char *const keys[] = {"type",     "enum",        "const",       "properties",
                                       "required", "prefixItems", "title",       "description",
                                       "default",  "examples",    "$schema",     "$id",
                                       "$comment", "$defs",       "definitions", "deprecated"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static json_t *merge_words(struct schema *s, const json_t *a, const json_t *b)
{
    json_t *out = json_object(), *v;
    const char *key;
    json_object_foreach((json_t *)a, key, v)
    {
        const json_t *w = json_object_get(b, key);
        if (!merged_elsewhere(key))
            json_object_set_new(out, key, w ? word_both(s, key, v, w) : json_incref(v));
    }
    json_object_foreach((json_t *)b, key, v) if (!merged_elsewhere(key) && !json_object_get(a, key))
        json_object_set(out, key, v);
    if (json_object_get(a, "type") || json_object_get(b, "type"))
        json_object_set_new(out, "type", types_both(s, a, b));
    if (has_values(a) && has_values(b))
        json_object_set_new(out, "enum", values_both(a, b));
    else if (has_values(a) || has_values(b))
        json_object_set_new(out, "enum", values_of(has_values(a) ? a : b));
    if (json_object_get(a, "properties") || json_object_get(b, "properties"))
        json_object_set_new(out, "properties", properties_both(a, b));
    if (json_object_get(a, "required") || json_object_get(b, "required"))
        json_object_set_new(out, "required", required_both(a, b));
    if (json_object_get(a, "prefixItems") || json_object_get(b, "prefixItems"))
        json_object_set_new(out, "prefixItems", prefix_both(a, b));
    return out;
}

/* A schema whose own words are those of the place that it refers to, and whose oneOf has become anyOf. */
static const json_t *plain(struct schema *s, const json_t *v)
{
    for (unsigned i = 0; i < SCHEMA_NESTING && json_object_get(v, "$ref"); i++) {
        const json_t *target = schema_target(s, json_string_value(json_object_get(v, "$ref"))
                                                    ? json_string_value(json_object_get(v, "$ref"))
                                                    : "");
        if (!target)
            return NULL;
        json_t *rest = keep(s, json_copy((json_t *)v));
        if (!rest)
            return NULL;
        json_object_del(rest, "$ref");
        v = json_object_size(rest) == 0 ? target : schema_merge(s, rest, target);
        if (!v)
            return NULL;
    }
    if (json_object_get(v, "$ref")) {
        schema_fail(s, "$ref leads to itself");
        return NULL;
    }
    const json_t *one = json_object_get(v, "oneOf");
    if (!one)
        return v;
    size_t i, k;
    json_t *x, *y, *copy = keep(s, json_copy((json_t *)v));
    json_array_foreach((json_t *)one, i, x)
        json_array_foreach((json_t *)one, k, y) if (k > i && !schema_exclusive(s, x, y, 0))
            schema_fail(s, "it cannot be seen that branches %zu and %zu of oneOf exclude each other", i, k);
    if (!copy)
        return NULL;
    json_object_del(copy, "oneOf");
    const json_t *any = json_object_get(copy, "anyOf");
    json_object_set_new(copy, "anyOf", any ? branches_both(s, any, one) : json_incref((json_t *)one));
    return copy;
}

const json_t *schema_merge(struct schema *s, const json_t *a, const json_t *b)
{
    if (build_failed(s->g))
        return NULL;
    if (++s->merges > MAX_MERGES || s->nesting >= SCHEMA_NESTING) {
        schema_fail(s, "too many schemas that must hold together");
        return NULL;
    }
    if (json_is_true(a) || json_is_true(b))
        return json_is_true(a) ? b : a;
    if (json_is_false(a) || json_is_false(b))
        return json_is_false(a) ? a : b;
    if (!json_is_object(a) || !json_is_object(b)) {
        schema_fail(s, "a schema must be an object, true or false");
        return NULL;
    }
    s->nesting++;
    const json_t *x = plain(s, a), *y = x ? plain(s, b) : NULL;
    s->nesting--;
    return x && y && !build_failed(s->g) ? keep(s, merge_words(s, x, y)) : NULL;
}

/* ---- exclusion ---- */

static unsigned value_type(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return TYPE_BOOLEAN;
    case JSON_INTEGER:
    case JSON_REAL: return TYPE_NUMBER;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    default: return TYPE_OBJECT;
    }
}

/* Types that a schema can have at all, with integers as numbers. */
static unsigned could_be(struct schema *s, const json_t *v)
{
    const json_t *one;
    size_t i;
    unsigned t = 0;
    if (has_values(v)) {
        json_t *list = values_of(v);
        json_array_foreach(list, i, one) t |= value_type(one);
        json_decref(list);
        return t;
    }
    if (!json_object_get(v, "type"))
        return TYPE_ALL;
    t = schema_types(s, v);
    return t & TYPE_INTEGER ? (t & ~(unsigned)TYPE_INTEGER) | TYPE_NUMBER : t;
}

static bool ranges_apart(const json_t *a, const json_t *b)
{
    const json_t *max = json_object_get(a, "maximum"), *min = json_object_get(b, "minimum");
    return json_is_number(max) && json_is_number(min) && json_number_value(max) < json_number_value(min);
}

static bool requires(const json_t *schema, const char *name)
{
    const json_t *v;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i,
                       v) if (json_is_string(v) && strcmp(json_string_value(v), name) == 0) return true;
    return false;
}

/* One demands a member that the other forbids, or both demand one with values that exclude each other. */
static bool members_apart(struct schema *s, const json_t *a, const json_t *b, unsigned depth)
{
    const json_t *pa = json_object_get(a, "properties"), *pb = json_object_get(b, "properties"), *v, *name;
    const char *key;
    size_t i;
    json_object_foreach((json_t *)pa, key,
                        v) if (requires(a, key) && requires(b, key) && json_object_get(pb, key) &&
                               schema_exclusive(s, v, json_object_get(pb, key), depth + 1)) return true;
    for (int swap = 0; swap < 2; swap++) {
        const json_t *x = swap ? b : a, *y = swap ? a : b;
        if (json_is_false(json_object_get(y, "additionalProperties")))
            json_array_foreach(json_object_get(x, "required"), i,
                               name) if (json_is_string(name) &&
                                         !json_object_get(json_object_get(y, "properties"),
                                                          json_string_value(name))) return true;
    }
    return false;
}

static bool object_only(struct schema *s, const json_t *v)
{
    return could_be(s, v) == TYPE_OBJECT;
}

bool schema_exclusive(struct schema *s, const json_t *a, const json_t *b, unsigned depth)
{
    if (json_is_false(a) || json_is_false(b))
        return true;
    if (++s->comparisons > MAX_COMPARISONS || depth > EXCLUSIVE_DEPTH || !json_is_object(a) ||
        !json_is_object(b))
        return false;
    const char *ra = json_string_value(json_object_get(a, "$ref")),
               *rb = json_string_value(json_object_get(b, "$ref"));
    if (ra || rb) {
        const json_t *x = ra ? schema_target(s, ra) : a, *y = rb ? schema_target(s, rb) : b;
        return x && y && schema_exclusive(s, x, y, depth + 1);
    }
    if ((could_be(s, a) & could_be(s, b)) == 0)
        return true;
    if (has_values(a) && has_values(b)) {
        json_t *common = values_both(a, b);
        bool none = json_array_size(common) == 0;
        json_decref(common);
        return none;
    }
    if (could_be(s, a) == TYPE_NUMBER && could_be(s, b) == TYPE_NUMBER)
        return ranges_apart(a, b) || ranges_apart(b, a);
    return object_only(s, a) && object_only(s, b) && members_apart(s, a, b, depth);
}
