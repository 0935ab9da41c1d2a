#include "automaton.h"

#include <stdlib.h>
#include <string.h>

#define ACCEPT 0x80000000u
#define HEAD   20
#define EDGE   12
#define REPEAT 12

static int no_memory(struct vt_err *err)
{
    return vt_fail(err, VT_E_NOMEM, "out of memory for a grammar");
}

int vt_automaton_alloc(struct vt_automaton *a, uint32_t n_rules, uint32_t n_states, uint32_t n_edges,
                       uint32_t n_repeats, struct vt_err *err)
{
    *a = (struct vt_automaton){
        .n_rules = n_rules, .n_states = n_states, .n_edges = n_edges, .n_repeats = n_repeats};
    a->start = calloc((size_t)n_rules + 1, sizeof *a->start);
    a->first = calloc((size_t)n_states + 1, sizeof *a->first);
    a->accept = calloc((size_t)n_states + 1, sizeof *a->accept);
    a->edges = calloc((size_t)n_edges + 1, sizeof *a->edges);
    a->repeats = calloc((size_t)n_repeats + 1, sizeof *a->repeats);
    if (a->start && a->first && a->accept && a->edges && a->repeats)
        return 0;
    vt_automaton_fini(a);
    return no_memory(err);
}

void vt_automaton_fini(struct vt_automaton *a)
{
    free(a->start);
    free(a->first);
    free(a->accept);
    free(a->edges);
    free(a->repeats);
    *a = (struct vt_automaton){0};
}

/* ---- which states can end ---- */

static uint32_t rule_of(const struct vt_automaton *a, const struct vt_edge *e)
{
    return e->kind == VT_EDGE_CALL ? e->arg : a->repeats[e->arg].rule;
}

static bool runs_rule(const struct vt_edge *e)
{
    return e->kind == VT_EDGE_CALL || e->kind == VT_EDGE_REPEAT;
}

/* Edges by a state at their far side, as chains: [to], or [start of the rule that they run]. */
struct back {
    uint32_t *head_to, *head_rule; /* [n_states], edge + 1; 0: none */
    uint32_t *next_to, *next_rule; /* [n_edges] */
    uint32_t *from;                /* [n_edges] */
    uint32_t *todo;                /* [n_states] */
};

static void back_fini(struct back *b)
{
    free(b->head_to);
    free(b->head_rule);
    free(b->next_to);
    free(b->next_rule);
    free(b->from);
    free(b->todo);
}

static int back_make(struct back *b, const struct vt_automaton *a, struct vt_err *err)
{
    b->head_to = calloc((size_t)a->n_states + 1, sizeof *b->head_to);
    b->head_rule = calloc((size_t)a->n_states + 1, sizeof *b->head_rule);
    b->next_to = calloc((size_t)a->n_edges + 1, sizeof *b->next_to);
    b->next_rule = calloc((size_t)a->n_edges + 1, sizeof *b->next_rule);
    b->from = calloc((size_t)a->n_edges + 1, sizeof *b->from);
    b->todo = calloc((size_t)a->n_states + 1, sizeof *b->todo);
    if (!b->head_to || !b->head_rule || !b->next_to || !b->next_rule || !b->from || !b->todo)
        return no_memory(err);
    for (uint32_t s = 0; s < a->n_states; s++)
        for (uint32_t i = a->first[s]; i < a->first[s + 1]; i++) {
            const struct vt_edge *e = &a->edges[i];
            b->from[i] = s;
            b->next_to[i] = b->head_to[e->to];
            b->head_to[e->to] = i + 1;
            if (runs_rule(e)) {
                uint32_t at = a->start[rule_of(a, e)];
                b->next_rule[i] = b->head_rule[at];
                b->head_rule[at] = i + 1;
            }
        }
    return 0;
}

