#include "vocab.h"

#include "unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The byte of an alphabet character, or -1: the printable bytes are themselves, the 68 others follow from U+0100 on. */
static int alphabet_byte(uint32_t cp)
{
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF))
        return (int)cp;
    if (cp < 0x100 || cp > 0x143)
        return -1;
    const int k = (int)cp - 0x100;
    return k <= 0x20 ? k : k <= 0x42 ? 0x7F + k - 0x21 : 0xAD;
}

bool byte_alphabet_decode(const char *s, size_t len, uint8_t *out, size_t *out_len)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        uint32_t cp;
        i += u8_decode((const uint8_t *)s + i, len - i, &cp);
        const int b = alphabet_byte(cp);
        if (b < 0)
            return false;
        out[n++] = (uint8_t)b;
    }
    *out_len = n;
    return true;
}

static int hex(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte of "<0x41>", or -1. */
static int hex_byte(const uint8_t *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    const int a = hex(s[3]), b = hex(s[4]);
    return a < 0 || b < 0 ? -1 : a << 4 | b;
}

static size_t lower_block_decode(const uint8_t *s, size_t n, uint8_t *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (n - i >= 3 && s[i] == 0xE2 && s[i + 1] == 0x96 && s[i + 2] == 0x81) {
            out[k++] = ' ';
            i += 2;
        } else {
            out[k++] = s[i];
        }
    }
    return k;
}

/* Bytes of a token; out has room for n. */
static size_t token_bytes(enum vocab_text how, uint8_t kind, const uint8_t *s, size_t n, uint8_t *out)
{
    size_t len = n;
    if (vocab_is_plain(kind)) {
        if (how == VOCAB_BYTE_ALPHABET && byte_alphabet_decode((const char *)s, n, out, &len))
            return len;
        if (how == VOCAB_LOWER_BLOCK) {
            const int b = kind == TOK_BYTE ? hex_byte(s, n) : -1;
            if (b < 0)
                return lower_block_decode(s, n, out);
            out[0] = (uint8_t)b;
            return 1;
        }
    }
    if (n)
        memcpy(out, s, n);
    return n;
}

bool vocab_is_end_text(const uint8_t *s, size_t n)
{
    static const char *const ends[] = {
        "<|eot_id|>",    "<|im_end|>",      "<|end|>",
        "<|return|>",    "<|call|>",        "<end_of_turn>",
        "<|endoftext|>", "<|eom_id|>",      "</s>",
        "<EOT>",         "<|end_of_text|>", "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>",
    };
    if (n < 4 || s[0] != '<')
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strlen(ends[i]) == n && memcmp(ends[i], s, n) == 0)
            return true;
    return false;
}

static int load_strings(struct vocab *v, const struct gguf_file *g, enum vocab_text how, struct vt_err *err)
{
    static const char key[] = "tokenizer.ggml.tokens";
    uint64_t total = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const char *s;
        size_t len;
        if (gguf_arr_str(g, key, i, &s, &len, err) != 0)
            return vt_fail(err, VT_E_PAYLOAD, "%s[%u] cannot be read", key, i);
        if (len > 65536)
            return vt_fail(err, VT_E_PAYLOAD, "%s[%u] has %zu bytes; a token has at most 65536", key, i, len);
        total += len;
    }
    if (total >= UINT32_MAX)
        return vt_fail(err, VT_E_PAYLOAD, "%s holds %llu bytes, more than 4 GiB", key,
                       (unsigned long long)total);
    v->text.at = malloc(((size_t)v->n + 1) * sizeof(uint32_t));
    v->bytes.at = malloc(((size_t)v->n + 1) * sizeof(uint32_t));
    v->text.data = malloc(total + 1);
    v->bytes.data = malloc(total + 1);
    if (!v->text.at || !v->bytes.at || !v->text.data || !v->bytes.data)
        return vt_fail(err, VT_E_NOMEM, "no memory for a vocabulary of %u tokens", v->n);
    uint32_t t = 0, b = 0;
    for (uint32_t i = 0; i < v->n; i++) {
        const char *s = NULL;
        size_t len = 0;
        if (gguf_arr_str(g, key, i, &s, &len, err) != 0)
            return vt_fail(err, VT_E_PAYLOAD, "%s[%u] cannot be read", key, i);
        v->text.at[i] = t;
        v->bytes.at[i] = b;
        if (len)
            memcpy(v->text.data + t, s, len);
        if (vocab_is_end_text(v->text.data + t, len))
            v->kind[i] = TOK_CONTROL;
        b += (uint32_t)token_bytes(how, v->kind[i], v->text.data + t, len, v->bytes.data + b);
        t += (uint32_t)len;
    }
    v->text.at[v->n] = t;
    v->bytes.at[v->n] = b;
    return 0;
}

static uint32_t hash_bytes(const uint8_t *s, size_t n)
{
    return (uint32_t)XXH3_64bits(s, n);
}

uint32_t vocab_word(const struct vocab *v, const uint8_t *s, size_t n)
{
    if (n == 1)
        return v->one[s[0]];
    if (n > v->longest)
        return VOCAB_NONE;
    const uint32_t h = hash_bytes(s, n);
    for (uint32_t i = h & v->words_mask;; i = (i + 1) & v->words_mask) {
        const struct slot *w = &v->words[i];
        if (w->id == VOCAB_NONE)
            return VOCAB_NONE;
        size_t len;
        if (w->hash == h) {
            const uint8_t *b = strings_at(&v->bytes, w->id, &len);
            if (len == n && memcmp(b, s, n) == 0)
                return w->id;
        }
    }
}

