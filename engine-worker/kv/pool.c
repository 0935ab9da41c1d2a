#include "pool.h"
#include "ledger.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct page {
    uint32_t refs, snap;
    uint32_t hash_next;          /* next page in the bucket */
    uint32_t lru_prev, lru_next; /* among the cached ones */
    bool published;
    uint8_t name[KV_NAME];
};

struct kv {
    uint64_t page_bytes, state_bytes;
    uint64_t snap_stride; /* from one snapshot to the next: whole words for the seals, the rest zeros */
    size_t state_floats;
    struct be *be;
    bool own; /* the memory; else the ledger's keeper owns it */
    struct kv_ledger *ledger;
    uint64_t *seals; /* [n_pages + n_snaps], with a ledger */
    uint32_t taken, spoilt;
    uint64_t evicted;

    uint8_t *data; /* [n_pages][page_bytes], then the snapshots and the seals */
    struct page *pages;
    uint32_t n_pages, *free_pages, n_free;
    uint32_t lru_old, lru_new, n_cached;
    uint32_t *buckets, n_buckets; /* a power of two */

    uint8_t *snap_data; /* [n_snaps][state_bytes] */
    uint32_t *snap_refs, n_snaps, *free_snaps, n_free_snaps;
};

static uint64_t k_bytes(const struct be_attn *a)
{
    return (uint64_t)a->n_kv_head * BE_PAGE * (uint64_t)a->d * sizeof(uint16_t);
}

static uint64_t v_bytes(const struct be_attn *a)
{
    return (uint64_t)a->n_kv_head * BE_PAGE * (uint64_t)a->dv * sizeof(uint16_t);
}

void kv_lay_out(struct be_attn *attn, int n)
{
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        attn[i].k_at = at;
        attn[i].v_at = at + k_bytes(&attn[i]);
        at = attn[i].v_at + v_bytes(&attn[i]);
    }
}

uint64_t kv_geo_bytes(const struct be_attn *attn, int n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += k_bytes(&attn[i]) + v_bytes(&attn[i]);
    return bytes;
}

static uint32_t snaps_of(const struct kv_shape *s)
{
    return s->state_floats > 0 ? s->n_snaps : 0;
}

static uint64_t stride_of(size_t state_floats)
{
    return (state_floats * sizeof(float) + 255) / 256 * 256;
}

uint64_t kv_pool_bytes(const struct kv_shape *s)
{
    uint32_t snaps = snaps_of(s);
    return kv_geo_bytes(s->attn, s->n_attn) * s->n_pages + stride_of(s->state_floats) * snaps +
           (s->n_pages + snaps) * sizeof(uint64_t);
}

static int take_memory(struct kv *kv, const struct kv_shape *s, struct vt_err *err)
{
    void *p = s->memory;
    kv->own = p == NULL;
    if (kv->own && be_alloc(kv->be, &p, kv_pool_bytes(s), err) < 0)
        return vt_fail_prefix(err, "KV cache (lower engine.slots or engine.ctx_tokens)");
    kv->data = p;
    kv->snap_data = kv->data + kv->page_bytes * s->n_pages;
    kv->seals = (uint64_t *)(void *)(kv->snap_data + kv->snap_stride * snaps_of(s));
    kv->ledger = s->ledger;
    return 0;
}

static void measure(struct kv *kv, const struct kv_shape *s)
{
    kv->be = s->be;
    kv->page_bytes = kv_geo_bytes(s->attn, s->n_attn);
    kv->state_floats = s->state_floats;
    kv->state_bytes = s->state_floats * sizeof(float);
    kv->snap_stride = stride_of(s->state_floats);
}

static int make_pages(struct kv *kv, uint32_t n, struct vt_err *err)
{
    kv->n_buckets = 16;
    while (kv->n_buckets < n)
        kv->n_buckets *= 2;
    kv->pages = calloc(n, sizeof *kv->pages);
    kv->free_pages = calloc(n, sizeof *kv->free_pages);
    kv->buckets = malloc(kv->n_buckets * sizeof *kv->buckets);
    if (!kv->pages || !kv->free_pages || !kv->buckets)
        return vt_fail(err, VT_E_NOMEM, "out of memory for %u KV pages", n);
    memset(kv->buckets, 0xff, kv->n_buckets * sizeof *kv->buckets);
    kv->n_pages = n;
    kv->lru_old = kv->lru_new = KV_NONE;
    for (uint32_t i = 0; i < n; i++) {
        kv->pages[i].snap = KV_NONE;
        kv->free_pages[kv->n_free++] = n - 1 - i; /* low numbers first */
    }
    return 0;
}

