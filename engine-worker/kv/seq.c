#include "seq.h"
#include "ckpt.h"
#include "hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint32_t kv_window_first(uint32_t window, uint32_t pos)
{
    return pos >= window ? (pos - window + 1) / BE_PAGE : 0;
}

uint32_t kv_window_pages(uint32_t window)
{
    return (window + BE_PAGE - 2) / BE_PAGE;
}

int kv_seq_init(struct kv_seq *s, struct kv *kv, struct kv *win, uint32_t window, uint32_t cap,
                uint32_t max_snaps, struct vt_err *err)
{
    uint32_t n_pages = (cap + BE_PAGE - 1) / BE_PAGE;
    void *state = NULL;
    *s = (struct kv_seq){.kv = kv, .win = win, .window = window, .cap = cap, .max_snaps = max_snaps};
    s->ids = calloc(cap, sizeof *s->ids);
    s->pages = calloc(n_pages, sizeof *s->pages);
    s->names = calloc(n_pages + 1, sizeof *s->names);
    if (win)
        s->wpages = calloc(n_pages, sizeof *s->wpages);
    int rc = s->ids && s->pages && s->names && (s->wpages || !win)
                 ? be_alloc(kv_be(kv), &state, kv_snap_bytes(kv), err)
                 : vt_fail(err, VT_E_NOMEM, "out of memory for a window of %u tokens", cap);
    s->state = state;
    if (rc < 0)
        kv_seq_fini(s);
    return rc;
}

/* The last page goes first, so that the start of a prefix is evicted last. */
static void drop_pages(struct kv_seq *s, uint32_t keep)
{
    while (s->n_pages > keep) {
        kv_page_unref(s->kv, s->pages[--s->n_pages]);
        if (s->win && s->n_pages >= s->first_wpage)
            kv_page_unref(s->win, s->wpages[s->n_pages]);
    }
    if (keep == 0)
        s->first_wpage = 0;
}

void kv_seq_fini(struct kv_seq *s)
{
    drop_pages(s, 0);
    free(s->ids);
    free(s->pages);
    free(s->wpages);
    free(s->names);
    if (s->state)
        be_release(kv_be(s->kv), s->state, kv_snap_bytes(s->kv));
    *s = (struct kv_seq){0};
}

void kv_root(const char *tenant, uint8_t root[KV_NAME])
{
    vt_sha256(tenant, strlen(tenant), root);
}

static void zero_state(struct kv_seq *s)
{
    if (s->state)
        be_zero(kv_be(s->kv), s->state, kv_snap_bytes(s->kv));
}

void kv_seq_clear(struct kv_seq *s, const uint8_t root[KV_NAME])
{
    drop_pages(s, 0);
    s->n = s->keep = 0;
    memcpy(s->names[0], root, KV_NAME);
    zero_state(s);
}

void kv_seq_poison(struct kv_seq *s)
{
    for (uint32_t i = 0; i < s->n_pages; i++) {
        if (kv_page_refs(s->kv, s->pages[i]) == 1)
            kv_page_forget(s->kv, s->pages[i]);
        if (s->win && i >= s->first_wpage && kv_page_refs(s->win, s->wpages[i]) == 1)
            kv_page_forget(s->win, s->wpages[i]);
    }
    drop_pages(s, 0);
    s->n = s->keep = 0;
    zero_state(s);
}

/* ---- finding ---- */

uint32_t kv_seq_lcp(const struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids, uint32_t n)
{
    if (memcmp(s->names[0], root, KV_NAME) != 0)
        return 0;
    uint32_t max = s->n < n ? s->n : n, i = 0;
    while (i < max && s->ids[i] == ids[i])
        i++;
    return i;
}

/* The window before this page border is held. */
static bool window_held(const struct kv_seq *s, uint32_t border)
{
    return !s->win || kv_window_first(s->window, border) >= s->first_wpage;
}

