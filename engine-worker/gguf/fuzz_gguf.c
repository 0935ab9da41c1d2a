/* Arbitrary bytes as a model file: opened from memory through a memfd, with and without data, then read through and through, and
 * as the shapes of a model, whose plan is made. The first byte chooses between the bytes alone and a small valid file, one with
 * every type, or a tiny model, that the bytes are written into. */
#include "build_gguf.h"
#include "gguf.h"
#include "model.h"
#include "sizing.h"
#include "tiny.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t touch(const struct gguf_file *f)
{
    uint64_t sum = 0;
    uint8_t sha[32];
    struct vt_err err;
    enum gguf_type elem;
    const char *s;
    size_t len;
    uint64_t n;
    uint32_t u;
    float x;
    FILE *null = fopen("/dev/null", "w");
    if (null != NULL) {
        gguf_print(f, null, true);
        fclose(null);
    }
    gguf_index_sha256(f, sha);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f, i);
        for (uint64_t k = 0; t->data != NULL && k < t->bytes; k++)
            sum += t->data[k];
    }
    if (gguf_arr(f, "tokens", &elem, &n, &err) == 0)
        for (uint64_t i = 0; i < n; i++) {
            if (gguf_arr_str(f, "tokens", i, &s, &len, &err) == 0 && len > 0)
                sum += (uint8_t)s[len - 1];
            if (gguf_arr_u32(f, "tokens", i, &u, &err) == 0)
                sum += u;
            if (gguf_arr_f32(f, "tokens", i, &x, &err) == 0)
                sum += x > 0;
        }
    return sum + sha[0];
}

static void plan(const struct gguf_file *f, const char *path)
{
    const struct sizing s = {.slots = 2, .ctx_tokens = 1024, .ubatch = 64, .rec_snapshots = 2};
    struct model *m = NULL;
    struct vt_plan p;
    struct vt_err err;
    if (model_shapes(&m, f, path, &err) == 0)
        sizing_plan(&p, m, NULL, &s, &err);
    model_free(m);
}

static void try_bytes(const uint8_t *b, size_t n, bool of_model)
{
    char path[40];
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, b, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int header_only = 0; header_only < 2; header_only++) {
        struct gguf_file *f;
        struct vt_err err;
        if (gguf_open(&f, path, header_only, &err) == 0) {
            volatile uint64_t sink = of_model ? 0 : touch(f);
            (void)sink;
            plan(f, path);
        }
        gguf_close(f);
    }
    close(fd);
}

static struct bytes tiny_file(const struct tiny *t)
{
    struct bytes o = {0};
    char path[] = "/tmp/fuzz-tiny-XXXXXX", piece[4096];
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    tiny_write(t, path);
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;)
        put(&o, piece, (size_t)n);
    close(fd);
    unlink(path);
    return o;
}

/* The valid files are made once: a put for each byte would take most of the time. */
static const struct bytes *valid(unsigned which)
{
    static struct bytes files[2 + TINY_KINDS];
    struct bytes *o = &files[which % (2 + TINY_KINDS)];
    if (o->n == 0 && which % (2 + TINY_KINDS) >= 2) {
        *o = tiny_file(tiny_all[which % (2 + TINY_KINDS) - 2]);
    } else if (o->n == 0) {
        *o = which % (2 + TINY_KINDS) != 0 ? every_type_file(64) : small_file();
        if (which % (2 + TINY_KINDS) == 0)
            add_small_data(o);
    }
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    if (data[0] & 1) {
        try_bytes(data + 1, size - 1, false);
        return 0;
    }
    const struct bytes *from = valid(data[0] >> 1);
    uint8_t *file = malloc(from->n);
    size_t at = (size_t)(data[1] | data[2] << 8) % from->n;
    if (!file)
        abort();
    memcpy(file, from->b, from->n);
    memcpy(file + at, data + 3, size - 3 < from->n - at ? size - 3 : from->n - at);
    try_bytes(file, from->n, (data[0] >> 1) % (2 + TINY_KINDS) >= 2);
    free(file);
    return 0;
}