static int make_snaps(struct kv *kv, uint32_t n, struct vt_err *err)
{
    if (kv->state_bytes == 0 || n == 0)
        return 0;
    kv->snap_refs = calloc(n, sizeof *kv->snap_refs);
    kv->free_snaps = calloc(n, sizeof *kv->free_snaps);
    if (!kv->snap_refs || !kv->free_snaps)
        return vt_fail(err, VT_E_NOMEM, "out of memory for %u recurrent snapshots", n);
    kv->n_snaps = n;
    for (uint32_t i = 0; i < n; i++)
        kv->free_snaps[kv->n_free_snaps++] = n - 1 - i;
    return 0;
}

static int take_over(struct kv *kv, struct vt_err *err);

int kv_new(struct kv **out, const struct kv_shape *s, struct vt_err *err)
{
    struct kv *kv = calloc(1, sizeof *kv);
    if (!kv)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the KV pool");
    measure(kv, s);
    if (make_pages(kv, s->n_pages, err) < 0 || make_snaps(kv, s->n_snaps, err) < 0 ||
        take_memory(kv, s, err) < 0 || take_over(kv, err) < 0) {
        kv->n_cached = 0;
        kv->n_free = kv->n_pages;
        kv->n_free_snaps = kv->n_snaps;
        kv_free(kv);
        return -1;
    }
    *out = kv;
    return 0;
}

void kv_free(struct kv *kv)
{
    assert(!kv || kv->n_free + kv->n_cached == kv->n_pages);
    kv_abandon(kv);
}

void kv_abandon(struct kv *kv)
{
    if (!kv)
        return;
    if (kv->own)
        be_release(kv->be, kv->data, kv_bytes(kv));
    free(kv->pages);
    free(kv->free_pages);
    free(kv->buckets);
    free(kv->snap_refs);
    free(kv->free_snaps);
    free(kv);
}

uint8_t *kv_page_data(const struct kv *kv, uint32_t page)
{
    assert(page < kv->n_pages);
    return kv->data + kv->page_bytes * page;
}

struct be *kv_be(const struct kv *kv)
{
    return kv->be;
}

uint64_t kv_page_bytes(const struct kv *kv)
{
    return kv->page_bytes;
}

uint64_t kv_snap_bytes(const struct kv *kv)
{
    return kv->state_bytes;
}

size_t kv_state_floats(const struct kv *kv)
{
    return kv->state_floats;
}

uint64_t kv_bytes(const struct kv *kv)
{
    return kv->page_bytes * kv->n_pages + kv->snap_stride * kv->n_snaps +
           (kv->n_pages + kv->n_snaps) * sizeof(uint64_t);
}

/* ---- names ---- */

static uint32_t *bucket_of(const struct kv *kv, const uint8_t name[KV_NAME])
{
    uint32_t h;
    memcpy(&h, name, sizeof h); /* names are SHA-256: any part of them is a good hash */
    return &kv->buckets[h & (kv->n_buckets - 1)];
}

uint32_t kv_page_find(const struct kv *kv, const uint8_t name[KV_NAME])
{
    uint32_t p = *bucket_of(kv, name);
    while (p != KV_NONE && memcmp(kv->pages[p].name, name, KV_NAME) != 0)
        p = kv->pages[p].hash_next;
    return p;
}

static void unlink_name(struct kv *kv, uint32_t page)
{
    uint32_t *at = bucket_of(kv, kv->pages[page].name);
    while (*at != page)
        at = &kv->pages[*at].hash_next;
    *at = kv->pages[page].hash_next;
    kv->pages[page].published = false;
    if (kv->ledger)
        kv_ledger_drop(kv->ledger, page);
}

