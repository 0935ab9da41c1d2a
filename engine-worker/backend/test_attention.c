#include "test_util.h"

#define MAX_PAGES 6

/* A sequence with its pages; what was never written is NaN, so that reading it is seen. */
struct seq {
    struct be_attn a;
    int32_t len;
    float *q, *k, *v;
    uint8_t *pages[MAX_PAGES];
    struct guard guard[MAX_PAGES];
};

/* A batch of up to two runs. */
struct batch {
    struct be_attn_run runs[2];
    int32_t row_run[1024];
    struct be_rows rows;
};

static void new_pages(struct seq *s)
{
    int64_t n = (int64_t)s->a.n_kv_head * BE_PAGE * (s->a.d + s->a.dv);
    for (int i = 0; i < MAX_PAGES; i++) {
        s->guard[i] = guard_new(NULL, (size_t)n * sizeof(uint16_t));
        uint16_t *p = s->guard[i].p;
        for (int64_t k = 0; k < n; k++)
            p[k] = 0x7e00;
        s->pages[i] = s->guard[i].p;
    }
}

static void free_pages(struct seq *s)
{
    for (int i = 0; i < MAX_PAGES; i++)
        guard_free(&s->guard[i]);
}

static struct seq seq_new(struct be_attn a, int32_t len)
{
    struct seq s = {.a = a, .len = len};
    if (rng() & 1) /* either may be the one before the guard */
        s.a.v_at = (uint64_t)a.n_kv_head * BE_PAGE * (uint64_t)a.d * sizeof(uint16_t);
    else
        s.a.k_at = (uint64_t)a.n_kv_head * BE_PAGE * (uint64_t)a.dv * sizeof(uint16_t);
    s.q = rng_floats((int64_t)len * a.n_head * a.d, 1.0f);
    s.k = rng_floats((int64_t)len * a.n_kv_head * a.d, 1.0f);
    s.v = rng_floats((int64_t)len * a.n_kv_head * a.dv, 1.0f);
    new_pages(&s);
    return s;
}

static void seq_free(struct seq *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    free_pages(s);
}

static struct be_attn_run run_of(struct seq *s, int64_t row0, int32_t pos0, int64_t n)
{
    return (struct be_attn_run){.row0 = row0, .n_rows = n, .pos0 = pos0, .pages = s->pages};
}

static const struct be_rows *rows_of(struct batch *b, const struct be_attn_run *runs, int n_runs)
{
    b->rows = (struct be_rows){.n_runs = n_runs, .row_run = b->row_run, .runs = b->runs};
    for (int i = 0; i < n_runs; i++) {
        b->runs[i] = runs[i];
        for (int64_t t = 0; t < runs[i].n_rows; t++)
            b->row_run[b->rows.T++] = i;
    }
    assert_true(b->rows.T <= 1024);
    return &b->rows;
}

static void write_rows(struct be *b, struct seq *s, int32_t pos0, int64_t n)
{
    struct batch batch;
    struct be_attn_run r = run_of(s, 0, pos0, n);
    be_kv_write(b, &s->a, rows_of(&batch, &r, 1), s->k + (int64_t)pos0 * s->a.n_kv_head * s->a.d,
                s->v + (int64_t)pos0 * s->a.n_kv_head * s->a.dv);
}

/* One query in double over the values that the pages can hold. */
static void double_row(const struct seq *s, int32_t pos, int head, double *out, double *mag)
{
    const struct be_attn *a = &s->a;
    int kv = head / (a->n_head / a->n_kv_head);
    const float *q = s->q + ((int64_t)pos * a->n_head + head) * a->d;
    int32_t first = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    double *p = malloc((size_t)(pos + 1) * sizeof *p), max = -1e300, sum = 0;
    for (int32_t i = first; i <= pos; i++) {
        p[i] = 0;
        for (int c = 0; c < a->d; c++)
            p[i] += (double)q[c] *
                    (double)be_f16_to_f32(be_f32_to_f16(s->k[((int64_t)i * a->n_kv_head + kv) * a->d + c]));
        p[i] *= (double)a->scale;
        if (a->softcap > 0)
            p[i] = (double)a->softcap * tanh(p[i] / (double)a->softcap);
        max = fmax(max, p[i]);
    }
    for (int c = 0; c < a->dv; c++)
        out[c] = 0;
    *mag = 0;
    for (int32_t i = first; i <= pos; i++) {
        p[i] = exp(p[i] - max);
        sum += p[i];
        for (int c = 0; c < a->dv; c++)
            out[c] += p[i] * (double)be_f16_to_f32(
                                 be_f32_to_f16(s->v[((int64_t)i * a->n_kv_head + kv) * a->dv + c]));
    }
    for (int c = 0; c < a->dv; c++) {
        out[c] /= sum;
        *mag = fmax(*mag, fabs(out[c]));
    }
    free(p);
}

