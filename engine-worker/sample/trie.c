#include "trie.h"

#include "automaton.h"

#include <stdlib.h>
#include <string.h>

struct word {
    const uint8_t *bytes;
    uint32_t n, id;
    bool control;
};

static uint32_t length(const struct word *w)
{
    return w->n + (w->control ? 2 : 0);
}

static uint8_t at(const struct word *w, uint32_t i)
{
    if (!w->control)
        return w->bytes[i];
    return i == 0 ? VT_AUTOMATON_CONTROL : i <= w->n ? w->bytes[i - 1] : VT_AUTOMATON_END;
}

static uint32_t common(const struct word *a, const struct word *b)
{
    uint32_t n = length(a) < length(b) ? length(a) : length(b), i = 0;
    while (i < n && at(a, i) == at(b, i))
        i++;
    return i;
}

static int compare(const void *x, const void *y)
{
    const struct word *a = x, *b = y;
    uint32_t n = common(a, b);
    if (n < length(a) && n < length(b))
        return at(a, n) < at(b, n) ? -1 : 1;
    if (length(a) != length(b))
        return length(a) < length(b) ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Words in order to nodes in preorder. */
static void fill(struct trie *t, const struct word *words, uint32_t n)
{
    uint32_t open[TRIE_LONGEST + 1], depth = 0; /* nodes on the way to the present word */
    for (uint32_t i = 0; i < n; i++) {
        const struct word *w = &words[i];
        uint32_t same = i > 0 ? common(&words[i - 1], w) : 0;
        while (depth > same)
            t->nodes[open[depth--]].skip = t->n_nodes;
        while (depth < length(w)) {
            uint8_t byte = at(w, depth);
            open[++depth] = t->n_nodes;
            t->nodes[t->n_nodes++] = (struct trie_node){.tokens = i, .depth = (uint16_t)depth, .byte = byte};
        }
        t->ids[i] = w->id;
        t->nodes[open[depth]].n_tokens++;
        if (length(w) > t->longest)
            t->longest = length(w);
    }
    while (depth > 0)
        t->nodes[open[depth--]].skip = t->n_nodes;
    t->n_ids = n;
}

int trie_make(struct trie *t, const struct trie_token *tokens, uint32_t n, uint32_t from, uint32_t to,
              struct vt_err *err)
{
    uint64_t bytes = 1;
    uint32_t n_words = 0;
    *t = (struct trie){0};
    struct word *words = malloc(((size_t)n + 1) * sizeof *words);
    for (uint32_t i = 0; words && i < n; i++) {
        struct word w = {tokens[i].bytes, tokens[i].n, i, tokens[i].control};
        if (w.n == 0 || w.n >= TRIE_LONGEST || length(&w) < from || length(&w) > to ||
            length(&w) > TRIE_LONGEST)
            continue;
        words[n_words++] = w;
        bytes += length(&w);
    }
    if (words) {
        qsort(words, n_words, sizeof *words, compare);
        t->nodes = malloc(bytes * sizeof *t->nodes);
        t->ids = malloc(((size_t)n_words + 1) * sizeof *t->ids);
    }
    if (!t->nodes || !t->ids) {
        free(words);
        trie_fini(t);
        return vt_fail(err, VT_E_NOMEM, "out of memory for the tokens of a vocabulary of %u", n);
    }
    fill(t, words, n_words);
    free(words);
    struct trie_node *less = realloc(t->nodes, ((size_t)t->n_nodes + 1) * sizeof *less);
    t->nodes = less ? less : t->nodes;
    return 0;
}

void trie_fini(struct trie *t)
{
    free(t->nodes);
    free(t->ids);
    *t = (struct trie){0};
}
