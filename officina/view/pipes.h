/* Pipe tables of Markdown, found by their lines. They are read here and not by md4c, since models write `a|b` in a cell and
 * mean one cell, where the common rule would break the code in two. Pure. */
#ifndef OFF_PIPES_H
#define OFF_PIPES_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the table that begins at the line s, or 0: a head, a line of dashes, rows up to a blank line or one without |. */
size_t pipes_table(const char *s, size_t n);
/* Is the line the one of dashes? */
bool pipes_dashes(const char *line, size_t n);
/* Takes the next cell off the line *at .. end; false when there is none. The cell is trimmed. */
bool pipes_cell(const char **at, const char *end, const char **cell, size_t *n);

#endif
