#include "snap/shadow.h"

#include "snap/keep.h"
#include "tools/change.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIFF_FILES = 200, DIFF_BYTES = 1 << 20, SMALL = 256 << 10 };

static char *state_file(const struct git *g, const char *tail)
{
    struct text t = {0};
    text_printf(&t, "%s/%s", g->dir, tail);
    return text_take(&t);
}

static void failed(struct order *o, const struct vt_err *err)
{
    text_set(&o->text, err->text);
    o->e.n = 1;
}

static void count(const struct git *g, const struct tree_change *c, int *added, int *removed)
{
    struct text a = {0}, b = {0};
    *added = *removed = 0;
    if (blob_read(g, &c->old, &a, NULL) == 0 && blob_read(g, &c->new, &b, NULL) == 0 && a.len < SMALL &&
        b.len < SMALL && !change_is_binary(text_str(&a), a.len) && !change_is_binary(text_str(&b), b.len)) {
        struct file_change *f = change_new(c->path, text_str(&a), a.len, text_str(&b), b.len);
        *added = f->added;
        *removed = f->removed;
        change_free(f, 1);
    }
    text_free(&a);
    text_free(&b);
}

/* Adds a turn's changes to what the conversation has touched, and writes the list. */
static void touch(struct shadow *s, const struct git *g, const struct tree_changes *c, struct text *out)
{
    const char *path;
    json_t *v, *list = json_array();
    for (size_t i = 0; i < c->n && i < DIFF_FILES; i++) {
        int added, removed;
        char *name = utf8_mend(c->v[i].path, strlen(c->v[i].path));
        json_t *old = json_object_get(s->touched, name);
        count(g, &c->v[i], &added, &removed);
        const char *sign = !c->v[i].new.mode                                           ? "-"
                           : !c->v[i].old.mode || (old && *js_str(old, "sign") == '+') ? "+"
                                                                                       : "~";
        json_object_set_new(s->touched, name,
                            json_pack("{s:s, s:s, s:I, s:I}", "path", name, "sign", sign, "added",
                                      (json_int_t)(added + js_int(old, "added", 0)), "removed",
                                      (json_int_t)(removed + js_int(old, "removed", 0))));
        free(name);
    }
    json_object_foreach(s->touched, path, v) json_array_append(list, v);
    char *dump = js_dump(list);
    text_set(out, dump);
    free(dump);
}

/* Takes a tree and sees to it that it stays. */
static int take(struct shadow *s, const struct git *g, const struct order *o, struct taken *t,
                struct vt_err *err)
{
    if (tree_take(g, &s->root, o->cover, t, err) < 0)
        return -1;
    if (strcmp(s->kept, t->id) == 0)
        return 0;
    if (keep_tree(g, o->session, t->id, err) < 0) {
        taken_free(t);
        return -1;
    }
    strcpy(s->kept, t->id);
    return 0;
}

/* When the path was last touched: it, or where nothing is any more the nearest folder that it was in. */
static uint64_t touched_at(const struct root *r, const char *path)
{
    struct stat st;
    char *part = mem_dup(path), *slash;
    int rc = fstatat(r->fd, part, &st, AT_SYMLINK_NOFOLLOW);
    while (rc < 0 && (slash = strrchr(part, '/')) != NULL) {
        *slash = 0;
        rc = fstatat(r->fd, part, &st, AT_SYMLINK_NOFOLLOW);
    }
    if (rc < 0)
        rc = fstatat(r->fd, ".", &st, 0);
    free(part);
    uint64_t m = (uint64_t)st.st_mtim.tv_sec * 1000000 + (uint64_t)st.st_mtim.tv_nsec / 1000;
    uint64_t c = (uint64_t)st.st_ctim.tv_sec * 1000000 + (uint64_t)st.st_ctim.tv_nsec / 1000;
    return rc < 0 ? 0 : m > c ? m : c;
}

