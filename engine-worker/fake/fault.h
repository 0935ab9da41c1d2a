/* Fault: an engine whose device fails on purpose, for tests. Two kinds: the fake GPU (fake_gpu.c), and a real one (cuda/fault.cu). */
#ifndef FAULT_H
#define FAULT_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

enum fault {
    FAULT_NONE,
    FAULT_LOST, /* an illegal access: everything fails from now on */
    FAULT_FULL, /* no memory of the device is left */
    FAULT_SPIN  /* a kernel that never ends */
};

void fault_inject(enum fault f);
/* The module that the engine uses; NULL: the one of a real GPU. */
const struct gpu_module *fault_module(void);

#ifdef __cplusplus
}
#endif
#endif
