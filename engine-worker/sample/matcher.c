#include "matcher.h"

#include <stdlib.h>
#include <string.h>

/* A place to return to: behind edge `edge`, which is a call, or a repeat of which min..max rounds are left, this one
 * included. Node 0 is the bottom of every stack. */
struct node {
    uint32_t edge, min, max, parent, depth;
};

struct item {
    uint32_t state, node;
};

struct set {
    uint32_t items, n; /* in m->items */
    bool can_end;
    uint32_t normal[MATCHER_REACHES];
    uint32_t *next; /* [n_classes], NULL until the first step */
};

/* Open addressing; numbers of things that are stored elsewhere, 0 = free. */
struct table {
    uint32_t *at, mask, n;
};

struct matcher {
    const struct vt_automaton *a;
    uint8_t class_of[256];
    unsigned n_classes;
    bool *last;      /* [n_states] the rule ends here and cannot do anything else */
    bool *takes;     /* [n_states] has an edge that takes a byte */
    uint32_t *least; /* [n_states] its rule takes no fewer bytes from here to its end */

    struct node *nodes;
    uint32_t n_nodes, cap_nodes;
    struct table node_table;
    struct item *items;
    uint32_t n_items, cap_items;
    struct set *sets;
    uint32_t n_sets, cap_sets;
    struct table set_table;
    uint32_t start;

    /* the closure under construction */
    struct item *todo, *seen;
    uint32_t n_todo, cap_todo, n_seen, cap_seen;
    uint32_t *seen_at, *stamp_at, seen_mask, stamp;
    bool can_end;
    uint32_t work;
    const char *why;
};

/* ---- memory ---- */

static bool grow(void *array, uint32_t *cap, uint32_t n, size_t size)
{
    void **p = array;
    if (n < *cap)
        return true;
    uint32_t to = *cap ? *cap * 2 : 64;
    void *q = realloc(*p, to * size);
    if (!q)
        return false;
    *p = q;
    *cap = to;
    return true;
}

static bool fail(struct matcher *m, const char *why)
{
    if (!m->why)
        m->why = why;
    return false;
}

static bool no_memory(struct matcher *m)
{
    return fail(m, "out of memory");
}

static uint32_t mix(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ h >> 15;
}

static bool table_room(struct table *t, uint32_t (*hash)(const struct matcher *, uint32_t),
                       const struct matcher *m)
{
    if (t->at && t->n * 2 <= t->mask)
        return true;
    uint32_t size = t->at ? (t->mask + 1) * 2 : 256;
    uint32_t *at = calloc(size, sizeof *at);
    if (!at)
        return false;
    for (uint32_t i = 0; t->at && i <= t->mask; i++) {
        if (!t->at[i])
            continue;
        uint32_t k = hash(m, t->at[i]) & (size - 1);
        while (at[k])
            k = (k + 1) & (size - 1);
        at[k] = t->at[i];
    }
    free(t->at);
    t->at = at;
    t->mask = size - 1;
    return true;
}

/* ---- stacks ---- */

static uint32_t hash_fields(uint32_t edge, uint32_t min, uint32_t max, uint32_t parent)
{
    return mix(mix(mix(mix(1, edge), min), max), parent);
}

static uint32_t hash_node(const struct matcher *m, uint32_t i)
{
    const struct node *n = &m->nodes[i];
    return hash_fields(n->edge, n->min, n->max, n->parent);
}

/* MATCHER_UNKNOWN: too deep, the way is not taken. MATCHER_ERROR: why. */
static uint32_t push(struct matcher *m, uint32_t edge, uint32_t min, uint32_t max, uint32_t parent)
{
    if (m->nodes[parent].depth >= MATCHER_DEPTH)
        return MATCHER_UNKNOWN;
    if (!table_room(&m->node_table, hash_node, m) ||
        !grow(&m->nodes, &m->cap_nodes, m->n_nodes, sizeof *m->nodes)) {
        no_memory(m);
        return MATCHER_ERROR;
    }
    struct table *t = &m->node_table;
    uint32_t k = hash_fields(edge, min, max, parent) & t->mask;
    for (; t->at[k]; k = (k + 1) & t->mask) {
        const struct node *n = &m->nodes[t->at[k]];
        if (n->edge == edge && n->min == min && n->max == max && n->parent == parent)
            return t->at[k];
    }
    if (m->n_nodes >= 2 * MATCHER_NODES) {
        fail(m, "the grammar needs too many stacks");
        return MATCHER_ERROR;
    }
    t->at[k] = m->n_nodes;
    t->n++;
    m->nodes[m->n_nodes] = (struct node){edge, min, max, parent, m->nodes[parent].depth + 1};
    return m->n_nodes++;
}