/* The tree `now` with the paths in `info` as they were, made in an index of its own. */
static int tree_with(const struct git *g, const char *now, const struct text *info, char id[TREE_ID + 1],
                     struct vt_err *err)
{
    const char *const read[] = {"read-tree", now, NULL};
    static const char *const update[] = {"update-index", "-z", "--index-info", NULL};
    static const char *const write[] = {"write-tree", NULL};
    struct git own = *g;
    struct text out = {0};
    own.index = state_file(g, "index-late");
    int rc = git_run(&own, read, NULL, &out, err);
    if (rc == 0)
        rc = git_run(&own, update, info, &out, err);
    text_clear(&out);
    if (rc == 0)
        rc = git_run(&own, write, NULL, &out, err);
    if (rc == 0 && out.len < TREE_ID)
        rc = vt_fail(err, VT_E_IO, "git write-tree gave no name");
    if (rc == 0)
        snprintf(id, TREE_ID + 1, "%.64s", out.s);
    unlink(own.index);
    free(own.index);
    text_free(&out);
    return rc;
}

static void do_late(struct shadow *s, struct git *g, struct order *o)
{
    static const char none[] = "0000000000000000000000000000000000000000000000000000000000000000";
    struct taken t;
    struct vt_err err;
    struct tree_changes c;
    struct text info = {0};
    int64_t own = 0;
    const char *before = o->turns[0].tree_before;
    o->e = (struct event){.kind = EV_SNAP, .id = (int64_t)o->turn, .n = SNAP_LATE, .m = UNKNOWN};
    int rc = take(s, g, o, &t, &err);
    if (rc == 0) {
        snprintf(s->late, sizeof s->late, "%s", t.id);
        rc = tree_compare(g, before, t.id, &c, &err);
        for (size_t i = 0; rc == 0 && i < c.n; i++) {
            const struct tree_change *x = &c.v[i];
            if (touched_at(&s->root, x->path) <= o->died + SNAP_DIED_US) {
                own++;
                continue;
            }
            text_printf(&info, "%o %s\t%s", x->old.mode, x->old.mode ? x->old.id : none, x->path);
            text_add(&info, "", 1);
        }
        if (rc == 0 && info.len)
            rc = tree_with(g, t.id, &info, s->late, &err);
        if (rc == 0)
            rc = keep_tree(g, o->session, s->late, &err);
        if (rc == 0)
            tree_changes_free(&c);
        taken_free(&t);
    }
    if (rc == 0) {
        snprintf(s->late_key, sizeof s->late_key, "%s %s", o->session, o->turns[0].key);
        text_set(&o->name, s->late);
        o->e.m = own;
    } else {
        s->late_key[0] = '\0';
        text_printf(&o->text, "what this turn left is not known: %s", err.text);
    }
    text_free(&info);
}

static void do_take(struct shadow *s, struct git *g, struct order *o)
{
    struct taken t;
    struct vt_err err;
    struct tree_changes c;
    o->e = (struct event){.kind = EV_SNAP, .id = (int64_t)o->turn, .n = (int64_t)o->when, .m = UNKNOWN};
    if (take(s, g, o, &t, &err) < 0) {
        text_printf(&o->text, "rewind will not cover the files of this turn: %s", err.text);
        return;
    }
    text_set(&o->name, t.id);
    if (t.partial)
        text_set(&o->text, t.partial);
    if (s->cur.turn != o->turn || o->when == SNAP_USER || !s->cur.first[0]) {
        memset(&s->cur, 0, sizeof s->cur);
        s->cur.turn = o->turn;
        strcpy(s->cur.first, t.id);
    }
    if (o->when == SNAP_BEFORE)
        strcpy(s->cur.before, t.id);
    if (o->when == SNAP_AFTER &&
        tree_compare(g, s->cur.before[0] ? s->cur.before : s->cur.first, t.id, &c, &err) == 0) {
        o->e.m = (int64_t)c.n;
        if (c.n)
            touch(s, g, &c, &o->touched);
        tree_changes_free(&c);
    }
    taken_free(&t);
}

