/* The layer between SQLite and the system's VFS: counts and times every call, and makes a failed sync final.
 *
 * After an error from fsync the kernel may have dropped the dirty pages and report success next time, so no
 * descriptor is synced twice after a failure: the process ends (exit 74) inside the sync that failed, before
 * SQLite could roll back through that descriptor. Journals of other kinds than rollback are not offered (no
 * shared memory, no mapping). One database thread; the counters may be read from any thread. */
#ifndef STORE_VFS_H
#define STORE_VFS_H

#include "clock.h"
#include "err.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdint.h>

struct store_io {
    _Atomic uint64_t reads, writes, syncs;
    _Atomic uint64_t bytes_read, bytes_written;
    _Atomic uint64_t sync_us_max, sync_us_sum;
    _Atomic uint64_t sync_since_us; /* monotonic start of the sync in progress; 0: none */
};

struct store_vfs;

/* base: the VFS below, NULL = the system's. io: where to count, NULL = its own. die: called with 74 when a sync failed; NULL = _exit. Registered
 * under a name of its own until freed. clock is borrowed. */
int store_vfs_new(struct store_vfs **out, sqlite3_vfs *base, struct store_io *io,
                  const struct vt_clock *clock, void (*die)(void *arg, int code), void *die_arg,
                  struct vt_err *err);
void store_vfs_free(struct store_vfs *v);
const char *store_vfs_name(const struct store_vfs *v);
const struct store_io *store_vfs_io(const struct store_vfs *v);
/* The VFS below. */
sqlite3_vfs *store_vfs_base(const struct store_vfs *v);

#endif
