#include "internal.h"

#include <string.h>

/* A number of the file, as an integer of either sign or a float. */
struct number {
    enum { NUM_NONE, NUM_UNSIGNED, NUM_NEGATIVE, NUM_FLOAT } kind;
    uint64_t u;
    double f;
};

static struct number signed_number(int64_t v)
{
    return v < 0 ? (struct number){.kind = NUM_NEGATIVE}
                 : (struct number){.kind = NUM_UNSIGNED, .u = (uint64_t)v};
}

static struct number read_number(uint32_t type, const uint8_t *b)
{
    int16_t i16;
    float f;
    double d;
    switch (type) {
    case GGUF_U8:
    case GGUF_BOOL: return (struct number){.kind = NUM_UNSIGNED, .u = b[0]};
    case GGUF_I8: return signed_number((int8_t)b[0]);
    case GGUF_U16: return (struct number){.kind = NUM_UNSIGNED, .u = (uint64_t)b[0] | (uint64_t)b[1] << 8};
    case GGUF_I16: memcpy(&i16, b, 2); return signed_number(i16);
    case GGUF_U32: return (struct number){.kind = NUM_UNSIGNED, .u = gguf_le32(b)};
    case GGUF_I32: return signed_number((int32_t)gguf_le32(b));
    case GGUF_U64: return (struct number){.kind = NUM_UNSIGNED, .u = gguf_le64(b)};
    case GGUF_I64: return signed_number((int64_t)gguf_le64(b));
    case GGUF_F32: memcpy(&f, b, 4); return (struct number){.kind = NUM_FLOAT, .f = f};
    case GGUF_F64: memcpy(&d, b, 8); return (struct number){.kind = NUM_FLOAT, .f = d};
    default: return (struct number){.kind = NUM_NONE};
    }
}

const struct gguf_kv *gguf_part_kv(const struct gguf_part *p, const char *key)
{
    int64_t i = gguf_index_find(&p->keys, gguf_kv_name, p->kv, key, strlen(key));
    return i >= 0 ? &p->kv[i] : NULL;
}

static int wrong(struct vt_err *err, const char *key, const char *is, const char *want)
{
    return vt_fail(err, VT_E_PAYLOAD, "metadata '%s' is %s; %s is needed", key, is, want);
}

/* bool counts as an integer nowhere: a count that is `true` is a broken file. */
static int integer(const char *key, uint32_t type, const uint8_t *b, uint64_t max, uint64_t *out,
                   struct vt_err *err)
{
    struct number n = read_number(type, b);
    if (type == GGUF_BOOL || n.kind == NUM_NONE || n.kind == NUM_FLOAT)
        return wrong(err, key, gguf_value_name(type), "an integer");
    if (n.kind == NUM_NEGATIVE)
        return wrong(err, key, "negative", "a positive integer");
    if (n.u > max)
        return vt_fail(err, VT_E_PAYLOAD, "metadata '%s' is %llu, out of range", key,
                       (unsigned long long)n.u);
    *out = n.u;
    return 0;
}

static int real(const char *key, uint32_t type, const uint8_t *b, float *out, struct vt_err *err)
{
    struct number n = read_number(type, b);
    if (n.kind != NUM_FLOAT)
        return wrong(err, key, gguf_value_name(type), "a floating-point number");
    *out = (float)n.f;
    return 0;
}

int gguf_part_u64(const struct gguf_part *p, const char *key, uint64_t *out, struct vt_err *err)
{
    const struct gguf_kv *kv = gguf_part_kv(p, key);
    return kv == NULL ? 1 : integer(key, kv->type, kv->val, UINT64_MAX, out, err);
}

/* All metadata of a model is in its first part. */
static const struct gguf_kv *find(const struct gguf_file *f, const char *key)
{
    return gguf_part_kv(&f->parts[0], key);
}

int gguf_u64(const struct gguf_file *f, const char *key, uint64_t *out, struct vt_err *err)
{
    return gguf_part_u64(&f->parts[0], key, out, err);
}

int gguf_u32(const struct gguf_file *f, const char *key, uint32_t *out, struct vt_err *err)
{
    const struct gguf_kv *kv = find(f, key);
    uint64_t v = 0;
    if (kv == NULL)
        return 1;
    if (integer(key, kv->type, kv->val, UINT32_MAX, &v, err) < 0)
        return -1;
    *out = (uint32_t)v;
    return 0;
}

