/* Space: filesystem checks at start, quota, free space, the ballast, and what may be written in an hour and a day. */
#include "db.h"
#include "schema.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static const struct {
    uint32_t magic;
    const char *name;
} network_fs[] = {
    {0x00006969, "nfs"},    {0x0000517b, "smb"},   {0xff534d42, "cifs"},  {0xfe534d42, "smb2"},
    {0x0000564c, "ncp"},    {0x73757245, "coda"},  {0x5346414f, "afs"},   {0x00c36400, "ceph"},
    {0x0bd00bd0, "lustre"}, {0x01021997, "9p"},    {0x7461636f, "ocfs2"}, {0x01161970, "gfs2"},
    {0x47504653, "gpfs"},   {0x19830326, "fhgfs"},
};

static int sync_test(const char *dir, struct vt_err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/.sync-test", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return vt_fail_errno(err, errno == EACCES || errno == EROFS ? VT_E_PERM : VT_E_IO,
                             "the state directory %s cannot be written; give it to the service user", dir);
    bool ok = fsync(fd) == 0;
    int saved = errno;
    close(fd);
    unlink(path);
    errno = saved;
    if (!ok)
        return vt_fail_errno(err, VT_E_CONFIG,
                             "%s: this filesystem cannot sync a file, so nothing saved on it is safe", dir);
    int dfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dfd < 0 || fsync(dfd) != 0) {
        vt_fail_errno(err, VT_E_CONFIG,
                      "%s: this filesystem cannot sync a directory, so nothing saved on it is safe", dir);
        if (dfd >= 0)
            close(dfd);
        return -1;
    }
    close(dfd);
    return 0;
}

int space_check_fs(const struct store_opts *o, struct vt_err *err)
{
    struct statfs fs;
    if (statfs(o->dir, &fs) != 0)
        return vt_fail_errno(err, VT_E_IO, "state directory %s", o->dir);
    for (size_t i = 0; i < sizeof network_fs / sizeof *network_fs; i++)
        if ((uint32_t)fs.f_type == network_fs[i].magic && !o->unsafe_fs)
            return vt_fail(err, VT_E_CONFIG,
                           "the state directory %s is on a network filesystem (%s), whose locks and syncs "
                           "cannot be relied"
                           " on; put paths.state_dir on a local disk, or set store.unsafe_fs = on",
                           o->dir, network_fs[i].name);
    return sync_test(o->dir, err);
}

int space_avail(struct store *s, uint64_t *avail, uint64_t *total, struct vt_err *err)
{
    if (s->o.avail != NULL)
        return s->o.avail(s->o.avail_arg, avail, total);
    struct statvfs fs;
    if (statvfs(s->o.dir, &fs) != 0)
        return vt_fail_errno(err, VT_E_IO, "state directory %s", s->o.dir);
    *avail = (uint64_t)fs.f_bavail * fs.f_frsize;
    *total = (uint64_t)fs.f_blocks * fs.f_frsize;
    return 0;
}

static uint64_t page_bytes(struct store *s, const char *pragma)
{
    int64_t n = db_int(s, pragma, NULL);
    return n > 0 ? (uint64_t)n * STORE_PAGE_SIZE : 0;
}

uint64_t space_file(struct store *s)
{
    return page_bytes(s, "PRAGMA page_count");
}

uint64_t space_used(struct store *s)
{
    uint64_t file = space_file(s), idle = page_bytes(s, "PRAGMA freelist_count");
    return file > idle ? file - idle : 0;
}

/* Bytes that may still be written: into free pages, and into what the filesystem may give. */
static int writable(struct store *s, uint64_t *out, struct vt_err *err)
{
    uint64_t avail, total;
    if (space_avail(s, &avail, &total, err) < 0)
        return -1;
    uint64_t keep = s->o.min_free;
    if (keep > 0 && keep < total / 20)
        keep = total / 20;
    *out = page_bytes(s, "PRAGMA freelist_count") + (avail > keep ? avail - keep : 0);
    return 0;
}

static int short_of(struct store *s, uint64_t bytes, int *code, struct vt_err *err)
{
    uint64_t room;
    *code = VT_E_OK;
    if (writable(s, &room, err) < 0)
        return -1;
    if (space_used(s) + bytes > s->o.quota)
        *code = VT_E_QUOTA;
    else if (bytes > room)
        *code = VT_E_DISK_FULL;
    return 0;
}

int space_reserve(struct store *s, uint64_t bytes, struct vt_err *err)
{
    int code;
    if (short_of(s, bytes, &code, err) < 0)
        return -1;
    while (code != VT_E_OK) {
        int freed = store_collect(s, true, err);
        if (freed < 0)
            return -1;
        if (freed == 0)
            break;
        if (short_of(s, bytes, &code, err) < 0)
            return -1;
    }
    if (code == VT_E_QUOTA)
        return vt_fail(err, code, "%llu MiB more would exceed the quota; raise store.quota_mib",
                       (unsigned long long)(bytes >> 20));
    if (code == VT_E_DISK_FULL)
        return vt_fail(err, code,
                       "%llu MiB more would leave less than store.min_free_mib free in %s; free some space",
                       (unsigned long long)(bytes >> 20), s->o.dir);
    return 0;
}

/* ---- ballast ---- */

static void ballast_path(const struct store *s, char *out, size_t n)
{
    snprintf(out, n, "%s/ballast", s->o.dir);
}