static void append(json_t *list, const char *path)
{
    char *name = utf8_mend(path, strlen(path));
    json_array_append_new(list, json_string(name));
    free(name);
}

static bool is_late(const struct shadow *s, const struct order *o, const char *key)
{
    char own[sizeof s->late_key];
    snprintf(own, sizeof own, "%s %s", o->session, key);
    return strcmp(own, s->late_key) == 0;
}

static int make_plan(struct shadow *s, struct git *g, struct order *o, struct plan *p, struct taken *now,
                     struct vt_err *err)
{
    if (take(s, g, o, now, err) < 0)
        return -1;
    for (size_t i = 0; i < o->n; i++) /* ordered before the program had heard of it */
        if (!o->turns[i].tree_after && s->late_key[0] && is_late(s, o, o->turns[i].key))
            o->turns[i].tree_after = mem_dup(s->late);
    if (plan_make(g, o->turns, o->n, now->id, p, err) == 0)
        return 0;
    taken_free(now);
    return -1;
}

static void do_plan(struct shadow *s, struct git *g, struct order *o)
{
    static const char *const names[] = {"restore", "keep", "conflict"};
    struct plan p;
    struct taken now;
    struct vt_err err;
    o->e = (struct event){.kind = EV_REWIND_PLAN, .id = (int64_t)o->turn};
    json_t *all = json_pack("{s:[], s:[], s:[], s:[]}", "restore", "keep", "conflict", "uncovered");
    json_t *uncovered = json_object_get(all, "uncovered");
    if (make_plan(s, g, o, &p, &now, &err) == 0) {
        for (size_t i = 0; i < p.n; i++)
            append(json_object_get(all, names[p.v[i].way]), p.v[i].path);
        if (now.partial)
            append(uncovered, now.partial);
        if (now.ignored.len) {
            text_puts(&now.ignored, " (ignored)");
            append(uncovered, text_str(&now.ignored));
        }
        plan_free(&p);
        taken_free(&now);
    } else {
        append(uncovered, err.text);
    }
    char *dump = js_dump(all);
    text_set(&o->text, dump);
    free(dump);
}

/* The way back of a rewind. */
static char *redo_file(const struct git *g, const struct order *o)
{
    struct text t = {0};
    text_printf(&t, "redo-%s-%lld", strchr(o->session, '/') ? "none" : o->session, (long long)o->number);
    char *path = state_file(g, text_str(&t));
    text_free(&t);
    return path;
}

/* Journal, files, and the way back for /redo. */
static int apply(struct shadow *s, struct git *g, struct plan *p, struct order *o, struct vt_err *err)
{
    char *journal = state_file(g, "journal"), *redo = redo_file(g, o);
    struct text left = {0};
    plan_turn_round(
        p); /* the way back is there before the journal, and so before the first file is touched */
    int rc = plan_save(p, redo, err);
    plan_turn_round(p);
    if (rc == 0)
        rc = plan_save(p, journal, err);
    if (rc == 0)
        rc = plan_apply(g, &s->root, p, &left, err);
    if (left.len && rc == 0)
        text_printf(&o->text, "not put back, since they changed meanwhile: %s", text_str(&left));
    unlink(journal);
    text_free(&left);
    free(journal);
    free(redo);
    return rc;
}

static void do_restore(struct shadow *s, struct git *g, struct order *o)
{
    struct plan p;
    struct taken now;
    struct vt_err err;
    o->e = (struct event){.kind = EV_REWIND_DONE, .id = (int64_t)o->turn};
    if (make_plan(s, g, o, &p, &now, &err) < 0) {
        failed(o, &err);
        return;
    }
    if (apply(s, g, &p, o, &err) < 0)
        failed(o, &err);
    plan_free(&p);
    taken_free(&now);
}

static void do_redo(struct shadow *s, struct git *g, struct order *o)
{
    struct plan p;
    struct vt_err err;
    char *file = redo_file(g, o);
    o->e = (struct event){.kind = EV_REWIND_DONE};
    int rc = plan_load(&p, file, &err);
    if (rc == 0)
        vt_fail(&err, VT_E_NOT_FOUND, "there is no rewind of files to undo");
    if (rc <= 0 || apply(s, g, &p, o, &err) < 0)
        failed(o, &err);
    plan_free(&p);
    free(file);
}

