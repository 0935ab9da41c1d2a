#include "tools/root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int root_open(struct root *r, const char *path, struct vt_err *err)
{
    r->fd = -1;
    r->more = NULL;
    r->path = realpath(path, NULL);
    if (!r->path)
        return vt_fail_errno(err, VT_E_NO_INPUT, "project folder %s", path);
    r->fd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->fd >= 0)
        return 0;
    vt_fail_errno(err, VT_E_PERM, "project folder %s", path);
    root_close(r);
    return -1;
}

void root_close(struct root *r)
{
    if (r->fd >= 0)
        close(r->fd);
    free(r->path);
    if (r->more) {
        root_close(r->more);
        free(r->more);
    }
    *r = (struct root){.fd = -1};
}

/* path is dir or lies in it. */
static bool within(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (!path[n] || path[n] == '/' || n == 1);
}

int root_add(struct root *r, const char *path, struct vt_err *err)
{
    struct root *new = mem_new(sizeof *new);
    if (root_open(new, path, err) < 0) {
        free(new);
        return -1;
    }
    for (struct root *x = r; x; x = x->more)
        if (within(new->path, x->path) || within(x->path, new->path)) {
            vt_fail(err, VT_E_PARAM, "%s and %s: one lies in the other", new->path, x->path);
            root_close(new);
            free(new);
            return -1;
        }
    new->more = r->more;
    r->more = new;
    return 0;
}

void root_drop(struct root *r)
{
    struct root *x = r->more;
    r->more = x->more;
    x->more = NULL;
    root_close(x);
    free(x);
}

/* The folder that holds rel, and rel beneath it. */
static const struct root *holder(const struct root *r, const char **rel)
{
    for (const struct root *x = r->more; x && **rel == '/'; x = x->more)
        if (within(*rel, x->path)) {
            *rel += strlen(x->path);
            *rel += strspn(*rel, "/");
            *rel = **rel ? *rel : ".";
            return x;
        }
    return r;
}

const char *root_inner(const struct root *r, const char *rel)
{
    holder(r, &rel);
    return rel;
}

static char *relative(const struct root *r, const char *given, struct vt_err *err);

char *root_relative(const struct root *r, const char *given, struct vt_err *err)
{
    struct text t = {0};
    for (const struct root *x = r->more; x && *given == '/'; x = x->more) {
        char *rel = within(given, x->path) ? relative(x, given, err) : NULL;
        if (!rel)
            continue;
        text_printf(&t, "%s%s%s", x->path, strcmp(rel, ".") == 0 ? "" : "/",
                    strcmp(rel, ".") == 0 ? "" : rel);
        free(rel);
        return text_take(&t);
    }
    return relative(r, given, err);
}

static char *relative(const struct root *r, const char *given, struct vt_err *err)
{
    size_t len = strlen(r->path);
    const char *p = given;
    if (*p == '/') {
        if (!within(given, r->path)) {
            vt_fail(
                err, VT_E_PERM,
                "%s is outside the project; use a path relative to it (the user can add folders: /add-dir)",
                given);
            return NULL;
        }
        p += len;
    }
    char *out = mem_new(strlen(p) + 2);
    size_t n = 0;
    while (*p) {
        size_t k = strcspn(p, "/");
        if (k == 2 && p[0] == '.' && p[1] == '.') {
            if (!n) {
                vt_fail(err, VT_E_PERM, "%s is outside the project; use a path relative to it", given);
                free(out);
                return NULL;
            }
            while (n && out[n - 1] != '/')
                n--;
            n -= n > 0;
        } else if (k && !(k == 1 && *p == '.')) {
            if (n)
                out[n++] = '/';
            memcpy(out + n, p, k);
            n += k;
        }
        p += k;
        p += *p == '/';
    }
    if (!n)
        out[n++] = '.';
    out[n] = 0;
    return out;
}

static int open_beneath(int dir, const char *rel, int flags, mode_t mode)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd;
    do
        fd = (int)syscall(SYS_openat2, dir, rel, &how, sizeof how);
    while (fd < 0 && (errno == EAGAIN || errno == EINTR)); /* EAGAIN: a rename crossed the walk */
    return fd;
}