void space_ballast_make(struct store *s)
{
    char path[4096];
    struct stat st;
    uint64_t avail, total;
    if (s->o.bare || s->o.inspect || s->o.ballast == 0)
        return;
    ballast_path(s, path, sizeof path);
    s->ballast_gone = false;
    if (stat(path, &st) == 0 && (uint64_t)st.st_size == s->o.ballast)
        return;
    /* It must not be what fills the disk: there has to be room for it twice. */
    if (space_avail(s, &avail, &total, NULL) < 0 || avail < s->o.min_free + 2 * s->o.ballast) {
        s->ballast_gone = true;
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)s->o.ballast) != 0) {
        unlink(path);
        s->ballast_gone = true;
    }
    if (fd >= 0)
        close(fd);
}

bool space_ballast_drop(struct store *s)
{
    char path[4096];
    if (s->o.bare)
        return false;
    /* A database that was moved aside is given up first: it serves nobody. */
    snprintf(path, sizeof path, "%s/store.db.bad", s->o.dir);
    if (unlink(path) == 0)
        return true;
    ballast_path(s, path, sizeof path);
    s->ballast_gone = true;
    return unlink(path) == 0;
}

/* ---- write budget ---- */

uint64_t space_hour(struct store *s)
{
    uint64_t minute = vt_mono(s->o.clock) / VT_SEC(60);
    if (minute - s->hour_minute >= STORE_HOUR_SLOTS) {
        memset(s->hour, 0, sizeof s->hour);
        s->hour_minute = minute;
    }
    while (s->hour_minute < minute)
        s->hour[++s->hour_minute % STORE_HOUR_SLOTS] = 0;
    uint64_t now = atomic_load_explicit(&store_vfs_io(s->vfs)->bytes_written, memory_order_relaxed);
    s->hour[minute % STORE_HOUR_SLOTS] += now - s->hour_seen;
    s->hour_seen = now;
    uint64_t sum = 0;
    for (int i = 0; i < STORE_HOUR_SLOTS; i++)
        sum += s->hour[i];
    return sum;
}

/* ---- a day ----
 * The day is counted in hours of the wall clock and outlives the process, for it is the device that wears out. A row of `mark` a
 * slot: the hour above the KiB written in it. */

#define KIB_BITS 36
#define KIB_MASK (((uint64_t)1 << KIB_BITS) - 1)
#define HOUR     VT_SEC(3600)
/* Beyond half of a day's budget a checkpoint has to be that old before it is replaced; the last tenth is for what is ordered. */
#define WARY_AGE VT_SEC(300)

static void slot_name(uint64_t hour, char out[16])
{
    snprintf(out, 16, "written.%02u", (unsigned)(hour % STORE_DAY_SLOTS));
}

static struct store_written *this_hour(struct store *s)
{
    uint64_t hour = vt_wall(s->o.clock) / HOUR;
    struct store_written *w = &s->day[hour % STORE_DAY_SLOTS];
    if (w->hour != hour)
        *w = (struct store_written){.hour = hour};
    uint64_t now = atomic_load_explicit(&store_vfs_io(s->vfs)->bytes_written, memory_order_relaxed);
    w->bytes += now - s->day_seen;
    s->day_seen = now;
    return w;
}

uint64_t space_day(struct store *s)
{
    uint64_t hour = this_hour(s)->hour, sum = 0;
    for (int i = 0; i < STORE_DAY_SLOTS; i++) {
        const struct store_written *w = &s->day[i];
        /* What claims to be of the future is of a clock that was wrong. */
        if (w->hour <= hour && hour - w->hour < STORE_DAY_SLOTS)
            sum += w->bytes;
    }
    return sum;
}

void space_day_load(struct store *s)
{
    char name[16];
    s->day_seen = atomic_load_explicit(&store_vfs_io(s->vfs)->bytes_written, memory_order_relaxed);
    for (uint64_t i = 0; i < STORE_DAY_SLOTS; i++) {
        slot_name(i, name);
        int64_t v = db_mark_get(s, name);
        s->day[i] = (struct store_written){0};
        if (v > 0 && ((uint64_t)v >> KIB_BITS) % STORE_DAY_SLOTS == i)
            s->day[i] = (struct store_written){(uint64_t)v >> KIB_BITS, ((uint64_t)v & KIB_MASK) << 10};
    }
}

int space_day_keep(struct store *s, struct vt_err *err)
{
    char name[16];
    const struct store_written *w = this_hour(s);
    uint64_t kib = w->bytes >> 10;
    slot_name(w->hour, name);
    return db_mark_set(s, name, (int64_t)(w->hour << KIB_BITS | (kib < KIB_MASK ? kib : KIB_MASK)), err);
}

static int put_off(struct store *s, struct vt_err *err, const char *text)
{
    s->f.put_off++;
    return vt_fail(err, VT_E_BUSY, "%s", text);
}

int space_budget(struct store *s, uint64_t head_age_us, struct vt_err *err)
{
    uint64_t day = space_day(s), budget = s->o.day_bytes;
    if (space_hour(s) >= s->o.hour_bytes)
        return put_off(s, err, "autosave has written store.max_mib_per_hour; it goes on later");
    if (day < budget / 2) {
        s->budget_told = false;
        return 0;
    }
    if (day >= budget - budget / 10) {
        if (!s->budget_told)
            db_event(
                s, STORE_EV_BUDGET,
                "%llu MiB were written in 24 hours, store.max_mib_per_day is %llu: checkpoints wait, but "
                "for drains and orders",
                (unsigned long long)(day >> 20), (unsigned long long)(budget >> 20));
        s->budget_told = true;
        return put_off(s, err, "store.max_mib_per_day is nearly written; autosave goes on later");
    }
    if (head_age_us < WARY_AGE)
        return put_off(s, err, "half of store.max_mib_per_day is written; autosave slows");
    return 0;
}
