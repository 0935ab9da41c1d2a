#include "automaton.h"
#include "constraint.h"
#include "matcher.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* An automaton by hand: edges in the order of their near sides. */
struct edge {
    uint32_t from;
    struct vt_edge e;
};

static void build(struct vt_automaton *a, const uint32_t *start, uint32_t n_rules, const char *accept,
                  const struct edge *e, uint32_t n, const struct vt_repeat *repeat, uint32_t n_repeats)
{
    uint32_t n_states = (uint32_t)strlen(accept);
    assert_int_equal(vt_automaton_alloc(a, n_rules, n_states, n, n_repeats, NULL), 0);
    memcpy(a->start, start, n_rules * sizeof *start);
    for (uint32_t i = 0; i < n; i++) {
        a->first[e[i].from + 1]++;
        a->edges[i] = e[i].e;
    }
    for (uint32_t s = 0; s < n_states; s++) {
        a->first[s + 1] += a->first[s];
        a->accept[s] = accept[s] == 'y';
    }
    for (uint32_t i = 0; i < n_repeats; i++)
        a->repeats[i] = repeat[i];
}

#define BYTES(c, d, s)                                                                                       \
    {                                                                                                        \
        VT_EDGE_BYTES, c, d, s, 0                                                                            \
    }

/* root ::= "(" root ")" | [ab] | x{2,3};  x ::= "x" */
static const uint32_t start[] = {0, 5};
static const struct edge nested[] = {
    {0, BYTES('(', '(', 1)},         {0, BYTES('a', 'b', 4)}, {0, {VT_EDGE_REPEAT, 0, 0, 4, 0}},
    {1, {VT_EDGE_CALL, 0, 0, 2, 0}}, {2, BYTES(')', ')', 4)}, {5, BYTES('x', 'x', 6)},
};
static const struct vt_repeat twice[] = {{1, 2, 3}};

static uint8_t *nested_bytes(size_t *n)
{
    struct vt_automaton a;
    uint8_t *bytes;
    build(&a, start, 2, "nnnnyny", nested, 6, twice, 1);
    assert_int_equal(vt_automaton_save(&a, &bytes, n, NULL), 0);
    vt_automaton_fini(&a);
    return bytes;
}

/* a b ( ) x (( xx )) <ctl> </s> */
enum { A, B, OPEN, CLOSE, X, OPEN2, XX, CLOSE2, CTL, EOS, N };
static const struct trie_token tokens[N] = {
    {(const uint8_t *)"a", 1, false},  {(const uint8_t *)"b", 1, false},  {(const uint8_t *)"(", 1, false},
    {(const uint8_t *)")", 1, false},  {(const uint8_t *)"x", 1, false},  {(const uint8_t *)"((", 2, false},
    {(const uint8_t *)"xx", 2, false}, {(const uint8_t *)"))", 2, false}, {(const uint8_t *)"a", 1, true},
    {(const uint8_t *)"b", 1, false},
};

static struct constraints *make(void)
{
    static const uint32_t eog[] = {EOS};
    struct constraints *cs;
    assert_int_equal(constraints_new(&cs, tokens, N, eog, 1, NULL), 0);
    return cs;
}

static void check_mask(struct constraint *c, const char *want)
{
    struct token_mask m;
    char got[N + 1] = {0};
    assert_int_equal(constraint_mask(c, &m, NULL), 0);
    unsigned n = 0;
    for (uint32_t i = 0; i < N; i++) {
        got[i] = token_mask_has(&m, i) ? 'y' : '.';
        n += got[i] == 'y';
    }
    assert_string_equal(got, want);
    assert_int_equal(m.n, n);
}

