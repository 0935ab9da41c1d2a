#include "builder.h"

#include "chars.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct grammar *grammar_new(void)
{
    struct grammar *g = calloc(1, sizeof *g);
    for (int i = 0; g && i < RULE_N; i++)
        g->json[i] = UINT32_MAX;
    return g;
}

void grammar_free(struct grammar *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_rules; i++)
        free(g->rules[i].name);
    free(g->rules);
    free(g->accept);
    free(g->edges);
    free(g->repeats);
    free(g);
}

uint32_t build_fail(struct grammar *g, const char *fmt, ...)
{
    va_list ap;
    if (build_failed(g))
        return 0;
    g->err.code = VT_E_GRAMMAR;
    va_start(ap, fmt);
    vsnprintf(g->err.text, sizeof g->err.text, fmt, ap);
    va_end(ap);
    return 0;
}

bool build_failed(const struct grammar *g)
{
    return g->err.code != 0;
}

int grammar_error(const struct grammar *g, struct vt_err *err)
{
    return build_failed(g) ? vt_fail(err, g->err.code, "%s", g->err.text) : 0;
}

/* Room for one more; array points to the pointer. */
static bool room(struct grammar *g, void *array, uint32_t *cap, uint32_t n, uint32_t max, size_t size,
                 const char *what)
{
    void **p = array;
    if (build_failed(g))
        return false;
    if (n >= max) {
        build_fail(g, "the grammar is too large: more than %u %s", max, what);
        return false;
    }
    if (n < *cap)
        return true;
    uint32_t to = *cap ? *cap * 2 : 256;
    void *q = realloc(*p, to * size);
    if (!q) {
        vt_fail(&g->err, VT_E_NOMEM, "out of memory for a grammar");
        return false;
    }
    *p = q;
    *cap = to;
    return true;
}

uint32_t build_state(struct grammar *g)
{
    if (!room(g, &g->accept, &g->cap_states, g->n_states, MAX_STATES, sizeof *g->accept, "states"))
        return 0;
    g->accept[g->n_states] = false;
    return g->n_states++;
}

uint32_t build_rule(struct grammar *g, uint32_t start, uint32_t end, const char *name)
{
    if (!room(g, &g->rules, &g->cap_rules, g->n_rules, MAX_RULES, sizeof *g->rules, "rules"))
        return 0;
    g->rules[g->n_rules] = (struct build_rule){.start = start, .name = name ? strdup(name) : NULL};
    g->accept[end] = true;
    return g->n_rules++;
}

static void add_edge(struct grammar *g, uint32_t from, struct vt_edge e)
{
    if (room(g, &g->edges, &g->cap_edges, g->n_edges, MAX_EDGES, sizeof *g->edges, "transitions"))
        g->edges[g->n_edges++] = (struct build_edge){from, e};
}

void build_empty(struct grammar *g, uint32_t from, uint32_t to)
{
    add_edge(g, from, (struct vt_edge){.kind = VT_EDGE_EMPTY, .to = to});
}

void build_bytes(struct grammar *g, uint32_t from, uint32_t to, uint8_t lo, uint8_t hi)
{
    add_edge(g, from, (struct vt_edge){.kind = VT_EDGE_BYTES, .lo = lo, .hi = hi, .to = to});
}

void build_call(struct grammar *g, uint32_t from, uint32_t to, uint32_t rule)
{
    add_edge(g, from, (struct vt_edge){.kind = VT_EDGE_CALL, .to = to, .arg = rule});
}

void build_repeat(struct grammar *g, uint32_t from, uint32_t to, uint32_t rule, uint32_t min, uint32_t max)
{
    if (max == 0) {
        build_empty(g, from, to);
        return;
    }
    if (min == 1 && max == 1) {
        build_call(g, from, to, rule);
        return;
    }
    if (!room(g, &g->repeats, &g->cap_repeats, g->n_repeats, MAX_EDGES, sizeof *g->repeats, "repetitions"))
        return;
    g->repeats[g->n_repeats] = (struct vt_repeat){rule, min, max};
    add_edge(g, from, (struct vt_edge){.kind = VT_EDGE_REPEAT, .to = to, .arg = g->n_repeats++});
}

