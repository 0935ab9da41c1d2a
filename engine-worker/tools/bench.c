#include "clock.h"
#include "lab.h"
#include "opts.h"
#include "tool.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct plan {
    struct opt_list depths, batches;
    uint32_t prompt, gen, repeats;
};

struct result {
    uint32_t depth, batch;
    double prefill, prefill_min, prefill_max; /* tokens/s, all sequences together */
    double decode, decode_min, decode_max;
};

#define REPEATS_MAX 100

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, uint32_t n, double *min, double *max)
{
    qsort(v, n, sizeof *v, ascending);
    *min = v[0];
    *max = v[n - 1];
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Some ids, the same in every run, no two sequences alike. */
static void fill_ids(uint32_t *ids, uint32_t n, uint32_t seq, uint32_t n_vocab)
{
    uint64_t x = 0x9E3779B97F4A7C15u * (seq + 1);
    for (uint32_t i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (uint32_t)(x >> 33) % n_vocab;
    }
}

static int no_rows(void *arg, uint32_t pos0, const float *logits, uint32_t n, struct vt_err *err)
{
    return 0;
}

static int feed_all(struct lab *lab, uint32_t batch, uint32_t *ids, uint32_t n, bool last_logits,
                    struct vt_err *err)
{
    for (uint32_t s = 0; s < batch && n > 0; s++) {
        fill_ids(ids, n, s, (uint32_t)lab->model->n_vocab);
        uint32_t wanted = last_logits ? lab->seqs[s].n + n - 1 : UINT32_MAX;
        if (lab_feed(lab, s, ids, n, wanted, no_rows, NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* One measurement: fill to the depth (not timed), then the prompt, then token by token. */
static int measure(struct lab *lab, const struct plan *p, uint32_t depth, uint32_t batch, double *prefill,
                   double *decode, uint32_t *ids, struct vt_err *err)
{
    struct vt_clock clock = vt_clock_real();
    lab_reset(lab);
    if (feed_all(lab, batch, ids, depth, false, err) < 0)
        return -1;
    uint64_t t0 = vt_mono(&clock);
    if (feed_all(lab, batch, ids, p->prompt, true, err) < 0)
        return -1;
    uint64_t t1 = vt_mono(&clock);
    fill_ids(ids, batch, 0, (uint32_t)lab->model->n_vocab);
    for (uint32_t i = 0; i < p->gen; i++)
        if (lab_decode(lab, ids, batch, err) < 0)
            return -1;
    uint64_t t2 = vt_mono(&clock);
    *prefill = (double)p->prompt * batch * 1e6 / (double)(t1 - t0 ? t1 - t0 : 1);
    *decode = (double)p->gen * batch * 1e6 / (double)(t2 - t1 ? t2 - t1 : 1);
    return 0;
}

static int measure_all(struct lab *lab, const struct plan *p, struct result *r, uint32_t *ids,
                       struct vt_err *err)
{
    double prefill[REPEATS_MAX], decode[REPEATS_MAX], warm[2];
    if (measure(lab, p, r->depth, r->batch, &warm[0], &warm[1], ids, err) < 0)
        return -1;
    for (uint32_t i = 0; i < p->repeats; i++)
        if (measure(lab, p, r->depth, r->batch, &prefill[i], &decode[i], ids, err) < 0)
            return -1;
    r->prefill = median(prefill, p->repeats, &r->prefill_min, &r->prefill_max);
    r->decode = median(decode, p->repeats, &r->decode_min, &r->decode_max);
    return 0;
}

static json_t *to_json(const struct result *r, const struct plan *p)
{
    json_t *j = json_pack("{s:i, s:i, s:i, s:i}", "depth", (int)r->depth, "batch", (int)r->batch,
                          "prompt_tokens", (int)p->prompt, "decode_steps", (int)p->gen);
    json_t *pre =
        json_pack("{s:f, s:f, s:f}", "median", r->prefill, "min", r->prefill_min, "max", r->prefill_max);
    json_t *dec =
        json_pack("{s:f, s:f, s:f}", "median", r->decode, "min", r->decode_min, "max", r->decode_max);
    if (p->prompt > 0)
        json_object_set(j, "prefill_tokens_per_s", pre);
    if (p->gen > 0)
        json_object_set(j, "decode_tokens_per_s", dec);
    json_decref(pre);
    json_decref(dec);
    return j;
}

static void print_text(const struct result *r, const struct plan *p)
{
    printf("depth %6u  batch %2u", r->depth, r->batch);
    if (p->prompt > 0)
        printf("  prefill %9.1f t/s", r->prefill);
    if (p->gen > 0)
        printf("  decode %9.1f t/s (%.1f a sequence)", r->decode, r->decode / r->batch);
    putchar('\n');
    fflush(stdout);
}

static json_t *describe(const struct lab *lab, const char *path, const struct plan *p, char **argv, int argc)
{
    json_t *flags = json_array();
    for (int i = 1; i < argc; i++)
        json_array_append_new(flags, json_string(argv[i]));
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:s, s:i, s:i, s:s, s:i, s:s, s:o}", "program", "vitriol-tool bench",
        "model", path, "arch", lab->model->arch, "params", (json_int_t)lab->model->n_params, "model_bytes",
        (json_int_t)lab->model->bytes, "simd", be_name(lab->be), "threads", be_pool_threads(lab->pool),
        "ubatch", (int)lab->ubatch, "kv", "f16", "repeats", (int)p->repeats, "method",
        "median of the repeats after one warm-up; depth is filled before the clock starts; tokens/s of all "
        "sequences together",
        "flags", flags);
}

static int run(struct lab *lab, const struct plan *p, json_t *results, struct vt_err *err)
{
    uint32_t most = p->prompt > 256 ? p->prompt : 256;
    for (int i = 0; i < p->depths.n; i++)
        most = p->depths.v[i] > most ? (uint32_t)p->depths.v[i] : most;
    uint32_t *ids = malloc(most * sizeof *ids);
    if (!ids)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    int rc = 0;
    for (int d = 0; d < p->depths.n && rc == 0; d++)
        for (int b = 0; b < p->batches.n && rc == 0; b++) {
            struct result r = {.depth = (uint32_t)p->depths.v[d], .batch = (uint32_t)p->batches.v[b]};
            rc = measure_all(lab, p, &r, ids, err);
            if (rc == 0 && results)
                json_array_append_new(results, to_json(&r, p));
            else if (rc == 0)
                print_text(&r, p);
        }
    free(ids);
    return rc;
}

int tool_bench(int argc, char **argv, struct vt_err *err)
{
    const char *model = NULL, *simd = "auto", *device = "auto";
    int64_t prompt = 512, gen = 128, threads = 0, repeats = 5, ubatch = 256;
    struct plan p = {.depths = {{0}, 1}, .batches = {{1}, 1}};
    bool json = false;
    const struct opt table[] = {
        {"-m", "--model", OPT_IN, &model, 0, 0, "GGUF file"},
        {"-p", "--prompt", OPT_INT, &prompt, 0, 1 << 20, "tokens to prefill (512)"},
        {"-n", "--gen", OPT_INT, &gen, 0, 1 << 20, "tokens to decode, one by one (128)"},
        {"-d", "--depth", OPT_INTS, &p.depths, 0, 1 << 20, "tokens in the cache before (0); a list"},
        {"-b", "--batch", OPT_INTS, &p.batches, 1, 256, "sequences at once (1); a list"},
        {"-t", "--threads", OPT_INT, &threads, 0, 1024, "threads (0: one per core)"},
        {"--ubatch", NULL, OPT_INT, &ubatch, 1, 4096, "most rows in one step (256)"},
        {"--repeats", NULL, OPT_INT, &repeats, 1, REPEATS_MAX,
         "measurements, of which the median is told (5)"},
        {"--simd", NULL, OPT_STR, &simd, 0, 0, "auto, ref, sse2, avx, avx2 or avx512"},
        {"--device", NULL, OPT_STR, &device, 0, 0, "auto, cpu or gpu:0 (gpu:1 ...)"},
        {"--json", NULL, OPT_FLAG, &json, 0, 0, "machine-readable result"},
        {0},
    };
    int rc =
        opts_parse(table, "bench -m FILE [-p N] [-n N] [-d N,…] [-b N,…] [-t N] …", argc, argv, NULL, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!model)
        return vt_fail(err, VT_E_USAGE, "-m FILE is needed");
    if (prompt == 0 && gen == 0)
        return vt_fail(err, VT_E_USAGE, "-p 0 and -n 0: nothing to measure");
    p.prompt = (uint32_t)prompt;
    p.gen = (uint32_t)gen;
    p.repeats = (uint32_t)repeats;
    int64_t depth = 0, batch = 1;
    for (int i = 0; i < p.depths.n; i++)
        depth = p.depths.v[i] > depth ? p.depths.v[i] : depth;
    for (int i = 0; i < p.batches.n; i++)
        batch = p.batches.v[i] > batch ? p.batches.v[i] : batch;
    struct lab lab;
    struct lab_config c = {.path = model,
                           .device = device,
                           .threads = (int)threads,
                           .n_seqs = (uint32_t)batch,
                           .ctx = (uint32_t)(depth + prompt + gen + 1),
                           .ubatch = (uint32_t)ubatch,
                           .logits = (uint32_t)batch};
    if (lab_simd(simd, &c.simd, err) < 0 || lab_open(&lab, &c, err) < 0)
        return -1;
    json_t *results = json ? json_array() : NULL;
    rc = run(&lab, &p, results, err);
    if (json && rc == 0) {
        json_t *j = describe(&lab, model, &p, argv, argc);
        json_object_set(j, "results", results);
        json_dumpf(j, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(j);
    }
    json_decref(results);
    lab_close(&lab);
    return rc;
}
