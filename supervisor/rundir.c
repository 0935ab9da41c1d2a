#include "rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_BLOCK 65536u

static int too_long(const char *path, struct vt_err *err)
{
    return vt_fail(err, VT_E_CONFIG,
                   "paths.run_dir: %s is too long: %zu bytes, %d are legal, since a socket path below it may "
                   "have 107 at "
                   "most",
                   path, strlen(path), RUNDIR_MAX);
}

int rundir_default_run(const struct vt_config *cfg, char *out, size_t size, struct vt_err *err)
{
    const char *set = vt_config_str(cfg, VT_CFG_PATHS_RUN_DIR);
    const char *unit = getenv("RUNTIME_DIRECTORY");
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    int n;
    if (set[0] != '\0')
        n = snprintf(out, size, "%s", set);
    else if (unit != NULL && unit[0] == '/')
        n = snprintf(out, size, "%.*s", (int)strcspn(unit, ":"), unit);
    else if (geteuid() == 0)
        n = snprintf(out, size, "/run/vitriol");
    else if (xdg != NULL && xdg[0] == '/')
        n = snprintf(out, size, "%s/vitriol", xdg);
    else
        n = snprintf(out, size, "/tmp/vitriol-%u", (unsigned)geteuid());
    if (n < 0 || n > RUNDIR_MAX || (size_t)n >= size)
        return too_long(set[0] != '\0' ? set : out, err);
    return 0;
}

static int resolve_state(struct rundir *d, const struct vt_config *cfg, struct vt_err *err)
{
    const char *set = vt_config_str(cfg, VT_CFG_PATHS_STATE_DIR);
    const char *unit = getenv("STATE_DIRECTORY");
    const char *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n;
    if (set[0] != '\0')
        n = snprintf(d->state, sizeof d->state, "%s", set);
    else if (unit != NULL && unit[0] == '/')
        n = snprintf(d->state, sizeof d->state, "%.*s", (int)strcspn(unit, ":"), unit);
    else if (geteuid() == 0)
        n = snprintf(d->state, sizeof d->state, "/var/lib/vitriol");
    else if (xdg != NULL && xdg[0] == '/')
        n = snprintf(d->state, sizeof d->state, "%s/vitriol", xdg);
    else if (home != NULL && home[0] == '/')
        n = snprintf(d->state, sizeof d->state, "%s/.local/state/vitriol", home);
    else
        return vt_fail(err, VT_E_CONFIG,
                       "paths.state_dir is empty and there is no HOME to choose one; set it");
    if (n < 0 || (size_t)n >= sizeof d->state)
        return vt_fail(err, VT_E_CONFIG, "paths.state_dir: the path is too long");
    return 0;
}

/* A path given on the command line may be relative; children run elsewhere. */
static int absolute(char *path, size_t size, struct vt_err *err)
{
    char cwd[4096];
    char whole[8192];
    if (path[0] == '/')
        return 0;
    if (getcwd(cwd, sizeof cwd) == NULL)
        return vt_fail_errno(err, VT_E_OS, "working directory");
    snprintf(whole, sizeof whole, "%s/%s", cwd, path);
    if (strlen(whole) >= size)
        return too_long(whole, err);
    memcpy(path, whole, strlen(whole) + 1);
    return 0;
}

int rundir_resolve(struct rundir *d, const struct vt_config *cfg, struct vt_err *err)
{
    memset(d, 0, sizeof *d);
    d->lock_fd = d->state_fd = -1;
    if (rundir_default_run(cfg, d->run, sizeof d->run, err) < 0 || resolve_state(d, cfg, err) < 0 ||
        absolute(d->run, sizeof d->run, err) < 0 || absolute(d->state, sizeof d->state, err) < 0)
        return -1;
    snprintf(d->in, sizeof d->in, "%s/int", d->run);
    snprintf(d->lock, sizeof d->lock, "%s/lock", d->run);
    snprintf(d->ctl, sizeof d->ctl, "%s/ctl", d->run);
    snprintf(d->tele, sizeof d->tele, "%s/tele", d->run);
    snprintf(d->address, sizeof d->address, "%s/address", d->run);
    return 0;
}

static int make_parents(const char *path)
{
    char part[1024];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1; *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return -1;
        *p = '/';
    }
    return 0;
}

