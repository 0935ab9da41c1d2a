#include "internal.h"

#include <inttypes.h>

/* Control bytes and anything beyond ASCII would be the file talking to the terminal. */
static void print_text(FILE *out, const uint8_t *s, uint64_t len, uint64_t max)
{
    uint64_t n = len < max ? len : max;
    fputc('"', out);
    for (uint64_t i = 0; i < n; i++) {
        if (s[i] == '\n')
            fputs("\\n", out);
        else if (s[i] == '"' || s[i] == '\\')
            fprintf(out, "\\%c", s[i]);
        else if (s[i] >= 0x20 && s[i] < 0x7f)
            fputc(s[i], out);
        else
            fprintf(out, "\\x%02x", s[i]);
    }
    fputs(n < len ? "\"…" : "\"", out);
}

static void print_scalar(FILE *out, uint32_t type, const uint8_t *b)
{
    union {
        int16_t i16;
        float f;
        double d;
    } v;
    switch (type) {
    case GGUF_U8: fprintf(out, "%u", b[0]); break;
    case GGUF_I8: fprintf(out, "%d", (int8_t)b[0]); break;
    case GGUF_U16: fprintf(out, "%u", b[0] | b[1] << 8); break;
    case GGUF_I16:
        __builtin_memcpy(&v.i16, b, 2);
        fprintf(out, "%d", v.i16);
        break;
    case GGUF_U32: fprintf(out, "%" PRIu32, gguf_le32(b)); break;
    case GGUF_I32: fprintf(out, "%" PRId32, (int32_t)gguf_le32(b)); break;
    case GGUF_U64: fprintf(out, "%" PRIu64, gguf_le64(b)); break;
    case GGUF_I64: fprintf(out, "%" PRId64, (int64_t)gguf_le64(b)); break;
    case GGUF_F32:
        __builtin_memcpy(&v.f, b, 4);
        fprintf(out, "%.9g", (double)v.f);
        break;
    case GGUF_F64:
        __builtin_memcpy(&v.d, b, 8);
        fprintf(out, "%.17g", v.d);
        break;
    case GGUF_BOOL: fputs(b[0] ? "true" : "false", out); break;
    default: fputs("?", out);
    }
}

static void print_array(FILE *out, const struct gguf_kv *kv, bool all)
{
    uint64_t n = all || kv->n < 6 ? kv->n : 6;
    const uint8_t *b = kv->val;
    fputc('[', out);
    for (uint64_t i = 0; i < n; i++) {
        if (i > 0)
            fputs(", ", out);
        if (kv->elem == GGUF_STR) {
            print_text(out, b + 8, gguf_le64(b), all ? UINT64_MAX : 24);
            b += 8 + gguf_le64(b);
        } else {
            print_scalar(out, kv->elem, b);
            b += gguf_value_size(kv->elem);
        }
    }
    fputs(n < kv->n ? ", …]" : "]", out);
}

static void print_kv(FILE *out, const struct gguf_kv *kv, bool all)
{
    char type[40];
    if (kv->type == GGUF_ARR)
        snprintf(type, sizeof type, "%s[%" PRIu64 "]", gguf_value_name(kv->elem), kv->n);
    else
        snprintf(type, sizeof type, "%s", gguf_value_name(kv->type));
    fprintf(out, "  %-16s ", type);
    for (uint32_t i = 0; i < kv->key_len; i++)
        fputc(kv->key[i] >= 0x20 && kv->key[i] < 0x7f ? kv->key[i] : '?', out);
    fputs(" = ", out);
    if (kv->type == GGUF_ARR)
        print_array(out, kv, all);
    else if (kv->type == GGUF_STR)
        print_text(out, kv->val, kv->n, all ? UINT64_MAX : 60);
    else
        print_scalar(out, kv->type, kv->val);
    fputc('\n', out);
}

/* Bits that a value takes on average, scales included. */
static double bits_per_weight(uint32_t type)
{
    int64_t values, bytes;
    return ggml_block(type, &values, &bytes) ? 8.0 * (double)bytes / (double)values : 0;
}

static void print_tensor(FILE *out, const struct gguf_tensor *t)
{
    char shape[96];
    int n = snprintf(shape, sizeof shape, "%" PRIu64, t->ne[0]);
    for (uint32_t i = 1; i < t->n_dims; i++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, " x %" PRIu64, t->ne[i]);
    fprintf(out, "  %-8s %7.5g %-24s %12" PRIu64 "  ", ggml_type_name(t->type), bits_per_weight(t->type),
            shape, t->bytes);
    for (const char *s = t->name; *s != '\0'; s++)
        fputc(*s >= 0x20 && *s < 0x7f ? *s : '?', out);
    fputc('\n', out);
}

/* Bytes and count of each type: what a person wants to know first. */
static void print_types(FILE *out, const struct gguf_file *f)
{
    for (uint32_t type = 0; type < 64; type++) {
        uint64_t n = 0, bytes = 0;
        for (uint64_t i = 0; i < f->n_tensors; i++)
            if (f->tensors[i].type == type) {
                n++;
                bytes += f->tensors[i].bytes;
            }
        if (n > 0)
            fprintf(out, "  %-8s %7.5g bits per weight %6" PRIu64 " tensors %14" PRIu64 " bytes\n",
                    ggml_type_name(type), bits_per_weight(type), n, bytes);
    }
}

void gguf_print(const struct gguf_file *f, FILE *out, bool all_values)
{
    uint64_t params = 0;
    for (uint64_t i = 0; i < f->n_tensors; i++)
        params += f->tensors[i].ne[0] * f->tensors[i].ne[1] * f->tensors[i].ne[2] * f->tensors[i].ne[3];
    for (uint32_t i = 0; i < f->n_parts; i++) {
        const struct gguf_part *p = &f->parts[i];
        fprintf(out,
                "%s: GGUF v%" PRIu32 ", %" PRIu64 " bytes, %" PRIu32 " keys, %" PRIu64
                " tensors, alignment %" PRIu32 ", data at %" PRIu64 "\n",
                p->path, p->version, p->size, p->n_kv, p->n_tensors, p->alignment, p->data_at);
    }
    fputs("metadata:\n", out);
    for (uint32_t i = 0; i < f->parts[0].n_kv; i++)
        print_kv(out, &f->parts[0].kv[i], all_values);
    fprintf(out, "tensors: %" PRIu64 ", %" PRIu64 " parameters\n", f->n_tensors, params);
    print_types(out, f);
    for (uint64_t i = 0; i < f->n_tensors; i++)
        print_tensor(out, &f->tensors[i]);
}
