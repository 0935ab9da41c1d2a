/* The keeper: the first process, which outlives the workshop and gives the terminal back after any death of it.
 *
 * It saves the terminal's settings, starts the workshop as its child and sleeps until that ends. When the workshop ended
 * without leaving the screen (kill -9, a crash, a plain exit()), the keeper writes the restore string and only then sets the
 * saved settings. Stopping (Ctrl-Z) stops both, since they share a process group. */
#ifndef OFF_KEEPER_H
#define OFF_KEEPER_H

#include "err.h"

#include <stdbool.h>

/* Shared with the keeper: is the terminal ours at the moment? */
struct keeper {
    volatile bool screen;
};

/* Forks. In the child returns its view of the shared flags; the first process stays inside and never returns: it exits with
 * the child's code, or 128 + signal. NULL: it could not fork; the workshop may go on without. */
struct keeper *keeper_start(int tty, struct vt_err *err);

#endif
