#include "engine.h"
#include "lab.h"
#include "opts.h"
#include "prompt.h"
#include "textfile.h"
#include "tool.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    const struct tok *tok;
    struct vt_err *err;
    bool done, failed, special;
    struct eng_usage usage;
};

static void on_accepted(void *arg, uint64_t handle, uint32_t slot, uint32_t reused, uint32_t queue_pos,
                        uint64_t seed)
{
}

static void on_refused(void *arg, uint64_t handle, const struct vt_err *why, uint32_t retry_ms)
{
    struct run *r = arg;
    *r->err = *why;
    r->done = r->failed = true;
}

static void on_prefill(void *arg, uint64_t handle, uint32_t done, uint32_t total, uint32_t reused) {}

/* Bytes go out as they come: a terminal puts the parts of a character together. */
static void on_token(void *arg, uint64_t handle, const struct eng_token *t)
{
    const struct run *r = arg;
    size_t len;
    if (tok_kind(r->tok, t->id) == TOK_CONTROL && !r->special)
        return;
    const uint8_t *bytes = tok_bytes(r->tok, t->id, &len);
    if (bytes)
        fwrite(bytes, 1, len, stdout);
    fflush(stdout);
}

static void on_done(void *arg, uint64_t handle, enum eng_done why, uint64_t emitted,
                    const struct eng_usage *usage, const struct vt_err *err)
{
    struct run *r = arg;
    r->done = true;
    r->failed = why == ENG_ERROR;
    r->usage = *usage;
    if (err)
        *r->err = *err;
}

static const struct eng_events events = {.accepted = on_accepted,
                                         .refused = on_refused,
                                         .prefill = on_prefill,
                                         .token = on_token,
                                         .done = on_done};

static double per_second(uint64_t n, uint64_t us)
{
    return us ? (double)n * 1e6 / (double)us : 0;
}

static void print_stats(const struct eng_usage *u)
{
    fprintf(stderr, "prompt %u tokens, %.1f tokens/s; answer %u tokens, %.1f tokens/s\n", u->prompt,
            per_second(u->prompt, u->prefill_us), u->generated,
            per_second(u->generated > 1 ? u->generated - 1 : 0, u->decode_us));
}

static int answer(struct run *r, struct eng_config *c, struct eng_request *q, bool stats, struct vt_err *err)
{
    struct eng *e;
    r->err = err;
    if (eng_real.load(&e, c, &events, r, err) < 0)
        return -1;
    eng_real.submit(e, q);
    while (!r->done && eng_real.step(e))
        ;
    eng_real.free(e);
    if (r->failed)
        return -1;
    putchar('\n');
    if (stats)
        print_stats(&r->usage);
    return ferror(stdout) ? vt_fail(err, VT_E_IO, "cannot write to standard output") : 0;
}

static int read_prompt(const struct tok *tok, const char *text, const char *file, const char *system,
                       bool raw, struct tok_ids *ids, struct vt_err *err)
{
    char *bytes = NULL;
    size_t len;
    if (file) {
        if (textfile_read(file, &bytes, &len, err) < 0)
            return -1;
        text = bytes;
    }
    int rc = raw ? tok_encode(tok, text, strlen(text), TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, ids, err)
                 : prompt_chat(tok, system, text, ids, err);
    free(bytes);
    return rc;
}

struct run_opts {
    const char *model, *text, *file, *system, *simd, *device;
    int64_t n, ctx, threads, ubatch, top_k, last_n, min_keep, seed;
    double temp, top_p, min_p, repeat, presence, frequency;
    bool raw, ignore_eos, special, stats;
};

