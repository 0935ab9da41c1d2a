/* Small rows: tenants' salts for engines, launches for vitriold. */
#include "serve_priv.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 65536

/* ---- salts ---- */

static void send_salt(struct serve *v, const struct vt_frame *f, const char *tenant, const uint8_t *salt,
                      const struct vt_err *err)
{
    vt_enc_begin(&v->enc, VT_F_CK_SALT_IS, f->id, f->link);
    vt_enc_str(&v->enc, VT_CK_SALT_IS_TENANT, tenant);
    if (salt != NULL)
        vt_enc_bin(&v->enc, VT_CK_SALT_IS_SALT, salt, CKPT_SALT_LEN);
    else
        vt_enc_err(&v->enc, err);
    serve_send(v, f->link);
}

static void salt_of(struct serve *v, const struct vt_frame *f, bool draw, bool *done)
{
    char tenant[STORE_TENANT_MAX + 2];
    uint8_t salt[CKPT_SALT_LEN];
    struct vt_err err;
    vt_frame_str(f, VT_CK_SALT_TENANT, tenant, sizeof tenant);
    int rc = draw ? store_salt(v->s, tenant, salt, &err) : store_salt_get(v->s, tenant, salt, &err);
    *done = draw || rc == 0 || err.code != VT_E_NOT_FOUND;
    if (*done)
        send_salt(v, f, tenant, rc == 0 ? salt : NULL, &err);
}

bool rows_salt_read(struct serve *v, const struct vt_frame *f)
{
    bool done;
    salt_of(v, f, false, &done);
    return done;
}

void rows_salt_write(struct serve *v, const struct vt_frame *f)
{
    bool done;
    if (serve_peer(v, f->link) != NULL) /* it may have gone while it waited */
        salt_of(v, f, true, &done);
}

/* ---- launches ---- */

/* The text of a key, whole, as malloc'ed string; "" when absent, NULL when memory is out. */
static char *text_of(const struct vt_frame *f, unsigned key)
{
    char *t = malloc(TEXT_MAX + 1);
    if (t == NULL)
        return NULL;
    vt_frame_str(f, key, t, TEXT_MAX + 1);
    char *tight = realloc(t, strlen(t) + 1);
    return tight != NULL ? tight : t;
}

/* The map as bytes, as it came: the row keeps what vitriold will read again. */
static int pack_map(const msgpack_object_map *m, msgpack_sbuffer *out)
{
    msgpack_object o = {.type = MSGPACK_OBJECT_MAP};
    msgpack_packer pk;
    o.via.map = *m;
    msgpack_packer_init(&pk, out, msgpack_sbuffer_write);
    return msgpack_pack_object(&pk, o);
}

static void put_map(struct vt_enc *e, unsigned key, const uint8_t *bytes, size_t len)
{
    char name[TEXT_MAX / 64], value[TEXT_MAX / 8];
    msgpack_unpacked u;
    size_t off = 0;
    msgpack_unpacked_init(&u);
    if (msgpack_unpack_next(&u, (const char *)bytes, len, &off) == MSGPACK_UNPACK_SUCCESS &&
        u.data.type == MSGPACK_OBJECT_MAP) {
        const msgpack_object_map *m = &u.data.via.map;
        vt_enc_map(e, key, m->size);
        for (uint32_t i = 0; i < m->size; i++) {
            vt_enc_put_str(e, vt_obj_str(&m->ptr[i].key, name, sizeof name));
            vt_enc_put_str(e, vt_obj_str(&m->ptr[i].val, value, sizeof value));
        }
    }
    msgpack_unpacked_destroy(&u);
}

