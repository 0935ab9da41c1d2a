#include "schema.h"

#include "chars.h"
#include "number.h"
#include "regex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- constants ---- */

char *schema_quoted(struct schema *s, const char *text, size_t n, size_t *out_n)
{
    char *out = malloc(6 * n + 3), *p = out;
    if (!out) {
        schema_fail(s, "out of memory");
        return NULL;
    }
    *p++ = '"';
    for (size_t i = 0; i < n; i++) {
        static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        unsigned char c = (unsigned char)text[i];
        const char *k = c ? strchr(plain, c) : NULL;
        if (k) {
            *p++ = '\\';
            *p++ = letter[k - plain];
        } else if (c < 0x20) {
            p += sprintf(p, "\\u%04x", c);
        } else {
            *p++ = (char)c;
        }
    }
    *p++ = '"';
    *out_n = (size_t)(p - out);
    return out;
}

static uint32_t string_text(struct schema *s, uint32_t from, const char *text, size_t n)
{
    size_t len = 0;
    char *q = schema_quoted(s, text, n, &len);
    uint32_t to = q ? build_text(s->g, from, q, len) : from;
    free(q);
    return to;
}

static void real_text(struct schema *s, uint32_t from, uint32_t to, double v)
{
    char text[64];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    build_empty(s->g, build_word(s->g, from, text), to);
    if (v == floor(v) && fabs(v) < 1e15) {
        snprintf(text, sizeof text, "%.1f", v);
        build_empty(s->g, build_word(s->g, from, text), to);
    }
}

static void constant_list(struct schema *s, uint32_t from, uint32_t to, const json_t *value)
{
    struct grammar *g = s->g;
    uint32_t gap = build_json(g, RULE_SPACE), at = build_word(g, from, "["), i = 0;
    at = build_then(g, at, gap);
    size_t k;
    json_t *v;
    json_array_foreach((json_t *)value, k, v)
    {
        uint32_t next = build_state(g);
        if (i++ > 0)
            at = build_then(g, build_word(g, at, ","), gap);
        schema_constant(s, at, next, v);
        at = next;
    }
    build_bytes(g, i > 0 ? build_then(g, at, gap) : at, to, ']', ']');
}

static void constant_object(struct schema *s, uint32_t from, uint32_t to, const json_t *value)
{
    struct grammar *g = s->g;
    uint32_t gap = build_json(g, RULE_SPACE), at = build_word(g, from, "{"), i = 0;
    at = build_then(g, at, gap);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)value, key, v)
    {
        uint32_t next = build_state(g);
        if (i++ > 0)
            at = build_then(g, build_word(g, at, ","), gap);
        at = build_then(g, string_text(s, at, key, strlen(key)), gap);
        schema_constant(s, build_then(g, build_word(g, at, ":"), gap), next, v);
        at = next;
    }
    build_bytes(g, i > 0 ? build_then(g, at, gap) : at, to, '}', '}');
}

void schema_constant(struct schema *s, uint32_t from, uint32_t to, const json_t *value)
{
    char text[32];
    struct grammar *g = s->g;
    if (build_failed(g))
        return;
    switch (json_typeof(value)) {
    case JSON_NULL: build_empty(g, build_word(g, from, "null"), to); break;
    case JSON_TRUE: build_empty(g, build_word(g, from, "true"), to); break;
    case JSON_FALSE: build_empty(g, build_word(g, from, "false"), to); break;
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        build_empty(g, build_word(g, from, text), to);
        break;
    case JSON_REAL: real_text(s, from, to, json_real_value(value)); break;
    case JSON_STRING:
        build_empty(g, string_text(s, from, json_string_value(value), json_string_length(value)), to);
        break;
    case JSON_ARRAY: constant_list(s, from, to, value); break;
    default: constant_object(s, from, to, value);
    }
}

/* ---- enum ---- */

static size_t characters(const json_t *v)
{
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(v); i++)
        n += ((unsigned char)json_string_value(v)[i] & 0xC0) != 0x80;
    return n;
}

static bool in_bounds(const json_t *schema, const char *min, const char *max, double v)
{
    const json_t *lo = json_object_get(schema, min), *hi = json_object_get(schema, max);
    return (!lo || v >= json_number_value(lo)) && (!hi || v <= json_number_value(hi));
}

static bool right_type(unsigned types, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return types & TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return types & TYPE_BOOLEAN;
    case JSON_INTEGER: return types & (TYPE_INTEGER | TYPE_NUMBER);
    case JSON_REAL:
        return types & TYPE_NUMBER ||
               (types & TYPE_INTEGER && json_real_value(v) == floor(json_real_value(v)));
    case JSON_STRING: return types & TYPE_STRING;
    case JSON_ARRAY: return types & TYPE_ARRAY;
    default: return types & TYPE_OBJECT;
    }
}

