/* Test program: reads {"schema": …} or {"gbnf": "…"} with "texts": ["…", …] and "samples": n, "seed": s a line, and writes
 * {"accepted": [bool, …], "samples": ["…", …], "bytes": n} or {"error": "…"} a line. A sample is a walk through the automaton
 * that takes any byte that is allowed, and ends as soon as it may and the die says so; one that gets too long is left out. */
#include "../json_lines.h"
#include "grammar.h"
#include "matcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 3000 };

static bool accepts(struct matcher *m, const char *text, size_t n)
{
    uint32_t set = matcher_start(m);
    matcher_budget(m);
    for (size_t i = 0; i < n && set != MATCHER_DEAD && set != MATCHER_ERROR; i++)
        set = matcher_step(m, set, (uint8_t)text[i]);
    return set != MATCHER_ERROR && matcher_can_end(m, set);
}

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static unsigned allowed(struct matcher *m, uint32_t set, uint8_t *bytes, uint32_t *to)
{
    unsigned n = 0;
    for (unsigned b = 0; b < 256; b++) {
        uint32_t next = matcher_step(m, set, (uint8_t)b);
        if (next != MATCHER_DEAD && next != MATCHER_ERROR) {
            bytes[n] = (uint8_t)b;
            to[n++] = next;
        }
    }
    return n;
}

/* Marks that end something are preferred, or the walk would hardly come home. */
static unsigned choose(const uint8_t *bytes, unsigned n, uint64_t *state)
{
    if (draw(state) % 3 == 0)
        for (unsigned i = 0; i < n; i++)
            if (memchr("\"}],", bytes[i], 4) && draw(state) % 2)
                return i;
    return (unsigned)(draw(state) % n);
}

static json_t *sample(struct matcher *m, uint64_t *state)
{
    char text[LONGEST];
    uint8_t bytes[256];
    uint32_t to[256], set = matcher_start(m);
    for (size_t n = 0; n < LONGEST;) {
        matcher_budget(m);
        unsigned k = allowed(m, set, bytes, to);
        if (matcher_can_end(m, set) && (k == 0 || draw(state) % 2))
            return json_stringn(text, n);
        if (k == 0)
            return json_string("<dead end>");
        unsigned i = choose(bytes, k, state);
        text[n++] = (char)bytes[i];
        set = to[i];
    }
    return NULL;
}

static json_t *follow(const json_t *q, const uint8_t *bytes, size_t n, struct vt_err *err)
{
    struct vt_automaton a;
    struct matcher *m = NULL;
    json_t *out = NULL, *v;
    size_t i;
    if (vt_automaton_load(&a, bytes, n, err) < 0)
        return NULL;
    if (matcher_new(&m, &a, err) == 0) {
        json_t *accepted = json_array(), *samples = json_array();
        uint64_t state = (uint64_t)json_integer_value(json_object_get(q, "seed"));
        json_array_foreach(json_object_get(q, "texts"), i, v) json_array_append_new(
            accepted, json_boolean(accepts(m, json_string_value(v), json_string_length(v))));
        for (json_int_t k = json_integer_value(json_object_get(q, "samples")); k > 0; k--) {
            json_t *s = sample(m, &state);
            if (s)
                json_array_append_new(samples, s);
        }
        out = json_pack("{s:o, s:o, s:I}", "accepted", accepted, "samples", samples, "bytes", (json_int_t)n);
    }
    matcher_free(m);
    vt_automaton_fini(&a);
    return out;
}

static json_t *answer(const json_t *q)
{
    struct vt_err err = {0};
    struct grammar *g = grammar_new();
    const json_t *gbnf = json_object_get(q, "gbnf");
    uint8_t *bytes = NULL;
    size_t n = 0;
    uint32_t root = gbnf ? grammar_gbnf(g, json_string_value(gbnf), json_string_length(gbnf))
                         : grammar_schema(g, json_object_get(q, "schema"), "json_schema");
    json_t *a = grammar_finish(g, root, &bytes, &n, &err) == 0 ? follow(q, bytes, n, &err) : NULL;
    free(bytes);
    grammar_free(g);
    return a ? a : json_pack("{s:s}", "error", err.text);
}

int main(void)
{
    return json_lines("grammar_cli", answer);
}
