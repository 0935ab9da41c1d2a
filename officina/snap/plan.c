#include "snap/tree.h"

#include "util/file.h"
#include "util/json.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void plan_free(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->v[i].path);
    free(p->v);
    memset(p, 0, sizeof *p);
}

/* What turns did to one path: from where it began to what the last of them left. */
struct trail {
    const char *path;
    struct blob then, left;
    bool broken; /* the user changed it between two of the turns */
};

static struct trail *trail_of(struct trail *v, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i].path, path) == 0)
            return &v[i];
    return NULL;
}

static void put(struct plan *p, const char *path, enum plan_way way, const struct blob *now,
                const struct blob *then)
{
    p->v = mem_room(p->v, p->n, &p->cap, sizeof *p->v);
    p->v[p->n++] = (struct plan_item){mem_dup(path), way, *now, *then};
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct plan_item *)a)->path, ((const struct plan_item *)b)->path);
}

static const struct tree_change *find(const struct tree_changes *c, const char *path)
{
    size_t lo = 0, hi = c->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int k = strcmp(c->v[mid].path, path);
        if (k == 0)
            return &c->v[mid];
        if (k < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static void decide(struct plan *p, const struct trail *t, const struct tree_changes *since)
{
    const struct tree_change *user = find(since, t->path); /* between the last turn's end and now */
    const struct blob *now = user ? &user->new : &t->left;
    if (blob_same(now, &t->then))
        return; /* it is again as it was */
    put(p, t->path, t->broken || user ? PLAN_CONFLICT : PLAN_RESTORE, now, &t->then);
}

/* Changes of each turn, and the user's between them, joined to a trail for each path. */
static int follow(const struct git *g, const struct snap_turn *turns, size_t n, const char *now,
                  struct tree_changes *own, struct tree_changes *between, struct vt_err *err)
{
    const char *left = turns[0].tree_before ? turns[0].tree_before : turns[0].tree_user;
    for (size_t i = 0; i < n; i++) {
        const char *before = turns[i].tree_before, *after = turns[i].tree_after;
        if (before && !after)
            after = i + 1 < n ? (turns[i + 1].tree_user ? turns[i + 1].tree_user : turns[i + 1].tree_before)
                              : now;
        if (!before || !after)
            continue;
        if (tree_compare(g, left, before, &between[i], err) < 0 ||
            tree_compare(g, before, after, &own[i], err) < 0)
            return -1;
        left = after;
    }
    return tree_compare(g, left, now, &between[n], err);
}

int plan_make(const struct git *g, const struct snap_turn *turns, size_t n, const char *now, struct plan *p,
              struct vt_err *err)
{
    struct tree_changes *own = mem_new((n + 1) * sizeof *own), *between = mem_new((n + 2) * sizeof *between);
    struct trail *trails = NULL;
    size_t n_trails = 0, cap = 0;
    memset(p, 0, sizeof *p);
    int rc = n ? follow(g, turns, n, now, own, between, err) : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        for (size_t k = 0; k < between[i].n; k++) {
            struct trail *t = trail_of(trails, n_trails, between[i].v[k].path);
            if (t) {
                t->broken = true;
                t->left = between[i].v[k].new;
            }
        }
        for (size_t k = 0; k < own[i].n; k++) {
            const struct tree_change *c = &own[i].v[k];
            struct trail *t = trail_of(trails, n_trails, c->path);
            if (!t) {
                trails = mem_room(trails, n_trails, &cap, sizeof *trails);
                t = &trails[n_trails++];
                *t = (struct trail){c->path, c->old, c->new, false};
            }
            t->left = c->new;
        }
    }
    for (size_t i = 0; i < n_trails; i++)
        decide(p, &trails[i], &between[n]);
    for (size_t i = 0; i <= n && n; i++) /* what only the user changed */
        for (size_t k = 0; k < between[i].n; k++) {
            const struct tree_change *c = &between[i].v[k];
            bool listed = trail_of(trails, n_trails, c->path) != NULL;
            for (size_t j = 0; j < p->n && !listed; j++)
                listed = strcmp(p->v[j].path, c->path) == 0;
            if (!listed)
                put(p, c->path, PLAN_KEEP, &c->new, &c->old);
        }
    if (p->n)
        qsort(p->v, p->n, sizeof *p->v, by_path);
    for (size_t i = 0; i <= n; i++) {
        tree_changes_free(&own[i < n ? i : n]);
        tree_changes_free(&between[i]);
    }
    free(own);
    free(between);
    free(trails);
    if (rc < 0)
        plan_free(p);
    return rc;
}

/* ---- doing ---- */

/* What stands at a path now. */
static void look(const struct root *r, const char *path, struct blob *b)
{
    struct stat st;
    struct text t = {0};
    char target[4096];
    memset(b, 0, sizeof *b);
    if (fstatat(r->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(r->fd, path, target, sizeof target);
        b->mode = 0120000;
        git_blob_name(target, n > 0 ? (size_t)n : 0, b->id);
    } else if (S_ISREG(st.st_mode) && root_read(r, path, &t, NULL, NULL) == 0) {
        b->mode = st.st_mode & 0100 ? 0100755 : 0100644;
        git_blob_name(text_str(&t), t.len, b->id);
    } else {
        b->mode = 1; /* something else: never what a plan expects */
    }
    text_free(&t);
}

static int restore(const struct git *g, const struct root *r, const struct plan_item *i, struct vt_err *err)
{
    struct text t = {0};
    int rc;
    if (!i->then.mode) {
        rc = root_remove(r, i->path, err);
        if (rc == 0)
            root_prune(r, i->path);
        return rc;
    }
    rc = blob_read(g, &i->then, &t, err);
    if (rc == 0 && i->then.mode == 0120000)
        rc = root_symlink(r, i->path, text_str(&t), err);
    else if (rc == 0)
        rc = root_put(r, i->path, text_str(&t), t.len, i->then.mode & 0777, err);
    text_free(&t);
    return rc;
}

static int apply_one(const struct git *g, const struct root *r, const struct plan_item *i, struct text *left,
                     struct vt_err *err)
{
    struct blob now;
    look(r, i->path, &now);
    if (blob_same(&now, &i->then))
        return 0; /* a restore that a death broke off had come this far */
    int rc = blob_same(&now, &i->now) ? restore(g, r, i, err) : 1;
    if (rc)
        text_printf(left, "%s%s", left->len ? ", " : "", i->path);
    return rc < 0 ? -1 : 0;
}

int plan_apply(const struct git *g, const struct root *r, const struct plan *p, struct text *left,
               struct vt_err *err)
{
    int rc = 0;
    /* first what goes, then what comes: a file may stand where a folder was, and the other way round */
    for (int comes = 0; comes < 2; comes++)
        for (size_t i = 0; i < p->n; i++) {
            struct vt_err why;
            if (p->v[i].way != PLAN_RESTORE || (p->v[i].then.mode != 0) != comes)
                continue;
            if (apply_one(g, r, &p->v[i], left, &why) < 0) {
                if (rc == 0 && err)
                    *err = why;
                rc = -1;
            }
        }
    return rc;
}

void plan_turn_round(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct blob b = p->v[i].now;
        p->v[i].now = p->v[i].then;
        p->v[i].then = b;
    }
}

/* ---- the journal ---- */

int plan_save(const struct plan *p, const char *file, struct vt_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n; i++) {
        const struct plan_item *v = &p->v[i];
        /* a path is bytes, JSON is text: hex keeps any name */
        struct text hex = {0};
        for (const char *s = v->path; *s; s++)
            text_printf(&hex, "%02x", (unsigned char)*s);
        if (v->way == PLAN_RESTORE)
            json_array_append_new(list, json_pack("[s, i, s, i, s]", text_str(&hex), (int)v->now.mode,
                                                  v->now.id, (int)v->then.mode, v->then.id));
        text_free(&hex);
    }
    char *s = js_dump(list);
    int rc = file_write(file, s, strlen(s), err);
    free(s);
    return rc;
}

