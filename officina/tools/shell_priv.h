/* What shell.c (the reader) and shell_judge.c (wrappers, lists) share. */
#ifndef OFF_SHELL_PRIV_H
#define OFF_SHELL_PRIV_H

#include "tools/shell.h"

void shell_add_word(struct shell_part *p, char *word, bool dynamic); /* takes word */
/* NAME=value: the length of NAME, 0 when the word is none. */
size_t shell_assigns(const char *word);
void shell_assign(struct shell_part *p, const char *word, size_t name);
/* Takes the wrappers off part i: its words become those of what it runs; further commands are appended to
 * the line. read: reads a literal text of a shell's -c into the line. */
void shell_unwrap(struct shell_line *l, size_t i, void (*read)(void *arg, const char *s), void *arg);

#endif
