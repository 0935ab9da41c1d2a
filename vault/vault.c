#include "vault.h"

#include <string.h>
#include <unistd.h>

static void drop(struct vault *v, unsigned i)
{
    close(v->piece[i].fd);
    v->piece[i] = v->piece[--v->n];
}

void vault_drop_all(struct vault *v)
{
    while (v->n > 0)
        drop(v, v->n - 1);
}

uint64_t vault_bytes(const struct vault *v)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < v->n; i++)
        bytes += v->piece[i].bytes;
    return bytes;
}

static struct vault_piece *find(struct vault *v, const char *name)
{
    for (unsigned i = 0; i < v->n; i++)
        if (strcmp(v->piece[i].name, name) == 0)
            return &v->piece[i];
    return NULL;
}

/* Exactly this, and filled. */
static bool claimed(const struct vault_piece *p, const msgpack_object_array *list)
{
    for (unsigned i = 0; i < list->size; i++) {
        char name[VAULT_NAME];
        size_t len = 0;
        const msgpack_object_array *row = vt_array_array(list, i);
        const uint8_t *key = row ? vt_array_bin(row, 1, &len) : NULL;
        if (key && len == VAULT_KEY && strcmp(vt_array_str(row, 0, name, sizeof name), p->name) == 0)
            return p->whole && memcmp(key, p->key, VAULT_KEY) == 0 && vt_array_u64(row, 2, 0) == p->bytes;
    }
    return false;
}

static void claim(struct vault *v, const struct vt_frame *f, struct vt_enc *reply, int *out, unsigned *n_out)
{
    const msgpack_object_array *list = vt_frame_array(f, VT_VAULT_CLAIM_LIST);
    for (unsigned i = v->n; i-- > 0;)
        if (!claimed(&v->piece[i], list))
            drop(v, i);
    vt_enc_begin(reply, VT_F_VAULT_HAVE, f->id, f->link);
    vt_enc_array(reply, VT_VAULT_HAVE_LIST, v->n);
    for (unsigned i = 0; i < v->n; i++) {
        vt_enc_put_array(reply, 2);
        vt_enc_put_str(reply, v->piece[i].name);
        vt_enc_put_u64(reply, v->piece[i].seal);
        out[i] = v->piece[i].fd;
    }
    *n_out = v->n;
}

static int put(struct vault *v, const struct vt_frame *f, int *fds, unsigned n_fds, struct vt_err *err)
{
    char name[VAULT_NAME];
    const uint8_t *key = vt_frame_bin_n(f, VT_VAULT_PUT_KEY, VAULT_KEY);
    vt_frame_str(f, VT_VAULT_PUT_NAME, name, sizeof name);
    if (n_fds != 1 || !key || name[0] == '\0')
        return vt_fail(err, VT_E_BAD_FRAME, "a piece needs a name, a key of %d bytes and one descriptor",
                       VAULT_KEY);
    struct vault_piece *p = find(v, name);
    if (p)
        drop(v, (unsigned)(p - v->piece));
    if (v->n == VAULT_MAX)
        return vt_fail(err, VT_E_LIMIT, "more than %d pieces", VAULT_MAX);
    p = &v->piece[v->n++];
    *p = (struct vault_piece){.bytes = vt_frame_u64(f, VT_VAULT_PUT_BYTES, 0), .fd = fds[0]};
    memcpy(p->name, name, sizeof name);
    memcpy(p->key, key, VAULT_KEY);
    fds[0] = -1;
    return 0;
}

static int whole(struct vault *v, const struct vt_frame *f, struct vt_err *err)
{
    char name[VAULT_NAME];
    struct vault_piece *p = find(v, vt_frame_str(f, VT_VAULT_WHOLE_NAME, name, sizeof name));
    if (!p)
        return vt_fail(err, VT_E_NOT_FOUND, "there is no piece %s", name);
    p->whole = true;
    p->seal = vt_frame_u64(f, VT_VAULT_WHOLE_SEAL, 0);
    return 0;
}

int vault_take(struct vault *v, const struct vt_frame *f, int *fds, unsigned n_fds, struct vt_enc *reply,
               int out[VAULT_MAX], unsigned *n_out, bool *answer, struct vt_err *err)
{
    *n_out = 0;
    *answer = f->type == VT_F_VAULT_CLAIM;
    switch (f->type) {
    case VT_F_VAULT_CLAIM: claim(v, f, reply, out, n_out); return vt_enc_end(reply, err);
    case VT_F_VAULT_PUT: return put(v, f, fds, n_fds, err);
    case VT_F_VAULT_WHOLE: return whole(v, f, err);
    default: return vt_fail(err, VT_E_UNKNOWN, "a vault takes no %s frame", vt_frame_name(f->type));
    }
}
