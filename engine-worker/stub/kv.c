#include "stub.h"

#include <stdlib.h>
#include <string.h>

/* A block's bytes are words that follow from all items up to its end, so a block restored under the wrong items is seen. */

struct held {
    uint64_t *block; /* [n_blocks] word seeds */
    uint32_t rec_pos[1024];
};

struct import {
    uint32_t slot, n_items, n_blocks, rec_pos;
    char tenant[65];
    uint32_t *items;
    uint64_t *block; /* word seeds */
    uint64_t *got;   /* good bytes of each block */
    uint64_t rec_got;
};

static uint64_t *seeds(const uint32_t *items, uint32_t n_blocks)
{
    uint64_t *s = calloc((size_t)n_blocks + 1, sizeof *s), h = 1;
    for (uint32_t b = 0; s != NULL && b < n_blocks; b++) {
        for (uint32_t i = 0; i < ENG_PAGE; i++)
            h = stub_mix(h ^ items[(size_t)b * ENG_PAGE + i]);
        s[b] = h;
    }
    return s;
}

static uint64_t rec_seed(const uint64_t *block, uint32_t pos)
{
    return stub_mix(block[pos / ENG_PAGE - 1] ^ 0x52);
}

static void bytes_at(uint64_t seed, uint64_t off, uint8_t *dst, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint64_t at = off + i, word = stub_mix(seed + at / 8);
        size_t in = at % 8, n = 8 - in < len - i ? 8 - in : len - i;
        memcpy(dst + i, (const uint8_t *)&word + in, n);
        i += n;
    }
}

int stub_export_begin(struct eng *e, uint32_t slot, struct eng_export **out, struct vt_err *err)
{
    if (slot >= e->facts.slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %u does not exist", slot);
    const struct stub_slot *s = &e->slots[slot];
    struct eng_export *x = calloc(1, sizeof *x);
    struct held *h = calloc(1, sizeof *h);
    uint32_t *items = malloc((s->n + 1) * sizeof *items);
    if (x == NULL || h == NULL || items == NULL || (h->block = seeds(s->items, s->n / ENG_PAGE)) == NULL) {
        free(x);
        free(h);
        free(items);
        return vt_fail(err, VT_E_NOMEM, "no memory for an export");
    }
    memcpy(items, s->items, s->n * sizeof *items);
    *x = (struct eng_export){.slot = slot, .epoch = s->epoch, .n_items = s->n, .items = items};
    x->n_blocks = s->n / ENG_PAGE;
    x->rec_pos = h->rec_pos;
    x->opaque = h;
    memcpy(x->tenant, s->tenant, sizeof x->tenant);
    uint32_t keep = e->cfg.rec_snapshots < 1024 ? e->cfg.rec_snapshots : 1024;
    for (uint32_t b = 1; e->o.hybrid && b <= x->n_blocks; b++) {
        if (b + keep > x->n_blocks)
            h->rec_pos[x->n_rec++] = b * ENG_PAGE;
    }
    *out = x;
    return 0;
}

void stub_export_free(struct eng *e, struct eng_export *x)
{
    struct held *h = x != NULL ? x->opaque : NULL;
    if (h != NULL)
        free(h->block);
    free(h);
    if (x != NULL)
        free((void *)x->items);
    free(x);
}

int stub_export_read(struct eng *e, struct eng_export *x, int kind, uint32_t index, uint64_t off, void *dst,
                     size_t len)
{
    const struct held *h = x->opaque;
    uint64_t size = kind == 1 ? e->facts.block_bytes : e->facts.rec_bytes;
    if (index >= (kind == 1 ? x->n_blocks : x->n_rec) || off > size || len > size - off)
        return -1;
    bytes_at(kind == 1 ? h->block[index] : rec_seed(h->block, h->rec_pos[index]), off, dst, len);
    return 0;
}

static uint32_t common(const char *tenant, const uint32_t *ids, uint32_t n, const char *of,
                       const uint32_t *items, uint32_t n_items)
{
    uint32_t i = 0;
    while (strcmp(tenant, of) == 0 && i < n && i < n_items && items[i] == ids[i])
        i++;
    return i;
}

uint32_t stub_prefix(const struct eng *e, const struct stub_slot *only, const char *tenant,
                     const uint32_t *ids, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < e->facts.slots; i++) {
        const struct stub_slot *s = &e->slots[i];
        uint32_t k = only == NULL || only == s ? common(tenant, ids, n, s->tenant, s->items, s->n) : 0;
        best = k > best ? k : best;
    }
    for (unsigned i = 0; i < STUB_CACHE; i++) {
        const struct stub_prefix *p = &e->cache[i];
        uint32_t k = common(tenant, ids, n, p->tenant, p->items, p->n);
        best = k > best ? k : best;
    }
    return best;
}

