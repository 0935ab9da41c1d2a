/* The forward pass against the oracle, and the invariance law: the same bits however rows are batched. */
#include "forward.h"
#include "seq.h"
#include "tiny.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N    96
#define WIN  512
#define SEQS 8

struct bench {
    struct gguf_file *f;
    struct model *m;
    struct be_pool *pool;
    struct be *be;
    struct kv *kv, *win;
    struct fw *fw;
    struct kv_seq seqs[SEQS];
    uint32_t ids[WIN];
};

static const uint8_t root[KV_NAME];

static void setup(struct bench *b, const struct tiny *t, int simd, int threads)
{
    const char *path = tiny_path(t->arch);
    tiny_write(t, path);
    assert_int_equal(gguf_open(&b->f, path, false, NULL), 0);
    unlink(path);
    assert_int_equal(model_load(&b->m, b->f, path, NULL), 0);
    assert_int_equal(be_pool_new(&b->pool, threads, NULL), 0);
    assert_int_equal(be_new(&b->be, b->pool, simd, NULL), 0);
    assert_int_equal(
        fw_pools(&b->kv, &b->win, b->m, b->be, true, SEQS * WIN / BE_PAGE, SEQS * WIN / BE_PAGE, 0, NULL), 0);
    assert_int_equal(fw_new(&b->fw, b->m, b->be, b->kv, b->win, WIN, SEQS, WIN, NULL), 0);
    for (int i = 0; i < SEQS; i++) {
        assert_int_equal(kv_seq_init(&b->seqs[i], b->kv, b->win, (uint32_t)b->m->window, WIN, 0, NULL), 0);
        kv_seq_clear(&b->seqs[i], root);
    }
    tiny_ids(b->ids, WIN, 256);
}

static void teardown(struct bench *b)
{
    for (int i = 0; i < SEQS; i++)
        kv_seq_fini(&b->seqs[i]);
    fw_free(b->fw);
    kv_free(b->kv);
    kv_free(b->win);
    be_free(b->be);
    be_pool_free(b->pool);
    model_free(b->m);
    gguf_close(b->f);
}

/* Feeds n ids to sequence 0 in chunks; logits of every row go to out[n][V]. */
static void feed(struct bench *b, const uint32_t *ids, uint32_t n, uint32_t chunk, float *out)
{
    struct kv_seq *s = &b->seqs[0];
    uint8_t want[WIN];
    memset(want, 1, sizeof want);
    for (uint32_t done = 0; done < n;) {
        uint32_t part = n - done < chunk ? n - done : chunk, border = BE_PAGE - s->n % BE_PAGE;
        part = part < border ? part : border;
        assert_int_equal(kv_seq_room(s, part), part);
        struct fw_run run = {
            .n_rows = part, .pos0 = (int32_t)s->n, .pages = s->pages, .wpages = s->wpages, .state = s->state};
        struct fw_batch batch = {.n_rows = part, .ids = ids + done, .want = want, .runs = &run, .n_runs = 1};
        float *logits;
        assert_int_equal(fw_forward(b->fw, &batch, &logits, NULL), 0);
        memcpy(out + (size_t)done * (size_t)b->m->n_vocab, logits,
               (size_t)part * (size_t)b->m->n_vocab * sizeof *out);
        kv_seq_advance(s, ids + done, part);
        done += part;
    }
}

static float *buffer(struct bench *b, uint32_t rows)
{
    float *p = malloc((size_t)rows * (size_t)b->m->n_vocab * sizeof *p);
    assert_non_null(p);
    return p;
}

static void agrees(const struct tiny *t, int simd, uint32_t n)
{
    struct bench b;
    setup(&b, t, simd, 2);
    uint32_t V = (uint32_t)b.m->n_vocab;
    double *want = oracle_logits(b.f, b.ids, n), d2 = 0, w2 = 0;
    float *got = buffer(&b, n);
    feed(&b, b.ids, n, n, got);
    for (uint32_t i = 0; i < n * V; i++) {
        d2 += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        w2 += want[i] * want[i];
    }
    /* rows whose two best logits are nearer to each other than the error may swap: none with these seeds */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = 0;
        for (uint32_t j = 1; j < V; j++)
            if (want[i * V + j] > want[i * V + best])
                best = j;
        assert_int_equal(be_argmax(got + (size_t)i * V, V), best);
    }
    print_message("%s, %s: relative rms %.2e\n", t->arch, be_simd_name(be_simd_of(b.be)), sqrt(d2 / w2));
    assert_true(sqrt(d2 / w2) < 5e-4);
    free(want);
    free(got);
    teardown(&b);
}

