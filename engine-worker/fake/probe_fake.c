#include "fault.h"
#include "probe_module.h"

const struct gpu_module *probe_module(void)
{
    return fault_module();
}
