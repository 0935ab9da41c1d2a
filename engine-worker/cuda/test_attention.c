/* Attention of the CUDA backend beside the CPU's on fresh random inputs. Without a GPU it says so and counts as skipped (77). */
#include "test_device.h"

#define MOST_RUNS 8

/* Inputs of attention on one side. bias: [4 * n_q]; norm: [2][d]. */
static struct be_qkv inputs_of(const struct be_attn *a, float *q, float *k, float *v, float *bias,
                               float *norm, const struct be_rope *rope, int kind)
{
    int64_t stride = kind & 1 ? 2 * a->d : a->d;
    return (struct be_qkv){.q = q,
                           .k = k,
                           .v = v,
                           .q_stride = stride,
                           .q_bias = kind & 2 ? bias : NULL,
                           .k_bias = kind & 2 ? bias + stride : NULL,
                           .v_bias = kind & 2 ? bias + 2 * stride : NULL,
                           .q_norm = kind & 4 ? norm : NULL,
                           .k_norm = kind & 4 ? norm + a->d : NULL,
                           .eps = 1e-6f,
                           .rope = rope};
}

/* What was left behind for the matmul that follows is what it would make of the rows itself. */
static void left_behind(float *x, int64_t T, int64_t n)
{
    enum { OUT = 8 };
    struct vt_err err;
    struct be_weight dw;
    uint8_t *bytes = random_weight(GT_Q8_0, n, OUT);
    struct be_weight w = {.type = GT_Q8_0, .n_in = n, .n_out = OUT, .data = bytes};
    float *dy = poisoned(T * OUT), *again = poisoned(T * OUT);
    must(be_upload(gpu, &dw, &w, 1, &err), &err);
    be_matmul(gpu, dy, &dw, x, T);
    be_scale(gpu, x, 1, T, n); /* forgets it */
    be_matmul(gpu, again, &dw, x, T);
    settle("left behind by attention", dy, from_device(again, T * OUT), T * OUT, 0);
    be_release(gpu, again, 0);
    be_release(gpu, (void *)dw.data, 0);
    free(bytes);
}

/* The pages of n tokens, here and on the device; there what lies behind them is NaN. */
struct paged {
    uint16_t *all;
    uint8_t *dall, **host, **device;
};

static struct paged random_pages(const struct be_attn *a, size_t page, int64_t n)
{
    size_t pages = (size_t)(n + BE_PAGE - 1) / BE_PAGE;
    struct paged p = {.all = malloc(page * pages), .host = malloc(pages * sizeof *p.host)};
    for (size_t i = 0; i < page / 2 * pages; i++)
        p.all[i] = be_f32_to_f16(rng_normal());
    uint16_t *copy = malloc(page * pages), *last = copy + page / 2 * (pages - 1);
    memcpy(copy, p.all, page * pages);
    for (int h = 0; h < a->n_kv_head; h++)
        for (size_t k = (size_t)(n - 1) % BE_PAGE + 1; k < BE_PAGE; k++) {
            size_t row = (size_t)h * BE_PAGE + k;
            memset(last + row * (size_t)a->d, 0xff, (size_t)a->d * 2);
            memset(last + a->v_at / 2 + row * (size_t)a->dv, 0xff, (size_t)a->dv * 2);
        }
    p.dall = to_device(copy, page * pages);
    free(copy);
    uint8_t **device = malloc(pages * sizeof *device);
    for (size_t i = 0; i < pages; i++) {
        p.host[i] = (uint8_t *)p.all + page * i;
        device[i] = p.dall + page * i;
    }
    p.device = to_device(device, pages * sizeof *device);
    free(device);
    return p;
}

