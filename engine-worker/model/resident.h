/* Resident: a model where it is run: on this processor, or in the memory of a GPU that holds all of it. Whoever computes with a
 * model opens one and gives its `m` and `be` to fw_new and the pools. */
#ifndef MODEL_RESIDENT_H
#define MODEL_RESIDENT_H

#include "gpu.h"
#include "keep.h"
#include "model.h"
#include "upload.h"

#include "plan.h"

struct resident {
    struct be_pool *pool; /* of this processor; what is not on the device goes on there */
    struct be *be;
    struct upload *up;     /* NULL: on this processor */
    const struct model *m; /* as fw_new takes it */
    char device[16];       /* "cpu", "gpu:0" */
    char note[256];        /* "auto" took the processor although there is a GPU: why; else empty */
    struct gpu_facts gpu;  /* before the model was there, without what a vault let go; zeroed without */
    uint64_t device_us, weights_us; /* until there was a device, and then until the model was there */
    bool kept;                      /* the weights were there already */
};

struct resident_config {
    const char *device; /* "auto": the first GPU, when there is one that the model fits; "cpu", "gpu:0" */
    int threads, simd;  /* as in be_pool_new and be_new */
    struct vt_plan
        plan; /* what the caller takes of a GPU, for KV and work space, and its reserve; weights are added here */
    upload_progress *progress;
    void *arg;
    /* Memory that outlives the process; NULL: none. claim is called when the device is known, before anything is taken of it, and
     * claims this many bytes for the weights as the first piece, or none for them (0: on this processor). It fails as keep_claim
     * does. */
    struct keep *keep;
    int (*claim)(void *arg, const struct resident *r, uint64_t weights, struct vt_err *err);
    void *claim_arg;
};

enum { RESIDENT_AUTO = -2, RESIDENT_CPU = -1 };
/* What `device` names: one of these, or the number of a GPU. VT_E_CONFIG: nothing. */
int resident_parse(const char *device, int *out, struct vt_err *err);

/* Starts the device that resident_open will take, which takes a while; any thread, beside other work. Failures are told by
 * resident_open. */
void resident_warm(const char *device);
/* m is borrowed. VT_E_CONFIG: no such device; VT_E_DEVICE_MEM: what it would take and what is free; VT_E_CAPABILITY: the device
 * cannot read a tensor's type; VT_E_BUSY: what is free is not enough, and there is a vault that may hold the rest but does not
 * answer. On failure nothing is held. */
int resident_open(struct resident *r, const struct model *m, const struct resident_config *c,
                  struct vt_err *err);
void resident_close(struct resident *r); /* a zeroed one is fine */

#endif