/* The longest prefix of at most `match` tokens that s can go back to. */
static uint32_t own_reuse(const struct kv_seq *s, uint32_t match)
{
    if (match == s->n)
        return match;
    if (!s->state)
        return window_held(s, match / BE_PAGE * BE_PAGE) ? match : 0;
    for (uint32_t p = match / BE_PAGE; p > 0; p--)
        if (kv_snap_of(s->kv, s->pages[p - 1]) != KV_NONE && window_held(s, p * BE_PAGE))
            return p * BE_PAGE;
    return 0;
}

/* Leading pages that are published; up to the last border with a snapshot, for hybrids, and with its window. */
static uint32_t find_pages(const struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids,
                           uint32_t limit)
{
    uint8_t name[KV_NAME];
    uint32_t usable = 0, in_window = 0; /* pages of the window pool up to here without a gap */
    memcpy(name, root, KV_NAME);
    for (uint32_t i = 0; (i + 1) * BE_PAGE <= limit; i++) {
        ckpt_next(name, ids + (size_t)i * BE_PAGE, BE_PAGE, name);
        uint32_t page = kv_page_find(s->kv, name);
        if (page == KV_NONE)
            break;
        if (s->win)
            in_window = kv_page_find(s->win, name) != KV_NONE ? in_window + 1 : 0;
        if (s->win && i + 1 - in_window > kv_window_first(s->window, (i + 1) * BE_PAGE))
            continue;
        if (!s->state || kv_snap_of(s->kv, page) != KV_NONE)
            usable = i + 1;
    }
    return usable;
}

struct kv_reuse kv_seq_match(const struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids,
                             uint32_t n, const struct kv_seq *const *others, uint32_t n_others)
{
    assert(n > 0);
    uint32_t limit = n - 1 < s->cap ? n - 1 : s->cap;
    struct kv_reuse own = {.n = own_reuse(s, kv_seq_lcp(s, root, ids, limit)), .from = KV_OWN};
    struct kv_reuse r = {.from = KV_PAGES, .n_pages = find_pages(s, root, ids, limit)};
    r.n = r.n_pages * BE_PAGE;
    for (uint32_t i = 0; !s->state && i < n_others; i++) {
        uint32_t lcp = others[i] == s ? 0 : kv_seq_lcp(others[i], root, ids, limit);
        if (lcp > r.n && lcp / BE_PAGE == r.n_pages && r.n_pages >= others[i]->first_wpage) {
            r.n = lcp;
            r.tail = others[i];
        }
    }
    return own.n >= r.n ? own : r;
}

/* ---- taking over ---- */

static void load_state(struct kv_seq *s)
{
    if (!s->state)
        return;
    if (s->n == 0) {
        zero_state(s);
        return;
    }
    uint32_t snap = kv_snap_of(s->kv, s->pages[s->n / BE_PAGE - 1]);
    assert(s->n % BE_PAGE == 0 && snap != KV_NONE);
    be_copy(kv_be(s->kv), s->state, kv_snap_data(s->kv, snap), kv_snap_bytes(s->kv));
}

/* Puts copies of page i of another sequence (or of our own, published one) into page i of s. */
static bool copy_page(struct kv_seq *s, const struct kv_seq *from, uint32_t i)
{
    uint32_t page = kv_page_alloc(s->kv), wpage = s->win && page != KV_NONE ? kv_page_alloc(s->win) : KV_NONE;
    if (page == KV_NONE)
        return false;
    if (s->win && wpage == KV_NONE) {
        kv_page_unref(s->kv, page);
        return false;
    }
    struct be *be = kv_be(s->kv);
    be_copy(be, kv_page_data(s->kv, page), kv_page_data(s->kv, from->pages[i]), kv_page_bytes(s->kv));
    if (s->win)
        be_copy(be, kv_page_data(s->win, wpage), kv_page_data(s->win, from->wpages[i]),
                kv_page_bytes(s->win));
    if (i < s->n_pages) {
        kv_page_unref(s->kv, s->pages[i]);
        if (s->win)
            kv_page_unref(s->win, s->wpages[i]);
    } else {
        s->n_pages++;
    }
    s->pages[i] = page;
    if (s->win)
        s->wpages[i] = wpage;
    return true;
}

