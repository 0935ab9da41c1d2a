#include "snap/tree.h"

#include "tools/walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- taking ---- */

struct listing {
    struct text *paths;
    struct taken *t;
    size_t files, large, over, named;
    uint64_t bytes;
    bool first; /* nothing is known of these files yet: all bytes are new */
};

static int list_file(void *arg, const char *rel, const struct stat *st)
{
    struct listing *l = arg;
    bool big = S_ISREG(st->st_mode) && st->st_size > TREE_MAX_FILE;
    l->bytes += l->first && S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    if (big) {
        l->large++;
    } else if (l->files >= TREE_MAX_FILES || l->bytes > TREE_MAX_NEW) {
        l->over++;
    } else {
        text_add(l->paths, rel, strlen(rel) + 1);
        l->files++;
    }
    return 0;
}

static int list_ignored(void *arg, const char *rel, const struct stat *st)
{
    struct listing *l = arg;
    if (l->named++ < 8)
        text_printf(&l->t->ignored, "%s%s", l->t->ignored.len ? ", " : "", rel);
    else if (l->named == 9)
        text_puts(&l->t->ignored, ", …");
    return 0;
}

static void say_partial(struct listing *l, int walked)
{
    struct text t = {0};
    if (l->over || walked < 0)
        text_printf(&t, "rewind will not cover %zu files%s: the project is too large", l->over,
                    walked < 0 ? " and more" : "");
    if (l->large)
        text_printf(&t, "%s%zu files above 16 MiB are not covered", t.len ? "; " : "", l->large);
    if (t.len)
        l->t->partial = text_take(&t);
    text_free(&t);
}

/* Nothing stands there, or it stands behind a link where there was a folder: git would refuse the path. */
static bool is_gone(const struct root *r, const char *path)
{
    char *part = mem_dup(path);
    struct stat st;
    bool gone = fstatat(r->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode);
    for (char *slash = strchr(part, '/'); slash && !gone; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        gone = fstatat(r->fd, part, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode);
        *slash = '/';
    }
    free(part);
    return gone;
}

/* Splits what the index knows into what is still there and what is gone. */
static void sort_known(const struct root *r, const struct text *known, struct text *paths, struct text *gone)
{
    for (const char *p = text_str(known), *end = p + known->len; p < end; p += strlen(p) + 1)
        text_add(is_gone(r, p) ? gone : paths, p, strlen(p) + 1);
}

int tree_take(const struct git *g, const struct root *r, char *const *cover, struct taken *t,
              struct vt_err *err)
{
    static const char *const known[] = {"ls-files", "-z", NULL};
    static const char *const update[] = {"update-index", "--add",   "--remove", "--replace",
                                         "-z",           "--stdin", NULL};
    static const char *const forget[] = {"update-index", "--force-remove", "-z", "--stdin", NULL};
    static const char *const write[] = {"write-tree", NULL};
    struct text known_paths = {0}, paths = {0}, gone = {0}, out = {0};
    struct listing l = {.paths = &paths, .t = t};
    memset(t, 0, sizeof *t);
    /* what the index knows is listed too, so that what is gone is taken out */
    int rc = git_run(g, known, NULL, &known_paths, err);
    l.first = rc == 0 && !known_paths.len;
    sort_known(r, &known_paths, &paths, &gone);
    if (rc == 0 && gone.len)
        rc = git_run(g, forget, &gone, &out, err);
    if (rc == 0) {
        int walked = walk(r, ".", list_file, list_ignored, &l, NULL);
        say_partial(&l, walked);
        for (size_t i = 0; cover && cover[i]; i++)
            text_add(&paths, cover[i], strlen(cover[i]) + 1);
        rc = git_run(g, update, &paths, &out, err);
    }
    text_clear(&out);
    if (rc == 0)
        rc = git_run(g, write, NULL, &out, err);
    if (rc == 0 && out.len < TREE_ID)
        rc = vt_fail(err, VT_E_IO, "git write-tree gave no name");
    if (rc == 0)
        snprintf(t->id, sizeof t->id, "%.64s", out.s);
    text_free(&known_paths);
    text_free(&paths);
    text_free(&gone);
    text_free(&out);
    if (rc < 0)
        taken_free(t);
    return rc;
}

void taken_free(struct taken *t)
{
    free(t->partial);
    text_free(&t->ignored);
    memset(t, 0, sizeof *t);
}

/* ---- comparing ---- */

bool blob_same(const struct blob *a, const struct blob *b)
{
    return a->mode == b->mode && (!a->mode || strcmp(a->id, b->id) == 0);
}

void tree_changes_free(struct tree_changes *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->v[i].path);
    free(c->v);
    memset(c, 0, sizeof *c);
}

/* ":100644 100755 <old> <new> M\0path\0" …, in order of the paths. */
static int read_raw(const struct text *raw, struct tree_changes *c, struct vt_err *err)
{
    const char *p = text_str(raw), *end = p + raw->len;
    while (p < end) {
        struct tree_change x = {0};
        char sign;
        if (sscanf(p, ":%o %o %64s %64s %c", &x.old.mode, &x.new.mode, x.old.id, x.new.id, &sign) != 5)
            return vt_fail(err, VT_E_IO, "git diff-tree said what cannot be read");
        const char *path = p + strlen(p) + 1;
        if (path >= end)
            return vt_fail(err, VT_E_IO, "git diff-tree broke off");
        x.path = mem_dup(path);
        c->v = mem_room(c->v, c->n, &c->cap, sizeof *c->v);
        c->v[c->n++] = x;
        p = path + strlen(path) + 1;
    }
    return 0;
}

int tree_compare(const struct git *g, const char *old, const char *new, struct tree_changes *c,
                 struct vt_err *err)
{
    const char *args[] = {"diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", old, new, NULL};
    struct text raw = {0};
    memset(c, 0, sizeof *c);
    if (!old || !new || strcmp(old, new) == 0)
        return 0;
    int rc = git_run(g, args, NULL, &raw, err);
    if (rc == 0)
        rc = read_raw(&raw, c, err);
    text_free(&raw);
    if (rc < 0)
        tree_changes_free(c);
    return rc;
}

int blob_read(const struct git *g, const struct blob *b, struct text *out, struct vt_err *err)
{
    const char *args[] = {"cat-file", "blob", b->id, NULL};
    return b->mode ? git_run(g, args, NULL, out, err) : 0;
}
