#include "hash.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

struct vt_sha256 {
    EVP_MD_CTX *ctx;
};

struct vt_sha256 *vt_sha256_new(void)
{
    struct vt_sha256 *h = malloc(sizeof *h);
    if (h == NULL)
        return NULL;
    h->ctx = EVP_MD_CTX_new();
    if (h->ctx == NULL || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
        vt_sha256_free(h);
        return NULL;
    }
    return h;
}

void vt_sha256_add(struct vt_sha256 *h, const void *data, size_t len)
{
    EVP_DigestUpdate(h->ctx, data, len);
}

void vt_sha256_end(struct vt_sha256 *h, uint8_t out[VT_SHA256_LEN])
{
    EVP_DigestFinal_ex(h->ctx, out, NULL);
    EVP_DigestInit_ex(h->ctx, NULL, NULL);
}

void vt_sha256_free(struct vt_sha256 *h)
{
    if (h == NULL)
        return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void vt_sha256(const void *data, size_t len, uint8_t out[VT_SHA256_LEN])
{
    EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL);
}

void vt_xxh128(const void *data, size_t len, uint8_t out[VT_XXH128_LEN])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(data, len));
    memcpy(out, c.digest, VT_XXH128_LEN);
}

void vt_hex(const uint8_t *in, size_t n, char *out)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digit[in[i] >> 4];
        out[2 * i + 1] = digit[in[i] & 15];
    }
    out[2 * n] = '\0';
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int vt_unhex(const char *text, uint8_t *out, size_t n)
{
    if (strlen(text) != 2 * n)
        return -1;
    for (size_t i = 0; i < n; i++) {
        int hi = nibble(text[2 * i]);
        int lo = nibble(text[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -1;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}

int vt_equal_ct(const void *a, const void *b, size_t n)
{
    return CRYPTO_memcmp(a, b, n) == 0;
}

void vt_random(void *buf, size_t n)
{
    uint8_t *p = buf;
    while (n > 0) {
        ssize_t r = getrandom(p, n, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            abort();
        p += r;
        n -= (size_t)r;
    }
}
