/* Line lexers: colours for code by the shape of its lines. One table a language, a small state between lines; wrong guesses
 * cost a colour and nothing else. Pure. */
#ifndef OFF_LEXER_H
#define OFF_LEXER_H

#include "term/cells.h"

#include <stddef.h>

struct language;

/* By the name that a code fence gives ("c", "python", "sh"), or by a path's ending or name ("src/a.rs", "Makefile"). NULL:
 * unknown, drawn plain. */
const struct language *lexer_named(const char *name, size_t n);
const struct language *lexer_of_path(const char *path);

struct lexer {
    const struct language *lang; /* NULL: everything is plain */
    int state;                   /* 0, or what a line is inside of */
};

/* Fills role[0..n) with an enum role for each byte of the line (without its newline) and steps the state. */
void lexer_line(struct lexer *lx, const char *line, size_t n, uint8_t *role);

#endif
