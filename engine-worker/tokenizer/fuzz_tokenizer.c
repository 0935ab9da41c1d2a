/* Any text encodes, and decodes to itself. The first byte chooses vocabulary and flags. */
#include "fixture.h"
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

static struct tok *load(const char *pre)
{
    struct fixture f;
    struct gguf_file *g;
    struct tok *t;
    struct vt_err err;
    fixture_begin(&f);
    if (pre)
        fixture_bpe(&f, pre);
    else
        fixture_spm(&f);
    if (fixture_open(&f, &g, &err) || tok_load(&t, g, &err))
        abort();
    gguf_close(g);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const pres[] = {
        "qwen2",       "qwen35",         "gpt-2",  "smollm",  "llama-bpe",    "gpt-4o", "tekken",
        "deepseek-v3", "deepseek-coder", "falcon", "default", "deepseek-llm", NULL};
    enum { N = sizeof pres / sizeof *pres };
    static struct tok *toks[N];
    if (size == 0)
        return 0;
    const unsigned k = (data[0] & 15) % N;
    const bool special = data[0] & 16, as_is = data[0] & 32;
    if (!toks[k])
        toks[k] = load(pres[k]);
    struct tok_ids ids = {0};
    struct vt_err err;
    const char *text = (const char *)data + 1;
    const size_t n = size - 1;
    const struct tok_span spans[] = {{n / 3, special}, {n / 2, !special}, {n, special}};
    if (tok_encode_spans(toks[k], text, n, spans, 3, as_is ? TOK_AS_IS : 0, &ids, &err))
        abort();
    size_t at = 0;
    for (size_t i = 0; i < ids.n && as_is; i++) {
        size_t len;
        const uint8_t *b = tok_bytes(toks[k], ids.ids[i], &len);
        if (!b || len > n - at || memcmp(b, text + at, len) != 0)
            abort();
        at += len;
    }
    if (as_is && at != n)
        abort();
    tok_ids_fini(&ids);
    return 0;
}
