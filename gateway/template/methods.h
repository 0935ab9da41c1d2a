/* Methods: their numbers, and the file of each kind. */
#ifndef METHODS_H
#define METHODS_H

#include "eval.h"

enum method {
    M_S_SPLIT,
    M_S_RSPLIT,
    M_S_SPLITLINES,
    M_S_STRIP,
    M_S_LSTRIP,
    M_S_RSTRIP,
    M_S_STARTSWITH,
    M_S_ENDSWITH,
    M_S_REPLACE,
    M_S_UPPER,
    M_S_LOWER,
    M_S_TITLE,
    M_S_CAPITALIZE,
    M_S_SWAPCASE,
    M_S_JOIN,
    M_S_FORMAT,
    M_S_FIND,
    M_S_RFIND,
    M_S_INDEX,
    M_S_COUNT,
    M_S_ISDIGIT,
    M_S_ISALPHA,
    M_S_ISALNUM,
    M_S_ISSPACE,
    M_S_ISUPPER,
    M_S_ISLOWER,
    M_S_REMOVEPREFIX,
    M_S_REMOVESUFFIX,
    M_S_PARTITION,
    M_S_RPARTITION,
    M_S_ZFILL,
    M_S_LJUST,
    M_S_RJUST,
    M_L_APPEND,
    M_L_POP,
    M_L_INDEX,
    M_L_COUNT,
    M_D_ITEMS,
    M_D_KEYS,
    M_D_VALUES,
    M_D_GET,
    M_D_COPY,
};

/* methods_string.c */
int string_method(struct eval *e, enum method id, const struct string *s, const struct args *args,
                  struct value *out);

#endif
