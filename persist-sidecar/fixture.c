#include "fixture.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void on_die(void *arg, int code)
{
    struct fix *f = arg;
    f->died = code;
    if (f->sim != NULL)
        sim_die(f->sim);
    else
        _exit(code);
}

static void on_event(void *arg, enum store_event ev, const char *text)
{
    struct fix *f = arg;
    f->events[ev]++;
}

static void seeded(void *arg, void *buf, size_t n)
{
    struct fix *f = arg;
    uint8_t *out = buf;
    for (size_t i = 0; i < n; i++) {
        f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
        out[i] = (uint8_t)(f->seed >> 56);
    }
}

static int sim_space(void *arg, uint64_t *avail, uint64_t *total)
{
    struct fix *f = arg;
    *avail = f->avail;
    *total = f->avail;
    return 0;
}

void fix_init(struct fix *f, bool sim)
{
    static int n;
    char name[40];
    memset(f, 0, sizeof *f);
    f->time.mono = VT_SEC(1000);
    f->time.wall = VT_SEC(1700000000);
    f->clock = vt_clock_fake(&f->time);
    f->avail = (uint64_t)1 << 40;
    snprintf(name, sizeof name, "sim-%d", n++);
    if (sim) {
        f->sim = sim_new(name);
        snprintf(f->dir, sizeof f->dir, "/sim");
    } else {
        const char *tmp = getenv("TMPDIR");
        snprintf(f->dir, sizeof f->dir, "%s/vitriol-store-XXXXXX", tmp != NULL ? tmp : "/tmp");
        if (mkdtemp(f->dir) == NULL)
            abort();
    }
    f->o = (struct store_opts){.dir = f->dir,
                               .quota = (uint64_t)1 << 40,
                               .txn_bytes = 64u << 20,
                               .hour_bytes = (uint64_t)1 << 40,
                               .day_bytes = (uint64_t)1 << 40,
                               .retain_us = VT_SEC(30ull * 86400),
                               .clock = &f->clock,
                               .bare = sim,
                               .base = sim ? sim_vfs(f->sim) : NULL,
                               .random = seeded,
                               .random_arg = f,
                               .die = on_die,
                               .die_arg = f,
                               .event = on_event,
                               .event_arg = f};
    if (sim) {
        f->o.avail = sim_space;
        f->o.avail_arg = f;
    }
}

int fix_open(struct fix *f, struct vt_err *err)
{
    f->died = 0;
    return store_open(&f->s, &f->o, err);
}

void fix_close(struct fix *f, bool clean)
{
    store_close(f->s, clean);
    f->s = NULL;
}

void fix_fini(struct fix *f)
{
    fix_close(f, false);
    if (f->sim != NULL) {
        sim_free(f->sim);
        return;
    }
    static const char *const names[] = {"store.db", "store.db-journal", "store.db.bad", "ballast",
                                        ".sync-test"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", f->dir, names[i]);
        unlink(path);
    }
    rmdir(f->dir);
}

struct talk talk_of(uint32_t seed, uint32_t n_items)
{
    struct talk t = {.tenant = "t",
                     .block_tokens = 64,
                     .n_items = n_items,
                     .kv_bytes = 65536,
                     .seed = seed,
                     .reason = CKPT_AUTOSAVE};
    memset(t.fp, 7, 32);
    return t;
}

uint32_t talk_item(const struct talk *t, uint32_t pos)
{
    return (t->seed * 2654435761u) ^ (pos * 40503u);
}

void talk_fill(const uint8_t name[32], uint32_t piece, uint8_t *out, uint32_t len)
{
    uint64_t x;
    memcpy(&x, name, 8);
    x += piece * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < len; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(out + i, &x, len - i < 8 ? len - i : 8);
    }
}

static uint32_t *items_of(const struct talk *t)
{
    uint32_t *items = malloc(4u * (size_t)t->n_items + 4);
    if (items == NULL)
        abort();
    for (uint32_t i = 0; i < t->n_items; i++)
        items[i] = talk_item(t, i);
    return items;
}

static const uint8_t private_salt[32] = "a salt of one slot, drawn by it";

static int root_of(struct fix *f, const struct talk *t, uint8_t h[32], struct vt_err *err)
{
    uint8_t salt[32];
    if (t->private_salt)
        memcpy(salt, private_salt, 32);
    else if (store_salt(f->s, t->tenant, salt, err) < 0)
        return -1;
    ckpt_h0(t->fp, salt, h);
    return 0;
}

static int names_of(struct fix *f, const struct talk *t, const uint32_t *items, uint8_t *names,
                    struct vt_err *err)
{
    uint8_t h[32];
    if (root_of(f, t, h, err) < 0)
        return -1;
    for (uint32_t i = 0; i < t->n_items / t->block_tokens; i++) {
        ckpt_next(h, items + (size_t)i * t->block_tokens, t->block_tokens, h);
        memcpy(names + 32u * (size_t)i, h, 32);
    }
    return 0;
}

void talk_names(struct fix *f, const struct talk *t, uint8_t *names)
{
    uint32_t *items = items_of(t);
    if (names_of(f, t, items, names, NULL) < 0)
        abort();
    free(items);
}

