#include "snap/keep.h"

#include "util/text.h"

#include <stdbool.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 8 };

static const char *plain(const char *session)
{
    bool ok = session && *session;
    for (const char *p = session; ok && *p; p++)
        ok = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", *p) != NULL;
    return ok ? session : "none";
}

int keep_tree(const struct git *g, const char *session, const char *tree, struct vt_err *err)
{
    char ref[160];
    struct timespec t;
    struct text out = {0};
    clock_gettime(CLOCK_REALTIME, &t);
    snprintf(ref, sizeof ref, "refs/snap/%017lld-%.80s", (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000,
             plain(session));
    const char *args[] = {"update-ref", ref, tree, NULL};
    int rc = git_run(g, args, NULL, &out, err);
    text_free(&out);
    return rc;
}

static uint64_t folder_size(const char *path, size_t *files)
{
    uint64_t sum = 0;
    struct stat st;
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        sum += (uint64_t)st.st_blocks * 512;
        ++*files;
    }
    if (d)
        closedir(d);
    return sum;
}

uint64_t keep_size(const struct git *g, size_t *loose)
{
    struct text path = {0};
    size_t n = 0, packs = 0;
    uint64_t sum = 0;
    for (int i = 0; i < 256; i++) {
        text_clear(&path);
        text_printf(&path, "%s/objects/%02x", g->dir, (unsigned)i);
        sum += folder_size(path.s, &n);
    }
    text_clear(&path);
    text_printf(&path, "%s/objects/pack", g->dir);
    sum += folder_size(path.s, &packs);
    text_free(&path);
    if (loose)
        *loose = n;
    return sum;
}

/* Indexes of other conversations name objects that may be gone now; each is made anew when it is needed. */
static void drop_indexes(const struct git *g)
{
    const char *own = strrchr(g->index, '/') + 1;
    DIR *d = opendir(g->dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "index-", 6) == 0 && strcmp(e->d_name, own) != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
}

static int pack(const struct git *g, const char *age, struct vt_err *err)
{
    static const char *const refs[] = {"pack-refs", "--all", NULL};
    static const char *const repack[] = {
        "-c", "pack.window=0", "-c", "pack.threads=1", "repack", "-a", "-d", "-q", NULL};
    struct text expire = {0}, out = {0};
    text_printf(&expire, "--expire=%s", age);
    const char *const prune[] = {"prune", expire.s, NULL};
    int rc = git_run(g, refs, NULL, &out, err);
    if (rc == 0)
        rc = git_run(g, repack, NULL, &out, err);
    if (rc == 0)
        rc = git_run(g, prune, NULL, &out, err);
    text_free(&expire);
    text_free(&out);
    if (rc == 0)
        drop_indexes(g);
    return rc;
}

/* Gives the older half of the references up that are not the open conversation's; returns how many. */
static int forget(const struct git *g, const char *session, struct vt_err *err)
{
    static const char *const list[] = {"for-each-ref", "--sort=refname", "--format=%(refname)", "refs/snap",
                                       NULL};
    static const char *const update[] = {"update-ref", "--stdin", NULL};
    struct text refs = {0}, in = {0}, out = {0}, tail = {0};
    size_t others = 0;
    int n = 0;
    text_printf(&tail, "-%s", plain(session));
    int rc = git_run(g, list, NULL, &refs, err);
    for (int pass = 0; pass < 2 && rc == 0; pass++)
        for (char *at = refs.s, *end; at && *at; at = end + 1) {
            size_t len = strcspn(at, "\n");
            end = at + len;
            bool own = len > tail.len && memcmp(end - tail.len, tail.s, tail.len) == 0;
            others += pass == 0 && !own;
            if (pass == 1 && !own && (size_t)n < (others + 1) / 2) {
                text_printf(&in, "delete %.*s\n", (int)len, at);
                n++;
            }
            if (!*end)
                break;
        }
    if (n > 0)
        rc = git_run(g, update, &in, &out, err);
    text_free(&refs);
    text_free(&in);
    text_free(&out);
    text_free(&tail);
    return rc < 0 ? -1 : n;
}

int keep_tidy(const struct git *g, const char *session, uint64_t most, const char *age, struct vt_err *err)
{
    size_t loose;
    int gone = 0;
    uint64_t size = keep_size(g, &loose);
    if (size <= most && loose <= KEEP_LOOSE)
        return 0;
    for (int i = 0; i < ROUNDS; i++) {
        int n = 0;
        if (pack(g, age, err) < 0)
            return -1;
        if (keep_size(g, NULL) <= most)
            break;
        n = forget(g, session, err);
        if (n <= 0)
            return n < 0 ? -1 : gone;
        gone += n;
    }
    return gone;
}
