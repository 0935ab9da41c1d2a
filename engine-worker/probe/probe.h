/* Probe: what vitriold wants to know about a GPU and must not ask itself, since the driver may never answer: how much of it is free,
 * who has it open, whether it still computes, what an engine would take of it. A process for each question; the asker kills it at
 * its deadline. The answer is one line of JSON. */
#ifndef PROBE_H
#define PROBE_H

#include "gpu.h"
#include "plan.h"
#include "sizing.h"

#include <stdbool.h>

#define PROBE_HOLDERS 8

struct probe_question {
    int device;
    bool prove;        /* compute there and compare */
    const char *model; /* NULL: no plan is wanted */
    struct sizing shape;
};

struct probe_holder {
    int pid;
    char comm[32];
};

struct probe_answer {
    struct gpu_facts facts;
    bool planned;
    struct vt_plan plan;
    struct probe_holder
        holder[PROBE_HOLDERS]; /* processes that have a GPU open, as far as /proc shows them */
    unsigned n_holders;
};

/* VT_E_CONFIG: no such GPU; VT_E_DEVICE_LOST: it fails, or computes wrongly; VT_E_DEVICE_MEM; errors of the model's file. */
int probe_ask(struct probe_answer *out, const struct probe_question *q, struct vt_err *err);
/* Allocates, writes, computes, reads back and compares. */
int probe_prove(struct be *b, struct vt_err *err);

#endif
