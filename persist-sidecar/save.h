/* One open save, shared by save.c (begin, end), write.c (pieces into blobs) and commit.c (the last
 * transaction). */
#ifndef STORE_SAVE_H
#define STORE_SAVE_H

#include "db.h"

enum save_phase { SAVE_IDLE, SAVE_ROW, SAVE_BYTES };

struct save_unit { /* one block or snapshot of the save */
    const uint8_t *name, *parent;
    enum ckpt_kind kind;
    uint32_t pos, ntok;
    uint64_t bytes;
    bool need, done;
};

struct save {
    struct store *s;
    char tenant[STORE_TENANT_MAX + 1];
    char name[STORE_NAME_MAX + 1];
    uint32_t slot, block_tokens, n_items, n_names, n_rec;
    uint64_t kv_bytes, rec_bytes;
    enum ckpt_reason reason;
    uint8_t fp[32], salt[32], private_salt[32], seal[32], root[32];
    bool has_private, ordered, same; /* same: the head holds all this already */
    bool extends;                    /* the items go on where the head's end */
    uint32_t *items;
    uint8_t *names, *sampler, *layout;
    size_t sampler_len, layout_len;
    struct store_rec *rec;
    struct save_unit *units; /* n_names blocks, then n_rec snapshots */
    uint32_t n_pinned;
    int64_t layout_id, cur, prev, rich, gen; /* as of begin; 0: no head */
    uint64_t cur_us;                         /* when it was made */
    uint64_t t0_us, written0, txn_payload;

    /* the block on its way */
    uint8_t *buf;
    struct save_unit *at;
    uint32_t next_piece;
    uint8_t *sums;
    enum save_phase phase;
    uint32_t write_piece;
    sqlite3_blob *blob;
};

static inline uint64_t save_written(const struct store *s)
{
    return atomic_load_explicit(&store_vfs_io(s->vfs)->bytes_written, memory_order_relaxed);
}

static inline uint32_t save_units(const struct save *sv)
{
    return sv->n_names + sv->n_rec;
}

/* The layout's row, inserted if this is its first save. A transaction is open. */
int save_layout(struct save *sv, struct vt_err *err);
/* Closes the blob, rolls back, accounts for the refusal; returns -1. */
int save_give_up(struct save *sv, struct vt_err *err);

#endif
