#include "tiny.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct tiny tiny_qwen3 = {.arch = "qwen3",
                                .n_embd = 64,
                                .n_blocks = 3,
                                .n_head = 4,
                                .n_kv = 2,
                                .d = 32,
                                .n_ff = 96,
                                .n_vocab = 320,
                                .n_rot = 32,
                                .tied = true,
                                .seed = 1};
const struct tiny tiny_qwen35 = {.arch = "qwen35",
                                 .n_embd = 64,
                                 .n_blocks = 9,
                                 .n_head = 4,
                                 .n_kv = 2,
                                 .d = 32,
                                 .n_ff = 96,
                                 .n_vocab = 320,
                                 .n_rot = 8,
                                 .nk = 2,
                                 .nv = 6,
                                 .dk = 32,
                                 .conv = 4,
                                 .n_mtp = 1,
                                 .seed = 2};
const struct tiny tiny_moe = {.arch = "qwen3moe",
                              .n_embd = 64,
                              .n_blocks = 3,
                              .n_head = 4,
                              .n_kv = 2,
                              .d = 32,
                              .n_ff = 48,
                              .n_vocab = 320,
                              .n_rot = 32,
                              .n_expert = 12,
                              .n_used = 3,
                              .tied = true,
                              .seed = 3};
/* The window is longer than a page and no multiple of one; the pattern leaves a layer over. */
const struct tiny tiny_gemma3 = {.arch = "gemma3",
                                 .n_embd = 64,
                                 .n_blocks = 4,
                                 .n_head = 4,
                                 .n_kv = 2,
                                 .d = 32,
                                 .n_ff = 96,
                                 .n_vocab = 320,
                                 .n_rot = 32,
                                 .window = 300,
                                 .period = 3,
                                 .tied = true,
                                 .seed = 4};
const struct tiny *const tiny_all[TINY_KINDS] = {&tiny_qwen3, &tiny_qwen35, &tiny_moe, &tiny_gemma3};

/* ---- growing buffers ---- */

struct buf {
    uint8_t *p;
    size_t n, cap;
};

