/* Tables: what the operations have to know of a batch beside its values: which token, position and run each row has, where
 * the pages and states of the runs are, which rows are wanted. Made on this processor, moved to the backend's memory in one
 * piece. */
#ifndef MODEL_TABLES_H
#define MODEL_TABLES_H

#include "forward.h"

struct tables {
    struct be *be;                /* borrowed */
    const struct kv *kv, *window; /* borrowed; window: NULL without such layers */
    int32_t window_tokens;        /* the largest window */
    int64_t max_rows;
    int max_runs;

    uint8_t *host, *dev; /* [bytes], the same on both sides; dev in the backend's memory */
    size_t bytes, used;
    uint16_t grown; /* how often dev has moved */

    /* of the present batch, in the backend's memory */
    const uint32_t *ids;               /* [rows] */
    const int32_t *wanted;             /* [n_wanted] rows */
    const struct be_delta_run *states; /* [n_runs], of the whole recurrent state */
    struct be_rows all, windowed;      /* for layers without and with a window */
    int64_t n_wanted;
};

int tables_init(struct tables *t, struct be *be, const struct kv *kv, const struct kv *window,
                int32_t window_tokens, int64_t max_rows, int max_runs, struct vt_err *err);
void tables_fini(struct tables *t); /* a zeroed one is fine */
/* VT_E_NOMEM, VT_E_DEVICE_MEM: for page tables, the only memory that grows, with the depth of the sequences. */
int tables_set(struct tables *t, const struct fw_batch *b, struct vt_err *err);
/* For be_begin: of a batch in which every row is the next token of a sequence; 0: of another one. whole: all logits are wanted. */
uint64_t tables_key(const struct tables *t, const struct fw_batch *b, bool whole);

#endif
