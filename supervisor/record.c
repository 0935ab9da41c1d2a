#include "record.h"

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void path_of(const char *state, const char *name, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/records/%s.json", state, name);
}

static void aside(const char *path, const char *why, struct vt_log *log)
{
    char bad[PATH_MAX + 8];
    snprintf(bad, sizeof bad, "%s.bad", path);
    bool moved = rename(path, bad) == 0;
    vt_log(log, VT_LOG_ERR, "%s: %s; %s", path, why,
           moved ? "moved aside to the same name with .bad behind it" : "it cannot be moved aside either");
}

json_t *record_load(const char *state, const char *name, struct vt_log *log)
{
    char path[PATH_MAX];
    json_error_t e;
    struct stat st;
    path_of(state, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        if (errno != ENOENT && log != NULL)
            vt_log(log, VT_LOG_ERR, "%s: %s; nothing is known of it, and it is not written over", path,
                   strerror(errno));
        return json_object();
    }
    json_t *v = NULL;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > RECORD_MAX_BYTES)
        snprintf(e.text, sizeof e.text, "no file of at most %u bytes", RECORD_MAX_BYTES);
    else
        v = json_loadfd(fd, JSON_REJECT_DUPLICATES, &e);
    close(fd);
    if (v != NULL && !json_is_object(v)) {
        json_decref(v);
        v = NULL;
        snprintf(e.text, sizeof e.text, "no JSON object");
    }
    if (v == NULL && log != NULL)
        aside(path, e.text, log);
    return v != NULL ? v : json_object();
}

static int write_all(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t k = write(fd, text, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        text += k;
        n -= (size_t)k;
    }
    return fsync(fd);
}

static int place(const char *dir, const char *path, const char *text, struct vt_err *err)
{
    char tmp[PATH_MAX + 8];
    snprintf(tmp, sizeof tmp, "%s.new", path);
    unlink(tmp);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_IO, "%s", tmp);
    int rc = write_all(fd, text, strlen(text));
    if (close(fd) < 0)
        rc = -1;
    if (rc < 0 || rename(tmp, path) < 0) {
        vt_fail_errno(err, errno == ENOSPC ? VT_E_DISK_FULL : VT_E_IO, "%s", path);
        unlink(tmp);
        return -1;
    }
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d >= 0) {
        fsync(d);
        close(d);
    }
    return 0;
}

/* What cannot be opened may hold more than is to be written. */
static int replaceable(const char *path, struct vt_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno != ENOENT)
        return vt_fail_errno(err, VT_E_IO, "%s cannot be read, so it is not written over", path);
    if (fd >= 0)
        close(fd);
    return 0;
}

int record_save(const char *state, const char *name, const json_t *value, struct vt_err *err)
{
    char dir[PATH_MAX], path[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/records", state);
    path_of(state, name, path);
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return vt_fail_errno(err, VT_E_IO, "%s", dir);
    if (replaceable(path, err) < 0)
        return -1;
    char *text = json_dumps(value, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (text == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    int rc = strlen(text) > RECORD_MAX_BYTES
                 ? vt_fail(err, VT_E_LIMIT, "%s: more than %u bytes", path, RECORD_MAX_BYTES)
                 : place(dir, path, text, err);
    free(text);
    return rc;
}
