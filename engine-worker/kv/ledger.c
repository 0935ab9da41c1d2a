#include "ledger.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAGIC 0x3172656764654c56u /* VLedger1 */

/* The order of the stores is what a successor relies on; the processor keeps it, the compiler has to. */
static void before_next(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

size_t kv_ledger_bytes(uint32_t n_pages)
{
    return sizeof(struct kv_ledger) + n_pages * sizeof(struct kv_ledger_entry);
}

/* The seals of a ledger that is lost may be there still: counting from 0 would repeat its stamps. */
static uint64_t first_stamp(void)
{
    uint64_t r = 0;
    if (getrandom(&r, sizeof r, 0) != (ssize_t)sizeof r)
        r = 0;
    return r >> 1;
}

bool kv_ledger_open(struct kv_ledger *l, uint32_t n_pages, uint32_t n_snaps, uint64_t page_bytes,
                    uint64_t snap_bytes)
{
    if (l->magic == MAGIC && l->n_pages == n_pages && l->n_snaps == n_snaps && l->page_bytes == page_bytes &&
        l->snap_bytes == snap_bytes)
        return true;
    memset(l, 0, kv_ledger_bytes(n_pages));
    l->stamp = first_stamp();
    l->n_pages = n_pages;
    l->n_snaps = n_snaps;
    l->page_bytes = page_bytes;
    l->snap_bytes = snap_bytes;
    before_next();
    l->magic = MAGIC;
    return false;
}

uint64_t kv_ledger_put(struct kv_ledger *l, uint32_t page, const uint8_t name[KV_NAME])
{
    struct kv_ledger_entry *e = &l->entry[page];
    uint64_t stamp = ++l->stamp;
    memcpy(e->name, name, KV_NAME);
    e->snap_stamp = 0;
    before_next();
    e->stamp = stamp;
    before_next();
    return stamp;
}

void kv_ledger_drop(struct kv_ledger *l, uint32_t page)
{
    l->entry[page].stamp = 0;
    before_next();
}

uint64_t kv_ledger_snap(struct kv_ledger *l, uint32_t page, uint32_t snap)
{
    struct kv_ledger_entry *e = &l->entry[page];
    uint64_t stamp = ++l->stamp;
    e->snap = snap;
    before_next();
    e->snap_stamp = stamp;
    before_next();
    return stamp;
}

void kv_ledger_snap_drop(struct kv_ledger *l, uint32_t page)
{
    l->entry[page].snap_stamp = 0;
    before_next();
}

/* ---- taking over ---- */

struct claim {
    uint64_t stamp;
    uint32_t page;
};

static int by_stamp(const void *a, const void *b)
{
    const struct claim *x = a, *y = b;
    return x->stamp < y->stamp ? -1 : x->stamp > y->stamp;
}

/* What the device has and what it ought to be, fetched together. */
struct proof {
    uint64_t *kept, *now; /* [n_pages + n_snaps] */
};

static int prove(const struct kv_ledger *l, struct be *be, const uint8_t *memory, const uint64_t *seals,
                 struct proof *p, struct vt_err *err)
{
    uint32_t n = l->n_pages + l->n_snaps;
    size_t bytes = n * sizeof(uint64_t);
    const uint8_t *snaps = memory + l->page_bytes * l->n_pages;
    void *fresh;
    p->kept = malloc(bytes);
    p->now = malloc(bytes);
    if (!p->kept || !p->now)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the seals of %u pages", n);
    if (be_alloc(be, &fresh, bytes, err) < 0)
        return -1;
    uint64_t *out = fresh;
    for (uint32_t i = 0; i < l->n_pages; i++) {
        const struct kv_ledger_entry *e = &l->entry[i];
        if (e->stamp != 0)
            be_seal(be, &out[i], memory + l->page_bytes * i, l->page_bytes, e->stamp);
        if (e->stamp != 0 && e->snap_stamp != 0 && e->snap < l->n_snaps)
            be_seal(be, &out[l->n_pages + e->snap], snaps + l->snap_bytes * e->snap, l->snap_bytes,
                    e->snap_stamp);
    }
    int rc = be_read(be, p->now, fresh, bytes, err);
    if (rc == 0)
        rc = be_read(be, p->kept, seals, bytes, err);
    be_release(be, fresh, bytes);
    return rc;
}

/* Two pages with one snapshot, or one name twice, are no state that this code leaves behind. */
static bool snap_fits(const struct kv_ledger *l, const struct proof *p, const struct kv_ledger_entry *e,
                      bool *used)
{
    if (e->snap >= l->n_snaps || used[e->snap] ||
        p->now[l->n_pages + e->snap] != p->kept[l->n_pages + e->snap])
        return false;
    used[e->snap] = true;
    return true;
}

int kv_ledger_check(struct kv_ledger *l, struct be *be, const uint8_t *memory, const uint64_t *seals,
                    uint32_t *order, uint32_t *n, uint32_t *spoilt, struct vt_err *err)
{
    struct proof p = {0};
    struct claim *claims = calloc(l->n_pages + 1u, sizeof *claims);
    bool *used = calloc(l->n_snaps + 1u, sizeof *used);
    int rc = claims && used ? prove(l, be, memory, seals, &p, err)
                            : vt_fail(err, VT_E_NOMEM, "out of memory for %u pages", l->n_pages);
    uint32_t found = 0;
    *n = *spoilt = 0;
    for (uint32_t i = 0; rc == 0 && i < l->n_pages; i++)
        if (l->entry[i].stamp != 0)
            claims[found++] = (struct claim){.stamp = l->entry[i].stamp, .page = i};
    if (found > 0)
        qsort(claims, found, sizeof *claims, by_stamp);
    for (uint32_t i = 0; i < found; i++) {
        uint32_t page = claims[i].page;
        struct kv_ledger_entry *e = &l->entry[page];
        if (e->snap_stamp > l->stamp || e->stamp > l->stamp || p.now[page] != p.kept[page]) {
            kv_ledger_drop(l, page);
            ++*spoilt;
            continue;
        }
        if (e->snap_stamp != 0 && !snap_fits(l, &p, e, used))
            kv_ledger_snap_drop(l, page);
        order[(*n)++] = page;
    }
    free(p.kept);
    free(p.now);
    free(claims);
    free(used);
    return rc;
}
