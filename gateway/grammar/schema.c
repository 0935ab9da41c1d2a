#include "schema.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SUBSCHEMAS = 8192 };

uint32_t schema_fail(struct schema *s, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return build_fail(s->g, "%s at %s: %s", s->where, s->path[0] ? s->path : "its root", text);
}

size_t schema_down(struct schema *s, const char *step)
{
    size_t was = strlen(s->path), n = was;
    if (n + 2 < sizeof s->path)
        s->path[n++] = '/';
    for (; *step && n + 1 < sizeof s->path; step++)
        s->path[n++] = *step;
    s->path[n] = '\0';
    return was;
}

void schema_up(struct schema *s, size_t was)
{
    s->path[was] = '\0';
}

int schema_count(struct schema *s, const json_t *schema, const char *word, uint32_t *v)
{
    const json_t *j = json_object_get(schema, word);
    if (!j)
        return 0;
    double d = json_is_number(j) ? json_number_value(j) : -1;
    if (d < 0 || d != floor(d)) {
        schema_fail(s, "%s must be a whole number of 0 or more", word);
        return -1;
    }
    *v = d > 1e9 ? 1000000000 : (uint32_t)d;
    return 1;
}

/* ---- words ---- */

static const struct word {
    const char *name;
    unsigned types; /* that it speaks about; 0: none in particular */
    bool refused;
} words[] = {
    {"properties", TYPE_OBJECT, false},
    {"required", TYPE_OBJECT, false},
    {"additionalProperties", TYPE_OBJECT, false},
    {"minProperties", TYPE_OBJECT, false},
    {"maxProperties", TYPE_OBJECT, false},
    {"items", TYPE_ARRAY, false},
    {"prefixItems", TYPE_ARRAY, false},
    {"minItems", TYPE_ARRAY, false},
    {"maxItems", TYPE_ARRAY, false},
    {"minLength", TYPE_STRING, false},
    {"maxLength", TYPE_STRING, false},
    {"pattern", TYPE_STRING, false},
    {"format", TYPE_STRING, false},
    {"minimum", TYPE_NUMBER, false},
    {"maximum", TYPE_NUMBER, false},
    {"exclusiveMinimum", TYPE_NUMBER, false},
    {"exclusiveMaximum", TYPE_NUMBER, false},
    {"patternProperties", TYPE_OBJECT, false},
    {"propertyNames", TYPE_OBJECT, false},
    {"dependentRequired", TYPE_OBJECT, false},
    {"dependentSchemas", TYPE_OBJECT, false},
    {"dependencies", TYPE_OBJECT, false},
    {"unevaluatedProperties", TYPE_OBJECT, true},
    {"unevaluatedItems", TYPE_ARRAY, true},
    {"additionalItems", TYPE_ARRAY, true},
    {"contains", TYPE_ARRAY, false},
    {"minContains", TYPE_ARRAY, false},
    {"maxContains", TYPE_ARRAY, false},
    {"uniqueItems", TYPE_ARRAY, false},
    {"multipleOf", TYPE_NUMBER, false},
    {"not", 0, false},
    {"if", 0, false},
    {"then", 0, false},
    {"else", 0, false},
    {"$dynamicRef", 0, true},
    {"$recursiveRef", 0, true},
};

/* Values of refused words that restrict nothing. */
static bool says_nothing(const char *word, const json_t *v)
{
    if (strncmp(word, "unevaluated", 11) == 0 || strcmp(word, "additionalItems") == 0)
        return json_is_true(v);
    return json_is_object(v) && json_object_size(v) == 0;
}

static bool refused(struct schema *s, const json_t *schema)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const json_t *v = words[i].refused ? json_object_get(schema, words[i].name) : NULL;
        if (!v || says_nothing(words[i].name, v))
            continue;
        schema_fail(s, "'%s' is not supported", words[i].name);
        return true;
    }
    return false;
}

const char *schema_restriction(const json_t *schema)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (words[i].types && !words[i].refused && strcmp(words[i].name, "format") != 0 &&
            json_object_get(schema, words[i].name))
            return words[i].name;
    return NULL;
}

static const char *const type_names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};

const char *schema_type_name(unsigned type)
{
    unsigned i = 0;
    while (type >> i > 1)
        i++;
    return type_names[i];
}

static unsigned type_named(const char *name)
{
    for (unsigned i = 0; name && i < 7; i++)
        if (strcmp(name, type_names[i]) == 0)
            return 1u << i;
    return 0;
}

