#include "constraint.h"

#include "hash.h"
#include "matcher.h"

#include <stdlib.h>
#include <string.h>

enum {
    KEEP = 16,               /* grammars kept for the next request, in use or not */
    WHOLE_BYTES = 16u << 20, /* of one grammar's masks; beyond it all are made anew */
    PART_BYTES = 8u << 20,   /* and of their parts */
    STEPS = 8u << 20,        /* nodes of a trie looked at for a part of a mask */
    BANDS = MATCHER_REACHES,
};

/* Tokens in bands of their length in bytes, the last one's without end. In a string of at most n characters the next character
 * leads to another place, but to a token no longer than what is left of n that is all the same: most of a mask is
 * the part of a place that was met before, and what is new are the few long tokens. */
static const uint32_t band_to[BANDS] = {4, 8, 12, 16, 24, TRIE_LONGEST};

struct mask {
    uint32_t *ids;
    uint64_t *bits;
    uint32_t n;
};

/* By set; bits and ids NULL: not made. */
struct masks {
    struct mask *at;
    uint32_t cap;
};

struct grammar_use {
    struct constraints *cs;
    struct grammar_use *prev, *next; /* the one used last comes first */
    uint8_t name[VT_XXH128_LEN];
    size_t n_bytes;
    uint8_t *bytes;
    struct vt_automaton automaton;
    struct matcher *matcher;
    struct constraint *first; /* open states */
    struct masks whole, part[BANDS];
    size_t whole_bytes, part_bytes;
    uint64_t n_asked, n_made;
};

/* On the way through the trie: a set and its row (matcher.h). */
struct place {
    const uint32_t *row;
    uint32_t set;
};

struct constraints {
    struct trie band[BANDS];
    uint32_t reach[BANDS]; /* bytes that a token of the band, or of one before it, can take, and one more */
    const struct trie_token *tokens;
    uint32_t n_vocab;
    uint32_t *eog;
    uint32_t n_eog;
    struct grammar_use *first;
    unsigned n_uses;
    struct place *way;   /* [longest + 1] through a trie */
    uint64_t *bits;      /* [words] mask under construction */
    uint64_t *part_bits; /* [words] and the part of it */
    struct trie_token *own;
};

