#include "builder.h"

#include "chars.h"

#include <string.h>

/* At most one space, or a new line with some indentation: a model that has nothing to say cannot go on in white space. */
static void space(struct grammar *g, uint32_t from, uint32_t to)
{
    enum { INDENT = 40 };
    uint32_t line = build_state(g), s = build_state(g), e = build_state(g);
    build_empty(g, from, to);
    build_bytes(g, from, to, ' ', ' ');
    build_bytes(g, from, line, '\n', '\n');
    build_bytes(g, s, e, ' ', ' ');
    build_bytes(g, s, e, '\t', '\t');
    build_repeat(g, line, to, build_rule(g, s, e, "json indentation"), 0, INDENT);
}

static void hex(struct grammar *g, uint32_t from, uint32_t to, const char *set)
{
    for (const char *p = set; *p; p += 2)
        build_bytes(g, from, to, (uint8_t)p[0], (uint8_t)p[1]);
}

static uint32_t hex_then(struct grammar *g, uint32_t from, const char *set)
{
    uint32_t to = build_state(g);
    hex(g, from, to, set);
    return to;
}

/* \uXXXX: one character, also when it takes two of them. A half of a pair alone is none. */
static void unicode_escape(struct grammar *g, uint32_t u, uint32_t to)
{
    static const char any[] = "09afAF";
    uint32_t last2 = build_state(g), last1 = build_state(g);
    uint32_t d = hex_then(g, u, "ddDD"), plain = hex_then(g, u, "09acACefEF");
    hex(g, plain, last2, any);
    hex(g, d, last2, "07");
    hex(g, last2, last1, any);
    hex(g, last1, to, any);
    uint32_t high = hex_then(g, hex_then(g, hex_then(g, d, "89abAB"), any), any);
    uint32_t low = hex_then(g, build_word(g, high, "\\u"), "ddDD");
    hex(g, hex_then(g, hex_then(g, low, "cfCF"), any), to, any);
}

static void character(struct grammar *g, uint32_t from, uint32_t to)
{
    struct chars c = {0};
    chars_add(&c, 0x20, 0x21);
    chars_add(&c, 0x23, 0x5B);
    chars_add(&c, 0x5D, CHARS_LAST);
    chars_build(g, from, to, &c);
    chars_fini(&c);
    uint32_t escape = build_state(g), u = build_state(g);
    build_bytes(g, from, escape, '\\', '\\');
    for (const char *p = "\"\\/bfnrt"; *p; p++)
        build_bytes(g, escape, to, (uint8_t)*p, (uint8_t)*p);
    build_bytes(g, escape, u, 'u', 'u');
    unicode_escape(g, u, to);
}

static void string(struct grammar *g, uint32_t from, uint32_t to)
{
    uint32_t in = build_state(g);
    build_bytes(g, from, in, '"', '"');
    build_call(g, in, in, build_json(g, RULE_CHAR));
    build_bytes(g, in, to, '"', '"');
}

/* Digits are limited so that a number ends: 19 hold every 64-bit integer. */
static void integer(struct grammar *g, uint32_t from, uint32_t to)
{
    uint32_t first = build_state(g), rest = build_state(g);
    build_bytes(g, from, first, '-', '-');
    build_empty(g, from, first);
    build_bytes(g, first, to, '0', '0');
    build_bytes(g, first, rest, '1', '9');
    build_repeat(g, rest, to, build_json(g, RULE_DIGIT), 0, 18);
}

static void number(struct grammar *g, uint32_t from, uint32_t to)
{
    uint32_t whole = build_then(g, from, build_json(g, RULE_INTEGER));
    uint32_t point = build_state(g), e = build_state(g), sign = build_state(g), exp = build_state(g);
    uint32_t digit = build_json(g, RULE_DIGIT);
    build_empty(g, whole, to);
    build_bytes(g, whole, point, '.', '.');
    build_repeat(g, point, e, digit, 1, 20);
    build_empty(g, e, to);
    build_empty(g, whole, e);
    build_bytes(g, e, sign, 'e', 'e');
    build_bytes(g, e, sign, 'E', 'E');
    build_bytes(g, sign, exp, '+', '+');
    build_bytes(g, sign, exp, '-', '-');
    build_empty(g, sign, exp);
    build_repeat(g, exp, to, digit, 1, 2);
}

static void value(struct grammar *g, uint32_t from, uint32_t to)
{
    static const char *const words[] = {"true", "false", "null"};
    static const enum json_rule kinds[] = {RULE_OBJECT, RULE_ARRAY, RULE_STRING, RULE_NUMBER};
    for (int i = 0; i < 3; i++)
        build_empty(g, build_word(g, from, words[i]), to);
    for (int i = 0; i < 4; i++)
        build_call(g, from, to, build_json(g, kinds[i]));
}

/* one (, one)* between brackets, or nothing. */
static void list(struct grammar *g, uint32_t from, uint32_t to, char open, char close, uint32_t one)
{
    uint32_t gap = build_json(g, RULE_SPACE), in = build_state(g), comma = build_state(g);
    build_bytes(g, from, in, (uint8_t)open, (uint8_t)open);
    uint32_t begin = build_then(g, in, gap), behind = build_then(g, begin, one),
             last = build_then(g, behind, gap);
    build_bytes(g, begin, to, (uint8_t)close, (uint8_t)close);
    build_bytes(g, last, to, (uint8_t)close, (uint8_t)close);
    build_bytes(g, behind, comma, ',', ',');
    build_call(g, build_then(g, comma, gap), behind, one);
}

static void member(struct grammar *g, uint32_t from, uint32_t to)
{
    uint32_t gap = build_json(g, RULE_SPACE);
    uint32_t key = build_then(g, build_then(g, from, build_json(g, RULE_STRING)), gap);
    build_call(g, build_then(g, build_word(g, key, ":"), gap), to, build_json(g, RULE_VALUE));
}

uint32_t build_json(struct grammar *g, enum json_rule which)
{
    static const char *const names[RULE_N] = {"json space",   "json character", "json string", "json digit",
                                              "json integer", "json number",    "json value",  "json object",
                                              "json array",   "json member"};
    if (g->json[which] != UINT32_MAX || build_failed(g))
        return build_failed(g) ? 0 : g->json[which];
    uint32_t from = build_state(g), to = build_state(g);
    g->json[which] = build_rule(g, from, to, names[which]); /* before its body, which may run it */
    switch (which) {
    case RULE_SPACE: space(g, from, to); break;
    case RULE_CHAR: character(g, from, to); break;
    case RULE_STRING: string(g, from, to); break;
    case RULE_DIGIT: build_bytes(g, from, to, '0', '9'); break;
    case RULE_INTEGER: integer(g, from, to); break;
    case RULE_NUMBER: number(g, from, to); break;
    case RULE_VALUE: value(g, from, to); break;
    case RULE_OBJECT: list(g, from, to, '{', '}', build_json(g, RULE_MEMBER)); break;
    case RULE_ARRAY: list(g, from, to, '[', ']', build_json(g, RULE_VALUE)); break;
    default: member(g, from, to); break;
    }
    return g->json[which];
}
