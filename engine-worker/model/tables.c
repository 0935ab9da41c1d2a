#include "tables.h"

#include <assert.h>
#include <stdlib.h>

#define ALIGN     64
#define MAX_KEYED 64 /* rows of a batch that has a key */

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t pages_of(const struct fw_run *r)
{
    return (r->pos0 + r->n_rows + BE_PAGE - 1) / BE_PAGE;
}

/* Everything but the page tables. */
static size_t fixed_bytes(const struct tables *t)
{
    size_t rows = (size_t)t->max_rows, runs = (size_t)t->max_runs;
    return aligned(rows * sizeof(uint32_t)) + 3 * aligned(rows * sizeof(int32_t)) +
           2 * aligned(runs * sizeof(struct be_attn_run)) + aligned(runs * sizeof(struct be_delta_run));
}

static int grow(struct tables *t, size_t bytes, struct vt_err *err)
{
    void *dev;
    uint8_t *host = realloc(t->host, bytes);
    if (!host)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the page tables of a batch");
    t->host = host;
    if (be_alloc(t->be, &dev, bytes, err) < 0)
        return vt_fail_prefix(err, "page tables of a batch");
    be_release(t->be, t->dev, t->bytes);
    t->dev = dev;
    t->bytes = bytes;
    t->grown++;
    return 0;
}

int tables_init(struct tables *t, struct be *be, const struct kv *kv, const struct kv *window,
                int32_t window_tokens, int64_t max_rows, int max_runs, struct vt_err *err)
{
    *t = (struct tables){.be = be,
                         .kv = kv,
                         .window = window,
                         .window_tokens = window_tokens,
                         .max_rows = max_rows,
                         .max_runs = max_runs};
    if (grow(t, fixed_bytes(t) + 4096, err) == 0)
        return 0;
    tables_fini(t);
    return -1;
}

void tables_fini(struct tables *t)
{
    free(t->host);
    if (t->be)
        be_release(t->be, t->dev, t->bytes);
    *t = (struct tables){0};
}

/* A piece of both sides; returns this processor's. */
static void *take(struct tables *t, size_t bytes)
{
    void *p = t->host + t->used;
    t->used += aligned(bytes);
    assert(t->used <= t->bytes);
    return p;
}

static const void *on_device(const struct tables *t, const void *host)
{
    return t->dev + ((const uint8_t *)host - t->host);
}

/* To a quarter of a power of two pages, so that few depths are told apart. */
static int32_t round_up(int32_t max_pos)
{
    int32_t pages = max_pos / BE_PAGE + 1, step = 1;
    while (step * 8 <= pages)
        step *= 2;
    return (pages + step - 1) / step * step * BE_PAGE - 1;
}

static void set_rows(struct tables *t, const struct fw_batch *b)
{
    size_t n = (size_t)b->n_rows;
    uint32_t *ids = take(t, n * sizeof *ids);
    int32_t *pos = take(t, n * sizeof *pos), *run = take(t, n * sizeof *run),
            *wanted = take(t, n * sizeof *wanted);
    t->n_wanted = 0;
    for (int64_t i = 0; i < b->n_rows; i++) {
        ids[i] = b->ids[i];
        if (b->want[i])
            wanted[t->n_wanted++] = (int32_t)i;
    }
    t->all = (struct be_rows){.T = b->n_rows, .n_runs = b->n_runs};
    for (int i = 0; i < b->n_runs; i++) {
        const struct fw_run *r = &b->runs[i];
        for (int64_t j = 0; j < r->n_rows; j++) {
            pos[r->row0 + j] = r->pos0 + (int32_t)j;
            run[r->row0 + j] = i;
        }
        if (r->pos0 + (int32_t)r->n_rows - 1 > t->all.max_pos)
            t->all.max_pos = r->pos0 + (int32_t)r->n_rows - 1;
    }
    t->ids = on_device(t, ids);
    t->wanted = on_device(t, wanted);
    t->all.pos = on_device(t, pos);
    t->all.row_run = on_device(t, run);
    t->all.max_pos = round_up(t->all.max_pos);
    t->windowed = t->all;
}

static void set_states(struct tables *t, const struct fw_batch *b)
{
    struct be_delta_run *s = take(t, (size_t)b->n_runs * sizeof *s);
    for (int i = 0; i < b->n_runs; i++)
        s[i] = (struct be_delta_run){
            .row0 = b->runs[i].row0, .n_rows = b->runs[i].n_rows, .state = b->runs[i].state};
    t->states = on_device(t, s);
}

/* Pages behind the window of a run's first row are not there, and their names mean nothing. */
static int64_t first_page(const struct tables *t, const struct fw_run *r, bool windowed)
{
    return windowed && r->pos0 >= t->window_tokens ? (r->pos0 - t->window_tokens + 1) / BE_PAGE : 0;
}

static void set_runs(struct tables *t, const struct fw_batch *b, struct be_attn_run *runs, bool windowed)
{
    const struct kv *kv = windowed ? t->window : t->kv;
    for (int i = 0; i < b->n_runs; i++) {
        const struct fw_run *r = &b->runs[i];
        const uint32_t *pages = windowed ? r->wpages : r->pages;
        int64_t n = pages_of(r);
        uint8_t **table = take(t, (size_t)n * sizeof *table);
        for (int64_t j = 0; j < n; j++)
            table[j] = j < first_page(t, r, windowed) ? NULL : kv_page_data(kv, pages[j]);
        runs[i] = (struct be_attn_run){
            .row0 = r->row0, .n_rows = r->n_rows, .pos0 = r->pos0, .pages = on_device(t, table)};
    }
}

int tables_set(struct tables *t, const struct fw_batch *b, struct vt_err *err)
{
    assert(b->n_rows > 0 && b->n_rows <= t->max_rows && b->n_runs <= t->max_runs);
    size_t need = fixed_bytes(t);
    for (int i = 0; i < b->n_runs; i++)
        need += 2 * aligned((size_t)pages_of(&b->runs[i]) * sizeof(uint8_t *));
    if (need > t->bytes && grow(t, 2 * need, err) < 0)
        return -1;
    t->used = 0;
    set_rows(t, b);
    set_states(t, b);
    /* What an operation is given comes before the page tables, so that equal batches have it at equal addresses. */
    struct be_attn_run *all = take(t, (size_t)b->n_runs * sizeof *all);
    struct be_attn_run *windowed = take(t, (size_t)b->n_runs * sizeof *windowed);
    set_runs(t, b, all, false);
    if (t->window)
        set_runs(t, b, windowed, true);
    t->all.runs = on_device(t, all);
    t->windowed.runs = on_device(t, windowed);
    be_write(t->be, t->dev, t->host, t->used);
    return 0;
}

uint64_t tables_key(const struct tables *t, const struct fw_batch *b, bool whole)
{
    if (b->hidden || b->n_rows != b->n_runs || t->n_wanted != b->n_rows || b->n_rows > MAX_KEYED)
        return 0;
    return (uint64_t)t->grown << 48 | (uint64_t)(t->all.max_pos / BE_PAGE + 1) << 16 | (uint64_t)whole << 15 |
           (uint64_t)b->n_rows;
}