/* Whether the near side of an edge can end, given the far sides so far. */
static bool carries(const struct vt_automaton *a, const struct vt_edge *e, bool bytes, const bool *mark)
{
    if (!mark[e->to])
        return false;
    switch (e->kind) {
    case VT_EDGE_EMPTY: return true;
    case VT_EDGE_BYTES: return bytes;
    case VT_EDGE_CALL: return mark[a->start[e->arg]];
    default: return a->repeats[e->arg].min == 0 || mark[a->start[a->repeats[e->arg].rule]];
    }
}

int vt_automaton_ends(const struct vt_automaton *a, bool bytes, bool *mark, struct vt_err *err)
{
    struct back b = {0};
    uint32_t n = 0;
    if (back_make(&b, a, err) < 0) {
        back_fini(&b);
        return -1;
    }
    for (uint32_t s = 0; s < a->n_states; s++) {
        mark[s] = a->accept[s];
        if (mark[s])
            b.todo[n++] = s;
    }
    while (n > 0) {
        uint32_t t = b.todo[--n];
        for (int by_rule = 0; by_rule < 2; by_rule++) {
            const uint32_t *next = by_rule ? b.next_rule : b.next_to;
            for (uint32_t i = by_rule ? b.head_rule[t] : b.head_to[t]; i; i = next[i - 1]) {
                uint32_t s = b.from[i - 1];
                if (!mark[s] && carries(a, &a->edges[i - 1], bytes, mark)) {
                    mark[s] = true;
                    b.todo[n++] = s;
                }
            }
        }
    }
    back_fini(&b);
    return 0;
}

/* ---- left recursion: a way round from a state to itself that enters a rule and takes no byte ---- */

struct scc { /* Tarjan's algorithm, without recursion */
    const struct vt_automaton *a;
    const bool *empty; /* states whose rule can end there and then */
    uint32_t *order, *low, *comp, *stack, *path, *at;
    uint32_t n_order, n_comp, n_stack, n_path;
};

/* Edge i of the graph of moves that take no byte has up to two far sides: into a rule, and past it. */
static unsigned moves(const struct scc *g, uint32_t i, uint32_t to[2])
{
    const struct vt_edge *e = &g->a->edges[i];
    unsigned n = 0;
    if (runs_rule(e))
        to[n++] = g->a->start[rule_of(g->a, e)];
    if (e->kind == VT_EDGE_EMPTY || (e->kind == VT_EDGE_CALL && g->empty[g->a->start[e->arg]]) ||
        (e->kind == VT_EDGE_REPEAT && g->a->repeats[e->arg].min == 0))
        to[n++] = e->to;
    return n;
}

static void open_state(struct scc *g, uint32_t s)
{
    g->order[s] = g->low[s] = ++g->n_order;
    g->at[s] = 2 * g->a->first[s];
    g->stack[g->n_stack++] = s;
    g->path[g->n_path++] = s;
}

static void close_state(struct scc *g, uint32_t s)
{
    g->n_path--;
    if (g->n_path > 0 && g->low[s] < g->low[g->path[g->n_path - 1]])
        g->low[g->path[g->n_path - 1]] = g->low[s];
    if (g->low[s] != g->order[s])
        return;
    g->n_comp++;
    uint32_t t;
    do {
        t = g->stack[--g->n_stack];
        g->comp[t] = g->n_comp;
    } while (t != s);
}

static void components(struct scc *g)
{
    for (uint32_t root = 0; root < g->a->n_states; root++) {
        if (g->order[root])
            continue;
        open_state(g, root);
        while (g->n_path > 0) {
            uint32_t s = g->path[g->n_path - 1], to[2];
            uint32_t k = g->at[s]++;
            if (k >= 2 * g->a->first[s + 1]) {
                close_state(g, s);
                continue;
            }
            if (k % 2 >= moves(g, k / 2, to))
                continue;
            uint32_t t = to[k % 2];
            if (!g->order[t])
                open_state(g, t);
            else if (!g->comp[t] && g->order[t] < g->low[s])
                g->low[s] = g->order[t];
        }
    }
}

