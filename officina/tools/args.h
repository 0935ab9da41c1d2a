/* Arguments of a tool call as the model wrote them → a canonical object that fits the schema, or a sentence about the fault.
 *
 * Strict JSON first (duplicate keys, trailing text and bad Unicode are faults). Repairs, each told: nothing → {}, a code
 * fence around the object, an object inside a JSON string, a number or boolean as a string where the schema wants the other
 * and the reverse, a lone surrogate → U+FFFD. Members that the schema does not know are dropped with a remark; a missing or
 * mistyped one is a fault. Pure; any thread. */
#ifndef OFF_ARGS_H
#define OFF_ARGS_H

#include "util/text.h"

/* Returns 0 with the canonical object (members in the order of the model) in out and what was mended in remark (empty:
 * nothing), or -1 with what is wrong, and where, in remark. schema: of a struct tool_spec, or of an MCP tool; one that is no
 * object with properties takes any object. */
int args_read(const char *schema, const char *bytes, size_t n, struct text *out, struct text *remark);

#endif
