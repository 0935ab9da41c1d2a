/* Candidate: a configuration that is to run next, and the gates that it passes before anything is stopped for it. */
#ifndef CANDIDATE_H
#define CANDIDATE_H

#include "options.h"
#include "sup.h"

#include <jansson.h>

struct candidate {
    struct vt_config *cfg;
    json_t *record; /* the blessed record that it restores; NULL: a profile */
    char tag[96];
    bool force;
    bool
        gated; /* all but the model's bytes and the GPU has passed: while the bytes are read nothing else is looked at */
};

int candidate_of_profile(struct candidate *c, const struct options *o, const char *name, struct vt_err *err);
/* record is borrowed and kept by reference. */
int candidate_of_record(struct candidate *c, const struct options *o, const char *tag, json_t *record,
                        struct vt_err *err);
void candidate_clear(struct candidate *c);

/* 0: it may run; 1: the model's bytes are being read, or its GPU is asked: ask again; -1: err says why not. */
int candidate_gate(struct sup *s, const struct candidate *c, struct vt_err *err);
/* The gateway's command line differs, too. */
bool candidate_moves_gateway(struct sup *s, const struct candidate *c);
/* Keys that a blessed record holds: everything that makes the engine and what clients are promised. */
bool candidate_keeps(enum vt_config_key k);

#endif
