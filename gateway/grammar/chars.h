/* Sets of characters (code points), and the byte automata that take one character of a set: as UTF-8, or as a character inside
 * of a JSON string in its usual form. Surrogates are no characters. */
#ifndef GRAMMAR_CHARS_H
#define GRAMMAR_CHARS_H

#include "builder.h"

#define CHARS_LAST 0x10FFFFu

struct chars {
    struct char_range {
        uint32_t lo, hi;
    } * r;
    uint32_t n, cap;
    bool failed; /* out of memory */
};

void chars_fini(struct chars *c);
void chars_add(struct chars *c, uint32_t lo, uint32_t hi);
void chars_add_all(struct chars *c, const struct chars *more);
/* Sorted, without overlaps. */
void chars_sort(struct chars *c);
void chars_invert(struct chars *c); /* sorts, too */

void chars_build(struct grammar *g, uint32_t from, uint32_t to, const struct chars *c);
/* As json.dumps and its relatives write them: quote, backslash and the five common controls escaped, other controls as \u00XX
 * (or \u001F for the few there are with letters in either case), everything else as it is. */
void chars_build_json(struct grammar *g, uint32_t from, uint32_t to, const struct chars *c);

/* The character at s (n >= 1 bytes left) and its length; 0: not UTF-8. */
size_t chars_decode(const char *s, size_t n, uint32_t *cp);

#endif