static int parse(struct run_opts *o, int argc, char **argv, struct vt_err *err)
{
    const struct opt table[] = {
        {"-m", "--model", OPT_IN, &o->model, 0, 0, "GGUF file"},
        {"-p", "--prompt", OPT_STR, &o->text, 0, 0, "the question"},
        {"-f", "--file", OPT_IN, &o->file, 0, 0, "the question is in this file (-: standard input)"},
        {"-s", "--system", OPT_STR, &o->system, 0, 0, "system message"},
        {"--raw", NULL, OPT_FLAG, &o->raw, 0, 0, "no chat template: continue the text as it is"},
        {"-n", "--max-tokens", OPT_INT, &o->n, 1, 1 << 24, "most tokens of the answer (512)"},
        {"-c", "--ctx", OPT_INT, &o->ctx, 0, 1 << 24, "window in tokens (0: as much as is needed)"},
        {"-t", "--threads", OPT_INT, &o->threads, 0, 1024, "threads (0: one per core)"},
        {"--ubatch", NULL, OPT_INT, &o->ubatch, 1, 4096, "most prompt tokens in one step (256)"},
        {"--simd", NULL, OPT_STR, &o->simd, 0, 0, "auto, ref, sse2, avx, avx2 or avx512"},
        {"--device", NULL, OPT_STR, &o->device, 0, 0, "auto, cpu or gpu:0 (gpu:1 ...)"},
        {"--temp", NULL, OPT_FLOAT, &o->temp, 0, 0, "temperature (0.8); 0: always the likeliest token"},
        {"--top-k", NULL, OPT_INT, &o->top_k, 0, INT32_MAX, "keep the best k (40; 0: all)"},
        {"--top-p", NULL, OPT_FLOAT, &o->top_p, 0, 0,
         "keep the best that hold this probability (0.95; 1: all)"},
        {"--min-p", NULL, OPT_FLOAT, &o->min_p, 0, 0,
         "keep those within this ratio of the best (0.05; 0: all)"},
        {"--min-keep", NULL, OPT_INT, &o->min_keep, 0, INT32_MAX, "top-p and min-p leave so many (0)"},
        {"--repeat-penalty", NULL, OPT_FLOAT, &o->repeat, 0, 0, "divides logits of recent tokens (1: off)"},
        {"--presence-penalty", NULL, OPT_FLOAT, &o->presence, 0, 0, "taken from logits of recent tokens (0)"},
        {"--frequency-penalty", NULL, OPT_FLOAT, &o->frequency, 0, 0, "the same for every occurrence (0)"},
        {"--repeat-last-n", NULL, OPT_INT, &o->last_n, -1, 1 << 24,
         "how many tokens are recent (64; -1: all)"},
        {"--seed", NULL, OPT_INT, &o->seed, -1, INT64_MAX, "seed of the draws (-1: a new one)"},
        {"--ignore-eos", NULL, OPT_FLAG, &o->ignore_eos, 0, 0, "never end before -n tokens"},
        {"--special", NULL, OPT_FLAG, &o->special, 0, 0, "print control tokens"},
        {"--stats", NULL, OPT_FLAG, &o->stats, 0, 0, "speed, on standard error"},
        {0},
    };
    int rc = opts_parse(table, "run -m FILE (-p TEXT | -f FILE) [--raw] [-n N] …", argc, argv, NULL, err);
    if (rc != 0)
        return rc;
    if (!o->model)
        return vt_fail(err, VT_E_USAGE, "-m FILE is needed");
    if (!o->text == !o->file)
        return vt_fail(err, VT_E_USAGE,
                       o->text ? "-p TEXT and -f FILE exclude each other" : "-p TEXT or -f FILE is needed");
    if (o->raw && o->system)
        return vt_fail(err, VT_E_USAGE, "--system is part of a chat template and does not go with --raw");
    return 0;
}

static struct eng_request request(const struct run_opts *o, const struct tok_ids *ids)
{
    struct eng_request q = {.handle = 1,
                            .tenant = "default",
                            .slot = -1,
                            .ids = ids->ids,
                            .n_ids = ids->n,
                            .max_new = (uint32_t)o->n,
                            .credit = UINT32_MAX,
                            .state = NAN};
    struct vt_sampling *s = &q.sampling;
    vt_sampling_init(s);
    s->temperature = o->temp;
    s->top_k = o->top_k;
    s->top_p = o->top_p;
    s->min_p = o->min_p;
    s->min_keep = o->min_keep;
    s->repeat_penalty = o->repeat;
    s->presence_penalty = o->presence;
    s->frequency_penalty = o->frequency;
    s->repeat_last_n = o->last_n;
    s->seed = (uint64_t)o->seed;
    s->has_seed = o->seed >= 0;
    s->ignore_eos = o->ignore_eos;
    return q;
}

/* The window: what was asked for, or what the prompt and the answer need; whole pages. */
static uint32_t window(const struct run_opts *o, size_t n_ids)
{
    uint64_t need = o->ctx > 0 ? (uint64_t)o->ctx : (uint64_t)n_ids + (uint64_t)o->n;
    return (uint32_t)((need + ENG_PAGE - 1) / ENG_PAGE * ENG_PAGE);
}

int tool_run(int argc, char **argv, struct vt_err *err)
{
    struct run_opts o = {.simd = "auto",
                         .device = "auto",
                         .n = 512,
                         .ubatch = 256,
                         .top_k = 40,
                         .last_n = 64,
                         .seed = -1,
                         .temp = 0.8,
                         .top_p = 0.95,
                         .min_p = 0.05,
                         .repeat = 1};
    int rc = parse(&o, argc, argv, err), simd;
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    struct gguf_file *file;
    struct tok *tok = NULL;
    struct tok_ids ids = {0};
    if (lab_simd(o.simd, &simd, err) < 0 || gguf_open(&file, o.model, true, err) < 0)
        return -1;
    rc = tok_load(&tok, file, err);
    if (rc < 0)
        vt_fail_prefix(err, "%s", o.model);
    else
        rc = read_prompt(tok, o.text, o.file, o.system, o.raw, &ids, err);
    if (rc == 0) {
        struct eng_config c = {.model_path = o.model,
                               .slots = 1,
                               .ctx_tokens = window(&o, ids.n),
                               .ubatch = (uint32_t)o.ubatch,
                               .threads = (int)o.threads,
                               .simd = simd,
                               .device = o.device,
                               .reserve = SIZING_RESERVE,
                               .rec_snapshots = 1};
        struct eng_request q = request(&o, &ids);
        struct run r = {.tok = tok, .special = o.special};
        rc = answer(&r, &c, &q, o.stats, err);
    }
    tok_ids_fini(&ids);
    tok_free(tok);
    gguf_close(file);
    return rc;
}
