#include "simdisk.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES 8

struct op { /* an un-synced change */
    uint64_t off;
    size_t len; /* a write of len bytes; data NULL: a truncation to off */
    uint8_t *data;
};

struct simfile {
    char name[600];
    bool exists, durable_name, failed;
    uint8_t *cur, *dur;
    size_t cur_len, cur_cap, dur_len, dur_cap;
    struct op *ops;
    size_t n_ops, cap_ops;
};

struct simdisk {
    sqlite3_vfs vfs;
    char name[40];
    struct simfile files[FILES];
    enum sim_call fail_kind;
    uint64_t fail_at, crash_at, limit;
    uint64_t n[SIM_KINDS + 1], bad_syncs;
    int fail_rc;
    bool fail_half, fired, dead, lie;
};

struct handle {
    sqlite3_file file;
    struct simdisk *d;
    struct simfile *f;
};

static void *need(void *p)
{
    if (p == NULL)
        abort();
    return p;
}

static void reserve(uint8_t **p, size_t *cap, size_t len, size_t want)
{
    if (want <= *cap)
        return;
    size_t n = *cap > 0 ? *cap : 65536;
    while (n < want)
        n *= 2;
    *p = need(realloc(*p, n));
    memset(*p + len, 0, n - len);
    *cap = n;
}

static void put(uint8_t **p, size_t *len, size_t *cap, uint64_t off, const void *data, size_t n)
{
    reserve(p, cap, *len, off + n);
    if (off > *len)
        memset(*p + *len, 0, off - *len);
    memcpy(*p + off, data, n);
    if (off + n > *len)
        *len = off + n;
}

static void cut(uint8_t *p, size_t *len, uint64_t size)
{
    if (size < *len) {
        memset(p + size, 0, *len - size);
        *len = size;
    }
}

static void add_op(struct simfile *f, uint64_t off, const void *data, size_t len)
{
    if (f->n_ops == f->cap_ops) {
        f->cap_ops = f->cap_ops > 0 ? 2 * f->cap_ops : 64;
        f->ops = need(realloc(f->ops, f->cap_ops * sizeof *f->ops));
    }
    struct op *o = &f->ops[f->n_ops++];
    *o = (struct op){.off = off, .len = len};
    if (data != NULL) {
        o->data = need(malloc(len));
        memcpy(o->data, data, len);
    }
}

static void clear_ops(struct simfile *f)
{
    for (size_t i = 0; i < f->n_ops; i++)
        free(f->ops[i].data);
    f->n_ops = 0;
}

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Counts a call and says what becomes of it: SQLITE_OK, or the code it fails with. */
static int gate(struct simdisk *d, enum sim_call kind)
{
    bool changes = kind == SIM_WRITE || kind == SIM_TRUNCATE || kind == SIM_SYNC;
    if (d->dead)
        return SQLITE_IOERR;
    d->n[kind]++;
    d->n[SIM_ANY] += changes;
    if (changes && d->crash_at != 0 && --d->crash_at == 0) {
        d->dead = d->fired = true;
        return SQLITE_IOERR;
    }
    bool counts = d->fail_kind == kind || (d->fail_kind == SIM_ANY && changes);
    if (counts && d->fail_at != 0 && --d->fail_at == 0) {
        d->fired = true;
        return d->fail_rc;
    }
    return SQLITE_OK;
}

static int h_close(sqlite3_file *file)
{
    return SQLITE_OK;
}