/* The rule that runs itself, or UINT32_MAX. */
static uint32_t recursion(const struct scc *g)
{
    for (uint32_t s = 0; s < g->a->n_states; s++)
        for (uint32_t i = g->a->first[s]; i < g->a->first[s + 1]; i++) {
            const struct vt_edge *e = &g->a->edges[i];
            if (runs_rule(e) && g->comp[s] == g->comp[g->a->start[rule_of(g->a, e)]])
                return rule_of(g->a, e);
        }
    return UINT32_MAX;
}

static int left_recursion(const struct vt_automaton *a, const bool *empty, uint32_t *rule, struct vt_err *err)
{
    struct scc g = {.a = a, .empty = empty};
    uint32_t *all = calloc((size_t)a->n_states + 1, 6 * sizeof *all);
    if (!all)
        return no_memory(err);
    size_t n = (size_t)a->n_states + 1;
    g.order = all;
    g.low = all + n;
    g.comp = all + 2 * n;
    g.stack = all + 3 * n;
    g.path = all + 4 * n;
    g.at = all + 5 * n;
    components(&g);
    *rule = recursion(&g);
    free(all);
    return 0;
}

int vt_automaton_check(const struct vt_automaton *a, enum vt_automaton_flaw *flaw, uint32_t *rule,
                       struct vt_err *err)
{
    bool *empty = calloc((size_t)a->n_states + 1, sizeof *empty);
    uint32_t bad = UINT32_MAX;
    int r = empty ? vt_automaton_ends(a, false, empty, err) : no_memory(err);
    enum vt_automaton_flaw what = VT_FLAW_NONE;
    for (uint32_t i = 0; r == 0 && i < a->n_repeats && what == VT_FLAW_NONE; i++)
        if (empty[a->start[a->repeats[i].rule]]) {
            what = VT_FLAW_EMPTY_REPEAT;
            bad = a->repeats[i].rule;
        }
    if (r == 0 && what == VT_FLAW_NONE) {
        r = left_recursion(a, empty, &bad, err);
        if (r == 0 && bad != UINT32_MAX)
            what = VT_FLAW_LEFT_RECURSION;
    }
    free(empty);
    if (flaw)
        *flaw = what;
    if (rule)
        *rule = bad;
    if (what == VT_FLAW_EMPTY_REPEAT)
        return vt_fail(err, VT_E_GRAMMAR, "grammar: rule %u is counted and matches the empty text", bad);
    if (what == VT_FLAW_LEFT_RECURSION)
        return vt_fail(err, VT_E_GRAMMAR, "grammar: rule %u runs itself before it takes a byte", bad);
    return r;
}

/* ---- bytes ---- */

