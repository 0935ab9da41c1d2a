#include "hash.h"
#include "internal.h"

#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

/* The payload's identity without reading all of it: three pieces of every tensor. Two trainings of one shape differ in
 * every block of every tensor. */
#define SAMPLE_BYTES 4096u

static void sample_payload(const struct gguf_file *f, struct vt_sha256 *h, uint8_t out[32])
{
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f, i);
        uint64_t n = t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES;
        vt_sha256_add(h, t->data, n);
        vt_sha256_add(h, t->data + (t->bytes - n) / 2, n);
        vt_sha256_add(h, t->data + (t->bytes - n), n);
    }
    vt_sha256_end(h, out);
}

static void put_key(msgpack_packer *p, const char *key)
{
    size_t n = strlen(key);
    msgpack_pack_str(p, n);
    msgpack_pack_str_body(p, key, n);
}

static void put_bin(msgpack_packer *p, const uint8_t *bytes, size_t n)
{
    msgpack_pack_bin(p, n);
    msgpack_pack_bin_body(p, bytes, n);
}

/* Kind and geometry of every layer: [1, kv heads, d, dv], [2, key heads, value heads, dk, dv, taps], or for attention with a
 * window [3, kv heads, d, dv, window]: its K and V are not in the blocks. */
static void put_layers(msgpack_packer *p, const struct model *m)
{
    msgpack_pack_array(p, (size_t)m->n_layer);
    for (int i = 0; i < m->n_layer; i++) {
        const struct layer *l = &m->layers[i];
        if (l->mixer == MIX_ATTENTION) {
            const struct be_attn *g = &l->attn.geo;
            int v[] = {g->window ? 3 : 1, g->n_kv_head, g->d, g->dv, g->window}, n = g->window ? 5 : 4;
            msgpack_pack_array(p, (size_t)n);
            for (int j = 0; j < n; j++)
                msgpack_pack_int(p, v[j]);
        } else {
            const struct be_delta *g = &l->delta.geo;
            int v[] = {2, g->n_k_head, g->n_v_head, g->dk, g->dv, g->conv_k};
            msgpack_pack_array(p, 6);
            for (int j = 0; j < 6; j++)
                msgpack_pack_int(p, v[j]);
        }
    }
}

/* Digest over rope, scale, window and softcap of every attention layer, as they are in force. */
static void attention_digest(const struct model *m, struct vt_sha256 *h, uint8_t out[32])
{
    for (int i = 0; i < m->n_layer; i++) {
        const struct attention *a = &m->layers[i].attn;
        if (m->layers[i].mixer != MIX_ATTENTION)
            continue;
        int32_t n[] = {a->rope.n_rot, a->rope.interleaved, a->geo.window};
        float x[] = {a->rope.mscale, a->geo.scale, a->geo.softcap};
        vt_sha256_add(h, n, sizeof n);
        vt_sha256_add(h, x, sizeof x);
        vt_sha256_add(h, a->rope.freq, (size_t)a->rope.n_rot / 2 * sizeof(float));
    }
    vt_sha256_end(h, out);
}

int layout_describe(const struct eng *e, uint8_t **out, size_t *len, uint8_t fp[32], uint8_t payload[32],
                    struct vt_err *err)
{
    const struct model *m = e->model;
    uint8_t index[32], sample[32], tokens[32], attention[32];
    struct vt_sha256 *h = vt_sha256_new();
    if (!h)
        return vt_fail(err, VT_E_NOMEM, "out of memory for a hash");
    if (gguf_index_sha256(e->file, index) < 0) {
        vt_sha256_free(h);
        return vt_fail(err, VT_E_NOMEM, "out of memory for a hash");
    }
    sample_payload(e->file, h, sample);
    attention_digest(m, h, attention);
    vt_sha256_add(h, index, sizeof index);
    vt_sha256_add(h, sample, sizeof sample);
    vt_sha256_end(h, payload);
    vt_sha256_free(h);
    tok_sha256(e->tok, tokens);

    msgpack_sbuffer buf;
    msgpack_packer p;
    msgpack_sbuffer_init(&buf);
    msgpack_packer_init(&p, &buf, msgpack_sbuffer_write);
    const char *simd = be_name(e->be);
    msgpack_pack_map(&p, 13); /* keys ascend */
    put_key(&p, "adapters");
    msgpack_pack_array(&p, 0);
    put_key(&p, "arch");
    put_key(&p, m->arch);
    put_key(&p, "attention");
    put_bin(&p, attention, sizeof attention);
    put_key(&p, "block_tokens");
    msgpack_pack_int(&p, BE_PAGE);
    put_key(&p, "draft_kv");
    msgpack_pack_int(&p, 0);
    put_key(&p, "eviction");
    msgpack_pack_int(&p, 0);
    put_key(&p, "kv");
    put_key(&p, "f16/f16");
    put_key(&p, "layers");
    put_layers(&p, m);
    put_key(&p, "numerics");
    msgpack_pack_int(&p, NUMERICS);
    put_key(&p, "payload");
    msgpack_pack_array(&p, 2);
    put_bin(&p, index, sizeof index);
    put_bin(&p, sample, sizeof sample);
    put_key(&p, "simd");
    put_key(&p, simd);
    put_key(&p, "tokenizer");
    put_bin(&p, tokens, sizeof tokens);
    put_key(&p, "wire");
    msgpack_pack_int(&p, 1);

    *out = malloc(buf.size);
    *len = buf.size;
    if (*out) {
        memcpy(*out, buf.data, buf.size);
        vt_sha256(*out, *len, fp);
    }
    msgpack_sbuffer_destroy(&buf);
    return *out ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory for the layout descriptor");
}