static int h_read(sqlite3_file *file, void *buf, int n, sqlite3_int64 off)
{
    struct handle *h = (struct handle *)file;
    int rc = gate(h->d, SIM_READ);
    if (rc != SQLITE_OK)
        return SQLITE_IOERR_READ;
    size_t have = (size_t)off < h->f->cur_len ? h->f->cur_len - (size_t)off : 0;
    size_t take = have < (size_t)n ? have : (size_t)n;
    if (take > 0)
        memcpy(buf, h->f->cur + off, take);
    memset((char *)buf + take, 0, (size_t)n - take);
    return take == (size_t)n ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int h_write(sqlite3_file *file, const void *buf, int n, sqlite3_int64 off)
{
    struct handle *h = (struct handle *)file;
    struct simdisk *d = h->d;
    int rc = gate(d, SIM_WRITE);
    size_t len = (size_t)n;
    if (rc == SQLITE_OK && d->limit != 0 && (size_t)off + len > h->f->cur_len &&
        sim_bytes(d) + ((size_t)off + len - h->f->cur_len) > d->limit)
        rc = SQLITE_FULL;
    if (rc != SQLITE_OK && (d->dead || !d->fail_half))
        return rc;
    if (rc != SQLITE_OK)
        len /= 2;
    if (len > 0) {
        put(&h->f->cur, &h->f->cur_len, &h->f->cur_cap, (uint64_t)off, buf, len);
        add_op(h->f, (uint64_t)off, buf, len);
    }
    return rc;
}

static int h_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct handle *h = (struct handle *)file;
    int rc = gate(h->d, SIM_TRUNCATE);
    if (rc != SQLITE_OK)
        return SQLITE_IOERR_TRUNCATE;
    cut(h->f->cur, &h->f->cur_len, (uint64_t)size);
    add_op(h->f, (uint64_t)size, NULL, 0);
    return SQLITE_OK;
}

static void settle(struct simfile *f)
{
    f->durable_name = true;
    reserve(&f->dur, &f->dur_cap, f->dur_len, f->cur_len);
    if (f->cur_len > 0)
        memcpy(f->dur, f->cur, f->cur_len);
    if (f->dur_len > f->cur_len)
        memset(f->dur + f->cur_len, 0, f->dur_len - f->cur_len);
    f->dur_len = f->cur_len;
    clear_ops(f);
}

/* Applies what the ops before cost little: settle copies the whole file, so a sync replays the ops instead.
 */
static void replay(struct simfile *f)
{
    for (size_t i = 0; i < f->n_ops; i++) {
        struct op *o = &f->ops[i];
        if (o->data != NULL)
            put(&f->dur, &f->dur_len, &f->dur_cap, o->off, o->data, o->len);
        else
            cut(f->dur, &f->dur_len, o->off);
    }
    clear_ops(f);
    f->durable_name = true;
}

static void show_durable(struct simfile *f)
{
    clear_ops(f);
    reserve(&f->cur, &f->cur_cap, f->cur_len, f->dur_len);
    if (f->dur_len > 0)
        memcpy(f->cur, f->dur, f->dur_len);
    if (f->cur_len > f->dur_len)
        memset(f->cur + f->dur_len, 0, f->cur_len - f->dur_len);
    f->cur_len = f->dur_len;
}

static int h_sync(sqlite3_file *file, int flags)
{
    struct handle *h = (struct handle *)file;
    struct simdisk *d = h->d;
    if (h->f->failed)
        d->bad_syncs++;
    int rc = gate(d, SIM_SYNC);
    if (rc != SQLITE_OK) {
        if (!d->dead) {
            show_durable(h->f); /* the dirty pages are gone */
            h->f->failed = true;
        }
        return SQLITE_IOERR_FSYNC;
    }
    if (!d->lie)
        replay(h->f);
    return SQLITE_OK;
}

static int h_size(sqlite3_file *file, sqlite3_int64 *size)
{
    struct handle *h = (struct handle *)file;
    *size = (sqlite3_int64)h->f->cur_len;
    return h->d->dead ? SQLITE_IOERR_FSTAT : SQLITE_OK;
}

static int h_lock(sqlite3_file *file, int level)
{
    return SQLITE_OK;
}

static int h_reserved(sqlite3_file *file, int *out)
{
    *out = 0;
    return SQLITE_OK;
}

static int h_control(sqlite3_file *file, int op, void *arg)
{
    return SQLITE_NOTFOUND;
}

static int h_sector(sqlite3_file *file)
{
    return 4096;
}

