/* The project's folder as an open handle, and files beneath it.
 *
 * Every path is opened by the kernel's "beneath" resolution: neither `..` nor a link leads out, whatever is
 * renamed meanwhile. Links that stay inside are followed; a dangling one is refused. A write makes a file
 * beside the target and renames it, so a file is old or new and never in between, and a file with several
 * hard links is replaced, not written through. Any thread; a struct root is read-only once it is open. */
#ifndef OFF_ROOT_H
#define OFF_ROOT_H

#include "err.h"
#include "util/text.h"

#include <stdbool.h>
#include <sys/stat.h>

enum { ROOT_MAX_FILE = 64 << 20 };

struct root {
    int fd;
    char *path;        /* absolute, resolved */
    struct root *more; /* folders that the user added; what lies in them is named by its absolute path */
};

int root_open(struct root *r, const char *path, struct vt_err *err);
void root_close(struct root *r);
/* One more folder beside the project, while no other thread uses r. It may neither hold the project nor lie in it. */
int root_add(struct root *r, const char *path, struct vt_err *err);
void root_drop(struct root *r); /* takes back the one that was added last */
/* rel without the folder that was added: what lies in the project is given back as it is. */
const char *root_inner(const struct root *r, const char *rel);
/* `given` as the model wrote it → relative to the root without `.` and `..`; "." is the root itself. NULL
 * with err when it leads out. Caller frees. */
char *root_relative(const struct root *r, const char *given, struct vt_err *err);
/* openat2 beneath the root; VT_E_NOT_FOUND when it is not there, VT_E_PERM when a link leads out. */
int root_openat(const struct root *r, const char *rel, int flags, struct vt_err *err);
/* The file's bytes, appended; regular files up to 64 MiB. st may be NULL. */
int root_read(const struct root *r, const char *rel, struct text *out, struct stat *st, struct vt_err *err);
/* Where rel ends once its links are followed, relative to the root; a file that is not there yet is itself.
 * Caller frees. */
char *root_real(const struct root *r, const char *rel, struct vt_err *err);
/* Writes the whole file atomically; missing folders are made. mode: of a new file; an existing one keeps its
 * own. */
int root_write(const struct root *r, const char *rel, const char *bytes, size_t n, mode_t mode,
               struct vt_err *err);
/* The same with the mode as given, and in the place of whatever is there but a folder: a link is replaced,
 * not followed. */
int root_put(const struct root *r, const char *rel, const char *bytes, size_t n, mode_t mode,
             struct vt_err *err);
int root_remove(const struct root *r, const char *rel, struct vt_err *err);
/* A symbolic link in the place of whatever is there. */
int root_symlink(const struct root *r, const char *rel, const char *target, struct vt_err *err);
/* Removes the folders of rel that are empty, from the innermost. */
void root_prune(const struct root *r, const char *rel);

#endif
