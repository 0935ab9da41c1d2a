#include "frame.h"

#include <assert.h>
#include <string.h>

static const struct vt_frame_row rows[] = {
#define FRAME(name, type, dir)
#define KEY(frame, key, name, kind, need) {VT_F_##frame, key, VT_KIND_##kind, need, #name},
#include "frames.def"
#undef FRAME
#undef KEY
};
#define N_ROWS (sizeof rows / sizeof rows[0])

const struct vt_frame_row *vt_frame_rows(size_t *n)
{
    *n = N_ROWS;
    return rows;
}

const char *vt_frame_name(uint8_t type)
{
    switch (type) {
#define FRAME(name, type_, dir)                                                                              \
    case type_:                                                                                              \
        return #name;
#define KEY(frame, key, name, kind, need)
#include "frames.def"
#undef FRAME
#undef KEY
    default: return "?";
    }
}

/* First row that is not before (type, key). */
static size_t row_at(uint8_t type, unsigned key)
{
    size_t lo = 0, hi = N_ROWS;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (rows[mid].type < type || (rows[mid].type == type && rows[mid].key < key))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool vt_frame_key_floats(uint8_t type, unsigned key)
{
    size_t i = row_at(type, key);
    if (i == N_ROWS || rows[i].type != type || rows[i].key != key)
        return key < VT_KEY_CODE; /* a newer peer's key, to be skipped */
    return rows[i].kind == VT_KIND_F || rows[i].kind == VT_KIND_MF || rows[i].kind == VT_KIND_AF;
}

static bool kind_ok(uint8_t kind, const msgpack_object *o)
{
    switch ((enum vt_frame_kind)kind) {
    case VT_KIND_U: return o->type == MSGPACK_OBJECT_POSITIVE_INTEGER;
    case VT_KIND_I:
        return o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER ||
               (o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 <= INT64_MAX);
    case VT_KIND_F: return o->type == MSGPACK_OBJECT_FLOAT64;
    case VT_KIND_S: return o->type == MSGPACK_OBJECT_STR;
    case VT_KIND_B: return o->type == MSGPACK_OBJECT_BIN;
    case VT_KIND_M:
    case VT_KIND_MF: return o->type == MSGPACK_OBJECT_MAP;
    case VT_KIND_A:
    case VT_KIND_AF: return o->type == MSGPACK_OBJECT_ARRAY;
    }
    return false;
}

static bool common_ok(unsigned key, const msgpack_object *o)
{
    switch (key) {
    case VT_KEY_CODE:
    case VT_KEY_T_US:
    case VT_KEY_RETRY_MS: return kind_ok(VT_KIND_U, o);
    case VT_KEY_TEXT: return kind_ok(VT_KIND_S, o);
    case VT_KEY_DETAIL: return kind_ok(VT_KIND_M, o);
    default: return true;
    }
}

/* Both lists ascend, so one walk finds wrong kinds and missing keys. */
static int check_table(const struct vt_frame *f, struct vt_err *err)
{
    size_t r = row_at(f->type, 0);
    for (uint32_t i = 0; i <= f->body->size; i++) {
        const msgpack_object_kv *kv = i < f->body->size ? &f->body->ptr[i] : NULL;
        unsigned key = kv != NULL ? (unsigned)kv->key.via.u64 : 128;
        for (; r < N_ROWS && rows[r].type == f->type && rows[r].key < key; r++) {
            if (rows[r].need)
                return vt_fail(err, VT_E_BAD_FRAME, "bad frame: %s lacks key %u (%s)", vt_frame_name(f->type),
                               rows[r].key, rows[r].name);
        }
        if (kv == NULL)
            break;
        bool known = r < N_ROWS && rows[r].type == f->type && rows[r].key == key;
        if (known ? !kind_ok(rows[r].kind, &kv->val) : !common_ok(key, &kv->val))
            return vt_fail(err, VT_E_BAD_FRAME, "bad frame: key %u (%s) of %s is of the wrong kind", key,
                           known ? rows[r].name : "common", vt_frame_name(f->type));
        r += known;
    }
    return 0;
}

int vt_frame_open(struct vt_frame *f, const uint8_t *buf, size_t len, size_t max, struct vt_err *err)
{
    memset(f, 0, sizeof *f);
    if (vt_frame_scan(buf, len, max, err) < 0)
        return -1;
    size_t at = 0;
    msgpack_unpacked_init(&f->unpacked);
    if (msgpack_unpack_next(&f->unpacked, (const char *)buf, len, &at) != MSGPACK_UNPACK_SUCCESS ||
        at != len) {
        msgpack_unpacked_destroy(&f->unpacked);
        return vt_fail(err, VT_E_NOMEM, "no memory to unpack a frame of %zu bytes", len);
    }
    const msgpack_object *e = f->unpacked.data.via.array.ptr;
    f->type = (uint8_t)e[1].via.u64;
    f->id = e[2].via.u64;
    f->link = (uint32_t)e[3].via.u64;
    f->body = &e[4].via.map;
    if (check_table(f, err) < 0) {
        vt_frame_close(f);
        return -1;
    }
    return 0;
}

void vt_frame_close(struct vt_frame *f)
{
    msgpack_unpacked_destroy(&f->unpacked);
    memset(f, 0, sizeof *f);
}

/* ---- getters ---- */

const msgpack_object *vt_map_get(const msgpack_object_map *m, unsigned key)
{
    for (uint32_t i = 0; m != NULL && i < m->size; i++) {
        const msgpack_object *k = &m->ptr[i].key;
        if (k->type == MSGPACK_OBJECT_POSITIVE_INTEGER && k->via.u64 == key)
            return &m->ptr[i].val;
    }
    return NULL;
}

const msgpack_object *vt_map_get_str(const msgpack_object_map *m, const char *key)
{
    size_t n = strlen(key);
    for (uint32_t i = 0; m != NULL && i < m->size; i++) {
        const msgpack_object *k = &m->ptr[i].key;
        if (k->type == MSGPACK_OBJECT_STR && k->via.str.size == n && memcmp(k->via.str.ptr, key, n) == 0)
            return &m->ptr[i].val;
    }
    return NULL;
}

static uint64_t obj_u64(const msgpack_object *o, uint64_t dflt)
{
    return o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? o->via.u64 : dflt;
}

static int64_t obj_i64(const msgpack_object *o, int64_t dflt)
{
    if (o != NULL && o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        return o->via.i64;
    return o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 <= INT64_MAX
               ? (int64_t)o->via.u64
               : dflt;
}

static double obj_f64(const msgpack_object *o, double dflt)
{
    if (o != NULL && o->type == MSGPACK_OBJECT_FLOAT64)
        return o->via.f64;
    if (o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        return (double)o->via.u64;
    return o != NULL && o->type == MSGPACK_OBJECT_NEGATIVE_INTEGER ? (double)o->via.i64 : dflt;
}

static const uint8_t *obj_bin(const msgpack_object *o, size_t *len)
{
    bool is = o != NULL && o->type == MSGPACK_OBJECT_BIN;
    *len = is ? o->via.bin.size : 0;
    return is ? (const uint8_t *)o->via.bin.ptr : NULL;
}

const char *vt_obj_str(const msgpack_object *o, char *out, size_t size)
{
    size_t n = 0;
    if (o != NULL && o->type == MSGPACK_OBJECT_STR &&
        o->via.str.size > 0) { /* an empty one may have no address */
        n = o->via.str.size < size ? o->via.str.size : size - 1;
        memcpy(out, o->via.str.ptr, n);
    }
    out[n] = 0;
    return out;
}

bool vt_frame_has(const struct vt_frame *f, unsigned key)
{
    return vt_map_get(f->body, key) != NULL;
}

uint64_t vt_frame_u64(const struct vt_frame *f, unsigned key, uint64_t dflt)
{
    return obj_u64(vt_map_get(f->body, key), dflt);
}

int64_t vt_frame_i64(const struct vt_frame *f, unsigned key, int64_t dflt)
{
    return obj_i64(vt_map_get(f->body, key), dflt);
}

double vt_frame_f64(const struct vt_frame *f, unsigned key, double dflt)
{
    return obj_f64(vt_map_get(f->body, key), dflt);
}

const char *vt_frame_str(const struct vt_frame *f, unsigned key, char *out, size_t size)
{
    return vt_obj_str(vt_map_get(f->body, key), out, size);
}

const uint8_t *vt_frame_bin(const struct vt_frame *f, unsigned key, size_t *len)
{
    return obj_bin(vt_map_get(f->body, key), len);
}

const uint8_t *vt_frame_bin_n(const struct vt_frame *f, unsigned key, size_t n)
{
    size_t len;
    const uint8_t *p = vt_frame_bin(f, key, &len);
    return len == n ? p : NULL;
}

const msgpack_object_map *vt_frame_map(const struct vt_frame *f, unsigned key)
{
    const msgpack_object *o = vt_map_get(f->body, key);
    return o != NULL && o->type == MSGPACK_OBJECT_MAP ? &o->via.map : NULL;
}

const msgpack_object_array *vt_frame_array(const struct vt_frame *f, unsigned key)
{
    const msgpack_object *o = vt_map_get(f->body, key);
    return o != NULL && o->type == MSGPACK_OBJECT_ARRAY ? &o->via.array : NULL;
}

uint64_t vt_map_u64(const msgpack_object_map *m, unsigned key, uint64_t dflt)
{
    return obj_u64(vt_map_get(m, key), dflt);
}

int64_t vt_map_i64(const msgpack_object_map *m, unsigned key, int64_t dflt)
{
    return obj_i64(vt_map_get(m, key), dflt);
}

double vt_map_f64(const msgpack_object_map *m, unsigned key, double dflt)
{
    return obj_f64(vt_map_get(m, key), dflt);
}

const uint8_t *vt_map_bin(const msgpack_object_map *m, unsigned key, size_t *len)
{
    return obj_bin(vt_map_get(m, key), len);
}

static const msgpack_object *element(const msgpack_object_array *a, unsigned i)
{
    return a != NULL && i < a->size ? &a->ptr[i] : NULL;
}

uint64_t vt_array_u64(const msgpack_object_array *a, unsigned i, uint64_t dflt)
{
    return obj_u64(element(a, i), dflt);
}

double vt_array_f64(const msgpack_object_array *a, unsigned i, double dflt)
{
    return obj_f64(element(a, i), dflt);
}

const char *vt_array_str(const msgpack_object_array *a, unsigned i, char *out, size_t size)
{
    return vt_obj_str(element(a, i), out, size);
}

const uint8_t *vt_array_bin(const msgpack_object_array *a, unsigned i, size_t *len)
{
    return obj_bin(element(a, i), len);
}

const msgpack_object_array *vt_array_array(const msgpack_object_array *a, unsigned i)
{
    const msgpack_object *o = element(a, i);
    return o != NULL && o->type == MSGPACK_OBJECT_ARRAY ? &o->via.array : NULL;
}