static void put(struct buf *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            abort();
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void put_u32(struct buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static void put_u64(struct buf *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

static void pad(struct buf *b)
{
    static const uint8_t zero[32];
    put(b, zero, (32 - b->n % 32) % 32);
}

/* ---- random numbers ---- */

static double uniform(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (double)(*x >> 11) * 0x1p-53;
}

static double normal(uint64_t *x)
{
    double u = uniform(x), v = uniform(x);
    return sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v);
}

/* ---- the file ---- */

struct writer {
    const struct tiny *t;
    struct buf kv, infos, data;
    uint64_t n_kv, n_tensors, rng;
};

static bool key_wanted(struct writer *w, const char *key)
{
    if (w->t->skip_key && strcmp(key, w->t->skip_key) == 0)
        return false;
    w->n_kv++;
    return true;
}

static void key(struct writer *w, const char *name, bool prefix, uint32_t type)
{
    char full[100];
    snprintf(full, sizeof full, "%s%s%s", prefix ? w->t->arch : "", prefix ? "." : "", name);
    put_str(&w->kv, full);
    put_u32(&w->kv, type);
}

static void kv_u32(struct writer *w, const char *name, uint32_t v)
{
    if (!key_wanted(w, name))
        return;
    key(w, name, true, GGUF_U32);
    put_u32(&w->kv, v);
}

static void kv_f32(struct writer *w, const char *name, float v)
{
    if (!key_wanted(w, name))
        return;
    key(w, name, true, GGUF_F32);
    put(&w->kv, &v, sizeof v);
}

static void kv_str(struct writer *w, const char *name, const char *v)
{
    if (!key_wanted(w, name))
        return;
    key(w, name, false, GGUF_STR);
    put_str(&w->kv, v);
}

static void kv_array(struct writer *w, const char *name, bool prefix, uint32_t elem, uint64_t n)
{
    w->n_kv++;
    key(w, name, prefix, GGUF_ARR);
    put_u32(&w->kv, elem);
    put_u64(&w->kv, n);
}

/* A tensor {n0, n1, n2} (n1, n2 0: a vector, a matrix) of normal values around `mean`, of deviation `dev`. */
static void tensor3(struct writer *w, const char *name, uint32_t n0, uint32_t n1, uint32_t n2, double mean,
                    double dev)
{
    const struct tiny *t = w->t;
    if (t->skip_tensor && strcmp(name, t->skip_tensor) == 0)
        return;
    if (t->bend_tensor && strcmp(name, t->bend_tensor) == 0)
        *(n1 ? &n1 : &n0) += 1;
    uint64_t n = (uint64_t)n0 * (n1 ? n1 : 1) * (n2 ? n2 : 1);
    put_str(&w->infos, name);
    put_u32(&w->infos, n2 ? 3 : n1 ? 2 : 1);
    put_u64(&w->infos, n0);
    if (n1)
        put_u64(&w->infos, n1);
    if (n2)
        put_u64(&w->infos, n2);
    bool odd = t->bad_type && strcmp(name, t->bad_type) == 0;
    put_u32(&w->infos, odd ? 24 /* I8 */ : GT_F32);
    put_u64(&w->infos, w->data.n);
    for (uint64_t i = 0; i < n; i++) {
        float v = (float)(mean + dev * normal(&w->rng));
        if (t->nan_tensor && strcmp(name, t->nan_tensor) == 0 && i == n - 1)
            v = NAN;
        if (t->huge_tensor && strcmp(name, t->huge_tensor) == 0 && i >= n - n0)
            v = 1e30f;
        put(&w->data, &v, sizeof v);
    }
    pad(&w->data);
    w->n_tensors++;
}

static void tensor(struct writer *w, const char *name, uint32_t n0, uint32_t n1, double mean, double dev)
{
    tensor3(w, name, n0, n1, 0, mean, dev);
}

static void block_tensor(struct writer *w, uint32_t i, const char *name, uint32_t n0, uint32_t n1,
                         double mean, double dev)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", i, name);
    tensor(w, full, n0, n1, mean, dev);
}

#define W(n_in, gain) (gain) / sqrt(n_in)

static void attention_tensors(struct writer *w, uint32_t i, bool gated)
{
    const struct tiny *t = w->t;
    block_tensor(w, i, "attn_q.weight", t->n_embd, t->n_head * t->d * (gated ? 2 : 1), 0, W(t->n_embd, 2));
    block_tensor(w, i, "attn_k.weight", t->n_embd, t->n_kv * t->d, 0, W(t->n_embd, 2));
    block_tensor(w, i, "attn_v.weight", t->n_embd, t->n_kv * t->d, 0, W(t->n_embd, 1));
    block_tensor(w, i, "attn_output.weight", t->n_head * t->d, t->n_embd, 0, W(t->n_head * t->d, 1));
    block_tensor(w, i, "attn_q_norm.weight", t->d, 0, 1.5, 0.4);
    block_tensor(w, i, "attn_k_norm.weight", t->d, 0, 1.5, 0.4);
}

static void delta_tensors(struct writer *w, uint32_t i)
{
    const struct tiny *t = w->t;
    uint32_t vd = t->nv * t->dk, cd = 2 * t->nk * t->dk + vd;
    block_tensor(w, i, "attn_qkv.weight", t->n_embd, cd, 0, W(t->n_embd, 1));
    block_tensor(w, i, "attn_gate.weight", t->n_embd, vd, 0, W(t->n_embd, 1));
    block_tensor(w, i, "ssm_beta.weight", t->n_embd, t->nv, 0, W(t->n_embd, 1));
    block_tensor(w, i, "ssm_alpha.weight", t->n_embd, t->nv, 0, W(t->n_embd, 1));
    block_tensor(w, i, "ssm_conv1d.weight", t->conv, cd, 0, 1);
    block_tensor(w, i, "ssm_dt.bias", t->nv, 0, 0, 1);
    block_tensor(w, i, "ssm_a", t->nv, 0, -0.3, 0.05);
    block_tensor(w, i, "ssm_norm.weight", t->dk, 0, 1, 0.3);
    block_tensor(w, i, "ssm_out.weight", vd, t->n_embd, 0, W(vd, 1));
}

static void expert_tensor(struct writer *w, uint32_t i, const char *name, uint32_t n0, uint32_t n1)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", i, name);
    tensor3(w, full, n0, n1, w->t->n_expert, 0, W(n0, 1.5));
}

