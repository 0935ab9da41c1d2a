/* The shadow repository: the `git` program with fixed arguments and a cleaned environment. No user or system
 * configuration, no hooks, no file-system monitor, no prompts, no packing; attributes that would change
 * bytes are off. Names are SHA-256. Blocks; one thread at a time for one repository. */
#ifndef OFF_SNAP_GIT_H
#define OFF_SNAP_GIT_H

#include "err.h"
#include "util/text.h"

struct git {
    char *root, *dir, *index; /* project, repository, this conversation's index */
};

/* Makes the repository when it is not there. dir: home/shadow/KEY.git. */
int git_open(struct git *g, const char *root, const char *home, const char *session, struct vt_err *err);
void git_close(struct git *g);
/* Runs git with the arguments (NULL-terminated, without "git"); in: its standard input; out gets its
 * standard output. A failure says git's own words. */
int git_run(const struct git *g, const char *const *args, const struct text *in, struct text *out,
            struct vt_err *err);
/* In the user's own repository, for looking only. Its configuration may name programs (filters, a transport),
 * so git runs in the read-only sandbox without network, and not at all where there is none. args: plain
 * words, no quoting. home: the state folder, which is hidden. */
int git_look(const char *root, const char *home, const char *const *args, struct text *out,
             struct vt_err *err);
/* Name of a blob with these bytes, 64 hex digits and a NUL. */
void git_blob_name(const char *bytes, size_t n, char out[65]);

#endif
