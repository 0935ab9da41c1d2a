/* Dialect: the lines of VITRIOL's configuration files, whoever reads them: `[section]`, `key = value`, and `#` comments on lines of
 * their own. What sections and keys mean, and which may come twice, is the reader's matter. Pure; any thread. */
#ifndef VT_DIALECT_H
#define VT_DIALECT_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

struct vt_dialect {
    const char *file; /* for messages */
    unsigned line;
    /* Trimmed, and the taker's to change until it returns. A section: its line, `[` first, and NULL for the others. */
    char *section, *key, *value;
};

/* -1 with err: reading ends there. */
typedef int (*vt_dialect_taker)(void *arg, struct vt_dialect *l, struct vt_err *err);

/* tail_comments: ` #` with one more blank before it ends a value. VT_E_CONFIG with file and line: a line beyond 8191 bytes, a
 * NUL, no `=`. */
int vt_dialect_read(const char *text, size_t len, const char *file, bool tail_comments, vt_dialect_taker take,
                    void *arg, struct vt_err *err);
/* s without white space around it; changes s. */
char *vt_trim(char *s);

#endif
