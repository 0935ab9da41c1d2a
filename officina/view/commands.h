/* Commands by name with what they do: the menu, the palette, help, and guesses for a word that is none. A fixed table. */
#ifndef OFF_COMMANDS_H
#define OFF_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

struct command {
    const char *name; /* "/rewind" */
    const char *arguments;
    const char *about;
};

const struct command *command_at(size_t i); /* NULL behind the last */
/* Does the command's name begin with word (rank 0), hold its letters in order (rank 1)? -1: neither. */
int command_match(const char *name, const char *word, size_t n);

#endif
