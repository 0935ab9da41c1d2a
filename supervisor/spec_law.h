/* Spec law: guessing tokens is on by measurement, per shape. A configuration whose engine.spec is not none may run only where one
 * blessed record holds how fast its very shape decoded, and how fast the same shape did without guesses. Pure. */
#ifndef SPEC_LAW_H
#define SPEC_LAW_H

#include "kv.h"

#include "config.h"
#include "err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* engine.spec_n; 0 when engine.spec is none. */
uint32_t spec_law_n(const struct vt_config *cfg);
/* The same shape without guesses. */
int spec_law_twin(const struct kv *shape, struct kv *out);
/* What a blessed record keeps for the law: {"shape": {…}, "with": tokens/s, "without": tokens/s}; figures that were not measured
 * are left out. NULL: no memory. */
json_t *spec_law_pair(const struct kv *shape, const json_t *measures);
/* -1 with VT_E_CONFIG: blessed (of records by tag, each with "pair") does not allow the shape. devices: those of the shape are
 * known; else the records' are believed, until a launch tells them. */
int spec_law_allows(const json_t *blessed, const struct kv *shape, bool devices, struct vt_err *err);

#endif