uint32_t build_text(struct grammar *g, uint32_t from, const char *text, size_t n)
{
    for (size_t i = 0; i < n && !build_failed(g); i++) {
        uint32_t to = build_state(g);
        build_bytes(g, from, to, (uint8_t)text[i], (uint8_t)text[i]);
        from = to;
    }
    return from;
}

uint32_t build_word(struct grammar *g, uint32_t from, const char *word)
{
    return build_text(g, from, word, strlen(word));
}

uint32_t build_then(struct grammar *g, uint32_t from, uint32_t rule)
{
    uint32_t to = build_state(g);
    build_call(g, from, to, rule);
    return to;
}

/* ---- parts ---- */

uint32_t grammar_text(struct grammar *g, const char *text, size_t n)
{
    uint32_t from = build_state(g);
    return build_rule(g, from, build_text(g, from, text, n), NULL);
}

uint32_t grammar_token(struct grammar *g, const char *text, size_t n)
{
    uint32_t from = build_state(g), in = build_state(g), end = build_state(g);
    build_bytes(g, from, in, VT_AUTOMATON_CONTROL, VT_AUTOMATON_CONTROL);
    build_bytes(g, build_text(g, in, text, n), end, VT_AUTOMATON_END, VT_AUTOMATON_END);
    return build_rule(g, from, end, NULL);
}

uint32_t grammar_seq(struct grammar *g, const uint32_t *parts, size_t n)
{
    uint32_t from = build_state(g), at = from;
    for (size_t i = 0; i < n; i++)
        at = build_then(g, at, parts[i]);
    return build_rule(g, from, at, NULL);
}

uint32_t grammar_any_of(struct grammar *g, const uint32_t *parts, size_t n)
{
    uint32_t from = build_state(g), to = build_state(g);
    for (size_t i = 0; i < n; i++)
        build_call(g, from, to, parts[i]);
    return build_rule(g, from, to, NULL);
}

uint32_t grammar_repeat(struct grammar *g, uint32_t part, uint32_t min, uint32_t max)
{
    uint32_t from = build_state(g), to = build_state(g);
    if (min > max)
        return build_fail(g, "a part is to occur at least %u and at most %u times", min, max);
    build_repeat(g, from, to, part, min, max);
    return build_rule(g, from, to, NULL);
}

uint32_t grammar_space(struct grammar *g)
{
    return build_json(g, RULE_SPACE);
}

uint32_t grammar_object(struct grammar *g)
{
    return build_json(g, RULE_OBJECT);
}

uint32_t grammar_free_text(struct grammar *g)
{
    uint32_t s = build_state(g);
    struct chars all = {0};
    chars_add(&all, 0, CHARS_LAST);
    chars_build(g, s, s, &all);
    chars_fini(&all);
    return build_rule(g, s, s, NULL);
}

/* The longest beginning of `text` that is an end of text[0..at) + byte: the failure function of Knuth, Morris and Pratt, found
 * the plain way, for texts are short. */
static size_t longest_border(const char *text, size_t at, uint8_t byte)
{
    for (size_t k = at + 1; k > 0; k--)
        if ((uint8_t)text[k - 1] == byte && memcmp(text, text + at - (k - 1), k - 1) == 0)
            return k;
    return 0;
}

uint32_t grammar_until(struct grammar *g, const char *text, size_t n)
{
    enum { LONGEST = 256 };
    uint32_t at[LONGEST + 1];
    if (n == 0 || n > LONGEST)
        return build_fail(g, "a text to stop at must have 1 to %d bytes", LONGEST);
    for (size_t i = 0; i <= n; i++)
        at[i] = build_state(g);
    for (size_t i = 0; i < n; i++)
        for (unsigned b = 0; b < VT_AUTOMATON_END;
             b++) /* valid UTF-8 is not asked for here: it is free text */
            build_bytes(g, at[i], at[longest_border(text, i, (uint8_t)b)], (uint8_t)b, (uint8_t)b);
    return build_rule(g, at[0], at[n], NULL);
}

int grammar_finish(struct grammar *g, uint32_t root, uint8_t **bytes, size_t *n, struct vt_err *err)
{
    struct vt_automaton a;
    *bytes = NULL;
    *n = 0;
    if (build_failed(g))
        return grammar_error(g, err);
    if (build_finish(g, root, &a, err) < 0)
        return -1;
    int r = vt_automaton_save(&a, bytes, n, err);
    vt_automaton_fini(&a);
    return r;
}
