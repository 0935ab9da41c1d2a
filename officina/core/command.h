/* The commands of the composer: one table for the menu, the help, and the core. */
#ifndef OFF_COMMAND_H
#define OFF_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

struct command {
    const char *name; /* "/rewind" */
    const char *args; /* "[turn]", or "" */
    const char *help;
    bool screen; /* the screen does it itself; the core sees it only where there is none */
    bool busy;   /* allowed while the model works */
};

const struct command *command_list(size_t *n);

/* In words that there is no such command, with the nearest name where one is near. */
void command_hint(const char *name, char *out, size_t size);

#endif
