#include "store/store_priv.h"

#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BEAT_US 1000000

#define VERSION 2

static const char schema_1[] =
    "CREATE TABLE project(id INTEGER PRIMARY KEY, root TEXT UNIQUE NOT NULL, trust_hash TEXT, created "
    "INTEGER NOT NULL);"
    "CREATE TABLE session(num INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, project INTEGER NOT NULL "
    "REFERENCES project,"
    "  title TEXT, mode INTEGER NOT NULL DEFAULT 0, coupling TEXT NOT NULL, forked_from TEXT, opening TEXT,"
    "  meta TEXT, created INTEGER NOT NULL, updated INTEGER NOT NULL);"
    "CREATE TABLE turn(session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, idx INTEGER NOT NULL, "
    "key TEXT NOT NULL,"
    "  state INTEGER NOT NULL, meta TEXT NOT NULL, PRIMARY KEY(session, idx)) WITHOUT ROWID;"
    "CREATE TABLE item(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE,"
    "  turn INTEGER NOT NULL, kind TEXT NOT NULL, call_id TEXT, name TEXT, state TEXT, body TEXT, meta TEXT "
    "NOT NULL,"
    "  created INTEGER NOT NULL);"
    "CREATE UNIQUE INDEX one_result ON item(session, call_id) WHERE kind='result';"
    "CREATE INDEX item_of ON item(session);"
    "CREATE TABLE unit(session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, ord INTEGER NOT NULL, "
    "epoch INTEGER NOT NULL,"
    "  coupling TEXT NOT NULL, meta TEXT NOT NULL, bytes BLOB, PRIMARY KEY(session, ord)) WITHOUT ROWID;"
    "CREATE TABLE request(id INTEGER PRIMARY KEY, session TEXT NOT NULL, coupling TEXT NOT NULL, ended "
    "INTEGER NOT NULL,"
    "  prompt INTEGER, cached INTEGER, completion INTEGER, micro_euro INTEGER);"
    "CREATE INDEX request_at ON request(coupling, ended);"
    "CREATE TABLE todo(session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, ord INTEGER, text "
    "TEXT, state INTEGER,"
    "  PRIMARY KEY(session, ord)) WITHOUT ROWID;"
    "CREATE TABLE queue(session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, ord INTEGER, text "
    "TEXT,"
    "  PRIMARY KEY(session, ord)) WITHOUT ROWID;"
    "CREATE TABLE draft(session INTEGER PRIMARY KEY REFERENCES session ON DELETE CASCADE, text TEXT, caret "
    "INTEGER);"
    "CREATE TABLE prompt_history(id INTEGER PRIMARY KEY, project INTEGER NOT NULL, text TEXT NOT NULL, at "
    "INTEGER NOT NULL);"
    "CREATE TABLE fact(id INTEGER PRIMARY KEY, project INTEGER NOT NULL, text TEXT NOT NULL, created INTEGER "
    "NOT NULL);"
    "CREATE VIRTUAL TABLE memory USING fts5(title, body, ref UNINDEXED, session UNINDEXED,"
    "  tokenize='unicode61 remove_diacritics 2');";
/* A row a file: 64-bit hashes of its lines in this machine's byte order, 0 where a line was not shown. */
static const char schema_2[] =
    "CREATE TABLE seen(session INTEGER NOT NULL REFERENCES session ON DELETE CASCADE, path TEXT NOT NULL,"
    "  lines BLOB NOT NULL, PRIMARY KEY(session, path)) WITHOUT ROWID;";
static const char *const schemas[VERSION] = {schema_1, schema_2};

/* ---- statements ---- */

int sql_fail(struct store *s, struct vt_err *err)
{
    int code = sqlite3_errcode(s->db);
    return vt_fail(err,
                   code == SQLITE_FULL                               ? VT_E_DISK_FULL
                   : code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? VT_E_CORRUPT
                   : code == SQLITE_BUSY                             ? VT_E_BUSY
                                                                     : VT_E_IO,
                   "%s/officina.db: %s", s->home, sqlite3_errmsg(s->db));
}