static int make_dir(const char *path, mode_t mode, uid_t uid, gid_t gid, struct vt_err *err)
{
    struct stat st;
    if (make_parents(path) < 0)
        return vt_fail_errno(err, errno == EACCES ? VT_E_PERM : VT_E_OS, "making the folder above %s", path);
    bool made = mkdir(path, mode) == 0;
    if (!made && errno != EEXIST)
        return vt_fail_errno(err, errno == EACCES ? VT_E_PERM : VT_E_OS, "%s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_PERM, "%s", path);
    int rc = 0;
    if (fstat(fd, &st) < 0)
        rc = vt_fail_errno(err, VT_E_OS, "%s", path);
    else if (st.st_uid != geteuid() && st.st_uid != uid)
        rc = vt_fail(err, VT_E_PERM, "%s belongs to uid %u; choose a folder of your own", path,
                     (unsigned)st.st_uid);
    else if ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0)
        rc = vt_fail_errno(err, VT_E_PERM, "%s", path);
    else if (geteuid() == 0 && (st.st_uid != uid || st.st_gid != gid) && fchown(fd, uid, gid) < 0)
        rc = vt_fail_errno(err, VT_E_PERM, "%s", path);
    close(fd);
    return rc;
}

int rundir_make(struct rundir *d, uid_t uid, gid_t gid, struct vt_err *err)
{
    if (make_dir(d->run, 0750, uid, gid, err) < 0 || make_dir(d->in, 0700, uid, gid, err) < 0)
        return -1;
    return make_dir(d->state, 0700, uid, gid, err);
}

static int take_lock(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &l);
}

/* Two instances may differ in everything but must not share checkpoints: the database admits one. */
static int lock_state(struct rundir *d, struct vt_err *err)
{
    char path[sizeof d->state + 16], run[RUNDIR_MAX + 2] = "";
    snprintf(path, sizeof path, "%s/lock", d->state);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return vt_fail_errno(err, errno == EACCES ? VT_E_PERM : VT_E_OS, "paths.state_dir: %s", path);
    if (take_lock(fd) == 0) {
        int n = snprintf(run, sizeof run, "%s\n", d->run);
        if (ftruncate(fd, 0) < 0 || pwrite(fd, run, (size_t)n, 0) != n) {
            close(fd);
            return vt_fail_errno(err, VT_E_IO, "paths.state_dir: %s", path);
        }
        d->state_fd = fd;
        return 0;
    }
    struct flock who = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    fcntl(fd, F_GETLK, &who);
    ssize_t n = pread(fd, run, sizeof run - 1, 0);
    run[n > 0 ? n : 0] = '\0';
    run[strcspn(run, "\n")] = '\0';
    close(fd);
    return vt_fail(
        err, VT_E_UNAVAILABLE,
        "state directory %s is in use by another vitriold (pid %d, run directory %s): give this one "
        "its own (--state-dir), or ask that one with vitriolctl --run-dir %s",
        d->state, (int)who.l_pid, run, run);
}

