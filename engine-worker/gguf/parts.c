#include "internal.h"

#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* "<prefix>-00001-of-00003.gguf": length of the prefix, or -1 when the name has another form. */
static int64_t split_name(const char *path, uint32_t *no, uint32_t *count)
{
    size_t len = strlen(path), tail = strlen("-00001-of-00003.gguf");
    unsigned a, b;
    int used = 0;
    if (len <= tail)
        return -1;
    const char *s = path + len - tail;
    if (strspn(s + 1, "0123456789") != 5 || strspn(s + 10, "0123456789") != 5 ||
        sscanf(s, "-%5u-of-%5u.gguf%n", &a, &b, &used) != 2 || (size_t)used != tail)
        return -1;
    *no = a;
    *count = b;
    return (int64_t)(len - tail);
}

static char *part_path(const char *path, int64_t prefix, uint32_t no, uint32_t count)
{
    char *s = NULL;
    if (prefix < 0)
        return strdup(path);
    if (asprintf(&s, "%.*s-%05u-of-%05u.gguf", (int)prefix, path, no, count) < 0)
        return NULL;
    return s;
}

static int add_part(struct gguf_file *f, char *path, struct vt_err *err)
{
    struct gguf_part *parts = realloc(f->parts, (f->n_parts + 1) * sizeof *parts);
    if (path == NULL || parts == NULL) {
        if (parts != NULL)
            f->parts = parts;
        free(path);
        return vt_fail(err, VT_E_NOMEM, "no memory to open a model file");
    }
    f->parts = parts;
    struct gguf_part *p = &parts[f->n_parts++];
    *p = (struct gguf_part){.path = path, .fd = -1};
    return gguf_part_read(f, p, err);
}

/* An absent key leaves *out alone; a negative or huge one is an error of the file. */
static int split_key(const struct gguf_part *p, const char *key, uint64_t *out, struct vt_err *err)
{
    if (gguf_part_u64(p, key, out, err) < 0)
        return vt_fail_prefix(err, "%s", p->path);
    return 0;
}

static int check_part(const struct gguf_part *p, uint64_t no, uint64_t count, struct vt_err *err)
{
    uint64_t n = UINT64_MAX, c = UINT64_MAX;
    if (split_key(p, "split.no", &n, err) < 0 || split_key(p, "split.count", &c, err) < 0)
        return -1;
    if (n != no || c != count)
        return vt_fail(
            err, VT_E_PAYLOAD,
            "%s says that it is part %lld of %lld, its name says %llu of %llu: put back the original names",
            p->path, (long long)(n + 1), (long long)c, (unsigned long long)(no + 1),
            (unsigned long long)count);
    return 0;
}

static int index_tensors(struct gguf_file *f, struct vt_err *err)
{
    if (gguf_index_init(&f->names, f->n_tensors) < 0)
        return vt_fail(err, VT_E_NOMEM, "no memory for %llu tensor names", (unsigned long long)f->n_tensors);
    for (uint64_t i = 0; i < f->n_tensors; i++)
        if (gguf_index_add(&f->names, gguf_tensor_name, f->tensors, i) < 0)
            return vt_fail(err, VT_E_PAYLOAD, "%s: the tensor '%s' is there twice", f->parts[0].path,
                           f->tensors[i].name);
    return 0;
}

static int open_parts(struct gguf_file *f, const char *path, struct vt_err *err)
{
    uint32_t no = 1, name_count = 1;
    uint64_t count = 1, total = 0;
    int64_t prefix = split_name(path, &no, &name_count);
    if (add_part(f, part_path(path, prefix, 1, name_count), err) < 0)
        return -1;
    if (split_key(&f->parts[0], "split.count", &count, err) < 0)
        return -1;
    if (count <= 1 && no <= 1) /* whole, whatever its name */
        return index_tensors(f, err);
    if (count > GGUF_MAX_PARTS)
        return vt_fail(err, VT_E_PAYLOAD, "%s: split.count is %llu; at most %u parts are supported",
                       f->parts[0].path, (unsigned long long)count, GGUF_MAX_PARTS);
    if (prefix < 0)
        return vt_fail(err, VT_E_PAYLOAD,
                       "%s is a part of a split model but is not named NAME-00001-of-%05llu.gguf: its other "
                       "parts cannot "
                       "be found",
                       path, (unsigned long long)count);
    if (no < 1 || no > name_count)
        return vt_fail(err, VT_E_PAYLOAD, "%s: there is no part %u of %u", path, no, name_count);
    for (uint32_t i = 0; i < name_count; i++) {
        if (i > 0 && add_part(f, part_path(path, prefix, i + 1, name_count), err) < 0)
            return -1;
        if (check_part(&f->parts[i], i, name_count, err) < 0)
            return -1;
    }
    total = f->n_tensors;
    if (split_key(&f->parts[0], "split.tensors.count", &total, err) < 0)
        return -1;
    if (total != f->n_tensors)
        return vt_fail(err, VT_E_PAYLOAD,
                       "%s: the parts hold %llu tensors, %llu are announced: parts of two models are mixed",
                       f->parts[0].path, (unsigned long long)f->n_tensors, (unsigned long long)total);
    return index_tensors(f, err);
}

