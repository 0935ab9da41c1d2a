/* Jinja: the template language of chat templates, as a lexer, parser and evaluator of our own, sandboxed: bounded steps,
 * depth, memory and output; no access to anything but the values it is given. A parsed template is immutable and may be
 * rendered from any thread. Values are jansson JSON. */
#ifndef JINJA_H
#define JINJA_H

#include "err.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct jinja;

struct jinja_limits {
    uint64_t steps;   /* evaluated nodes; 0 = default 10 million */
    size_t output;    /* bytes; 0 = default 64 MiB */
    size_t memory;    /* bytes of values; 0 = default 256 MiB */
    unsigned depth;   /* nesting of expressions, blocks and calls; 0 = default 128 */
};

/* Errors name line and column of the template. */
int jinja_parse(struct jinja **out, const char *text, size_t len, struct vt_err *err);
void jinja_free(struct jinja *t);

/* Renders with the globals of `vars` (an object, borrowed). *out is malloc'd, NUL-terminated. VT_E_PARAM with the message
 * of raise_exception() when the template calls it; now_us: wall time for strftime_now. */
int jinja_render(const struct jinja *t, const json_t *vars, const struct jinja_limits *lim, uint64_t now_us, char **out,
                 size_t *out_len, struct vt_err *err);

#endif
