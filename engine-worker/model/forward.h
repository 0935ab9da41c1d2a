/* Forward pass: one batch of rows through all layers.
 *
 * A row is (token, position) of a sequence; rows of one sequence are consecutive and form a run. K and V go into the
 * sequence's pages, recurrent state is advanced in place; logits are computed for flagged rows only. A row's result does
 * not depend on the other rows of the batch (the law of backend.h), so prompts may be cut anywhere and sequences mixed. */
#ifndef FORWARD_H
#define FORWARD_H

#include "model.h"
#include "pool.h"

struct fw_run {
    int64_t row0, n_rows;
    int32_t pos0;          /* position of the first row */
    const uint32_t *pages; /* [at least (pos0 + n_rows) / BE_PAGE, rounded up] */
    float *state;          /* model->state_floats; NULL when not hybrid */
};

struct fw_batch {
    int64_t n_rows;
    const uint32_t *ids; /* [n_rows] < n_vocab */
    const uint8_t *want; /* [n_rows] 1: logits of this row */
    const struct fw_run *runs;
    int n_runs;
};

struct fw;

/* Buffers for batches of up to max_rows rows, max_runs runs and max_logits flagged rows. model, be and kv are borrowed. */
int fw_new(struct fw **out, const struct model *m, struct be *be, struct kv *kv, int64_t max_rows,
           int max_runs, int64_t max_logits, struct vt_err *err);
void fw_free(struct fw *f);
/* Returns logits [flagged rows in order][n_vocab]; valid until the next call. */
float *fw_forward(struct fw *f, const struct fw_batch *b);
/* Bytes of the buffers. */
uint64_t fw_bytes(const struct fw *f);

#endif
