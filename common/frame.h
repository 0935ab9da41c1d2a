/* Frames: the one codec of every internal socket (docs/ARCHITECTURE.md, "Wire").
 *
 * A frame is a msgpack array [v, type, id, link, body] whose body is a map with ascending unsigned keys.
 * Names come from one table, frames.def: frame HELLO is VT_F_HELLO, its key `role` is VT_HELLO_ROLE.
 * vt_frame_open scans the bytes before msgpack-c sees them (no allocation, every count bounded by what is
 * there), then unpacks; strings and binaries point into the caller's buffer, which must outlive the frame. A
 * frame belongs to one thread. */
#ifndef VT_FRAME_H
#define VT_FRAME_H

#include "err.h"

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VT_WIRE_VERSION  1
#define VT_FRAME_STR_MAX 65536 /* longest string, bytes */
#define VT_FRAME_MUST    0x70 /* an unknown type from here on ends the link, below it is counted and dropped */

/* VT_F_<FRAME> = type and VT_<FRAME>_<KEY> = key, for every row of the table. */
enum vt_frame_type {
#define FRAME(name, type, dir) VT_F_##name = type,
#define KEY(frame, key, name, kind, need)
#include "frames.def"
#undef FRAME
#undef KEY
};
enum vt_frame_key {
#define FRAME(name, type, dir)
#define KEY(frame, key, name, kind, need) VT_##frame##_##name = key,
#include "frames.def"
#undef FRAME
#undef KEY
    /* common keys, valid in every frame */
    VT_KEY_CODE = 120,
    VT_KEY_TEXT = 121,
    VT_KEY_T_US = 122,
    VT_KEY_RETRY_MS = 123,
    VT_KEY_DETAIL = 124,
};
/* Keys of the maps inside SUBMIT and DONE; those of the sampling map are in sampling.h. */
enum vt_resume_key {
    VT_RESUME_EMITTED = 1, /* u32le */
    VT_RESUME_ATTEMPT = 2,
    VT_RESUME_SEED = 3,
    VT_RESUME_STATE = 4 /* f64: the sampler's state after the last emitted id, as TOKENS told it */
};
enum vt_usage_key {
    VT_USAGE_PROMPT = 1,
    VT_USAGE_REUSED = 2,
    VT_USAGE_GENERATED = 3,
    VT_USAGE_DRAFTED = 4,
    VT_USAGE_ACCEPTED = 5,
    VT_USAGE_QUEUE_US = 6,
    VT_USAGE_PREFILL_US = 7,
    VT_USAGE_DECODE_US = 8,
};

/* ---- reading ---- */

struct vt_frame {
    uint8_t type;
    uint64_t id;
    uint32_t link;
    const msgpack_object_map *body;
    msgpack_unpacked unpacked; /* owns the objects */
};

/* The structural scan alone: 0 when the bytes are one canonical frame of at most max bytes. Never allocates.
 */
int vt_frame_scan(const uint8_t *buf, size_t len, size_t max, struct vt_err *err);

/* Length of the leading part of p that is UTF-8 without NUL; n when all is. */
size_t vt_utf8_good(const uint8_t *p, size_t n);

/* Scan, unpack and check the frame against the table: known keys have their kind, needed keys are there,
 * unknown keys are skipped. On failure nothing is held. */
int vt_frame_open(struct vt_frame *f, const uint8_t *buf, size_t len, size_t max, struct vt_err *err);
void vt_frame_close(struct vt_frame *f);

/* Getters. The plain ones return the default when the key is absent; kinds were checked by vt_frame_open. */
bool vt_frame_has(const struct vt_frame *f, unsigned key);
uint64_t vt_frame_u64(const struct vt_frame *f, unsigned key, uint64_t dflt);
int64_t vt_frame_i64(const struct vt_frame *f, unsigned key, int64_t dflt);
double vt_frame_f64(const struct vt_frame *f, unsigned key, double dflt);
/* A string without NUL of at most size-1 bytes is copied and terminated; longer ones are cut. Absent: "". */
const char *vt_frame_str(const struct vt_frame *f, unsigned key, char *out, size_t size);
/* Binary; *len = 0 and NULL when absent. */
const uint8_t *vt_frame_bin(const struct vt_frame *f, unsigned key, size_t *len);
/* Exactly n bytes or NULL. */
const uint8_t *vt_frame_bin_n(const struct vt_frame *f, unsigned key, size_t n);
/* Containers, NULL when absent. */
const msgpack_object_map *vt_frame_map(const struct vt_frame *f, unsigned key);
const msgpack_object_array *vt_frame_array(const struct vt_frame *f, unsigned key);
/* Inside a nested map: the value of an unsigned or a string key, NULL when absent. */
const msgpack_object *vt_map_get(const msgpack_object_map *m, unsigned key);
const msgpack_object *vt_map_get_str(const msgpack_object_map *m, const char *key);
uint64_t vt_map_u64(const msgpack_object_map *m, unsigned key, uint64_t dflt);
int64_t vt_map_i64(const msgpack_object_map *m, unsigned key, int64_t dflt);
double vt_map_f64(const msgpack_object_map *m, unsigned key, double dflt);
const uint8_t *vt_map_bin(const msgpack_object_map *m, unsigned key, size_t *len);
/* Of an array's element; the default when i is out of range or of another kind. */
uint64_t vt_array_u64(const msgpack_object_array *a, unsigned i, uint64_t dflt);
double vt_array_f64(const msgpack_object_array *a, unsigned i, double dflt);
const char *vt_array_str(const msgpack_object_array *a, unsigned i, char *out, size_t size);
const uint8_t *vt_array_bin(const msgpack_object_array *a, unsigned i, size_t *len);
const msgpack_object_array *vt_array_array(const msgpack_object_array *a, unsigned i);
/* Copies an object that is a string, as vt_frame_str does; "" for NULL and for other kinds. */
const char *vt_obj_str(const msgpack_object *o, char *out, size_t size);

