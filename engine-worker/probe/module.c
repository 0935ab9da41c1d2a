#include "probe_module.h"

#include <stddef.h>

const struct gpu_module *probe_module(void)
{
    return NULL;
}