static sqlite3_stmt *prepare(struct store *s, struct vt_err *err, const char *sql, const char *types,
                             va_list ap)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK) {
        sql_fail(s, err);
        return NULL;
    }
    for (int i = 0; types[i] != '\0'; i++) {
        const char *text;
        const void *blob;
        switch (types[i]) {
        case 's':
            text = va_arg(ap, const char *);
            sqlite3_bind_text(st, i + 1, text, -1, SQLITE_TRANSIENT);
            break;
        case 'i': sqlite3_bind_int64(st, i + 1, va_arg(ap, int64_t)); break;
        case 'b':
            blob = va_arg(ap, const void *);
            sqlite3_bind_text(st, i + 1, blob, (int)va_arg(ap, size_t), SQLITE_TRANSIENT);
            break;
        case 'x':
            blob = va_arg(ap, const void *);
            sqlite3_bind_blob(st, i + 1, blob, (int)va_arg(ap, size_t), SQLITE_TRANSIENT);
            break;
        default: break;
        }
    }
    return st;
}

sqlite3_stmt *sql_prepare(struct store *s, struct vt_err *err, const char *sql, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *st = prepare(s, err, sql, types, ap);
    va_end(ap);
    return st;
}

int sql_run(struct store *s, struct vt_err *err, const char *sql, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *st = prepare(s, err, sql, types, ap);
    va_end(ap);
    if (st == NULL)
        return -1;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        ;
    int bad = rc != SQLITE_DONE ? sql_fail(s, err) : 0;
    sqlite3_finalize(st);
    return bad;
}

int64_t sql_int(struct store *s, int64_t dflt, const char *sql, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *st = prepare(s, NULL, sql, types, ap);
    va_end(ap);
    if (st != NULL && sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL)
        dflt = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return dflt;
}