/* ---- writing ---- */

/* Builds one frame in memory. Keys must ascend. Usage:
 *     struct vt_enc e;
 *     vt_enc_begin(&e, VT_F_BEAT, 0, link);
 *     vt_enc_u64(&e, VT_BEAT_STEP, step);
 *     … vt_enc_end(&e)             → e.buf, e.len valid until fini or the next begin
 * Nested containers are opened with their exact count and filled with the raw vt_enc_put_* calls. Text that
 * is not UTF-8 is made so with question marks, a float that is not finite becomes the nearest finite one or
 * 0. vt_enc_end reports whatever went wrong before, and scans the result as the receiver will: a frame it
 * passes is one that every peer accepts. */
struct vt_enc {
    msgpack_sbuffer sb;
    msgpack_packer pk;
    const uint8_t *buf;
    size_t len;
    size_t map_at;
    unsigned n_keys, last_key;
    uint8_t type;
    bool failed, disorder;
};
void vt_enc_init(struct vt_enc *e);
void vt_enc_fini(struct vt_enc *e);
void vt_enc_begin(struct vt_enc *e, uint8_t type, uint64_t id, uint32_t link);
void vt_enc_u64(struct vt_enc *e, unsigned key, uint64_t v);
void vt_enc_i64(struct vt_enc *e, unsigned key, int64_t v);
void vt_enc_f64(struct vt_enc *e, unsigned key, double v);
void vt_enc_str(struct vt_enc *e, unsigned key, const char *s);
void vt_enc_bin(struct vt_enc *e, unsigned key, const void *p, size_t n);
void vt_enc_map(struct vt_enc *e, unsigned key, unsigned n);   /* then n times put key, put value */
void vt_enc_array(struct vt_enc *e, unsigned key, unsigned n); /* then n times put value */
void vt_enc_put_u64(struct vt_enc *e, uint64_t v);
void vt_enc_put_i64(struct vt_enc *e, int64_t v);
void vt_enc_put_f64(struct vt_enc *e, double v);
void vt_enc_put_str(struct vt_enc *e, const char *s);
void vt_enc_put_bin(struct vt_enc *e, const void *p, size_t n);
void vt_enc_put_map(struct vt_enc *e, unsigned n);
void vt_enc_put_array(struct vt_enc *e, unsigned n);
/* Key 120 and 121 from an error. */
void vt_enc_err(struct vt_enc *e, const struct vt_err *err);
int vt_enc_end(struct vt_enc *e, struct vt_err *err);

/* ---- the table at run time (logs, fuzz dictionary, tests) ---- */
const char *vt_frame_name(uint8_t type); /* "HELLO"; "?" when unknown */

/* PARKED's why. */
enum vt_park_why {
    VT_PARK_ORDER = 1,   /* an order: the engine ends its work */
    VT_PARK_SLOW_CLIENT, /* its client does not read while others wait */
    VT_PARK_LOST,        /* tokens were lost between the engine's threads */
};

/* States of a child as numbers, in ROUTES, T_CHILDREN and vitriol_child_state. */
enum vt_child_state {
    VT_CHILD_DOWN = 0,
    VT_CHILD_STARTING = 1,
    VT_CHILD_LOADING = 2,
    VT_CHILD_READY = 3,
    VT_CHILD_DRAINING = 4,
    VT_CHILD_HUNG = 5,
    VT_CHILD_REAPING = 6,
    VT_CHILD_BACKOFF = 7,
    VT_CHILD_FAILED = 8,
};

enum vt_frame_kind {
    VT_KIND_U,
    VT_KIND_I,
    VT_KIND_F,
    VT_KIND_S,
    VT_KIND_B,
    VT_KIND_M,
    VT_KIND_A,
    VT_KIND_MF,
    VT_KIND_AF
};
struct vt_frame_row {
    uint8_t type, key, kind, need;
    const char *name;
};
/* True when float64 may stand under that key. */
bool vt_frame_key_floats(uint8_t type, unsigned key);
/* All keys, ordered by type and key. */
const struct vt_frame_row *vt_frame_rows(size_t *n);

#endif