/* ---- closure ---- */

static void closure_begin(struct matcher *m)
{
    m->n_todo = m->n_seen = 0;
    m->can_end = false;
    if (++m->stamp == 0) {
        memset(m->stamp_at, 0, ((size_t)m->seen_mask + 1) * sizeof *m->stamp_at);
        m->stamp = 1;
    }
}

static bool add(struct matcher *m, uint32_t state, uint32_t node)
{
    uint32_t k = mix(mix(7, state), node) & m->seen_mask;
    for (; m->stamp_at[k] == m->stamp; k = (k + 1) & m->seen_mask) {
        const struct item *s = &m->seen[m->seen_at[k]];
        if (s->state == state && s->node == node)
            return true;
    }
    if (m->n_seen >= (m->seen_mask + 1) / 2)
        return fail(m, "the grammar is too ambiguous: too many ways to read what has been written");
    if (!grow(&m->seen, &m->cap_seen, m->n_seen, sizeof *m->seen) ||
        !grow(&m->todo, &m->cap_todo, m->n_todo, sizeof *m->todo))
        return no_memory(m);
    m->stamp_at[k] = m->stamp;
    m->seen_at[k] = m->n_seen;
    m->seen[m->n_seen++] = m->todo[m->n_todo++] = (struct item){state, node};
    return true;
}

/* Runs a rule; node: where it returns to. */
static bool enter(struct matcher *m, uint32_t rule, uint32_t node)
{
    if (node == MATCHER_ERROR)
        return false;
    return node == MATCHER_UNKNOWN || add(m, m->a->start[rule], node);
}

static bool rounds(struct matcher *m, uint32_t edge, uint32_t min, uint32_t max, uint32_t parent)
{
    const struct vt_edge *e = &m->a->edges[edge];
    if (min == 0 && !add(m, e->to, parent))
        return false;
    return max == 0 || enter(m, m->a->repeats[e->arg].rule, push(m, edge, min, max, parent));
}

static bool leave(struct matcher *m, uint32_t node)
{
    if (node == 0) {
        m->can_end = true;
        return true;
    }
    const struct node n = m->nodes[node];
    const struct vt_edge *e = &m->a->edges[n.edge];
    if (e->kind == VT_EDGE_CALL)
        return add(m, e->to, n.parent);
    uint32_t max = n.max == VT_AUTOMATON_NO_MAX ? n.max : n.max - 1;
    return rounds(m, n.edge, n.min > 0 ? n.min - 1 : 0, max, n.parent);
}

static bool follow(struct matcher *m, struct item it)
{
    const struct vt_automaton *a = m->a;
    if (a->accept[it.state] && !leave(m, it.node))
        return false;
    for (uint32_t i = a->first[it.state]; i < a->first[it.state + 1]; i++) {
        const struct vt_edge *e = &a->edges[i];
        bool ok = true;
        if (e->kind == VT_EDGE_EMPTY)
            ok = add(m, e->to, it.node);
        else if (e->kind == VT_EDGE_CALL)
            ok = enter(m, e->arg, m->last[e->to] ? it.node : push(m, i, 0, 0, it.node));
        else if (e->kind == VT_EDGE_REPEAT)
            ok = rounds(m, i, a->repeats[e->arg].min, a->repeats[e->arg].max, it.node);
        if (!ok)
            return false;
        m->work++;
    }
    if (++m->work > MATCHER_WORK)
        return fail(m, "the grammar is too ambiguous: following it takes too long");
    return true;
}

