#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_read(const char *path, size_t max, struct text *out, struct vt_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "%s", path);
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return vt_fail(err, VT_E_PAYLOAD, "%s is no plain file", path);
    }
    char buf[16384];
    size_t total = 0;
    ssize_t n;
    while ((n = read(fd, buf, sizeof buf)) > 0 && (total += (size_t)n) <= max)
        text_add(out, buf, (size_t)n);
    int bad = errno;
    close(fd);
    errno = bad;
    if (n < 0)
        return vt_fail_errno(err, VT_E_IO, "%s: reading", path);
    if (total > max)
        return vt_fail(err, VT_E_PAYLOAD, "%s is larger than %zu bytes", path, max);
    return 0;
}

int file_write(const char *path, const char *bytes, size_t n, struct vt_err *err)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.%d.new", path, (int)getpid()) >= (int)sizeof beside)
        return vt_fail(err, VT_E_PARAM, "%.200s: the path is too long", path);
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_IO, "%s", beside);
    size_t done = 0;
    ssize_t k = 0;
    while (done < n && (k = write(fd, bytes + done, n - done)) > 0)
        done += (size_t)k;
    if (done < n || close(fd) < 0 || rename(beside, path) < 0) {
        int rc = vt_fail_errno(err, VT_E_IO, "%s: writing", path);
        unlink(beside);
        return rc;
    }
    return 0;
}

int file_own_dir(const char *dir, struct vt_err *err)
{
    char path[PATH_MAX];
    size_t n = strlen(dir);
    if (n == 0 || n >= sizeof path)
        return vt_fail(err, VT_E_CONFIG, "state folder: the path is %s", n == 0 ? "empty" : "too long");
    memcpy(path, dir, n + 1);
    for (char *p = path + 1; *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return vt_fail_errno(err, VT_E_CONFIG, "%s", path);
        *p = '/';
    }
    struct stat st;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return vt_fail_errno(err, VT_E_CONFIG, "%s", path);
    if (lstat(path, &st) < 0)
        return vt_fail_errno(err, VT_E_CONFIG, "%s", path);
    if (!S_ISDIR(st.st_mode))
        return vt_fail(err, VT_E_CONFIG, "%s is %s; Officina needs a folder of its own there", path,
                       S_ISLNK(st.st_mode) ? "a link" : "no folder");
    if (st.st_uid != geteuid())
        return vt_fail(err, VT_E_CONFIG, "%s belongs to somebody else", path);
    if ((st.st_mode & 077) != 0 && chmod(path, 0700) < 0)
        return vt_fail_errno(err, VT_E_CONFIG, "%s: chmod 700", path);
    return 0;
}

char *file_tilde(const char *path)
{
    const char *home = getenv("HOME");
    size_t n = home != NULL ? strlen(home) : 0;
    struct text t = {0};
    if (n > 1 && strncmp(path, home, n) == 0 && (path[n] == '/' || path[n] == '\0'))
        text_printf(&t, "~%s", path + n);
    else
        text_puts(&t, path);
    return text_take(&t);
}
