/* Finding: heads, slot files and prefixes. A plan is made of rows that were checked: layout, seal, and the
 * chain of names computed again from the items, so that a damaged row shortens a plan or ends it, and never
 * changes what is restored. */
#include "db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void store_plan_free(struct store_plan *p)
{
    free(p->items);
    free(p->sampler);
    free(p->names);
    *p = (struct store_plan){0};
}

int store_heads(struct store *s, const uint8_t layout_fp[32], struct store_head **out, size_t *n,
                struct vt_err *err)
{
    size_t cap = 0;
    *out = NULL;
    *n = 0;
    sqlite3_stmt *st = db_stmt(s, ST_HEAD_LIST, err);
    if (st == NULL)
        return -1;
    int rc;
    while ((rc = db_step(s, st, "listing the heads", err)) == 1) {
        if (*n == cap) {
            cap = cap > 0 ? 2 * cap : 16;
            struct store_head *p = realloc(*out, cap * sizeof *p);
            if (p == NULL) {
                sqlite3_reset(st);
                rc = vt_fail(err, VT_E_NOMEM, "no memory for the list of heads");
                break;
            }
            *out = p;
        }
        struct store_head *h = &(*out)[*n];
        const char *tenant = (const char *)sqlite3_column_text(st, 0);
        if (tenant == NULL || strlen(tenant) > STORE_TENANT_MAX)
            continue;
        *h = (struct store_head){.slot = (uint32_t)sqlite3_column_int64(st, 1),
                                 .ntok = (uint64_t)sqlite3_column_int64(st, 2),
                                 .nkv = (uint64_t)sqlite3_column_int64(st, 3),
                                 .gen = (uint64_t)sqlite3_column_int64(st, 4),
                                 .manifest = (uint64_t)sqlite3_column_int64(st, 5)};
        strcpy(h->tenant, tenant);
        const void *fp = sqlite3_column_blob(st, 6);
        h->layout_match = fp != NULL && sqlite3_column_bytes(st, 6) == 32 && memcmp(fp, layout_fp, 32) == 0;
        ++*n;
    }
    if (rc < 0) {
        free(*out);
        *out = NULL;
        *n = 0;
    }
    return rc;
}

/* ---- one manifest ---- */

struct raw { /* columns of a manifest, copied */
    char tenant[STORE_TENANT_MAX + 1];
    uint32_t slot;
    uint64_t ntok, nkv;
    uint8_t seal[32], fp[32];
};

static void *column_copy(sqlite3_stmt *st, int col, size_t *n)
{
    *n = (size_t)sqlite3_column_bytes(st, col);
    const void *b = sqlite3_column_blob(st, col);
    void *p = malloc(*n > 0 ? *n : 1);
    if (p != NULL && *n > 0)
        memcpy(p, b, *n);
    return p;
}

