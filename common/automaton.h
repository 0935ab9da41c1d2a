/* Automaton: a byte-level pushdown automaton, the form in which a constraint travels from the gateway that compiles it to the
 * engine that applies it (SUBMIT, key GRAMMAR).
 *
 * It is a recursive transition network (Woods 1970): rules of states; an edge is empty, takes one byte of a range, runs
 * another rule, or runs a rule a counted number of times. Rule 0 is the root; a text is accepted when the root ends. A rule
 * ends in states that accept. The byte 0xFF, which no UTF-8 text has, stands before the text of a control token and 0xFE
 * behind it.
 *
 * The bytes, little-endian: "VGA1", then u32 rules, states, edges, repeats; u32 start state of each rule; for each state and
 * once more for the end a u32 number of its first edge, with the top bit set when the state accepts; edges of 12 bytes (u8
 * kind, u8 lo, u8 hi, u8 0, u32 to, u32 arg); repeats of 12 bytes (u32 rule, min, max). Nothing follows.
 *
 * A loaded automaton is well-formed whatever the bytes were: no index is out of range, no rule can run itself without taking a
 * byte before (left recursion), and no counted rule can match the empty text. So following it always ends. Immutable after
 * loading; any thread. */
#ifndef VT_AUTOMATON_H
#define VT_AUTOMATON_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VT_AUTOMATON_BYTES   (1u << 20) /* the largest that travels */
#define VT_AUTOMATON_NO_MAX  UINT32_MAX
#define VT_AUTOMATON_CONTROL 0xFF /* before the text of a control token */
#define VT_AUTOMATON_END     0xFE /* and behind it */

enum vt_edge_kind {
    VT_EDGE_EMPTY,
    VT_EDGE_BYTES,  /* lo..hi */
    VT_EDGE_CALL,   /* arg: rule */
    VT_EDGE_REPEAT, /* arg: repeat */
};

struct vt_edge {
    uint8_t kind, lo, hi;
    uint32_t to, arg;
};

struct vt_repeat {
    uint32_t rule, min, max;
};

struct vt_automaton {
    uint32_t n_rules, n_states, n_edges, n_repeats;
    uint32_t *start; /* [n_rules] */
    uint32_t *first; /* [n_states + 1] edges of state s: first[s] .. first[s + 1] */
    bool *accept;    /* [n_states] */
    struct vt_edge *edges;
    struct vt_repeat *repeats;
};

/* What vt_automaton_check found, so that a compiler can say it in the words of its source. */
enum vt_automaton_flaw { VT_FLAW_NONE, VT_FLAW_LEFT_RECURSION, VT_FLAW_EMPTY_REPEAT };

/* Room for an automaton of that size, zeroed. */
int vt_automaton_alloc(struct vt_automaton *a, uint32_t n_rules, uint32_t n_states, uint32_t n_edges,
                       uint32_t n_repeats, struct vt_err *err);
void vt_automaton_fini(struct vt_automaton *a);

/* Marks the states from which their rule can end: without taking a byte, or (bytes) at all. mark: [n_states]. 0, or -1
 * without memory. Indices must be valid. */
int vt_automaton_ends(const struct vt_automaton *a, bool bytes, bool *mark, struct vt_err *err);

/* Left recursion and empty repeats of an automaton with valid indices: VT_E_GRAMMAR; *flaw and *rule tell which (both may be
 * NULL). Linear. */
int vt_automaton_check(const struct vt_automaton *a, enum vt_automaton_flaw *flaw, uint32_t *rule,
                       struct vt_err *err);

/* Bytes from anywhere. VT_E_GRAMMAR when they are no automaton as described above. */
int vt_automaton_load(struct vt_automaton *a, const uint8_t *bytes, size_t n, struct vt_err *err);

/* The bytes, malloc'd. VT_E_GRAMMAR when there are more than VT_AUTOMATON_BYTES. */
int vt_automaton_save(const struct vt_automaton *a, uint8_t **bytes, size_t *n, struct vt_err *err);

#endif
