/* The sandbox that commands run in: bubblewrap where it works, else Landlock with a filter of system calls
 * ("weak"), else nothing.
 *
 * With bubblewrap the whole file system is read-only but for the project, /tmp is private, credentials of
 * the home and Officina's own state are hidden, `.git/hooks`, `.git/config`, `.officina` and editor settings
 * stay read-only, and process, user, ipc and network space are its own. Plan makes the project read-only
 * too. The weak level restricts writing (project and /tmp) and the network but cannot hide files, and its
 * kernel may let truncation through; with the network allowed it has no filter. One thread; a struct box is
 * read-only once it is open. */
#ifndef OFF_BOX_H
#define OFF_BOX_H

#include "err.h"
#include "util/text.h"

#include <stdbool.h>

enum box_level { BOX_OFF, BOX_NONE, BOX_WEAK, BOX_PROJECT, BOX_STRICT };

struct box {
    enum box_level level;
    char *root, *home, *state; /* project, the user's home, Officina's state folder; absolute */
    char **more;               /* folders that the user added, NULL-terminated; or NULL */
    size_t n_more;
    int filter;    /* BPF of the system-call filter as a file for bwrap, or -1 */
    void *program; /* the same in memory, for the weak level */
    size_t program_len;
};

/* want: "project", "strict" or "off". Looks what this machine can do (a bwrap that really starts). */
int box_open(struct box *b, const char *want, const char *root, const char *state, struct vt_err *err);
void box_close(struct box *b);
/* Commands may write in this folder, too (absolute, resolved): refused where it would open what is hidden from them. */
int box_add(struct box *b, const char *path, struct vt_err *err);
/* rel: a path relative to the project that other programs run or obey; commands may not write there, and no
 * rule lets a tool write there unasked. */
bool box_guarded(const char *rel);
const char *box_name(const struct box *b); /* "project", "strict", "weak", "none", "off" */

struct box_way {
    bool read_only; /* Plan */
    bool network;
    bool user; /* a line of the user's: outside of any box */
};

/* The argument list that runs `sh -c command`: with bubblewrap around it where the level says so.
 * NULL-terminated, one allocation each. */
char **box_argv(const struct box *b, const struct box_way *w, const char *command);
void box_argv_free(char **argv);
/* In the child between fork and exec (async-signal-safe): the weak level's restrictions. ruleset: of
 * box_ruleset(). -1: do not exec. */
int box_enter(const struct box *b, const struct box_way *w, int ruleset);
/* A Landlock rule set for the weak level; -1 where none is needed, or with err when it cannot be made. */
int box_ruleset(const struct box *b, const struct box_way *w, struct vt_err *err);

#endif