static void do_diff(struct shadow *s, struct git *g, struct order *o)
{
    struct taken now = {0};
    struct tree_changes c = {0};
    struct vt_err err;
    const char *old = NULL, *new = NULL;
    o->e = (struct event){.kind = EV_DIFF};
    text_set(&o->text, o->title);
    for (size_t i = 0; i < o->n; i++) {
        if (!o->turns[i].tree_before)
            continue;
        old = old ? old : o->turns[i].tree_before;
        new = o->turns[i].tree_after;
    }
    if (old && !new &&tree_take(g, &s->root, o->cover, &now, &err) == 0)
        new = now.id;
    if (tree_compare(g, old, new, &c, &err) == 0) {
        size_t n = c.n < DIFF_FILES ? c.n : DIFF_FILES;
        o->e.changes = mem_new((n + 1) * sizeof *o->e.changes);
        for (size_t i = 0; i < n; i++) {
            struct text a = {0}, b = {0};
            bool ok = blob_read(g, &c.v[i].old, &a, NULL) == 0 && blob_read(g, &c.v[i].new, &b, NULL) == 0;
            bool text = ok && a.len < DIFF_BYTES && b.len < DIFF_BYTES &&
                        !change_is_binary(text_str(&a), a.len) && !change_is_binary(text_str(&b), b.len);
            struct file_change *f = change_new(c.v[i].path, text && c.v[i].old.mode ? text_str(&a) : NULL,
                                               a.len, text && c.v[i].new.mode ? text_str(&b) : NULL, b.len);
            if (!text || (c.v[i].old.mode && c.v[i].new.mode &&c.v[i].old.mode != c.v[i].new.mode)) {
                free(f->remark);
                f->remark = mem_dup(text ? "its mode changes" : "a binary or large file");
            }
            o->e.changes[o->e.n_changes++] = *f;
            free(f);
            text_free(&a);
            text_free(&b);
        }
    }
    tree_changes_free(&c);
    taken_free(&now);
}

static void do_look(struct shadow *s, struct order *o)
{
    static const char *const args[] = {"status", "--porcelain=v2",           "--branch",
                                       "-z",     "--untracked-files=normal", "--ignore-submodules=all",
                                       NULL};
    struct text out = {0};
    o->e = (struct event){.kind = EV_GIT, .n = UNKNOWN, .m = UNKNOWN};
    if (git_look(s->root_path, s->home, args, &out, NULL) == 0) {
        o->e.n = o->e.m = 0;
        for (const char *p = text_str(&out), *end = p + out.len; p < end; p += strlen(p) + 1) {
            if (strncmp(p, "# branch.head ", 14) == 0)
                text_set(&o->name, p + 14);
            o->e.n += *p == '?' || (*p == '1' && p[2] == 'A');
            o->e.m += (*p == '1' && p[2] != 'A') || *p == '2' || *p == 'u';
            if (*p == '2')
                p += strlen(p) + 1; /* the old name stands behind */
        }
    } else { /* no sandbox, or no repository: the branch's name needs no program */
        static const char ref[] = "ref: refs/heads/";
        text_clear(&out);
        if (root_read(&s->root, ".git/HEAD", &out, NULL, NULL) == 0 &&
            strncmp(text_str(&out), ref, sizeof ref - 1) == 0)
            text_add(&o->name, out.s + sizeof ref - 1, strcspn(out.s + sizeof ref - 1, "\n"));
    }
    text_free(&out);
}

