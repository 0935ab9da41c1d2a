/* Suggestions: the names of a list that are nearest to a word somebody mistyped. Pure; any thread. */
#ifndef VT_SUGGEST_H
#define VT_SUGGEST_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap of neighbours) between two words of at most 63 bytes; longer ones are
 * far apart. */
unsigned vt_edit_distance(const char *a, const char *b);
/* Writes "; did you mean a, b or c?" for up to three near names, or "" when none is near. Returns out. */
const char *vt_suggest(const char *word, const char *const *names, size_t n, char *out, size_t size);

#endif