static uint32_t words(const struct constraints *cs)
{
    return (cs->n_vocab + 63) / 64;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int constraints_new(struct constraints **out, const struct trie_token *tokens, uint32_t n_vocab,
                    const uint32_t *eog, size_t n_eog, struct vt_err *err)
{
    struct constraints *cs = calloc(1, sizeof *cs);
    struct trie_token *own = cs ? malloc(((size_t)n_vocab + 1) * sizeof *own) : NULL;
    *out = NULL;
    if (!own) {
        free(cs);
        return vt_fail(err, VT_E_NOMEM, "out of memory for the tokens of a vocabulary of %u", n_vocab);
    }
    if (n_vocab > 0)
        memcpy(own, tokens, n_vocab * sizeof *own);
    cs->own = own;
    cs->tokens = own;
    cs->n_vocab = n_vocab;
    cs->eog = malloc((n_eog + 1) * sizeof *cs->eog);
    for (size_t i = 0; cs->eog && i < n_eog; i++)
        if (eog[i] < n_vocab) {
            own[eog[i]].n = 0; /* an end is never a text */
            cs->eog[cs->n_eog++] = eog[i];
        }
    if (cs->eog && cs->n_eog > 1)
        qsort(cs->eog, cs->n_eog, sizeof *cs->eog, by_value);
    bool ok = cs->eog != NULL;
    uint32_t longest = 0;
    for (unsigned i = 0; ok && i < BANDS; i++) {
        ok = trie_make(&cs->band[i], own, n_vocab, i > 0 ? band_to[i - 1] + 1 : 1, band_to[i], err) == 0;
        longest = cs->band[i].longest > longest ? cs->band[i].longest : longest;
        cs->reach[i] = longest + 1;
    }
    cs->way = calloc((size_t)longest + 1, sizeof *cs->way);
    cs->bits = calloc((size_t)words(cs) + 1, sizeof *cs->bits);
    cs->part_bits = calloc((size_t)words(cs) + 1, sizeof *cs->part_bits);
    if (!ok || !cs->way || !cs->bits || !cs->part_bits) {
        constraints_free(cs);
        return vt_fail(err, VT_E_NOMEM, "out of memory for the tokens of a vocabulary of %u", n_vocab);
    }
    *out = cs;
    return 0;
}

static void drop(struct masks *m)
{
    for (uint32_t i = 0; i < m->cap; i++) {
        free(m->at[i].ids);
        free(m->at[i].bits);
    }
    free(m->at);
    *m = (struct masks){0};
}

static void drop_whole(struct grammar_use *u)
{
    drop(&u->whole);
    u->whole_bytes = 0;
}

static void drop_parts(struct grammar_use *u)
{
    for (unsigned i = 0; i < BANDS; i++)
        drop(&u->part[i]);
    u->part_bytes = 0;
}

static void unlink_use(struct grammar_use *u)
{
    if (u->prev)
        u->prev->next = u->next;
    else if (u->cs->first == u)
        u->cs->first = u->next;
    if (u->next)
        u->next->prev = u->prev;
    u->prev = u->next = NULL;
}

static void link_first(struct grammar_use *u)
{
    u->next = u->cs->first;
    if (u->next)
        u->next->prev = u;
    u->cs->first = u;
}

static void use_free(struct grammar_use *u)
{
    drop_whole(u);
    drop_parts(u);
    matcher_free(u->matcher);
    vt_automaton_fini(&u->automaton);
    free(u->bytes);
    free(u);
}

static void drop_use(struct grammar_use *u)
{
    unlink_use(u);
    u->cs->n_uses--;
    use_free(u);
}

void constraints_free(struct constraints *cs)
{
    if (!cs)
        return;
    while (cs->first)
        drop_use(cs->first);
    for (unsigned i = 0; i < BANDS; i++)
        trie_fini(&cs->band[i]);
    free(cs->own);
    free(cs->eog);
    free(cs->way);
    free(cs->bits);
    free(cs->part_bits);
    free(cs);
}

/* ---- opening and closing ---- */

static struct grammar_use *find(struct constraints *cs, const uint8_t *bytes, size_t n)
{
    uint8_t name[VT_XXH128_LEN];
    vt_xxh128(bytes, n, name);
    for (struct grammar_use *u = cs->first; u; u = u->next)
        if (u->n_bytes == n && memcmp(u->name, name, sizeof name) == 0 && memcmp(u->bytes, bytes, n) == 0)
            return u;
    return NULL;
}

static int use_new(struct grammar_use **out, struct constraints *cs, const uint8_t *bytes, size_t n,
                   struct vt_err *err)
{
    struct grammar_use *u = calloc(1, sizeof *u);
    if (u)
        u->bytes = malloc(n + 1);
    if (!u || !u->bytes) {
        free(u);
        return vt_fail(err, VT_E_NOMEM, "out of memory for a grammar");
    }
    u->cs = cs;
    u->n_bytes = n;
    if (n > 0)
        memcpy(u->bytes, bytes, n);
    vt_xxh128(u->bytes, n, u->name);
    if (vt_automaton_load(&u->automaton, u->bytes, n, err) < 0 ||
        matcher_new(&u->matcher, &u->automaton, err) < 0) {
        use_free(u);
        return -1;
    }
    *out = u;
    return 0;
}

/* Forgets the grammars that nobody has used for longest. */
static void make_room(struct constraints *cs)
{
    struct grammar_use *last = cs->first;
    while (last && last->next)
        last = last->next;
    while (last && cs->n_uses >= KEEP) {
        struct grammar_use *before = last->prev;
        if (!last->first)
            drop_use(last);
        last = before;
    }
}

static void register_state(struct constraint *c, struct grammar_use *u)
{
    c->use = u;
    c->prev = NULL;
    c->next = u->first;
    if (u->first)
        u->first->prev = c;
    u->first = c;
}

int constraint_open(struct constraints *cs, const uint8_t *bytes, size_t n, struct constraint *c,
                    struct vt_err *err)
{
    *c = (struct constraint){0};
    struct grammar_use *u = find(cs, bytes, n);
    if (u) {
        unlink_use(u);
    } else {
        make_room(cs);
        if (use_new(&u, cs, bytes, n, err) < 0)
            return -1;
        cs->n_uses++;
    }
    link_first(u);
    register_state(c, u);
    c->set = matcher_start(u->matcher);
    return 0;
}

void constraint_copy(struct constraint *to, const struct constraint *from)
{
    *to = (struct constraint){.set = from->set, .ended = from->ended};
    if (from->use)
        register_state(to, from->use);
}

void constraint_close(struct constraint *c)
{
    if (!c->use)
        return;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->use->first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    *c = (struct constraint){0};
}

/* ---- following ---- */

/* Before a state moves: when memory is used up, masks are made anew, and so are the sets, from those that open states stand
 * in. */
static int renew(struct grammar_use *u, struct vt_err *err)
{
    struct matcher *m;
    matcher_budget(u->matcher);
    if (u->whole_bytes > WHOLE_BYTES)
        drop_whole(u);
    if (u->part_bytes > PART_BYTES)
        drop_parts(u);
    if (!matcher_full(u->matcher))
        return 0;
    if (matcher_new(&m, &u->automaton, err) < 0)
        return -1;
    for (struct constraint *c = u->first; c; c = c->next) {
        uint32_t set = matcher_move(m, u->matcher, c->set);
        if (set == MATCHER_ERROR) { /* those before it have new numbers: put them back */
            matcher_why(m, err);
            for (struct constraint *d = u->first; d != c; d = d->next)
                d->set = matcher_move(u->matcher, m, d->set);
            matcher_free(m);
            return -1;
        }
        c->set = set;
    }
    drop_whole(u);
    drop_parts(u);
    matcher_free(u->matcher);
    u->matcher = m;
    matcher_budget(m);
    return 0;
}

static bool is_eog(const struct constraints *cs, uint32_t id)
{
    for (uint32_t i = 0; i < cs->n_eog; i++)
        if (cs->eog[i] == id)
            return true;
    return false;
}

static int not_allowed(struct vt_err *err, uint32_t id)
{
    return vt_fail(err, VT_E_GRAMMAR, "token %u does not follow the grammar", id);
}

static uint32_t step_all(struct matcher *m, uint32_t set, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n && set != MATCHER_DEAD && set != MATCHER_ERROR; i++)
        set = matcher_step(m, set, p[i]);
    return set;
}

