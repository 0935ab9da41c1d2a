/* GPU: finds GPUs and gives a backend for one. The code for them is a module of its own, vitriol-cuda.so, opened when it is
 * asked for: the programs run without it, and it without a driver, and then there are no GPUs. */
#ifndef BE_GPU_H
#define BE_GPU_H

#include "backend.h"
#include "err.h"

#include <stdint.h>

struct gpu_facts {
    char name[128], uuid[40];
    int sm; /* 10 * major + minor */
    uint64_t free, total;
    int multiprocessors;
};

/* What the module exports as `vitriol_gpu`. */
struct gpu_module {
    const char *version; /* of this build: a module of another one is not used */
    int (*count)(void);
    int (*facts)(struct gpu_facts *out, int device, struct vt_err *err);
    int (*backend)(struct be **out, int device, struct vt_err *err);
};

/* This one instead of the file; before anybody asks. For programs that have a module linked. */
void gpu_use(const struct gpu_module *m);

/* How many GPUs there are. With 0, *why (NULL: nobody asks) tells why: no module, no driver, no device. */
int gpu_count(const char **why);
/* VT_E_CONFIG: there is no such GPU; VT_E_DEVICE_LOST. */
int gpu_facts(struct gpu_facts *out, int device, struct vt_err *err);
/* be_free gives it back. Also VT_E_DEVICE_MEM. */
int gpu_backend(struct be **out, int device, struct vt_err *err);

#endif
