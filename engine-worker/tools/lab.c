#include "lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_model(struct lab *l, const struct lab_config *c, struct vt_err *err)
{
    if (gguf_open(&l->file, c->path, false, err) < 0)
        return -1;
    if (model_load(&l->model, l->file, c->path, err) < 0 || tok_load(&l->tok, l->file, err) < 0)
        return vt_fail_prefix(err, "%s", c->path);
    return 0;
}

static uint32_t rows_of(const struct lab_config *c)
{
    return c->ubatch > c->n_seqs ? c->ubatch : c->n_seqs;
}

static uint32_t logits_of(const struct lab_config *c)
{
    return c->logits > c->n_seqs ? c->logits : c->n_seqs;
}

static int make_resident(struct lab *l, const struct lab_config *c, struct vt_err *err)
{
    const struct model *m = l->model;
    uint64_t kv =
        kv_geo_bytes(m->attn_geo, m->n_attn + m->n_drafts) + kv_geo_bytes(m->window_geo, m->n_window);
    struct resident_config r = {
        .device = c->device ? c->device : "auto",
        .threads = c->threads,
        .simd = c->simd,
        .plan = {.kv = c->n_seqs * ((c->ctx + BE_PAGE - 1) / BE_PAGE * kv),
                 .work = c->n_seqs * m->state_floats * sizeof(float) + fw_plan(m, rows_of(c), logits_of(c)),
                 .code = SIZING_CODE,
                 .reserve = SIZING_RESERVE}};
    if (resident_open(&l->resident, m, &r, err) < 0)
        return -1;
    if (l->resident.note[0])
        fprintf(stderr, "on the CPU: %s\n", l->resident.note);
    l->be = l->resident.be;
    l->pool = l->resident.pool;
    return 0;
}

static int make_kv(struct lab *l, const struct lab_config *c, struct vt_err *err)
{
    uint32_t pages = c->n_seqs * ((c->ctx + BE_PAGE - 1) / BE_PAGE);
    return fw_pools(&l->kv, &l->win, l->model, l->be, true, pages, pages, 0, err);
}

static int make_seqs(struct lab *l, const struct lab_config *c, struct vt_err *err)
{
    uint32_t rows = rows_of(c);
    l->seqs = calloc(c->n_seqs, sizeof *l->seqs);
    l->runs = calloc(c->n_seqs, sizeof *l->runs);
    l->want = calloc(rows, 1);
    if (!l->seqs || !l->runs || !l->want)
        return vt_fail(err, VT_E_NOMEM, "out of memory for %u sequences", c->n_seqs);
    for (uint32_t i = 0; i < c->n_seqs; i++, l->n_seqs++)
        if (kv_seq_init(&l->seqs[i], l->kv, l->win, (uint32_t)l->model->window, c->ctx, 0, err) < 0)
            return -1;
    l->ubatch = c->ubatch;
    l->max_logits = logits_of(c);
    return fw_new(&l->fw, l->resident.m, l->be, l->kv, l->win, rows, (int)c->n_seqs, l->max_logits, err);
}

int lab_open(struct lab *lab, const struct lab_config *c, struct vt_err *err)
{
    *lab = (struct lab){0};
    if (open_model(lab, c, err) == 0 && make_resident(lab, c, err) == 0 && make_kv(lab, c, err) == 0 &&
        make_seqs(lab, c, err) == 0) {
        lab_reset(lab);
        return 0;
    }
    lab_close(lab);
    return -1;
}

void lab_close(struct lab *lab)
{
    for (uint32_t i = 0; i < lab->n_seqs; i++)
        kv_seq_fini(&lab->seqs[i]);
    free(lab->seqs);
    free(lab->runs);
    free(lab->want);
    fw_free(lab->fw);
    kv_free(lab->kv);
    kv_free(lab->win);
    resident_close(&lab->resident);
    tok_free(lab->tok);
    model_free(lab->model);
    gguf_close(lab->file);
    *lab = (struct lab){0};
}

void lab_reset(struct lab *lab)
{
    static const uint8_t root[KV_NAME];
    for (uint32_t i = 0; i < lab->n_seqs; i++)
        kv_seq_clear(&lab->seqs[i], root);
}

static int no_room(const struct kv_seq *s, uint32_t n, struct vt_err *err)
{
    return vt_fail(err, VT_E_WINDOW, "%u more tokens do not fit behind %u in a window of %u", n, s->n,
                   s->cap);
}

