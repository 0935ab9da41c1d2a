#include "ckpt.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void put_u32le(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

/* A name cannot be reported as failed, and a wrong one would be worse than an end: out of memory ends the
 * process. */
static struct vt_sha256 *digest(void)
{
    struct vt_sha256 *h = vt_sha256_new();
    if (h == NULL)
        abort();
    return h;
}

static void add_u32(struct vt_sha256 *h, uint32_t v)
{
    uint8_t b[4];
    put_u32le(b, v);
    vt_sha256_add(h, b, sizeof b);
}

static void add_items(struct vt_sha256 *h, const uint32_t *items, uint32_t n)
{
    uint8_t buf[5 * 256];
    while (n > 0) {
        uint32_t m = n < 256 ? n : 256;
        for (uint32_t i = 0; i < m; i++) {
            buf[5 * i] = 0; /* a token id, not a media digest */
            put_u32le(buf + 5 * i + 1, items[i]);
        }
        vt_sha256_add(h, buf, (size_t)5 * m);
        items += m;
        n -= m;
    }
}

static void finish(struct vt_sha256 *h, uint8_t out[CKPT_NAME_LEN])
{
    vt_sha256_end(h, out);
    vt_sha256_free(h);
}

void ckpt_h0(const uint8_t layout_fp[32], const uint8_t salt[CKPT_SALT_LEN], uint8_t out[CKPT_NAME_LEN])
{
    struct vt_sha256 *h = digest();
    vt_sha256_add(h, "VTCK1", 5);
    vt_sha256_add(h, layout_fp, 32);
    vt_sha256_add(h, salt, CKPT_SALT_LEN);
    finish(h, out);
}

void ckpt_next(const uint8_t prev[CKPT_NAME_LEN], const uint32_t *items, uint32_t n,
               uint8_t out[CKPT_NAME_LEN])
{
    assert(n > 0);
    struct vt_sha256 *h = digest();
    vt_sha256_add(h, "B", 1);
    vt_sha256_add(h, prev, CKPT_NAME_LEN);
    add_u32(h, n);
    add_items(h, items, n);
    finish(h, out);
}

void ckpt_rec(const uint8_t name[CKPT_NAME_LEN], uint32_t pos, uint8_t out[CKPT_NAME_LEN])
{
    struct vt_sha256 *h = digest();
    vt_sha256_add(h, "R", 1);
    vt_sha256_add(h, name, CKPT_NAME_LEN);
    add_u32(h, pos);
    finish(h, out);
}

void ckpt_seal(const struct ckpt_seal *s, uint8_t out[CKPT_NAME_LEN])
{
    struct vt_sha256 *h = digest();
    uint8_t has_salt = s->private_salt != NULL;
    uint32_t tenant_len = (uint32_t)strlen(s->tenant);
    vt_sha256_add(h, "M", 1);
    vt_sha256_add(h, s->layout_fp, 32);
    add_u32(h, tenant_len);
    vt_sha256_add(h, s->tenant, tenant_len);
    add_u32(h, s->slot);
    vt_sha256_add(h, &has_salt, 1);
    if (has_salt)
        vt_sha256_add(h, s->private_salt, CKPT_SALT_LEN);
    add_u32(h, (uint32_t)s->sampler_len);
    vt_sha256_add(h, s->sampler, s->sampler_len);
    add_items(h, s->items, s->n_items);
    finish(h, out);
}
