#include "eval.h"
#include "lab.h"
#include "npy.h"
#include "opts.h"
#include "score.h"
#include "textfile.h"
#include "tool.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct score {
    const struct lab *lab;
    const uint32_t *window;
    double nll;
    uint64_t count;
};

/* Adds -log p of the token behind each row. */
static int score_rows(void *arg, uint32_t pos0, const float *logits, uint32_t n, struct vt_err *err)
{
    struct score *s = arg;
    int32_t V = s->lab->model->n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        const float *row = logits + (int64_t)i * V;
        double nll = score_log_sum(row, (uint32_t)V) - (double)row[s->window[pos0 + i + 1]];
        if (!isfinite(nll))
            return vt_fail(err, VT_E_NOT_FINITE, "the model gave numbers that are not finite at position %u",
                           pos0 + i);
        s->nll += nll;
        s->count++;
    }
    return 0;
}

int eval_perplexity(struct lab *lab, uint32_t *ids, size_t n_ids, uint32_t ctx, uint32_t max_windows,
                    struct eval_result *out, struct vt_err *err)
{
    struct score s = {.lab = lab};
    uint64_t windows = n_ids / ctx;
    if (max_windows > 0 && windows > max_windows)
        windows = max_windows;
    if (windows == 0)
        return vt_fail(err, VT_E_PARAM, "the text has %zu tokens; at least one window of %u is needed", n_ids,
                       ctx);
    for (uint64_t w = 0; w < windows; w++) {
        lab_reset(lab);
        if (tok_adds_bos(lab->tok) &&
            tok_bos(lab->tok) >= 0) /* such models are lost without it; its row is never scored */
            ids[w * ctx] = (uint32_t)tok_bos(lab->tok);
        s.window = ids + w * ctx;
        /* the last token of a window is only predicted, never read */
        if (lab_feed(lab, 0, s.window, ctx - 1, ctx / 2, score_rows, &s, err) < 0)
            return -1;
    }
    *out = (struct eval_result){.windows = windows, .count = s.count, .nll = s.nll / (double)s.count};
    out->perplexity = exp(out->nll);
    return 0;
}

static void print_result(const struct eval_result *r, const char *path, uint32_t ctx, size_t n_ids,
                         const struct lab *lab, bool json)
{
    const char *simd = be_name(lab->be);
    if (!json) {
        printf("perplexity %.4f over %llu tokens in %llu windows of %u (second half of each scored)\n",
               r->perplexity, (unsigned long long)r->count, (unsigned long long)r->windows, ctx);
        return;
    }
    json_t *j = json_pack("{s:s, s:i, s:I, s:I, s:I, s:f, s:f, s:s, s:i, s:s}", "model", path, "ctx",
                          (int)ctx, "text_tokens", (json_int_t)n_ids, "windows", (json_int_t)r->windows,
                          "scored", (json_int_t)r->count, "nll", r->nll, "perplexity", r->perplexity, "simd",
                          simd, "threads", be_pool_threads(lab->pool), "kv", "f16");
    json_dumpf(j, stdout, JSON_INDENT(1));
    putchar('\n');
    json_decref(j);
}

static int eval_text(struct lab *lab, const char *path, const char *text, uint32_t ctx, uint32_t max_windows,
                     bool json, struct vt_err *err)
{
    struct tok_ids ids = {0};
    struct eval_result r;
    char *bytes;
    size_t len;
    if (textfile_read(text, &bytes, &len, err) < 0)
        return -1;
    int rc = tok_encode(lab->tok, bytes, len, TOK_ADD_SPECIAL, &ids, err);
    if (rc == 0)
        rc = eval_perplexity(lab, ids.ids, ids.n, ctx, max_windows, &r, err);
    if (rc == 0)
        print_result(&r, path, ctx, ids.n, lab, json);
    free(bytes);
    tok_ids_fini(&ids);
    return rc;
}

static int write_rows(void *arg, uint32_t pos0, const float *logits, uint32_t n, struct vt_err *err)
{
    return npy_rows(arg, logits, n, err);
}

static int check_ids(const struct lab *lab, const char *tokens, const struct tok_ids *ids, bool draft,
                     struct vt_err *err)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->ids[i] >= (uint32_t)lab->model->n_vocab)
            return vt_fail(err, VT_E_PARAM, "%s: token %u is outside of the vocabulary of %d", tokens,
                           ids->ids[i], lab->model->n_vocab);
    if (ids->n > lab->seqs[0].cap)
        return vt_fail(err, VT_E_WINDOW, "%s has %zu tokens; say --ctx %zu", tokens, ids->n, ids->n);
    if (draft && lab->model->n_drafts == 0)
        return vt_fail(err, VT_E_PARAM, "the model has no draft block; --draft is not possible");
    if (draft && ids->n < 2)
        return vt_fail(err, VT_E_PARAM, "%s has one token; a draft needs two", tokens);
    return 0;
}