/* The window of gemma3 begins to move at 300. */
static void every_kind_agrees_with_the_oracle(void **state)
{
    for (int i = 0; i < TINY_KINDS; i++) {
        agrees(tiny_all[i], BE_REF, N);
        agrees(tiny_all[i], -1, tiny_all[i]->window ? 400 : N);
    }
}

static void chunks(const struct tiny *t, int simd)
{
    static const uint32_t sizes[] = {1, 7, 64, 255};
    enum { LONG = 500 }; /* over a page border, and beyond a window */
    struct bench b;
    setup(&b, t, simd, 2);
    size_t bytes = (size_t)LONG * (size_t)b.m->n_vocab * sizeof(float);
    float *want = buffer(&b, LONG), *got = buffer(&b, LONG);
    feed(&b, b.ids, LONG, WIN, want);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kv_seq_clear(&b.seqs[0], root);
        feed(&b, b.ids, LONG, sizes[i], got);
        assert_memory_equal(got, want, bytes);
    }
    free(want);
    free(got);
    teardown(&b);
}

static void chunk_size_changes_no_bit(void **state)
{
    for (int i = 0; i < TINY_KINDS; i++)
        chunks(tiny_all[i], -1);
    chunks(&tiny_gemma3, BE_REF);
    chunks(&tiny_qwen35, BE_REF);
}

/* Eight sequences in one batch, of different lengths and depths; each row as if alone. */
static void neighbours(const struct tiny *t)
{
    enum { DEPTH = 40 };
    struct bench b;
    setup(&b, t, -1, 2);
    size_t V = (size_t)b.m->n_vocab;
    float *want[SEQS], *got;
    for (uint32_t s = 0; s < SEQS; s++) {
        kv_seq_clear(&b.seqs[0], root);
        want[s] = buffer(&b, DEPTH);
        feed(&b, b.ids + s, DEPTH, WIN, want[s]);
    }
    kv_seq_clear(&b.seqs[0], root);
    for (uint32_t step = 0; step < DEPTH;
         step++) { /* sequence s joins at step s with s + 1 rows, then one a step */
        struct fw_run runs[SEQS];
        uint32_t ids[64], rows = 0;
        uint8_t want_row[64];
        int n = 0;
        for (uint32_t s = 0; s < SEQS && s <= step; s++) {
            struct kv_seq *q = &b.seqs[s];
            uint32_t part = s == step ? s + 1 : 1;
            if (q->n + part > DEPTH)
                continue;
            kv_seq_room(q, part);
            runs[n++] = (struct fw_run){.row0 = rows,
                                        .n_rows = part,
                                        .pos0 = (int32_t)q->n,
                                        .pages = q->pages,
                                        .wpages = q->wpages,
                                        .state = q->state};
            memcpy(ids + rows, b.ids + s + q->n, part * sizeof *ids);
            memset(want_row + rows, 1, part);
            rows += part;
        }
        struct fw_batch batch = {.n_rows = rows, .ids = ids, .want = want_row, .runs = runs, .n_runs = n};
        assert_int_equal(fw_forward(b.fw, &batch, &got, NULL), 0);
        for (int i = 0, s = 0; i < n; i++, s++) {
            while (b.seqs[s].pages != runs[i].pages)
                s++;
            assert_memory_equal(got + (size_t)runs[i].row0 * V, want[s] + (size_t)runs[i].pos0 * V,
                                (size_t)runs[i].n_rows * V * sizeof(float));
            kv_seq_advance(&b.seqs[s], ids + runs[i].row0, (uint32_t)runs[i].n_rows);
        }
    }
    for (int s = 0; s < SEQS; s++)
        free(want[s]);
    teardown(&b);
}

static void neighbours_change_no_bit(void **state)
{
    for (int i = 0; i < TINY_KINDS; i++)
        neighbours(tiny_all[i]);
}

static void threads_change_no_bit(void **state)
{
    struct bench b;
    float *want, *got;
    setup(&b, &tiny_qwen35, -1, 1);
    size_t bytes = N * (size_t)b.m->n_vocab * sizeof(float);
    want = buffer(&b, N);
    got = buffer(&b, N);
    feed(&b, b.ids, N, N, want);
    teardown(&b);
    setup(&b, &tiny_qwen35, -1, 3);
    feed(&b, b.ids, N, N, got);
    assert_memory_equal(got, want, bytes);
    free(want);
    free(got);
    teardown(&b);
}

