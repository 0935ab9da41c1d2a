#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reading position in one part. Every read goes through take(), which is the only bounds check there is. */
struct cursor {
    const struct gguf_part *p;
    uint64_t pos;
    struct vt_err *err;
};

static int bad(const struct cursor *c, const char *what)
{
    return vt_fail(c->err, VT_E_PAYLOAD, "%s: offset %llu: %s", c->p->path, (unsigned long long)c->pos, what);
}

static uint64_t left(const struct cursor *c)
{
    return c->p->size - c->pos;
}

static const uint8_t *take(struct cursor *c, uint64_t n)
{
    if (n > left(c)) {
        bad(c, "the file ends here, inside its header: it is truncated or not finished downloading");
        return NULL;
    }
    const uint8_t *b = c->p->map + c->pos;
    c->pos += n;
    return b;
}

static int take_u32(struct cursor *c, uint32_t *out)
{
    const uint8_t *b = take(c, 4);
    if (b == NULL)
        return -1;
    *out = gguf_le32(b);
    return 0;
}

static int take_u64(struct cursor *c, uint64_t *out)
{
    const uint8_t *b = take(c, 8);
    if (b == NULL)
        return -1;
    *out = gguf_le64(b);
    return 0;
}

static int take_str(struct cursor *c, uint64_t max, const char **s, uint64_t *len)
{
    if (take_u64(c, len) < 0)
        return -1;
    if (*len > max) {
        c->pos -= 8;
        return bad(c, "a string is longer than any real one; the file is damaged");
    }
    *s = (const char *)take(c, *len);
    return *s != NULL ? 0 : -1;
}

static int read_str_array(struct cursor *c, struct gguf_kv *kv)
{
    if (kv->n > left(c) / 8)
        return bad(c, "an array of strings is larger than the file");
    kv->strs = malloc((kv->n / GGUF_STR_STRIDE + 1) * sizeof *kv->strs);
    if (kv->strs == NULL)
        return vt_fail(c->err, VT_E_NOMEM, "%s: no memory for an index of strings", c->p->path);
    for (uint64_t i = 0; i < kv->n; i++) {
        const char *s;
        uint64_t len;
        if (i % GGUF_STR_STRIDE == 0)
            kv->strs[i / GGUF_STR_STRIDE] = c->p->map + c->pos;
        if (take_str(c, GGUF_MAX_STR, &s, &len) < 0)
            return -1;
    }
    return 0;
}

static int read_array(struct cursor *c, struct gguf_kv *kv)
{
    if (take_u32(c, &kv->elem) < 0 || take_u64(c, &kv->n) < 0)
        return -1;
    if (kv->n > GGUF_MAX_ARR)
        return bad(c, "an array has more than 16 Mi elements; the file is damaged");
    kv->val = c->p->map + c->pos;
    if (kv->elem == GGUF_STR)
        return read_str_array(c, kv);
    uint32_t size = gguf_value_size(kv->elem);
    if (size == 0)
        return bad(c, "an array has elements of an unknown type (arrays of arrays are not supported)");
    return take(c, kv->n * size) != NULL ? 0 : -1;
}

static int read_value(struct cursor *c, struct gguf_kv *kv)
{
    if (kv->type == GGUF_ARR)
        return read_array(c, kv);
    if (kv->type == GGUF_STR) {
        const char *s;
        if (take_str(c, GGUF_MAX_STR, &s, &kv->n) < 0)
            return -1;
        kv->val = (const uint8_t *)s;
        return 0;
    }
    uint32_t size = gguf_value_size(kv->type);
    if (size == 0)
        return bad(c, "a metadata value has an unknown type");
    kv->n = 1;
    kv->val = take(c, size);
    return kv->val != NULL ? 0 : -1;
}

