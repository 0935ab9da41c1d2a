/* Small files whole, and the state folder. */
#ifndef OFF_FILE_H
#define OFF_FILE_H

#include "err.h"
#include "util/text.h"

/* Appends the file's bytes to out. More than max bytes is a fault. */
int file_read(const char *path, size_t max, struct text *out, struct vt_err *err);
/* Writes beside it and renames; mode 0600. */
int file_write(const char *path, const char *bytes, size_t n, struct vt_err *err);
/* Makes dir and its parents with mode 0700; a link, a stranger's folder or one that others may write is a fault. */
int file_own_dir(const char *dir, struct vt_err *err);
/* path with the user's home folder shown as ~. Caller frees. */
char *file_tilde(const char *path);

#endif
