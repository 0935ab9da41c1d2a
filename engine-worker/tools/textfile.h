/* Files that a command reads whole: text, and lists of token ids. */
#ifndef TOOL_TEXTFILE_H
#define TOOL_TEXTFILE_H

#include "tokenizer.h"

/* malloc'd, NUL-terminated. "-" is standard input. */
int textfile_read(const char *path, char **bytes, size_t *len, struct vt_err *err);
/* Numbers separated by blanks, or a JSON array of them. */
int textfile_ids(const char *path, struct tok_ids *out, struct vt_err *err);

#endif
