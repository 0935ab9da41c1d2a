#include "internal.h"

#include "ckpt.h"

#include <stdlib.h>
#include <string.h>

/* ---- what lies between the blocks ---- */

uint64_t checkpoint_rec_bytes(const struct eng *e)
{
    uint64_t window = e->win ? kv_window_pages((uint32_t)e->model->window) * kv_page_bytes(e->win) : 0;
    return kv_snap_bytes(e->kv) + window;
}

/* A snapshot at a border: state and window pages, as one piece of rec_bytes. Pages that a short prefix does not have are
 * zeros in it, so that equal prefixes give equal bytes. */
struct rec {
    uint32_t snap;    /* KV_NONE: no state */
    uint32_t *wpages; /* [n_wpages], the first one that a row at the border sees first */
    uint32_t n_wpages;
};

static uint8_t *rec_at(const struct eng *e, const struct rec *r, uint64_t off, uint64_t *left)
{
    uint64_t state = kv_snap_bytes(e->kv), page = e->win ? kv_page_bytes(e->win) : 0;
    if (off < state) {
        *left = state - off;
        return r->snap == KV_NONE ? NULL : (uint8_t *)kv_snap_fill(e->kv, r->snap) + off;
    }
    uint64_t i = (off - state) / page, at = (off - state) % page;
    *left = page - at;
    return i < r->n_wpages ? kv_page_data(e->win, r->wpages[i]) + at : NULL;
}

static int rec_read(const struct eng *e, const struct rec *r, uint64_t off, uint8_t *dst, size_t len)
{
    for (uint64_t left, n; len > 0; off += n, dst += n, len -= n) {
        const uint8_t *src = rec_at(e, r, off, &left);
        n = len < left ? len : left;
        if (!src)
            memset(dst, 0, n);
        else if (be_fetch(e->be, dst, src, n, NULL) < 0)
            return -1;
    }
    return 0;
}

static void rec_write(const struct eng *e, const struct rec *r, uint64_t off, const uint8_t *src, size_t len)
{
    for (uint64_t left, n; len > 0; off += n, src += n, len -= n) {
        uint8_t *dst = rec_at(e, r, off, &left);
        n = len < left ? len : left;
        if (dst)
            be_write(e->be, dst, src, n);
    }
}

static uint32_t first_wpage(const struct eng *e, uint32_t border)
{
    return e->win ? kv_window_first((uint32_t)e->model->window, border) : border / BE_PAGE;
}

static void rec_free(struct eng *e, struct rec *r)
{
    for (uint32_t i = 0; i < r->n_wpages; i++)
        kv_page_unref(e->win, r->wpages[i]);
    if (r->snap != KV_NONE)
        kv_snap_unref(e->kv, r->snap);
    free(r->wpages);
}

/* ---- export ---- */

struct held { /* eng_export.opaque */
    uint32_t *pages;
    struct rec *recs;
};

static void free_export(struct eng_export *x)
{
    struct held *h = x->opaque;
    if (h) {
        free(h->pages);
        free(h->recs);
    }
    free(h);
    free((void *)x->items);
    free((void *)x->rec_pos);
    free(x);
}

/* Takes hold of what is known at a border: the snapshot of its page and, if there are windows, the one before it, which is
 * held at the newest border only. Returns false when something is missing. */
static bool hold_rec(struct eng *e, const struct kv_seq *seq, uint32_t border, struct rec *r)
{
    uint32_t first = first_wpage(e, border), n = border / BE_PAGE - first;
    *r = (struct rec){.snap = kv_snap_of(e->kv, seq->pages[border / BE_PAGE - 1])};
    if ((kv_state_floats(e->kv) > 0 && r->snap == KV_NONE) || (e->win && first < seq->first_wpage))
        return false;
    if (n > 0 && !(r->wpages = malloc(n * sizeof *r->wpages)))
        return false;
    if (r->snap != KV_NONE)
        kv_snap_ref(e->kv, r->snap);
    for (; r->n_wpages < n; r->n_wpages++) {
        r->wpages[r->n_wpages] = seq->wpages[first + r->n_wpages];
        kv_page_ref(e->win, r->wpages[r->n_wpages]);
    }
    return true;
}

