/* The project's files that are not ignored, in a fixed order (by name, folders in place), with the rules of
 * .gitignore files in every folder and of .git/info/exclude at the root of each repository. Links are
 * reported, not followed; `.git` is never entered. Any thread. */
#ifndef OFF_WALK_H
#define OFF_WALK_H

#include "tools/root.h"

#include <stdatomic.h>

enum { WALK_MAX = 200000 }; /* entries looked at */

/* Called for each regular file and link. Returns 0 to go on, else the walk ends with that value. */
typedef int (*walk_fn)(void *arg, const char *rel, const struct stat *st);

/* from: a folder, "." for all; itself never ignored. stop may be NULL; set to 1 it ends the walk with 1.
 * `ignored` also gets what is ignored (its folders once, with a `/` behind), and may be NULL. Returns what
 * fn returned, 0 at the end, -1 when there are too many entries. */
int walk(const struct root *r, const char *from, walk_fn fn, walk_fn ignored, void *arg,
         const atomic_int *stop);

#endif
