/* The forward pass in double precision, one token at a time, from the formulas of the architectures. Tests compare. */
#include "tiny.h"

#include "backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct oracle {
    const struct gguf_file *f;
    char arch[16];
    uint32_t E, L, H, Hk, d, F, V, n_rot, nk, nv, dk, conv, n, experts, used, window, period;
    double base, eps, factor, cap;
    bool hybrid, gemma;
};

static const float *weight(const struct oracle *o, int layer, const char *name)
{
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    const struct gguf_tensor *t = gguf_tensor(o->f, full);
    return t ? (const float *)(const void *)t->data : NULL;
}

static uint32_t u32(const struct oracle *o, const char *key)
{
    char full[64];
    uint32_t v = 0;
    snprintf(full, sizeof full, "%s.%s", o->arch, key);
    gguf_u32(o->f, full, &v, NULL);
    return v;
}

static double *zeros(size_t n)
{
    double *p = calloc(n, sizeof *p);
    if (!p)
        abort();
    return p;
}

/* y[T][n_out] = x[T][n_in] W^T */
static double *linear(const float *w, const double *x, uint32_t T, uint32_t n_in, uint32_t n_out)
{
    double *y = zeros((size_t)T * n_out);
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t o = 0; o < n_out; o++)
            for (uint32_t i = 0; i < n_in; i++)
                y[(size_t)t * n_out + o] += (double)w[(size_t)o * n_in + i] * x[(size_t)t * n_in + i];
    return y;
}