static int read_kvs(struct cursor *c, struct gguf_part *p, uint64_t n)
{
    if (n > GGUF_MAX_KV || n > left(c) / 13)
        return bad(c, "the number of metadata entries is larger than the file allows");
    p->kv = calloc(n + 1, sizeof *p->kv);
    if (p->kv == NULL || gguf_index_init(&p->keys, n) < 0)
        return vt_fail(c->err, VT_E_NOMEM, "%s: no memory for %llu metadata entries", p->path,
                       (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_kv *kv = &p->kv[i];
        uint64_t len;
        if (take_str(c, GGUF_MAX_KEY, &kv->key, &len) < 0)
            return -1;
        if (len == 0 || memchr(kv->key, 0, len) != NULL)
            return bad(c, "a metadata key is empty or holds a NUL");
        kv->key_len = (uint32_t)len;
        p->n_kv = (uint32_t)i + 1;
        if (take_u32(c, &kv->type) < 0 || read_value(c, kv) < 0)
            return vt_fail_prefix(c->err, "metadata '%.*s'", (int)(len < 80 ? len : 80), kv->key);
        if (gguf_index_add(&p->keys, gguf_kv_name, p->kv, i) < 0)
            return vt_fail(c->err, VT_E_PAYLOAD, "%s: the metadata key '%.*s' is there twice", p->path,
                           (int)(len < 80 ? len : 80), kv->key);
    }
    return 0;
}

static int read_alignment(struct gguf_part *p, struct vt_err *err)
{
    const struct gguf_kv *kv = gguf_part_kv(p, "general.alignment");
    p->alignment = 32;
    if (kv == NULL)
        return 0;
    if (kv->type != GGUF_U32)
        return vt_fail(err, VT_E_PAYLOAD, "%s: general.alignment is %s instead of u32", p->path,
                       gguf_value_name(kv->type));
    p->alignment = gguf_le32(kv->val);
    if (p->alignment < 8 || (p->alignment & (p->alignment - 1)) != 0 || p->alignment > GGUF_MAX_ALIGN)
        return vt_fail(err, VT_E_PAYLOAD,
                       "%s: general.alignment is %u; a power of two from 8 to 1 MiB is needed", p->path,
                       p->alignment);
    return 0;
}

static int tensor_bad(const struct gguf_part *p, const struct gguf_tensor *t, struct vt_err *err,
                      const char *what)
{
    return vt_fail(err, VT_E_PAYLOAD, "%s: tensor '%s': %s", p->path, t->name, what);
}

/* Shape and type give the size; all of it is checked before anything is multiplied. */
static int size_tensor(const struct gguf_part *p, struct gguf_tensor *t, struct vt_err *err)
{
    const struct ggml_type_info *ti = ggml_type_info(t->type);
    if (ti == NULL)
        return vt_fail(
            err, VT_E_PAYLOAD,
            "%s: tensor '%s' has type %u, which the format does not have (or no longer has); a file "
            "converted again, to a type of the format, is needed",
            p->path, t->name, t->type);
    uint64_t n = 1;
    for (int i = 0; i < 4; i++) {
        if (t->ne[i] == 0)
            return tensor_bad(p, t, err, "a dimension is 0");
        if (t->ne[i] > GGUF_MAX_ELEMENTS / n)
            return tensor_bad(p, t, err, "the product of the dimensions is absurd; the file is damaged");
        n *= t->ne[i];
    }
    if (t->ne[0] % ti->block != 0)
        return vt_fail(err, VT_E_PAYLOAD,
                       "%s: tensor '%s': rows of %llu values do not fill blocks of %u (%s)", p->path, t->name,
                       (unsigned long long)t->ne[0], ti->block, ti->name);
    t->bytes = n / ti->block * ti->bytes; /* below 2^50 */
    return 0;
}

static int read_tensor(struct cursor *c, struct gguf_part *p, struct gguf_tensor *t)
{
    const char *s;
    uint64_t len, offset;
    if (take_str(c, GGUF_MAX_NAME, &s, &len) < 0)
        return vt_fail_prefix(c->err, "tensor name");
    if (len == 0 || memchr(s, 0, len) != NULL)
        return bad(c, "a tensor name is empty or holds a NUL");
    char *name = malloc(len + 1);
    if (name == NULL)
        return vt_fail(c->err, VT_E_NOMEM, "%s: no memory for a tensor name", p->path);
    memcpy(name, s, len);
    name[len] = '\0';
    t->name = name;
    if (take_u32(c, &t->n_dims) < 0)
        return -1;
    if (t->n_dims > 4)
        return tensor_bad(p, t, c->err, "it has more than four dimensions");
    for (uint32_t i = 0; i < 4; i++) {
        t->ne[i] = 1;
        if (i < t->n_dims && take_u64(c, &t->ne[i]) < 0)
            return -1;
    }
    if (t->n_dims == 0)
        t->n_dims = 1; /* a scalar is a row of one */
    if (take_u32(c, &t->type) < 0 || take_u64(c, &offset) < 0)
        return -1;
    if (offset % p->alignment != 0)
        return tensor_bad(p, t, c->err, "its offset is not a multiple of the alignment");
    if (offset > INT64_MAX)
        return tensor_bad(p, t, c->err, "its offset is absurd; the file is damaged");
    t->data = (const uint8_t *)(uintptr_t)offset; /* becomes an address once the data section is known */
    return size_tensor(p, t, c->err);
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a,
                             *y = *(const struct gguf_tensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static int check_overlap(const struct gguf_part *p, const struct gguf_tensor *t, uint64_t n,
                         struct vt_err *err)
{
    const struct gguf_tensor **order = malloc((n + 1) * sizeof *order);
    if (order == NULL)
        return vt_fail(err, VT_E_NOMEM, "%s: no memory to check %llu tensors", p->path,
                       (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++)
        order[i] = &t[i];
    qsort(order, n, sizeof *order, by_offset);
    int rc = 0;
    for (uint64_t i = 1; i < n && rc == 0; i++) {
        uint64_t end = (uint64_t)(uintptr_t)order[i - 1]->data + order[i - 1]->bytes;
        if (end > (uint64_t)(uintptr_t)order[i]->data)
            rc = vt_fail(err, VT_E_PAYLOAD, "%s: tensors '%s' and '%s' overlap", p->path, order[i - 1]->name,
                         order[i]->name);
    }
    free(order);
    return rc;
}

/* Offsets become addresses; without the data section there are none. */
static int place_tensors(struct gguf_file *f, struct gguf_part *p, struct vt_err *err)
{
    struct gguf_tensor *t = &f->tensors[p->tensor0];
    if (check_overlap(p, t, p->n_tensors, err) < 0)
        return -1;
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        uint64_t end, offset = (uint64_t)(uintptr_t)t[i].data;
        if (__builtin_add_overflow(p->data_at, offset, &end) || __builtin_add_overflow(end, t[i].bytes, &end))
            return tensor_bad(p, &t[i], err, "its offset is absurd; the file is damaged");
        if (f->header_only) {
            t[i].data = NULL;
        } else if (end > p->size) {
            return vt_fail(
                err, VT_E_PAYLOAD,
                "%s: tensor '%s' ends at byte %llu but the file has %llu: it is truncated; download it again",
                p->path, t[i].name, (unsigned long long)end, (unsigned long long)p->size);
        } else {
            t[i].data = p->map + p->data_at + offset;
        }
    }
    return 0;
}

static int read_tensors(struct cursor *c, struct gguf_file *f, struct gguf_part *p, uint64_t n)
{
    if (n > GGUF_MAX_TENSORS || n > left(c) / 25 || f->n_tensors + n > GGUF_MAX_TENSORS)
        return bad(c, "the number of tensors is larger than the file allows");
    struct gguf_tensor *all = realloc(f->tensors, (f->n_tensors + n + 1) * sizeof *all);
    if (all == NULL)
        return vt_fail(c->err, VT_E_NOMEM, "%s: no memory for %llu tensors", p->path, (unsigned long long)n);
    f->tensors = all;
    p->tensor0 = f->n_tensors;
    for (uint64_t i = 0; i < n; i++) {
        memset(&all[f->n_tensors], 0, sizeof *all);
        f->n_tensors++; /* counted before it is read, so that its name is freed */
        p->n_tensors++;
        if (read_tensor(c, p, &all[f->n_tensors - 1]) < 0)
            return -1;
    }
    return 0;
}

static int read_magic(struct cursor *c, struct gguf_part *p)
{
    const uint8_t *b = take(c, 8);
    if (b == NULL || memcmp(b, "GGUF", 4) != 0)
        return vt_fail(c->err, VT_E_PAYLOAD, "%s: not a GGUF file (it does not begin with the letters GGUF)",
                       p->path);
    p->version = gguf_le32(b + 4);
    if (p->version != 0 && (p->version & 0xffff) == 0)
        return vt_fail(c->err, VT_E_PAYLOAD, "%s: a big-endian GGUF file; a little-endian one is needed",
                       p->path);
    if (p->version != 2 && p->version != 3)
        return vt_fail(c->err, VT_E_PAYLOAD, "%s: GGUF version %u; versions 2 and 3 are supported", p->path,
                       p->version);
    return 0;
}

static int map_part(struct gguf_part *p, struct vt_err *err)
{
    struct stat st;
    p->fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (p->fd < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "cannot open the model file %s", p->path);
    if (fstat(p->fd, &st) < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "cannot look at the model file %s", p->path);
    if (!S_ISREG(st.st_mode))
        return vt_fail(err, VT_E_PAYLOAD, "%s is not a regular file", p->path);
    p->size = (uint64_t)st.st_size;
    if (p->size < 24)
        return vt_fail(err, VT_E_PAYLOAD, "%s: %llu bytes are too few for a GGUF file", p->path,
                       (unsigned long long)p->size);
    void *m = mmap(NULL, p->size, PROT_READ, MAP_SHARED, p->fd, 0);
    if (m == MAP_FAILED)
        return vt_fail_errno(err, VT_E_NOMEM, "cannot map the model file %s", p->path);
    p->map = m;
    p->mapped = p->size;
    return 0;
}

/* A reader of the header alone keeps only its pages. */
static void unmap_data(struct gguf_part *p)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), keep = (p->head_end + page - 1) / page * page;
    if (keep < p->mapped) {
        munmap((void *)(uintptr_t)(p->map + keep), p->mapped - keep);
        p->mapped = keep;
    }
}

int gguf_part_read(struct gguf_file *f, struct gguf_part *p, struct vt_err *err)
{
    if (map_part(p, err) < 0)
        return -1;
    struct cursor c = {.p = p, .err = err};
    uint64_t n_tensors, n_kv;
    if (read_magic(&c, p) < 0 || take_u64(&c, &n_tensors) < 0 || take_u64(&c, &n_kv) < 0)
        return -1;
    if (read_kvs(&c, p, n_kv) < 0 || read_alignment(p, err) < 0 || read_tensors(&c, f, p, n_tensors) < 0)
        return -1;
    p->head_end = c.pos;
    p->data_at = (c.pos + p->alignment - 1) / p->alignment * p->alignment;
    if (place_tensors(f, p, err) < 0)
        return -1;
    if (f->header_only)
        unmap_data(p);
    return 0;
}

void gguf_part_close(struct gguf_part *p)
{
    for (uint32_t i = 0; i < p->n_kv; i++)
        free(p->kv[i].strs);
    free(p->kv);
    gguf_index_free(&p->keys);
    if (p->map != NULL)
        munmap((void *)(uintptr_t)p->map, p->mapped);
    if (p->fd >= 0)
        close(p->fd);
    free(p->path);
}
