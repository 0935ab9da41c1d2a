/* Launch rows and tenants' salts: small rows, one transaction each. */
#include "db.h"

#include <stdlib.h>
#include <string.h>

int store_salt_get(struct store *s, const char *tenant, uint8_t salt[CKPT_SALT_LEN], struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, ST_SALT_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, tenant, -1, SQLITE_STATIC);
    int rc = db_step(s, st, "reading a tenant's salt", err);
    if (rc == 0)
        return vt_fail(err, VT_E_NOT_FOUND, "this tenant has no salt yet");
    if (rc < 0)
        return -1;
    bool ok = sqlite3_column_bytes(st, 0) == CKPT_SALT_LEN;
    if (ok)
        memcpy(salt, sqlite3_column_blob(st, 0), CKPT_SALT_LEN);
    sqlite3_reset(st);
    return ok ? 0 : vt_fail(err, VT_E_CORRUPT, "a tenant's salt is damaged");
}

int db_check_tenant(const char *tenant, struct vt_err *err)
{
    static const char legal[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(tenant);
    if (n == 0 || n > STORE_TENANT_MAX || strspn(tenant, legal) != n)
        return vt_fail(err, VT_E_PARAM, "a tenant's name has 1 to %d of A-Z a-z 0-9 . _ -", STORE_TENANT_MAX);
    return 0;
}

int store_salt(struct store *s, const char *tenant, uint8_t salt[CKPT_SALT_LEN], struct vt_err *err)
{
    struct vt_err local;
    if (err == NULL)
        err = &local;
    if (store_salt_get(s, tenant, salt, err) == 0)
        return 0;
    if (err->code != VT_E_NOT_FOUND)
        return -1;
    if (db_check_tenant(tenant, err) < 0)
        return -1;
    if (s->o.random != NULL)
        s->o.random(s->o.random_arg, salt, CKPT_SALT_LEN);
    else
        vt_random(salt, CKPT_SALT_LEN);
    if (db_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *st = db_stmt(s, ST_SALT_PUT, err);
    if (st != NULL) {
        sqlite3_bind_text(st, 1, tenant, -1, SQLITE_STATIC);
        sqlite3_bind_blob(st, 2, salt, CKPT_SALT_LEN, SQLITE_STATIC);
        sqlite3_bind_int64(st, 3, (int64_t)vt_wall(s->o.clock));
    }
    if (st == NULL || db_run(s, st, "writing a tenant's salt", err) < 0) {
        db_rollback(s);
        return -1;
    }
    return db_commit(s, err);
}

static int put_row(struct store *s, const struct store_launch *l, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, ST_LAUNCH_PUT, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, (int64_t)l->started_us);
    sqlite3_bind_text(st, 2, l->boot_id, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, l->child, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 4, l->fp, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 5, l->line, -1, SQLITE_STATIC);
    sqlite3_bind_blob(st, 6, l->effective_len > 0 ? l->effective : "\x80",
                      l->effective_len > 0 ? (int)l->effective_len : 1, SQLITE_STATIC);
    sqlite3_bind_text(st, 7, l->diff_prev, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 8, l->diff_bless, -1, SQLITE_STATIC);
    return db_run(s, st, "recording a launch", err);
}

int launch_insert(struct store *s, const struct store_launch *l, int64_t *id, struct vt_err *err)
{
    if (put_row(s, l, err) < 0)
        return -1;
    *id = sqlite3_last_insert_rowid(s->db);
    return 0;
}

int store_launch_put(struct store *s, const struct store_launch *l, uint64_t *id, struct vt_err *err)
{
    int64_t row;
    if (db_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *trim;
    if (launch_insert(s, l, &row, err) < 0 || (trim = db_stmt(s, ST_LAUNCH_TRIM, err)) == NULL ||
        db_run(s, trim, "dropping old launches", err) < 0) {
        db_rollback(s);
        return -1;
    }
    *id = (uint64_t)row;
    return db_commit(s, err);
}

int store_launch_end(struct store *s, uint64_t id, const char *cls, const char *detail, uint64_t ready_us,
                     struct vt_err *err)
{
    if (db_begin(s, err) < 0)
        return -1;
    sqlite3_stmt *st = db_stmt(s, ST_LAUNCH_END, err);
    if (st != NULL) {
        sqlite3_bind_int64(st, 1, (int64_t)id);
        sqlite3_bind_int64(st, 2, (int64_t)vt_wall(s->o.clock));
        sqlite3_bind_text(st, 3, cls, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 4, detail, -1, SQLITE_STATIC);
        if (ready_us != 0)
            sqlite3_bind_int64(st, 5, (int64_t)ready_us);
    }
    if (st == NULL || db_run(s, st, "recording the end of a launch", err) < 0) {
        db_rollback(s);
        return -1;
    }
    return db_commit(s, err);
}

static char *text_copy(sqlite3_stmt *st, int col)
{
    const char *t = (const char *)sqlite3_column_text(st, col);
    return strdup(t != NULL ? t : "");
}

int store_launch_last(struct store *s, const char *child, struct store_launch_last *out, struct vt_err *err)
{
    *out = (struct store_launch_last){0};
    sqlite3_stmt *st = db_stmt(s, ST_LAUNCH_LAST, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, child, -1, SQLITE_STATIC);
    int rc = db_step(s, st, "reading the last launch", err);
    if (rc != 1)
        return rc;
    out->found = true;
    out->id = (uint64_t)sqlite3_column_int64(st, 0);
    out->fp = text_copy(st, 1);
    out->line = text_copy(st, 2);
    out->effective_len = (size_t)sqlite3_column_bytes(st, 3);
    out->effective = malloc(out->effective_len + 1);
    if (out->effective != NULL && out->effective_len > 0)
        memcpy(out->effective, sqlite3_column_blob(st, 3), out->effective_len);
    sqlite3_reset(st);
    if (out->fp == NULL || out->line == NULL || out->effective == NULL) {
        store_launch_last_free(out);
        return vt_fail(err, VT_E_NOMEM, "no memory for the last launch");
    }
    return 0;
}

int store_launch_list(struct store *s, unsigned n, FILE *out, struct vt_err *err)
{
    sqlite3_stmt *st = db_stmt(s, ST_LAUNCH_LIST, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, n);
    int rc;
    while ((rc = db_step(s, st, "reading the launches", err)) == 1)
        fprintf(out, "%lld\t%s\t%s\t%s\t%s\n", (long long)sqlite3_column_int64(st, 0),
                (const char *)sqlite3_column_text(st, 1), (const char *)sqlite3_column_text(st, 2),
                (const char *)sqlite3_column_text(st, 3), (const char *)sqlite3_column_text(st, 4));
    return rc;
}

void store_launch_last_free(struct store_launch_last *l)
{
    free(l->fp);
    free(l->line);
    free(l->effective);
    *l = (struct store_launch_last){0};
}
