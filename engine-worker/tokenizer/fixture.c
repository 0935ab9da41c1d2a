#include "fixture.h"

#include "unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void add(struct fixture *f, const void *p, size_t n)
{
    if (f->n + n > f->cap) {
        f->cap = (f->n + n) * 2;
        f->data = realloc(f->data, f->cap);
        if (!f->data)
            abort();
    }
    memcpy(f->data + f->n, p, n);
    f->n += n;
}

static void add_u32(struct fixture *f, uint32_t v)
{
    add(f, &v, sizeof v);
}

static void add_u64(struct fixture *f, uint64_t v)
{
    add(f, &v, sizeof v);
}

static void add_str(struct fixture *f, const char *s)
{
    add_u64(f, strlen(s));
    add(f, s, strlen(s));
}

static void key(struct fixture *f, const char *name, enum gguf_type type)
{
    f->n_keys++;
    add_str(f, name);
    add_u32(f, type);
}

void fixture_begin(struct fixture *f)
{
    *f = (struct fixture){0};
    add(f, "GGUF", 4);
    add_u32(f, 3);
    add_u64(f, 0);
    add_u64(f, 0);
    fixture_str(f, "general.architecture", "test");
}

void fixture_str(struct fixture *f, const char *name, const char *value)
{
    key(f, name, GGUF_STR);
    add_str(f, value);
}

void fixture_u32(struct fixture *f, const char *name, uint32_t value)
{
    key(f, name, GGUF_U32);
    add_u32(f, value);
}

void fixture_bool(struct fixture *f, const char *name, bool value)
{
    const uint8_t b = value;
    key(f, name, GGUF_BOOL);
    add(f, &b, 1);
}

void fixture_strs(struct fixture *f, const char *name, const char *const *values, size_t n)
{
    key(f, name, GGUF_ARR);
    add_u32(f, GGUF_STR);
    add_u64(f, n);
    for (size_t i = 0; i < n; i++)
        add_str(f, values[i]);
}

void fixture_i32s(struct fixture *f, const char *name, const int32_t *values, size_t n)
{
    key(f, name, GGUF_ARR);
    add_u32(f, GGUF_I32);
    add_u64(f, n);
    add(f, values, n * sizeof *values);
}

void fixture_f32s(struct fixture *f, const char *name, const float *values, size_t n)
{
    key(f, name, GGUF_ARR);
    add_u32(f, GGUF_F32);
    add_u64(f, n);
    add(f, values, n * sizeof *values);
}

int fixture_open(struct fixture *f, struct gguf_file **g, struct vt_err *err)
{
    char path[64];
    memcpy(f->data + 16, &f->n_keys, sizeof f->n_keys);
    const int fd = memfd_create("fixture.gguf", MFD_CLOEXEC);
    if (fd < 0 || write(fd, f->data, f->n) != (ssize_t)f->n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int rc = gguf_open(g, path, true, err);
    close(fd);
    free(f->data);
    *f = (struct fixture){0};
    return rc;
}

void fixture_bpe(struct fixture *f, const char *pre)
{
    static char bytes[256][4];
    const char *tokens[FIX_N];
    int32_t kinds[FIX_N];
    unsigned next = 0x100;
    for (unsigned b = 0; b < 256; b++) {
        const bool plain = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        const size_t n = u8_encode(plain ? b : next++, (uint8_t *)bytes[b]);
        bytes[b][n] = 0;
        tokens[b] = bytes[b];
        kinds[b] = 1;
    }
    static const char *const more[] = {
        "th",         "the",          "\xC4\xA0the", "aa",         "aaaa", "\xC4\xA0\xC4\xA0",
        "<|im_end|>", "<|im_start|>", "<think>",     "<think>more"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        tokens[256 + i] = more[i];
        kinds[256 + i] = i < 6 ? 1 : i < 8 ? 3 : 4;
    }
    static const char *const merges[] = {
        "t h", "th e", "\xC4\xA0 the", "a a", "aa aa", "\xC4\xA0 \xC4\xA0", "x notoken", "broken"};
    fixture_str(f, "tokenizer.ggml.model", "gpt2");
    if (pre)
        fixture_str(f, "tokenizer.ggml.pre", pre);
    fixture_strs(f, "tokenizer.ggml.tokens", tokens, FIX_N);
    fixture_i32s(f, "tokenizer.ggml.token_type", kinds, FIX_N);
    fixture_strs(f, "tokenizer.ggml.merges", merges, sizeof merges / sizeof *merges);
}

void fixture_spm(struct fixture *f)
{
    static const char *const words[] = {"a",
                                        "b",
                                        "aa",
                                        "aaaa",
                                        "ab",
                                        "\342\226\201",
                                        "\342\226\201\342\226\201",
                                        "\342\226\201the",
                                        "th",
                                        "the",
                                        "e",
                                        "t",
                                        "h",
                                        "a\342\226\201\141",
                                        "\303\251",
                                        "\346\227\245",
                                        "\346\227\245\346\227\245",
                                        "\n\n",
                                        "\n"};
    enum { N_WORDS = sizeof words / sizeof *words, N = 3 + 256 + N_WORDS + 1 };
    static char bytes[256][7];
    const char *tokens[N] = {"<unk>", "<s>", "</s>"};
    int32_t kinds[N] = {2, 3, 3};
    float scores[N] = {0};
    for (int b = 0; b < 256; b++) {
        snprintf(bytes[b], sizeof bytes[b], "<0x%02X>", b);
        tokens[3 + b] = bytes[b];
        kinds[3 + b] = 6;
    }
    for (int i = 0; i < N_WORDS; i++) {
        tokens[259 + i] = words[i];
        kinds[259 + i] = 1;
        scores[259 + i] = -(float)(i * 7 % 11);
    }
    tokens[N - 1] = "<|im_end|>";
    kinds[N - 1] = 3;
    fixture_str(f, "tokenizer.ggml.model", "llama");
    fixture_bool(f, "tokenizer.ggml.add_space_prefix", false);
    fixture_strs(f, "tokenizer.ggml.tokens", tokens, N);
    fixture_i32s(f, "tokenizer.ggml.token_type", kinds, N);
    fixture_f32s(f, "tokenizer.ggml.scores", scores, N);
}
