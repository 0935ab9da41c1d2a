/* Opening and closing: pragmas in their order, creation, what an unclean stop asks for, and the way aside for
 * a database that cannot be used. */
#include "db.h"
#include "schema.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum outcome { OPEN_OK, OPEN_UNUSABLE, OPEN_FAILED };

static int progress(void *arg)
{
    struct store *s = arg;
    if (s->interruptible && s->o.interrupt != NULL &&
        atomic_load_explicit(s->o.interrupt, memory_order_relaxed))
        return 1;
    return s->deadline_us != 0 && vt_mono(s->o.clock) > s->deadline_us;
}

static void drop_connection(struct store *s)
{
    for (int i = 0; i < ST_COUNT; i++) {
        sqlite3_finalize(s->st[i]);
        s->st[i] = NULL;
    }
    int rc = s->db != NULL ? sqlite3_close(s->db) : SQLITE_OK;
    assert(rc == SQLITE_OK);
    (void)rc;
    s->db = NULL;
    s->in_txn = false;
}

/* Locking and journal mode come before the first read, so that a rollback at open keeps the journal file too.
 * Page size and vacuum mode are a new file's business: set again, the latter would write to an old one. */
static int set_pragmas(struct store *s, struct vt_err *err)
{
    static const char pragmas[] =
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=PERSIST; PRAGMA synchronous=EXTRA;"
        "PRAGMA secure_delete=" STORE_SECURE_DELETE "; PRAGMA journal_size_limit=" STORE_JOURNAL_LIMIT
        "; PRAGMA cache_size=-16384;"
        "PRAGMA mmap_size=0; PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF;"
        "PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY";
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, 0);
    sqlite3_progress_handler(s->db, 10000, progress, s);
    return db_exec(s, pragmas, "setting up the connection", err);
}

static int create(struct store *s, struct vt_err *err)
{
    char head[160], marks[160];
    long long now = (long long)vt_wall(s->o.clock);
    snprintf(head, sizeof head,
             "PRAGMA page_size=%d; PRAGMA auto_vacuum=INCREMENTAL; BEGIN IMMEDIATE;"
             "PRAGMA application_id=%d; PRAGMA user_version=%d",
             STORE_PAGE_SIZE, STORE_APP_ID, STORE_USER_VERSION);
    snprintf(marks, sizeof marks,
             "INSERT INTO mark(name,value) VALUES('checked',%lld),('scrubbed',%lld); COMMIT", now, now);
    if (db_exec(s, head, "creating the database", err) < 0 ||
        db_exec(s, store_schema, "creating the tables", err) < 0 ||
        db_exec(s, marks, "creating the database", err) < 0) {
        db_rollback(s);
        return -1;
    }
    return 0;
}

/* The text of every table and trigger, as one digest: a damaged trigger would let through what it should
 * refuse. */
static int schema_digest(sqlite3 *db, uint8_t out[VT_SHA256_LEN])
{
    sqlite3_stmt *st = NULL;
    struct vt_sha256 *h = vt_sha256_new();
    int rc = h == NULL
                 ? SQLITE_NOMEM
                 : sqlite3_prepare_v2(
                       db, "SELECT type,name,tbl_name,coalesce(sql,'') FROM sqlite_schema ORDER BY name", -1,
                       &st, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(st);
        if (rc != SQLITE_ROW)
            break;
        for (int i = 0; i < 4; i++)
            vt_sha256_add(h, sqlite3_column_blob(st, i), (size_t)sqlite3_column_bytes(st, i));
    }
    sqlite3_finalize(st);
    if (h != NULL)
        vt_sha256_end(h, out);
    vt_sha256_free(h);
    return rc == SQLITE_DONE ? 0 : rc;
}

static bool schema_is_ours(struct store *s)
{
    uint8_t got[VT_SHA256_LEN], want[VT_SHA256_LEN];
    sqlite3 *mem = NULL;
    bool same = sqlite3_open(":memory:", &mem) == SQLITE_OK &&
                sqlite3_exec(mem, store_schema, NULL, NULL, NULL) == SQLITE_OK &&
                schema_digest(mem, want) == 0 && schema_digest(s->db, got) == 0 &&
                memcmp(got, want, sizeof got) == 0;
    sqlite3_close(mem);
    return same;
}

