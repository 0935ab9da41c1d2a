/* Paths of a project for completion: a folder's listing, or names anywhere below the root that hold the word's letters. Hidden
 * names and the usual build folders are left out unless asked for by their dot. Bounded: PATHS_SEEN entries are looked at. */
#ifndef OFF_PATHS_H
#define OFF_PATHS_H

#include "view/ui.h"

#define PATHS_SEEN 20000

void paths_complete(const char *root, const char *word, struct menu *out);

#endif