static int compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->state != y->state)
        return x->state < y->state ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Leaves the items that take a byte, sorted, in m->seen. */
static bool close(struct matcher *m)
{
    while (m->n_todo > 0)
        if (!follow(m, m->todo[--m->n_todo]))
            return false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_seen; i++)
        if (m->takes[m->seen[i].state])
            m->seen[n++] = m->seen[i];
    m->n_seen = n;
    if (n > MATCHER_WIDTH)
        return fail(m, "the grammar is too ambiguous: too many ways to read what has been written");
    if (n > 1)
        qsort(m->seen, n, sizeof *m->seen, compare);
    return true;
}

/* ---- sets ---- */

static uint32_t hash_items(const struct item *it, uint32_t n, bool can_end)
{
    uint32_t h = mix(3, can_end);
    for (uint32_t i = 0; i < n; i++)
        h = mix(mix(h, it[i].state), it[i].node);
    return h;
}

static uint32_t hash_set(const struct matcher *m, uint32_t i)
{
    const struct set *s = &m->sets[i];
    return hash_items(m->items + s->items, s->n, s->can_end);
}

/* The set of the closure that stands in m->seen. */
static uint32_t intern(struct matcher *m)
{
    if (m->n_seen == 0 && !m->can_end)
        return MATCHER_DEAD;
    if (!table_room(&m->set_table, hash_set, m) ||
        !grow(&m->sets, &m->cap_sets, m->n_sets, sizeof *m->sets)) {
        no_memory(m);
        return MATCHER_ERROR;
    }
    struct table *t = &m->set_table;
    uint32_t k = hash_items(m->seen, m->n_seen, m->can_end) & t->mask;
    for (; t->at[k]; k = (k + 1) & t->mask) {
        const struct set *s = &m->sets[t->at[k]];
        if (s->n == m->n_seen && s->can_end == m->can_end &&
            (s->n == 0 || memcmp(m->items + s->items, m->seen, s->n * sizeof *m->seen) == 0))
            return t->at[k];
    }
    if (m->n_sets >= 2 * MATCHER_SETS || m->n_items > 8u * MATCHER_NODES) {
        fail(m, "the grammar needs too many states for one token");
        return MATCHER_ERROR;
    }
    while (m->n_items + m->n_seen > m->cap_items)
        if (!grow(&m->items, &m->cap_items, m->cap_items, sizeof *m->items)) {
            no_memory(m);
            return MATCHER_ERROR;
        }
    t->at[k] = m->n_sets;
    t->n++;
    m->sets[m->n_sets] = (struct set){.items = m->n_items, .n = m->n_seen, .can_end = m->can_end};
    for (unsigned i = 0; i < MATCHER_REACHES; i++)
        m->sets[m->n_sets].normal[i] = MATCHER_UNKNOWN;
    if (m->n_seen > 0)
        memcpy(m->items + m->n_items, m->seen, m->n_seen * sizeof *m->seen);
    m->n_items += m->n_seen;
    return m->n_sets++;
}

static uint32_t compute_step(struct matcher *m, uint32_t set, uint8_t byte)
{
    const struct vt_automaton *a = m->a;
    closure_begin(m);
    for (uint32_t i = 0; i < m->sets[set].n; i++) {
        struct item it = m->items[m->sets[set].items + i];
        for (uint32_t k = a->first[it.state]; k < a->first[it.state + 1]; k++) {
            const struct vt_edge *e = &a->edges[k];
            m->work++;
            if (e->kind == VT_EDGE_BYTES && e->lo <= byte && byte <= e->hi && !add(m, e->to, it.node))
                return MATCHER_ERROR;
        }
    }
    return close(m) ? intern(m) : MATCHER_ERROR;
}

const uint32_t *matcher_row(struct matcher *m, uint32_t set)
{
    struct set *s = &m->sets[set];
    if (s->next)
        return s->next;
    s->next = malloc(m->n_classes * sizeof *s->next);
    if (!s->next) {
        no_memory(m);
        return NULL;
    }
    for (unsigned i = 0; i < m->n_classes; i++)
        s->next[i] = set == MATCHER_DEAD ? MATCHER_DEAD : MATCHER_UNKNOWN;
    return s->next;
}