static void truncate_to(struct kv_seq *s, uint32_t n)
{
    if (n == s->n)
        return;
    uint32_t full = n / BE_PAGE;
    if (n % BE_PAGE != 0 && kv_page_published(s->kv, s->pages[full]) && !copy_page(s, s, full))
        n = full * BE_PAGE;
    drop_pages(s, (n + BE_PAGE - 1) / BE_PAGE);
    s->n = n;
    load_state(s);
}

static void take_pages(struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids, uint32_t n_pages)
{
    uint8_t name[KV_NAME];
    uint32_t first = s->win ? kv_window_first(s->window, n_pages * BE_PAGE) : 0;
    memcpy(name, root, KV_NAME);
    /* References first: our own pages may be among those that are found. */
    for (uint32_t i = 0; i < n_pages; i++) {
        ckpt_next(name, ids + (size_t)i * BE_PAGE, BE_PAGE, name);
        kv_page_ref(s->kv, kv_page_find(s->kv, name));
        if (s->win && i >= first)
            kv_page_ref(s->win, kv_page_find(s->win, name));
    }
    drop_pages(s, 0);
    memcpy(s->names[0], root, KV_NAME);
    for (uint32_t i = 0; i < n_pages; i++) {
        ckpt_next(s->names[i], ids + (size_t)i * BE_PAGE, BE_PAGE, s->names[i + 1]);
        if (s->win)
            s->wpages[i] = i >= first ? kv_page_find(s->win, s->names[i + 1]) : KV_NONE;
        s->pages[s->n_pages++] = kv_page_find(s->kv, s->names[i + 1]);
    }
    s->first_wpage = first;
    s->n = n_pages * BE_PAGE;
    memcpy(s->ids, ids, (size_t)s->n * sizeof *ids);
    load_state(s);
}

static void take_tail(struct kv_seq *s, const uint32_t *ids, const struct kv_reuse *r)
{
    if (!copy_page(s, r->tail, r->n_pages))
        return;
    memcpy(s->ids + s->n, ids + s->n, (size_t)(r->n - s->n) * sizeof *ids);
    s->n = r->n;
}

uint32_t kv_seq_reuse(struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids,
                      const struct kv_reuse *r)
{
    if (r->n == 0) {
        kv_seq_clear(s, root);
    } else if (r->from == KV_OWN) {
        truncate_to(s, r->n);
    } else {
        take_pages(s, root, ids, r->n_pages);
        if (r->tail)
            take_tail(s, ids, r);
    }
    return s->n;
}

void kv_seq_install(struct kv_seq *s, const uint8_t root[KV_NAME], const uint32_t *ids, const uint32_t *pages,
                    uint32_t n_pages, uint32_t snap, const uint32_t *wpages)
{
    kv_seq_clear(s, root);
    s->n = n_pages * BE_PAGE;
    s->first_wpage = s->win ? kv_window_first(s->window, s->n) : 0;
    memcpy(s->ids, ids, (size_t)s->n * sizeof *ids);
    for (uint32_t i = 0; i < n_pages; i++) {
        ckpt_next(s->names[i], ids + (size_t)i * BE_PAGE, BE_PAGE, s->names[i + 1]);
        s->pages[s->n_pages++] = kv_page_publish(s->kv, pages[i], s->names[i + 1]);
        if (s->win)
            s->wpages[i] = i < s->first_wpage
                               ? KV_NONE
                               : kv_page_publish(s->win, wpages[i - s->first_wpage], s->names[i + 1]);
    }
    if (snap != KV_NONE)
        kv_snap_attach(s->kv, s->pages[n_pages - 1], snap);
    load_state(s);
}

/* ---- growing ---- */

