#include "internal.h"
#include "seal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The table of this processor: memory is the process's own, and everything is done when a call returns. */

static int cpu_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    *out = NULL;
    if (bytes == 0)
        return 0;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return vt_fail_errno(err, VT_E_NOMEM, "cannot map %zu MiB", bytes >> 20);
    *out = p;
    return 0;
}

static void cpu_release(struct be *b, void *p, size_t bytes)
{
    if (p != NULL)
        munmap(p, bytes);
}

static void cpu_copy(struct be *b, void *dst, const void *src, size_t bytes)
{
    if (bytes > 0)
        memcpy(dst, src, bytes);
}

static void cpu_zero(struct be *b, void *dst, size_t bytes)
{
    if (bytes > 0)
        memset(dst, 0, bytes);
}

static int cpu_read(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err)
{
    cpu_copy(b, dst, src, bytes);
    return 0;
}

static int cpu_sync(struct be *b, struct vt_err *err)
{
    return 0;
}

static int map_shared(void **out, size_t bytes, int fd, struct vt_err *err)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return vt_fail_errno(err, VT_E_NOMEM, "cannot map %zu MiB of shared memory", bytes >> 20);
    *out = p;
    return 0;
}

static int cpu_share(struct be *b, void **out, size_t bytes, int *fd, struct vt_err *err)
{
    *fd = memfd_create("vitriol", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd >= 0 && ftruncate(*fd, (off_t)bytes) == 0 &&
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
        map_shared(out, bytes, *fd, err) == 0)
        return 0;
    vt_fail_errno(err, VT_E_NOMEM, "%zu MiB of shared memory", bytes >> 20);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return -1;
}

/* Without the seals somebody could cut it short under us. */
static int cpu_share_open(struct be *b, void **out, size_t bytes, int fd, struct vt_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != bytes || seals < 0 || !(seals & F_SEAL_SHRINK))
        return vt_fail(err, VT_E_DEVICE_MEM, "a descriptor is not of %zu bytes of shared memory", bytes);
    return map_shared(out, bytes, fd, err);
}

static void cpu_seal(struct be *b, uint64_t *out, const void *p, size_t bytes, uint64_t salt)
{
    *out = seal_of(p, bytes, salt);
}

/* Calls cost nothing here: nothing is recorded. */
static bool cpu_begin(struct be *b, uint64_t key)
{
    return false;
}

static void cpu_end(struct be *b, uint64_t key) {}

#define CPU_ROW(name, args) .name = cpu_##name,

static const struct be_ops cpu_ops = {
    BE_COMPUTE(CPU_ROW).reserve = cpu_reserve,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .write = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .read = cpu_read,
    .fetch = cpu_read,
    .sync = cpu_sync,
    .share = cpu_share,
    .share_open = cpu_share_open,
    .unshare = cpu_release,
    .seal = cpu_seal,
    .begin = cpu_begin,
    .end = cpu_end,
};

const struct be_ops *cpu_table(void)
{
    return &cpu_ops;
}
