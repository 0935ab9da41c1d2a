/* Progress of a transfer on stderr: one line that is drawn over and over on a terminal, else a line now and then. One
 * thread. */
#ifndef PULL_PROGRESS_H
#define PULL_PROGRESS_H

#include "clock.h"

#include <stdbool.h>
#include <stdint.h>

struct progress {
    struct vt_clock clock;
    bool terminal, quiet;
    const char *what; /* "model.gguf", "checking model.gguf" */
    uint64_t first;   /* bytes that were there at the start */
    uint64_t start_us, shown_us;
    double rate; /* bytes per second, smoothed */
    uint64_t rate_us, rate_bytes;
    bool drawn; /* a line stands on the terminal */
};

void progress_begin(struct progress *p, const char *what, uint64_t have);
/* total 0 = unknown. Draws when it is time. */
void progress_show(struct progress *p, uint64_t have, uint64_t total);
/* Takes the drawn line away; before anything else is written. */
void progress_clear(struct progress *p);

/* "1.23 GB" */
const char *progress_bytes(uint64_t n, char out[32]);

#endif
