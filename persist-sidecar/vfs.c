#include "vfs.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct store_vfs {
    sqlite3_vfs vfs; /* first: SQLite hands this pointer back */
    sqlite3_vfs *base;
    char name[40];
    const struct vt_clock *clock;
    void (*die)(void *arg, int code);
    void *die_arg;
    struct store_io *io, own;
};

struct shim_file {
    sqlite3_file file; /* first */
    struct store_vfs *v;
    sqlite3_file *real; /* lies behind this struct in the memory SQLite gave */
};

static struct store_vfs *shim(sqlite3_vfs *vfs)
{
    return (struct store_vfs *)vfs;
}

static struct shim_file *file_of(sqlite3_file *f)
{
    return (struct shim_file *)f;
}

static void add(_Atomic uint64_t *n, uint64_t v)
{
    atomic_fetch_add_explicit(n, v, memory_order_relaxed);
}

static void sync_failed(struct store_vfs *v)
{
    v->die(v->die_arg, VT_EX_IO);
}

static int io_close(sqlite3_file *f)
{
    struct shim_file *s = file_of(f);
    return s->real->pMethods != NULL ? s->real->pMethods->xClose(s->real) : SQLITE_OK;
}

static int io_read(sqlite3_file *f, void *buf, int n, sqlite3_int64 off)
{
    struct shim_file *s = file_of(f);
    add(&s->v->io->reads, 1);
    add(&s->v->io->bytes_read, (uint64_t)n);
    return s->real->pMethods->xRead(s->real, buf, n, off);
}

static int io_write(sqlite3_file *f, const void *buf, int n, sqlite3_int64 off)
{
    struct shim_file *s = file_of(f);
    add(&s->v->io->writes, 1);
    add(&s->v->io->bytes_written, (uint64_t)n);
    return s->real->pMethods->xWrite(s->real, buf, n, off);
}

static int io_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    struct shim_file *s = file_of(f);
    add(&s->v->io->writes, 1);
    return s->real->pMethods->xTruncate(s->real, size);
}

static int io_sync(sqlite3_file *f, int flags)
{
    struct shim_file *s = file_of(f);
    struct store_io *io = s->v->io;
    uint64_t t0 = vt_mono(s->v->clock);
    atomic_store_explicit(&io->sync_since_us, t0 > 0 ? t0 : 1, memory_order_relaxed);
    int rc = s->real->pMethods->xSync(s->real, flags);
    uint64_t us = vt_mono(s->v->clock) - t0;
    atomic_store_explicit(&io->sync_since_us, 0, memory_order_relaxed);
    add(&io->syncs, 1);
    add(&io->sync_us_sum, us);
    if (us > atomic_load_explicit(&io->sync_us_max, memory_order_relaxed))
        atomic_store_explicit(&io->sync_us_max, us, memory_order_relaxed);
    if (rc != SQLITE_OK)
        sync_failed(s->v);
    return rc;
}

static int io_size(sqlite3_file *f, sqlite3_int64 *size)
{
    struct shim_file *s = file_of(f);
    return s->real->pMethods->xFileSize(s->real, size);
}

static int io_lock(sqlite3_file *f, int level)
{
    struct shim_file *s = file_of(f);
    return s->real->pMethods->xLock(s->real, level);
}

static int io_unlock(sqlite3_file *f, int level)
{
    struct shim_file *s = file_of(f);
    return s->real->pMethods->xUnlock(s->real, level);
}

static int io_reserved(sqlite3_file *f, int *out)
{
    struct shim_file *s = file_of(f);
    return s->real->pMethods->xCheckReservedLock(s->real, out);
}

static int io_control(sqlite3_file *f, int op, void *arg)
{
    struct shim_file *s = file_of(f);
    return s->real->pMethods->xFileControl(s->real, op, arg);
}

static int io_sector(sqlite3_file *f)
{
    struct shim_file *s = file_of(f);
    return s->real->pMethods->xSectorSize(s->real);
}