static int h_caps(sqlite3_file *file)
{
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static const sqlite3_io_methods io = {.iVersion = 1,
                                      .xClose = h_close,
                                      .xRead = h_read,
                                      .xWrite = h_write,
                                      .xTruncate = h_truncate,
                                      .xSync = h_sync,
                                      .xFileSize = h_size,
                                      .xLock = h_lock,
                                      .xUnlock = h_lock,
                                      .xCheckReservedLock = h_reserved,
                                      .xFileControl = h_control,
                                      .xSectorSize = h_sector,
                                      .xDeviceCharacteristics = h_caps};

static struct simfile *find(struct simdisk *d, const char *name, bool make)
{
    struct simfile *idle = NULL;
    for (int i = 0; i < FILES; i++) {
        struct simfile *f = &d->files[i];
        if (f->exists && strcmp(f->name, name) == 0)
            return f;
        if (!f->exists && idle == NULL)
            idle = f;
    }
    if (!make)
        return NULL;
    assert(idle != NULL);
    snprintf(idle->name, sizeof idle->name, "%s", name);
    idle->exists = true;
    idle->durable_name = idle->failed = false;
    idle->cur_len = idle->dur_len = 0;
    return idle;
}

static int v_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags)
{
    struct simdisk *d = (struct simdisk *)vfs;
    struct handle *h = (struct handle *)file;
    memset(h, 0, sizeof *h);
    int rc = gate(d, SIM_OPEN);
    if (rc != SQLITE_OK)
        return SQLITE_CANTOPEN;
    h->d = d;
    h->f = find(d, name != NULL ? name : "temp", (flags & SQLITE_OPEN_CREATE) != 0);
    if (h->f == NULL)
        return SQLITE_CANTOPEN;
    if (out_flags != NULL)
        *out_flags = flags;
    h->file.pMethods = &io;
    return SQLITE_OK;
}

static int v_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    struct simdisk *d = (struct simdisk *)vfs;
    if (d->dead)
        return SQLITE_IOERR_DELETE;
    struct simfile *f = find(d, name, false);
    if (f == NULL)
        return SQLITE_IOERR_DELETE_NOENT;
    clear_ops(f);
    f->exists = false;
    f->cur_len = f->dur_len = 0;
    return SQLITE_OK;
}

static int v_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    struct simdisk *d = (struct simdisk *)vfs;
    struct simfile *f = find(d, name, false);
    *out = f != NULL && (flags != SQLITE_ACCESS_EXISTS || f->cur_len > 0);
    return d->dead ? SQLITE_IOERR_ACCESS : SQLITE_OK;
}

static int v_fullname(sqlite3_vfs *vfs, const char *name, int n, char *out)
{
    snprintf(out, (size_t)n, "%s", name);
    return SQLITE_OK;
}

static int v_random(sqlite3_vfs *vfs, int n, char *out)
{
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    return real->xRandomness(real, n, out);
}

static int v_sleep(sqlite3_vfs *vfs, int us)
{
    return us;
}

static int v_time(sqlite3_vfs *vfs, double *out)
{
    *out = 2460000.5;
    return SQLITE_OK;
}

static int v_error(sqlite3_vfs *vfs, int n, char *out)
{
    return 0;
}

struct simdisk *sim_new(const char *name)
{
    struct simdisk *d = need(calloc(1, sizeof *d));
    snprintf(d->name, sizeof d->name, "%s", name);
    d->vfs = (sqlite3_vfs){.iVersion = 1,
                           .szOsFile = sizeof(struct handle),
                           .mxPathname = 512,
                           .zName = d->name,
                           .xOpen = v_open,
                           .xDelete = v_delete,
                           .xAccess = v_access,
                           .xFullPathname = v_fullname,
                           .xRandomness = v_random,
                           .xSleep = v_sleep,
                           .xCurrentTime = v_time,
                           .xGetLastError = v_error};
    return d;
}

void sim_free(struct simdisk *d)
{
    for (int i = 0; i < FILES; i++) {
        clear_ops(&d->files[i]);
        free(d->files[i].ops);
        free(d->files[i].cur);
        free(d->files[i].dur);
    }
    free(d);
}

sqlite3_vfs *sim_vfs(struct simdisk *d)
{
    return &d->vfs;
}