/* Quick check of every table but the payload, whose bytes have checksums of their own. */
static int check_tables(struct store *s, struct vt_err *err)
{
    static const char *const tables[] = {"layout", "tenant", "block",   "manifest", "manifest_block", "head",
                                         "named",  "launch", "suspect", "ladder",   "measure",        "mark"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char sql[64];
        sqlite3_stmt *st = NULL;
        snprintf(sql, sizeof sql, "PRAGMA quick_check(%s)", tables[i]);
        int rc = sqlite3_prepare_v2(s->db, sql, -1, &st, NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_step(st);
        bool ok = rc == SQLITE_ROW && strcmp((const char *)sqlite3_column_text(st, 0), "ok") == 0;
        if (!ok)
            vt_fail(err, VT_E_CORRUPT, "table %s: %s", tables[i],
                    rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : sqlite3_errmsg(s->db));
        sqlite3_finalize(st);
        if (!ok)
            return -1;
    }
    if (db_int(s, "SELECT count(*) FROM pragma_foreign_key_check", err) != 0)
        return vt_fail(err, VT_E_CORRUPT, "rows refer to rows that are not there");
    if (db_int(s,
               "SELECT count(*) FROM block b WHERE NOT EXISTS(SELECT 1 FROM payload p WHERE "
               "p.block_id=b.block_id)",
               err) != 0)
        return vt_fail(err, VT_E_CORRUPT, "blocks without their bytes");
    return 0;
}

int store_check_tables(struct store *s, struct vt_err *err)
{
    if (check_tables(s, err) == 0)
        return 0;
    s->damaged |= err->code == VT_E_CORRUPT;
    return -1;
}

static enum outcome verdict(struct store *s, const struct vt_err *err)
{
    /* SQLite reports some damaged headers as plain errors of its own; what is not the disk's or the system's fault is the
     * file's. */
    return err->code == VT_E_CORRUPT || err->code == VT_E_INTERNAL || s->damaged ? OPEN_UNUSABLE
                                                                                 : OPEN_FAILED;
}

static enum outcome open_existing(struct store *s, struct vt_err *err)
{
    int64_t version = db_int(s, "PRAGMA user_version", err);
    if (version < 0)
        return verdict(s, err);
    int64_t app = db_int(s, "PRAGMA application_id", err);
    /* A newer program has another schema; a damaged header has ours. */
    if (version > STORE_USER_VERSION && app == STORE_APP_ID && !schema_is_ours(s)) {
        vt_fail(err, VT_E_VERSION,
                "%s was written by a newer program (version %lld, this one knows %d); install that"
                " program again, or move the file away to start empty",
                s->path, (long long)version, STORE_USER_VERSION);
        return OPEN_FAILED;
    }
    int64_t tables = db_int(s, "SELECT count(*) FROM sqlite_schema", err);
    if (tables < 0)
        return verdict(s, err);
    if (tables == 0 && app == 0 && version == 0)
        return create(s, err) == 0 ? OPEN_OK : verdict(s, err);
    if (app != STORE_APP_ID || version != STORE_USER_VERSION ||
        db_int(s, "PRAGMA page_size", err) != STORE_PAGE_SIZE || sqlite3_db_readonly(s->db, "main") != 0 ||
        !schema_is_ours(s)) {
        vt_fail(err, VT_E_CORRUPT, "not a checkpoint database of this program, or its schema is damaged");
        return OPEN_UNUSABLE;
    }
    return OPEN_OK;
}

/* Under exclusive locking a reader alone keeps a shared lock; this takes the whole lock for the connection's life. */
static int lock_out(struct store *s, struct vt_err *err)
{
    return db_exec(s, "BEGIN EXCLUSIVE; COMMIT", "locking the database against a second process", err);
}

static enum outcome after_stop(struct store *s, struct vt_err *err)
{
    int64_t stopped = db_mark_get(s, "stopped"), clean = db_mark_get(s, "clean");
    s->clean = clean > 0 ? clean : 0;
    s->marked = stopped == 0;
    if (stopped == 0) {
        db_event(s, STORE_EV_UNCLEAN, "the store did not stop cleanly: checking its tables");
        if (store_check_tables(s, err) < 0)
            return verdict(s, err);
    }
    sqlite3_stmt *st = db_stmt(s, ST_BLOCK_MAX, err);
    if (st == NULL || db_step(s, st, "reading the newest block", err) != 1)
        return verdict(s, err);
    int64_t newest = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    s->next_block = (newest > s->clean ? newest : s->clean) + 1;
    s->txn_first = s->next_block;
    /* What came after the last clean mark is read again before it is called verified. */
    s->scrub_at = s->clean + 1;
    s->scrub_end = newest;
    s->scrubbing = stopped == 0 && newest > s->clean;
    return s->damaged ? OPEN_UNUSABLE : OPEN_OK;
}

static enum outcome try_open(struct store *s, struct vt_err *err)
{
    s->damaged = false;
    int rc =
        sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                        store_vfs_name(s->vfs));
    if (rc != SQLITE_OK) {
        db_fail(s, rc, s->path, err);
        return verdict(s, err);
    }
    if (set_pragmas(s, err) < 0)
        return verdict(s, err);
    enum outcome o = open_existing(s, err);
    if (o != OPEN_OK)
        return o;
    sqlite3_stmt *st = NULL;
    bool persist = sqlite3_prepare_v2(s->db, "PRAGMA journal_mode", -1, &st, NULL) == SQLITE_OK &&
                   sqlite3_step(st) == SQLITE_ROW &&
                   strcmp((const char *)sqlite3_column_text(st, 0), "persist") == 0;
    sqlite3_finalize(st);
    if (!persist) {
        vt_fail(err, VT_E_CORRUPT, "the journal mode could not be set");
        return OPEN_UNUSABLE;
    }
    if (lock_out(s, err) < 0)
        return verdict(s, err);
    return after_stop(s, err);
}

