/* Whole models on a GPU beside the oracle and the CPU: random little ones of each kind, and the files that are named as
 * arguments. Without a GPU the test says so and counts as skipped (exit code 77). */
#include "forward.h"
#include "resident.h"
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

enum { N = 90, STEPS = 20, WIN = 768, GREEDY = 200, PROMPTS = 20 };

struct rig {
    struct resident at;
    struct kv *kv, *win;
    struct fw *fw;
    struct kv_seq seq;
};

static const uint8_t root[KV_NAME];

static void must(int rc, const struct vt_err *err)
{
    if (rc < 0)
        fail_msg("%s", err->text);
}

static void rig_open(struct rig *r, const struct model *m, const char *device)
{
    struct vt_err err;
    struct resident_config c = {.device = device, .simd = -1};
    *r = (struct rig){0};
    must(resident_open(&r->at, m, &c, &err), &err);
    must(fw_pools(&r->kv, &r->win, m, r->at.be, true, WIN / BE_PAGE, WIN / BE_PAGE, 0, &err), &err);
    must(fw_new(&r->fw, r->at.m, r->at.be, r->kv, r->win, N, 1, N, &err), &err);
    must(kv_seq_init(&r->seq, r->kv, r->win, (uint32_t)m->window, WIN, 0, &err), &err);
    kv_seq_clear(&r->seq, root);
}

static void rig_close(struct rig *r)
{
    kv_seq_fini(&r->seq);
    fw_free(r->fw);
    kv_free(r->kv);
    kv_free(r->win);
    resident_close(&r->at);
}

/* n rows behind the sequence; logits of all, valid until the next call. */
static const float *feed(struct rig *r, const uint32_t *ids, uint32_t n)
{
    struct vt_err err;
    struct kv_seq *s = &r->seq;
    uint8_t want[N];
    float *logits;
    memset(want, 1, sizeof want);
    assert_int_equal(kv_seq_room(s, n), n);
    struct fw_run run = {
        .n_rows = n, .pos0 = (int32_t)s->n, .pages = s->pages, .wpages = s->wpages, .state = s->state};
    struct fw_batch b = {.n_rows = n, .ids = ids, .want = want, .runs = &run, .n_runs = 1};
    must(fw_forward(r->fw, &b, &logits, &err), &err);
    kv_seq_advance(s, ids, n);
    return logits;
}

static uint32_t argmax(const float *x, size_t n)
{
    return (uint32_t)be_argmax(x, (int64_t)n);
}

/* One row as an engine evaluates it: the best first, then the row they are of. */
static const float *feed_best(struct rig *r, uint32_t id, size_t V)
{
    struct vt_err err;
    struct kv_seq *s = &r->seq;
    uint8_t want = 1;
    const float *logits;
    assert_int_equal(kv_seq_room(s, 1), 1);
    struct fw_run run = {
        .n_rows = 1, .pos0 = (int32_t)s->n, .pages = s->pages, .wpages = s->wpages, .state = s->state};
    struct fw_batch b = {.n_rows = 1, .ids = &id, .want = &want, .runs = &run, .n_runs = 1};
    must(fw_forward(r->fw, &b, NULL, &err), &err);
    struct fw_best best = fw_best(r->fw, 0);
    must(fw_row(r->fw, 0, &logits, &err), &err);
    assert_int_equal(best.ids[0], argmax(logits, V));
    assert_int_equal(best.n, V < BE_BEST ? V : BE_BEST);
    for (uint32_t i = 0; i < best.n; i++)
        assert_memory_equal(&best.logits[i], &logits[best.ids[i]], sizeof *logits);
    kv_seq_advance(s, &id, 1);
    return logits;
}

/* The first part as one prompt, the rest token by token: both ways of a matmul. */
static void all_logits(struct rig *r, const uint32_t *ids, size_t V, float *out)
{
    memcpy(out, feed(r, ids, N - STEPS), (N - STEPS) * V * sizeof *out);
    for (uint32_t i = N - STEPS; i < N; i++)
        memcpy(out + i * V, feed(r, ids + i, 1), V * sizeof *out);
}

static double distance(const float *got, const double *want, size_t n)
{
    double diff = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += want[i] * want[i];
    }
    return sqrt(diff / all);
}