static void do_tidy(struct shadow *s, struct git *g, struct order *o)
{
    struct vt_err err = {0};
    uint64_t most = s->most ? s->most : KEEP_BYTES;
    o->e = (struct event){.kind = EV_NOTICE, .n = NOTICE_INFO};
    int gone = !s->why_not && git_open(g, s->root_path, s->home, o->session, &err) == 0
                   ? keep_tidy(g, o->session, most, s->most ? "now" : "1.hour.ago", &err)
                   : 0;
    s->kept[0] = '\0';
    if (gone < 0)
        text_printf(&o->text, "The store of snapshots could not be tidied: %s", err.text);
    else if (gone)
        text_printf(&o->text, "The store of snapshots was full: %d old ones were given up.", gone);
    git_close(g);
}

void shadow_do(struct shadow *s, struct order *o)
{
    struct git g = {0};
    struct vt_err err;
    bool open = false;
    if (o->kind == ORDER_LOOK) {
        do_look(s, o);
        return;
    }
    if (o->kind == ORDER_TIDY) {
        do_tidy(s, &g, o);
        return;
    }
    if (s->why_not)
        vt_fail(&err, VT_E_PARAM, "%s", s->why_not);
    else
        open = git_open(&g, s->root_path, s->home, o->session, &err) == 0;
    if (!open) {
        static const enum event_kind kinds[] = {EV_SNAP, EV_REWIND_PLAN, EV_REWIND_DONE, EV_REWIND_DONE,
                                                EV_DIFF};
        o->e = (struct event){.kind = kinds[o->kind],
                              .id = (int64_t)o->turn,
                              .n = o->kind == ORDER_TAKE ? (int64_t)o->when : 1,
                              .m = UNKNOWN};
        text_set(&o->text, o->kind == ORDER_PLAN
                               ? "{\"restore\":[],\"keep\":[],\"conflict\":[],\"uncovered\":[]}"
                           : o->kind == ORDER_DIFF ? o->title
                                                   : err.text);
    } else if (o->kind == ORDER_TAKE && o->when == SNAP_LATE) {
        do_late(s, &g, o);
    } else if (o->kind == ORDER_TAKE) {
        do_take(s, &g, o);
    } else if (o->kind == ORDER_PLAN) {
        do_plan(s, &g, o);
    } else if (o->kind == ORDER_RESTORE) {
        do_restore(s, &g, o);
    } else if (o->kind == ORDER_REDO) {
        do_redo(s, &g, o);
    } else {
        do_diff(s, &g, o);
    }
    git_close(&g);
}

int shadow_complete(struct shadow *s, const char *session, struct vt_err *err)
{
    struct git g = {0};
    struct plan p;
    struct text left = {0};
    struct vt_err none;
    if (s->why_not || git_open(&g, s->root_path, s->home, session, &none) < 0) {
        git_close(&g);
        return 0; /* told when the first snapshot fails for the same reason */
    }
    char *journal = state_file(&g, "journal"); /* the way back was written before it */
    int rc = plan_load(&p, journal, err);
    if (rc > 0)
        rc = plan_apply(&g, &s->root, &p, &left, err);
    if (rc >= 0)
        unlink(journal);
    plan_free(&p);
    text_free(&left);
    git_close(&g);
    free(journal);
    return rc < 0 ? -1 : 0;
}

static char *refuse(const char *root)
{
    const char *home = getenv("HOME");
    size_t n = strlen(root);
    bool holds = home && strncmp(home, root, n) == 0 && (!home[n] || home[n] == '/');
    if (strcmp(root, "/") != 0 && !holds)
        return NULL;
    return mem_dup(
        "the home folder, what contains it, and the root of the file system are not covered by snapshots");
}

int shadow_open(struct shadow *s, const struct snap_options *o, struct vt_err *err)
{
    *s = (struct shadow){.most = o->most, .home = mem_dup(o->home), .touched = json_object()};
    s->root.fd = -1;
    if (root_open(&s->root, o->root, err) < 0)
        return -1;
    s->root_path = mem_dup(s->root.path);
    s->why_not = refuse(s->root_path);
    return 0;
}

void shadow_close(struct shadow *s)
{
    json_decref(s->touched);
    root_close(&s->root);
    free(s->root_path);
    free(s->home);
    free(s->why_not);
}