uint32_t kv_seq_room(struct kv_seq *s, uint32_t want)
{
    if (want > s->cap - s->n)
        want = s->cap - s->n;
    while (s->n_pages * BE_PAGE < s->n + want) {
        uint32_t page = kv_page_alloc(s->kv);
        if (page == KV_NONE)
            break;
        if (s->win && (s->wpages[s->n_pages] = kv_page_alloc(s->win)) == KV_NONE) {
            kv_page_unref(s->kv, page);
            break;
        }
        s->pages[s->n_pages++] = page;
    }
    uint32_t room = s->n_pages * BE_PAGE - s->n;
    return room < want ? room : want;
}

/* One snapshot too many: takes away the one that is missed least. Near the end they stay close together, further back they
 * thin out; the newest, the prompt's border and those that others share stay. */
static void thin_snaps(struct kv_seq *s)
{
    uint32_t count = 0, newest = s->n_pages;
    for (uint32_t i = 0; i < s->n_pages; i++)
        count += kv_snap_of(s->kv, s->pages[i]) != KV_NONE;
    while (count > s->max_snaps) {
        uint32_t victim = KV_NONE, prev = 0;
        double least = 0;
        for (uint32_t i = 0; i < newest; i++) {
            if (kv_snap_of(s->kv, s->pages[i]) == KV_NONE)
                continue;
            uint32_t next = i + 1;
            while (next < newest && kv_snap_of(s->kv, s->pages[next]) == KV_NONE)
                next++;
            double loss = (double)(next + 1 - prev) / (newest - prev);
            bool free_to_go =
                next < newest && (i + 1) * BE_PAGE != s->keep && kv_page_refs(s->kv, s->pages[i]) == 1;
            if (free_to_go && (victim == KV_NONE || loss < least)) {
                victim = i;
                least = loss;
            }
            prev = i + 1;
        }
        if (victim == KV_NONE)
            return;
        kv_snap_drop(s->kv, s->pages[victim]);
        count--;
    }
}

static void page_full(struct kv_seq *s, uint32_t i)
{
    ckpt_next(s->names[i], s->ids + (size_t)i * BE_PAGE, BE_PAGE, s->names[i + 1]);
    s->pages[i] = kv_page_publish(s->kv, s->pages[i], s->names[i + 1]);
    if (s->win)
        s->wpages[i] = kv_page_publish(s->win, s->wpages[i], s->names[i + 1]);
    if (!s->state || s->n != (i + 1) * BE_PAGE)
        return;
    kv_snap_take(s->kv, s->pages[i], s->state);
    thin_snaps(s);
}

uint32_t kv_seq_cut(const struct kv_seq *s, uint32_t want)
{
    const uint32_t far = KV_SNAP_PAGES * BE_PAGE;
    if (!s->state)
        return want;
    uint32_t most = far - s->n % far, n = want < most ? want : most, behind = (s->n + n) % BE_PAGE;
    return behind < n ? n - behind : n;
}

/* Gives back what no row from the newest page border on can see. */
static void leave_window(struct kv_seq *s)
{
    uint32_t first = kv_window_first(s->window, s->n / BE_PAGE * BE_PAGE);
    while (s->first_wpage < first) {
        kv_page_unref(s->win, s->wpages[s->first_wpage]);
        s->wpages[s->first_wpage++] = KV_NONE;
    }
}

void kv_seq_advance(struct kv_seq *s, const uint32_t *ids, uint32_t n)
{
    assert(n <= s->n_pages * BE_PAGE - s->n);
    uint32_t first = s->n / BE_PAGE;
    memcpy(s->ids + s->n, ids, (size_t)n * sizeof *ids);
    s->n += n;
    for (uint32_t i = first; (i + 1) * BE_PAGE <= s->n; i++)
        page_full(s, i);
    if (s->win)
        leave_window(s);
}

void kv_seq_rewind(struct kv_seq *s, uint32_t n, const float *state)
{
    assert(n <= s->n && n / BE_PAGE == s->n / BE_PAGE && !state == !s->state);
    s->n = n;
    if (state)
        be_copy(kv_be(s->kv), s->state, state, kv_snap_bytes(s->kv));
}
