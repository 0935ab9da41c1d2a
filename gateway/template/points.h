/* Code points: what string operations of templates need to know of Unicode. Strings are valid UTF-8. Pure functions. */
#ifndef TEMPLATE_POINTS_H
#define TEMPLATE_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of the valid prefix; n when all of it is UTF-8. */
size_t utf8_valid(const char *s, size_t n);
/* Reads the code point at s and returns its length. */
size_t point_get(const char *s, size_t n, uint32_t *cp);
size_t point_put(uint32_t cp, char *out); /* out has room for 4 */
size_t points_count(const char *s, size_t n);
/* The byte offset of code point k (k may be the count). */
size_t points_offset(const char *s, size_t n, size_t k);

/* White space as Python's str.isspace(). */
bool point_is_space(uint32_t cp);
/* Bytes of white space that s begins with; and the length of s without the white space that it ends with. */
size_t space_run(const char *s, size_t n);
size_t space_end(const char *s, size_t n);

bool point_is_upper(uint32_t cp);
bool point_is_lower(uint32_t cp);
bool point_is_alpha(uint32_t cp);
bool point_is_digit(uint32_t cp);
/* Whether repr() shows it as it is. */
bool point_is_printable(uint32_t cp);
/* Writes the upper or lower case form; out has room for 8. */
size_t point_upper(uint32_t cp, char *out);
size_t point_lower(uint32_t cp, char *out);

#endif