static int read_columns(sqlite3_stmt *st, struct raw *r, struct store_plan *p, struct vt_err *err)
{
    size_t n;
    const char *tenant = (const char *)sqlite3_column_text(st, 0);
    if (tenant == NULL || strlen(tenant) > STORE_TENANT_MAX || sqlite3_column_bytes(st, 5) != 32 ||
        sqlite3_column_bytes(st, 8) != 32)
        return vt_fail(err, VT_E_CORRUPT, "a manifest's row is damaged");
    strcpy(r->tenant, tenant);
    r->slot = (uint32_t)sqlite3_column_int64(st, 1);
    r->ntok = (uint64_t)sqlite3_column_int64(st, 2);
    r->nkv = (uint64_t)sqlite3_column_int64(st, 3);
    memcpy(r->seal, sqlite3_column_blob(st, 5), 32);
    memcpy(r->fp, sqlite3_column_blob(st, 8), 32);
    p->has_private = sqlite3_column_type(st, 4) != SQLITE_NULL;
    if (p->has_private && sqlite3_column_bytes(st, 4) != 32)
        return vt_fail(err, VT_E_CORRUPT, "a manifest's row is damaged");
    if (p->has_private)
        memcpy(p->private_salt, sqlite3_column_blob(st, 4), 32);
    p->sampler = column_copy(st, 6, &p->sampler_len);
    p->items = column_copy(st, 7, &n);
    if (p->sampler == NULL || p->items == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for a manifest");
    p->n_items = (uint32_t)(n / 4);
    p->block_tokens = (uint32_t)sqlite3_column_int64(st, 9);
    p->kv_bytes = (uint64_t)sqlite3_column_int64(st, 10);
    p->rec_bytes = (uint64_t)sqlite3_column_int64(st, 11);
    if (n % 4 != 0 || n / 4 != r->ntok || p->block_tokens == 0 || p->n_items > STORE_ITEMS_MAX ||
        r->nkv > r->ntok)
        return vt_fail(err, VT_E_CORRUPT, "a manifest's row is damaged");
    return 0;
}

static int check_seal(const struct raw *r, const struct store_plan *p, struct vt_err *err)
{
    uint8_t seal[32];
    struct ckpt_seal in = {.layout_fp = r->fp,
                           .tenant = r->tenant,
                           .slot = r->slot,
                           .private_salt = p->has_private ? p->private_salt : NULL,
                           .sampler = p->sampler,
                           .sampler_len = p->sampler_len,
                           .items = p->items,
                           .n_items = p->n_items};
    ckpt_seal(&in, seal);
    if (memcmp(seal, r->seal, 32) != 0)
        return vt_fail(err, VT_E_CORRUPT, "a manifest does not fit its seal");
    return 0;
}

/* Walks the list of blocks as long as each is live and bears the name that the items give it. */
static int walk_list(struct store *s, uint64_t manifest, uint64_t nkv, const struct raw *r,
                     struct store_plan *p, struct vt_err *err)
{
    uint8_t salt[32], h[32];
    uint32_t n = (uint32_t)(nkv / p->block_tokens);
    if (p->has_private)
        memcpy(salt, p->private_salt, 32);
    else if (store_salt_get(s, r->tenant, salt, err) < 0)
        return -1;
    if ((p->names = malloc(32u * (size_t)n + 1)) == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for a manifest");
    ckpt_h0(r->fp, salt, h);
    for (uint32_t i = 0; i < n; i++) {
        ckpt_next(h, p->items + (size_t)i * p->block_tokens, p->block_tokens, h);
        sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_BLOCKS, err);
        if (st == NULL)
            return -1;
        sqlite3_bind_int64(st, 1, (int64_t)manifest);
        sqlite3_bind_int64(st, 2, i);
        int rc = db_step(s, st, "reading a manifest's list", err);
        if (rc < 0)
            return -1;
        bool good = rc == 1 && sqlite3_column_bytes(st, 0) == 32 &&
                    memcmp(sqlite3_column_blob(st, 0), h, 32) == 0 && sqlite3_column_int(st, 2) == 1 &&
                    !db_is_bad(s, sqlite3_column_int64(st, 1)) &&
                    (uint64_t)sqlite3_column_int64(st, 3) == p->kv_bytes;
        if (rc == 1)
            sqlite3_reset(st);
        if (!good)
            break;
        memcpy(p->names + 32u * (size_t)i, h, 32);
        p->have = i + 1;
    }
    return 0;
}

/* The largest snapshot inside the prefix; any stored one will do, whichever save brought it. */
static int find_snapshot(struct store *s, struct store_plan *p, struct vt_err *err)
{
    if (p->rec_bytes == 0)
        return 0;
    for (uint32_t i = p->have; i > 0; i--) {
        uint8_t name[32];
        int64_t id;
        uint64_t bytes;
        ckpt_rec(p->names + 32u * (size_t)(i - 1), i * p->block_tokens, name);
        int rc = db_block_find(s, name, &id, &bytes, err);
        if (rc < 0)
            return -1;
        if (rc == 1 && bytes == p->rec_bytes) {
            p->has_rec = true;
            p->rec_pos = i * p->block_tokens;
            return 0;
        }
    }
    return 0;
}

static int load_manifest(struct store *s, uint64_t manifest, const uint8_t *layout_fp, const char *tenant,
                         int64_t slot, struct store_plan *p, struct vt_err *err)
{
    struct raw r;
    *p = (struct store_plan){.manifest = manifest};
    sqlite3_stmt *st = db_stmt(s, ST_MANIFEST_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_int64(st, 1, (int64_t)manifest);
    int rc = db_step(s, st, "reading a manifest", err);
    if (rc == 0)
        return vt_fail(err, VT_E_NOT_FOUND, "there is no checkpoint %" PRIu64, manifest);
    if (rc < 0)
        return -1;
    rc = read_columns(st, &r, p, err);
    sqlite3_reset(st);
    if (rc == 0 && layout_fp != NULL && memcmp(r.fp, layout_fp, 32) != 0)
        rc = vt_fail(err, VT_E_LAYOUT,
                     "the checkpoint is of another model, precision or engine; it cannot be restored here");
    if (rc == 0 &&
        ((tenant != NULL && strcmp(tenant, r.tenant) != 0) || (slot >= 0 && slot != (int64_t)r.slot)))
        rc = vt_fail(err, VT_E_CORRUPT, "a head names a checkpoint of another slot");
    if (rc == 0 && (check_seal(&r, p, err) < 0 || walk_list(s, manifest, r.nkv, &r, p, err) < 0 ||
                    find_snapshot(s, p, err) < 0))
        rc = -1;
    if (rc < 0)
        store_plan_free(p);
    return rc;
}

int store_find_manifest(struct store *s, uint64_t manifest, struct store_plan *p, struct vt_err *err)
{
    return load_manifest(s, manifest, NULL, NULL, -1, p, err);
}

int store_find_head(struct store *s, const uint8_t layout_fp[32], const char *tenant, uint32_t slot,
                    struct store_plan *p, struct vt_err *err)
{
    *p = (struct store_plan){0};
    sqlite3_stmt *st = db_stmt(s, ST_HEAD_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, tenant, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, slot);
    int rc = db_step(s, st, "reading the head", err);
    if (rc == 0)
        return vt_fail(err, VT_E_NOT_FOUND, "slot %" PRIu32 " has no checkpoint", slot);
    if (rc < 0)
        return -1;
    int64_t ids[2] = {sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1)};
    uint64_t gen = (uint64_t)sqlite3_column_int64(st, 3);
    sqlite3_reset(st);
    rc = load_manifest(s, (uint64_t)ids[0], layout_fp, tenant, slot, p, err);
    /* A damaged newest manifest costs one interval of autosave, not the conversation. */
    if (rc < 0 && err != NULL && err->code == VT_E_CORRUPT && ids[1] != 0 && ids[1] != ids[0])
        rc = load_manifest(s, (uint64_t)ids[1], layout_fp, tenant, slot, p, err);
    if (rc == 0)
        p->head_gen = gen;
    return rc;
}

int store_find_named(struct store *s, const uint8_t layout_fp[32], const char *tenant, const char *name,
                     struct store_plan *p, struct vt_err *err)
{
    *p = (struct store_plan){0};
    sqlite3_stmt *st = db_stmt(s, ST_NAMED_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_text(st, 1, tenant, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, name, -1, SQLITE_STATIC);
    int rc = db_step(s, st, "looking for a slot file", err);
    if (rc == 0)
        return vt_fail(err, VT_E_NOT_FOUND, "no slot file of this name was saved");
    if (rc < 0)
        return -1;
    int64_t id = sqlite3_column_int64(st, 0);
    sqlite3_reset(st);
    return load_manifest(s, (uint64_t)id, layout_fp, tenant, -1, p, err);
}

int store_find_prefix(struct store *s, const uint8_t layout_fp[32], const uint8_t *names, uint32_t n,
                      struct store_plan *p, struct vt_err *err)
{
    *p = (struct store_plan){0};
    sqlite3_stmt *st = db_stmt(s, ST_LAYOUT_GET, err);
    if (st == NULL)
        return -1;
    sqlite3_bind_blob(st, 1, layout_fp, 32, SQLITE_STATIC);
    int rc = db_step(s, st, "looking for the layout", err);
    if (rc == 0)
        return vt_fail(err, VT_E_NOT_FOUND, "nothing is stored for this layout");
    if (rc < 0)
        return -1;
    p->block_tokens = (uint32_t)sqlite3_column_int64(st, 1);
    p->kv_bytes = (uint64_t)sqlite3_column_int64(st, 2);
    p->rec_bytes = (uint64_t)sqlite3_column_int64(st, 3);
    sqlite3_reset(st);
    for (uint32_t i = 0; i < n; i++) {
        int64_t id;
        uint64_t bytes;
        if ((rc = db_block_find(s, names + 32u * (size_t)i, &id, &bytes, err)) < 0)
            return -1;
        if (rc == 0 || bytes != p->kv_bytes)
            break;
        p->have = i + 1;
    }
    if (p->have == 0)
        return vt_fail(err, VT_E_NOT_FOUND, "no prefix of these names is stored");
    if ((p->names = malloc(32u * (size_t)p->have)) == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for a prefix");
    memcpy(p->names, names, 32u * (size_t)p->have);
    if (find_snapshot(s, p, err) < 0) {
        store_plan_free(p);
        return -1;
    }
    return 0;
}
