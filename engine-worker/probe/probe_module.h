/* The module that the probe asks: of real GPUs, or the fake one in tests. */
#ifndef PROBE_MODULE_H
#define PROBE_MODULE_H

#include "gpu.h"

/* NULL: that of real GPUs. */
const struct gpu_module *probe_module(void);

#endif
