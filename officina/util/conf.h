/* Configuration files in VITRIOL's own dialect: [section] or [kind name], `key = value`, `#` comments (a line's own, or
 * behind two blanks). Values are text to the end of the line. A duplicate key of one section is a fault.
 *
 * What the keys mean is the reader's matter: it is called for each assignment and answers with a fault or takes it. */
#ifndef OFF_CONF_H
#define OFF_CONF_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

struct conf_line {
    const char *file; /* for messages */
    unsigned line;
    const char *kind; /* of [kind name]; "" before the first section */
    const char *name; /* "" for [kind] */
    const char *key, *value;
};

/* Returns 0, or -1 with err: file, line and what is wrong. A line with key NULL announces a section. */
typedef int (*conf_taker)(void *arg, const struct conf_line *l, struct vt_err *err);

int conf_parse(const char *text, size_t len, const char *file, conf_taker take, void *arg,
               struct vt_err *err);
/* missing_ok: an absent file is empty. own_only: the file must belong to the user and others may not read it. */
int conf_file(const char *path, bool missing_ok, bool own_only, conf_taker take, void *arg,
              struct vt_err *err);
/* A fault about a line: "FILE:LINE: …". */
int conf_fail(const struct conf_line *l, struct vt_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* yes/no, on/off, true/false; -1 with err otherwise. */
int conf_bool(const struct conf_line *l, bool *out, struct vt_err *err);

#endif
