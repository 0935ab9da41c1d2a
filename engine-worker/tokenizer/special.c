#include "special.h"

#include <stdlib.h>

static uint32_t new_node(struct special *sp, uint8_t byte, struct vt_err *err)
{
    if (sp->n == sp->cap) {
        const uint32_t cap = sp->cap * 2 + 256;
        struct special_node *nodes = realloc(sp->nodes, (size_t)cap * sizeof *nodes);
        if (!nodes) {
            vt_fail(err, VT_E_NOMEM, "no memory for %u nodes of special tokens", cap);
            return 0;
        }
        sp->nodes = nodes;
        sp->cap = cap;
    }
    sp->nodes[sp->n] = (struct special_node){0, 0, VOCAB_NONE, VOCAB_NONE, byte};
    return sp->n++;
}

static int add(struct special *sp, const uint8_t *s, size_t n, uint32_t id, bool user, struct vt_err *err)
{
    uint32_t at = sp->root[s[0]];
    if (!at) {
        at = sp->root[s[0]] = new_node(sp, s[0], err);
        if (!at)
            return -1;
    }
    for (size_t i = 1; i < n; i++) {
        uint32_t c = sp->nodes[at].child;
        while (c && sp->nodes[c].byte != s[i])
            c = sp->nodes[c].next;
        if (!c) {
            c = new_node(sp, s[i], err);
            if (!c)
                return -1;
            sp->nodes[c].next = sp->nodes[at].child;
            sp->nodes[at].child = c;
        }
        at = c;
    }
    uint32_t *end = user ? &sp->nodes[at].user : &sp->nodes[at].control;
    if (*end == VOCAB_NONE)
        *end = id;
    return 0;
}

int special_load(struct special *sp, const struct vocab *v, struct vt_err *err)
{
    *sp = (struct special){.n = 0};
    new_node(sp, 0, err); /* node 0 means "none" */
    if (!sp->n)
        return -1;
    for (uint32_t id = 0; id < v->n; id++) {
        if (v->kind[id] != TOK_CONTROL && v->kind[id] != TOK_USER && v->kind[id] != TOK_UNKNOWN)
            continue;
        size_t n;
        const uint8_t *s = strings_at(&v->bytes, id, &n);
        if (n && n <= SPECIAL_LONGEST && add(sp, s, n, id, v->kind[id] == TOK_USER, err)) {
            special_fini(sp);
            return -1;
        }
    }
    return 0;
}

void special_fini(struct special *sp)
{
    free(sp->nodes);
    *sp = (struct special){.n = 0};
}

uint32_t special_match(const struct special *sp, const uint8_t *s, size_t n, size_t trusted, size_t *len)
{
    uint32_t best = VOCAB_NONE;
    uint32_t at = sp->root[s[0]];
    for (size_t i = 1; at; i++) {
        const struct special_node *node = &sp->nodes[at];
        if (node->control != VOCAB_NONE && i <= trusted) {
            best = node->control;
            *len = i;
        } else if (node->user != VOCAB_NONE) {
            best = node->user;
            *len = i;
        }
        if (i == n)
            break;
        uint32_t c = node->child;
        while (c && sp->nodes[c].byte != s[i])
            c = sp->nodes[c].next;
        at = c;
    }
    return best;
}
