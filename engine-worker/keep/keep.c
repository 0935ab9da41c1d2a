#include "keep.h"

#include "frame.h"
#include "pass.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LET_GO_MS 2000

struct piece {
    char name[KEEP_NAME];
    uint8_t key[KEEP_KEY];
    uint64_t bytes, seal;
    int fd; /* -1: not made */
    bool old, whole, device;
    void *at; /* NULL: not mapped */
};

struct keep {
    char path[108];
    int sock; /* -1: no vault */
    struct piece piece[KEEP_MAX];
    unsigned n;
    struct vt_enc enc;
    char trouble[200];
};

int keep_new(struct keep **out, const char *path, struct vt_err *err)
{
    struct keep *k = calloc(1, sizeof *k);
    *out = k;
    if (!k)
        return vt_fail(err, VT_E_NOMEM, "out of memory for the keep");
    k->sock = -1;
    snprintf(k->path, sizeof k->path, "%s", path);
    vt_enc_init(&k->enc);
    return 0;
}

static void hang_up(struct keep *k)
{
    if (k->sock >= 0)
        close(k->sock);
    k->sock = -1;
}

static void forget(struct keep *k)
{
    for (unsigned i = 0; i < k->n; i++)
        if (k->piece[i].fd >= 0)
            close(k->piece[i].fd);
    k->n = 0;
}

void keep_free(struct keep *k)
{
    if (!k)
        return;
    hang_up(k);
    forget(k);
    vt_enc_fini(&k->enc);
    free(k);
}

/* A vault that does not take it is as good as none: the next one is given everything. */
static int say(struct keep *k, const int *fds, unsigned n, struct vt_err *err)
{
    if (k->sock < 0)
        return vt_fail(err, VT_E_UNAVAILABLE, "there is no vault");
    if (vt_enc_end(&k->enc, err) == 0 && vt_pass_send(k->sock, k->enc.buf, k->enc.len, fds, n, err) == 0)
        return 0;
    hang_up(k);
    return -1;
}

/* ---- claim ---- */

static struct piece *named(struct keep *k, const char *name)
{
    for (unsigned i = 0; i < k->n; i++)
        if (strcmp(k->piece[i].name, name) == 0)
            return &k->piece[i];
    return NULL;
}

/* One descriptor for each row; an answer that is not so is no answer, and nothing of it is used. */
static int take_answer(struct keep *k, const struct vt_frame *f, int *fds, unsigned n_fds)
{
    const msgpack_object_array *list =
        f->type == VT_F_VAULT_HAVE ? vt_frame_array(f, VT_VAULT_HAVE_LIST) : NULL;
    if (!list || list->size != n_fds)
        return -1;
    for (unsigned i = 0; i < n_fds; i++) {
        char name[KEEP_NAME];
        const msgpack_object_array *row = vt_array_array(list, i);
        struct piece *p = row ? named(k, vt_array_str(row, 0, name, sizeof name)) : NULL;
        if (!p || p->fd >= 0)
            return -1;
        p->fd = fds[i];
        fds[i] = -1;
        p->seal = vt_array_u64(row, 1, 0);
        p->old = p->whole = true;
    }
    return 0;
}

