#include "part.h"

#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SYNC_EVERY (64ull << 20)
#define MIB        (1024.0 * 1024.0)

static void path_of(const struct part *p, const char *tail, char *out, size_t size)
{
    snprintf(out, size, "%s%s", p->name, tail);
}

static int make_folder(const char *dir, struct vt_err *err)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", dir);
    for (char *s = part + 1;; s++) {
        const char c = *s;
        if (c != '/' && c != '\0')
            continue;
        *s = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return vt_fail_errno(err, errno == EACCES || errno == EROFS ? VT_E_PERM : VT_E_OS,
                                 "the folder %s cannot be made; choose one with --dir or paths.models_dir",
                                 part);
        if (c == '\0')
            return 0;
        *s = c;
    }
}

static void boot_id(char out[64])
{
    out[0] = '\0';
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f && !fgets(out, 64, f))
        out[0] = '\0';
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = '\0';
}

/* ---- the state ---- */

static int save_state(const struct part *p, struct vt_err *err)
{
    char tmp[300], path[300], boot[64];
    boot_id(boot);
    path_of(p, ".part.state", path, sizeof path);
    path_of(p, ".part.state.new", tmp, sizeof tmp);
    const int fd = openat(p->dir, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (!f)
        return vt_fail_errno(err, errno == ENOSPC ? VT_E_DISK_FULL : VT_E_IO, "%s", tmp);
    fprintf(f, "url %s\netag %s\nmodified %s\nsha256 %s\nsize %llu\nsynced %llu\nboot %s\n", p->origin.url,
            p->origin.etag, p->origin.modified, p->origin.sha256, (unsigned long long)p->origin.size,
            (unsigned long long)p->synced, boot);
    const bool bad = ferror(f) || fflush(f) != 0 || fsync(fd) < 0;
    if (fclose(f) != 0 || bad || renameat(p->dir, tmp, p->dir, path) < 0) {
        vt_fail_errno(err, errno == ENOSPC ? VT_E_DISK_FULL : VT_E_IO, "%s", path);
        unlinkat(p->dir, tmp, 0);
        return -1;
    }
    return 0;
}

static void take(char *out, size_t size, const char *value)
{
    if (strlen(value) < size)
        memcpy(out, value, strlen(value) + 1);
}

static void read_line(struct part *p, char *line, char *boot, size_t boot_size)
{
    char *value = strchr(line, ' ');
    if (!value)
        return;
    *value++ = '\0';
    value[strcspn(value, "\n")] = '\0';
    struct part_origin *o = &p->origin;
    if (strcmp(line, "url") == 0)
        take(o->url, sizeof o->url, value);
    else if (strcmp(line, "etag") == 0)
        take(o->etag, sizeof o->etag, value);
    else if (strcmp(line, "modified") == 0)
        take(o->modified, sizeof o->modified, value);
    else if (strcmp(line, "sha256") == 0)
        take(o->sha256, sizeof o->sha256, value);
    else if (strcmp(line, "size") == 0)
        o->size = strtoull(value, NULL, 10);
    else if (strcmp(line, "synced") == 0)
        p->synced = strtoull(value, NULL, 10);
    else if (strcmp(line, "boot") == 0)
        take(boot, boot_size, value);
}

/* Without a state the bytes are of nobody knows what: have becomes 0. */
static int load_state(struct part *p, struct vt_err *err)
{
    char path[300], line[400], boot[64] = "", now[64];
    path_of(p, ".part.state", path, sizeof path);
    const int fd = openat(p->dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    p->origin = (struct part_origin){.size = 0};
    p->synced = 0;
    while (f && fgets(line, sizeof line, f))
        read_line(p, line, boot, sizeof boot);
    if (f)
        fclose(f);
    boot_id(now);
    uint64_t keep = p->have;
    if (!f || p->origin.url[0] == '\0')
        keep = 0;
    else if (strcmp(boot, now) != 0 && p->synced < keep)
        keep = p->synced;
    if (keep < p->have && ftruncate(p->fd, (off_t)keep) < 0)
        return vt_fail_errno(err, VT_E_IO, "%s.part", p->name);
    p->have = keep;
    if (p->synced > keep)
        p->synced = keep;
    return 0;
}

/* ---- the file ---- */

/* Opens and locks. The one who had the lock before may have placed the file meanwhile: then it is another one. */
static int open_locked(struct part *p, struct vt_err *err)
{
    char path[300];
    path_of(p, ".part", path, sizeof path);
    for (int i = 0; i < 10; i++) {
        struct stat mine, there;
        p->fd = openat(p->dir, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (p->fd < 0)
            return vt_fail_errno(err, errno == EACCES || errno == EROFS ? VT_E_PERM : VT_E_IO,
                                 "%s; choose another folder with --dir", path);
        if (flock(p->fd, LOCK_EX | LOCK_NB) < 0)
            return vt_fail(err, VT_E_BUSY, "another vitriol pull is fetching %s; wait for it, or end it",
                           p->name);
        if (fstat(p->fd, &mine) == 0 && fstatat(p->dir, path, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
            mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) {
            p->have = (uint64_t)mine.st_size;
            return 0;
        }
        close(p->fd);
        p->fd = -1;
    }
    return vt_fail(err, VT_E_BUSY, "another vitriol pull is fetching %s", p->name);
}

int part_open(struct part *p, const char *dir, const char *name, struct vt_err *err)
{
    *p = (struct part){.dir = -1, .fd = -1};
    snprintf(p->name, sizeof p->name, "%s", name);
    if (make_folder(dir, err))
        return -1;
    p->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir < 0)
        return vt_fail_errno(err, VT_E_PERM, "%s", dir);
    if (open_locked(p, err) || load_state(p, err)) {
        part_close(p);
        return -1;
    }
    return 0;
}

void part_close(struct part *p)
{
    if (p->fd >= 0)
        close(p->fd);
    if (p->dir >= 0)
        close(p->dir);
    p->fd = p->dir = -1;
}

int part_start(struct part *p, const struct part_origin *o, bool drop, struct vt_err *err)
{
    if (drop) {
        if (ftruncate(p->fd, 0) < 0)
            return vt_fail_errno(err, VT_E_IO, "%s.part", p->name);
        p->have = p->synced = 0;
    }
    p->origin = *o;
    return save_state(p, err);
}

int part_write(struct part *p, const uint8_t *s, size_t n, struct vt_err *err)
{
    while (n > 0) {
        const ssize_t k = pwrite(p->fd, s, n, (off_t)p->have);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return vt_fail_errno(err, errno == ENOSPC || errno == EDQUOT ? VT_E_DISK_FULL : VT_E_IO,
                                 "%s.part after %.1f MiB (it is kept; make room and run the command again)",
                                 p->name, (double)p->have / MIB);
        p->have += (uint64_t)k;
        s += k;
        n -= (size_t)k;
    }
    if (p->have - p->synced < SYNC_EVERY)
        return 0;
    if (fdatasync(p->fd) < 0)
        return vt_fail_errno(err, VT_E_IO, "%s.part", p->name);
    p->synced = p->have;
    return save_state(p, err);
}

int part_room(const struct part *p, uint64_t more, struct vt_err *err)
{
    struct statvfs st;
    if (fstatvfs(p->dir, &st) < 0)
        return 0; /* no figure is no reason; the write itself will say */
    const uint64_t room = (uint64_t)st.f_bavail * st.f_frsize;
    if (more <= room)
        return 0;
    return vt_fail(err, VT_E_DISK_FULL,
                   "no room for %s: %.1f MiB are to come, %.1f MiB are free; make room, or choose another "
                   "folder with --dir",
                   p->name, (double)more / MIB, (double)room / MIB);
}

int part_sha256(const struct part *p, const char *name, char hex[65], int (*tick)(void *ctx, uint64_t done),
                void *ctx, struct vt_err *err)
{
    enum { BLOCK = 1 << 20 };
    const int fd = name ? openat(p->dir, name, O_RDONLY | O_CLOEXEC) : p->fd;
    struct vt_sha256 *h = vt_sha256_new();
    uint8_t *buf = malloc(BLOCK), digest[VT_SHA256_LEN];
    ssize_t n = -1;
    int rc = 0;
    uint64_t at = 0;
    if (!h || !buf)
        rc = vt_fail(err, VT_E_NOMEM, "no memory to check a file");
    else
        posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (rc == 0 && (n = pread(fd, buf, BLOCK, (off_t)at)) != 0) {
        if (n < 0)
            rc = vt_fail_errno(err, VT_E_IO, "%s", name ? name : p->name);
        else
            vt_sha256_add(h, buf, (size_t)n);
        at += n > 0 ? (uint64_t)n : 0;
        if (rc == 0 && tick && tick(ctx, at))
            rc = vt_fail(err, VT_E_CANCELLED, "interrupted");
    }
    if (rc == 0) {
        vt_sha256_end(h, digest);
        vt_hex(digest, sizeof digest, hex);
    }
    vt_sha256_free(h);
    free(buf);
    if (name && fd >= 0)
        close(fd);
    return rc;
}

bool part_finished(const struct part *p, uint64_t *size)
{
    struct stat st;
    if (fstatat(p->dir, p->name, &st, 0) < 0)
        return false;
    *size = (uint64_t)st.st_size;
    return true;
}

static void remove_state(const struct part *p)
{
    char path[300];
    path_of(p, ".part.state", path, sizeof path);
    unlinkat(p->dir, path, 0);
}

int part_place(struct part *p, struct vt_err *err)
{
    char path[300];
    path_of(p, ".part", path, sizeof path);
    /* the lock must be held until the name is taken, so the descriptor stays open */
    if (fsync(p->fd) < 0 || renameat(p->dir, path, p->dir, p->name) < 0)
        return vt_fail_errno(err, VT_E_IO, "%s", path);
    remove_state(p);
    const int rc = fsync(p->dir) < 0 ? vt_fail_errno(err, VT_E_IO, "the folder of %s", p->name) : 0;
    part_close(p);
    return rc;
}

void part_remove(struct part *p)
{
    char path[300];
    path_of(p, ".part", path, sizeof path);
    remove_state(p);
    unlinkat(p->dir, path, 0);
    part_close(p);
}