void sim_fail(struct simdisk *d, enum sim_call kind, uint64_t k, int rc, bool half)
{
    d->fail_kind = kind;
    d->fail_at = k;
    d->fail_rc = rc;
    d->fail_half = half;
    d->fired = false;
}

void sim_crash(struct simdisk *d, uint64_t k)
{
    d->crash_at = k;
    d->fired = false;
}

bool sim_fired(const struct simdisk *d)
{
    return d->fired;
}

void sim_die(struct simdisk *d)
{
    d->dead = true;
}

/* Which of the n ops on this sector arrive: those with a number below this. */
static size_t arrived(uint64_t seed, const struct simfile *f, uint64_t sector, size_t n)
{
    uint64_t h = mix(seed ^ mix(sector * 2 + 1) ^ mix((uint64_t)(f->name[strlen(f->name) - 1])));
    switch (h % 3) {
    case 0: return 0;
    case 1: return n;
    default: return (size_t)(mix(h) % (n + 1));
    }
}

static void lose(struct simfile *f, enum sim_loss loss, uint64_t seed)
{
    size_t unit = loss == SIM_RANDOM_512 ? 512 : 4096;
    for (size_t i = 0; i < f->n_ops; i++) {
        struct op *o = &f->ops[i];
        if (o->data == NULL) {
            if (i < arrived(seed, f, UINT64_MAX / 2, f->n_ops))
                cut(f->dur, &f->dur_len, o->off);
            continue;
        }
        for (size_t done = 0; done < o->len;) {
            uint64_t at = o->off + done, sector = at / unit;
            size_t n = unit - at % unit;
            if (n > o->len - done)
                n = o->len - done;
            if (i < arrived(seed, f, sector, f->n_ops))
                put(&f->dur, &f->dur_len, &f->dur_cap, at, o->data + done, n);
            done += n;
        }
    }
    clear_ops(f);
}

void sim_restart(struct simdisk *d, enum sim_loss loss, uint64_t seed)
{
    for (int i = 0; i < FILES; i++) {
        struct simfile *f = &d->files[i];
        if (!f->exists)
            continue;
        if (loss == SIM_KILL) {
            settle(f);
        } else if (!f->durable_name && mix(seed ^ 77) % 2 == 0) {
            clear_ops(f);
            f->exists = false;
            f->cur_len = f->dur_len = 0;
            continue;
        } else if (loss != SIM_DROP) {
            lose(f, loss, seed);
        }
        show_durable(f);
        f->failed = false;
    }
    d->dead = d->fired = d->lie = false;
    d->crash_at = d->fail_at = 0;
}

void sim_lie(struct simdisk *d, bool on)
{
    d->lie = on;
}

void sim_limit(struct simdisk *d, uint64_t bytes)
{
    d->limit = bytes;
}

uint64_t sim_bytes(const struct simdisk *d)
{
    uint64_t n = 0;
    for (int i = 0; i < FILES; i++)
        n += d->files[i].exists ? d->files[i].cur_len : 0;
    return n;
}

uint64_t sim_synced_after_failure(const struct simdisk *d)
{
    return d->bad_syncs;
}

uint64_t sim_changes(const struct simdisk *d)
{
    return d->n[SIM_ANY];
}

uint8_t *sim_file(struct simdisk *d, const char *suffix, size_t *len)
{
    for (int i = 0; i < FILES; i++) {
        struct simfile *f = &d->files[i];
        size_t n = strlen(f->name), m = strlen(suffix);
        if (f->exists && n >= m && strcmp(f->name + n - m, suffix) == 0) {
            *len = f->cur_len;
            return f->cur;
        }
    }
    *len = 0;
    return NULL;
}

struct simdisk *sim_clone(const struct simdisk *d, const char *name)
{
    struct simdisk *c = sim_new(name);
    for (int i = 0; i < FILES; i++) {
        const struct simfile *f = &d->files[i];
        if (!f->exists)
            continue;
        struct simfile *g = find(c, f->name, true);
        put(&g->cur, &g->cur_len, &g->cur_cap, 0, f->cur, f->cur_len);
        settle(g);
    }
    return c;
}
