/* not, if/then/else, dependentRequired, dependentSchemas: each becomes alternatives, and what else a schema says is merged into
 * each of them. ¬(a ∧ b) is ¬a ∨ ¬b, so a negated schema is an alternative for each of its words. Words whose opposite cannot be
 * said are refused by name. */
#include "schema.h"

#include <string.h>

enum { MAX_ALTERNATIVES = 64, NOT_DEPTH = 16, MAX_NEGATIONS = 4000 };

static bool negate(struct schema *s, const json_t *n, json_t *out, unsigned depth);

static bool add(struct schema *s, json_t *out, json_t *one)
{
    if (json_array_size(out) < MAX_ALTERNATIVES)
        return json_array_append_new(out, one) == 0;
    json_decref(one);
    schema_fail(s, "more than %d alternatives", MAX_ALTERNATIVES);
    return false;
}

static bool describes(const char *word)
{
    static const char *const words[] = {"title",      "description", "default",   "examples",   "example",
                                        "deprecated", "$comment",    "$schema",   "$id",        "$defs",
                                        "format",     "readOnly",    "writeOnly", "definitions"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

/* A limit turned around: {"minimum": 3} is not so where {"exclusiveMaximum": 3} is. */
static json_t *other_side(struct schema *s, const char *word, const json_t *v, bool *known)
{
    static const struct {
        const char *word, *opposite, *type;
        int step;
    } limits[] = {
        {"minimum", "exclusiveMaximum", "number", 0},
        {"maximum", "exclusiveMinimum", "number", 0},
        {"exclusiveMinimum", "maximum", "number", 0},
        {"exclusiveMaximum", "minimum", "number", 0},
        {"minLength", "maxLength", "string", -1},
        {"maxLength", "minLength", "string", 1},
        {"minItems", "maxItems", "array", -1},
        {"maxItems", "minItems", "array", 1},
        {"minProperties", "maxProperties", "object", -1},
        {"maxProperties", "minProperties", "object", 1},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (strcmp(word, limits[i].word) != 0)
            continue;
        *known = true;
        if (limits[i].step == 0)
            return json_pack("{s:s, s:O}", "type", limits[i].type, limits[i].opposite, v);
        const json_int_t n = json_integer_value(v) + limits[i].step;
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 1000000000)
            schema_fail(s, "%s must be a whole number of 0 or more", word);
        return n < 0 ? NULL : json_pack("{s:s, s:I}", "type", limits[i].type, limits[i].opposite, n);
    }
    return NULL;
}

static bool not_type(struct schema *s, const json_t *n, json_t *out)
{
    const unsigned types = schema_types(s, n);
    json_t *rest = json_array();
    if ((types & TYPE_INTEGER) && !(types & TYPE_NUMBER)) {
        json_decref(rest);
        schema_fail(s, "'not' of type integer is not supported");
        return false;
    }
    for (unsigned t = 1; t <= TYPE_OBJECT; t <<= 1)
        if (t != TYPE_INTEGER && !(types & t))
            json_array_append_new(rest, json_string(schema_type_name(t)));
    if (json_array_size(rest) > 0)
        return add(s, out, json_pack("{s:o}", "type", rest));
    json_decref(rest);
    return true;
}

static bool not_required(struct schema *s, const json_t *names, json_t *out)
{
    const json_t *v;
    size_t i;
    json_array_foreach((json_t *)names, i, v)
    {
        if (!json_is_string(v))
            return schema_fail(s, "required must hold strings");
        if (!add(s, out,
                 json_pack("{s:s, s:{s:b}}", "type", "object", "properties", json_string_value(v), 0)))
            return false;
    }
    return true;
}

static bool not_properties(struct schema *s, const json_t *properties, json_t *out, unsigned depth)
{
    const char *key;
    json_t *v, *one;
    size_t i;
    json_object_foreach((json_t *)properties, key, v)
    {
        json_t *ways = json_array();
        bool good = negate(s, v, ways, depth + 1);
        json_array_foreach(ways, i, one) good =
            good && add(s, out,
                        json_pack("{s:s, s:[s], s:{s:O}}", "type", "object", "required", key, "properties",
                                  key, one));
        json_decref(ways);
        if (!good)
            return false;
    }
    return true;
}

/* ¬(a ∨ b): one way of each at once. */
static bool not_any(struct schema *s, const json_t *list, json_t *out, unsigned depth)
{
    json_t *all = json_pack("[{}]"), *branch, *a, *b;
    size_t i, k, m;
    bool good = true;
    json_array_foreach((json_t *)list, i, branch)
    {
        json_t *ways = json_array(), *next = json_array();
        good = good && negate(s, branch, ways, depth + 1);
        json_array_foreach(all, k, a) json_array_foreach(ways, m, b) good =
            good && add(s, next, json_pack("{s:[O, O]}", "allOf", a, b));
        json_decref(ways);
        json_decref(all);
        all = next;
    }
    json_array_foreach(all, i, a) good = good && add(s, out, json_incref(a));
    json_decref(all);
    return good;
}

static bool negate_word(struct schema *s, const json_t *n, const char *word, const json_t *v, json_t *out,
                        unsigned depth)
{
    bool known = false;
    const json_t *one;
    size_t i;
    if (describes(word))
        return true;
    if (strcmp(word, "type") == 0)
        return not_type(s, n, out);
    if (strcmp(word, "const") == 0)
        return add(s, out, json_pack("{s:[O]}", SCHEMA_EXCEPT, v));
    if (strcmp(word, "enum") == 0)
        return add(s, out, json_pack("{s:O}", SCHEMA_EXCEPT, v));
    if (strcmp(word, "required") == 0)
        return not_required(s, v, out);
    if (strcmp(word, "properties") == 0)
        return not_properties(s, v, out, depth);
    if (strcmp(word, "anyOf") == 0)
        return not_any(s, v, out, depth);
    if (strcmp(word, "not") == 0)
        return add(s, out, json_is_object(v) ? json_incref((json_t *)v) : json_pack("{s:[O]}", "allOf", v));
    if (strcmp(word, "$ref") == 0) {
        const json_t *target = schema_target(s, json_is_string(v) ? json_string_value(v) : "");
        return target && negate(s, target, out, depth + 1);
    }
    if (strcmp(word, "allOf") == 0) {
        json_array_foreach((json_t *)v, i, one) if (!negate(s, one, out, depth + 1)) return false;
        return true;
    }
    json_t *limit = other_side(s, word, v, &known);
    if (!known)
        return schema_fail(s, "'%.40s' under 'not' or 'if' is not supported", word);
    return !limit || add(s, out, limit);
}

/* Appends to out what must hold, one of them, where n does not. */
static bool negate(struct schema *s, const json_t *n, json_t *out, unsigned depth)
{
    const char *word;
    json_t *v;
    if (++s->negations > MAX_NEGATIONS)
        return schema_fail(s, "too much under 'not' or 'if'");
    if (depth > NOT_DEPTH)
        return schema_fail(s, "'not' is nested deeper than %d", NOT_DEPTH);
    if (json_is_true(n))
        return true;
    if (json_is_false(n))
        return add(s, out, json_object());
    if (!json_is_object(n))
        return schema_fail(s, "a schema must be an object, true or false");
    json_object_foreach((json_t *)n, word,
                        v) if (build_failed(s->g) || !negate_word(s, n, word, v, out, depth)) return false;
    return true;
}

static json_t *both(const json_t *a, const json_t *b)
{
    return b ? json_pack("{s:[O, O]}", "allOf", a, b) : json_incref((json_t *)a);
}

static bool conditional(struct schema *s, const json_t *schema, json_t *out)
{
    const json_t *when = json_object_get(schema, "if"), *then = json_object_get(schema, "then"),
                 *otherwise = json_object_get(schema, "else");
    json_t *ways = json_array(), *one;
    size_t i;
    bool good = add(s, out, both(when, then)) && negate(s, when, ways, 0);
    json_array_foreach(ways, i, one) good = good && add(s, out, both(one, otherwise));
    json_decref(ways);
    return good;
}

/* One member that demands others or a schema; the rest of the word goes on in `rest`. */
static bool dependent(struct schema *s, const char *word, json_t *rest, json_t *out)
{
    json_t *all = json_copy(json_object_get(rest, word));
    const char *key = json_object_iter_key(json_object_iter(all));
    const json_t *v = json_object_get(all, key);
    bool good = json_is_object(all);
    if (!good) {
        schema_fail(s, "%s must be an object", word);
    } else if (key) {
        json_t *names = json_is_array(v) ? json_copy((json_t *)v) : json_array();
        json_array_append_new(names, json_string(key));
        json_t *has = json_pack("{s:s, s:o}", "type", "object", "required", names);
        good = add(s, out, json_pack("{s:{s:b}}", "properties", key, 0)) &&
               add(s, out, json_is_array(v) ? json_incref(has) : both(has, v));
        json_decref(has);
        json_object_del(all, key);
        if (json_object_size(all) > 0)
            json_object_set(rest, word, all);
        else
            json_object_del(rest, word);
    }
    json_decref(all);
    return good;
}

/* Members of an alternative are no list of all members, unless the schema has one. */
static bool closes(const json_t *v)
{
    const json_t *one;
    size_t i;
    if (json_object_get(v, "properties"))
        return true;
    json_array_foreach(json_object_get(v, "allOf"), i, one) if (closes(one)) return true;
    return false;
}

static bool is_open(const json_t *rest)
{
    static const char *const lists[] = {
        "properties", "additionalProperties", "$ref", "allOf", "anyOf", "oneOf", "enum", "const"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (json_object_get(rest, lists[i]))
            return false;
    return true;
}

bool schema_logic(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    static const char *const words[] = {"not", "if", "dependentRequired", "dependentSchemas", "dependencies"};
    const char *word = NULL;
    json_t *one;
    size_t i;
    for (i = 0; i < sizeof words / sizeof *words && !word; i++)
        word = json_object_get(schema, words[i]) ? words[i] : NULL;
    if (!word)
        return false;
    json_t *rest = json_copy((json_t *)schema), *ways = json_array();
    if (!rest || !ways || json_array_append_new(s->made, rest) || json_array_append_new(s->made, ways)) {
        schema_fail(s, "out of memory");
        return true;
    }
    const size_t was = schema_down(s, word);
    bool good;
    if (strcmp(word, "not") == 0) {
        good = negate(s, json_object_get(schema, word), ways, 0);
        json_object_del(rest, word);
    } else if (strcmp(word, "if") == 0) {
        good = conditional(s, schema, ways);
        json_object_del(rest, word);
        json_object_del(rest, "then");
        json_object_del(rest, "else");
    } else {
        good = dependent(s, word, rest, ways);
    }
    schema_up(s, was);
    json_array_foreach(ways, i, one)
    {
        if (!good || build_failed(s->g))
            break;
        if (is_open(rest) && closes(one) && !json_object_get(one, "additionalProperties")) {
            one = json_copy(one); /* it may be a part of the request */
            if (!one || json_object_set_new(one, "additionalProperties", json_true()) ||
                json_array_append_new(s->made, one)) {
                schema_fail(s, "out of memory");
                break;
            }
        }
        const json_t *whole = schema_merge(s, rest, one);
        if (whole && !build_failed(s->g))
            build_call(s->g, from, to, schema_rule(s, whole));
    }
    return true;
}
