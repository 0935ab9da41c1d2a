/* Matcher: follows an automaton byte by byte.
 *
 * Where a text stands is a set of configurations (state, stack of rules to return to). Stacks share their lower parts and are
 * made once (hash-consed), and so are the sets: a set is a number, and a step from set to set, once computed, is a look-up.
 * That is the lazy subset construction of regular expressions (Thompson 1968), over a graph-structured stack (Tomita 1985).
 * A rule that is run last in another leaves no trace on the stack, so that right recursion is a loop.
 *
 * Everything is bounded: configurations in a set, depth of a stack (a deeper one is not entered), work of a step, memory. The
 * texts of a matcher can be replaced by a fresh one when its memory is used up (matcher_move). One thread at a time. */
#ifndef MATCHER_H
#define MATCHER_H

#include "automaton.h"

#define MATCHER_DEAD  0 /* the set of a text that no accepted text begins with */
#define MATCHER_ERROR UINT32_MAX

enum {
    MATCHER_DEPTH = 2048,     /* rules inside of rules */
    MATCHER_WIDTH = 4096,     /* configurations at once */
    MATCHER_WORK = 4000000,   /* configurations looked at, between two calls of matcher_budget */
    MATCHER_SETS = 16384,     /* beyond it a matcher is full */
    MATCHER_NODES = 1u << 19, /* likewise */
};

struct matcher;

/* a is borrowed. */
int matcher_new(struct matcher **out, const struct vt_automaton *a, struct vt_err *err);
void matcher_free(struct matcher *m);

uint32_t matcher_start(const struct matcher *m);
/* The set behind one more byte; MATCHER_ERROR: a limit, or memory (matcher_why). */
uint32_t matcher_step(struct matcher *m, uint32_t set, uint8_t byte);
/* Steps that have been computed, for walks over many bytes: of a set, by the class of a byte; MATCHER_UNKNOWN: ask matcher_step.
 * NULL: no memory. Both are valid as long as the matcher, and a row shows what later steps add. */
#define MATCHER_UNKNOWN (UINT32_MAX - 1)
const uint32_t *matcher_row(struct matcher *m, uint32_t set);
const uint8_t *matcher_classes(const struct matcher *m); /* [256] */
bool matcher_can_end(const struct matcher *m, uint32_t set);
/* The same set with counters that are further from their ends than `reach` bytes brought to that distance: it allows the same
 * next `reach` bytes, and all such sets are one. which < MATCHER_REACHES: goes with this reach. MATCHER_ERROR as above. */
#define MATCHER_REACHES 6
uint32_t matcher_normal(struct matcher *m, uint32_t set, unsigned which, uint32_t reach);

/* Gives the following calls their full allowance of work. */
void matcher_budget(struct matcher *m);
void matcher_why(const struct matcher *m, struct vt_err *err);

/* More than half of the memory is used. */
bool matcher_full(const struct matcher *m);
/* The set of another matcher of the same automaton. */
uint32_t matcher_move(struct matcher *to, const struct matcher *from, uint32_t set);
uint32_t matcher_n_sets(const struct matcher *m);

#endif
