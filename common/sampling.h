/* Sampling parameters: what a request asks of the sampler, from the gateway's parser to the engine's sampler, and their
 * place in SUBMIT's sampling map. Plain values; nothing here owns memory: the arrays belong to whoever filled them in. */
#ifndef VT_SAMPLING_H
#define VT_SAMPLING_H

#include "err.h"
#include "frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vt_sampling_key {
#define SAMPLING(key, NAME, field, kind, neutral) VT_SAMPLING_##NAME = (key),
#include "sampling.def"
#undef SAMPLING
    VT_SAMPLING_SEED = 100,     /* absent: the engine draws one */
    VT_SAMPLING_BIAS_IDS = 101, /* u32le */
    VT_SAMPLING_BIAS = 102,     /* f32le, as many */
    VT_SAMPLING_CHAIN = 103,    /* bytes of enum vt_sampler in their order; absent: the usual order */
    VT_SAMPLING_BREAKERS = 104, /* strings, each with a NUL behind it */
};

/* The steps between logits and draw. Numbers travel. */
enum vt_sampler {
    VT_SAMPLER_PENALTIES = 1,
    VT_SAMPLER_DRY = 2,
    VT_SAMPLER_TOP_N_SIGMA = 3,
    VT_SAMPLER_TOP_K = 4,
    VT_SAMPLER_TYPICAL_P = 5,
    VT_SAMPLER_TOP_P = 6,
    VT_SAMPLER_MIN_P = 7,
    VT_SAMPLER_XTC = 8,
    VT_SAMPLER_TEMPERATURE = 9,
    VT_SAMPLER_ADAPTIVE_P = 10, /* acts last, wherever it stands */
    VT_SAMPLER_COUNT
};
enum { VT_CHAIN_MAX = 16, VT_BREAKERS_MAX = 4096 /* bytes, NULs included */ };

#define VT_SAMPLING_F double
#define VT_SAMPLING_I int64_t
struct vt_sampling {
#define SAMPLING(key, NAME, field, kind, neutral) VT_SAMPLING_##kind field;
#include "sampling.def"
#undef SAMPLING
    uint64_t seed;
    bool has_seed;
    uint8_t chain[VT_CHAIN_MAX]; /* enum vt_sampler, first to last */
    unsigned n_chain;
    const uint32_t *bias_ids; /* [n_bias] */
    const float *bias;        /* [n_bias]; -inf bans a token */
    size_t n_bias;
    const char *breakers; /* sequence breakers of DRY, [breakers_len], each ends with NUL */
    size_t breakers_len;
};

/* Neutral: greedy, nothing cut, the usual chain (penalties dry top_n_sigma top_k typ_p top_p min_p xtc temperature), no
 * breakers. */
void vt_sampling_init(struct vt_sampling *s);
/* Appends the map under `key` of the frame being written. */
void vt_sampling_put(struct vt_enc *e, unsigned key, const struct vt_sampling *s);

/* Arrays as they lie in a frame, not aligned for their type. */
struct vt_sampling_raw {
    const uint8_t *bias_ids, *bias; /* u32le, f32le */
    size_t n_bias;
    const char *breakers;
    size_t breakers_len;
};
/* Reads a map (NULL: neutral); the arrays of s are left empty for the caller to fill with copies of raw's, which lie in
 * the frame. VT_E_PARAM names what is malformed; ranges are the sampler's to check. */
int vt_sampling_get(struct vt_sampling *s, struct vt_sampling_raw *raw, const msgpack_object_map *m,
                    struct vt_err *err);

/* The name users write for a step, and back; the aliases of llama-server are known. 0: no such step. */
const char *vt_sampler_name(enum vt_sampler k);
enum vt_sampler vt_sampler_find(const char *name);
/* One-letter names as in llama-server's `samplers` string: d e k y p s m x t a. */
enum vt_sampler vt_sampler_letter(char c);

#endif