/* kind: bits of inputs_of. */
static void one_attention(struct be_attn a, int n_runs, const int64_t *rows, const int32_t *pos0)
{
    int64_t T = 0;
    int kind = (int)rng_below(8);
    struct be_attn_run runs[MOST_RUNS], druns[MOST_RUNS];
    struct paged pages[MOST_RUNS];
    int32_t row_run[MOST_ROWS], pos[MOST_ROWS];
    struct be_rows on_cpu = {.n_runs = n_runs, .row_run = row_run, .pos = pos, .runs = runs}, on_gpu;
    a.scale = 1 / sqrtf((float)a.d);
    a.v_at = (uint64_t)a.n_kv_head * BE_PAGE * (uint64_t)a.d * 2;
    size_t page = a.v_at + (size_t)a.n_kv_head * BE_PAGE * (size_t)a.dv * 2;
    for (int r = 0; r < n_runs; r++) {
        pages[r] = random_pages(&a, page, pos0[r] + rows[r]);
        runs[r] = (struct be_attn_run){T, rows[r], pos0[r], pages[r].host};
        druns[r] = (struct be_attn_run){T, rows[r], pos0[r], pages[r].device};
        for (int64_t i = 0; i < rows[r]; i++) {
            pos[T] = pos0[r] + (int32_t)i;
            row_run[T++] = r;
        }
        if (pos0[r] + rows[r] - 1 > on_cpu.max_pos)
            on_cpu.max_pos = pos0[r] + (int32_t)rows[r] - 1;
    }
    on_cpu.T = T;
    on_gpu = on_cpu;
    int64_t stride = kind & 1 ? 2 * a.d : a.d, n_q = T * a.n_head * a.d;
    int64_t n_k = T * a.n_kv_head * a.d, n_v = T * a.n_kv_head * a.dv,
            n_bias = (a.n_head + 2) * stride + a.n_head * a.dv;
    float *q = rng_floats(T * a.n_head * stride, 1), *k = rng_floats(n_k, 1), *v = rng_floats(n_v, 1);
    float *want = malloc((size_t)(T * a.n_head * a.dv) * sizeof *want), *bias = rng_floats(n_bias, 1);
    float *norm = rng_floats(2 * a.d, 1), *ready = malloc((size_t)n_q * sizeof *ready);
    float freq[BE_ATTN_MAX_D / 2];
    struct be_rope rope = {.n_rot = a.d / 4 * 2, .interleaved = rng() & 1, .freq = freq, .mscale = 1.1f},
                   drope = rope;
    for (int i = 0; i < rope.n_rot / 2; i++)
        freq[i] = powf(1e4f, -2.0f * (float)i / (float)rope.n_rot);
    on_gpu.max_pos += (int32_t)rng_below(300); /* may be higher than the highest */
    on_gpu.runs = to_device(druns, (size_t)n_runs * sizeof *druns);
    on_gpu.row_run = to_device(row_run, (size_t)T * sizeof *row_run);
    on_gpu.pos = to_device(pos, (size_t)T * sizeof *pos);
    drope.freq = floats_to_device(freq, rope.n_rot / 2);
    float *dq = floats_to_device(q, T * a.n_head * stride), *dk = floats_to_device(k, n_k),
          *dv = floats_to_device(v, n_v);
    float *dbias = floats_to_device(bias, n_bias), *dnorm = floats_to_device(norm, 2 * a.d);
    float *dready = poisoned(n_q), *dout = poisoned(T * a.n_head * a.dv);
    struct be_qkv in = inputs_of(&a, q, k, v, bias, norm, &rope, kind);
    struct be_qkv din = inputs_of(&a, dq, dk, dv, dbias, dnorm, &drope, kind);
    be_attn_inputs(cpu, ready, &in, &a, &on_cpu);
    be_attention(cpu, want, ready, &a, &on_cpu);
    be_attn_inputs(gpu, dready, &din, &a, &on_gpu);
    be_attention(gpu, dout, dready, &a, &on_gpu);
    if (a.n_head * a.dv <= RESERVED)
        left_behind(dout, T, a.n_head * a.dv);
    char what[200];
    snprintf(
        what, sizeof what,
        "attention: %d heads, %d of keys, d %d, dv %d, window %d, cap %g, %lld rows, highest position %d",
        a.n_head, a.n_kv_head, a.d, a.dv, a.window, (double)a.softcap, (long long)T, on_cpu.max_pos);
    settle(what, dout, want, T * a.n_head * a.dv, 2e-3);
    for (int r = 0; r < n_runs; r++) {
        be_release(gpu, pages[r].dall, 0);
        be_release(gpu, pages[r].device, 0);
        free(pages[r].all);
        free(pages[r].host);
    }
    be_release(gpu, (void *)on_gpu.runs, 0);
    void *device[] = {
        (void *)on_gpu.row_run, (void *)on_gpu.pos, (void *)drope.freq, dq, dk, dv, dbias, dnorm, dready};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        be_release(gpu, device[i], 0);
    void *host[] = {q, k, v, bias, norm, ready};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        free(host[i]);
}