static int hear(struct keep *k, int wait_ms, struct vt_err *err)
{
    uint8_t buf[VT_PASS_BYTES];
    size_t len;
    int fds[VT_PASS_FDS];
    unsigned n;
    struct vt_frame f;
    int rc = vt_pass_recv(k->sock, wait_ms, buf, &len, fds, &n);
    if (rc == 0)
        return vt_fail(err, VT_E_BUSY, "the vault at %s has not answered within %d ms", k->path, wait_ms);
    if (rc < 0)
        return vt_fail(err, VT_E_UNAVAILABLE, "the vault at %s has hung up", k->path);
    rc = vt_frame_open(&f, buf, len, sizeof buf, err);
    if (rc == 0) {
        rc = take_answer(k, &f, fds, n);
        vt_frame_close(&f);
        if (rc < 0)
            vt_fail(err, VT_E_BAD_FRAME, "the vault at %s gives what was not asked for", k->path);
    }
    for (unsigned i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

static void unlearn(struct keep *k)
{
    for (unsigned i = 0; i < k->n; i++) {
        struct piece *p = &k->piece[i];
        if (p->fd >= 0)
            close(p->fd);
        p->fd = -1;
        p->old = p->whole = false;
    }
}

static void plan(struct keep *k, const struct keep_want *want, unsigned n)
{
    for (unsigned i = 0; i < n && i < KEEP_MAX; i++) {
        struct piece *p = &k->piece[i];
        *p = (struct piece){.bytes = want[i].bytes, .fd = -1, .device = want[i].device};
        snprintf(p->name, sizeof p->name, "%s", want[i].name);
        memcpy(p->key, want[i].key, KEEP_KEY);
    }
    k->n = n < KEEP_MAX ? n : KEEP_MAX;
}

static int ask(struct keep *k, int wait_ms, struct vt_err *err)
{
    k->sock = vt_pass_dial(k->path, err);
    if (k->sock < 0)
        return -1;
    vt_enc_begin(&k->enc, VT_F_VAULT_CLAIM, 0, 0);
    vt_enc_array(&k->enc, VT_VAULT_CLAIM_LIST, k->n);
    for (unsigned i = 0; i < k->n; i++) {
        vt_enc_put_array(&k->enc, 3);
        vt_enc_put_str(&k->enc, k->piece[i].name);
        vt_enc_put_bin(&k->enc, k->piece[i].key, KEEP_KEY);
        vt_enc_put_u64(&k->enc, k->piece[i].bytes);
    }
    return say(k, NULL, 0, err) < 0 ? -1 : hear(k, wait_ms, err);
}

static void note(struct keep *k, const struct vt_err *why)
{
    snprintf(k->trouble, sizeof k->trouble, "%.*s", (int)sizeof k->trouble - 1, why->text);
}

int keep_claim(struct keep *k, const struct keep_want *want, unsigned n, int wait_ms, struct vt_err *err)
{
    struct vt_err why = {0};
    forget(k);
    hang_up(k);
    k->trouble[0] = '\0';
    plan(k, want, n);
    if (ask(k, wait_ms, &why) == 0)
        return 0;
    unlearn(k);
    hang_up(k);
    note(k, &why);
    if (err)
        *err = why;
    return -1;
}

const char *keep_trouble(const struct keep *k)
{
    return k->trouble;
}

bool keep_connected(const struct keep *k)
{
    return k->sock >= 0;
}

uint64_t keep_held(const struct keep *k)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < k->n; i++)
        bytes += k->piece[i].old && k->piece[i].device ? k->piece[i].bytes : 0;
    return bytes;
}

/* ---- pieces ---- */

static void put(struct keep *k, const struct piece *p)
{
    vt_enc_begin(&k->enc, VT_F_VAULT_PUT, 0, 0);
    vt_enc_str(&k->enc, VT_VAULT_PUT_NAME, p->name);
    vt_enc_bin(&k->enc, VT_VAULT_PUT_KEY, p->key, KEEP_KEY);
    vt_enc_u64(&k->enc, VT_VAULT_PUT_BYTES, p->bytes);
    say(k, &p->fd, 1, NULL);
}

static void tell_whole(struct keep *k, const struct piece *p)
{
    vt_enc_begin(&k->enc, VT_F_VAULT_WHOLE, 0, 0);
    vt_enc_str(&k->enc, VT_VAULT_WHOLE_NAME, p->name);
    vt_enc_u64(&k->enc, VT_VAULT_WHOLE_SEAL, p->seal);
    say(k, NULL, 0, NULL);
}

