/* Fingerprint: one line that says what runs, with effective values. Pure.
 *
 * fp is the first 12 hex digits of SHA-256 over every provenance-bearing key (what can change speed, output or capacity,
 * the environment and the effective engine values among them; not paths, ports, pids, times, free memory). Order and
 * spelling of the fields are fixed; values have no blanks; the line has at most 2048 bytes. */
#ifndef FINGERPRINT_H
#define FINGERPRINT_H

#include "kv.h"

#include <stddef.h>
#include <stdint.h>

#define FINGERPRINT_FP   13 /* 12 digits and NUL */
#define FINGERPRINT_LINE 2049

struct fingerprint_in {
    const char *child, *build, *profile, *boot_env, *args; /* boot_env, args: 4 hex digits */
    uint32_t gen;
    const struct kv *effective; /* keys as the engine reports them */
    const struct kv
        *facts; /* of the payload and the machine: model, sha, bytes, arch, numerics, kv, gpus, … */
    uint64_t pool_tokens, slots, window;
    const char *diff, *bdiff;
    const char *blessed, *rolled_back_from; /* tag of the record; NULL or "": none */
};

/* The map that is hashed, stored and compared: effective values and facts that bear on the result. */
int fingerprint_map(const struct fingerprint_in *in, struct kv *out);
void fingerprint_fp(const struct kv *map, char out[FINGERPRINT_FP]);
/* "none", or "key:old>new,…", at most 12 entries and then "…+N". A key that only one side has shows "-". */
void fingerprint_diff(const struct kv *old, const struct kv *now, char *out, size_t size);
void fingerprint_line(const struct fingerprint_in *in, const char *fp, char *out, size_t size);

#endif
