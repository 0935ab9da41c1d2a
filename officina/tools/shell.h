/* The shell reader: splits a command line for `sh -c` into its simple commands, so that each is judged for
 * itself.
 *
 * It reads the grammar of POSIX sh far enough to be sure, and says so when it is not: what it cannot read is
 * opaque and is asked. Operators, newlines, groups, subshells, substitutions (also within double quotes and
 * ${…}), here-documents, `if`, `while`, `for`. Wrappers (env, timeout, nice, xargs, find -exec, …) are
 * looked through; a shell with -c and a literal text too. Pure; any thread. */
#ifndef OFF_SHELL_H
#define OFF_SHELL_H

#include <stdbool.h>
#include <stddef.h>

struct shell_redirect {
    char *target;
    bool writes, dynamic; /* dynamic: holds an expansion, so the name is not known */
};

struct shell_part {
    char *text;    /* as it stands in the line */
    char **argv;   /* words without their quotes; an expansion stays as it is written */
    bool *dynamic; /* argv[i] holds an expansion or a pattern */
    size_t argc;
    struct shell_redirect *redirects;
    size_t n_redirects;
    char *sets; /* a variable that it sets and that changes what programs do (PATH, LD_…, GIT_…), or NULL */
    const char *why; /* opaque: the reason in words; NULL: read */
    bool fed;        /* further arguments come from elsewhere (xargs, -exec) */
};

struct shell_line {
    struct shell_part *parts;
    size_t n, cap;
    const char *why; /* the line as a whole cannot be read; NULL: it can */
};

void shell_read(struct shell_line *l, const char *command);
void shell_free(struct shell_line *l);
/* The part's words with one blank between; what rules are compared with. Caller frees. */
char *shell_words(const struct shell_part *p);
/* Only reads: of the built-in list, with arguments that cannot write or run anything, no writing
 * redirections. */
bool shell_reads(const struct shell_part *p);
/* In words why not: "deletes files", "writes files", … ; "not on a list" when nothing better is known. */
const char *shell_why_not(const struct shell_part *p);

#endif
