/* Constraints: which tokens may come next under a grammar.
 *
 * The engine holds one `constraints` for its vocabulary. A request opens a state from the bytes of an automaton, asks it for a
 * mask before each pick and advances it by each id. States of the same grammar share what has been computed: a mask is made
 * once for each place in the grammar, by a walk over the vocabulary's trie, and then looked up.
 *
 * A state can be copied and advanced by several tokens, for drafts. A grammar that cannot be followed within its limits is an
 * error, never an open mask. One thread at a time for a `constraints` and everything opened from it. */
#ifndef CONSTRAINT_H
#define CONSTRAINT_H

#include "err.h"
#include "trie.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct constraints;
struct grammar_use;

/* One of two forms, whichever is smaller. Valid until a state of its grammar is advanced. */
struct token_mask {
    const uint32_t *ids;  /* n allowed ids, ascending; NULL: see bits */
    uint32_t n;           /* allowed */
    const uint64_t *bits; /* bit id % 64 of word id / 64 */
};
static inline bool token_mask_has(const struct token_mask *m, uint32_t id)
{
    if (m->bits)
        return m->bits[id / 64] >> (id % 64) & 1;
    uint32_t lo = 0, hi = m->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (m->ids[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < m->n && m->ids[lo] == id;
}

/* Where a text stands; zeroed: no constraint. */
struct constraint {
    struct grammar_use *use;
    struct constraint *prev, *next;
    uint32_t set;
    bool ended; /* an end-of-generation id has come */
};

/* tokens: [n_vocab], their bytes are borrowed for the life of the constraints. eog: ids that end a generation; they are allowed
 * exactly where the grammar can end. */
int constraints_new(struct constraints **out, const struct trie_token *tokens, uint32_t n_vocab,
                    const uint32_t *eog, size_t n_eog, struct vt_err *err);
void constraints_free(struct constraints *cs); /* everything opened must be closed */

/* VT_E_GRAMMAR: the bytes are no automaton (automaton.h), or it is too large to start. */
int constraint_open(struct constraints *cs, const uint8_t *bytes, size_t n, struct constraint *c,
                    struct vt_err *err);
void constraint_copy(struct constraint *to, const struct constraint *from); /* to is not open before */
void constraint_close(struct constraint *c);                                /* c may be zeroed */

/* The next id. VT_E_GRAMMAR: it is not allowed here, or a limit was met; c stays where it was. */
int constraint_advance(struct constraint *c, uint32_t id, struct vt_err *err);
/* What may come next. VT_E_GRAMMAR: nothing may, or a limit was met. */
int constraint_mask(struct constraint *c, struct token_mask *m, struct vt_err *err);
/* Asking for it would be a look-up. */
bool constraint_has_mask(struct constraint *c);
bool constraint_can_end(const struct constraint *c);

struct constraint_stats {
    uint64_t masks, made; /* asked for; of these computed */
    uint32_t sets;
};
void constraint_stats(const struct constraint *c, struct constraint_stats *s);

#endif
