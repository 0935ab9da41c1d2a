/* Arbitrary bytes as a grammar, or with FUZZ_SCHEMA as a JSON schema: it compiles to an automaton that the engine loads, or is
 * refused with words. The automaton is then followed with the bytes. */
#include "grammar.h"
#include "matcher.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* False: the bytes are not even JSON. */
static bool compile(struct grammar *g, const uint8_t *data, size_t size, uint32_t *root)
{
#ifdef FUZZ_SCHEMA
    json_t *schema = json_loadb((const char *)data, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (schema)
        *root = grammar_schema(g, schema, "json_schema");
    json_decref(schema);
    return schema != NULL;
#else
    *root = grammar_gbnf(g, (const char *)data, size);
    return true;
#endif
}

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
            if (matcher_normal(m, set, 0, 8) == MATCHER_ERROR)
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
    uint32_t root;
    size_t n = 0;
    struct grammar *g = grammar_new();
    if (compile(g, data, size, &root)) {
        if (grammar_finish(g, root, &bytes, &n, &err) == 0)
            follow(bytes, n, data, size);
        else if (!err.text[0])
            abort();
    }
    free(bytes);
    grammar_free(g);
    return 0;
}