static uint32_t get(const uint8_t **p)
{
    const uint8_t *b = *p;
    *p += 4;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static void put(uint8_t **p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        (*p)[i] = (uint8_t)(v >> (8 * i));
    *p += 4;
}

static uint64_t size_of(uint64_t rules, uint64_t states, uint64_t edges, uint64_t repeats)
{
    return HEAD + 4 * rules + 4 * (states + 1) + EDGE * edges + REPEAT * repeats;
}

static bool read_body(struct vt_automaton *a, const uint8_t *p)
{
    bool ok = true;
    for (uint32_t i = 0; i < a->n_rules; i++) {
        a->start[i] = get(&p);
        ok &= a->start[i] < a->n_states;
    }
    for (uint32_t s = 0; s <= a->n_states; s++) {
        uint32_t v = get(&p);
        a->first[s] = v & ~ACCEPT;
        a->accept[s] = (v & ACCEPT) != 0;
        ok &= a->first[s] <= a->n_edges && (s == 0 ? a->first[0] == 0 : a->first[s] >= a->first[s - 1]);
    }
    ok &= a->first[a->n_states] == a->n_edges && !a->accept[a->n_states];
    for (uint32_t i = 0; i < a->n_edges; i++) {
        struct vt_edge *e = &a->edges[i];
        *e = (struct vt_edge){.kind = p[0], .lo = p[1], .hi = p[2]};
        ok &= p[3] == 0 && e->lo <= e->hi && e->kind <= VT_EDGE_REPEAT;
        p += 4;
        e->to = get(&p);
        e->arg = get(&p);
        ok &= e->to < a->n_states && (e->kind != VT_EDGE_CALL || e->arg < a->n_rules) &&
              (e->kind != VT_EDGE_REPEAT || e->arg < a->n_repeats);
    }
    for (uint32_t i = 0; i < a->n_repeats; i++) {
        struct vt_repeat *r = &a->repeats[i];
        r->rule = get(&p);
        r->min = get(&p);
        r->max = get(&p);
        ok &= r->rule < a->n_rules && r->min <= r->max && r->max > 0 && r->min < VT_AUTOMATON_NO_MAX;
    }
    return ok;
}

int vt_automaton_load(struct vt_automaton *a, const uint8_t *bytes, size_t n, struct vt_err *err)
{
    *a = (struct vt_automaton){0};
    if (n < HEAD || n > VT_AUTOMATON_BYTES || memcmp(bytes, "VGA1", 4) != 0)
        return vt_fail(err, VT_E_GRAMMAR, "grammar: %zu bytes that are no automaton", n);
    const uint8_t *p = bytes + 4;
    uint32_t rules = get(&p), states = get(&p), edges = get(&p), repeats = get(&p);
    if (rules == 0 || states == 0 || size_of(rules, states, edges, repeats) != n)
        return vt_fail(err, VT_E_GRAMMAR, "grammar: %zu bytes do not hold %u rules, %u states, %u edges", n,
                       rules, states, edges);
    if (vt_automaton_alloc(a, rules, states, edges, repeats, err) < 0)
        return -1;
    int r = read_body(a, p) ? vt_automaton_check(a, NULL, NULL, err)
                            : vt_fail(err, VT_E_GRAMMAR, "grammar: an index is out of range");
    if (r < 0)
        vt_automaton_fini(a);
    return r;
}

int vt_automaton_save(const struct vt_automaton *a, uint8_t **bytes, size_t *n, struct vt_err *err)
{
    uint64_t size = size_of(a->n_rules, a->n_states, a->n_edges, a->n_repeats);
    *bytes = NULL;
    *n = 0;
    if (size > VT_AUTOMATON_BYTES)
        return vt_fail(err, VT_E_GRAMMAR, "compiled it has %llu bytes; the limit is %u",
                       (unsigned long long)size, VT_AUTOMATON_BYTES);
    uint8_t *p = *bytes = malloc(size);
    if (!p)
        return no_memory(err);
    memcpy(p, "VGA1", 4);
    p += 4;
    put(&p, a->n_rules);
    put(&p, a->n_states);
    put(&p, a->n_edges);
    put(&p, a->n_repeats);
    for (uint32_t i = 0; i < a->n_rules; i++)
        put(&p, a->start[i]);
    for (uint32_t s = 0; s < a->n_states; s++)
        put(&p, a->first[s] | (a->accept[s] ? ACCEPT : 0));
    put(&p, a->n_edges);
    for (uint32_t i = 0; i < a->n_edges; i++) {
        const struct vt_edge *e = &a->edges[i];
        *p++ = e->kind;
        *p++ = e->lo;
        *p++ = e->hi;
        *p++ = 0;
        put(&p, e->to);
        put(&p, e->arg);
    }
    for (uint32_t i = 0; i < a->n_repeats; i++) {
        put(&p, a->repeats[i].rule);
        put(&p, a->repeats[i].min);
        put(&p, a->repeats[i].max);
    }
    *n = size;
    return 0;
}