static uint32_t step_token(struct matcher *m, uint32_t set, const struct trie_token *t)
{
    static const uint8_t before = VT_AUTOMATON_CONTROL, behind = VT_AUTOMATON_END;
    if (t->control)
        set = step_all(m, set, &before, 1);
    set = step_all(m, set, t->bytes, t->n);
    if (t->control)
        set = step_all(m, set, &behind, 1);
    return set;
}

int constraint_advance(struct constraint *c, uint32_t id, struct vt_err *err)
{
    struct grammar_use *u = c->use;
    if (!u)
        return 0;
    struct constraints *cs = u->cs;
    if (renew(u, err) < 0)
        return -1;
    if (c->ended || id >= cs->n_vocab)
        return not_allowed(err, id);
    if (is_eog(cs, id)) {
        if (!matcher_can_end(u->matcher, c->set))
            return not_allowed(err, id);
        c->ended = true;
        return 0;
    }
    const struct trie_token *t = &cs->tokens[id];
    uint32_t set = t->n > 0 ? step_token(u->matcher, c->set, t) : MATCHER_DEAD;
    if (set == MATCHER_ERROR) {
        matcher_why(u->matcher, err);
        return -1;
    }
    if (set == MATCHER_DEAD)
        return not_allowed(err, id);
    c->set = set;
    return 0;
}

bool constraint_can_end(const struct constraint *c)
{
    return c->use && !c->ended && matcher_can_end(c->use->matcher, c->set);
}

/* ---- masks ---- */

/* Sets the bits of a band's tokens that lead from `set` somewhere. Returns their number, or MATCHER_ERROR. Within a string that is
 * most of the vocabulary: what is done for a node is a look-up in the row of the set before it. */
static uint32_t walk(struct constraints *cs, const struct trie *t, struct matcher *m, uint32_t set)
{
    const uint8_t *class_of = matcher_classes(m);
    struct place *way = cs->way;
    uint32_t count = 0, steps = 0;
    way[0] = (struct place){.set = set, .row = matcher_row(m, set)};
    if (!way[0].row)
        return MATCHER_ERROR;
    for (uint32_t i = 0; i < t->n_nodes;) {
        const struct trie_node *n = &t->nodes[i];
        const struct place *before = &way[n->depth - 1];
        uint32_t to = before->row[class_of[n->byte]];
        if (to == MATCHER_UNKNOWN)
            to = matcher_step(m, before->set, n->byte);
        if (to == MATCHER_ERROR || ++steps > STEPS)
            return MATCHER_ERROR;
        if (to == MATCHER_DEAD) {
            i = n->skip;
            continue;
        }
        for (uint32_t k = n->tokens; k < n->tokens + n->n_tokens; k++)
            cs->part_bits[t->ids[k] / 64] |= (uint64_t)1 << (t->ids[k] % 64);
        count += n->n_tokens;
        if (++i == n->skip)
            continue; /* nothing below */
        way[n->depth] =
            (struct place){.set = to, .row = to == before->set ? before->row : matcher_row(m, to)};
        if (!way[n->depth].row)
            return MATCHER_ERROR;
    }
    return count;
}

static const struct mask *made(const struct masks *m, uint32_t set)
{
    return set < m->cap && (m->at[set].ids || m->at[set].bits) ? &m->at[set] : NULL;
}

static bool room_for(struct masks *m, uint32_t set)
{
    if (set < m->cap)
        return true;
    uint32_t cap = set < 512 ? 1024 : 2 * set;
    struct mask *p = realloc(m->at, cap * sizeof *p);
    if (!p)
        return false;
    memset(p + m->cap, 0, (cap - m->cap) * sizeof *p);
    m->at = p;
    m->cap = cap;
    return true;
}

