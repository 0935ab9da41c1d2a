/* Forward pass: one batch of rows through all layers.
 *
 * A row is (token, position) of a sequence; rows of one sequence are consecutive and form a run. K and V go into the
 * sequence's pages, recurrent state is advanced in place; logits are computed for flagged rows only. A row's result does
 * not depend on the other rows of the batch (the law of backend.h), so prompts may be cut anywhere and sequences mixed. */
#ifndef FORWARD_H
#define FORWARD_H

#include "model.h"
#include "pool.h"

/* The pools of a model's KV pages: n_pages of the layers that see everything (with room for the drafts' layers, if so told)
 * and of the recurrent snapshots, n_wpages of those with a window; *window is NULL when there are none. */
int fw_pools(struct kv **kv, struct kv **window, const struct model *m, struct be *be, bool drafts,
             uint32_t n_pages, uint32_t n_wpages, uint32_t n_snaps, struct vt_err *err);
/* The same as shapes for kv_new; window->n_attn is 0 when there is none. */
void fw_pool_shapes(struct kv_shape *all, struct kv_shape *window, const struct model *m, struct be *be,
                    bool drafts, uint32_t n_pages, uint32_t n_wpages, uint32_t n_snaps);

struct fw_run {
    int64_t row0, n_rows;
    int32_t pos0;          /* position of the first row */
    const uint32_t *pages; /* [at least (pos0 + n_rows) / BE_PAGE, rounded up] */
    const uint32_t *
        wpages; /* the same of the layers with a window, whose pages behind it are not looked at; NULL: none */
    float *state; /* model->state_floats, in the backend's memory; NULL when not hybrid */
};

struct fw_batch {
    int64_t n_rows;
    const uint32_t *ids; /* [n_rows] < n_vocab */
    const uint8_t *want; /* [n_rows] 1: logits of this row */
    const struct fw_run *runs;
    int n_runs;
    float *
        hidden; /* takes [n_rows][n_embd], what the output matrix is multiplied with; of this process; NULL: not wanted */
};

struct fw;

/* Buffers for batches of up to max_rows rows, max_runs runs and max_logits flagged rows. model (the uploaded one where the
 * backend has memory of its own), be and the pools are borrowed; window is the pool of the layers with a window, NULL when
 * there are none. */
int fw_new(struct fw **out, const struct model *m, struct be *be, struct kv *kv, struct kv *window,
           int64_t max_rows, int max_runs, int64_t max_logits, struct vt_err *err);
void fw_free(struct fw *f);
/* *logits: [flagged rows in order][n_vocab], of this process; valid until the next call. With logits NULL a device keeps them, and
 * what is wanted of them is asked for afterwards: fw_best, fw_row. VT_E_NOMEM, VT_E_DEVICE_MEM: no memory for page tables;
 * VT_E_DEVICE_LOST: the GPU failed, and the process has to end. */
int fw_forward(struct fw *f, const struct fw_batch *b, float **logits, struct vt_err *err);
/* The best of a flagged row after fw_forward without logits, as be_best finds them; valid until the next call. */
struct fw_best {
    const uint32_t *ids;
    const float *logits;
    uint32_t n; /* BE_BEST, or the whole vocabulary */
};
struct fw_best fw_best(const struct fw *f, int64_t row);
/* All logits of a flagged row, of this process; valid until the next fw_forward. VT_E_DEVICE_LOST. */
int fw_row(struct fw *f, int64_t row, const float **logits, struct vt_err *err);
/* The first draft block instead of the trunk: row (x, p) is the token at position p + 1 with the hidden vector of position
 * p (of the trunk, or of the draft before); logits are those of position p + 2. hidden: [n_rows][n_embd], may be
 * b->hidden. The pool must have room for the drafts' layers; state and wpages are not used. */
int fw_draft(struct fw *f, const struct fw_batch *b, const float *hidden, float **logits, struct vt_err *err);
/* Bytes of the buffers and of the backend's scratch that fw_new will take. */
uint64_t fw_plan(const struct model *m, int64_t max_rows, int64_t max_logits);
/* Bytes of the buffers. */
uint64_t fw_bytes(const struct fw *f);

#endif
