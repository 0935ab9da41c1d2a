/* Plan: the memory that an engine will take, term by term, and whether it fits. Whoever refuses an engine for its memory does so
 * here, with the whole sum. engine-worker/model/sizing.h computes the terms from a model. Pure. */
#ifndef VT_PLAN_H
#define VT_PLAN_H

#include "err.h"

#include <stdint.h>

/* Bytes. */
struct vt_plan {
    uint64_t weights; /* in the layout of what computes */
    uint64_t kv;      /* pages, snapshots and seals of all pools */
    uint64_t work;    /* activations, recurrent states, logits */
    uint64_t code;    /* kernels and graphs of a GPU, else 0 */
    uint64_t reserve; /* stays free on a GPU, else 0 */
};

uint64_t vt_plan_sum(const struct vt_plan *p);
/* 0: it fits. Else the error is `code` and its text the sum. where: "gpu:0 (name)" or "host memory"; total 0: not known. */
int vt_plan_fits(const struct vt_plan *p, const char *where, uint64_t free_bytes, uint64_t total, int code,
                 struct vt_err *err);

#endif
