/* Trie of a vocabulary over bytes: what plain text can be made of, and control tokens under a byte of their own (automaton.h).
 * In preorder, so that a walk is one loop; the tokens below a node are neighbours. Immutable; any thread. */
#ifndef TRIE_H
#define TRIE_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

struct trie_token {
    const uint8_t *bytes;
    uint32_t n;   /* 0: never part of a constrained text */
    bool control; /* stands for itself, not for its text */
};

struct trie_node {
    uint32_t skip;             /* the node behind everything below this one */
    uint32_t tokens, n_tokens; /* in trie.ids: those that end exactly here */
    uint16_t depth;            /* bytes up to and including this one, from 1 */
    uint8_t byte;
};

struct trie {
    struct trie_node *nodes;
    uint32_t n_nodes;
    uint32_t *ids;
    uint32_t n_ids;
    uint32_t longest; /* bytes */
};

#define TRIE_LONGEST                                                                                         \
    4098 /* bytes on the way to a token, those around a control token included; longer ones are left out */

/* Of the tokens that are at least `from` and at most `to` such bytes long. */
int trie_make(struct trie *t, const struct trie_token *tokens, uint32_t n, uint32_t from, uint32_t to,
              struct vt_err *err);
void trie_fini(struct trie *t);

#endif