int fix_begin(struct fix *f, const struct talk *t, struct save **out, struct vt_err *err)
{
    uint32_t n = t->n_items / t->block_tokens, n_rec = 0;
    uint32_t *items = items_of(t);
    uint8_t *names = malloc(32u * (size_t)n + 32);
    struct store_rec *rec = malloc(sizeof *rec * (n + 1));
    if (names == NULL || rec == NULL)
        abort();
    int rc = names_of(f, t, items, names, err);
    for (uint32_t i = t->rec_every; rc == 0 && t->rec_bytes > 0 && i <= n; i += t->rec_every) {
        rec[n_rec].pos = i * t->block_tokens;
        ckpt_rec(names + 32u * (size_t)(i - 1), rec[n_rec].pos, rec[n_rec].name);
        n_rec++;
    }
    struct save_begin b = {.tenant = t->tenant,
                           .name = t->name,
                           .slot = t->slot,
                           .layout_fp = t->fp,
                           .layout = (const uint8_t *)"\x80",
                           .layout_len = 1,
                           .block_tokens = t->block_tokens,
                           .kv_bytes = t->kv_bytes,
                           .rec_bytes = t->rec_bytes,
                           .base_gen = t->base_gen,
                           .items = items,
                           .n_items = t->n_items,
                           .names = names,
                           .n_names = n,
                           .rec = rec,
                           .n_rec = n_rec,
                           .reason = t->reason,
                           .sampler = (const uint8_t *)"smp",
                           .sampler_len = 3,
                           .private_salt = t->private_salt ? private_salt : NULL};
    if (rc == 0)
        rc = save_begin(f->s, &b, out, err);
    free(items);
    free(names);
    free(rec);
    return rc;
}

int fix_send(struct save *sv, const struct talk *t, struct fix *f, enum ckpt_kind kind, uint32_t index,
             struct vt_err *err)
{
    uint64_t bytes = kind == CKPT_KV ? t->kv_bytes : t->rec_bytes;
    uint8_t *names = malloc(32u * (size_t)(t->n_items / t->block_tokens) + 32), name[32], sum[16];
    uint8_t *buf = malloc(CKPT_PIECE);
    uint32_t *items = items_of(t);
    if (names == NULL || buf == NULL)
        abort();
    int rc = names_of(f, t, items, names, err);
    if (kind == CKPT_KV)
        memcpy(name, names + 32u * (size_t)index, 32);
    else
        ckpt_rec(names + 32u * (size_t)((index + 1) * t->rec_every - 1),
                 (index + 1) * t->rec_every * t->block_tokens, name);
    for (uint32_t p = 0; rc == 0 && p < ckpt_pieces(bytes); p++) {
        uint32_t len = ckpt_piece_len(bytes, p);
        talk_fill(name, p, buf, len);
        vt_xxh128(buf, len, sum);
        rc = save_piece(sv, kind, index, p, buf, len, sum, err);
    }
    int more = 1;
    while (rc == 0 && more == 1)
        more = save_step(sv, err);
    free(names);
    free(items);
    free(buf);
    return rc < 0 || more < 0 ? -1 : 0;
}

int fix_save(struct fix *f, const struct talk *t, struct save_result *r, uint32_t *sent, struct vt_err *err)
{
    struct save *sv;
    struct save_result ignored;
    uint32_t n = t->n_items / t->block_tokens, n_rec = t->rec_bytes > 0 ? n / t->rec_every : 0, asked = 0;
    if (fix_begin(f, t, &sv, err) < 0)
        return -1;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if (save_needs(sv, CKPT_KV, i)) {
            rc = fix_send(sv, t, f, CKPT_KV, i, err);
            asked++;
        }
    for (uint32_t i = 0; rc == 0 && i < n_rec; i++)
        if (save_needs(sv, CKPT_REC, i)) {
            rc = fix_send(sv, t, f, CKPT_REC, i, err);
            asked++;
        }
    if (rc == 0)
        rc = save_commit(sv, r != NULL ? r : &ignored, err);
    save_end(sv);
    if (sent != NULL)
        *sent = asked;
    return rc;
}

/* Are the piece's bytes those of the block that the items name? */
static bool piece_is_right(struct fix *f, const struct talk *t, const struct store_plan *p,
                           const struct load_piece *x, const uint8_t *got, uint8_t *want)
{
    uint8_t h[32];
    if (root_of(f, t, h, NULL) < 0)
        return false;
    uint32_t n = x->kind == CKPT_KV ? x->index + 1 : x->index;
    for (uint32_t i = 0; i < n; i++)
        ckpt_next(h, p->items + (size_t)i * p->block_tokens, p->block_tokens, h);
    if (x->kind == CKPT_REC)
        ckpt_rec(h, n * p->block_tokens, h);
    talk_fill(h, x->piece, want, x->len);
    return memcmp(got, want, x->len) == 0;
}

int64_t fix_restore(struct fix *f, const struct talk *t, uint32_t *kv, bool *poisoned, struct vt_err *err)
{
    struct store_plan p;
    struct load *l;
    struct load_piece x;
    *poisoned = false;
    *kv = 0;
    if (store_find_head(f->s, t->fp, t->tenant, t->slot, &p, err) < 0)
        return -1;
    for (uint32_t i = 0; i < p.n_items; i++)
        if (p.items[i] != talk_item(t, i))
            *poisoned = true;
    if (p.sampler_len != 3 || memcmp(p.sampler, "smp", 3) != 0)
        *poisoned = true;
    uint8_t *buf = malloc(2 * (size_t)CKPT_PIECE);
    if (buf == NULL || load_begin(f->s, &p, 0, &l, NULL) < 0)
        abort();
    int rc;
    while ((rc = load_step(l, buf, &x, err)) == 1)
        if (!piece_is_right(f, t, &p, &x, buf, buf + CKPT_PIECE))
            *poisoned = true;
    *kv = load_good(l) * t->block_tokens;
    load_end(l);
    free(buf);
    int64_t n = p.n_items;
    store_plan_free(&p);
    return n;
}

uint64_t fix_check(struct fix *f, bool loud)
{
    struct check_result r;
    struct vt_err err;
    if (store_check(f->s, loud ? stderr : NULL, &r, &err) < 0) {
        if (loud)
            fprintf(stderr, "check: %s\n", err.text);
        return 1;
    }
    return r.violations;
}
