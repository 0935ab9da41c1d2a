/* Sequence: the cached tokens of one slot: their ids, the pages that hold their K and V, and the recurrent state after the
 * last of them.
 *
 * Page i holds tokens 256i … 256i+255. All pages but the last are full and published (immutable, perhaps shared); the last
 * may be partial and then belongs to this sequence alone. Hybrid models can go back only to where a state is known: the
 * end of the sequence, a page border with a snapshot, or the start. One thread.
 *
 * Layers that see a window have pages in a pool of their own, under the same names. Of these a sequence holds those that a
 * row at its newest page border or behind it can see, and gives back the others: they stay cached, or their memory goes to
 * the next page. Such a model can go back to where the whole window is still held, or found by name. */
#ifndef KV_SEQ_H
#define KV_SEQ_H

#include "pool.h"

struct kv_seq {
    struct kv *kv;
    uint32_t cap, n; /* tokens: window, cached */
    uint32_t *ids;   /* [cap] */
    uint32_t *pages; /* [cap / BE_PAGE, rounded up] */
    uint32_t n_pages;
    struct kv *win;            /* pool of the layers with a window; NULL: none */
    uint32_t window;           /* tokens that a row sees, itself among them */
    uint32_t *wpages;          /* as pages; NULL: no window */
    uint32_t first_wpage;      /* those from here on are held */
    uint8_t (*names)[KV_NAME]; /* names[0]: root; names[i+1]: of page i while it is full */
    float *state;       /* after n tokens, in the backend's memory; NULL when the model is not hybrid */
    uint32_t max_snaps; /* most snapshots that this sequence leaves behind */
    uint32_t keep;      /* page border whose snapshot is not thinned out (end of the prompt) */
};

/* The pools are borrowed; window 0 and win NULL: the model has no layers with a window. */
int kv_seq_init(struct kv_seq *s, struct kv *kv, struct kv *win, uint32_t window, uint32_t cap,
                uint32_t max_snaps, struct vt_err *err);
void kv_seq_fini(struct kv_seq *s); /* a zeroed one is fine */

/* Pages of the window pool that a row at position pos can see, its own not counted, begin with this one. */
uint32_t kv_window_first(uint32_t window, uint32_t pos);
/* Most pages that lie between there and a page border. */
uint32_t kv_window_pages(uint32_t window);

/* The root of a tenant's names: equal prompts of two tenants never share pages. */
void kv_root(const char *tenant, uint8_t root[KV_NAME]);

/* Gives all pages back (they stay cached) and starts anew under this root. */
void kv_seq_clear(struct kv_seq *s, const uint8_t root[KV_NAME]);
/* The same after non-finite numbers: pages that nobody else holds are not cached. */
void kv_seq_poison(struct kv_seq *s);

/* What can be reused for a prompt. */
struct kv_reuse {
    uint32_t n; /* tokens; less than the prompt */
    enum { KV_OWN, KV_PAGES } from;
    uint32_t n_pages;          /* KV_PAGES: leading full pages found by name */
    const struct kv_seq *tail; /* KV_PAGES: sequence whose partial or next page holds the rest, NULL: none */
};
/* Length of the common prefix of s and ids[0..n), 0 when the root differs. */
uint32_t kv_seq_lcp(const struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids, uint32_t n);
/* Finds the longest prefix of ids[0..n), at most n - 1 tokens (n > 0), that s can take over from itself, from pages by
 * name or from the n_others sequences. */
struct kv_reuse kv_seq_match(const struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids,
                             uint32_t n, const struct kv_seq *const *others, uint32_t n_others);
/* Makes s hold exactly that prefix; returns its length (less than planned when no page was free for a copy). */
uint32_t kv_seq_reuse(struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids,
                      const struct kv_reuse *r);

/* Replaces everything by n_pages full pages that an import has filled, each with a reference that passes to s; a hybrid
 * model's state comes from snap, whose reference passes, too, and so do those of wpages: the pages of the window before
 * the border, the first one first. */
void kv_seq_install(struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids, const uint32_t *pages,
                    uint32_t n_pages, uint32_t snap, const uint32_t *wpages);

/* Makes room for `want` more tokens behind n, within cap; returns for how many there is room. */
uint32_t kv_seq_room(struct kv_seq *s, uint32_t want);
/* Of `want` tokens those that a hybrid sequence can take at once: up to the last page border among them, where a snapshot
 * is kept, and not over a border that is a multiple of KV_SNAP_PAGES, so that those always have one. All of them otherwise. */
#define KV_SNAP_PAGES 8
uint32_t kv_seq_cut(const struct kv_seq *s, uint32_t want);
/* The forward pass has written K, V and state of these n tokens, for which there was room. A hybrid sequence has its state
 * at the last of them alone: pages that end before it get no snapshot. */
void kv_seq_advance(struct kv_seq *s, const uint32_t *ids, uint32_t n);
/* Takes back the last items, down to n of the newest page, which has not been full since. A hybrid's state is the one that the
 * caller copied into `state` (kv_snap_bytes) when there were n; NULL for the others. */
void kv_seq_rewind(struct kv_seq *s, uint32_t n, const float *state);

#endif