static const struct be_attn shapes[] = {
    {.n_head = 4, .n_kv_head = 2, .d = 64, .dv = 64, .scale = 0.125f},
    {.n_head = 6, .n_kv_head = 1, .d = 128, .dv = 128, .scale = 0.088f},
    {.n_head = 3, .n_kv_head = 3, .d = 40, .dv = 24, .scale = 0.5f, .window = 70},
    {.n_head = 2, .n_kv_head = 1, .d = 256, .dv = 256, .scale = 0.0625f, .window = 300, .softcap = 5.0f},
    {.n_head = 8, .n_kv_head = 2, .d = 6, .dv = 11, .scale = 1.0f, .softcap = 2.0f},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

/* Bound: 4e-6 of the largest value of the row, absolute 2e-6 (values are of order one). */
static void against_double(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        for (int k = 0; k < N_SHAPES; k++) {
            int32_t len = k == 0 ? 1 : 200 + (int32_t)rng_below(600);
            struct seq s = seq_new(shapes[k], len);
            struct rig r = rig_new(simd, 2);
            int64_t n_out = (int64_t)s.a.n_head * s.a.dv;
            float *out = malloc((size_t)(len * n_out) * sizeof *out);
            double want[256], mag;
            write_rows(r.b, &s, 0, len);
            struct batch batch;
            struct be_attn_run run = run_of(&s, 0, 0, len);
            be_attention(r.b, out, s.q, &s.a, rows_of(&batch, &run, 1));
            for (int32_t p = 0; p < len; p += 1 + (int32_t)rng_below(5)) {
                for (int h = 0; h < s.a.n_head; h++) {
                    double_row(&s, p, h, want, &mag);
                    for (int c = 0; c < s.a.dv; c++) {
                        double y = out[p * n_out + h * s.a.dv + c];
                        if (!(fabs(y - want[c]) <= 4e-6 * mag + 2e-6))
                            fail_msg("%s shape %d: position %d head %d channel %d is %.9g instead of %.9g",
                                     be_simd_name((enum be_simd)simd), k, p, h, c, y, want[c]);
                    }
                }
            }
            free(out);
            seq_free(&s);
            rig_free(&r);
        }
    }
}

/* The same rows in one call, in chunks of random sizes, beside another sequence, on other numbers of threads. */
static void chunks_and_neighbours_change_no_bit(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        for (int k = 0; k < N_SHAPES; k++) {
            int32_t len = 260 + (int32_t)rng_below(500), n;
            struct seq s = seq_new(shapes[k], len), chunked = s, other = seq_new(shapes[k], 300);
            struct rig one = rig_new(simd, 1), three = rig_new(simd, 3);
            int64_t n_q = (int64_t)s.a.n_head * s.a.d, n_out = (int64_t)s.a.n_head * s.a.dv;
            float *out = malloc((size_t)(len * n_out) * sizeof *out);
            float *q2 = malloc((size_t)((len + 40) * n_q) * sizeof *q2);
            float *out2 = malloc((size_t)((len + 40) * n_out) * sizeof *out2);
            new_pages(&chunked);
            write_rows(one.b, &s, 0, len);
            write_rows(one.b, &other, 0, 300);
            struct batch batch;
            struct be_attn_run whole = run_of(&s, 0, 0, len);
            be_attention(one.b, out, s.q, &s.a, rows_of(&batch, &whole, 1));
            for (int32_t p = 0; p < len; p += n) {
                n = rng() & 1 ? 1 : 1 + (int32_t)rng_below(len - p);
                int32_t beside = (int32_t)rng_below(40);
                write_rows(three.b, &chunked, p, n); /* later rows are still NaN */
                memcpy(q2, other.q, (size_t)(beside * n_q) * sizeof *q2);
                memcpy(q2 + beside * n_q, s.q + p * n_q, (size_t)(n * n_q) * sizeof *q2);
                struct be_attn_run runs[2] = {run_of(&other, 0, 17, beside), run_of(&chunked, beside, p, n)};
                be_attention(three.b, out2, q2, &s.a, rows_of(&batch, runs, 2));
                if (memcmp(out2 + beside * n_out, out + p * n_out, (size_t)(n * n_out) * sizeof *out) != 0)
                    fail_msg("%s shape %d: rows %d..%d differ when they come as a chunk beside %d others",
                             be_simd_name((enum be_simd)simd), k, p, p + n, beside);
            }
            free_pages(&chunked);
            free(out);
            free(out2);
            free(q2);
            seq_free(&s);
            seq_free(&other);
            rig_free(&one);
            rig_free(&three);
        }
    }
}

/* Scores of 10^4 and more: the exponent may not overflow, and one key takes all. */
static void large_scores(void **state)
{
    for (int simd = 0; simd <= (int)be_simd_best(); simd++) {
        struct be_attn a = {.n_head = 1, .n_kv_head = 1, .d = 16, .dv = 16, .scale = 1.0f};
        struct seq s = seq_new(a, 600);
        struct rig r = rig_new(simd, 1);
        for (int i = 0; i < 600 * 16; i++) {
            s.q[i] = 100;
            s.k[i] = i / 16 == 301 ? 60.0f : -60.0f;
        }
        float *out = malloc(600 * 16 * sizeof *out);
        write_rows(r.b, &s, 0, 600);
        struct batch batch;
        struct be_attn_run run = run_of(&s, 0, 0, 600);
        be_attention(r.b, out, s.q, &s.a, rows_of(&batch, &run, 1));
        for (int p = 301; p < 600; p++)
            for (int c = 0; c < 16; c++)
                assert_true(out[p * 16 + c] == be_f16_to_f32(be_f32_to_f16(s.v[301 * 16 + c])));
        free(out);
        seq_free(&s);
        rig_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_double),
        cmocka_unit_test(chunks_and_neighbours_change_no_bit),
        cmocka_unit_test(large_scores),
    };
    rng_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