static void hold(struct eng *e, const struct kv_seq *seq, struct eng_export *x, uint32_t *rec_pos)
{
    struct held *h = x->opaque;
    for (uint32_t i = 0; i < x->n_blocks; i++) {
        h->pages[i] = seq->pages[i];
        kv_page_ref(e->kv, h->pages[i]);
        if (checkpoint_rec_bytes(e) > 0 && hold_rec(e, seq, (i + 1) * BE_PAGE, &h->recs[x->n_rec]))
            rec_pos[x->n_rec++] = (i + 1) * BE_PAGE;
    }
}

int engine_export_begin(struct eng *e, uint32_t slot, struct eng_export **out, struct vt_err *err)
{
    if (slot >= e->n_slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %u does not exist; there are %u", slot, e->n_slots);
    const struct slot *s = &e->slots[slot];
    const struct kv_seq *seq = &s->seq;
    uint32_t n_blocks = seq->n / BE_PAGE;
    struct eng_export *x = calloc(1, sizeof *x);
    struct held *h = calloc(1, sizeof *h);
    uint32_t *items = malloc((seq->n + 1) * sizeof *items),
             *rec_pos = malloc((n_blocks + 1) * sizeof *rec_pos);
    if (!x || !h || !items || !rec_pos || !(h->pages = malloc((n_blocks + 1) * sizeof *h->pages)) ||
        !(h->recs = malloc((n_blocks + 1) * sizeof *h->recs))) {
        if (h)
            free(h->pages);
        free(h);
        free(x);
        free(items);
        free(rec_pos);
        return vt_fail(err, VT_E_NOMEM, "out of memory for the export of slot %u", slot);
    }
    memcpy(items, seq->ids, seq->n * sizeof *items);
    *x = (struct eng_export){.slot = slot,
                             .epoch = s->epoch,
                             .n_items = seq->n,
                             .items = items,
                             .n_blocks = n_blocks,
                             .rec_pos = rec_pos,
                             .opaque = h};
    memcpy(x->tenant, s->tenant, sizeof x->tenant);
    hold(e, seq, x, rec_pos);
    *out = x;
    return 0;
}

void engine_export_free(struct eng *e, struct eng_export *x)
{
    if (!x)
        return;
    const struct held *h = x->opaque;
    for (uint32_t i = x->n_blocks; i-- > 0;)
        kv_page_unref(e->kv, h->pages[i]);
    for (uint32_t i = 0; i < x->n_rec; i++)
        rec_free(e, &h->recs[i]);
    free_export(x);
}

int engine_export_read(struct eng *e, struct eng_export *x, int kind, uint32_t index, uint64_t off, void *dst,
                       size_t len)
{
    const struct held *h = x->opaque;
    bool block = kind == 1 && index < x->n_blocks, rec = kind == 2 && index < x->n_rec;
    uint64_t size = block ? kv_page_bytes(e->kv) : checkpoint_rec_bytes(e);
    if ((!block && !rec) || off > size || len > size - off)
        return -1;
    return block ? be_fetch(e->be, dst, kv_page_data(e->kv, h->pages[index]) + off, len, NULL)
                 : rec_read(e, &h->recs[index], off, dst, len);
}

void engine_pin(struct eng *e, void *p, size_t bytes)
{
    be_pin(e->be, p, bytes);
}

void engine_unpin(struct eng *e, void *p)
{
    be_unpin(e->be, p);
}

/* ---- import ---- */

struct import {
    struct slot *slot;       /* NULL: into the cache */
    uint32_t n_blocks, held; /* the first `held` pages are published ones of others */
    uint32_t rec_pos;
    uint8_t root[KV_NAME];
    char tenant[TENANT_MAX + 1];
    uint32_t *items; /* [n_blocks * BE_PAGE] */
    uint32_t *pages; /* [n_blocks] */
    struct rec rec;  /* of rec_pos; empty without */
};

static int check_import(const struct eng *e, uint32_t slot, const char *tenant, const uint32_t *items,
                        uint32_t n_items, uint32_t n_blocks, uint32_t rec_pos, struct vt_err *err)
{
    if (slot != ENG_CACHE && slot >= e->n_slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %u does not exist; there are %u", slot, e->n_slots);
    if (slot != ENG_CACHE && e->slots[slot].req)
        return vt_fail(err, VT_E_BUSY, "slot %u is at work", slot);
    if (strlen(tenant) > TENANT_MAX)
        return vt_fail(err, VT_E_PARAM, "the tenant's name is longer than %d bytes", TENANT_MAX);
    if (n_blocks == 0 || n_blocks > n_items / BE_PAGE || n_blocks > e->window / BE_PAGE)
        return vt_fail(err, VT_E_PARAM,
                       "an import of %u blocks does not fit %u items and a window of %u tokens", n_blocks,
                       n_items, e->window);
    if (rec_pos % BE_PAGE != 0 || rec_pos > n_blocks * BE_PAGE)
        return vt_fail(err, VT_E_PARAM, "recurrent state at %u is not at the border of one of %u blocks",
                       rec_pos, n_blocks);
    for (uint32_t i = 0; i < n_blocks * BE_PAGE; i++)
        if (items[i] >= (uint32_t)e->model->n_vocab)
            return vt_fail(err, VT_E_PARAM, "token id %u is outside of the vocabulary of %d", items[i],
                           e->model->n_vocab);
    return 0;
}

/* A page, at the cost of idle slots if it must be. */
static uint32_t take_page(struct eng *e, struct kv *kv, const struct slot *except)
{
    uint32_t page = kv_page_alloc(kv);
    while (page == KV_NONE && slot_evict_idle(e, except))
        page = kv_page_alloc(kv);
    return page;
}

static uint32_t take_snap(struct eng *e, const struct slot *except)
{
    uint32_t snap = kv_snap_alloc(e->kv);
    while (snap == KV_NONE && slot_evict_idle(e, except))
        snap = kv_snap_alloc(e->kv);
    return snap;
}

static int take_rec(struct eng *e, struct import *m, uint32_t rec_pos, struct vt_err *err)
{
    struct rec *r = &m->rec;
    uint32_t n = rec_pos / BE_PAGE - first_wpage(e, rec_pos);
    if (kv_state_floats(e->kv) > 0 && (r->snap = take_snap(e, m->slot)) == KV_NONE)
        return vt_fail(err, VT_E_DEVICE_MEM, "no free recurrent snapshot");
    if (n > 0 && !(r->wpages = malloc(n * sizeof *r->wpages)))
        return vt_fail(err, VT_E_NOMEM, "out of memory for an import of %u window pages", n);
    while (r->n_wpages < n) {
        uint32_t page = take_page(e, e->win, m->slot);
        if (page == KV_NONE)
            return vt_fail(err, VT_E_DEVICE_MEM, "no free KV page for %u of window %u", r->n_wpages, n);
        r->wpages[r->n_wpages++] = page;
    }
    m->rec_pos = rec_pos;
    return 0;
}

/* Leading blocks that the cache has need not come again. */
static void hold_published(struct eng *e, struct import *m, uint32_t n_blocks)
{
    uint8_t name[KV_NAME];
    memcpy(name, m->root, KV_NAME);
    while (m->n_blocks < n_blocks) {
        ckpt_next(name, m->items + (size_t)m->n_blocks * BE_PAGE, BE_PAGE, name);
        uint32_t page = kv_page_find(e->kv, name);
        if (page == KV_NONE)
            break;
        kv_page_ref(e->kv, page);
        m->pages[m->n_blocks++] = page;
    }
    m->held = m->n_blocks;
}

static int take_memory(struct eng *e, struct import *m, const uint32_t *items, uint32_t n_blocks,
                       uint32_t rec_pos, struct vt_err *err)
{
    m->items = malloc((size_t)n_blocks * BE_PAGE * sizeof *m->items);
    m->pages = malloc(n_blocks * sizeof *m->pages);
    if (!m->items || !m->pages)
        return vt_fail(err, VT_E_NOMEM, "out of memory for an import of %u blocks", n_blocks);
    memcpy(m->items, items, (size_t)n_blocks * BE_PAGE * sizeof *m->items);
    if (!m->slot)
        hold_published(e, m, n_blocks);
    while (m->n_blocks < n_blocks) {
        uint32_t page = take_page(e, e->kv, m->slot);
        if (page == KV_NONE)
            return vt_fail(err, VT_E_DEVICE_MEM, "no free KV page for block %u of %u", m->n_blocks, n_blocks);
        m->pages[m->n_blocks++] = page;
    }
    return checkpoint_rec_bytes(e) > 0 && rec_pos > 0 ? take_rec(e, m, rec_pos, err) : 0;
}

int engine_import_begin(struct eng *e, uint32_t slot, const char *tenant, const uint32_t *items,
                        uint32_t n_items, uint32_t n_blocks, uint32_t rec_pos, void **imp, uint32_t *held,
                        struct vt_err *err)
{
    if (check_import(e, slot, tenant, items, n_items, n_blocks, rec_pos, err) < 0)
        return -1;
    struct import *m = calloc(1, sizeof *m);
    if (!m)
        return vt_fail(err, VT_E_NOMEM, "out of memory for an import");
    m->slot = slot != ENG_CACHE ? &e->slots[slot] : NULL;
    m->rec.snap = KV_NONE;
    strcpy(m->tenant, tenant); /* checked: it fits */
    kv_root(tenant, m->root);
    if (take_memory(e, m, items, n_blocks, rec_pos, err) < 0) {
        engine_import_free(e, m);
        return -1;
    }
    *imp = m;
    *held = m->held;
    return 0;
}

int engine_import_write(struct eng *e, void *imp, int kind, uint32_t index, uint64_t off, const void *src,
                        size_t len, struct vt_err *err)
{
    struct import *m = imp;
    bool block = kind == 1 && index >= m->held && index < m->n_blocks,
         rec = kind == 2 && m->rec_pos > 0; /* there is one snapshot; its index does not matter */
    uint64_t size = block ? kv_page_bytes(e->kv) : checkpoint_rec_bytes(e);
    if ((!block && !rec) || off > size || len > size - off)
        return vt_fail(err, VT_E_PARAM, "%zu bytes at %llu of block %u (kind %d) lie outside of the import",
                       len, (unsigned long long)off, index, kind);
    if (block)
        be_write(e->be, kv_page_data(e->kv, m->pages[index]) + off, src, len);
    else
        rec_write(e, &m->rec, off, src, len);
    return 0;
}

/* Everything gets its name; the references go with the import, and what nobody takes then stays cached. */
static void publish_to_cache(struct eng *e, struct import *m, uint32_t usable)
{
    uint8_t name[KV_NAME];
    uint32_t first = m->rec_pos > 0 ? first_wpage(e, m->rec_pos) : usable;
    memcpy(name, m->root, KV_NAME);
    for (uint32_t i = 0; i < usable; i++) {
        ckpt_next(name, m->items + (size_t)i * BE_PAGE, BE_PAGE, name);
        if (i >= m->held)
            m->pages[i] = kv_page_publish(e->kv, m->pages[i], name);
        if (e->win && i >= first && i - first < m->rec.n_wpages)
            m->rec.wpages[i - first] = kv_page_publish(e->win, m->rec.wpages[i - first], name);
    }
    if (m->rec.snap != KV_NONE)
        kv_snap_attach(e->kv, m->pages[usable - 1], m->rec.snap);
    m->rec.snap = KV_NONE;
}

int engine_import_publish(struct eng *e, void *imp, uint32_t n_blocks, bool rec_ok, uint32_t *tokens,
                          struct vt_err *err)
{
    struct import *m = imp;
    struct slot *s = m->slot;
    if (s && s->req)
        return vt_fail(err, VT_E_BUSY, "slot %u is at work", s->index);
    uint32_t usable = n_blocks < m->n_blocks ? n_blocks : m->n_blocks;
    if (checkpoint_rec_bytes(e) > 0)
        usable = rec_ok && m->rec_pos <= usable * BE_PAGE ? m->rec_pos / BE_PAGE : 0;
    *tokens = usable * BE_PAGE;
    if (usable == 0)
        return 0;
    if (!s) {
        publish_to_cache(e, m, usable);
        return 0;
    }
    kv_seq_install(&s->seq, m->root, m->items, m->pages, usable, m->rec.snap, m->rec.wpages);
    m->rec.snap = KV_NONE;
    m->rec.n_wpages = 0;
    /* The pages that were used have gone into the slot; import_free returns the others. */
    memmove(m->pages, m->pages + usable, (m->n_blocks - usable) * sizeof *m->pages);
    m->n_blocks -= usable;
    memcpy(s->tenant, m->tenant, sizeof s->tenant);
    s->used = ++e->stamp;
    s->parked = false;
    slot_changed(s);
    return 0;
}

void engine_import_free(struct eng *e, void *imp)
{
    struct import *m = imp;
    if (!m)
        return;
    for (uint32_t i = m->n_blocks; i-- > 0;) /* the start of a prefix is evicted last */
        kv_page_unref(e->kv, m->pages[i]);
    rec_free(e, &m->rec);
    free(m->items);
    free(m->pages);
    free(m);
}