const uint8_t *matcher_classes(const struct matcher *m)
{
    return m->class_of;
}

uint32_t matcher_step(struct matcher *m, uint32_t set, uint8_t byte)
{
    unsigned c = m->class_of[byte];
    const uint32_t *row = matcher_row(m, set);
    if (!row)
        return MATCHER_ERROR;
    if (row[c] != MATCHER_UNKNOWN)
        return row[c];
    uint32_t to = compute_step(m, set, byte);
    if (to != MATCHER_ERROR)
        m->sets[set].next[c] = to;
    return to;
}

bool matcher_can_end(const struct matcher *m, uint32_t set)
{
    return m->sets[set].can_end;
}

uint32_t matcher_start(const struct matcher *m)
{
    return m->start;
}

uint32_t matcher_n_sets(const struct matcher *m)
{
    return m->n_sets;
}

/* ---- sets in other words ---- */

/* One more than the rounds of a repeat that can end before `reach` bytes are taken: the present one after a byte, each other after
 * its least. */
static uint32_t rounds_within(const struct matcher *m, uint32_t edge, uint32_t reach)
{
    uint32_t least = m->least[m->a->start[m->a->repeats[m->a->edges[edge].arg].rule]];
    return least > 1 && reach > 1 ? 2 + (reach - 2) / least : reach;
}

/* Copies the stack of `node` of another matcher (or of m itself), from the bottom up; reach UINT32_MAX: as it is. A counter
 * without end stays one; an upper end out of reach might as well not be there. */
static uint32_t copy_stack(struct matcher *m, const struct matcher *from, uint32_t node, uint32_t reach)
{
    uint32_t path[MATCHER_DEPTH + 1], n = 0, at = 0;
    for (; node; node = from->nodes[node].parent)
        path[n++] = node;
    while (n > 0 && at != MATCHER_ERROR) {
        const struct node x = from->nodes[path[--n]];
        uint32_t min = x.min, max = x.max;
        if (reach != UINT32_MAX && m->a->edges[x.edge].kind == VT_EDGE_REPEAT) {
            uint32_t most = rounds_within(m, x.edge, reach);
            min = min < most ? min : most;
            max = max > most ? VT_AUTOMATON_NO_MAX : max;
        }
        at = push(m, x.edge, min, max, at);
    }
    m->work += 1;
    return at;
}

static uint32_t copy_set(struct matcher *m, const struct matcher *from, uint32_t set, uint32_t reach)
{
    uint32_t n = from->sets[set].n, first = from->sets[set].items;
    closure_begin(m);
    m->can_end = from->sets[set].can_end;
    for (uint32_t i = 0; i < n; i++) {
        struct item it = from->items[first + i];
        uint32_t node = copy_stack(m, from, it.node, reach);
        if (node == MATCHER_ERROR || !add(m, it.state, node))
            return MATCHER_ERROR;
    }
    if (m->n_seen > 1)
        qsort(m->seen, m->n_seen, sizeof *m->seen, compare);
    return intern(m);
}

uint32_t matcher_normal(struct matcher *m, uint32_t set, unsigned which, uint32_t reach)
{
    if (set == MATCHER_DEAD || m->a->n_repeats == 0)
        return set;
    if (m->sets[set].normal[which] == MATCHER_UNKNOWN) {
        uint32_t to = copy_set(m, m, set, reach);
        if (to == MATCHER_ERROR)
            return to;
        m->sets[set].normal[which] = to;
    }
    return m->sets[set].normal[which];
}

uint32_t matcher_move(struct matcher *to, const struct matcher *from, uint32_t set)
{
    return set == MATCHER_DEAD ? set : copy_set(to, from, set, UINT32_MAX);
}

/* ---- the beginning and the end ---- */

/* Bytes that no edge tells apart are one class. */
static void make_classes(struct matcher *m)
{
    bool border[257] = {true};
    for (uint32_t i = 0; i < m->a->n_edges; i++)
        if (m->a->edges[i].kind == VT_EDGE_BYTES) {
            border[m->a->edges[i].lo] = true;
            border[m->a->edges[i].hi + 1] = true;
        }
    for (unsigned b = 0; b < 256; b++) {
        m->n_classes += border[b];
        m->class_of[b] = (uint8_t)(m->n_classes - 1);
    }
}