bool schema_same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_is_integer(a) && json_is_integer(b) ? json_integer_value(a) == json_integer_value(b)
                                                        : json_number_value(a) == json_number_value(b);
    return json_equal((json_t *)a, (json_t *)b);
}

static bool is_excepted(const json_t *schema, const json_t *v)
{
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(schema, SCHEMA_EXCEPT), i, one) if (schema_same(one, v)) return true;
    return false;
}

/* multipleOf as m / 10^places. m 0: wrong, told; 1 / 1: there is none. */
struct step {
    uint32_t m;
    unsigned places;
};

static struct step step_of(struct schema *s, const json_t *schema)
{
    const json_t *v = json_object_get(schema, "multipleOf");
    const double d = json_is_number(v) ? json_number_value(v) : 0;
    double unit = 1;
    if (!v)
        return (struct step){1, 0};
    if (d >= 1 && d <= MULTIPLE_MAX && d == floor(d))
        return (struct step){(uint32_t)d, 0};
    for (unsigned places = 1; places <= PLACES_MAX && d > 0 && d < 1; places++) {
        unit *= 10;
        const double m = round(d * unit);
        if (m >= 1 && fabs(d * unit - m) < 1e-9 && fmod(unit, m) == 0)
            return (struct step){(uint32_t)m, places};
    }
    schema_fail(
        s,
        "multipleOf is supported for whole numbers from 1 to %d, and for fractions of at most %d places "
        "that 1 is a multiple of",
        MULTIPLE_MAX, PLACES_MAX);
    return (struct step){0, 0};
}

/* v in steps; what a double adds to it or takes away is taken back. */
static double in_steps(struct step n, double v)
{
    for (unsigned i = 0; i < n.places; i++)
        v *= 10;
    v /= n.m;
    return fabs(v - round(v)) <= 1e-9 * fmax(1, fabs(v)) ? round(v) : v;
}

/* Whether a listed value satisfies what stands beside the list. */
static bool fits(struct schema *s, const json_t *schema, const json_t *v)
{
    if (json_object_get(schema, "type") && !right_type(schema_types(s, schema), v))
        return false;
    if (is_excepted(schema, v))
        return false;
    if (json_is_number(v)) {
        const struct step n = step_of(s, schema);
        const double steps = n.m > 0 ? in_steps(n, json_number_value(v)) : 0;
        if (json_object_get(schema, "multipleOf") && steps != floor(steps))
            return false;
        const json_t *lo = json_object_get(schema, "exclusiveMinimum"),
                     *hi = json_object_get(schema, "exclusiveMaximum");
        double d = json_number_value(v);
        return in_bounds(schema, "minimum", "maximum", d) && (!lo || d > json_number_value(lo)) &&
               (!hi || d < json_number_value(hi));
    }
    if (json_is_string(v) && json_object_get(schema, "pattern"))
        schema_fail(s, "'pattern' beside enum is not supported");
    if (json_is_string(v))
        return in_bounds(schema, "minLength", "maxLength", (double)characters(v));
    if ((json_is_object(v) || json_is_array(v)) && schema_restriction(schema))
        schema_fail(s, "'%s' beside an enum of objects or arrays is not supported",
                    schema_restriction(schema));
    return true;
}

struct text {
    char *p;
    size_t n;
};

static int compare(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/* Texts in order as a tree, so that long lists cost one way at a time. */
static void tree(struct schema *s, uint32_t from, uint32_t to, const struct text *t, size_t n)
{
    size_t longest = 0, have = 0;
    for (size_t i = 0; i < n; i++)
        longest = t[i].n > longest ? t[i].n : longest;
    uint32_t *at = malloc((longest + 1) * sizeof *at);
    if (!at) {
        schema_fail(s, "out of memory");
        return;
    }
    at[0] = from;
    for (size_t i = 0; i < n && !build_failed(s->g); i++) {
        size_t same = 0;
        while (i > 0 && same < have && same < t[i].n && t[i].p[same] == t[i - 1].p[same])
            same++;
        for (size_t k = same; k < t[i].n; k++) {
            at[k + 1] = build_state(s->g);
            build_bytes(s->g, at[k], at[k + 1], (uint8_t)t[i].p[k], (uint8_t)t[i].p[k]);
        }
        have = t[i].n;
        build_empty(s->g, at[have], to);
    }
    free(at);
}

void schema_enum(struct schema *s, uint32_t from, uint32_t to, const json_t *schema, const json_t *values)
{
    const json_t *v;
    size_t i, n = 0;
    if (!json_is_array(values) || json_array_size(values) == 0) {
        schema_fail(s, "enum must be an array that is not empty");
        return;
    }
    struct text *t = calloc(json_array_size(values), sizeof *t);
    if (!t) {
        schema_fail(s, "out of memory");
        return;
    }
    json_array_foreach((json_t *)values, i, v)
    {
        if (build_failed(s->g))
            break;
        if (!fits(s, schema, v))
            continue;
        if (!json_is_string(v))
            schema_constant(s, from, to, v);
        else if ((t[n].p = schema_quoted(s, json_string_value(v), json_string_length(v), &t[n].n)))
            n++;
    }
    if (n > 1)
        qsort(t, n, sizeof *t, compare);
    tree(s, from, to, t, n);
    for (i = 0; i < n; i++)
        free(t[i].p);
    free(t);
}

/* ---- strings ---- */

#define YEAR "[0-9]{4}"
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define MONTHS                                                                                               \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[" \
    "0-9]|2[0-8]))"