static int sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}

/* The database first: were its journal gone first and we died, a half-written file would pass for a whole
 * one. A journal without its database is deleted at the next open. */
static int move_aside(struct store *s, struct vt_err *err)
{
    char to[4200], journal[4200];
    snprintf(to, sizeof to, "%s.bad", s->path);
    snprintf(journal, sizeof journal, "%s-journal", s->path);
    if (s->o.bare) {
        sqlite3_vfs *base = store_vfs_base(s->vfs);
        base->xDelete(base, s->path, 1);
        base->xDelete(base, journal, 1);
        return 0;
    }
    if (rename(s->path, to) != 0 && errno != ENOENT)
        return vt_fail_errno(err, VT_E_IO, "moving %s aside", s->path);
    if ((unlink(journal) != 0 && errno != ENOENT) || sync_dir(s->o.dir) != 0)
        return vt_fail_errno(err, VT_E_IO, "moving %s aside", s->path);
    return 0;
}

static int prepare_dir(const struct store_opts *o, const char *path, struct vt_err *err)
{
    struct stat st;
    char journal[4200];
    if (!o->inspect && mkdir(o->dir, 0700) != 0 && errno != EEXIST)
        return vt_fail_errno(err, VT_E_PERM, "state directory %s", o->dir);
    if (stat(o->dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return vt_fail(err, VT_E_CONFIG, "paths.state_dir = %s is not a directory", o->dir);
    if (!o->inspect && chmod(o->dir, 0700) != 0 && errno != EPERM)
        return vt_fail_errno(err, VT_E_PERM, "state directory %s", o->dir);
    if (!o->inspect && space_check_fs(o, err) < 0)
        return -1;
    if (lstat(path, &st) != 0 && o->inspect)
        return vt_fail(err, VT_E_NO_INPUT, "there is no %s", path);
    if (lstat(path, &st) != 0) {
        snprintf(journal, sizeof journal, "%s-journal", path);
        unlink(journal);
        /* Made here for its mode: SQLite would take it from the umask. */
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
            return vt_fail_errno(err, VT_E_PERM, "creating %s", path);
        close(fd);
    } else if (!S_ISREG(st.st_mode)) {
        return vt_fail(err, VT_E_CONFIG, "%s is not a regular file; move it away", path);
    } else if (access(path, R_OK | W_OK) != 0) {
        return vt_fail_errno(err, VT_E_PERM, "%s belongs to somebody else; give it to the service user",
                             path);
    }
    return 0;
}

int store_open(struct store **out, const struct store_opts *o, struct vt_err *err)
{
    struct vt_err local;
    if (err == NULL)
        err = &local;
    *out = NULL;
    struct store *s = calloc(1, sizeof *s);
    if (s == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the store");
    s->o = *o;
    s->facts_at = -1;
    if (asprintf(&s->path, "%s/store.db", o->dir) < 0 || s->path == NULL) {
        free(s);
        return vt_fail(err, VT_E_NOMEM, "no memory for the store");
    }
    if (store_vfs_new(&s->vfs, o->base, o->io, o->clock, o->die, o->die_arg, err) < 0 ||
        (!o->bare && prepare_dir(o, s->path, err) < 0)) {
        store_close(s, false);
        return -1;
    }
    enum outcome got = OPEN_UNUSABLE;
    if (o->condemned)
        vt_fail(err, VT_E_CORRUPT, "SQLite found damage while it was in use");
    else
        got = try_open(s, err);
    if (got == OPEN_UNUSABLE && !o->inspect) {
        char why[sizeof err->text];
        memcpy(why, err->text, sizeof why);
        drop_connection(s);
        if (move_aside(s, err) < 0 || (!o->bare && prepare_dir(o, s->path, err) < 0)) {
            store_close(s, false);
            return -1;
        }
        db_event(s, STORE_EV_REBUILT,
                 "the checkpoint database cannot be used (%.300s): moved aside, starting empty", why);
        got = try_open(s, err);
        if (got == OPEN_UNUSABLE)
            vt_fail_prefix(err, "a fresh database is unusable too");
    }
    if (got != OPEN_OK) {
        store_close(s, false);
        return -1;
    }
    s->idle_us = s->collect_us = vt_mono(o->clock);
    s->hour_seen = atomic_load_explicit(&store_vfs_io(s->vfs)->bytes_written, memory_order_relaxed);
    space_day_load(s);
    space_ballast_make(s);
    *out = s;
    return 0;
}

/* The clean mark: everything up to it was verified or committed by a process that ended in order. */
static void write_clean_mark(struct store *s)
{
    struct vt_err err;
    if (!s->marked || s->damaged)
        return;
    bool verified = !s->scrubbing || s->scrub_all;
    if (db_begin(s, &err) < 0)
        return;
    int64_t clean = verified ? s->next_block - 1 : s->clean;
    if (db_mark_set(s, "clean", clean, &err) < 0 || db_mark_set(s, "stopped", verified, &err) < 0 ||
        (s->scrub_all && db_mark_set(s, "scrub", s->scrub_at, &err) < 0))
        db_rollback(s);
    else
        db_commit(s, &err);
}

void store_close(struct store *s, bool clean)
{
    if (s == NULL)
        return;
    if (s->db != NULL) {
        save_end(s->save);
        if (clean)
            write_clean_mark(s);
        drop_connection(s);
    }
    store_vfs_free(s->vfs);
    nameset_free(&s->pins);
    free(s->bad);
    free(s->touched);
    free(s->path);
    free(s);
}

const struct store_io *store_io(const struct store *s)
{
    return store_vfs_io(s->vfs);
}

bool store_damaged(const struct store *s)
{
    return s->damaged;
}

static uint64_t count(struct store *s, const char *sql)
{
    int64_t n = db_int(s, sql, NULL);
    return n > 0 ? (uint64_t)n : 0;
}

void store_facts(struct store *s, struct store_facts *out)
{
    int64_t changes = sqlite3_total_changes64(s->db);
    if (!s->in_txn && changes != s->facts_at) {
        s->f.file_bytes = space_file(s);
        s->f.bytes = space_used(s);
        s->f.heads = count(s, "SELECT count(*) FROM head");
        s->f.blocks = count(s, "SELECT count(*) FROM block");
        s->f.bad = count(s, "SELECT count(*) FROM block WHERE state=3");
        s->facts_at = changes;
    }
    *out = s->f;
    space_avail(s, &out->fs_avail, &out->fs_total, NULL);
    out->hour_bytes = space_hour(s);
    out->day_bytes = space_day(s);
    out->scrub_left =
        s->scrubbing && s->scrub_at <= s->scrub_end ? (uint64_t)(s->scrub_end - s->scrub_at + 1) : 0;
    out->full = s->full;
}