static int eval_tokens(struct lab *lab, const char *tokens, const char *out, bool draft, struct vt_err *err)
{
    struct tok_ids ids = {0};
    struct npy npy;
    if (textfile_ids(tokens, &ids, err) < 0)
        return -1;
    int rc = check_ids(lab, tokens, &ids, draft, err);
    uint32_t n = (uint32_t)ids.n;
    if (rc == 0 && (rc = npy_create(&npy, out, draft ? n - 1 : n, (uint64_t)lab->model->n_vocab, err)) < 0)
        vt_fail_prefix(err, "--logits");
    if (rc == 0) {
        rc = draft ? lab_draft(lab, ids.ids, n, write_rows, &npy, err)
                   : lab_feed(lab, 0, ids.ids, n, 0, write_rows, &npy, err);
        rc = npy_close(&npy, rc == 0 ? err : NULL) < 0 ? -1 : rc;
    }
    tok_ids_fini(&ids);
    return rc;
}

int tool_eval(int argc, char **argv, struct vt_err *err)
{
    const char *model = NULL, *text = NULL, *tokens = NULL, *logits = NULL, *simd = "auto", *device = "auto";
    int64_t ctx = 512, threads = 0, ubatch = 256, windows = 0;
    bool json = false, draft = false;
    const struct opt table[] = {
        {"-m", "--model", OPT_IN, &model, 0, 0, "GGUF file"},
        {"--text", NULL, OPT_IN, &text, 0, 0, "text file: perplexity"},
        {"--tokens", NULL, OPT_IN, &tokens, 0, 0,
         "file of token ids (blanks or a JSON array between them): logits"},
        {"--logits", NULL, OPT_STR, &logits, 0, 0,
         "with --tokens: .npy file to write, float32, one row a position"},
        {"--draft", NULL, OPT_FLAG, &draft, 0, 0,
         "with --tokens: logits of the draft block, for all positions but the last"},
        {"-c", "--ctx", OPT_INT, &ctx, 2, 1 << 24, "window in tokens (512)"},
        {"--windows", NULL, OPT_INT, &windows, 0, INT32_MAX,
         "with --text: only the first so many windows (0: all)"},
        {"-t", "--threads", OPT_INT, &threads, 0, 1024, "threads (0: one per core)"},
        {"--ubatch", NULL, OPT_INT, &ubatch, 1, 4096,
         "most rows in one step (256); results do not depend on it"},
        {"--simd", NULL, OPT_STR, &simd, 0, 0, "auto, ref, sse2, avx, avx2 or avx512"},
        {"--device", NULL, OPT_STR, &device, 0, 0, "auto, cpu or gpu:0 (gpu:1 ...)"},
        {"--json", NULL, OPT_FLAG, &json, 0, 0, "machine-readable result"},
        {0},
    };
    int rc =
        opts_parse(table, "eval -m FILE (--text FILE | --tokens FILE --logits OUT.npy [--draft]) [--ctx N] …",
                   argc, argv, NULL, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!model)
        return vt_fail(err, VT_E_USAGE, "-m FILE is needed");
    if (!text == !tokens)
        return vt_fail(err, VT_E_USAGE,
                       text ? "--text FILE and --tokens FILE exclude each other"
                            : "--text FILE or --tokens FILE is needed");
    if (!tokens != !logits)
        return vt_fail(err, VT_E_USAGE, "--tokens FILE and --logits OUT.npy belong together");
    if (draft && !tokens)
        return vt_fail(err, VT_E_USAGE, "--draft belongs to --tokens");
    struct lab lab;
    struct lab_config c = {.path = model,
                           .device = device,
                           .threads = (int)threads,
                           .n_seqs = 1,
                           .ctx = (uint32_t)ctx,
                           .ubatch = (uint32_t)ubatch,
                           .logits = ubatch > 64 ? 64 : (uint32_t)ubatch};
    if (lab_simd(simd, &c.simd, err) < 0 || lab_open(&lab, &c, err) < 0)
        return -1;
    rc = text ? eval_text(&lab, model, text, (uint32_t)ctx, (uint32_t)windows, json, err)
              : eval_tokens(&lab, tokens, logits, draft, err);
    lab_close(&lab);
    return rc;
}
