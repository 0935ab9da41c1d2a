/* Builder: the inside of a grammar, for the compilers of this folder. States and edges of a recursive transition network;
 * a piece of a rule is everything between two states. */
#ifndef GRAMMAR_BUILDER_H
#define GRAMMAR_BUILDER_H

#include "grammar.h"

#include "automaton.h"

enum {
    MAX_RULES = 1 << 16,
    MAX_STATES = 1 << 18,
    MAX_EDGES = 1 << 18,
};

struct build_edge {
    uint32_t from;
    struct vt_edge e;
};

struct build_rule {
    uint32_t start;
    char *name; /* for messages; NULL: made up */
};

/* Rules of JSON that many places run; UINT32_MAX: not made yet. */
enum json_rule {
    RULE_SPACE,
    RULE_CHAR,   /* of a string: as it is or escaped */
    RULE_STRING, /* with its quotes */
    RULE_DIGIT,
    RULE_INTEGER,
    RULE_NUMBER,
    RULE_VALUE,
    RULE_OBJECT,
    RULE_ARRAY,
    RULE_MEMBER, /* "key": value */
    RULE_N
};

struct grammar {
    struct build_rule *rules;
    uint32_t n_rules, cap_rules;
    bool *accept;
    uint32_t n_states, cap_states;
    struct build_edge *edges;
    uint32_t n_edges, cap_edges;
    struct vt_repeat *repeats;
    uint32_t n_repeats, cap_repeats;
    uint32_t json[RULE_N];
    struct vt_err err; /* code 0: none */
};

/* Keeps the first error. Returns 0, so that `return build_fail(g, …)` gives a harmless rule or state. */
uint32_t build_fail(struct grammar *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool build_failed(const struct grammar *g);

uint32_t build_state(struct grammar *g);
/* A rule that begins at `start` and ends at `end`. name: copied, may be NULL. */
uint32_t build_rule(struct grammar *g, uint32_t start, uint32_t end, const char *name);
void build_empty(struct grammar *g, uint32_t from, uint32_t to);
void build_bytes(struct grammar *g, uint32_t from, uint32_t to, uint8_t lo, uint8_t hi);
void build_call(struct grammar *g, uint32_t from, uint32_t to, uint32_t rule);
/* max 0 is the empty text. */
void build_repeat(struct grammar *g, uint32_t from, uint32_t to, uint32_t rule, uint32_t min, uint32_t max);
/* The state behind a text. */
uint32_t build_text(struct grammar *g, uint32_t from, const char *text, size_t n);
uint32_t build_word(struct grammar *g, uint32_t from, const char *word); /* the same, NUL-terminated */
/* The state behind a rule. */
uint32_t build_then(struct grammar *g, uint32_t from, uint32_t rule);

/* json_rules.c */
uint32_t build_json(struct grammar *g, enum json_rule which);

/* finish.c */
int build_finish(const struct grammar *g, uint32_t root, struct vt_automaton *out, struct vt_err *err);

#endif