/* Keeps the n bits as the mask of `set`. NULL: no memory. */
static const struct mask *keep(const struct constraints *cs, struct masks *m, uint32_t set,
                               const uint64_t *bits, uint32_t n, size_t *bytes)
{
    size_t as_bits = words(cs) * sizeof *bits, as_ids = n * sizeof(uint32_t);
    if (!room_for(m, set))
        return NULL;
    struct mask *to = &m->at[set];
    if (as_ids < as_bits) {
        to->ids = malloc(as_ids + 1);
        for (uint32_t w = 0, k = 0; to->ids && k < n; w++)
            for (uint64_t b = bits[w]; b; b &= b - 1)
                to->ids[k++] = w * 64 + (uint32_t)__builtin_ctzll(b);
        *bytes += as_ids;
    } else {
        to->bits = malloc(as_bits);
        if (to->bits)
            memcpy(to->bits, bits, as_bits);
        *bytes += as_bits;
    }
    to->n = n;
    return made(m, set);
}

static int no_memory(struct vt_err *err)
{
    return vt_fail(err, VT_E_NOMEM, "out of memory for the tokens that a grammar allows");
}

static int limit_met(const struct matcher *m, struct vt_err *err)
{
    matcher_why(m, err);
    return -1;
}

/* Where a text stands, as far as the tokens of a band can tell. */
static uint32_t seen_by(const struct grammar_use *u, unsigned band, uint32_t set)
{
    return matcher_normal(u->matcher, set, band, u->cs->reach[band]);
}

/* The part of a mask that one band makes. */
static int part_of(struct grammar_use *u, unsigned band, uint32_t set, const struct mask **out,
                   struct vt_err *err)
{
    struct constraints *cs = u->cs;
    uint32_t at = seen_by(u, band, set);
    if (at == MATCHER_ERROR)
        return limit_met(u->matcher, err);
    *out = made(&u->part[band], at);
    if (*out)
        return 0;
    memset(cs->part_bits, 0, words(cs) * sizeof *cs->part_bits);
    uint32_t n = walk(cs, &cs->band[band], u->matcher, at);
    if (n == MATCHER_ERROR)
        return limit_met(u->matcher, err);
    *out = keep(cs, &u->part[band], at, cs->part_bits, n, &u->part_bytes);
    return *out ? 0 : no_memory(err);
}

static int make(struct grammar_use *u, uint32_t set, struct vt_err *err)
{
    struct constraints *cs = u->cs;
    uint32_t n = 0;
    memset(cs->bits, 0, words(cs) * sizeof *cs->bits);
    for (unsigned band = 0; band < BANDS; band++) {
        const struct mask *p;
        if (part_of(u, band, set, &p, err) < 0)
            return -1;
        for (uint32_t w = 0; p->bits && w < words(cs); w++)
            cs->bits[w] |= p->bits[w];
        for (uint32_t k = 0; !p->bits && k < p->n; k++)
            cs->bits[p->ids[k] / 64] |= (uint64_t)1 << (p->ids[k] % 64);
        n += p->n;
    }
    for (uint32_t i = 0; matcher_can_end(u->matcher, set) && i < cs->n_eog; i++, n++)
        cs->bits[cs->eog[i] / 64] |= (uint64_t)1 << (cs->eog[i] % 64);
    if (!keep(cs, &u->whole, set, cs->bits, n, &u->whole_bytes))
        return no_memory(err);
    u->n_made++;
    return 0;
}

static uint32_t place_of(const struct constraint *c)
{
    return c->ended ? MATCHER_DEAD : seen_by(c->use, BANDS - 1, c->set);
}

bool constraint_has_mask(struct constraint *c)
{
    matcher_budget(c->use->matcher);
    uint32_t set = place_of(c);
    return set != MATCHER_ERROR && made(&c->use->whole, set);
}

int constraint_mask(struct constraint *c, struct token_mask *m, struct vt_err *err)
{
    struct grammar_use *u = c->use;
    *m = (struct token_mask){0};
    matcher_budget(u->matcher);
    u->n_asked++;
    uint32_t set = place_of(c);
    if (set == MATCHER_ERROR)
        return limit_met(u->matcher, err);
    if (!made(&u->whole, set) && make(u, set, err) < 0)
        return -1;
    const struct mask *w = made(&u->whole, set);
    *m = (struct token_mask){.ids = w->ids, .n = w->n, .bits = w->bits};
    if (w->n == 0)
        return vt_fail(err, VT_E_GRAMMAR,
                       "no token of this model can continue the text as its grammar demands");
    return 0;
}

void constraint_stats(const struct constraint *c, struct constraint_stats *s)
{
    *s = (struct constraint_stats){0};
    if (c->use)
        *s = (struct constraint_stats){c->use->n_asked, c->use->n_made, matcher_n_sets(c->use->matcher)};
}
