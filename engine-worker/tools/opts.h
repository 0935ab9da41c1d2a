/* Options of a command: one table, strict parsing, errors that name the option and what it takes. */
#ifndef TOOL_OPTS_H
#define TOOL_OPTS_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

/* OPT_IN: a file that is read, which must be there; "-" is standard input where the command takes it. */
enum opt_kind { OPT_FLAG, OPT_STR, OPT_IN, OPT_INT, OPT_FLOAT, OPT_INTS };

#define OPT_LIST_MAX 16
struct opt_list {
    int64_t v[OPT_LIST_MAX];
    int n;
};

struct opt {
    const char *name; /* "-m" or "--model"; alias may be NULL */
    const char *alias;
    enum opt_kind kind;
    void *to;         /* bool, const char * (OPT_STR, OPT_IN), int64_t, double, struct opt_list */
    int64_t min, max; /* OPT_INT, OPT_INTS */
    const char *help; /* "FILE  GGUF file" */
};

/* Parses argv[1..). Long options may have their value behind a '='. Errors name the option as it was written. *rest, when not NULL, takes the one argument that is not an option. --help prints usage and the table
 * to stdout and returns 1. Errors: VT_E_USAGE. */
int opts_parse(const struct opt *table, const char *usage, int argc, char **argv, const char **rest,
               struct vt_err *err);

#endif
