/* Lab: a model with a few sequences and no scheduler, for evaluation and measurement. One thread. */
#ifndef TOOL_LAB_H
#define TOOL_LAB_H

#include "forward.h"
#include "model.h"
#include "resident.h"
#include "seq.h"
#include "sizing.h"
#include "tokenizer.h"

struct lab_config {
    const char *path;
    int threads, simd;    /* as in be_pool_new and be_new */
    const char *device;   /* resident.h; NULL: "auto" */
    uint32_t n_seqs, ctx; /* sequences and the tokens of each */
    uint32_t ubatch;
    uint32_t logits; /* most rows with logits in a step */
};

struct lab {
    struct gguf_file *file;
    struct tok *tok;
    struct model *model;
    struct resident resident;
    struct be_pool *pool; /* of resident, as is be */
    struct be *be;
    struct kv *kv, *win; /* win: of the layers with a window; NULL: none */
    struct fw *fw;
    struct kv_seq *seqs;
    uint32_t n_seqs, ubatch, max_logits;
    uint8_t *want;
    struct fw_run *runs;
};

/* On failure nothing is held. */
int lab_open(struct lab *lab, const struct lab_config *c, struct vt_err *err);
void lab_close(struct lab *lab);
/* Empties all sequences. Nothing computed before is found again, so that a measurement measures. */
void lab_reset(struct lab *lab);

/* Called with logits [n][n_vocab] of the wanted rows whose first one is position pos0; non-zero stops. */
typedef int lab_rows(void *arg, uint32_t pos0, const float *logits, uint32_t n, struct vt_err *err);
/* Evaluates ids behind sequence `seq`, with logits for positions first_wanted and up (none: UINT32_MAX). */
int lab_feed(struct lab *lab, uint32_t seq, const uint32_t *ids, uint32_t n, uint32_t first_wanted,
             lab_rows *rows, void *arg, struct vt_err *err);
/* Evaluates ids behind sequence 0 with trunk and draft block; logits of the draft for each position p but the last: what
 * comes at p + 2, after the trunk's output at p and the token at p + 1. The model must have a draft block. */
int lab_draft(struct lab *lab, const uint32_t *ids, uint32_t n, lab_rows *rows, void *arg,
              struct vt_err *err);
/* One token for each of the first n sequences; ids become the likeliest of what follows. */
int lab_decode(struct lab *lab, uint32_t *ids, uint32_t n, struct vt_err *err);

/* -1, or enum be_simd; text is "auto", "ref", "sse2", … */
int lab_simd(const char *text, int *simd, struct vt_err *err);

#endif
