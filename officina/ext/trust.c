#include "ext/trust.h"

#include "hash.h"

#include "tools/root.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILES = 2000, MAX_DEPTH = 8 };

struct look {
    struct root root;
    struct vt_sha256 *hash;
    struct text *lines;
    size_t files;
};

static void describe(struct look *l, const char *rel, const struct stat *st)
{
    const char *p = rel + strlen(".officina/");
    if (strcmp(p, "rules") == 0)
        text_puts(l->lines, "rules for tools (.officina/rules)\n");
    else if (strncmp(p, "skills/", 7) == 0 && strstr(p, "/SKILL.md"))
        text_printf(l->lines, "a skill (%s)\n", rel);
    else if (strncmp(p, "commands/", 9) == 0)
        text_printf(l->lines, "a command (%s)\n", rel);
    else if (strncmp(p, "ext/", 4) == 0 && strstr(p, "/ext.conf"))
        text_printf(l->lines, "an extension that can run as you (%s)\n", rel);
    else
        text_printf(l->lines, "a file (%s%s)\n", rel, st->st_mode & 0111 ? ", a program" : "");
}

static int add(struct look *l, const char *rel, const struct stat *st, struct vt_err *err)
{
    char target[PATH_MAX];
    struct text t = {0};
    uint32_t mode = st->st_mode & (S_IFMT | 0111);
    int rc = 0;
    if (++l->files > MAX_FILES)
        return vt_fail(err, VT_E_TOO_LARGE, ".officina holds more than %d files", MAX_FILES);
    vt_sha256_add(l->hash, rel, strlen(rel) + 1);
    vt_sha256_add(l->hash, &mode, sizeof mode);
    if (S_ISLNK(st->st_mode)) {
        ssize_t n = readlinkat(l->root.fd, rel, target, sizeof target);
        text_add(&t, target, n > 0 ? (size_t)n : 0);
    } else {
        rc = root_read(&l->root, rel, &t, NULL, err);
    }
    uint64_t len = t.len;
    vt_sha256_add(l->hash, &len, sizeof len);
    vt_sha256_add(l->hash, text_str(&t), t.len);
    text_free(&t);
    describe(l, rel, st);
    return rc;
}

static int enter(struct look *l, const char *dir, int depth, struct vt_err *err)
{
    struct dirent **names = NULL;
    char full[PATH_MAX], rel[PATH_MAX];
    struct stat st;
    snprintf(full, sizeof full, "%s/%s", l->root.path, dir);
    int n = scandir(full, &names, NULL, alphasort), rc = 0;
    if (n < 0)
        return vt_fail_errno(err, VT_E_IO, "%s", full);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        bool skip = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
        int k = snprintf(rel, sizeof rel, "%s/%s", dir, name);
        if (rc == 0 && !skip && k >= (int)sizeof rel)
            rc = vt_fail(err, VT_E_TOO_LARGE, "a path of .officina is too long");
        else if (rc == 0 && !skip && fstatat(l->root.fd, rel, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            if (S_ISDIR(st.st_mode))
                rc = depth < MAX_DEPTH ? enter(l, rel, depth + 1, err)
                                       : vt_fail(err, VT_E_TOO_LARGE, "%.200s lies too deep", rel);
            else if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
                rc = add(l, rel, &st, err);
        }
        free(names[i]);
    }
    free(names);
    return rc;
}

int trust_look(const char *root, uint8_t hash[32], struct text *lines, struct vt_err *err)
{
    struct look l = {.lines = lines};
    struct stat st;
    if (root_open(&l.root, root, err) < 0)
        return -1;
    int rc = 0;
    if (fstatat(l.root.fd, ".officina", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
        l.hash = vt_sha256_new();
        rc = enter(&l, ".officina", 0, err) < 0 ? -1 : 1;
        vt_sha256_end(l.hash, hash);
        vt_sha256_free(l.hash);
    }
    root_close(&l.root);
    return rc;
}