int gguf_open(struct gguf_file **out, const char *path, bool header_only, struct vt_err *err)
{
    struct gguf_file *f = calloc(1, sizeof *f);
    *out = NULL;
    if (f == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory to open a model file");
    f->header_only = header_only;
    if (open_parts(f, path, err) < 0) {
        gguf_close(f);
        return -1;
    }
    *out = f;
    return 0;
}

void gguf_close(struct gguf_file *f)
{
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < f->n_parts; i++)
        gguf_part_close(&f->parts[i]);
    for (uint64_t i = 0; i < f->n_tensors; i++)
        free((char *)(uintptr_t)f->tensors[i].name);
    free(f->parts);
    free(f->tensors);
    gguf_index_free(&f->names);
    free(f);
}

uint64_t gguf_n_tensors(const struct gguf_file *f)
{
    return f->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *f, uint64_t i)
{
    return i < f->n_tensors ? &f->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_tensor(const struct gguf_file *f, const char *name)
{
    int64_t i = gguf_index_find(&f->names, gguf_tensor_name, f->tensors, name, strlen(name));
    return i >= 0 ? &f->tensors[i] : NULL;
}

uint64_t gguf_total_bytes(const struct gguf_file *f)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->n_parts; i++)
        n += f->parts[i].size;
    return n;
}

int gguf_n_parts(const struct gguf_file *f)
{
    return (int)f->n_parts;
}

int gguf_index_sha256(const struct gguf_file *f, uint8_t out[32])
{
    struct vt_sha256 *h = vt_sha256_new();
    if (h == NULL)
        return -1;
    for (uint32_t i = 0; i < f->n_parts; i++) {
        const struct gguf_part *p = &f->parts[i];
        vt_sha256_add(h, p->map, p->head_end);
        vt_sha256_add(h, &p->size, sizeof p->size);
    }
    vt_sha256_end(h, out);
    vt_sha256_free(h);
    return 0;
}

void gguf_key(const struct gguf_file *f, char out[GGUF_KEY])
{
    uint8_t sum[VT_SHA256_LEN];
    char hex[2 * VT_SHA256_LEN + 1];
    struct vt_sha256 *h = vt_sha256_new();
    out[0] = '\0';
    if (h == NULL)
        return;
    for (uint32_t i = 0; i < f->n_parts; i++) {
        struct stat st = {0};
        fstat(f->parts[i].fd, &st);
        const uint64_t is[] = {st.st_dev, st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                               (uint64_t)st.st_mtim.tv_nsec};
        vt_sha256_add(h, is, sizeof is);
    }
    vt_sha256_end(h, sum);
    vt_sha256_free(h);
    vt_hex(sum, sizeof sum, hex);
    snprintf(out, GGUF_KEY, "%.12s", hex);
}

int gguf_stat_ok(const struct gguf_file *f, struct vt_err *err)
{
    for (uint32_t i = 0; i < f->n_parts; i++) {
        const struct gguf_part *p = &f->parts[i];
        struct stat st;
        if (fstat(p->fd, &st) < 0)
            return vt_fail_errno(err, VT_E_PAYLOAD, "cannot look at the model file %s", p->path);
        if ((uint64_t)st.st_size != p->size)
            return vt_fail(err, VT_E_PAYLOAD,
                           "%s: the file had %llu bytes when it was opened and has %llu now", p->path,
                           (unsigned long long)p->size, (unsigned long long)st.st_size);
    }
    return 0;
}