static void to_cache(struct eng *e, struct import *m, uint32_t n)
{
    struct stub_prefix *p = &e->cache[e->n_cached++ % STUB_CACHE];
    free(p->items);
    *p = (struct stub_prefix){.items = m->items, .n = n};
    memcpy(p->tenant, m->tenant, sizeof p->tenant);
    m->items = NULL;
}

int stub_import_begin(struct eng *e, uint32_t slot, const char *tenant, const uint32_t *items,
                      uint32_t n_items, uint32_t n_blocks, uint32_t rec_pos, void **imp, uint32_t *held,
                      struct vt_err *err)
{
    if (slot != ENG_CACHE && slot >= e->facts.slots)
        return vt_fail(err, VT_E_NO_SLOT, "slot %u does not exist", slot);
    if (slot != ENG_CACHE && e->slots[slot].req.used)
        return vt_fail(err, VT_E_BUSY, "slot %u is at work", slot);
    if (n_blocks == 0 || n_blocks > n_items / ENG_PAGE || n_items > e->facts.window ||
        rec_pos % ENG_PAGE != 0 || rec_pos > n_blocks * ENG_PAGE || strlen(tenant) > 64)
        return vt_fail(err, VT_E_PARAM, "an import that cannot be");
    struct import *m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->items = malloc(n_items * sizeof *m->items);
        m->got = calloc(n_blocks, sizeof *m->got);
        m->block = seeds(items, n_blocks);
    }
    if (m == NULL || m->items == NULL || m->got == NULL || m->block == NULL) {
        stub_import_free(e, m);
        return vt_fail(err, VT_E_NOMEM, "no memory for an import");
    }
    memcpy(m->items, items, n_items * sizeof *m->items);
    strcpy(m->tenant, tenant); /* checked: it fits */
    m->slot = slot;
    m->n_items = n_items;
    m->n_blocks = n_blocks;
    m->rec_pos = rec_pos;
    *held = slot == ENG_CACHE ? stub_prefix(e, NULL, tenant, items, n_items) / ENG_PAGE : 0;
    *held = *held < n_blocks ? *held : n_blocks;
    for (uint32_t i = 0; i < *held; i++)
        m->got[i] = e->facts.block_bytes;
    *imp = m;
    return 0;
}

int stub_import_write(struct eng *e, void *imp, int kind, uint32_t index, uint64_t off, const void *src,
                      size_t len, struct vt_err *err)
{
    struct import *m = imp;
    uint64_t size = kind == 1 ? e->facts.block_bytes : e->facts.rec_bytes;
    uint8_t *want = malloc(len + 1);
    if (want == NULL || (kind == 1 && index >= m->n_blocks) || (kind == 2 && m->rec_pos == 0) || off > size ||
        len > size - off) {
        free(want);
        return vt_fail(err, VT_E_PARAM, "a piece that lies outside of the import");
    }
    bytes_at(kind == 1 ? m->block[index] : rec_seed(m->block, m->rec_pos), off, want, len);
    bool same = memcmp(want, src, len) == 0;
    free(want);
    if (!same)
        return vt_fail(err, VT_E_CORRUPT, "kind %d, block %u: not the bytes of these items", kind, index);
    *(kind == 1 ? &m->got[index] : &m->rec_got) += len;
    return 0;
}

int stub_import_publish(struct eng *e, void *imp, uint32_t n_blocks, bool rec_ok, uint32_t *tokens,
                        struct vt_err *err)
{
    struct import *m = imp;
    struct stub_slot *s = m->slot != ENG_CACHE ? &e->slots[m->slot] : NULL;
    uint32_t good = 0;
    if (s != NULL && s->req.used)
        return vt_fail(err, VT_E_BUSY, "slot %u is at work", m->slot);
    while (good < n_blocks && good < m->n_blocks && m->got[good] == e->facts.block_bytes)
        good++;
    if (e->o.hybrid)
        good = rec_ok && m->rec_got == e->facts.rec_bytes && m->rec_pos <= good * ENG_PAGE
                   ? m->rec_pos / ENG_PAGE
                   : 0;
    *tokens = good * ENG_PAGE;
    if (good == 0)
        return 0;
    if (s == NULL) {
        to_cache(e, m, *tokens);
        return 0;
    }
    s->n = *tokens;
    memcpy(s->items, m->items, s->n * sizeof *s->items);
    memcpy(s->tenant, m->tenant, sizeof s->tenant);
    s->epoch++;
    return 0;
}

void stub_import_free(struct eng *e, void *imp)
{
    struct import *m = imp;
    if (m == NULL)
        return;
    free(m->items);
    free(m->got);
    free(m->block);
    free(m);
}