static bool read_item(const json_t *v, struct plan_item *i)
{
    const char *hex = json_string_value(json_array_get(v, 0)), *a = json_string_value(json_array_get(v, 2));
    const char *b = json_string_value(json_array_get(v, 4));
    size_t n = hex ? strlen(hex) / 2 : 0;
    if (!n || !a || !b || strlen(a) > TREE_ID || strlen(b) > TREE_ID)
        return false;
    i->path = mem_new(n + 1);
    for (size_t k = 0; k < n; k++) {
        unsigned byte = 0;
        sscanf(hex + 2 * k, "%2x", &byte);
        i->path[k] = (char)byte;
    }
    i->way = PLAN_RESTORE;
    i->now.mode = (unsigned)json_integer_value(json_array_get(v, 1));
    i->then.mode = (unsigned)json_integer_value(json_array_get(v, 3));
    strcpy(i->now.id, a);
    strcpy(i->then.id, b);
    return true;
}

int plan_load(struct plan *p, const char *file, struct vt_err *err)
{
    struct text t = {0};
    memset(p, 0, sizeof *p);
    if (access(file, F_OK) < 0)
        return 0;
    if (file_read(file, 64 << 20, &t, err) < 0)
        return -1;
    json_t *list = js_parse(text_str(&t), t.len, NULL, 0), *v;
    size_t i;
    json_array_foreach(list, i, v)
    {
        struct plan_item item = {0};
        if (!read_item(v, &item))
            continue;
        p->v = mem_room(p->v, p->n, &p->cap, sizeof *p->v);
        p->v[p->n++] = item;
    }
    bool ok = json_is_array(list) && json_array_size(list) == p->n;
    json_decref(list);
    text_free(&t);
    return ok ? 1 : vt_fail(err, VT_E_CORRUPT, "%s is damaged; what it was to put back cannot be told", file);
}
