/* Record: a small JSON file of the state directory that outlives vitriold: blessed records, forbidden shapes,
 * measurements, verdicts, suspects, ladder. Written whole or not at all, synced before it has its name. They are vitriold's
 * own; a file that cannot be read as what it should be is moved aside (NAME.bad) and told, never guessed at; one that cannot
 * be opened stays, and is not saved over while that is so.
 *
 * One thread; values are owned by the caller. */
#ifndef RECORD_H
#define RECORD_H

#include "err.h"

#include <jansson.h>

struct vt_log;

#define RECORD_MAX_BYTES (4u << 20)

/* The object kept under that name below `state`/records; an empty one when there is none. NULL: out of memory. log NULL: only
 * looked at, a damaged file stays where it is. */
json_t *record_load(const char *state, const char *name, struct vt_log *log);
int record_save(const char *state, const char *name, const json_t *value, struct vt_err *err);

#endif
