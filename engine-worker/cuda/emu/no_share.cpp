#include "cu_priv.cuh"

/* This process's memory is nobody else's. */

int cu_share(struct be *, void **, size_t, int *, struct vt_err *err)
{
    return vt_fail(err, VT_E_CAPABILITY, "an emulated GPU has no memory that outlives a process");
}

int cu_share_open(struct be *, void **, size_t, int, struct vt_err *err)
{
    return vt_fail(err, VT_E_CAPABILITY, "an emulated GPU has no memory that outlives a process");
}

void cu_unshare(struct be *, void *, size_t) {}
