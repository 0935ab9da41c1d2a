/* The invariants of a database at rest, for `vitriol-store --check` and for the fault suites:
 *   I1 every head restores, its bytes included
 *   I2 no block without its payload, no manifest with a hole in its list or a snapshot that is not there
 *   I3 SQLite's own checks are content
 * Database thread; no save or restore may be open. */
#ifndef STORE_CHECK_H
#define STORE_CHECK_H

#include "store.h"

#include <stdio.h>

struct check_result {
    uint64_t heads, blocks, bytes; /* looked at */
    uint64_t bad;                  /* blocks marked bad: evidence, no violation */
    uint64_t violations;
};

/* Lines for people go to out (may be NULL): one a head, one a violation. -1 only when the check itself cannot
 * run. */
int store_check(struct store *s, FILE *out, struct check_result *r, struct vt_err *err);

#endif