#define DATE "(?:" YEAR "-" MONTHS "|" LEAP "-02-29)"
#define TIME                                                                                                 \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define OCTET "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
#define N     "[0-9]{1,9}"
#define SPAN  "(?:T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S))"
#define DAYS  "(?:" N "D|" N "M(?:" N "D)?|" N "Y(?:" N "M(?:" N "D)?)?)"
#define ATOM  "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,32}"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

static const char *format_pattern(const char *name)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        {"duration", "^P(?:" N "W|" DAYS SPAN "?|" SPAN ")$"},
        {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
        {"ipv4", "^" OCTET "\\." OCTET "\\." OCTET "\\." OCTET "$"},
        {"email", "^" ATOM "(?:\\." ATOM "){0,3}@" LABEL "(?:\\." LABEL "){1,4}$"},
    };
    for (size_t i = 0; name && i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(name, formats[i].name) == 0)
            return formats[i].pattern;
    return NULL;
}

static bool excepts_strings(const json_t *schema)
{
    const json_t *v;
    size_t i;
    json_array_foreach(json_object_get(schema, SCHEMA_EXCEPT), i, v) if (json_is_string(v)) return true;
    return false;
}

static void string_but(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    const json_t *list = json_object_get(schema, SCHEMA_EXCEPT), *v;
    const char **names = calloc(json_array_size(list), sizeof *names);
    uint32_t n = 0;
    size_t i;
    if (!names) {
        schema_fail(s, "out of memory");
        return;
    }
    json_array_foreach(list, i, v)
    {
        bool twice = !json_is_string(v);
        for (uint32_t k = 0; k < n && !twice; k++)
            twice = strcmp(names[k], json_string_value(v)) == 0;
        if (twice)
            continue;
        names[n++] = json_string_value(v);
        if (strlen(json_string_value(v)) != json_string_length(v))
            schema_fail(s, "'not' of a string with a NUL is not supported");
    }
    if (!build_failed(s->g))
        build_call(s->g, from, to, schema_string_but(s, names, n));
    free(names);
}

void schema_string(struct schema *s, uint32_t from, uint32_t to, const json_t *schema)
{
    struct grammar *g = s->g;
    const json_t *pattern = json_object_get(schema, "pattern");
    const char *format = format_pattern(json_string_value(json_object_get(schema, "format")));
    uint32_t min = 0, max = GRAMMAR_MANY;
    int has_min = schema_count(s, schema, "minLength", &min),
        has_max = schema_count(s, schema, "maxLength", &max);
    if (has_min < 0 || has_max < 0)
        return;
    if (excepts_strings(schema)) {
        if (pattern || format || has_min || has_max)
            schema_fail(s, "'not' of a string together with pattern, format or a length is not supported");
        else
            string_but(s, from, to, schema);
        return;
    }
    uint32_t in = build_word(g, from, "\""), out = build_state(g);
    build_bytes(g, out, to, '"', '"');
    if (pattern) {
        char where[SCHEMA_PATH + 64];
        snprintf(where, sizeof where, "%.40s at %s", s->where, s->path[0] ? s->path : "its root");
        if (!json_is_string(pattern))
            schema_fail(s, "pattern must be a string");
        else if (has_min || has_max)
            schema_fail(s, "'pattern' together with minLength or maxLength is not supported; put the length "
                           "into the pattern");
        else
            regex_build(g, in, out, json_string_value(pattern), json_string_length(pattern), where);
    } else if (format && !has_min && !has_max) {
        regex_build(g, in, out, format, strlen(format), "format");
    } else if (min <= max) {
        build_repeat(g, in, out, build_json(g, RULE_CHAR), min, max);
    }
}