static void masks_follow_the_grammar(void **state)
{
    size_t n;
    uint8_t *bytes = nested_bytes(&n);
    struct constraints *cs = make();
    struct constraint c, d;
    assert_int_equal(constraint_open(cs, bytes, n, &c, NULL), 0);
    /*             ab()x((xx))<>E */
    check_mask(&c, "yyy.yyy...");
    assert_int_equal(constraint_advance(&c, OPEN2, NULL), 0);
    check_mask(&c, "yyy.yyy...");
    constraint_copy(&d, &c); /* a draft goes its own way */
    assert_int_equal(constraint_advance(&d, XX, NULL), 0);
    check_mask(&d, "...yy..y..");
    assert_int_equal(constraint_advance(&d, CLOSE2, NULL), 0);
    check_mask(&d, ".........y");
    assert_true(constraint_can_end(&d));
    assert_int_equal(constraint_advance(&c, A, NULL), 0);
    check_mask(&c, "...y...y..");
    struct vt_err err;
    assert_int_equal(constraint_advance(&c, EOS, &err), -1);
    assert_int_equal(err.code, VT_E_GRAMMAR);
    assert_int_equal(constraint_advance(&c, CLOSE, NULL), 0);
    assert_int_equal(constraint_advance(&c, CLOSE, NULL), 0);
    assert_int_equal(constraint_advance(&c, EOS, NULL), 0);
    struct token_mask m;
    assert_int_equal(constraint_mask(&c, &m, &err), -1); /* nothing follows an end */
    assert_int_equal(err.code, VT_E_GRAMMAR);
    constraint_close(&c);
    constraint_close(&d);
    constraints_free(cs);
    free(bytes);
}

static void the_same_grammar_is_computed_once(void **state)
{
    size_t n;
    uint8_t *bytes = nested_bytes(&n);
    struct constraints *cs = make();
    struct constraint c[3];
    struct constraint_stats st;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(constraint_open(cs, bytes, n, &c[i], NULL), 0);
        check_mask(&c[i], "yyy.yyy...");
    }
    constraint_stats(&c[2], &st);
    assert_int_equal(st.masks, 3);
    assert_int_equal(st.made, 1);
    for (int i = 0; i < 3; i++)
        constraint_close(&c[i]);
    constraints_free(cs);
    free(bytes);
}

static void control_tokens_stand_for_themselves(void **state)
{
    static const uint32_t begin[] = {0};
    static const struct edge e[] = {{0, BYTES(VT_AUTOMATON_CONTROL, VT_AUTOMATON_CONTROL, 1)},
                                    {1, BYTES('a', 'a', 2)},
                                    {2, BYTES(VT_AUTOMATON_END, VT_AUTOMATON_END, 3)}};
    struct vt_automaton a;
    uint8_t *bytes;
    size_t n;
    struct constraint c;
    struct constraints *cs = make();
    build(&a, begin, 1, "nnny", e, 3, NULL, 0);
    assert_int_equal(vt_automaton_save(&a, &bytes, &n, NULL), 0);
    assert_int_equal(constraint_open(cs, bytes, n, &c, NULL), 0);
    check_mask(&c, "........y.");
    assert_int_equal(constraint_advance(&c, CTL, NULL), 0);
    check_mask(&c, ".........y");
    constraint_close(&c);
    constraints_free(cs);
    vt_automaton_fini(&a);
    free(bytes);
}

static void every_damage_is_refused_or_harmless(void **state)
{
    size_t n;
    uint8_t *bytes = nested_bytes(&n), *copy = malloc(n);
    struct vt_automaton a;
    unsigned refused = 0;
    for (size_t cut = 0; cut < n; cut++)
        assert_int_equal(vt_automaton_load(&a, bytes, cut, NULL), -1);
    for (size_t at = 0; at < n; at++)
        for (unsigned v = 0; v < 256; v += 5) {
            struct matcher *m;
            memcpy(copy, bytes, n);
            copy[at] = (uint8_t)v;
            if (vt_automaton_load(&a, copy, n, NULL) < 0) {
                refused++;
                continue;
            }
            if (matcher_new(&m, &a, NULL) == 0) {
                uint32_t set = matcher_start(m);
                for (const char *p = "((xx))"; *p && set != MATCHER_ERROR; p++)
                    set = matcher_step(m, set, (uint8_t)*p);
                matcher_free(m);
            }
            vt_automaton_fini(&a);
        }
    assert_true(refused > n);
    free(bytes);
    free(copy);
}

