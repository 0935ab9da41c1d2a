/* What the shadow repository keeps: a reference for every tree that a turn may need, and a bound on the whole.
 *
 * A reference is refs/snap/TIME-SESSION; TIME is microseconds with leading zeros, so names sort by age. Loose objects are
 * packed when there are many. Above the limit the oldest references are given up, half of them at a time and never those of
 * the open conversation, and what they alone held is deleted. Blocks (git); the worker's thread. */
#ifndef OFF_SNAP_KEEP_H
#define OFF_SNAP_KEEP_H

#include "snap/git.h"

#include <stdint.h>

#define KEEP_BYTES (UINT64_C(4) << 30)
#define KEEP_LOOSE 4000

/* Refers to that tree from now on. */
int keep_tree(const struct git *g, const char *session, const char *tree, struct vt_err *err);
/* Packs and, above `most` bytes, forgets. What is younger than `age` ("1.hour.ago", "now") is not deleted: another process may
 * be writing it. Returns how many references were given up, -1 with err. */
int keep_tidy(const struct git *g, const char *session, uint64_t most, const char *age, struct vt_err *err);
/* Bytes of the objects; *loose: how many lie in files of their own (may be NULL). */
uint64_t keep_size(const struct git *g, size_t *loose);

#endif