static int lock_run(struct rundir *d, struct vt_err *err)
{
    struct stat st;
    int fd = open(d->lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return vt_fail_errno(err, errno == EACCES ? VT_E_PERM : VT_E_OS, "%s", d->lock);
    if (take_lock(fd) < 0) {
        struct flock who = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        fcntl(fd, F_GETLK, &who);
        close(fd);
        return vt_fail(err, VT_E_UNAVAILABLE,
                       "another vitriold (pid %d) runs in %s; ask it with vitriolctl --run-dir %s, or "
                       "restart its unit (systemctl "
                       "restart vitriold) instead of starting a second one",
                       (int)who.l_pid, d->run, d->run);
    }
    if (fstat(fd, &st) < 0) {
        close(fd);
        return vt_fail_errno(err, VT_E_OS, "%s", d->lock);
    }
    fchmod(fd, 0640);
    d->lock_fd = fd;
    d->lock_dev = st.st_dev;
    d->lock_ino = st.st_ino;
    /* The lock file may have been removed by hand: a bound `ctl` says that somebody is there all the same. Asking the
     * kernel's table touches nobody's socket. */
    FILE *f = fopen("/proc/net/unix", "re");
    char line[512];
    bool bound = false;
    size_t n = strlen(d->ctl);
    while (f != NULL && !bound && fgets(line, sizeof line, f) != NULL) {
        size_t m = strcspn(line, "\n");
        bound = m > n && strncmp(line + m - n, d->ctl, n) == 0 && line[m - n - 1] == ' ' &&
                strstr(line, " 00010000 ") != NULL;
    }
    if (f != NULL)
        fclose(f);
    if (bound)
        return vt_fail(err, VT_E_UNAVAILABLE,
                       "%s is bound by another process although its lock is free (was %s removed?)", d->ctl,
                       d->lock);
    return 0;
}

int rundir_lock(struct rundir *d, struct vt_err *err)
{
    return lock_run(d, err) < 0 || lock_state(d, err) < 0 ? -1 : 0;
}

int rundir_clean(const struct rundir *d, struct vt_err *err)
{
    DIR *dir = opendir(d->in);
    if (dir == NULL)
        return vt_fail_errno(err, VT_E_OS, "%s", d->in);
    struct dirent *e;
    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] != '\0' && strchr("ldksb", e->d_name[0]) != NULL && e->d_name[1] == '.')
            unlinkat(dirfd(dir), e->d_name, 0);
    }
    closedir(dir);
    unlink(d->ctl);
    unlink(d->tele);
    unlink(d->address);
    return 0;
}

int rundir_write(const char *path, const char *line, struct vt_err *err)
{
    char tmp[RUNDIR_FILE + 8];
    snprintf(tmp, sizeof tmp, "%s.new", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_OS, "%s", tmp);
    size_t n = strlen(line);
    fchmod(fd, 0640); /* whatever the umask: the group may read */
    bool ok = write(fd, line, n) == (ssize_t)n;
    close(fd);
    if (!ok || rename(tmp, path) < 0)
        return vt_fail_errno(err, VT_E_OS, "%s", path);
    return 0;
}

int rundir_link_block(const struct rundir *d, uint32_t *first, struct vt_err *err)
{
    char path[RUNDIR_FILE];
    char text[32] = "";
    snprintf(path, sizeof path, "%s/links", d->run);
    FILE *f = fopen(path, "re");
    unsigned long n = 1;
    if (f != NULL) {
        if (fgets(text, sizeof text, f) != NULL)
            n = strtoul(text, NULL, 10);
        fclose(f);
    }
    if (n == 0 || n > UINT32_MAX - 2 * LINK_BLOCK)
        n = 1;
    *first = (uint32_t)n;
    snprintf(text, sizeof text, "%lu\n", n + LINK_BLOCK);
    return rundir_write(path, text, err);
}

int rundir_keep(struct rundir *d, struct vt_err *err)
{
    struct stat st;
    if (lstat(d->lock, &st) == 0 && st.st_dev == d->lock_dev && st.st_ino == d->lock_ino)
        return 1;
    unlink(d->lock);
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", d->lock_fd);
    /* The inode that we hold gets its name back, where the filesystem allows it for an unlinked file; else a new one. */
    if (linkat(AT_FDCWD, self, AT_FDCWD, d->lock, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    int fd = open(d->lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (fd < 0 || take_lock(fd) < 0 || fstat(fd, &st) < 0) {
        if (fd >= 0)
            close(fd);
        return vt_fail_errno(err, VT_E_OS, "%s was removed and cannot be made anew", d->lock);
    }
    d->lock_fd =
        fd; /* the old descriptor stays open on purpose: whoever waits on the old inode must go on waiting */
    d->lock_dev = st.st_dev;
    d->lock_ino = st.st_ino;
    return 0;
}

void rundir_release(struct rundir *d)
{
    unlink(d->address);
    if (d->lock_fd >= 0)
        close(d->lock_fd); /* the file stays: removing it would race with a successor that has it open */
    if (d->state_fd >= 0)
        close(d->state_fd);
    d->lock_fd = d->state_fd = -1;
}

pid_t rundir_holder(const char *run)
{
    char path[4096];
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    snprintf(path, sizeof path, "%s/lock", run);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    int rc = fcntl(fd, F_GETLK, &l);
    close(fd);
    if (rc < 0)
        return -1;
    return l.l_type == F_UNLCK ? 0 : l.l_pid;
}