/* The first id of a text wins; empty texts are unreachable. */
static int index_words(struct vocab *v, enum vocab_text how, struct vt_err *err)
{
    uint32_t cap = 16;
    while (cap < v->n * 2ull)
        cap *= 2;
    v->words = malloc((size_t)cap * sizeof *v->words);
    if (!v->words)
        return vt_fail(err, VT_E_NOMEM, "no memory to index %u tokens", v->n);
    memset(v->words, 0xFF, (size_t)cap * sizeof *v->words);
    memset(v->one, 0xFF, sizeof v->one);
    memset(v->byte_id, 0xFF, sizeof v->byte_id);
    v->words_mask = cap - 1;
    for (uint32_t id = 0; id < v->n; id++) {
        size_t n;
        const uint8_t *s = strings_at(&v->bytes, id, &n);
        if (n == 0 || !vocab_is_plain(v->kind[id]))
            continue;
        if (n == 1) {
            uint32_t *at = how == VOCAB_LOWER_BLOCK && v->kind[id] == TOK_BYTE ? v->byte_id : v->one;
            if (at[s[0]] == VOCAB_NONE)
                at[s[0]] = id;
            continue;
        }
        const uint32_t h = hash_bytes(s, n);
        uint32_t i = h & v->words_mask;
        for (; v->words[i].id != VOCAB_NONE; i = (i + 1) & v->words_mask) {
            size_t len;
            const uint8_t *b = strings_at(&v->bytes, v->words[i].id, &len);
            if (len == n && memcmp(b, s, n) == 0)
                break;
        }
        if (v->words[i].id == VOCAB_NONE)
            v->words[i] = (struct slot){h, id};
        if (n > v->longest)
            v->longest = (uint32_t)n;
    }
    if (how == VOCAB_BYTE_ALPHABET)
        memcpy(v->byte_id, v->one, sizeof v->one);
    return 0;
}

static int load_kinds(struct vocab *v, const struct gguf_file *g, struct vt_err *err)
{
    static const char key[] = "tokenizer.ggml.token_type";
    v->kind = malloc((size_t)v->n + 1);
    v->own = calloc(v->n, 1);
    if (!v->kind || !v->own)
        return vt_fail(err, VT_E_NOMEM, "no memory for a vocabulary of %u tokens", v->n);
    memset(v->kind, TOK_NORMAL, (size_t)v->n + 1);
    enum gguf_type type;
    uint64_t n = 0;
    const int found = gguf_arr(g, key, &type, &n, err);
    if (found < 0)
        return -1;
    if (found > 0)
        return 0;
    if (n < v->n)
        return vt_fail(err, VT_E_PAYLOAD, "%s has %llu entries for %u tokens", key, (unsigned long long)n,
                       v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t k = 0;
        if (gguf_arr_u32(g, key, i, &k, err) != 0)
            return vt_fail(err, VT_E_PAYLOAD, "%s[%u] is not a token type", key, i);
        if (k >= TOK_NORMAL && k <= TOK_BYTE)
            v->kind[i] = (uint8_t)k;
    }
    return 0;
}

static int load_scores(struct vocab *v, const struct gguf_file *g, struct vt_err *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    enum gguf_type type;
    uint64_t n = 0;
    const int found = gguf_arr(g, key, &type, &n, err);
    if (found)
        return found < 0 ? -1 : 0;
    if (n < v->n)
        return vt_fail(err, VT_E_PAYLOAD, "%s has %llu entries for %u tokens", key, (unsigned long long)n,
                       v->n);
    v->score = malloc((size_t)v->n * sizeof(float));
    if (!v->score)
        return vt_fail(err, VT_E_NOMEM, "no memory for %u scores", v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        if (gguf_arr_f32(g, key, i, &v->score[i], err) != 0)
            return vt_fail(err, VT_E_PAYLOAD, "%s[%u] is not a number", key, i);
        if (isnan(v->score[i]))
            v->score[i] = -INFINITY;
    }
    return 0;
}

int vocab_load(struct vocab *v, const struct gguf_file *g, enum vocab_text how, struct vt_err *err)
{
    *v = (struct vocab){0};
    static const char key[] = "tokenizer.ggml.tokens";
    enum gguf_type type = GGUF_STR;
    uint64_t n = 0;
    const int found = gguf_arr(g, key, &type, &n, err);
    if (found < 0)
        return -1;
    if (found > 0 || n == 0 || type != GGUF_STR)
        return vt_fail(err, VT_E_PAYLOAD, "%s is missing or empty: the file has no vocabulary", key);
    if (n > 16u << 20)
        return vt_fail(err, VT_E_PAYLOAD, "%s has %llu entries; at most 16 Mi are supported", key,
                       (unsigned long long)n);
    v->n = (uint32_t)n;
    if (load_kinds(v, g, err) || load_strings(v, g, how, err) || load_scores(v, g, err) ||
        index_words(v, how, err)) {
        vocab_fini(v);
        return -1;
    }
    return 0;
}

void vocab_fini(struct vocab *v)
{
    free(v->text.data);
    free(v->text.at);
    free(v->bytes.data);
    free(v->bytes.at);
    free(v->kind);
    free(v->score);
    free(v->words);
    free(v->own);
    *v = (struct vocab){0};
}