static void link_name(struct kv *kv, uint32_t page, const uint8_t name[KV_NAME])
{
    struct page *p = &kv->pages[page];
    uint32_t *bucket = bucket_of(kv, name);
    memcpy(p->name, name, KV_NAME);
    p->hash_next = *bucket;
    *bucket = page;
    p->published = true;
}

/* ---- least recently used ---- */

static void lru_append(struct kv *kv, uint32_t page)
{
    struct page *p = &kv->pages[page];
    p->lru_prev = kv->lru_new;
    p->lru_next = KV_NONE;
    if (kv->lru_new != KV_NONE)
        kv->pages[kv->lru_new].lru_next = page;
    else
        kv->lru_old = page;
    kv->lru_new = page;
    kv->n_cached++;
}

static void lru_remove(struct kv *kv, uint32_t page)
{
    struct page *p = &kv->pages[page];
    if (p->lru_prev != KV_NONE)
        kv->pages[p->lru_prev].lru_next = p->lru_next;
    else
        kv->lru_old = p->lru_next;
    if (p->lru_next != KV_NONE)
        kv->pages[p->lru_next].lru_prev = p->lru_prev;
    else
        kv->lru_new = p->lru_prev;
    kv->n_cached--;
}

/* ---- pages ---- */

static void give_free(struct kv *kv, uint32_t page)
{
    kv_snap_drop(kv, page);
    kv->free_pages[kv->n_free++] = page;
}

uint32_t kv_page_alloc(struct kv *kv)
{
    if (kv->n_free == 0) {
        uint32_t victim = kv->lru_old;
        if (victim == KV_NONE)
            return KV_NONE;
        lru_remove(kv, victim);
        unlink_name(kv, victim);
        give_free(kv, victim);
        kv->evicted++;
    }
    uint32_t page = kv->free_pages[--kv->n_free];
    kv->pages[page].refs = 1;
    return page;
}

void kv_page_ref(struct kv *kv, uint32_t page)
{
    struct page *p = &kv->pages[page];
    if (p->refs++ == 0) {
        assert(p->published);
        lru_remove(kv, page);
    }
}

void kv_page_unref(struct kv *kv, uint32_t page)
{
    struct page *p = &kv->pages[page];
    assert(p->refs > 0);
    if (--p->refs > 0)
        return;
    if (p->published)
        lru_append(kv, page);
    else
        give_free(kv, page);
}

uint32_t kv_page_publish(struct kv *kv, uint32_t page, const uint8_t name[KV_NAME])
{
    struct page *p = &kv->pages[page];
    assert(p->refs > 0 && !p->published);
    uint32_t equal = kv_page_find(kv, name);
    if (equal != KV_NONE) {
        kv_page_ref(kv, equal);
        kv_page_unref(kv, page);
        return equal;
    }
    link_name(kv, page, name);
    if (kv->ledger)
        be_seal(kv->be, &kv->seals[page], kv_page_data(kv, page), kv->page_bytes,
                kv_ledger_put(kv->ledger, page, name));
    return page;
}

bool kv_page_published(const struct kv *kv, uint32_t page)
{
    return kv->pages[page].published;
}

void kv_page_forget(struct kv *kv, uint32_t page)
{
    assert(kv->pages[page].refs > 0);
    if (kv->pages[page].published)
        unlink_name(kv, page);
}

uint32_t kv_page_refs(const struct kv *kv, uint32_t page)
{
    return kv->pages[page].refs;
}

/* ---- snapshots ---- */

uint32_t kv_snap_alloc(struct kv *kv)
{
    for (uint32_t p = kv->lru_old; kv->n_free_snaps == 0 && p != KV_NONE; p = kv->pages[p].lru_next)
        kv_snap_drop(kv, p); /* a snapshot that is held elsewhere stays; then the next page gives its own */
    if (kv->n_free_snaps == 0)
        return KV_NONE;
    uint32_t snap = kv->free_snaps[--kv->n_free_snaps];
    kv->snap_refs[snap] = 1;
    return snap;
}

float *kv_snap_fill(struct kv *kv, uint32_t snap)
{
    return (float *)(void *)(kv->snap_data + kv->snap_stride * snap);
}

