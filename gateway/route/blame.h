/* Blame: which requests were in flight when an engine crashed by its own fault, so that one that does it every time is found
 * and kept away while the others go on.
 *
 * Whoever was in flight at such a crash is a suspect. Suspects are resumed one after the other; one that gets
 * BLAME_CLEAR tokens past the place that it had reached, or ends, is cleared for this round. A suspect of an earlier crash
 * that is the only one not cleared at a further crash within BLAME_US is quarantined: refused with 400 from then on, by the
 * hash of its prompt. A kill from outside, whose sender nobody knows, blames nobody.
 *
 * The router's thread. Hashes outlive the gateway with vitriold (SUSPECT, SUSPECTS). */
#ifndef BLAME_H
#define BLAME_H

#include "hash.h"

#include <stdbool.h>
#include <stdint.h>

struct api_err;
struct job;
struct router;
struct vt_frame;
struct vt_link;

#define BLAME_US    86400000000ull
#define BLAME_CLEAR 16

enum { BLAME_SUSPECTS = 256, BLAME_BATCH = 512 };

struct blame_entry {
    uint8_t sha[VT_SHA256_LEN];
    unsigned crashes; /* it was in flight at */
    bool quarantined;
    uint64_t last_us; /* wall clock */
};

struct blame {
    struct blame_entry entry[BLAME_SUSPECTS];
    unsigned n;
    struct { /* in flight when a link ended: the reason comes a moment later */
        uint32_t link;
        uint8_t sha[VT_SHA256_LEN];
        bool cleared;
        uint64_t at_us; /* monotonic */
        char label[48];
    } batch[BLAME_BATCH];
    unsigned n_batch;
    unsigned crashes; /* that blamed somebody */
    /* Told of each entry that changed. */
    void (*tell)(void *arg, const struct blame_entry *e, unsigned class, unsigned in_flight,
                 const char *label);
    void *tell_arg;
};

/* Fills the job's hash. */
void blame_name(struct job *j);
/* -1: its prompt is quarantined (e). */
int blame_check(const struct router *r, const struct job *j, struct api_err *e);
/* Before the jobs of this link are interrupted. */
void blame_link_down(struct router *r, const struct vt_link *l);
/* What ended before that time, monotonic, and got no verdict: only its link had gone. */
void blame_forget(struct router *r, uint64_t before);
/* Why the engine of that link ended: an exit class of INTERRUPTED. */
void blame_verdict(struct router *r, uint32_t link, unsigned class);
/* The suspect whose turn it is; NULL: everybody may run. */
const struct job *blame_turn(const struct router *r);
/* It made progress. */
void blame_progress(struct job *j);
void blame_known(struct router *r, const struct vt_frame *f);

#endif