static void rms(double *y, const double *x, const float *w, uint32_t rows, uint32_t n, double eps)
{
    for (uint32_t t = 0; t < rows; t++) {
        double sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += x[(size_t)t * n + i] * x[(size_t)t * n + i];
        for (uint32_t i = 0; i < n; i++)
            y[(size_t)t * n + i] = x[(size_t)t * n + i] / sqrt(sum / n + eps) * (double)w[i];
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double f16(double x)
{
    return (double)be_f16_to_f32(be_f32_to_f16((float)x));
}

static bool windowed(const struct oracle *o, int il)
{
    return o->window && (uint32_t)il % o->period < o->period - 1;
}

/* Half-split rope on one head; layers with a window turn by another base and are not scaled. */
static void rope(const struct oracle *o, int il, double *x, uint32_t pos)
{
    uint32_t half = o->n_rot / 2;
    double base = windowed(o, il) ? 10000 : o->base, factor = windowed(o, il) ? 1 : o->factor;
    for (uint32_t i = 0; i < half; i++) {
        double a = pos / factor * pow(base, -2.0 * i / o->n_rot), c = cos(a), s = sin(a);
        double p = x[i], q = x[i + half];
        x[i] = p * c - q * s;
        x[i + half] = p * s + q * c;
    }
}

static double *attention(const struct oracle *o, int il, const double *x)
{
    uint32_t T = o->n, H = o->H, Hk = o->Hk, d = o->d, wide = o->hybrid ? 2 * d : d;
    double *q = linear(weight(o, il, "attn_q.weight"), x, T, o->E, H * wide);
    double *k = linear(weight(o, il, "attn_k.weight"), x, T, o->E, Hk * d);
    double *v = linear(weight(o, il, "attn_v.weight"), x, T, o->E, Hk * d);
    double *heads = zeros((size_t)T * H * d), *p = zeros(T);
    rms(k, k, weight(o, il, "attn_k_norm.weight"), T * Hk, d, o->eps);
    for (uint32_t i = 0; i < T * Hk; i++)
        rope(o, il, k + (size_t)i * d, i / Hk);
    for (size_t i = 0; i < (size_t)T * Hk * d; i++) {
        k[i] = f16(k[i]);
        v[i] = f16(v[i]);
    }
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t h = 0; h < H; h++) {
            double *qh = q + ((size_t)t * H + h) * wide, max = -INFINITY, sum = 0;
            double *out = heads + ((size_t)t * H + h) * d;
            uint32_t first = windowed(o, il) && t >= o->window ? t - o->window + 1 : 0;
            rms(qh, qh, weight(o, il, "attn_q_norm.weight"), 1, d, o->eps);
            rope(o, il, qh, t);
            for (uint32_t s = first; s <= t; s++) {
                const double *kh = k + ((size_t)s * Hk + h / (H / Hk)) * d;
                p[s] = 0;
                for (uint32_t i = 0; i < d; i++)
                    p[s] += qh[i] * kh[i];
                p[s] /= sqrt(d);
                max = fmax(max, p[s]);
            }
            for (uint32_t s = first; s <= t; s++)
                sum += p[s] = exp(p[s] - max);
            for (uint32_t s = first; s <= t; s++)
                for (uint32_t i = 0; i < d; i++)
                    out[i] += p[s] / sum * v[((size_t)s * Hk + h / (H / Hk)) * d + i];
            for (uint32_t i = 0; o->hybrid && i < d; i++)
                out[i] *= sigmoid(qh[d + i]);
        }
    double *y = linear(weight(o, il, "attn_output.weight"), heads, T, H * d, o->E);
    free(q);
    free(k);
    free(v);
    free(heads);
    free(p);
    return y;
}

/* Causal convolution over time, then silu; u and the result are [T][cd]. */
static double *convolve(const struct oracle *o, const float *w, const double *u, uint32_t cd)
{
    double *c = zeros((size_t)o->n * cd);
    for (uint32_t t = 0; t < o->n; t++)
        for (uint32_t ch = 0; ch < cd; ch++) {
            double sum = 0;
            for (uint32_t j = 0; j < o->conv; j++)
                if (t + j + 1 >= o->conv)
                    sum += (double)w[ch * o->conv + j] * u[(size_t)(t + j + 1 - o->conv) * cd + ch];
            c[(size_t)t * cd + ch] = silu(sum);
        }
    return c;
}

static void normalize(double *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sqrt(sum + 1e-6);
}

/* One head of one token: decays and updates S [dk][dk], writes out [dk]. */
static void delta_rule(double *S, const double *q, const double *k, const double *v, double alpha,
                       double beta, uint32_t n, double *out)
{
    for (uint32_t j = 0; j < n; j++) {
        double r = v[j], y = 0;
        for (uint32_t i = 0; i < n; i++)
            r -= (S[i * n + j] *= alpha) * k[i];
        for (uint32_t i = 0; i < n; i++)
            y += (S[i * n + j] += k[i] * beta * r) * q[i];
        out[j] = y / sqrt(n);
    }
}

static double *delta_net(const struct oracle *o, int il, const double *x)
{
    uint32_t T = o->n, nk = o->nk, nv = o->nv, n = o->dk, kd = nk * n, vd = nv * n, cd = 2 * kd + vd;
    double *u = linear(weight(o, il, "attn_qkv.weight"), x, T, o->E, cd);
    double *z = linear(weight(o, il, "attn_gate.weight"), x, T, o->E, vd);
    double *b = linear(weight(o, il, "ssm_beta.weight"), x, T, o->E, nv);
    double *a = linear(weight(o, il, "ssm_alpha.weight"), x, T, o->E, nv);
    double *c = convolve(o, weight(o, il, "ssm_conv1d.weight"), u, cd);
    double *S = zeros((size_t)nv * n * n), *heads = zeros((size_t)T * vd);
    const float *A = weight(o, il, "ssm_a"), *dt = weight(o, il, "ssm_dt.bias");
    for (uint32_t t = 0; t < T; t++) {
        double *ct = c + (size_t)t * cd;
        for (uint32_t h = 0; h < 2 * nk; h++)
            normalize(ct + h * n, n);
        for (uint32_t h = 0; h < nv; h++) {
            double s = a[t * nv + h] + (double)dt[h];
            double alpha = exp((double)A[h] * (s > 20 ? s : log1p(exp(s))));
            double *out = heads + (size_t)t * vd + h * n;
            delta_rule(S + (size_t)h * n * n, ct + h % nk * n, ct + kd + h % nk * n, ct + 2 * kd + h * n,
                       alpha, sigmoid(b[t * nv + h]), n, out);
            rms(out, out, weight(o, il, "ssm_norm.weight"), 1, n, o->eps);
            for (uint32_t i = 0; i < n; i++)
                out[i] *= silu(z[(size_t)t * vd + h * n + i]);
        }
    }
    double *y = linear(weight(o, il, "ssm_out.weight"), heads, T, vd, o->E);
    double *all[] = {u, z, b, a, c, S, heads};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    return y;
}

/* One row: the best experts by their logits, weighed by the softmax over them. */
static void expert_row(const struct oracle *o, int il, const double *x, double *y)
{
    double *logits = linear(weight(o, il, "ffn_gate_inp.weight"), x, 1, o->E, o->experts), w[64], sum = 0;
    uint32_t ids[64];
    for (uint32_t j = 0; j < o->used; j++) {
        uint32_t best = 0;
        for (uint32_t e = 1; e < o->experts; e++)
            best = logits[e] > logits[best] ? e : best;
        ids[j] = best;
        sum += w[j] = exp(logits[best]);
        logits[best] = -INFINITY;
    }
    for (uint32_t j = 0; j < o->used; j++) {
        size_t at = (size_t)ids[j] * o->E * o->F;
        double *g = linear(weight(o, il, "ffn_gate_exps.weight") + at, x, 1, o->E, o->F);
        double *u = linear(weight(o, il, "ffn_up_exps.weight") + at, x, 1, o->E, o->F);
        for (uint32_t i = 0; i < o->F; i++)
            g[i] = silu(g[i]) * u[i];
        double *d = linear(weight(o, il, "ffn_down_exps.weight") + at, g, 1, o->F, o->E);
        for (uint32_t i = 0; i < o->E; i++)
            y[i] += w[j] / sum * d[i];
        free(g);
        free(u);
        free(d);
    }
    free(logits);
}

static double *experts(const struct oracle *o, int il, const double *x)
{
    double *y = zeros((size_t)o->n * o->E);
    for (uint32_t t = 0; t < o->n; t++)
        expert_row(o, il, x + (size_t)t * o->E, y + (size_t)t * o->E);
    return y;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double *dense(const struct oracle *o, int il, const double *x)
{
    double *g = linear(weight(o, il, "ffn_gate.weight"), x, o->n, o->E, o->F);
    double *u = linear(weight(o, il, "ffn_up.weight"), x, o->n, o->E, o->F);
    for (size_t i = 0; i < (size_t)o->n * o->F; i++)
        g[i] = (o->gemma ? gelu(g[i]) : silu(g[i])) * u[i];
    double *y = linear(weight(o, il, "ffn_down.weight"), g, o->n, o->F, o->E);
    free(g);
    free(u);
    return y;
}

/* norm: of what is added; NULL: none. */
static void add_and_free(const struct oracle *o, double *h, double *y, const float *norm)
{
    if (norm)
        rms(y, y, norm, o->n, o->E, o->eps);
    for (size_t i = 0; i < (size_t)o->n * o->E; i++)
        h[i] += y[i];
    free(y);
}

static void read_shape(struct oracle *o)
{
    const char *s;
    size_t len;
    float v;
    char key[64];
    gguf_str(o->f, "general.architecture", &s, &len, NULL);
    snprintf(o->arch, sizeof o->arch, "%.*s", (int)len, s);
    o->hybrid = strcmp(o->arch, "qwen35") == 0;
    o->E = u32(o, "embedding_length");
    o->L = u32(o, "block_count") - u32(o, "nextn_predict_layers");
    o->H = u32(o, "attention.head_count");
    o->Hk = u32(o, "attention.head_count_kv");
    o->d = u32(o, "attention.key_length");
    o->F = u32(o, "feed_forward_length");
    o->n_rot = u32(o, "rope.dimension_count");
    o->V = (uint32_t)gguf_tensor(o->f, "token_embd.weight")->ne[1];
    o->nk = u32(o, "ssm.group_count");
    o->nv = u32(o, "ssm.time_step_rank");
    o->dk = u32(o, "ssm.state_size");
    o->conv = u32(o, "ssm.conv_kernel");
    o->gemma = strcmp(o->arch, "gemma3") == 0;
    o->experts = u32(o, "expert_count");
    o->used = u32(o, "expert_used_count");
    o->window = u32(o, "attention.sliding_window");
    o->period = u32(o, "attention.sliding_window_pattern");
    v = 1;
    snprintf(key, sizeof key, "%s.rope.scaling.factor", o->arch);
    gguf_f32(o->f, key, &v, NULL);
    o->factor = (double)v;
    v = 0;
    snprintf(key, sizeof key, "%s.final_logit_softcapping", o->arch);
    gguf_f32(o->f, key, &v, NULL);
    o->cap = (double)v;
    snprintf(key, sizeof key, "%s.rope.freq_base", o->arch);
    gguf_f32(o->f, key, &v, NULL);
    o->base = (double)v;
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", o->arch);
    gguf_f32(o->f, key, &v, NULL);
    o->eps = (double)v;
}

/* [n][E] behind the output norm. */
static double *hidden(struct oracle *out, const struct gguf_file *f, const uint32_t *ids, uint32_t n)
{
    struct oracle o = {.f = f, .n = n};
    read_shape(&o);
    size_t rows = (size_t)n * o.E;
    double *h = zeros(rows), *x = zeros(rows);
    const float *embd = weight(&o, -1, "token_embd.weight");
    for (size_t i = 0; i < rows; i++)
        h[i] = (double)embd[(size_t)ids[i / o.E] * o.E + i % o.E] * (o.gemma ? sqrt(o.E) : 1);
    for (int il = 0; il < (int)o.L; il++) {
        bool full = !o.hybrid || (il + 1) % 4 == 0;
        rms(x, h, weight(&o, il, "attn_norm.weight"), n, o.E, o.eps);
        add_and_free(&o, h, full ? attention(&o, il, x) : delta_net(&o, il, x),
                     o.gemma ? weight(&o, il, "post_attention_norm.weight") : NULL);
        rms(x, h, weight(&o, il, o.hybrid ? "post_attention_norm.weight" : "ffn_norm.weight"), n, o.E, o.eps);
        add_and_free(&o, h, o.experts ? experts(&o, il, x) : dense(&o, il, x),
                     o.gemma ? weight(&o, il, "post_ffw_norm.weight") : NULL);
    }
    rms(x, h, weight(&o, -1, "output_norm.weight"), n, o.E, o.eps);
    free(h);
    *out = o;
    return x;
}

double *oracle_hidden(const struct gguf_file *f, const uint32_t *ids, uint32_t n)
{
    struct oracle o;
    return hidden(&o, f, ids, n);
}

double *oracle_logits(const struct gguf_file *f, const uint32_t *ids, uint32_t n)
{
    struct oracle o;
    double *x = hidden(&o, f, ids, n);
    const float *embd = weight(&o, -1, "token_embd.weight"), *head = weight(&o, -1, "output.weight");
    double *logits = linear(head ? head : embd, x, n, o.E, o.V);
    for (size_t i = 0; o.cap > 0 && i < (size_t)n * o.V; i++)
        logits[i] = o.cap * tanh(logits[i] / o.cap);
    free(x);
    return logits;
}
