/* Arbitrary bytes as a grammar or as a schema: it compiles to an automaton that the engine loads, or is refused with words. The
 * automaton is then followed with more of the bytes. The first byte chooses. */
#include "grammar.h"
#include "matcher.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void follow(const uint8_t *bytes, size_t n, const uint8_t *text, size_t len)
{
    struct vt_automaton a;
    struct matcher *m;
    struct vt_err err = {0};
    if (vt_automaton_load(&a, bytes, n, &err) < 0)
        abort(); /* what the compiler makes is good */
    if (matcher_new(&m, &a, &err) == 0) {
        uint32_t set = matcher_start(m);
        for (size_t i = 0; i < len && i < 4096 && set != MATCHER_DEAD; i++) {
            matcher_budget(m);
            set = matcher_step(m, set, text[i]);
            if (set == MATCHER_ERROR)
                break;
            if (matcher_normal(m, set, 8) == MATCHER_ERROR)
                break;
        }
        matcher_free(m);
    } else if (!err.text[0]) {
        abort();
    }
    vt_automaton_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vt_err err = {0};
    uint8_t *bytes = NULL;
    size_t n = 0;
    if (size < 2)
        return 0;
    struct grammar *g = grammar_new();
    json_t *schema =
        data[0] % 2 ? json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL)
                    : NULL;
    if (data[0] % 2 == 0 || schema) {
        uint32_t root = schema ? grammar_schema(g, schema, "json_schema")
                               : grammar_gbnf(g, (const char *)data + 1, size - 1);
        if (grammar_finish(g, root, &bytes, &n, &err) == 0)
            follow(bytes, n, data, size);
        else if (!err.text[0])
            abort();
    }
    free(bytes);
    json_decref(schema);
    grammar_free(g);
    return 0;
}