const float *kv_snap_data(const struct kv *kv, uint32_t snap)
{
    return (const float *)(const void *)(kv->snap_data + kv->snap_stride * snap);
}

void kv_snap_ref(struct kv *kv, uint32_t snap)
{
    assert(kv->snap_refs[snap] > 0);
    kv->snap_refs[snap]++;
}

void kv_snap_unref(struct kv *kv, uint32_t snap)
{
    assert(kv->snap_refs[snap] > 0);
    if (--kv->snap_refs[snap] == 0)
        kv->free_snaps[kv->n_free_snaps++] = snap;
}

uint32_t kv_snap_of(const struct kv *kv, uint32_t page)
{
    return kv->pages[page].snap;
}

void kv_snap_drop(struct kv *kv, uint32_t page)
{
    struct page *p = &kv->pages[page];
    if (p->snap == KV_NONE)
        return;
    if (kv->ledger)
        kv_ledger_snap_drop(kv->ledger, page);
    kv_snap_unref(kv, p->snap);
    p->snap = KV_NONE;
}

void kv_snap_attach(struct kv *kv, uint32_t page, uint32_t snap)
{
    struct page *p = &kv->pages[page];
    if (p->snap != KV_NONE) {
        kv_snap_unref(kv, snap);
        return;
    }
    p->snap = snap;
    if (kv->ledger)
        be_seal(kv->be, &kv->seals[kv->n_pages + snap], kv_snap_data(kv, snap), kv->snap_stride,
                kv_ledger_snap(kv->ledger, page, snap));
}

/* ---- what a process before this one has left ---- */

/* Off the list of the free ones. */
static void not_free(uint32_t *list, uint32_t *n, uint32_t what)
{
    uint32_t i = 0;
    while (list[i] != what)
        i++;
    for (--*n; i < *n; i++)
        list[i] = list[i + 1];
}

static void adopt(struct kv *kv, uint32_t page)
{
    const struct kv_ledger_entry *e = &kv->ledger->entry[page];
    not_free(kv->free_pages, &kv->n_free, page);
    link_name(kv, page, e->name);
    lru_append(kv, page);
    if (e->snap_stamp == 0)
        return;
    not_free(kv->free_snaps, &kv->n_free_snaps, e->snap);
    kv->snap_refs[e->snap] = 1;
    kv->pages[page].snap = e->snap;
}

static int take_over(struct kv *kv, struct vt_err *err)
{
    if (!kv->ledger || !kv_ledger_open(kv->ledger, kv->n_pages, kv->n_snaps, kv->page_bytes, kv->snap_stride))
        return 0;
    uint32_t n = 0, *order = malloc((kv->n_pages + 1u) * sizeof *order);
    int rc = order ? kv_ledger_check(kv->ledger, kv->be, kv->data, kv->seals, order, &n, &kv->spoilt, err)
                   : vt_fail(err, VT_E_NOMEM, "out of memory for %u pages", kv->n_pages);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        if (kv_page_find(kv, kv->ledger->entry[order[i]].name) != KV_NONE) {
            kv_ledger_drop(kv->ledger, order[i]);
            continue;
        }
        adopt(kv, order[i]);
        kv->taken++;
    }
    free(order);
    return rc;
}

bool kv_snap_take(struct kv *kv, uint32_t page, const float *state)
{
    if (kv->pages[page].snap != KV_NONE)
        return true;
    uint32_t snap = kv_snap_alloc(kv);
    if (snap == KV_NONE)
        return false;
    be_copy(kv->be, kv_snap_fill(kv, snap), state, kv->state_bytes);
    kv_snap_attach(kv, page, snap);
    return true;
}

void kv_stats(const struct kv *kv, struct kv_stats *out)
{
    *out = (struct kv_stats){
        .pages = kv->n_pages,
        .used = kv->n_pages - kv->n_free - kv->n_cached,
        .cached = kv->n_cached,
        .free = kv->n_free,
        .snaps = kv->n_snaps,
        .snaps_used = kv->n_snaps - kv->n_free_snaps,
        .taken = kv->taken,
        .spoilt = kv->spoilt,
        .evicted = kv->evicted,
    };
}
