/* Ledger: which pages and snapshots of a pool are whole, for the process that comes after this one. It lies in host memory that a
 * vault keeps, beside the pool's memory, whose end holds the seals: a checksum of each page and snapshot, computed by the
 * device behind the writes.
 *
 * This process may end between any two instructions, and the device with work queued. So an entry is empty before its page is
 * written again, it is filled before its stamp is set, and the seal is salted with the stamp, which no other publication has
 * ever had: a seal of what lay there before does not fit. Nothing is believed before its seal has been computed again.
 *
 * One thread. */
#ifndef KV_LEDGER_H
#define KV_LEDGER_H

#include "backend.h"
#include "pool.h"

struct kv_ledger_entry {
    uint64_t stamp;      /* 0: not whole */
    uint64_t snap_stamp; /* 0: no snapshot */
    uint32_t snap, spare;
    uint8_t name[KV_NAME];
};

struct kv_ledger {
    uint64_t magic;
    uint64_t stamp; /* the last one given */
    uint64_t page_bytes, snap_bytes;
    uint32_t n_pages, n_snaps;
    struct kv_ledger_entry entry[]; /* [n_pages] */
};

size_t kv_ledger_bytes(uint32_t n_pages);
/* Whether it is one of a pool of this shape; else it is made an empty one. */
bool kv_ledger_open(struct kv_ledger *l, uint32_t n_pages, uint32_t n_snaps, uint64_t page_bytes,
                    uint64_t snap_bytes);

/* A page is whole under this name; the stamp to seal it with. */
uint64_t kv_ledger_put(struct kv_ledger *l, uint32_t page, const uint8_t name[KV_NAME]);
void kv_ledger_drop(struct kv_ledger *l, uint32_t page);
/* A page's snapshot; the stamp to seal it with. */
uint64_t kv_ledger_snap(struct kv_ledger *l, uint32_t page, uint32_t snap);
void kv_ledger_snap_drop(struct kv_ledger *l, uint32_t page);

/* The pages that claim to be whole, the oldest first; false in ok[]: its bytes do not fit the seal, or its number is no number of
 * a page. *n of them in order[n_pages]. seals: [n_pages + n_snaps] of the backend. snaps that do not fit are dropped. */
int kv_ledger_check(struct kv_ledger *l, struct be *be, const uint8_t *memory, const uint64_t *seals,
                    uint32_t *order, uint32_t *n, uint32_t *spoilt, struct vt_err *err);

#endif
