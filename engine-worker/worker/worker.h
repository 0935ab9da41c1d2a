/* Worker: the engine's process around a core: lifeline, links, load, restore, self-test, orders, telemetry. The same program
 * for the real core and for the stub. */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include "engine.h"

/* Faults that the shell itself commits on request, so that tests see what the others make of them. */
struct worker_faults {
    char drop_option[64];   /* this key is missing in READY */
    char lie_effective[64]; /* this key has another value in READY */
    bool ignore_stop;       /* deaf to ORDER stop and drain */
    bool send_twice;
    uint32_t corrupt_chunk;
};

/* Reads the extra argument; NULL when the program takes none. */
typedef int (*worker_extra)(const char *extra, struct worker_faults *out, struct vt_err *err);

/* main of an engine program; returns the exit code. needs_model: an empty model.path is an error. */
int worker_main(int argc, char **argv, const struct eng_ops *ops, bool needs_model, worker_extra extra);

#endif
