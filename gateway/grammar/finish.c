/* From rules under construction to an automaton: what no text can use goes, the rest is numbered anew, the root first. */
#include "builder.h"

#include <stdlib.h>
#include <string.h>

enum { UNROLL = 256 }; /* rounds of a part that may be empty */

static int no_memory(struct vt_err *err)
{
    return vt_fail(err, VT_E_NOMEM, "out of memory for a grammar");
}

static int lay_out(struct vt_automaton *a, const struct grammar *g, const struct build_edge *edges,
                   uint32_t n_edges, uint32_t n_states, struct vt_err *err)
{
    if (vt_automaton_alloc(a, g->n_rules, n_states, n_edges, g->n_repeats, err) < 0)
        return -1;
    for (uint32_t i = 0; i < g->n_rules; i++)
        a->start[i] = g->rules[i].start;
    memcpy(a->accept, g->accept, g->n_states * sizeof *a->accept);
    if (g->n_repeats > 0)
        memcpy(a->repeats, g->repeats, g->n_repeats * sizeof *a->repeats);
    for (uint32_t i = 0; i < n_edges; i++) /* by their near side, in the order in which they were made */
        a->first[edges[i].from + 1]++;
    for (uint32_t s = 0; s < n_states; s++)
        a->first[s + 1] += a->first[s];
    for (uint32_t i = 0; i < n_edges; i++)
        a->edges[a->first[edges[i].from]++] = edges[i].e;
    memmove(a->first + 1, a->first, n_states * sizeof *a->first);
    a->first[0] = 0;
    return 0;
}

static const char *name_of(const struct grammar *g, uint32_t rule)
{
    return g->rules[rule].name ? g->rules[rule].name : "a part of it";
}

/* ---- repetitions of what may be empty: the count has no lower end then, and rounds are laid out one by one ---- */

struct list {
    struct build_edge *e;
    uint32_t n, cap, n_states;
    bool failed;
};

static void put(struct list *l, uint32_t from, uint32_t to, uint8_t kind, uint32_t arg)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap * 2 + 64;
        struct build_edge *p = realloc(l->e, cap * sizeof *p);
        if (!p) {
            l->failed = true;
            return;
        }
        l->e = p;
        l->cap = cap;
    }
    l->e[l->n++] = (struct build_edge){from, {.kind = kind, .to = to, .arg = arg}};
}

static int unroll(struct list *l, const struct grammar *g, const struct build_edge *b, struct vt_err *err)
{
    const struct vt_repeat *r = &g->repeats[b->e.arg];
    uint32_t at = b->from;
    if (r->max == GRAMMAR_MANY) {
        uint32_t loop = l->n_states++;
        put(l, at, loop, VT_EDGE_EMPTY, 0);
        put(l, loop, loop, VT_EDGE_CALL, r->rule);
        put(l, loop, b->e.to, VT_EDGE_EMPTY, 0);
        return 0;
    }
    if (r->max > UNROLL)
        return vt_fail(err, VT_E_GRAMMAR,
                       "%s may be empty and is repeated up to %u times; the limit for such is %d",
                       name_of(g, r->rule), r->max, UNROLL);
    if (l->n_states > MAX_STATES)
        return vt_fail(err, VT_E_GRAMMAR, "the grammar is too large: more than %d states", MAX_STATES);
    for (uint32_t i = 0; i < r->max; i++) {
        uint32_t next = i + 1 < r->max ? l->n_states++ : b->e.to;
        put(l, at, next, VT_EDGE_CALL, r->rule);
        at = next;
    }
    return 0;
}

static int resolve_repeats(struct list *l, const struct grammar *g, const struct vt_automaton *a,
                           struct vt_err *err)
{
    bool *empty = calloc((size_t)a->n_states + 1, sizeof *empty);
    int r = empty ? vt_automaton_ends(a, false, empty, err) : no_memory(err);
    for (uint32_t i = 0; r == 0 && i < g->n_edges; i++) {
        const struct build_edge *b = &g->edges[i];
        if (b->e.kind == VT_EDGE_REPEAT && empty[a->start[g->repeats[b->e.arg].rule]]) {
            r = unroll(l, g, b, err);
        } else {
            put(l, b->from, b->e.to, b->e.kind, b->e.arg);
            if (!l->failed) {
                l->e[l->n - 1].e.lo = b->e.lo;
                l->e[l->n - 1].e.hi = b->e.hi;
            }
        }
    }
    free(empty);
    return r < 0 ? r : l->failed ? no_memory(err) : 0;
}

/* ---- leaving out ---- */

struct trim {
    const struct vt_automaton *a;
    const bool *ends;
    uint32_t *state, *rule, *repeat; /* new numbers + 1; 0: not reached */
    uint32_t *todo;                  /* old numbers of states in the order of their new ones */
    uint32_t *rules, *repeats;       /* old numbers by new */
    uint32_t n_states, n_rules, n_repeats, n_edges;
};

static void reach_state(struct trim *t, uint32_t s)
{
    if (t->state[s] == 0) {
        t->todo[t->n_states++] = s;
        t->state[s] = t->n_states;
    }
}

static void reach_rule(struct trim *t, uint32_t r)
{
    if (t->rule[r] == 0) {
        t->rules[t->n_rules++] = r;
        t->rule[r] = t->n_rules;
        reach_state(t, t->a->start[r]);
    }
}