static void left_recursion_and_empty_rounds_are_refused(void **state)
{
    static const struct edge left[] = {{0, {VT_EDGE_CALL, 0, 0, 1, 0}}, {1, BYTES('a', 'a', 2)}};
    static const struct edge hidden[] = {
        {0, {VT_EDGE_CALL, 0, 0, 1, 1}}, {1, {VT_EDGE_CALL, 0, 0, 2, 0}}, {2, BYTES('a', 'a', 3)}};
    static const struct edge rounds[] = {{0, {VT_EDGE_REPEAT, 0, 0, 1, 0}}};
    static const uint32_t one[] = {0}, two[] = {0, 4}, second[] = {0, 1};
    static const struct vt_repeat empty[] = {{1, 0, 9}};
    struct vt_automaton a;
    enum vt_automaton_flaw flaw;
    uint32_t rule;
    build(&a, one, 1, "nny", left, 2, NULL, 0);
    assert_int_equal(vt_automaton_check(&a, &flaw, &rule, NULL), -1);
    assert_true(flaw == VT_FLAW_LEFT_RECURSION && rule == 0);
    vt_automaton_fini(&a);
    build(&a, two, 2, "nnnyy", hidden, 3, NULL, 0); /* an empty rule stands before the recursion */
    assert_int_equal(vt_automaton_check(&a, &flaw, &rule, NULL), -1);
    assert_int_equal(flaw, VT_FLAW_LEFT_RECURSION);
    vt_automaton_fini(&a);
    build(&a, second, 2, "ny", rounds, 1, empty, 1);
    assert_int_equal(vt_automaton_check(&a, &flaw, &rule, NULL), -1);
    assert_true(flaw == VT_FLAW_EMPTY_REPEAT && rule == 1);
    vt_automaton_fini(&a);
}

/* root ::= s;  s ::= "a" (s "b" | s "b" | ""): each letter doubles the ways to read the text. */
static void ambiguity_ends_in_an_error(void **state)
{
    static const uint32_t begin[] = {0, 2};
    static const struct edge e[] = {{0, {VT_EDGE_CALL, 0, 0, 1, 1}},  {2, BYTES('a', 'a', 3)},
                                    {3, {VT_EDGE_CALL, 0, 0, 4, 1}},  {3, {VT_EDGE_CALL, 0, 0, 6, 1}},
                                    {3, {VT_EDGE_EMPTY, 0, 0, 5, 0}}, {4, BYTES('b', 'b', 5)},
                                    {6, BYTES('b', 'b', 5)}};
    struct vt_automaton a;
    struct matcher *m;
    build(&a, begin, 2, "nynnnyn", e, 7, NULL, 0);
    assert_int_equal(matcher_new(&m, &a, NULL), 0);
    uint32_t set = matcher_start(m);
    for (unsigned i = 0; i < 64 && set != MATCHER_ERROR; i++) {
        matcher_budget(m);
        assert_true(set != MATCHER_DEAD);
        set = matcher_step(m, set, 'a');
    }
    assert_true(set == MATCHER_ERROR);
    struct vt_err err;
    matcher_why(m, &err);
    assert_int_equal(err.code, VT_E_GRAMMAR);
    matcher_free(m);
    vt_automaton_fini(&a);
}

/* A long counted text fills the matcher; states move to a fresh one and stand where they stood. */
static void memory_is_renewed(void **state)
{
    static const uint32_t begin[] = {0, 2};
    static const struct edge e[] = {{0, {VT_EDGE_REPEAT, 0, 0, 1, 0}}, {2, BYTES('a', 'b', 3)}};
    static const struct vt_repeat many[] = {{1, 60000, 60000}};
    struct constraints *cs = make();
    struct constraint c, waits;
    struct constraint_stats st;
    struct vt_automaton a;
    uint8_t *bytes;
    size_t n;
    build(&a, begin, 2, "nyny", e, 2, many, 1);
    assert_int_equal(vt_automaton_save(&a, &bytes, &n, NULL), 0);
    assert_int_equal(constraint_open(cs, bytes, n, &c, NULL), 0);
    for (unsigned i = 0; i < 59999; i++)
        assert_int_equal(constraint_advance(&c, i % 3 ? A : B, NULL), 0);
    constraint_copy(&waits, &c);
    check_mask(&c, "yy........");
    assert_int_equal(constraint_advance(&c, A, NULL), 0);
    check_mask(&c, ".........y");
    check_mask(&waits, "yy........");
    constraint_stats(&c, &st);
    assert_true(st.sets < 20000);
    constraint_close(&c);
    constraint_close(&waits);
    constraints_free(cs);
    vt_automaton_fini(&a);
    free(bytes);
}

