/* Grammars: what a constrained answer may look like, from GBNF text, from a JSON schema, or put together from parts, to the
 * bytes of an automaton (automaton.h) that an engine applies.
 *
 * A part is a rule, named by a number of this grammar. Making parts never fails visibly: the first error is kept, every further
 * call is harmless, and grammar_finish tells it. (The functions that return int tell it at once as well.) All errors are
 * VT_E_GRAMMAR, in words that name the place in the source, except VT_E_NOMEM. Time and memory of everything are bounded.
 * A grammar belongs to one thread.
 *
 *     struct grammar *g = grammar_new();
 *     uint32_t call[] = {grammar_text(g, "<tool_call>\n{\"name\": \"f\", \"arguments\": ", n), grammar_schema(g, schema, "tools[0]"),
 *                        grammar_text(g, "}\n</tool_call>", m)};
 *     uint32_t root = grammar_seq(g, call, 3);
 *     grammar_finish(g, root, &bytes, &n_bytes, &err);
 *     grammar_free(g); */
#ifndef GRAMMAR_H
#define GRAMMAR_H

#include "err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_MANY UINT32_MAX /* no upper end of a repetition */

struct grammar;

struct grammar *grammar_new(void);    /* NULL: out of memory */
void grammar_free(struct grammar *g); /* NULL is fine */

/* JSON texts that are valid under a schema (schema.h says which schemas, and in which form the texts are). where: how messages
 * name the schema, "json_schema" for instance. */
uint32_t grammar_schema(struct grammar *g, const json_t *schema, const char *where);
/* Any JSON object. */
uint32_t grammar_object(struct grammar *g);
/* Texts of a GBNF grammar: its rule `root`. */
uint32_t grammar_gbnf(struct grammar *g, const char *text, size_t n);

uint32_t grammar_text(struct grammar *g, const char *text, size_t n); /* exactly this; UTF-8 */
/* The control token with this text, the token itself and not its letters. A model without it cannot go this way. */
uint32_t grammar_token(struct grammar *g, const char *text, size_t n);
uint32_t grammar_seq(struct grammar *g, const uint32_t *parts,
                     size_t n); /* one after the other; n 0: the empty text */
uint32_t grammar_any_of(struct grammar *g, const uint32_t *parts, size_t n);
uint32_t grammar_repeat(struct grammar *g, uint32_t part, uint32_t min, uint32_t max);
uint32_t grammar_space(
    struct grammar *g); /* the white space that schemas allow between tokens of JSON; may be empty */
uint32_t grammar_free_text(struct grammar *g); /* anything, also nothing */
/* Anything in which `text` (n >= 1) occurs once, at its end. */
uint32_t grammar_until(struct grammar *g, const char *text, size_t n);

/* The bytes (malloc'd) for texts of `root`. g stays as it was and can be built on. */
int grammar_finish(struct grammar *g, uint32_t root, uint8_t **bytes, size_t *n, struct vt_err *err);
/* 0, or -1 with the first error. */
int grammar_error(const struct grammar *g, struct vt_err *err);

#endif