static int open_fault(const struct root *r, const char *rel, struct vt_err *err)
{
    struct stat st;
    const char *inner = rel;
    const struct root *x = holder(r, &inner);
    if (errno == EXDEV)
        return vt_fail(err, VT_E_PERM, "%s: a link leads out of the project", rel);
    if (errno == ELOOP)
        return vt_fail(err, VT_E_PERM, "%s: links in a circle, or one that may not be followed", rel);
    if (errno == ENOENT && fstatat(x->fd, inner, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        return vt_fail(err, VT_E_PERM, "%s: a link to something that does not exist", rel);
    if (errno == ENOENT || errno == ENOTDIR)
        return vt_fail(err, VT_E_NOT_FOUND, "%s: no such file", rel);
    return vt_fail_errno(err, VT_E_IO, "%s", rel);
}

int root_openat(const struct root *r, const char *rel, int flags, struct vt_err *err)
{
    const char *inner = rel;
    const struct root *x = holder(r, &inner);
    int fd = open_beneath(x->fd, inner, flags, 0644);
    return fd >= 0 ? fd : open_fault(r, rel, err);
}

static int slurp(int fd, const char *rel, struct text *out, struct vt_err *err)
{
    char buf[65536];
    size_t start = out->len;
    for (;;) {
        ssize_t k = read(fd, buf, sizeof buf);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return vt_fail_errno(err, VT_E_IO, "%s", rel);
        if (k == 0)
            return 0;
        text_add(out, buf, (size_t)k);
        if (out->len - start > ROOT_MAX_FILE)
            return vt_fail(err, VT_E_TOO_LARGE, "%s is larger than 64 MiB", rel);
    }
}

int root_read(const struct root *r, const char *rel, struct text *out, struct stat *st, struct vt_err *err)
{
    struct stat own;
    st = st ? st : &own;
    int fd = root_openat(r, rel, O_RDONLY | O_NONBLOCK | O_NOCTTY, err), rc = -1;
    if (fd < 0)
        return -1;
    if (fstat(fd, st) < 0)
        vt_fail_errno(err, VT_E_IO, "%s", rel);
    else if (S_ISDIR(st->st_mode))
        vt_fail(err, VT_E_PARAM, "%s is a folder", rel);
    else if (!S_ISREG(st->st_mode))
        vt_fail(err, VT_E_PARAM, "%s is no regular file", rel);
    else if (st->st_size > ROOT_MAX_FILE)
        vt_fail(err, VT_E_TOO_LARGE, "%s is larger than 64 MiB", rel);
    else
        rc = slurp(fd, rel, out, err);
    close(fd);
    return rc;
}

char *root_real(const struct root *r, const char *rel, struct vt_err *err)
{
    char link[64], target[PATH_MAX];
    struct stat st;
    const char *inner = rel;
    const struct root *x = holder(r, &inner);
    int fd = open_beneath(x->fd, inner, O_PATH, 0);
    if (fd < 0) {
        if (errno == ENOENT && fstatat(x->fd, inner, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
            return mem_dup(rel);
        errno = errno ? errno : ENOENT;
        open_fault(r, rel, err);
        return NULL;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    close(fd);
    if (n < 0) {
        vt_fail_errno(err, VT_E_IO, "%s", rel);
        return NULL;
    }
    target[n] = 0;
    return root_relative(r, target, err);
}

/* The folder of rel as a handle. *name points into rel. */
static int parent(const struct root *r, const char *rel, const char **name, struct vt_err *err)
{
    const char *slash = strrchr(rel, '/');
    *name = slash ? slash + 1 : rel;
    if (!slash)
        return fcntl(r->fd, F_DUPFD_CLOEXEC, 0);
    char *dir = mem_dupn(rel, (size_t)(slash - rel));
    int fd = open_beneath(r->fd, dir, O_PATH | O_DIRECTORY, 0);
    if (fd < 0)
        open_fault(r, dir, err);
    free(dir);
    return fd;
}

static int make_parents(const struct root *r, const char *rel, struct vt_err *err)
{
    for (const char *p = strchr(rel, '/'); p; p = strchr(p + 1, '/')) {
        const char *name;
        char *part = mem_dupn(rel, (size_t)(p - rel));
        int up = parent(r, part, &name, err), rc = up < 0 ? -1 : mkdirat(up, name, 0777);
        if (up >= 0 && rc < 0 && errno == EEXIST)
            rc = 0;
        else if (up >= 0 && rc < 0)
            vt_fail_errno(err, VT_E_IO, "folder %s cannot be made", part);
        if (up >= 0)
            close(up);
        free(part);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int write_all(int fd, const char *bytes, size_t n)
{
    while (n) {
        ssize_t k = write(fd, bytes, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        bytes += k;
        n -= (size_t)k;
    }
    return 0;
}

static int replace(int dir, const char *name, const char *bytes, size_t n, mode_t mode,
                   const struct stat *old)
{
    char tmp[64];
    int fd = -1;
    for (unsigned i = 0; i < 100 && fd < 0; i++) {
        snprintf(tmp, sizeof tmp, ".officina-%d-%u", (int)getpid(), i);
        fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    if (fd < 0)
        return -1;
    int rc = write_all(fd, bytes, n);
    if (rc == 0 && old && fchown(fd, old->st_uid, old->st_gid) < 0 && errno != EPERM)
        rc = -1;
    if (rc == 0)
        rc = fchmod(fd, old ? old->st_mode & 07777 : mode);
    if (rc == 0)
        rc = fdatasync(fd);
    rc = close(fd) < 0 ? -1 : rc;
    if (rc == 0)
        rc = renameat(dir, tmp, dir, name);
    if (rc < 0) {
        int e = errno;
        unlinkat(dir, tmp, 0);
        errno = e;
    }
    return rc;
}

int root_write(const struct root *r, const char *rel, const char *bytes, size_t n, mode_t mode,
               struct vt_err *err)
{
    const char *name;
    struct stat st;
    char *real = root_real(r, rel, err);
    if (!real)
        return -1;
    const char *inner = real;
    const struct root *x = holder(r, &inner);
    int rc = -1, dir = make_parents(x, inner, err) < 0 ? -1 : parent(x, inner, &name, err);
    if (dir >= 0) {
        bool old = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (old && !S_ISREG(st.st_mode))
            vt_fail(err, VT_E_PARAM, "%s is no regular file", rel);
        else if (replace(dir, name, bytes, n, mode, old ? &st : NULL) < 0)
            vt_fail_errno(err, errno == ENOSPC || errno == EDQUOT ? VT_E_DISK_FULL : VT_E_IO,
                          "%s cannot be written", rel);
        else
            rc = 0;
        close(dir);
    }
    free(real);
    return rc;
}

int root_put(const struct root *r, const char *rel, const char *bytes, size_t n, mode_t mode,
             struct vt_err *err)
{
    const char *name;
    int rc = -1, dir = make_parents(r, rel, err) < 0 ? -1 : parent(r, rel, &name, err);
    if (dir < 0)
        return -1;
    if (replace(dir, name, bytes, n, mode, NULL) < 0)
        vt_fail_errno(err, VT_E_IO, "%s cannot be written", rel);
    else
        rc = 0;
    close(dir);
    return rc;
}

int root_remove(const struct root *r, const char *rel, struct vt_err *err)
{
    const char *name;
    int dir = parent(r, rel, &name, err);
    if (dir < 0)
        return -1;
    int rc = unlinkat(dir, name, 0);
    if (rc < 0 && errno == ENOENT)
        rc = 0;
    if (rc < 0)
        vt_fail_errno(err, VT_E_IO, "%s cannot be removed", rel);
    close(dir);
    return rc;
}

int root_symlink(const struct root *r, const char *rel, const char *target, struct vt_err *err)
{
    char tmp[64];
    const char *name;
    int dir = make_parents(r, rel, err) < 0 ? -1 : parent(r, rel, &name, err);
    if (dir < 0)
        return -1;
    snprintf(tmp, sizeof tmp, ".officina-%d-link", (int)getpid());
    unlinkat(dir, tmp, 0);
    int rc = symlinkat(target, dir, tmp);
    if (rc == 0)
        rc = renameat(dir, tmp, dir, name);
    if (rc < 0)
        vt_fail_errno(err, VT_E_IO, "%s cannot be made a link", rel);
    close(dir);
    return rc;
}

void root_prune(const struct root *r, const char *rel)
{
    char *dir = mem_dup(rel);
    for (char *slash; (slash = strrchr(dir, '/'));) {
        *slash = 0;
        const char *name;
        int up = parent(r, dir, &name, NULL);
        int rc = up < 0 ? -1 : unlinkat(up, name, AT_REMOVEDIR);
        if (up >= 0)
            close(up);
        if (rc < 0)
            break;
    }
    free(dir);
}