/* ---- numbers ---- */

static bool bound(struct schema *s, const json_t *schema, const char *word, bool open, bool upper,
                  struct number_bound *b)
{
    const json_t *v = json_object_get(schema, word);
    if (!v)
        return true;
    if (!json_is_number(v)) {
        schema_fail(s, "%s must be a number", word);
        return false;
    }
    double d = json_number_value(v);
    bool tighter = !b->set || (upper ? d < b->v : d > b->v) || (d == b->v && open);
    if (tighter)
        *b = (struct number_bound){true, open, d};
    return true;
}

/* The least of the excepted whole numbers from lo on; hi: there is none up to it. */
static bool next_excepted(const json_t *schema, int64_t lo, int64_t hi, int64_t *out)
{
    const json_t *v;
    size_t i;
    bool found = false;
    json_array_foreach(json_object_get(schema, SCHEMA_EXCEPT), i, v)
    {
        const double d = json_is_number(v) ? json_number_value(v) : NAN;
        if (!(d == floor(d)) || fabs(d) > 9e18)
            continue;
        const int64_t n = json_is_integer(v) ? json_integer_value(v) : (int64_t)d;
        if (n >= lo && n <= hi && (!found || n < *out)) {
            *out = n;
            found = true;
        }
    }
    return found;
}

static void integers(struct schema *s, uint32_t from, uint32_t to, struct number_bound a,
                     struct number_bound b, const json_t *schema)
{
    const double limit = 9e18;
    const struct step step = step_of(s, schema);
    const uint32_t n = step.places > 0 ? 1 : step.m; /* whole numbers are multiples of such a fraction */
    double lo = a.set ? ceil(a.v) : -INFINITY, hi = b.set ? floor(b.v) : INFINITY;
    if (a.open && lo == a.v)
        lo += 1;
    if (b.open && hi == b.v)
        hi -= 1;
    if (n == 0 || lo > hi || lo >= limit || hi <= -limit)
        return;
    int64_t at = lo < -limit ? INT64_MIN : (int64_t)lo, out = 0;
    const int64_t end = hi > limit ? INT64_MAX : (int64_t)hi;
    while (next_excepted(schema, at, end, &out) && !build_failed(s->g)) {
        if (at < out)
            number_integers(s->g, from, to, at, out - 1, n);
        if (out == INT64_MAX)
            return;
        at = out + 1;
    }
    if (at <= end)
        number_integers(s->g, from, to, at, end, n);
}

static void steps(struct schema *s, uint32_t from, uint32_t to, struct number_bound lo,
                  struct number_bound hi, struct step n)
{
    const double limit = 1e15;
    double a = lo.set ? in_steps(n, lo.v) : -INFINITY, b = hi.set ? in_steps(n, hi.v) : INFINITY;
    if ((lo.set && fabs(a) > limit) || (hi.set && fabs(b) > limit)) {
        schema_fail(s, "bounds of numbers with a multipleOf of less than 1 are supported up to 1e15 steps");
        return;
    }
    a = lo.open && a == ceil(a) ? a + 1 : ceil(a);
    b = hi.open && b == floor(b) ? b - 1 : floor(b);
    if (a <= b)
        number_steps(s->g, from, to, lo.set ? (int64_t)a : INT64_MIN, hi.set ? (int64_t)b : INT64_MAX, n.m,
                     n.places);
}

void schema_number(struct schema *s, uint32_t from, uint32_t to, const json_t *schema, bool integer)
{
    struct number_bound lo = {0}, hi = {0};
    char where[SCHEMA_PATH + 64];
    if (!bound(s, schema, "minimum", false, false, &lo) ||
        !bound(s, schema, "exclusiveMinimum", true, false, &lo) ||
        !bound(s, schema, "maximum", false, true, &hi) ||
        !bound(s, schema, "exclusiveMaximum", true, true, &hi))
        return;
    snprintf(where, sizeof where, "%.40s at %s", s->where, s->path[0] ? s->path : "its root");
    const bool plain = !json_object_get(schema, SCHEMA_EXCEPT) && !json_object_get(schema, "multipleOf");
    const struct step n = integer ? (struct step){1, 0} : step_of(s, schema);
    if (n.places > 0)
        steps(s, from, to, lo, hi, n);
    else if (!lo.set && !hi.set && (plain || !integer))
        build_call(s->g, from, to, build_json(s->g, integer ? RULE_INTEGER : RULE_NUMBER));
    else if (integer)
        integers(s, from, to, lo, hi, schema);
    else if (!lo.set || !hi.set || lo.v <= hi.v)
        number_decimals(s->g, from, to, lo, hi, where);
}