static void every_kind_agrees_with_the_oracle(void **state)
{
    for (int k = 0; k < TINY_KINDS; k++) {
        struct gguf_file *f;
        struct model *m;
        struct vt_err err;
        struct rig gpu;
        uint32_t ids[N];
        const char *path = tiny_path(tiny_all[k]->arch);
        tiny_write(tiny_all[k], path);
        must(gguf_open(&f, path, false, &err), &err);
        unlink(path);
        must(model_load(&m, f, path, &err), &err);
        tiny_ids(ids, N, 256);
        size_t V = (size_t)m->n_vocab;
        float *got = malloc(N * V * sizeof *got);
        double *want = oracle_logits(f, ids, N);
        rig_open(&gpu, m, "gpu:0");
        all_logits(&gpu, ids, V, got);
        double prompt = distance(got, want, (N - STEPS) * V),
               steps = distance(got + (N - STEPS) * V, want + (N - STEPS) * V, STEPS * V);
        printf("%s: relative rms %.2g of a prompt, %.2g of single steps\n", tiny_all[k]->arch, prompt, steps);
        if (!(prompt <= 2e-2 && steps <= 4e-2)) /* f16 and int8 activations */
            fail_msg("%s is too far from the oracle", tiny_all[k]->arch);
        rig_close(&gpu);
        free(got);
        free(want);
        model_free(m);
        gguf_close(f);
    }
}

/* Whether both write the same greedy text behind a prompt; where they part, by how much the CPU preferred its own. */
static bool same_greedy(struct rig *cpu, struct rig *gpu, const uint32_t *ids, size_t V)
{
    kv_seq_clear(&cpu->seq, root);
    kv_seq_clear(&gpu->seq, root);
    const float *c = feed(cpu, ids, N), *g = feed(gpu, ids, N);
    c += (N - 1) * V;
    g += (N - 1) * V;
    for (int i = 0; i < GREEDY; i++) {
        uint32_t a = argmax(c, V), b = argmax(g, V);
        if (a != b) {
            printf("  greedy texts part at token %d: %u and %u, logits %.4f and %.4f on the CPU\n", i, a, b,
                   (double)c[a], (double)c[b]);
            assert_true(c[a] - c[b] < 0.35f);
            return false;
        }
        c = feed(cpu, &a, 1);
        g = feed_best(gpu, a, V);
    }
    return true;
}

static void compare_file(const char *path)
{
    struct gguf_file *f;
    struct model *m;
    struct vt_err err;
    struct rig cpu, gpu;
    uint32_t ids[PROMPTS * N];
    must(gguf_open(&f, path, false, &err), &err);
    must(model_load(&m, f, path, &err), &err);
    size_t V = (size_t)m->n_vocab, same = 0;
    int texts = 0;
    tiny_ids(ids, PROMPTS * N, (uint32_t)V);
    rig_open(&cpu, m, "cpu");
    rig_open(&gpu, m, "gpu:0");
    float *a = malloc(N * V * sizeof *a), *b = malloc(N * V * sizeof *b);
    double *want = malloc(N * V * sizeof *want);
    all_logits(&cpu, ids, V, a);
    all_logits(&gpu, ids, V, b);
    for (size_t i = 0; i < N * V; i++)
        want[i] = (double)a[i];
    for (size_t i = 0; i < N; i++)
        same += argmax(a + i * V, V) == argmax(b + i * V, V);
    printf("%s: relative rms %.2g beside the CPU, %zu of %d best tokens equal\n", path,
           distance(b, want, N * V), same, N);
    for (int k = 0; k < PROMPTS; k++)
        texts += same_greedy(&cpu, &gpu, ids + k * N, V);
    printf("  %d of %d greedy texts of %d tokens are the same\n", texts, PROMPTS, GREEDY);
    free(a);
    free(b);
    free(want);
    rig_close(&cpu);
    rig_close(&gpu);
    model_free(m);
    gguf_close(f);
}

static char **files; /* NULL at the end */

static void files_agree_with_the_cpu(void **state)
{
    for (char **p = files; *p; p++)
        compare_file(*p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_agrees_with_the_oracle),
        cmocka_unit_test(files_agree_with_the_cpu),
    };
    const char *why;
    files = argv + 1;
    if (gpu_count(&why) == 0) {
        printf("skipped: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests_name("gpu", tests, NULL, NULL);
}