/* A mask is put together from parts, with counters that are far from their ends taken for one another: it has to be what
 * following each token says. Texts of counted items, each of counted letters, and tokens of all lengths. */
enum { MANY = 600 };

struct drawn {
    uint32_t x;
    char text[MANY][40];
    struct trie_token tokens[MANY];
};

static uint32_t draw(struct drawn *d, uint32_t n)
{
    d->x = d->x * 1664525u + 1013904223u;
    return (d->x >> 8) % n;
}

static void draw_tokens(struct drawn *d)
{
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t n = 0, rest = draw(d, 7); /* letters up to a border, then items, then some letters */
        for (uint32_t k = draw(d, 12); k > 0; k--)
            d->text[i][n++] = 'a';
        for (; rest > 2; rest--) {
            d->text[i][n++] = ',';
            for (uint32_t k = draw(d, 6); k > 0; k--)
                d->text[i][n++] = 'a';
        }
        if (n == 0 || draw(d, 3) == 0)
            d->text[i][n++] = ",;a"[draw(d, 3)];
        d->tokens[i] = (struct trie_token){(const uint8_t *)d->text[i], n, false};
    }
}

static void masks_are_what_steps_say(void **state)
{
    static const uint32_t begin[] = {0, 2, 5};
    static const struct edge e[] = {
        {0, {VT_EDGE_REPEAT, 0, 0, 1, 0}}, {1, BYTES(';', ';', 1)}, {2, {VT_EDGE_REPEAT, 0, 0, 3, 1}},
        {3, BYTES(',', ',', 4)},           {5, BYTES('a', 'b', 6)},
    };
    static struct drawn d = {.x = 1};
    draw_tokens(&d);
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t items = draw(&d, 20), letters = draw(&d, 40), more = draw(&d, 30);
        const struct vt_repeat repeats[] = {{1, items, items + 1 + draw(&d, 12)},
                                            {2, 1 + letters / 4, 1 + letters / 4 + more}};
        const uint32_t eog = 3;
        struct constraints *cs;
        struct constraint c, probe;
        struct vt_automaton a;
        uint8_t *bytes;
        size_t n;
        build(&a, begin, 3, "nynnyny", e, 5, repeats, 2);
        assert_int_equal(vt_automaton_save(&a, &bytes, &n, NULL), 0);
        struct trie_token some[MANY];
        memcpy(some, d.tokens, sizeof some);
        for (uint32_t i = 0; i < MANY; i++) /* a vocabulary may have no long ones */
            some[i].n = some[i].n > (round % 2 ? 7 : 40) ? 0 : some[i].n;
        assert_int_equal(constraints_new(&cs, some, MANY, &eog, 1, NULL), 0);
        assert_int_equal(constraint_open(cs, bytes, n, &c, NULL), 0);
        for (uint32_t step = 0; step < 60 && !c.ended; step++) {
            struct token_mask m;
            uint8_t allowed[MANY];
            uint32_t next = MANY, seen = 0;
            if (constraint_mask(&c, &m, NULL) < 0)
                m = (struct token_mask){0};
            for (uint32_t i = 0; i < MANY; i++)
                allowed[i] = (m.ids || m.bits) && token_mask_has(&m, i);
            for (uint32_t i = 0; i < MANY; i++) {
                constraint_copy(&probe, &c);
                bool ok = constraint_advance(&probe, i, NULL) == 0;
                constraint_close(&probe);
                assert_int_equal(ok, allowed[i]);
                if (ok && draw(&d, ++seen) == 0)
                    next = i;
            }
            if (next == MANY)
                break;
            assert_int_equal(constraint_advance(&c, next, NULL), 0);
        }
        constraint_close(&c);
        constraints_free(cs);
        vt_automaton_fini(&a);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_follow_the_grammar),
        cmocka_unit_test(the_same_grammar_is_computed_once),
        cmocka_unit_test(control_tokens_stand_for_themselves),
        cmocka_unit_test(every_damage_is_refused_or_harmless),
        cmocka_unit_test(left_recursion_and_empty_rounds_are_refused),
        cmocka_unit_test(ambiguity_ends_in_an_error),
        cmocka_unit_test(memory_is_renewed),
        cmocka_unit_test(masks_are_what_steps_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