static void attention(void **state)
{
    static const struct be_attn shapes[] = {
        {.n_head = 4, .n_kv_head = 1, .d = 64, .dv = 64},
        {.n_head = 32, .n_kv_head = 8, .d = 128, .dv = 128},
        {.n_head = 16, .n_kv_head = 8, .d = 128, .dv = 128},
        {.n_head = 8, .n_kv_head = 8, .d = 96, .dv = 96},
        {.n_head = 16, .n_kv_head = 2, .d = 256, .dv = 256},
        {.n_head = 24, .n_kv_head = 1, .d = 128, .dv = 64},
        {.n_head = 16, .n_kv_head = 4, .d = 192, .dv = 128},
        {.n_head = 4, .n_kv_head = 1, .d = 256, .dv = 256, .window = 512},
        {.n_head = 8, .n_kv_head = 4, .d = 64, .dv = 64, .window = 37},
        {.n_head = 8, .n_kv_head = 4, .d = 128, .dv = 128, .softcap = 20},
        {.n_head = 2, .n_kv_head = 1, .d = 512, .dv = 512},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int k = 0; k < 4; k++) {
            int64_t rows[] = {1, 1 + rng_below(40), 1};
            int32_t depth[] = {0, 255, 256, (int32_t)rng_below(5000)},
                    pos0[] = {depth[k], (int32_t)rng_below(600), 0};
            one_attention(shapes[i], 3, rows, pos0);
        }
}

/* Single rows: eight sequences of very different depths together, and each of some alone. */
static void attention_of_single_rows(void **state)
{
    static const int group[] = {1, 4, 5, 8, 16, 32}, d[] = {64, 80, 96, 128, 192, 256};
    static const int64_t one[MOST_RUNS] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const int32_t depth[] = {0, 30, 31, 32, 254, 255, 256, 4999};
    int n = 0;
    for (size_t g = 0; g < sizeof group / sizeof group[0]; g++)
        for (size_t i = 0; i < sizeof d / sizeof d[0]; i++, n++) {
            struct be_attn a = {.n_kv_head = group[g] < 8 ? 2 : 1, .d = d[i], .dv = d[i]};
            a.n_head = group[g] * a.n_kv_head;
            a.window = n % 4 == 2 ? 37 : n % 4 == 3 ? 512 : 0;
            a.softcap = n % 5 == 1 ? 20 : 0;
            one_attention(a, 8, one, depth);
            one_attention(a, 1, one, &depth[n % 8]);
            one_attention(a, 1, one, &(int32_t){(int32_t)rng_below(3000)});
        }
}

/* Prompts: few rows far into the keys, whose blocks share them, and many rows. */
static void attention_of_many_rows(void **state)
{
    static const int d[] = {64, 80, 96, 128, 256};
    for (size_t i = 0; i < sizeof d / sizeof d[0]; i++) {
        struct be_attn a = {.n_head = 12, .n_kv_head = 3, .d = d[i], .dv = d[i]};
        int64_t few[] = {20, 77}, many[] = {7, 390};
        int32_t deep[] = {3000, 1200}, first[] = {300, (int32_t)rng_below(700)};
        one_attention(a, 2, few, deep);
        a.window = 700;
        one_attention(a, 2, few, deep);
        a = (struct be_attn){.n_head = 32, .n_kv_head = 4, .d = d[i], .dv = d[i], .softcap = i == 0 ? 20 : 0};
        one_attention(a, 2, many, first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(attention_of_single_rows),
        cmocka_unit_test(attention_of_many_rows),
    };
    return device_tests("cuda attention", tests, sizeof tests / sizeof tests[0]);
}
