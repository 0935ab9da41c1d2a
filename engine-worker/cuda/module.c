/* In C, so that a new build id is seen by the build. */
#include "build_id.h"
#include "cu.h"

const struct gpu_module vitriol_gpu = {VT_BUILD_ID, cu_count, cu_facts, cu_backend};
