/* JSON schema (draft 2020-12) to a grammar: the inside, shared by the files that compile it.
 *
 * What is compiled, exactly: type (one or several), enum, const, properties, required, additionalProperties, minProperties,
 * maxProperties, items, prefixItems, minItems, maxItems, minLength, maxLength, pattern (regex.h), format (date, time, date-time,
 * duration, uuid, ipv4, email; others say nothing, as the draft has it), minimum, maximum and their exclusive forms, $ref to
 * any place of the same schema (recursion too), anyOf, oneOf whose branches exclude each other provably, allOf by merging, and
 * true and false. Within limits: multipleOf whole numbers up to MULTIPLE_MAX, and fractions of few places that 1 is a multiple
 * of (0.01, 0.25); not, and if/then/else, of words whose opposite can be said (schema_logic.c); dependentRequired,
 * dependentSchemas; contains with minContains and maxContains; propertyNames where nothing else names members, or where it lists
 * them; uniqueItems where the items are values of an enum of at most UNIQUE_MAX; patternProperties of one pattern, alone. Other
 * words that restrict (unevaluatedItems, ...) are refused by name, words that only describe are skipped.
 *
 * Texts are valid JSON; every text that comes out satisfies the schema, and every value that satisfies it can come out, in this
 * form: members stand in the order of `properties`, then those that only `required` names, then others; numbers have at most 19
 * digits before and 20 behind the point, and no exponent where they are bounded; integers have neither point nor exponent;
 * names of other members, and strings under `pattern` and `format`, are escaped no more than they must be; at most one space, or
 * a new line and up to 40 of indentation, stands between two parts. Two readings are narrower than the draft: without `type`, the
 * words that are there tell the type, and an object that has `properties` and says nothing about others has no others. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "builder.h"

enum { SCHEMA_NESTING = 64, SCHEMA_PATH = 200, UNIQUE_MAX = 8 };

/* Made by the compiler alone (no word of the draft has a space): an array of values that a value must not equal. */
#define SCHEMA_EXCEPT "other than"

enum schema_type {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ALL = 127 & ~4, /* integers are numbers */
};

struct schema {
    struct grammar *g;
    const json_t *root;
    const char *where;
    char path[SCHEMA_PATH]; /* of the place under compilation, a JSON pointer; cut when it gets long */
    struct known {
        const json_t *at;
        uint32_t rule;
    } * known; /* compiled subschemas */
    uint32_t n_known, cap_known;
    json_t *made; /* array: schemas that merging made, kept until the end */
    unsigned nesting, merges, comparisons, negations;
};

/* "json_schema at /properties/a: …"; returns 0. */
uint32_t schema_fail(struct schema *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Goes down in the path; returns what schema_up needs. */
size_t schema_down(struct schema *s, const char *step);
void schema_up(struct schema *s, size_t was);

/* schema.c: the rule of a subschema. */
uint32_t schema_rule(struct schema *s, const json_t *schema);
/* The types that a schema's own words allow: a set of enum schema_type. */
unsigned schema_types(struct schema *s, const json_t *schema);
const char *schema_type_name(unsigned type);
/* A word of the schema that restricts values of some type, NULL when there is none. */
const char *schema_restriction(const json_t *schema);
/* A member that counts, in *v: 1; -1: wrong, told; 0: absent. */
int schema_count(struct schema *s, const json_t *schema, const char *word, uint32_t *v);

/* schema_merge.c: one schema that says what both say (kept in s->made), or NULL. */
const json_t *schema_merge(struct schema *s, const json_t *a, const json_t *b);
/* The schema that a $ref names; NULL: told. */
const json_t *schema_target(struct schema *s, const char *ref);
/* No value satisfies both, as far as can be seen. */
bool schema_exclusive(struct schema *s, const json_t *a, const json_t *b, unsigned depth);

/* schema_logic.c: true when the schema has one of its words: then the whole schema is built. */
bool schema_logic(struct schema *s, uint32_t from, uint32_t to, const json_t *schema);

/* schema_value.c */
/* Two values are the same one: 1 is 1.0. */
bool schema_same(const json_t *a, const json_t *b);
/* The text of a JSON string, quotes and all, escaped no more than it must be; malloc'd, NULL: no memory, told. */
char *schema_quoted(struct schema *s, const char *text, size_t n, size_t *out_n);
void schema_constant(struct schema *s, uint32_t from, uint32_t to, const json_t *value);
void schema_enum(struct schema *s, uint32_t from, uint32_t to, const json_t *schema, const json_t *values);
void schema_string(struct schema *s, uint32_t from, uint32_t to, const json_t *schema);
void schema_number(struct schema *s, uint32_t from, uint32_t to, const json_t *schema, bool integer);

/* schema_parts.c */
/* The rule of every string but these; quotes and all. */
uint32_t schema_string_but(struct schema *s, const char **names, uint32_t n);
void schema_object(struct schema *s, uint32_t from, uint32_t to, const json_t *schema);
/* schema_array.c */
void schema_array(struct schema *s, uint32_t from, uint32_t to, const json_t *schema);

#endif
