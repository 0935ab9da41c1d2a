/* Frames: the one codec of every internal socket (docs/ARCHITECTURE.md, "Wire").
 *
 * A frame is a msgpack array [v, type, id, link, body] whose body is a map with ascending unsigned keys. Names come from
 * one table, frames.def: frame HELLO is VT_F_HELLO, its key `role` is VT_HELLO_ROLE. vt_frame_open scans the bytes before
 * msgpack-c sees them (no allocation, every count bounded by what is there), then unpacks; strings and binaries point into
 * the caller's buffer, which must outlive the frame. A frame belongs to one thread. */
#ifndef VT_FRAME_H
#define VT_FRAME_H

#include "err.h"

#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VT_WIRE_VERSION 1

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

/* ---- reading ---- */

struct vt_frame {
    uint8_t type;
    uint64_t id;
    uint32_t link;
    const msgpack_object_map *body;
    msgpack_unpacked unpacked; /* owns the objects */
};

/* The structural scan alone: 0 when the bytes are one canonical frame of at most max bytes. Never allocates. */
int vt_frame_scan(const uint8_t *buf, size_t len, size_t max, struct vt_err *err);

/* Scan, unpack and check the frame against the table: known keys have their kind, needed keys are there, unknown keys are
 * skipped. On failure nothing is held. */
int vt_frame_open(struct vt_frame *f, const uint8_t *buf, size_t len, size_t max, struct vt_err *err);
void vt_frame_close(struct vt_frame *f);

/* Getters. The plain ones return the default when the key is absent; kinds were checked by vt_frame_open. */
bool vt_frame_has(const struct vt_frame *f, unsigned key);
uint64_t vt_frame_u64(const struct vt_frame *f, unsigned key, uint64_t dflt);
int64_t vt_frame_i64(const struct vt_frame *f, unsigned key, int64_t dflt);
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
double vt_map_f64(const msgpack_object_map *m, unsigned key, double dflt);

/* ---- writing ---- */

/* Builds one frame in memory. Keys must ascend (asserted). Usage:
 *     struct vt_enc e;
 *     vt_enc_begin(&e, VT_F_BEAT, 0, link);
 *     vt_enc_u64(&e, VT_BEAT_STEP, step);
 *     … vt_enc_end(&e)             → e.buf, e.len valid until fini or the next begin
 * Nested containers are opened with their exact count and filled with the raw vt_enc_put_* calls. Memory failure is sticky
 * and reported by vt_enc_end. */
struct vt_enc {
    msgpack_sbuffer sb;
    msgpack_packer pk;
    const uint8_t *buf;
    size_t len;
    size_t map_at;
    unsigned n_keys, last_key;
    bool failed;
};
void vt_enc_init(struct vt_enc *e);
void vt_enc_fini(struct vt_enc *e);
void vt_enc_begin(struct vt_enc *e, uint8_t type, uint64_t id, uint32_t link);
void vt_enc_u64(struct vt_enc *e, unsigned key, uint64_t v);
void vt_enc_i64(struct vt_enc *e, unsigned key, int64_t v);
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

#endif