/* From below, so that it is true whenever it stops; states mostly lead to later ones, so that it needs few rounds. */
static void find_least(struct matcher *m)
{
    enum { ROUNDS = 8, MOST = 1 << 16 };
    const struct vt_automaton *a = m->a;
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t s = a->n_states; s-- > 0;) {
            uint32_t best = a->accept[s] ? 0 : MOST;
            for (uint32_t i = a->first[s]; i < a->first[s + 1]; i++) {
                const struct vt_edge *e = &a->edges[i];
                uint64_t n = m->least[e->to];
                if (e->kind == VT_EDGE_BYTES)
                    n += 1;
                else if (e->kind == VT_EDGE_CALL)
                    n += m->least[a->start[e->arg]];
                else if (e->kind == VT_EDGE_REPEAT)
                    n += (uint64_t)a->repeats[e->arg].min * m->least[a->start[a->repeats[e->arg].rule]];
                best = n < best ? (uint32_t)n : best;
            }
            m->least[s] = best;
        }
}

static void look_at_states(struct matcher *m)
{
    const struct vt_automaton *a = m->a;
    for (uint32_t s = 0; s < a->n_states; s++) {
        m->last[s] = a->accept[s] && a->first[s] == a->first[s + 1];
        for (uint32_t i = a->first[s]; i < a->first[s + 1]; i++)
            m->takes[s] |= a->edges[i].kind == VT_EDGE_BYTES;
    }
}

int matcher_new(struct matcher **out, const struct vt_automaton *a, struct vt_err *err)
{
    struct matcher *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return vt_fail(err, VT_E_NOMEM, "out of memory for a grammar");
    m->a = a;
    m->seen_mask = 8 * MATCHER_WIDTH - 1;
    m->last = calloc(a->n_states, sizeof *m->last);
    m->takes = calloc(a->n_states, sizeof *m->takes);
    m->least = calloc(a->n_states, sizeof *m->least);
    m->seen_at = calloc((size_t)m->seen_mask + 1, sizeof *m->seen_at);
    m->stamp_at = calloc((size_t)m->seen_mask + 1, sizeof *m->stamp_at);
    if (!m->last || !m->takes || !m->least || !m->seen_at || !m->stamp_at ||
        !grow(&m->nodes, &m->cap_nodes, 0, sizeof *m->nodes) ||
        !grow(&m->sets, &m->cap_sets, 0, sizeof *m->sets)) {
        matcher_free(m);
        return vt_fail(err, VT_E_NOMEM, "out of memory for a grammar");
    }
    m->nodes[m->n_nodes++] = (struct node){0};
    m->sets[m->n_sets++] = (struct set){0};
    make_classes(m);
    look_at_states(m);
    find_least(m);
    closure_begin(m);
    m->start = add(m, a->start[0], 0) && close(m) ? intern(m) : MATCHER_ERROR;
    if (m->start == MATCHER_ERROR) {
        matcher_why(m, err);
        matcher_free(m);
        return -1;
    }
    *out = m;
    return 0;
}

void matcher_free(struct matcher *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n_sets; i++)
        free(m->sets[i].next);
    free(m->last);
    free(m->takes);
    free(m->least);
    free(m->nodes);
    free(m->node_table.at);
    free(m->items);
    free(m->sets);
    free(m->set_table.at);
    free(m->todo);
    free(m->seen);
    free(m->seen_at);
    free(m->stamp_at);
    free(m);
}

void matcher_budget(struct matcher *m)
{
    m->work = 0;
    m->why = NULL;
}

void matcher_why(const struct matcher *m, struct vt_err *err)
{
    vt_fail(err, VT_E_GRAMMAR, "%s", m->why ? m->why : "the text does not follow the grammar");
}

bool matcher_full(const struct matcher *m)
{
    return m->n_sets > MATCHER_SETS || m->n_nodes > MATCHER_NODES || m->n_items > 4u * MATCHER_NODES;
}
