/* Hashes: SHA-256 from libcrypto for names and identity, XXH3-128 from libxxhash for checksums of pieces. */
#ifndef VT_HASH_H
#define VT_HASH_H

#include <stddef.h>
#include <stdint.h>

#define VT_SHA256_LEN 32
#define VT_XXH128_LEN 16

struct vt_sha256; /* one running digest; owned by the caller from init to fini */

/* Returns NULL when memory is out. */
struct vt_sha256 *vt_sha256_new(void);
void vt_sha256_add(struct vt_sha256 *h, const void *data, size_t len);
/* Writes the digest and makes h ready for the next message. */
void vt_sha256_end(struct vt_sha256 *h, uint8_t out[VT_SHA256_LEN]);
void vt_sha256_free(struct vt_sha256 *h);

/* One call for one buffer. */
void vt_sha256(const void *data, size_t len, uint8_t out[VT_SHA256_LEN]);

/* Canonical (big-endian) bytes of XXH3-128. */
void vt_xxh128(const void *data, size_t len, uint8_t out[VT_XXH128_LEN]);

/* Lower-case hex of n bytes and a NUL; out has 2n+1 bytes. */
void vt_hex(const uint8_t *in, size_t n, char *out);
/* The reverse; returns 0, or -1 when the text is not exactly 2n hex digits. */
int vt_unhex(const char *text, uint8_t *out, size_t n);

/* Compares n bytes in time that does not depend on where they differ; 1 = equal. */
int vt_equal_ct(const void *a, const void *b, size_t n);

/* Fills buf from the kernel's generator; aborts the process if that fails, since nothing could be trusted then. */
void vt_random(void *buf, size_t n);

#endif
