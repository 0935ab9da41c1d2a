#include "check.h"
#include "db.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void violation(struct check_result *r, FILE *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void violation(struct check_result *r, FILE *out, const char *fmt, ...)
{
    r->violations++;
    if (out == NULL)
        return;
    va_list ap;
    va_start(ap, fmt);
    fputs("VIOLATION ", out);
    vfprintf(out, fmt, ap);
    fputc('\n', out);
    va_end(ap);
}

static int check_sqlite(struct store *s, FILE *out, struct check_result *r, struct vt_err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(10)", -1, &st, NULL);
    if (rc == SQLITE_OK)
        while ((rc = sqlite3_step(st)) == SQLITE_ROW)
            if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0)
                violation(r, out, "I3 quick_check: %s", sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    if (rc != SQLITE_DONE)
        violation(r, out, "I3 quick_check: %s", sqlite3_errmsg(s->db));
    int64_t n = db_int(s, "SELECT count(*) FROM pragma_foreign_key_check", err);
    if (n < 0)
        return -1;
    if (n > 0)
        violation(r, out, "I3 foreign_key_check: %" PRId64 " rows", n);
    return 0;
}

static int check_rows(struct store *s, FILE *out, struct check_result *r, struct vt_err *err)
{
    static const struct {
        const char *what, *sql;
    } rules[] = {
        {"I2 blocks without payload or of another length",
         "SELECT count(*) FROM block b WHERE NOT EXISTS(SELECT 1 FROM payload p WHERE p.block_id=b.block_id"
         " AND length(p.data)=b.bytes)"},
        {"I2 manifests with a hole in their list",
         "SELECT count(*) FROM manifest m JOIN layout l USING(layout_id) WHERE (SELECT count(*) FROM "
         "manifest_block x"
         " WHERE x.manifest_id=m.id AND x.idx*l.block_tokens<m.nkv)*l.block_tokens<>m.nkv"},
        {"I2 manifests that list bad blocks",
         "SELECT count(*) FROM manifest_block x JOIN block b USING(block_id) WHERE b.state<>1"},
        {"I2 heads whose manifest is of another slot",
         "SELECT count(*) FROM head h JOIN manifest m ON m.id=h.cur WHERE m.tenant<>h.tenant OR "
         "m.slot<>h.slot OR m.ntok=0"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        int64_t n = db_int(s, rules[i].sql, err);
        if (n < 0)
            return -1;
        if (n > 0)
            violation(r, out, "%s: %" PRId64, rules[i].what, n);
    }
    int64_t bad = db_int(s, "SELECT count(*) FROM block WHERE state=3", err);
    int64_t blocks = db_int(s, "SELECT count(*) FROM block", err);
    if (bad < 0 || blocks < 0)
        return -1;
    r->bad = (uint64_t)bad;
    r->blocks = (uint64_t)blocks;
    return 0;
}

static int read_head(struct store *s, const struct store_head *h, uint8_t *buf, FILE *out,
                     struct check_result *r, struct vt_err *err)
{
    struct store_plan p;
    struct load *l;
    struct load_piece piece;
    struct vt_err why;
    if (store_find_manifest(s, h->manifest, &p, &why) < 0) {
        violation(r, out, "I1 %s slot %" PRIu32 ": %s", h->tenant, h->slot, why.text);
        return 0;
    }
    if ((uint64_t)p.have * p.block_tokens != h->nkv)
        violation(r, out, "I1 %s slot %" PRIu32 ": %" PRIu32 " good blocks, %" PRIu64 " tokens claimed",
                  h->tenant, h->slot, p.have, h->nkv);
    int rc = load_begin(s, &p, 0, &l, err);
    if (rc == 0) {
        int got;
        while ((got = load_step(l, buf, &piece, &why)) == 1)
            r->bytes += piece.len;
        if (got < 0)
            violation(r, out, "I1 %s slot %" PRIu32 ": %s", h->tenant, h->slot, why.text);
        load_end(l);
    }
    if (out != NULL)
        fprintf(out,
                "head %s slot %" PRIu32 " generation %" PRIu64 " manifest %" PRIu64 " tokens %" PRIu64
                " stored %" PRIu64 "%s\n",
                h->tenant, h->slot, h->gen, h->manifest, h->ntok, h->nkv, p.has_rec ? " snapshot" : "");
    store_plan_free(&p);
    return rc;
}

int store_check(struct store *s, FILE *out, struct check_result *r, struct vt_err *err)
{
    static const uint8_t any[32];
    struct store_head *heads = NULL;
    size_t n = 0;
    *r = (struct check_result){0};
    uint8_t *buf = malloc(CKPT_PIECE);
    if (buf == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory to check the store");
    int rc = check_sqlite(s, out, r, err);
    if (rc == 0)
        rc = check_rows(s, out, r, err);
    if (rc == 0)
        rc = store_heads(s, any, &heads, &n, err);
    r->heads = n;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = read_head(s, &heads[i], buf, out, r, err);
    free(heads);
    free(buf);
    return rc;
}