int gguf_f32(const struct gguf_file *f, const char *key, float *out, struct vt_err *err)
{
    const struct gguf_kv *kv = find(f, key);
    return kv == NULL ? 1 : real(key, kv->type, kv->val, out, err);
}

int gguf_bool(const struct gguf_file *f, const char *key, bool *out, struct vt_err *err)
{
    const struct gguf_kv *kv = find(f, key);
    if (kv == NULL)
        return 1;
    if (kv->type != GGUF_BOOL && kv->type != GGUF_U8 && kv->type != GGUF_I8)
        return wrong(err, key, gguf_value_name(kv->type), "true or false");
    *out = kv->val[0] != 0;
    return 0;
}

int gguf_str(const struct gguf_file *f, const char *key, const char **s, size_t *len, struct vt_err *err)
{
    const struct gguf_kv *kv = find(f, key);
    if (kv == NULL)
        return 1;
    if (kv->type != GGUF_STR)
        return wrong(err, key, gguf_value_name(kv->type), "a string");
    *s = (const char *)kv->val;
    *len = kv->n;
    return 0;
}

int gguf_arr(const struct gguf_file *f, const char *key, enum gguf_type *elem, uint64_t *n,
             struct vt_err *err)
{
    const struct gguf_kv *kv = find(f, key);
    if (kv == NULL)
        return 1;
    if (kv->type != GGUF_ARR)
        return wrong(err, key, gguf_value_name(kv->type), "an array");
    *elem = (enum gguf_type)kv->elem;
    *n = kv->n;
    return 0;
}

/* Element i of an array; absent is 1 as everywhere. */
static int element(const struct gguf_file *f, const char *key, uint64_t i, const struct gguf_kv **out,
                   struct vt_err *err)
{
    const struct gguf_kv *kv = find(f, key);
    if (kv == NULL)
        return 1;
    if (kv->type != GGUF_ARR)
        return wrong(err, key, gguf_value_name(kv->type), "an array");
    if (i >= kv->n)
        return vt_fail(err, VT_E_PAYLOAD, "metadata '%s' has %llu elements; element %llu is needed", key,
                       (unsigned long long)kv->n, (unsigned long long)i);
    *out = kv;
    return 0;
}

int gguf_arr_str(const struct gguf_file *f, const char *key, uint64_t i, const char **s, size_t *len,
                 struct vt_err *err)
{
    const struct gguf_kv *kv = NULL;
    int rc = element(f, key, i, &kv, err);
    if (rc != 0)
        return rc;
    if (kv->elem != GGUF_STR)
        return wrong(err, key, "an array of other things", "an array of strings");
    const uint8_t *b = kv->strs[i / GGUF_STR_STRIDE];
    for (uint64_t k = i % GGUF_STR_STRIDE; k > 0; k--)
        b += 8 + gguf_le64(b);
    *s = (const char *)b + 8;
    *len = gguf_le64(b);
    return 0;
}

int gguf_arr_u32(const struct gguf_file *f, const char *key, uint64_t i, uint32_t *out, struct vt_err *err)
{
    const struct gguf_kv *kv = NULL;
    uint64_t v = 0;
    int rc = element(f, key, i, &kv, err);
    if (rc != 0)
        return rc;
    if (kv->elem == GGUF_BOOL) /* per-layer switches are read as 0 and 1 */
        v = kv->val[i] != 0;
    else if (kv->elem == GGUF_STR)
        return wrong(err, key, "an array of strings", "an array of integers");
    else if (integer(key, kv->elem, kv->val + i * gguf_value_size(kv->elem), UINT32_MAX, &v, err) < 0)
        return -1;
    *out = (uint32_t)v;
    return 0;
}

int gguf_arr_f32(const struct gguf_file *f, const char *key, uint64_t i, float *out, struct vt_err *err)
{
    const struct gguf_kv *kv = NULL;
    int rc = element(f, key, i, &kv, err);
    if (rc != 0)
        return rc;
    if (kv->elem == GGUF_STR)
        return wrong(err, key, "an array of strings", "an array of numbers");
    return real(key, kv->elem, kv->val + i * gguf_value_size(kv->elem), out, err);
}