char *sql_str(struct store *s, const char *sql, const char *types, ...)
{
    char *out = NULL;
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *st = prepare(s, NULL, sql, types, ap);
    va_end(ap);
    if (st != NULL && sqlite3_step(st) == SQLITE_ROW)
        out = mem_dup((const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return out;
}

/* ---- opening ---- */

/* What an older version wrote stays beside the file, should the new one be given up. */
static int copy_before(struct store *s, int64_t have, struct vt_err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/officina.db.v%" PRId64, s->home, have);
    if (access(path, F_OK) == 0)
        return 0;
    mode_t before = umask(077);
    int rc = sql_run(s, err, "VACUUM INTO ?", "s", path);
    umask(before);
    return rc;
}

static int migrate(struct store *s, struct vt_err *err)
{
    int64_t have = sql_int(s, 0, "PRAGMA user_version", "");
    char set[64];
    if (have == VERSION)
        return 0;
    if (have > VERSION)
        return vt_fail(err, VT_E_VERSION,
                       "%s/officina.db is of a newer Officina (%" PRId64 "); update, or set OFFICINA_HOME",
                       s->home, have);
    if (have != 0 && copy_before(s, have, err) < 0)
        return -1;
    snprintf(set, sizeof set, "PRAGMA user_version=%d", VERSION);
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return sql_fail(s, err);
    have = sql_int(s, 0, "PRAGMA user_version", ""); /* another process may have been first */
    bool ok = true;
    for (int64_t v = have; ok && v < VERSION; v++)
        ok = sqlite3_exec(s->db, schemas[v], NULL, NULL, NULL) == SQLITE_OK;
    if (!ok || (have < VERSION && sqlite3_exec(s->db, set, NULL, NULL, NULL) != SQLITE_OK)) {
        int rc = sql_fail(s, err);
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return rc;
    }
    return sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK ? 0 : sql_fail(s, err);
}

struct store *store_open(const char *home, struct vt_err *err)
{
    struct store *s = mem_new(sizeof *s);
    char path[PATH_MAX];
    s->home = mem_dup(home);
    s->lock = -1;
    snprintf(path, sizeof path, "%s/officina.db", home);
    mode_t before = umask(077);
    int rc = sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW,
                             NULL);
    umask(before);
    if (rc != SQLITE_OK) {
        sql_fail(s, err);
        store_close(s);
        return NULL;
    }
    sqlite3_busy_timeout(s->db, 5000);
    /* Where processes cannot share memory the log needs exclusive locking; SQLite then answers with another mode. */
    char *mode = sql_str(s, "PRAGMA journal_mode=WAL", "");
    if (mode == NULL || strcmp(mode, "wal") != 0)
        sqlite3_exec(s->db, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=DELETE", NULL, NULL, NULL);
    free(mode);
    if (sqlite3_exec(s->db, "PRAGMA foreign_keys=ON; PRAGMA synchronous=NORMAL; PRAGMA trusted_schema=OFF",
                     NULL, NULL, NULL) != SQLITE_OK ||
        migrate(s, err) < 0) {
        if (err != NULL && err->text[0] == '\0')
            sql_fail(s, err);
        store_close(s);
        return NULL;
    }
    return s;
}

static void release(struct store *s)
{
    if (s->lock >= 0)
        close(s->lock);
    s->lock = -1;
    free(s->held);
    s->held = NULL;
}

void store_close(struct store *s)
{
    if (s == NULL)
        return;
    release(s);
    sqlite3_close(s->db);
    for (size_t i = 0; i < s->n_history; i++)
        free(s->history[i]);
    free(s->history);
    free(s->home);
    free(s);
}

/* ---- projects and conversations ---- */

int64_t store_project(struct store *s, const char *root, uint64_t now, struct vt_err *err)
{
    if (sql_run(s, err, "INSERT OR IGNORE INTO project(root, created) VALUES(?, ?)", "si", root,
                (int64_t)now) < 0)
        return -1;
    return sql_int(s, -1, "SELECT id FROM project WHERE root = ?", "s", root);
}

char *store_trust(struct store *s, int64_t project)
{
    char *hash = sql_str(s, "SELECT trust_hash FROM project WHERE id = ?", "i", project);
    return hash != NULL ? hash : mem_dup("");
}

int store_set_trust(struct store *s, int64_t project, const char *hash, struct vt_err *err)
{
    return sql_run(s, err, "UPDATE project SET trust_hash = ? WHERE id = ?", "si", hash, project);
}

int64_t session_num(struct store *s, const char *session)
{
    return sql_int(s, -1, "SELECT num FROM session WHERE id = ?", "s", session);
}

int64_t store_count(struct store *s)
{
    return sql_int(s, 0, "SELECT max(num) FROM session", "");
}

int store_new(struct store *s, int64_t project, const char *id, const char *coupling, const char *opening,
              uint64_t now, struct vt_err *err)
{
    return sql_run(
        s, err,
        "INSERT INTO session(id, project, coupling, opening, created, updated) VALUES(?, ?, ?, ?, ?, ?)",
        "sissii", id, project, coupling, opening, (int64_t)now, (int64_t)now);
}

int store_fork(struct store *s, const char *from, const char *id, uint64_t now, struct vt_err *err)
{
    int64_t old = session_num(s, from);
    if (old < 0)
        return vt_fail(err, VT_E_NOT_FOUND, "there is no conversation %.64s", from);
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return sql_fail(s, err);
    int rc = sql_run(
        s, err,
        "INSERT INTO session(id, project, title, mode, coupling, forked_from, opening, meta, created, "
        "updated) "
        "SELECT ?, project, title, mode, coupling, id, opening, meta, ?, ? FROM session WHERE num = ?",
        "siii", id, (int64_t)now, (int64_t)now, old);
    int64_t num = session_num(s, id);
    static const char *const copies[] = {
        "INSERT INTO turn SELECT ?, idx, key, state, meta FROM turn WHERE session = ?",
        "INSERT INTO unit SELECT ?, ord, epoch, coupling, meta, bytes FROM unit WHERE session = ?",
        "INSERT INTO todo SELECT ?, ord, text, state FROM todo WHERE session = ?",
        "INSERT INTO seen SELECT ?, path, lines FROM seen WHERE session = ?"};
    for (size_t i = 0; rc == 0 && i < sizeof copies / sizeof copies[0]; i++)
        rc = sql_run(s, err, copies[i], "ii", num, old);
    if (rc == 0)
        rc = sql_run(s, err,
                     "INSERT INTO item SELECT (?1 << 32) | (id & 4294967295), ?1, turn, kind, call_id, name, "
                     "state, body, meta, "
                     "created FROM item WHERE session = ?2",
                     "ii", num, old);
    if (rc == 0)
        rc = sql_run(s, err,
                     "INSERT INTO memory(rowid, title, body, ref, session) SELECT (?1 << 32) | (rowid & "
                     "4294967295), title, body, "
                     "ref, ?2 FROM memory WHERE rowid >= (?3 << 32) AND rowid < ((?3 + 1) << 32)",
                     "isi", num, id, old);
    sqlite3_exec(s->db, rc == 0 ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

char *store_find(struct store *s, int64_t project, const char *name)
{
    if (name == NULL)
        return sql_str(
            s,
            "SELECT id FROM session WHERE project = ? AND (EXISTS(SELECT 1 FROM turn WHERE session = num) OR "
            "EXISTS(SELECT 1 FROM draft WHERE draft.session = num AND text <> '')) " /* half a sentence is kept, too */
            "ORDER BY updated DESC, num DESC LIMIT 1",
            "i", project);
    return sql_str(s,
                   "SELECT id FROM session WHERE id = ?1 OR (project = ?2 AND title = ?1) ORDER BY id = ?1 "
                   "DESC, updated DESC "
                   "LIMIT 1",
                   "si", name, project);
}

int store_hold(struct store *s, const char *session, struct vt_err *err)
{
    char path[PATH_MAX];
    release(s);
    snprintf(path, sizeof path, "%s/locks", s->home);
    if (file_own_dir(path, err) < 0)
        return -1;
    snprintf(path, sizeof path, "%s/locks/%.64s", s->home, session);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock < 0)
        return vt_fail_errno(err, VT_E_IO, "%s", path);
    s->num = session_num(s, session);
    s->epoch = -1;
    s->units = s->tasks = s->queue = 0;
    s->draft_hash = s->tasks_hash = s->queue_hash = s->meta_hash = s->sign = 0;
    if (flock(s->lock, LOCK_EX | LOCK_NB) < 0) {
        release(s);
        return 0;
    }
    struct stat st;
    s->died = fstat(s->lock, &st) == 0
                  ? (uint64_t)st.st_mtim.tv_sec * 1000000 + (uint64_t)st.st_mtim.tv_nsec / 1000
                  : 0;
    s->beat = 0;
    s->held = mem_dup(session);
    return 1;
}

uint64_t store_died(const struct store *s)
{
    return s->died;
}

void store_beat(struct store *s)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    if (s->lock < 0 || s->held == NULL || (s->beat != 0 && now - s->beat < BEAT_US))
        return;
    s->beat = now;
    futimens(s->lock, NULL);
}

int store_title(struct store *s, const char *session, const char *title, struct vt_err *err)
{
    return sql_run(s, err, "UPDATE session SET title = ? WHERE id = ?", "ss", title, session);
}

int store_seen(struct store *s, const char *path, const uint64_t *lines, size_t n, struct vt_err *err)
{
    if (s->held == NULL)
        return 0;
    return sql_run(s, err, "INSERT OR REPLACE INTO seen VALUES(?, ?, ?)", "isx", s->num, path, lines,
                   n * sizeof *lines);
}

void store_each_seen(struct store *s, const char *session,
                     void (*sink)(void *arg, const char *path, const uint64_t *lines, size_t n), void *arg)
{
    sqlite3_stmt *st =
        sql_prepare(s, NULL, "SELECT path, lines FROM seen WHERE session = ?", "i", session_num(s, session));
    while (st != NULL && sqlite3_step(st) == SQLITE_ROW) {
        size_t n = (size_t)sqlite3_column_bytes(st, 1) / sizeof(uint64_t);
        uint64_t *lines = mem_new((n + 1) * sizeof *lines);
        if (n != 0)
            memcpy(lines, sqlite3_column_blob(st, 1), n * sizeof *lines);
        sink(arg, (const char *)sqlite3_column_text(st, 0), lines, n);
        free(lines);
    }
    sqlite3_finalize(st);
}

/* ---- requests, facts, prompts ---- */

int store_request(struct store *s, const char *session, const char *coupling, uint64_t now, int64_t prompt,
                  int64_t cached, int64_t completion, int64_t micro_euro, struct vt_err *err)
{
    return sql_run(s, err,
                   "INSERT INTO request(session, coupling, ended, prompt, cached, completion, micro_euro) "
                   "VALUES(?, ?, ?, ?, ?, ?, ?)",
                   "ssiiiii", session, coupling, (int64_t)now, prompt, cached, completion, micro_euro);
}

int64_t store_spent(struct store *s, const char *coupling, uint64_t since)
{
    return sql_int(s, 0, "SELECT sum(micro_euro) FROM request WHERE coupling = ? AND ended >= ?", "si",
                   coupling, (int64_t)since);
}

int64_t store_remember(struct store *s, int64_t project, const char *fact, uint64_t now, struct vt_err *err)
{
    /* 600 tokens for a project: about 2,400 bytes. */
    if (sql_int(s, 0, "SELECT sum(length(text)) FROM fact WHERE project = ?", "i", project) +
            (int64_t)strlen(fact) >
        2400)
        return vt_fail(err, VT_E_LIMIT, "the project's facts are full (about 600 tokens); /forget one first");
    if (sql_run(s, err, "INSERT INTO fact(project, text, created) VALUES(?, ?, ?)", "isi", project, fact,
                (int64_t)now) < 0)
        return -1;
    return sqlite3_last_insert_rowid(s->db);
}

int store_forget(struct store *s, int64_t project, int64_t id, struct vt_err *err)
{
    if (sql_run(s, err, "DELETE FROM fact WHERE project = ? AND id = ?", "ii", project, id) < 0)
        return -1;
    return sqlite3_changes(s->db) != 0 ? 0 : vt_fail(err, VT_E_NOT_FOUND, "there is no fact %" PRId64, id);
}

char *store_facts(struct store *s, int64_t project)
{
    struct text t = {0};
    sqlite3_stmt *st =
        sql_prepare(s, NULL, "SELECT id, text FROM fact WHERE project = ? ORDER BY id", "i", project);
    while (st != NULL && sqlite3_step(st) == SQLITE_ROW)
        text_printf(&t, "%lld. %s\n", (long long)sqlite3_column_int64(st, 0),
                    (const char *)sqlite3_column_text(st, 1));
    sqlite3_finalize(st);
    return text_take(&t);
}

int store_prompt(struct store *s, int64_t project, const char *text, uint64_t now, struct vt_err *err)
{
    if (sql_run(s, err, "DELETE FROM prompt_history WHERE project = ? AND text = ?", "is", project, text) <
            0 ||
        sql_run(s, err, "INSERT INTO prompt_history(project, text, at) VALUES(?, ?, ?)", "isi", project, text,
                (int64_t)now) < 0)
        return -1;
    return sql_run(s, err,
                   "DELETE FROM prompt_history WHERE project = ?1 AND id NOT IN (SELECT id FROM "
                   "prompt_history WHERE project = ?1 "
                   "ORDER BY id DESC LIMIT 1000)",
                   "i", project);
}

size_t store_history(struct store *s, int64_t project, const char **out, size_t max)
{
    for (size_t i = 0; i < s->n_history; i++)
        free(s->history[i]);
    free(s->history);
    s->history = mem_new((max + 1) * sizeof *s->history);
    s->n_history = 0;
    sqlite3_stmt *st =
        sql_prepare(s, NULL, "SELECT text FROM prompt_history WHERE project = ? ORDER BY id DESC LIMIT ?",
                    "ii", project, (int64_t)max);
    while (st != NULL && s->n_history < max && sqlite3_step(st) == SQLITE_ROW) {
        s->history[s->n_history] = mem_dup((const char *)sqlite3_column_text(st, 0));
        out[s->n_history] = s->history[s->n_history];
        s->n_history++;
    }
    sqlite3_finalize(st);
    return s->n_history;
}

char *store_list(struct store *s, int64_t project, const char *words, struct vt_err *err)
{
    json_t *o = json_object(), *rows = json_array();
    struct text like = {0};
    text_printf(&like, "%%%s%%", words != NULL ? words : "");
    sqlite3_stmt *st = sql_prepare(
        s, err,
        "SELECT id, strftime('%Y-%m-%d %H:%M', updated / 1000000, 'unixepoch', 'localtime'), coalesce(title, "
        "'(no title)'), "
        "(SELECT count(*) FROM turn WHERE session = num), coupling FROM session WHERE project = ?1 AND "
        "EXISTS(SELECT 1 FROM turn WHERE session = num) AND (title LIKE ?2 OR EXISTS(SELECT 1 FROM item "
        "WHERE session = num AND "
        "body LIKE ?2)) ORDER BY updated DESC, num DESC LIMIT 200",
        "is", project, text_str(&like));
    text_free(&like);
    while (st != NULL && sqlite3_step(st) == SQLITE_ROW) {
        json_t *row = json_object(), *cells = json_array();
        js_set_str(row, "key", (const char *)sqlite3_column_text(st, 0));
        for (int i = 1; i < 5; i++)
            json_array_append_new(cells, json_string((const char *)sqlite3_column_text(st, i)));
        json_object_set_new(row, "cells", cells);
        json_array_append_new(rows, row);
    }
    sqlite3_finalize(st);
    json_object_set_new(o, "heads", json_pack("[s, s, s, s]", "when", "title", "turns", "coupling"));
    json_object_set_new(o, "rows", rows);
    return js_dump(o);
}
