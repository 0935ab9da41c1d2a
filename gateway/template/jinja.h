/* Jinja: the template language of chat templates, as a lexer, parser and evaluator of our own, sandboxed: bounded steps,
 * depth, memory and output; no access to anything but the values it is given. A parsed template is immutable and may be
 * rendered from any thread. Values are jansson JSON.
 *
 * The dialect is the one chat templates are written for: trim_blocks and lstrip_blocks on, loop controls, undefined names
 * print nothing, no HTML escapes, tojson as json.dumps(ensure_ascii=False), raise_exception, strftime_now and the
 * generation tag. No includes, imports or inheritance. */
#ifndef JINJA_H
#define JINJA_H

#include "err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja;

struct jinja_limits {
    uint64_t steps; /* evaluated nodes and 64-byte stretches of text worked on; 0 = default 10 million */
    size_t output;  /* bytes; 0 = default 64 MiB */
    size_t memory;  /* bytes of values; 0 = default 256 MiB */
    unsigned depth; /* nesting of expressions, blocks, calls and values; 0 = default 256, at most 1000 */
};

/* Errors name line and column of the template. Templates have at most 1 MiB. */
int jinja_parse(struct jinja **out, const char *text, size_t len, struct vt_err *err);
void jinja_free(struct jinja *t); /* t may be NULL */

/* Rendered text. Stretches go from the end of the one before to `end`; `input` ones came from the vars, the others from the
 * template (or from the trusted vars). The last stretch ends at len; an empty text has none. */
struct jinja_text {
    char *text; /* malloc'd, NUL-terminated */
    size_t len;
    struct jinja_span {
        size_t end;
        bool input;
    } * spans; /* malloc'd */
    size_t n_spans;
};
void jinja_text_fini(struct jinja_text *r);

/* Renders with the globals of `vars` and `trusted` (objects or NULL, borrowed; trusted wins). VT_E_PARAM with the message of
 * raise_exception() when the template calls it, or saying which limit was reached; now_us: wall time for strftime_now.
 * lim may be NULL. On failure nothing is in *out. */
int jinja_render_spans(const struct jinja *t, const json_t *vars, const json_t *trusted,
                       const struct jinja_limits *lim, uint64_t now_us, struct jinja_text *out,
                       struct vt_err *err);

/* The same without marks. *out is malloc'd, NUL-terminated. */
int jinja_render(const struct jinja *t, const json_t *vars, const struct jinja_limits *lim, uint64_t now_us,
                 char **out, size_t *out_len, struct vt_err *err);

#endif