static int io_caps(sqlite3_file *f)
{
    struct shim_file *s = file_of(f);
    /* Only what the crash tests cover: atomic batches of some filesystems would take another path through the
     * pager. */
    return s->real->pMethods->xDeviceCharacteristics(s->real) & SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = io_close,
    .xRead = io_read,
    .xWrite = io_write,
    .xTruncate = io_truncate,
    .xSync = io_sync,
    .xFileSize = io_size,
    .xLock = io_lock,
    .xUnlock = io_unlock,
    .xCheckReservedLock = io_reserved,
    .xFileControl = io_control,
    .xSectorSize = io_sector,
    .xDeviceCharacteristics = io_caps,
};

static int v_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out_flags)
{
    struct store_vfs *v = shim(vfs);
    struct shim_file *s = file_of(f);
    memset(s, 0, sizeof *s);
    s->v = v;
    s->real = (sqlite3_file *)(s + 1);
    int rc = v->base->xOpen(v->base, name, s->real, flags, out_flags);
    s->file.pMethods = s->real->pMethods != NULL ? &methods : NULL;
    return rc;
}

static int v_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    struct store_vfs *v = shim(vfs);
    int rc = v->base->xDelete(v->base, name, sync_dir);
    if (rc == SQLITE_IOERR_DIR_FSYNC)
        sync_failed(v);
    return rc;
}

static int v_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    return shim(vfs)->base->xAccess(shim(vfs)->base, name, flags, out);
}

static int v_fullname(sqlite3_vfs *vfs, const char *name, int n, char *out)
{
    return shim(vfs)->base->xFullPathname(shim(vfs)->base, name, n, out);
}

static int v_random(sqlite3_vfs *vfs, int n, char *out)
{
    return shim(vfs)->base->xRandomness(shim(vfs)->base, n, out);
}

static int v_sleep(sqlite3_vfs *vfs, int us)
{
    return shim(vfs)->base->xSleep(shim(vfs)->base, us);
}

static int v_time(sqlite3_vfs *vfs, double *out)
{
    return shim(vfs)->base->xCurrentTime(shim(vfs)->base, out);
}

static int v_last_error(sqlite3_vfs *vfs, int n, char *out)
{
    return shim(vfs)->base->xGetLastError(shim(vfs)->base, n, out);
}

static void die_now(void *arg, int code)
{
    static const char text[] =
        "store: a sync of the database failed; what was written is not trusted any more\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    _exit(code);
}

int store_vfs_new(struct store_vfs **out, sqlite3_vfs *base, struct store_io *io,
                  const struct vt_clock *clock, void (*die)(void *arg, int code), void *die_arg,
                  struct vt_err *err)
{
    *out = NULL;
    struct store_vfs *v = calloc(1, sizeof *v);
    if (v == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the database's file layer");
    v->base = base != NULL ? base : sqlite3_vfs_find(NULL);
    v->io = io != NULL ? io : &v->own;
    v->clock = clock;
    v->die = die != NULL ? die : die_now;
    v->die_arg = die_arg;
    snprintf(v->name, sizeof v->name, "vitriol-%p", (void *)v);
    v->vfs = (sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = (int)sizeof(struct shim_file) + v->base->szOsFile,
        .mxPathname = v->base->mxPathname,
        .zName = v->name,
        .xOpen = v_open,
        .xDelete = v_delete,
        .xAccess = v_access,
        .xFullPathname = v_fullname,
        .xRandomness = v_random,
        .xSleep = v_sleep,
        .xCurrentTime = v_time,
        .xGetLastError = v_last_error,
    };
    if (sqlite3_vfs_register(&v->vfs, 0) != SQLITE_OK) {
        free(v);
        return vt_fail(err, VT_E_INTERNAL, "SQLite refused the store's file layer");
    }
    *out = v;
    return 0;
}

void store_vfs_free(struct store_vfs *v)
{
    if (v == NULL)
        return;
    sqlite3_vfs_unregister(&v->vfs);
    free(v);
}

const char *store_vfs_name(const struct store_vfs *v)
{
    return v->name;
}

const struct store_io *store_vfs_io(const struct store_vfs *v)
{
    return v->io;
}

sqlite3_vfs *store_vfs_base(const struct store_vfs *v)
{
    return v->base;
}