static void expert_tensors(struct writer *w, uint32_t i)
{
    const struct tiny *t = w->t;
    block_tensor(w, i, "ffn_gate_inp.weight", t->n_embd, t->n_expert, 0, W(t->n_embd, 2));
    expert_tensor(w, i, "ffn_gate_exps.weight", t->n_embd, t->n_ff);
    expert_tensor(w, i, "ffn_up_exps.weight", t->n_embd, t->n_ff);
    expert_tensor(w, i, "ffn_down_exps.weight", t->n_ff, t->n_embd);
}

static void block(struct writer *w, uint32_t i, bool full, bool hybrid)
{
    const struct tiny *t = w->t;
    block_tensor(w, i, "attn_norm.weight", t->n_embd, 0, 1, 0.3);
    if (full)
        attention_tensors(w, i, hybrid);
    else
        delta_tensors(w, i);
    block_tensor(w, i, hybrid ? "post_attention_norm.weight" : "ffn_norm.weight", t->n_embd, 0, 1, 0.3);
    if (t->window) {
        block_tensor(w, i, "post_attention_norm.weight", t->n_embd, 0, 1, 0.3);
        block_tensor(w, i, "post_ffw_norm.weight", t->n_embd, 0, 1, 0.3);
    }
    if (t->n_expert) {
        expert_tensors(w, i);
        return;
    }
    block_tensor(w, i, "ffn_gate.weight", t->n_embd, t->n_ff, 0, W(t->n_embd, 1.5));
    block_tensor(w, i, "ffn_up.weight", t->n_embd, t->n_ff, 0, W(t->n_embd, 1.5));
    block_tensor(w, i, "ffn_down.weight", t->n_ff, t->n_embd, 0, W(t->n_ff, 1.5));
}

static void mtp_tensors(struct writer *w, uint32_t i)
{
    const struct tiny *t = w->t;
    block_tensor(w, i, "nextn.eh_proj.weight", 2 * t->n_embd, t->n_embd, 0, W(t->n_embd, 1));
    block_tensor(w, i, "nextn.enorm.weight", t->n_embd, 0, 1, 0.3);
    block_tensor(w, i, "nextn.hnorm.weight", t->n_embd, 0, 1, 0.3);
    block_tensor(w, i, "nextn.shared_head_norm.weight", t->n_embd, 0, 1, 0.3);
}

static void tensors(struct writer *w, bool hybrid)
{
    const struct tiny *t = w->t;
    uint32_t n_main = t->n_blocks - t->n_mtp;
    tensor(w, "token_embd.weight", t->n_embd, t->n_vocab, 0, t->window ? 0.1 : 1);
    if (t->extra_tensor)
        tensor(w, t->extra_tensor, 8, 0, 0, 1);
    tensor(w, "output_norm.weight", t->n_embd, 0, 1, 0.3);
    if (!t->tied)
        tensor(w, "output.weight", t->n_embd, t->n_vocab, 0, W(t->n_embd, 4));
    for (uint32_t i = 0; i < t->n_blocks; i++)
        block(w, i, !hybrid || i >= n_main || (i + 1) % 4 == 0, hybrid);
    for (uint32_t i = n_main; i < t->n_blocks; i++)
        mtp_tensors(w, i);
}