static unsigned inferred(const json_t *schema)
{
    unsigned types = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (json_object_get(schema, words[i].name))
            types |= words[i].types;
    return types && (types & (types - 1)) == 0 ? types : TYPE_ALL;
}

unsigned schema_types(struct schema *s, const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    unsigned types = 0;
    size_t i;
    if (!type) {
        types = inferred(schema);
    } else if (json_is_string(type)) {
        types = type_named(json_string_value(type));
        if (!types)
            schema_fail(s, "unknown type '%.40s'", json_string_value(type));
    } else if (json_is_array(type)) {
        json_array_foreach((json_t *)type, i, one)
        {
            unsigned t = type_named(json_string_value(one));
            if (!t)
                schema_fail(s, "unknown type '%.40s'", json_is_string(one) ? json_string_value(one) : "?");
            types |= t;
        }
    } else {
        schema_fail(s, "type must be a string or an array of strings");
    }
    const json_t *multiple = json_object_get(schema, "multipleOf");
    const double of = json_is_number(multiple) ? json_number_value(multiple) : 1;
    if (multiple && (types & TYPE_NUMBER) && (of <= 0 || of >= 1))
        types = (types & ~(unsigned)TYPE_NUMBER) | TYPE_INTEGER; /* of a whole number */
    return types & TYPE_NUMBER ? types & ~(unsigned)TYPE_INTEGER : types;
}

/* ---- one subschema ---- */

/* Whether a value of this type is among those that are excepted. */
static bool excepted(const json_t *schema, unsigned type, const json_t *value)
{
    const json_t *v;
    size_t i;
    json_array_foreach(json_object_get(schema, SCHEMA_EXCEPT), i, v)
    {
        if (value ? schema_same(v, value)
                  : (type == TYPE_NUMBER && json_is_number(v)) || (type == TYPE_ARRAY && json_is_array(v)) ||
                        (type == TYPE_OBJECT && json_is_object(v)))
            return true;
    }
    return false;
}

static void word_value(struct schema *s, uint32_t from, uint32_t to, const json_t *schema,
                       const json_t *value)
{
    if (!excepted(schema, 0, value))
        schema_constant(s, from, to, value);
}

static void one_type(struct schema *s, uint32_t from, uint32_t to, const json_t *schema, unsigned type)
{
    if (excepted(schema, type, NULL)) {
        schema_fail(s, "'not' of a value of type %s is not supported", schema_type_name(type));
        return;
    }
    switch (type) {
    case TYPE_NULL: word_value(s, from, to, schema, json_null()); break;
    case TYPE_BOOLEAN:
        word_value(s, from, to, schema, json_true());
        word_value(s, from, to, schema, json_false());
        break;
    case TYPE_INTEGER: schema_number(s, from, to, schema, true); break;
    case TYPE_NUMBER: schema_number(s, from, to, schema, false); break;
    case TYPE_STRING: schema_string(s, from, to, schema); break;
    case TYPE_ARRAY: schema_array(s, from, to, schema); break;
    default: schema_object(s, from, to, schema);
    }
}

static bool says_only(const json_t *schema, const char *word)
{
    static const char *const describing[] = {
        "title",   "description", "default", "examples",    "example",       "deprecated", "$comment",
        "$schema", "$id",         "$defs",   "definitions", "discriminator", "readOnly",   "writeOnly"};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)schema, key, v)
    {
        bool skip = strcmp(key, word) == 0;
        for (size_t i = 0; i < sizeof describing / sizeof describing[0]; i++)
            skip |= strcmp(key, describing[i]) == 0;
        if (!skip)
            return false;
    }
    return true;
}

static const json_t *without(struct schema *s, const json_t *schema, const char *word)
{
    json_t *copy = json_copy((json_t *)schema);
    json_object_del(copy, word);
    if (!copy || json_array_append_new(s->made, copy)) {
        schema_fail(s, "out of memory");
        return NULL;
    }
    return copy;
}

static void branches(struct schema *s, uint32_t from, uint32_t to, const json_t *schema, const char *word)
{
    const json_t *list = json_object_get(schema, word), *one, *other;
    size_t i, k, was = schema_down(s, word);
    bool alone = says_only(schema, word);
    const json_t *rest = alone ? NULL : without(s, schema, word);
    if (!json_is_array(list) || json_array_size(list) == 0)
        schema_fail(s, "%s must be an array that is not empty", word);
    json_array_foreach((json_t *)list, i, one)
    {
        char step[24];
        snprintf(step, sizeof step, "%zu", i);
        size_t at = schema_down(s, step);
        if (build_failed(s->g))
            return;
        if (strcmp(word, "oneOf") == 0)
            json_array_foreach((json_t *)list, k, other) if (k > i && !schema_exclusive(s, one, other, 0))
                schema_fail(
                    s,
                    "it cannot be seen that this and branch %zu of oneOf exclude each other; anyOf would do",
                    k);
        const json_t *whole = alone ? one : schema_merge(s, rest, one);
        if (whole)
            build_call(s->g, from, to, schema_rule(s, whole));
        schema_up(s, at);
    }
    schema_up(s, was);
}

