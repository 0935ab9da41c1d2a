#include "frame.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_MAX (64u << 20)

void vt_enc_init(struct vt_enc *e)
{
    memset(e, 0, sizeof *e);
    msgpack_sbuffer_init(&e->sb);
    msgpack_packer_init(&e->pk, &e->sb, msgpack_sbuffer_write);
}

void vt_enc_fini(struct vt_enc *e)
{
    msgpack_sbuffer_destroy(&e->sb);
    memset(e, 0, sizeof *e);
}

/* Packer calls return 0, or what the buffer returned when it could not grow. */
static void note(struct vt_enc *e, int rc)
{
    e->failed |= rc != 0;
}

void vt_enc_begin(struct vt_enc *e, uint8_t type, uint64_t id, uint32_t link)
{
    msgpack_sbuffer_clear(&e->sb);
    e->pk.data = &e->sb; /* the encoder may have been moved since init */
    e->failed = e->disorder = false;
    e->n_keys = e->last_key = 0;
    e->type = type;
    e->buf = NULL;
    e->len = 0;
    note(e, msgpack_pack_array(&e->pk, 5));
    note(e, msgpack_pack_uint64(&e->pk, VT_WIRE_VERSION));
    note(e, msgpack_pack_uint64(&e->pk, type));
    note(e, msgpack_pack_uint64(&e->pk, id));
    note(e, msgpack_pack_uint64(&e->pk, link));
    e->map_at = e->sb.size;
    note(e, msgpack_pack_map(&e->pk, 0)); /* the true count is put in at the end */
}

static void key(struct vt_enc *e, unsigned k)
{
    e->disorder |= k <= e->last_key;
    e->last_key = k;
    e->n_keys++;
    note(e, msgpack_pack_uint64(&e->pk, k));
}

void vt_enc_u64(struct vt_enc *e, unsigned k, uint64_t v)
{
    key(e, k);
    vt_enc_put_u64(e, v);
}

void vt_enc_i64(struct vt_enc *e, unsigned k, int64_t v)
{
    key(e, k);
    vt_enc_put_i64(e, v);
}

void vt_enc_f64(struct vt_enc *e, unsigned k, double v)
{
    key(e, k);
    vt_enc_put_f64(e, v);
}

void vt_enc_str(struct vt_enc *e, unsigned k, const char *s)
{
    key(e, k);
    vt_enc_put_str(e, s);
}

void vt_enc_bin(struct vt_enc *e, unsigned k, const void *p, size_t n)
{
    key(e, k);
    vt_enc_put_bin(e, p, n);
}

void vt_enc_map(struct vt_enc *e, unsigned k, unsigned n)
{
    key(e, k);
    vt_enc_put_map(e, n);
}

void vt_enc_array(struct vt_enc *e, unsigned k, unsigned n)
{
    key(e, k);
    vt_enc_put_array(e, n);
}

void vt_enc_put_u64(struct vt_enc *e, uint64_t v)
{
    note(e, msgpack_pack_uint64(&e->pk, v));
}

void vt_enc_put_i64(struct vt_enc *e, int64_t v)
{
    note(e, msgpack_pack_int64(&e->pk, v));
}

void vt_enc_put_f64(struct vt_enc *e, double v)
{
    if (isnan(v))
        v = 0;
    else if (isinf(v))
        v = v > 0 ? DBL_MAX : -DBL_MAX;
    note(e, msgpack_pack_double(&e->pk, v));
}

void vt_enc_put_str(struct vt_enc *e, const char *s)
{
    size_t n = strlen(s);
    note(e, msgpack_pack_str(&e->pk, n));
    size_t at = e->sb.size;
    note(e, msgpack_pack_str_body(&e->pk, s, n));
    if (e->failed)
        return;
    /* Texts come from errors, file names and clients, cut at any byte: repaired here, once for all senders.
     */
    uint8_t *p = (uint8_t *)e->sb.data + at;
    for (size_t good = vt_utf8_good(p, n); good < n; good += vt_utf8_good(p + good, n - good))
        p[good] = '?';
}

void vt_enc_put_bin(struct vt_enc *e, const void *p, size_t n)
{
    note(e, msgpack_pack_bin(&e->pk, n));
    if (n > 0)
        note(e, msgpack_pack_bin_body(&e->pk, p, n));
}

void vt_enc_put_map(struct vt_enc *e, unsigned n)
{
    note(e, msgpack_pack_map(&e->pk, n));
}

void vt_enc_put_array(struct vt_enc *e, unsigned n)
{
    note(e, msgpack_pack_array(&e->pk, n));
}

void vt_enc_err(struct vt_enc *e, const struct vt_err *err)
{
    vt_enc_u64(e, VT_KEY_CODE, err->code > 0 ? (uint64_t)err->code : VT_E_INTERNAL);
    vt_enc_str(e, VT_KEY_TEXT, err->text);
}

/* Fills in the number of keys; more than 15 need two bytes more. */
static void set_count(struct vt_enc *e)
{
    uint8_t *m;
    if (e->n_keys < 16) {
        e->sb.data[e->map_at] = (char)(0x80 | e->n_keys);
        return;
    }
    note(e, msgpack_sbuffer_write(&e->sb, "\0\0", 2));
    if (e->failed)
        return;
    m = (uint8_t *)e->sb.data + e->map_at;
    memmove(m + 3, m + 1, e->sb.size - e->map_at - 3);
    m[0] = 0xde;
    m[1] = (uint8_t)(e->n_keys >> 8);
    m[2] = (uint8_t)e->n_keys;
}

int vt_enc_end(struct vt_enc *e, struct vt_err *err)
{
    struct vt_err why;
    if (!e->failed)
        set_count(e);
    if (e->failed)
        return vt_fail(err, VT_E_NOMEM, "no memory to pack a %s frame", vt_frame_name(e->type));
    if (e->disorder)
        return vt_fail(err, VT_E_INTERNAL, "keys of a %s frame were packed out of order",
                       vt_frame_name(e->type));
    e->buf = (const uint8_t *)e->sb.data;
    e->len = e->sb.size;
    if (vt_frame_scan(e->buf, e->len, FRAME_MAX, &why) < 0)
        return vt_fail(err, VT_E_INTERNAL, "a %s frame was packed wrongly: %s", vt_frame_name(e->type),
                       why.text);
    return 0;
}