/* What an edge becomes; false: nothing can come of it. */
static bool useful(const struct trim *t, const struct vt_edge *e, struct vt_edge *out)
{
    *out = *e;
    if (!t->ends[e->to])
        return false;
    if (e->kind == VT_EDGE_CALL)
        return t->ends[t->a->start[e->arg]];
    if (e->kind != VT_EDGE_REPEAT)
        return true;
    const struct vt_repeat *r = &t->a->repeats[e->arg];
    if (t->ends[t->a->start[r->rule]])
        return true;
    *out = (struct vt_edge){.kind = VT_EDGE_EMPTY, .to = e->to};
    return r->min == 0;
}

static void reach(struct trim *t)
{
    for (uint32_t i = 0; i < t->n_states; i++) {
        uint32_t s = t->todo[i];
        for (uint32_t k = t->a->first[s]; k < t->a->first[s + 1]; k++) {
            struct vt_edge e;
            if (!useful(t, &t->a->edges[k], &e))
                continue;
            t->n_edges++;
            reach_state(t, e.to);
            if (e.kind == VT_EDGE_CALL)
                reach_rule(t, e.arg);
            if (e.kind == VT_EDGE_REPEAT) {
                reach_rule(t, t->a->repeats[e.arg].rule);
                if (t->repeat[e.arg] == 0) {
                    t->repeats[t->n_repeats++] = e.arg;
                    t->repeat[e.arg] = t->n_repeats;
                }
            }
        }
    }
}

static void renumber(const struct trim *t, struct vt_automaton *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_rules; i++)
        out->start[i] = t->state[t->a->start[t->rules[i]]] - 1;
    for (uint32_t i = 0; i < t->n_repeats; i++) {
        out->repeats[i] = t->a->repeats[t->repeats[i]];
        out->repeats[i].rule = t->rule[out->repeats[i].rule] - 1;
    }
    for (uint32_t i = 0; i < t->n_states; i++) {
        uint32_t s = t->todo[i];
        out->first[i] = n;
        out->accept[i] = t->a->accept[s];
        for (uint32_t k = t->a->first[s]; k < t->a->first[s + 1]; k++) {
            struct vt_edge e;
            if (!useful(t, &t->a->edges[k], &e))
                continue;
            e.to = t->state[e.to] - 1;
            if (e.kind == VT_EDGE_CALL)
                e.arg = t->rule[e.arg] - 1;
            if (e.kind == VT_EDGE_REPEAT)
                e.arg = t->repeat[e.arg] - 1;
            out->edges[n++] = e;
        }
    }
    out->first[t->n_states] = n;
}

static int say_flaw(const struct grammar *g, const struct trim *t, const struct vt_automaton *a,
                    struct vt_err *err)
{
    enum vt_automaton_flaw flaw;
    uint32_t rule;
    int r = vt_automaton_check(a, &flaw, &rule, err);
    if (flaw == VT_FLAW_LEFT_RECURSION)
        return vt_fail(err, VT_E_GRAMMAR,
                       "rule '%s' can begin with itself (left recursion), which would go on without end; "
                       "write it so that "
                       "something comes before the rule",
                       name_of(g, t->rules[rule]));
    return r;
}

static int trim(const struct grammar *g, const struct vt_automaton *a, uint32_t root,
                struct vt_automaton *out, struct vt_err *err)
{
    size_t ns = (size_t)a->n_states + 1, nr = (size_t)a->n_rules + 1, np = (size_t)a->n_repeats + 1;
    bool *ends = calloc(ns, sizeof *ends);
    uint32_t *all = calloc(2 * (ns + nr + np), sizeof *all);
    struct trim t = {.a = a, .ends = ends};
    int r = !ends || !all ? no_memory(err) : vt_automaton_ends(a, true, ends, err);
    if (r == 0 && !ends[a->start[root]])
        r = vt_fail(err, VT_E_GRAMMAR, "no text at all can satisfy it");
    if (r == 0) {
        t.state = all;
        t.todo = t.state + ns;
        t.rule = t.todo + ns;
        t.rules = t.rule + nr;
        t.repeat = t.rules + nr;
        t.repeats = t.repeat + np;
        reach_rule(&t, root);
        reach(&t);
        r = vt_automaton_alloc(out, t.n_rules, t.n_states, t.n_edges, t.n_repeats, err);
    }
    if (r == 0) {
        renumber(&t, out);
        r = say_flaw(g, &t, out, err);
        if (r < 0)
            vt_automaton_fini(out);
    }
    free(ends);
    free(all);
    return r;
}

int build_finish(const struct grammar *g, uint32_t root, struct vt_automaton *out, struct vt_err *err)
{
    struct vt_automaton a = {0}, b = {0};
    struct list l = {.n_states = g->n_states};
    int r = lay_out(&a, g, g->edges, g->n_edges, g->n_states, err);
    if (r == 0)
        r = resolve_repeats(&l, g, &a, err);
    if (r == 0)
        r = lay_out(&b, g, l.e, l.n, l.n_states, err);
    if (r == 0)
        r = trim(g, &b, root, out, err);
    vt_automaton_fini(&a);
    vt_automaton_fini(&b);
    free(l.e);
    return r;
}
