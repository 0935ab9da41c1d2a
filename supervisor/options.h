/* Options: vitriold's command line, and the configuration that follows from it and everything around it. The layers can be
 * read again while it runs, which is how another profile is tried on before anything is touched. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "config.h"
#include "err.h"

#include <stdbool.h>
#include <stdio.h>

struct options {
    int argc;
    char **argv;      /* borrowed */
    const char *file; /* --config, NULL: none */
    int ready_fd;     /* -1: none */
    bool help, version;
    bool unblessed; /* engine.spec runs without its blessed record */
};

void options_usage(FILE *out);
int options_read(struct options *o, int argc, char **argv, struct vt_err *err);
/* Every layer but the profile, into a fresh cfg. */
int options_layers(const struct options *o, struct vt_config *cfg, struct vt_err *err);
/* The profile that the layers name, and the rules over several keys. */
int options_profile(struct vt_config *cfg, struct vt_err *err);

#endif
