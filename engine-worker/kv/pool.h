/* Pool: the pages that hold K and V of all attention layers, and the recurrent snapshots that belong to page borders.
 *
 * A page is BE_PAGE tokens of every attention layer in one piece of memory (the block of a checkpoint). It is referenced by
 * the sequences that contain it. A full page can be published under its name (hash chain over the ids, common/ckpt.h):
 * then it is immutable, found by others with the same prefix, and stays cached after its last reference until the memory
 * is wanted: least recently used first. A snapshot is the recurrent state of all layers after the last token of a page;
 * it is immutable, too, and lives as long as its page is cached or somebody holds it.
 *
 * One thread calls; the memory of a page or snapshot that is held and complete may be read from any thread. */
#ifndef KV_POOL_H
#define KV_POOL_H

#include "backend.h"
#include "err.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_NONE UINT32_MAX
#define KV_NAME 32

struct kv_ledger; /* ledger.h */

struct kv_shape {
    struct be *be;              /* in whose memory the pages are; borrowed */
    int n_attn;                 /* attention layers */
    const struct be_attn *attn; /* [n_attn], borrowed during kv_new only; kv_lay_out has placed them */
    size_t state_floats;        /* recurrent state of a sequence; 0: none */
    uint32_t n_pages, n_snaps;
    /* Memory that outlives the process, kv_pool_bytes of the backend's and the ledger of it; NULL: own memory, no ledger. What
     * the ledger says is whole is taken over: it is cached, as if it had been published here. */
    void *memory;
    struct kv_ledger *ledger;
};

struct kv;

/* Bytes of pages, snapshots and seals. */
uint64_t kv_pool_bytes(const struct kv_shape *s);

int kv_new(struct kv **out, const struct kv_shape *s, struct vt_err *err);
void kv_free(struct kv *kv); /* NULL is fine. Everything must have been given back (asserted) */
/* The same while pages are held, for what ends with the process: memory and ledger stay as they are. */
void kv_abandon(struct kv *kv);

/* Gives n layers their places in a page, one behind the other. */
void kv_lay_out(struct be_attn *attn, int n);
/* Bytes of a page with these layers. */
uint64_t kv_geo_bytes(const struct be_attn *attn, int n);
struct be *kv_be(const struct kv *kv);
/* In the backend's memory, as what it holds: be_fetch and be_write move it. */
uint8_t *kv_page_data(const struct kv *kv, uint32_t page);
uint64_t kv_page_bytes(const struct kv *kv);
uint64_t kv_snap_bytes(const struct kv *kv);
size_t kv_state_floats(const struct kv *kv);
/* Bytes mapped for pages and snapshots. */
uint64_t kv_bytes(const struct kv *kv);

/* A page with one reference; evicts the oldest cached page if no page is free. KV_NONE: all are referenced. */
uint32_t kv_page_alloc(struct kv *kv);
void kv_page_ref(struct kv *kv, uint32_t page);
/* The last reference frees the page, or leaves it cached when it is published. */
void kv_page_unref(struct kv *kv, uint32_t page);
/* Publishes a full page. When an equal page is published already, the reference moves to that one, which is returned. */
uint32_t kv_page_publish(struct kv *kv, uint32_t page, const uint8_t name[KV_NAME]);
bool kv_page_published(const struct kv *kv, uint32_t page);
/* No longer to be found by others (its content is not trusted). */
void kv_page_forget(struct kv *kv, uint32_t page);
/* The published page of that name, or KV_NONE. Takes no reference. */
uint32_t kv_page_find(const struct kv *kv, const uint8_t name[KV_NAME]);
uint32_t kv_page_refs(const struct kv *kv, uint32_t page);

/* Copies state into a new snapshot of the page, unless it has one. false: no snapshot is free (those of cached pages are
 * taken first). */
bool kv_snap_take(struct kv *kv, uint32_t page, const float *state);
/* The page's snapshot, or KV_NONE. */
uint32_t kv_snap_of(const struct kv *kv, uint32_t page);
const float *kv_snap_data(const struct kv *kv, uint32_t snap); /* in the backend's memory */
/* A held snapshot outlives its page. */
void kv_snap_ref(struct kv *kv, uint32_t snap);
void kv_snap_unref(struct kv *kv, uint32_t snap);
void kv_snap_drop(struct kv *kv, uint32_t page); /* takes the page's snapshot away */
/* An empty snapshot with one reference, to be filled by an import; KV_NONE when there is none. */
uint32_t kv_snap_alloc(struct kv *kv);
float *kv_snap_fill(struct kv *kv, uint32_t snap);
/* Gives a filled snapshot to a page that has none; the caller's reference moves to the page, or is dropped. */
void kv_snap_attach(struct kv *kv, uint32_t page, uint32_t snap);

struct kv_stats {
    uint32_t pages, used, cached, free; /* pages: referenced, published without reference, neither */
    uint32_t snaps, snaps_used;
    uint32_t taken, spoilt; /* pages that were taken over, and that failed their seal */
    uint64_t evicted;       /* cached pages that were wanted for something else */
};
void kv_stats(const struct kv *kv, struct kv_stats *out);

#endif
