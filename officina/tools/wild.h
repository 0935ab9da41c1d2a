/* Patterns with wildcards: of paths, ignore files and rules. Pure; any thread. Time is bounded by the
 * product of the lengths. */
#ifndef OFF_WILD_H
#define OFF_WILD_H

#include <stdbool.h>

/* `*` and `?` do not cross `/`, `**` does (a `**` component followed by `/` may be nothing), [a-z] and
 * [!a-z] are classes, `\` takes the next byte as it is. */
bool wild_path(const char *pattern, const char *path);
/* For rules: `*` stands for any bytes, nothing else is special; a final " *" may be absent altogether ("make
 * *" is "make"). */
bool wild_rule(const char *pattern, const char *text);

#endif