void rows_launch_last(struct serve *v, const struct vt_frame *f)
{
    char child[STORE_TENANT_MAX + 2];
    struct store_launch_last last;
    struct vt_err err;
    struct vt_enc *e = &v->enc;
    vt_frame_str(f, VT_LAUNCH_LAST_CHILD, child, sizeof child);
    if (store_launch_last(v->s, child, &last, &err) < 0)
        vt_log(v->o.store.log, VT_LOG_WARNING, "the last launch of %s: %s", child, err.text);
    vt_enc_begin(e, VT_F_LAUNCH_LAST_IS, f->id, f->link);
    vt_enc_str(e, VT_LAUNCH_LAST_IS_CHILD, child);
    vt_enc_u64(e, VT_LAUNCH_LAST_IS_FOUND, last.found);
    if (last.found) {
        vt_enc_str(e, VT_LAUNCH_LAST_IS_FP, last.fp);
        put_map(e, VT_LAUNCH_LAST_IS_EFFECTIVE, last.effective, last.effective_len);
        vt_enc_str(e, VT_LAUNCH_LAST_IS_LINE, last.line);
        vt_enc_u64(e, VT_LAUNCH_LAST_IS_ID, last.id);
    }
    serve_send(v, f->link);
    store_launch_last_free(&last);
}

void rows_launch_put(struct serve *v, const struct vt_frame *f)
{
    struct vt_err err;
    msgpack_sbuffer map;
    uint64_t id = 0;
    const msgpack_object_map *effective = vt_frame_map(f, VT_LAUNCH_PUT_EFFECTIVE);
    char *child = text_of(f, VT_LAUNCH_PUT_CHILD), *fp = text_of(f, VT_LAUNCH_PUT_FP),
         *line = text_of(f, VT_LAUNCH_PUT_LINE);
    char *prev = text_of(f, VT_LAUNCH_PUT_DIFF_PREV), *bless = text_of(f, VT_LAUNCH_PUT_DIFF_BLESS);
    char *boot = text_of(f, VT_LAUNCH_PUT_BOOT_ID);
    msgpack_sbuffer_init(&map);
    if (child != NULL && fp != NULL && line != NULL && prev != NULL && bless != NULL && boot != NULL &&
        (effective == NULL || pack_map(effective, &map) == 0)) {
        struct store_launch l = {.child = child,
                                 .fp = fp,
                                 .line = line,
                                 .diff_prev = prev,
                                 .diff_bless = bless,
                                 .boot_id = boot,
                                 .effective = map.data,
                                 .effective_len = map.size,
                                 .started_us =
                                     vt_frame_u64(f, VT_LAUNCH_PUT_STARTED_US, vt_wall(v->o.store.clock))};
        if (store_launch_put(v->s, &l, &id, &err) < 0)
            vt_log(v->o.store.log, VT_LOG_WARNING, "the launch of %s was not recorded: %s", child, err.text);
    }
    vt_enc_begin(&v->enc, VT_F_LAUNCH_PUT_DONE, f->id, f->link);
    vt_enc_str(&v->enc, VT_LAUNCH_PUT_DONE_CHILD, child != NULL ? child : "");
    vt_enc_u64(&v->enc, VT_LAUNCH_PUT_DONE_ID, id); /* 0: not recorded */
    serve_send(v, f->link);
    msgpack_sbuffer_destroy(&map);
    free(child);
    free(fp);
    free(line);
    free(prev);
    free(bless);
    free(boot);
}

/* The evidence follows the detail in one text, as much as is printable. */
static char *detail_of(const struct vt_frame *f)
{
    size_t len;
    const uint8_t *evidence = vt_frame_bin(f, VT_LAUNCH_END_EVIDENCE, &len);
    char *detail = text_of(f, VT_LAUNCH_END_DETAIL);
    if (detail == NULL || len == 0)
        return detail;
    size_t n = strlen(detail);
    char *all = realloc(detail, n + len + 2);
    if (all == NULL)
        return detail;
    all[n] = '\n';
    for (size_t i = 0; i < len; i++)
        all[n + 1 + i] =
            (evidence[i] >= ' ' && evidence[i] < 127) || evidence[i] == '\n' ? (char)evidence[i] : '.';
    all[n + 1 + len] = '\0';
    return all;
}

void rows_launch_end(struct serve *v, const struct vt_frame *f)
{
    struct vt_err err;
    char *cls = text_of(f, VT_LAUNCH_END_CLASS), *detail = detail_of(f);
    if (cls == NULL || detail == NULL ||
        store_launch_end(v->s, vt_frame_u64(f, VT_LAUNCH_END_ID, 0), cls, detail,
                         vt_frame_u64(f, VT_LAUNCH_END_READY_US, 0), &err) < 0)
        vt_log(v->o.store.log, VT_LOG_WARNING, "the end of a launch was not recorded");
    free(cls);
    free(detail);
}