/* The vault drops what it has of that name, so that there is room for it again: a pipe's end takes the place, and that one is
 * replaced, too; when the pipe has hung up, both are gone. */
static void let_go(struct keep *k, const struct piece *p)
{
    struct piece empty = *p;
    int ends[2];
    if (k->sock < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return;
    struct pollfd gone = {.fd = ends[0]};
    empty.bytes = 0;
    empty.fd = ends[1];
    put(k, &empty);
    close(ends[1]);
    empty.fd = ends[0];
    put(k, &empty);
    while (poll(&gone, 1, LET_GO_MS) < 0 && errno == EINTR) {
    }
    close(ends[0]);
}

/* Memory of this process that a descriptor keeps: what the processor's backend shares. */
static int host_map(struct piece *p, struct vt_err *err)
{
    if (p->fd < 0) {
        p->fd = memfd_create("vitriol", MFD_CLOEXEC);
        if (p->fd < 0 || ftruncate(p->fd, (off_t)p->bytes) < 0)
            return vt_fail_errno(err, VT_E_NOMEM, "%s: %llu bytes of shared memory", p->name,
                                 (unsigned long long)p->bytes);
    }
    if (lseek(p->fd, 0, SEEK_END) != (off_t)p->bytes)
        return vt_fail(err, VT_E_CORRUPT, "%s is not of %llu bytes", p->name, (unsigned long long)p->bytes);
    void *at = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    if (at == MAP_FAILED)
        return vt_fail_errno(err, VT_E_NOMEM, "%s", p->name);
    p->at = at;
    return 0;
}

int keep_map(struct keep *k, unsigned i, struct be *be, void **out, bool *old, uint64_t *seal,
             struct vt_err *err)
{
    struct piece *p = &k->piece[i];
    struct vt_err why;
    *out = NULL;
    if (i >= k->n)
        return vt_fail(err, VT_E_CAPABILITY, "piece %u was not claimed", i);
    if (p->old && (p->device ? be_share_open(be, &p->at, p->bytes, p->fd, &why) : host_map(p, &why)) < 0) {
        /* Something else than what it is called: made anew. */
        note(k, &why);
        close(p->fd);
        p->fd = -1;
        p->old = p->whole = false;
        let_go(k, p);
    }
    if (!p->old) {
        if ((p->device ? be_share(be, &p->at, p->bytes, &p->fd, err) : host_map(p, err)) < 0)
            return -1;
        put(k, p);
    }
    *out = p->at;
    *old = p->old;
    *seal = p->seal;
    return 0;
}

void keep_whole(struct keep *k, unsigned i, uint64_t seal)
{
    struct piece *p = &k->piece[i];
    p->seal = seal;
    p->whole = true;
    tell_whole(k, p);
}

void keep_release(struct keep *k, struct be *be)
{
    for (unsigned i = 0; i < k->n; i++) {
        struct piece *p = &k->piece[i];
        if (p->at && p->device)
            be_unshare(be, p->at, p->bytes);
        else if (p->at)
            munmap(p->at, p->bytes);
        p->at = NULL;
    }
}

bool keep_tend(struct keep *k)
{
    uint8_t buf[VT_PASS_BYTES];
    size_t len;
    int fds[VT_PASS_FDS];
    unsigned n = 0;
    if (k->sock >= 0) {
        if (vt_pass_recv(k->sock, 0, buf, &len, fds, &n) < 0)
            hang_up(k);
        vt_pass_close(fds, n); /* nothing was asked */
        return false;
    }
    k->sock = vt_pass_dial(k->path, NULL);
    for (unsigned i = k->n;
         i-- > 0 && k->sock >= 0;) { /* a ledger before its pages, which mean nothing without */
        const struct piece *p = &k->piece[i];
        if (p->fd < 0)
            continue;
        put(k, p);
        if (p->whole)
            tell_whole(k, p);
    }
    return k->sock >= 0;
}
