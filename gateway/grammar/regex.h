/* Regular expressions of `pattern`: the part of ECMA 262 (and so of PCRE2) that a finite automaton can do, compiled to texts of
 * a JSON string, its quotes not included. Supported: literals, ., classes, \d \w \s and their opposites, escapes, groups,
 * alternatives, quantifiers (lazy ones mean the same), ^ at the beginning and $ at the end of an alternative of the whole.
 * Back references, look-around, \b, \p{…} and flags are refused by name. Without anchors a match may be anywhere. */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include "builder.h"

/* where: names the place in messages. */
void regex_build(struct grammar *g, uint32_t from, uint32_t to, const char *text, size_t n,
                 const char *where);

#endif