static void only_flagged_rows_give_logits(void **state)
{
    struct bench b;
    setup(&b, &tiny_qwen35, -1, 1);
    size_t V = (size_t)b.m->n_vocab;
    float *all = buffer(&b, 10);
    feed(&b, b.ids, 10, 10, all);
    struct kv_seq *s = &b.seqs[1];
    kv_seq_room(s, 10);
    uint8_t want[10] = {0, 0, 1, 0, 0, 0, 1, 0, 0, 1};
    struct fw_run run = {.n_rows = 10, .pages = s->pages, .wpages = s->wpages, .state = s->state};
    struct fw_batch batch = {.n_rows = 10, .ids = b.ids, .want = want, .runs = &run, .n_runs = 1};
    float *some;
    assert_int_equal(fw_forward(b.fw, &batch, &some, NULL), 0);
    assert_memory_equal(some, all + 2 * V, V * sizeof(float));
    assert_memory_equal(some + V, all + 6 * V, V * sizeof(float));
    assert_memory_equal(some + 2 * V, all + 9 * V, V * sizeof(float));

    static const int flagged[] = {2, 6, 9}; /* the same row by row, with the best of each */
    kv_seq_room(&b.seqs[2], 10);
    run.pages = b.seqs[2].pages;
    run.state = b.seqs[2].state;
    assert_int_equal(fw_forward(b.fw, &batch, NULL, NULL), 0);
    for (int i = 2; i >= 0; i--) {
        const float *row, *first = all + flagged[i] * (int64_t)V;
        struct fw_best best = fw_best(b.fw, i);
        assert_int_equal(fw_row(b.fw, i, &row, NULL), 0);
        assert_memory_equal(row, first, V * sizeof *row);
        assert_int_equal(best.ids[0], be_argmax(first, (int64_t)V));
        assert_int_equal(best.n, BE_BEST);
        for (uint32_t k = 0; k < best.n; k++)
            assert_memory_equal(&best.logits[k], &first[best.ids[k]], sizeof *row);
    }
    free(all);
    teardown(&b);
}

/* Hidden vectors and drafts by chunks of any size: the same bits as in one batch. */
static void drafts(struct bench *b, uint32_t chunk, float *hidden, float *out)
{
    enum { ROWS = 70 };
    size_t V = (size_t)b->m->n_vocab, E = (size_t)b->m->n_embd;
    uint8_t none[ROWS] = {0}, all[ROWS];
    struct kv_seq *s = &b->seqs[0];
    memset(all, 1, sizeof all);
    kv_seq_clear(s, root);
    for (uint32_t at = 0; at < ROWS; at += chunk) {
        uint32_t part = ROWS - at < chunk ? ROWS - at : chunk;
        kv_seq_room(s, part);
        struct fw_run run = {.n_rows = part, .pos0 = (int32_t)at, .pages = s->pages, .state = s->state};
        struct fw_batch batch = {.n_rows = part,
                                 .ids = b->ids + at,
                                 .want = none,
                                 .runs = &run,
                                 .n_runs = 1,
                                 .hidden = hidden + at * E};
        float *logits;
        assert_int_equal(fw_forward(b->fw, &batch, &logits, NULL), 0);
        batch.ids++;
        batch.want = all;
        batch.hidden = NULL;
        assert_int_equal(fw_draft(b->fw, &batch, hidden + at * E, &logits, NULL), 0);
        memcpy(out + at * V, logits, part * V * sizeof *out);
        kv_seq_advance(s, b->ids + at, part);
    }
}

static void chunks_change_no_bit_of_a_draft(void **state)
{
    struct bench b;
    setup(&b, &tiny_qwen35, -1, 2);
    size_t n = 70 * (size_t)b.m->n_vocab, e = 70 * (size_t)b.m->n_embd;
    float *h0 = malloc(e * sizeof *h0), *h1 = malloc(e * sizeof *h1);
    float *want = buffer(&b, 70), *got = buffer(&b, 70);
    drafts(&b, 70, h0, want);
    drafts(&b, 9, h1, got);
    assert_memory_equal(h0, h1, e * sizeof *h0);
    assert_memory_equal(want, got, n * sizeof *want);
    free(h0);
    free(h1);
    free(want);
    free(got);
    teardown(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_agrees_with_the_oracle),
        cmocka_unit_test(chunk_size_changes_no_bit),
        cmocka_unit_test(neighbours_change_no_bit),
        cmocka_unit_test(chunks_change_no_bit_of_a_draft),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(only_flagged_rows_give_logits),
    };
    return cmocka_run_group_tests_name("forward", tests, NULL, NULL);
}
