#include "plan.h"

#include <stdio.h>

#define MIB 1048576.0

uint64_t vt_plan_sum(const struct vt_plan *p)
{
    return p->weights + p->kv + p->work + p->code + p->reserve;
}

int vt_plan_fits(const struct vt_plan *p, const char *where, uint64_t free_bytes, uint64_t total, int code,
                 struct vt_err *err)
{
    char of[32] = "", device[96] = "";
    if (vt_plan_sum(p) <= free_bytes)
        return 0;
    if (total > 0)
        snprintf(of, sizeof of, " of %.0f", (double)total / MIB);
    if (p->code + p->reserve > 0)
        snprintf(device, sizeof device, " + kernels and graphs %.0f MiB + reserve %.0f MiB",
                 (double)p->code / MIB, (double)p->reserve / MIB);
    return vt_fail(err, code,
                   "%s refused: weights %.0f MiB + KV cache %.0f MiB + work space %.0f MiB%s = %.0f MiB, "
                   "available %.0f%s MiB; choose a smaller model, engine.slots or engine.ctx_tokens",
                   where, (double)p->weights / MIB, (double)p->kv / MIB, (double)p->work / MIB, device,
                   (double)vt_plan_sum(p) / MIB, (double)free_bytes / MIB, of);
}