int lab_feed(struct lab *lab, uint32_t seq, const uint32_t *ids, uint32_t n, uint32_t first_wanted,
             lab_rows *rows, void *arg, struct vt_err *err)
{
    struct kv_seq *s = &lab->seqs[seq];
    while (n > 0) {
        uint32_t pos = s->n, part = kv_seq_cut(s, n < lab->ubatch ? n : lab->ubatch);
        uint32_t from = first_wanted > pos ? first_wanted - pos : 0; /* first row with logits */
        if (from > part)
            from = part;
        if (part - from > lab->max_logits)
            part = from + lab->max_logits;
        if (kv_seq_room(s, part) < part)
            return no_room(s, part, err);
        memset(lab->want, 0, from);
        memset(lab->want + from, 1, part - from);
        struct fw_run run = {
            .n_rows = part, .pos0 = (int32_t)pos, .pages = s->pages, .wpages = s->wpages, .state = s->state};
        struct fw_batch b = {.n_rows = part, .ids = ids, .want = lab->want, .runs = &run, .n_runs = 1};
        float *logits;
        if (fw_forward(lab->fw, &b, &logits, err) < 0)
            return -1;
        kv_seq_advance(s, ids, part);
        if (from < part && rows(arg, pos + from, logits, part - from, err) != 0)
            return -1;
        ids += part;
        n -= part;
    }
    return 0;
}

/* One part of lab_draft: rows whose next token is known. */
static int draft_rows(struct lab *lab, const uint32_t *ids, uint32_t n, float *hidden, float **logits,
                      struct vt_err *err)
{
    const struct kv_seq *s = &lab->seqs[0];
    struct fw_run run = {
        .n_rows = n, .pos0 = (int32_t)s->n, .pages = s->pages, .wpages = s->wpages, .state = s->state};
    struct fw_batch b = {
        .n_rows = n, .ids = ids, .want = lab->want, .runs = &run, .n_runs = 1, .hidden = hidden};
    memset(lab->want, 0, n);
    if (fw_forward(lab->fw, &b, logits, err) < 0)
        return -1;
    memset(lab->want, 1, n);
    b.ids = ids + 1;
    b.hidden = NULL;
    return fw_draft(lab->fw, &b, hidden, logits, err);
}

int lab_draft(struct lab *lab, const uint32_t *ids, uint32_t n, lab_rows *rows, void *arg, struct vt_err *err)
{
    struct kv_seq *s = &lab->seqs[0];
    uint32_t most = lab->ubatch < lab->max_logits ? lab->ubatch : lab->max_logits;
    float *hidden = malloc((size_t)most * (size_t)lab->model->n_embd * sizeof *hidden);
    int rc = hidden ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory for %u hidden vectors", most);
    for (uint32_t at = 0; rc == 0 && at + 1 < n;) {
        uint32_t part = n - 1 - at < most ? n - 1 - at : most, border = BE_PAGE - s->n % BE_PAGE;
        part = part < border ? part : border;
        if (kv_seq_room(s, part) < part) {
            rc = no_room(s, part, err);
            break;
        }
        float *logits;
        if ((rc = draft_rows(lab, ids + at, part, hidden, &logits, err)) < 0)
            break;
        kv_seq_advance(s, ids + at, part);
        rc = rows(arg, s->n - part, logits, part, err);
        at += part;
    }
    free(hidden);
    return rc;
}

int lab_decode(struct lab *lab, uint32_t *ids, uint32_t n, struct vt_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct kv_seq *s = &lab->seqs[i];
        if (kv_seq_room(s, 1) < 1) {
            no_room(s, 1, err);
            return -1;
        }
        lab->want[i] = 1;
        lab->runs[i] = (struct fw_run){.row0 = i,
                                       .n_rows = 1,
                                       .pos0 = (int32_t)s->n,
                                       .pages = s->pages,
                                       .wpages = s->wpages,
                                       .state = s->state};
    }
    struct fw_batch b = {.n_rows = n, .ids = ids, .want = lab->want, .runs = lab->runs, .n_runs = (int)n};
    if (fw_forward(lab->fw, &b, NULL, err) < 0)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        kv_seq_advance(&lab->seqs[i], &ids[i], 1);
        ids[i] = fw_best(lab->fw, i).ids[0];
    }
    return 0;
}

int lab_simd(const char *text, int *simd, struct vt_err *err)
{
    *simd = -1;
    if (strcmp(text, "auto") == 0)
        return 0;
    for (int i = BE_REF; i <= BE_AVX512; i++)
        if (strcmp(text, be_simd_name((enum be_simd)i)) == 0) {
            *simd = i;
            return 0;
        }
    return vt_fail(err, VT_E_USAGE, "--simd takes auto, ref, sse2, avx, avx2 or avx512, not \"%s\"", text);
}