static void metadata(struct writer *w, bool hybrid)
{
    const struct tiny *t = w->t;
    kv_str(w, "general.architecture", t->arch);
    kv_str(w, "general.name", "tiny");
    kv_u32(w, "block_count", t->n_blocks);
    kv_u32(w, "context_length", 4096);
    kv_u32(w, "embedding_length", t->n_embd);
    kv_u32(w, "feed_forward_length", t->n_ff);
    kv_u32(w, "attention.head_count", t->n_head);
    kv_u32(w, "attention.head_count_kv", t->n_kv);
    kv_u32(w, "attention.key_length", t->d);
    kv_u32(w, "attention.value_length", t->d);
    kv_u32(w, "rope.dimension_count", t->n_rot);
    kv_f32(w, "rope.freq_base", 1e6f);
    kv_f32(w, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (t->extra_key) {
        w->n_kv++;
        key(w, t->extra_key, true, GGUF_STR);
        put_str(&w->kv, t->extra_text);
    }
    if (t->extra_u32)
        kv_u32(w, t->extra_u32, 7);
    if (t->n_expert) {
        kv_u32(w, "expert_count", t->n_expert);
        kv_u32(w, "expert_used_count", t->n_used);
        kv_u32(w, "expert_feed_forward_length", t->n_ff);
    }
    if (t->window) {
        kv_u32(w, "attention.sliding_window", t->window);
        kv_u32(w, "attention.sliding_window_pattern", t->period);
        kv_f32(w, "final_logit_softcapping", 20.0f);
        kv_f32(w, "rope.scaling.factor", 8.0f);
    }
    if (!hybrid)
        return;
    kv_u32(w, "ssm.conv_kernel", t->conv);
    kv_u32(w, "ssm.inner_size", t->nv * t->dk);
    kv_u32(w, "ssm.state_size", t->dk);
    kv_u32(w, "ssm.time_step_rank", t->nv);
    kv_u32(w, "ssm.group_count", t->nk);
    kv_u32(w, "full_attention_interval", 4);
    kv_u32(w, "nextn_predict_layers", t->n_mtp);
}

/* Characters that stand for bytes in a byte-level vocabulary. */
static void byte_char(unsigned byte, unsigned *next, char out[4])
{
    bool plain = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
    unsigned c = plain ? byte : 256 + (*next)++;
    if (c < 128)
        snprintf(out, 4, "%c", (char)c);
    else
        snprintf(out, 4, "%c%c", (char)(0xC0 | c >> 6), (char)(0x80 | (c & 63)));
}

static void vocabulary(struct writer *w)
{
    uint32_t n = w->t->n_vocab;
    unsigned next = 0;
    kv_str(w, "tokenizer.ggml.model", "gpt2");
    kv_str(w, "tokenizer.ggml.pre", "qwen2");
    kv_array(w, "tokenizer.ggml.tokens", false, GGUF_STR, n);
    for (uint32_t i = 0; i < n; i++) {
        char text[16];
        if (i < 256)
            byte_char(i, &next, text);
        else
            snprintf(text, sizeof text, "<t%u>", i);
        put_str(&w->kv, text);
    }
    kv_array(w, "tokenizer.ggml.token_type", false, GGUF_I32, n);
    for (uint32_t i = 0; i < n; i++)
        put_u32(&w->kv, i < 256 ? 1 : 3);
    kv_array(w, "tokenizer.ggml.merges", false, GGUF_STR, 1);
    put_str(&w->kv, "a b");
    w->n_kv++;
    key(w, "tokenizer.ggml.eos_token_id", false, GGUF_U32);
    put_u32(&w->kv, 257);
}

size_t tiny_write(const struct tiny *t, const char *path)
{
    struct writer w = {.t = t, .rng = t->seed * 0x9E3779B97F4A7C15u};
    struct buf head = {0};
    bool hybrid = t->nv > 0;
    metadata(&w, hybrid);
    vocabulary(&w);
    tensors(&w, hybrid);
    put(&head, "GGUF\x03\0\0", 8);
    put_u64(&head, w.n_tensors);
    put_u64(&head, w.n_kv);
    put(&head, w.kv.p, w.kv.n);
    put(&head, w.infos.p, w.infos.n);
    pad(&head);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(head.p, head.n, 1, f) != 1 || fwrite(w.data.p, w.data.n, 1, f) != 1 || fclose(f) != 0) {
        perror(path);
        abort();
    }
    free(head.p);
    free(w.kv.p);
    free(w.infos.p);
    free(w.data.p);
    return head.n;
}

const char *tiny_path(const char *name)
{
    static char path[256];
    const char *dir = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/vitriol-tiny-%d-%s.gguf", dir && *dir ? dir : "/tmp", (int)getpid(),
             name);
    return path;
}

void tiny_ids(uint32_t *ids, uint32_t n, uint32_t limit)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (i * 37 + 11 + i * i % 7) % limit;
}
