/* Shape: what a measurement, a verdict or a ban is valid for: the model's bytes, every key that makes the engine's shape,
 * the devices and the build. Known before a launch, since it is made of what is asked for. Pure.
 *
 * A figure of one shape says nothing about another: look-ups are by the whole key, and there is no nearest one. */
#ifndef SHAPE_H
#define SHAPE_H

#include "kv.h"

#include "config.h"
#include "err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define SHAPE_KEY 17 /* 16 digits and NUL */

/* Makes the shape of an engine: said on its command line, reported back, and part of the key. */
bool shape_has(enum vt_config_key k);

struct shape_in {
    const struct vt_config *cfg;
    const char *payload; /* identity of the model's bytes */
    const char *devices; /* UUIDs, or "none" */
    const char *build;
};
int shape_of(const struct shape_in *in, struct kv *out);
void shape_key(const struct kv *shape, char out[SHAPE_KEY]);

/* ---- shapes known to fail ---- */

enum shape_ban {
    BAN_NONE,
    BAN_EXPIRED, /* it failed with another build: evidence is filled */
    BAN_NOW
};

/* Conditions "key=value[,key=value]", all of which must hold; -1 when one names no key or has no value. */
int shape_matches(const char *conditions, const struct vt_config *cfg, struct vt_err *err);
/* Against profile.forbidden of cfg and the record's "entries" (objects of build, date, evidence, shape; NULL: none).
 * -1: an entry cannot be read. */
int shape_banned(const struct vt_config *cfg, const json_t *record, const char *build, enum shape_ban *out,
                 char *evidence, size_t size, struct vt_err *err);

/* ---- measurements: an object from key to {"shape": {}, "values": {name: {…}}} ---- */

#define MEASURE_SHAPES 256 /* kept; the one measured longest ago goes first */

/* planned < 0: there was no plan. n counts how often it was measured. */
int measure_put(json_t *all, const struct kv *shape, const char *name, double planned, double measured,
                int64_t at_us);
bool measure_get(const json_t *all, const char key[SHAPE_KEY], const char *name, double *out);

/* What a shape can do is stated at the depth that was filled when it was measured, never beyond. */
struct shape_depth {
    uint64_t tokens; /* filled, prompt and output together; 0: never measured */
    uint64_t decode_milli,
        prompt_milli; /* thousandths of tokens a second: at that depth, and on the way there */
    int64_t at_us;    /* wall clock */
};
int depth_put(json_t *all, const struct kv *shape, const struct shape_depth *d);
void depth_get(const json_t *all, const char key[SHAPE_KEY], struct shape_depth *out);

#endif