static void all_of(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    const json_t *list = json_object_get(schema, "allOf"), *one, *all = without(s, schema, "allOf");
    size_t i, was = schema_down(s, "allOf");
    if (!json_is_array(list))
        schema_fail(s, "allOf must be an array");
    json_array_foreach((json_t *)list, i, one) if (all) all = schema_merge(s, all, one);
    schema_up(s, was);
    if (all && !build_failed(s->g))
        build_call(s->g, from, to, schema_rule(s, all));
}

static void reference(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *target = ref ? schema_target(s, ref) : NULL;
    if (!ref)
        schema_fail(s, "$ref must be a string");
    if (target && !says_only(schema, "$ref")) {
        const json_t *rest = without(s, schema, "$ref");
        target = rest ? schema_merge(s, rest, target) : NULL;
    }
    if (target && !build_failed(s->g))
        build_call(s->g, from, to, schema_rule(s, target));
}

static void compile(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum"), *value = json_object_get(schema, "const");
    if (refused(s, schema))
        return;
    if (schema_logic(s, from, to, schema)) {
        /* done */
    } else if (json_object_get(schema, "$ref")) {
        reference(s, from, to, schema);
    } else if (json_object_get(schema, "allOf")) {
        all_of(s, from, to, schema);
    } else if (json_object_get(schema, "anyOf")) {
        branches(s, from, to, schema, "anyOf");
    } else if (json_object_get(schema, "oneOf")) {
        branches(s, from, to, schema, "oneOf");
    } else if (values || value) {
        json_t *one = value ? json_pack("[O]", value) : NULL;
        if (values && value)
            schema_fail(s, "enum and const together");
        schema_enum(s, from, to, schema, value ? one : values);
        json_decref(one);
    } else {
        unsigned types = schema_types(s, schema);
        for (unsigned t = 1; t <= TYPE_OBJECT; t <<= 1)
            if ((types & t) && !build_failed(s->g))
                one_type(s, from, to, schema, t);
    }
}

static uint32_t remember(struct schema *s, const json_t *schema, uint32_t from, uint32_t to)
{
    if (s->n_known >= MAX_SUBSCHEMAS)
        return schema_fail(s, "more than %d subschemas", MAX_SUBSCHEMAS);
    if (s->n_known == s->cap_known) {
        uint32_t cap = s->cap_known ? 2 * s->cap_known : 64;
        struct known *p = realloc(s->known, cap * sizeof *p);
        if (!p)
            return schema_fail(s, "out of memory");
        s->known = p;
        s->cap_known = cap;
    }
    uint32_t rule = build_rule(s->g, from, to, s->path[0] ? s->path : "#");
    s->known[s->n_known++] = (struct known){schema, rule};
    return rule;
}

uint32_t schema_rule(struct schema *s, const json_t *schema)
{
    if (build_failed(s->g))
        return 0;
    if (json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0))
        return build_json(s->g, RULE_VALUE);
    for (uint32_t i = 0; i < s->n_known; i++)
        if (s->known[i].at == schema && !json_is_false(schema))
            return s->known[i].rule;
    if (!json_is_object(schema) && !json_is_false(schema))
        return schema_fail(s, "a schema must be an object, true or false");
    if (++s->nesting > SCHEMA_NESTING)
        return schema_fail(s, "nested deeper than %d", SCHEMA_NESTING);
    uint32_t from = build_state(s->g), to = build_state(s->g), rule = remember(s, schema, from, to);
    if (!build_failed(s->g) && json_is_object(schema))
        compile(s, from, to, schema);
    s->nesting--;
    return rule;
}

uint32_t grammar_schema(struct grammar *g, const json_t *schema, const char *where)
{
    struct schema s = {.g = g, .root = schema, .where = where, .made = json_array()};
    uint32_t rule = 0;
    if (!s.made)
        build_fail(g, "out of memory");
    else
        rule = schema_rule(&s, schema);
    free(s.known);
    json_decref(s.made);
    return rule;
}
