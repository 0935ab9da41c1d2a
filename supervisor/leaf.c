#include "leaf.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

static void path_of(const struct leaves *l, const char *leaf, const char *file, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s/%s", l->path, leaf, file);
}

static bool put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* The number behind a word in a small file; false when the file or the word is not there. */
static bool number(const char *path, const char *name, uint64_t *out)
{
    char line[128];
    bool found = false;
    size_t len = strlen(name);
    FILE *f = fopen(path, "re");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        found = strncmp(line, name, len) == 0 && line[len] == ' ';
        if (found)
            *out = strtoull(line + len, NULL, 10);
    }
    if (f != NULL)
        fclose(f);
    return found;
}

/* ---- finding ---- */

/* The path of this process in the one hierarchy of version 2. The root belongs to the kernel. */
static bool own_path(const char *proc_root, char *out, size_t size)
{
    char path[PATH_MAX], line[1024];
    out[0] = '\0';
    snprintf(path, sizeof path, "%.1000s/self/cgroup", proc_root);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0)
            snprintf(out, size, "%.*s", (int)size - 1, line + 3);
    }
    if (f != NULL)
        fclose(f);
    return out[0] != '\0' && out[1] != '\0';
}

static bool is_v2(const char *path)
{
    struct statfs fs;
    return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* Who is no root owns only what was given to it; root may write everywhere, so it needs the manager's word. */
static bool delegated(const char *path)
{
    static const char *const marks[] = {"user.delegate", "trusted.delegate"};
    struct stat st;
    char value[2];
    if (geteuid() != 0)
        return stat(path, &st) == 0 && st.st_uid == geteuid();
    for (int i = 0; i < 2; i++) {
        if (getxattr(path, marks[i], value, sizeof value) == 1 && value[0] == '1')
            return true;
    }
    return false;
}

static bool find(struct leaves *l, const char *cgroup_root, const char *own)
{
    static const char *const below[] = {"", "/unified"}; /* beside version 1 it is mounted there */
    for (int i = 0; i < 2; i++) {
        int n = snprintf(l->path, sizeof l->path, "%s%s%s", cgroup_root, below[i], own);
        if (n > 0 && (size_t)n < sizeof l->path && is_v2(l->path))
            return delegated(l->path);
    }
    return false;
}

void leaves_open(struct leaves *l, const char *cgroup_root, const char *proc_root)
{
    char own[1024], path[PATH_MAX];
    *l = (struct leaves){0};
    if (!own_path(proc_root, own, sizeof own) || !find(l, cgroup_root, own))
        return;
    snprintf(path, sizeof path, "%s/super", l->path);
    if (mkdir(path, 0755) < 0 && access(path, F_OK) < 0)
        return;
    path_of(l, "super", "cgroup.procs", path);
    if (!put(path, "0")) {
        leaf_remove(l, "super");
        return;
    }
    l->on = true;
    path_of(l, ".", "cgroup.subtree_control", path);
    put(path, "+pids");
    l->accounting = put(path, "+memory");
}

/* ---- one ---- */

int leaf_open(const struct leaves *l, const char *name)
{
    char path[PATH_MAX];
    if (!l->on)
        return -1;
    path_of(l, name, "", path);
    mkdir(path, 0755);
    path_of(l, name, "cgroup.procs", path);
    return open(path, O_WRONLY | O_CLOEXEC);
}

void leaf_kill(const struct leaves *l, const char *name)
{
    char path[PATH_MAX];
    path_of(l, name, "cgroup.kill", path);
    if (l->on)
        put(path, "1");
}

bool leaf_empty(const struct leaves *l, const char *name)
{
    char path[PATH_MAX];
    uint64_t populated = 0;
    path_of(l, name, "cgroup.events", path);
    return !l->on || !number(path, "populated", &populated) || populated == 0;
}

bool leaf_event(const struct leaves *l, const char *name, const char *event, uint64_t *n)
{
    char path[PATH_MAX];
    path_of(l, name, "memory.events", path);
    return l->on && l->accounting && number(path, event, n);
}

bool leaf_put(const struct leaves *l, const char *name, const char *file, uint64_t bytes)
{
    char path[PATH_MAX], text[32];
    path_of(l, name, file, path);
    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    return l->on && l->accounting && put(path, text);
}

void leaf_remove(const struct leaves *l, const char *name)
{
    char path[PATH_MAX];
    path_of(l, name, "", path);
    rmdir(path);
}
