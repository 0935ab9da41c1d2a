/* Between the files of the scanner. */
#ifndef SCANNER_PRIV_H
#define SCANNER_PRIV_H

#include "scanner.h"

/* Each step returns true when it got on and another step may follow. */

void scan_enter(struct scanner *s, enum scan_state state);
/* Offset of mark in held; held.n when it is not there. */
size_t scan_find(const struct scanner *s, const char *mark);
/* How many bytes at the end of held may be the beginning of mark. */
size_t scan_partial(const struct scanner *s, const char *mark);
/* Of n marks (NULL ones are skipped) the first in held, at *at; NULL: none, and *maybe bytes at the end may become one. */
const char *scan_first(const struct scanner *s, const char *const *marks, size_t n, size_t *at,
                       size_t *maybe);
void scan_emit(struct scanner *s, void (*to)(void *, const char *, size_t), size_t n);
/* While fresh, leading blanks of held are dropped. True when something else has come. */
bool scan_drop_blanks(struct scanner *s, bool only_newlines);
/* n, or less where blanks are at the end of the first n bytes of held. */
size_t scan_without_blanks(const struct scanner *s, size_t n);
void scan_begin_call(struct scanner *s, enum call_form form);

/* harmony.c: everything but the inside of calls. */
bool harmony_step(struct scanner *s);

#endif
